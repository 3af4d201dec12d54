"""Workers keep the memory of freed samples, so that the kernel does not zero pages for each sample."""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dali_like
from dali_like import Pipeline
from dali_like.engine.worker import malloc as allocator
from dali_like.engine.worker.malloc import keep_freed_memory, kept_bytes
from dali_like.types import SampleInfo

MIB = 1 << 20
GIB = 1 << 30
#: With pages of 4 KiB, there are as many faults as pages; with huge pages, still more than this.
FEW_FAULTS = 20
BATCH_SIZE = 8


def frees_much(_: SampleInfo) -> NDArray[Any]:
    """Allocate and free 120 MB in five arrays. Return the number of page faults of the process."""
    arrays = [np.ones(6_000_000, np.float32) for _ in range(5)]
    del arrays
    return np.array([resource.getrusage(resource.RUSAGE_SELF).ru_minflt])


def faults_a_sample(pipe: Pipeline) -> float:
    pipe.run()  # allocates the memory
    (batch,) = pipe.run()
    faults = batch.as_array()[:, 0]
    return statistics.median((faults[1:] - faults[:-1]).tolist())


#: Run in a fresh process: forked workers inherit the heap of this one, with the holes that other tests have left in it.
PROGRAM = f"""if True:
    import sys
    from dali_like import fn, pipeline_def
    from dali_like.engine.worker import malloc
    from tests.engine.worker.test_malloc import faults_a_sample, frees_much

    malloc.available_bytes = lambda: {8 * GIB}

    @pipeline_def(batch_size={BATCH_SIZE}, py_num_workers=1, py_start_method=sys.argv[1])
    def pipeline():
        return fn.external_source(frees_much, batch=False, parallel=True)

    pipe = pipeline()
    print(faults_a_sample(pipe))
    pipe.close()
"""


@pytest.mark.parametrize("start_method", ["fork", "spawn"])
def test_memory_freed_by_one_sample_is_reused_by_the_next_without_page_faults(start_method: str) -> None:
    root = Path(str(dali_like.__file__)).parents[1]
    command = [sys.executable, "-c", PROGRAM, start_method]
    result = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=300, check=False)

    assert result.stderr == ""
    assert float(result.stdout) <= FEW_FAULTS


def test_users_may_limit_the_memory_that_is_kept(
    make_pipeline: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", str(MIB))
    pipe = make_pipeline(frees_much, "spawn", workers=1, batch_size=BATCH_SIZE)

    assert faults_a_sample(pipe) > FEW_FAULTS


@pytest.mark.parametrize("tunables", ["glibc.malloc.trim_threshold=1048576", "glibc.cpu.hwcaps=x:glibc.malloc.arena_max=1"])
def test_users_may_say_it_by_tunables(
    tunables: str, make_pipeline: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GLIBC_TUNABLES", tunables)
    pipe = make_pipeline(frees_much, "spawn", workers=1, batch_size=BATCH_SIZE)

    assert faults_a_sample(pipe) > FEW_FAULTS


@pytest.mark.parametrize(
    ("num_workers", "available", "kept"),
    [
        (1, 8 * GIB, GIB),
        (2, 8 * GIB, GIB // 2),
        (64, 64 * GIB, 128 * MIB),
        (64, 8 * GIB, 64 * MIB),
        (1, 0, 64 * MIB),
        (1, 1 << 60, GIB),
    ],
    ids=["one", "two", "many", "least", "nothing left", "most"],
)
def test_all_workers_together_keep_an_eighth_of_the_available_memory(num_workers: int, available: int, kept: int) -> None:
    assert kept_bytes(num_workers, available) == kept


@pytest.mark.parametrize(
    ("most", "asked"),
    [(GIB, [(-3, 512 * MIB), (-1, GIB)]), (32 * MIB, [(-3, 512 * MIB), (-3, 32 * MIB), (-1, GIB)])],
    ids=["all of it", "no more than 32 MiB"],
)
def test_smaller_thresholds_are_asked_for_until_glibc_accepts_one(
    most: int, asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    class Library:
        def mallopt(self, what: int, nbytes: int) -> bool:
            calls.append((what, nbytes))
            return nbytes <= most

    monkeypatch.setattr(allocator.ctypes, "CDLL", lambda name: Library())
    monkeypatch.setattr(allocator, "available_bytes", lambda: 8 * GIB)

    keep_freed_memory(1)

    assert calls == asked


def test_another_allocator_than_that_of_glibc_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocator.ctypes, "CDLL", lambda name: object())

    keep_freed_memory(1)
