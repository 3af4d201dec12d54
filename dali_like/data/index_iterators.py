"""The iterators of this library's samplers: over known, computed or drawn indices, and over batches of indices.

Random indices are drawn in blocks. A state holds the state of the random generator before the current block, and the number
of indices taken from the block. Resuming draws one block again and skips nothing one by one. It restores the generator, so
that later epochs are the same, too. See `dali_like.data.sampler_iterators`.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from dali_like.common.json_state import MAPPING, integer
from dali_like.data.generators import Randomness, SavedState, randomness_of
from dali_like.data.sampler_iterators import SamplerIterator, count_in, part_in
from dali_like.errors import CheckpointError

T_co = TypeVar("T_co", covariant=True)


class IndexIterator(SamplerIterator[T_co]):
    """An iterator over indices that returns lists of them efficiently."""

    def __next__(self) -> T_co:
        for index in self.take(1):
            return index
        raise StopIteration

    @abc.abstractmethod
    def take(self, count: int) -> list[T_co]: ...

    def state_dict(self) -> dict[str, Any]:
        return self.snapshot()()

    @abc.abstractmethod
    def snapshot(self) -> SavedState: ...


class SequenceIterator(IndexIterator[int]):
    """An iterator over known indices."""

    def __init__(self, indices: Sequence[int]) -> None:
        self._indices = indices
        self._taken = 0

    def take(self, count: int) -> list[int]:
        indices = list(self._indices[self._taken : self._taken + count])
        self._taken += len(indices)
        return indices

    def snapshot(self) -> SavedState:
        total, taken = len(self._indices), self._taken
        return lambda: {"total": total, "taken": taken}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        _check_total(state_dict, len(self._indices))
        self._taken = count_in(state_dict, "taken", len(self._indices))


class EpochIterator(IndexIterator[int]):
    """An iterator over indices that are a function of a seed and the number of the epoch."""

    def __init__(self, indices_of: Callable[[int, int], NDArray[np.int64]], seed: int, epoch: int) -> None:
        self._indices_of = indices_of
        self._begin(seed, epoch)

    def _begin(self, seed: int, epoch: int) -> None:
        self._seed, self._epoch = seed, epoch
        self._indices = SequenceIterator(self._indices_of(seed, epoch).data)  # a memoryview, whose items are int

    def take(self, count: int) -> list[int]:
        return self._indices.take(count)

    def snapshot(self) -> SavedState:
        seed, epoch, position = self._seed, self._epoch, self._indices.snapshot()
        return lambda: {"seed": seed, "epoch": epoch, **position()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self._begin(part_in(state_dict, "seed", integer(None)), part_in(state_dict, "epoch", integer(None)))
        self._indices.load_state_dict(state_dict)


class Draws(NamedTuple):
    """The random indices of one epoch.

    Attributes:
        total: number of indices.
        block: number of indices per block.
        blocks: number of blocks. An empty block at the end is drawn, too, if others draw from the generator afterwards.
        draw: draws a block of a given size.
    """

    total: int
    block: int
    blocks: int
    draw: Callable[[Randomness, int], NDArray[np.int64]]

    def size(self, number: int) -> int:
        """Return the size of a block."""
        return min(self.block, self.total - number * self.block)


class DrawingIterator(IndexIterator[int]):
    """An iterator over indices that it draws from a generator, block by block, when they are needed.

    Args:
        draws: the blocks.
        generator: the generator. None: a new one, made for the first index or the first `state_dict`.
        kind: makes new generators.
    """

    def __init__(self, draws: Draws, generator: Any, kind: type[Randomness]) -> None:
        self._draws = draws
        self._kind = kind
        self._is_fresh = generator is None
        self._source = None if generator is None else randomness_of(generator)
        self._block: NDArray[np.int64] = np.empty(0, np.int64)
        self._drawn = 0
        self._taken = 0
        self._before: SavedState = dict

    def take(self, count: int) -> list[int]:
        begin = self._taken
        taken: list[int] = self._block[begin : begin + count].tolist()
        self._taken = begin + len(taken)
        while len(taken) < count and self._draw():
            part = self._block[: count - len(taken)].tolist()
            self._taken = len(part)
            taken += part
        return taken

    def finish(self) -> None:
        while not self._is_fresh and self._draw():
            pass

    def snapshot(self) -> SavedState:
        if not self._drawn:
            self._before = (self._source or self._randomness()).snapshot()
        total, drawn, taken, before = self._draws.total, self._drawn, self._taken, self._before
        return lambda: {"total": total, "drawn": drawn, "taken": taken, "generator": before()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        draws = self._draws
        _check_total(state_dict, draws.total)
        drawn = count_in(state_dict, "drawn", draws.blocks)
        taken = count_in(state_dict, "taken", draws.size(drawn - 1) if drawn else 0)
        if self._source is None:
            self._source = self._kind.of_epoch(0, 0)  # a fresh one would draw from the global generator
        self._randomness().restore(part_in(state_dict, "generator", MAPPING))
        self._block, self._taken, self._drawn = self._block[:0], 0, max(0, drawn - 1)
        if drawn:
            self._draw()
            self._taken = taken

    def _draw(self) -> bool:
        """Draw the next block. Return False after the last one."""
        draws, drawn = self._draws, self._drawn
        if drawn == draws.blocks or (self._is_fresh and drawn * draws.block >= draws.total):
            return False
        source = self._source or self._randomness()
        self._before = source.snapshot()
        self._block = draws.draw(source, draws.size(drawn))
        self._drawn, self._taken = drawn + 1, 0
        return True

    def _randomness(self) -> Randomness:
        if self._source is None:
            self._source = self._kind.fresh()
        return self._source


class ItemIterator(IndexIterator[T_co]):
    """An iterator over the items of a sequence at the positions of another iterator."""

    def __init__(self, items: Sequence[T_co], positions: SamplerIterator[int]) -> None:
        self._items = items
        self._positions = positions

    def take(self, count: int) -> list[T_co]:
        return [self._items[position] for position in self._positions.take(count)]

    def finish(self) -> None:
        self._positions.finish()

    def snapshot(self) -> SavedState:
        return self._positions.snapshot()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self._positions.load_state_dict(state_dict)


class BatchIterator(SamplerIterator[list[T_co]]):
    """An iterator over lists of indices from another iterator.

    The other iterator begins with the first request, as in PyTorch: until then, its sampler may change.
    """

    def __init__(self, begin: Callable[[], SamplerIterator[T_co]], batch_size: int, drop_last: bool) -> None:
        self._begin = begin
        self._batch_size = batch_size
        self._smallest = batch_size if drop_last else 1
        self._has_failed = False
        self._begun: SamplerIterator[T_co] | None = None

    @property
    def _indices(self) -> SamplerIterator[T_co]:
        if self._begun is None:
            try:
                self._begun = self._begin()
            except Exception:  # after Ctrl-C, the next request begins it
                self._has_failed = True
                raise
        return self._begun

    def __next__(self) -> list[T_co]:
        if self._has_failed:  # as the generator of PyTorch's sampler, which an error ends
            raise StopIteration
        try:
            batch = (self._begun or self._indices).take(self._batch_size)
        except Exception:
            self._has_failed = True
            raise
        if len(batch) < self._smallest:
            raise StopIteration
        return batch

    def finish(self) -> None:
        self._indices.finish()

    def state_dict(self) -> dict[str, Any]:
        return self.snapshot()()

    def snapshot(self) -> SavedState:
        position = self._indices.snapshot()
        return lambda: {"sampler": position()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self._indices.load_state_dict(part_in(state_dict, "sampler", MAPPING))


def _check_total(state: Mapping[str, Any], total: int) -> None:
    of_state = count_in(state, "total")
    if of_state != total:
        raise CheckpointError(f"Invalid state_dict: it is of an epoch of {of_state} indices, and this sampler has {total}")
