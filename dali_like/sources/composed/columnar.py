"""Stages of streams that are read in columns: their elements are record batches, and their positions count rows.

A walk through a shard yields record batches (`dali_like.sources.composed.record_batches`). Their bounds follow from the
files and the stages alone, so functions get the same ones on any ranks and workers. `RowWalk` goes through their rows. Its
state is that of the input before the open record batch, and the number of rows taken: a stream resumes at any row.

`map`, `repeat`, `concat` and `shard` pass record batches on, as they do with other elements. The stages of this module
divide or join them. Other stages get single rows, by `BatchRows`.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dali_like.errors import ArgumentClashError, ArgumentError, EmptyFilterError, SampleTypeError
from dali_like.sources.composed.blocks import seeded
from dali_like.sources.composed.chunked_files import ChunkedFiles, ChunkReader, FileRecords
from dali_like.sources.composed.inputs import Parts
from dali_like.sources.composed.positions import num_delivered
from dali_like.sources.composed.record_batches import (
    MOST_ROWS,
    Columns,
    OpenBatch,
    Row,
    checked,
    chosen,
    joined,
    kept,
    num_rows,
    part,
    row_getter,
)
from dali_like.sources.composed.stage import (
    Place,
    Sharded,
    ShardedStage,
    ShardWalk,
    SingleInputStage,
    Stage,
    is_anything,
    is_count,
    note_place,
    skip_many,
    state_parts,
)
from dali_like.sources.composed.yielding import Filter, FilterWalk
from dali_like.sources.permutation import Permutation

__all__ = [
    "ColumnFilter",
    "ColumnShuffle",
    "ColumnSlice",
    "Gathered",
    "RecordBatchFiles",
    "RecordBatchParts",
    "RowGroupShuffle",
    "RowWalk",
    "BatchRows",
    "RowsSharded",
]

#: Record batches in a row that may have no rows.
_MOST_EMPTY = 1_000_000


# Files


class RecordBatchFiles(ChunkedFiles):
    """The record batches of files of rows: each chunk of rows, such as a row group, in parts of up to `MOST_ROWS` rows.

    Args:
        rows: the files. Their `read` returns an object with the attribute `columns`.
    """

    has_single_records = False

    def __init__(self, rows: Any) -> None:
        self._files = rows
        self.is_remote: bool = rows.is_remote
        self.mean_chunk_bytes: int = rows.mean_chunk_bytes
        counts = -(-np.diff(rows.chunk_ends, prepend=0) // MOST_ROWS)
        self.chunk_ends = np.cumsum(counts, dtype=np.int64)

    async def read(self, first: int, last: int) -> Sequence[Any]:
        chunk = int(np.searchsorted(self.chunk_ends, first, "right"))
        begin = int(self.chunk_ends[chunk - 1]) if chunk else 0
        begin_row = int(self._files.chunk_ends[chunk - 1]) if chunk else 0
        columns = (await self._files.read(begin_row, int(self._files.chunk_ends[chunk]))).columns
        return [part(columns, i * MOST_ROWS, (i + 1) * MOST_ROWS) for i in range(first - begin, last - begin)]

    def decode(self, record: Any, index: int) -> Any:
        return dict(record)  # a function may add columns to it


@dataclass(frozen=True)
class RecordBatchParts(Parts):
    """Record batches of files. A part is a row group, or a file; each one is read by one shard."""

    is_columnar = True


@dataclass(frozen=True)
class RowGroupShuffle(ShardedStage, SingleInputStage):
    """Puts the row groups of files in random order, and shuffles the rows of `together` row groups of a shard together."""

    input: RecordBatchParts
    together: int
    seed: int | None
    varies = True
    is_columnar = True

    @property
    def is_random(self) -> bool:
        return True

    @property
    def text(self) -> str:
        return f"shuffle(together={self.together}, seed={self.seed})"

    def evaluator(self, place: Place) -> Sharded:
        self.input.evaluator(place.input(0))  # checks the number of parts
        return _RowGroupsSharded(self, seeded(self.seed, place), place.num_shards)


class _RowGroupsSharded(Sharded):
    def __init__(self, stage: RowGroupShuffle, place: Place, num_shards: int) -> None:
        self._stage, self._place, self._num_shards = stage, place, num_shards

    def open(self, shard: int, epoch: int, state: Any = None) -> ShardWalk:
        parts = self._stage.input.parts
        order = np.asarray(Permutation(len(parts), self._place.seed_of(epoch))[np.arange(len(parts))])
        mine = [parts[number] for number in order[shard :: self._num_shards].tolist()]
        group, begin = state_parts(state, (0, 0), is_count, is_count)
        return _RowGroupWalk(self._stage, self._place, mine, (epoch, shard), group, begin)


class _RowGroupWalk(ShardWalk):
    """The state is the number of the group of row groups, and the number of rows passed in it."""

    def __init__(
        self,
        stage: RowGroupShuffle,
        place: Place,
        parts: Sequence[Any],
        numbers: tuple[int, int],
        group: int,
        begin: int,
    ) -> None:
        self._stage, self._place, self._parts, self._numbers = stage, place, parts, numbers
        self._group, self._begin = group, begin
        self._reader: ChunkReader | None = None
        self._columns: Columns | None = None
        self._order: NDArray[np.int64] = np.zeros(0, np.int64)

    def __next__(self) -> Columns:
        while self._group * self._stage.together < len(self._parts):
            if self._columns is None:
                try:
                    self._open()
                except Exception as error:
                    note_place(error, self._stage, f"group {self._group} of shard {self._numbers[1]}")
                    self._close()
                    raise
            assert self._columns is not None
            numbers = self._order[self._begin : self._begin + MOST_ROWS]
            if len(numbers):
                columns = chosen(self._columns, numbers)
                self._begin += len(numbers)
                if self._begin == len(self._order):
                    self._close()
                return columns
            self._close()
        raise StopIteration

    def _open(self) -> None:
        together, first = self._stage.together, self._group * self._stage.together
        parts: list[FileRecords] = list(self._parts[first : first + together])
        source = parts[0].source
        if self._reader is None:
            self._reader = source.reader(2 * together)
        ahead = self._parts[first : first + together + max(together, self._reader.most_ahead)]
        firsts = [each.records.start for each in ahead if len(each.records)]
        self._reader.expect(np.searchsorted(source.chunk_ends, firsts, "right").tolist())
        found = [self._reader[number] for each in parts for number in each.records]
        self._columns = joined(found) if found else {"": np.zeros(0)}
        generator = np.random.Generator(np.random.PCG64(self._place.seed_of(*self._numbers, self._group)))
        self._order = generator.permutation(num_rows(self._columns))

    def _close(self) -> None:
        self._columns, self._begin = None, 0
        self._group += 1

    def state(self) -> list[int]:
        return [self._group, self._begin]


# Rows


class RowsSharded(Sharded):
    """The rows of a stage in columns. `lazily`: see `BatchRows`."""

    def __init__(self, source: Sharded, lazily: bool = False) -> None:
        self._source, self._lazily = source, lazily

    def open(self, shard: int, epoch: int, state: Any = None) -> RowWalk:
        source_state, taken = state_parts(state, (None, 0), is_anything, is_count)
        return RowWalk(self._source.open(shard, epoch, source_state), shard, taken, self._lazily)


class RowWalk(ShardWalk):
    """The state is that of the input before the open record batch, and the number of rows taken from it."""

    def __init__(self, source: ShardWalk, shard: int, taken: int, lazily: bool = False) -> None:
        self._source, self._shard, self._lazily = source, shard, lazily
        self._before = source.state()
        self._columns: Columns = {}
        self._batch = OpenBatch(self._columns)
        self._taken = self._end = 0
        self._to_skip = taken
        self._row: Callable[[int], Any] | None = None

    def begin(self) -> None:
        self._source.begin()

    def __next__(self) -> Any:
        if self._taken == self._end:
            self._open()
        if self._row is None:
            columns = self._columns
            self._row = (lambda index: Row(columns, index)) if self._lazily else row_getter(columns)
        self._taken += 1
        return self._row(self._taken - 1)

    @property
    def num_open(self) -> int:
        """The number of rows that are left of the open record batch."""
        return self._end - self._taken

    def take(self, most: int) -> tuple[OpenBatch, int, int]:
        """Return a record batch, and the begin and the end of the next rows in it: one to `most`.

        Raises:
            StopIteration: the rows have ended.
        """
        if self._taken == self._end:
            self._open()
        begin = self._taken
        self._taken = end = min(begin + most, self._end)
        return self._batch, begin, end

    def columns(self, most: int) -> tuple[Columns, int]:
        """Return the next rows, all of one record batch, and their number: one to `most`.

        Raises:
            StopIteration: the rows have ended.
        """
        batch, begin, end = self.take(most)
        return part(batch.columns, begin, end), end - begin

    def skip(self) -> None:
        self.pass_by(1)

    def pass_by(self, most: int) -> int:
        if self._taken == self._end:
            self._open()
        before, self._taken = self._taken, min(self._taken + most, self._end)
        return self._taken - before

    def _open(self) -> None:
        """Open the next record batch that has rows."""
        for _ in range(_MOST_EMPTY):
            self._columns, self._row, self._taken, self._end = {}, None, 0, 0
            self._before = self._source.state()
            columns = checked(next(self._source))
            self._columns, self._batch, self._end = columns, OpenBatch(columns), num_rows(columns)
            self._taken = min(self._to_skip, self._end)
            self._to_skip = 0
            if self._taken < self._end:
                return
        raise EmptyFilterError(f"{_MOST_EMPTY} record batches in a row have no rows in shard {self._shard}")

    def state(self) -> list[Any]:
        if self._taken == self._end and not self._to_skip:
            return [self._source.state(), 0]
        return [self._before, self._taken + self._to_skip]


@dataclass(frozen=True)
class BatchRows(ShardedStage, SingleInputStage):
    """The rows of record batches: dicts, or `lazily` references, which `Gathered` joins."""

    lazily: bool = False

    @property
    def text(self) -> str:
        return "as_rows()"

    def evaluator(self, place: Place) -> Sharded:
        return RowsSharded(sharded_input(self, place), self.lazily)


@dataclass(frozen=True)
class Gathered(ShardedStage, SingleInputStage):
    """Record batches of `count` rows each, from a stage of lazy rows."""

    count: int
    is_columnar = True

    @property
    def text(self) -> str:
        return f"record_batches({self.count})"

    def evaluator(self, place: Place) -> Sharded:
        return _BatchesSharded(_GatheringWalk, self, place, sharded_input(self, place))


def sharded_input(stage: SingleInputStage, place: Place) -> Sharded:
    """Return the evaluator of the input of a stage, which runs in logical shards."""
    source = stage.input.evaluator(place.input(0))
    assert isinstance(source, Sharded)
    return source


def row_stage(stage: Stage) -> Stage:
    """Return a stage whose elements are single rows, if its elements are record batches."""
    return BatchRows(stage) if stage.is_columnar else stage


def alike(stages: Sequence[Stage]) -> tuple[Stage, ...]:
    """Return the stages as they are if all of them have record batches, or none has; otherwise with rows."""
    return tuple(stages) if all(stage.is_columnar for stage in stages) else tuple(map(row_stage, stages))


def mixed(stages: Sequence[Stage], mix: Callable[[tuple[Stage, ...]], Stage], count: int) -> Stage:
    """Return a mixture of rows. If all inputs have record batches, so has the mixture: each with `count` rows."""
    if not all(stage.is_columnar for stage in stages):
        return mix(tuple(map(row_stage, stages)))
    return Gathered(mix(tuple(BatchRows(stage, lazily=True) for stage in stages)), count)


def row_group_shuffle(stage: Stage, together: int, block: int | None, seed: int | None) -> Stage:
    """Return the stage of ``shuffle(together=...)``."""
    if block is not None:
        raise ArgumentClashError("shuffle takes block or together, not both")
    if not isinstance(stage, RecordBatchParts):
        raise ArgumentError(
            f"shuffle(together=...) shuffles row groups of files, and its input is {stage.text}. Use it directly behind "
            "from_parquet; or shuffle in blocks of rows: shuffle(block=100_000)"
        )
    return RowGroupShuffle(stage, together, seed)


# Stages that join rows to record batches


class _BatchesSharded(Sharded):
    def __init__(self, walk: Any, stage: Any, place: Place, source: Sharded) -> None:
        self._walk, self._stage, self._place, self._source = walk, stage, place, source

    def open(self, shard: int, epoch: int, state: Any = None) -> ShardWalk:
        source_state, number, raised = state_parts(state, (None, 0, 0), is_anything, is_count, is_count)
        walk: ShardWalk = self._walk(
            self._stage, self._place, self._source.open(shard, epoch, source_state), (epoch, shard), number, raised
        )
        return walk


class _BatchWalk(ShardWalk, abc.ABC):
    """Makes each record batch of so many rows of the input.

    The state is that of the input before the record batch, its number, and the number of exceptions raised since.
    """

    def __init__(self, stage: Any, place: Place, source: Any, numbers: tuple[int, int], number: int, raised: int) -> None:
        self._stage, self._place, self._source, self._numbers = stage, place, source, numbers
        self._before = source.state()
        self._number, self._raised, self._to_ignore = number, raised, raised
        self._parts: list[Any] = []
        self._count = 0

    def __next__(self) -> Columns:
        size = self._size
        while self._count < size:
            try:
                self._read(size - self._count)
            except StopIteration:
                break
            except Exception:
                if not self._to_ignore:
                    self._raised += 1
                    raise
                self._to_ignore -= 1
        if not self._parts:
            raise StopIteration
        numbers = (*self._numbers, self._number)
        parts, self._parts, self._count = self._parts, [], 0
        self._number, self._raised, self._before = self._number + 1, 0, self._source.state()
        return self._made(parts, numbers)

    @property
    @abc.abstractmethod
    def _size(self) -> int:
        """The number of rows of a record batch."""

    @abc.abstractmethod
    def _read(self, most: int) -> None:
        """Append rows of the input to `_parts`, one to `most`, and count them.

        Raises:
            StopIteration: the rows have ended.
        """

    @abc.abstractmethod
    def _made(self, parts: list[Any], numbers: tuple[int, ...]) -> Columns:
        """Return the record batch of some parts.

        Args:
            numbers: epoch, shard, and number of the record batch.
        """

    def state(self) -> list[Any]:
        return [self._before, self._number, self._raised]


class _GatheringWalk(_BatchWalk):
    @property
    def _size(self) -> int:
        count: int = self._stage.count
        return count

    def _read(self, most: int) -> None:
        self._parts.append(next(self._source))
        self._count += 1

    def _made(self, parts: list[Any], numbers: tuple[int, ...]) -> Columns:
        """Take the rows of each record batch at once, and put them into their order."""
        of_batch: dict[int, tuple[Columns, list[int], list[int]]] = {}
        for place, row in enumerate(parts):
            _, indices, places = of_batch.setdefault(id(row.columns), (row.columns, [], []))
            indices.append(row.index)
            places.append(place)
        found = list(of_batch.values())
        together = joined([chosen(columns, np.array(indices)) for columns, indices, _ in found])
        return chosen(together, np.argsort(np.concatenate([places for _, _, places in found]), kind="stable"))


@dataclass(frozen=True)
class ColumnShuffle(ShardedStage, SingleInputStage):
    """Shuffles the rows of each block of a shard. Each block becomes one record batch."""

    block: int
    seed: int | None
    varies = True
    is_columnar = True

    @property
    def count_varies(self) -> bool:
        return self.input.count_varies

    @property
    def is_random(self) -> bool:
        return True

    @property
    def text(self) -> str:
        return f"shuffle(block={self.block}, seed={self.seed})"

    def evaluator(self, place: Place) -> Sharded:
        source = RowsSharded(sharded_input(self, place))
        return _BatchesSharded(_ShufflingWalk, self, seeded(self.seed, place), source)


class _ShufflingWalk(_BatchWalk):
    @property
    def _size(self) -> int:
        block: int = self._stage.block
        return block

    def _read(self, most: int) -> None:
        columns, count = self._source.columns(most)
        self._parts.append(columns)
        self._count += count

    def _made(self, parts: list[Any], numbers: tuple[int, ...]) -> Columns:
        columns = joined(parts)
        generator = np.random.Generator(np.random.PCG64(self._place.seed_of(*numbers)))
        return chosen(columns, generator.permutation(num_rows(columns)))


# Stages that leave rows out


@dataclass(frozen=True)
class ColumnFilter(Filter):
    """The rows for which the mask that a function returns for a record batch is true."""

    is_columnar = True

    def evaluator(self, place: Place) -> Sharded:
        return _ColumnFilterSharded(self, self.source(place))


class _ColumnFilterSharded(Sharded):
    def __init__(self, stage: ColumnFilter, source: Sharded) -> None:
        self._stage, self._source = stage, source

    def open(self, shard: int, epoch: int, state: Any = None) -> ShardWalk:
        return _ColumnFilterWalk(self._stage, self._source.open(shard, epoch, state), shard)


class _ColumnFilterWalk(FilterWalk):
    """Leaves out record batches without rows."""

    def __next__(self) -> Columns:
        rejected = 0
        while rejected < self._stage.most_rejected:
            columns = self._take()
            try:
                columns = checked(columns)
                mask = _mask_of(self._function(columns), num_rows(columns))
            except Exception as error:  # a user's function may raise anything
                self._note(error)
                raise
            if mask.all():
                return columns
            if mask.any():
                return kept(columns, mask)
            rejected += len(mask)
        raise self._empty()


def _mask_of(mask: Any, count: int) -> NDArray[np.bool_]:
    found = np.asarray(mask)
    if found.dtype != np.bool_ or found.shape != (count,):
        raise SampleTypeError(
            f"a filter of record batches returns a boolean for each of the {count} rows, and the function has returned an "
            f"array of shape {found.shape} and dtype {found.dtype}. Compare columns, such as columns['x'] > 0"
        )
    return found


@dataclass(frozen=True)
class ColumnSlice(ShardedStage, SingleInputStage):
    """The rows from position `start` to before position `stop`."""

    start: int
    stop: int | None
    is_columnar = True

    @property
    def is_endless(self) -> bool:
        return self.stop is None and self.input.is_endless

    @property
    def text(self) -> str:
        return f"slice({self.start}, {self.stop}, 1)"

    def evaluator(self, place: Place) -> Sharded:
        return _ColumnSliceSharded(self, place, RowsSharded(sharded_input(self, place)))


class _ColumnSliceSharded(Sharded):
    def __init__(self, stage: ColumnSlice, place: Place, source: RowsSharded) -> None:
        self._stage, self._source, self._num_shards = stage, source, place.num_shards

    def open(self, shard: int, epoch: int, state: Any = None) -> ShardWalk:
        """Position p of the outputs is position ``start + p`` of the input, so it may be of another shard there."""
        of_input = (self._stage.start + shard) % self._num_shards
        skipped = num_delivered(self._stage.start, of_input, self._num_shards)
        stop = self._stage.stop
        most = None if stop is None else max(num_delivered(stop, of_input, self._num_shards) - skipped, 0)
        source_state, taken = state_parts(state, (None, None), is_anything, lambda value: value is None or is_count(value))
        return _ColumnSliceWalk(self._source.open(of_input, epoch, source_state), skipped, most, taken)


class _ColumnSliceWalk(ShardWalk):
    """The state is that of the rows, and the number of rows and exceptions so far; None before the first."""

    def __init__(self, source: RowWalk, skipped: int, most: int | None, taken: int | None) -> None:
        self._source, self._skipped, self._most, self._taken = source, skipped, most, taken

    def __next__(self) -> Columns:
        if self._taken is None:
            skip_many(self._source, self._skipped)
            self._taken = 0
        if self._most is not None and self._taken >= self._most:
            raise StopIteration
        self._taken += 1  # an exception is an output
        columns, count = self._source.columns(MOST_ROWS if self._most is None else self._most - self._taken + 1)
        self._taken += count - 1
        return columns

    def state(self) -> Any:
        return None if self._taken is None else [self._source.state(), self._taken]
