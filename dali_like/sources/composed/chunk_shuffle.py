"""Shuffling for files that are read in chunks: each chunk is read about once.

Like `dali_like.sources.permutation.BlockPermutation`, but the chunks may have different sizes, such as the row groups of
Parquet files.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dali_like.sources.composed.blocks import seeded
from dali_like.sources.composed.chunked_files import ChunkedFiles, ChunkReader
from dali_like.sources.composed.inputs import Indexed
from dali_like.sources.composed.stage import Place, RandomAccess, SingleInputStage, note_place
from dali_like.sources.permutation import Permutation

__all__ = ["ChunkShuffle"]


@dataclass(frozen=True)
class ChunkShuffle(SingleInputStage):
    """Puts the chunks of files in random order, and shuffles the records of groups of `together` consecutive chunks."""

    input: Indexed
    together: int
    seed: int | None
    varies = True

    @property
    def is_random(self) -> bool:
        return True

    @property
    def length(self) -> int:
        return self.input.length

    @property
    def text(self) -> str:
        num_chunks = len(self.input.source.chunk_ends)
        return f"shuffle(together={self.together}, seed={self.seed}) of {num_chunks} chunks"

    def evaluator(self, place: Place) -> RandomAccess:
        return _ChunkShuffleAccess(self, place)


class _Epoch(NamedTuple):
    """The order of chunks in an epoch.

    Attributes:
        number: of the epoch.
        chunks: in order.
        ends: number of records up to the end of each of them.
    """

    number: int
    chunks: NDArray[np.int64]
    ends: NDArray[np.int64]


class _ChunkGroup(NamedTuple):
    """Chunks that are shuffled together.

    Attributes:
        begin, end: positions from the beginning of the first epoch.
        order: of its records, relative to `begin`.
        ends: number of records up to the end of each chunk.
        shifts: for each chunk, the number of its first record less its first place in the group.
    """

    begin: int
    end: int
    order: Permutation
    ends: list[int]
    shifts: list[int]


class _ChunkShuffleAccess(RandomAccess):
    def __init__(self, stage: ChunkShuffle, place: Place) -> None:
        source: ChunkedFiles = stage.input.source
        self._stage, self._place = stage, place
        self.length: int = stage.length
        self._chunk_ends = source.chunk_ends
        self._sizes = np.diff(source.chunk_ends, prepend=0)
        # Chunks of the next group are read while the records of one are delivered.
        self._reader: ChunkReader = source.reader(2 * stage.together)
        self._epoch = _Epoch(-1, self._sizes, self._sizes)
        self._group = _ChunkGroup(0, 0, Permutation(0), [], [])

    def at(self, position: int) -> object:
        group = self._group
        if not group.begin <= position < group.end:
            group = self._group = self._enter(position)
        place = group.order[position - group.begin]
        index = place + group.shifts[bisect_right(group.ends, place)]
        try:
            return self._reader[index]
        except Exception as error:
            note_place(error, self._stage, f"index {index}")
            raise

    def _enter(self, position: int) -> _ChunkGroup:
        number, index = divmod(position, self.length)
        if self._epoch.number != number:
            self._epoch = self._order_of(number)
        _, chunks, ends = self._epoch
        together = self._stage.together
        group = int(np.searchsorted(ends, index, "right")) // together
        first = group * together
        begin = int(ends[first - 1]) if first else 0
        mine = chunks[first : first + together]
        following = max(together, self._reader.most_ahead)
        self._reader.expect(chunks[first : first + together + following].tolist())
        my_ends = (ends[first : first + together] - begin).tolist()
        starts = [0, *my_ends[:-1]]
        firsts = (self._chunk_ends[mine] - self._sizes[mine]).tolist()
        return _ChunkGroup(
            number * self.length + begin,
            number * self.length + begin + my_ends[-1],
            Permutation(my_ends[-1], seeded(self._stage.seed, self._place).seed_of(number, group)),
            my_ends,
            [record - start for record, start in zip(firsts, starts, strict=True)],
        )

    def _order_of(self, epoch: int) -> _Epoch:
        seed = seeded(self._stage.seed, self._place).seed_of(epoch)
        chunks = np.asarray(Permutation(len(self._sizes), seed)[np.arange(len(self._sizes))])
        return _Epoch(epoch, chunks, np.cumsum(self._sizes[chunks]))
