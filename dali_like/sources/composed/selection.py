"""Stages that select positions: slice (with take, skip and shard), repeat, concat, zip, window."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dali_like.sources.composed.positions import num_delivered
from dali_like.sources.composed.stage import (
    Place,
    RandomAccess,
    Sharded,
    ShardWalk,
    SingleInputStage,
    SourceRows,
    Stage,
    evaluators,
    in_shards,
    is_anything,
    is_count,
    is_flag,
    joined,
    no_reach,
    rows_of_inputs,
    skip_any,
    skip_many,
    state_parts,
)

__all__ = ["Concat", "Repeat", "Slice", "Window", "Zip"]


@dataclass(frozen=True)
class Slice(SingleInputStage):
    """The positions start, start + step, and so on, below stop. In shards, the step is 1."""

    start: int
    stop: int | None
    step: int = 1

    @property
    def is_endless(self) -> bool:
        return self.stop is None and self.input.is_endless

    @property
    def length(self) -> int | None:
        stop = self._end(self.input.length)
        return None if stop is None or self.is_sharded else len(range(self.start, stop, self.step))

    @property
    def has_rows(self) -> bool:
        return self.input.has_rows

    @property
    def text(self) -> str:
        return f"slice({self.start}, {self.stop}, {self.step})"

    def evaluator(self, place: Place) -> RandomAccess | Sharded:
        source = self.input.evaluator(place.input(0))
        return _SliceAccess(self, source) if isinstance(source, RandomAccess) else _SliceSharded(self, place, source)

    def reach(self, epoch: int, end: int) -> list[tuple[int, int]]:
        needed = self.start + (end - 1) * self.step + 1 if end else 0
        if self.input.length is None:
            return [(0, epoch * (self.stop or 0) + needed)]
        return [(epoch, needed)]

    def _end(self, length: int | None) -> int | None:
        return min((end for end in (self.stop, length) if end is not None), default=None)


class _SliceAccess(RandomAccess):
    def __init__(self, stage: Slice, source: RandomAccess) -> None:
        self._stage, self._source = stage, source
        self.length = stage.length
        #: Positions of the input from one epoch to the next. An endless input has one epoch: ours take turns in it.
        self._span = (stage.stop or 0) if source.length is None else source.length

    def at(self, position: int) -> Any:
        epoch, index = (0, position) if self.length is None else divmod(position, self.length)
        return self._source.at(epoch * self._span + self._stage.start + index * self._stage.step)

    def rows(self, positions: NDArray[np.int64]) -> list[SourceRows]:
        return self._source.rows(self._moved(positions))

    def resolved(self, positions: NDArray[np.int64]) -> Callable[[int], Any]:
        return self._source.resolved(self._moved(positions))

    def _moved(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the positions in the input."""
        epochs, indices = (0, positions) if self.length is None else np.divmod(positions, self.length)
        return np.asarray(epochs * self._span + self._stage.start + indices * self._stage.step)


class _SliceSharded(Sharded):
    def __init__(self, stage: Slice, place: Place, source: Sharded) -> None:
        self._stage, self._source, self._num_shards = stage, source, place.num_shards

    def open(self, shard: int, epoch: int, state: Any = None) -> ShardWalk:
        """Position p of the outputs is position ``start + p`` of the input, so it may be of another shard there."""
        of_input = (self._stage.start + shard) % self._num_shards
        skipped = num_delivered(self._stage.start, of_input, self._num_shards)
        stop = self._stage.stop
        most = None if stop is None else max(num_delivered(stop, of_input, self._num_shards) - skipped, 0)
        source_state, taken = state_parts(state, (None, None), is_anything, lambda value: value is None or is_count(value))
        walk = self._source.open(of_input, epoch, source_state)
        return SliceWalk(walk, skipped, most, taken)


