"""Stages that work in blocks: each block of outputs is a function of one block of inputs.

Shuffling in blocks, packing by fitting, and bucketing are such stages. In logical shards, the state is that of the input at
the beginning of the block, and the number of delivered outputs of the block. So a resume replays at most one block.
"""

from __future__ import annotations

import abc
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dali_like.errors import EmptyFilterError
from dali_like.sources.composed.stage import (
    Place,
    RandomAccess,
    Sharded,
    ShardedStage,
    ShardWalk,
    SingleInputStage,
    SourceRows,
    by_group,
    in_shards,
    is_anything,
    is_count,
    note_place,
    skip_any,
    state_parts,
)
from dali_like.sources.permutation import Neighborhoods, Permutation, are_below

__all__ = [
    "BlockShuffle",
    "BlockStage",
    "Grouping",
    "LeavingStage",
    "RegroupingStage",
    "Shuffle",
    "in_random_order",
    "seeded",
]


@dataclass(frozen=True)
class BlockStage(SingleInputStage):
    """A stage that reads blocks of `block` inputs. The order of the outputs of a block is random."""

    block: int
    varies = True

    def admitted(self, element: Any) -> Any:
        """Return the argument of `drafts` for an input. Exceptions are left out, and the next output raises them."""
        return element

    def block_size(self, place: Place, numbers: tuple[int, int, int]) -> int:
        """Return the number of inputs in a block, given epoch, shard and number of the block."""
        return self.block

    @abc.abstractmethod
    def drafts(self, elements: list[Any], place: Place, numbers: tuple[int, ...]) -> list[Any]:
        """Return the outputs for a block of inputs, before `finished`; the last block of a shard may be smaller.

        Args:
            elements: as `admitted` has returned them.
            place: of this stage, the source of randomness; see `Place.seed_of`.
            numbers: identify the block.
        """

    def finished(self, draft: Any) -> Any:
        """Return the output for a draft. `ShardWalk.skip` does not call this."""
        return draft

    def sharded(self, place: Place) -> Sharded:
        """Return the evaluator in logical shards."""
        return _BlockSharded(self, place, in_shards(self.input.evaluator(place.input(0)), place))


#: Limit of blocks in a row without an output.
_MOST_EMPTY_BLOCKS = 1_000


class _BlockSharded(Sharded):
    def __init__(self, stage: BlockStage, place: Place, source: Sharded) -> None:
        self._stage, self._place, self._source = stage, place, source

    def open(self, shard: int, epoch: int, state: Any = None) -> ShardWalk:
        source_state, number, taken, raised = state_parts(state, (None, 0, 0, 0), is_anything, is_count, is_count, is_count)
        source = self._source.open(shard, epoch, source_state)
        return BlockWalk(self._stage, self._place, source, (epoch, shard), number, taken, raised)


class _LeavingSharded(Sharded):
    def __init__(self, stage: LeavingStage, place: Place, source: Sharded) -> None:
        self._stage, self._place, self._source = stage, place, source

    def open(self, shard: int, epoch: int, state: Any = None) -> ShardWalk:
        parts = state_parts(state, _FIRST_BLOCK, is_anything, is_count, is_count, is_count, _are_counts, is_count, is_count)
        begin = _BlockBegin(*parts[:1], *parts[4:])
        source = self._source.open(shard, epoch, begin.before)
        return LeavingWalk(self._stage, self._place, source, (epoch, shard), begin, *parts[1:4])


#: The state of a `LeavingWalk` at its beginning.
_FIRST_BLOCK = (None, 0, 0, 0, (), 0, 0)


def _are_counts(value: Any) -> bool:
    """Return whether a value is a list of ascending counts."""
    return isinstance(value, (list, tuple)) and all(map(is_count, value)) and list(value) == sorted(set(value))


