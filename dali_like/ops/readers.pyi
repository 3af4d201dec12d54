"""``nvidia.dali.ops.readers``. Written by tools.operator_stubs from the descriptions of the operators; do not edit."""

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

class File:
    """Reads files, and returns their bytes and labels.

    There are three ways to list the files:

    - `file_root` alone: each folder in it is a class. The folders, sorted by their names, have the labels 0, 1, 2 and so on,
      whether or not they contain files. The files in a folder are sorted by their names. Deeper folders are not read.
    - `file_list`: a text file with a name and a label per line, such as ``dog.jpg 0``.
    - `files`: the paths.

    Args:
        file_root: folder of the classes; with `file_list` or `files`, the folder that relative names begin from.
        files: paths of files.
        labels: a label for each of `files`. Default: their numbers in `files`.
        file_list: path of a text file. Relative names in it begin from `file_root`, or else from the folder of this file.
        file_filters: shell patterns of file names in the folders; a name must match one of them. Default: images and audio
            files, by their extensions.
        dir_filters: shell patterns of names of folders. Default: all folders.
        case_sensitive_filter: whether patterns distinguish upper and lower case.

    Returns:
        The bytes of a file, of shape (number of bytes,) and dtype UINT8, and the label, of shape (1,) and dtype INT32.
    """
    def __init__(
        self,
        *,
        file_root: str | None = ...,
        files: _Strings | None = ...,
        labels: _Ints | None = ...,
        file_list: str | None = ...,
        file_filters: _Strings = ...,
        dir_filters: _Strings | None = ...,
        case_sensitive_filter: bool = ...,
        name: str | None = ...,
        device: str | None = ...,
        random_shuffle: bool = ...,
        shuffle_after_epoch: bool = ...,
        shard_id: int = ...,
        num_shards: int = ...,
        stick_to_shard: bool = ...,
        pad_last_batch: bool = ...,
        seed: int = ...,
        prefetch_queue_depth: int = ...,
        preserve: bool = ...,
        on_error: Any = ...,
        remote_options: Any = ...,
        bytes_per_sample_hint: Any = ...,
        dont_use_mmap: bool = ...,
        initial_fill: int = ...,
        lazy_init: bool = ...,
        read_ahead: bool = ...,
        skip_cached_images: bool = ...,
        tensor_init_bytes: int = ...,
    ) -> None: ...
    def __call__(
        self,
        *,
        file_root: str | None = ...,
        files: _Strings | None = ...,
        labels: _Ints | None = ...,
        file_list: str | None = ...,
        file_filters: _Strings = ...,
        dir_filters: _Strings | None = ...,
        case_sensitive_filter: bool = ...,
        name: str | None = ...,
        device: str | None = ...,
        random_shuffle: bool = ...,
        shuffle_after_epoch: bool = ...,
        shard_id: int = ...,
        num_shards: int = ...,
        stick_to_shard: bool = ...,
        pad_last_batch: bool = ...,
        seed: int = ...,
        prefetch_queue_depth: int = ...,
        preserve: bool = ...,
        on_error: Any = ...,
        remote_options: Any = ...,
        bytes_per_sample_hint: Any = ...,
        dont_use_mmap: bool = ...,
        initial_fill: int = ...,
        lazy_init: bool = ...,
        read_ahead: bool = ...,
        skip_cached_images: bool = ...,
        tensor_init_bytes: int = ...,
    ) -> list[DataNode]:
        ...
    

