"""Made-up statistics, for tests of diagnosis and reports."""

from __future__ import annotations

from dali_like.monitor.measure.durations import Durations
from dali_like.monitor.measure.statistics import (
    CopyStatistics,
    LoopStatistics,
    MemoryStatistics,
    OperatorStatistics,
    RingStatistics,
    Settings,
    SlowCall,
    SourceStatistics,
    Statistics,
    WorkerStatistics,
)


def everything(num_sources: int = 1, num_workers: int = 2) -> Statistics:
    """Return statistics with all optional parts."""
    source = SourceStatistics(
        "external_source of a_function_with_quite_a_long_name",
        batches=100,
        samples=6400,
        made_bytes=10**9,
        callback=Durations.of([0.001] * 6400),
        slowest=tuple(SlowCall(10**7 - i, i, 1, 0, 3) for i in range(8)),
        busy_s=8.0,
        callback_s=6.0,
        operators_s=1.0,
        cpu_s=7.0,
        ring=RingStatistics(1, 2, 3, 4, 10, 2.5),
    )
    return Statistics(
        seconds=5.0,
        settings=Settings("pipeline", 64, num_workers, "fork", 2, 3, 8),
        loop=LoopStatistics(
            101, 1, 0, 0.25, Durations.of([0.04] * 100), Durations.of([0.01] * 100), waited_for_workers_s=4.25
        ),
        sources=(source,) * num_sources,
        workers=tuple(WorkerStatistics(i, 100 + i, 200, 4.0, 5.0, 3.5) for i in range(num_workers)),
        operators=OperatorStatistics(Durations.of([0.002] * 100)),
        copies=CopyStatistics(100, 10**9, 0.2, 0.1),
        worker_restarts=1,
        replaced_samples=2,
        held_bytes=3 * 10**6,
        memory=MemoryStatistics(10**8, (10**7,) * num_workers, 10**7),
    )
