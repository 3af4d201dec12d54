"""Stages with an unknown number of outputs for each input: filter and flat_map. They run in logical shards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from dali_like.errors import EmptyFilterError
from dali_like.sources.composed.elementwise import name_of
from dali_like.sources.composed.stage import (
    Place,
    Sharded,
    ShardedStage,
    ShardWalk,
    SingleInputStage,
    in_shards,
    is_anything,
    is_count,
    note_place,
    state_parts,
)

__all__ = ["Admission", "Filter", "FlatMap"]

#: In place of the output for an element that a filter leaves out.
REJECTED = object()

#: Inputs of a flat_map in a row that may have no items.
_MOST_EMPTY = 1_000_000


@dataclass(frozen=True)
class ShardedInputStage(ShardedStage, SingleInputStage):
    """A stage of one input that runs in logical shards, even if the input does not."""

    def source(self, place: Place) -> Sharded:
        """Return the evaluator of the input in logical shards."""
        return in_shards(self.input.evaluator(place.input(0)), place)


@dataclass(frozen=True)
class Filter(ShardedInputStage):
    """The elements for which a function returns a true value."""

    function: Callable[[Any], Any]
    most_rejected: int

    @property
    def text(self) -> str:
        return f"filter({name_of(self.function)})"

    def evaluator(self, place: Place) -> Sharded:
        return _FilterSharded(self, self.source(place))

    def accepted(self, element: Any) -> Any:
        """Return the output for an element, or `REJECTED`."""
        return element if self.function(element) else REJECTED


@dataclass(frozen=True)
class Admission(Filter):
    """The results of a function for each element, such as an element and its cost; None leaves the element out.

    The next stage needs not call the function again. In descriptions, it is a filter.
    """

    def accepted(self, element: Any) -> Any:
        admitted = self.function(element)
        return REJECTED if admitted is None else admitted


class _FilterSharded(Sharded):
    def __init__(self, stage: Filter, source: Sharded) -> None:
        self._stage, self._source = stage, source

    def open(self, shard: int, epoch: int, state: Any = None) -> ShardWalk:
        return _FilterWalk(self._stage, self._source.open(shard, epoch, state), shard)


class _FilterWalk(ShardWalk):
    """The state is that of the input."""

    def __init__(self, stage: Filter, source: ShardWalk, shard: int) -> None:
        self._stage, self._source, self._shard = stage, source, shard

    def begin(self) -> None:
        self._source.begin()

    def __next__(self) -> Any:
        stage = self._stage
        for _ in range(stage.most_rejected):
            element = next(self._source)
            try:
                output = stage.accepted(element)
            except Exception as error:  # a user's function may raise anything
                note_place(error, stage, f"the input before {self._source.state()} in shard {self._shard}")
                raise
            if output is not REJECTED:
                return output
        raise EmptyFilterError(
            f"stage {stage.text} has rejected {stage.most_rejected} inputs in a row in shard {self._shard}. Check the "
            "function, or pass a larger most_rejected="
        )

    def state(self) -> Any:
        return self._source.state()


@dataclass(frozen=True)
class FlatMap(ShardedInputStage):
    """The items of the iterables that a function returns, one iterable for each element."""

    function: Callable[[Any], Iterable[Any]]

    @property
    def text(self) -> str:
        return f"flat_map({name_of(self.function)})"

    def evaluator(self, place: Place) -> Sharded:
        return _FlatMapSharded(self, self.source(place))


class _FlatMapSharded(Sharded):
    def __init__(self, stage: FlatMap, source: Sharded) -> None:
        self._stage, self._source = stage, source

    def open(self, shard: int, epoch: int, state: Any = None) -> ShardWalk:
        source_state, taken = state_parts(state, (None, 0), is_anything, is_count)
        return FlatMapWalk(self._stage, self._source.open(shard, epoch, source_state), shard, taken)


class FlatMapWalk(ShardWalk):
    """The state is that of the input before the open iterable, and the number of items taken from it."""

    def __init__(self, stage: FlatMap, source: ShardWalk, shard: int, taken: int) -> None:
        self._stage, self._source, self._shard = stage, source, shard
        self._before = source.state()
        self._items: Iterator[Any] | None = None
        self._taken = 0
        self._to_skip = taken

    def __next__(self) -> Any:
        for _ in range(_MOST_EMPTY):
            if self._items is None:
                self._before, self._taken = self._source.state(), 0
                element = next(self._source)
            try:
                if self._items is None:
                    self._items = iter(self._stage.function(element))
                    for _ in range(self._to_skip):
                        next(self._items)
                        self._taken += 1
                    self._to_skip = 0
                item = next(self._items)
            except StopIteration:
                self._items = None
            except Exception as error:  # a user's function may raise anything
                self._items = None
                note_place(error, self._stage, f"the input after {self._before} in shard {self._shard}")
                raise
            else:
                self._taken += 1
                return item
        raise EmptyFilterError(
            f"stage {self._stage.text} has returned no item for {_MOST_EMPTY} inputs in a row in shard {self._shard}. Check "
            "the function"
        )

    def state(self) -> list[Any]:
        if self._items is None and not self._to_skip:
            return [self._source.state(), 0]
        return [self._before, self._taken + self._to_skip]
