"""Workers that die, hang, cannot start or raise: the results of `Pipeline.run` and of `Pipeline.close`."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import faulthandler
import inspect
import itertools
import os
import resource
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from numpy.typing import NDArray

from dali_like import Pipeline
from dali_like.engine.backends import forkserver
from dali_like.engine.backends import processes as workers
from dali_like.errors import ClosedError, WorkerDiedError, WorkerError, WorkerStartError
from dali_like.types import SampleInfo
from tests.conftest import children, is_running, time_limit, wait_until
from tests.faults.processes import kill_and_wait
from tests.internals import backend_of, pool_of

BATCH_SIZE = 4
#: A generous meaning of "at once", for things that used to take the whole patience of a user.
AT_ONCE_S = 30.0

#: Dead workers are not replaced in these tests, once there is something that replaces them.
NO_RESTARTS: dict[str, Any] = (
    {"py_worker_restarts": 0} if "py_worker_restarts" in inspect.signature(Pipeline).parameters else {}
)

MakePipeline = Callable[..., Pipeline]


@pytest.fixture
def make(make_pipeline: MakePipeline) -> MakePipeline:
    """`make_pipeline` for a source called 'numbers', without replacements for dead workers."""

    def make(source: Callable[[SampleInfo], Any], way: str, **options: Any) -> Pipeline:
        return make_pipeline(source, way, source_options={"name": "numbers"}, **NO_RESTARTS, **options)

    return make


def iteration(number: int) -> list[int]:
    """Return the batch of an iteration of a source whose samples are their indices in the epoch."""
    return list(range(number * BATCH_SIZE, (number + 1) * BATCH_SIZE))


def run(pipe: Pipeline) -> list[int]:
    """The samples of the next batch."""
    samples: list[int] = pipe.run()[0].as_array().tolist()
    return samples


def run_until(error: type[Exception], pipe: Pipeline, first: int = 0) -> pytest.ExceptionInfo[Any]:
    """Run until an error comes, which must be of this type; before it must come the batches from iteration `first` on."""

    def run_all() -> None:
        for number in itertools.count(first):
            assert run(pipe) == iteration(number)

    with pytest.raises(error) as caught:
        run_all()
    return caught


def workers_of(pipe: Pipeline) -> list[int]:
    """The process ids of the workers, once all have started."""
    wait_until(lambda: len(pipe.py_worker_pids) == pipe.py_num_workers, "the start of all workers")
    return pipe.py_worker_pids


def wait_until_gone(pids: list[int]) -> None:
    wait_until(lambda: not any(map(is_running, pids)), "the end of all workers", AT_ONCE_S)


def die_of_signal(number: int) -> Callable[[], None]:
    def die() -> None:
        leave_no_report()
        os.kill(os.getpid(), number)

    return die


def die_of_null_pointer() -> None:
    leave_no_report()
    ctypes.string_at(0)


def leave_no_report() -> None:
    """No core dump, and no traceback by the test runner's fault handler, which forked workers have inherited."""
    faulthandler.disable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


#: Ways to die: the callback's action, the exit code in the convention of `multiprocessing`, and its description in the
#: message.
DEATHS: dict[str, tuple[Callable[[], Any], int, str]] = {
    "SIGKILL": (die_of_signal(signal.SIGKILL), -signal.SIGKILL, "was killed by SIGKILL"),
    "SIGTERM": (die_of_signal(signal.SIGTERM), -signal.SIGTERM, "was killed by SIGTERM"),
    "SIGSEGV": (die_of_null_pointer, -signal.SIGSEGV, "was killed by SIGSEGV"),
    "SIGBUS": (die_of_signal(signal.SIGBUS), -signal.SIGBUS, "was killed by SIGBUS"),
    "SIGRTMIN+1": (die_of_signal(signal.SIGRTMIN + 1), -signal.SIGRTMIN - 1, f"was killed by signal {signal.SIGRTMIN + 1}"),
    "os._exit(0)": (lambda: os._exit(0), 0, "ended with exit code 0"),
    "os._exit(3)": (lambda: os._exit(3), 3, "ended with exit code 3"),
    "os._exit(70)": (lambda: os._exit(70), 70, "ended with exit code 70"),
    "sys.exit(3)": (lambda: sys.exit(3), 3, "ended with exit code 3"),
    "sys.exit('text')": (lambda: sys.exit("text"), 1, "ended with exit code 1"),
}


