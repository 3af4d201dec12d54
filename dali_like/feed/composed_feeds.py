"""Composed datasets in pipelines: which positions a batch has, who computes them, and the state for checkpoints.

Runs in the main process. The state is a position, so a pipeline can resume with any number of ranks and any batch size. A
dataset with random access has a plan that says where batches begin.

A dataset in logical shards is computed by all workers of the rank. A batch is the next step in which this rank has an
element, so a batch may be requested before its step is known. As many steps are computed ahead as batches are requested.
`dali_like.feed.shards` says which worker computes which elements.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dali_like.engine.memory.batch_key import ANY_WORKER, BatchKey
from dali_like.engine.pool.base import Pool
from dali_like.engine.pool.batch import Batch
from dali_like.engine.worker.parts import pack_parts
from dali_like.errors import CheckpointError
from dali_like.feed.feed import MergedEpoch, MergingFeed, SourcePlan
from dali_like.feed.shards import PositionsAnswer, ShardProgress
from dali_like.feed.source_states import BatchNumber, RecentStates, SourceState, another_kind
from dali_like.sources.composed.dataset import ComposedDataset
from dali_like.sources.composed.pipeline_source import pack_part, unpack_message
from dali_like.sources.composed.positions import owned_shards
from dali_like.sources.composed.states import make_state, shard_states
from dali_like.sources.sharding import Division, Shard
from dali_like.sources.state_format import ShardState, SourceProgress

#: Without checkpoints, states are reported with one of so many steps. After the death of a worker, or after Ctrl-C in a
#: source of the main process, elements of the others are computed again.
_STEPS_PER_STATE, _STEPS_PER_LOCAL_STATE = 16, 64
#: Limit of different first positions of a batch for which the places of workers are kept.
_MOST_PATTERNS = 1024


def dataset_state(progress: SourceProgress, dataset: ComposedDataset) -> dict[str, Any]:
    """Return the state of a composed dataset.

    Raises:
        CheckpointError: it is not a state of this dataset.
    """
    if progress.dataset is None:
        raise another_kind("it is not of a composed dataset")
    if progress.dataset.get("changes"):
        raise CheckpointError(
            "Invalid checkpoint: weights of a mixture have been set while the job was running, with set_weights, and "
            "pipelines cannot replay that. Resume with a DataLoader"
        )
    return dataset.checked_state(progress.dataset)


class PositionState(SourceState):
    """The state of a composed dataset with random access.

    Args:
        dataset: the dataset.
        steps: of this rank.
    """

    def __init__(self, dataset: ComposedDataset, steps: Division) -> None:
        self.steps = steps
        self._dataset = dataset
        #: An epoch, an iteration, and the position where its step begins. Other epochs begin at position 0.
        self._known = 0, 0, 0

    def begin(self, epoch: int, iteration: int) -> int:
        """Return the position where a step begins, the same on all ranks."""
        _, known_iteration, position = self._known if self._known[0] == epoch else (epoch, 0, 0)
        return position + (iteration - known_iteration) * self.steps.step

    def first(self, epoch: int, iteration: int) -> int:
        """Return the position of the rank's first element in a step."""
        return self.steps.first(self.begin(epoch, iteration))

    def before(self, batch: BatchNumber | None) -> SourceProgress:
        epoch, iteration = batch or (0, 0)
        position = 0 if batch is None else self.begin(epoch, iteration)
        dataset = self._dataset
        state = make_state(dataset.description, dataset.seed, dataset.shards, epoch, position, {}, self.steps.shard)
        return SourceProgress(iteration, dataset=state)

    def restore(self, progress: SourceProgress) -> None:
        self._known = 0, 0, 0
        if progress.has_state:
            checked = dataset_state(progress, self._dataset)
            self._known = checked["epoch"], progress.position, checked["position"]


class PositionPlan(SourcePlan):
    """The batches of a composed dataset with random access.

    Args:
        source: the number of the source in its pool.
        state: decides where batches begin.
        worker: the only worker that can compute it, or ANY_WORKER.
    """

    def __init__(self, source: int, state: PositionState, *, worker: int = ANY_WORKER) -> None:
        super().__init__(source, state.steps.size, worker=worker, state=state)
        self._positions = state

    def key(self, epoch: int, iteration: int, turn: int) -> BatchKey:
        positions = self._positions
        begin = positions.begin(epoch, iteration)
        first, size = positions.steps.first(begin), positions.steps.count(begin)
        return BatchKey(self.source, epoch, iteration, first, size, self.worker, turn)