class Numpy:
    """Reads arrays that ``numpy.save`` has written, of any shape and numeric dtype.

    Args:
        file_root: folder of the files. Those in it come first, sorted by name, then those in each of its folders. With
            `file_list` or `files`, the folder that relative names begin from.
        files: paths of files.
        file_list: path of a text file with a name per line. Relative names in it begin from `file_root`, or else from the
            folder of this file.
        file_filter: shell pattern of file names below `file_root`. Upper and lower case are distinguished.
        cache_header_information: keep the headers, so that later epochs read only elements.
        dont_use_mmap: read whole files also if only a region is wanted. Otherwise local files are mapped for that.
        register_buffers, use_o_direct: without effect.
        roi_start, rel_roi_start: start of the region, in elements or as a fraction of the extent: one number for all axes,
            or one for each of them. Default: the beginning.
        roi_end, rel_roi_end: end of the region, likewise. Default: the end of the array.
        roi_shape, rel_roi_shape: size of the region, instead of its end.
        roi_axes: axes that the numbers are for. Default: all axes, in their order.
        out_of_bounds_policy: treatment of a region that lies partly outside of the array: "error", "pad" with `fill_value`,
            or "trim_to_shape".
        fill_value: element outside of the array, with "pad".

    Returns:
        The array, in C order and native byte order. With arguments for a region, that part of it.
    """
    def __init__(
        self,
        *,
        file_root: str | None = ...,
        files: _Strings | None = ...,
        file_list: str | None = ...,
        file_filter: str = ...,
        cache_header_information: bool = ...,
        dont_use_mmap: bool = ...,
        register_buffers: bool = ...,
        use_o_direct: bool = ...,
        roi_start: _Ints | DataNode | None = ...,
        rel_roi_start: _Floats | DataNode | None = ...,
        roi_end: _Ints | DataNode | None = ...,
        rel_roi_end: _Floats | DataNode | None = ...,
        roi_shape: _Ints | DataNode | None = ...,
        rel_roi_shape: _Floats | DataNode | None = ...,
        roi_axes: _Ints = ...,
        out_of_bounds_policy: Literal["error", "pad", "trim_to_shape"] = ...,
        fill_value: float = ...,
        name: str | None = ...,
        device: str | None = ...,
        random_shuffle: bool = ...,
        shuffle_after_epoch: bool = ...,
        shard_id: int = ...,
        num_shards: int = ...,
        stick_to_shard: bool = ...,
        pad_last_batch: bool = ...,
        seed: int = ...,
        prefetch_queue_depth: int = ...,
        preserve: bool = ...,
        on_error: Any = ...,
        remote_options: Any = ...,
        bytes_per_sample_hint: Any = ...,
        initial_fill: int = ...,
        lazy_init: bool = ...,
        read_ahead: bool = ...,
        skip_cached_images: bool = ...,
        tensor_init_bytes: int = ...,
    ) -> None: ...
    def __call__(
        self,
        *,
        file_root: str | None = ...,
        files: _Strings | None = ...,
        file_list: str | None = ...,
        file_filter: str = ...,
        cache_header_information: bool = ...,
        dont_use_mmap: bool = ...,
        register_buffers: bool = ...,
        use_o_direct: bool = ...,
        roi_start: _Ints | DataNode | None = ...,
        rel_roi_start: _Floats | DataNode | None = ...,
        roi_end: _Ints | DataNode | None = ...,
        rel_roi_end: _Floats | DataNode | None = ...,
        roi_shape: _Ints | DataNode | None = ...,
        rel_roi_shape: _Floats | DataNode | None = ...,
        roi_axes: _Ints = ...,
        out_of_bounds_policy: Literal["error", "pad", "trim_to_shape"] = ...,
        fill_value: float = ...,
        name: str | None = ...,
        device: str | None = ...,
        random_shuffle: bool = ...,
        shuffle_after_epoch: bool = ...,
        shard_id: int = ...,
        num_shards: int = ...,
        stick_to_shard: bool = ...,
        pad_last_batch: bool = ...,
        seed: int = ...,
        prefetch_queue_depth: int = ...,
        preserve: bool = ...,
        on_error: Any = ...,
        remote_options: Any = ...,
        bytes_per_sample_hint: Any = ...,
        initial_fill: int = ...,
        lazy_init: bool = ...,
        read_ahead: bool = ...,
        skip_cached_images: bool = ...,
        tensor_init_bytes: int = ...,
    ) -> DataNode:
        ...
    

