"""One measurement: one system, one workload, in this process: ``python -m benchmarks.run_one SYSTEM WORKLOAD``.

Prints the `Measurement` as one line of JSON. What happens, in order:

1. import the library (``import_s``); note the process's memory
2. make the loader and ``build()`` or ``iter()`` (``start_s``); receive one batch (``first_run_s``)
3. steady: warm up with 1, 2, 4, ... batches until that many last a fifth of ``--seconds``
4. receive a fixed number of batches, about ``--seconds`` long at the rate of the warming up, and time it
5. note the memory of the whole tree of processes; close the loader

The last batch of a part is compared byte by byte with what the callback makes, except between warming up and the timed
part, where a pause would let the workers work ahead.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any, NamedTuple

from benchmarks import processes
from benchmarks.adapters import SYSTEMS, Loader
from benchmarks.limit import measure_limit
from benchmarks.measurement import Measurement
from benchmarks.workloads import SLEEP_S, WORKERS, WORKLOADS, Workload, check_batch

__all__ = ["measure"]

WARM_UP_SHARE = 5
MIN_TIMED_BATCHES = 8
MIN_SECONDS_FOR_LOAD = 0.2  # the machine's busy time is counted in ticks of 10 ms


class WorkersChangedError(Exception):
    """A process began or ended during the timed part, so that its CPU time is not known."""


class Timed(NamedTuple):
    """A timed part: seconds of wall clock and of CPU."""

    wall_s: float
    main_cpu_s: float
    all_cpu_s: float
    other_cpu_s: float


class Run:
    """A loader and how far it has been read."""

    def __init__(self, workload: Workload, loader: Loader) -> None:
        self._workload = workload
        self._loader = loader
        self._received = 0
        self._last: Any = None

    def receive(self, batches: int) -> float:
        """Receive ``batches`` batches, keep the last for `check`; returns the seconds it took."""
        self._last = None
        began = time.perf_counter()
        self._last = self._loader.consume(batches)
        took = time.perf_counter() - began
        self._received += batches
        return took

    def check(self) -> None:
        """Compare the last batch with what the callback makes, and drop it."""
        batch = self._loader.samples(self._last)
        check_batch(self._workload, batch, (self._received - 1) * self._workload.batch_size)
        self._last = None

    def warm_up(self, seconds: float) -> float:
        """Receive 1, 2, 4, ... batches until that many last ``seconds``; returns the seconds per batch."""
        batches = 1
        while (took := self.receive(batches)) < seconds:
            batches *= 2
        return took / batches

    def timed(self, batches: int, tree: frozenset[int]) -> Timed:
        """Receive ``batches`` batches; count the CPU time of this process and of ``tree``, the processes below it."""
        busy_before, tree_before, main_before = processes.machine_busy_s(), processes.cpu_s(tree), time.process_time()
        wall_s = self.receive(batches)
        main_cpu_s = time.process_time() - main_before
        all_cpu_s = main_cpu_s + processes.cpu_s(tree) - tree_before
        other_cpu_s = max(0.0, processes.machine_busy_s() - busy_before - all_cpu_s)
        tree_now = processes.descendants(os.getpid())
        if tree_now != tree:
            raise WorkersChangedError(f"before the timed part there were {sorted(tree)}, after it {sorted(tree_now)}")
        return Timed(wall_s, main_cpu_s, all_cpu_s, other_cpu_s)


def measure(system: str, workload: Workload, *, seconds: float, repeat: int) -> Measurement:
    """Measure one system on one workload; ``seconds`` is how long the timed part should last."""
    began = time.perf_counter()
    loader = SYSTEMS[system].open(workload)
    import_s = time.perf_counter() - began
    base_pss_bytes = processes.pss_bytes([os.getpid()])

    began = time.perf_counter()
    loader.start()
    start_s = time.perf_counter() - began
    run = Run(workload, loader)
    first_run_s = run.receive(1)
    tree = processes.descendants(os.getpid())

    steady: dict[str, Any] = {}
    if workload.part == "steady":
        run.check()
        batch_s = run.warm_up(seconds / WARM_UP_SHARE)
        batches = max(MIN_TIMED_BATCHES, round(seconds / batch_s))
        steady = _rates(workload, batches, run.timed(batches, tree))
    elif workload.part == "cold":
        batches = _cold_batches(workload, seconds)
        steady = _rates(workload, batches - 1, run.timed(batches - 1, tree))
        wall_s = first_run_s + steady["wall_s"]
        samples_per_s = batches * workload.batch_size / wall_s
        steady |= {
            "batches": batches,
            "wall_s": wall_s,
            "samples_per_s": samples_per_s,
            "bytes_per_s": samples_per_s * workload.mean_sample_bytes,
        }
    run.check()
    pss_bytes = processes.pss_bytes([os.getpid(), *tree])
    loader.close()
    return Measurement(
        workload=workload.name,
        system=system,
        repeat=repeat,
        batch_size=workload.batch_size,
        import_s=import_s,
        start_s=start_s,
        first_run_s=first_run_s,
        first_batch_s=start_s + first_run_s,
        pss_bytes=pss_bytes,
        base_pss_bytes=base_pss_bytes,
        **steady,
    )


def _rates(workload: Workload, batches: int, timed: Timed) -> dict[str, Any]:
    samples_per_s = batches * workload.batch_size / timed.wall_s
    return {
        "batches": batches,
        "wall_s": timed.wall_s,
        "samples_per_s": samples_per_s,
        "bytes_per_s": samples_per_s * workload.mean_sample_bytes,
        "main_cpu_us_per_batch": 1e6 * timed.main_cpu_s / batches,
        "all_cpu_us_per_batch": 1e6 * timed.all_cpu_s / batches,
        "other_load_cores": timed.other_cpu_s / timed.wall_s if timed.wall_s > MIN_SECONDS_FOR_LOAD else None,
    }


def _cold_batches(workload: Workload, seconds: float) -> int:
    """About ``seconds`` of sleeping callbacks, in whole rounds of one batch per worker, torch's unit of work."""
    round_s = SLEEP_S * workload.batch_size
    return WORKERS * max(1, round(seconds / round_s))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run_one", description=__doc__.splitlines()[0])
    parser.add_argument("system", choices=[*SYSTEMS, "limit"])
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("--seconds", type=float, default=2.5, help="length of the timed part")
    parser.add_argument("--repeat", type=int, default=0, help="number of this run, only noted")
    options = parser.parse_args()
    workload = WORKLOADS[options.workload]
    if options.system != "limit" and not SYSTEMS[options.system].runs(workload):
        parser.error(f"{options.system} is not for {workload.name}")
    if options.system == "limit":
        result = measure_limit(workload, seconds=options.seconds, repeat=options.repeat)
    else:
        result = measure(options.system, workload, seconds=options.seconds, repeat=options.repeat)
    print(result.to_json())


if __name__ == "__main__":
    main()
