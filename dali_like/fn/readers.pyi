"""``nvidia.dali.fn.readers``. Written by tools.operator_stubs from the descriptions of the operators; do not edit."""

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

def file(
    *,
    file_root: str | None = None,
    files: _Strings | None = None,
    labels: _Ints | None = None,
    file_list: str | None = None,
    file_filters: _Strings = ("*.jpg", "*.jpeg", "*.png", "*.bmp", "*.tif", "*.tiff", "*.pnm", "*.ppm", "*.pgm", "*.pbm", "*.jp2", "*.webp", "*.flac", "*.ogg", "*.wav"),
    dir_filters: _Strings | None = None,
    case_sensitive_filter: bool = False,
    name: str | None = None,
    device: str | None = "cpu",
    random_shuffle: bool = False,
    shuffle_after_epoch: bool = False,
    shard_id: int = 0,
    num_shards: int = 1,
    stick_to_shard: bool = False,
    pad_last_batch: bool = False,
    seed: int = -1,
    prefetch_queue_depth: int = 1,
    preserve: bool = False,
    on_error: Any = "raise",
    remote_options: Any = None,
    bytes_per_sample_hint: Any = 0,
    dont_use_mmap: bool = False,
    initial_fill: int = 1024,
    lazy_init: bool = False,
    read_ahead: bool = False,
    skip_cached_images: bool = False,
    tensor_init_bytes: int = 1048576,
) -> list[DataNode]:
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

def nemo_asr(
    *,
    manifest_filepaths: _Strings,
    sample_rate: float = -1.0,
    quality: float = 50.0,
    downmix: bool = True,
    dtype: _DataType = ...,
    min_duration: float = 0.0,
    max_duration: float = 0.0,
    read_sample_rate: bool = True,
    read_text: bool = True,
    read_idxs: bool = False,
    normalize_text: bool | None = None,
    name: str | None = None,
    device: str | None = "cpu",
    random_shuffle: bool = False,
    shuffle_after_epoch: bool = False,
    shard_id: int = 0,
    num_shards: int = 1,
    stick_to_shard: bool = False,
    pad_last_batch: bool = False,
    seed: int = -1,
    prefetch_queue_depth: int = 1,
    preserve: bool = False,
    on_error: Any = "raise",
    remote_options: Any = None,
    bytes_per_sample_hint: Any = 0,
    dont_use_mmap: bool = False,
    initial_fill: int = 1024,
    lazy_init: bool = False,
    read_ahead: bool = False,
    skip_cached_images: bool = False,
    tensor_init_bytes: int = 1048576,
) -> DataNode:
    """Reads audio and its transcripts, as listed in manifests of NVIDIA NeMo.

    A manifest has a JSON object per line, with `audio_filepath`, and optionally `duration` and `offset` in seconds and
    `text`. An entry without a duration is read up to the end of its file. Relative paths begin from the current folder.
    Lines that are no such object are skipped with a warning. DALI 1.53 respects durations and offsets as well, although its
    documentation denies it.

    Args:
        manifest_filepaths: paths of manifests.
        sample_rate: resample to this rate in Hz. Default: the rate of each file.
        quality: quality of resampling, from 0 to 100; see ``fn.decoders.audio``.
        downmix: return the mean of all channels, in one dimension.
        dtype: data type of the audio: FLOAT with values from -1 to 1, INT16 or INT32.
        min_duration: if positive, skip entries with a shorter duration in the manifest, in seconds, or without one.
        max_duration: if positive, skip entries with a longer duration.
        read_sample_rate: return the sample rate of the file, which `sample_rate` does not change.
        read_text: return the transcript.
        read_idxs: return the number of the entry in its manifest, among those that are not skipped.
        normalize_text: deprecated, and without effect.

    Returns:
        The audio, of shape (frames,), or (frames, channels) with ``downmix=False``; if wanted, the sample rate, a scalar of
        dtype FLOAT; the transcript in UTF-8, of dtype UINT8; and the number, of shape (1,) and dtype INT64.
    """

def numpy(
    *,
    file_root: str | None = None,
    files: _Strings | None = None,
    file_list: str | None = None,
    file_filter: str = "*.npy",
    cache_header_information: bool = False,
    dont_use_mmap: bool = False,
    register_buffers: bool = True,
    use_o_direct: bool = False,
    roi_start: _Ints | DataNode | None = None,
    rel_roi_start: _Floats | DataNode | None = None,
    roi_end: _Ints | DataNode | None = None,
    rel_roi_end: _Floats | DataNode | None = None,
    roi_shape: _Ints | DataNode | None = None,
    rel_roi_shape: _Floats | DataNode | None = None,
    roi_axes: _Ints = (),
    out_of_bounds_policy: Literal["error", "pad", "trim_to_shape"] = "error",
    fill_value: float = 0.0,
    name: str | None = None,
    device: str | None = "cpu",
    random_shuffle: bool = False,
    shuffle_after_epoch: bool = False,
    shard_id: int = 0,
    num_shards: int = 1,
    stick_to_shard: bool = False,
    pad_last_batch: bool = False,
    seed: int = -1,
    prefetch_queue_depth: int = 1,
    preserve: bool = False,
    on_error: Any = "raise",
    remote_options: Any = None,
    bytes_per_sample_hint: Any = 0,
    initial_fill: int = 1024,
    lazy_init: bool = False,
    read_ahead: bool = False,
    skip_cached_images: bool = False,
    tensor_init_bytes: int = 1048576,
) -> DataNode:
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

def sequence(
    *,
    file_root: str,
    sequence_length: int,
    step: int = 1,
    stride: int = 1,
    image_type: DALIImageType = DALIImageType.RGB,
    name: str | None = None,
    device: str | None = "cpu",
    random_shuffle: bool = False,
    shuffle_after_epoch: bool = False,
    shard_id: int = 0,
    num_shards: int = 1,
    stick_to_shard: bool = False,
    pad_last_batch: bool = False,
    seed: int = -1,
    prefetch_queue_depth: int = 1,
    preserve: bool = False,
    on_error: Any = "raise",
    remote_options: Any = None,
    bytes_per_sample_hint: Any = 0,
    dont_use_mmap: bool = False,
    initial_fill: int = 1024,
    lazy_init: bool = False,
    read_ahead: bool = False,
    skip_cached_images: bool = False,
    tensor_init_bytes: int = 1048576,
) -> DataNode:
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
