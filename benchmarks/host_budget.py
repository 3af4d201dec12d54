"""Loaders that share the CPUs of a host, against fixed numbers of workers: ``python -m benchmarks.host_budget``.

Each of four processes has a loader with slow samples and one with fast ones, and takes a batch of each in turn. With
``num_workers="auto"``, all eight loaders share the CPUs. In the grid, each slow loader has 1, 2 or 4 workers, and each fast
one 1 or 2. The cases run in turns. Printed are the medians of the steps per second of all processes together, and the CPU
time of the workers per second of a run.

python -m benchmarks.host_budget [--processes N] [--seconds SECONDS] [--repeats N]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.report import environment, markdown
from dali_like.data import DataLoader
from dali_like.engine.pool.host_budget import cpu_s

SLOW_S, FAST_S = 0.004, 0.0001
BATCH = 8
GRID = [(slow, fast) for slow in (1, 2, 4) for fast in (1, 2)]
#: Time before the measurement, in which the loaders find each other.
WARM_UP_S = 4.0


class Busy:
    """A dataset whose samples take CPU time."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __len__(self) -> int:
        return 100_000_000

    def __getitem__(self, index: int) -> Any:
        end_s = time.process_time() + self._seconds
        while time.process_time() < end_s:
            pass
        return np.array(index)


def measure(slow: int | str, fast: int | str, seconds: float) -> tuple[float, float]:
    """Return the steps per second of a process, and the CPU time of its workers per second."""
    loaders = [DataLoader(Busy(SLOW_S), BATCH, num_workers=slow), DataLoader(Busy(FAST_S), BATCH, num_workers=fast)]
    batches = [iter(loader) for loader in loaders]
    _steps(batches, WARM_UP_S)
    begin_s, used_s = time.monotonic(), _used_s(batches)
    count = _steps(batches, seconds)
    elapsed_s = time.monotonic() - begin_s
    return count / elapsed_s, (_used_s(batches) - used_s) / elapsed_s


def _steps(batches: Sequence[Any], seconds: float) -> int:
    """Take batches for a time. Return their number."""
    end_s, count = time.monotonic() + seconds, 0
    while not count or time.monotonic() < end_s:
        for each in batches:
            next(each)
        count += 1
    return count


def _used_s(batches: Sequence[Any]) -> float:
    return sum(cpu_s(worker.pid) for each in batches for worker in each._workers)


def in_processes(slow: int | str, fast: int | str, processes: int, seconds: float) -> tuple[float, float]:
    """Return the sums of `measure` over several processes at a time."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.host_budget", "measure", str(slow), str(fast), str(seconds)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
    results = [json.loads(process.communicate()[0]) for process in running]
    return sum(steps for steps, _ in results), sum(used for _, used in results)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the rates."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.host_budget", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=5.0, help="length of each measurement")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args(arguments)
    print(environment())
    cases: list[tuple[int | str, int | str]] = [("auto", "auto"), *GRID]
    found: dict[Any, list[tuple[float, float]]] = {case: [] for case in cases}
    for _ in range(options.repeats):
        for case in cases:
            found[case].append(in_processes(*case, options.processes, options.seconds))
    rates = {case: statistics.median(steps for steps, _ in results) for case, results in found.items()}
    best = max(rates[case] for case in GRID)
    rows = [
        [
            f"{case[0]} and {case[1]}",
            f"{rates[case]:.1f} ({rates[case] / best:.2f})",
            f"{max(used for _, used in found[case]):.2f}",
        ]
        for case in cases
    ]
    print(markdown(["workers of slow and fast loaders", "steps/s (share of the best)", "most CPUs used by workers"], rows))


if __name__ == "__main__":
    if sys.argv[1:2] == ["measure"]:
        of_slow, of_fast = (text if text == "auto" else int(text) for text in sys.argv[2:4])
        print(json.dumps(measure(of_slow, of_fast, float(sys.argv[4]))))
    else:
        main()