class BlockWalk(ShardWalk):
    """The state is that of the input before the block, the number of the block, the number of delivered outputs, and the
    number of exceptions that the inputs of the block have raised.
    """

    def __init__(
        self,
        stage: BlockStage,
        place: Place,
        source: ShardWalk,
        numbers: tuple[int, int],
        number: int,
        taken: int,
        raised: int,
    ) -> None:
        self._stage, self._place, self._source, self._numbers = stage, place, source, numbers
        self._number = number
        self._before = source.state()
        self._elements: list[Any] = []
        self._drafts: list[Any] | None = None
        self._taken = taken
        self._raised = raised
        self._to_ignore = raised

    def __next__(self) -> Any:
        return self._stage.finished(self._take())

    def skip(self) -> None:
        self._take()

    def _take(self) -> Any:
        """Return the next draft. The walk does not keep it: the inputs of a block leave memory one by one."""
        num_empty = 0
        while self._drafts is None or self._taken >= len(self._drafts):
            if num_empty == _MOST_EMPTY_BLOCKS:
                raise EmptyFilterError(
                    f"stage {self._stage.text} has made no outputs of {num_empty} blocks in a row in shard "
                    f"{self._numbers[1]}. Check its input, or pass a larger block="
                )
            if self._drafts is not None:
                self._begin_block()
            numbers = (*self._numbers, self._number)
            self._read(self._stage.block_size(self._place, numbers))
            if not self._elements:
                raise StopIteration
            elements, self._elements = self._elements, []
            self._drafts = []  # should the stage raise an exception: it is the only output
            self._drafts = self._distributed(elements, numbers)
            num_empty += 1
        drafts = self._drafts
        draft, drafts[self._taken] = drafts[self._taken], None
        self._taken += 1
        return draft

    def _begin_block(self) -> None:
        self._drafts, self._taken, self._raised = None, 0, 0
        self._number += 1
        self._before = self._source.state()

    def _distributed(self, elements: list[Any], numbers: tuple[int, int, int]) -> list[Any]:
        """Return the drafts of a block."""
        return self._stage.drafts(elements, self._place, numbers)

    def _read(self, size: int) -> None:
        while len(self._elements) < size:
            try:
                self._elements.append(self._admitted(next(self._source)))
            except StopIteration:
                return
            except Exception:
                if not self._to_ignore:
                    self._raised += 1
                    raise
                self._to_ignore -= 1

    def _admitted(self, element: Any) -> Any:
        try:
            return self._stage.admitted(element)
        except Exception as error:  # a user's function may raise anything
            note_place(error, self._stage, f"the input before {self._source.state()} in shard {self._numbers[1]}")
            raise

    def state(self) -> list[Any]:
        if self._drafts is not None and self._taken >= len(self._drafts):
            return [self._source.state(), self._number + 1, 0, 0]
        return [self._before, self._number, self._taken, self._raised]


@dataclass(frozen=True)
class RegroupingStage(ShardedStage, BlockStage):
    """A stage that makes packs or batches of each block. Their number is unknown, so it runs in logical shards."""

    def evaluator(self, place: Place) -> Sharded:
        return self.sharded(place)


class Grouping(NamedTuple):
    """The outputs for a block, and the elements without one.

    Attributes:
        drafts: outputs before `BlockStage.finished`.
        left: the numbers of the elements that are in none of them, ascending.
    """

    drafts: list[Any]
    left: list[int]


@dataclass(frozen=True)
class LeavingStage(RegroupingStage):
    """A stage that may leave elements of a block out. They are the first elements of the next block."""

    @property
    @abc.abstractmethod
    def leaves(self) -> bool:
        """Whether it may. Otherwise, its states are as for other stages that work in blocks."""

    @abc.abstractmethod
    def grouping(
        self, elements: list[Any], num_left: int, is_last: bool, place: Place, numbers: tuple[int, ...]
    ) -> Grouping:
        """Return the outputs for a block.

        Args:
            elements: as `admitted` has returned them.
            num_left: the first ones were left out of the block before.
            is_last: whether the input has ended.
            place, numbers: see `BlockStage.drafts`.
        """

    def drafts(self, elements: list[Any], place: Place, numbers: tuple[int, ...]) -> list[Any]:
        is_last = len(elements) < self.block_size(place, numbers)  # type: ignore[arg-type]
        return self.grouping(elements, 0, is_last, place, numbers).drafts

    def sharded(self, place: Place) -> Sharded:
        if not self.leaves:
            return super().sharded(place)
        return _LeavingSharded(self, place, in_shards(self.input.evaluator(place.input(0)), place))


class _BlockBegin(NamedTuple):
    """The beginning of a block, and of the elements that were left out of earlier ones.

    Attributes:
        before: the state of the input before the first of them.
        left: the numbers in the shard of the elements that were left out.
        passed: the number of the first new one.
        dropped: elements that have been dropped.
    """

    before: Any
    left: Sequence[int]
    passed: int
    dropped: int


class _NumberedElement(NamedTuple):
    """An element, the state of the input before it, and its number in the shard. Exceptions have numbers, too."""

    element: Any
    before: Any
    number: int


#: Elements that have been left out for so many blocks are dropped: a resume goes back to the first one that is left.
_MOST_BLOCKS_LEFT = 64


