"""Evaluates a dataset in one process: the elements at positions, and the states of logical shards.

The caller knows the epoch and the position of each element. An `Elements` keeps the walks through shards open. If a walk has
gone past the wanted position, or is missing, it opens another one from a state that the caller passes.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dali_like.errors import CheckpointError
from dali_like.sources.composed.elementwise import num_reads
from dali_like.sources.composed.endless_inputs import with_epochs
from dali_like.sources.composed.held_outputs import HoldingWalk, open_shard
from dali_like.sources.composed.mixing import Mix
from dali_like.sources.composed.positions import num_delivered
from dali_like.sources.composed.stage import Place, RandomAccess, Sharded, ShardWalk, Stage, WeightChange, skip_any
from dali_like.sources.state_format import ENDED, ShardState

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from dali_like.sources.composed.draws import Watch
    from dali_like.sources.composed.record_batches import OpenBatch
    from dali_like.sources.composed.stage import SourceRows

__all__ = ["Elements", "ShardEndedError", "outputs_ahead"]


#: A walk that is at most this many outputs behind a known state goes on: opening another one may replay a block.
_MOST_SKIPPED = 64


class ShardEndedError(Exception):
    """The shard of a position has ended before it: the position is empty."""


class _EndedWalk(ShardWalk):
    """A walk behind its last output."""

    num_open = 0

    def __next__(self) -> Any:
        raise StopIteration

    def state(self) -> str:
        return ENDED


class _OpenWalk:
    """A walk through a shard in an epoch, and the number of outputs that it has passed."""

    __slots__ = ("has_ended", "take", "taken", "walk")

    def __init__(self, walk: ShardWalk, taken: int) -> None:
        self.walk = walk
        self.take = walk.__next__
        self.taken = taken
        self.has_ended = False


def _with_shard(shard: int, error: CheckpointError) -> CheckpointError:
    """Return an error about the state of a stage with the place of this state in that of the dataset."""
    problem = str(error).removeprefix("Invalid state_dict: ")
    return CheckpointError(f"Invalid state_dict: states: logical shard {shard}: {problem}")


def _has_mixtures(stage: Stage) -> bool:
    return isinstance(stage, Mix) or any(map(_has_mixtures, stage.inputs))


def outputs_ahead(states: Mapping[int, ShardState], position: int, num_shards: int) -> dict[int, int]:
    """Return how many outputs of each shard have been delivered, for the shards that are ahead of a position.

    A rank whose positions in a step are all empty goes on to the next step. So its shards may be ahead of the position of
    all ranks together. Their positions behind it are empty as far as they have been delivered.
    """
    delivered = {shard: max(state.taken, state.passed) for shard, state in states.items()}
    return {shard: count for shard, count in delivered.items() if count > num_delivered(position, shard, num_shards)}


class Elements:
    """The elements of a dataset, by epoch and position. Not thread-safe.

    Args:
        stage: the last stage of the description.
        seed, num_shards: of the dataset.
        changes: of the weights of its mixtures.

    Attributes:
        watch: tells how far mixtures have been drawn; None without mixtures in logical shards.
        reads: whether several elements should be computed at a time. With random access, several threads may do so.
    """

    def __init__(self, stage: Stage, seed: int, num_shards: int, changes: Sequence[WeightChange] = ()) -> None:
        self.watch: Watch | None = None
        if stage.is_sharded:
            stage = with_epochs(stage)
        watched = stage
        if stage.is_sharded and _has_mixtures(stage):
            from dali_like.sources.composed.draws import Watch  # few programs need it

            self.watch = Watch(stage)
            watched = self.watch.stage
        self._evaluator = evaluator = watched.evaluator(Place(seed, num_shards, changes=tuple(changes)))
        self._access = evaluator if isinstance(evaluator, RandomAccess) else None
        self.reads = num_reads(stage) > 1
        if self.reads and self._access is not None:
            from dali_like.sources.composed.reads import InTurns  # it imports asyncio

            self._access = InTurns(self._access)
        self._num_shards = num_shards
        self._walks: dict[tuple[int, int], _OpenWalk] = {}
        self._holding: dict[tuple[int, int], HoldingWalk] = {}

    def at(self, epoch: int, position: int, states: Mapping[int, ShardState] | None = None) -> Any:
        """Return the element at a position of an epoch.

        Args:
            states: known states of shards in this epoch.

        Raises:
            ShardEndedError: the position is empty.
        """
        access = self._access
        if access is not None:
            return access.at(epoch * (access.length or 0) + position)
        return self._in_shard(epoch, states or {}, position)

    def taker(self, epoch: int, states: Mapping[int, ShardState]) -> Callable[[int], Any]:
        """Return `at` for positions of an epoch."""
        if self._access is not None:
            return functools.partial(self.at, epoch)
        return functools.partial(self._in_shard, epoch, states)

    def _in_shard(self, epoch: int, states: Mapping[int, ShardState], position: int) -> Any:
        number, shard = divmod(position, self._num_shards)
        walk = self._walks.get((epoch, shard))
        if walk is None or walk.taken != number:
            walk = self._walk_to(epoch, shard, number, states)
        if walk.has_ended:
            raise ShardEndedError
        try:
            element = walk.take()
        except BaseException as error:
            self._note_failure(error, epoch, shard, walk)
            raise
        walk.taken = number + 1
        return element

    def take(
        self,
        epoch: int,
        shard: int,
        number: int,
        most: int,
        states: Mapping[int, ShardState],
        opening: Callable[[int], None],
        place: int,
    ) -> tuple[OpenBatch, int, int]:
        """Return the rows of a shard of a stream in columns from row `number` on: a record batch, their begin and end in it.

        Args:
            most: of the rows; the least number is one.
            opening: called with `place` before a record batch is opened. Functions of the user may run then, and fail.

        Raises:
            ShardEndedError: there is no such row.
        """
        walk = self._walks.get((epoch, shard))
        rows: Any = None if walk is None else walk.walk
        if walk is None or walk.taken != number or not rows.num_open:
            opening(place)
            walk = self._walk_to(epoch, shard, number, states)
            if walk.has_ended:
                raise ShardEndedError
            rows = walk.walk
        try:
            batch, begin, end = rows.take(most)
        except BaseException as error:
            self._note_failure(error, epoch, shard, walk)
            raise
        walk.taken += end - begin
        return batch, begin, end

    def _note_failure(self, error: BaseException, epoch: int, shard: int, walk: _OpenWalk) -> None:
        """Record the end of a walk, or the exception at its next output.

        Raises:
            ShardEndedError, CheckpointError: in place of the exception.
        """
        if isinstance(error, StopIteration):
            walk.has_ended = True
            raise ShardEndedError from None
        if isinstance(error, CheckpointError):  # of an input that opens with its first element
            raise _with_shard(shard, error) from None
        if isinstance(error, Exception):
            walk.taken += 1  # the exception is the output at this position
        else:  # an interrupt: the walk may be anywhere between two outputs
            del self._walks[epoch, shard]

    def rows(self, positions: NDArray[np.int64]) -> list[SourceRows]:
        """Return where elements are, as rows of arrays; see `RandomAccess.rows`. Positions run on over epochs."""
        assert self._access is not None
        return self._access.rows(positions)

    def begin(self, epoch: int, positions: Iterable[int], states: Mapping[int, ShardState]) -> None:
        """Begin reads for elements of logical shards, which will be asked for in this order."""
        walks: dict[int, _OpenWalk] = {}
        for position in positions:
            number, shard = divmod(position, self._num_shards)
            if shard not in walks:
                with contextlib.suppress(Exception):  # `at` raises it at its position
                    walks[shard] = self._walk_to(epoch, shard, number, states)
        for walk in walks.values():
            walk.walk.begin()

    def state(self, epoch: int, shard: int, position: int, states: Mapping[int, ShardState] | None = None) -> ShardState:
        """Return the state of a shard before its first output from a position on."""
        return self.state_behind(epoch, shard, num_delivered(position, shard, self._num_shards) - 1, states or {})

    def state_behind(self, epoch: int, shard: int, number: int, states: Mapping[int, ShardState]) -> ShardState:
        """Return the state of a shard behind its output with a number."""
        walk = self._walks.get((epoch, shard))
        if walk is None or walk.taken != number + 1:
            walk = self._walk_to(epoch, shard, number + 1, states)
        return ShardState(number + 1, walk.walk.state())

    def holding(self, epoch: int, shard: int, number: int, known: ShardState) -> HoldingWalk:
        """Return the walk of a shard that holds its output with a number, or has not read it yet.

        Args:
            known: the state before this output, or before an earlier one. Outputs before it are not wanted any more.
        """
        walk = self._holding.get((epoch, shard))
        if walk is None or not walk.can_give(number):
            opened = None if known.state == ENDED else self._open(epoch, shard, known.state)
            walk = HoldingWalk(opened, known.taken)
            for other in [key for key in self._holding if key[0] < epoch - 1]:
                del self._holding[other]
            self._holding[epoch, shard] = walk
        walk.forget(known.taken)
        return walk

    def drop_holding(self, epoch: int, shard: int) -> None:
        """Drop a walk that was interrupted between two outputs: it may be anywhere."""
        self._holding.pop((epoch, shard), None)

    def others(
        self, epoch: int, position: int, most: int, states: Mapping[int, ShardState] | None = None
    ) -> Iterator[tuple[str, Callable[[], Any]]]:
        """Yield replacements of a failed element: its successors in the logical shard, then the shard from its beginning.

        They depend on the position alone, as the element itself. Each is a name, and a function that computes it.

        Args:
            states: known states of shards in this epoch.
        """
        following = range(position + self._num_shards, position + (most + 1) * self._num_shards, self._num_shards)
        preceding = range(position % self._num_shards, position, self._num_shards)
        for other in (*following, *preceding[:most]):
            yield f"position {other}", functools.partial(self.at, epoch, other, states)

    def count(self, epoch: int, shard: int) -> int:
        """Return the number of elements of a shard in an epoch."""
        walk = self._walk_to(epoch, shard, sys.maxsize, {})
        del self._walks[epoch, shard]
        return walk.taken

    def close(self) -> None:
        """Close the walks, with their files."""
        self._walks.clear()
        self._holding.clear()

    def _open(self, epoch: int, shard: int, state: Any) -> ShardWalk:
        assert isinstance(self._evaluator, Sharded)
        try:
            return open_shard(self._evaluator, shard, epoch, state)
        except CheckpointError as error:
            raise _with_shard(shard, error) from None

    def _walk_to(self, epoch: int, shard: int, taken: int, states: Mapping[int, ShardState]) -> _OpenWalk:
        """Return the walk of a shard before its output number `taken`, or at its end."""
        open_walk = self._walks.get((epoch, shard))
        known = states.get(shard)
        is_far = known is not None and open_walk is not None and open_walk.taken + _MOST_SKIPPED < known.taken <= taken
        if open_walk is None or open_walk.taken > taken or is_far:
            begin = known if known is not None and known.taken <= taken else ShardState(0, None)
            is_at_end = begin.state == ENDED
            walk = _EndedWalk() if is_at_end else self._open(epoch, shard, begin.state)
            open_walk = _OpenWalk(walk, begin.taken)
            for other in [key for key in self._walks if key[0] < epoch - 1]:
                del self._walks[other]
            self._walks[epoch, shard] = open_walk
        while open_walk.taken < taken and not open_walk.has_ended:
            try:
                # An exception was raised, or will be, where its position is asked for.
                open_walk.taken += skip_any(open_walk.walk, taken - open_walk.taken)
            except StopIteration:
                open_walk.has_ended = True
        return open_walk
