"""Readers of videos: sequences of frames, by their files and first frames.

Each worker keeps the videos open that it has decoded last, so that the next sequence of a file goes on decoding where the
last one ended. The main process counts frames, and decodes nothing.
"""

from __future__ import annotations

import io
import math
import os
import re
import threading
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dali_like.common.checks import flag, positive
from dali_like.common.notices import warn
from dali_like.common.saved_arguments import SAVED, SavedText, SavedTexts
from dali_like.errors import ArgumentClashError, ArgumentError, ArgumentTypeError, BrokenFileError, DecodeError
from dali_like.images.decoding_limit import READER_LIMIT_BYTES, DecodingLimit
from dali_like.images.video import PadMode, VideoDecoder, check_fill_value, check_image_type, padded_numbers
from dali_like.sources.readers.file_reader import listed
from dali_like.sources.readers.reader import Reader, reader
from dali_like.sources.readers.stored_files import FileNames, SeekableFile, is_url, joined, shown
from dali_like.types import RGB, DALIImageType, SampleInfo

Rounding: TypeAlias = Literal["start_down_end_up", "start_up_end_down", "all_up", "all_down"]


def _frame_numbers(name: str, value: Any) -> str:
    """Return which numbers of frames a reader returns, for the Booleans of DALI 1.53 and the texts of DALI 2."""
    if value in ("none", "scalar", "sequence"):
        return str(value)
    try:
        return "scalar" if flag(name, value) else "none"
    except ArgumentError:
        texts = "True, False, 'none', 'scalar' or 'sequence'"
        raise ArgumentTypeError(f"{name} must be {texts}, not {value!r}") from None


FrameNumbers: TypeAlias = Annotated[bool | str, _frame_numbers, SAVED]

#: A line of a file list. Only numbers at its end separate them from the name, which may contain spaces.
_LISTED = re.compile(r"\s*(.*?\S)\s+(\d+)((?:\s+[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?){0,2})\s*", re.IGNORECASE)


class Listed(NamedTuple):
    """A video in a list.

    Attributes:
        name: its path or URL.
        label: its label.
        range: the numbers behind the label: none, start, or start and end.
    """

    name: str
    label: int
    range: tuple[float, ...] = ()


_UINT8 = np.dtype(np.uint8)
#: Of the times in lists, such as 0.333333.
_TIME_PRECISION_S = 1e-6


class _LocalFile(SeekableFile):
    """A file that closes itself without a warning when a pipeline goes that has not been closed."""

    def __init__(self, path: str) -> None:
        self.name = shown(path)
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        super().__init__(os.fstat(self._descriptor).st_size)

    def readinto(self, buffer: Any) -> int:
        count = os.preadv(self._descriptor, [buffer], self.position)
        self.position += count
        return count

    def close(self) -> None:
        if not self.closed:
            os.close(self._descriptor)
        super().close()


class OpenVideos:
    """The videos that this process has decoded last. Any thread may use it; a video belongs to one thread at a time.

    Args:
        most_bytes: of all videos in it. The last one may be larger.
    """

    #: For `dali_like.sources.travel.hazards`: a forked process does not use the open files of its parent.
    opens_in_each_process = True

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._forget()

    def _forget(self) -> None:
        self._pid = os.getpid()
        self._videos: OrderedDict[str, VideoDecoder] = OrderedDict()
        self._nbytes = 0
        self._lock = threading.Lock()

    def take(self, path: str) -> VideoDecoder | None:
        """Return an open video, and remove it."""
        if self._pid != os.getpid():
            self._forget()
        with self._lock:
            video = self._videos.pop(path, None)
            self._nbytes -= video.nbytes if video else 0
            return video

    def put(self, path: str, video: VideoDecoder) -> None:
        """Keep a video open for the next sequence."""
        with self._lock:
            closed = [other] if (other := self._videos.pop(path, None)) else []
            self._nbytes += video.nbytes
            self._videos[path] = video
            while self._nbytes - sum(each.nbytes for each in closed) > self._most_bytes and len(self._videos) > 1:
                closed.append(self._videos.popitem(last=False)[1])
            self._nbytes -= sum(each.nbytes for each in closed)
        for each in closed:
            each.close()


