"""How many workers, and how many batches ahead: decided from what has been measured.

`decide` is a function of its arguments alone. Who measures and who follows is `dali_like.engine.pool.tuner`.

**Workers.** As many as the loop needs to find each batch ready, and no more than have something to do. The work of a batch,
divided by the loop's own time for one, says how many the loop needs. The part of their time that callbacks do not compute
but wait, for a disk or a network, says how many it takes to keep the CPUs busy: ``cpus / (1 - waiting)``.

**Depth.** Enough for all workers to have work, and for slow tasks to be over when their batch is due. Each batch takes
memory, of which there is a budget.

Both only grow, as decided. One worker too many sleeps, and costs nothing but the memory that it alone has, whereas a new one
has its setup, connections and caches to make. But a batch ahead takes the memory of a slot, so there are fewer where that is
seen to be enough: `adjusted` says how many, from how many were ready, at least, when the loop came. So a pause of the loop
takes nothing from it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

#: In the place of a number of workers or batches.
AUTO = "auto"
#: Why they are as many as they are at first.
NOT_MEASURED = "nothing has been measured yet"
#: So many workers are started before anything is known, if there are as many CPUs.
FIRST_WORKERS = 4
#: And no more than this, or than there are CPUs, however long callbacks wait.
MOST_WORKERS = 64
FIRST_DEPTH = 2
#: Where more batches than this are ready whenever the loop comes, there are too many.
ENOUGH_READY = 2
#: More batches than this are only made ahead where workers would have nothing to do otherwise.
MOST_DEPTH = 16

#: A callback that waits for less than this part of its time is one that computes: measurements are not exact.
LEAST_WAITING = 0.3
#: Of a callback that seems to wait all the time so much is computing.
_LEAST_COMPUTING = 1e-3
#: So much faster than the loop the workers are to be, since neither is always equally fast.
_MARGIN = 1.25
#: The loop's own time counts as none below this part of the time that a batch takes: it will be waiting in any case.
_LEAST_LOOP = 0.02
#: The number of workers grows no more than so much at a time: what has been measured may not be what is usual.
_MOST_GROWTH = 4
#: Each worker is to have so many tasks on their way.
_TASKS_AHEAD = 2
#: Tasks that are less late than this hold nobody up, and more batches would only take more of the caches.
_LEAST_LATE_S = 0.005
#: The parts of what is available that more workers, and batches, may take.
_WORKERS_SHARE = 0.25
_BATCHES_SHARE = 0.5


class Measurement(NamedTuple):
    """What has been measured over some batches.

    Attributes:
        busy_s: how long workers take for a batch, all of them together.
        waiting: for which part of it, where there are enough CPUs, they wait for something else.
        late_s: how long tasks take, all but a few: three standard deviations more than on the average.
        loop_s: how long the loop takes between two batches, apart from waiting for the second.
    """

    busy_s: float
    waiting: float
    late_s: float
    loop_s: float


class Limits(NamedTuple):
    """What there is.

    Attributes:
        cpus: that this process may use, quotas included.
        most_workers: there is room for no more.
        tasks_per_batch: into how many parts a batch can be divided at most.
        worker_bytes: the memory that one more worker takes.
        batch_bytes: and one more batch.
        available_bytes: for workers.
        batches_bytes: for batches, those included that somebody holds.
    """

    cpus: float
    most_workers: int
    tasks_per_batch: int
    worker_bytes: int
    batch_bytes: int
    available_bytes: int
    batches_bytes: int


class ChosenSettings(NamedTuple):
    """How many workers there are and how many batches are made ahead, and why.

    Attributes:
        num_workers: how many workers have been started.
        prefetch_depth: how many batches are on their way.
        num_workers_reason: why so many; empty where that is not chosen.
        prefetch_depth_reason: likewise.
    """

    num_workers: int
    prefetch_depth: int
    num_workers_reason: str = ""
    prefetch_depth_reason: str = ""


def decide(now: ChosenSettings, seen: Measurement, limits: Limits) -> ChosenSettings:
    """What the settings should be: as many workers as there are, or more."""
    needed, why_workers = _workers(now.num_workers, seen, limits)
    workers = max(needed, now.num_workers)
    if needed < workers:
        why_workers = _first_of(now.num_workers_reason, why_workers)
    depth, why_depth = _depth(workers, seen, limits)
    if depth < now.prefetch_depth:
        depth, why_depth = now.prefetch_depth, _first_of(now.prefetch_depth_reason, why_depth)
    return ChosenSettings(workers, depth, why_workers, why_depth)


def adjusted(depth: int, decided: int, least_ready: int) -> int:
    """How many batches to make ahead from now on, where so many have been decided for.

    Args:
        depth: how many there are.
        decided: how many there are to be at most.
        least_ready: how many were ready at the moment when there were fewest of them.
    """
    if least_ready > ENOUGH_READY:
        return max(depth - (least_ready - ENOUGH_READY), min(depth, FIRST_DEPTH))
    return min(2 * depth, decided) if least_ready == 0 else depth


def _first_of(before: str, why: str) -> str:
    """The reason that was given before, if one was."""
    return why if before in ("", NOT_MEASURED) else before


def first_workers(cpus: float) -> int:
    """How many workers to begin with."""
    return max(1, min(math.ceil(cpus), FIRST_WORKERS))


def _workers(now: int, seen: Measurement, limits: Limits) -> tuple[int, str]:
    waiting = seen.waiting
    if waiting < LEAST_WAITING:
        useful, why = math.ceil(limits.cpus), f"callbacks compute, and there are {limits.cpus:g} CPUs"
    else:
        useful = math.ceil(limits.cpus / max(1 - waiting, _LEAST_COMPUTING))
        why = f"callbacks wait for {waiting:.0%} of their time"
    bounds = [(useful, why)]
    if seen.loop_s > seen.busy_s / max(useful, 1) * _LEAST_LOOP:
        needed = math.ceil(seen.busy_s / seen.loop_s * _MARGIN)
        bounds.append((needed, f"the loop takes {_ms(seen.loop_s)} for a batch, and workers {_ms(seen.busy_s)}"))
    room = now + int(limits.available_bytes * _WORKERS_SHARE) // max(limits.worker_bytes, 1)
    bounds.append(
        (
            room,
            f"more would take more than a quarter of the memory that is left, at {_mib(limits.worker_bytes)} each; only a "
            "number may",
        )
    )
    bounds.append((limits.most_workers, "more are only started if their number is given"))
    bounds.append((now * _MOST_GROWTH, f"{why}, and this is to be seen first"))
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
        return room, f"more batches of {_mib(limits.batch_bytes)} would take more than half of max_held_bytes"
    return wanted, why


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.3g} ms"


def _mib(nbytes: int) -> str:
    return f"{nbytes / (1 << 20):.3g} MiB"
