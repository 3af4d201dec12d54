"""Frames of videos, by PyAV. A process or thread that decodes a video owns its `VideoDecoder`.

Colors are those of ``nvidia.dali`` 1.53 on the CPU, to the bit: the coefficients of BT.601 whatever the file says, and
chroma samples centered between pixels. Frames are numbered in the order of presentation.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Any, BinaryIO, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dali_like.common.extras import optional
from dali_like.errors import ArgumentClashError, ArgumentError, DecodeError
from dali_like.images.decoding_limit import DecodingLimit
from dali_like.types import RGB, DALIImageType, YCbCr

#: Treatment of frames behind the end of a video.
PadMode: TypeAlias = Literal["none", "constant", "edge", "repeat", "reflect_1001", "symmetric", "reflect_101", "reflect"]

#: Bilinear, with accurate rounding and full interpolation of chroma: flags of libswscale.
_SCALING = 2 | 0x40000 | 0x2000
_BT601 = 5
#: Frames to decode and drop rather than to seek, which makes decoders start afresh.
_LEAST_SKIP = 8
_BUFFER_BYTES = 1 << 16
#: Pictures that a decoder may hold for reference and output.
_HELD_PICTURES = 20


class VideoIndex(NamedTuple):
    """Time stamps of a video in units of `time_base`, both arrays ascending, of dtype int64.

    Attributes:
        frames: of each frame.
        keys: of the frames at which decoding can begin.
        time_base: in seconds.
        counted: whether the file has no time stamps, so that these are numbers.
    """

    frames: NDArray[np.int64]
    keys: NDArray[np.int64]
    time_base: Fraction
    counted: bool

    @property
    def seconds(self) -> NDArray[np.float64]:
        """Time of each frame since the first one."""
        seconds: NDArray[np.float64] = np.multiply(self.frames - self.frames[:1], float(self.time_base), dtype=np.float64)
        return seconds


class VideoDecoder:
    """A video that is open for decoding. Not thread-safe.

    Args:
        file: the video; the decoder closes it.
        image_type: RGB or YCbCr, of the frames.

    Attributes:
        height, width: of the frames, in pixels.
        num_frames: according to the container. A truncated file has fewer.
        nbytes: estimated memory of the decoder and its file.

    Raises:
        DecodeError: this is not a video.
        MissingExtraError: PyAV is not installed.
    """

    def __init__(self, file: BinaryIO, image_type: DALIImageType = RGB) -> None:
        self._av = optional("av", "Decoding videos", "video")
        self._container: Any = None
        self._file = file
        self._format = {RGB: "rgb24", YCbCr: "yuv444p"}[image_type]
        self._index: VideoIndex | None = None
        self._converter: Any = None
        self._plain: Any = None
        self._open()
        codec = self._stream.codec_context
        self.height: int = codec.height
        self.width: int = codec.width
        if not self.height or not self.width:
            raise DecodeError("the size of its frames is unknown: the file is truncated, or no video")
        self.num_frames = self._count()
        held = file.getbuffer().nbytes if isinstance(file, io.BytesIO) else 0
        self.nbytes = (1 << 20) + held + 2 * self.height * self.width * _HELD_PICTURES

    @property
    def index(self) -> VideoIndex:
        """Time stamps of all frames. The first access reads the whole file, but decodes nothing."""
        if self._index is None:
            self._index = self._read_index()
            self.num_frames = len(self._index.frames)
        return self._index

    def decode(self, numbers: Sequence[int], out: NDArray[np.uint8], fill_value: Sequence[int] = (0,)) -> None:
        """Decode frames.

        Args:
            numbers: of the frames, in any order; -1 for a frame of `fill_value`.
            out: the place for them, of shape (frames, height, width, 3).
            fill_value: one value for each channel, or one for all.

        Raises:
            DecodeError: a frame is missing or damaged; the message names it.
        """
        places: dict[int, int] = {}
        for place in sorted(range(len(numbers)), key=lambda place: numbers[place]):
            number = numbers[place]
            if number < 0:
                out[place] = np.asarray(fill_value, np.uint8)
            elif number in places:
                out[place] = out[places[number]]
            else:
                self._convert(self._frame(number), number, out[place])
                places[number] = place

    def shape(self, num_frames: int, limit: DecodingLimit) -> tuple[int, int, int, int]:
        """Return the shape of decoded frames: (frames, height, width, 3).

        Raises:
            DecodeError: they exceed the limit.
        """
        shape = num_frames, self.height, self.width, 3
        limit.check(math.prod(shape), f"{num_frames} frames of {self.height}x{self.width} pixels")
        return shape

    def close(self) -> None:
        """Close the file. Happens by itself when nothing refers to the decoder."""
        self._forget_position()
        self._close_container()
        self._file.close()

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            self.close()

    def _open(self) -> None:
        self._close_container()
        self._file.seek(0)
        try:
            self._container = self._av.open(self._file, mode="r", buffer_size=_BUFFER_BYTES)
            stream = self._container.streams.best("video")
        except (self._av.FFmpegError, OSError, ValueError) as error:
            raise DecodeError(f"this is not a video, or its header is damaged: {_reason(error)}") from None
        if stream is None or stream.codec_context is None:
            raise DecodeError("there is no video in it that can be decoded")
        self._stream = stream
        stream.codec_context.thread_count = 1  # the workers are the threads
        self._forget_position()

    def _close_container(self) -> None:
        """Close the container. An open one and its streams refer to each other, so only the garbage collector frees them."""
        if self._container is not None:
            self._container.close()

    def _count(self) -> int:
        """Return the number of frames: from the header, if it has one for each frame."""
        entries = len(self._stream.index_entries)
        if entries and entries == self._stream.frames and "mp4" in self._container.format.name:
            return entries
        return len(self.index.frames)

    def _read_index(self) -> VideoIndex:
        frames: list[int | None] = []
        keys: list[int] = []
        try:
            for packet in self._container.demux(self._stream):
                if packet.size and not packet.is_discard:
                    time = packet.dts if packet.pts is None else packet.pts
                    frames.append(time)
                    if packet.is_keyframe and time is not None:
                        keys.append(time)
        except self._av.FFmpegError as error:
            if not frames:
                raise DecodeError(f"frame 0 cannot be read: {_reason(error)}") from None
        counted = None in frames or len(set(frames)) < len(frames)
        self._open()
        base = Fraction(self._stream.time_base or 1)
        if counted:
            rate = self._stream.average_rate or self._stream.guessed_rate or 25
            return VideoIndex(np.arange(len(frames)), np.zeros(1, np.int64), 1 / Fraction(rate), True)
        return VideoIndex(np.sort(np.asarray(frames, np.int64)), np.sort(np.asarray(keys, np.int64)), base, False)

    # Decoding in order. `_picture` is the last decoded frame, and `_number` its number.

    def _forget_position(self) -> None:
        self._pictures: Iterator[Any] = iter(())
        self._picture: Any = None
        self._number: int | None = None
        self._passed = 0

    def _frame(self, number: int) -> Any:
        index = self.index
        if number >= len(index.frames):
            raise DecodeError(f"frame {number} is missing: the video ends after {len(index.frames)} frames")
        try:
            if self._number is None or number < self._number or self._key_before(number) > self._number + _LEAST_SKIP:
                self._seek(number)
            while self._number is None or self._number < number:
                self._advance()
        except StopIteration:
            self._forget_position()
            raise DecodeError(f"frame {number} of {len(index.frames)} is missing: the file is truncated") from None
        except (self._av.FFmpegError, OSError) as error:
            self._forget_position()
            raise DecodeError(f"frame {number} cannot be decoded: {_reason(error)}") from None
        if self._number != number or self._picture.is_corrupt:
            raise DecodeError(f"frame {number} of {len(index.frames)} is damaged")
        return self._picture

    def _key_before(self, number: int) -> int:
        """Return the number of the last frame up to this one at which decoding can begin."""
        index = self.index
        place = int(np.searchsorted(index.keys, index.frames[number], "right")) - 1
        return int(np.searchsorted(index.frames, index.keys[place])) if place >= 0 else 0

    def _seek(self, number: int) -> None:
        """Go to a frame that is not behind this one, and from which decoding can begin."""
        index = self.index
        key = int(np.searchsorted(index.keys, index.frames[number], "right")) - 1
        while key > 0 and not index.counted:
            self._forget_position()
            self._container.seek(int(index.keys[key]), stream=self._stream, backward=True)
            self._pictures = self._container.decode(self._stream)
            self._advance()
            if self._number is not None and self._number <= number:
                return
            key -= 1  # containers find frames by the time of decoding, which is before that of presentation
        self._open()
        self._pictures = self._container.decode(self._stream)

    def _advance(self) -> None:
        picture = next(self._pictures)
        index = self.index
        if index.counted:
            self._number = self._passed
            self._passed += 1
        elif picture.pts is not None:
            place = int(np.searchsorted(index.frames, picture.pts))
            if place < len(index.frames) and index.frames[place] == picture.pts:
                self._number = place
        self._picture = picture

    def _convert(self, picture: Any, number: int, out: NDArray[np.uint8]) -> None:
        """Write a picture in the colors of the output."""
        if (picture.height, picture.width) != (self.height, self.width):
            raise DecodeError(
                f"frame {number} has {picture.height} x {picture.width} pixels, others have {self.height} x {self.width}"
            )
        if self._converter is None or self._plain.format.name != picture.format.name:
            self._converter = self._av.video.reformatter.VideoReformatter()
            self._plain = self._av.VideoFrame(self.width, self.height, picture.format.name)
        # A frame without the position of chroma samples and without the color space.
        for source, target in zip(picture.planes, self._plain.planes, strict=True):
            used = min(source.line_size, target.line_size)
            _rows(target)[:, :used] = _rows(source)[:, :used]
        converted = self._converter.reformat(
            self._plain, format=self._format, interpolation=_SCALING, src_colorspace=_BT601, threads=1
        )
        if self._format == "rgb24":
            out[...] = _rows(converted.planes[0])[:, : 3 * self.width].reshape(self.height, self.width, 3)
        else:
            for channel, plane in enumerate(converted.planes):
                out[..., channel] = _rows(plane)[:, : self.width]


def _rows(plane: Any) -> NDArray[np.uint8]:
    return np.frombuffer(plane, np.uint8).reshape(plane.height, plane.line_size)


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def padded_numbers(numbers: Iterable[int], size: int, mode: PadMode) -> list[int]:
    """Return the numbers of frames, with those outside of the video replaced.

    Args:
        numbers: of frames.
        size: number of frames of the video.
        mode: "none" drops frames, and "constant" makes them -1.
    """
    pad = _PADDING[mode]
    replaced = [number if 0 <= number < size else pad(number, size) for number in numbers]
    return [number for number in replaced if number is not None]


def _reflect_101(number: int, size: int) -> int:
    if size == 1:
        return 0
    number %= 2 * (size - 1)
    return min(number, 2 * (size - 1) - number)


def _reflect_1001(number: int, size: int) -> int:
    number %= 2 * size
    return min(number, 2 * size - 1 - number)


_PADDING: dict[str, Callable[[int, int], int | None]] = {
    "none": lambda number, size: None,
    "constant": lambda number, size: -1,
    "edge": lambda number, size: min(max(number, 0), size - 1),
    "reflect_101": _reflect_101,
    "reflect_1001": _reflect_1001,
}
_PADDING |= {"repeat": _PADDING["edge"], "reflect": _reflect_101, "symmetric": _reflect_1001}


def check_fill_value(fill_value: Sequence[int]) -> None:
    """Refuse values that are not for the channels of a frame.

    Raises:
        ArgumentError: a value is out of range.
        ArgumentClashError: there are neither one value nor three.
    """
    if not all(0 <= value <= 255 for value in fill_value):
        raise ArgumentError(f"fill_value must be in range [0, 255], not {list(fill_value)}")
    if len(fill_value) not in (1, 3):
        raise ArgumentClashError(f"fill_value must be one number, or one for each of 3 channels, not {list(fill_value)}")


def check_image_type(image_type: DALIImageType) -> None:
    """Refuse color spaces other than RGB and YCbCr.

    Raises:
        ArgumentError: it is another one.
    """
    if image_type not in (RGB, YCbCr):
        raise ArgumentError(f"image_type must be RGB or YCbCr, not {DALIImageType(image_type).name}")
