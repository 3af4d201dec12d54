"""Iterators over samplers that can be stored and resumed.

The protocol is that of PyTorch's ``torchdata``: ``state_dict()`` returns the position of an iterator, and after
``load_state_dict`` a new iterator of the same sampler continues from there. With this library's samplers, whose iterators
are in `dali_like.data.index_iterators`, the state is exact, and cheap enough for every batch. It consists of numbers and
text, so that JSON can store it.

A loader calls `resumable` for an iterator of any sampler, of this library or another one::

    indices = resumable(sampler)
    ...
    state = indices.state_dict()        # saved together with the results for the indices so far

    indices = resumable(same_sampler)   # later, in another process
    indices.load_state_dict(state)
"""

from __future__ import annotations

import abc
import copy
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self, TypeVar

from dali_like.common.json_state import ANYTHING, MAPPING, Schema, field, integer
from dali_like.common.user_objects import is_stateful, log_lost_state, next_items
from dali_like.data.generators import SavedState
from dali_like.errors import CheckpointError

__all__ = ["SamplerIterator", "resumable"]

T_co = TypeVar("T_co", covariant=True)


class SamplerIterator(Iterator[T_co]):
    """An iterator over a sampler that can be stored and resumed at any point.

    Attributes:
        yields_positions: whether it is a `dali_like.data.position_sampler.PositionIterator`.
    """

    yields_positions = False

    def __iter__(self) -> Self:
        return self

    @abc.abstractmethod
    def __next__(self) -> T_co: ...

    def take(self, count: int) -> list[T_co]:
        """Return the next `count` items; fewer at the end."""
        return list(itertools.islice(self, count))

    def skip(self, count: int) -> None:
        """Skip `count` items.

        Raises:
            StopIteration: there are fewer.
        """
        for _ in range(count):
            next(self)

    def finish(self) -> None:
        """Go to the end, and leave the sampler in its state after a whole epoch."""
        for _ in self:
            pass

    @abc.abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Return the position, as numbers and text."""

    def snapshot(self) -> SavedState:
        """Return a function that returns the position of now."""
        state = self.state_dict()
        return lambda: state

    @abc.abstractmethod
    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue from the position at which an iterator of the same sampler returned this state.

        Raises:
            CheckpointError: this is not the state of such an iterator.
        """


def resumable(sampler: Iterable[T_co]) -> SamplerIterator[T_co]:
    """Return an iterator over any iterable that can be resumed.

    The samplers of this library return such iterators themselves. Samplers of other libraries are resumed by
    ``state_dict`` and ``load_state_dict`` of their iterators, or else of the samplers. Without these methods, items are
    counted, and skipped to resume: that is exact if the iterable yields the same items in each process.

    >>> letters = resumable("abcdef")
    >>> letters.take(2), letters.state_dict()
    (['a', 'b'], {'taken': 2})
    >>> letters = resumable("abcdef")
    >>> letters.load_state_dict({"taken": 2})
    >>> next(letters)
    'c'
    """
    before = _state_of(sampler)
    iterator = iter(sampler)
    if isinstance(iterator, SamplerIterator):
        return iterator
    if isinstance(_state_of(iterator), Mapping):
        return _Foreign(iterator)
    return _Counted(sampler, iterator) if before is None else _CountedFrom(sampler, iterator, before)


def changes_sampler(state: Any) -> bool:
    """Return whether the iterators of a sampler depend on the earlier ones, given a state of such an iterator.

    They do if they draw from a generator, or if the state is from a sampler or iterator of another library.
    """
    while isinstance(state, Mapping) and "iterator" not in state:
        if "taken" in state:
            return "sampler" in state or "generator" in state
        state = state.get("sampler")
    return isinstance(state, Mapping)


def _state_of(stateful: Any) -> Any:
    """Return a copy of the state of a sampler or an iterator; None without a usable one: iterating does not depend on it."""
    if not is_stateful(stateful):
        return None
    try:
        return copy.deepcopy(stateful.state_dict())
    except Exception as error:
        log_lost_state(stateful, error, "skips items of the sampler")
        return None


class _Foreign(SamplerIterator[T_co]):
    """Wraps an iterator of another library that has ``state_dict``."""

    def __init__(self, iterator: Any) -> None:
        self._iterator = iterator

    def __next__(self) -> T_co:
        item: T_co = next(self._iterator)
        return item

    def state_dict(self) -> dict[str, Any]:
        return {"iterator": self._iterator.state_dict()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self._iterator.load_state_dict(part_in(state_dict, "iterator", MAPPING))


class _Counted(SamplerIterator[T_co]):
    """Wraps an iterator without ``state_dict``: counts its items, and skips them to resume."""

    def __init__(self, iterable: Iterable[T_co], iterator: Iterator[T_co]) -> None:
        self._iterable = iterable
        self._iterator = iterator
        self._taken = 0

    def __next__(self) -> T_co:
        item = next(self._iterator)
        self._taken += 1
        return item

    def take(self, count: int) -> list[T_co]:
        items = list(next_items(self._iterator, count))
        self._taken += len(items)
        return items

    def state_dict(self) -> dict[str, Any]:
        return {"taken": self._taken}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        taken = count_in(state_dict, "taken")
        if self._taken:
            self._iterator = iter(self._iterable)
        self._taken = sum(1 for _ in next_items(self._iterator, taken))
        if self._taken < taken:
            raise CheckpointError(
                f"Invalid state_dict: {taken} items had been taken, and this sampler has only {self._taken}"
            )


class _CountedFrom(_Counted[T_co]):
    """Wraps an iterator of a sampler with ``state_dict``: the state at the beginning, and the number of items since then.

    Later states of the sampler would be wrong: it does not know how many of its items are in delivered batches.
    """

    def __init__(self, sampler: Any, iterator: Iterator[T_co], before: Any) -> None:
        super().__init__(sampler, iterator)
        self._sampler = sampler
        self._before = before

    def state_dict(self) -> dict[str, Any]:
        return {"sampler": self._before, **super().state_dict()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self._before = part_in(state_dict, "sampler", ANYTHING)
        self._sampler.load_state_dict(copy.deepcopy(self._before))
        self._iterator = iter(self._iterable)
        self._taken = 0
        super().load_state_dict(state_dict)


def invalid_state(problem: str) -> CheckpointError:
    """Return the exception for an argument of `load_state_dict` that does not fit."""
    return CheckpointError(f"Invalid state_dict: {problem}")


def part_in(state: Any, key: str, schema: Schema) -> Any:
    """Return the value under one key of a state.

    Raises:
        CheckpointError: it is missing, or does not fit the schema.
    """
    return field(state, key, schema, "the state", invalid_state)


def count_in(state: Any, key: str, limit: int | None = None) -> int:
    """Return a number of counted things from a state.

    Raises:
        CheckpointError: it is missing, negative or above the limit.
    """
    number: int = part_in(state, key, integer(0, limit))
    return number
