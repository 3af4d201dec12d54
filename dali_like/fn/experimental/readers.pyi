"""``nvidia.dali.fn.experimental.readers``. Written by tools.operator_stubs from the descriptions of the operators; do not edit."""

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

def fits(
    *,
    file_root: str | None = None,
    files: _Strings | None = None,
    file_list: str | None = None,
    file_filter: str = "*.fits",
    hdu_indices: _Ints = (2,),
    dtypes: _Ints | None = None,
    max_file_bytes: int = 1073741824,
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
    """Reads images in FITS files with astropy. Images and files may be compressed.

    Args:
        file_root: folder of the files. Those in it come first, sorted by name, then those in each of its folders. With
            `file_list` or `files`, the folder that relative names begin from.
        files: paths of files.
        file_list: path of a text file with a name per line. Relative names in it begin from `file_root`, or else from the
            folder of this file.
        file_filter: shell pattern of file names below `file_root`. Upper and lower case are distinguished.
        hdu_indices: numbers of the HDUs to read, from 1 on. Each is an output.
        dtypes: a data type for each output. As in DALI, it has no effect, because the files determine the data types.
        max_file_bytes: largest size of a decompressed file, and of a decompressed image in it. A small file can be one of
            many GiB.

    Returns:
        The image of each HDU, in the order of axes of NumPy: the last axis of the header comes first. Scaled integers have
        the dtype FLOAT or FLOAT64, those with an offset are unsigned, or INT8. Pixels that a header calls `BLANK` are NaN.
    """

def video(
    *,
    sequence_length: int,
    filenames: _Strings = (),
    file_root: str = "",
    file_list: str = "",
    labels: _Ints | None = None,
    file_list_format: Literal["timestamps", "frames"] = "timestamps",
    file_list_rounding: Literal["start_down_end_up", "start_up_end_down", "all_up", "all_down"] = "start_down_end_up",
    file_list_include_end: bool = True,
    step: int = -1,
    stride: int = 1,
    pad_mode: Literal["none", "constant", "edge", "repeat", "reflect_1001", "symmetric", "reflect_101", "reflect"] = "none",
    fill_value: _Ints = (0,),
    image_type: DALIImageType = DALIImageType.RGB,
    enable_frame_num: bool = False,
    enable_timestamps: bool = False,
    decoder_cache_bytes: int = 268435456,
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
) -> Any:
    """Reads sequences of frames from videos, of constant or variable frame rate.

    A video is decoded by FFmpeg, in any format and codec that PyAV has: H.264, HEVC, VP9, AV1, MPEG-4 and more. A sequence
    does not go beyond its video.

    Args:
        sequence_length: frames in a sequence.
        filenames: paths of videos.
        file_root: folder with a folder for each label. Folders and files are sorted by their names. Files in it that are no
            videos are skipped, with a warning.
        file_list: path of a text file. Its lines have a path, a label, and perhaps the start and the end of the range to
            read. Without the end, the range goes on to the end of the video.
        labels: a label for each of `filenames`.
        file_list_format: "timestamps": ranges are in seconds. "frames": they are numbers of frames, and negative ones count
            from the end.
        file_list_rounding: rounding of ranges that do not begin and end exactly at a frame.
        file_list_include_end: without effect, as in ``nvidia.dali`` 1.53: the frame at the end is excluded.
        step: distance of the first frames of consecutive sequences. Default: `sequence_length` times `stride`.
        stride: distance of consecutive frames in a sequence.
        pad_mode: treatment of frames behind the end of a range. "none": shorter sequences are left out. "constant": they are
            filled with `fill_value`. "edge" or "repeat": the last frame is repeated. "reflect_1001" or "symmetric",
            "reflect_101" or "reflect": frames follow in reverse order, with or without the last one.
        fill_value: one value for each channel, or one for all.
        image_type: color space of the frames: RGB or YCbCr.
        enable_frame_num: return the number of the first frame of each sequence.
        enable_timestamps: return the time of each frame.
        decoder_cache_bytes: memory of the videos that a worker keeps open. With `random_shuffle`, a worker opens videos
            again and again unless all of them fit.

    Returns:
        The frames, of shape (frames, height, width, 3), dtype UINT8 and layout FHWC. Then the label, of shape (1,) and dtype
        INT32, unless there are neither `labels` nor `file_root` nor `file_list`. With `enable_frame_num`, the number of the
        first frame, of shape (1,) and dtype INT32. With `enable_timestamps`, the seconds from the first frame of the video
        to each frame, of shape (frames,) and dtype FLOAT64; -1 for filled frames.
    """
