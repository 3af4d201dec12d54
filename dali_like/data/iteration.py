"""Passes over samplers: iterators that can say where they are, and can be put there again.

The protocol is that of PyTorch's ``torchdata``: ``state_dict()`` says where an iterator is, and after ``load_state_dict`` a
new iterator of the same sampler goes on from there. Here that is exact, and cheap enough to be asked for after every
batch: a state holds the state of the random generator before the block of indices that is under way, and how many of that
block have been taken. So one block is drawn again, and nothing is skipped one by one. The generator is left as it was, and
later passes are the same, too. A state consists of numbers and text, and can be stored as JSON.

A loader asks `resumable` for an iterator of any sampler, of its own or of another library::

    indices = resumable(sampler)
    ...
    state = indices.state_dict()        # together with what has been made of the indices so far

    indices = resumable(same_sampler)   # later, in another process
    indices.load_state_dict(state)
"""

from __future__ import annotations

import abc
import copy
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from dali_like.data.randomness import Randomness, randomness_of
from dali_like.errors import CheckpointError

__all__ = ["SamplerIterator", "resumable"]

T_co = TypeVar("T_co", covariant=True)


class SamplerIterator(Iterator[T_co]):
    """One pass over a sampler, which can be stored and resumed at any point."""

    def __iter__(self) -> Self:
        return self

    @abc.abstractmethod
    def __next__(self) -> T_co: ...

    def take(self, count: int) -> list[T_co]:
        """The next so many; fewer where the pass ends before."""
        return list(itertools.islice(self, count))

    def skip(self, count: int) -> None:
        """Go past so many.

        Raises:
            StopIteration: the pass ends before.
        """
        for _ in range(count):
            next(self)

    def finish(self) -> None:
        """Go to the end, and leave the sampler as a whole pass leaves it."""
        for _ in self:
            pass

    @abc.abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """How far the pass has come, as numbers and text."""

    @abc.abstractmethod
    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from where an iterator of the same sampler was when it returned this state.

        Raises:
            CheckpointError: this is no state of such an iterator.
        """


def resumable(sampler: Iterable[T_co]) -> SamplerIterator[T_co]:
    """Begin a pass over any iterable that can be resumed.

    The samplers of this package give such iterators themselves. Those of others are resumed by ``state_dict`` and
    ``load_state_dict`` of their iterators, or else of the samplers, where there are these methods. All else is counted, and
    skipped up to where it was: that is exact if it gives the same items in each process.

    >>> letters = resumable("abcdef")
    >>> letters.take(2), letters.state_dict()
    (['a', 'b'], {'taken': 2})
    >>> letters = resumable("abcdef")
    >>> letters.load_state_dict({"taken": 2})
    >>> next(letters)
    'c'
    """
    before = _state_of(sampler) if _has_state(sampler) else None
    iterator = iter(sampler)
    if isinstance(iterator, SamplerIterator):
        return iterator
    if _has_state(iterator):
        return _Foreign(iterator)
    return _Counted(sampler, iterator) if before is None else _CountedFrom(sampler, iterator, before)


def changes_sampler(state: Any) -> bool:
    """Whether the pass of which this is a state goes on from where the one before has left the sampler.

    It draws from a generator; or the sampler, or its iterator, is one of another library that knows its state.
    """
    while isinstance(state, Mapping) and "iterator" not in state:
        if "taken" in state:
            return "sampler" in state or "generator" in state
        state = state.get("sampler")
    return isinstance(state, Mapping)


def _has_state(sampler: Any) -> bool:
    return hasattr(sampler, "state_dict") and hasattr(sampler, "load_state_dict")


def _state_of(sampler: Any) -> Any:
    return copy.deepcopy(sampler.state_dict())


class _Foreign(SamplerIterator[T_co]):
    """An iterator of another library that knows its state."""

    def __init__(self, iterator: Any) -> None:
        self._iterator = iterator

    def __next__(self) -> T_co:
        item: T_co = next(self._iterator)
        return item

    def state_dict(self) -> dict[str, Any]:
        return {"iterator": self._iterator.state_dict()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self._iterator.load_state_dict(_part(state_dict, "iterator", Mapping))


class _Counted(SamplerIterator[T_co]):
    """An iterator of which nothing is known but how many items it has given."""

    def __init__(self, iterable: Iterable[T_co], iterator: Iterator[T_co]) -> None:
        self._iterable = iterable
        self._iterator = iterator
        self._taken = 0

    def __next__(self) -> T_co:
        item = next(self._iterator)
        self._taken += 1
        return item

    def take(self, count: int) -> list[T_co]:
        items = list(itertools.islice(self._iterator, count))
        self._taken += len(items)
        return items

    def state_dict(self) -> dict[str, Any]:
        return {"taken": self._taken}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        taken = count_in(state_dict, "taken")
        if self._taken:
            self._iterator = iter(self._iterable)
        self._taken = sum(1 for _ in itertools.islice(self._iterator, taken))
        if self._taken < taken:
            raise CheckpointError(
                f"Invalid state_dict: {taken} items had been taken, and this pass ends after {self._taken}"
            )


class _CountedFrom(_Counted[T_co]):
    """An iterator of a sampler that knows its state: what that was when the iterator began, and the items since then.

    What the sampler says later would be of no use: it does not know which of its items have been made batches of.
    """

    def __init__(self, sampler: Any, iterator: Iterator[T_co], before: Any) -> None:
        super().__init__(sampler, iterator)
        self._sampler = sampler
        self._before = before

    def state_dict(self) -> dict[str, Any]:
        return {"sampler": self._before, **super().state_dict()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self._before = _part(state_dict, "sampler", object)
        self._sampler.load_state_dict(copy.deepcopy(self._before))
        self._iterator = iter(self._iterable)
        self._taken = 0
        super().load_state_dict(state_dict)


class IndexIterator(SamplerIterator[T_co]):
    """A pass over indices, which come in lists of any length as fast as one by one."""

    def __next__(self) -> T_co:
        for index in self.take(1):
            return index
        raise StopIteration

    @abc.abstractmethod
    def take(self, count: int) -> list[T_co]: ...


class SequenceIterator(IndexIterator[int]):
    """A pass over indices that are known beforehand."""

    def __init__(self, indices: Sequence[int]) -> None:
        self._indices = indices
        self._taken = 0

    def take(self, count: int) -> list[int]:
        indices = list(self._indices[self._taken : self._taken + count])
        self._taken += len(indices)
        return indices

    def state_dict(self) -> dict[str, Any]:
        return {"total": len(self._indices), "taken": self._taken}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        _check_total(state_dict, len(self._indices))
        self._taken = count_in(state_dict, "taken", len(self._indices))


class EpochIterator(IndexIterator[int]):
    """A pass over indices that are a function of a seed and of the number of the epoch."""

    def __init__(self, indices_of: Callable[[int, int], NDArray[np.int64]], seed: int, epoch: int) -> None:
        self._indices_of = indices_of
        self._begin(seed, epoch)

    def _begin(self, seed: int, epoch: int) -> None:
        self._seed, self._epoch = seed, epoch
        self._indices = SequenceIterator(self._indices_of(seed, epoch).data)  # a memoryview, whose items are int

    def take(self, count: int) -> list[int]:
        return self._indices.take(count)

    def state_dict(self) -> dict[str, Any]:
        return {"seed": self._seed, "epoch": self._epoch, **self._indices.state_dict()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self._begin(_part(state_dict, "seed", int), _part(state_dict, "epoch", int))
        self._indices.load_state_dict(state_dict)


@dataclass(frozen=True)
class Draws:
    """What a pass over a random sampler draws.

    Attributes:
        total: how many indices there are.
        block: how many are drawn at once.
        blocks: how often. There may be an empty block at the end, which is drawn all the same.
        draw: makes a block of so many.
    """

    total: int
    block: int
    blocks: int
    draw: Callable[[Randomness, int], NDArray[np.int64]]

    def size(self, number: int) -> int:
        """How many indices the block of this number has."""
        return min(self.block, self.total - number * self.block)


class DrawingIterator(IndexIterator[int]):
    """A pass over indices that are drawn from a generator, block by block, when they are needed.

    Args:
        draws: what is drawn.
        generator: what it is drawn from. None: a fresh generator, made when the first number or the state is asked for.
        kind: makes fresh generators.
    """

    def __init__(self, draws: Draws, generator: Any, kind: type[Randomness]) -> None:
        self._draws = draws
        self._kind = kind
        self._is_fresh = generator is None
        self._source = None if generator is None else randomness_of(generator)
        self._block: NDArray[np.int64] = np.empty(0, np.int64)
        self._drawn = 0
        self._taken = 0
        self._before: dict[str, Any] = {}

    def take(self, count: int) -> list[int]:
        taken: list[int] = []
        while len(taken) < count and (self._taken < len(self._block) or self._draw()):
            part = self._block[self._taken : self._taken + count - len(taken)].tolist()
            self._taken += len(part)
            taken += part
        return taken

    def finish(self) -> None:
        while not self._is_fresh and self._draw():
            pass

    def state_dict(self) -> dict[str, Any]:
        if not self._drawn:
            self._before = self._randomness().state()
        return {"total": self._draws.total, "drawn": self._drawn, "taken": self._taken, "generator": self._before}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        draws = self._draws
        _check_total(state_dict, draws.total)
        drawn = count_in(state_dict, "drawn", draws.blocks)
        taken = count_in(state_dict, "taken", draws.size(drawn - 1) if drawn else 0)
        if self._source is None:
            self._source = self._kind.of_epoch(0, 0)  # a fresh one would take a number from the global state
        self._randomness().restore(_part(state_dict, "generator", Mapping))
        self._block, self._taken, self._drawn = self._block[:0], 0, max(0, drawn - 1)
        if drawn:
            self._draw()
            self._taken = taken

    def _draw(self) -> bool:
        """Draw the next block, unless that was the last."""
        if self._drawn == self._draws.blocks:
            return False
        source = self._randomness()
        self._before = source.state()
        self._block = self._draws.draw(source, self._draws.size(self._drawn))
        self._drawn, self._taken = self._drawn + 1, 0
        return True

    def _randomness(self) -> Randomness:
        if self._source is None:
            self._source = self._kind.fresh()
        return self._source


class ItemIterator(IndexIterator[T_co]):
    """A pass over the items of a sequence whose positions another pass gives."""

    def __init__(self, items: Sequence[T_co], positions: SamplerIterator[int]) -> None:
        self._items = items
        self._positions = positions

    def take(self, count: int) -> list[T_co]:
        return [self._items[position] for position in self._positions.take(count)]

    def finish(self) -> None:
        self._positions.finish()

    def state_dict(self) -> dict[str, Any]:
        return self._positions.state_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self._positions.load_state_dict(state_dict)


class BatchIterator(SamplerIterator[list[T_co]]):
    """A pass over lists of indices; each takes as many from another pass as it needs, and not before.

    The other pass begins when something is asked for, as in PyTorch: until then its sampler may be changed.
    """

    def __init__(self, begin: Callable[[], SamplerIterator[T_co]], batch_size: int, drop_last: bool) -> None:
        self._begin = begin
        self._batch_size = batch_size
        self._smallest = batch_size if drop_last else 1

    @functools.cached_property
    def _indices(self) -> SamplerIterator[T_co]:
        return self._begin()

    def __next__(self) -> list[T_co]:
        batch = self._indices.take(self._batch_size)
        if len(batch) < self._smallest:
            raise StopIteration
        return batch

    def finish(self) -> None:
        self._indices.finish()

    def state_dict(self) -> dict[str, Any]:
        return {"sampler": self._indices.state_dict()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self._indices.load_state_dict(_part(state_dict, "sampler", Mapping))


def _part(state: Mapping[str, Any], key: str, kind: type[Any]) -> Any:
    if not isinstance(state, Mapping) or not isinstance(state.get(key), kind) or isinstance(state.get(key), bool):
        found = f"{state[key]!r}" if isinstance(state, Mapping) and key in state else "nothing"
        raise CheckpointError(f"Invalid state_dict: {key!r} should be of type {kind.__name__}, and there is {found}")
    return state[key]


def count_in(state: Mapping[str, Any], key: str, limit: int | None = None) -> int:
    """A number of things that have been counted, from a state.

    Raises:
        CheckpointError: there is none, or it is too large.
    """
    number: int = _part(state, key, int)
    if number < 0 or (limit is not None and number > limit):
        allowed = "0 or more" if limit is None else f"from 0 to {limit}"
        raise CheckpointError(f"Invalid state_dict: {key!r} should be {allowed}, and it is {number}")
    return number


def _check_total(state: Mapping[str, Any], total: int) -> None:
    of_state = count_in(state, "total")
    if of_state != total:
        raise CheckpointError(f"Invalid state_dict: it is of a pass over {of_state} indices, this is one over {total}")
