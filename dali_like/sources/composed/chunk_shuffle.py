"""Shuffling for files that are read in chunks: each chunk is read about once.

Like `dali_like.sources.permutation.BlockPermutation`, but the chunks may have different sizes, such as the row groups of
Parquet files.

With random access, neighboring positions belong to different workers, so each worker reads the chunks of its positions. With
`whole`, each chunk belongs to one logical shard, and so to one worker of one rank.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dali_like.sources.composed.blocks import seeded
from dali_like.sources.composed.chunked_files import ChunkedSource, ChunkReader
from dali_like.sources.composed.inputs import Indexed
from dali_like.sources.composed.stage import (
    Place,
    RandomAccess,
    Sharded,
    ShardWalk,
    SingleInputStage,
    checked_state,
    is_count,
    note_place,
)
from dali_like.sources.permutation import Permutation

__all__ = ["ChunkShuffle"]


@dataclass(frozen=True)
class ChunkShuffle(SingleInputStage):
    """Puts the chunks of files in random order, and shuffles the records of groups of `together` consecutive chunks.

    With `whole`, the chunks in this order are dealt to the logical shards, and the groups are of one shard.
    """

    input: Indexed
    together: int
    seed: int | None
    whole: bool = False
    varies = True

    @property
    def is_sharded(self) -> bool:
        return self.whole

    @property
    def count_varies(self) -> bool:
        return self.whole

    @property
    def is_random(self) -> bool:
        return True

    @property
    def length(self) -> int | None:
        return None if self.whole else self.input.length

    @property
    def text(self) -> str:
        num_chunks = len(self.input.source.chunk_ends)
        whole = ", whole=True" if self.whole else ""
        return f"shuffle(together={self.together}, seed={self.seed}{whole}) of {num_chunks} chunks"

    def evaluator(self, place: Place) -> RandomAccess | Sharded:
        return _ChunksSharded(self, place) if self.whole else _ChunkShuffleAccess(self, place)


class _ChunkGroup(NamedTuple):
    """Chunks that are shuffled together.

    Attributes:
        begin, end: places of its records.
        order: of its records, relative to `begin`.
        ends: number of records up to the end of each chunk.
        shifts: for each chunk, the number of its first record less its first place in the group.
    """

    begin: int
    end: int
    order: Permutation
    ends: list[int]
    shifts: list[int]


class _ChunkWalk:
    """Shuffled records of chunks in a given order, by their places.

    Args:
        stage: of the shuffle.
        seed_of: returns the seed of a group of chunks, given its number.
        chunks: in order; all chunks, or the ones of a shard.
        reader: of the records.

    Attributes:
        length: the number of records.
    """

    def __init__(
        self, stage: ChunkShuffle, seed_of: Callable[[int], int], chunks: NDArray[np.int64], reader: ChunkReader
    ) -> None:
        self._stage, self._seed_of, self._chunks, self._reader = stage, seed_of, chunks, reader
        self._chunk_ends: NDArray[np.int64] = stage.input.source.chunk_ends
        self._sizes = np.diff(self._chunk_ends, prepend=0)
        self._ends = np.cumsum(self._sizes[chunks])
        self.length = int(self._ends[-1]) if len(chunks) else 0
        self._group = _ChunkGroup(0, 0, Permutation(0), [], [])

    def at(self, place: int) -> Any:
        """Return the record at a place, from 0 on."""
        group = self._group
        if not group.begin <= place < group.end:
            group = self._group = self._enter(place)
        number = group.order[place - group.begin]
        index = number + group.shifts[bisect_right(group.ends, number)]
        try:
            return self._reader[index]
        except Exception as error:
            note_place(error, self._stage, f"index {index}")
            raise

    def _enter(self, place: int) -> _ChunkGroup:
        chunks, ends, together = self._chunks, self._ends, self._stage.together
        group = int(np.searchsorted(ends, place, "right")) // together
        first = group * together
        begin = int(ends[first - 1]) if first else 0
        mine = chunks[first : first + together]
        # With random access, other workers are at most a group ahead. The chunks of a shard have one walk.
        following = self._reader.most_ahead if self._stage.whole else max(together, self._reader.most_ahead)
        self._reader.expect(chunks[first : first + together + following].tolist())
        my_ends = (ends[first : first + together] - begin).tolist()
        starts = [0, *my_ends[:-1]]
        firsts = (self._chunk_ends[mine] - self._sizes[mine]).tolist()
        return _ChunkGroup(
            begin,
            begin + my_ends[-1],
            Permutation(my_ends[-1], self._seed_of(group)),
            my_ends,
            [record - start for record, start in zip(firsts, starts, strict=True)],
        )


def _in_order(stage: ChunkShuffle, seeds: Place, epoch: int) -> NDArray[np.int64]:
    """Return the chunks in their order of an epoch."""
    num_chunks = len(stage.input.source.chunk_ends)
    return np.asarray(Permutation(num_chunks, seeds.seed_of(epoch))[np.arange(num_chunks)])


class _ChunkShuffleAccess(RandomAccess):
    def __init__(self, stage: ChunkShuffle, place: Place) -> None:
        source: ChunkedSource = stage.input.source
        self._stage, self._seeds = stage, seeded(stage.seed, place)
        self.length: int = stage.input.length
        # Chunks of the next group are read while the records of one are delivered.
        self._reader: ChunkReader = source.reader(2 * stage.together)
        self._latest: tuple[int, _ChunkWalk] | None = None

    def at(self, position: int) -> Any:
        epoch, index = divmod(position, self.length)
        latest = self._latest
        if latest is None or latest[0] != epoch:
            seeds = self._seeds
            chunks = _in_order(self._stage, seeds, epoch)
            walk = _ChunkWalk(self._stage, lambda group: seeds.seed_of(epoch, group), chunks, self._reader)
            latest = self._latest = epoch, walk
        return latest[1].at(index)


class _ChunksSharded(Sharded):
    def __init__(self, stage: ChunkShuffle, place: Place) -> None:
        self._stage, self._place = stage, place

    def open(self, shard: int, epoch: int, state: Any = None) -> ShardWalk:
        stage, seeds = self._stage, seeded(self._stage.seed, self._place)
        chunks = _in_order(stage, seeds, epoch)[shard :: self._place.num_shards]
        reader = stage.input.source.reader(stage.together)
        records = _ChunkWalk(stage, lambda group: seeds.seed_of(epoch, shard, group), chunks, reader)
        return _WholeChunksWalk(records, checked_state(state, 0, is_count))


class _WholeChunksWalk(ShardWalk):
    """The state is the number of outputs so far."""

    def __init__(self, records: _ChunkWalk, taken: int) -> None:
        self._records, self._taken = records, taken

    def __next__(self) -> Any:
        self.skip()
        return self._records.at(self._taken - 1)

    def skip(self) -> None:
        if self._taken >= self._records.length:
            raise StopIteration
        self._taken += 1

    def state(self) -> int:
        return self._taken