class SliceWalk(ShardWalk):
    """The state is that of the input, and the number of outputs so far; None before the first."""

    def __init__(self, source: ShardWalk, skipped: int, most: int | None, taken: int | None) -> None:
        self._source, self._skipped, self._most, self._taken = source, skipped, most, taken

    def __next__(self) -> Any:
        return self._advance(self._source.__next__)

    def skip(self) -> None:
        self._advance(self._source.skip)

    def _advance(self, take: Callable[[], Any]) -> Any:
        if self._taken is None:
            skip_many(self._source, self._skipped)
            self._taken = 0
        if self._most is not None and self._taken >= self._most:
            raise StopIteration
        self._taken += 1
        return take()

    def state(self) -> Any:
        return None if self._taken is None else [self._source.state(), self._taken]


@dataclass(frozen=True)
class ShardOut(SingleInputStage):
    """Positions index, index + count, and so on, of an input in shards: the input's logical shards, shared out."""

    index: int
    count: int

    @property
    def is_columnar(self) -> bool:
        return self.input.is_columnar

    @property
    def length(self) -> None:
        return None

    @property
    def text(self) -> str:
        return f"shard({self.index}, {self.count})"

    def evaluator(self, place: Place) -> Sharded:
        """The input has `count` times as many logical shards."""
        wider = place._replace(num_shards=place.num_shards * self.count).input(0)
        return _SharedOut(self, in_shards(self.input.evaluator(wider), wider))


class _SharedOut(Sharded):
    def __init__(self, stage: ShardOut, source: Sharded) -> None:
        self._stage, self._source = stage, source

    def open(self, shard: int, epoch: int, state: Any = None) -> ShardWalk:
        return self._source.open(shard * self._stage.count + self._stage.index, epoch, state)


@dataclass(frozen=True)
class Repeat(SingleInputStage):
    """The input, several times or endlessly."""

    times: int | None

    @property
    def is_columnar(self) -> bool:
        return self.input.is_columnar

    @property
    def is_endless(self) -> bool:
        return self.times is None or self.input.is_endless

    @property
    def length(self) -> int | None:
        if self.input.length == 0:
            return 0
        return None if self.times is None or self.input.length is None else self.times * self.input.length

    @property
    def has_rows(self) -> bool:
        return self.input.has_rows

    @property
    def text(self) -> str:
        return f"repeat({self.times})"

    def evaluator(self, place: Place) -> RandomAccess | Sharded:
        source = self.input.evaluator(place.input(0))
        return _RepeatAccess(self, source) if isinstance(source, RandomAccess) else _RepeatSharded(self, source)

    def reach(self, epoch: int, end: int) -> list[tuple[int, int]]:
        length = self.input.length
        if length is not None and (epoch or end > length):
            raise no_reach(self)
        return [(epoch, end)]

    def latest_reach(self, epoch: int, end: int) -> list[tuple[int, int]]:
        """Return the result of `reach` if the latest epoch of the input is enough."""
        length = self.input.length
        if not length:
            return [(epoch, end)]
        turn, within = divmod(end, length)
        return [(epoch * (self.times or 0) + turn, within)]


class _RepeatAccess(RandomAccess):
    def __init__(self, stage: Repeat, source: RandomAccess) -> None:
        self.length = stage.length
        self._source = source

    def at(self, position: int) -> Any:
        return self._source.at(position)  # positions run on into the next epoch anyway

    def rows(self, positions: NDArray[np.int64]) -> list[SourceRows]:
        return self._source.rows(positions)

    def resolved(self, positions: NDArray[np.int64]) -> Callable[[int], Any]:
        return self._source.resolved(positions)


class _RepeatSharded(Sharded):
    def __init__(self, stage: Repeat, source: Sharded) -> None:
        self._times, self._source = stage.times, source

    def open(self, shard: int, epoch: int, state: Any = None) -> ShardWalk:
        turn, source_state, any_output = state_parts(state, (0, None, False), is_count, is_anything, is_flag)
        return _RepeatWalk(self._source, shard, epoch, self._times, turn, source_state, any_output)