class Sequence:
    """Reads sequences of frames, which are image files in one folder for each stream.

    The streams are sorted by the names of their folders, and the frames of a stream by their names. A sequence does not go
    beyond its stream. DALI's reader is deprecated there, in favor of readers of video files.

    Args:
        file_root: folder of the streams.
        sequence_length: frames in a sequence.
        step: distance of the first frames of consecutive sequences.
        stride: distance of consecutive frames in a sequence.
        image_type: color format of the frames.

    Returns:
        The frames, of shape (frames, height, width, channels), dtype UINT8 and layout FHWC.
    """
    def __init__(
        self,
        *,
        file_root: str = ...,
        sequence_length: int = ...,
        step: int = ...,
        stride: int = ...,
        image_type: DALIImageType = ...,
        name: str | None = ...,
        device: str | None = ...,
        random_shuffle: bool = ...,
        shuffle_after_epoch: bool = ...,
        shard_id: int = ...,
        num_shards: int = ...,
        stick_to_shard: bool = ...,
        pad_last_batch: bool = ...,
        seed: int = ...,
        prefetch_queue_depth: int = ...,
        preserve: bool = ...,
        on_error: Any = ...,
        remote_options: Any = ...,
        bytes_per_sample_hint: Any = ...,
        dont_use_mmap: bool = ...,
        initial_fill: int = ...,
        lazy_init: bool = ...,
        read_ahead: bool = ...,
        skip_cached_images: bool = ...,
        tensor_init_bytes: int = ...,
    ) -> None: ...
    def __call__(
        self,
        *,
        file_root: str = ...,
        sequence_length: int = ...,
        step: int = ...,
        stride: int = ...,
        image_type: DALIImageType = ...,
        name: str | None = ...,
        device: str | None = ...,
        random_shuffle: bool = ...,
        shuffle_after_epoch: bool = ...,
        shard_id: int = ...,
        num_shards: int = ...,
        stick_to_shard: bool = ...,
        pad_last_batch: bool = ...,
        seed: int = ...,
        prefetch_queue_depth: int = ...,
        preserve: bool = ...,
        on_error: Any = ...,
        remote_options: Any = ...,
        bytes_per_sample_hint: Any = ...,
        dont_use_mmap: bool = ...,
        initial_fill: int = ...,
        lazy_init: bool = ...,
        read_ahead: bool = ...,
        skip_cached_images: bool = ...,
        tensor_init_bytes: int = ...,
    ) -> DataNode:
        ...
    

class Video:
    """Reads sequences of frames from videos.

    A video is decoded by FFmpeg, in any format and codec that PyAV has: H.264, HEVC, VP9, AV1, MPEG-4 and more. A sequence
    does not go beyond its video. Unlike DALI's reader, this one decodes on the CPU, and reads videos of variable frame rate.

    Args:
        sequence_length: frames in a sequence.
        filenames: paths of videos.
        file_root: folder with a folder for each label. Folders and files are sorted by their names. Files in it that are no
            videos are skipped, with a warning.
        file_list: path of a text file. Its lines have a path, a label, and perhaps the start and the end of the range to
            read, in seconds. Negative ones count from the end. Without the end, the range goes on to the end of the video.
        labels: a label for each of `filenames`. An empty list: their numbers.
        file_list_frame_num: ranges are numbers of frames instead of seconds.
        file_list_include_preceding_frame: a range that begins between two frames begins with the earlier one, and likewise
            ends with the later one. Default: with the other ones.
        step: distance of the first frames of consecutive sequences. Default: `sequence_length` times `stride`.
        stride: distance of consecutive frames in a sequence.
        pad_sequences: fill sequences at the end of a range with frames of zeros. Otherwise these sequences are left out.
        image_type: color space of the frames: RGB or YCbCr.
        dtype: UINT8 or FLOAT.
        normalized: scale the frames to the range from 0 to 1, with FLOAT.
        channels: 3.
        enable_frame_num: return the number of the first frame of each sequence.
        enable_timestamps: return the time of each frame.
        skip_vfr_check, additional_decode_surfaces: without effect.
        decoder_cache_bytes: memory of the videos that a worker keeps open.

    Returns:
        The frames, of shape (frames, height, width, 3) and layout FHWC. Then the label, of shape (1,) and dtype INT32,
        unless there are neither `labels` nor `file_root` nor `file_list`. With `enable_frame_num`, the number of the first
        frame, of shape (1,) and dtype INT32. With `enable_timestamps`, the seconds from the first frame of the video to each
        frame, of shape (frames,) and dtype FLOAT64; -1 for filled frames.
    """
    def __init__(
        self,
        *,
        sequence_length: int = ...,
        filenames: _Strings = ...,
        file_root: str = ...,
        file_list: str = ...,
        labels: _Ints | None = ...,
        file_list_frame_num: bool = ...,
        file_list_include_preceding_frame: bool = ...,
        step: int = ...,
        stride: int = ...,
        pad_sequences: bool = ...,
        image_type: DALIImageType = ...,
        dtype: _DataType = ...,
        normalized: bool = ...,
        channels: int = ...,
        enable_frame_num: bool = ...,
        enable_timestamps: bool = ...,
        skip_vfr_check: bool = ...,
        additional_decode_surfaces: int = ...,
        decoder_cache_bytes: int = ...,
        name: str | None = ...,
        device: str | None = ...,
        random_shuffle: bool = ...,
        shuffle_after_epoch: bool = ...,
        shard_id: int = ...,
        num_shards: int = ...,
        stick_to_shard: bool = ...,
        pad_last_batch: bool = ...,
        seed: int = ...,
        prefetch_queue_depth: int = ...,
        preserve: bool = ...,
        on_error: Any = ...,
        remote_options: Any = ...,
        bytes_per_sample_hint: Any = ...,
        dont_use_mmap: bool = ...,
        initial_fill: int = ...,
        lazy_init: bool = ...,
        read_ahead: bool = ...,
        skip_cached_images: bool = ...,
        tensor_init_bytes: int = ...,
    ) -> None: ...
    def __call__(
        self,
        *,
        sequence_length: int = ...,
        filenames: _Strings = ...,
        file_root: str = ...,
        file_list: str = ...,
        labels: _Ints | None = ...,
        file_list_frame_num: bool = ...,
        file_list_include_preceding_frame: bool = ...,
        step: int = ...,
        stride: int = ...,
        pad_sequences: bool = ...,
        image_type: DALIImageType = ...,
        dtype: _DataType = ...,
        normalized: bool = ...,
        channels: int = ...,
        enable_frame_num: bool = ...,
        enable_timestamps: bool = ...,
        skip_vfr_check: bool = ...,
        additional_decode_surfaces: int = ...,
        decoder_cache_bytes: int = ...,
        name: str | None = ...,
        device: str | None = ...,
        random_shuffle: bool = ...,
        shuffle_after_epoch: bool = ...,
        shard_id: int = ...,
        num_shards: int = ...,
        stick_to_shard: bool = ...,
        pad_last_batch: bool = ...,
        seed: int = ...,
        prefetch_queue_depth: int = ...,
        preserve: bool = ...,
        on_error: Any = ...,
        remote_options: Any = ...,
        bytes_per_sample_hint: Any = ...,
        dont_use_mmap: bool = ...,
        initial_fill: int = ...,
        lazy_init: bool = ...,
        read_ahead: bool = ...,
        skip_cached_images: bool = ...,
        tensor_init_bytes: int = ...,
    ) -> Any:
        ...
    

