"""Startup costs: importing the library, starting workers, passing them a large source; each with its limit."""

from __future__ import annotations

import mmap
import os
import statistics
import subprocess
import sys
import time
from typing import Any

import numpy as np

from benchmarks import processes
from benchmarks.limits.figures import Figure, Figures, opened
from benchmarks.workloads import WORKERS, WORKLOADS
from dali_like.types import SampleInfo

__all__ = ["imports", "large_source", "spawn"]

SOURCE_BYTES = 500_000_000
SOURCE_WORKERS = 8
IMPORTS = 5


def spawn(_: float) -> Figures:
    """Measure seconds from `build()` to the first batch."""
    make = WORKLOADS["tiny"].make

    def source(info: SampleInfo) -> Any:
        return make(info.idx_in_epoch)

    _seconds_of("import numpy, cloudpickle")  # compiles missing bytecode
    limit = _seconds_of(*["import numpy, cloudpickle"] * WORKERS)
    began = time.perf_counter()
    with opened(source, WORKLOADS["tiny"].batch_size, method="spawn") as pipe:
        pipe.run()
        took = time.perf_counter() - began
    return {"build() to the first batch, spawned": Figure(took, limit)}


def large_source(_: float) -> Figures:
    """Measure the time, and the memory added by workers and shared data, in copies of the source's array."""
    large, small = np.ones(SOURCE_BYTES, np.uint8), np.ones(1000, np.uint8)
    began = time.perf_counter()
    shared = mmap.mmap(-1, SOURCE_BYTES)
    np.frombuffer(shared, np.uint8)[:] = large
    copy_s = time.perf_counter() - began
    shared.close()
    _, small_s = _with_source(small)
    added, large_s = _with_source(large)
    return {
        "memory for a source with 500 MB, in copies of it": Figure(added / SOURCE_BYTES, 1),
        "time for it": Figure(large_s - small_s, copy_s),
    }


def imports(_: float) -> Figures:
    """Measure milliseconds of a program that only imports the library."""
    times: dict[str, list[float]] = {"numpy": [], "dali_like": []}
    _seconds_of("import dali_like, numpy")  # compiles missing bytecode
    for _number in range(IMPORTS):
        for name, taken in times.items():
            taken.append(1e3 * _seconds_of(f"import {name}"))
    return {"import dali_like": Figure(statistics.median(times["dali_like"]), statistics.median(times["numpy"]))}


def _with_source(array: Any) -> tuple[int, float]:
    """Measure the memory added by eight spawned workers that have read an array, and the seconds until the first batch."""

    def source(info: SampleInfo) -> Any:
        if info.idx_in_epoch >= SOURCE_WORKERS:  # further samples of prefetched batches
            return np.zeros(1), np.zeros(1)
        return array[::4096].sum(keepdims=True, dtype=np.float64), np.zeros(1)

    before = processes.pss_bytes([os.getpid()])
    began = time.perf_counter()
    with opened(source, SOURCE_WORKERS, workers=SOURCE_WORKERS, method="spawn") as pipe:
        pipe.run()
        took = time.perf_counter() - began
        added = processes.pss_bytes([os.getpid(), *processes.descendants(os.getpid())]) - before
    return added, took


def _seconds_of(*programs: str) -> float:
    """Measure the run time of programs that run in parallel."""
    began = time.perf_counter()
    running = [subprocess.Popen([sys.executable, "-c", program]) for program in programs]
    for process in running:
        if process.wait():
            raise RuntimeError(f"{process.args!r} failed")
    return time.perf_counter() - began