class Point(NamedTuple):
    """A point between two batches of an epoch.

    Attributes:
        epoch: of the dataset.
        position: of the next step, of all ranks together.
        states: of the logical shards of this rank.
    """

    epoch: int
    position: int
    states: Mapping[int, ShardState]


class ShardsState(SourceState):
    """The state of a composed dataset in logical shards on one rank.

    Args:
        dataset: runs in logical shards.
        rank: of this process.
        batch_size: positions in a batch.
        drops: whether batches that are not full are left out.
        limit: see `dali_like.feed.source_states.RecentStates`.
    """

    # The point before a batch is known as soon as the batch before it has been merged, so no checkpoint waits for workers.

    def __init__(self, dataset: ComposedDataset, rank: Shard, batch_size: int, *, drops: bool, limit: int) -> None:
        assert dataset.shards is not None
        self.num_shards = dataset.shards
        self.ends_in_map = dataset.ends_in_map
        self.owned = owned_shards(dataset.shards, rank)
        self.rank = rank
        self.batch_size = batch_size
        self.drops = drops
        self.keeps = limit > 0
        self._dataset = dataset
        self._recent = RecentStates(limit)
        #: A point, and the number of the batch behind it. Other epochs begin at position 0.
        self._known: tuple[int, Point] | None = None

    def nearest(self, epoch: int, iteration: int) -> tuple[int, Point]:
        """Return the last known point that is not behind the point before a batch, and the number of the batch behind it."""
        if self._known is not None and self._known[1].epoch == epoch and self._known[0] <= iteration:
            return self._known
        return 0, self._beginning(epoch)

    def _beginning(self, epoch: int) -> Point:
        return Point(epoch, 0, dict.fromkeys(self.owned, ShardState(0, None)))

    def keep(self, batch: BatchNumber, point: Point) -> None:
        """Keep the point before a batch."""
        self._recent.keep(batch, point)

    def before(self, batch: BatchNumber | None) -> SourceProgress:
        iteration, point = 0, self._beginning(0)  # of the next epoch, whose number does not matter here
        if batch is not None:
            known: Point | None = self._recent.get(batch)
            iteration, point = self.nearest(*batch) if known is None else (batch[1], known)
        dataset = self._dataset
        state = make_state(dataset.description, dataset.seed, dataset.shards, *point, self.rank)
        return SourceProgress(iteration, dataset=state)

    def restore(self, progress: SourceProgress) -> None:
        self._recent.clear()
        self._known = None
        if progress.has_state:
            checked = dataset_state(progress, self._dataset)
            point = Point(checked["epoch"], checked["position"], shard_states(checked, self.owned))
            self._known = progress.position, point


class ShardsFeed(MergingFeed):
    """Feed of a composed dataset in logical shards.

    Args:
        state: of the source.
        workers: the workers that compute the elements; none: this process does.
    """

    def __init__(self, plan: SourcePlan, pool: Pool, ahead: int, *, state: ShardsState, workers: Sequence[int]) -> None:
        super().__init__(plan, pool, ahead, parallel=bool(workers))
        self._state = state
        self._workers = workers

    def _begin_epoch(self, first: BatchKey) -> MergedEpoch:
        return _ShardsEpoch(self.pool, first, self._state, self._workers)


