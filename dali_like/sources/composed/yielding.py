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
        return _FilterSharded(self, self.source(place), FilterWalk)


@dataclass(frozen=True)
class Admission(Filter):
    """The results of a function for each element, such as an element and its cost; None leaves the element out.

    The next stage needs not call the function again. In descriptions, it is a filter.
    """

    def evaluator(self, place: Place) -> Sharded:
        return _FilterSharded(self, self.source(place), AdmissionWalk)


class _FilterSharded(Sharded):
    def __init__(self, stage: Filter, source: Sharded, walk: type[FilterWalk]) -> None:
        self._stage, self._source, self._walk = stage, source, walk

    def open(self, shard: int, epoch: int, state: Any = None) -> ShardWalk:
        return self._walk(self._stage, self._source.open(shard, epoch, state), shard)


class FilterWalk(ShardWalk):
    """The state is that of the input."""

    # An output costs several inputs, so their number counts: the loops have nothing that can be done before them.

    def __init__(self, stage: Filter, source: ShardWalk, shard: int) -> None:
        self._stage, self._source, self._shard = stage, source, shard
        self._take, self._function = source.__next__, stage.function
        self._attempts = range(stage.most_rejected)

    def begin(self) -> None:
        self._source.begin()

    def __next__(self) -> Any:
        take, function = self._take, self._function
        for _ in self._attempts:
            element = take()
            try:
                if function(element):
                    return element
            except Exception as error:  # a user's function may raise anything
                self._note(error)
                raise
        raise self._empty()

    def _note(self, error: Exception) -> None:
        note_place(error, self._stage, f"the input before {self._source.state()} in shard {self._shard}")

    def _empty(self) -> EmptyFilterError:
        stage = self._stage
        return EmptyFilterError(
            f"stage {stage.text} has rejected {stage.most_rejected} inputs in a row in shard {self._shard}. Check the "
            "function, or pass a larger most_rejected="
        )

    def state(self) -> Any:
        return self._source.state()


class AdmissionWalk(FilterWalk):
    """The outputs are the results of the function."""

    def __next__(self) -> Any:
        take, function = self._take, self._function
        for _ in self._attempts:
            element = take()
            try:
                admitted = function(element)
            except Exception as error:  # a user's function may raise anything
                self._note(error)
                raise
            if admitted is not None:
                return admitted
        raise self._empty()


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
        items = self._items
        if items is None:
            return self._next_of_inputs(_MOST_EMPTY)
        try:
            item = next(items)
        except StopIteration:
            self._items = None
            return self._next_of_inputs(_MOST_EMPTY - 1)
        except Exception as error:  # a user's function may raise anything
            self._fail(error)
            raise
        self._taken += 1
        return item

    def _next_of_inputs(self, most: int) -> Any:
        """Return the first item of the next input that has any, among so many inputs."""
        source, function = self._source, self._stage.function
        for _ in range(most):
            self._before, self._taken = source.state(), 0
            element = next(source)
            try:
                items = iter(function(element))
                if self._to_skip:
                    self._skip_in(items)
                item = next(items)
            except StopIteration:
                continue
            except Exception as error:
                self._fail(error)
                raise
            self._items = items
            self._taken += 1
            return item
        raise EmptyFilterError(
            f"stage {self._stage.text} has returned no item for {_MOST_EMPTY} inputs in a row in shard {self._shard}. Check "
            "the function"
        )

    def _skip_in(self, items: Iterator[Any]) -> None:
        for _ in range(self._to_skip):
            next(items)
            self._taken += 1
        self._to_skip = 0

    def _fail(self, error: Exception) -> None:
        self._items = None
        note_place(error, self._stage, f"the input after {self._before} in shard {self._shard}")

    def state(self) -> list[Any]:
        if self._items is None and not self._to_skip:
            return [self._source.state(), 0]
        return [self._before, self._taken + self._to_skip]
