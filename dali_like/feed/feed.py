"""One source of a pipeline: which batches there are, and those in flight.

Runs in the main process. A plan is pure and knows no pool: it gives the key of any batch, and has the state from which
another process resumes. A feed begins the batches of a plan over a pool, for the iterations of `dali_like.feed.lockstep`.
"""

from __future__ import annotations

import abc
from bisect import insort
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dali_like.common.foreign_errors import is_a
from dali_like.engine.memory.batch_key import ANY_WORKER, BatchKey, Sizes
from dali_like.engine.pool.base import Pool
from dali_like.engine.pool.batch import Batch, Outcome, Output, result_of
from dali_like.feed.source_states import SourceState
from dali_like.feed.turns import Turns
from dali_like.sources.sharding import ALONE, Shard

if TYPE_CHECKING:
    from dali_like.feed.first_batches import FirstBatches


class SourcePlan:
    """The batches of one source: any batch of any epoch.

    Args:
        source: the number of the source in its pool.
        batch_size: samples in a full batch.
        worker: the only worker that can compute it, or ANY_WORKER.
        persists: whether an epoch begins where the previous one stopped. Then batches are counted through all epochs, which
            are epoch 0 to the source.
        sizes: the batches of an epoch of known length; None: full batches until StopIteration.
        shard: this process's share of the batches.
        batch: whether the source returns whole batches. Those are numbered across all shards.
        state: the state of the source; None: it has none.

    Attributes:
        takes_notes: whether `note` must be called.
    """

    def __init__(
        self,
        source: int,
        batch_size: int,
        *,
        worker: int = ANY_WORKER,
        persists: bool = False,
        sizes: Sizes | None = None,
        shard: Shard = ALONE,
        batch: bool = False,
        state: SourceState | None = None,
    ) -> None:
        self.source = source
        self.batch_size = batch_size
        self.worker = worker
        self.persists = persists
        self.sizes = sizes
        self.shard = shard
        self.batch = batch
        self.state = state
        self.takes_notes = state is not None and state.travels
        self._traveling = state if state is not None and state.travels else None

    def number(self, iteration: int) -> int:
        """Return the source's own number for the batch of an iteration."""
        return int(self.shard.batch(iteration)) if self.batch else iteration

    def key(self, epoch: int, iteration: int, turn: int) -> BatchKey:
        """Return the key of a batch. Size 0: the epoch ends before it.

        Args:
            turn: order of need among the batches of all sources.
        """
        size, sizes, shard = self.batch_size, self.sizes, self.shard
        if sizes is not None and iteration == sizes.num_batches - 1:
            size = sizes.last
        place = iteration * shard.count + shard.id  # as `Shard.batch`, without a call
        number = place if self.batch else iteration
        request = b"" if self._traveling is None else self._traveling.request(epoch)
        return BatchKey(self.source, epoch, number, place * self.batch_size, size, self.worker, turn, request)

    def note(self, batch: Batch) -> None:
        """Record that a batch has been taken, and the state that came with it."""
        if self._traveling is not None:
            self._traveling.note(batch)