class VideoResize:
    """Reads sequences of frames from videos, and scales them.

    A video is decoded by FFmpeg, in any format and codec that PyAV has: H.264, HEVC, VP9, AV1, MPEG-4 and more. A sequence
    does not go beyond its video. Unlike DALI's reader, this one decodes on the CPU, and reads videos of variable frame rate.

    Args:
        sequence_length: frames in a sequence.
        filenames: paths of videos.
        file_root: folder with a folder for each label. Folders and files are sorted by their names. Files in it that are no
            videos are skipped, with a warning.
        file_list: path of a text file. Its lines have a path, a label, and perhaps the start and the end of the range to
            read, in seconds. Negative ones count from the end. Without the end, the range goes on to the end of the video.
        labels: a label for each of `filenames`. An empty list: their numbers.
        file_list_frame_num: ranges are numbers of frames instead of seconds.
        file_list_include_preceding_frame: a range that begins between two frames begins with the earlier one, and likewise
            ends with the later one. Default: with the other ones.
        step: distance of the first frames of consecutive sequences. Default: `sequence_length` times `stride`.
        stride: distance of consecutive frames in a sequence.
        pad_sequences: fill sequences at the end of a range with frames of zeros. Otherwise these sequences are left out.
        image_type: color space of the frames: RGB or YCbCr.
        dtype: UINT8 or FLOAT.
        normalized: scale the frames to the range from 0 to 1, with FLOAT.
        channels: 3.
        enable_frame_num: return the number of the first frame of each sequence.
        enable_timestamps: return the time of each frame.
        skip_vfr_check, additional_decode_surfaces: without effect.
        decoder_cache_bytes: memory of the videos that a worker keeps open.
        size, resize_x, resize_y, resize_z, resize_shorter, resize_longer: see ``fn.resize``.
        mode, max_size, subpixel_scale, roi_start, roi_end, roi_relative: likewise.
        interp_type, min_filter, mag_filter, antialias: likewise.
        minibatch_size, temp_buffer_hint: without effect.

    Returns:
        The frames, of shape (frames, height, width, 3) and layout FHWC. Then the label, of shape (1,) and dtype INT32,
        unless there are neither `labels` nor `file_root` nor `file_list`. With `enable_frame_num`, the number of the first
        frame, of shape (1,) and dtype INT32. With `enable_timestamps`, the seconds from the first frame of the video to each
        frame, of shape (frames,) and dtype FLOAT64; -1 for filled frames.
    """
    def __init__(
        self,
        *,
        sequence_length: int = ...,
        filenames: _Strings = ...,
        file_root: str = ...,
        file_list: str = ...,
        labels: _Ints | None = ...,
        file_list_frame_num: bool = ...,
        file_list_include_preceding_frame: bool = ...,
        step: int = ...,
        stride: int = ...,
        pad_sequences: bool = ...,
        image_type: DALIImageType = ...,
        dtype: _DataType = ...,
        normalized: bool = ...,
        channels: int = ...,
        enable_frame_num: bool = ...,
        enable_timestamps: bool = ...,
        skip_vfr_check: bool = ...,
        additional_decode_surfaces: int = ...,
        decoder_cache_bytes: int = ...,
        size: _Floats | DataNode | None = ...,
        resize_x: float | DataNode = ...,
        resize_y: float | DataNode = ...,
        resize_z: float | DataNode = ...,
        resize_shorter: float | DataNode = ...,
        resize_longer: float | DataNode = ...,
        mode: Literal["default", "stretch", "not_larger", "not_smaller"] = ...,
        max_size: _Floats | None = ...,
        subpixel_scale: bool = ...,
        roi_start: _Floats | DataNode | None = ...,
        roi_end: _Floats | DataNode | None = ...,
        roi_relative: bool = ...,
        interp_type: DALIInterpType | DataNode = ...,
        min_filter: DALIInterpType | DataNode | None = ...,
        mag_filter: DALIInterpType | DataNode | None = ...,
        antialias: bool = ...,
        minibatch_size: int = ...,
        temp_buffer_hint: int = ...,
        name: str | None = ...,
        device: str | None = ...,
        random_shuffle: bool = ...,
        shuffle_after_epoch: bool = ...,
        shard_id: int = ...,
        num_shards: int = ...,
        stick_to_shard: bool = ...,
        pad_last_batch: bool = ...,
        seed: int = ...,
        prefetch_queue_depth: int = ...,
        preserve: bool = ...,
        on_error: Any = ...,
        remote_options: Any = ...,
        bytes_per_sample_hint: Any = ...,
        dont_use_mmap: bool = ...,
        initial_fill: int = ...,
        lazy_init: bool = ...,
        read_ahead: bool = ...,
        skip_cached_images: bool = ...,
        tensor_init_bytes: int = ...,
    ) -> None: ...
    def __call__(
        self,
        *,
        sequence_length: int = ...,
        filenames: _Strings = ...,
        file_root: str = ...,
        file_list: str = ...,
        labels: _Ints | None = ...,
        file_list_frame_num: bool = ...,
        file_list_include_preceding_frame: bool = ...,
        step: int = ...,
        stride: int = ...,
        pad_sequences: bool = ...,
        image_type: DALIImageType = ...,
        dtype: _DataType = ...,
        normalized: bool = ...,
        channels: int = ...,
        enable_frame_num: bool = ...,
        enable_timestamps: bool = ...,
        skip_vfr_check: bool = ...,
        additional_decode_surfaces: int = ...,
        decoder_cache_bytes: int = ...,
        size: _Floats | DataNode | None = ...,
        resize_x: float | DataNode = ...,
        resize_y: float | DataNode = ...,
        resize_z: float | DataNode = ...,
        resize_shorter: float | DataNode = ...,
        resize_longer: float | DataNode = ...,
        mode: Literal["default", "stretch", "not_larger", "not_smaller"] = ...,
        max_size: _Floats | None = ...,
        subpixel_scale: bool = ...,
        roi_start: _Floats | DataNode | None = ...,
        roi_end: _Floats | DataNode | None = ...,
        roi_relative: bool = ...,
        interp_type: DALIInterpType | DataNode = ...,
        min_filter: DALIInterpType | DataNode | None = ...,
        mag_filter: DALIInterpType | DataNode | None = ...,
        antialias: bool = ...,
        minibatch_size: int = ...,
        temp_buffer_hint: int = ...,
        name: str | None = ...,
        device: str | None = ...,
        random_shuffle: bool = ...,
        shuffle_after_epoch: bool = ...,
        shard_id: int = ...,
        num_shards: int = ...,
        stick_to_shard: bool = ...,
        pad_last_batch: bool = ...,
        seed: int = ...,
        prefetch_queue_depth: int = ...,
        preserve: bool = ...,
        on_error: Any = ...,
        remote_options: Any = ...,
        bytes_per_sample_hint: Any = ...,
        dont_use_mmap: bool = ...,
        initial_fill: int = ...,
        lazy_init: bool = ...,
        read_ahead: bool = ...,
        skip_cached_images: bool = ...,
        tensor_init_bytes: int = ...,
    ) -> Any:
        ...
    
