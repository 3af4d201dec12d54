"""Operators for looking at data: properties of samples, and images as files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dali_like.errors import ArgumentError, SampleError
from dali_like.graph.language.nodes import DataNode, source_info_of
from dali_like.graph.language.operator_interface import Array, OperatorCall
from dali_like.operators.machinery.description import operator, view_kernel


def _check_dump(given: Any) -> None:
    if given.get("input_layout", "HWC") != "HWC":
        raise ArgumentError(f"input_layout must be 'HWC', not {given['input_layout']!r}: apply fn.transpose first")


@operator(check=_check_dump, writes=True)
def dump_image(call: OperatorCall, input: Array, *, suffix: str = "", input_layout: str = "HWC") -> Array:
    """Write images to files in the current directory, for debugging, and return them.

    The image at position 3 in the batch goes to the file "3-suffix-0.ppm". It has the text format of PPM, or of PGM if there
    is one channel. The next batch overwrites the files.

    Args:
        input: uint8 images of one or three channels.
        suffix: a part of the file names.
        input_layout: "HWC".
    """
    if input.ndim != 3 or input.shape[2] not in (1, 3) or input.dtype != np.uint8:
        raise SampleError(
            f"fn.dump_image writes uint8 images of shape (height, width, 1 or 3), not {input.dtype} of shape {input.shape}"
        )
    height, width, channels = input.shape
    header = f"P{2 if channels == 1 else 3}\n{width} {height}\n255\n"
    path = Path(f"{call.info.idx_in_batch}-{suffix}-0.ppm")
    path.write_text(header + " ".join(map(str, input.reshape(-1).tolist())) + "\n", encoding="ascii")
    return call.part(input)


def _with_property(nodes: Sequence[DataNode], given: Mapping[str, Any]) -> Sequence[DataNode]:
    return [source_info_of(node) for node in nodes] if given["key"] == "source_info" else nodes


@operator(output_layout="", strided=True, replace_inputs=_with_property, **view_kernel("get_property"))
def get_property(call: OperatorCall, input: Array, *, key: Literal["source_info", "layout"]) -> Array:
    """Return a property of each sample, as an array of bytes.

    Args:
        input: any dtype.
        key: "layout": the letters of the layout. "source_info": the name of the file that a reader has read the sample from,
            directly or with operators between; empty for other samples.

    Returns:
        Text as a one-dimensional array of uint8.
    """
    return call.part(input) if key == "source_info" else np.frombuffer(call.layout.encode(), np.uint8)
