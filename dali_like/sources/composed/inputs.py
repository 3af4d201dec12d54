"""Inputs: anything with a length and an index, and sequences of parts that are read in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from dali_like.errors import ArgumentError
from dali_like.sources.composed.stage import (
    Place,
    RandomAccess,
    Sharded,
    ShardWalk,
    Stage,
    checked_state,
    is_pair,
    note_place,
)

__all__ = ["Indexed", "Part", "Parts"]


@dataclass(frozen=True)
class Indexed(Stage):
    """A source with ``__getitem__`` and ``__len__``."""

    source: Any
    name: str

    @property
    def inputs(self) -> tuple[Stage, ...]:
        return ()

    @property
    def length(self) -> int:
        return len(self.source)

    @property
    def text(self) -> str:
        return f"{self.name}[{self.length}]"

    def evaluator(self, place: Place) -> RandomAccess:
        return _Indexed(self)


class _Indexed(RandomAccess):
    def __init__(self, stage: Indexed) -> None:
        self._stage = stage
        self._source = stage.source
        self.length: int = stage.length

    def at(self, position: int) -> Any:
        index = position % self.length
        try:
            return self._source[index]
        except Exception as error:  # a user's class may raise anything
            note_place(error, self._stage, f"index {index}")
            raise


class Part(Protocol):
    """A part of a source that is read in order, such as a compressed file."""

    def open(self, record: int) -> Iterator[Any]:
        """Return an iterator over the records from number `record` on. An iterator with ``close()`` is closed."""


@dataclass(frozen=True)
class Parts(Stage):
    """Parts that are read in order. Shard s has the parts s, s + L, s + 2 L and so on, each one whole."""

    parts: Sequence[Part]
    name: str

    @property
    def inputs(self) -> tuple[Stage, ...]:
        return ()

    @property
    def is_sharded(self) -> bool:
        return True

    @property
    def length(self) -> None:
        return None

    @property
    def text(self) -> str:
        return f"{self.name}({len(self.parts)} parts)"

    def evaluator(self, place: Place) -> Sharded:
        if len(self.parts) < place.num_shards:
            raise ArgumentError(
                f"{self.text} has fewer parts than the dataset has logical shards: {place.num_shards}. Parts that are read "
                f"in order cannot be divided. Pass shards={len(self.parts)} or a divisor of it, or use more parts"
            )
        return _Parts(self, place.num_shards)


class _Parts(Sharded):
    def __init__(self, stage: Parts, num_shards: int) -> None:
        self._stage = stage
        self._num_shards = num_shards

    def open(self, shard: int, epoch: int, state: Any = None) -> ShardWalk:
        number, record = checked_state(state, (0, 0), is_pair)
        return _PartsWalk(self._stage, self._stage.parts[shard :: self._num_shards], number, record)


class _PartsWalk(ShardWalk):
    """The state is the number of the part among those of the shard, and the number of the record."""

    def __init__(self, stage: Parts, parts: Sequence[Part], number: int, record: int) -> None:
        self._stage = stage
        self._parts = parts
        self._number, self._record = number, record
        self._open: Iterator[Any] | None = None

    def __next__(self) -> Any:
        while self._number < len(self._parts):
            try:
                if self._open is None:
                    self._open = iter(self._parts[self._number].open(self._record))
                element = next(self._open)
            except StopIteration:
                self._close()
                self._number, self._record = self._number + 1, 0
                continue
            except Exception as error:  # a user's class may raise anything
                note_place(error, self._stage, f"record {self._record} of {self._parts[self._number]}")
                self._close()
                self._record += 1
                raise
            self._record += 1
            return element
        raise StopIteration

    def state(self) -> list[int]:
        return [self._number, self._record]

    def _close(self) -> None:
        close = getattr(self._open, "close", None)
        self._open = None
        if close is not None:
            close()
