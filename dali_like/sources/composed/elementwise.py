"""Stages that turn each element into one other: map and enumerate."""

from __future__ import annotations

import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dali_like.sources.composed.stage import (
    Place,
    RandomAccess,
    Sharded,
    ShardWalk,
    SingleInputStage,
    generator_at,
    is_anything,
    is_count,
    note_place,
    skip_any,
    state_parts,
)

__all__ = ["Enumerate", "Map", "name_of"]


@dataclass(frozen=True)
class Elementwise(SingleInputStage):
    """A stage that computes each output from one input and its position."""

    @property
    def count_varies(self) -> bool:
        return self.input.count_varies

    @property
    def length(self) -> int | None:
        return self.input.length

    def reach(self, epoch: int, end: int) -> list[tuple[int, int]]:
        return [(epoch, end)]

    @abc.abstractmethod
    def apply(self, element: Any, place: Place, epoch: int, position: int) -> Any:
        """Return the output for an element at a position of an epoch."""

    def evaluator(self, place: Place) -> RandomAccess | Sharded:
        source = self.input.evaluator(place.input(0))
        return _RandomAccess(self, place, source) if isinstance(source, RandomAccess) else _Sharded(self, place, source)


class _RandomAccess(RandomAccess):
    def __init__(self, stage: Elementwise, place: Place, source: RandomAccess) -> None:
        self._stage, self._place, self._source = stage, place, source
        self.length = source.length

    def at(self, position: int) -> Any:
        epoch, index = (0, position) if self.length is None else divmod(position, self.length)
        return self._stage.apply(self._source.at(position), self._place, epoch, index)


class _Sharded(Sharded):
    def __init__(self, stage: Elementwise, place: Place, source: Sharded) -> None:
        self._stage, self._place, self._source = stage, place, source

    def open(self, shard: int, epoch: int, state: Any = None) -> ShardWalk:
        source_state, taken = state_parts(state, (None, 0), is_anything, is_count)
        return _CountingWalk(self._stage, self._place, self._source.open(shard, epoch, source_state), epoch, shard, taken)


class _CountingWalk(ShardWalk):
    """The state is that of the input, and the number of outputs so far."""

    def __init__(self, stage: Elementwise, place: Place, source: ShardWalk, epoch: int, shard: int, taken: int) -> None:
        self._stage, self._place, self._source = stage, place, source
        self._epoch, self._shard, self._taken = epoch, shard, taken

    def __next__(self) -> Any:
        position = self._taken * self._place.num_shards + self._shard
        try:
            element = next(self._source)
        except StopIteration:
            raise
        except Exception:  # an output like any other
            self._taken += 1
            raise
        self._taken += 1
        return self._stage.apply(element, self._place, self._epoch, position)

    def skip(self) -> None:
        skip_any(self._source)
        self._taken += 1

    def state(self) -> list[Any]:
        return [self._source.state(), self._taken]


@dataclass(frozen=True)
class Map(Elementwise):
    """Calls a function with each element; with `rng`, also with a generator."""

    function: Callable[..., Any]
    rng: bool = False

    @property
    def varies(self) -> bool:
        return self.rng or super().varies

    @property
    def is_random(self) -> bool:
        return self.rng

    @property
    def text(self) -> str:
        return f"map({name_of(self.function)}{', rng=True' if self.rng else ''})"

    def apply(self, element: Any, place: Place, epoch: int, position: int) -> Any:
        try:
            if self.rng:
                return self.function(element, generator_at(place, epoch, position))
            return self.function(element)
        except Exception as error:  # a user's function may raise anything
            note_place(error, self, f"position {position} of epoch {epoch}")
            raise


@dataclass(frozen=True)
class Enumerate(Elementwise):
    """Pairs each element with its position."""

    start: int = 0

    @property
    def text(self) -> str:
        return f"enumerate({self.start})"

    def apply(self, element: Any, place: Place, epoch: int, position: int) -> Any:
        return self.start + position, element


def name_of(function: Any) -> str:
    """Return the name of a function for descriptions. It is the same in each process."""
    inner = getattr(function, "func", function)  # of functools.partial
    name = getattr(inner, "__qualname__", None) or type(inner).__qualname__
    return str(name)
