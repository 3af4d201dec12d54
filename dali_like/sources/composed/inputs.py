"""Inputs: anything with a length and an index, and sequences of parts that are read in order."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dali_like.errors import ArgumentError, FileReadError
from dali_like.sources.composed.chunked_files import ChunkedSource, opened
from dali_like.sources.composed.stage import (
    Place,
    RandomAccess,
    Sharded,
    ShardedStage,
    ShardWalk,
    SourceRows,
    Stage,
    checked_state,
    is_count,
    is_list_of,
    note_place,
)

__all__ = ["Indexed", "Part", "Parts"]


@dataclass(frozen=True)
class Indexed(Stage):
    """A source with ``__getitem__`` and ``__len__``. `paths` are its files, if they are known."""

    source: Any
    name: str
    paths: tuple[str, ...] = ()

    @property
    def inputs(self) -> tuple[Stage, ...]:
        return ()

    @property
    def length(self) -> int:
        return len(self.source)

    @property
    def has_rows(self) -> bool:
        if type(self.source) is np.ndarray:
            return not self.source.dtype.hasobject
        return isinstance(self.source, ChunkedSource) and self.source.has_rows

    @property
    def text(self) -> str:
        return f"{self.name}[{self.length}]"

    def evaluator(self, place: Place) -> RandomAccess:
        return _IndexedAccess(self)


@dataclass(frozen=True)
class SparseRows:
    """The rows of a sparse matrix of SciPy, which has no length: matrices of one row each."""

    matrix: Any

    def __len__(self) -> int:
        return int(self.matrix.shape[0])

    def __getitem__(self, index: int) -> Any:
        return self.matrix[[index]]


class _IndexedAccess(RandomAccess):
    def __init__(self, stage: Indexed) -> None:
        self._stage = stage
        self._source = opened(stage.source)
        self.length: int = stage.length

    def at(self, position: int) -> Any:
        index = position % self.length
        try:
            return self._source[index]
        except Exception as error:  # a user's class may raise anything
            note_place(error, self._stage, f"index {index}")
            raise

    def rows(self, positions: NDArray[np.int64]) -> list[SourceRows]:
        source, numbers = self._stage.source, positions % self.length
        if isinstance(source, ChunkedSource):
            return source.rows(numbers)
        return [SourceRows(source, numbers, None)]

    def resolved(self, positions: NDArray[np.int64]) -> Callable[[int], Any]:
        source, indices = self._source, (positions % self.length).tolist()

        def at(i: int) -> Any:
            try:
                return source[indices[i]]
            except Exception as error:  # a user's class may raise anything
                note_place(error, self._stage, f"index {indices[i]}")
                raise

        return at


class Part(Protocol):
    """A part of a source that is read in order, such as a compressed file."""

    def open(self, record: int) -> Iterator[Any]:
        """Return an iterator over the records from number `record` on. An iterator with ``close()`` is closed.

        If it raises, the walk continues with the next part. An exception of the iterator is that of one record: the part
        is opened again behind it, unless it is a `dali_like.errors.FileReadError`.
        """


@dataclass(frozen=True)
class Parts(ShardedStage):
    """Parts that are read in order. Shard s has the parts s, s + L, s + 2 L and so on, each one whole.

    `interleave` parts of a shard are open at a time, and give one record each in turn.
    """

    parts: Sequence[Part]
    name: str
    interleave: int = 1

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of its files, if all parts are files."""
        paths: list[Any] = [getattr(part, "path", None) for part in self.parts]
        return tuple(paths) if all(isinstance(path, str) for path in paths) else ()

    @property
    def inputs(self) -> tuple[Stage, ...]:
        return ()

    @property
    def text(self) -> str:
        interleave = f", interleave={self.interleave}" if self.interleave > 1 else ""
        return f"{self.name}({len(self.parts)} parts{interleave})"

    def evaluator(self, place: Place) -> Sharded:
        if len(self.parts) < place.num_shards:
            raise ArgumentError(
                f"{self.text} has fewer parts than the dataset has logical shards: {place.num_shards}. Parts that are read "
                f"in order cannot be divided. Pass shards={len(self.parts)} or a divisor of it, or use more parts"
            )
        return _PartsSharded(self, place.num_shards)


class _PartsSharded(Sharded):
    def __init__(self, stage: Parts, num_shards: int) -> None:
        self._stage = stage
        self._num_shards = num_shards

    def open(self, shard: int, epoch: int, state: Any = None) -> ShardWalk:
        parts = self._stage.parts[shard :: self._num_shards]
        first = min(self._stage.interleave, len(parts))
        begin = (first, 0, [(number, 0) for number in range(first)])
        begun, turn, places = checked_state(state, begin, functools.partial(_is_state, len(parts)))
        return _PartsWalk(self._stage, parts, begun, turn, places)


def _is_state(num_parts: int, state: Any) -> bool:
    def is_part(value: Any) -> bool:
        return is_count(value) and value < num_parts

    if not is_list_of(state, is_count, is_count, lambda places: isinstance(places, (list, tuple))):
        return False
    begun, turn, places = state
    return begun <= num_parts and turn < max(1, len(places)) and all(is_list_of(each, is_part, is_count) for each in places)


class _OpenPart:
    """A part, the number of its next record, and the iterator, if it is open."""

    def __init__(self, number: int, record: int) -> None:
        self.number = number
        self.record = record
        self.iterator: Iterator[Any] | None = None

    def close(self) -> None:
        close = getattr(self.iterator, "close", None)
        self.iterator = None
        if close is not None:
            close()


class _PartsWalk(ShardWalk):
    """The state is the number of parts that have been begun, the turn, and for each open part its number among
    the parts of the shard and the number of its next record.
    """

    def __init__(
        self, stage: Parts, parts: Sequence[Part], begun: int, turn: int, places: Sequence[tuple[int, int]]
    ) -> None:
        self._stage = stage
        self._parts = parts
        self._begun = begun
        self._turn = turn
        self._open = [_OpenPart(number, record) for number, record in places]

    def __next__(self) -> Any:
        while self._open:
            part = self._open[self._turn]
            try:
                if part.iterator is None:
                    part.iterator = iter(self._parts[part.number].open(part.record))
                element = next(part.iterator)
            except StopIteration:
                self._begin_next_part()
                continue
            except Exception as error:  # a user's class may raise anything
                note_place(error, self._stage, f"record {part.record} of {self._parts[part.number]}")
                if part.iterator is None or isinstance(error, FileReadError):
                    self._begin_next_part()
                else:
                    part.close()
                    self._pass(part)
                raise
            self._pass(part)
            return element
        raise StopIteration

    def state(self) -> list[Any]:
        return [self._begun, self._turn, [[part.number, part.record] for part in self._open]]

    def _pass(self, part: _OpenPart) -> None:
        part.record += 1
        self._turn = (self._turn + 1) % len(self._open)

    def _begin_next_part(self) -> None:
        """Replace the part whose turn it is."""
        self._open[self._turn].close()
        if self._begun < len(self._parts):
            self._open[self._turn] = _OpenPart(self._begun, 0)
            self._begun += 1
            return
        del self._open[self._turn]
        self._turn = self._turn % len(self._open) if self._open else 0
