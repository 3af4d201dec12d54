"""Measure where the time of a batch goes: ``python -m benchmarks.costs [--repeats N]``.

The engine's work is modeled as a sum of costs per sample, per task and per batch. The callback costs nothing: it returns
existing arrays. Pipelines with different batch sizes and numbers of tasks run one after the other. A least-squares fit
covers the CPU time of the worker and the main process, in user space and in the kernel. If perf(1) can count instructions,
they are fitted as well; they hardly depend on other programs.

Limitations: the arrays and rows stay in the cache, so copies cost less than usual. With one worker there is no contention
for the pipes. A process that waits less is cheaper to wake.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from benchmarks.processes import cpu_s
from dali_like import Pipeline, fn, pipeline_def
from dali_like.engine.pool.backend_traits import BACKENDS
from dali_like.types import OBJECT, SampleInfo

__all__ = ["KINDS", "Cost", "fit", "main", "measure"]

BATCH_SIZES = (64, 256, 1024)
TASKS = (1, 2, 4, 8)
WARM_UP_BATCHES = 50
BATCHES = 500
_START_S = 10

_POOL = [
    (np.full((28, 28), i, np.uint8), np.full(100 + 37 * i % 1000, i, np.uint8), np.array([i], np.int32)) for i in range(64)
]

#: Kinds of samples: the callback, and options of its source.
KINDS: dict[str, tuple[Callable[[SampleInfo], Any], dict[str, Any]]] = {
    "rows": (lambda info: (_POOL[info.idx_in_batch % 64][0], _POOL[info.idx_in_batch % 64][2]), {}),
    "ragged": (lambda info: (_POOL[info.idx_in_batch % 64][1], _POOL[info.idx_in_batch % 64][2]), {}),
    "objects": (lambda info: (info.idx_in_batch, _POOL[info.idx_in_batch % 64][2]), {"dtype": [OBJECT, None]}),
}


@dataclass(frozen=True)
class Cost:
    """Cost of one batch.

    Attributes:
        batch_size: number of its samples.
        tasks: number of its tasks.
        worker, main: microseconds of CPU time, and thousands of instructions if counted.
    """

    batch_size: int
    tasks: int
    worker: tuple[float, ...]
    main: tuple[float, ...]


def measure(kind: str, batch_size: int, tasks: int, *, batches: int = BATCHES) -> Cost:
    """Run a pipeline with one worker for a number of batches."""
    callback, options = KINDS[kind]

    @pipeline_def(batch_size=batch_size, num_threads=1, device_id=None, py_num_workers=1, py_start_method="fork")
    def pipeline() -> Any:
        return fn.external_source(callback, num_outputs=2, batch=False, parallel=True, **options)

    with (
        mock.patch.dict(BACKENDS, fork=BACKENDS["fork"]._replace(tasks_per_worker=tasks)),
        contextlib.closing(_built(pipeline())) as pipe,
    ):
        _run(pipe, WARM_UP_BATCHES)
        pids = (pipe.py_worker_pids[0], os.getpid())
        with contextlib.ExitStack() as stack:
            counts = [stack.enter_context(_instructions(pid)) for pid in pids]
            before = [cpu_s([pid]) for pid in pids]
            _run(pipe, batches)
            spent = [(cpu_s([pid]) - was) / batches * 1e6 for pid, was in zip(pids, before, strict=True)]
        worker, own = (
            (time_us, *(number / batches / 1e3 for number in count)) for time_us, count in zip(spent, counts, strict=True)
        )
    return Cost(batch_size, tasks, worker, own)


def fit(costs: list[Cost], part: Callable[[Cost], tuple[float, ...]]) -> NDArray[Any]:
    """Fit the costs per sample, task and batch: an array with a row for each, and a column for each unit."""
    terms = np.array([(cost.batch_size, cost.tasks, 1) for cost in costs], float)
    values = np.array([part(cost) for cost in costs])
    scale = 1 / values[:, :1]  # weigh large and small batches equally
    return np.linalg.lstsq(terms * scale, values * scale, rcond=None)[0]


def main(arguments: list[str] | None = None) -> int:
    """Measure, fit and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.costs", description=__doc__.partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=3, help="runs of each configuration (3)")
    options = parser.parse_args(arguments)
    unit = "us (thousands of instructions)" if _counts() else "us"
    print(f"| {unit} | a sample | a task | a batch |\n|---|---|---|---|")
    for kind in KINDS:
        costs = [
            measure(kind, batch_size, tasks) for _ in range(options.repeats) for batch_size in BATCH_SIZES for tasks in TASKS
        ]
        for name, part in (("worker", lambda cost: cost.worker), ("main process", lambda cost: cost.main)):
            terms = fit(costs, part)
            print(f"| {kind}, {name} | {' | '.join(map(_text, terms))} |", flush=True)
    return 0


def _text(units: NDArray[Any]) -> str:
    text = f"{units[0]:.2f}"
    return text if len(units) == 1 else f"{text} ({units[1]:.1f})"


def _built(pipe: Pipeline) -> Pipeline:
    pipe.build()
    return pipe


def _run(pipe: Pipeline, batches: int) -> None:
    for _ in range(batches):
        pipe.run()


def _counts() -> bool:
    """Return whether perf(1) exists and can count instructions; virtual machines often have no counters."""
    if not shutil.which("perf"):
        return False
    command = ["perf", "stat", "-x,", "-e", "instructions", "true"]
    tried = subprocess.run(command, capture_output=True, text=True, check=False)
    return tried.returncode == 0 and tried.stderr[:1].isdigit()


@contextlib.contextmanager
def _instructions(pid: int) -> Iterator[list[int]]:
    """Count the instructions of a process into a list with one element, or none if they cannot be counted."""
    count: list[int] = []
    if not _counts():
        yield count
        return
    with tempfile.NamedTemporaryFile("r") as output, tempfile.TemporaryDirectory() as folder:
        control, answer = f"{folder}/control", f"{folder}/answer"
        os.mkfifo(control)
        os.mkfifo(answer)
        command = ["perf", "stat", "-x,", "-e", "instructions", "-o", output.name, "-p", str(pid), "-D", "-1"]
        process = subprocess.Popen([*command, f"--control=fifo:{control},{answer}"], stderr=subprocess.DEVNULL)
        try:
            with open(control, "w") as orders, open(answer) as answers:
                orders.write("enable\n")
                orders.flush()
                answers.readline()
                yield count
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(_START_S)
        count.append(int(output.read().split("\n")[-2].split(",")[0]))


if __name__ == "__main__":
    raise SystemExit(main())
