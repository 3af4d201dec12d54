"""Choose the number of workers and of prefetched batches from measurements.

`decide` is a pure function. `dali_like.engine.pool.tuner` measures, and applies the result.

**Workers.** The loop needs the work of a batch, divided by the loop's own time for a batch. The CPUs stay busy with
``cpus / (1 - waiting)`` workers, if callbacks wait (for a disk or a network) for that share of their time. The smaller
number counts.

**Depth.** All workers have tasks, and slow tasks finish before their batch is due. A budget limits the memory of batches.

Decisions only grow. A worker too many sleeps, and costs only its private memory, while a new worker repeats setup,
connections and caches. But a prefetched batch takes the memory of a slot. So `adjusted` makes the queue shrink when extra
batches go unused: it follows the smallest number of ready batches at the loop's arrivals, so a pause of the loop has no
effect.
"""

from __future__ import annotations

import math
from typing import NamedTuple

#: Option value: choose the number of workers or batches.
AUTO = "auto"
#: The reason of the first settings.
NOT_MEASURED = "nothing has been measured yet"
#: Workers before the first measurement, if there are as many CPUs.
FIRST_WORKERS = 4
#: Maximum number of chosen workers, or the number of CPUs if that is larger.
MOST_WORKERS = 64
FIRST_DEPTH = 2
#: The depth shrinks if more batches than this are ready whenever the loop takes one.
ENOUGH_READY = 2
#: Maximum depth for slow tasks. Only idle workers justify more.
MOST_DEPTH = 16

#: Callbacks with a smaller share of waiting count as computing, because measurements are inexact.
LEAST_WAITING = 0.3
#: Minimum share of computing, for callbacks that seem to wait all the time.
_LEAST_COMPUTING = 1e-3
#: Target worker throughput, relative to the loop; leaves headroom for jitter.
_MARGIN = 1.25
#: Below this part of the time of a batch, the loop's own time counts as zero: the loop waits in any case.
_LEAST_LOOP = 0.02
#: Maximum growth of the number of workers at a time, because one measurement may not be typical.
_MOST_GROWTH = 4
#: Tasks in flight for each worker.
_TASKS_AHEAD = 2
#: Shorter delays of tasks are ignored: more batches would only take more of the CPU's caches.
_LEAST_LATE_S = 0.005
#: Shares of the available memory for more workers, and of the memory limit for batches.
_WORKERS_SHARE = 0.25
_BATCHES_SHARE = 0.5


class Measurement(NamedTuple):
    """Measurements over some batches.

    Attributes:
        busy_s: time of a batch, summed over all workers.
        waiting: share of that time in which callbacks wait for anything but a CPU.
        late_s: time of a slow task: three standard deviations above the mean.
        loop_s: the loop's own time between two batches, without waiting.
    """

    busy_s: float
    waiting: float
    late_s: float
    loop_s: float


class Limits(NamedTuple):
    """Resources.

    Attributes:
        cpus: CPUs that this process may use, with quotas.
        most_workers: maximum number of workers.
        tasks_per_batch: maximum number of tasks of a batch.
        worker_bytes: memory of one more worker.
        batch_bytes: memory of one more batch.
        available_bytes: memory for workers.
        batches_bytes: memory for batches, including batches that the user holds.
    """

    cpus: float
    most_workers: int
    tasks_per_batch: int
    worker_bytes: int
    batch_bytes: int
    available_bytes: int
    batches_bytes: int


class ChosenSettings(NamedTuple):
    """Chosen settings, with reasons.

    Attributes:
        num_workers: number of workers.
        prefetch_depth: number of prefetched batches.
        num_workers_reason: the reason for `num_workers`; empty if the user has set it.
        prefetch_depth_reason: the reason for `prefetch_depth`; empty if the user has set it.
    """

    num_workers: int
    prefetch_depth: int
    num_workers_reason: str = ""
    prefetch_depth_reason: str = ""


def decide(now: ChosenSettings, seen: Measurement, limits: Limits) -> ChosenSettings:
    """Return the new settings. Neither number is smaller than in `now`."""
    needed, why_workers = _workers(now.num_workers, seen, limits)
    workers = max(needed, now.num_workers)
    if needed < workers:
        why_workers = _first_of(now.num_workers_reason, why_workers)
    depth, why_depth = _depth(workers, seen, limits)
    if depth < now.prefetch_depth:
        depth, why_depth = now.prefetch_depth, _first_of(now.prefetch_depth_reason, why_depth)
    return ChosenSettings(workers, depth, why_workers, why_depth)


