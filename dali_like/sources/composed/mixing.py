"""Mixtures: the elements of several inputs in shares given by weights.

The outputs are divided into blocks. In each block, an input has a whole number of positions, its quota. The order inside a
block is a permutation of its positions. So the number of draws from an input before a block follows from the number of the
block, and shares never drift.

- With random access, the position in the permuted block gives the input and the draw.
- In logical shards, each shard has a schedule of its own over its outputs, and draws from an input in order. Draw i of shard
  s is position ``i * L + s`` of an input with random access, for L shards.
"""

from __future__ import annotations

import abc
import functools
import json
import math
import os
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dali_like.common.checks import is_int, not_negative
from dali_like.common.foreign_errors import add_note
from dali_like.errors import ArgumentClashError, ArgumentError, ArgumentTypeError
from dali_like.sources.composed.inputs import Indexed, Parts
from dali_like.sources.composed.positions import num_delivered
from dali_like.sources.composed.stage import (
    Place,
    RandomAccess,
    RandomAccessWalk,
    Sharded,
    ShardWalk,
    SourceRows,
    Stage,
    by_group,
    checked_state,
    evaluators,
    is_anything,
    is_count,
    is_flag,
    is_list_of,
    joined,
    no_reach,
    rows_of_inputs,
)
from dali_like.sources.permutation import Permutation

__all__ = [
    "MOST_IN_BLOCK",
    "STOPS",
    "Mix",
    "MixPiece",
    "MixSchedule",
    "MixWalk",
    "checked_mix",
    "checked_schedule",
    "quotas",
]

#: Ways to end a mixture.
STOPS = ("first", "all", "never")
#: After this part of the positions of a block, a table of the whole block is cheaper.
_PART_WITHOUT_TABLE = 1 / 32
#: Positions per block; a table takes 64 MiB.
MOST_IN_BLOCK = 1 << 20

#: Weights from a position on.
Weights = tuple[int, tuple[float, ...]]


