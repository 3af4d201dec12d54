"""Benchmark samples from Ray actors: dali_like, plain loops of actor calls, and Ray Data.

    python -m benchmarks.on_ray [seconds a run [batches on their way]]

All run on one local cluster, in turn. Each makes batches of 64 in order with two workers, for a consumer that checks their
indices. After warm-up, all batches that arrive within the time count. dali_like and the plain loops prefetch 8 batches by
default. Ray Data maps the indices, in ordered blocks of 64, and iterates with ``iter_batches``. It needs pyarrow and pandas.

The plain loops call each actor for one batch at a time; the actor stacks the samples. This is the minimum for such a
program. The first loop returns Ray's memory, which is read-only and occupies the object store until it is dropped. The
second loop copies it, so the user can write to the batches and keep them, as with dali_like.

Limitations: all processes run on one machine, so no network limits the rate. The workers, the consumer and Ray's own
processes share two cores. The second loop's copies reuse C library memory, because each batch is dropped at once. CPU time
includes all of Ray's processes, except those that exit during a run.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from benchmarks.processes import cpu_s, descendants
from benchmarks.workloads import WORKERS, Sample, image, slow
from dali_like import fn, pipeline_def
from dali_like.types import SampleInfo

BATCH_SIZE = 64
NUM_TURNS = 3
WARM_UP = 8
#: Default number of prefetched batches.
NUM_AHEAD = 4 * WORKERS
#: More batches than any run reaches.
NUM_BATCHES = 1 << 16

Make = Callable[[int], Sample]


def by_dali_like(make: Make, num_ahead: int) -> Iterator[Any]:
    """Yield the labels of each batch, with this number of prefetched batches."""

    def source(info: SampleInfo) -> Sample:
        return make(info.idx_in_epoch)

    @pipeline_def(batch_size=BATCH_SIZE, num_threads=1, py_num_workers=WORKERS, py_start_method="ray")
    def pipeline() -> Any:
        return tuple(fn.external_source(source=source, num_outputs=2, parallel=True, batch=False))

    with pipeline(prefetch_queue_depth=num_ahead) as pipe:
        for _, labels in pipe:
            yield labels.as_cpu().as_array()[:, 0]


def by_calls(make: Make, num_ahead: int, *, copies: bool = False) -> Iterator[Any]:
    """Do the same with one actor call per batch, with or without a copy out of Ray's memory."""
    ray = importlib.import_module("ray")

    class RequestHandler:
        def batch(self, number: int) -> list[Any]:
            samples = [make(number * BATCH_SIZE + i) for i in range(BATCH_SIZE)]
            return [np.stack(column) for column in zip(*samples, strict=True)]

    actors = [ray.remote(RequestHandler).options(num_cpus=1).remote() for _ in range(WORKERS)]
    calls = deque(actors[i % WORKERS].batch.remote(i) for i in range(num_ahead))
    try:
        for i in range(num_ahead, NUM_BATCHES):
            batch = ray.get(calls.popleft())
            if copies:
                batch = [array.copy() for array in batch]
            calls.append(actors[i % WORKERS].batch.remote(i))
            yield batch[1][:, 0]
    finally:
        for actor in actors:
            ray.kill(actor)


def by_ray_data(make: Make, _: int) -> Iterator[Any]:
    """Do the same with Ray Data, which chooses its own number of prefetched batches."""
    ray = importlib.import_module("ray")
    importlib.import_module("ray.data")

    def make_batch(rows: dict[str, Any]) -> dict[str, Any]:
        arrays, labels = zip(*(make(int(i)) for i in rows["id"]), strict=True)
        return {"array": np.stack(arrays), "label": np.stack(labels)}

    ray.data.DataContext.get_current().execution_options.preserve_order = True
    ray.data.DataContext.get_current().enable_progress_bars = False
    rows = ray.data.range(1 << 15, override_num_blocks=(1 << 15) // BATCH_SIZE)
    dataset = rows.map_batches(make_batch, batch_size=BATCH_SIZE, num_cpus=1, concurrency=WORKERS)
    for batch in dataset.iter_batches(batch_size=BATCH_SIZE, batch_format="numpy"):
        yield batch["label"][:, 0]


SYSTEMS: dict[str, Callable[[Make, int], Iterator[Any]]] = {
    "dali_like": by_dali_like,
    "actor calls": by_calls,
    "actor calls, copied": partial(by_calls, copies=True),
    "Ray Data": by_ray_data,
}


class Run(NamedTuple):
    """Results of a run: its rate, and the CPU time of all processes per batch."""

    samples_per_s: float
    cpu_ms: float


def measure(batches: Iterator[Any], seconds: float) -> Run:
    """Measure the rate after warm-up."""
    for number in range(WARM_UP):
        check(next(batches), number)
    begin, before = time.perf_counter(), cpu_s_of_each()
    number = WARM_UP
    for labels in batches:
        check(labels, number)
        number += 1
        if time.perf_counter() - begin > seconds:
            break
    elapsed, num_batches = time.perf_counter() - begin, number - WARM_UP
    cpu = sum(cpu_s - before.get(pid, 0.0) for pid, cpu_s in cpu_s_of_each().items())
    batches.close()  # type: ignore[attr-defined]
    return Run(num_batches * BATCH_SIZE / elapsed, cpu / num_batches * 1e3)


def cpu_s_of_each() -> dict[int, float]:
    """Return the CPU time of this process and of all its descendants, including Ray's."""
    times = {}
    for pid in (os.getpid(), *descendants(os.getpid())):
        with contextlib.suppress(ProcessLookupError):  # it has just exited
            times[pid] = cpu_s([pid])
    return times


def check(labels: Any, number: int) -> None:
    """Check that these are the samples of that batch."""
    if not np.array_equal(labels, np.arange(number * BATCH_SIZE, (number + 1) * BATCH_SIZE)):
        raise AssertionError(f"batch {number} is {labels}")


def main() -> None:
    """Measure, and print a table."""
    ray = importlib.import_module("ray")
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 5.0
    num_ahead = int(sys.argv[2]) if len(sys.argv) > 2 else NUM_AHEAD
    # Ray counts one more CPU, for the tasks of Ray Data that make indices.
    ray.init("local", num_cpus=WORKERS + 1, include_dashboard=False, log_to_driver=False)
    runs: dict[tuple[str, str], list[Run]] = {}
    for turn in range(NUM_TURNS):
        for make in (image, slow):
            for name in list(SYSTEMS)[turn:] + list(SYSTEMS)[:turn]:
                runs.setdefault((make.__name__, name), []).append(measure(SYSTEMS[name](make, num_ahead), seconds))
    ray.shutdown()
    print("| samples | system | samples a second (range) | CPU ms a batch |\n|---|---|--:|--:|")
    for (workload, name), made in sorted(runs.items()):
        rates, cpu_ms = zip(*made, strict=True)
        rate = f"{statistics.median(rates):,.0f} ({min(rates):,.0f}..{max(rates):,.0f})"
        print(f"| {workload} | {name} | {rate} | {statistics.median(cpu_ms):.2f} |")


if __name__ == "__main__":
    main()