def adjusted(depth: int, decided: int, least_ready: int) -> int:
    """Return the number of batches to prefetch from now on.

    Args:
        depth: the current number.
        decided: the result of `decide`, the maximum.
        least_ready: the smallest number of ready batches since the last adjustment.
    """
    if least_ready > ENOUGH_READY:
        return max(depth - (least_ready - ENOUGH_READY), min(depth, FIRST_DEPTH))
    return min(2 * depth, decided) if least_ready == 0 else depth


def _first_of(before: str, why: str) -> str:
    """Return the reason of a decision before, if there is one."""
    return why if before in ("", NOT_MEASURED) else before


def first_workers(cpus: float) -> int:
    """Return the number of workers to begin with."""
    return max(1, min(math.ceil(cpus), FIRST_WORKERS))


def enough_workers(seen: Measurement, cpus: float, most: int) -> tuple[int, str]:
    """Return the number of workers that suffices for a loop, and the reason: for `decide`, reports and ``dali-like tune``.

    Args:
        seen: measurements.
        cpus: CPUs that the workers may use.
        most: maximum number of workers.
    """
    useful, why = _useful_workers(seen, cpus)
    bounds = [(useful, why)]
    if seen.loop_s > seen.busy_s / max(useful, 1) * _LEAST_LOOP:
        needed = math.ceil(seen.busy_s / seen.loop_s * _MARGIN)
        bounds.append((needed, f"the loop takes {_ms(seen.loop_s)} for a batch, and workers {_ms(seen.busy_s)}"))
    bounds.append((most, "that is the maximum; to start more, give their number"))
    return min(bounds, key=lambda bound: bound[0])


def _useful_workers(seen: Measurement, cpus: float) -> tuple[int, str]:
    """Return the number of workers that keeps the CPUs busy."""
    if seen.waiting < LEAST_WAITING:
        return math.ceil(cpus), f"callbacks compute, and there are {cpus:g} CPUs"
    computing = max(1 - seen.waiting, _LEAST_COMPUTING)
    return math.ceil(cpus / computing), f"callbacks wait for {seen.waiting:.0%} of their time"


def _workers(now: int, seen: Measurement, limits: Limits) -> tuple[int, str]:
    room = now + int(limits.available_bytes * _WORKERS_SHARE) // max(limits.worker_bytes, 1)
    text = f"more would take over a quarter of the available memory, at {_mib(limits.worker_bytes)} each; to start more, "
    _, why = _useful_workers(seen, limits.cpus)
    bounds = [
        enough_workers(seen, limits.cpus, limits.most_workers),
        (room, f"{text}give their number"),
        (now * _MOST_GROWTH, f"{why}; a larger increase waits for the next measurement"),
    ]
    return min(bounds, key=lambda bound: bound[0])


def _depth(workers: int, seen: Measurement, limits: Limits) -> tuple[int, str]:
    tasks = max(1, min(limits.tasks_per_batch, _TASKS_AHEAD * workers))
    busy = math.ceil(_TASKS_AHEAD * workers / tasks) + 1
    bounds = [(busy, f"so that {workers} workers have {_TASKS_AHEAD} tasks each")]
    period_s = max(seen.loop_s, seen.busy_s / workers)
    if period_s > 0 and seen.late_s >= _LEAST_LATE_S:
        steady = min(math.ceil(seen.late_s / period_s) + 1, MOST_DEPTH)
        bounds.append((steady, f"tasks take up to {_ms(seen.late_s)}, and a batch is due each {_ms(period_s)}"))
    wanted, why = max(bounds, key=lambda bound: bound[0])
    room = int(limits.batches_bytes * _BATCHES_SHARE) // max(limits.batch_bytes, 1)
    if wanted > room:
        return room, f"more batches of {_mib(limits.batch_bytes)} would take over half of max_held_bytes"
    return wanted, why


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.3g} ms"


def _mib(nbytes: int) -> str:
    return f"{nbytes / (1 << 20):.3g} MiB"