class _ShardsEpoch(MergedEpoch):
    """The steps of one epoch."""

    # Invariants
    # - Steps are merged in order. Each one answers the first request, or is left out, so no step is skipped.
    # - The position moves on behind a successful `submit` only. An interrupt during it leaves the step to the next call.

    def __init__(self, pool: Pool, first: BatchKey, state: ShardsState, workers: Sequence[int]) -> None:
        iteration, point = state.nearest(first.epoch, first.iteration)
        super().__init__(pool, first, num_dropped=first.iteration - iteration)
        self._state = state
        self._workers = workers
        self._epoch = point.epoch
        self._submitted = self._merged = point.position
        self._progress = ShardProgress(
            state.num_shards,
            state.owned,
            point.position,
            point.states,
            len(workers),
            is_shared=state.ends_in_map,
        )
        self._num_submitted = 0
        self._period = self._progress.period
        #: By the remainder of the first position: the places of each worker, packed.
        self._places: dict[int, dict[int, bytes]] = {}
        self._num_ended = 0
        #: For each worker, the states of its shards, packed, and their version.
        self._states: dict[int, tuple[int, bytes]] = {}

    @property
    def _step(self) -> int:
        """Positions of all ranks in a step."""
        return self._state.batch_size * self._state.rank.count

    def add(self, batch: Batch) -> None:
        try:
            super().add(batch)
        except BaseException:  # Ctrl-C in the source, in this process: the iteration will be requested again
            if batch in self.requests:
                self.requests.remove(batch)
            raise

    def answer(self, made: Batch) -> None:
        state, progress = self._state, self._progress
        outcome = self.outcome_of(made)
        self._merged += self._step
        if type(outcome) is list:  # else it is an exception, whose class may define `__class__`
            messages = (report.message for report in made.reports if report.message)
            answers = [PositionsAnswer([], [], [], *unpack_message(message)) for message in messages]
            if answers:
                progress.note(answers)
            if not made.size or (state.drops and made.size < state.batch_size):
                return
        if (request := self.deliver(outcome)) is not None:
            key = request.key
            if state.keeps:
                state.keep((key.epoch, key.iteration + 1), Point(self._epoch, self._merged, dict(progress.states)))

    def submit_missing(self) -> None:
        wanted = len(self.requests) - max(self.num_dropped - max(len(self._workers), 1), 0)
        while len(self.made) < wanted and not self._progress.is_at_end:
            key = self.requests[len(self.made)].key
            state, workers = self._state, self._workers
            positions = state.rank.stripe(self._submitted, state.batch_size)
            places = self._packed_places(positions)
            every = _STEPS_PER_STATE if workers else _STEPS_PER_LOCAL_STATE
            wants_states = state.keeps or self._num_submitted % every == 0
            parts = [
                pack_part(mine, self._packed_states(worker), wants_states=wants_states) for worker, mine in places.items()
            ]
            # A step that is left out lets later ones answer earlier requests. Still, turns must not decrease.
            turn = max(key.turn, self.made[-1].key.turn) if self.made else key.turn
            step = BatchKey(
                key.source,
                key.epoch,
                key.iteration,
                positions.start,
                key.size,
                key.worker,
                turn,
                pack_parts(parts),
                parts=state.batch_size + 1,
                owners=tuple([workers[number] for number in places]) if workers else (),
            )
            self.made.append(self.pool.submit(step))
            self._submitted += self._step
            self._num_submitted += 1
            if not self._workers and self.made[-1].outcome is not None:
                return  # without workers, it has been computed, and may be the end

    def _packed_places(self, positions: range) -> dict[int, bytes]:
        """Return the places of a batch that belong to each worker, as 64-bit integers. They repeat."""
        progress = self._progress
        remainder = positions.start % self._period
        if len(progress.ended) != self._num_ended:
            self._num_ended = len(progress.ended)
            self._places.clear()
        elif (known := self._places.get(remainder)) is not None:
            return known
        places = progress.places_by_worker(positions)
        packed = {worker: struct.pack(f"={len(mine)}q", *mine) for worker, mine in places.items()}
        if not progress.is_ahead and len(self._places) < _MOST_PATTERNS:
            self._places[remainder] = packed
        return packed

    def _packed_states(self, worker: int) -> bytes:
        """Return the latest known states of the shards of a worker."""
        version, text = self._states.get(worker, (-1, b""))
        if version != self._progress.version:
            known = self._progress.states
            states = {shard: known[shard] for shard in self._progress.shards_of(worker)}
            text = pickle.dumps(states, pickle.HIGHEST_PROTOCOL)
            self._states[worker] = self._progress.version, text
        return text

    def take_back(self, made: Batch) -> None:
        super().take_back(made)
        self._submitted -= self._step
