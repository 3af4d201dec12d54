"""``nvidia.dali.ops.decoders``. Written by tools.operator_stubs from the descriptions of the operators; not to be edited."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from dali_like.graph.nodes import DataNode
from dali_like.types import Constant as _Fixed
from dali_like.types import DALIDataType, DALIImageType, DALIInterpType

_Constant: TypeAlias = _Fixed | float | Sequence[float] | NDArray[Any]
_Ints: TypeAlias = int | Sequence[int] | NDArray[Any]
_Floats: TypeAlias = float | Sequence[float] | NDArray[Any]
_Strings: TypeAlias = str | Sequence[str]
_DataType: TypeAlias = DALIDataType | np.dtype[Any] | type | str

class Image:
    """Decode images: JPEG, PNG, WebP, BMP and TIFF, told apart by their first bytes.

    Args:
        data: encoded files, each a one-dimensional uint8 array.
        output_type: color format of the result: RGB, BGR, GRAY (one channel), YCbCr, or ANY_DATA, which keeps the channels
            of the file.
        adjust_orientation: turn the image upright as its EXIF orientation says. DALI's ``decoders.image`` disregards it, so
            that is the default; its ``experimental.decoders.image`` has this argument.
        min_size: decode JPEGs at a half, a quarter or an eighth of their size, as long as the result is at least so (high,
            wide): faster for large photographs that are going to be resized. The pixels are not those that
            ``resize`` makes. Not in DALI.

    With ``device="mixed"`` images are decoded on the GPU, and are there. What nvImageCodec cannot decode is decoded on the
    CPU and copied; so are all images if the output type is neither RGB nor GRAY. Pixels may differ by a few units.

    Returns:
        Images of shape (height, width, channels), uint8, layout "HWC".

    In `Pipeline.run` a file that cannot be decoded raises a `dali_like.errors.DecodeError` that names the sample.
    """
    def __init__(
        self,
        *,
        output_type: DALIImageType = ...,
        adjust_orientation: bool = ...,
        min_size: _Ints | None = ...,
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
        jpeg_fancy_upsampling: Any = ...,
        memory_stats: Any = ...,
        preallocate_height_hint: Any = ...,
        preallocate_width_hint: Any = ...,
        split_stages: Any = ...,
        use_chunk_allocator: Any = ...,
        use_fast_idct: Any = ...,
        cache_batch_copy: Any = ...,
        cache_debug: Any = ...,
        cache_size: Any = ...,
        cache_threshold: Any = ...,
        cache_type: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        data: DataNode | _Fixed,
        /,
        *,
        output_type: DALIImageType = ...,
        adjust_orientation: bool = ...,
        min_size: _Ints | None = ...,
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
        jpeg_fancy_upsampling: Any = ...,
        memory_stats: Any = ...,
        preallocate_height_hint: Any = ...,
        preallocate_width_hint: Any = ...,
        split_stages: Any = ...,
        use_chunk_allocator: Any = ...,
        use_fast_idct: Any = ...,
        cache_batch_copy: Any = ...,
        cache_debug: Any = ...,
        cache_size: Any = ...,
        cache_threshold: Any = ...,
        cache_type: Any = ...,
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
        min_size: _Ints | None = ...,
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
        jpeg_fancy_upsampling: Any = ...,
        memory_stats: Any = ...,
        preallocate_height_hint: Any = ...,
        preallocate_width_hint: Any = ...,
        split_stages: Any = ...,
        use_chunk_allocator: Any = ...,
        use_fast_idct: Any = ...,
        cache_batch_copy: Any = ...,
        cache_debug: Any = ...,
        cache_size: Any = ...,
        cache_threshold: Any = ...,
        cache_type: Any = ...,
    ) -> list[DataNode]:
        ...
    

class ImageCrop:
    """Decode windows of images.

    Args:
        data: encoded files, each a one-dimensional uint8 array.
        crop, crop_w, crop_h, crop_pos_x, crop_pos_y, rounding: which window, see `dali_like.fn.crop`.
        crop_d, crop_pos_z: for the sake of DALI's programs.
        output_type: color format of the result, see `image`.
    """
    def __init__(
        self,
        *,
        crop: _Floats | DataNode | None = ...,
        crop_w: float | DataNode = ...,
        crop_h: float | DataNode = ...,
        crop_d: float | DataNode = ...,
        crop_pos_x: float | DataNode = ...,
        crop_pos_y: float | DataNode = ...,
        crop_pos_z: float | DataNode = ...,
        rounding: Literal["round", "truncate"] = ...,
        output_type: DALIImageType = ...,
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
        jpeg_fancy_upsampling: Any = ...,
        memory_stats: Any = ...,
        preallocate_height_hint: Any = ...,
        preallocate_width_hint: Any = ...,
        split_stages: Any = ...,
        use_chunk_allocator: Any = ...,
        use_fast_idct: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        data: DataNode | _Fixed,
        /,
        *,
        crop: _Floats | DataNode | None = ...,
        crop_w: float | DataNode = ...,
        crop_h: float | DataNode = ...,
        crop_d: float | DataNode = ...,
        crop_pos_x: float | DataNode = ...,
        crop_pos_y: float | DataNode = ...,
        crop_pos_z: float | DataNode = ...,
        rounding: Literal["round", "truncate"] = ...,
        output_type: DALIImageType = ...,
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
        jpeg_fancy_upsampling: Any = ...,
        memory_stats: Any = ...,
        preallocate_height_hint: Any = ...,
        preallocate_width_hint: Any = ...,
        split_stages: Any = ...,
        use_chunk_allocator: Any = ...,
        use_fast_idct: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        data: Sequence[DataNode],
        /,
        *,
        crop: _Floats | DataNode | None = ...,
        crop_w: float | DataNode = ...,
        crop_h: float | DataNode = ...,
        crop_d: float | DataNode = ...,
        crop_pos_x: float | DataNode = ...,
        crop_pos_y: float | DataNode = ...,
        crop_pos_z: float | DataNode = ...,
        rounding: Literal["round", "truncate"] = ...,
        output_type: DALIImageType = ...,
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
        jpeg_fancy_upsampling: Any = ...,
        memory_stats: Any = ...,
        preallocate_height_hint: Any = ...,
        preallocate_width_hint: Any = ...,
        split_stages: Any = ...,
        use_chunk_allocator: Any = ...,
        use_fast_idct: Any = ...,
    ) -> list[DataNode]:
        ...
    

class ImageSlice:
    """Decode windows of images, given where they begin and end.

    Args:
        data: encoded files, each a one-dimensional uint8 array.
        anchor, shape_input: where the windows begin, and how large they are; see `dali_like.fn.slice`.
        axes, axis_names, start, rel_start, end, rel_end, shape, rel_shape: likewise.
        normalized_anchor, normalized_shape: likewise.
        output_type: color format of the result, see `image`.
    """
    def __init__(
        self,
        *,
        axes: _Ints | DataNode | None = ...,
        axis_names: str | None = ...,
        start: _Ints | DataNode | None = ...,
        rel_start: _Floats | DataNode | None = ...,
        end: _Ints | DataNode | None = ...,
        rel_end: _Floats | DataNode | None = ...,
        shape: _Ints | DataNode | None = ...,
        rel_shape: _Floats | DataNode | None = ...,
        normalized_anchor: bool = ...,
        normalized_shape: bool = ...,
        output_type: DALIImageType = ...,
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
        jpeg_fancy_upsampling: Any = ...,
        memory_stats: Any = ...,
        preallocate_height_hint: Any = ...,
        preallocate_width_hint: Any = ...,
        split_stages: Any = ...,
        use_chunk_allocator: Any = ...,
        use_fast_idct: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        data: DataNode | _Fixed,
        anchor: DataNode | _Constant | None = None,
        shape_input: DataNode | _Constant | None = None,
        /,
        *,
        axes: _Ints | DataNode | None = ...,
        axis_names: str | None = ...,
        start: _Ints | DataNode | None = ...,
        rel_start: _Floats | DataNode | None = ...,
        end: _Ints | DataNode | None = ...,
        rel_end: _Floats | DataNode | None = ...,
        shape: _Ints | DataNode | None = ...,
        rel_shape: _Floats | DataNode | None = ...,
        normalized_anchor: bool = ...,
        normalized_shape: bool = ...,
        output_type: DALIImageType = ...,
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
        jpeg_fancy_upsampling: Any = ...,
        memory_stats: Any = ...,
        preallocate_height_hint: Any = ...,
        preallocate_width_hint: Any = ...,
        split_stages: Any = ...,
        use_chunk_allocator: Any = ...,
        use_fast_idct: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        data: Sequence[DataNode],
        anchor: Sequence[DataNode] | _Constant | None = None,
        shape_input: Sequence[DataNode] | _Constant | None = None,
        /,
        *,
        axes: _Ints | DataNode | None = ...,
        axis_names: str | None = ...,
        start: _Ints | DataNode | None = ...,
        rel_start: _Floats | DataNode | None = ...,
        end: _Ints | DataNode | None = ...,
        rel_end: _Floats | DataNode | None = ...,
        shape: _Ints | DataNode | None = ...,
        rel_shape: _Floats | DataNode | None = ...,
        normalized_anchor: bool = ...,
        normalized_shape: bool = ...,
        output_type: DALIImageType = ...,
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
        jpeg_fancy_upsampling: Any = ...,
        memory_stats: Any = ...,
        preallocate_height_hint: Any = ...,
        preallocate_width_hint: Any = ...,
        split_stages: Any = ...,
        use_chunk_allocator: Any = ...,
        use_fast_idct: Any = ...,
    ) -> list[DataNode]:
        ...
    

class ImageRandomCrop:
    """Decode random windows of images.

    Args:
        data: encoded files, each a one-dimensional uint8 array.
        random_area: the least and the largest part of the image that a window has.
        random_aspect_ratio: the least and the largest quotient of its width and its height.
        num_attempts: how often a window that does not fit is drawn again, before a middle one is taken.
        output_type: color format of the result, see `image`.
        min_size: decode JPEGs at a half, a quarter or an eighth of their size, as long as the window is at least so (high,
            wide); see `image`. It is the same window. Not in DALI.
    """
    def __init__(
        self,
        *,
        random_area: _Floats = ...,
        random_aspect_ratio: _Floats = ...,
        num_attempts: int = ...,
        output_type: DALIImageType = ...,
        min_size: _Ints | None = ...,
        seed: int = ...,
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
        jpeg_fancy_upsampling: Any = ...,
        memory_stats: Any = ...,
        preallocate_height_hint: Any = ...,
        preallocate_width_hint: Any = ...,
        split_stages: Any = ...,
        use_chunk_allocator: Any = ...,
        use_fast_idct: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        data: DataNode | _Fixed,
        /,
        *,
        random_area: _Floats = ...,
        random_aspect_ratio: _Floats = ...,
        num_attempts: int = ...,
        output_type: DALIImageType = ...,
        min_size: _Ints | None = ...,
        seed: int = ...,
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
        jpeg_fancy_upsampling: Any = ...,
        memory_stats: Any = ...,
        preallocate_height_hint: Any = ...,
        preallocate_width_hint: Any = ...,
        split_stages: Any = ...,
        use_chunk_allocator: Any = ...,
        use_fast_idct: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        data: Sequence[DataNode],
        /,
        *,
        random_area: _Floats = ...,
        random_aspect_ratio: _Floats = ...,
        num_attempts: int = ...,
        output_type: DALIImageType = ...,
        min_size: _Ints | None = ...,
        seed: int = ...,
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
        jpeg_fancy_upsampling: Any = ...,
        memory_stats: Any = ...,
        preallocate_height_hint: Any = ...,
        preallocate_width_hint: Any = ...,
        split_stages: Any = ...,
        use_chunk_allocator: Any = ...,
        use_fast_idct: Any = ...,
    ) -> list[DataNode]:
        ...
    

class Numpy:
    """Decode the files of ``numpy.save``.

    Args:
        data: encoded files, each a one-dimensional uint8 array.
        dtype: of the result. Default: that of the file.
    """
    def __init__(
        self,
        *,
        dtype: _DataType | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        data: DataNode | _Fixed,
        /,
        *,
        dtype: _DataType | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        data: Sequence[DataNode],
        /,
        *,
        dtype: _DataType | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    