class VideoFilesReader(Reader):
    """The common part of readers of videos: files, sequences, open videos."""

    def __init__(
        self,
        files: tuple[str | None, str | tuple[str, ...] | None, str | None],
        labels: tuple[int, ...] | None,
        frames: tuple[int, int, int],
        image_type: DALIImageType,
        outputs: tuple[bool | str, bool],
        decoder_cache_bytes: int,
        max_sample_bytes: int,
    ) -> None:
        root, names, file_list = files
        names = listed(names) or None
        if sum(bool(way) for way in (root, names, file_list)) != 1:
            raise ArgumentClashError(
                "Only one of the following arguments can be provided: file_root, filenames, file_list; and one is needed"
            )
        if labels is not None and len(labels) != len(names or ()):
            raise ArgumentError(
                "labels: Number of provided files and labels should match. Provided "
                f"{len(names or ())} filenames and {len(labels)} labels"
            )
        check_image_type(image_type)
        self._root = root
        self._given = names
        self._list = file_list
        self._labels = labels
        self._length, self._stride, self._step = frames
        self._step = self._step if self._step > 0 else self._stride * self._length
        self._image_type = image_type
        self._with_label = labels is not None or bool(root or file_list)
        numbers, self._with_times = outputs
        self._with_number = numbers not in (False, "none")
        self._with_all_numbers = numbers == "sequence"
        self._cache_bytes = decoder_cache_bytes
        self._limit = DecodingLimit.of_reader(positive("max_sample_bytes", max_sample_bytes))
        self._names = FileNames(())
        self._videos = OpenVideos(decoder_cache_bytes)

    @property
    def num_outputs(self) -> int | None:  # type: ignore[override]
        count = 1 + self._with_label + self._with_number + self._with_times
        return None if count == 1 else count

    @property
    def dtype(self) -> Any:
        return self._of_outputs(self._frames_dtype, np.int32, np.int32, np.float64)

    @property
    def ndim(self) -> Any:  # type: ignore[override]
        return self._of_outputs(4, 1, 1, 1)

    @property
    def layout(self) -> Any:  # type: ignore[override]
        return self._of_outputs("FHWC", "", "", "")

    def _of_outputs(self, *values: Any) -> Any:
        given = (True, self._with_label, self._with_number, self._with_times)
        chosen = tuple(value for value, has in zip(values, given, strict=True) if has)
        return chosen if len(chosen) > 1 else chosen[0]

    @property
    def _frames_dtype(self) -> Any:
        return np.uint8

    def prepare(self) -> None:
        names: list[str] = []
        labels: list[int] = []
        samples: list[tuple[int, int, int]] = []  # number of the file, first frame, end of the range in the file
        for video in self._listed_videos():
            try:
                start, end = self._counted_range(video)
            except BrokenFileError as error:
                if not self._root:
                    raise
                warn(f"fn.{self.path}: {error}. It is skipped", UserWarning)
                continue
            if start >= end:
                warn(
                    f"fn.{self.path}: Empty frame range [{start}, {end}) for file {shown(video.name)}. Skipping", UserWarning
                )
                continue
            samples += [(len(names), first, end) for first in self._firsts(start, end)]
            names.append(video.name)
            labels.append(video.label)
        self._names = FileNames(names)
        self._file_labels = np.asarray(labels, np.int32)
        self._samples = np.asarray(samples, np.int64).reshape(-1, 3)

    def __len__(self) -> int:
        return len(self._samples)

    async def read(self, index: int, info: SampleInfo) -> Any:
        file, first, end = self._samples[index].tolist()
        path = self._names[file]
        video = self._videos.take(path)
        try:
            if video is None:
                video = await self._opened(path)
            numbers = self._numbers(first, end)
            frames = self._decoded(video, numbers, info)
            times = video.index.seconds if self._with_times else None
        except DecodeError as error:
            if video is not None:
                video.close()
            raise BrokenFileError(f"{shown(path)}: {error}", path) from None
        self._videos.put(path, video)
        outputs: list[Any] = [frames]
        if self._with_label:
            outputs.append(self._file_labels[file : file + 1])
        if self._with_number:
            outputs.append(np.array(numbers if self._with_all_numbers else [first], np.int32))
        if times is not None:
            outputs.append(np.array([times[number] if number >= 0 else -1.0 for number in numbers], np.float64))
        return tuple(outputs) if len(outputs) > 1 else frames

    def _decoded(self, video: VideoDecoder, numbers: Sequence[int], info: SampleInfo) -> NDArray[Any]:
        frames = info.empty(video.shape(len(numbers), self._limit))
        video.decode(numbers, frames)
        return frames

    async def _opened(self, path: str) -> VideoDecoder:
        if is_url(path):
            return VideoDecoder(io.BytesIO((await self.files.read(path)).tobytes()), self._image_type)
        return VideoDecoder(self._opened_local(path), self._image_type)

    def _opened_local(self, path: str) -> Any:
        self.files.size(path)  # raises the errors of readers for missing files
        return _LocalFile(path)

    def _counted_range(self, video: Listed) -> tuple[int, int]:
        """Return the first frame of the range of a video, and the end of the range."""
        decoder = None
        try:
            decoder = VideoDecoder(self.files.open(video.name) if is_url(video.name) else self._opened_local(video.name))
            return self._range(video, decoder) if any(video.range) else (0, decoder.num_frames)
        except DecodeError as error:
            raise BrokenFileError(f"{shown(video.name)}: {error}", video.name) from None
        finally:
            if decoder is not None:
                decoder.close()

    @abstractmethod
    def _range(self, video: Listed, decoder: VideoDecoder) -> tuple[int, int]:
        """Return the first frame and the end of the range that a list gives for a video."""

    @abstractmethod
    def _firsts(self, start: int, end: int) -> Iterable[int]:
        """Return the first frame of each sequence in a range of frames."""

    @abstractmethod
    def _numbers(self, first: int, end: int) -> list[int]:
        """Return the frames of a sequence; -1 for a frame that is filled."""

    def _listed_videos(self) -> list[Listed]:
        if self._root:
            folders = self.files.names_in_folders(self._root)
            named = [(f"{folder}/{name}", label) for label, folder in enumerate(folders) for name in folders[folder]]
            return [Listed(joined(self._root, name), label) for name, label in named]
        if self._given is not None:
            labels = self._labels or [0] * len(self._given)
            return [Listed(name, label) for name, label in zip(self._given, labels, strict=True)]
        assert self._list is not None
        lines = enumerate(self.files.text_lines(self._list), 1)
        videos = [self._parsed(number, line) for number, line in lines if line.strip()]
        return [video for video in videos if video is not None]

    def _parsed(self, number: int, line: str) -> Listed | None:
        assert self._list is not None
        match = _LISTED.fullmatch(line)
        if match is None:
            raise BrokenFileError(
                f"{shown(self._list)}:{number} expected file name, label (a number from 0 on), and perhaps start and end; "
                f"got: {shown(line)}",
                self._list,
            )
        limits = tuple(float(text) for text in match[3].split())
        if len(limits) == 2 and limits[0] == limits[1]:
            warn(
                f"fn.{self.path}: Start and end time/frame are the same, skipping the file, in file_list at line number: "
                f"{number}, filename: {shown(match[1])}",
                UserWarning,
            )
            return None
        return Listed(match[1], int(match[2]), limits)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_videos": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _videos=OpenVideos(state["_cache_bytes"]))


