"""``py_start_method="thread"``: the differences where workers are threads of the program.

Their batches, errors and statistics are the same as with other workers: tests that have "thread" as a ``way`` compare them.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import pickle
import queue
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

from dali_like import Pipeline, fn, get_worker_info, pipeline_def
from dali_like.data import DataLoader, IterableDataset
from dali_like.engine.backends import threads
from dali_like.engine.memory.descriptors import Descriptor
from dali_like.engine.pool.workers import WorkerOptions
from dali_like.engine.worker.meters import Meter
from dali_like.engine.worker.source import Source
from dali_like.errors import ArgumentClashError, ClosedError, ForkedError, WorkerDiedError, WorkerTimeoutError
from dali_like.types import SampleInfo
from tests.callbacks import number
from tests.conftest import DEADLINE_S, wait_until
from tests.data.loader_cases import MANY_WORKERS
from tests.faults.programs import Program
from tests.internals import lock_of, set_lock, shared_of

MakePipeline = Callable[..., Pipeline]

TIMEOUT_S = 1.0


def run(pipe: Pipeline) -> list[int]:
    numbers: list[int] = pipe.run()[0].as_array().tolist()
    return numbers


def worker_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("dali_like:")]


class Gate:
    """Where callbacks wait until the test lets them go."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self.is_reached = False
        self.has_been_left = False

    def pass_through(self) -> None:
        self.is_reached = True
        # A lock of C, which nothing in Python interrupts; the main process waits no longer than the deadline.
        self._event.wait(DEADLINE_S)
        self.has_been_left = True

    def open(self) -> None:
        self._event.set()


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.open()


