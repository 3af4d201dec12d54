"""Rows of streams in columns on their way into a batch: where they go, and the pieces of columns that have them.

Output k of logical shard s of L has the position ``k * L + s``. So the next rows of a shard lie at equal distances in a
batch, and a *run* of them is a range of places. A task of thousands of rows is described by a range for each of its shards,
not by a number for each row::

    positions of the batch   30 31 32 33 34 35 36 37    L = 3, one rank
    places of shard 0         0        3        6       its rows 10, 11, 12
    places of shard 1            1        4        7    its rows 10, 11, 12
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dali_like.sources.composed.record_batches import Columns, OpenBatch, chosen, joined, num_rows, part, row_getter
from dali_like.sources.composed.stream import Elements, ShardEndedError
from dali_like.sources.state_format import ShardState

__all__ = ["RowPieces", "Runs", "TakenRows", "runs_of", "take_rows"]


class Runs(Sequence[int]):
    """Places of a batch, run by run.

    Attributes:
        ranges: the places of each run. Its rows follow each other in one logical shard.
    """

    __slots__ = ("_count", "ranges")

    def __init__(self, ranges: Iterable[range] = ()) -> None:
        self.ranges = tuple(ranges)
        self._count = sum(map(len, self.ranges))

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        return itertools.chain.from_iterable(self.ranges)

    def __getitem__(self, index: Any) -> Any:
        return list(self)[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Runs) and self.ranges == other.ranges

    def __hash__(self) -> int:
        return hash(self.ranges)

    def __repr__(self) -> str:
        return f"Runs({list(self.ranges)})"

    def __reduce__(self) -> Any:
        return Runs, (self.ranges,)


def runs_of(
    positions: Sequence[int], num_shards: int, ended: Collection[int] = (), ahead: Mapping[int, int] | None = None
) -> Runs:
    """Return the runs of the positions of a batch, by shard. Empty positions have no place.

    Args:
        ended: the shards at their end.
        ahead: for some shards, the number of rows that have been delivered.
    """
    listed = np.arange(positions.start, positions.stop, positions.step) if type(positions) is range else positions
    numbers, shards = np.divmod(np.asarray(listed, np.int64), num_shards)
    wanted = np.ones(len(numbers), np.bool_)
    if ended:
        wanted &= ~np.isin(shards, list(ended))
    for shard, count in (ahead or {}).items():
        wanted &= (shards != shard) | (numbers >= count)
    places = np.flatnonzero(wanted)
    if not len(places):
        return Runs()
    places = places[np.argsort(shards[places], kind="stable")]
    numbers, shards, steps = numbers[places], shards[places], np.diff(places)
    breaks = (np.diff(shards) != 0) | (np.diff(numbers) != 1)
    # At the end of an epoch, positions that repeat may be at other distances.
    breaks[1:] |= ~breaks[:-1] & (steps[1:] != steps[:-1])
    begins = [0, *(np.flatnonzero(breaks) + 1).tolist()]
    runs = []
    for begin, end in zip(begins, [*begins[1:], len(places)], strict=True):
        step = int(steps[begin]) if end - begin > 1 else 1
        runs.append(range(int(places[begin]), int(places[end - 1]) + 1, step))
    return Runs(runs)


class RowPieces(Sequence[Any]):
    """Rows at places of a batch, in columns. Its items are the rows as dicts, piece by piece.

    Attributes:
        pieces: of each piece its record batch, the begin of its rows there, and their places.
    """

    def __init__(self, pieces: Iterable[tuple[OpenBatch, int, range]] = ()) -> None:
        self.pieces = list(pieces)

    @property
    def places(self) -> Runs:
        """The places of the rows, piece by piece."""
        return Runs(places for _, _, places in self.pieces)

    @property
    def columns(self) -> Iterator[Columns]:
        """The rows of each piece."""
        return (part(batch.columns, begin, begin + len(places)) for batch, begin, places in self.pieces)

    def __len__(self) -> int:
        return sum(len(places) for _, _, places in self.pieces)

    def __iter__(self) -> Iterator[Any]:
        for columns in self.columns:
            yield from map(row_getter(columns), range(num_rows(columns)))

    def __getitem__(self, index: Any) -> Any:
        return next(iter(self)) if index == 0 and self.pieces else list(self)[index]

    def __reduce__(self) -> Any:
        """Pickle the rows, and not all of their record batches."""
        return _pieces_of, (list(self.columns), self.places.ranges)

    @property
    def are_numbers(self) -> bool:
        """Whether all columns are arrays of NumPy."""
        return all(type(column) is np.ndarray for batch, _, _ in self.pieces for column in batch.columns.values())

    def in_order(self) -> list[tuple[int, Any]]:
        """Return the rows with their places, in the order of these."""
        return sorted(zip(self.places, self, strict=True), key=lambda row: row[0])

    def joined(self) -> Columns:
        """Return the rows in the order of their places, as one record batch."""
        together = joined(list(self.columns))
        if len(self.pieces) == 1:
            return together
        return chosen(together, np.argsort(np.concatenate([np.asarray(places) for _, _, places in self.pieces])))


def _pieces_of(columns: Iterable[Columns], places: Iterable[range]) -> RowPieces:
    return RowPieces((OpenBatch(each), 0, run) for each, run in zip(columns, places, strict=True))


class TakenRows(NamedTuple):
    """The rows of some runs.

    Attributes:
        rows: those that exist.
        ended: the shards at their end.
        states: of the shards behind the runs.
    """

    rows: RowPieces
    ended: list[int]
    states: dict[int, ShardState]


def take_rows(
    elements: Elements,
    num_shards: int,
    epoch: int,
    positions: Sequence[int],
    runs: Runs,
    states: Mapping[int, ShardState],
    opening: Callable[[int], None],
) -> TakenRows:
    """Take the rows of the runs of a batch.

    Args:
        states: known states of the shards.
        opening: called with the place of a row before the record batch of the row is opened.
    """
    pieces: list[tuple[OpenBatch, int, range]] = []
    ended: list[int] = []
    last: dict[int, int] = {}
    for run in runs.ranges:
        place, step, count = run.start, run.step, len(run)
        number, shard = divmod(positions[place], num_shards)
        stop = number + count
        last[shard] = max(stop - 1, last.get(shard, 0))  # runs that repeat rows begin again
        # This loop is the overhead per piece.
        while number < stop:
            try:
                batch, begin, end = elements.take(epoch, shard, number, stop - number, states, opening, place)
            except ShardEndedError:
                ended.append(shard)
                break
            count = end - begin
            behind = place + count * step
            pieces.append((batch, begin, range(place, behind, step)))
            number, place = number + count, behind
    behind_runs = {shard: elements.state_behind(epoch, shard, number, states) for shard, number in last.items()}
    return TakenRows(RowPieces(pieces), ended, behind_runs)