class _RepeatWalk(ShardWalk):
    """The state is the number of the repetition, the state of the input, and whether the repetition has had an output."""

    def __init__(
        self, source: Sharded, shard: int, epoch: int, times: int | None, turn: int, state: Any, any_output: bool
    ) -> None:
        self._source, self._shard = source, shard
        self._first, self._times = epoch * (times or 0), times
        self._turn, self._any_output = turn, any_output
        self._walk = source.open(shard, self._first + turn, state)

    def __next__(self) -> Any:
        return self._advance(next)

    def skip(self) -> None:
        self._advance(lambda walk: walk.skip())

    def _advance(self, take: Callable[[ShardWalk], Any]) -> Any:
        while True:
            try:
                element = take(self._walk)
            except StopIteration:
                # A repetition without outputs would be followed by endlessly many.
                is_last = self._times is not None and self._turn + 1 >= self._times
                if is_last or (self._times is None and not self._any_output):
                    raise
                self._turn += 1
                self._any_output = False
                self._walk = self._source.open(self._shard, self._first + self._turn)
            except Exception:  # an output like any other
                self._any_output = True
                raise
            else:
                self._any_output = True
                return element

    def state(self) -> list[Any]:
        return [self._turn, self._walk.state(), self._any_output]


@dataclass(frozen=True)
class Concat(Stage):
    """One input after another. In shards, each shard goes through its part of each input."""

    all_inputs: tuple[Stage, ...]

    @property
    def is_columnar(self) -> bool:
        return all(stage.is_columnar for stage in self.inputs)

    @property
    def inputs(self) -> tuple[Stage, ...]:
        return self.all_inputs

    @property
    def length(self) -> int | None:
        lengths = [stage.length for stage in self.inputs]
        return None if self.is_sharded or None in lengths else sum(length for length in lengths if length is not None)

    @property
    def has_rows(self) -> bool:
        return self.length is not None and all(stage.has_rows for stage in self.inputs)

    @property
    def text(self) -> str:
        return f"concat({len(self.inputs)} inputs)"

    def evaluator(self, place: Place) -> RandomAccess | Sharded:
        sources = evaluators(self.inputs, place)
        if self.is_sharded:
            return _ConcatSharded([in_shards(source, place.input(i)) for i, source in enumerate(sources)])
        return _ConcatAccess(self, [source for source in sources if isinstance(source, RandomAccess)])

    def reach(self, epoch: int, end: int) -> list[tuple[int, int]]:
        needed = []
        for stage in self.inputs:
            length = end if stage.length is None else min(end, stage.length)
            needed.append((epoch, length))
            end -= length
        return needed


class _ConcatAccess(RandomAccess):
    def __init__(self, stage: Concat, sources: list[RandomAccess]) -> None:
        self.length = stage.length
        self._sources = sources

    def at(self, position: int) -> Any:
        epoch, index = (0, position) if self.length is None else divmod(position, self.length)
        for source in self._sources:
            length = source.length
            if length is None or index < length:
                return source.at(epoch * (length or 0) + index)
            index -= length
        raise IndexError(f"position {position} of an empty dataset")

    def rows(self, positions: NDArray[np.int64]) -> list[SourceRows]:
        epochs, indices = np.divmod(positions, self.length or 0)
        lengths = [source.length or 0 for source in self._sources]
        ends = np.cumsum(lengths)
        of_inputs = np.searchsorted(ends, indices, "right")
        within = epochs * np.asarray(lengths)[of_inputs] + indices - (ends - lengths)[of_inputs]
        return rows_of_inputs(self._sources, of_inputs, within)

    def resolved(self, positions: NDArray[np.int64]) -> Callable[[int], Any]:
        epochs = np.zeros_like(positions) if self.length is None else positions // self.length
        indices = positions - epochs * (self.length or 0)
        lengths = [source.length for source in self._sources]
        ends = np.cumsum([length for length in lengths if length is not None])
        numbers = np.searchsorted(ends, indices, "right")
        begins = np.array([0, *ends])
        return joined(
            numbers,
            lambda number, places: self._sources[number].resolved(
                epochs[places] * (lengths[number] or 0) + indices[places] - begins[number]
            ),
        )


