"""Simulate a large machine on a small one: ``python -m benchmarks.scale [--quick]``.

Sleeping callbacks need no cores, so 128 workers can be busy on two. The program measures the CPU time of dali_like itself:
that of the main process per batch of one source, and that of all processes per sample. Both should stay constant from 2 to
128 workers, from 1 to 8 sources, and from 1 to 8 pipelines in one process. Each case is a separate process, and the cases
take turns. "start" is the time from `build` until all workers run, and the CPU time of all processes until then.

Limitations: a sample includes the cost of falling asleep and waking up, about 15 us. There is no contention for memory
bandwidth, as with 128 computing workers. The scheduler of a machine with two cores behaves differently from one with 128.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import processes
from benchmarks.report import environment, markdown, spread
from benchmarks.timing import Run
from benchmarks.turns import START_AND_STOP_S, last_line_of
from dali_like import Pipeline, fn, pipeline_def
from dali_like.types import SampleInfo

__all__ = ["CASES", "Case", "Cost", "main", "measure", "table"]

BATCH_SIZE = 64
SLEEP_S = 0.02
#: Time between two looks at the workers that have started.
POLL_S = 0.005
#: Costs of the largest case of a series, divided by the costs of its smallest: of samples, and of batches.
FLAT, FLAT_BATCH = 1.5, 1.1
#: Batches ahead: a batch has at most 32 tasks, so 128 workers need more of them than two have.
AHEAD = 8


class Case(NamedTuple):
    """Numbers of pipelines, sources and workers. Each pipeline has its own workers, which serve all of its sources."""

    workers: int = 8
    sources: int = 1
    pipelines: int = 1

    @property
    def text(self) -> str:
        """The case, as shown in the table."""
        return f"{self.workers} workers, {self.sources} sources, {self.pipelines} pipelines"


class Cost(NamedTuple):
    """Cost of a case.

    Attributes:
        batch_us: CPU time of the main process per batch of one source.
        sample_us: CPU time of all processes per sample.
        busy: samples per second, relative to workers that only sleep.
        start_s: time from `build` until all workers run.
        start_cpu_s: CPU time of all processes until then.
    """

    batch_us: float
    sample_us: float
    busy: float
    start_s: float = 0.0
    start_cpu_s: float = 0.0


SERIES: dict[str, tuple[Case, ...]] = {
    "workers": tuple(Case(workers=count) for count in (2, 4, 8, 16, 32, 64, 128)),
    "sources": tuple(Case(sources=count) for count in (1, 2, 4, 8)),
    "pipelines": tuple(Case(pipelines=count) for count in (1, 2, 4, 8)),
}
CASES = tuple(dict.fromkeys(case for cases in SERIES.values() for case in cases))


def sleepy(info: SampleInfo) -> Any:
    """Return a sample after a sleep, without using a core."""
    time.sleep(SLEEP_S)
    return np.full((28, 28), info.idx_in_epoch % 251, np.uint8)


def measure(case: Case, seconds: float) -> Cost:
    """Run a case for about this time."""
    with ExitStack() as stack:
        pipes = [stack.enter_context(closing(_pipeline(case))) for _ in range(case.pipelines)]
        began_s, began_cpu_s = time.perf_counter(), time.process_time()
        for pipe in pipes:
            pipe.build()
        while any(len(pipe.py_worker_pids) < (pipe.py_num_workers or 0) for pipe in pipes):
            time.sleep(POLL_S)
        start_s, tree = time.perf_counter() - began_s, processes.descendants(os.getpid())
        start_cpu_s = time.process_time() - began_cpu_s + processes.cpu_s(tree)

        def consume(rounds: int) -> Any:
            for _ in range(rounds):
                batch = [pipe.run() for pipe in pipes]
            return batch

        run = Run(consume, lambda batch, number: None)
        run.receive(2)
        timed = run.steady(seconds, processes.descendants(os.getpid()))
    batches = timed.batches * case.pipelines * case.sources
    samples = batches * BATCH_SIZE
    most = case.workers * case.pipelines / SLEEP_S
    batch_us, sample_us = 1e6 * timed.main_cpu_s / batches, 1e6 * timed.all_cpu_s / samples
    return Cost(batch_us, sample_us, samples / timed.wall_s / most, start_s, start_cpu_s)


def _pipeline(case: Case) -> Pipeline:
    @pipeline_def(batch_size=BATCH_SIZE, num_threads=1, py_num_workers=case.workers, py_start_method="fork")
    def pipeline() -> Any:
        return tuple(
            fn.external_source(source=sleepy, parallel=True, batch=False, prefetch_queue_depth=AHEAD)
            for _ in range(case.sources)
        )

    return pipeline()


def table(costs: Mapping[Case, Sequence[Cost]]) -> str:
    """Return the cost of each case, and whether the series are constant, in Markdown."""
    rows = [
        [
            case.text,
            spread([cost.batch_us for cost in of_case]),
            spread([cost.sample_us for cost in of_case]),
            spread([100 * cost.busy for cost in of_case]),
            spread([1e3 * cost.start_s for cost in of_case]),
            spread([1e3 * cost.start_cpu_s for cost in of_case]),
        ]
        for case, of_case in costs.items()
    ]
    headings = ["", "main CPU us a batch", "all CPU us a sample", "% of the sleepers' rate", "start ms", "its CPU ms"]
    parts = [markdown(headings, rows)]
    for name, cases in SERIES.items():
        if cases[0] in costs and cases[-1] in costs:
            parts.append(f"{name}, most to fewest: {_growth(costs[cases[-1]], costs[cases[0]])}")
    return "\n\n".join(parts)


def _growth(most: Sequence[Cost], fewest: Sequence[Cost]) -> str:
    words = []
    for name, most_ratio in (("batch_us", FLAT_BATCH), ("sample_us", FLAT)):
        ratio = _median(most, name) / _median(fewest, name)
        words.append(f"{name.removesuffix('_us')} {ratio:.2f} times ({'flat' if ratio <= most_ratio else 'NOT FLAT'})")
    return ", ".join(words)


def _median(costs: Sequence[Cost], name: str) -> float:
    return float(statistics.median(getattr(cost, name) for cost in costs))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure all cases, and write the CSV file and the report; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="measure one repeat of 0.5 s")
    parser.add_argument("--case", help=argparse.SUPPRESS)  # measure this case in this process
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--repeats", type=int)
    parser.add_argument("--csv", type=Path, default=Path("build/benchmarks/scale.csv"), metavar="PATH")
    options = parser.parse_args(arguments)
    seconds = options.seconds or (0.5 if options.quick else 3.0)
    if options.case:
        print(json.dumps(measure(Case(*json.loads(options.case)), seconds)))
        return 0

    text = environment()
    print(text, end="\n\n", flush=True)
    costs: dict[Case, list[Cost]] = {case: [] for case in CASES}
    repeats = options.repeats or (1 if options.quick else 3)
    for repeat in range(repeats):
        for case in CASES[repeat % len(CASES) :] + CASES[: repeat % len(CASES)]:
            print(f"[{repeat + 1}/{repeats}] {case.text}", file=sys.stderr, flush=True)
            given = ["--case", json.dumps(case), "--seconds", str(seconds)]
            line = last_line_of("benchmarks.scale", given, deadline_s=START_AND_STOP_S + 20 * seconds)
            costs[case].append(Cost(*json.loads(line)))
    result = table(costs)
    options.csv.parent.mkdir(parents=True, exist_ok=True)
    with options.csv.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*Case._fields, "repeat", *Cost._fields])
        writer.writerows((*case, number, *cost) for case, made in costs.items() for number, cost in enumerate(made))
    options.csv.with_suffix(".md").write_text(f"```\n{text}\n```\n\n{result}\n", encoding="utf-8")
    print(result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
