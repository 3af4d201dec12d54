"""Counters of a loader over all its iterators, and the statistics made of them.

The main process owns the counters. Workers add their counts when they end. The counts of running workers are read
on request.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from dali_like.common.user_objects import method_of
from dali_like.engine.worker.meters import Meter, Reading, seconds_since
from dali_like.monitor.measure.loops import LoopMeter
from dali_like.sources.composed import is_composed

if TYPE_CHECKING:
    from dali_like.data.loader_workers import LoaderWorkers
    from dali_like.data.options import LoaderOptions
    from dali_like.data.position_sampler import PositionSampler
    from dali_like.device.copier import CopyTotals
    from dali_like.engine.pool.settings import ChosenSettings
    from dali_like.engine.pool.tuner import Tuner
    from dali_like.monitor.measure.statistics import BalanceStatistics, Settings, Statistics

#: Batches whose origins the program can ask for.
_NUM_RECENT = 8


class Counts(NamedTuple):
    """Counts of the workers of a loader.

    Attributes:
        restarts: number of replacements of dead workers.
        oom_kills: number of workers that the kernel has killed for lack of memory.
        replaced: number of samples that were replaced after an error.
        batches, made_bytes: number and size of the finished batches.
        waited_ns: time that the main process has waited for reports.
        alive_s: time since the first sample.
        readings: the meter of each worker.
    """

    restarts: int = 0
    oom_kills: int = 0
    replaced: int = 0
    batches: int = 0
    made_bytes: int = 0
    waited_ns: int = 0
    alive_s: float = 0.0
    readings: tuple[Reading, ...] = ()

    def plus(self, other: Counts) -> Counts:
        """Return the sums."""
        pairs = zip_longest(self.readings, other.readings, fillvalue=Reading())
        return Counts(
            restarts=self.restarts + other.restarts,
            oom_kills=self.oom_kills + other.oom_kills,
            replaced=self.replaced + other.replaced,
            batches=self.batches + other.batches,
            made_bytes=self.made_bytes + other.made_bytes,
            waited_ns=self.waited_ns + other.waited_ns,
            alive_s=self.alive_s + other.alive_s,
            readings=tuple(reading + other_reading for reading, other_reading in pairs),
        )


class LoaderCounters:
    """Counters of a loader.

    Attributes:
        loop: measures the program's loop over the batches.
        meter: measures the dataset in the main process, without workers.
        samples: number of samples in the batches that were begun.
        batches: number of batches made without workers; with logical shards, of all batches.
        replaced: number of samples replaced in these.
        copies: totals of the copies to a device; None without.
        recent: the identities of the latest batches that the program has got, and their keys: a `BatchKey` for one of
            workers. Without workers, the keys of the samples, or a `dali_like.feed.shards.PositionsRequest`.
    """

    copies: CopyTotals | None = None

    def __init__(self) -> None:
        self.loop = LoopMeter()
        self.meter = Meter()
        self.samples = self.batches = self.replaced = 0
        self._ended = Counts()
        self.recent: deque[tuple[int, Any]] = deque(maxlen=_NUM_RECENT)
        self._running: weakref.WeakSet[LoaderWorkers] = weakref.WeakSet()

    def watch(self, workers: LoaderWorkers) -> None:
        """Include the counts of these workers for as long as they exist."""
        self._running.add(workers)

    def add(self, counts: Counts) -> None:
        """Add the counts of workers that have ended. Finalizers may call this."""
        self._ended = self._ended.plus(counts)

    @property
    def worker_sets(self) -> list[LoaderWorkers]:
        """The workers that exist, of all iterators."""
        return list(self._running)

    def total(self, worker_sets: Sequence[LoaderWorkers]) -> Counts:
        """Return all counts so far, including the counts of given workers that exist."""
        counts = Counts(replaced=self.replaced, batches=self.batches)
        for each in (self._ended, *(workers.counts for workers in worker_sets)):
            counts = counts.plus(each)
        return counts


def statistics_of(counters: LoaderCounters, options: LoaderOptions, tuner: Tuner | None, *, memory: bool) -> Statistics:
    """Return the statistics of a loader. Any thread may call this.

    Args:
        tuner: chooses the arguments given as "auto"; None without.
        memory: whether to read the memory use of the processes.
    """
    from dali_like.monitor.measure.gathering import (  # programs without statistics do not import them
        cacheable_bytes,
        copy_statistics,
        load_average,
        loop_statistics,
        measured,
        ring_statistics,
        worker_statistics,
    )
    from dali_like.monitor.measure.process_memory import memory_of
    from dali_like.monitor.measure.statistics import RingStatistics, SourceStatistics, Statistics
    from dali_like.sources.caching.element_cache import caches_of
    from dali_like.sources.travel.introspection import large_containers

    worker_sets = counters.worker_sets
    counts = counters.total(worker_sets)
    running = next((workers for workers in worker_sets if any(workers.pids)), None)
    copies = options.num_workers != 0 and options.backend.copies_objects
    caches = tuple(cache.statistics() for cache in caches_of(options.dataset))
    dataset = SourceStatistics(
        f"dataset {type(options.dataset).__qualname__}",
        unit="batch" if options.batched and not options.gathers and method_of(options.dataset, "__getitems__") else "sample",
        place="workers" if counts.readings else "main process",
        batches=counters.batches if options.is_sharded else counts.batches,  # workers have parts of batches then
        samples=counters.samples,
        concurrency=options.num_reads if options.num_reads > 1 else 0,
        made_bytes=counts.made_bytes,
        logical_shards=_shards_of_one_worker(options),
        ring=RingStatistics() if running is None else ring_statistics(running.pool.assemblers[0], running.pool, 0),
        large_containers=tuple(found.text for found in large_containers(options.dataset, "dataset")) if copies else (),
        caches=caches,
        balance=_balance_of(options),
        cacheable_bytes=0 if caches else cacheable_bytes(_length_of(options.dataset), counts.made_bytes, counters.samples),
    )
    statistics = Statistics(
        seconds=seconds_since(counters.loop.begin_ns),
        settings=_settings_of(options, None if tuner is None else tuner.settings),
        loop=loop_statistics(counters.loop, counts.waited_ns),
        sources=(measured(dataset, (counters.meter.reading, *counts.readings)),),
        workers=worker_statistics([counts.readings], () if running is None else running.pids, counts.alive_s),
        worker_restarts=counts.restarts,
        oom_kills=counts.oom_kills,
        replaced_samples=counts.replaced,
        copies=copy_statistics(counters.copies),
        held_bytes=sum(workers.held_bytes for workers in worker_sets),
        cpu_s=counters.loop.cpu_s,
        load_average=load_average(),
    )
    if not memory:
        return statistics
    return replace(statistics, memory=memory_of([worker.pid for worker in statistics.workers if worker.pid]))


def _length_of(dataset: Any) -> int | None:
    try:
        return len(dataset)
    except Exception:  # iterable, endless, or code of the user that fails: statistics do without
        return None


def _shards_of_one_worker(options: LoaderOptions) -> int | None:
    """Return the number of logical shards of this rank if each is of one worker; see `dali_like.feed.shards`."""
    if not options.is_sharded or options.dataset.ends_in_map:
        return None
    return len(cast("PositionSampler", options.index_sampler).owned)


def _balance_of(options: LoaderOptions) -> BalanceStatistics:
    from dali_like.monitor.measure.statistics import BalanceStatistics

    balance = getattr(options.index_sampler, "balance", None) if is_composed(options.dataset) else None
    return BalanceStatistics() if balance is None else BalanceStatistics(*balance.figures)


def _settings_of(options: LoaderOptions, chosen: ChosenSettings | None) -> Settings:
    from dali_like.monitor.measure.gathering import num_cpus
    from dali_like.monitor.measure.statistics import Settings

    return Settings(
        kind="loader",
        batch_size=options.samples_per_batch or 0,
        num_workers=options.num_workers if chosen is None else chosen.num_workers,
        start_method=options.start_method if options.num_workers else "",
        num_threads=0,
        prefetch=options.num_ahead if chosen is None else chosen.prefetch_depth,
        num_cpus=num_cpus(),
        chosen=chosen,
    )
