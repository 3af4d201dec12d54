"""``nvidia.dali.fn.experimental.decoders``. Written by tools.operator_stubs from the descriptions of the operators; do not edit."""

from collections.abc import Callable
from collections.abc import Sequence as _Sequence
from typing import Any, Literal, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from dali_like.graph.nodes import DataNode
from dali_like.types import Constant as _Fixed
from dali_like.types import DALIDataType, DALIImageType, DALIInterpType

_Constant: TypeAlias = _Fixed | float | _Sequence[float] | NDArray[Any]
_Ints: TypeAlias = int | _Sequence[int] | NDArray[Any]
_Floats: TypeAlias = float | _Sequence[float] | NDArray[Any]
_Strings: TypeAlias = str | _Sequence[str]
_DataType: TypeAlias = DALIDataType | np.dtype[Any] | type | str

@overload
def image(
    data: DataNode | _Constant,
    /,
    *,
    output_type: DALIImageType = DALIImageType.RGB,
    dtype: _DataType = ...,
    adjust_orientation: bool = True,
    use_fast_idct: bool = False,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
    affine: Any = True,
    device_memory_padding: Any = 16777216,
    device_memory_padding_jpeg2k: Any = 0,
    host_memory_padding: Any = 8388608,
    host_memory_padding_jpeg2k: Any = 0,
    hw_decoder_load: Any = 0.9,
    hybrid_huffman_threshold: Any = 1000000,
    jpeg_fancy_upsampling: Any = False,
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
) -> DataNode:
    """Decode images: JPEG, JPEG 2000, PNG, WebP, BMP, PNM and TIFF, of eight or sixteen bits or floating-point samples.

    A TIFF with a compression that OpenCV lacks, such as Zstandard, requires the package imagecodecs.

    Args:
        data: encoded files, each a one-dimensional uint8 array.
        output_type: color format of the result: RGB, BGR, GRAY (one channel), YCbCr, or ANY_DATA, which keeps the channels
            of the file.
        dtype: data type of the result: UINT8, INT8, UINT16, INT16, UINT32, INT32 or FLOAT. Samples are scaled from the range
            of the file to that of this type: white is 255 as UINT8, 65535 as UINT16, and 1.0 as FLOAT.
        adjust_orientation: rotate the image upright according to its EXIF orientation.
        use_fast_idct: decode JPEGs with a faster transform, which changes pixels by a few units.

    With ``device="mixed"`` images of dtype UINT8 are decoded on the GPU, as those of `dali_like.fn.decoders.image`.

    Returns:
        Images of shape (height, width, channels) and layout "HWC".
    """

@overload
def image(
    data: _Sequence[DataNode],
    /,
    *,
    output_type: DALIImageType = DALIImageType.RGB,
    dtype: _DataType = ...,
    adjust_orientation: bool = True,
    use_fast_idct: bool = False,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
    affine: Any = True,
    device_memory_padding: Any = 16777216,
    device_memory_padding_jpeg2k: Any = 0,
    host_memory_padding: Any = 8388608,
    host_memory_padding_jpeg2k: Any = 0,
    hw_decoder_load: Any = 0.9,
    hybrid_huffman_threshold: Any = 1000000,
    jpeg_fancy_upsampling: Any = False,
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
) -> list[DataNode]:
    ...

@overload
def image_crop(
    data: DataNode | _Constant,
    /,
    *,
    crop: _Floats | DataNode | None = None,
    crop_w: float | DataNode = 0.0,
    crop_h: float | DataNode = 0.0,
    crop_d: float | DataNode = 0.0,
    crop_pos_x: float | DataNode = 0.5,
    crop_pos_y: float | DataNode = 0.5,
    crop_pos_z: float | DataNode = 0.5,
    rounding: Literal["round", "truncate"] = "round",
    output_type: DALIImageType = DALIImageType.RGB,
    dtype: _DataType = ...,
    adjust_orientation: bool = True,
    use_fast_idct: bool = False,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
    affine: Any = True,
    device_memory_padding: Any = 16777216,
    device_memory_padding_jpeg2k: Any = 0,
    host_memory_padding: Any = 8388608,
    host_memory_padding_jpeg2k: Any = 0,
    hw_decoder_load: Any = 0.9,
    hybrid_huffman_threshold: Any = 1000000,
    jpeg_fancy_upsampling: Any = False,
    memory_stats: Any = False,
    preallocate_height_hint: Any = 0,
    preallocate_width_hint: Any = 0,
    split_stages: Any = False,
    use_chunk_allocator: Any = False,
) -> DataNode:
    """Decode windows of images of any depth.

    Args:
        data: encoded files, each a one-dimensional uint8 array.
        crop, crop_w, crop_h, crop_pos_x, crop_pos_y, rounding: size and position of the window; see `dali_like.fn.crop`. The
            window is one of the image turned upright.
        crop_d, crop_pos_z: accepted for DALI compatibility.
        output_type, dtype, adjust_orientation, use_fast_idct: see `image`.
    """

