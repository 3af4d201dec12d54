"""The statistics of a loader, made of what has been counted for it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dali_like.engine.worker.meters import seconds_since
from dali_like.monitor.gathering import loop_statistics, measured, ring_statistics, worker_statistics
from dali_like.monitor.statistics import RingStatistics, Settings, SourceStatistics, Statistics

if TYPE_CHECKING:
    from dali_like.data.counters import LoaderCounters


def statistics_of(counters: LoaderCounters, settings: Settings, dataset: SourceStatistics) -> Statistics:
    """What has happened so far. Any thread may ask.

    Args:
        dataset: without what has been counted.
    """
    worker_sets = counters.worker_sets
    counts = counters.total(worker_sets)
    at_work = next((workers for workers in worker_sets if any(workers.pids)), None)
    dataset = replace(
        dataset,
        place="workers" if counts.readings else "main process",
        batches=counts.batches,
        samples=counters.samples,
        made_bytes=counts.made_bytes,
        ring=RingStatistics() if at_work is None else ring_statistics(at_work.pool.assemblers[0], at_work.pool, 0),
    )
    return Statistics(
        seconds=seconds_since(counters.loop.begin_ns),
        settings=settings,
        loop=loop_statistics(counters.loop, counts.waited_ns),
        sources=(measured(dataset, (counters.meter.reading, *counts.readings)),),
        workers=worker_statistics([counts.readings], () if at_work is None else at_work.pids, counts.alive_s),
        worker_restarts=counts.restarts,
        replaced_samples=counts.replaced,
        held_bytes=sum(workers.held_bytes for workers in worker_sets),
    )
