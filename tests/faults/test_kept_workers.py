"""Loaders that keep their workers, or let them rest, with killed processes, forks of the program, threads and Ctrl-C."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import psutil
import pytest

from dali_like import Pipeline, fn
from dali_like.data import DataLoader
from dali_like.engine.memory.descriptors import Descriptor, EventSet
from tests.conftest import children, descendants_of, is_running, wait_until
from tests.faults.interrupting import interrupt_at
from tests.faults.processes import workers_of
from tests.internals import loader_workers_of

#: Start methods and options of loaders: workers that are kept, that are kept and seeded for each epoch, and that rest.
KEPT = {
    "fork": ("fork", {"persistent_workers": True}),
    "fork, ahead": ("fork", {"prefetch_epochs": True}),
    "spawn": ("spawn", {"persistent_workers": True}),
    "spawn, at rest": ("spawn", {}),
}
NUM_BATCHES = 12


class Numbers:
    """The numbers from `first` on."""

    def __init__(self) -> None:
        self.first = 0

    def __len__(self) -> int:
        return 4 * NUM_BATCHES

    def __getitem__(self, index: int) -> Any:
        return np.int64(self.first + index)


def make(kind: str, **options: Any) -> DataLoader[Any]:
    start_method, kept = KEPT[kind]
    return DataLoader(Numbers(), 4, num_workers=2, multiprocessing_context=start_method, **kept, **options)


def epoch(first: int = 0) -> list[list[int]]:
    return np.arange(first, first + 4 * NUM_BATCHES).reshape(-1, 4).tolist()


def batches_of(iterator: Any) -> list[list[int]]:
    return [batch.tolist() for batch in iterator]


def processes_of_loader(which: str) -> list[int]:
    """The processes of the only loader: its forkserver, its workers, or all."""
    (forkserver,) = (pid for pid in children() if psutil.Process(pid).name() == "dali_like:start")
    if which == "forkserver":
        return [forkserver]
    return [*([forkserver] if which == "all" else ()), *descendants_of(forkserver)]


def kill(pids: Sequence[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # killed before, and its end has not been noticed
            os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not any(map(is_running, pids)), "the ends of the processes")


def in_a_fork(function: Callable[[], Any]) -> int:
    """Call a function in a fork of this process. Return the status with which it ends: 0 without an error."""
    pid = os.fork()
    if pid == 0:
        try:
            function()
        finally:
            os._exit(0 if sys.exc_info()[0] is None else 1)
    return os.waitpid(pid, 0)[1]


def change(loader: DataLoader[Any]) -> None:
    loader.dataset.first = 1000


def refresh(loader: DataLoader[Any]) -> None:
    loader.refresh()


class TestKilledProcesses:
    @pytest.mark.parametrize(
        ("kind", "which", "then"),
        [
            ("fork", "workers", None),
            ("fork", "workers", change),
            ("spawn", "workers", change),
            ("spawn", "all", None),
            ("spawn", "all", refresh),
            ("spawn, at rest", "all", None),
            ("spawn, at rest", "all", change),
        ],
    )
    def test_between_epochs_leave_no_trace_in_the_next(
        self, kind: str, which: str, then: Callable[[DataLoader[Any]], None] | None
    ) -> None:
        loader = make(kind)
        list(loader)
        kill(processes_of_loader(which))
        if then is not None:
            then(loader)

        assert batches_of(loader) == epoch(loader.dataset.first)

    @pytest.mark.parametrize("kind", KEPT)
    def test_before_the_end_of_an_epoch_leave_no_trace_in_this_and_the_next(self, kind: str) -> None:
        loader = make(kind)
        batches = iter(loader)
        seen = [next(batches).tolist() for _ in range(NUM_BATCHES)]
        kill(loader_workers_of(batches).pool.worker_pids)

        assert seen + batches_of(batches) == epoch()
        assert batches_of(loader) == epoch()

    def test_while_other_iterators_end_leave_no_trace_in_the_last_one(self) -> None:
        loader = make("spawn")
        last = iter(loader)
        others = [iter(loader) for _ in range(3)]
        seen = [next(last).tolist()]
        while others:
            kill(loader_workers_of(last).pool.worker_pids[:1])
            others.pop()
            seen.append(next(last).tolist())

        assert seen + batches_of(last) == epoch()


class TestAForkOfTheProgram:
    @pytest.mark.parametrize("kind", ["fork", "fork, ahead", "spawn, at rest"])
    def test_has_workers_of_its_own_and_leaves_those_of_the_program(self, kind: str) -> None:
        loader = make(kind)
        list(loader)
        pids = {*descendants_of(os.getpid())}

        def use() -> None:
            assert batches_of(loader) == epoch()
            loader._iterator = None
            wait_until(lambda: not any(map(is_running, descendants_of(os.getpid()))), "the ends of the child's processes")

        assert in_a_fork(use) == 0
        assert pids <= {*descendants_of(os.getpid())}
        assert batches_of(loader) == epoch()

    @pytest.mark.parametrize("start_method", ["fork", "spawn"])
    def test_that_drops_a_loader_leaves_deaths_of_workers_to_the_program(self, start_method: str) -> None:
        loader = make(start_method)
        held = [iter(loader)]
        seen = [next(held[0]).tolist()]
        pids = loader_workers_of(held[0]).pool.worker_pids

        def drop() -> None:
            nonlocal loader
            held.clear()
            del loader
            gc.collect()

        assert in_a_fork(drop) == 0
        kill(pids)

        assert seen + batches_of(held[0]) == epoch()

    @pytest.mark.parametrize("start_method", ["fork", "spawn"])
    def test_that_drops_a_pipeline_leaves_deaths_of_workers_to_the_program(self, start_method: str) -> None:
        pipe = Pipeline(4, num_threads=1, py_num_workers=2, py_start_method=start_method)
        pipe.set_outputs(fn.external_source(lambda info: np.int64(info.idx_in_epoch), batch=False, parallel=True))
        held = [pipe]
        pipe.run()
        pids = workers_of(pipe)

        def drop() -> None:
            nonlocal pipe
            held.clear()
            del pipe
            gc.collect()

        assert in_a_fork(drop) == 0
        kill(pids)

        with pipe:
            seen = [np.asarray(pipe.run()[0][0]).item() for _ in range(20)]
        assert seen == [4 * number for number in range(1, 21)]

    def test_that_drops_an_event_set_leaves_the_events_to_the_program(self) -> None:
        read, write = os.pipe()
        events, readable, writable = EventSet(), Descriptor(read), Descriptor(write)
        events.add(readable)

        def drop() -> None:
            events.remove(readable)
            events.close()

        assert in_a_fork(drop) == 0
        os.write(writable.fileno(), b".")

        assert select.select([events], [], [], 0)[0] == [events]
        for descriptor in (events, readable, writable):
            descriptor.close()


class TestThreads:
    @pytest.mark.parametrize("kind", ["fork", "fork, ahead", "spawn, at rest"])
    def test_that_iterate_at_once_have_all_batches_each(self, kind: str) -> None:
        loader = make(kind)
        list(loader)
        start, seen = threading.Barrier(2), []

        def iterate() -> None:
            start.wait()
            seen.append(batches_of(loader))

        threads = [threading.Thread(target=iterate) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert seen == [epoch()] * 2
        assert batches_of(loader) == epoch()


class TestCtrlC:
    @pytest.mark.parametrize(("kind", "then"), [("fork", None), ("spawn", change), ("spawn, at rest", None)])
    def test_at_any_point_of_iter_leaves_a_loader_that_can_be_used(
        self, kind: str, then: Callable[[DataLoader[Any]], None] | None
    ) -> None:
        loader = make(kind)
        for point in itertools.count(step=211):
            list(loader)
            if then is not None:
                loader.dataset.first += 1000
            has_come = interrupt_at(point, lambda: iter(loader))[0]
            assert batches_of(loader) == epoch(loader.dataset.first)
            if not has_come:
                break
