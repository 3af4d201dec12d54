"""Coroutine functions as sources: how many samples run at once, and that all else is as with functions.

Samples that should run at once meet at a barrier: fewer would never pass it, and more would be counted.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import gc
import itertools
import logging
import os
import re
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dali_like import Pipeline, fn, get_worker_info
from dali_like.errors import ArgumentError, DefinitionError, SampleTypeError, WorkerDiedError, WorkerTimeoutError
from dali_like.types import BatchInfo, SampleInfo
from tests.conftest import DEADLINE_S, in_both_places, in_processes, time_limit, wait_until
from tests.faults.programs import Program

MakePipeline = Callable[..., Pipeline]

BATCH_SIZE = 4

pytestmark = pytest.mark.usefixtures("limited_time")


def run(pipe: Pipeline) -> list[Any]:
    """Return the next batch."""
    return [np.asarray(sample).tolist() for sample in pipe.run()[0]]


async def number(info: SampleInfo) -> Any:
    """Return the index of the sample."""
    await asyncio.sleep(0)
    return np.int64(info.idx_in_epoch)


# Concurrency


class Meeting:
    """A source whose samples wait until `expected` of them run at once. A sample is the largest number so far."""

    def __init__(self, expected: int) -> None:
        self.expected = expected
        self.count = self.most = 0
        self.barrier: Any = None

    async def __call__(self, info: SampleInfo) -> Any:
        if self.barrier is None:
            self.barrier = asyncio.Barrier(self.expected)
        self.count += 1
        self.most = max(self.most, self.count)
        await asyncio.wait_for(self.barrier.wait(), DEADLINE_S / 2)
        self.count -= 1
        return np.int64(self.most)


@pytest.mark.parametrize(
    ("batch_size", "workers", "concurrency", "together", "most"),
    [
        *[(16, 2, 4, 4, 4), (16, 2, 1, 1, 1), (16, 2, None, 8, 16), (16, 1, None, 16, 16), (64, 2, 32, 32, 32)],
        *[(16, 2, 100, 8, 100), (6, 3, 2, 2, 2)],
    ],
)
@pytest.mark.parametrize("start_method", ["fork"])
def test_samples_in_the_making_at_once_in_each_worker(
    batch_size: int,
    workers: int,
    concurrency: int | None,
    together: int,
    most: int,
    start_method: str,
    make_pipeline: MakePipeline,
) -> None:
    options = {"concurrency": concurrency}
    pipe = make_pipeline(Meeting(together), start_method, batch_size=batch_size, workers=workers, source_options=options)

    for _ in range(3):
        assert all(together <= number <= most for number in run(pipe))


def test_workers_begin_the_next_batches_before_the_end_of_a_batch(make_pipeline: MakePipeline) -> None:
    class Source(Meeting):
        async def __call__(self, info: SampleInfo) -> Any:
            # The first batch shows the schema: the others begin behind it.
            return await super().__call__(info) if info.iteration else np.int64(12)

    options = {"batch_size": 4, "workers": 1, "prefetch_queue_depth": 4, "source_options": {"concurrency": 12}}
    pipe = make_pipeline(Source(12), "fork", **options)

    for _ in range(7):
        assert run(pipe) == [12] * 4


@pytest.mark.parametrize(("concurrency", "expected"), [(4, 4), (1, 1), (None, 16), (100, 16)])
def test_samples_in_the_making_at_once_in_the_main_process(
    concurrency: int | None, expected: int, make_pipeline: MakePipeline
) -> None:
    pipe = make_pipeline(Meeting(expected), "serial", batch_size=16, source_options={"concurrency": concurrency})

    for _ in range(3):
        assert run(pipe)[-1] == expected


def test_a_sample_begins_as_soon_as_another_one_is_done(make_pipeline: MakePipeline) -> None:
    async def source(info: SampleInfo) -> Any:
        # The first sample waits for the last one, which begins before the first is done.
        if info.idx_in_batch == 0:
            last.clear()
            await asyncio.wait_for(last.wait(), DEADLINE_S)
        elif info.idx_in_batch == 15:
            last.set()
        return np.int64(info.idx_in_epoch)

    last = asyncio.Event()
    pipe = make_pipeline(source, "serial", batch_size=16, source_options={"concurrency": 2})

    for iteration in range(3):
        assert run(pipe) == list(range(16 * iteration, 16 * iteration + 16))


def test_spawned_workers_make_several_at_once(make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(Meeting(8), "spawn", batch_size=16)

    assert all(8 <= number <= 16 for number in run(pipe))


# Accepted coroutine functions


class Samples:
    """Coroutine functions of all kinds."""

    async def __call__(self, info: SampleInfo) -> Any:
        return await number(info)

    async def method(self, info: SampleInfo) -> Any:
        return await number(info)

    @staticmethod
    async def static(info: SampleInfo) -> Any:
        return await number(info)

    async def second(self, first: int, info: SampleInfo) -> Any:
        return await number(info)


KINDS: dict[str, Any] = {
    "function": number,
    "object": Samples(),
    "method": Samples().method,
    "static method": Samples.static,
    "partial": functools.partial(Samples().second, 5),
    "partial of an object": functools.partial(Samples()),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", ["serial", "fork"])
def test_any_coroutine_function_may_be_a_source(kind: str, way: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(KINDS[kind], way)

    for iteration in range(3):
        assert run(pipe) == [4 * iteration + i for i in range(4)]


def test_samples_of_any_form(way: str, make_pipeline: MakePipeline) -> None:
    async def source(info: SampleInfo) -> Any:
        await asyncio.sleep(0)
        i = info.idx_in_epoch
        return np.full((2, 3), i), np.full(i % 3, i), i / 2

    pipe = make_pipeline(source, way, num_outputs=3)

    for iteration in range(12):
        numbers = [4 * iteration + i for i in range(4)]
        dense, ragged, scalars = pipe.run()
        assert dense.as_array().tolist() == [[[i] * 3] * 2 for i in numbers]
        assert [np.asarray(sample).tolist() for sample in ragged] == [[i] * (i % 3) for i in numbers]
        assert scalars.as_array().tolist() == [i / 2 for i in numbers]


@pytest.mark.parametrize("grown", [9, 8, 11])
@in_both_places
def test_samples_that_outgrow_their_slot(grown: int, way: str, make_pipeline: MakePipeline) -> None:
    async def source(info: SampleInfo) -> Any:
        await asyncio.sleep(0)
        return np.full(3 << 20 if info.idx_in_epoch >= grown else 3, info.idx_in_epoch, np.uint8)

    pipe = make_pipeline(source, way)

    for iteration in range(5):
        (batch,) = pipe.run()
        for i in range(4):
            index = 4 * iteration + i
            np.testing.assert_array_equal(batch.at(i), np.full(3 << 20 if index >= grown else 3, index, np.uint8))


def test_batches(way: str, make_pipeline: MakePipeline) -> None:
    async def source(info: BatchInfo) -> Any:
        await asyncio.sleep(0)
        if info.iteration == 2:
            raise StopIteration
        return np.arange(3) + info.iteration

    pipe = make_pipeline(source, way, source_options={"batch": True, "batch_info": True})

    for _ in range(2):
        assert [run(pipe), run(pipe)] == [[0, 1, 2], [1, 2, 3]]
        with pytest.raises(StopIteration):
            pipe.run()
        pipe.reset()


def test_batches_of_a_coroutine_function_without_argument(make_pipeline: MakePipeline) -> None:
    numbers = iter(range(10))

    async def source() -> Any:
        return np.full((1 << 20) * (next(numbers) % 3 + 1), 1, np.uint8)[None]

    pipe = make_pipeline(source, "serial", source_options={"batch": True})

    assert [pipe.run()[0].shape()[0][0] >> 20 for _ in range(6)] == [1, 2, 3] * 2


@in_processes
def test_one_event_loop_serves_all_batches(way: str, make_pipeline: MakePipeline) -> None:
    class Source:
        loops: Any = None

        async def __call__(self, info: SampleInfo) -> Any:
            self.loops = (self.loops or set()) | {id(asyncio.get_running_loop())}
            return np.int64(len(self.loops))

    pipe = make_pipeline(Source(), way)

    for _ in range(4):
        assert run(pipe) == [1] * 4


# Ends of epochs, and errors


def ends_at(length: int, error: type[Exception] = StopIteration) -> Callable[[SampleInfo], Any]:
    async def source(info: SampleInfo) -> Any:
        await asyncio.sleep(0)
        if info.idx_in_epoch >= length:
            raise error
        return np.int64(info.idx_in_epoch)

    return source


@pytest.mark.parametrize("kind", [StopIteration, StopAsyncIteration])
@pytest.mark.parametrize("length", [8, 9])
@in_both_places
def test_stop_iteration_ends_the_epoch(length: int, kind: type[Exception], way: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(ends_at(length, kind), way)

    for _ in range(3):
        assert [run(pipe), run(pipe)] == [[0, 1, 2, 3], [4, 5, 6, 7]]
        for _ in range(2):
            with pytest.raises(StopIteration):
                pipe.run()
        pipe.reset()


def fails(first: int, last: int, *, kind: type[Exception] = ValueError) -> Callable[[SampleInfo], Any]:
    """A source with two samples that fail: the one with the greater index fails first."""

    class Source:
        event: Any = None

        async def __call__(self, info: SampleInfo) -> Any:
            self.event = self.event or asyncio.Event()
            if info.idx_in_epoch == last:
                self.event.set()
                raise LookupError("the later one")
            if info.idx_in_epoch == first:
                await asyncio.wait_for(self.event.wait(), DEADLINE_S)
                raise kind("the earlier one")
            return np.int64(info.idx_in_epoch)

    return Source()


def test_the_lowest_failing_sample_decides_in_any_order_of_failures(way: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(fails(5, 6), way, workers=1)

    assert run(pipe) == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="the earlier one") as info:
        pipe.run()
    assert run(pipe) == [8, 9, 10, 11]
    assert "for sample 1 of iteration 1 in epoch 0 (idx_in_epoch 5)" in info.value.__notes__[0]


def test_an_error_that_an_end_has_caused_is_no_end(way: str, make_pipeline: MakePipeline) -> None:
    async def source(info: SampleInfo) -> Any:
        if info.idx_in_epoch == 5:
            raise ValueError("nothing there") from StopIteration()
        return np.int64(info.idx_in_epoch)

    pipe = make_pipeline(source, way)

    assert run(pipe) == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="nothing there"):
        pipe.run()


def test_the_end_of_the_epoch_comes_before_a_later_failure(way: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(fails(5, 6, kind=StopIteration), way, workers=1)

    for _ in range(2):
        assert run(pipe) == [0, 1, 2, 3]
        with pytest.raises(StopIteration):
            pipe.run()
        pipe.reset()


def test_samples_behind_a_failure_are_cancelled(make_pipeline: MakePipeline) -> None:
    begun, cancelled = [], []

    async def source(info: SampleInfo) -> Any:
        if info.iteration == 1 and info.idx_in_batch >= 2:
            try:
                begun.append(info.idx_in_batch)
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(info.idx_in_batch)
                raise
        if info.iteration == 1 and info.idx_in_batch == 1:
            while len(begun) < 2:
                await asyncio.sleep(0)
            raise ValueError("bad")
        return np.int64(info.idx_in_epoch)

    pipe = make_pipeline(source, "serial")

    assert run(pipe) == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="bad"):
        pipe.run()
    assert run(pipe) == [8, 9, 10, 11]
    assert cancelled == [2, 3]


def test_coroutines_that_never_wait_share_a_task(make_pipeline: MakePipeline) -> None:
    names = set()

    async def source(info: SampleInfo) -> Any:
        task = asyncio.current_task()
        assert task is not None
        names.add((info.iteration, task.get_name()))
        return np.int64(info.idx_in_epoch)

    pipe = make_pipeline(source, "serial")

    assert run(pipe) == [0, 1, 2, 3]
    assert len(names) == len({iteration for iteration, _ in names})


def test_a_coroutine_that_cancels_itself_has_failed(way: str, make_pipeline: MakePipeline) -> None:
    async def source(info: SampleInfo) -> Any:
        if info.idx_in_epoch == 5:
            raise asyncio.CancelledError
        return np.int64(info.idx_in_epoch)

    pipe = make_pipeline(source, way)

    assert run(pipe) == [0, 1, 2, 3]
    with pytest.raises(RuntimeError, match="cancelled"):
        pipe.run()
    assert run(pipe) == [8, 9, 10, 11]


def test_a_batch_that_cancels_itself_has_failed(way: str, make_pipeline: MakePipeline) -> None:
    async def source(iteration: int) -> Any:
        if iteration == 1:
            raise asyncio.CancelledError
        return np.array([iteration])

    pipe = make_pipeline(source, way, source_options={"batch": True})

    assert run(pipe) == [0]
    with pytest.raises(RuntimeError, match="cancelled"):
        pipe.run()
    assert run(pipe) == [2]


def test_groups_of_exceptions(way: str, make_pipeline: MakePipeline) -> None:
    async def part(good: bool) -> None:
        if not good:
            raise ValueError("bad part")

    async def source(info: SampleInfo) -> Any:
        async with asyncio.TaskGroup() as group:
            for i in range(3):
                group.create_task(part(info.idx_in_epoch != 5 or i != 1))
        return np.int64(info.idx_in_epoch)

    pipe = make_pipeline(source, way)

    assert run(pipe) == [0, 1, 2, 3]
    with pytest.raises(ExceptionGroup) as info:
        pipe.run()
    assert [type(error) for error in info.value.exceptions] == [ValueError]
    assert run(pipe) == [8, 9, 10, 11]


class OddError(BaseException):
    """An exception that `except Exception` does not catch."""


@pytest.mark.parametrize("batch", [False, True])
def test_a_base_exception_is_raised_and_its_batch_is_not_delivered(
    batch: bool, make_pipeline: MakePipeline, caplog: pytest.LogCaptureFixture
) -> None:
    armed = [True]

    async def source(info: SampleInfo | BatchInfo) -> Any:
        await asyncio.sleep(0)
        if info.iteration == 1 and armed and (isinstance(info, BatchInfo) or info.idx_in_batch == 1):
            armed.clear()
            raise OddError
        return np.array([info.iteration] if batch else info.iteration)

    options = {"batch": batch, "batch_info": batch}
    pipe = make_pipeline(source, "serial", source_options=options, prefetch_queue_depth=1)

    with caplog.at_level(logging.ERROR, "asyncio"):
        assert set(run(pipe)) == {0}
        with pytest.raises(OddError):
            pipe.run()
        assert set(run(pipe)) == {1}
        gc.collect()
    assert caplog.records == []


def test_of_several_base_exceptions_one_is_raised_and_the_other_coroutines_end(
    make_pipeline: MakePipeline, caplog: pytest.LogCaptureFixture
) -> None:
    async def source(info: SampleInfo) -> Any:
        await asyncio.sleep(0)
        if info.idx_in_batch < 2:
            raise OddError
        await asyncio.Event().wait()

    pipe = make_pipeline(source, "serial")

    with caplog.at_level(logging.ERROR, "asyncio"):
        with pytest.raises(OddError):
            pipe.run()
        gc.collect()
    assert caplog.records == []


def test_background_tasks_of_the_event_loop_end_with_the_pipeline(make_pipeline: MakePipeline) -> None:
    ended, tasks = [], []

    async def go_on() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    async def source(info: SampleInfo) -> Any:
        tasks.append(asyncio.ensure_future(go_on()))
        await asyncio.sleep(0)
        return np.int64(info.idx_in_epoch)

    pipe = make_pipeline(source, "serial", prefetch_queue_depth=1)
    assert run(pipe) == [0, 1, 2, 3]

    pipe.close()

    assert len(ended) == len(tasks) > 0


@pytest.mark.parametrize("way", ["fork"])
def test_exit_in_a_coroutine_is_the_death_of_the_worker(way: str, make_pipeline: MakePipeline) -> None:
    async def source(info: SampleInfo) -> Any:
        await asyncio.sleep(0)
        if info.idx_in_epoch == 5:
            raise SystemExit(3)
        return np.int64(info.idx_in_epoch)

    pipe = make_pipeline(source, way, py_worker_restarts=0)

    assert run(pipe) == [0, 1, 2, 3]
    with pytest.raises(WorkerDiedError, match=r"exit code 3 .* sample 1, and perhaps others after it, of iteration 1"):
        pipe.run()


def bad_at(*indices: int) -> Callable[[SampleInfo], Any]:
    async def source(info: SampleInfo) -> Any:
        await asyncio.sleep(0)
        if info.idx_in_epoch >= 16:
            raise StopIteration
        if info.idx_in_epoch in indices:
            raise ValueError(f"sample {info.idx_in_epoch} is bad")
        return np.int64(info.idx_in_epoch)

    return source


def test_on_error_skip(way: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(bad_at(0, 5, 6, 15), way, source_options={"on_error": "skip"})

    assert [run(pipe) for _ in range(3)] == [[1, 1, 2, 3], [4, 7, 7, 7], [8, 9, 10, 11]]
    with pytest.raises(ValueError, match="sample 15 is bad"):
        pipe.run()


def test_on_error_with_a_function_or_a_coroutine_function(way: str, make_pipeline: MakePipeline) -> None:
    async def later(info: SampleInfo, error: Exception) -> Any:
        await asyncio.sleep(0)
        return np.int64(-info.idx_in_epoch)

    for on_error in (later, lambda info, error: np.int64(-info.idx_in_epoch)):
        pipe = make_pipeline(bad_at(5, 6), way, source_options={"on_error": on_error})

        assert [run(pipe) for _ in range(3)] == [[0, 1, 2, 3], [4, -5, -6, 7], [8, 9, 10, 11]]


def test_on_error_of_batches(way: str, make_pipeline: MakePipeline) -> None:
    async def source(iteration: int) -> Any:
        if iteration == 1:
            raise ValueError("bad")
        return np.array([iteration])

    pipe = make_pipeline(source, way, source_options={"batch": True, "on_error": "skip"})

    assert [run(pipe) for _ in range(3)] == [[0], [2], [2]]


def test_an_exception_keeps_its_cause_and_context(make_pipeline: MakePipeline) -> None:
    async def source(iteration: int) -> Any:
        try:
            {}[iteration]
        except KeyError:
            raise ValueError("bad")  # noqa: B904

    pipe = make_pipeline(source, "serial", source_options={"batch": True})

    with pytest.raises(ValueError, match="bad") as info:
        pipe.run()
    assert isinstance(info.value.__context__, KeyError)
    assert not info.value.__suppress_context__


# Arguments and context of samples


def test_random_numbers_and_memory_belong_to_the_sample(way: str, make_pipeline: MakePipeline) -> None:
    def plain(info: SampleInfo) -> Any:
        return info.rng().random(3)

    async def source(info: SampleInfo) -> Any:
        array = info.empty(3, np.float64)
        await asyncio.sleep(0)
        random = info.rng()
        await asyncio.sleep(0)
        array[:] = random.random(3)
        return array

    expected, pipe = make_pipeline(plain, "serial", seed=5), make_pipeline(source, way, seed=5)

    for _ in range(4):
        assert run(pipe) == run(expected)


def test_context_variables_of_a_sample_are_its_own(way: str, make_pipeline: MakePipeline) -> None:
    class Source:
        variable: Any = None

        async def __call__(self, info: SampleInfo) -> Any:
            self.variable = self.variable or contextvars.ContextVar("variable", default=-1)
            before = self.variable.get()
            self.variable.set(info.idx_in_epoch)
            await asyncio.sleep(0)
            return np.array([before, self.variable.get()])

    pipe = make_pipeline(Source(), way)

    for iteration in range(3):
        assert run(pipe) == [[-1, 4 * iteration + i] for i in range(4)]


def test_serial_samples_see_the_context_of_the_program(make_pipeline: MakePipeline) -> None:
    variable = contextvars.ContextVar("variable", default=-1)

    async def source(info: SampleInfo) -> Any:
        return np.int64(variable.get())

    pipe = make_pipeline(source, "serial", prefetch_queue_depth=1)

    for value in (5, 6):
        variable.set(value)
        assert run(pipe) == [value] * 4


class Session:
    """A source that needs an object set up in the event loop."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.loop: Any = None

    async def set_up(self) -> None:
        await asyncio.sleep(0)
        self.loop = asyncio.get_running_loop()

    async def tear_down(self) -> None:
        await asyncio.sleep(0)
        assert self.loop is asyncio.get_running_loop()
        (self.folder / str(os.getpid())).touch()

    async def __call__(self, info: SampleInfo) -> Any:
        assert self.loop is asyncio.get_running_loop()
        worker = get_worker_info()
        return np.int64(worker.id if worker is not None else -1)