class Feed:
    """Begins, hands out, keeps and cancels the batches of one source.

    Args:
        plan: the batches.
        pool: computes them.
        ahead: batches in progress while the user has one.
        parallel: whether beginning a batch costs the main process next to nothing.

    Attributes:
        plan, pool, ahead, parallel: as given.
        kept: batches of a source that persists, begun for an epoch that has ended before them, in order.
        num_begun: batches begun of a source that persists; 0 for others.
        num_delivered: batches delivered of a source that persists; 0 for others.
    """

    # An interrupt between `SourcePlan.key` and `submit` costs nothing: a plan can be asked for the same key again.
    #
    # Invariants between calls, for a source that persists
    # - A batch begun and not delivered is in one place: in an iteration of the lockstep, or in `kept`.
    # - `kept` is sorted, and used up before another batch is begun. So the user gets each batch once, and in order.
    # - `num_begun` counts a batch once the pool has taken it: Ctrl-C in a source of the main process begins nothing, and the
    #   next `begin` asks for the same batch.
    # For other sources both counts stay 0, and `kept` stays empty.

    def __init__(self, plan: SourcePlan, pool: Pool, ahead: int, *, parallel: bool) -> None:
        self.plan = plan
        self.pool = pool
        self.ahead = ahead
        self.parallel = parallel
        self.kept: list[Batch] = []
        self.num_begun = self.num_delivered = 0

    def begin(self, epoch: int, iteration: int, turn: int) -> Batch:
        """Begin the batch of an iteration, or return the first kept one; see `SourcePlan.key`."""
        plan = self.plan
        if not plan.persists:
            return self._submit(plan.key(epoch, iteration, turn))
        if self.kept:
            return self.kept.pop(0)
        batch = self._submit(plan.key(0, self.num_begun, turn))
        self.num_begun += 1
        return batch

    def _submit(self, key: BatchKey) -> Batch:
        if key.size:
            return self.pool.submit(key)
        batch = Batch(key)
        batch.outcome = StopIteration()
        return batch

    def poll(self) -> None:
        """Process the batches that the pool has completed."""

    def take(self, batch: Batch) -> Sequence[Output]:
        """Wait for a batch and return its outputs.

        Raises:
            StopIteration: the epoch ends before it.
            Exception: the exception of the callback, which is the batch's outcome; any other is the pool's.
        """
        outputs = self.pool.wait(batch)
        if self.plan.takes_notes:
            self.plan.note(batch)
        return outputs

    def compute(self, batch: Batch) -> None:
        """Wait for a batch and let the plan note it, without taking it.

        Raises:
            Exception: of the pool. An exception of the callback becomes the outcome of the batch.
        """
        try:
            self.take(batch)
        except Exception as error:
            if batch.outcome is not error and not is_a(error, StopIteration):
                raise

    def cancel(self, batch: Batch) -> None:
        """Give a batch up."""
        if batch.key.size:
            self.pool.cancel(batch)

    def keep(self, batch: Batch) -> None:
        """Keep a batch of a source that persists for the next epoch."""
        insort(self.kept, batch, key=_iteration_of)

    def put_back(self, outputs: Sequence[Output]) -> None:
        """Undo the last delivery, if the source persists. The batch is delivered again."""
        if self.plan.persists:
            self.num_delivered -= 1
            plan = self.plan
            batch = Batch(BatchKey(plan.source, 0, plan.number(self.num_delivered), 0, plan.batch_size))
            batch.outcome = outputs
            self.kept.insert(0, batch)

    def go_to(self, delivered: int, *, is_restored: bool) -> None:
        """Let a source that persists continue behind so many batches.

        Args:
            is_restored: whether the source has restored its own state to that position.
        """
        if not self.plan.persists:
            return
        first = self.plan.number(delivered)
        self.kept = [] if is_restored else [batch for batch in self.kept if batch.key.iteration >= first]
        self.num_begun = delivered if is_restored else max(self.num_begun, delivered)
        self.num_delivered = delivered


class MergingFeed(Feed, abc.ABC):
    """Feed of a source whose batches are requests: batches of the pool answer them."""

    # A request is never submitted to the pool. It is answered in `poll`, in `take`, or when it is begun.

    def __init__(self, plan: SourcePlan, pool: Pool, ahead: int, *, parallel: bool = True) -> None:
        super().__init__(plan, pool, ahead, parallel=parallel)
        self._epochs: dict[int, MergedEpoch] = {}

    @property
    def has_begun(self) -> bool:
        """Whether a batch has been begun."""
        return bool(self._epochs)

    @abc.abstractmethod
    def _begin_epoch(self, first: BatchKey) -> MergedEpoch:
        """Return the epoch of the first requested batch."""

    def _submit(self, key: BatchKey) -> Batch:
        epoch = self._epochs.get(key.epoch)
        if epoch is None:
            # Earlier epochs have ended. They are kept only while one of their batches is unanswered.
            self._epochs = {number: epoch for number, epoch in self._epochs.items() if epoch.requests}
            epoch = self._epochs[key.epoch] = self._begin_epoch(key)
        batch = Batch(key)
        epoch.add(batch)
        return batch

    def poll(self) -> None:
        for epoch in self._epochs.values():
            epoch.merge()

    def take(self, batch: Batch) -> Sequence[Output]:
        self.poll()
        while batch.outcome is None:
            self._epochs[batch.key.epoch].wait_for_next()
        return result_of(batch)

    def cancel(self, batch: Batch) -> None:
        if batch.key.epoch in self._epochs:
            self._epochs[batch.key.epoch].cancel(batch)
        batch.outcome = None

    def forget(self) -> None:
        """Return to the initial state. All begun batches must have been cancelled."""
        self._epochs.clear()


