"""Merges the batches of a sharded source: each worker walks through an iterable of its own.

Runs in the main process. The order of the merged batches is that of `dali_like.feed.turns`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from dali_like.engine.memory.batch_key import BatchKey
from dali_like.engine.pool.base import Pool, result_of
from dali_like.engine.pool.batch import Batch, Outcome, Output
from dali_like.feed.turns import Turns


class ShardsPool:
    """Computes the batches of one sharded source; see `dali_like.engine.pool.base.Pool`.

    Args:
        pool: of the workers.
        num_workers: the number of shards.
    """

    def __init__(self, pool: Pool, num_workers: int) -> None:
        self._pool = pool
        self._num_workers = num_workers
        self._epochs: dict[int, _Epoch] = {}

    def submit(self, key: BatchKey) -> Batch:
        epoch = self._epochs.get(key.epoch)
        if epoch is None:
            # Earlier epochs have ended. They are kept only while one of their batches is unanswered.
            self._epochs = {number: epoch for number, epoch in self._epochs.items() if epoch.has_requests}
            epoch = self._epochs[key.epoch] = _Epoch(self._pool, self._num_workers, key)
        batch = Batch(key)
        epoch.add(batch)
        return batch

    def poll(self) -> None:
        self._pool.poll()
        for epoch in self._epochs.values():
            epoch.merge()

    def wait(self, batch: Batch) -> Sequence[Output]:
        self.poll()
        while batch.outcome is None:
            self._epochs[batch.key.epoch].wait_for_next()
        return result_of(batch)

    def cancel(self, batch: Batch) -> None:
        if batch.key.epoch in self._epochs:
            self._epochs[batch.key.epoch].cancel(batch)
        batch.outcome = None

    def close(self) -> None:
        self.forget()

    @property
    def has_begun(self) -> bool:
        """Whether a batch has been submitted."""
        return bool(self._epochs)

    def forget(self) -> None:
        """Return to the initial state. All submitted batches must have been cancelled."""
        self._epochs.clear()


class _Epoch:
    """The batches of one epoch.

    Requested batches are numbered without gaps; shards end anywhere. So each shard batch, in turn, answers the next request,
    unless it turns out to be the end of its shard. An epoch that begins in the middle also computes the batches before, and
    drops them: only they show which shards have ended.

    Args:
        first: the first requested batch.
    """

    def __init__(self, pool: Pool, num_workers: int, first: BatchKey) -> None:
        self._pool = pool
        self._num_workers = num_workers
        self._ended: list[int] = []
        self._turns = Turns([0] * num_workers, 0, self._ended)
        self._shard_batches: deque[Batch] = deque()
        self._num_dropped = first.iteration
        self._requests: deque[Batch] = deque(Batch(first) for _ in range(first.iteration))

    @property
    def has_requests(self) -> bool:
        """Whether a requested batch has no outcome yet."""
        return bool(self._requests)

    def add(self, batch: Batch) -> None:
        """Request a batch."""
        self._requests.append(batch)
        self._submit_missing()
        self.merge()

    def merge(self) -> None:
        """Answer requests with the shard batches that are complete."""
        while self._requests and (not self._shard_batches or self._shard_batches[0].outcome is not None):
            if not self._shard_batches:
                self._requests.popleft().outcome = StopIteration()
                continue
            made = self._shard_batches.popleft()
            if type(made.outcome) is StopIteration:
                self._end(made.key.worker)
            else:
                self._requests.popleft().outcome = self._outcome_of(made)
                self._num_dropped = max(self._num_dropped - 1, 0)
            self._submit_missing()

    def wait_for_next(self) -> None:
        """Wait for the shard whose turn it is.

        Raises:
            Exception: the pool has failed. An exception of the source becomes the outcome of its batch.
        """
        made = self._shard_batches[0]
        try:
            self._pool.wait(made)
        except BaseException as error:
            if made.outcome is not error:
                raise
        self.merge()

    def _outcome_of(self, made: Batch) -> Outcome:
        try:
            return self._pool.wait(made)
        except Exception as error:
            if made.outcome is not error:
                raise
            return error

    def cancel(self, batch: Batch) -> None:
        """Drop a request."""
        if batch in self._requests:
            self._requests.remove(batch)
            while len(self._shard_batches) > len(self._requests):
                self._pool.cancel(self._shard_batches.pop())

    def _submit_missing(self) -> None:
        # Of the batches that will be dropped, one for each worker at a time.
        wanted = len(self._requests) - max(self._num_dropped - self._num_workers, 0)
        while len(self._shard_batches) < wanted and (waiting := self._turns.waiting()):
            self._submit(waiting[0], self._requests[len(self._shard_batches)].key)

    def _submit(self, worker: int, key: BatchKey) -> None:
        number = self._turns.take(worker)
        # A shard that ends lets later batches answer earlier requests. Still, a worker's turns must not decrease.
        turn = max(key.turn, self._shard_batches[-1].key.turn) if self._shard_batches else key.turn
        shard_key = key._replace(iteration=number, first_sample=number * key.size, worker=worker, turn=turn)
        self._shard_batches.append(self._pool.submit(shard_key))

    def _end(self, worker: int) -> None:
        """Leave out a worker whose shard has ended, and drop its batches behind that end."""
        self._ended.append(worker)
        for batch in [batch for batch in self._shard_batches if batch.key.worker == worker]:
            self._shard_batches.remove(batch)
            self._pool.cancel(batch)