@in_processes
def test_worker_setup_and_teardown_in_the_same_event_loop(way: str, tmp_path: Path, make_pipeline: MakePipeline) -> None:
    source = Session(tmp_path)
    options = {"worker_setup": source.set_up, "worker_teardown": source.tear_down}
    pipe = make_pipeline(source, way, source_options=options)

    for _ in range(3):
        assert set(run(pipe)) <= ({-1} if way == "serial" else {0, 1})
    if way != "serial":
        wait_until(lambda: len(pipe.py_worker_pids) == 2, "the start of both workers")
    pids = set(pipe.py_worker_pids) or {os.getpid()}
    pipe.close()

    assert {int(path.name) for path in tmp_path.iterdir()} == pids


def test_plain_sources_may_have_coroutine_functions_to_set_up(way: str, make_pipeline: MakePipeline) -> None:
    class Source:
        ready = False

        async def set_up(self) -> None:
            await asyncio.sleep(0)
            self.ready = True

        def __call__(self, info: SampleInfo) -> Any:
            return np.bool_(self.ready)

    source = Source()
    pipe = make_pipeline(source, way, source_options={"worker_setup": source.set_up})

    assert run(pipe) == [True] * 4


# In the main process


def test_a_program_with_a_running_event_loop(make_pipeline: MakePipeline) -> None:
    variable = contextvars.ContextVar("variable", default=-1)

    async def source(info: SampleInfo) -> Any:
        await asyncio.sleep(0)
        return np.array([info.idx_in_epoch, variable.get()])

    async def program() -> list[Any]:
        here = asyncio.get_running_loop()
        variable.set(7)
        with closing(make_pipeline(source, "serial")) as pipe:
            batches = [run(pipe) for _ in range(3)]
        assert asyncio.get_running_loop() is here
        return batches

    assert asyncio.run(program()) == [[[4 * i + j, 7] for j in range(4)] for i in range(3)]