class LeavingWalk(BlockWalk):
    """Its state extends the state of a `BlockWalk`: it goes back to the first element that was left out, and has the numbers
    of all elements that were, the number of the first new element, and the number of dropped ones.
    """

    _stage: LeavingStage
    _elements: list[_NumberedElement]

    def __init__(
        self,
        stage: LeavingStage,
        place: Place,
        source: ShardWalk,
        numbers: tuple[int, int],
        begin: _BlockBegin,
        number: int,
        taken: int,
        raised: int,
    ) -> None:
        super().__init__(stage, place, source, numbers, number, taken, raised)
        self._begin = begin
        #: Inputs so far.
        self._count = begin.left[0] if begin.left else begin.passed
        #: The numbers of elements to read again.
        self._to_read = list(begin.left)
        self._is_replayed = not begin.left
        self._left: list[_NumberedElement] = []
        self._dropped = begin.dropped
        self._has_ended = False

    def _begin_block(self) -> None:
        self._begin = self._next_begin()
        self._elements, self._left = self._left, []
        super()._begin_block()

    def _next_begin(self) -> _BlockBegin:
        left = self._left
        before = left[0].before if left else self._source.state()
        return _BlockBegin(before, [each.number for each in left], self._count, self._dropped)

    def _read(self, size: int) -> None:
        if not self._is_replayed:
            self._replay()
        while len(self._elements) < size:
            before, number = self._source.state(), self._count
            try:
                self._elements.append(_NumberedElement(self._take_input(), before, number))
            except StopIteration:
                self._has_ended = True
                return
            except Exception:
                if not self._to_ignore:
                    self._raised += 1
                    raise
                self._to_ignore -= 1

    def _take_input(self) -> Any:
        try:
            element = next(self._source)
        except StopIteration:
            raise
        except Exception:
            self._count += 1
            raise
        self._count += 1
        return self._admitted(element)

    def _replay(self) -> None:
        """Read the elements that were left out before a state, and go past the others."""
        while self._to_read:
            number = self._to_read.pop(0)
            self._skip_to(number)
            before = self._source.state()
            self._elements.append(_NumberedElement(self._take_input(), before, number))
        self._skip_to(self._begin.passed)
        self._is_replayed = True

    def _skip_to(self, number: int) -> None:
        while self._count < number:
            skip_any(self._source)
            self._count += 1

    def _distributed(self, elements: list[_NumberedElement], numbers: tuple[int, int, int]) -> list[Any]:
        stage = self._stage
        num_left = sum(each.number < self._begin.passed for each in elements)
        try:
            drafts, left = stage.grouping(
                [each.element for each in elements], num_left, self._has_ended, self._place, numbers
            )
        except Exception as error:  # a user's function may raise anything
            note_place(error, stage, f"block {self._number} of shard {self._numbers[1]}")
            raise
        if not drafts and not self._has_ended and len(left) >= stage.block:
            self._dropped += len(left)
            raise EmptyFilterError(
                f"stage {stage.text} has left out all {len(left)} elements of a block in shard {self._numbers[1]}, which "
                "are dropped. Check the function, or pass a larger block="
            )
        oldest = self._count if self._has_ended and not drafts else self._count - _MOST_BLOCKS_LEFT * stage.block
        self._left = [elements[i] for i in left if elements[i].number >= oldest]
        self._dropped += len(left) - len(self._left)
        if self._has_ended and not self._left and self._dropped:
            self._warn()
        return drafts

    def _warn(self) -> None:
        warnings.warn(
            f"stage {self._stage.text} has dropped {self._dropped} elements of shard {self._numbers[1]}, which it had left "
            "out of all packs",
            UserWarning,
            stacklevel=2,
        )

    def state(self) -> list[Any]:
        number, taken, raised, begin = self._number, self._taken, self._raised, self._begin
        if self._drafts is not None and taken >= len(self._drafts):
            number, taken, raised, begin = number + 1, 0, 0, self._next_begin()
        return [begin.before, number, taken, raised, list(begin.left), begin.passed, begin.dropped]


