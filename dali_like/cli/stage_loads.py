"""The limit of a pipeline: the rate at which its busiest stage would do nothing but the user's work.

The stages are the workers, the main process, and the threads for operators. Their work is the callbacks and operators,
without writing, hand-over and waiting. Rate and work are measured in the same run, so the rate cannot exceed the limit: no
stage works longer than the run lasts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from dali_like.monitor.measure.per_batch import PerBatch
from dali_like.monitor.measure.statistics import SourceStatistics, Statistics


class Load(NamedTuple):
    """The work of one stage.

    Attributes:
        stage: "workers", "main process" or "threads"; or the name of a source that one worker alone iterates over.
        share: of the stage's time, from 0 to 1, that is work of callbacks and operators.
    """

    stage: str
    share: float


def busiest_stage(part: Statistics, seconds: float) -> Load:
    """Return the stage with the largest share of work.

    Args:
        part: statistics of a part of a run.
        seconds: duration of this part.
    """
    loads = (Load(stage, min(1.0, work_s / seconds)) for stage, work_s in _stages(part))
    return max(loads, key=lambda load: load.share)


def enough_workers_of(part: Statistics) -> int:
    """Return the number of workers that keeps the CPUs busy; 0 without workers. See `busiest_stage`."""
    batch = PerBatch(part)
    busy_s = sum(source.busy_s for source in batch.in_workers)
    if not busy_s:
        return 0
    on_cpu_s = sum(source.cpu_s + source.delayed_s for source in batch.in_workers)
    return batch.enough_workers(busy_s, 1 - on_cpu_s / busy_s)


def _stages(part: Statistics) -> Iterator[tuple[str, float]]:
    """Yield the time of each stage, divided by its number of workers or threads."""
    batch = PerBatch(part)
    yield "workers", sum(map(_work_s, batch.in_workers)) / batch.num_workers
    yield from ((source.name, _work_s(source)) for source in batch.in_workers if source.is_bound)
    yield "main process", sum(_work_s(source) for source in part.sources if source.place != "workers")
    yield "threads", sum(each.seconds for each in part.operators.operator_times) / max(part.settings.num_threads, 1)


def _work_s(source: SourceStatistics) -> float:
    if source.concurrency:  # calls of coroutine functions overlap
        return source.busy_s
    return source.callback_s + source.operators_s