class TestAWorkerThatDies:
    @pytest.mark.parametrize(
        ("death", "start_method"), [*((death, "fork") for death in DEATHS), ("SIGKILL", "spawn"), ("sys.exit(3)", "spawn")]
    )
    def test_is_an_error_that_names_it_and_its_sample(self, death: str, make: MakePipeline, start_method: str) -> None:
        die, exitcode, description = DEATHS[death]

        def source(info: SampleInfo) -> np.int64:
            if info.epoch_idx == 1 and info.idx_in_epoch == 6:
                die()
            return np.int64(info.idx_in_epoch)

        pipe = make(source, start_method)
        pids = workers_of(started(pipe))
        assert run(pipe) == iteration(0)
        pipe.reset()

        error = run_until(WorkerDiedError, pipe).value

        assert isinstance(error, RuntimeError)
        assert error.pid in pids
        assert error.exitcode == exitcode
        assert f"(pid {error.pid}) {description}" in str(error)
        assert "the limit is 0 restarts of each worker within a minute; raise py_worker_restarts" in error.__notes__[-1]
        assert "'numbers'" in str(error)
        assert "sample 2 of iteration 1 in epoch 1 (idx_in_epoch 6)" in str(error)

    def test_shows_where_it_has_crashed(self, make: MakePipeline) -> None:
        """Spawned ones: forked workers have the fault handler of the test runner."""

        def source(info: SampleInfo) -> np.int64:
            if info.idx_in_epoch == 6:
                resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
                ctypes.string_at(0)
            return np.int64(info.idx_in_epoch)

        error = run_until(WorkerDiedError, make(source, "spawn")).value

        first, *stack = str(error).splitlines()
        assert first.endswith("(idx_in_epoch 6):")
        assert stack[0] == "Fatal Python error: Segmentation fault"
        # From Python 3.14 on, the stack of C follows that of Python.
        python = [line for line in stack if line.startswith("  File ")]
        assert any(line.endswith("in source") for line in python)
        assert python[-1].endswith("in run_worker")

    def test_does_not_show_where_a_process_of_its_own_has_crashed(self, make: MakePipeline) -> None:
        def source(info: SampleInfo) -> np.int64:
            if info.idx_in_epoch == 6:
                resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
                child = os.fork()
                if not child:
                    ctypes.string_at(0)
                os.waitpid(child, 0)
                os.kill(os.getpid(), signal.SIGKILL)
            return np.int64(info.idx_in_epoch)

        error = run_until(WorkerDiedError, make(source, "spawn")).value

        assert str(error).endswith("(idx_in_epoch 6)")

    def test_is_an_error_also_when_it_is_killed_from_outside(self, make: MakePipeline, tmp_path: Path) -> None:
        pipe = make(sleeps_from(BATCH_SIZE, tmp_path), "fork")
        assert run(pipe) == iteration(0)
        victim = int(wait_until(lambda: os.listdir(tmp_path), "a worker that sleeps")[0])
        os.kill(victim, signal.SIGKILL)

        error = run_until(WorkerDiedError, pipe, first=1).value

        assert (error.pid, error.exitcode) == (victim, -signal.SIGKILL)
        assert "of iteration 1 in epoch 0" in str(error)

    def test_is_the_error_though_others_have_died_since(self, make: MakePipeline) -> None:
        pipe = make(lambda info: np.int64(info.idx_in_epoch), "fork")
        assert run(pipe) == iteration(0)
        first, last = reversed(workers_of(pipe))
        for pid in (first, last):
            kill_and_wait([pid])

        assert run_until(WorkerDiedError, pipe, first=1).value.pid == first

    def test_is_an_error_again_at_every_further_run(self, make: MakePipeline) -> None:
        pipe = make(dies_at(6), "fork")
        run_until(WorkerDiedError, pipe)

        for _ in range(3):
            with pytest.raises(WorkerDiedError):
                pipe.run()

    def test_leaves_a_pipeline_that_can_be_closed_at_once(self, make: MakePipeline) -> None:
        pipe = make(dies_at(6), "fork")
        pids = workers_of(started(pipe))
        run_until(WorkerDiedError, pipe)

        with time_limit(AT_ONCE_S):
            pipe.close()

        assert not any(map(is_running, pids))

    def test_may_die_in_the_company_of_all_others(self, make: MakePipeline) -> None:
        def source(info: SampleInfo) -> np.int64:
            os.kill(os.getpid(), signal.SIGKILL)
            return np.int64(info.idx_in_epoch)

        pipe = make(source, "fork")

        run_until(WorkerDiedError, pipe)

    def test_leaves_a_held_batch_unchanged(self, make: MakePipeline) -> None:
        pipe = make(dies_at(9), "fork")
        (held,) = pipe.run()
        run_until(WorkerDiedError, pipe, first=1)
        pipe.close()

        assert held.as_array().tolist() == iteration(0)