@dataclass(frozen=True)
class Mix(Stage):
    """Draws from several inputs by weights.

    Attributes:
        names: of the inputs.
        weights: a schedule: ascending positions, the first one 0, each with the weights from there on.
        block: positions per block.
        stop: one of `STOPS`.
        title: the name that the user gives it; "" without. It has no place in the description.
        most: positions in an epoch of a mixture that would be endless with random access; see `endless_inputs`. None: all.
    """

    all_inputs: tuple[Stage, ...]
    names: tuple[str, ...]
    weights: tuple[Weights, ...]
    block: int
    stop: str
    title: str = ""
    most: int | None = None
    varies = True
    count_varies = True

    @property
    def is_random(self) -> bool:
        return True

    @property
    def inputs(self) -> tuple[Stage, ...]:
        return self.all_inputs

    @property
    def is_endless(self) -> bool:
        if self.stop == "never":
            return True
        ends = all if self.stop == "first" else any
        return ends(stage.is_endless for stage in self.inputs)

    @property
    def length(self) -> int | None:
        return None if self.is_sharded else self.whole_schedule.length

    @property
    def has_rows(self) -> bool:
        return all(stage.has_rows for stage in self.inputs)

    @property
    def text(self) -> str:
        return f"mix({len(self.inputs)} inputs, block={self.block}, stop={self.stop}); weights={json.dumps(self.weights)}"

    @property
    def name(self) -> str:
        """The stage for messages, without its weights."""
        return f"mix({', '.join(self.names)})"

    @cached_property
    def whole_schedule(self) -> MixSchedule:
        """The schedule over the positions of an epoch, with its end. All inputs have random access."""
        if self.most is not None:
            return self.schedule()._replace(length=self.most)
        return _ended(self.schedule(), [stage.length for stage in self.inputs], self)

    def schedule(self, num_shards: int = 1) -> MixSchedule:
        """Return the schedule without an end: over positions, or over the outputs of each logical shard."""
        begins: dict[int, tuple[int, ...]] = {}
        for position, weights in self.weights:
            begins[-(-position // (num_shards * self.block))] = quotas(weights, self.block, self.names)
        pieces: list[MixPiece] = []
        for begin, numbers in begins.items():
            drawn = _drawn(pieces[-1], begin) if pieces else [0] * len(numbers)
            pieces.append(_piece(begin * self.block, begin, numbers, drawn))
        *earlier, last = pieces
        return MixSchedule((*(piece._replace(is_final=False) for piece in earlier), last), self.block, None)

    def schedule_at(self, place: Place, epoch: int, shard: int | None = None) -> MixSchedule:
        """Return the schedule in an epoch, with the changes of weights: over positions, or over the outputs of a shard."""
        own = [change for change in place.changes if change.path == place.path and change.epoch <= epoch]
        schedule = self.whole_schedule if shard is None else self.schedule(place.num_shards)
        seed = place.seed_of(epoch) if shard is None else place.seed_of(epoch, shard)
        for change in own:
            position = change.position if change.epoch == epoch else 0
            if shard is not None:
                position = num_delivered(position, shard, place.num_shards)
            schedule = schedule.changed(position, quotas(change.weights, self.block, self.names), seed)
        return schedule

    def reach(self, epoch: int, end: int) -> list[tuple[int, int]]:
        return self.reach_by(self.whole_schedule, epoch, end)

    def reach_by(self, schedule: MixSchedule, epoch: int, end: int, *, only_latest: bool = False) -> list[tuple[int, int]]:
        """Return the result of `reach` by a schedule. Whole blocks, so that the order inside them does not matter.

        Args:
            only_latest: whether the latest epoch of an input is enough, if the mixture has begun it again.
        """
        needed = []
        for number, (stage, drawn) in enumerate(zip(self.inputs, schedule.drawn_until(end, None), strict=True)):
            begin, length = self.begin_of_input(number, epoch), stage.length
            if length is None:
                needed.append((0, begin + drawn))
            elif drawn <= length:
                needed.append((begin // max(length, 1), drawn))
            elif only_latest and (self.length is None or self.most is not None):  # rounds count upwards
                needed.append(divmod(begin + drawn, length))
            else:
                raise no_reach(self)
        return needed

    def begin_of_input(self, number: int, epoch: int) -> int:
        """Return the position of an input with random access where an epoch begins to draw from it."""
        length = self.inputs[number].length
        if self.most is not None:  # in the first epoch as without an end, where rounds of an input count upwards
            return epoch * self.most if length is None else epoch * -(-self.most // length) * length
        if length is None:
            return epoch * self._draws_in_epoch[number] if epoch else 0
        return _epoch(epoch, 0, self.stop) * length

    @cached_property
    def _draws_in_epoch(self) -> list[int]:
        """The draws from each input in an epoch, with random access; 0 if there is only one epoch."""
        schedule = self.whole_schedule
        return [0] * len(self.inputs) if schedule.length is None else schedule.drawn_until(schedule.length, None)

    def evaluator(self, place: Place) -> RandomAccess | Sharded:
        sources = evaluators(self.inputs, place)
        if self.is_sharded:
            return _MixSharded(self, place, sources)
        return _MixAccess(self, place, [source for source in sources if isinstance(source, RandomAccess)])


class MixPiece(NamedTuple):
    """Blocks with the same quotas.

    Attributes:
        start: the first position.
        begin: the number of the first block.
        quotas: positions of each input in a block.
        ends: the sums of the quotas up to each input.
        drawn: the draws from each input before the first block.
        offsets: place v of the permuted block b is draw ``offsets[i] + b * quotas[i] + v`` of its input i.
        is_final: whether no other piece followed, before weights changed behind it. Shards whose inputs are all empty end
            here; later changes leave these ends as they are.
    """

    start: int
    begin: int
    quotas: tuple[int, ...]
    ends: tuple[int, ...]
    drawn: tuple[int, ...]
    offsets: tuple[int, ...]
    is_final: bool = True

    @property
    def size(self) -> int:
        """Positions in a block."""
        return self.ends[-1]


def _piece(start: int, begin: int, numbers: Sequence[int], drawn: Sequence[int]) -> MixPiece:
    ends = np.cumsum(numbers).tolist()
    offsets = [before - begin * quota - (end - quota) for before, quota, end in zip(drawn, numbers, ends, strict=True)]
    return MixPiece(start, begin, tuple(numbers), tuple(ends), tuple(drawn), tuple(offsets))


def _drawn(piece: MixPiece, block: int) -> list[int]:
    """Return the draws from each input before a block of a piece."""
    return [drawn + (block - piece.begin) * quota for drawn, quota in zip(piece.drawn, piece.quotas, strict=True)]


class MixSchedule(NamedTuple):
    """Quotas from block to block.

    Attributes:
        pieces: ascending; each ends where the next one starts. If that is within a block, the rest of the block is left out.
        block: positions per block; the last block of a finite schedule may have fewer.
        length: number of positions; None if it is endless.
    """

    pieces: tuple[MixPiece, ...]
    block: int
    length: int | None

    def piece(self, block: int) -> MixPiece:
        """Return the piece of a block."""
        return self.pieces[bisect_right(self.pieces, block, key=lambda piece: piece.begin) - 1]

    def block_at(self, position: int) -> tuple[int, int, int]:
        """Return the number of the block at a position, where it starts, and where it ends."""
        number = bisect_right(self.pieces, position, key=lambda piece: piece.start) - 1
        piece = self.pieces[number]
        passed = (position - piece.start) // self.block
        start = piece.start + passed * self.block
        end = start + piece.size
        if number + 1 < len(self.pieces):
            end = min(end, self.pieces[number + 1].start)
        return piece.begin + passed, start, end

    def changed(self, position: int, numbers: Sequence[int], seed: int) -> MixSchedule:
        """Return the schedule with other quotas from a position on, in place of all that it had from there on."""
        pieces = tuple(piece for piece in self.pieces if piece.start < position)
        if not pieces:
            return self._replace(pieces=(_piece(0, 0, numbers, [0] * len(numbers)),))
        before = self._replace(pieces=pieces)
        block, start, _ = before.block_at(position)
        # The rest of an open block is left out: block numbers go on, so orders are not repeated.
        piece = _piece(position, block + (start < position), numbers, before.drawn_until(position, seed))
        return self._replace(pieces=(*pieces, piece))

    def drawn(self, block: int) -> list[int]:
        """Return the draws from each input before a block."""
        return _drawn(self.piece(block), block)

    def drawn_until(self, position: int, seed: int | None) -> list[int]:
        """Return the draws from each input before a position; without a seed, up to the end of its block."""
        block, start, _ = self.block_at(position)
        offset = position - start
        if not offset:
            return self.drawn(block)
        if seed is None or position == self.length:
            return [before + quota for before, quota in zip(self.drawn(block), self.piece(block).quotas, strict=True)]
        counts = np.bincount(self.order(block, seed)[:offset], minlength=len(self.pieces[0].quotas)).tolist()
        return [before + count for before, count in zip(self.drawn(block), counts, strict=True)]

    def first_difference(self, other: MixSchedule) -> int | None:
        """Return the first position from which two schedules differ; None if they are equal."""
        blocks = {piece.begin for schedule in (self, other) for piece in schedule.pieces}
        blocks |= {-(-schedule.length // self.block) for schedule in (self, other) if schedule.length is not None}
        return next((b * self.block for b in sorted(blocks) if self._quotas(b) != other._quotas(b)), None)

    def _quotas(self, block: int) -> tuple[int, ...] | None:
        has_ended = self.length is not None and block * self.block >= self.length
        return None if has_ended else self.piece(block).quotas

    def order(self, block: int, seed: int) -> NDArray[np.int64]:
        """Return the inputs of the positions of a block."""
        piece = self.piece(block)
        places = Permutation.without_table(piece.size, seed, block)[np.arange(piece.size)]
        return np.searchsorted(piece.ends, places, side="right")


def names_of(stages: Sequence[Stage | None]) -> list[str]:
    """Return a name for each input of a mixture: that of its files, or else its number; None: it is not a stage."""
    numbers = [f"input {number}" for number in range(len(stages))]
    for shorten in (os.path.basename, str):
        names = [_name_of(stage, shorten) or number for stage, number in zip(stages, numbers, strict=True)]
        if len(set(names)) == len(names):
            return names
    return numbers


def _name_of(stage: Stage | None, shorten: Callable[[str], str]) -> str | None:
    """Return the name of the files from which all elements of a stage come; None if it has other sources."""
    while stage is not None and len(stage.inputs) == 1:
        stage = stage.inputs[0]
    paths = stage.paths if isinstance(stage, (Indexed, Parts)) else ()
    if not paths:
        return None
    from dali_like.sources.readers.stored_files import shown  # it imports asyncio, which mixtures in memory do not need

    return shorten(shown(paths[0])) + (f" and {len(paths) - 1} more" if len(paths) > 1 else "")


def quotas(weights: Sequence[float], block: int, names: Sequence[str]) -> tuple[int, ...]:
    """Return the positions of each input in a block, by the method of largest remainders.

    >>> quotas([0.5, 0.3, 0.2], 16, "abc")
    (8, 5, 3)

    Raises:
        ArgumentError: a weight is too small for the block.
    """
    exact = [Fraction(repr(weight)) for weight in weights]
    total = sum(exact)
    shares = [weight * block / total for weight in exact]
    numbers = [int(share) for share in shares]
    by_remainder = sorted(range(len(shares)), key=lambda i: numbers[i] - shares[i])
    for i in by_remainder[: block - sum(numbers)]:
        numbers[i] += 1
    for i, number in enumerate(numbers):
        if not number and weights[i]:
            needed = max(-(-total // weight) for weight in exact if weight)
            raise ArgumentError(
                f"the weight {weights[i]!r} of {names[i]} is less than one position in a block of {block}. Use a larger "
                f"weight, or blocks of at least {needed} positions: block={needed}"
            )
    return tuple(numbers)


def checked_schedule(
    count: int, weights: Sequence[float] | None, schedule: Sequence[tuple[int, Sequence[float]]] | None
) -> tuple[Weights, ...]:
    """Return the weights of a number of inputs from position to position. Without arguments, they are equal.

    Raises:
        ArgumentClashError: both weights and a schedule are given.
        ArgumentTypeError: weights are not numbers.
        ArgumentError: they do not fit.
    """
    if schedule is None:
        schedule = [(0, [1] * count if weights is None else weights)]
    elif weights is not None:
        raise ArgumentClashError("weights and schedule exclude each other: pass schedule=[(0, weights), ...]")
    checked = tuple(
        (not_negative("a position of schedule", begin), _checked_weights(count, each)) for begin, each in schedule
    )
    begins = [begin for begin, _ in checked]
    if begins[:1] != [0] or begins != sorted(set(begins)):
        raise ArgumentError(f"the positions of schedule should begin with 0 and ascend, but are {begins}")
    return checked


def checked_mix(stage: Mix) -> Mix:
    """Return the stage, if its arguments fit together.

    Raises:
        ArgumentError: a weight is too small, an input is empty, or the mixture would wait for an input endlessly.
    """
    stage.schedule()
    for name, each, weight in zip(stage.names, stage.inputs, stage.weights[-1][1], strict=True):
        if stage.stop != "first" and each.length == 0:
            raise ArgumentError(f'{name} is empty, so it cannot be repeated: leave it out, or use stop="first"')
        if stage.stop == "all" and stage.is_sharded and not weight:
            raise _never_ends(name)
    if not stage.is_sharded:
        _ended(stage.schedule(), [each.length for each in stage.inputs], stage)
    return stage


def _checked_weights(count: int, weights: Sequence[float]) -> tuple[float, ...]:
    try:
        numbers = tuple(int(weight) if is_int(weight) else float(weight) for weight in weights)
    except (TypeError, ValueError) as error:
        raise ArgumentTypeError(
            f"weights should be a list of numbers, one for each dataset, not {weights!r:.200}"
        ) from error
    if len(numbers) != count:
        raise ArgumentError(f"there are {count} datasets and {len(numbers)} weights: pass one weight for each dataset")
    if not all(0 <= number < math.inf for number in numbers) or not any(numbers):
        raise ArgumentError(f"weights should be finite, not negative, and not all 0, but are {list(numbers)}")
    return numbers


def _ended(schedule: MixSchedule, lengths: Sequence[int | None], stage: Mix) -> MixSchedule:
    """Return a schedule with its end.

    The last block has fewer positions, in the same proportion: so many that the first input to end, or the last one, ends
    exactly there.

    Raises:
        ArgumentError: some input never ends, because its weight is 0.
    """
    is_first = stage.stop == "first"
    if stage.stop == "never" or (not is_first and None in lengths):
        return schedule
    ends: dict[int, int] = {}
    for i, length in enumerate(lengths):
        block = None if length is None else _last_block(schedule, i, length, is_first)
        if block is not None:
            ends[i] = block
        elif not is_first:
            raise _never_ends(stage.names[i])
    if not ends:
        return schedule
    block = min(ends.values()) if is_first else max(ends.values())
    piece, drawn = schedule.piece(block), schedule.drawn(block)
    parts = [
        Fraction((lengths[i] or 0) - drawn[i], piece.quotas[i])
        for i, end in ends.items()
        if end == block and piece.quotas[i]
    ]
    part = min(parts) if is_first else max(parts)
    pieces = [each for each in schedule.pieces if each.begin < block]
    numbers = [int(quota * part) for quota in piece.quotas]
    pieces.append(_piece(block * schedule.block, block, numbers, drawn))
    return MixSchedule(tuple(pieces), schedule.block, block * schedule.block + pieces[-1].size)


def _never_ends(name: str) -> ArgumentError:
    return ArgumentError(
        f'{name} may never end, because its last weight is 0, and with stop="all" the mixture waits for its end. Give it a '
        'weight, or use stop="first" or "never"'
    )


def _last_block(schedule: MixSchedule, number: int, length: int, is_first: bool) -> int | None:
    """Return the block in which an input has no element left for its quota (`is_first`), or has its last element."""
    wanted = length + 1 if is_first else length
    for piece, after in zip(schedule.pieces, [*schedule.pieces[1:], None], strict=True):
        quota = piece.quotas[number]
        if quota:
            block = piece.begin + -(-(wanted - piece.drawn[number]) // quota) - 1
            if after is None or block < after.begin:
                return block
    return None


def _epoch(epoch: int, turn: int, stop: str) -> int:
    """Return the epoch of an input in its turn, in an epoch of the mixture: a different number for each pair (Cantor)."""
    return epoch if stop == "first" else (epoch + turn) * (epoch + turn + 1) // 2 + turn


def _note_input(error: Exception, stage: Mix, number: int) -> None:
    add_note(error, f"raised by input {number} ({stage.names[number]}) of stage {stage.name}")


class _MixAccess(RandomAccess):
    """With random access."""

    def __init__(self, stage: Mix, place: Place, sources: list[RandomAccess]) -> None:
        self._stage, self._place, self._sources = stage, place, sources
        #: The epoch whose schedule is `_schedule`: with changes of weights, they differ.
        self._scheduled = 0
        self._schedule = stage.schedule_at(place, 0)
        self._changes = any(change.path == place.path for change in place.changes)
        self.length = self._schedule.length
        self._lengths = [source.length for source in sources]
        #: Whether inputs begin further epochs within an epoch of the mixture, which are numbered otherwise.
        self._repeats = self.length is not None and stage.most is None and stage.stop != "first"
        self._seed: tuple[int, int] | None = None
        self._latest = _OpenBlock(0, 0, 0, 0, _piece(0, 0, [0], [0]), 0)

    def at(self, position: int) -> Any:
        number, draw = self._drawn_at(position)
        try:
            return self._sources[number].at(draw)
        except Exception as error:
            _note_input(error, self._stage, number)
            raise

    def rows(self, positions: NDArray[np.int64]) -> list[SourceRows]:
        numbers, draws = np.array([self._drawn_at(position) for position in positions.tolist()], np.int64).T
        return rows_of_inputs(self._sources, numbers, draws)

    def _drawn_at(self, position: int) -> tuple[int, int]:
        """Return the input of a position, and the position there."""
        latest = self._latest
        offset = position - latest.begin
        if not 0 <= offset < latest.size:
            latest = self._latest = self._open(position)
            offset = position - latest.begin
        if latest.draws is not None:
            number, draw = latest.inputs[offset], latest.draws[offset]
        else:
            number, draw = latest.draw(offset)
        if latest.epoch or self._repeats:
            draw = self._in_epoch(latest.epoch, number, draw)
        return number, draw

    def resolved(self, positions: NDArray[np.int64]) -> Callable[[int], Any]:
        stage, length = self._stage, self.length
        numbers, draws = np.empty_like(positions), np.empty_like(positions)
        epochs = np.zeros_like(positions) if length is None else positions // length
        for epoch, of_epoch in by_group(epochs):
            indices, seed = positions[of_epoch] - epoch * (length or 0), self._seed_of(epoch)
            schedule = self._schedule_of(epoch)
            for block, start, places in _blocks_of(schedule, indices):
                piece = schedule.piece(block)
                found = Permutation.without_table(max(piece.size, 1), seed, block)[indices[places] - start]
                which = np.searchsorted(piece.ends, found, side="right")
                numbers[of_epoch[places]] = which
                draws[of_epoch[places]] = found + (np.array(piece.offsets) + block * np.array(piece.quotas))[which]
            if epoch or self._repeats:
                draws[of_epoch] = [
                    self._in_epoch(epoch, *each)
                    for each in zip(numbers[of_epoch].tolist(), draws[of_epoch].tolist(), strict=True)
                ]

        def resolve(number: int, places: NDArray[np.int64]) -> Callable[[int], Any]:
            source = self._sources[number].resolved(draws[places])

            def at(i: int) -> Any:
                try:
                    return source(i)
                except Exception as error:
                    _note_input(error, stage, number)
                    raise

            return at

        return joined(numbers, resolve)

    def _in_epoch(self, epoch: int, number: int, draw: int) -> int:
        """Return the position of an input for a draw in an epoch of a finite mixture."""
        length = self._lengths[number]
        if length is None or not self._repeats:
            return self._stage.begin_of_input(number, epoch) + draw
        turn, index = divmod(draw, length)
        return _epoch(epoch, turn, self._stage.stop) * length + index

    def _open(self, position: int) -> _OpenBlock:
        epoch, index = (0, position) if self.length is None else divmod(position, self.length)
        schedule = self._schedule_of(epoch)
        block, start, end = schedule.block_at(index)
        begin = position - (index - start)
        return _OpenBlock(begin, end - start, epoch, block, schedule.piece(block), self._seed_of(epoch))

    def _schedule_of(self, epoch: int) -> MixSchedule:
        if epoch != self._scheduled and self._changes:
            self._scheduled, self._schedule = epoch, self._stage.schedule_at(self._place, epoch)
        return self._schedule

    def _seed_of(self, epoch: int) -> int:
        if self._seed is None or self._seed[0] != epoch:
            self._seed = epoch, self._place.seed_of(epoch)
        return self._seed[1]


def _blocks_of(schedule: MixSchedule, indices: NDArray[np.int64]) -> Iterator[tuple[int, int, NDArray[np.int64]]]:
    """Yield the number and the start of each block that some positions of an epoch lie in, with their places."""
    order = np.argsort(indices, kind="stable")
    ascending, done = indices[order], 0
    while done < len(order):
        block, start, end = schedule.block_at(int(ascending[done]))
        last = int(np.searchsorted(ascending, end))
        yield block, start, order[done:last]
        done = last


class _OpenBlock:
    """The block of the latest position. Neighbors share it.

    Attributes:
        begin, size: its positions.
        inputs, draws: of all its positions, once some of them have been needed.
    """

    __slots__ = ("_block", "_calls", "_permutation", "_piece", "begin", "draws", "epoch", "inputs", "size")

    def __init__(self, begin: int, size: int, epoch: int, block: int, piece: MixPiece, seed: int) -> None:
        self.begin, self.size, self.epoch = begin, size, epoch
        self._block, self._piece = block, piece
        self._permutation = Permutation.without_table(max(piece.size, 1), seed, block)
        self._calls = 0
        self.inputs: list[int] = []
        self.draws: list[int] | None = None

    def draw(self, offset: int) -> tuple[int, int]:
        """Return the input of a position, and the number of the draw from it."""
        self._calls += 1
        if self._calls > self._piece.size * _PART_WITHOUT_TABLE:
            self._tabulate()
        piece = self._piece
        place = self._permutation[offset]
        number = bisect_right(piece.ends, place)
        return number, piece.offsets[number] + self._block * piece.quotas[number] + place

    def _tabulate(self) -> None:
        piece = self._piece
        places = self._permutation[np.arange(piece.size)]
        inputs = np.searchsorted(piece.ends, places, side="right")
        firsts = np.array([offset + self._block * quota for offset, quota in zip(piece.offsets, piece.quotas, strict=True)])
        self.inputs, self.draws = inputs.tolist(), (firsts[inputs] + places).tolist()


class _MixSharded(Sharded):
    """In logical shards."""

    def __init__(self, stage: Mix, place: Place, sources: list[RandomAccess | Sharded]) -> None:
        self._stage, self._place, self._sources = stage, place, sources
        self._schedule = stage.schedule(place.num_shards)
        self._changes = any(change.path == place.path for change in place.changes)

    def open(self, shard: int, epoch: int, state: Any = None) -> ShardWalk:
        step, saved = checked_state(state, (0, ()), functools.partial(_is_mix_state, len(self._sources)))
        schedule, seed = self._schedule, self._place.seed_of(epoch, shard)
        if self._changes:
            schedule = self._stage.schedule_at(self._place, epoch, shard)
        drawn = schedule.drawn_until(step, seed)
        states = {number: input_state for number, *input_state in saved}
        inputs: list[_MixInput] = []
        for number, source in enumerate(self._sources):
            if isinstance(source, RandomAccess):
                inputs.append(_AccessInput(source, shard, self._place.num_shards, epoch, self._stage.stop, drawn[number]))
            else:
                inputs.append(_WalkInput(source, shard, epoch, self._stage.stop, states.get(number)))
        return MixWalk(self._stage, schedule, seed, step, inputs)


def _is_mix_state(num_inputs: int, state: Any) -> bool:
    """Return whether a value can be a state: the number of steps, and the states of inputs, see `_WalkInput.state`."""

    def is_input(value: Any) -> bool:
        return is_count(value) and value < num_inputs

    if not is_list_of(state, is_count, lambda inputs: isinstance(inputs, (list, tuple))):
        return False
    return all(is_list_of(each, is_input, is_count, is_flag, is_anything, is_flag) for each in state[1])


class _MixInput(abc.ABC):
    """An input of a mixture in a logical shard.

    Attributes:
        is_complete: whether its first epoch in the shard has ended.
        is_empty: whether an epoch had no elements: the input is left out in this shard from then on.
    """

    is_complete = False
    is_empty = False

    @abc.abstractmethod
    def draw(self, is_wanted: bool) -> Any:
        """Return the next element of this epoch, or go past it.

        Raises:
            StopIteration: the epoch has ended. The next draw begins another one.
        """


class _AccessInput(_MixInput):
    """An input with random access. Its state is the number of draws, which follows from that of the mixture."""

    def __init__(self, source: RandomAccess, shard: int, num_shards: int, epoch: int, stop: str, drawn: int) -> None:
        self._source, self._shard, self._num_shards = source, shard, num_shards
        self._epoch, self._stop = epoch, stop
        self._drawn = drawn
        self._turn = 0
        self._walk: RandomAccessWalk | None = None
        self._note()

    def draw(self, is_wanted: bool) -> Any:
        position, length = self._drawn * self._num_shards + self._shard, self._source.length
        turn = 0
        if length is not None:
            if self._stop == "first" and position >= length:
                raise StopIteration
            turn = position // length
        if self._walk is None or turn != self._turn:
            self._turn, self._walk = turn, self._opened(turn)
        self._drawn += 1
        self._note()
        return next(self._walk) if is_wanted else self._walk.skip()

    def _opened(self, turn: int) -> RandomAccessWalk:
        """Return a walk through the positions of this shard in a turn of the input."""
        length, num_shards = self._source.length, self._num_shards
        if length is None:
            return RandomAccessWalk(self._source, 0, self._shard, num_shards, self._drawn)
        first = (self._shard - turn * length) % num_shards
        taken = (self._drawn * num_shards + self._shard - turn * length - first) // num_shards
        return RandomAccessWalk(self._source, _epoch(self._epoch, turn, self._stop), first, num_shards, taken)

    def _note(self) -> None:
        length = self._source.length
        self.is_complete = length is not None and self._drawn * self._num_shards + self._shard >= length


class _WalkInput(_MixInput):
    """An input in logical shards. Its walk opens with the first draw."""

    def __init__(self, source: Sharded, shard: int, epoch: int, stop: str, state: Any) -> None:
        self._source, self._shard, self._epoch, self._stop = source, shard, epoch, stop
        self._walk: ShardWalk | None = None
        # The number of the input's epoch in this epoch of the mixture, whether it had elements, the state of the walk.
        turn, has_elements, saved, is_empty = (0, False, None, False) if state is None else state
        self._turn: int = turn
        self._has_elements: bool = has_elements
        self._saved: Any = saved
        self.is_empty = is_empty
        self._note()

    def draw(self, is_wanted: bool) -> Any:
        if self._walk is None:
            epoch = _epoch(self._epoch, self._turn, self._stop)
            self._walk = self._source.open(self._shard, epoch, self._saved)
        try:
            element = None
            if is_wanted:
                element = next(self._walk)
            else:
                self._walk.skip()
        except StopIteration:
            if self._stop != "first":
                if self._has_elements:
                    self._turn += 1
                    self._has_elements = False
                else:
                    self.is_empty = True
                self._walk = self._saved = None
                self._note()
            raise
        except Exception:
            self._has_elements = True
            raise
        self._has_elements = True
        return element

    def _note(self) -> None:
        self.is_complete = self._turn > 0 or self.is_empty

    def state(self) -> list[Any] | None:
        """Return the state; None before the first draw."""
        saved = self._saved if self._walk is None else self._walk.state()
        if self._walk is None and saved is None and not self.is_complete:
            return None
        return [self._turn, self._has_elements, saved, self.is_empty]


class MixWalk(ShardWalk):
    """The state is the number of steps, and the states of those inputs that run in logical shards.

    A step is a position of the schedule. Steps of empty inputs have no output.
    """

    def __init__(self, stage: Mix, schedule: MixSchedule, seed: int, step: int, inputs: list[_MixInput]) -> None:
        self._stage, self._schedule, self._seed, self._inputs = stage, schedule, seed, inputs
        self._walk_inputs = [(number, each) for number, each in enumerate(inputs) if isinstance(each, _WalkInput)]
        self._step = step
        self._order: array[int] = array("H")
        self._open_block()
        self._has_ended = self._ends_here()

    def __next__(self) -> Any:
        return self._advance(is_wanted=True)

    def skip(self) -> None:
        self._advance(is_wanted=False)

    @property
    def taken(self) -> int:
        """The number of steps so far, with the one at which an input has ended the mixture: it has been drawn, too."""
        return self._step + self._has_ended

    @property
    def drawn(self) -> list[int]:
        """Number of draws from each input."""
        drawn = self._schedule.drawn_until(self._step, self._seed)
        return [0 if each.is_empty else count for each, count in zip(self._inputs, drawn, strict=True)]

    def _advance(self, is_wanted: bool) -> Any:
        while not self._has_ended:
            number = self._order[self._step - self._start]
            each = self._inputs[number]
            if each.is_empty:
                self._take_step()
                continue
            was_complete = each.is_complete
            try:
                element = each.draw(is_wanted)
            except StopIteration:
                self._has_ended = self._stage.stop == "first" or self._ends_here()
                continue  # with the next epoch of this input, unless the mixture has ended
            except Exception as error:
                self._take_step()
                _note_input(error, self._stage, number)
                raise
            finally:
                if each.is_complete and not was_complete:
                    self._has_ended = self._ends_here()
            self._take_step()
            return element
        raise StopIteration

    def _ends_here(self) -> bool:
        if self._stage.stop == "all" and all(each.is_complete for each in self._inputs):
            return True
        return self._piece.is_final and all(self._inputs[number].is_empty for number in self._drawn_from)

    def _take_step(self) -> None:
        self._step += 1
        if self._step == self._end:
            self._open_block()
            self._has_ended = self._ends_here()

    def _open_block(self) -> None:
        block, self._start, self._end = self._schedule.block_at(self._step)
        self._order = array("H", self._schedule.order(block, self._seed).astype(np.uint16).tobytes())
        self._piece = self._schedule.piece(block)
        self._drawn_from = [number for number, quota in enumerate(self._piece.quotas) if quota]

    def state(self) -> list[Any]:
        states = [(number, each.state()) for number, each in self._walk_inputs]
        return [self._step, [[number, *state] for number, state in states if state is not None]]
