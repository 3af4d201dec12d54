"""The statistics of a loader, made of what has been counted for it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dali_like.monitor.gathering import loop_statistics, measured, ring_statistics, worker_statistics
from dali_like.monitor.statistics import RingStatistics, Settings, SourceStatistics, Statistics
from dali_like.workers.meters import seconds_since

if TYPE_CHECKING:
    from dali_like.data.tallies import Tally


def statistics_of(tally: Tally, settings: Settings, dataset: SourceStatistics) -> Statistics:
    """What has happened so far. Any thread may ask.

    Args:
        dataset: without what has been counted.
    """
    crews = tally.crews
    counts = tally.total(crews)
    at_work = next((crew for crew in crews if any(crew.pids)), None)
    dataset = replace(
        dataset,
        place="workers" if counts.readings else "main process",
        batches=counts.batches,
        samples=tally.samples,
        made_bytes=counts.made_bytes,
        ring=RingStatistics() if at_work is None else ring_statistics(at_work.pool.stages[0], at_work.pool, 0),
    )
    return Statistics(
        seconds=seconds_since(tally.loop.begin_ns),
        settings=settings,
        loop=loop_statistics(tally.loop, counts.waited_ns),
        sources=(measured(dataset, (tally.meter.reading, *counts.readings)),),
        workers=worker_statistics([counts.readings], () if at_work is None else at_work.pids, counts.alive_s),
        worker_restarts=counts.restarts,
        replaced_samples=counts.replaced,
        held_bytes=sum(crew.held_bytes for crew in crews),
    )
