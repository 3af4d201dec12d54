"""All readers of the library, which register themselves when they are imported, and the readers of users."""

from __future__ import annotations

from collections.abc import Mapping

from dali_like.sources.readers import (
    caffe_reader,  # noqa: F401
    coco_reader,  # noqa: F401
    file_reader,  # noqa: F401
    fits_reader,  # noqa: F401
    mxnet_reader,  # noqa: F401
    nemo_asr_reader,  # noqa: F401
    numpy_reader,  # noqa: F401
    sequence_reader,  # noqa: F401
    tfrecord_reader,  # noqa: F401
    video_reader,  # noqa: F401
    webdataset_reader,  # noqa: F401
)
from dali_like.sources.readers.reader import Reader, registry


def registered_readers() -> Mapping[str, type[Reader]]:
    """Return the classes of all readers by their names in ``fn``."""
    return registry
