"""A source that runs in every worker, each with a shard of its own: their batches, merged in a fixed order.

The order is that of PyTorch's DataLoader: one batch of each worker in turn, leaving out those that have ended. It depends on
the shards alone, not on which worker is faster.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from dali_like.engine.memory.batch_key import BatchKey
from dali_like.engine.pool.base import Pool, result_of
from dali_like.engine.pool.batch import Batch, Outcome, Output


class ShardsPool:
    """Makes the batches of one source of shards. See `dali_like.engine.pool.base.Pool`.

    Args:
        pool: of the workers.
        num_workers: how many shards there are.
    """

    def __init__(self, pool: Pool, num_workers: int) -> None:
        self._pool = pool
        self._num_workers = num_workers
        self._epochs: dict[int, _Epoch] = {}

    def submit(self, key: BatchKey) -> Batch:
        epoch = self._epochs.get(key.epoch)
        if epoch is None:
            # Those before have ended; what has been asked of them is answered, or will be.
            self._epochs = {number: epoch for number, epoch in self._epochs.items() if epoch.is_asked}
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
        """Whether anything has been asked for."""
        return bool(self._epochs)

    def forget(self) -> None:
        """Be as if nothing had been asked for. What has been must be cancelled."""
        self._epochs.clear()


class _Epoch:
    """The batches of one epoch.

    Those asked for are numbered without gaps, those of the shards end anywhere. So the next of the shards' batches, in
    turn, is the next that is asked for, unless it turns out to be the end of its shard. Where an epoch begins in the middle,
    those before it are made and dropped: nothing else tells which shards have ended there.

    Args:
        first: the first batch that is asked for.
    """

    def __init__(self, pool: Pool, num_workers: int, first: BatchKey) -> None:
        self._pool = pool
        self._num_workers = num_workers
        self._turns = deque((worker, 0) for worker in range(num_workers))
        self._begun: deque[Batch] = deque()
        self._num_dropped = first.iteration
        self._asked: deque[Batch] = deque(Batch(first) for _ in range(first.iteration))

    @property
    def is_asked(self) -> bool:
        """Whether somebody waits for a batch."""
        return bool(self._asked)

    def add(self, batch: Batch) -> None:
        """Ask for a batch."""
        self._asked.append(batch)
        self._begin_missing()
        self.merge()

    def merge(self) -> None:
        """Give what the shards have made to those who have asked."""
        while self._asked and (not self._begun or self._begun[0].outcome is not None):
            if not self._begun:
                self._asked.popleft().outcome = StopIteration()
                continue
            made = self._begun.popleft()
            if isinstance(made.outcome, StopIteration):
                self._end(made.key.worker)
            else:
                self._asked.popleft().outcome = self._outcome_of(made)
                self._num_dropped = max(self._num_dropped - 1, 0)
            self._begin_missing()

    def wait_for_next(self) -> None:
        """Wait until the shard whose turn it is has made its batch.

        Raises:
            Exception: the pool cannot go on. What the source has raised is the batch's outcome.
        """
        made = self._begun[0]
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
        """Forget a batch."""
        if batch in self._asked:
            self._asked.remove(batch)
            while len(self._begun) > len(self._asked):
                self._pool.cancel(self._begun.pop())

    def _begin_missing(self) -> None:
        # Of those that will be dropped, no more than keep everybody busy.
        wanted = len(self._asked) - max(self._num_dropped - self._num_workers, 0)
        while self._turns and len(self._begun) < wanted:
            self._begin(self._asked[len(self._begun)].key)

    def _begin(self, key: BatchKey) -> None:
        worker, number = self._turns.popleft()
        self._turns.append((worker, number + 1))
        # It may answer an earlier call than it would have, since a shard has ended. But a shard can only go forward.
        turn = max(key.turn, self._begun[-1].key.turn) if self._begun else key.turn
        shard_key = key._replace(iteration=number, first_sample=number * key.size, worker=worker, turn=turn)
        self._begun.append(self._pool.submit(shard_key))

    def _end(self, worker: int) -> None:
        """A shard has ended: what was begun of it behind its end is nothing."""
        self._turns = deque(turn for turn in self._turns if turn[0] != worker)
        for batch in [batch for batch in self._begun if batch.key.worker == worker]:
            self._begun.remove(batch)
            self._pool.cancel(batch)
