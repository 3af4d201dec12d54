"""Tables: the figures of each loader, and the goals relative to torch's."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.loader.workloads import LARGE_BYTES, WORKLOADS, Workload
from benchmarks.measurement import Measurement
from benchmarks.report import ALL_CPU, MAIN_CPU, RATE, Goal, figure, goal_table, markdown, noise, spread

__all__ = ["GOALS", "PEER", "tables"]

PEER = "torch"

FIRST_BATCH = figure("first batch ms", "first_batch_s", 1e3)
WAIT = figure("longest wait ms", "longest_wait_s", 1e3)
RESTART = figure("restart ms", "restart_s", 1e3)
EPOCH = figure("epoch ms", "epoch_s", 1e3)
ADDED = figure("memory added, copies", "added_bytes", 1 / LARGE_BYTES)

COLUMNS_OF_PART = {
    "steady": (
        RATE,
        figure("MB/s", "bytes_per_s", 1e-6),
        MAIN_CPU,
        figure("of it kernel", "main_kernel_cpu_us_per_batch"),
        ALL_CPU,
        FIRST_BATCH,
    ),
    "first": (FIRST_BATCH,),
    "waits": (WAIT, FIRST_BATCH, EPOCH),
    "restart": (RESTART, EPOCH, FIRST_BATCH),
    "memory": (ADDED, FIRST_BATCH),
}

GOALS = (
    Goal(workload="tiny", column=RATE, peer=PEER, at_least=4),
    Goal(workload="image", column=RATE, peer=PEER, at_least=6),
    Goal(workload="tiny_tensors", column=RATE, peer=PEER),
    Goal(workload="dict", column=RATE, peer=PEER, at_least=5),
    Goal(workload="dict_tensors", column=RATE, peer=PEER),
    Goal(workload="collate", column=RATE, peer=PEER, at_least=4),
    Goal(workload="collate", column=MAIN_CPU, peer=PEER, at_most=1 / 8),
    Goal(workload="augment", column=RATE, peer=PEER),
    Goal(workload="augment_large", column=RATE, peer=PEER),
    Goal(workload="slow", column=FIRST_BATCH, peer=PEER, at_most=0.6),
    # A tenth of the slow sample; a batch of other samples takes a worker 40 ms
    Goal(workload="slow_sample", column=WAIT, peer=None, at_most=200),
    Goal(workload="slow_sample", column=WAIT, peer=PEER),
    Goal(workload="restart_fork", column=RESTART, peer=PEER),
    Goal(workload="restart_fork_persistent", column=RESTART, peer=PEER),
    Goal(workload="restart_spawn", column=RESTART, peer=PEER, at_most=1 / 100),
    Goal(workload="restart_spawn", column=RESTART, peer=PEER, peer_workload="restart_spawn_persistent", at_most=1),
    Goal(workload="restart_spawn_persistent", column=RESTART, peer=PEER, at_most=1),
    Goal(workload="large", column=ADDED, peer=None, at_most=1.2),
    Goal(workload="large", column=ADDED, peer=PEER),
    Goal(workload="large", column=FIRST_BATCH, peer=PEER),
)


def tables(measurements: Sequence[Measurement]) -> str:
    """Return a table for each workload, and one of the goals of each loader relative to torch's, in Markdown."""
    parts = []
    for workload in WORKLOADS.values():
        of_workload = [each for each in measurements if each.workload == workload.name]
        if of_workload:
            parts.append(_workload_table(workload, of_workload))
    for system in _systems(measurements):
        goals = goal_table(GOALS, system, measurements) if system != PEER else ""
        if goals:
            parts.append(f"### {system}: figures to reach\n\n{goals}")
    return "\n\n".join(parts)


def _workload_table(workload: Workload, measurements: Sequence[Measurement]) -> str:
    columns = COLUMNS_OF_PART[workload.part]
    rows = []
    for system in _systems(measurements):
        runs = [each for each in measurements if each.system == system]
        rows.append([system, *(spread([column.value(run) for run in runs]) for column in columns)])
    repeats = len({each.repeat for each in measurements})
    title = (
        f"### {workload.name}: batches of {workload.batch_size}, {workload.workers} workers, {workload.start_method}, "
        f"median of {repeats} (range)"
    )
    return "\n\n".join([title, markdown(["system", *(column.heading for column in columns)], rows), *noise(measurements)])


def _systems(measurements: Sequence[Measurement]) -> list[str]:
    """Return the systems in the order of their first measurement."""
    return list(dict.fromkeys(each.system for each in measurements))
