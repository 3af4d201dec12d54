"""Work of the main process for a batch, as upper bounds: Python calls, their files, system calls, bytes and forks.

A time would depend on the machine; calls hardly do, so a bound that falls stays fallen. The least of several batches counts:
on a busy machine most calls also wait for a report. The bounds leave room for a call that reads two reports at once.
"""

from __future__ import annotations

import functools
import mmap
import os
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

import numpy as np
import pytest

import dali_like
from dali_like import Pipeline, fn
from dali_like.data import ArrayDataset, DataLoader, RandomSampler
from dali_like.data.generators import NumpyRandomness
from dali_like.engine.worker import runner
from dali_like.engine.worker.task import SlotView
from tests.conftest import wait_until
from tests.internals import requests_of

#: Methods that are system calls, and functions of `posix` that make no system call.
SYSTEM_METHODS = {"poll", "madvise", "register", "unregister"}
NO_SYSTEM_CALLS = {"fspath", "getpid", "register"}

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


def calls_of(function: Callable[[], Any], package: str = f"{dali_like.__name__}.") -> list[CodeType]:
    """Return the code of each call of a function of the package; with "", of all functions."""
    called: list[CodeType] = []

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_globals.get("__name__", "").startswith(package):
            called.append(frame.f_code)

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    return called


def system_calls_of(function: Callable[[], Any]) -> list[str]:
    """Return the names of the calls of a function that go to the system."""
    called: list[str] = []

    def note(frame: FrameType, event: str, argument: Any) -> None:
        name = getattr(argument, "__name__", "")
        if event == "c_call" and (getattr(argument, "__module__", "") == "posix" or name in SYSTEM_METHODS):
            called.append(name)

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    return [name for name in called if name not in NO_SYSTEM_CALLS]


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
    assert calls <= 96
    assert files <= 15


def test_next_of_a_loader_without_workers_makes_few_calls() -> None:
    batches = iter(DataLoader(range(BATCH_SIZE * 8), BATCH_SIZE))
    next(batches)  # draws the first indices, and learns the schema

    calls = min(len(calls_of(lambda: next(batches))) for _ in range(6))

    assert calls <= 16


def test_a_short_epoch_without_workers_makes_few_calls() -> None:
    loader = DataLoader(range(16), 4)
    list(loader)

    assert min(len(calls_of(lambda: iter(loader))) for _ in range(3)) <= 35
    assert min(len(calls_of(lambda: list(loader))) for _ in range(3)) <= 125


@pytest.mark.peers
@pytest.mark.parametrize("options", [{}, {"shuffle": True}, {"collate_fn": list}], ids=str)
def test_a_batch_and_an_epoch_without_workers_make_no_more_calls_than_in_pytorch(options: dict[str, Any]) -> None:
    torch_data = pytest.importorskip("torch").utils.data
    from dali_like.plugin.pytorch import DataLoader as TorchDataLoader

    def costs(library: Any) -> list[int]:
        loader = library(range(16), 4, **options)
        batches = iter(loader)
        functions: list[Callable[[], Any]] = [lambda: list(loader), functools.partial(next, batches)]
        list(loader)
        return [min(len(calls_of(function, "")) for _ in range(4)) for function in functions]

    for ours, theirs in zip(costs(TorchDataLoader), costs(torch_data.DataLoader), strict=True):
        assert ours <= theirs


def test_an_epoch_without_workers_draws_one_permutation_from_a_generator_of_its_own() -> None:
    drawn = []

    class Counting(NumpyRandomness):
        def permutation(self, length: int) -> Any:
            drawn.append(length)
            return super().permutation(length)

    class Sampler(RandomSampler):
        randomness = Counting

    assert sorted(Sampler(range(100))) == list(range(100))
    assert drawn == [100]


def test_workers_keep_the_views_of_hundreds_of_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def make(*arguments: Any) -> SlotView:
        made.append(1)
        return SlotView(*arguments)

    monkeypatch.setattr(runner, "SlotView", make)

    list(DataLoader(Squares(2000), 1, num_workers=1, prefetch_factor=400, multiprocessing_context="thread"))

    assert len(made) < 1000


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_state_after_each_batch_takes_few_calls(num_workers: int) -> None:
    loader = DataLoader(range(BATCH_SIZE * 8), BATCH_SIZE, shuffle=True, num_workers=num_workers)
    batches = iter(loader)
    next(batches)
    loader.state_dict()

    assert min(len(calls_of(loader.state_dict)) for _ in range(3)) <= 31


def test_batches_of_arrays_of_any_size_are_gathered_in_equally_many_calls() -> None:
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


#: The datasets and options of loaders.
STEADY: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "rows": (lambda: Squares(800), {}),
    "texts": (lambda: Texts(800), {}),
    "collation": (lambda: Squares(800), {"collate_fn": list}),
    "no batches": (lambda: Squares(50), {"batch_size": None}),
}


class Squares:
    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return np.int64(index) ** 2


class Texts(Squares):
    def __getitem__(self, index: int) -> Any:
        return f"text {index}"


@pytest.mark.parametrize("case", STEADY)
def test_steady_next_of_a_loader_reads_a_report_and_writes_a_task(case: str) -> None:
    dataset, options = STEADY[case]
    batches = iter(DataLoader(dataset(), num_workers=1, **{"batch_size": BATCH_SIZE, **options}))
    for _ in range(FIRST):
        next(batches)

    calls = [system_calls_of(lambda: next(batches)) for _ in range(COUNTED)]

    assert min(calls, key=len) == ["read", "write"]


def test_next_of_a_loader_without_workers_makes_no_system_call() -> None:
    batches = iter(DataLoader(range(BATCH_SIZE * 8), BATCH_SIZE))
    next(batches)

    assert min((system_calls_of(lambda: next(batches)) for _ in range(6)), key=len) == []


def test_requests_of_a_loader_are_little_longer_than_their_indices() -> None:
    batches = iter(DataLoader(Squares(64 * 40), 64, num_workers=1))
    next(batches)

    assert max(map(len, requests_of(batches))) <= 64 * 3


@pytest.mark.parametrize("num_workers", [1, 2])
def test_an_epoch_with_forked_workers_forks_the_program_once(num_workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    forks, fork = [], os.fork
    monkeypatch.setattr(os, "fork", lambda: (forks.append(os.getpid()), fork())[1])

    list(DataLoader(range(16), 4, num_workers=num_workers, multiprocessing_context="fork"))

    assert forks == [os.getpid()]
