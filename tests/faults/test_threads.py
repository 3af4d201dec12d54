"""Threads and processes around a pipeline: its user's threads, their ends, forks, and sources that do not fork well."""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import io
import itertools
import logging
import os
import signal
import socket
import sqlite3
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from dali_like import Pipeline, fn, pipeline_def
from dali_like.engine.backends.processes import ProcessWorkers
from dali_like.engine.pool.assembler import ArrayAssembler
from dali_like.engine.pool.dispatch import Dispatcher
from dali_like.engine.pool.pool import WorkerPool
from dali_like.engine.pool.recovery import Recovery
from dali_like.errors import ClosedError, ForkedError, PipelineStateError
from dali_like.sources.travel.hazards import announce_local_classes_of
from dali_like.types import SampleInfo
from tests.conftest import children, is_running, time_limit, wait_until
from tests.faults.programs import Program
from tests.internals import pool_of

MakePipeline = Callable[..., Pipeline]

BATCH_SIZE = 4
ITERATIONS = 40
#: Within this time a call ends that another thread ends. It takes half a second where a worker hangs.
PROMPTLY_S = 20.0

#: A hundred pipelines take a tenth of it.
LIMIT_S = 90.0


@pytest.fixture(autouse=True)
def _time_limit() -> Iterator[None]:
    with time_limit(LIMIT_S):
        yield


def numbers(info: SampleInfo) -> np.int64:
    """The index in the epoch, for some iterations."""
    if info.iteration >= ITERATIONS:
        raise StopIteration
    return np.int64(info.idx_in_epoch)


def hangs(info: SampleInfo) -> np.int64:
    """The first batch comes, the second never does."""
    if info.iteration > 0:
        time.sleep(1000)
    return np.int64(info.idx_in_epoch)


def run(pipe: Pipeline) -> list[int]:
    numbers: list[int] = pipe.run()[0].as_array().tolist()
    return numbers


def iteration(number: int) -> list[int]:
    return list(range(number * BATCH_SIZE, (number + 1) * BATCH_SIZE))


def run_until_closed(pipe: Pipeline) -> list[list[int]]:
    """The batches that come before ClosedError does."""
    batches = []
    while True:
        try:
            batches.append(run(pipe))
        except ClosedError:
            return batches


def in_thread(call: Callable[[], Any]) -> Future[Any]:
    """Return the future of a call in a thread of its own, which has ended."""
    future: Future[Any] = Future()

    def work() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error.with_traceback(None))

    threading.Thread(target=work, name="test").start()
    return future


@pytest.fixture(params=["serial", "fork", "thread"])
def way(request: pytest.FixtureRequest) -> str:
    """How sources are called. Threads of the main process do not see how workers have been started."""
    return str(request.param)


class TestRunInSeveralThreads:
    @pytest.mark.parametrize("num_threads", [2, 8])
    def test_delivers_every_batch_once(self, num_threads: int, way: str, make_pipeline: MakePipeline) -> None:
        pipe = make_pipeline(numbers, way)
        start = threading.Barrier(num_threads)

        def consume() -> list[list[int]]:
            start.wait()
            batches = []
            while True:
                try:
                    batches.append(run(pipe))
                except StopIteration:
                    return batches

        with ThreadPoolExecutor(num_threads) as threads:
            seen = [future.result() for future in [threads.submit(consume) for _ in range(num_threads)]]

        assert all(batches == sorted(batches) for batches in seen)
        assert sorted(itertools.chain.from_iterable(seen)) == [iteration(n) for n in range(ITERATIONS)]

    def test_builds_the_pipeline_once(self, way: str, make_pipeline: MakePipeline) -> None:
        pipe = make_pipeline(numbers, way)
        start = threading.Barrier(8)

        def first() -> list[int]:
            start.wait()
            return run(pipe)

        with ThreadPoolExecutor(8) as threads:
            seen = [future.result() for future in [threads.submit(first) for _ in range(8)]]

        assert sorted(seen) == [iteration(n) for n in range(8)]
        started = [pid for pid in children() if psutil.Process(pid).ppid() == os.getpid()]
        assert len(started) == (0 if way in ("serial", "thread") else 1)  # which is the one that starts workers

    def test_raises_an_exception_in_one_of_them(self, way: str, make_pipeline: MakePipeline) -> None:
        def source(info: SampleInfo) -> np.int64:
            if info.idx_in_epoch == 13:
                raise LookupError("no such sample")
            return numbers(info)

        pipe = make_pipeline(source, way)

        def outcome(_: int) -> list[int] | str:
            try:
                return run(pipe)
            except LookupError as error:
                return str(error)

        with ThreadPoolExecutor(4) as threads:
            seen = list(threads.map(outcome, range(10)))

        assert sorted(seen, key=str) == sorted([iteration(n) if n != 3 else "no such sample" for n in range(10)], key=str)

    def test_of_two_pipelines_keeps_them_apart(self, way: str, make_pipeline: MakePipeline) -> None:
        offsets = [0, 1_000_000]
        pipes = [make_pipeline(functools.partial(_shifted, offset), way) for offset in offsets]
        start = threading.Barrier(2)

        def consume(pipe: Pipeline) -> list[list[int]]:
            start.wait()
            return [run(pipe) for _ in range(ITERATIONS)]

        with ThreadPoolExecutor(2) as threads:
            seen = list(threads.map(consume, pipes))

        assert seen == [[[number + offset for number in iteration(n)] for n in range(ITERATIONS)] for offset in offsets]

    def test_goes_on_while_others_let_go_of_batches(self, way: str, make_pipeline: MakePipeline) -> None:
        """Memory returns to the ring in any thread that drops the last view."""
        pipe = make_pipeline(numbers, way)

        with ThreadPoolExecutor(4) as threads:
            sums = [threads.submit(lambda batch: int(batch.as_array().sum()), pipe.run()[0]) for _ in range(ITERATIONS)]

        assert [future.result() for future in sums] == [sum(iteration(n)) for n in range(ITERATIONS)]


