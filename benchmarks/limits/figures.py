"""Figures measured while a pipeline runs, each with its limit."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from benchmarks import processes
from benchmarks.adapters import sample_source
from benchmarks.limit import measure_limit
from benchmarks.timing import Run, Timed
from benchmarks.workloads import SLEEP_S, WORKERS, WORKLOADS, Sample, Workload
from dali_like import Pipeline, fn, pipeline_def
from dali_like.types import SampleInfo

__all__ = ["Figure", "Figures", "main_cpu", "opened", "throughput"]


class Figure(NamedTuple):
    """One of our figures, and its limit."""

    ours: float
    limit: float


Figures: TypeAlias = Mapping[str, Figure]

DEPTH = 2
#: Slots used by a consumer that holds one batch while it waits for the next.
RING_BATCHES = DEPTH + 3
#: Sleep per sample, long enough that the main process always waits.
NAP_S = 0.003
NAP_BATCH = 8
#: Sleep of the slow sample among fast ones, and the consumer's work per batch.
STRAGGLER_S = 1.0
STRAGGLER_BATCH = 10
STEP_S = 0.03
EPOCH_BATCHES = 6
SLOT_BATCHES = 50
#: After this number of batches, short tasks have been joined, which reallocates all slots.
FITTED_BATCHES = 100


@contextmanager
def opened(
    source: Callable[[SampleInfo], Any], batch_size: int, *, workers: int = WORKERS, method: str = "fork", outputs: int = 2
) -> Iterator[Pipeline]:
    """Return a built pipeline of one source."""

    @pipeline_def(
        batch_size=batch_size,
        num_threads=1,
        py_num_workers=workers,
        py_start_method=method,
        prefetch_queue_depth=DEPTH,
    )
    def pipeline() -> Any:
        made = fn.external_source(source=source, num_outputs=outputs, parallel=True, batch=False)
        return tuple(made)

    with closing(pipeline()) as pipe:
        pipe.build()
        yield pipe


def consume(pipe: Pipeline) -> Callable[[int], Any]:
    """Receive a number of batches, and return the last."""

    def receive(batches: int) -> Any:
        for _ in range(batches):
            batch = pipe.run()
        return batch

    return receive


def throughput(workload: Workload, seconds: float) -> Figures:
    """Measure samples per second, and those of bare loops: each with its own memory, or all through a ring's; and compute
    what the cores allow beside the main process.
    """
    own = measure_limit(workload, seconds=seconds, repeat=0).samples_per_s
    loops = measure_limit(workload, seconds=seconds, repeat=0, ring_batches=RING_BATCHES)
    with opened(sample_source(workload), workload.batch_size) as pipe:
        timed = _steady(pipe, seconds)
    assert own is not None
    assert loops.samples_per_s is not None
    assert loops.all_cpu_us_per_batch is not None
    ours = timed.batches * workload.batch_size / timed.wall_s
    main_s, all_s = timed.main_cpu_s / timed.batches, timed.all_cpu_s / timed.batches
    cores = len(os.sched_getaffinity(0))
    of_workers = workload.batch_size * most_batches_per_s(main_s, all_s - main_s, cores)
    of_loops = workload.batch_size * most_batches_per_s(main_s, loops.all_cpu_us_per_batch / 1e6, cores)
    return {
        workload.name: Figure(ours, own),
        in_ring(workload.name): Figure(ours, loops.samples_per_s),
        on_cores(workload.name): Figure(ours, of_workers),
        on_cores_by_loops(workload.name): Figure(ours, of_loops),
    }


def most_batches_per_s(main_s: float, workers_s: float, cores: int) -> float:
    """Return the batches per second that the cores allow: they share the work, and each process uses one of them at a time.

    Args:
        main_s, workers_s: CPU time of the main process, and of all workers, for a batch.
    """
    return min(cores / (main_s + workers_s), 1 / main_s, WORKERS / workers_s)


def in_ring(name: str) -> str:
    """Return the name of the row that compares with loops through a ring's memory."""
    return f"{name}, beside a ring's memory"


def on_cores(name: str) -> str:
    """Return the name of the row that compares with the most that the cores allow, by our own CPU times."""
    return f"{name}, beside what the cores allow"


def on_cores_by_loops(name: str) -> str:
    """Return the name of the row that compares with the same, if workers took only the CPU time of the loops."""
    return f"{name}, beside loops and the main process on the cores"


def main_cpu(seconds: float) -> Figures:
    """Measure the CPU time of the main process per batch, in microseconds."""
    tiny, image = WORKLOADS["tiny"].make, WORKLOADS["image"].make
    cases = {
        "images, one worker": (image, 64, 1),
        "images": (image, 64, WORKERS),
        "small, one worker": (tiny, 64, 1),
        "small, many": (tiny, 4096, WORKERS),
        "small": (tiny, 64, WORKERS),
    }
    cpu = {name: _main_cpu_us(*case, seconds=seconds / len(cases)) for name, case in cases.items()}
    return {
        "main CPU a batch, one worker": Figure(cpu["images, one worker"], 0),
        "main CPU a batch, both cores busy": Figure(cpu["images"], 0),
        "main CPU a batch of 4,096": Figure(cpu["small, many"], cpu["small"]),
        "main CPU a batch of images": Figure(cpu["images, one worker"], cpu["small, one worker"]),
    }


