"""Compare automatic settings with fixed ones: ``python -m benchmarks.auto [--quick] [--workloads a,b]``.

Each run is a separate process. A pipeline with a fixed number of workers and prefetched batches, or with both "auto", reads
one of the workloads. The settings take turns, and their order rotates between repeats. Two figures are measured:

- *cold*: seconds from `build` until a number of batches has arrived, including the time to choose settings;
- *steady*: samples per second after that, and the 99th percentile of the waits of the loop for a batch.

The table gives medians, and compares "auto" with the best fixed setting, which differs between workloads. The exit status is
1 if "auto" is more than 10 % slower than it in the steady part, or 5 % in the workloads that compute.

The callbacks of "computing" and "shared" take half a millisecond of CPU time each, so more workers than cores bring nothing.
In "shared", the loop takes 10 ms of CPU time for each batch of 32, on the same cores. Both are counted in CPU time, so other
programs on the machine take nothing away from the work.

Limitation: the best of several medians is slightly better than any setting on average. A setting equal to the best one
therefore scores below 100 %.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from benchmarks.adapters import SampleCallback
from benchmarks.report import environment
from benchmarks.turns import Job, in_turns, option_parser, parse_options
from benchmarks.workloads import WORKLOADS, Sample, tiny
from dali_like import fn, pipeline_def, types

#: Number of workers and of prefetched batches, by name.
FIXED = {f"{workers}x{depth}": (workers, depth) for workers in (1, 2, 4, 16, 64) for depth in (2, 8)}
AUTO = "auto"
#: CPU time of the callback in the workloads that compute.
COMPUTING_S = 0.0005


class Load(NamedTuple):
    """A workload of this benchmark.

    Attributes:
        make: the callback.
        batch_size: samples in a batch.
        step_s: CPU time of the loop for a batch.
        least_share: minimum of "auto", relative to the best fixed setting.
    """

    make: Callable[[int], Sample]
    batch_size: int
    step_s: float = 0.0
    least_share: float = 0.9


def compute(cpu_s: float) -> None:
    """Use CPU time."""
    end_s = time.thread_time() + cpu_s
    while time.thread_time() < end_s:
        pass


def computing(index: int) -> Sample:
    """A tiny sample that takes CPU time."""
    compute(COMPUTING_S)
    return tiny(index)


LOADS = {
    **{name: Load(WORKLOADS[name].make, WORKLOADS[name].batch_size) for name in ("tiny", "image", "encoded", "slow")},
    "computing": Load(computing, 32, least_share=0.95),
    "shared": Load(computing, 32, step_s=0.01, least_share=0.95),
}
#: Number of batches in the cold part.
COLD_BATCHES = 20
MOST_RUN_S = 300


class Result(NamedTuple):
    """Measurements of one run."""

    cold_s: float
    samples_per_s: float
    settings: str
    wait_p99_ms: float = 0.0


def run_one(workload_name: str, setting: str, seconds: float) -> Result:
    """Measure one setting in this process."""
    load = LOADS[workload_name]
    workers, depth = FIXED.get(setting, (AUTO, AUTO))

    @pipeline_def(batch_size=load.batch_size, num_threads=1, py_num_workers=workers, prefetch_queue_depth=depth)
    def pipeline() -> Any:
        dtypes = [types.UINT8, types.INT32]
        return tuple(
            fn.external_source(source=SampleCallback(load.make), num_outputs=2, batch=False, parallel=True, dtype=dtypes)
        )

    pipe = pipeline()
    began = time.perf_counter()
    pipe.build()
    for _ in range(COLD_BATCHES):
        pipe.run()
    cold_s = time.perf_counter() - began
    _receive(pipe.run, seconds, load.step_s)  # until the settings are chosen
    waits_s, took_s = _receive(pipe.run, seconds, load.step_s)
    chosen = pipe.statistics().settings.chosen
    pipe.close()
    described = setting if chosen is None else f"{chosen.num_workers}x{chosen.prefetch_depth}"
    rate = len(waits_s) * load.batch_size / took_s
    return Result(cold_s, rate, described, 1e3 * float(np.quantile(waits_s, 0.99)))


def _receive(run: Callable[[], Any], seconds: float, step_s: float) -> tuple[list[float], float]:
    """Receive batches for a number of seconds; return the wait for each, and the elapsed time."""
    began = last = time.perf_counter()
    waits_s: list[float] = []
    while last - began < seconds:
        before = time.perf_counter()
        run()
        waits_s.append(time.perf_counter() - before)
        compute(step_s)
        last = time.perf_counter()
    return waits_s, last - began


def run_process(job: Job, seconds: float) -> Result:
    """Measure one setting in a separate process."""
    command = [sys.executable, "-m", "benchmarks.auto", "--one", job.workload, job.system, "--seconds", str(seconds)]
    print(f"{job.workload} {job.system} {job.repeat}", file=sys.stderr, flush=True)
    finished = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=MOST_RUN_S)
    return Result(*json.loads(finished.stdout))


def table(results: Mapping[tuple[str, str], Sequence[Result]]) -> tuple[str, bool]:
    """Return the report, and whether "auto" is fast enough everywhere."""
    lines = [
        "| workload | best fixed, steady | samples/s | wait p99, ms | auto chose | samples/s | wait p99, ms | of the best "
        "| best fixed, cold | s | auto |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    is_good = True
    for workload in dict.fromkeys(workload for workload, _ in results):
        own = {setting: made for (name, setting), made in results.items() if name == workload}
        rates = {setting: statistics.median(result.samples_per_s for result in made) for setting, made in own.items()}
        waits = {setting: statistics.median(result.wait_p99_ms for result in made) for setting, made in own.items()}
        colds = {setting: statistics.median(result.cold_s for result in made) for setting, made in own.items()}
        fixed = [setting for setting in own if setting != AUTO]
        best, quickest = max(fixed, key=rates.__getitem__), min(fixed, key=colds.__getitem__)
        chosen = " ".join(dict.fromkeys(result.settings for result in own[AUTO]))
        share = rates[AUTO] / rates[best]
        is_good &= share >= LOADS[workload].least_share
        lines.append(
            f"| {workload} | {best} | {rates[best]:,.0f} | {waits[best]:.1f} | {chosen} | {rates[AUTO]:,.0f} | "
            f"{waits[AUTO]:.1f} | {share:.0%} | {quickest} | {colds[quickest]:.2f} | {colds[AUTO]:.2f} |"
        )
    return "\n".join(lines), is_good


def main(arguments: Sequence[str] | None = None) -> int:
    """Run everything and print the table; return the exit status."""
    parser = option_parser("python -m benchmarks.auto", "Chosen settings beside fixed ones.", workloads=LOADS, csv="")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parse_options(parser, arguments)
    if options.one is not None:
        workload, setting = options.one
        print(json.dumps(run_one(workload, setting, options.seconds)))
        return 0
    print(environment(), end="\n\n", flush=True)
    results: dict[tuple[str, str], list[Result]] = defaultdict(list)
    for job in in_turns(options.workloads, lambda _: [AUTO, *FIXED], options.repeats):
        results[job.workload, job.system].append(run_process(job, options.seconds))
    report, is_good = table(results)
    print(report)
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
