"""Build statistics from the measurements of pools, loops and workers.

Any thread may call these functions, also while another thread closes the pool.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from dali_like.engine.memory.limits import allowed_cpus, available_bytes, cpu_quota
from dali_like.engine.pool.assembler import Assembler
from dali_like.engine.worker.meters import NUM_OPERATORS, Reading, first_made_ns, seconds_since
from dali_like.monitor.measure.durations import Durations
from dali_like.monitor.measure.loops import BatchTimes, LoopMeter
from dali_like.monitor.measure.statistics import (
    CopyStatistics,
    LoopStatistics,
    OperatorTime,
    RingStatistics,
    SourceStatistics,
    WorkerStatistics,
)

if TYPE_CHECKING:
    from dali_like.device.copier import CopyTotals
    from dali_like.engine.pool.pool import WorkerPool


def loop_statistics(meter: LoopMeter, waited_for_workers_ns: int = 0, waited_for_operators_ns: int = 0) -> LoopStatistics:
    """Return the statistics of a training loop."""
    return LoopStatistics(
        batches=meter.batches,
        epochs=meter.epochs,
        errors=meter.errors,
        first_batch_s=meter.first_ns / 1e9,
        wait=Durations.recorded(meter.wait),
        work=Durations.recorded(meter.work),
        waited_for_workers_s=waited_for_workers_ns / 1e9,
        waited_for_operators_s=waited_for_operators_ns / 1e9,
        recent=tuple(map(BatchTimes._make, meter.recent.copy())),
    )


def copy_statistics(totals: CopyTotals | None) -> CopyStatistics:
    """Return the statistics of the copies to a device; zeros without totals."""
    if totals is None:
        return CopyStatistics()
    return CopyStatistics(totals.batches, totals.copied_bytes, totals.host_ns / 1e9, totals.waited_ns / 1e9)


def ring_statistics(assembler: Assembler, pool: WorkerPool | None, number: int) -> RingStatistics:
    """Return the statistics of the slots of a source.

    Args:
        pool: the worker pool of the source, if it has one.
        number: the number of the source in that pool.
    """
    making, ready = (0, 0) if pool is None else pool.occupancy(number)
    slots, free = assembler.ring.num_slots, assembler.ring.num_free
    mean_ready = 0.0 if pool is None else pool.mean_ready
    return RingStatistics(making, ready, max(0, slots - free - making - ready), free, slots, mean_ready)


def source_statistics(assembler: Assembler, place: str, pool: WorkerPool | None = None, number: int = 0) -> SourceStatistics:
    """Return the statistics of a source without durations; for `pool` and `number` see `ring_statistics`."""
    source = assembler.source
    return SourceStatistics(
        name=source.name,
        place=place,
        unit="batch" if source.batch else "sample",
        concurrency=source.concurrency or 0,
        batches=assembler.num_batches,
        samples=assembler.num_samples,
        made_bytes=assembler.made_bytes,
        ring=ring_statistics(assembler, pool, number),
    )


def cacheable_bytes(length: int | None, made_bytes: int, made: int) -> int:
    """Return the estimated memory for a cache, or 0 if half of the available memory is too small for it.

    Args:
        length: number of samples, or of batches for a source of batches; None: unknown.
        made_bytes, made: size and number of those computed so far.
    """
    nbytes = (length or 0) * made_bytes // max(made, 1)
    return nbytes if nbytes <= available_bytes() // 2 else 0


def measured(statistics: SourceStatistics, readings: Iterable[Reading], operators: Sequence[str] = ()) -> SourceStatistics:
    """Add the durations that the workers, or the main process, have measured.

    Args:
        operators: names of the operators behind the source's callback.
    """
    reading = sum(readings, Reading())
    cpu_s = _part(reading, reading.cpu_ns)
    names = measured_names(operators)
    return replace(
        statistics,
        callback=Durations(reading.callback_ns / 1e9, reading.counts),
        slowest=tuple(reading.slowest),
        busy_s=reading.busy_ns / 1e9,
        callback_s=_part(reading, reading.callback_ns),
        operators_s=_part(reading, reading.operators_ns),
        operator_times=tuple(
            OperatorTime(name, _part(reading, ns)) for name, ns in zip(names, reading.each_operator_ns, strict=False)
        ),
        cpu_s=cpu_s,
        delayed_s=min(reading.delayed_ns / 1e9, reading.busy_ns / 1e9 - cpu_s),
    )


def measured_names(operators: Sequence[str]) -> list[str]:
    """Return the names of operators as meters tell them apart: of very many, the last ones share a name."""
    if len(operators) <= NUM_OPERATORS:
        return list(operators)
    return [*operators[: NUM_OPERATORS - 1], f"{len(operators) - NUM_OPERATORS + 1} further operators"]


def worker_statistics(
    readings: Sequence[Sequence[Reading]], pids: Sequence[int], alive_s: float
) -> tuple[WorkerStatistics, ...]:
    """Return the statistics of all workers.

    Args:
        readings: for each source, the readings of all workers.
        pids: known process ids, by worker.
        alive_s: time since the first worker became ready.
    """
    workers = []
    first_ns = first_made_ns(readings)
    for number, of_sources in enumerate(zip(*readings, strict=True)):
        total = sum(of_sources, Reading())
        late_s = (total.made_ns - first_ns) / 1e9 if total.made_ns else alive_s
        workers.append(
            WorkerStatistics(
                number=number,
                pid=pids[number] if number < len(pids) else 0,
                tasks=total.tasks,
                busy_s=total.busy_ns / 1e9,
                alive_s=max(0.0, alive_s - late_s),
                cpu_s=_part(total, total.cpu_ns),
                on_task_s=seconds_since(total.since_ns),
            )
        )
    return tuple(workers)


def load_average() -> float:
    """Return the load of the machine in the last minute; 0 where the system does not report it."""
    try:
        return os.getloadavg()[0]
    except (AttributeError, OSError):
        return 0.0


def num_cpus() -> int:
    """Return the number of CPUs available to this process: its affinity, and the control group quota at the first call."""
    return min(allowed_cpus(), math.ceil(_quota() or 1 << 20))


@cache
def _quota() -> float | None:
    return cpu_quota()


def _part(reading: Reading, part_ns: int) -> float:
    """Return a part of the busy time, in seconds, extrapolated from the tasks that were measured call by call."""
    share = min(1.0, part_ns / reading.timed_ns) if reading.timed_ns else 0.0
    return share * reading.busy_ns / 1e9
