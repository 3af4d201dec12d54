"""Timed receipt of batches from a loader: wall time, and CPU time of the consumer and of the processes below it."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from benchmarks import processes

__all__ = ["Run", "Timed", "WorkersChangedError", "by_process", "rates"]

WARM_UP_SHARE = 5
MIN_TIMED_BATCHES = 8
MIN_SECONDS_FOR_LOAD = 0.2  # the machine's busy time has ticks of 10 ms


class WorkersChangedError(Exception):
    """A process exited during the timed part, so its CPU time is unknown."""


class Timed(NamedTuple):
    """A timed part: its batches, wall seconds and CPU seconds; CPU time of the processes below, by process id."""

    batches: int
    wall_s: float
    main_cpu_s: float
    main_kernel_cpu_s: float
    all_cpu_s: float
    other_cpu_s: float
    tree_cpu_s: Mapping[int, float]


class Run:
    """A loader and its current position.

    Args:
        consume: receives a number of batches, drops each when the next arrives, and returns the last.
        verify: raises an error unless a batch is the one with that number.
    """

    def __init__(self, consume: Callable[[int], Any], verify: Callable[[Any, int], None]) -> None:
        self._consume = consume
        self._verify = verify
        self._received = 0
        self._last: Any = None

    def receive(self, batches: int) -> float:
        """Receive ``batches`` batches, keep the last for `check`, and return the elapsed seconds."""
        self._last = None
        began = time.perf_counter()
        self._last = self._consume(batches)
        took = time.perf_counter() - began
        self._received += batches
        return took

    def check(self) -> None:
        """Verify the last batch, and drop it."""
        self._verify(self._last, self._received - 1)
        self._last = None

    def steady(self, seconds: float, tree: frozenset[int]) -> Timed:
        """Warm up for at least a fifth of ``seconds``, then time as many batches as should last ``seconds``."""
        batch_s = self._warm_up(seconds / WARM_UP_SHARE)
        return self.timed(max(MIN_TIMED_BATCHES, round(seconds / batch_s)), tree)

    def _warm_up(self, seconds: float) -> float:
        """Receive 1, 2, 4, ... batches until such a step lasts ``seconds``; return the seconds per batch."""
        batches = 1
        while (took := self.receive(batches)) < seconds:
            batches *= 2
        return took / batches

    def timed(self, batches: int, tree: frozenset[int]) -> Timed:
        """Receive ``batches`` batches; count the CPU time of this process, of ``tree``, the processes below it, and of those
        that start in this part, such as the reserve of a forkserver.
        """
        busy_before, tree_before, main_before = processes.machine_busy_s(), _cpu_s_of(tree), time.process_time()
        kernel_before = _kernel_cpu_s()
        wall_s = self.receive(batches)
        main_kernel_cpu_s = _kernel_cpu_s() - kernel_before
        main_cpu_s = time.process_time() - main_before
        tree_now = processes.descendants(os.getpid())
        if not tree <= tree_now:
            raise WorkersChangedError(f"before the timed part there were {sorted(tree)}, after it {sorted(tree_now)}")
        tree_cpu_s = {pid: cpu_s - tree_before.get(pid, 0.0) for pid, cpu_s in _cpu_s_of(tree_now).items()}
        all_cpu_s = main_cpu_s + sum(tree_cpu_s.values())
        other_cpu_s = max(0.0, processes.machine_busy_s() - busy_before - all_cpu_s)
        return Timed(batches, wall_s, main_cpu_s, main_kernel_cpu_s, all_cpu_s, other_cpu_s, tree_cpu_s)


def _cpu_s_of(tree: Iterable[int]) -> dict[int, float]:
    return {pid: processes.cpu_s([pid]) for pid in sorted(tree)}


def _kernel_cpu_s() -> float:
    """Return the kernel's CPU seconds for this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_stime


def by_process(timed: Timed) -> str:
    """Format the CPU time of each process: this one first, then the processes below it, oldest first."""
    main = ("main", timed.main_cpu_s, os.getpid())
    below = [(f"{number}", cpu_s, pid) for number, (pid, cpu_s) in enumerate(timed.tree_cpu_s.items(), start=1)]
    return "; ".join(
        f"{name}: {1e6 * cpu_s / timed.batches:.0f} us/batch, {processes.pss_bytes([pid]) / 2**20:.1f} MiB"
        for name, cpu_s, pid in (main, *below)
    )


def rates(timed: Timed, *, batch_size: int, sample_bytes: int) -> dict[str, Any]:
    """Return the fields of a `Measurement` that a timed part provides."""
    samples_per_s = timed.batches * batch_size / timed.wall_s
    return {
        "batches": timed.batches,
        "wall_s": timed.wall_s,
        "samples_per_s": samples_per_s,
        "bytes_per_s": samples_per_s * sample_bytes,
        "main_cpu_us_per_batch": 1e6 * timed.main_cpu_s / timed.batches,
        "main_kernel_cpu_us_per_batch": 1e6 * timed.main_kernel_cpu_s / timed.batches,
        "all_cpu_us_per_batch": 1e6 * timed.all_cpu_s / timed.batches,
        "other_load_cores": timed.other_cpu_s / timed.wall_s if timed.wall_s > MIN_SECONDS_FOR_LOAD else None,
    }
