"""``fn.readers.sequence``: sequences of frames that are image files."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dali_like.common.saved_arguments import SavedText
from dali_like.errors import ArgumentError, BrokenFileError, DecodeError
from dali_like.images.decode import decode_image
from dali_like.sources.readers.reader import Reader, reader
from dali_like.sources.readers.stored_files import FileNames, joined, shown
from dali_like.types import RGB, DALIImageType, SampleInfo


@reader(path="readers.sequence")
class SequenceReader(Reader):
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

    dtype = np.uint8
    ndim = 4
    layout = "FHWC"

    def __init__(
        self, *, file_root: SavedText, sequence_length: int, step: int = 1, stride: int = 1, image_type: DALIImageType = RGB
    ) -> None:
        for name, value in (("sequence_length", sequence_length), ("step", step), ("stride", stride)):
            if value < 1:
                raise ArgumentError(f"{name} must be positive, not {value}")
        self._root = file_root
        self._length = sequence_length
        self._step = step
        self._stride = stride
        self._image_type = image_type
        self._names = FileNames(())
        self._firsts = np.zeros(0, np.int64)

    def prepare(self) -> None:
        names: list[str] = []
        firsts: list[int] = []
        for stream, frames in self.files.names_in_folders(self._root).items():
            end = len(frames) - (self._length - 1) * self._stride
            firsts += range(len(names), len(names) + end, self._step)
            names += [f"{stream}/{frame}" for frame in frames]
        self._names = FileNames(names)
        self._firsts = np.asarray(firsts, np.int64)

    def __len__(self) -> int:
        return len(self._firsts)

    def why_empty(self) -> str:
        frames = (self._length - 1) * self._stride + 1
        return f"No files found: no folder in {shown(self._root)} has {frames} files, as many as a sequence of frames needs"

    async def read(self, index: int, info: SampleInfo) -> NDArray[np.uint8]:
        first = int(self._firsts[index])
        frames: Any = None

        def empty(shape: tuple[int, int, int]) -> NDArray[np.uint8]:
            nonlocal frames
            frames = info.empty((self._length, *shape))
            target: NDArray[np.uint8] = frames[0]
            return target

        for i in range(self._length):
            path = joined(self._root, self._names[first + i * self._stride])
            data = await self.files.read(path)
            try:
                decode_image(data, self._image_type, out=empty if frames is None else frames[i])
            except (DecodeError, ArgumentError) as error:
                raise BrokenFileError(f"{shown(path)}, frame {i} of a sequence: {error}", path) from None
        result: NDArray[np.uint8] = frames
        return result