def _shifted(offset: int, info: SampleInfo) -> np.int64:
    return np.int64(numbers(info) + offset)


class TestCloseInAnotherThread:
    def test_ends_a_run_that_waits(self, make_pipeline: MakePipeline) -> None:
        pipe = make_pipeline(hangs, "fork")
        assert run(pipe) == iteration(0)
        waiting = in_thread(pipe.run)

        pipe.close()

        assert isinstance(waiting.exception(PROMPTLY_S), ClosedError)

    def test_ends_all_runs_that_wait(self, make_pipeline: MakePipeline) -> None:
        pipe = make_pipeline(hangs, "fork")
        assert run(pipe) == iteration(0)
        waiting = [in_thread(pipe.run) for _ in range(4)]

        pipe.close()

        assert {type(call.exception(PROMPTLY_S)) for call in waiting} == {ClosedError}

    def test_waits_for_a_callback_in_the_main_process(self, make_pipeline: MakePipeline) -> None:
        entered, leave = threading.Event(), threading.Event()

        def source(info: SampleInfo) -> np.int64:
            entered.set()
            leave.wait()
            return numbers(info)

        pipe = make_pipeline(source, "serial")
        running = in_thread(pipe.run)
        entered.wait()
        closing = in_thread(pipe.close)

        leave.set()

        assert closing.result(PROMPTLY_S) is None
        assert running.exception(PROMPTLY_S) is None or isinstance(running.exception(), ClosedError)

    @pytest.mark.parametrize(
        ("part", "step", "when"),
        [
            (WorkerPool, "_check", 1),
            (WorkerPool, "_check", 3),
            (Dispatcher, "read_reports", 3),
            (Dispatcher, "_note", 1),
            (Dispatcher, "_note", 5),
            (ArrayAssembler, "begin", 1),
            (ArrayAssembler, "begin", 3),
            (ProcessWorkers, "read_news", 1),
            (Recovery, "look", 3),
        ],
    )
    @pytest.mark.parametrize("moment", ["before", "after"])
    def test_may_come_at_any_step(
        self, part: type, step: str, when: int, moment: str, make_pipeline: MakePipeline, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A run() that is overtaken delivers the batch or says that the pipeline is closed, and nothing else."""

        def source(info: SampleInfo) -> np.int64:
            time.sleep(0.001)  # so that there are always tasks that no worker has taken
            return numbers(info)

        def close_up_to_its_lock() -> None:
            # The part of close() in another thread before it waits for the end of run().
            monkeypatch.setattr(pipe, "_closed", True)
            pool_of(pipe).stop_waiting()

        def with_close(*args: Any) -> Any:
            nonlocal calls
            calls += 1
            now = calls == when
            if now and moment == "before":
                close_up_to_its_lock()
            result = original(*args)
            if now and moment == "after":
                close_up_to_its_lock()
            return result

        calls = 0
        pipe = make_pipeline(source, "fork", workers=1, prefetch_queue_depth=4)
        pipe.build()
        original = getattr(part, step)
        monkeypatch.setattr(part, step, with_close)

        seen = run_until_closed(pipe)

        assert calls >= when
        assert seen == [iteration(n) for n in range(len(seen))]

    def test_may_come_several_times_at_once(self, way: str, make_pipeline: MakePipeline) -> None:
        pipe = make_pipeline(numbers, way)
        assert run(pipe) == iteration(0)

        closing = [in_thread(pipe.close) for _ in range(8)]

        assert [call.result(PROMPTLY_S) for call in closing] == [None] * 8
        with pytest.raises(ClosedError):
            pipe.run()


class TestCloseInTheSameThread:
    def test_in_a_signal_handler_ends_a_run_that_waits(self, make_pipeline: MakePipeline, tmp_path: Path) -> None:
        """As a program does that cleans up on SIGTERM."""

        def source(info: SampleInfo) -> np.int64:
            if info.iteration > 0:
                (tmp_path / "waits").touch()
            return hangs(info)

        pipe = make_pipeline(source, "fork")
        assert run(pipe) == iteration(0)
        before = signal.signal(signal.SIGUSR1, lambda *_: pipe.close())
        killing = in_thread(lambda: (wait_until((tmp_path / "waits").exists, "a run"), os.kill(os.getpid(), signal.SIGUSR1)))

        try:
            with pytest.raises(ClosedError):
                pipe.run()
        finally:
            signal.signal(signal.SIGUSR1, before)

        killing.result(PROMPTLY_S)

    def test_in_a_callback_ends_the_run(self, make_pipeline: MakePipeline) -> None:
        def source(info: SampleInfo) -> np.int64:
            if info.iteration == 1:
                pipe.close()
            return numbers(info)

        pipe = make_pipeline(source, "serial", prefetch_queue_depth=1)
        assert run(pipe) == iteration(0)

        assert len(run_until_closed(pipe)) <= 1

    @pytest.mark.parametrize("call", [Pipeline.run, Pipeline.reset, Pipeline.build])
    def test_any_other_call_in_a_callback_is_an_error(
        self, call: Callable[[Pipeline], Any], make_pipeline: MakePipeline
    ) -> None:
        def source(info: SampleInfo) -> np.int64:
            call(pipe)
            return numbers(info)

        pipe = make_pipeline(source, "serial")

        with pytest.raises(PipelineStateError):
            pipe.run()


class TestThreadsThatEnd:
    def test_leave_the_workers_that_they_have_started(self, make_pipeline: MakePipeline) -> None:
        """Linux has a way to kill children with their parent, and means the thread that has started them."""
        pipe = make_pipeline(numbers, "fork")
        in_thread(pipe.build).result(PROMPTLY_S)
        wait_until(lambda: not any(thread.name == "test" for thread in threading.enumerate()), "the end of the thread")

        assert [run(pipe) for _ in range(5)] == [iteration(n) for n in range(5)]
        assert pipe.statistics().worker_restarts == 0

    def test_may_have_run_the_pipeline(self, way: str, make_pipeline: MakePipeline) -> None:
        pipe = make_pipeline(numbers, way)

        batches = [in_thread(lambda: run(pipe)).result(PROMPTLY_S) for _ in range(5)]

        assert batches == [iteration(n) for n in range(5)]

    def test_may_have_dropped_it(self) -> None:
        def use() -> list[int]:
            pipe = Pipeline(BATCH_SIZE, 1, py_num_workers=2, py_start_method="fork")
            pipe.set_outputs(fn.external_source(source=numbers, batch=False, parallel=True))
            run(pipe)
            wait_until(lambda: len(pipe.py_worker_pids) == 2, "two workers")
            return pipe.py_worker_pids

        pids = in_thread(use).result(PROMPTLY_S)

        gc.collect()
        assert not any(map(is_running, pids))


#: Makes pipelines, one after the other; every other one is closed, the rest are dropped. "before" and "after" are the
#: descriptors, mappings, children and threads that there are.
MANY_PIPELINES = """
import gc, json, threading
import numpy as np, psutil
from dali_like import fn, pipeline_def

@pipeline_def(batch_size=4, num_threads=1, py_num_workers=1, py_start_method=sys.argv[1])
def pipeline(number):
    return fn.external_source(source=lambda info: np.int64([number, info.idx_in_epoch]), batch=False, parallel=True)

def use(number):
    pipe = pipeline(number)
    assert pipe.run()[0].as_array().tolist() == [[number, i] for i in range(4)]
    if number % 2:
        pipe.close()

def count():
    gc.collect()
    children = psutil.Process().children(recursive=True)
    with open("/proc/self/maps") as maps:
        return [len(os.listdir("/proc/self/fd")), len(maps.readlines()), len(children), threading.active_count()]

for number in range(10):
    use(number)
before = count()
for number in range(int(sys.argv[2])):
    use(number)
tell(f"grown: {[now - then for now, then in zip(count(), before)]}")
tell(f"resident: {psutil.Process().memory_info().rss >> 20}")
"""


def test_many_pipelines_leave_nothing_behind(tmp_path: Path) -> None:
    program = Program(tmp_path, (MANY_PIPELINES,), ("fork", "40"))

    try:
        end = program.end(LIMIT_S)
    finally:
        program.finish()

    assert (end.status, end.stderr) == (0, "")
    ((descriptors, mappings, children, threads),) = program.lines("grown")
    assert (descriptors, children, threads) == (0, 0, 0)
    assert mappings < 10  # of forty pipelines: the allocator has its own ways


class TestForkWhileAPipelineRuns:
    @pytest.fixture(autouse=True)
    def _threads_that_take_turns_often(self) -> Iterator[None]:
        """More moments to fork at; and a thread that computes would keep one that is waiting from its turn for seconds.

        It often lets go of the GIL, within NumPy, and has it again before the other one has woken up.
        """
        before = sys.getswitchinterval()
        sys.setswitchinterval(1e-5)
        yield
        sys.setswitchinterval(before)

    def test_leaves_it_alone(self, way: str, make_pipeline: MakePipeline) -> None:
        """For any activity of the thread that runs it at that moment."""
        pipe = make_pipeline(numbers, way)
        enough = threading.Event()

        def run_epochs() -> list[list[int]]:
            batches = [run(pipe)]
            while not enough.is_set():
                batches += [run(pipe) for _ in range(ITERATIONS - 1)]
                pipe.reset()
                batches.append(run(pipe))
            return batches

        running = in_thread(run_epochs)
        for _ in range(10):
            pid = _fork(lambda: None)
            assert os.waitpid(pid, 0) == (pid, 0)
        enough.set()

        seen = running.result(PROMPTLY_S)
        assert seen == [iteration(n % ITERATIONS) for n in range(len(seen))]

    def test_forked_child_has_batches_of_its_own(self, make_pipeline: MakePipeline) -> None:
        """Both have the source in their process, and the memory for the batches may be shared."""
        parent = os.getpid()
        pipe = make_pipeline(lambda info: np.int64(1 if os.getpid() == parent else -1), "serial", prefetch_queue_depth=1)
        for _ in range(3):
            pipe.run()
        read, write = os.pipe()

        def in_child() -> None:
            os.read(read, 1)
            with contextlib.suppress(ForkedError):
                for _ in range(4):
                    pipe.run()

        pid = _fork(in_child)
        held = [pipe.run()[0].as_array() for _ in range(3)]
        os.write(write, b"x")
        assert os.waitpid(pid, 0) == (pid, 0)
        os.close(read)
        os.close(write)

        assert [batch.tolist() for batch in held] == [[1] * BATCH_SIZE] * 3

    @pytest.mark.parametrize("call", [Pipeline.run, Pipeline.reset, Pipeline.close], ids=["run", "reset", "close"])
    def test_leaves_a_child_that_can_call_it(
        self, call: Callable[[Pipeline], Any], make_pipeline: MakePipeline, tmp_path: Path
    ) -> None:
        """The thread that holds the lock of the pipeline is not there in the child."""

        def source(info: SampleInfo) -> np.int64:
            if info.iteration > 0:
                (tmp_path / "waits").touch()
            while info.iteration > 0 and not (tmp_path / "go").exists():
                time.sleep(0.001)
            return np.int64(info.idx_in_epoch)

        pipe = make_pipeline(source, "fork")
        assert run(pipe) == iteration(0)
        running = in_thread(lambda: run(pipe))
        wait_until((tmp_path / "waits").exists, "a run that waits")

        def in_child() -> None:
            signal.alarm(int(PROMPTLY_S))  # ends the child if the call hangs
            with contextlib.suppress(ForkedError):
                call(pipe)

        pid = _fork(in_child)
        _, status = os.waitpid(pid, 0)
        (tmp_path / "go").touch()

        assert status == 0
        assert running.result(PROMPTLY_S) == iteration(1)
        assert run(pipe) == iteration(2)


def _fork(work: Callable[[], None]) -> int:
    """The process id of a child that does this, and ends with status 0 if it could."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 has its doubts about threads
        pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        try:
            work()
        finally:
            os._exit(sys.exc_info()[0] is not None)
    return pid


# Sources that do not fork well


class Source:
    """A source that holds something."""

    def __init__(self, thing: Any) -> None:
        self.thing = thing

    def __call__(self, info: SampleInfo) -> np.int64:
        return np.int64(info.idx_in_epoch)

    def __getstate__(self) -> dict[str, None]:
        return {"thing": None}  # so that it can be spawned


@pytest.fixture
def hazard(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """Something that does not fork well, by its name."""
    if request.param == "a locked lock":
        lock = threading.Lock()
        with lock:
            yield lock
    elif request.param == "an open file":
        with open(tmp_path / "data", "w+b") as file:
            yield file
    elif request.param == "an open text file":
        with open(tmp_path / "data", "w+") as text:
            yield text
    elif request.param == "an open socket":
        with socket.socket() as connection:
            yield connection
    elif request.param == "a database connection":
        database = sqlite3.connect(":memory:")
        yield database
        database.close()
    else:
        done = threading.Event()
        thread = threading.Thread(target=done.wait, name="hazard")
        thread.start()
        yield thread
        done.set()
        thread.join()


HAZARDS = (
    "a locked lock",
    "an open file",
    "an open text file",
    "an open socket",
    "a database connection",
    "a running thread",
)
every_hazard = pytest.mark.parametrize("hazard", HAZARDS, indirect=True)


class TestASourceThatDoesNotForkWell:
    @every_hazard
    def test_is_named_in_a_warning(self, hazard: Any, make_pipeline: MakePipeline, request: pytest.FixtureRequest) -> None:
        pipe = make_pipeline(Source(hazard), "fork")

        with pytest.warns(RuntimeWarning) as seen:
            pipe.run()

        (warning,) = seen
        what = request.node.callspec.params["hazard"].replace("text ", "")
        assert f"source.thing is {what}" in str(warning.message)
        assert "external_source of Source" in str(warning.message)
        assert "in worker_setup" in str(warning.message)

    @pytest.mark.parametrize("call", [Pipeline.build, Pipeline.run, Pipeline.start_py_workers, next])
    def test_is_a_warning_of_the_line_that_starts_the_workers(
        self, call: Callable[[Pipeline], Any], make_pipeline: MakePipeline
    ) -> None:
        lock = threading.Lock()
        pipe = make_pipeline(Source(lock), "fork")

        with lock, pytest.warns(RuntimeWarning) as seen:
            call(pipe)

        assert seen[0].filename == __file__

    @every_hazard
    def test_works_under_spawn(self, hazard: Any, make_pipeline: MakePipeline) -> None:
        pipe = make_pipeline(Source(hazard), "spawn")

        assert run(pipe) == iteration(0)

    @every_hazard
    def test_works_in_the_main_process(self, hazard: Any, make_pipeline: MakePipeline) -> None:
        pipe = make_pipeline(Source(hazard), "serial")

        assert run(pipe) == iteration(0)

    @pytest.mark.parametrize(
        ("make", "path"),
        [
            (lambda lock: Source({"readers": [lock]}), "source.thing['readers'][0]"),
            (lambda lock: Source(Source(lock)), "source.thing.thing"),
            (lambda lock: functools.partial(lambda lock, info: np.int64(1), lock), "source.args[0]"),
            (lambda lock: Source(lock).__call__, "source.__self__.thing"),
            (lambda lock: lambda info: np.int64(lock.locked()), "source -> lock"),
        ],
        ids=["container", "object", "partial", "method", "closure"],
    )
    def test_is_found_wherever_it_is(
        self, make: Callable[[Any], Callable[[SampleInfo], Any]], path: str, make_pipeline: MakePipeline
    ) -> None:
        lock = threading.Lock()
        pipe = make_pipeline(make(lock), "fork")

        with lock, pytest.warns(RuntimeWarning) as seen:
            pipe.build()

        assert f": {path} is a locked lock" in str(seen[0].message)

    def test_is_an_error_where_warnings_are_and_then_no_worker_is_left(self, make_pipeline: MakePipeline) -> None:
        lock = threading.Lock()
        pipe = make_pipeline(Source(lock), "fork")

        with lock, pytest.raises(RuntimeWarning, match="a locked lock"):
            pipe.build()

        assert pipe.py_worker_pids == []
        assert run(pipe) == iteration(0)


def _closed_file() -> io.IOBase:
    with open(os.devnull, "rb") as file:
        return file


def _detached_text() -> io.TextIOWrapper:
    text = io.TextIOWrapper(io.BytesIO())
    text.detach()
    return text


def _empty_cell() -> Callable[[SampleInfo], np.int64]:
    """A source with a variable that has no value yet."""

    def source(info: SampleInfo) -> np.int64:
        return np.int64(info.idx_in_epoch if info.idx_in_epoch >= 0 else later)

    if not source:
        later = 1
    return source


class _SaysNoMore:
    """As objects do that stand for others which are not there."""

    @property
    def __class__(self) -> Any:
        raise RuntimeError("there is nothing here")

    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        raise RuntimeError("there is nothing here")


def _with_itself() -> Source:
    source = Source([])
    source.thing.append(source)
    return source


HARMLESS: dict[str, Callable[[], Callable[[SampleInfo], Any]]] = {
    "a function": lambda: numbers,
    "a free lock": lambda: Source(threading.Lock()),
    "locks in use by nobody": lambda: Source([threading.RLock(), threading.Condition(), threading.Event()]),
    "a file that is closed": lambda: Source(_closed_file()),
    "a file that is detached": lambda: Source(_detached_text()),
    "a file in memory": lambda: Source([io.BytesIO(b"data"), io.StringIO("text")]),
    "the standard streams": lambda: Source([sys.__stdin__, sys.__stdout__, sys.__stderr__]),
    "a logger": lambda: Source(logging.getLogger("test")),
    "a thread that has not begun": lambda: Source(threading.Thread()),
    "arrays": lambda: Source({"images": np.zeros((1000, 3)), "names": ["a"] * 10_000}),
    "itself": _with_itself,
    "a variable without a value": _empty_cell,
    "an object that says nothing of itself": lambda: Source(_SaysNoMore()),
}


def test_local_classes_of_an_object_that_raises_for_its_class_are_searched_without_an_error() -> None:
    announce_local_classes_of(Source(_SaysNoMore()))


@pytest.mark.parametrize("what", HARMLESS)
def test_source_that_forks_well_is_no_warning(what: str, make_pipeline: MakePipeline) -> None:
    """Warnings are errors here."""
    importlib.import_module("multiprocessing.queues")  # so that objects are compared with its classes

    pipe = make_pipeline(HARMLESS[what](), "fork")

    assert run(pipe) == iteration(0)


#: Pipelines are started, used and closed while other threads are at work, in an interpreter that fails of every warning.
AMONG_THREADS = """
import sys, threading
import numpy as np
from dali_like import fn, pipeline_def

stop = threading.Event()

def work():
    while not stop.is_set():
        np.ones((50, 50)) @ np.ones((50, 50))

threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads:
    thread.start()

@pipeline_def(batch_size=4, py_num_workers=2, py_start_method=sys.argv[1])
def pipeline():
    return fn.external_source(source=lambda info: np.ones(info.idx_in_epoch), batch=False, parallel=True)

for _ in range(3):
    pipe = pipeline()
    for n in range(5):
        tell(f"lengths: {[len(sample.as_cpu().shape()) and sample.shape()[0] for sample in pipe.run()[0]]}")
    pipe.close()
stop.set()
for thread in threads:
    thread.join()
"""


def test_other_threads_are_no_reason_for_a_warning(tmp_path: Path) -> None:
    """From Python 3.12 on, forking with threads about is one."""
    program = Program(tmp_path, (AMONG_THREADS,), ("fork",), ("-X", "dev", "-W", "error"))

    try:
        end = program.end()
    finally:
        program.finish()

    assert (end.status, end.stderr) == (0, "")
    assert program.lines("lengths") == [iteration(n) for n in range(5)] * 3


def test_decorated_pipelines_may_be_defined_in_several_threads() -> None:
    """The functions of one definition do not see the sources of another."""

    @pipeline_def(batch_size=BATCH_SIZE, num_threads=1)
    def pipeline(offset: int) -> Any:
        return fn.external_source(source=functools.partial(_shifted, offset), batch=False)

    def use(offset: int) -> list[int]:
        pipe = pipeline(offset)
        batch = run(pipe)
        pipe.close()
        return batch

    with ThreadPoolExecutor(4) as threads:
        batches = list(threads.map(use, range(20)))

    assert batches == [[offset + i for i in range(BATCH_SIZE)] for offset in range(20)]
