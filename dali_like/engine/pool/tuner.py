"""Measure a pool while it works, and choose its settings, for options such as `py_num_workers="auto"`.

Runs in the main process. Workers add up the wall clock and CPU times of tasks in their cells
(`dali_like.engine.worker.worker`). The main process reads these sums when it waits for a batch anyway. The first look comes
soon after the first task. Each later look has four times the data of the one before. If a look changes nothing, workers do
not measure quick tasks for a while, because measuring takes about one percent of their time.

The waiting time of a worker is the time of its tasks, minus their CPU time, minus the time in which it was ready to run and
got no CPU (``/proc/PID/schedstat``, see the kernel's documentation on sched-stats). If the kernel does not count the latter,
the result is used only while there are no more workers than CPUs. For threads it is used only while there is one, or while
all use little CPU time together: waiting for the GIL would look the same.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

from dali_like.engine.memory.limits import available_bytes, read_file
from dali_like.engine.pool.host_budget import HostBudget, cpu_s, needed_cpus, next_update_s
from dali_like.engine.pool.settings import (
    FIRST_DEPTH,
    LEAST_WAITING,
    MOST_WORKERS,
    NOT_MEASURED,
    ChosenSettings,
    Limits,
    Measurement,
    adjusted,
    decide,
    first_workers,
)
from dali_like.errors import UnsupportedSystemError

#: Busy time of the workers before the first look, and the growth of that time from look to look.
_FIRST_LOOK_S = 0.02
_FACTOR = 4
#: Length of a pause in measuring, as a multiple of the interval before it.
_PAUSE = 15
#: Minimum memory of one more worker, also if the kernel does not show it.
_LEAST_WORKER_BYTES = 1 << 20
_TINY_S = 1e-9
#: Minimum share of computing, for callbacks that seem to wait all the time.
_LEAST_COMPUTING = 0.05
#: A share that is hardly larger than a number of workers needs no further worker.
_ROUNDING = 0.05
_MANY = 1 << 30
#: Batches between two adjustments of the depth.
_WAITS = 64
#: At the first look, callbacks count as waiting only with this share: later looks have more data.
_SURELY_WAITING = 0.8
#: Threads do not wait for the GIL if one of them is running, or ready to run, for less than this part of the time.
_LEAST_SHARE_OF_GIL = 0.5


class Totals(NamedTuple):
    """Total measurements of a pool.

    Attributes:
        batches: computed batches, with fractions of batches in flight.
        busy_s, cpu_s: time and CPU time of all tasks.
        tasks: number of finished tasks.
        squares_s2, cpu_squares_s2: sums of the squares of the tasks' times and CPU times.
    """

    batches: float = 0.0
    busy_s: float = 0.0
    cpu_s: float = 0.0
    tasks: float = 0
    squares_s2: float = 0.0
    cpu_squares_s2: float = 0.0

    def late_s(self, *, on_cpu: bool) -> float:
        """Return the time of a slow task, three standard deviations above the mean: of CPU time, or of all time."""
        sum_s, squares_s2 = (self.cpu_s, self.cpu_squares_s2) if on_cpu else (self.busy_s, self.squares_s2)
        mean_s = sum_s / max(self.tasks, 1)
        return mean_s + 3 * math.sqrt(max(squares_s2 / max(self.tasks, 1) - mean_s**2, 0.0))


class Tunable(Protocol):
    """A pool as a tuner sees it: `dali_like.engine.pool.scaling.Scale`.

    The tuner calls it in the thread that waits for batches, inside of `Tuner.begin_wait` and `Tuner.look`.
    """

    @property
    def totals(self) -> Totals:
        """The total measurements of all workers."""

    @property
    def forked_pids(self) -> list[int]:
        """The process ids of the workers that have started."""

    @property
    def tasks_per_batch(self) -> int:
        """The maximum number of tasks of a batch."""

    @property
    def batch_bytes(self) -> int:
        """The memory of one batch of each source, in bytes."""

    @property
    def limit_bytes(self) -> int:
        """The memory limit of all batches, in bytes."""

    def num_ready(self, source: int) -> int:
        """Return how many batches of a source are complete and not delivered."""

    def measure(self, *, quick_tasks: bool) -> None:
        """Choose whether workers also measure tasks so quick that measuring takes a notable part of their time."""

    def grow(self, num_workers: int) -> None:
        """Start workers until there are `num_workers`."""

    def limit(self, num_active: int, share: float | None) -> None:
        """Let workers use a share of CPU time together, and the others rest."""


class Tuner:
    """Chooses the settings of a pool, or of one pool after the other.

    Args:
        cpus: number of CPUs to use.
        num_workers, depth: fixed numbers; None: to be chosen.
        per_worker: whether `depth` is for each worker.
        are_threads: whether workers are threads.
        shares_cpus: whether the workers are on this machine, and share its CPUs with other pools, if their number is chosen.

    Attributes:
        num_active: workers that do not rest.
        settings: the current settings.
        most_workers: the largest number of workers that may be chosen.
        on_deeper: called with each change of the depth, positive or negative.
    """

    def __init__(
        self,
        cpus: float,
        *,
        num_workers: int | None = None,
        depth: int | None = None,
        per_worker: bool = False,
        are_threads: bool = False,
        shares_cpus: bool = False,
    ) -> None:
        self._budget = open_budget() if shares_cpus and num_workers is None else None
        if self._budget is not None:
            cpus = min(cpus, self._budget.budget)
        self._cpus = cpus
        self._are_threads = are_threads
        self._tunes_workers = num_workers is None
        self._tunes_depth = depth is None
        # Waiting for the GIL looks like waiting for a disk. Only a single thread never waits for the GIL.
        first = num_workers or (1 if are_threads else first_workers(cpus))
        self._depth_per_worker = depth if per_worker else None
        self.settings = ChosenSettings(
            first,
            depth * first if depth and per_worker else depth or FIRST_DEPTH,
            NOT_MEASURED if self._tunes_workers else "",
            NOT_MEASURED if self._tunes_depth else "",
        )
        self._decided = self.settings
        self.most_workers = num_workers or max(MOST_WORKERS, math.ceil(cpus))
        self.on_deeper: Callable[[int], None] | None = None
        self.num_active = first
        self._waiting: float | None = None
        self.begin()

    def begin(self) -> None:
        """Start over, for another pool."""
        self._next_look_s = _FIRST_LOOK_S
        self._not_before_s = 0.0
        self._is_first = True
        self._pauses = False
        self._left_s: float | None = None
        self._waits = 0
        self._least_ready = _MANY
        self._share_s = math.inf if self._budget is None else 0.0
        self._since_s, self._own_s, self._used_s = time.monotonic(), 0.0, 0.0
        self._begin_interval(Totals(), 0.0)

    def _begin_interval(self, seen: Totals, runqueue_s: float) -> None:
        """Start the measurements for the next look."""
        self._seen = seen
        self._runqueue_s = runqueue_s
        self._began_s = time.monotonic()
        self._loops = 0
        self._loop_s = 0.0

    @property
    def poll_ms(self) -> float:
        """The longest time to wait before the next `look`: short before the first look, then unlimited."""
        return _FIRST_LOOK_S * 1000 if self._is_first else math.inf

    def begin_wait(self, pool: Tunable, source: int) -> None:
        """Take note that the loop starts to wait for a batch. Each iteration waits for the first source first."""
        if self._left_s is not None:
            own_s = time.monotonic() - self._left_s
            self._loop_s += own_s
            self._own_s += own_s
            self._loops += source == 0
        if self._decided.prefetch_depth > FIRST_DEPTH and self._tunes_depth:
            self._adjust(pool, source)
        self.look(pool)

    def end_wait(self) -> None:
        """Take note that the loop has its batch."""
        self._left_s = time.monotonic()

    def _adjust(self, pool: Tunable, source: int) -> None:
        """Lower the depth if some batches were always ready, and raise it again if none was."""
        self._waits += 1
        if self._least_ready:
            self._least_ready = min(self._least_ready, pool.num_ready(source))
        if self._waits >= _WAITS:
            self._set_depth(adjusted(self.settings.prefetch_depth, self._decided.prefetch_depth, self._least_ready))
            self._waits, self._least_ready = 0, _MANY

    def _set_depth(self, depth: int) -> None:
        now, decided = self.settings.prefetch_depth, self._decided
        why = decided.prefetch_depth_reason
        if depth < decided.prefetch_depth:
            why = f"{decided.prefetch_depth - depth} more went unused"
        self.settings = self.settings._replace(prefetch_depth=depth, prefetch_depth_reason=why)
        if depth != now and self.on_deeper is not None:
            self.on_deeper(depth - now)

    def look(self, pool: Tunable) -> None:
        """Measure and decide, if that is due."""
        now_s = time.monotonic()
        if now_s >= self._share_s:
            self._take_share(pool, now_s)
        if now_s < self._not_before_s:
            return
        totals = pool.totals
        if self._pauses:
            self._pauses = False
            pool.measure(quick_tasks=True)
            self._begin_interval(totals, _runqueue_of(pool))
            return
        since = Totals(*(new - old for new, old in zip(totals, self._seen, strict=True)))
        if since.busy_s < self._next_look_s or since.batches <= 0:
            # The missing busy time takes at least this long, with all workers busy.
            self._not_before_s = now_s + (self._next_look_s - since.busy_s) / self.settings.num_workers
            return
        before, runqueue_s, elapsed_s = self._decided, _runqueue_of(pool), now_s - self._began_s
        measured = self._measure(since, max(0.0, runqueue_s - self._runqueue_s), elapsed_s)
        self._begin_interval(totals, runqueue_s)
        self._next_look_s *= _FACTOR
        self._follow(decide(before, measured, self._limits(pool)), pool)
        now = self._decided
        if not self._is_first and (now.num_workers, now.prefetch_depth) == (before.num_workers, before.prefetch_depth):
            self._pauses = True
            self._not_before_s = now_s + _PAUSE * elapsed_s
            pool.measure(quick_tasks=False)
        self._is_first = False

    def _take_share(self, pool: Tunable, now_s: float) -> None:
        """Compute the share of this pool of the CPUs of the host, and apply it."""
        assert self._budget is not None
        self._share_s = next_update_s(now_s)
        total_s, elapsed_s = sum(map(cpu_s, pool.forked_pids)), max(now_s - self._since_s, _TINY_S)
        used_s = max(total_s - self._used_s, 0.0)
        needed = self._cpus  # nothing has run yet, or the kernel does not count CPU time
        if total_s:
            needed = needed_cpus(used_s, self._own_s, elapsed_s, self._cpus)
        self._since_s, self._own_s, self._used_s = now_s, 0.0, total_s
        num_workers = self.settings.num_workers
        share = self._budget.update(needed, used_s / elapsed_s, num_workers, self.num_active)
        self.num_active = num_workers
        if share is not None:
            computing = max(1.0 - (self._waiting or 0.0), _LEAST_COMPUTING)
            self.num_active = max(1, min(num_workers, math.ceil(share / computing - _ROUNDING)))
        pool.limit(self.num_active, share)

    def _follow(self, chosen: ChosenSettings, pool: Tunable) -> None:
        now, depth_now = self._decided, self.settings.prefetch_depth
        if not self._tunes_workers:
            chosen = chosen._replace(num_workers=now.num_workers, num_workers_reason="")
        if not self._tunes_depth:
            depth = now.prefetch_depth if self._depth_per_worker is None else self._depth_per_worker * chosen.num_workers
            chosen = chosen._replace(prefetch_depth=depth, prefetch_depth_reason="")
        self._decided = chosen
        self.settings = chosen._replace(prefetch_depth=depth_now)
        if self._tunes_workers:
            pool.grow(chosen.num_workers)
        self._set_depth(depth_now if depth_now < now.prefetch_depth else chosen.prefetch_depth)

    def _measure(self, since: Totals, runqueue_s: float, elapsed_s: float) -> Measurement:
        ready_s = since.cpu_s + runqueue_s
        waited_s = since.busy_s - ready_s
        if self._are_threads:
            is_credible = ready_s < elapsed_s * _LEAST_SHARE_OF_GIL
        else:
            is_credible = self.settings.num_workers <= self._cpus or runqueue_s > 0
        if self._waiting is None or is_credible:
            waited_s = max(waited_s, 0.0)
            self._waiting = waited_s / max(waited_s + since.cpu_s, _TINY_S)
            if self._is_first and self._waiting < _SURELY_WAITING:
                self._waiting = 0.0  # to be confirmed by the next look
        return Measurement(
            busy_s=since.busy_s / since.batches,
            waiting=self._waiting,
            # The first tasks may import modules, and all of their pages are new. For computing callbacks, CPU time counts:
            # their waiting for a CPU depends on other programs.
            late_s=0.0 if self._is_first else since.late_s(on_cpu=self._waiting < LEAST_WAITING),
            loop_s=self._loop_s / max(self._loops, 1),
        )

    def _limits(self, pool: Tunable) -> Limits:
        pids = pool.forked_pids
        worker_bytes = max(_private_bytes(pids[0]) if pids and not self._are_threads else 0, _LEAST_WORKER_BYTES)
        return Limits(
            cpus=self._cpus,
            most_workers=self.most_workers,
            tasks_per_batch=pool.tasks_per_batch,
            worker_bytes=worker_bytes,
            batch_bytes=pool.batch_bytes,
            available_bytes=available_bytes(),
            batches_bytes=pool.limit_bytes,
        )


def open_budget() -> HostBudget | None:
    """Return an entry for the budget of the host; None where the system has none."""
    try:
        return HostBudget()
    except UnsupportedSystemError:
        return None


def _runqueue_of(pool: Tunable) -> float:
    """Return the total time that the workers of a pool have been ready to run without running."""
    return sum(map(_runqueue_s, pool.forked_pids))


def _runqueue_s(pid: int) -> float:
    """Return the time that a worker has been ready to run without running."""
    try:
        return int(read_file(f"/proc/{pid}/schedstat").split()[1]) / 1e9
    except (IndexError, ValueError):  # it has ended, or the kernel does not count this time
        return 0.0


def _private_bytes(pid: int) -> int:
    """Return the private memory of a worker."""
    lines = read_file(f"/proc/{pid}/smaps_rollup").splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(("Private_Clean:", "Private_Dirty:"))) * 1024
