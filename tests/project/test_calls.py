"""Python calls that the main process makes for one batch, and the files they are in, as upper bounds.

A time would depend on the machine; calls hardly do, so a bound that falls stays fallen. The least of several batches counts:
on a busy machine most calls also wait for a report. The bounds leave room for a call that reads two reports at once.
"""

from __future__ import annotations

import mmap
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

import numpy as np

import dali_like
from dali_like import Pipeline, fn
from dali_like.data import ArrayDataset, DataLoader
from tests.conftest import wait_until

BATCH_SIZE = 16
#: Batches that are not counted: schemas are learned, and memory is touched for the first time.
FIRST = 12
COUNTED = 24


class Pairs:
    """A dataset and a source of pairs, which marks them in memory that forked workers share."""

    def __init__(self) -> None:
        self._made = mmap.mmap(-1, len(self) + BATCH_SIZE * 100)  # pipelines compute more ahead

    @property
    def num_made(self) -> int:
        """The number of pairs before the first missing one."""
        return self._made[:].find(0)

    def __len__(self) -> int:
        return BATCH_SIZE * (FIRST + COUNTED + 8)  # batches at the end are taken without a request for another one

    def __getitem__(self, index: int) -> Any:
        self._made[index] = 1
        return np.full((4, 4), index), np.int64(index)

    def sample(self, info: dali_like.SampleInfo) -> Any:
        return self[info.idx_in_epoch]


def calls_of(function: Callable[[], Any]) -> list[CodeType]:
    """Return the code of each call of a function of the package."""
    called: list[CodeType] = []

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_globals.get("__name__", "").startswith(f"{dali_like.__name__}."):
            called.append(frame.f_code)

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    return called


def least(take: Callable[[], Any], pairs: Pairs) -> tuple[int, int]:
    """Return the least number of calls for a batch, and of their files."""
    counts = []
    take()  # begins the work
    for number in range(1, FIRST + COUNTED):
        wait_until(lambda: pairs.num_made >= (number + 1) * BATCH_SIZE, "a finished batch")  # noqa: B023
        called = calls_of(take)
        counts.append((len(called), len({code.co_filename for code in called})))
    calls, files = zip(*counts[FIRST:], strict=True)
    return min(calls), min(files)


def test_steady_next_of_a_loader_makes_few_calls_in_few_files() -> None:
    pairs = Pairs()
    batches = iter(DataLoader(pairs, BATCH_SIZE, num_workers=2, multiprocessing_context="fork"))

    calls, files = least(lambda: next(batches), pairs)

    assert len(list(batches)) == 8
    assert calls <= 145
    assert files <= 29


def test_next_of_a_loader_without_workers_makes_few_calls() -> None:
    batches = iter(DataLoader(range(BATCH_SIZE * 8), BATCH_SIZE))
    next(batches)  # draws the first indices, and learns the schema

    calls = min(len(calls_of(lambda: next(batches))) for _ in range(6))

    assert calls <= 34


def test_a_batch_of_arrays_is_gathered_in_calls_whose_number_does_not_depend_on_its_size() -> None:
    def calls(size: int) -> int:
        batches = iter(DataLoader(ArrayDataset(np.zeros((size * 8, 2)), np.arange(size * 8)), size))
        next(batches)
        return min(len(calls_of(lambda: next(batches))) for _ in range(6))

    assert calls(256) == calls(2)


def test_steady_run_of_a_pipeline_makes_few_calls_in_few_files() -> None:
    pairs = Pairs()
    pipe = Pipeline(BATCH_SIZE, num_threads=1, py_num_workers=2, py_start_method="fork")
    pipe.set_outputs(*fn.external_source(pairs.sample, num_outputs=2, batch=False, parallel=True))

    with pipe:
        calls, files = least(pipe.run, pairs)

    assert calls <= 84
    assert files <= 16