class TestAnIdleWorkerThatIsKilled:
    def test_does_not_keep_complete_batches_from_being_delivered(self, make: MakePipeline, tmp_path: Path) -> None:
        ahead = 3  # the pipeline's prefetch_queue_depth and the source's
        pipe = make(counts_samples(tmp_path), "fork", workers=1)
        assert run(pipe) == iteration(0)
        (pid,) = workers_of(pipe)
        wait_until_idle(pid, tmp_path, (1 + ahead) * BATCH_SIZE)

        os.kill(pid, signal.SIGKILL)
        wait_until_gone([pid])

        assert [run(pipe) for _ in range(ahead)] == [iteration(number) for number in range(1, 1 + ahead)]
        with pytest.raises(WorkerDiedError, match=rf"\(pid {pid}\) was killed by SIGKILL .*idle"):
            pipe.run()

    def test_is_an_error_or_leaves_the_work_to_the_others(self, make: MakePipeline, tmp_path: Path) -> None:
        pipe = make(counts_samples(tmp_path), "fork", workers=2)
        assert run(pipe) == iteration(0)
        victim, _ = workers_of(pipe)
        wait_until_idle(victim, tmp_path, 4 * BATCH_SIZE)

        os.kill(victim, signal.SIGKILL)
        wait_until_gone([victim])

        assert [run(pipe) for _ in range(3)] == [iteration(1 + number) for number in range(3)]
        delivered = []
        with contextlib.suppress(WorkerDiedError):
            delivered.extend(run(pipe) for _ in range(20))
        assert delivered == [iteration(4 + number) for number in range(len(delivered))]


class TestTheDeathOfTheProcessThatStartsWorkers:
    def test_is_an_error_and_the_end_of_the_workers(self, make: MakePipeline, start_method: str) -> None:
        def source(info: SampleInfo) -> np.int64:
            if info.idx_in_epoch == 6:
                os.kill(os.getppid(), signal.SIGKILL)
                time.sleep(1000)
            return np.int64(info.idx_in_epoch)

        pipe = make(source, start_method)
        pids = workers_of(started(pipe))

        run_until(WorkerError, pipe)

        wait_until_gone(pids)

    def test_is_an_error_when_it_comes_between_two_runs(self, make: MakePipeline) -> None:
        pipe = make(numbers(), "fork")
        assert run(pipe) == iteration(0)
        pids = workers_of(pipe)
        forkserver = psutil.Process(pids[0]).ppid()

        os.kill(forkserver, signal.SIGKILL)

        wait_until_gone([forkserver, *pids])
        run_until(WorkerError, pipe, first=1)
        with pytest.raises(WorkerError):
            pipe.run()

    def test_makes_later_requests_to_it_do_nothing(self, make: MakePipeline) -> None:
        pipe = started(make(numbers(), "fork"))
        workers: Any = backend_of(pool_of(pipe))
        pids = workers_of(pipe)
        forkserver = psutil.Process(pids[0]).ppid()

        os.kill(forkserver, signal.SIGKILL)

        wait_until_gone([forkserver, *pids])
        workers.start(0)
        workers.signal(1, signal.SIGTERM)

    def test_leaves_a_pipeline_that_can_be_closed_at_once(self, make: MakePipeline) -> None:
        pipe = make(numbers(), "fork")
        forkserver = psutil.Process(workers_of(started(pipe))[0]).ppid()
        os.kill(forkserver, signal.SIGKILL)

        with time_limit(AT_ONCE_S):
            pipe.close()

        assert not psutil.pid_exists(forkserver)