def hand_over(seconds: float) -> Figures:
    """Measure microseconds from the end of a batch's last callback to its receipt; for a pipe, from write to read."""
    batches = max(20, round(seconds / (NAP_S * NAP_BATCH / WORKERS)))
    with opened(_stamped, NAP_BATCH) as pipe:
        pipe.run()
        ours = []
        for _ in range(batches):
            _, stamps = pipe.run()
            ours.append(time.monotonic_ns() - int(stamps.as_cpu().as_array().max()))
    pipes = _pipe_wake_ups(batches)
    return {
        "last sample to batch in hand, median": Figure(statistics.median(ours) / 1e3, statistics.median(pipes) / 1e3),
        "last sample to batch in hand, 99 %": Figure(_late(ours) / 1e3, _late(pipes) / 1e3),
    }


def slow(_: float) -> Figures:
    """Measure seconds from the first `run()` to the first batch, with samples that sleep."""
    workload = WORKLOADS["slow"]
    with opened(sample_source(workload), workload.batch_size) as pipe:
        took = _run(pipe).receive(1)
    return {"first batch of slow samples": Figure(took, SLEEP_S * workload.batch_size / WORKERS)}


def straggler(_: float) -> Figures:
    """Measure the wait, in milliseconds, of a consumer that works on each batch longer than the workers need for it."""
    waits = []
    with opened(_with_straggler, NAP_BATCH) as pipe:
        for _number in range(STRAGGLER_BATCH + 2 + DEPTH):
            began = time.perf_counter()
            pipe.run()
            waits.append(1e3 * (time.perf_counter() - began))
            time.sleep(STEP_S)
    return {
        "longest wait for batches before a slow sample": Figure(max(waits[1:STRAGGLER_BATCH]), 0),
        "longest wait for those that the ring has room for, after it": Figure(
            max(waits[STRAGGLER_BATCH + 1 : STRAGGLER_BATCH + 1 + DEPTH]), 0
        ),
    }


def next_epoch(_: float) -> Figures:
    """Measure milliseconds from the last batch of an epoch to the first of the next, with samples that sleep."""
    gaps: list[float] = []
    others: list[float] = []
    with opened(_epoch_of_naps, NAP_BATCH) as pipe:
        last: float | None = None
        for _epoch in range(4):
            for number, _batch in enumerate(pipe):
                now = time.perf_counter()
                if last is not None:
                    (others if number else gaps).append(1e3 * (now - last))
                last = now
    return {"first batch of the next epoch": Figure(statistics.median(gaps), statistics.median(others))}


def slots(_: float) -> Figures:
    """Measure megabytes of the ring after some batches, for a consumer that drops each before or after requesting the
    next.
    """
    workload = WORKLOADS["image"]
    batch_mb = workload.batch_size * (workload.max_sample_bytes + 4) / 1e6
    with opened(sample_source(workload), workload.batch_size) as pipe:
        for _ in range(SLOT_BATCHES):
            pipe.run()
        dropped_mb = max(_memory_files()) / 1e6
        consume(pipe)(SLOT_BATCHES)
        held_mb = max(_memory_files()) / 1e6
    return {
        "memory of slots": Figure(dropped_mb, (DEPTH + 2) * batch_mb),
        "memory for a batch in somebody's hand": Figure(held_mb - dropped_mb, batch_mb),
    }


def _run(pipe: Pipeline) -> Run:
    return Run(consume(pipe), lambda batch, number: None)


def _steady(pipe: Pipeline, seconds: float, warm_up: int = 2 * (DEPTH + 2)) -> Timed:
    """Do `Run.steady` after all workers have started and all slots have memory."""
    run = _run(pipe)
    run.receive(warm_up)
    while len(pipe.py_worker_pids) < (pipe.py_num_workers or 0):
        run.receive(1)
    return run.steady(seconds, processes.descendants(os.getpid()))


def _main_cpu_us(make: Callable[[int], Sample], batch_size: int, workers: int, seconds: float) -> float:
    def source(info: SampleInfo) -> Sample:
        return make(info.idx_in_epoch)

    with opened(source, batch_size, workers=workers) as pipe:
        timed = _steady(pipe, seconds, FITTED_BATCHES)
    return 1e6 * timed.main_cpu_s / timed.batches


def _stamped(_: SampleInfo) -> Sample:
    time.sleep(NAP_S)
    return np.zeros(1, np.uint8), np.array([time.monotonic_ns()])


def _with_straggler(info: SampleInfo) -> Sample:
    time.sleep(STRAGGLER_S if info.idx_in_epoch == STRAGGLER_BATCH * NAP_BATCH else NAP_S)
    return np.zeros(1, np.uint8), np.array([info.idx_in_epoch])


def _epoch_of_naps(info: SampleInfo) -> Sample:
    if info.iteration >= EPOCH_BATCHES:
        raise StopIteration
    time.sleep(NAP_S)
    return np.zeros(1, np.uint8), np.array([info.idx_in_epoch])


def _pipe_wake_ups(count: int) -> list[int]:
    """Measure nanoseconds from a write into a pipe by another process that has slept, to the end of the read."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        for _ in range(count):
            time.sleep(NAP_S * NAP_BATCH / WORKERS)
            os.write(write, time.monotonic_ns().to_bytes(8, "little"))
        os._exit(0)
    try:
        return [-int.from_bytes(os.read(read, 8), "little") + time.monotonic_ns() for _ in range(count)]
    finally:
        os.waitpid(child, 0)
        os.close(read)
        os.close(write)


def _late(times: list[int]) -> float:
    """Return the 99th percentile."""
    return float(np.percentile(times, 99))


def _memory_files() -> Iterator[int]:
    """Return the memory behind each of this process's anonymous files, in bytes."""
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{descriptor}").startswith("/memfd:dali_like"):
                yield os.stat(f"/proc/self/fd/{descriptor}").st_blocks * 512
        except FileNotFoundError:  # the descriptor of the listing itself
            continue