class _ConcatSharded(Sharded):
    def __init__(self, sources: list[Sharded]) -> None:
        self._sources = sources

    def open(self, shard: int, epoch: int, state: Any = None) -> ShardWalk:
        which, source_state = state_parts(
            state, (0, None), lambda value: is_count(value) and value < len(self._sources), is_anything
        )
        return _ConcatWalk(self._sources, shard, epoch, which, source_state)


class _ConcatWalk(ShardWalk):
    """The state is the number of the input, and its state."""

    def __init__(self, sources: list[Sharded], shard: int, epoch: int, which: int, state: Any) -> None:
        self._sources, self._shard, self._epoch = sources, shard, epoch
        self._which = which
        self._walk = sources[which].open(shard, epoch, state)

    def __next__(self) -> Any:
        return self._advance(next)

    def skip(self) -> None:
        self._advance(lambda walk: walk.skip())

    def _advance(self, take: Callable[[ShardWalk], Any]) -> Any:
        while True:
            try:
                return take(self._walk)
            except StopIteration:
                if self._which + 1 == len(self._sources):
                    raise
                self._which += 1
                self._walk = self._sources[self._which].open(self._shard, self._epoch)

    def state(self) -> list[Any]:
        return [self._which, self._walk.state()]


@dataclass(frozen=True)
class Zip(Stage):
    """Tuples of the elements of several inputs at the same position, as long as all have one."""

    all_inputs: tuple[Stage, ...]

    @property
    def inputs(self) -> tuple[Stage, ...]:
        return self.all_inputs

    @property
    def is_endless(self) -> bool:
        return all(stage.is_endless for stage in self.inputs)

    @property
    def length(self) -> int | None:
        if self.is_sharded:
            return None
        return min((stage.length for stage in self.inputs if stage.length is not None), default=None)

    @property
    def text(self) -> str:
        return f"zip({len(self.inputs)} inputs)"

    def evaluator(self, place: Place) -> RandomAccess | Sharded:
        sources = evaluators(self.inputs, place)
        if self.is_sharded:
            return _ZipSharded([in_shards(source, place.input(i)) for i, source in enumerate(sources)])
        return _ZipAccess(self, [source for source in sources if isinstance(source, RandomAccess)])

    def reach(self, epoch: int, end: int) -> list[tuple[int, int]]:
        whole = (0, epoch * (self.length or 0) + end)  # an endless input has one epoch
        return [whole if stage.length is None else (epoch, end) for stage in self.inputs]


class _ZipAccess(RandomAccess):
    def __init__(self, stage: Zip, sources: list[RandomAccess]) -> None:
        self.length = stage.length
        self._sources = sources

    def at(self, position: int) -> Any:
        epoch, index = (0, position) if self.length is None else divmod(position, self.length)
        return tuple(
            source.at(epoch * ((self.length or 0) if source.length is None else source.length) + index)
            for source in self._sources
        )

    def resolved(self, positions: NDArray[np.int64]) -> Callable[[int], Any]:
        epochs = np.zeros_like(positions) if self.length is None else positions // self.length
        indices = positions - epochs * (self.length or 0)
        found = [
            source.resolved(epochs * ((self.length or 0) if source.length is None else source.length) + indices)
            for source in self._sources
        ]
        return lambda i: tuple([at(i) for at in found])


class _ZipSharded(Sharded):
    def __init__(self, sources: list[Sharded]) -> None:
        self._sources = sources

    def open(self, shard: int, epoch: int, state: Any = None) -> ShardWalk:
        states = state_parts(state, [None] * len(self._sources), *[is_anything] * len(self._sources))
        return _ZipWalk([each.open(shard, epoch, saved) for each, saved in zip(self._sources, states, strict=True)])


