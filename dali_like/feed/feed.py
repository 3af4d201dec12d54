"""The `Feed` of a loader's iterator: begins the batches of a plan over a pool. Runs in the main process.

Sources of pipelines have the feeds of `dali_like.feed.source_feed`, which begin the batches of given iterations.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from dali_like.engine.memory.batch_key import BatchKey
from dali_like.engine.pool.batch import Batch


class Plan(Protocol):
    """Says which batches there are, in order. Knows no pool."""

    def begin(self, turn: int) -> BatchKey:
        """Return the key of the next batch.

        Args:
            turn: order of need among all batches of the pool.

        Raises:
            StopIteration: there are no more batches.
            Exception: the error of a user's sampler.
        """


class Computes(Protocol):
    """The part of a pool that a feed requires."""

    def submit(self, key: BatchKey) -> Batch:
        """Begin a batch."""

    def cancel(self, batch: Batch) -> None:
        """Give a batch up."""


class Feed:
    """Keeps batches of one plan in flight.

    Args:
        plan: says which batches there are.
        pool: computes them.

    Attributes:
        pending: the batches that have been begun and not taken, in the order of the plan.
        is_exhausted: whether the plan has said that there are no more batches.
    """

    # Invariants between calls
    # - Each batch that the plan has begun is in `pending` exactly once, until the iterator takes it, or it is cancelled.
    # - The plan is asked for a batch only if that batch is submitted next: a batch drawn from a sampler and not submitted
    #   would be lost. So `begin` appends it before anything else can raise. The caller's lock defers Ctrl-C, except while
    #   the plan draws from the user's sampler, which then has not yielded.

    def __init__(self, plan: Plan, pool: Computes) -> None:
        self.plan = plan
        self.pool = pool
        self.pending: deque[Batch] = deque()
        self.is_exhausted = False

    def begin(self, turn: int) -> Batch:
        """Begin the next batch of the plan.

        Raises:
            StopIteration: there are no more batches. Then `is_exhausted` is true.
            Exception: the error of a user's sampler. Then `is_exhausted` is true, too.
        """
        try:
            key = self.plan.begin(turn)
        except Exception:
            self.is_exhausted = True
            raise
        batch = self.pool.submit(key)
        self.pending.append(batch)
        return batch

    def cancel(self) -> None:
        """Cancel all pending batches."""
        while self.pending:
            self.pool.cancel(self.pending.pop())

    def begin_again(self, place: int, key: BatchKey) -> None:
        """Begin a batch that was taken anew, with another key, at a place among the pending ones."""
        self.pending.insert(place, self.pool.submit(key))
