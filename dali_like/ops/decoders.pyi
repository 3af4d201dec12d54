"""``nvidia.dali.ops.decoders``. Written by tools.operator_stubs from the descriptions of the operators; do not edit."""

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

class Audio:
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
    def __init__(
        self,
        *,
        sample_rate: float | DataNode = ...,
        quality: float = ...,
        downmix: bool = ...,
        dtype: _DataType = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        data: DataNode | _Constant,
        /,
        *,
        sample_rate: float | DataNode = ...,
        quality: float = ...,
        downmix: bool = ...,
        dtype: _DataType = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    
    @overload
    def __call__(
        self,
        data: _Sequence[DataNode],
        /,
        *,
        sample_rate: float | DataNode = ...,
        quality: float = ...,
        downmix: bool = ...,
        dtype: _DataType = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[list[DataNode]]:
        ...
    

class Image:
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
    def __init__(
        self,
        *,
        output_type: DALIImageType = ...,
        use_fast_idct: bool = ...,
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
        cache_batch_copy: Any = ...,
        cache_debug: Any = ...,
        cache_size: Any = ...,
        cache_threshold: Any = ...,
        cache_type: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        data: DataNode | _Constant,
        /,
        *,
        output_type: DALIImageType = ...,
        use_fast_idct: bool = ...,
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
        data: _Sequence[DataNode],
        /,
        *,
        output_type: DALIImageType = ...,
        use_fast_idct: bool = ...,
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
        crop, crop_w, crop_h, crop_pos_x, crop_pos_y, rounding: size and position of the window; see `dali_like.fn.crop`.
        crop_d, crop_pos_z: accepted for DALI compatibility.
        output_type: color format of the result; see `image`.
        use_fast_idct: see `image`.
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
        use_fast_idct: bool = ...,
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
    ) -> None: ...
    @overload
    def __call__(
        self,
        data: DataNode | _Constant,
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
        use_fast_idct: bool = ...,
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
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        data: _Sequence[DataNode],
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
        use_fast_idct: bool = ...,
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
    ) -> list[DataNode]:
        ...
    

class ImageSlice:
    """Decode windows of images, given by start and end.

    Args:
        data: encoded files, each a one-dimensional uint8 array.
        anchor, shape_input: start and size of the windows; see `dali_like.fn.slice`.
        axes, axis_names, start, rel_start, end, rel_end, shape, rel_shape: see `dali_like.fn.slice`.
        normalized_anchor, normalized_shape: see `dali_like.fn.slice`.
        output_type: color format of the result; see `image`.
        use_fast_idct: see `image`.
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
        use_fast_idct: bool = ...,
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
    ) -> None: ...
    @overload
    def __call__(
        self,
        data: DataNode | _Constant,
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
        use_fast_idct: bool = ...,
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
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        data: _Sequence[DataNode],
        anchor: _Sequence[DataNode] | _Constant | None = None,
        shape_input: _Sequence[DataNode] | _Constant | None = None,
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
        use_fast_idct: bool = ...,
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
    ) -> list[DataNode]:
        ...
    

class ImageRandomCrop:
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
    def __init__(
        self,
        *,
        random_area: _Floats = ...,
        random_aspect_ratio: _Floats = ...,
        num_attempts: int = ...,
        output_type: DALIImageType = ...,
        use_fast_idct: bool = ...,
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
    ) -> None: ...
    @overload
    def __call__(
        self,
        data: DataNode | _Constant,
        /,
        *,
        random_area: _Floats = ...,
        random_aspect_ratio: _Floats = ...,
        num_attempts: int = ...,
        output_type: DALIImageType = ...,
        use_fast_idct: bool = ...,
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
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        data: _Sequence[DataNode],
        /,
        *,
        random_area: _Floats = ...,
        random_aspect_ratio: _Floats = ...,
        num_attempts: int = ...,
        output_type: DALIImageType = ...,
        use_fast_idct: bool = ...,
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
    ) -> list[DataNode]:
        ...
    

class Numpy:
    """Decode files written by ``numpy.save``.

    Args:
        data: encoded files, each a one-dimensional uint8 array.
        dtype: data type of the result. Default: that of the file.
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
        data: DataNode | _Constant,
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
        data: _Sequence[DataNode],
        /,
        *,
        dtype: _DataType | None = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    