@overload
def image_crop(
    data: _Sequence[DataNode],
    /,
    *,
    crop: _Floats | DataNode | None = None,
    crop_w: float | DataNode = 0.0,
    crop_h: float | DataNode = 0.0,
    crop_d: float | DataNode = 0.0,
    crop_pos_x: float | DataNode = 0.5,
    crop_pos_y: float | DataNode = 0.5,
    crop_pos_z: float | DataNode = 0.5,
    rounding: Literal["round", "truncate"] = "round",
    output_type: DALIImageType = DALIImageType.RGB,
    dtype: _DataType = ...,
    adjust_orientation: bool = True,
    use_fast_idct: bool = False,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
    affine: Any = True,
    device_memory_padding: Any = 16777216,
    device_memory_padding_jpeg2k: Any = 0,
    host_memory_padding: Any = 8388608,
    host_memory_padding_jpeg2k: Any = 0,
    hw_decoder_load: Any = 0.9,
    hybrid_huffman_threshold: Any = 1000000,
    jpeg_fancy_upsampling: Any = False,
    memory_stats: Any = False,
    preallocate_height_hint: Any = 0,
    preallocate_width_hint: Any = 0,
    split_stages: Any = False,
    use_chunk_allocator: Any = False,
) -> list[DataNode]:
    ...

@overload
def image_slice(
    data: DataNode | _Constant,
    anchor: DataNode | _Constant | None = None,
    shape_input: DataNode | _Constant | None = None,
    /,
    *,
    axes: _Ints | DataNode | None = None,
    axis_names: str | None = None,
    start: _Ints | DataNode | None = None,
    rel_start: _Floats | DataNode | None = None,
    end: _Ints | DataNode | None = None,
    rel_end: _Floats | DataNode | None = None,
    shape: _Ints | DataNode | None = None,
    rel_shape: _Floats | DataNode | None = None,
    normalized_anchor: bool = True,
    normalized_shape: bool = True,
    output_type: DALIImageType = DALIImageType.RGB,
    dtype: _DataType = ...,
    adjust_orientation: bool = True,
    use_fast_idct: bool = False,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
    affine: Any = True,
    device_memory_padding: Any = 16777216,
    device_memory_padding_jpeg2k: Any = 0,
    host_memory_padding: Any = 8388608,
    host_memory_padding_jpeg2k: Any = 0,
    hw_decoder_load: Any = 0.9,
    hybrid_huffman_threshold: Any = 1000000,
    jpeg_fancy_upsampling: Any = False,
    memory_stats: Any = False,
    preallocate_height_hint: Any = 0,
    preallocate_width_hint: Any = 0,
    split_stages: Any = False,
    use_chunk_allocator: Any = False,
) -> DataNode:
    """Decode windows of images of any depth, given by start and end.

    Args:
        data: encoded files, each a one-dimensional uint8 array.
        anchor, shape_input: start and size of the windows; see `dali_like.fn.slice`.
        axes, axis_names, start, rel_start, end, rel_end, shape, rel_shape: see `dali_like.fn.slice`. The window is one of
            the image turned upright.
        normalized_anchor, normalized_shape: see `dali_like.fn.slice`.
        output_type, dtype, adjust_orientation, use_fast_idct: see `image`.
    """

@overload
def image_slice(
    data: _Sequence[DataNode],
    anchor: _Sequence[DataNode] | _Constant | None = None,
    shape_input: _Sequence[DataNode] | _Constant | None = None,
    /,
    *,
    axes: _Ints | DataNode | None = None,
    axis_names: str | None = None,
    start: _Ints | DataNode | None = None,
    rel_start: _Floats | DataNode | None = None,
    end: _Ints | DataNode | None = None,
    rel_end: _Floats | DataNode | None = None,
    shape: _Ints | DataNode | None = None,
    rel_shape: _Floats | DataNode | None = None,
    normalized_anchor: bool = True,
    normalized_shape: bool = True,
    output_type: DALIImageType = DALIImageType.RGB,
    dtype: _DataType = ...,
    adjust_orientation: bool = True,
    use_fast_idct: bool = False,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
    affine: Any = True,
    device_memory_padding: Any = 16777216,
    device_memory_padding_jpeg2k: Any = 0,
    host_memory_padding: Any = 8388608,
    host_memory_padding_jpeg2k: Any = 0,
    hw_decoder_load: Any = 0.9,
    hybrid_huffman_threshold: Any = 1000000,
    jpeg_fancy_upsampling: Any = False,
    memory_stats: Any = False,
    preallocate_height_hint: Any = 0,
    preallocate_width_hint: Any = 0,
    split_stages: Any = False,
    use_chunk_allocator: Any = False,
) -> list[DataNode]:
    ...