@dataclass(frozen=True)
class BlockShuffle(BlockStage):
    """Shuffles blocks of consecutive elements, each by itself."""

    seed: int | None

    @property
    def count_varies(self) -> bool:
        return self.input.count_varies

    @property
    def is_random(self) -> bool:
        return True

    @property
    def length(self) -> int | None:
        return self.input.length

    @property
    def text(self) -> str:
        return f"shuffle(block={self.block}, seed={self.seed})"

    def drafts(self, elements: list[Any], place: Place, numbers: tuple[int, ...]) -> list[Any]:
        return in_random_order(elements, seeded(self.seed, place), numbers)

    def evaluator(self, place: Place) -> RandomAccess | Sharded:
        source = self.input.evaluator(place.input(0))
        return _BlockShuffleAccess(self, place, source) if isinstance(source, RandomAccess) else self.sharded(place)

    def reach(self, epoch: int, end: int) -> list[tuple[int, int]]:
        needed = -(-end // self.block) * self.block
        return [(epoch, needed if self.length is None else min(needed, self.length))]


class _BlockShuffleAccess(RandomAccess):
    def __init__(self, stage: BlockShuffle, place: Place, source: RandomAccess) -> None:
        self._stage, self._place, self._source = stage, place, source
        self.length = source.length
        self._latest: tuple[tuple[int, int], Permutation] | None = None

    def at(self, position: int) -> Any:
        epoch, index = (0, position) if self.length is None else divmod(position, self.length)
        block, offset = divmod(index, self._stage.block)
        latest = self._latest
        if latest is None or latest[0] != (epoch, block):
            latest = self._open(epoch, block)
        return self._source.at(position - offset + latest[1][offset])

    def resolved(self, positions: NDArray[np.int64]) -> Callable[[int], Any]:
        found, length, size = np.empty_like(positions), self.length, self._stage.block
        epochs = np.zeros_like(positions) if length is None else positions // length
        for epoch, of_epoch in by_group(epochs):
            begin = epoch * (length or 0)
            for block, places in by_group((positions[of_epoch] - begin) // size):
                in_block, first = of_epoch[places], begin + block * size
                found[in_block] = first + self._open(epoch, block)[1][positions[in_block] - first]
        return self._source.resolved(found)

    def _open(self, epoch: int, block: int) -> tuple[tuple[int, int], Permutation]:
        """Return the order of a block, and keep it."""
        size = self._stage.block
        if self.length is not None:
            size = min(size, self.length - block * size)
        seed = seeded(self._stage.seed, self._place).seed_of(epoch, block)
        self._latest = (epoch, block), Permutation(size, seed)
        return self._latest


@dataclass(frozen=True)
class Shuffle(SingleInputStage):
    """All elements of an epoch in random order. The input has random access and a length."""

    seed: int | None
    varies = True

    @property
    def is_random(self) -> bool:
        return True

    @property
    def length(self) -> int | None:
        return self.input.length

    @property
    def text(self) -> str:
        return f"shuffle(seed={self.seed})"

    @property
    def has_rows(self) -> bool:
        return self.input.has_rows

    def evaluator(self, place: Place) -> RandomAccess:
        source = self.input.evaluator(place.input(0))
        assert isinstance(source, RandomAccess)
        return _ShuffleAccess(self, place, source)

    def reach(self, epoch: int, end: int) -> list[tuple[int, int]]:
        assert self.length is not None
        return [(epoch, self.length)]


class _ShuffleAccess(RandomAccess):
    def __init__(self, stage: Shuffle, place: Place, source: RandomAccess) -> None:
        assert source.length is not None
        self.length: int = source.length
        self._seed = seeded(stage.seed, place).seed_of()
        self._source = source
        self._latest: tuple[int, Neighborhoods] | None = None

    def at(self, position: int) -> Any:
        epoch, index = divmod(position, self.length)
        return self._source.at(epoch * self.length + self._order(epoch)[index])

    def rows(self, positions: NDArray[np.int64]) -> list[SourceRows]:
        return self._source.rows(self._moved(positions))

    def resolved(self, positions: NDArray[np.int64]) -> Callable[[int], Any]:
        return self._source.resolved(self._moved(positions))

    def _moved(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the positions in the input."""
        length = self.length
        first = int(positions[0]) // length
        local = positions - first * length
        if are_below(local, length):  # of one epoch, mostly
            return first * length + self._order(first).numbers(local)
        found = np.empty_like(positions)
        for epoch, places in by_group(positions // length):
            begin = epoch * length
            found[places] = begin + self._order(epoch).numbers(positions[places] - begin)
        return found

    def _order(self, epoch: int) -> Neighborhoods:
        latest = self._latest
        if latest is None or latest[0] != epoch:
            latest = self._latest = epoch, Neighborhoods(Permutation(self.length, self._seed, epoch))
        return latest[1]


def in_random_order(elements: Sequence[Any], place: Place, numbers: tuple[int, ...]) -> list[Any]:
    """Return the elements of a block in an order that depends on the numbers of the block."""
    generator = np.random.Generator(np.random.PCG64(place.seed_of(*numbers)))
    return [elements[i] for i in generator.permutation(len(elements)).tolist()]


def seeded(seed: int | None, place: Place) -> Place:
    """Return the source of randomness of a stage: its place, unless it has a seed of its own."""
    return place if seed is None else Place(seed, 0)
