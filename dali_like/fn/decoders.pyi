"""``nvidia.dali.fn.decoders``. Written by tools.operator_stubs from the descriptions of the operators; do not edit."""

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
def audio(
    data: DataNode | _Constant,
    /,
    *,
    sample_rate: float | DataNode = 0.0,
    quality: float = 50.0,
    downmix: bool = False,
    dtype: _DataType = ...,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[DataNode]:
    """Decode audio: WAV, FLAC, Ogg (Vorbis and Opus), MP3, and other formats of libsndfile. DALI does not decode MP3.

    Requires soundfile, and soxr for resampling: ``pip install soundfile soxr``.

    Args:
        data: encoded files, each a one-dimensional uint8 array.
        sample_rate: resample to this rate in Hz, from 1 to 10 million. Default, or with 0 or less: the rate of the file.
        quality: quality of resampling from 0, the fastest, to 100. To a higher rate, a filter with 3 to 64 lobes; to a lower
            one, "MQ" of soxr below 50, "HQ" below 75, otherwise "VHQ".
        downmix: return the mean of all channels, in one dimension.
        dtype: data type of the samples: FLOAT with values from -1 to 1, INT16 or INT32.

    Without resampling, and at a higher rate, the result is DALI's. DALI resamples to a lower rate without a low-pass filter,
    so that frequencies above half of the new rate turn up at others; soxr removes them. The rest differs by about a
    thousandth.

    Returns:
        Samples of shape (frames, channels), or (frames,) with `downmix`; and their rate in Hz, a scalar of dtype FLOAT.
    """

@overload
def audio(
    data: _Sequence[DataNode],
    /,
    *,
    sample_rate: float | DataNode = 0.0,
    quality: float = 50.0,
    downmix: bool = False,
    dtype: _DataType = ...,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[list[DataNode]]:
    ...

@overload
def image(
    data: DataNode | _Constant,
    /,
    *,
    output_type: DALIImageType = DALIImageType.RGB,
    use_fast_idct: bool = False,
    adjust_orientation: bool = False,
    min_size: _Ints | None = None,
    device: str | None = None,
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
    """Decode images: JPEG, JPEG 2000, PNG, WebP, BMP, PNM and TIFF, recognized by their first bytes.

    Args:
        data: encoded files, each a one-dimensional uint8 array.
        output_type: color format of the result: RGB, BGR, GRAY (one channel), YCbCr, or ANY_DATA, which keeps the channels
            of the file.
        use_fast_idct: decode JPEGs with a faster transform, which changes pixels by a few units.
        adjust_orientation: rotate the image upright according to its EXIF orientation. The default is False, because DALI's
            ``decoders.image`` ignores the orientation; this argument is from DALI's ``experimental.decoders.image``.
        min_size: minimum (height, width) of the result. Allows decoding JPEGs at half, a quarter or an eighth of their size,
            which is faster for large photographs that are resized later. The pixels differ from those of ``resize``. Not in
            DALI.

    With ``device="mixed"`` the images are wanted on the GPU. They are decoded there if nvImageCodec is installed, and if no
    operator takes them, as operators run on the CPU. Images that nvImageCodec does not support are decoded on the CPU and
    copied, as are all images if the output type is neither RGB nor GRAY. Pixels may differ by a few units.

    Returns:
        Images of shape (height, width, channels), uint8, layout "HWC".

    For a file that cannot be decoded, `Pipeline.run` raises a `dali_like.errors.DecodeError` that names the sample.
    """

@overload
def image(
    data: _Sequence[DataNode],
    /,
    *,
    output_type: DALIImageType = DALIImageType.RGB,
    use_fast_idct: bool = False,
    adjust_orientation: bool = False,
    min_size: _Ints | None = None,
    device: str | None = None,
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
    hw_decoder_load: Any = 0.65,
    hybrid_huffman_threshold: Any = 1000000,
    jpeg_fancy_upsampling: Any = False,
    memory_stats: Any = False,
    preallocate_height_hint: Any = 0,
    preallocate_width_hint: Any = 0,
    split_stages: Any = False,
    use_chunk_allocator: Any = False,
) -> DataNode:
    """Decode windows of images.

    Args:
        data: encoded files, each a one-dimensional uint8 array.
        crop, crop_w, crop_h, crop_pos_x, crop_pos_y, rounding: size and position of the window; see `dali_like.fn.crop`.
        crop_d, crop_pos_z: accepted for DALI compatibility.
        output_type: color format of the result; see `image`.
        use_fast_idct: see `image`.
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
    hw_decoder_load: Any = 0.65,
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
    hw_decoder_load: Any = 0.65,
    hybrid_huffman_threshold: Any = 1000000,
    jpeg_fancy_upsampling: Any = False,
    memory_stats: Any = False,
    preallocate_height_hint: Any = 0,
    preallocate_width_hint: Any = 0,
    split_stages: Any = False,
    use_chunk_allocator: Any = False,
) -> DataNode:
    """Decode windows of images, given by start and end.

    Args:
        data: encoded files, each a one-dimensional uint8 array.
        anchor, shape_input: start and size of the windows; see `dali_like.fn.slice`.
        axes, axis_names, start, rel_start, end, rel_end, shape, rel_shape: see `dali_like.fn.slice`.
        normalized_anchor, normalized_shape: see `dali_like.fn.slice`.
        output_type: color format of the result; see `image`.
        use_fast_idct: see `image`.
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
    hw_decoder_load: Any = 0.65,
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
    use_fast_idct: bool = False,
    min_size: _Ints | None = None,
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
    hw_decoder_load: Any = 0.65,
    hybrid_huffman_threshold: Any = 1000000,
    jpeg_fancy_upsampling: Any = False,
    memory_stats: Any = False,
    preallocate_height_hint: Any = 0,
    preallocate_width_hint: Any = 0,
    split_stages: Any = False,
    use_chunk_allocator: Any = False,
) -> DataNode:
    """Decode random windows of images.

    Args:
        data: encoded files, each a one-dimensional uint8 array.
        random_area: minimum and maximum area of a window, as fractions of the image.
        random_aspect_ratio: minimum and maximum of width / height.
        num_attempts: number of draws. If no window fits, the largest one of the nearest aspect ratio is used.
        output_type: color format of the result; see `image`.
        use_fast_idct: see `image`.
        min_size: minimum (height, width) of the window. Allows decoding JPEGs at half, a quarter or an eighth of their size;
            see `image`. The window covers the same part of the image. Not in DALI.
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
    use_fast_idct: bool = False,
    min_size: _Ints | None = None,
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
    hw_decoder_load: Any = 0.65,
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
def numpy(
    data: DataNode | _Constant,
    /,
    *,
    dtype: _DataType | None = None,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> DataNode:
    """Decode files written by ``numpy.save``.

    Args:
        data: encoded files, each a one-dimensional uint8 array.
        dtype: data type of the result. Default: that of the file.
    """

@overload
def numpy(
    data: _Sequence[DataNode],
    /,
    *,
    dtype: _DataType | None = None,
    device: str | None = None,
    name: str | None = None,
    preserve: bool = False,
    bytes_per_sample_hint: Any = 0,
) -> list[DataNode]:
    ...
