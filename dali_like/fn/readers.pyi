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

def caffe(
    *,
    path: _Strings,
    image_available: bool = True,
    label_available: bool = True,
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
    """Reads images and labels from LMDB databases of Caffe.

    Args:
        path: folders of the databases. They must not change meanwhile.
        image_available: whether to return images.
        label_available: whether to return labels.

    Returns:
        The image: its encoded bytes, or an array of shape (height, width, channels) if the database has it like this; dtype
        UINT8. And the label, of shape (1,) and dtype INT32. What a record lacks is empty.
    """

def caffe2(
    *,
    path: _Strings,
    image_available: bool = True,
    label_type: int = 0,
    num_labels: int = 1,
    additional_inputs: int = 0,
    bbox: bool = False,
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
    """Reads images, labels and further tensors from LMDB databases of Caffe2.

    DALI 1.53 refuses sparse labels, with and without weights, because of an error. This reader returns them.

    Args:
        path: folders of the databases. They must not change meanwhile.
        image_available: whether the first tensor of a record is an image.
        label_type: 0: one number. 1: the indices of active labels. 2: a vector. 3: the indices of active labels, and in the
            next tensor their weights. 4: there are no labels.
        num_labels: length of the returned vector with `label_type` 1 and 3.
        additional_inputs: number of further tensors.
        bbox: whether the last tensor is a bounding box.

    Returns:
        The image: its encoded bytes, or an array of shape (height, width, channels) if the database has it like this; dtype
        UINT8. The labels, of one dimension and dtype INT32 or FLOAT. The further tensors, flat, of dtype FLOAT, INT32 or
        INT64. The box, of shape (4,) and dtype INT32.
    """

def coco(
    *,
    file_root: str | None = None,
    annotations_file: str = "",
    preprocessed_annotations: str = "",
    save_preprocessed_annotations: bool = False,
    save_preprocessed_annotations_dir: str = "",
    images: _Strings | None = None,
    ltrb: bool = False,
    ratio: bool = False,
    size_threshold: float = 0.1,
    include_iscrowd: bool = True,
    skip_empty: bool = False,
    avoid_class_remapping: bool = False,
    polygon_masks: bool = False,
    pixelwise_masks: bool = False,
    image_ids: bool = False,
    masks: bool = False,
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
    """Reads images, boxes, labels and masks of a COCO dataset.

    The images are sorted by their ids. The file of annotations, the folder of preprocessed annotations, and the folder of
    images may be URLs.

    Args:
        file_root: folder of the images.
        annotations_file: path of the JSON file.
        preprocessed_annotations: folder of preprocessed annotations, instead of the JSON file. Those of DALI fit, too.
        save_preprocessed_annotations: write the annotations to `save_preprocessed_annotations_dir`, with what the other
            arguments made of them.
        save_preprocessed_annotations_dir: a local folder.
        images: file names of the images to read, in this order. Names may repeat. Those without annotations are left out.
        ltrb: return boxes as left, top, right, bottom, instead of left, top, width, height.
        ratio: return boxes and polygons relative to the size of the image. Masks are drawn at their place in pixels; DALI
            draws them with relative coordinates.
        size_threshold: least width and height of objects in pixels. Smaller ones are left out.
        include_iscrowd: whether to include objects with ``iscrowd=1``.
        skip_empty: leave out images without objects.
        avoid_class_remapping: return the ids of categories, instead of their numbers from 1 on.
        polygon_masks: return polygons and their vertices.
        pixelwise_masks: return images of labels. If objects overlap, the greater label is seen. Of several run-length
            encoded masks with one label in an image the last one is drawn, and none if there are polygons with the label, as
            in DALI. Needs pycocotools, as run-length encoded masks in strings do.
        image_ids: return the ids of the images.
        masks: deprecated. As `polygon_masks`, but polygons count coordinates instead of vertices.

    Returns:
        The bytes of the image, of dtype UINT8. The boxes, of shape (objects, 4) and dtype FLOAT. The labels, of shape
        (objects,) and dtype INT32. With `polygon_masks` the polygons: number of the object, first vertex, and end of the
        vertices, of shape (polygons, 3) and dtype INT32; and the vertices, of shape (vertices, 2) and dtype FLOAT. With
        `pixelwise_masks` the labels of pixels, of shape (height, width, 1), dtype INT32 and layout HWC. With `image_ids` the
        id, of shape (1,) and dtype INT32.
    """

def mxnet(
    *,
    path: _Strings,
    index_path: _Strings | None = None,
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
    """Reads images and labels from RecordIO files of MXNet.

    MXNet's ``im2rec`` writes the files and the index. Without an index, the reader builds one. It stores the index beside
    the file as ``.name.index``, or in ``~/.cache/dali_like`` if the folder is read-only.

    Args:
        path: paths of the RecordIO files.
        index_path: path of the index: a text file with a number and a position per line. With several files, positions go on
            counting from file to file. Default: the reader builds an index.

    Returns:
        The encoded image, of shape (number of bytes,) and dtype UINT8, and the labels, of shape (number of labels,) and
        dtype FLOAT. The samples are in the order of their positions in the files.
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

def tfrecord(
    *,
    path: _Strings,
    features: Any,
    index_path: _Strings | None = None,
    dont_use_mmap: bool = False,
    use_o_direct: bool = False,
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
) -> Any:
    """Reads features of examples from TFRecord files.

    The function returns a dict with a node for each feature. ``dali_like.tfrecord`` has the types of features::

        features = {
            "image/encoded": tfrecord.FixedLenFeature((), tfrecord.string, ""),
            "image/class/label": tfrecord.FixedLenFeature([1], tfrecord.int64, -1),
            "boxes": tfrecord.VarLenFeature([4], tfrecord.float32, 0.0),
        }
        inputs = fn.readers.tfrecord(path=paths, features=features)
        images = fn.decoders.image(inputs["image/encoded"])

    DALI's ``tfrecord2idx`` writes indexes. Without indexes, the reader builds them, and stores each beside its file as
    ``.name.index``, or in ``~/.cache/dali_like`` if the folder is read-only. The checksums of records are verified if
    google-crc32c is installed: ``pip install google-crc32c``.

    Args:
        path: paths of the TFRecord files.
        features: a dict of features by their names in the examples.
        index_path: paths of the indexes, one for each file. Default: the reader builds the indexes.
        dont_use_mmap, use_o_direct: without effect.

    Returns:
        Arrays of dtype INT64 or FLOAT. A string is an array of its bytes, of dtype UINT8. If an example has fewer elements
        than the shape of a `FixedLenFeature`, the others have the default value. If an example lacks a feature, its array is
        empty: its first extent is 0. An array without dimensions has the default value then.
    """

def video(
    *,
    sequence_length: int,
    filenames: _Strings = (),
    file_root: str = "",
    file_list: str = "",
    labels: _Ints | None = None,
    file_list_frame_num: bool = False,
    file_list_include_preceding_frame: bool = False,
    step: int = -1,
    stride: int = 1,
    pad_sequences: bool = False,
    image_type: DALIImageType = DALIImageType.RGB,
    dtype: _DataType = ...,
    normalized: bool = False,
    channels: int = 3,
    enable_frame_num: bool = False,
    enable_timestamps: bool = False,
    skip_vfr_check: bool = False,
    additional_decode_surfaces: int = 2,
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
        decoder_cache_bytes: memory of the videos that a worker keeps open. With `random_shuffle`, a worker opens videos
            again and again unless all of them fit.

    Returns:
        The frames, of shape (frames, height, width, 3) and layout FHWC. Then the label, of shape (1,) and dtype INT32,
        unless there are neither `labels` nor `file_root` nor `file_list`. With `enable_frame_num`, the number of the first
        frame, of shape (1,) and dtype INT32. With `enable_timestamps`, the seconds from the first frame of the video to each
        frame, of shape (frames,) and dtype FLOAT64; -1 for filled frames.
    """

def video_resize(
    *,
    sequence_length: int,
    filenames: _Strings = (),
    file_root: str = "",
    file_list: str = "",
    labels: _Ints | None = None,
    file_list_frame_num: bool = False,
    file_list_include_preceding_frame: bool = False,
    step: int = -1,
    stride: int = 1,
    pad_sequences: bool = False,
    image_type: DALIImageType = DALIImageType.RGB,
    dtype: _DataType = ...,
    normalized: bool = False,
    channels: int = 3,
    enable_frame_num: bool = False,
    enable_timestamps: bool = False,
    skip_vfr_check: bool = False,
    additional_decode_surfaces: int = 2,
    decoder_cache_bytes: int = 268435456,
    size: _Floats | DataNode | None = None,
    resize_x: float | DataNode = 0.0,
    resize_y: float | DataNode = 0.0,
    resize_z: float | DataNode = 0.0,
    resize_shorter: float | DataNode = 0.0,
    resize_longer: float | DataNode = 0.0,
    mode: Literal["default", "stretch", "not_larger", "not_smaller"] = "default",
    max_size: _Floats | None = None,
    subpixel_scale: bool = True,
    roi_start: _Floats | DataNode | None = None,
    roi_end: _Floats | DataNode | None = None,
    roi_relative: bool = False,
    interp_type: DALIInterpType | DataNode = DALIInterpType.INTERP_LINEAR,
    min_filter: DALIInterpType | DataNode | None = None,
    mag_filter: DALIInterpType | DataNode | None = None,
    antialias: bool = True,
    minibatch_size: int = 32,
    temp_buffer_hint: int = 0,
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
        decoder_cache_bytes: memory of the videos that a worker keeps open. With `random_shuffle`, a worker opens videos
            again and again unless all of them fit.
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

def webdataset(
    *,
    paths: _Strings,
    ext: _Strings,
    index_paths: _Strings | None = None,
    missing_component_behavior: str = "",
    case_sensitive_extensions: bool = True,
    dtypes: Any = None,
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
    """Reads samples from tar archives, as WebDataset writes them.

    Consecutive files in an archive with the same name before the first dot are the components of a sample. The rest of the
    name is the extension. Files whose name begins with a dot, folders and links are left out. The archives may be of the
    formats ustar, GNU and pax. Compressed archives are refused.

    DALI's ``wds2idx`` writes indexes. Without indexes, the reader builds them, and stores each beside its archive as
    ``.name.index``, or in ``~/.cache/dali_like`` if the folder is read-only.

    Args:
        paths: paths of the archives.
        ext: for each output, its extension, or alternatives separated by semicolons, such as ``"jpg;jpeg;png"``. If a
            sample has several of them, the output is the first one in the archive.
        index_paths: paths of the indexes, one for each archive. Default: the reader builds the indexes.
        missing_component_behavior: treatment of a sample that lacks a component: "empty" for an empty array, "skip" to
            leave the sample out, or "error". Default: "empty".
        case_sensitive_extensions: whether upper and lower case of extensions are distinguished.
        dtypes: data types of the outputs. Default: UINT8 for each.

    Returns:
        For each output, the bytes of its component as an array of one dimension and of its data type.
    """