def _check_frames(sequence_length: int, stride: int) -> None:
    for name, value in (("sequence_length", sequence_length), ("stride", stride)):
        if value < 1:
            raise ArgumentError(f"{name} must be positive, not {value}")


@reader(path="experimental.readers.video")
class VideoFramesReader(VideoFilesReader):
    """Reads sequences of frames from videos, of constant or variable frame rate.

    A video is decoded by FFmpeg, in any format and codec that PyAV has: H.264, HEVC, VP9, AV1, MPEG-4 and more. A sequence
    does not go beyond its video.

    Args:
        sequence_length: frames in a sequence.
        filenames: paths of videos.
        file_root: folder with a folder for each label. Folders and files are sorted by their names. Other files in it are
            skipped, with a warning.
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
        uniform_sample: one sample for each video, whose frames are spread evenly over its range, from the first to the last
            one. Frames are repeated if there are fewer. `step`, `stride` and `pad_mode` have no effect then. Of DALI 2.
        enable_frame_num: True or "scalar": return the number of the first frame of each sequence; "sequence": the numbers of
            all its frames; False or "none": neither.
        enable_timestamps: return the time of each frame.
        decoder_cache_bytes: memory of the videos that a worker keeps open. With `random_shuffle`, a worker opens videos
            again and again unless all of them fit.
        max_sample_bytes: largest sequence, after decoding. A small file can contain many GiB.

    Returns:
        The frames, of shape (frames, height, width, 3), dtype UINT8 and layout FHWC. Then the label, of shape (1,) and dtype
        INT32, unless there are neither `labels` nor `file_root` nor `file_list`. With `enable_frame_num`, the number of the
        first frame, of shape (1,), or those of all frames, of shape (frames,) and -1 for filled frames; dtype INT32. With
        `enable_timestamps`, the seconds from the first frame of the video to each frame, of shape (frames,) and dtype
        FLOAT64; -1 for filled frames.
    """

    def __init__(
        self,
        *,
        sequence_length: int,
        filenames: SavedTexts = (),
        file_root: SavedText = "",
        file_list: SavedText = "",
        labels: tuple[int, ...] | None = None,
        file_list_format: Literal["timestamps", "frames"] = "timestamps",
        file_list_rounding: Rounding = "start_down_end_up",
        file_list_include_end: bool = True,
        step: int = -1,
        stride: int = 1,
        pad_mode: PadMode = "none",
        fill_value: tuple[int, ...] = (0,),
        image_type: DALIImageType = RGB,
        uniform_sample: bool = False,
        enable_frame_num: FrameNumbers = False,
        enable_timestamps: bool = False,
        decoder_cache_bytes: int = 256 << 20,
        max_sample_bytes: int = READER_LIMIT_BYTES,
    ) -> None:
        _check_frames(sequence_length, stride)
        check_fill_value(fill_value)
        super().__init__(
            (file_root, filenames, file_list),
            labels,
            (sequence_length, stride, step),
            image_type,
            (enable_frame_num, enable_timestamps),
            decoder_cache_bytes,
            max_sample_bytes,
        )
        self._in_frames = file_list_format == "frames"
        self._start_down = file_list_rounding in ("start_down_end_up", "all_down")
        self._end_down = file_list_rounding in ("start_up_end_down", "all_down")
        self._pad_mode: PadMode = pad_mode
        self._fill_value = fill_value
        self._is_spread = uniform_sample

    def _firsts(self, start: int, end: int) -> Iterable[int]:
        if self._is_spread:
            return [start]
        whole = range(start, end - self._stride * self._length + 1, self._step)
        following = start + len(whole) * self._step
        return [*whole, following] if self._pad_mode != "none" and following < end else whole

    def _numbers(self, first: int, end: int) -> list[int]:
        if self._is_spread:
            return [math.floor(place + 0.5) for place in np.linspace(first, end - 1, self._length).tolist()]
        numbers = range(first, first + self._stride * self._length, self._stride)
        return padded_numbers(numbers, end, self._pad_mode)

    def _decoded(self, video: VideoDecoder, numbers: Sequence[int], info: SampleInfo) -> NDArray[Any]:
        frames = info.empty(video.shape(len(numbers), self._limit))
        video.decode(numbers, frames, self._fill_value)
        return frames

    def _range(self, video: Listed, decoder: VideoDecoder) -> tuple[int, int]:
        start, end = (*video.range, math.inf)[:2]
        count = decoder.num_frames
        if self._in_frames:
            start += count if start < 0 else 0
            end += count if end <= 0 else 0
            first = _rounded(start, down=self._start_down)
            last = count if end == math.inf else _rounded(end, down=self._end_down)
        else:
            first = self._at_time(decoder, start, down=self._start_down)
            last = count if end == math.inf else self._at_time(decoder, end, down=self._end_down)
        return max(first, 0), min(last, decoder.num_frames)

    @staticmethod
    def _at_time(decoder: VideoDecoder, seconds: float, *, down: bool) -> int:
        """Return the frame at a time stamp of the file. As in DALI: in 32 bits, without the fraction of the time base."""
        index = decoder.index
        time = int(float(np.float32(seconds)) / index.time_base)
        place = int(np.searchsorted(index.frames, time))
        exact = place < len(index.frames) and index.frames[place] == time
        return place if exact or not down or place == len(index.frames) else max(place - 1, 0)