class _ZipWalk(ShardWalk):
    """The state consists of the states of the inputs."""

    def __init__(self, walks: list[ShardWalk]) -> None:
        self._walks = walks

    def __next__(self) -> Any:
        """All inputs advance, even if one raises an exception: they stay at the same position."""
        elements, failure = [], None
        for walk in self._walks:
            try:
                elements.append(next(walk))
            except StopIteration:
                raise
            except Exception as error:
                failure = error if failure is None else failure  # its class may define `__bool__`
        if failure is not None:
            raise failure
        return tuple(elements)

    def skip(self) -> None:
        for walk in self._walks:
            skip_any(walk)

    def state(self) -> list[Any]:
        return [walk.state() for walk in self._walks]


@dataclass(frozen=True)
class Window(SingleInputStage):
    """Lists of consecutive elements. In shards, of one shard each."""

    size: int
    shift: int
    drop_remainder: bool = True

    @property
    def length(self) -> int | None:
        length = self.input.length
        if length is None:
            return None
        return max(-(-(length - (self.size - 1 if self.drop_remainder else 0)) // self.shift), 0)

    @property
    def text(self) -> str:
        return f"window({self.size}, {self.shift}, {self.drop_remainder})"

    def evaluator(self, place: Place) -> RandomAccess | Sharded:
        source = self.input.evaluator(place.input(0))
        return _WindowAccess(self, source) if isinstance(source, RandomAccess) else _WindowSharded(self, source)

    def reach(self, epoch: int, end: int) -> list[tuple[int, int]]:
        needed = (end - 1) * self.shift + self.size
        return [(epoch, needed if self.input.length is None else min(needed, self.input.length))]


class _WindowAccess(RandomAccess):
    def __init__(self, stage: Window, source: RandomAccess) -> None:
        self._stage, self._source = stage, source
        self.length = stage.length

    def at(self, position: int) -> Any:
        epoch, index = (0, position) if self.length is None else divmod(position, self.length)
        length = self._source.length
        first = index * self._stage.shift
        last = first + self._stage.size if length is None else min(first + self._stage.size, length)
        begin = epoch * (length or 0)
        return [self._source.at(begin + i) for i in range(first, last)]


class _WindowSharded(Sharded):
    def __init__(self, stage: Window, source: Sharded) -> None:
        self._stage, self._source = stage, source

    def open(self, shard: int, epoch: int, state: Any = None) -> ShardWalk:
        source_state, raised = state_parts(state, (None, 0), is_anything, is_count)
        return _WindowWalk(self._stage, self._source.open(shard, epoch, source_state), raised)


@dataclass
class _ReadAhead:
    """An element of the next windows, the state before it, and the number of exceptions raised behind it."""

    before: Any
    element: Any
    num_raised: int = 0


class _WindowWalk(ShardWalk):
    """The state is that of the input at the first element of the next window, and the number of exceptions since."""

    def __init__(self, stage: Window, source: ShardWalk, raised: int) -> None:
        self._stage, self._source = stage, source
        self._to_ignore = raised
        self._ahead: list[_ReadAhead] = []

    def __next__(self) -> Any:
        size, shift = self._stage.size, self._stage.shift
        while len(self._ahead) < size and self._read():
            pass
        window = [each.element for each in self._ahead[:size]]
        if not window or (len(window) < size and self._stage.drop_remainder):
            raise StopIteration
        self._ahead = self._ahead[shift:]
        with contextlib.suppress(StopIteration):
            skip_many(self._source, shift - len(window))
        return window

    def _read(self) -> bool:
        """Read one element more, and return whether there was one. An element that raises is left out of its windows."""
        before = self._source.state()
        try:
            self._ahead.append(_ReadAhead(before, next(self._source)))
        except StopIteration:
            return False
        except Exception:
            if self._ahead:
                self._ahead[-1].num_raised += 1
            if not self._to_ignore:
                raise
            self._to_ignore -= 1
        return True

    def state(self) -> list[Any]:
        if not self._ahead:
            return [self._source.state(), self._to_ignore]
        return [self._ahead[0].before, sum(each.num_raised for each in self._ahead)]