class MergedEpoch(abc.ABC):
    """The requests of one epoch, and the batches of the pool that will answer them, in order.

    An epoch that begins in the middle also computes some batches before, and drops them.

    Args:
        first: the first requested batch.
        num_dropped: the number of batches that are dropped.

    Attributes:
        requests: those without an outcome.
        made: the batches of the pool that have not been merged.
        num_dropped: how many batches are still to be dropped.
    """

    def __init__(self, pool: Pool, first: BatchKey, num_dropped: int) -> None:
        self.pool = pool
        self.requests: deque[Batch] = deque(Batch(first) for _ in range(num_dropped))
        self.made: deque[Batch] = deque()
        self.num_dropped = num_dropped

    @abc.abstractmethod
    def answer(self, made: Batch) -> None:
        """Answer the first request with a batch of the pool, which is complete, or leave that out."""

    @abc.abstractmethod
    def submit_missing(self) -> None:
        """Submit batches to the pool for the requests that have none."""

    def add(self, batch: Batch) -> None:
        """Request a batch."""
        self.requests.append(batch)
        self.submit_missing()
        self.merge()

    def merge(self) -> None:
        """Answer requests with the batches that are complete."""
        while self.requests and (not self.made or self.made[0].outcome is not None):
            if not self.made:
                self.requests.popleft().outcome = StopIteration()
                continue
            made = self.made.popleft()
            try:
                self.answer(made)
            except BaseException:  # the pool has failed, or Ctrl-C: the batch is still to be merged
                self.made.appendleft(made)
                raise
            self.submit_missing()

    def deliver(self, outcome: Outcome) -> Batch | None:
        """Answer the first request. Return it, unless it is dropped."""
        request = self.requests.popleft()
        request.outcome = outcome
        if not self.num_dropped:
            return request
        self.num_dropped -= 1
        return None

    def wait_for_next(self) -> None:
        """Wait for the first batch that has not been merged.

        Raises:
            Exception: the pool has failed. An exception of the source becomes the outcome of its batch.
        """
        made = self.made[0]
        try:
            self.pool.wait(made)
        except BaseException as error:
            if made.outcome is not error:
                raise
        self.merge()

    def outcome_of(self, made: Batch) -> Outcome:
        """Return the outputs of a complete batch, or the exception of its source."""
        try:
            return self.pool.wait(made)
        except Exception as error:
            if made.outcome is not error:
                raise
            return error

    def cancel(self, batch: Batch) -> None:
        """Drop a request."""
        if batch in self.requests:
            self.requests.remove(batch)
            while len(self.made) > len(self.requests):
                self.take_back(self.made.pop())

    def take_back(self, made: Batch) -> None:
        """Cancel the last batch that was submitted."""
        self.pool.cancel(made)


class TurnsFeed(MergingFeed):
    """Feed of a source that is an iterable in each worker: merges their batches, in the order of `dali_like.feed.turns`."""

    def __init__(self, plan: SourcePlan, pool: Pool, ahead: int, *, num_workers: int, name: str = "the source") -> None:
        from dali_like.feed.first_batches import FirstBatches  # it takes hashlib, and with it OpenSSL

        super().__init__(plan, pool, ahead)
        self._num_workers = num_workers
        self._first_batches = FirstBatches(num_workers, name)

    def _begin_epoch(self, first: BatchKey) -> MergedEpoch:
        return _TurnsEpoch(self.pool, self._num_workers, first, self._first_batches)


class _TurnsEpoch(MergedEpoch):
    """The batches of one epoch.

    Requested batches are numbered without gaps; shards end anywhere. So each shard batch, in turn, answers the next request,
    unless it turns out to be the end of its shard. An epoch that begins in the middle also computes all batches before: only
    they show which shards have ended.

    Args:
        first: the first requested batch.
        first_batches: compares the first batches of the workers.
    """

    def __init__(self, pool: Pool, num_workers: int, first: BatchKey, first_batches: FirstBatches) -> None:
        super().__init__(pool, first, num_dropped=first.iteration)
        self._num_workers = num_workers
        self._first_batches = first_batches
        self._ended: list[int] = []
        self._turns = Turns([0] * num_workers, 0, self._ended)

    def answer(self, made: Batch) -> None:
        if type(made.outcome) is StopIteration:
            self._end(made.key.worker)
            return
        outcome = self.outcome_of(made)
        if not self._first_batches.is_done and type(outcome) is list:
            # Row by row: until shapes are known, the samples of a batch are not in one array.
            first_rows = [list(output[: self._first_batches.num_rows]) for output in outcome]
            self._first_batches.note(made.key.worker, first_rows)
        self.deliver(outcome)

    def submit_missing(self) -> None:
        # Of the batches that will be dropped, one for each worker at a time.
        wanted = len(self.requests) - max(self.num_dropped - self._num_workers, 0)
        while len(self.made) < wanted and (waiting := self._turns.waiting()):
            self._submit(waiting[0], self.requests[len(self.made)].key)

    def _submit(self, worker: int, key: BatchKey) -> None:
        number = self._turns.take(worker)
        # A shard that ends lets later batches answer earlier requests. Still, a worker's turns must not decrease.
        turn = max(key.turn, self.made[-1].key.turn) if self.made else key.turn
        shard_key = key._replace(iteration=number, first_sample=number * key.size, worker=worker, turn=turn)
        self.made.append(self.pool.submit(shard_key))

    def _end(self, worker: int) -> None:
        """Leave out a worker whose shard has ended, and drop its batches behind that end."""
        self._ended.append(worker)
        for batch in [batch for batch in self.made if batch.key.worker == worker]:
            self.made.remove(batch)
            self.pool.cancel(batch)


def _iteration_of(batch: Batch) -> Any:
    return batch.key.iteration