class TestClose:
    @pytest.mark.parametrize("hold", ["sleeping", "in C, with the lock of the interpreter"])
    def test_ends_workers_that_hang(self, hold: str, make: MakePipeline, tmp_path: Path) -> None:
        pipe = make(sleeps_from(BATCH_SIZE, tmp_path, with_lock=hold != "sleeping"), "fork")
        assert run(pipe) == iteration(0)
        pids = workers_of(pipe)
        wait_until(lambda: len(os.listdir(tmp_path)) == len(pids), "workers that sleep")
        forkserver = psutil.Process(pids[0]).ppid()

        with time_limit(AT_ONCE_S):
            pipe.close()

        assert not any(map(is_running, [forkserver, *pids]))

    def test_leaves_workers_the_time_to_finish_their_sample(
        self, make: MakePipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # Private: the test's own deadline depends on it
        assert workers._GRACE_S == 0.5
        monkeypatch.setattr(workers, "_GRACE_S", AT_ONCE_S)  # the machine may be busy

        def source(info: SampleInfo) -> np.int64:
            if info.idx_in_epoch >= BATCH_SIZE:
                (tmp_path / f"begun {os.getpid()}").touch()
                time.sleep(0.1)
                (tmp_path / f"finished {os.getpid()}").touch()
            return np.int64(info.idx_in_epoch)

        pipe = make(source, "fork", workers=1)
        assert run(pipe) == iteration(0)
        (pid,) = workers_of(pipe)
        wait_until((tmp_path / f"begun {pid}").exists, "a worker that works")

        pipe.close()

        assert (tmp_path / f"finished {pid}").exists()

    def test_before_workers_have_started_ends_them(self, make: MakePipeline) -> None:
        pipe = started(make(numbers(), "fork"))

        with time_limit(AT_ONCE_S):
            pipe.close()

        assert not children()

    def test_may_come_twice(self, make: MakePipeline, way: str) -> None:
        pipe = make(numbers(), way)
        assert run(pipe) == iteration(0)
        pipe.close()

        pipe.close()

    def test_may_come_first(self, make: MakePipeline, way: str) -> None:
        pipe = make(numbers(), way)

        pipe.close()

        with pytest.raises(ClosedError):
            pipe.run()

    @pytest.mark.parametrize("call", [Pipeline.run, Pipeline.reset, Pipeline.build, Pipeline.start_py_workers, iter, next])
    def test_allows_no_further_use(self, call: Callable[[Pipeline], Any], make: MakePipeline, way: str) -> None:
        pipe = make(numbers(), way)
        assert run(pipe) == iteration(0)
        pipe.close()

        with pytest.raises(ClosedError):
            call(pipe)


@pytest.mark.parametrize(
    ("code", "status"), [(None, 0), (0, 0), (3, 3), (True, 1), (256 + 7, 7), (-1, 255), (1 << 40, 0), ("a text", 1)]
)
def test_exit_status_is_the_one_that_python_makes_of_sys_exit(
    code: Any, status: int, capfd: pytest.CaptureFixture[str]
) -> None:
    assert forkserver.exit_status(SystemExit(code)) == status
    assert capfd.readouterr() == ("", "a text\n" if code == "a text" else "")


class WithArguments(Exception):
    """Like many exceptions: `args` does not have the arguments of the constructor."""

    def __init__(self, code: int, *, reason: str) -> None:
        super().__init__(f"{reason} ({code})")
        self.code = code
        self.reason = reason


class TestAnExceptionInACallback:
    @pytest.mark.parametrize("failing", [0, 1, 2], ids="in iteration {}".format)
    def test_takes_one_batch_and_no_other(self, failing: int, make: MakePipeline, way: str) -> None:
        pipe = make(raises_at(failing * BATCH_SIZE + 2, lambda: ValueError("no such sample")), way)

        seen: list[Any] = []
        for _ in range(5):
            try:
                seen.append(run(pipe))
            except ValueError as error:
                seen.append(str(error))

        assert seen == [iteration(n) if n != failing else "no such sample" for n in range(5)]

    def test_says_where_it_comes_from(self, make: MakePipeline, way: str) -> None:
        pipe = make(raises_at(6, lambda: ValueError("no such sample"), epoch=1), way)
        pipe.run()
        pipe.reset()

        error = run_until(ValueError, pipe).value

        (note,) = error.__notes__
        assert "'numbers' for sample 2 of iteration 1 in epoch 1 (idx_in_epoch 6)" in note

    def test_shows_the_traceback_of_the_worker(self, make: MakePipeline, way: str) -> None:
        pipe = make(raises_at(6, lambda: ValueError("no such sample")), way)

        error = run_until(ValueError, pipe).value

        text = "".join(traceback.format_exception(error))
        assert "in failing_source" in text
        assert "raise make_error()" in text

    def test_shows_its_cause(self, make: MakePipeline, way: str) -> None:
        def source(info: SampleInfo) -> NDArray[Any]:
            try:
                return {}[info.idx_in_epoch]  # type: ignore[no-any-return]
            except KeyError as error:
                raise ValueError("no such sample") from error

        error = run_until(ValueError, make(source, way)).value

        assert "KeyError: 0" in "".join(traceback.format_exception(error))

    def test_may_come_in_every_batch(self, make: MakePipeline, way: str) -> None:
        def source(info: SampleInfo) -> np.int64:
            raise ValueError(info.iteration)

        pipe = make(source, way)

        for number in range(30):
            with pytest.raises(ValueError, match=rf"^{number}\b"):
                pipe.run()

    @pytest.mark.parametrize("round_", range(3))
    def test_is_that_of_the_first_sample_where_several_raise(self, round_: int, make: MakePipeline, tmp_path: Path) -> None:
        def source(info: SampleInfo) -> np.int64:
            if info.idx_in_batch == 3:
                (tmp_path / "3").touch()
                raise ValueError(3)
            if info.idx_in_batch == 1:
                while not (tmp_path / "3").exists():
                    time.sleep(0.001)
                raise ValueError(1)
            return np.int64(info.idx_in_epoch)

        error = run_until(ValueError, make(source, "fork", workers=2)).value

        assert error.args == (1,)

    def test_can_have_any_constructor(self, make: MakePipeline, way: str) -> None:
        pipe = make(raises_at(6, lambda: WithArguments(7, reason="broken")), way)

        error = run_until(WithArguments, pipe).value

        assert (str(error), error.code, error.reason) == ("broken (7)", 7, "broken")

    def test_can_be_of_a_local_class(self, make: MakePipeline, way: str) -> None:
        class LocalError(Exception):
            def __init__(self, code: int, *, reason: str) -> None:
                super().__init__(f"{reason} ({code})")
                self.code = code

        error = run_until(LocalError, make(raises_at(6, lambda: LocalError(7, reason="broken")), way)).value

        assert (str(error), error.code) == ("broken (7)", 7)

    @pytest.mark.parametrize(
        "make_error",
        [
            lambda: FileNotFoundError(2, "No such file or directory", "/nowhere"),
            lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
            lambda: subprocess.CalledProcessError(3, "false", b"out", b"err"),
            lambda: ExceptionGroup("several", [ValueError(1), KeyError("two")]),
            lambda: StopAsyncIteration("the end"),
            lambda: AssertionError("no"),
        ],
        ids=lambda make_error: type(make_error()).__name__,
    )
    def test_of_the_standard_library_keeps_all_it_says(
        self, make_error: Callable[[], Exception], make: MakePipeline, way: str
    ) -> None:
        error = run_until(type(make_error()), make(raises_at(6, make_error), way)).value

        assert repr(error) == repr(make_error())
        assert str(error) == str(make_error())

    def test_keeps_its_own_notes(self, make: MakePipeline, way: str) -> None:
        def make_error() -> Exception:
            error = ValueError("no such sample")
            error.add_note("see the manual")
            return error

        error = run_until(ValueError, make(raises_at(6, make_error), way)).value

        assert error.__notes__[0] == "see the manual"

    def test_loses_only_its_unpicklable_attributes(self, make: MakePipeline, start_method: str) -> None:
        class HoldsALock(Exception):
            def __init__(self, text: str) -> None:
                super().__init__(text, threading.Lock())
                self.lock = threading.Lock()
                self.code = 7

        error = run_until(HoldsALock, make(raises_at(6, lambda: HoldsALock("broken")), start_method)).value

        assert error.code == 7
        assert error.args[0] == "broken"
        assert "lock" in error.args[1]
        assert "lock" in error.lock

    def test_of_an_unpicklable_class_arrives_as_a_worker_error_with_its_name(
        self, make: MakePipeline, start_method: str
    ) -> None:
        def source(info: SampleInfo) -> np.int64:
            if info.idx_in_epoch == 6:
                raise type("CannotTravelError", (Exception,), {"lock": threading.Lock()})("broken")
            return np.int64(info.idx_in_epoch)

        pipe = make(source, start_method)

        error = run_until(WorkerError, pipe).value

        assert "CannotTravelError: broken" in str(error)
        assert run(pipe) == iteration(2)

    def test_of_a_module_that_only_workers_find_arrives_as_a_worker_error_with_its_name(
        self, make: MakePipeline, start_method: str, tmp_path: Path
    ) -> None:
        (tmp_path / "only_workers_find_this.py").write_text("class PluginError(Exception): pass")

        def source(info: SampleInfo) -> np.int64:
            if info.idx_in_epoch == 6:
                sys.path.append(str(tmp_path))
                import only_workers_find_this  # type: ignore[import-not-found]

                raise only_workers_find_this.PluginError("broken")
            return np.int64(info.idx_in_epoch)

        pipe = make(source, start_method)

        error = run_until(Exception, pipe).value

        assert "PluginError: broken" in "".join(traceback.format_exception(error))
        assert run(pipe) == iteration(2)

    def test_may_be_frozen(self, make: MakePipeline, way: str) -> None:
        @dataclasses.dataclass(frozen=True)
        class FrozenError(Exception):
            code: int

        pipe = make(raises_at(6, lambda: FrozenError(7)), way)

        error = run_until(FrozenError, pipe).value

        assert error.code == 7
        assert run(pipe) == iteration(2)

    def test_may_have_a_text_of_many_megabytes(self, make: MakePipeline, way: str) -> None:
        pipe = make(raises_at(6, lambda: ValueError("x" * 5_000_000)), way)

        error = run_until(Exception, pipe).value

        assert "xxx" in str(error)
        assert "ValueError" in "".join(traceback.format_exception(error))
        assert run(pipe) == iteration(2)

    def test_may_hold_more_than_there_is_room_for(self, make: MakePipeline) -> None:
        def make_error() -> Exception:
            error = WithArguments(7, reason="broken")
            error.data = np.zeros(30_000_000, np.uint8)  # type: ignore[attr-defined]
            return error

        error = run_until(WithArguments, make(raises_at(6, make_error), "fork")).value

        assert (str(error), error.code) == ("broken (7)", 7)
        assert "raise make_error()" in "".join(traceback.format_exception(error))

    def test_may_have_no_text_at_all(self, make: MakePipeline, way: str) -> None:
        class HasNoTextError(Exception):
            def __str__(self) -> str:
                raise KeyError("no text")

        pipe = make(raises_at(6, HasNoTextError), way)

        run_until(HasNoTextError, pipe)

        assert run(pipe) == iteration(2)


class TestASourceThatCannotBeUnpickled:
    def test_is_an_error_of_the_first_run_with_its_cause(self, make: MakePipeline) -> None:
        pipe = started(make(cannot_be_unpickled(LookupError("no data here")), "spawn"))

        error = run_until(WorkerStartError, pipe).value

        assert isinstance(error.__cause__, LookupError)
        assert str(error.__cause__) == "no data here"
        assert "in __setstate__" in str(error.__cause__.__cause__)
        assert "no data here" in str(error)

    def test_is_an_error_again_at_every_further_run(self, make: MakePipeline) -> None:
        pipe = make(cannot_be_unpickled(LookupError("no data here")), "spawn")
        run_until(WorkerStartError, pipe)

        with pytest.raises(WorkerStartError):
            pipe.run()

    def test_may_have_more_to_say_than_there_is_room_for(self, make: MakePipeline) -> None:
        error = run_until(WorkerStartError, make(cannot_be_unpickled(LookupError("x" * 5_000_000)), "spawn")).value

        assert isinstance(error.__cause__, LookupError)
        assert "in __setstate__" in str(error.__cause__.__cause__)

    def test_may_also_end_the_worker(self, make: MakePipeline) -> None:
        run_until(WorkerError, make(cannot_be_unpickled(SystemExit(5)), "spawn"))


# Sources


def numbers() -> Callable[[SampleInfo], np.int64]:
    """Each sample is its own index in the epoch."""
    return lambda info: np.int64(info.idx_in_epoch)


def dies_at(index: int) -> Callable[[SampleInfo], np.int64]:
    """Kills its worker at one sample."""

    def source(info: SampleInfo) -> np.int64:
        if info.idx_in_epoch == index:
            os.kill(os.getpid(), signal.SIGKILL)
        return np.int64(info.idx_in_epoch)

    return source


def raises_at(index: int, make_error: Callable[[], Exception], epoch: int = 0) -> Callable[[SampleInfo], np.int64]:
    """Raises an exception at one sample."""

    def failing_source(info: SampleInfo) -> np.int64:
        if info.epoch_idx == epoch and info.idx_in_epoch == index:
            raise make_error()
        return np.int64(info.idx_in_epoch)

    return failing_source


def sleeps_from(index: int, folder: Path, *, with_lock: bool = False) -> Callable[[SampleInfo], np.int64]:
    """Never returns from a sample on, having left the worker's process id in a folder."""

    def source(info: SampleInfo) -> np.int64:
        if info.idx_in_epoch >= index:
            (folder / str(os.getpid())).touch()
            if with_lock:
                ctypes.PyDLL(None).sleep(1000)
            else:
                time.sleep(1000)
        return np.int64(info.idx_in_epoch)

    return source


def counts_samples(folder: Path) -> Callable[[SampleInfo], np.int64]:
    """Leaves a file for each sample in a folder."""

    def source(info: SampleInfo) -> np.int64:
        (folder / str(info.idx_in_epoch)).touch()
        return np.int64(info.idx_in_epoch)

    return source


def cannot_be_unpickled(error: BaseException) -> Callable[[SampleInfo], np.int64]:
    class Source:
        def __getstate__(self) -> dict[str, BaseException]:
            return {"error": error}

        def __setstate__(self, state: dict[str, BaseException]) -> None:
            raise state["error"]

        def __call__(self, info: SampleInfo) -> np.int64:
            return np.int64(info.idx_in_epoch)

    return Source()


# Conditions that tests wait for


def started(pipe: Pipeline) -> Pipeline:
    """Return the pipeline after the start of its workers has been requested."""
    pipe.start_py_workers()
    return pipe


def wait_until_idle(pid: int, folder: Path, num_samples: int) -> None:
    """Wait until `counts_samples` has made so many samples and a worker waits for the next task."""
    wait_until(lambda: len(os.listdir(folder)) == num_samples, f"{num_samples} samples")
    wait_until(lambda: psutil.Process(pid).status() == psutil.STATUS_SLEEPING, "a worker that waits")
