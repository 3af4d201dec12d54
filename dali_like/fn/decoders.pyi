"""``nvidia.dali.fn.decoders``. Written by dali_like.operators.stubs from the descriptions of the operators; not to be edited."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from dali_like.graph.nodes import DataNode
from dali_like.types import DALIDataType, DALIImageType, DALIInterpType

_Constant: TypeAlias = float | Sequence[float] | NDArray[Any]
_Ints: TypeAlias = int | Sequence[int] | NDArray[Any]
_Floats: TypeAlias = float | Sequence[float] | NDArray[Any]
_Strings: TypeAlias = str | Sequence[str]
_DataType: TypeAlias = DALIDataType | np.dtype[Any] | type | str

@overload
def image(
    data: DataNode,
    /,
    *,
    output_type: DALIImageType = DALIImageType.RGB,
    adjust_orientation: bool = False,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
    affine: Any = True,
    device_memory_padding: Any = 16777216,
    device_memory_padding_jpeg2k: Any = 0,
    host_memory_padding: Any = 8388608,
    host_memory_padding_jpeg2k: Any = 0,
    hw_decoder_load: Any = 0.65,
    hybrid_huffman_threshold: Any = 1000000,
    memory_stats: Any = False,
    preallocate_height_hint: Any = 0,
    preallocate_width_hint: Any = 0,
    split_stages: Any = False,
    use_chunk_allocator: Any = False,
    cache_batch_copy: Any = True,
    cache_debug: Any = False,
    cache_size: Any = 0,
    cache_threshold: Any = 0,
    cache_type: Any = "",
    jpeg_fancy_upsampling: Any = False,
    use_fast_idct: Any = False,
) -> DataNode:
    """Decode images: JPEG, PNG, WebP, BMP and TIFF, told apart by their first bytes.

    Args:
        data: encoded files, each a one-dimensional uint8 array.
        output_type: colour format of the result: RGB, BGR, GRAY (one channel), YCbCr, or ANY_DATA, which keeps the channels
            of the file.
        adjust_orientation: turn the image upright as its EXIF orientation says. DALI's ``decoders.image`` disregards it, so
            that is the default; its ``experimental.decoders.image`` has this argument.

    Returns:
        Images of shape (height, width, channels), uint8, layout "HWC".

    In `Pipeline.run` a file that cannot be decoded raises a `dali_like.errors.DecodeError` that names the sample.
    """

@overload
def image(
    data: Sequence[DataNode],
    /,
    *,
    output_type: DALIImageType = DALIImageType.RGB,
    adjust_orientation: bool = False,
    device: str | None = "cpu",
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
    affine: Any = True,
    device_memory_padding: Any = 16777216,
    device_memory_padding_jpeg2k: Any = 0,
    host_memory_padding: Any = 8388608,
    host_memory_padding_jpeg2k: Any = 0,
    hw_decoder_load: Any = 0.65,
    hybrid_huffman_threshold: Any = 1000000,
    memory_stats: Any = False,
    preallocate_height_hint: Any = 0,
    preallocate_width_hint: Any = 0,
    split_stages: Any = False,
    use_chunk_allocator: Any = False,
    cache_batch_copy: Any = True,
    cache_debug: Any = False,
    cache_size: Any = 0,
    cache_threshold: Any = 0,
    cache_type: Any = "",
    jpeg_fancy_upsampling: Any = False,
    use_fast_idct: Any = False,
) -> list[DataNode]:
    ...
