"""What sources advance by together: a feed is one of them, a step an iteration of all, a position how far they have come."""

from __future__ import annotations

from typing import NamedTuple

from dali_like.engine.memory.batch_key import ANY_WORKER, Sizes
from dali_like.engine.pool.base import Pool
from dali_like.engine.pool.batch import Batch
from dali_like.sources.sharding import ALONE, Shard


class Feed(NamedTuple):
    """One source: the pool that computes it, its number there, and how far ahead.

    Attributes:
        ahead: batches that are on their way while the user has one.
        parallel: whether submitting costs the main process next to nothing. Where it does for all sources, one batch more is
            on its way while the user waits.
        worker: the only one that can compute it, or ANY_WORKER.
        persists: whether an epoch begins where the one before has left off.
        sizes: how many samples the batches of an epoch have; None: full ones, until StopIteration.
        shard: which of the batches are this process's.
        batch: whether it makes whole batches, which are numbered through all shards; of samples, positions are.
    """

    pool: Pool
    source: int
    ahead: int
    parallel: bool
    worker: int = ANY_WORKER
    persists: bool = False
    sizes: Sizes | None = None
    shard: Shard = ALONE
    batch: bool = False

    def number(self, iteration: int) -> int:
        """How the source calls the batch of an iteration."""
        return int(self.shard.batch(iteration)) if self.batch else iteration


class Position(NamedTuple):
    """How far a pipeline has come.

    Attributes:
        epoch, iteration: of the batch that is delivered next.
        passed: for each source that goes on from epoch to epoch, how many batches have been taken from it; 0 for others.
    """

    epoch: int
    iteration: int
    passed: tuple[int, ...]


#: Where an epoch ends: before an iteration, or within it; or neither is known. Members of an enumeration take longer.
BEFORE, WITHIN, UNKNOWN = range(3)


class Iteration:
    """One iteration."""

    def __init__(self, epoch: int, iteration: int, turn: int, num_sources: int, *, is_beyond: bool) -> None:
        self.epoch = epoch
        self.iteration = iteration
        self.turn = turn
        self.batches: list[Batch | None] = [None] * num_sources
        self.is_beyond = is_beyond  # behind an end that is known without asking
        self.is_submitted = is_beyond

    @property
    def complete(self) -> bool:
        for batch in self.batches:  # noqa: SIM110  # a generator would take three times as long, here and below
            if batch is None or batch.outcome is None:
                return False
        return True

    @property
    def end(self) -> int:
        """Where a source is known to have ended."""
        end = BEFORE if self.is_beyond else UNKNOWN
        for batch in self.batches:
            if batch is not None:
                if batch.outcome.__class__ is StopIteration:
                    return BEFORE
                if batch.is_last and end == UNKNOWN:
                    end = WITHIN
        return end

    def may_end(self) -> bool:
        """Whether a source is known to have ended."""
        if self.is_beyond:
            return True
        for batch in self.batches:
            if batch is not None and (batch.is_last or batch.outcome.__class__ is StopIteration):
                return True
        return False

    def empty(self) -> None:
        """Forget the batches: the epoch has ended before."""
        self.batches = [None] * len(self.batches)
        self.is_beyond = self.is_submitted = True
