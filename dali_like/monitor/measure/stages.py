"""Divide the waiting of a loop among the stages that it waits for: callbacks, operators, writing, copies.

Reports, ``dali-like top`` and ``dali-like view`` show the result; `dali_like.monitor.show.slowest_rank` compares ranks by
it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dali_like.monitor.measure.per_batch import PerBatch, busy_s_of
from dali_like.monitor.measure.statistics import OperatorTime, SourceStatistics, Statistics

__all__ = ["WaitingStage", "waiting_by_stage"]

#: Names of stages besides sources and operators.
WRITING, COPIES, ASSEMBLY, OPERATORS, WORKERS = "writing", "copies to the GPU", "assembly", "operators", "workers"
#: A smaller share of the waiting is not mentioned.
_LEAST_SHARE = 0.005


class WaitingStage(NamedTuple):
    """A stage that the loop waits for.

    Attributes:
        name: name of a source or of an operator; or "writing" into batches, "copies to the GPU", "assembly" of batches.
        wait_s: waiting time per batch, in seconds.
        share: of the waiting, from 0 to 1.
    """

    name: str
    wait_s: float
    share: float


def waiting_by_stage(statistics: Statistics) -> list[WaitingStage]:
    """Divide the waiting of a loop among stages, the longest first.

    The time in which the loop waits for workers counts for the stages in them, in proportion to the workers' time for each.
    """
    totals: defaultdict[str, float] = defaultdict(float)
    for name, wait_s in _stages(PerBatch(statistics)):
        totals[name] += wait_s
    whole_s = sum(totals.values())
    stages = [WaitingStage(name, wait_s, wait_s / whole_s) for name, wait_s in totals.items() if wait_s]
    return sorted((stage for stage in stages if stage.share >= _LEAST_SHARE), key=lambda stage: -stage.share)


def _stages(batch: PerBatch) -> Iterator[tuple[str, float]]:
    serial = [source for source in batch.statistics.sources if source.place != "workers"]
    yield from _divided(batch.serial_s, [(_short(source), busy_s_of(source)) for source in serial], "sources")
    times = [(time.name, time.seconds) for time in batch.statistics.operators.operator_times]
    yield from _divided(batch.waited_for_operators_s, times, OPERATORS)
    parts = [part for source in batch.in_workers for part in _parts_of(source)]
    yield from _divided(batch.waited_for_workers_s, parts, WORKERS)
    yield COPIES, batch.waited_for_copies_s
    yield ASSEMBLY, batch.unexplained_s


def _parts_of(source: SourceStatistics) -> Iterator[tuple[str, float]]:
    """Yield the time per batch of each stage of a source in workers."""
    batches = max(source.batches, 1)
    yield _short(source), source.callback_s / batches
    operators = source.operator_times or (OperatorTime(OPERATORS, source.operators_s),)
    yield from ((time.name, time.seconds / batches) for time in operators)
    yield WRITING, source.writing_s / batches


def _divided(wait_s: float, parts: Sequence[tuple[str, float]], name: str) -> Iterator[tuple[str, float]]:
    """Divide waiting time in proportion to parts; without any, it counts for ``name``."""
    whole_s = sum(seconds for _, seconds in parts)
    if not whole_s:
        yield name, wait_s
        return
    for part, seconds in parts:
        yield part, wait_s * seconds / whole_s


def _short(source: SourceStatistics) -> str:
    return source.name.removeprefix("external_source of ")