def _rounded(value: float, *, down: bool) -> int:
    return math.floor(value) if down else math.ceil(value)


_PLAIN = """{first}

    A video is decoded by FFmpeg, in any format and codec that PyAV has: H.264, HEVC, VP9, AV1, MPEG-4 and more. A sequence
    does not go beyond its video. Unlike DALI's reader, this one decodes on the CPU, and reads videos of variable frame rate.

    Args:
        sequence_length: frames in a sequence.
        filenames: paths of videos.
        file_root: folder with a folder for each label. Folders and files are sorted by their names. Other files in it are
            skipped, with a warning.
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
        enable_frame_num: True or "scalar": return the number of the first frame of each sequence; "sequence": the numbers of
            all its frames; False or "none": neither.
        enable_timestamps: return the time of each frame.
        skip_vfr_check, additional_decode_surfaces: without effect.
        decoder_cache_bytes: memory of the videos that a worker keeps open. With `random_shuffle`, a worker opens videos
            again and again unless all of them fit.
        max_sample_bytes: largest sequence, after decoding. A small file can contain many GiB.

    Returns:
        The frames, of shape (frames, height, width, 3) and layout FHWC. Then the label, of shape (1,) and dtype INT32,
        unless there are neither `labels` nor `file_root` nor `file_list`. With `enable_frame_num`, the number of the first
        frame, of shape (1,), or those of all frames, of shape (frames,) and -1 for filled frames; dtype INT32. With
        `enable_timestamps`, the seconds from the first frame of the video to each frame, of shape (frames,) and dtype
        FLOAT64; -1 for filled frames.
    """


