"""What has happened in a loader, whoever has worked for it."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import NamedTuple, Protocol

from dali_like.monitor.gathering import loop_statistics, measured, seconds_since, worker_statistics
from dali_like.monitor.loops import LoopMeter
from dali_like.monitor.statistics import RingStatistics, Settings, SourceStatistics, Statistics
from dali_like.workers.meters import Meter, Reading


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
        """What has happened; nothing once it has been added to the tally."""

    @property
    def ring(self) -> RingStatistics:
        """Where their batches lie."""

    @property
    def pids(self) -> Sequence[int]:
        """Of each worker; 0 for those that have not started, or have ended."""

    @property
    def held_bytes(self) -> int:
        """Memory behind their batches."""


class Tally:
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

    def total(self, settings: Settings, source: SourceStatistics) -> Statistics:
        """All so far.

        Args:
            source: the dataset, without what has been counted.
        """
        crews = list(self._counting)
        counts = Counts(0, self.replaced, self.batches)
        for each in (self._counts, *(crew.counts for crew in crews)):
            counts = counts.plus(each)
        at_work = next((crew for crew in crews if any(crew.pids)), None)
        source = replace(
            source,
            place="workers" if counts.readings else "main process",
            batches=counts.batches,
            samples=self.samples,
            made_bytes=counts.made_bytes,
            ring=RingStatistics() if at_work is None else at_work.ring,
        )
        return Statistics(
            seconds=seconds_since(self.loop.begin_ns),
            settings=settings,
            loop=loop_statistics(self.loop, counts.waited_ns),
            sources=(measured(source, (self.meter.reading, *counts.readings)),),
            workers=worker_statistics([counts.readings], () if at_work is None else at_work.pids, counts.alive_s),
            worker_restarts=counts.restarts,
            replaced_samples=counts.replaced,
            held_bytes=sum(crew.held_bytes for crew in crews),
        )
