"""The `Feed`: begins the batches of a plan over a pool, and hands them out. Runs in the main process."""

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

    def note(self, batch: Batch) -> None:
        """Record that a batch with an outcome has been taken: the position, and the state that came with it."""


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
    # - Each batch that the plan has begun is in `pending` exactly once, until it is taken or cancelled.
    # - The plan is asked for a batch only if that batch is submitted next: a batch drawn from a sampler and not submitted
    #   would be lost. So `begin` appends it before anything else can raise. The caller's lock defers Ctrl-C, except while
    #   the plan draws from the user's sampler, which then has not yielded.
    # - The plan notes batches in the order in which they are taken. With `take` in order, that is the order of the plan.

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

    def begin_again(self, place: int, key: BatchKey) -> None:
        """Begin a batch that was taken anew, with another key, at a place among the pending ones."""
        self.pending.insert(place, self.pool.submit(key))
