"""Batches of sequences of frames from encoded videos, for ``fn.experimental.inputs.video``. Runs in the main process."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dali_like.images.decoding_limit import READER_LIMIT_BYTES, DecodingLimit
from dali_like.images.video import VideoDecoder

#: Of a sequence. The user cannot raise it.
_LIMIT = DecodingLimit(READER_LIMIT_BYTES, "Pass a smaller sequence_length")


@dataclass(frozen=True)
class VideoSplitter:
    """Splits a video into batches of sequences.

    Attributes:
        sequence_length: frames in a sequence.
        pads: whether the last sequence is filled with frames of zeros.
    """

    sequence_length: int
    pads: bool

    def batches(self, encoded: NDArray[Any], batch_size: int) -> Iterator[list[NDArray[np.uint8]]]:
        """Yield the batches of a video; the last one may be smaller.

        Args:
            encoded: the file, of shape (number of bytes,) and dtype uint8.
            batch_size: sequences in a batch.

        Raises:
            DecodeError: it is not a video, a frame is damaged, or a sequence takes more than 1 GiB.
        """
        decoder = VideoDecoder(io.BytesIO(encoded.tobytes()))
        try:
            count = len(decoder.index.frames)
            firsts = range(0, count, self.sequence_length)
            for begin in range(0, len(firsts), batch_size):
                yield [self._sequence(decoder, first, count) for first in firsts[begin : begin + batch_size]]
        finally:
            decoder.close()

    def _sequence(self, decoder: VideoDecoder, first: int, count: int) -> NDArray[np.uint8]:
        numbers = [number if number < count else -1 for number in range(first, first + self.sequence_length)]
        if not self.pads:
            numbers = [number for number in numbers if number >= 0]
        frames = np.empty(decoder.shape(len(numbers), _LIMIT), np.uint8)
        decoder.decode(numbers, frames)
        return frames
