"""What has happened in a loader, whoever has worked for it."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from itertools import zip_longest
from typing import NamedTuple, Protocol

from dali_like.engine.pool.pool import WorkerPool
from dali_like.engine.worker.meters import Meter, Reading
from dali_like.monitor.loops import LoopMeter


class Counts(NamedTuple):
    """What has happened among the workers of a loader.

    Attributes:
        restarts: how often one that had died was replaced.
        replaced: samples that were replaced.
        batches, made_bytes: what they have made.
        waited_ns: how long the loop has slept until one of them reported.
        alive_s: for how long they have been there.
        readings: of each worker.
    """

    restarts: int = 0
    replaced: int = 0
    batches: int = 0
    made_bytes: int = 0
    waited_ns: int = 0
    alive_s: float = 0.0
    readings: tuple[Reading, ...] = ()

    def plus(self, other: Counts) -> Counts:
        """These and others together."""
        pairs = zip_longest(self.readings, other.readings, fillvalue=Reading())
        return Counts(
            self.restarts + other.restarts,
            self.replaced + other.replaced,
            self.batches + other.batches,
            self.made_bytes + other.made_bytes,
            self.waited_ns + other.waited_ns,
            self.alive_s + other.alive_s,
            tuple(mine + others for mine, others in pairs),
        )


class Counting(Protocol):
    """Workers that count."""

    @property
    def counts(self) -> Counts:
        """What has happened; nothing once it has been added to the counters."""

    @property
    def pool(self) -> WorkerPool:
        """What they belong to."""

    @property
    def pids(self) -> Sequence[int]:
        """Of each worker; 0 for those that have not started, or have ended."""

    @property
    def held_bytes(self) -> int:
        """Memory behind their batches."""


class LoaderCounters:
    """What has happened in a loader: among workers that have ended, by sum; among those that have not, by asking them.

    Attributes:
        loop: measures the loop that asks for batches.
        meter: measures the dataset where there are no workers.
        samples: how many have been asked for, in batches that were begun.
        batches, replaced: the batches that were made without workers, and how many samples were replaced in them.
    """

    def __init__(self) -> None:
        self.loop = LoopMeter()
        self.meter = Meter()
        self.samples = self.batches = self.replaced = 0
        self._counts = Counts()
        self._counting: weakref.WeakSet[Counting] = weakref.WeakSet()

    def watch(self, workers: Counting) -> None:
        """Ask these, too, until they have been dropped."""
        self._counting.add(workers)

    def add(self, counts: Counts) -> None:
        """Take note of counts for good. Finalizers may call this."""
        self._counts = self._counts.plus(counts)

    @property
    def worker_sets(self) -> list[Counting]:
        """Those that are asked."""
        return list(self._counting)

    def total(self, worker_sets: Sequence[Counting]) -> Counts:
        """All so far: with what some worker_sets say now."""
        counts = Counts(0, self.replaced, self.batches)
        for each in (self._counts, *(workers.counts for workers in worker_sets)):
            counts = counts.plus(each)
        return counts
