"""Stages that turn each element into one other: map and enumerate."""

from __future__ import annotations

import abc
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dali_like.sources.composed.stage import (
    Place,
    RandomAccess,
    Sharded,
    ShardWalk,
    SingleInputStage,
    Stage,
    generator_at,
    is_anything,
    is_count,
    note_place,
    skip_any,
    state_parts,
)

__all__ = ["Enumerate", "Map", "is_coroutine_function", "name_of", "num_reads"]


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

    def for_process(self) -> Elementwise:
        """Return the stage that evaluators use."""
        return self

    def walk(self, place: Place, source: ShardWalk, epoch: int, shard: int, taken: int) -> ShardWalk:
        """Return a walk behind so many outputs of a shard."""
        return CountingWalk(self, place, source, epoch, shard, taken)

    def evaluator(self, place: Place) -> RandomAccess | Sharded:
        source, stage = self.input.evaluator(place.input(0)), self.for_process()
        return (
            _ElementwiseAccess(stage, place, source)
            if isinstance(source, RandomAccess)
            else _ElementwiseSharded(stage, place, source)
        )


class _ElementwiseAccess(RandomAccess):
    def __init__(self, stage: Elementwise, place: Place, source: RandomAccess) -> None:
        self._stage, self._place, self._source = stage, place, source
        self.length = source.length

    def at(self, position: int) -> Any:
        epoch, index = (0, position) if self.length is None else divmod(position, self.length)
        return self._stage.apply(self._source.at(position), self._place, epoch, index)

    def resolved(self, positions: NDArray[np.int64]) -> Callable[[int], Any]:
        source, apply, place = self._source.resolved(positions), self._stage.apply, self._place
        epochs = np.zeros_like(positions) if self.length is None else positions // self.length
        listed, indices = epochs.tolist(), (positions - epochs * (self.length or 0)).tolist()
        return lambda i: apply(source(i), place, listed[i], indices[i])


class _ElementwiseSharded(Sharded):
    def __init__(self, stage: Elementwise, place: Place, source: Sharded) -> None:
        self._stage, self._place, self._source = stage, place, source

    def open(self, shard: int, epoch: int, state: Any = None) -> ShardWalk:
        source_state, taken = state_parts(state, (None, 0), is_anything, is_count)
        return self._stage.walk(self._place, self._source.open(shard, epoch, source_state), epoch, shard, taken)


class CountingWalk(ShardWalk):
    """The state is that of the input, and the number of outputs so far."""

    def __init__(self, stage: Elementwise, place: Place, source: ShardWalk, epoch: int, shard: int, taken: int) -> None:
        self._stage, self._place, self._source = stage, place, source
        self._epoch, self._shard, self._taken = epoch, shard, taken

    def begin(self) -> None:
        self._source.begin()

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
    """Calls a function with each element; with `rng`, also with a generator.

    `num_reads` calls run at a time, as coroutines or in threads. The outputs do not depend on it.
    """

    function: Callable[..., Any]
    rng: bool = False
    num_reads: int = 1

    def for_process(self) -> Elementwise:
        if self.num_reads == 1 and not is_coroutine_function(self.function):
            return self
        from dali_like.sources.composed.reads import ReadingMap  # it imports asyncio

        return ReadingMap(self.input, self.function, self.rng, self.num_reads)

    @property
    def is_columnar(self) -> bool:
        return self.input.is_columnar

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
            self.note(error, epoch, position)
            raise

    def note(self, error: Exception, epoch: int, position: int) -> None:
        """Add the place of an element to the exception of its call."""
        note_place(error, self, f"position {position} of epoch {epoch}")


@dataclass(frozen=True)
class Enumerate(Elementwise):
    """Pairs each element with its position."""

    start: int = 0

    @property
    def text(self) -> str:
        return f"enumerate({self.start})"

    def apply(self, element: Any, place: Place, epoch: int, position: int) -> Any:
        return self.start + position, element


def num_reads(stage: Stage) -> int:
    """Return how many elements must be computed at a time, so that each stage that reads has its number of calls; or 1."""
    mine = stage.num_reads if isinstance(stage, Map) and stage.num_reads > 1 else 0
    inputs = [count for count in map(num_reads, stage.inputs) if count > 1]
    return max(mine + sum(inputs), 1)


def is_coroutine_function(function: Any) -> bool:
    """Return whether the results of a function are coroutines."""
    inner = getattr(function, "func", function)  # of functools.partial
    return inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(getattr(inner, "__call__", None))  # noqa: B004


def name_of(function: Any) -> str:
    """Return the name of a function for descriptions. It is the same in each process."""
    inner = getattr(function, "func", function)  # of functools.partial
    name = getattr(inner, "__qualname__", None) or type(inner).__qualname__
    return str(name)