class TestThreads:
    def test_share_the_source_with_the_program(self, make_pipeline: MakePipeline) -> None:
        seen: list[tuple[int, bool]] = []  # as no process could write to it
        lock = threading.Lock()  # and which could not be pickled

        def source(info: SampleInfo) -> Any:
            with lock:
                seen.append((os.getpid(), threading.current_thread() in worker_threads()))
            return number(info)

        pipe = make_pipeline(source, "thread")

        assert run(pipe) == [0, 1, 2, 3]
        assert set(seen) == {(os.getpid(), True)}

    def test_make_samples_at_the_same_time(self, make_pipeline: MakePipeline) -> None:
        both = threading.Barrier(2, timeout=DEADLINE_S)

        def source(info: SampleInfo) -> Any:
            if info.iteration < 2:  # prefetched batches may be dropped when one waits for the other
                both.wait()
            return number(info)

        pipe = make_pipeline(source, "thread", batch_size=2, workers=2)

        assert [run(pipe), run(pipe)] == [[0, 1], [2, 3]]

    def test_get_worker_info_has_the_number_of_the_thread(self, make_pipeline: MakePipeline) -> None:
        both = threading.Barrier(2, timeout=DEADLINE_S)

        def source(info: SampleInfo) -> Any:
            if info.iteration == 0:
                both.wait()
            worker = get_worker_info()
            assert worker is not None
            return np.int64([worker.id, worker.num_workers])

        pipe = make_pipeline(source, "thread", batch_size=2, workers=2)

        assert sorted(run(pipe)) == [[0, 2], [1, 2]]
        assert get_worker_info() is None

    def test_measurements_are_noted_after_the_report(
        self, make_pipeline: MakePipeline, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """So does any worker, but in other processes it cannot be made to show."""
        is_delivered = threading.Event()
        notes: list[bool] = []
        note = Meter.note

        def note_when_delivered(meter: Meter) -> None:
            notes.append(is_delivered.wait(DEADLINE_S))
            note(meter)

        monkeypatch.setattr(Meter, "note", note_when_delivered)
        pipe = make_pipeline(
            lambda info: np.zeros((4, 1)), "thread", workers=1, source_options={"batch": True, "batch_info": True}
        )
        pipe.run()
        is_delivered.set()
        pipe.run()

        assert all(notes)
        assert notes

    def test_are_no_processes(self, make_pipeline: MakePipeline) -> None:
        pipe = make_pipeline(number, "thread")
        run(pipe)

        assert pipe.py_worker_pids == []

    def test_worker_setup_and_worker_teardown_are_called_once_in_each_thread(self, make_pipeline: MakePipeline) -> None:
        calls: list[tuple[str, str]] = []
        options = {
            "worker_setup": lambda: calls.append(("up", threading.current_thread().name)),
            "worker_teardown": lambda: calls.append(("down", threading.current_thread().name)),
        }
        pipe = make_pipeline(number, "thread", source_options=options)

        run(pipe)
        wait_until(lambda: len(calls) == 2, "both threads")
        pipe.close()

        assert sorted(calls) == [(what, f"dali_like:{worker}") for what in ("down", "up") for worker in (0, 1)]

    def test_run_operators_behind_the_source(self) -> None:
        threads = set()

        def note(array: Any) -> Any:
            threads.add(threading.current_thread().name)
            return array + 1

        @pipeline_def(batch_size=4, num_threads=1, py_num_workers=1, py_start_method="thread")
        def pipeline() -> Any:
            numbers = fn.external_source(source=number, batch=False, parallel=True)
            return fn.cast(numbers, dtype=np.float32) * 2.0

        pipe = pipeline()
        try:
            assert set(pipe.operator_places.values()) == {"workers"}
            assert run(pipe) == [0.0, 2.0, 4.0, 6.0]
        finally:
            pipe.close()

    def test_walk_through_shards_of_their_own(self, make_pipeline: MakePipeline) -> None:
        def shard() -> Iterator[Any]:
            worker = get_worker_info()
            assert worker is not None
            for i in range(3 + worker.id):
                yield np.full(4, 10 * worker.id + i)

        pipe = make_pipeline(shard, "thread", source_options={"batch": True, "sharded": True})

        for _ in range(2):
            assert [batch[0].as_array()[0] for batch in pipe] == [0, 10, 1, 11, 2, 12, 13]
        assert pipe.statistics().worker_restarts == 0

    def test_cannot_share_an_iterator(self, make_pipeline: MakePipeline) -> None:
        pipe = make_pipeline(iter([[np.int64(1)] * 4]), "thread", source_options={"batch": True, "sharded": True})

        with pytest.raises(ArgumentClashError, match="generator function"):
            pipe.build()

    @pytest.mark.parametrize("argument", [{"py_callback_pickler": pickle}, {"py_worker_options": {"num_cpus": 1}}])
    def test_need_nothing_that_is_for_others(self, argument: dict[str, Any]) -> None:
        with pytest.raises(ArgumentClashError, match="py_"):
            Pipeline(1, py_start_method="thread", **argument)


class TestTheirEnd:
    @pytest.mark.parametrize("way_out", ["close", "drop"])
    def test_comes_with_that_of_the_pipeline(self, make_pipeline: MakePipeline, way_out: str) -> None:
        @pipeline_def(batch_size=4, num_threads=1, py_num_workers=3, py_start_method="thread")
        def pipeline() -> Any:
            return fn.external_source(source=number, batch=False, parallel=True)

        pipe = pipeline()
        run(pipe)
        assert len(worker_threads()) == 3

        if way_out == "close":
            pipe.close()
        else:
            del pipe
            gc.collect()

        assert worker_threads() == []

    def test_may_be_brought_about_by_a_callback(self, make_pipeline: MakePipeline) -> None:
        closing: list[Any] = []

        def source(info: SampleInfo) -> Any:
            if info.idx_in_epoch == 13:
                closing[0]().close()
            return number(info)

        pipe = make_pipeline(source, "thread")
        closing.append(weakref.ref(pipe))
        with pytest.raises(ClosedError):
            [pipe.run() for _ in range(9)]

        wait_until(lambda: not worker_threads(), "the end of all threads")

    def test_leaves_a_callback_that_does_not_return_and_says_so(self, make_pipeline: MakePipeline, gate: Gate) -> None:
        def stuck_source(info: SampleInfo) -> Any:
            if info.idx_in_epoch == 5:
                gate.pass_through()
            return number(info)

        pipe = make_pipeline(stuck_source, "thread")
        assert run(pipe) == [0, 1, 2, 3]
        wait_until(lambda: gate.is_reached, "the callback")

        with pytest.warns(RuntimeWarning, match=r"(?s)does not return.*in pass_through.*in stuck_source"):
            pipe.close()

        assert len(worker_threads()) == 1
        gate.open()
        wait_until(lambda: not worker_threads(), "the end of the thread")
        assert not gate.has_been_left  # it has been asked to end, and does so before it goes on

    def test_comes_without_a_word_at_the_end_of_the_program(self, tmp_path: Any) -> None:
        program = Program(
            tmp_path,
            [
                """
                import numpy as np
                from dali_like import fn, pipeline_def

                @pipeline_def(batch_size=4, num_threads=1, py_num_workers=2, py_start_method="thread")
                def pipeline():
                    return fn.external_source(source=lambda info: np.int64(info.idx_in_epoch), batch=False, parallel=True)

                pipe = pipeline()
                tell(f"batch: {pipe.run()[0].as_array().tolist()}")
                """
            ],
            [],
            ("-X", "dev", "-W", "error"),
        )
        try:
            end = program.end()
        finally:
            program.finish()

        assert (end.status, end.stdout, end.stderr) == (0, "batch: [0, 1, 2, 3]\n", "")

    def test_is_not_the_affair_of_a_forked_child(self, make_pipeline: MakePipeline) -> None:
        pipe = make_pipeline(number, "thread")
        run(pipe)

        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                with pytest.raises(ForkedError):
                    pipe.run()
                pipe.close()
                status = 0
            finally:
                os._exit(status)

        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert run(pipe) == [4, 5, 6, 7]

    def test_is_not_that_of_a_process_that_was_forked_and_ends(self, make_pipeline: MakePipeline) -> None:
        """A process of multiprocessing ends its own threads, and runs the functions registered with them."""
        pipe = make_pipeline(number, "thread")
        assert run(pipe) == [0, 1, 2, 3]

        child = multiprocessing.get_context("fork").Process(target=int)
        child.start()
        child.join()
        child.close()

        assert [run(pipe) for _ in range(5)] == [list(range(i, i + 4)) for i in range(4, 24, 4)]
        assert pipe.statistics().worker_restarts == 0


class TestACallbackThatLeaves:
    def test_once_is_called_again_in_another_thread(self, make_pipeline: MakePipeline) -> None:
        left = []

        def source(info: SampleInfo) -> Any:
            if info.idx_in_epoch == 6 and not left:
                left.append(threading.get_native_id())
                sys.exit(3)
            return number(info)

        pipe = make_pipeline(source, "thread")

        assert [run(pipe) for _ in range(3)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
        assert pipe.statistics().worker_restarts == 1

    @pytest.mark.parametrize(("code", "status"), [(3, 3), (None, 0), (0x103, 3), ("words", 1)], ids=str)
    def test_each_time_is_an_error_that_names_the_sample(self, code: Any, status: int, make_pipeline: MakePipeline) -> None:
        """The exit code is the one that a process would have."""
        pipe = make_pipeline(lambda info: sys.exit(code) if info.idx_in_epoch == 6 else number(info), "thread")
        assert run(pipe) == [0, 1, 2, 3]

        with pytest.raises(
            WorkerDiedError, match=rf"\(thread \d+\) ended with exit code {status} while .*\(idx_in_epoch 6\)"
        ):
            pipe.run()

        assert run(pipe) == [8, 9, 10, 11]

    def test_leaves_nothing_of_its_thread(self, make_pipeline: MakePipeline) -> None:
        left: list[weakref.ref[threading.Thread]] = []

        def source(info: SampleInfo) -> Any:
            if info.idx_in_epoch == 4 * len(left) and len(left) < 3:
                left.append(weakref.ref(threading.current_thread()))
                sys.exit(3)
            return number(info)

        pipe = make_pipeline(source, "thread", workers=1)
        assert [run(pipe)[0] for _ in range(4)] == [0, 4, 8, 12]

        gc.collect()
        assert len(left) == 3
        assert [thread() for thread in left[:2]] == [None, None]


class TestAThreadThatHangs:
    """It cannot be killed: it is abandoned, and no other batch gets the slot that it may write to."""

    def test_is_an_error_that_shows_where_and_the_loop_goes_on(self, make_pipeline: MakePipeline, gate: Gate) -> None:
        def stuck_source(info: SampleInfo) -> Any:
            if info.idx_in_epoch == 6:
                gate.pass_through()
            return number(info)

        pipe = make_pipeline(stuck_source, "thread", py_timeout_s=TIMEOUT_S)
        assert run(pipe) == [0, 1, 2, 3]

        with pytest.raises(WorkerTimeoutError) as caught:
            pipe.run()

        text = str(caught.value)
        assert f"{TIMEOUT_S} s while" in text
        assert "(idx_in_epoch 6). Python cannot end a thread from outside" in text
        assert "in pass_through\n" in text
        assert "in stuck_source" in text
        assert "run_worker" in text
        assert "in _bootstrap" not in text
        assert [run(pipe) for _ in range(3)] == [list(range(i, i + 4)) for i in (8, 12, 16)]
        assert pipe.statistics().worker_restarts == 1
        gate.open()
        wait_until(lambda: len(worker_threads()) == 2, "the end of the thread that was given up")
        assert not gate.has_been_left

    @pytest.mark.parametrize("begins", ["before", "after"])
    def test_in_c_does_not_let_a_profiler_hang(self, begins: str, tmp_path: Path) -> None:
        program = Program(
            tmp_path,
            [
                """
                import threading, warnings
                from dali_like import fn, pipeline_def

                warnings.simplefilter("ignore")  # of a thread that does not end
                stuck = threading.Event()
                never, always = os.pipe()

                def source(info):
                    if info.idx_in_epoch == 6:
                        stuck.set()
                        try:
                            os.read(never, 1)
                        except SystemExit:
                            tell('end: "asked"')
                            raise
                    return 0

                @pipeline_def(batch_size=4, num_threads=1, py_num_workers=1, py_start_method="thread")
                def pipeline():
                    return fn.external_source(source=source, batch=False, parallel=True)

                def profile(*_):
                    pass

                pipe = pipeline()
                pipe.run()
                stuck.wait()
                thread = next(thread for thread in threading.enumerate() if thread.name.startswith("dali_like:"))
                if sys.argv[1] == "before":
                    sys.setprofile(profile)
                pipe.close()
                sys.setprofile(profile)
                (lambda: None)()
                os.write(always, b"x")
                thread.join()
                """
            ],
            [begins],
        )
        try:
            end = program.end()
        finally:
            program.finish()

        assert (end.status, end.stderr) == (0, "")
        assert program.lines("end") == ["asked"]

    def test_writes_to_no_batch_that_comes_later(self, make_pipeline: MakePipeline, gate: Gate) -> None:
        """One that pays no heed to being asked to end."""
        has_written = threading.Event()

        def source(info: SampleInfo) -> Any:
            row = info.empty((1000,), np.int64)
            row[:] = info.idx_in_epoch
            if info.idx_in_epoch == 6:
                try:
                    gate.pass_through()
                except SystemExit:
                    row[:] = -1
                    has_written.set()
            return row

        pipe = make_pipeline(source, "thread", py_timeout_s=TIMEOUT_S)
        pipe.run()
        with pytest.raises(WorkerTimeoutError):
            pipe.run()
        held = [pipe.run()[0].as_array() for _ in range(10)]  # all slots that there are, and some more

        gate.open()
        assert has_written.wait(DEADLINE_S)
        wait_until(lambda: len(worker_threads()) == 2, "the end of the thread")

        assert [batch[:, 0].tolist() for batch in held] == [list(range(i, i + 4)) for i in range(8, 48, 4)]
        assert all((batch == batch[:, :1]).all() for batch in held)

    def test_ends_an_iterator_because_no_other_thread_can_continue_it(self, make_pipeline: MakePipeline, gate: Gate) -> None:
        def numbers() -> Iterator[Any]:
            for i in range(10):
                if i == 2:
                    gate.pass_through()
                yield np.full(4, i)

        pipe = make_pipeline(numbers(), "thread", py_timeout_s=TIMEOUT_S, source_options={"batch": True})

        seen = [run(pipe), run(pipe)]
        for _ in range(2):
            with pytest.raises(WorkerTimeoutError, match="in pass_through"):
                pipe.run()

        assert seen == [[0] * 4, [1] * 4]

    def test_may_hang_in_its_start(self, make_pipeline: MakePipeline, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("dali_like.engine.pool.hangs.LEAST_START_S", TIMEOUT_S)
        monkeypatch.setattr(threads, "_LAST_GRACE_S", 0.1)
        options = {"worker_setup": gate.pass_through}
        pipe = make_pipeline(number, "thread", py_timeout_s=TIMEOUT_S, workers=1, source_options=options)

        with pytest.raises(WorkerTimeoutError, match=r"(?s)since it was started.*in pass_through"):
            pipe.run()

        gate.open()

    def test_counts_as_a_restart(self, make_pipeline: MakePipeline, gate: Gate) -> None:
        def source(info: SampleInfo) -> Any:
            if info.idx_in_epoch == 6:
                gate.pass_through()
            return number(info)

        pipe = make_pipeline(source, "thread", py_timeout_s=TIMEOUT_S, py_worker_restarts=0)
        assert run(pipe) == [0, 1, 2, 3]

        for _ in range(2):
            with pytest.raises(WorkerTimeoutError, match="idx_in_epoch 6"):
                pipe.run()
        gate.open()


def never_pickled(parts: Any, name: str) -> NoReturn:
    raise NotImplementedError


class Worker:
    """Replaces `run_worker`: takes tasks from the test, and finishes them when the test wants it.

    Attributes:
        tasks: the numbers of tasks; 0: there will be none.
        begun: the tasks that have been taken.
        set_up: called before the first.
        sources: the sources of each thread.
    """

    def __init__(self) -> None:
        self.tasks: queue.SimpleQueue[int] = queue.SimpleQueue()
        self.begun: list[int] = []
        self.waits = 0
        self.gate = Gate()
        self.set_up: Callable[[], Any] = int
        self.sources: list[Any] = []

    def run(self, index: int, channels: Any, make_sources: Any, guard: Callable[[Any, bool], Any]) -> int:
        self.sources.append(make_sources())
        self.set_up()
        take = guard(self._take, True)
        while task := take():
            self.begun.append(task)
            self.gate.pass_through()
        return 0

    def _take(self) -> int:
        self.waits += 1
        return self.tasks.get(timeout=DEADLINE_S)


def name_of_function(thread: threading.Thread) -> str:
    """Return the names of the functions that a thread is in."""
    return sys._current_frames()[thread.ident or 0].f_code.co_name


class TestGivingUp:
    """The calls of a pool for a hanging thread, at each moment of the thread's life."""

    @pytest.fixture
    def worker(self, monkeypatch: pytest.MonkeyPatch) -> Worker:
        made = Worker()
        monkeypatch.setattr(threads, "run_worker", made.run)
        return made

    @pytest.fixture
    def workers(self, worker: Worker) -> Iterator[threads.ThreadWorkers]:
        def send_stop() -> None:
            worker.gate.open()
            worker.tasks.put(0)

        pipe = Descriptor(os.eventfd(0, os.EFD_CLOEXEC))
        options = WorkerOptions(
            num_workers=1, start_method="thread", threads=None, timeout_s=None, restarts=None, pickle_source=never_pickled
        )
        workers = threads.ThreadWorkers([], options, None, tasks=[pipe], done=pipe, send_stop=send_stop)  # type: ignore[arg-type]  # no space
        yield workers
        workers.stop()
        workers.control.close()
        pipe.close()

    def test_at_a_task_it_has_ended_at_once_and_only_once(self, worker: Worker, workers: threads.ThreadWorkers) -> None:
        worker.tasks.put(1)
        wait_until(lambda: worker.gate.is_reached, "the task")

        workers.signal(0, signal.SIGKILL)

        assert workers.take_end() is not None
        worker.gate.open()
        wait_until(lambda: not worker_threads(), "the end of the thread")
        assert workers.take_end() is None
        assert not worker.gate.has_been_left

    def test_in_its_start_it_has_ended_at_once_and_only_once(self, worker: Worker, workers: threads.ThreadWorkers) -> None:
        worker.tasks.put(0)
        wait_until(lambda: not worker_threads(), "the end of the first thread")
        assert workers.take_end() is not None
        worker.set_up = worker.gate.pass_through
        workers.start(0)
        wait_until(lambda: worker.gate.is_reached, "the start")

        workers.signal(0, signal.SIGKILL)

        assert workers.take_end() is not None

    def test_between_tasks_it_ends_after_the_next_one(self, worker: Worker, workers: threads.ThreadWorkers) -> None:
        """So that a task that it has just taken is not lost."""
        wait_until(lambda: worker.waits, "the thread")
        worker.gate.open()

        workers.signal(0, signal.SIGKILL)

        assert workers.take_end() is None
        worker.tasks.put(1)
        worker.tasks.put(2)
        wait_until(lambda: not worker_threads(), "the end of the thread")
        assert (worker.begun, worker.gate.has_been_left) == ([1], True)
        end = workers.take_end()
        assert end is not None
        assert (end.exitcode, end.keep, workers.take_end()) == (0, None, None)

    def test_when_it_has_ended_nothing_is_said_twice(self, worker: Worker, workers: threads.ThreadWorkers) -> None:
        worker.gate.pass_through = lambda: sys.exit(3)  # type: ignore[method-assign]
        worker.tasks.put(1)
        wait_until(lambda: not worker_threads(), "the end of the thread")

        workers.signal(0, signal.SIGKILL)

        end = workers.take_end()
        assert end is not None
        assert (end.exitcode, workers.take_end()) == (3, None)

    def test_an_abandoned_thread_keeps_its_slot_until_it_ends(self, worker: Worker, workers: threads.ThreadWorkers) -> None:
        worker.tasks.put(1)
        wait_until(lambda: worker.gate.is_reached, "the task")
        workers.signal(0, signal.SIGKILL)
        end = workers.take_end()
        assert end is not None
        assert end.keep is not None
        slot = {"a slot"}
        kept = weakref.ref(slot)

        end.keep(slot)
        del slot

        assert kept() is not None
        worker.gate.open()
        wait_until(lambda: kept() is None, "the end of the thread")
        late = {"a slot"}
        kept = weakref.ref(late)
        end.keep(late)
        del late
        assert kept() is None

    def test_when_it_is_about_to_end_it_ends_and_keeps_nothing(self, worker: Worker, workers: threads.ThreadWorkers) -> None:
        """The SystemExit comes before the thread has reported its own end."""
        thread = workers._workers[0]
        lock, is_leaving, persists = lock_of(thread), threading.Event(), threading.Event()

        class Lock:
            def __enter__(self) -> None:
                if worker.begun and threading.current_thread() is thread and not is_leaving.is_set():
                    is_leaving.set()
                    persists.wait(DEADLINE_S)
                lock.acquire()

            def __exit__(self, *_: object) -> None:
                lock.release()

        set_lock(thread, Lock())
        worker.gate.pass_through = lambda: sys.exit(3)  # type: ignore[method-assign]
        worker.tasks.put(1)
        assert is_leaving.wait(DEADLINE_S)

        workers.signal(0, signal.SIGKILL)
        persists.set()

        end = workers.take_end()
        assert end is not None
        assert end.keep is not None
        thread.join(DEADLINE_S)
        slot = {"a slot"}
        kept = weakref.ref(slot)
        end.keep(slot)
        del slot
        assert kept() is None
        assert workers.take_end() is None

    def test_a_thread_that_reports_its_exception_keeps_no_slot(
        self, worker: Worker, workers: threads.ThreadWorkers, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        is_showing, persists = threading.Event(), threading.Event()

        def show(*_: Any) -> None:
            is_showing.set()
            persists.wait(DEADLINE_S)

        monkeypatch.setattr(sys, "excepthook", show)
        worker.gate.pass_through = lambda: 1 / 0  # type: ignore[assignment,method-assign,return-value]
        worker.tasks.put(1)
        assert is_showing.wait(DEADLINE_S)

        workers.signal(0, signal.SIGKILL)
        persists.set()

        end = workers.take_end()
        assert end is not None
        assert end.keep is not None
        wait_until(lambda: not worker_threads(), "the end of the thread")
        slot = {"a slot"}
        kept = weakref.ref(slot)
        end.keep(slot)
        del slot
        assert kept() is None

    def test_when_it_has_only_to_say_that_it_ends_lets_it_say_so_once(
        self, worker: Worker, workers: threads.ThreadWorkers
    ) -> None:
        """SystemExit comes while it waits for the lock, and not when `threading` ends the thread."""
        thread = workers._workers[0]
        assert thread is not None
        pass_through = worker.gate.pass_through

        def leave() -> None:
            pass_through()
            sys.exit(3)

        worker.gate.pass_through = leave  # type: ignore[method-assign]
        worker.tasks.put(1)
        wait_until(lambda: worker.gate.is_reached, "the task")

        with lock_of(thread):
            worker.gate.open()
            wait_until(lambda: name_of_function(thread) == "_leave", "the thread to wait for the lock")
            set_lock(thread, contextlib.nullcontext())
            thread.dismiss()
        thread.join()

        assert thread not in threading.enumerate()
        end = workers.take_end()
        assert end is not None
        assert (end.exitcode, workers.take_end()) == (3, None)

    def test_when_the_crew_is_stopped_takes_no_task_any_more(
        self, worker: Worker, workers: threads.ThreadWorkers, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Also if its callback pays no heed to being asked to end."""
        monkeypatch.setattr(threads, "_GRACE_S", 0.0)
        monkeypatch.setattr(threads, "_LAST_GRACE_S", 0.0)
        shared_of(workers).send_stop = lambda: None
        pass_through = worker.gate.pass_through

        def pay_no_heed() -> None:
            with contextlib.suppress(SystemExit):
                pass_through()

        worker.gate.pass_through = pay_no_heed  # type: ignore[method-assign]
        worker.tasks.put(1)
        worker.tasks.put(2)
        wait_until(lambda: worker.gate.is_reached, "the task")

        with pytest.warns(RuntimeWarning, match="in pay_no_heed"):
            workers.stop()
        worker.gate.open()

        wait_until(lambda: not worker_threads(), "the end of the thread")
        assert worker.begun == [1]

    def test_asks_a_thread_to_end_once_and_only_while_it_runs(
        self, worker: Worker, workers: threads.ThreadWorkers, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[int] = []
        monkeypatch.setattr(threads, "_raise_in", lambda ident, what: asked.append(ident.value))
        not_begun = threads.WorkerThread(0, shared_of(workers), [])
        not_begun.abandon()
        assert not asked
        worker.tasks.put(1)
        wait_until(lambda: worker.gate.is_reached, "the task")
        thread = workers._workers[0]

        thread.abandon()
        thread.dismiss()

        assert asked.count(thread.ident or 0) == 1

    def test_the_thread_in_its_place_has_the_sources_of_now(self, worker: Worker, workers: threads.ThreadWorkers) -> None:
        worker.tasks.put(0)
        wait_until(lambda: not worker_threads(), "the end of the first thread")
        now = Source("now", number)
        workers.renew([now])

        workers.start(0)
        worker.tasks.put(0)
        wait_until(lambda: not worker_threads(), "the end of the second")

        assert worker.sources == [[], [now]]

    def test_may_be_told_to_stop_by_its_own_thread(self, worker: Worker, workers: threads.ThreadWorkers) -> None:
        persists = []

        def stop() -> None:
            workers.stop()
            persists.append(True)

        worker.gate.pass_through = stop  # type: ignore[method-assign]
        worker.tasks.put(1)

        wait_until(lambda: not worker_threads(), "the end of the thread")
        assert persists

    def test_an_exception_outside_of_callbacks_is_printed(
        self, worker: Worker, workers: threads.ThreadWorkers, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        shown = []
        monkeypatch.setattr(sys, "excepthook", lambda kind, *rest: shown.append(kind))
        worker.gate.pass_through = lambda: 1 / 0  # type: ignore[assignment,method-assign,return-value]
        worker.tasks.put(1)
        wait_until(lambda: not worker_threads(), "the end of the thread")

        end = workers.take_end()

        assert end is not None
        assert (end.exitcode, shown) == (1, [ZeroDivisionError])

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_other_signals_do_not_reach_it(self, number: int, worker: Worker, workers: threads.ThreadWorkers) -> None:
        worker.tasks.put(1)
        wait_until(lambda: worker.gate.is_reached, "the task")

        workers.signal(0, number)

        worker.gate.open()
        wait_until(lambda: worker.waits == 2, "the end of the task")
        assert workers.take_end() is None


class Squares:
    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> Any:
        info = get_worker_info()
        assert info is not None
        assert info.dataset is self
        return np.full(3, index**2), index


class Shards(IterableDataset[Any]):
    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        assert info is not None
        return iter(range(info.id, 10, info.num_workers))


@pytest.mark.filterwarnings(MANY_WORKERS)
class TestLoaders:
    def load(self, dataset: Any, num_workers: int = 2, **options: Any) -> DataLoader[Any]:
        return DataLoader(dataset, 4, num_workers=num_workers, multiprocessing_context="thread", **options)

    @pytest.mark.parametrize("persistent", [False, True])
    def test_share_the_dataset(self, persistent: bool) -> None:
        loader = self.load(Squares(), persistent_workers=persistent)

        epochs = [[(images[:, 0].tolist(), labels.tolist()) for images, labels in loader] for _ in range(2)]
        loader._iterator = None

        assert epochs == [[([i**2 for i in part], list(part)) for part in (range(4), range(4, 8), range(8, 10))]] * 2
        assert worker_threads() == []

    def test_divide_an_iterable_dataset(self) -> None:
        assert [batch.tolist() for batch in self.load(Shards())] == [[0, 2, 4, 6], [1, 3, 5, 7], [8], [9]]

    def test_leave_the_global_generators_alone(self) -> None:
        np.random.seed(3)
        loader = self.load(Squares(), generator=1, worker_init_fn=lambda worker: None)

        assert len(list(loader)) == 3

        drawn = np.random.random()
        np.random.seed(3)
        assert drawn == np.random.random()

    def test_call_worker_init_fn_in_each_thread(self) -> None:
        calls = []
        list(self.load(Squares(), worker_init_fn=lambda worker: calls.append((worker, threading.current_thread().name))))

        assert set(calls) <= {(0, "dali_like:0"), (1, "dali_like:1")}
        assert calls

    def test_show_no_processes(self) -> None:
        iterator = iter(self.load(Squares()))
        next(iterator)

        assert iterator._workers == []  # type: ignore[attr-defined]
        iterator._shutdown_workers()

    def test_an_exception_of_the_dataset_is_raised_with_a_note_on_its_sample(self) -> None:
        loader = self.load({0: 1, 2: 3}, sampler=[0, 1, 2])

        with pytest.raises(KeyError) as caught:
            list(loader)

        assert "index 1 (sample 1 of batch 0), in worker" in caught.value.__notes__[0]
        assert "(thread " in caught.value.__notes__[0]

    def test_cannot_seed_each_thread_alone(self) -> None:
        with pytest.raises(ArgumentClashError, match="worker_seeding"):
            iter(self.load(Squares(), worker_seeding="torch"))
