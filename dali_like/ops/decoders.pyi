"""``nvidia.dali.ops.decoders``. Written by dali_like.operators.stubs from the descriptions of the operators; not to be edited."""

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

class Image:
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
    def __init__(
        self,
        *,
        output_type: DALIImageType = ...,
        adjust_orientation: bool = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
        affine: Any = ...,
        device_memory_padding: Any = ...,
        device_memory_padding_jpeg2k: Any = ...,
        host_memory_padding: Any = ...,
        host_memory_padding_jpeg2k: Any = ...,
        hw_decoder_load: Any = ...,
        hybrid_huffman_threshold: Any = ...,
        memory_stats: Any = ...,
        preallocate_height_hint: Any = ...,
        preallocate_width_hint: Any = ...,
        split_stages: Any = ...,
        use_chunk_allocator: Any = ...,
        cache_batch_copy: Any = ...,
        cache_debug: Any = ...,
        cache_size: Any = ...,
        cache_threshold: Any = ...,
        cache_type: Any = ...,
        jpeg_fancy_upsampling: Any = ...,
        use_fast_idct: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        data: DataNode,
        /,
        *,
        output_type: DALIImageType = ...,
        adjust_orientation: bool = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
        affine: Any = ...,
        device_memory_padding: Any = ...,
        device_memory_padding_jpeg2k: Any = ...,
        host_memory_padding: Any = ...,
        host_memory_padding_jpeg2k: Any = ...,
        hw_decoder_load: Any = ...,
        hybrid_huffman_threshold: Any = ...,
        memory_stats: Any = ...,
        preallocate_height_hint: Any = ...,
        preallocate_width_hint: Any = ...,
        split_stages: Any = ...,
        use_chunk_allocator: Any = ...,
        cache_batch_copy: Any = ...,
        cache_debug: Any = ...,
        cache_size: Any = ...,
        cache_threshold: Any = ...,
        cache_type: Any = ...,
        jpeg_fancy_upsampling: Any = ...,
        use_fast_idct: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        data: Sequence[DataNode],
        /,
        *,
        output_type: DALIImageType = ...,
        adjust_orientation: bool = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
        affine: Any = ...,
        device_memory_padding: Any = ...,
        device_memory_padding_jpeg2k: Any = ...,
        host_memory_padding: Any = ...,
        host_memory_padding_jpeg2k: Any = ...,
        hw_decoder_load: Any = ...,
        hybrid_huffman_threshold: Any = ...,
        memory_stats: Any = ...,
        preallocate_height_hint: Any = ...,
        preallocate_width_hint: Any = ...,
        split_stages: Any = ...,
        use_chunk_allocator: Any = ...,
        cache_batch_copy: Any = ...,
        cache_debug: Any = ...,
        cache_size: Any = ...,
        cache_threshold: Any = ...,
        cache_type: Any = ...,
        jpeg_fancy_upsampling: Any = ...,
        use_fast_idct: Any = ...,
    ) -> list[DataNode]:
        ...
    
