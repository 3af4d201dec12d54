"""Workers as threads, with and without the interpreter's lock: ``python -m benchmarks.threads [--quick]``.

Run it with free-threaded Python (``make free_threaded`` builds one), and with another one to compare:

    .venv/free_threaded/bin/python -m benchmarks.threads --quick

A pipeline with one and with two workers computes batches of 64 samples: by forks, by threads that share the source, by
threads with copies of it, and by SPDL's threads, if SPDL is installed. Each run is a process of its own, and the systems
take turns.

- numpy: a normalized crop of 64 x 64 pixels in float32, some ten calls of NumPy of 10 us each.
- python: a loop of Python code over 600 numbers.
- image: an array of 150 KB, filled.

For each it prints medians and ranges over the repeats:

- samples/s with one worker, and how many times as many with two;
- us, two: wall clock and CPU time of all processes and threads per sample, with two workers;
- cores: that CPU time, divided by the wall time;
- CPU: of a sample with two workers, relative to one: above 1, workers hinder each other;
- by CPU time: two, divided by that. It is the most that two workers can bring on idle cores. Other programs on the same
  cores hardly change it; waiting for a lock does not show in it.

Limitations: with two cores, the main process needs a part of one. SPDL stacks batches in the threads' process, without a
check of shapes.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import itertools
import json
import os
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from benchmarks import processes
from benchmarks.report import environment, markdown, spread
from benchmarks.timing import Run
from benchmarks.turns import START_AND_STOP_S, last_line_of, names
from dali_like import fn, pipeline_def
from dali_like.types import SampleInfo

__all__ = ["CALLBACKS", "SYSTEMS", "Figures", "main", "measure", "table"]

BATCH_SIZE = 64
WORKERS = 2
#: The start method of each system; SPDL's threads have none.
SYSTEMS: dict[str, str | None] = {"fork": "fork", "thread": "thread", "thread_copies": "thread_copies", "spdl": None}
TITLES = {"fork": "forks", "thread": "threads", "thread_copies": "threads with copies", "spdl": "SPDL's threads"}

_PIXELS = np.random.default_rng(0).integers(0, 256, (96, 96), np.uint8)


def numpy_sample(index: int) -> Any:
    """Return a normalized crop."""
    top, left = index % 32, index // 32 % 32
    crop = _PIXELS[top : top + 64, left : left + 64].astype(np.float32)
    crop -= crop.mean()
    crop /= crop.std() + 1e-6
    return np.clip(np.abs(crop[:, ::-1]) ** 0.5, 0, 4)


def python_sample(index: int) -> Any:
    """Return the result of a loop of Python code."""
    total = 0
    for number in range(600):
        total += (number ^ index) % 7
    return np.array([total], np.int64)


def image_sample(index: int) -> Any:
    """Return a new array of 150 KB."""
    return np.full((224, 224, 3), index % 251, np.uint8)


CALLBACKS: dict[str, Callable[[int], Any]] = {"numpy": numpy_sample, "python": python_sample, "image": image_sample}


class Figures(NamedTuple):
    """Measurements of a run.

    Attributes:
        rate: samples per second.
        cores: CPU seconds of all processes per second.
        cpu_us: CPU time of all processes per sample.
    """

    rate: float
    cores: float
    cpu_us: float


class Source:
    """A callback as a source of pipelines."""

    def __init__(self, make: Callable[[int], Any]) -> None:
        self._make = make

    def __call__(self, info: SampleInfo) -> Any:
        return self._make(info.idx_in_epoch)


def measure(system: str, callback: str, workers: int, seconds: float) -> Figures:
    """Measure a system for about this time."""
    make = CALLBACKS[callback]
    opened = _pipeline if SYSTEMS[system] else _spdl
    batches, close = opened(make, workers, SYSTEMS[system])

    def consume(count: int) -> Any:
        for batch in itertools.islice(batches, count):  # noqa: B007 the last batch is returned
            pass
        return batch

    def verify(batch: Any, number: int) -> None:
        np.testing.assert_array_equal(np.asarray(batch[0]), make(number * BATCH_SIZE))

    run = Run(consume, verify)
    run.receive(2)
    timed = run.steady(seconds, processes.descendants(os.getpid()))
    run.check()
    close()
    samples = timed.batches * BATCH_SIZE
    return Figures(samples / timed.wall_s, timed.all_cpu_s / timed.wall_s, 1e6 * timed.all_cpu_s / samples)


def _pipeline(make: Callable[[int], Any], workers: int, method: str | None) -> tuple[Iterator[Any], Callable[[], None]]:
    @pipeline_def(batch_size=BATCH_SIZE, num_threads=1, py_num_workers=workers, py_start_method=method)
    def pipeline() -> Any:
        return fn.external_source(Source(make), parallel=True, batch=False)

    pipe = pipeline()
    return (pipe.run()[0].as_array() for _ in itertools.count()), pipe.close


def _spdl(make: Callable[[int], Any], workers: int, _: str | None) -> tuple[Iterator[Any], Callable[[], None]]:
    spdl: Any = importlib.import_module("spdl.pipeline")
    builder = spdl.PipelineBuilder().add_source(itertools.count()).pipe(make, concurrency=workers, output_order="input")
    pipeline = builder.aggregate(BATCH_SIZE).pipe(np.stack).add_sink(3).build(num_threads=workers)
    pipeline.start()
    return iter(pipeline), pipeline.stop


def table(measured: Mapping[tuple[str, str, int], Sequence[Figures]]) -> str:
    """Return the table in Markdown. Keys are callbacks, systems and numbers of workers."""
    rows = []
    for callback, system in dict.fromkeys((callback, system) for callback, system, _ in measured):
        one, two = measured[callback, system, 1], measured[callback, system, WORKERS]
        pairs = list(zip(one, two, strict=True))
        rows.append(
            [
                callback,
                TITLES[system],
                spread([figures.rate for figures in one]),
                _spread(after.rate / before.rate for before, after in pairs),
                _spread(1e6 / after.rate for after in two),
                _spread(after.cpu_us for after in two),
                _spread(after.cores for after in two),
                _spread(after.cpu_us / before.cpu_us for before, after in pairs),
                _spread(WORKERS * before.cpu_us / after.cpu_us for before, after in pairs),
            ]
        )
    return markdown(
        [
            *("callback", "workers", "samples/s, one", "two / one", "us, two", "CPU us, two", "cores, two"),
            *("CPU, two / one", "by CPU time"),
        ],
        rows,
    )


def _spread(figures: Iterator[float]) -> str:
    known = list(figures)
    return f"{statistics.median(known):.2f} ({min(known):.2f}..{max(known):.2f})"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print the table; return the exit status."""
    installed = [name for name in SYSTEMS if name != "spdl" or importlib.util.find_spec("spdl") is not None]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.threads", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="3 repeats of 0.5 s")
    parser.add_argument("--repeats", type=int)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--systems", type=names(SYSTEMS), default=installed, metavar="A,B", help=", ".join(SYSTEMS))
    parser.add_argument("--callbacks", type=names(CALLBACKS), default=list(CALLBACKS), metavar="A,B")
    parser.add_argument("--one", help=argparse.SUPPRESS)  # measure this case in this process
    options = parser.parse_args(arguments)
    seconds = options.seconds or (0.5 if options.quick else 2.5)
    if options.one:
        system, callback, workers = json.loads(options.one)
        print(json.dumps(measure(system, callback, workers, seconds)), flush=True)
        os._exit(0)  # without finalizers of libraries, which are not measured and may hang
    has_lock = getattr(sys, "_is_gil_enabled", lambda: True)()
    print(f"{environment()}\n{'lock of interpreter':<20} {'yes' if has_lock else 'no'}", end="\n\n", flush=True)
    measured: dict[tuple[str, str, int], list[Figures]] = defaultdict(list)
    repeats = options.repeats or (3 if options.quick else 5)
    for repeat, callback in itertools.product(range(repeats), options.callbacks):
        turn = repeat % len(options.systems)
        for system, workers in itertools.product(options.systems[turn:] + options.systems[:turn], (1, WORKERS)):
            print(f"[{repeat + 1}/{repeats}] {callback} {system} {workers}", file=sys.stderr, flush=True)
            given = ["--one", json.dumps([system, callback, workers]), "--seconds", str(seconds)]
            line = last_line_of("benchmarks.threads", given, deadline_s=START_AND_STOP_S + 20 * seconds)
            measured[callback, system, workers].append(Figures(*json.loads(line)))
    print(table(measured))
    return 0


if __name__ == "__main__":
    sys.exit(main())