@overload
def image_random_crop(
    data: DataNode | _Constant,
    /,
    *,
    random_area: _Floats = (0.08, 1.0),
    random_aspect_ratio: _Floats = (0.75, 1.3333333333333333),
    num_attempts: int = 10,
    output_type: DALIImageType = DALIImageType.RGB,
    dtype: _DataType = ...,
    adjust_orientation: bool = True,
    use_fast_idct: bool = False,
    seed: int = -1,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
    affine: Any = True,
    device_memory_padding: Any = 16777216,
    device_memory_padding_jpeg2k: Any = 0,
    host_memory_padding: Any = 8388608,
    host_memory_padding_jpeg2k: Any = 0,
    hw_decoder_load: Any = 0.9,
    hybrid_huffman_threshold: Any = 1000000,
    jpeg_fancy_upsampling: Any = False,
    memory_stats: Any = False,
    preallocate_height_hint: Any = 0,
    preallocate_width_hint: Any = 0,
    split_stages: Any = False,
    use_chunk_allocator: Any = False,
) -> DataNode:
    """Decode random windows of images of any depth.

    Args:
        data: encoded files, each a one-dimensional uint8 array.
        random_area: minimum and maximum area of a window, as fractions of the image.
        random_aspect_ratio: minimum and maximum of width / height.
        num_attempts: number of draws. If no window fits, the largest one of the nearest aspect ratio is used.
        output_type, dtype, adjust_orientation, use_fast_idct: see `image`.
    """

@overload
def image_random_crop(
    data: _Sequence[DataNode],
    /,
    *,
    random_area: _Floats = (0.08, 1.0),
    random_aspect_ratio: _Floats = (0.75, 1.3333333333333333),
    num_attempts: int = 10,
    output_type: DALIImageType = DALIImageType.RGB,
    dtype: _DataType = ...,
    adjust_orientation: bool = True,
    use_fast_idct: bool = False,
    seed: int = -1,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
    affine: Any = True,
    device_memory_padding: Any = 16777216,
    device_memory_padding_jpeg2k: Any = 0,
    host_memory_padding: Any = 8388608,
    host_memory_padding_jpeg2k: Any = 0,
    hw_decoder_load: Any = 0.9,
    hybrid_huffman_threshold: Any = 1000000,
    jpeg_fancy_upsampling: Any = False,
    memory_stats: Any = False,
    preallocate_height_hint: Any = 0,
    preallocate_width_hint: Any = 0,
    split_stages: Any = False,
    use_chunk_allocator: Any = False,
) -> list[DataNode]:
    ...

@overload
def video(
    encoded: DataNode | _Constant,
    /,
    *,
    frames: _Ints | DataNode | None = None,
    start_frame: int | DataNode | None = None,
    end_frame: int | DataNode | None = None,
    sequence_length: int | DataNode | None = None,
    stride: int | DataNode | None = None,
    pad_mode: Literal["none", "constant", "edge", "repeat", "reflect_1001", "symmetric", "reflect_101", "reflect"] | DataNode = "constant",
    fill_value: _Ints = (0,),
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
    affine: Any = True,
    build_index: Any = True,
) -> DataNode:
    """Decode videos, or some of their frames, by FFmpeg: any format and codec that PyAV has.

    Args:
        encoded: encoded files, each a one-dimensional uint8 array.
        frames: numbers of the frames, in any order.
        start_frame: the first frame. Default: 0.
        end_frame: the end of the range of frames. Default: the end of the video.
        sequence_length: number of frames, instead of `end_frame`.
        stride: distance of the frames. Default: 1.
        pad_mode: treatment of frames outside of the video. "none": they are left out; in `frames` they are an error.
            "constant": they are filled with `fill_value`. "edge" or "repeat": the last frame is repeated. "reflect_1001" or
            "symmetric", "reflect_101" or "reflect": frames follow in reverse order, with or without the last one.
        fill_value: one value for each channel, or one for all.

    Returns:
        The frames in RGB, of shape (frames, height, width, 3), dtype UINT8 and layout FHWC.
    """

@overload
def video(
    encoded: _Sequence[DataNode],
    /,
    *,
    frames: _Ints | DataNode | None = None,
    start_frame: int | DataNode | None = None,
    end_frame: int | DataNode | None = None,
    sequence_length: int | DataNode | None = None,
    stride: int | DataNode | None = None,
    pad_mode: Literal["none", "constant", "edge", "repeat", "reflect_1001", "symmetric", "reflect_101", "reflect"] | DataNode = "constant",
    fill_value: _Ints = (0,),
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
    affine: Any = True,
    build_index: Any = True,
) -> list[DataNode]:
    ...
