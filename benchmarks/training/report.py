"""Tables: images per second of each system, and dali_like's goals relative to the others."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.measurement import Measurement
from benchmarks.report import ALL_CPU, FIRST_BATCH, MAIN_CPU, RATE, Goal, goal_table, markdown, noise, spread
from benchmarks.training.systems import OURS, PROFILED, SYSTEMS
from benchmarks.training.workloads import WORKLOADS, Workload

__all__ = ["GOALS", "tables"]

_COLUMNS = (RATE, ALL_CPU, MAIN_CPU, FIRST_BATCH)


def _goals(workload: str, **ratios: float) -> list[Goal]:
    """Return goals for images per second relative to each peer, and for CPU time, which is less sensitive to other
    programs.
    """
    return [
        goal
        for peer, ratio in ratios.items()
        for goal in (
            Goal(workload=workload, column=RATE, peer=peer, at_least=ratio),
            Goal(workload=workload, column=ALL_CPU, peer=peer),
        )
    ]


GOALS = (
    *_goals("resnet", dali=2.0, torch=3.0, decoding=0.85, grain=1.3, spdl=1.1),
    *_goals("resnet_antialias", dali=1.8),
    *_goals("resnet_large", dali=1.4, torch=1.8, decoding=0.8, grain=1.3, spdl=1.1),
    *_goals("resnet_to_size", dali=2.0, torch=2.4, decoding=1.2),
    *_goals("trivial_augment", dali=1.3, torchvision=1.3, torchvision_opencv=1.3),
    *_goals("ssd", dali=3.0, torch=2.0),
)

#: The rate depends on other programs: the CPU time of all processes less so.
COST_OF_PROFILING = (
    Goal(workload="resnet", column=RATE, peer="dali_like", at_least=0.98),
    Goal(workload="resnet", column=ALL_CPU, peer="dali_like", at_most=1.02),
)


def tables(measurements: Sequence[Measurement]) -> str:
    """Return a table for each workload, and one of the goals for each system of dali_like."""
    parts = []
    for workload in WORKLOADS.values():
        of_workload = [each for each in measurements if each.workload == workload.name]
        if of_workload:
            parts.append(_workload_table(workload, of_workload))
    for system in OURS:
        if goals := goal_table(COST_OF_PROFILING if system == PROFILED else GOALS, system, measurements):
            parts.append(f"### {system}: figures to reach\n\n{goals}")
    return "\n\n".join(parts)


def _workload_table(workload: Workload, measurements: Sequence[Measurement]) -> str:
    rows = []
    for system in SYSTEMS:
        if runs := [each for each in measurements if each.system == system]:
            rows.append([system, *(spread([column.value(run) for run in runs]) for column in _COLUMNS)])
    repeats = len({each.repeat for each in measurements})
    least, most = workload.sides
    what = f"batches of {workload.batch_size}, files of {least} to {most} pixels, median of {repeats} (range)"
    title = f"### {workload.name}: {what}"
    return "\n\n".join([title, markdown(["system", *(column.heading for column in _COLUMNS)], rows), *noise(measurements)])