def test_a_pipeline_may_be_used_within_an_event_loop_and_outside(make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(number, "serial")

    async def within() -> Any:
        return run(pipe)

    assert [run(pipe), asyncio.run(within()), run(pipe), asyncio.run(within())] == [
        [4 * i + j for j in range(4)] for i in range(4)
    ]


@pytest.mark.parametrize("start_method", ["fork", "spawn"])
def test_workers_of_a_program_with_a_running_event_loop(start_method: str, make_pipeline: MakePipeline) -> None:
    async def program() -> Any:
        with closing(make_pipeline(number, start_method)) as pipe:
            return [run(pipe) for _ in range(3)]

    assert asyncio.run(program()) == [[4 * i + j for j in range(4)] for i in range(3)]


def test_the_event_loop_that_the_program_has_set_stays(make_pipeline: MakePipeline) -> None:
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        with closing(make_pipeline(number, "serial")) as pipe:
            assert run(pipe) == [0, 1, 2, 3]
            assert asyncio.get_event_loop() is loop
        assert asyncio.get_event_loop() is loop
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def test_a_callback_may_run_a_pipeline_of_coroutines(make_pipeline: MakePipeline) -> None:
    inner = make_pipeline(number, "serial")

    async def source(info: SampleInfo) -> Any:
        return np.array([info.rng().random(), sum(run(inner))])

    outer, plain = make_pipeline(source, "serial", seed=3), make_pipeline(lambda i: i.rng().random(), "serial", seed=3)

    batch = run(outer)
    assert [sample[0] for sample in batch] == run(plain)
    assert sorted(sample[1] for sample in batch) == [6, 22, 38, 54]


class Waiting:
    """A source whose samples wait forever in the first attempt at iteration 1, and record their cancellation."""

    def __init__(self) -> None:
        self.waiting = 0
        self.cancelled = 0

    async def __call__(self, info: SampleInfo) -> Any:
        if info.iteration == 1 and not self.cancelled:
            self.waiting += 1
            try:
                await asyncio.Event().wait()
            finally:
                self.cancelled += 1
        return np.int64(info.idx_in_epoch)


@pytest.mark.parametrize("in_loop", [False, True], ids=["plainly", "within an event loop"])
def test_ctrl_c_cancels_running_coroutines(
    in_loop: bool, make_pipeline: MakePipeline, caplog: pytest.LogCaptureFixture
) -> None:
    source = Waiting()
    pipe = make_pipeline(source, "serial", prefetch_queue_depth=1)
    assert run(pipe) == [0, 1, 2, 3]

    def press_ctrl_c() -> None:
        wait_until(lambda: source.waiting == 4, "the samples")
        os.kill(os.getpid(), signal.SIGINT)

    async def program() -> Any:
        # As in a notebook. The handler of asyncio.run() would only cancel the task.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        return run(pipe)

    thread = threading.Thread(target=press_ctrl_c)
    thread.start()
    with caplog.at_level(logging.WARNING), pytest.raises(KeyboardInterrupt):
        asyncio.run(program()) if in_loop else run(pipe)
    thread.join()

    assert source.cancelled == 4
    gc.collect()
    assert caplog.records == []
    assert run(pipe) == [4, 5, 6, 7]


def test_ctrl_c_may_come_while_samples_are_handed_to_the_thread_of_their_event_loop(
    make_pipeline: MakePipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Waiting()
    pipe = make_pipeline(source, "serial", prefetch_queue_depth=1)

    async def program() -> Any:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        assert run(pipe) == [0, 1, 2, 3]
        monkeypatch.setattr(ThreadPoolExecutor, "submit", submit_and_interrupt)
        return run(pipe)

    def submit_and_interrupt(*args: Any, **options: Any) -> Any:
        future = submit(*args, **options)
        wait_until(lambda: source.waiting == 4, "the samples")
        signal.raise_signal(signal.SIGINT)
        return future

    submit = ThreadPoolExecutor.submit
    with time_limit(), pytest.raises(KeyboardInterrupt):
        asyncio.run(program())
    monkeypatch.undo()

    assert source.cancelled == 4
    assert run(pipe) == [4, 5, 6, 7]


# Ends of workers


def test_a_worker_that_dies_is_replaced_and_its_samples_are_made_again(
    start_method: str, tmp_path: Path, make_pipeline: MakePipeline
) -> None:
    async def source(info: SampleInfo) -> Any:
        await asyncio.sleep(0)
        if info.idx_in_epoch == 22 and not (tmp_path / "died").exists():
            (tmp_path / "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return np.int64(info.idx_in_epoch)

    pipe = make_pipeline(source, start_method, batch_size=8)

    assert [run(pipe) for _ in range(5)] == [[8 * i + j for j in range(8)] for i in range(5)]
    assert pipe.statistics().worker_restarts == 1


def test_a_sample_that_hangs_is_an_error(make_pipeline: MakePipeline) -> None:
    async def source(info: SampleInfo) -> Any:
        if info.idx_in_epoch == 5:
            await asyncio.Event().wait()
        return np.int64(info.idx_in_epoch)

    pipe = make_pipeline(source, "fork", py_timeout_s=0.3, source_options={"name": "numbers"})

    assert run(pipe) == [0, 1, 2, 3]
    with pytest.raises(WorkerTimeoutError, match="'numbers' was computing sample 1, and perhaps others after it, of"):
        pipe.run()
    assert run(pipe) == [8, 9, 10, 11]


# Refused coroutine functions


async def items() -> AsyncIterator[Any]:
    yield np.int64(0)


def test_an_async_generator_is_refused() -> None:
    with pytest.raises(DefinitionError, match="async generator function"):
        fn.external_source(source=items, batch=False)


@pytest.mark.parametrize("parallel", [False, True])
def test_a_coroutine_function_without_a_parameter_is_refused(parallel: bool) -> None:
    async def source() -> Any:
        return np.int64(0)

    with pytest.raises(DefinitionError, match="takes no argument"):
        fn.external_source(source=source, batch=False, parallel=parallel)


def test_a_plain_function_that_returns_a_coroutine_is_an_error(way: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(lambda info: number(info), way)  # noqa: PLW0108

    with pytest.raises(SampleTypeError, match=r"returned a coroutine, which is awaited only if .* `async def`"):
        pipe.run()


@pytest.mark.parametrize(
    ("source", "options", "words"),
    [
        (lambda info: info, {"batch": False}, "concurrency is for sources that are `async def`"),
        (number, {"batch": True}, "concurrency is for sources of samples"),
        (number, {"batch": False, "concurrency": 0}, "concurrency must be a positive integer"),
        (number, {"batch": False, "concurrency": 1.5}, "concurrency must be a positive integer"),
    ],
)
def test_concurrency_of_other_sources_is_refused(source: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        fn.external_source(source=source, **{"concurrency": 4, **options})


# The end of the program


#: Computes a batch, partly in a thread of asyncio, and leaves the pipeline in one of several ways.
PROGRAM = """
    import asyncio, gc
    import numpy as np
    from dali_like import fn, pipeline_def

    way, end = sys.argv[1:]

    async def endless():
        await asyncio.Event().wait()

    tasks = set()

    async def source(info):
        if info.idx_in_batch == 1:
            tasks.add(asyncio.create_task(endless()))
        return await asyncio.to_thread(np.array, info.idx_in_epoch)

    @pipeline_def(batch_size=4, num_threads=1, py_num_workers=2, py_start_method="fork" if way == "serial" else way)
    def numbers():
        return fn.external_source(source=source, batch=False, parallel=way != "serial")

    def main():
        pipe = numbers()
        assert pipe.run()[0].as_array().tolist() == [0, 1, 2, 3]
        if end == "close":
            pipe.close()
        elif end == "leave":
            globals()["pipe"] = pipe
        elif end == "cycle":
            pipe.itself = pipe

    main()
    if end == "cycle":
        gc.collect()
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Program]]:
    """Start a program; see `Program`. It must leave no processes or files behind."""
    programs: list[Program] = []

    def start(*parts: str, arguments: tuple[str, ...] = (), flags: tuple[str, ...] = ()) -> Program:
        programs.append(Program(tmp_path, parts, arguments, flags))
        return programs[-1]

    yield start
    for program in programs:
        program.finish()


@pytest.mark.parametrize(
    ("way", "end"),
    [*itertools.product(["serial", "fork"], ["close", "drop", "cycle", "leave"]), ("spawn", "leave"), ("thread", "leave")],
)
def test_the_end_is_silent(end: str, way: str, start: Callable[..., Program]) -> None:
    strict = ("-X", "dev", "-W", "error", "-W", "ignore::DeprecationWarning")

    result = start(PROGRAM, arguments=(way, end), flags=strict).end()

    # The development mode reports callbacks that take a tenth of a second, which happens on a busy machine.
    said = re.sub(r"^.*Executing <.*> took [\d.]+ seconds\n", "", result.stderr, flags=re.MULTILINE)
    assert (result.status, said) == (0, "")


#: Runs a pipeline in a process, and forks another process, which drops its copy of the pipeline.
FORKING = """
    import asyncio, gc, time
    import numpy as np
    from dali_like import fn, pipeline_def

    async def source(info):
        return await asyncio.to_thread(lambda: time.sleep(0.01) or np.array(info.idx_in_epoch))

    @pipeline_def(batch_size=4, num_threads=1, prefetch_queue_depth=1)
    def numbers():
        return fn.external_source(source=source, batch=False)

    pipe = numbers()
    tell(pipe.run()[0].as_array().tolist() == [0, 1, 2, 3])
    pid = os.fork()
    if pid == 0:
        if sys.argv[1] == "exit":
            sys.exit(0)
        del pipe
        gc.collect()
        os._exit(0)
    assert os.waitpid(pid, 0) == (pid, 0)
    tell(pipe.run()[0].as_array().tolist() == [4, 5, 6, 7])
"""


@pytest.mark.parametrize("child", ["exit", "drop"])
def test_a_forked_process_leaves_the_event_loop_alone(child: str, start: Callable[..., Program]) -> None:
    result = start(FORKING, arguments=(child,), flags=("-W", "ignore::DeprecationWarning")).end()

    assert (result.status, result.stdout.splitlines(), result.stderr) == (0, ["True"] * 2, "")