@reader(path="readers.video")
class VideoReader(VideoFilesReader):
    __doc__ = _PLAIN.format(first="Reads sequences of frames from videos.")

    def __init__(
        self,
        *,
        sequence_length: int,
        filenames: SavedTexts = (),
        file_root: SavedText = "",
        file_list: SavedText = "",
        labels: tuple[int, ...] | None = None,
        file_list_frame_num: bool = False,
        file_list_include_preceding_frame: bool = False,
        step: int = -1,
        stride: int = 1,
        pad_sequences: bool = False,
        image_type: DALIImageType = RGB,
        dtype: np.dtype[Any] = _UINT8,
        normalized: bool = False,
        channels: int = 3,
        enable_frame_num: FrameNumbers = False,
        enable_timestamps: bool = False,
        skip_vfr_check: bool = False,
        additional_decode_surfaces: int = 2,
        decoder_cache_bytes: int = 256 << 20,
        max_sample_bytes: int = READER_LIMIT_BYTES,
    ) -> None:
        _check_frames(sequence_length, stride)
        if channels != 3:
            raise ArgumentError(f"channels must be 3, not {channels}")
        if dtype not in (np.uint8, np.float32):
            raise ArgumentError(f"Data type must be FLOAT or UINT8, not {dtype}")
        if labels is not None and not labels:
            labels = tuple(range(len(listed(filenames) or ())))
        super().__init__(
            (file_root, filenames, file_list),
            labels,
            (sequence_length, stride, step),
            image_type,
            (enable_frame_num, enable_timestamps),
            decoder_cache_bytes,
            max_sample_bytes,
        )
        self._in_frames = file_list_frame_num
        self._preceding = file_list_include_preceding_frame
        self._pads = pad_sequences
        self._dtype = dtype
        self._factor = np.float32(1 / 255 if normalized else 1)

    @property
    def _frames_dtype(self) -> Any:
        return self._dtype

    def _firsts(self, start: int, end: int) -> Iterable[int]:
        span = 1 + (self._length - 1) * self._stride
        return range(start, end if self._pads else end - span + 1, self._step)

    def _numbers(self, first: int, end: int) -> list[int]:
        return padded_numbers(range(first, first + self._stride * self._length, self._stride), end, "constant")

    def _decoded(self, video: VideoDecoder, numbers: Sequence[int], info: SampleInfo) -> NDArray[Any]:
        if self._dtype == np.uint8:
            return super()._decoded(video, numbers, info)
        shape = len(numbers), video.height, video.width, 3
        frames = np.empty(shape, np.uint8)
        video.decode(numbers, frames)
        scaled: NDArray[Any] = info.empty(shape, np.float32)
        np.multiply(frames, self._factor, out=scaled)
        return scaled

    def _range(self, video: Listed, decoder: VideoDecoder) -> tuple[int, int]:
        count = decoder.num_frames
        start, end = (*video.range, 0.0)[:2]
        if self._in_frames:
            start += count if start < 0 else 0
            end += count if end <= 0 else 0
            first, last = math.ceil(start), math.floor(end)
        else:
            first, last = self._at_times(decoder.index.seconds, start, end)
        if not 0 <= first <= last <= count:
            raise BrokenFileError(
                f"{shown(video.name)}: the range {list(video.range)} in the list is from frame {first} to frame {last}, but "
                f"the video has {count} frames: correct the list",
                video.name,
            )
        return first, last

    def _at_times(self, times: NDArray[np.float64], start: float, end: float) -> tuple[int, int]:
        """Return the first frame and the end of a range in seconds."""
        lasting = times[-1] / (len(times) - 1) if len(times) > 1 else 0.0
        times = np.append(times, times[-1] + lasting)
        start += times[-1] if start < 0 else 0.0
        end += times[-1] if end <= 0 else 0.0

        def up(seconds: float) -> int:
            return int(np.searchsorted(times, seconds - _TIME_PRECISION_S))

        def down(seconds: float) -> int:
            return int(np.searchsorted(times, seconds + _TIME_PRECISION_S, "right")) - 1

        return (down(start), up(end)) if self._preceding else (up(start), down(end))


@reader(path="readers.video_resize")
class VideoResizeReader(VideoReader):
    __doc__ = _PLAIN.format(first="Reads sequences of frames from videos, and scales them.")

    behind = "readers.video_resize.scale"
