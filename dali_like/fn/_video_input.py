"""`video`, as in ``nvidia.dali.fn.experimental.inputs``."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from dali_like.common.checks import positive
from dali_like.errors import ArgumentClashError, ArgumentError, DeviceError
from dali_like.graph.language.defining import current_pipeline
from dali_like.graph.language.nodes import DataNode, source_nodes
from dali_like.sources.source_arguments import default_options
from dali_like.sources.source_checks import make_external_source

__all__ = ["video"]


def video(
    *,
    sequence_length: int,
    last_sequence_policy: Literal["partial", "pad"] = "partial",
    name: str | None = None,
    device: str = "cpu",
    blocking: bool = False,
    no_copy: bool = False,
    preserve: bool = False,
    affine: bool = True,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
    """Split videos that the user feeds into sequences of frames.

    `Pipeline.feed_input` takes one encoded video: a batch of one one-dimensional uint8 array. Each run decodes the next
    ``batch_size`` sequences in the main process. The last batch of a video may have fewer. Then comes the next video, if it
    has been fed.

    Args:
        sequence_length: frames in a sequence.
        last_sequence_policy: "partial": the last sequence of a video may have fewer frames. "pad": it is filled with frames
            of zeros.
        name: name of the input, for `Pipeline.feed_input`.
        device: where the frames are wanted: "cpu", "gpu" or "mixed".
        blocking: True: `run` waits for the next video. False: it raises NoInputError.
        no_copy: True: the encoded video is not copied, and must not be changed while it is in use.
        preserve: take batches even if no output needs them.
        affine, bytes_per_sample_hint: without effect.

    Returns:
        The frames, of shape (frames, height, width, 3), dtype UINT8 and layout FHWC.

    Raises:
        ArgumentError, DeviceError: an argument is wrong; the message names it.
    """
    from dali_like.sources.video_splitter import VideoSplitter  # few programs need it

    where = "fn.experimental.inputs.video"
    if last_sequence_policy not in ("partial", "pad"):
        raise ArgumentError(f"{where}: last_sequence_policy must be 'partial' or 'pad', not {last_sequence_policy!r}")
    if device not in ("cpu", "gpu", "mixed"):
        raise DeviceError(f'{where}: device={device!r}: the frames can be on the "cpu" or on the "gpu"')
    splitter = VideoSplitter(positive("sequence_length", sequence_length), last_sequence_policy == "pad")
    options: Any = {
        **default_options(),
        "name": name,
        "blocking": blocking,
        "no_copy": no_copy,
        "layout": "FHWC",
        "dtype": np.uint8,
        "ndim": 4,
    }
    external = make_external_source(None, None, options).replaced(splitter=splitter)
    (node,) = source_nodes(external)
    if device != "cpu":
        node = node.gpu()
    if preserve:
        pipeline = current_pipeline()
        if pipeline is None:
            raise ArgumentClashError(f"{where}: preserve=True needs a current pipeline; call it inside `with pipeline:`")
        pipeline.add_sink(node)
    return node
