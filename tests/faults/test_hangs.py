"""Samples that take too long: with ``py_timeout_s`` their workers are replaced, and the error shows their stacks."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest

from dali_like import Pipeline
from dali_like.engine.memory.descriptors import Descriptor
from dali_like.engine.memory.protocol import CELL_PID, MESSAGE_BYTES, WORD_BYTES, cell_offset, message_offset
from dali_like.engine.memory.shared_file import SharedFile
from dali_like.engine.memory.space import SharedSpace
from dali_like.engine.pool import hangs
from dali_like.engine.pool.cells import Cells
from dali_like.errors import ArgumentError, WorkerDiedError, WorkerTimeoutError
from dali_like.types import SampleInfo
from tests.conftest import DEADLINE_S, is_running, time_limit, wait_until
from tests.faults.processes import wait_until_all, wait_until_idle, workers_of
from tests.faults.programs import Program
from tests.faults.streams import (
    HANGS,
    MUTE_HANGS,
    Disturbed,
    Noise,
    Source,
    batches_of,
    counted,
    die_of_sigkill,
    digest,
    happens,
    sleep_for_ever,
    stop_oneself,
)

BATCH_SIZE = 4
#: Number of results of `batches_of` for two epochs of `Noise`.
TWO_EPOCHS = 2 * (Noise.length // BATCH_SIZE + 1)
#: The timeout of these tests; long enough for a sample on a busy machine.
TIMEOUT_S = 1.0

#: Time limit of closing; it includes the half second that workers have to end.
CLOSED_S = 30.0

MakePipeline = Callable[..., Pipeline]


#: Each hang in a forked worker, and one in a spawned worker.
each_hang = pytest.mark.parametrize(("hang", "start_method"), [*((hang, "fork") for hang in HANGS), ("sleeping", "spawn")])


@pytest.fixture
def make(make_pipeline: MakePipeline) -> MakePipeline:
    """`make_pipeline` for a source called 'numbers', with a time-out."""
    return partial(make_pipeline, source_options={"name": "numbers"}, py_timeout_s=TIMEOUT_S)


@pytest.fixture
def undisturbed(make_pipeline: MakePipeline) -> list[str]:
    """The result of `batches_of` for two epochs of `Noise` without a hang."""
    return batches_of(make_pipeline(Noise(), "serial"), TWO_EPOCHS)


class TestASampleThatHangs:
    @each_hang
    def test_is_an_error_that_names_it_and_shows_where_it_hangs(
        self, hang: str, make: MakePipeline, start_method: str
    ) -> None:
        pipe = make(hangs_at({6}, HANGS[hang]), start_method)
        assert run(pipe) == [0, 1, 2, 3]

        with pytest.raises(WorkerTimeoutError) as caught:
            pipe.run()

        assert isinstance(caught.value, TimeoutError)
        assert isinstance(caught.value, RuntimeError)
        text = str(caught.value)
        assert f"{TIMEOUT_S} s" in text
        assert "'numbers'" in text
        assert "sample 2 of iteration 1 in epoch 0 (idx_in_epoch 6)" in text
        assert "in hanging_source" in text
        assert f"in {HANGS[hang].__name__}" in text

    @pytest.mark.parametrize("hang", MUTE_HANGS)
    def test_may_be_unable_to_show_where_it_hangs(self, hang: str, make: MakePipeline) -> None:
        pipe = make(hangs_at({6}, MUTE_HANGS[hang]), "fork")
        assert run(pipe) == [0, 1, 2, 3]

        with pytest.raises(WorkerTimeoutError, match=r"(?s)\(idx_in_epoch 6\).*Python stack"):
            pipe.run()

    @pytest.mark.parametrize("index", [0, 11])
    def test_takes_its_batch_and_no_other(self, index: int, make: MakePipeline) -> None:
        pipe = make(hangs_at({index}, sleep_for_ever), "fork")

        seen: list[Any] = []
        for _ in range(6):
            try:
                seen.append(run(pipe))
            except WorkerTimeoutError:
                seen.append("time-out")

        expected: list[Any] = [list(range(first, first + BATCH_SIZE)) for first in range(0, 24, BATCH_SIZE)]
        expected[index // BATCH_SIZE] = "time-out"
        assert seen == expected

    def test_is_tried_once_more_in_a_fresh_worker(self, make: MakePipeline, tmp_path: Path) -> None:
        def source(info: SampleInfo) -> np.int64:
            if info.idx_in_epoch == 6:
                (tmp_path / str(os.getpid())).touch()
                time.sleep(1000)
            return np.int64(info.idx_in_epoch)

        pipe = make(source, "fork")
        assert run(pipe) == [0, 1, 2, 3]

        with pytest.raises(WorkerTimeoutError):
            pipe.run()

        assert len(os.listdir(tmp_path)) == 2
        assert pipe.statistics().worker_restarts == 2

    def test_shows_only_the_callbacks_part_of_the_stack(self, make: MakePipeline) -> None:
        pipe = make(hangs_at({6}, sleep_for_ever), "fork")
        assert run(pipe) == [0, 1, 2, 3]

        with pytest.raises(WorkerTimeoutError) as caught:
            pipe.run()

        assert "test_shows_no_more" not in str(caught.value)

    def test_is_an_error_at_once_where_workers_are_not_replaced(self, make: MakePipeline) -> None:
        pipe = make(hangs_at({6}, sleep_for_ever), "fork", py_worker_restarts=0)
        assert run(pipe) == [0, 1, 2, 3]

        for _ in range(2):
            with pytest.raises(WorkerTimeoutError, match=r"(?s)\(idx_in_epoch 6\).*sleep_for_ever"):
                pipe.run()
        assert pipe.statistics().worker_restarts == 0

    def test_may_have_killed_a_worker_before(self, make: MakePipeline, tmp_path: Path) -> None:
        source = Disturbed(hangs_at({6}, sleep_for_ever), {(0, 6)}, die_of_sigkill, tmp_path)
        pipe = make(source, "fork")
        assert run(pipe) == [0, 1, 2, 3]

        with pytest.raises((WorkerTimeoutError, WorkerDiedError)):
            pipe.run()

        assert run(pipe) == [8, 9, 10, 11]


class TestASampleThatHangsOnlyOnce:
    @pytest.mark.parametrize("hang", [*HANGS, "stopped"])
    def test_leaves_no_trace_in_the_batches(
        self, hang: str, make: MakePipeline, undisturbed: list[str], tmp_path: Path
    ) -> None:
        source = Disturbed(Noise(), {(1, 21)}, (HANGS | MUTE_HANGS)[hang], tmp_path)
        pipe = make(source, "fork")

        assert batches_of(pipe, TWO_EPOCHS) == undisturbed
        assert pipe.statistics().worker_restarts == 1

    def test_may_have_others_like_it_at_the_same_time(
        self, make: MakePipeline, undisturbed: list[str], tmp_path: Path
    ) -> None:
        source = Disturbed(Noise(), {(0, 21), (0, 22), (0, 23)}, sleep_for_ever, tmp_path)
        pipe = make(source, "fork")

        assert batches_of(pipe, TWO_EPOCHS) == undisturbed
        assert pipe.statistics().worker_restarts == 3

    def test_may_have_killed_its_worker_before(self, make: MakePipeline, undisturbed: list[str], tmp_path: Path) -> None:
        (tmp_path / "hangs").mkdir()
        hangs = Disturbed(Noise(), {(0, 21)}, sleep_for_ever, tmp_path / "hangs")
        pipe = make(Disturbed(hangs, {(0, 21)}, die_of_sigkill, tmp_path), "fork")

        assert batches_of(pipe, TWO_EPOCHS) == undisturbed

    def test_may_be_of_any_shape(self, make: MakePipeline, start_method: str, tmp_path: Path) -> None:
        noise = Noise(ragged=True)
        pipe = make(Disturbed(noise, {(0, 0), (0, 21)}, sleep_for_ever, tmp_path), start_method)

        assert batches_of(pipe, TWO_EPOCHS) == batches_of(make(noise, "serial"), TWO_EPOCHS)

    def test_may_be_of_a_batch_that_is_no_longer_wanted(
        self, make: MakePipeline, undisturbed: list[str], tmp_path: Path
    ) -> None:
        pipe = make(Disturbed(Noise(), {(0, 5), (0, 6)}, sleep_for_ever, tmp_path), "fork")
        assert batches_of(pipe, 1) == undisturbed[:1]

        pipe.reset()

        assert batches_of(pipe, TWO_EPOCHS // 2) == undisturbed[TWO_EPOCHS // 2 :]


class TestAStoppedWorker:
    @pytest.mark.parametrize("workers", [1, 2])
    def test_that_was_idle_is_replaced(
        self, workers: int, make: MakePipeline, undisturbed: list[str], tmp_path: Path
    ) -> None:
        pipe = make(counted(Noise(), tmp_path), "fork", workers=workers)
        seen = batches_of(pipe, 1)
        pids = workers_of(pipe)
        wait_until_idle(pids, tmp_path, 4 * BATCH_SIZE)

        for pid in pids:
            os.kill(pid, signal.SIGSTOP)

        assert seen + batches_of(pipe, TWO_EPOCHS - 1) == undisturbed
        assert pipe.statistics().worker_restarts == workers

    def test_that_was_idle_is_an_error_where_workers_are_not_replaced(
        self, make: MakePipeline, undisturbed: list[str], tmp_path: Path
    ) -> None:
        pipe = make(counted(Noise(), tmp_path), "fork", workers=1, py_worker_restarts=0)
        seen = batches_of(pipe, 1)
        (pid,) = workers_of(pipe)
        wait_until_idle([pid], tmp_path, 4 * BATCH_SIZE)
        os.kill(pid, signal.SIGSTOP)
        seen += batches_of(pipe, 3)

        with pytest.raises(WorkerTimeoutError, match=rf"(?s)\(pid {pid}\).*stopped"):
            pipe.run()

        assert seen == undisturbed[:4]

    def test_that_was_busy_is_replaced(
        self, make: MakePipeline, undisturbed: list[str], start_method: str, tmp_path: Path
    ) -> None:
        pipe = make(begins_slowly(Noise(), tmp_path), start_method)
        seen = batches_of(pipe, 1)
        busy = wait_until(lambda: os.listdir(tmp_path), "a worker that is busy")

        os.kill(int(busy[0]), signal.SIGSTOP)

        assert seen + batches_of(pipe, TWO_EPOCHS - 1) == undisturbed
        assert pipe.statistics().worker_restarts == 1


class TestAWorkerThatIsNotTooSlow:
    def test_may_take_the_time_for_every_single_sample(self, make: MakePipeline) -> None:
        pipe = make(sleeping(Noise(), TIMEOUT_S / 10, every=3), "fork", batch_size=48, workers=1)

        (output,) = pipe.run()

        assert len(output) == 48
        assert pipe.statistics().worker_restarts == 0

    def test_does_not_wait_for_the_loop(self, make: MakePipeline, undisturbed: list[str]) -> None:
        pipe = make(Noise(), "fork")
        seen = batches_of(pipe, 3)
        after_the_time_out(1.5)

        seen += batches_of(pipe, TWO_EPOCHS - 3)

        assert seen == undisturbed
        assert pipe.statistics().worker_restarts == 0

    def test_may_have_begun_while_the_loop_was_waiting_and_ended_since(self, make: MakePipeline, tmp_path: Path) -> None:
        pipe = make(slow_while_the_loop_waits(tmp_path), "fork", workers=2)
        assert run(pipe) == [0, 1, 2, 3]
        (tmp_path / "delivered").touch()
        after_the_time_out(1.5)
        wait_until((tmp_path / "ended").exists, "the end of the sample")

        assert [run(pipe) for _ in range(2)] == [[4, 5, 6, 7], [8, 9, 10, 11]]
        assert pipe.statistics().worker_restarts == 0

    def test_may_have_been_stopped_with_the_whole_program(self, start_method: str, tmp_path: Path) -> None:
        """As by Ctrl-Z, and fg some time later."""
        gate = tmp_path / "gate"
        program = Program(tmp_path, [SLOW_PROGRAM], [start_method, str(TIMEOUT_S), str(gate)])
        try:
            program.wait_for("slow")
            os.killpg(program.pid, signal.SIGSTOP)
            wait_until_all(program.processes(), psutil.STATUS_STOPPED)
            after_the_time_out(1.5)
            gate.touch()
            os.killpg(program.pid, signal.SIGCONT)
            end = program.end()
        finally:
            program.finish()

        assert (end.status, end.stderr) == (0, "")
        assert program.lines("batch") == [[0, 1], [2, 3], [4, 5]]


#: One sample of this program waits for a file.
SLOW_PROGRAM = """
    import time
    import numpy as np
    from dali_like import fn, pipeline_def

    def source(info):
        if info.idx_in_epoch == 2:
            tell("slow: true")
            while not os.path.exists(sys.argv[3]):
                time.sleep(0.001)
        return np.int64(info.idx_in_epoch)

    @pipeline_def(
        batch_size=2, py_num_workers=1, py_start_method=sys.argv[1], py_timeout_s=float(sys.argv[2]), py_worker_restarts=0
    )
    def pipeline():
        return fn.external_source(source=source, batch=False, parallel=True)

    pipe = pipeline()
    for _ in range(3):
        tell(f"batch: {pipe.run()[0].as_array().tolist()}")
    pipe.close()
"""


class TestAStartThatHangs:
    """Another worker would come no further: it is as with a start that raises."""

    @pytest.fixture(autouse=True)
    def _short_starts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert hangs.LEAST_START_S >= TIMEOUT_S
        monkeypatch.setattr(hangs, "LEAST_START_S", TIMEOUT_S)

    @each_hang
    def test_in_worker_setup_is_an_error_that_shows_where(
        self, hang: str, make_pipeline: MakePipeline, start_method: str
    ) -> None:
        pipe = make_pipeline(
            Noise(), start_method, py_timeout_s=TIMEOUT_S, source_options={"worker_setup": HANGS[hang]}, workers=1
        )

        with pytest.raises(
            WorkerTimeoutError, match=rf"(?s)no progress for {TIMEOUT_S} s .*worker_setup.*in {HANGS[hang].__name__}"
        ):
            pipe.run()

        assert pipe.statistics().worker_restarts == 0

    def test_is_an_error_again_at_every_further_run(self, make_pipeline: MakePipeline) -> None:
        pipe = make_pipeline(Noise(), py_timeout_s=TIMEOUT_S, source_options={"worker_setup": sleep_for_ever})

        for _ in range(3):
            with pytest.raises(WorkerTimeoutError, match="worker_setup"):
                pipe.run()

    def test_in_unpickling_is_an_error_that_shows_where(self, make_pipeline: MakePipeline) -> None:
        pipe = make_pipeline(HangsWhenUnpickled(), "spawn", py_timeout_s=TIMEOUT_S)

        with pytest.raises(WorkerTimeoutError, match=r"(?s)unpickled.*in sleep_for_ever.*in __setstate__"):
            pipe.run()

    def test_may_be_that_of_one_worker(self, make_pipeline: MakePipeline, tmp_path: Path) -> None:
        """The others go on until the time-out."""

        def setup() -> None:
            if happens(tmp_path / "hangs"):
                sleep_for_ever()

        pipe = make_pipeline(Noise(length=10**9), "fork", py_timeout_s=TIMEOUT_S, source_options={"worker_setup": setup})

        with pytest.raises(WorkerTimeoutError, match="worker_setup"):
            list(pipe)

    def test_is_not_one_that_was_stopped(self, make_pipeline: MakePipeline, undisturbed: list[str], tmp_path: Path) -> None:
        def setup() -> None:
            if happens(tmp_path / "stops"):
                stop_oneself()

        options = {"worker_setup": setup}
        pipe = make_pipeline(Noise(), "fork", py_timeout_s=TIMEOUT_S, source_options=options, workers=1)

        assert batches_of(pipe, TWO_EPOCHS) == undisturbed
        assert pipe.statistics().worker_restarts == 1

    def test_has_some_time_however_short_the_time_out(
        self, make_pipeline: MakePipeline, undisturbed: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(hangs, "LEAST_START_S", DEADLINE_S)
        options = {"worker_setup": partial(time.sleep, 2 * TIMEOUT_S)}
        pipe = make_pipeline(Noise(), py_timeout_s=TIMEOUT_S, source_options=options, workers=1)

        assert digest(pipe.run()) == undisturbed[0]
        assert pipe.statistics().worker_restarts == 0


class TestTheWatch:
    """Of one worker, looked at by a clock of the test's."""

    class Watched:
        def __init__(self, timeout_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
            self.now_s = 0.0
            monkeypatch.setattr("dali_like.engine.pool.hangs.time", SimpleNamespace(monotonic=lambda: self.now_s))
            self.watch = hangs.HangWatch(None, None, 1, timeout_s)  # type: ignore[arg-type]  # neither is asked

        def overdue_at(self, state: Any, *moments_s: float) -> list[float]:
            """At which of these moments a worker that is on something is overdue."""
            overdue = []
            for self.now_s in moments_s:
                if self.watch.due() and self.watch.is_overdue(0, state, starting=False):
                    overdue.append(self.now_s)
            return overdue

    def test_counts_the_time_of_a_worker_on_one_thing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        watched = self.Watched(8.0, monkeypatch)

        assert watched.overdue_at("a task", *range(1, 8)) == []
        assert watched.overdue_at("another", *range(8, 18)) == [17]

    def test_time_between_two_checks_does_not_count(self, monkeypatch: pytest.MonkeyPatch) -> None:
        watched = self.Watched(8.0, monkeypatch)

        assert watched.overdue_at("a task", 1, 100, 101, 200) == []

    def test_lets_a_worker_be_on_nothing_for_ever(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert self.Watched(8.0, monkeypatch).overdue_at(None, *range(1, 50)) == []

    def test_forgets_the_task_of_the_previous_worker(self, monkeypatch: pytest.MonkeyPatch) -> None:
        watched = self.Watched(8.0, monkeypatch)
        watched.overdue_at("a task", *range(1, 9))

        watched.watch.forget(0)

        assert watched.overdue_at("a task", *range(9, 19)) == [18]

    @pytest.mark.parametrize(("timeout_s", "limit_s"), [(8.0, 10.0), (20.0, 20.0)])
    def test_gives_a_start_ten_seconds_at_least(
        self, timeout_s: float, limit_s: float, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        watch = self.Watched(timeout_s, monkeypatch).watch

        assert (watch.limit_s(starting=True), watch.limit_s(starting=False)) == (limit_s, timeout_s)


class TestATeardownThatHangs:
    def test_is_ended_without_a_word(self, make_pipeline: MakePipeline, capfd: pytest.CaptureFixture[str]) -> None:
        pipe = make_pipeline(Noise(), "fork", source_options={"worker_teardown": sleep_for_ever})
        pipe.run()
        pids = workers_of(pipe)

        with time_limit(CLOSED_S):
            pipe.close()

        assert not any(map(is_running, pids))
        assert capfd.readouterr() == ("", "")


class TestAWorkerThatIsAskedAgainAndAgain:
    def test_keeps_within_its_own_area(self) -> None:
        """Each stack comes to lie behind the one before."""
        size = message_offset(1, 1)
        fd = Descriptor(os.memfd_create("dali_like", os.MFD_CLOEXEC))
        os.ftruncate(fd.fileno(), size)
        space = SharedSpace(SharedFile(fd, size), limit_bytes=size)
        area = message_offset(0, 1)
        end = area + WORD_BYTES
        asked = []

        class AskedCrew:
            pids = (os.getpid(),)

            def signal(self, worker: int, number: int) -> None:
                nonlocal end
                text = f"stack {len(asked)}\n".encode() + b"  File\n" * 10_000
                space.map[end : end + len(text)] = text
                end += len(text)
                asked.append(number)

        Cells(space, 1).clear(0)
        space.map[cell_offset(0) + CELL_PID] = 1  # it has started
        watch = hangs.HangWatch(AskedCrew(), space, 1, 60.0)  # type: ignore[arg-type]

        shown = [watch.stack_of(0).splitlines()[0] for _ in range(20)]

        assert shown[: len(asked)] == [f"stack {i}" for i in range(len(asked))]
        assert set(shown[len(asked) :]) == {"the process has shown its Python stack too often to show it again"}
        assert end <= area + MESSAGE_BYTES


class TestWithoutATimeOut:
    def test_a_stopped_worker_is_left_alone(self, make_pipeline: MakePipeline, undisturbed: list[str]) -> None:
        pipe = make_pipeline(Noise(), "fork", workers=1)
        seen = batches_of(pipe, 1)
        pids = workers_of(pipe)
        os.kill(pids[0], signal.SIGSTOP)
        waker = threading.Timer(0.5, os.kill, (pids[0], signal.SIGCONT))
        waker.start()

        seen += batches_of(pipe, TWO_EPOCHS - 1)

        waker.join()
        assert seen == undisturbed
        assert workers_of(pipe) == pids
        assert pipe.statistics().worker_restarts == 0


class TestTheTimeOut:
    @pytest.mark.parametrize("timeout_s", [0, -1.0, float("nan"), True, "1", [1]])
    def test_is_a_positive_number(self, timeout_s: Any) -> None:
        with pytest.raises(ArgumentError, match="py_timeout_s"):
            Pipeline(1, py_timeout_s=timeout_s)

    @pytest.mark.parametrize("timeout_s", [1e9, float("inf"), 7])
    def test_may_be_of_any_length(self, timeout_s: float, make_pipeline: MakePipeline, undisturbed: list[str]) -> None:
        pipe = make_pipeline(Noise(), "fork", py_timeout_s=timeout_s)

        assert digest(pipe.run()) == undisturbed[0]

    def test_may_be_shorter_than_samples_take(self, make_pipeline: MakePipeline, undisturbed: list[str]) -> None:
        pipe = make_pipeline(Noise(), "fork", py_timeout_s=1e-3, py_worker_restarts=None)

        seen = []
        for _ in range(3):
            try:
                seen.append(digest(pipe.run()))
            except WorkerTimeoutError:
                seen.append("time-out")

        assert all(batch in ("time-out", expected) for batch, expected in zip(seen, undisturbed[:3], strict=True))


# Sources


def hangs_at(indices: set[int], hang: Callable[[], None]) -> Source:
    def hanging_source(info: SampleInfo) -> np.int64:
        if info.idx_in_epoch in indices:
            hang()
        return np.int64(info.idx_in_epoch)

    return hanging_source


class HangsWhenUnpickled:
    """A source that never arrives in a worker."""

    def __getstate__(self) -> dict[str, Any]:
        return {"hangs": True}

    def __setstate__(self, state: dict[str, Any]) -> None:
        sleep_for_ever()

    def __call__(self, info: SampleInfo) -> np.int64:
        return np.int64(info.idx_in_epoch)


def sleeping(source: Source, seconds: float, every: int = 1) -> Source:
    """Takes its time for each sample."""

    def slow_source(info: SampleInfo) -> Any:
        if info.idx_in_epoch % every == 0:
            time.sleep(seconds)
        return source(info)

    return slow_source


def begins_slowly(source: Source, folder: Path) -> Source:
    """Takes its time for sample 6, having left the worker's process id in a folder."""

    def slow_source(info: SampleInfo) -> Any:
        if (info.epoch_idx, info.idx_in_epoch) == (0, 6):
            (folder / str(os.getpid())).touch()
            time.sleep(TIMEOUT_S / 3)
        return source(info)

    return slow_source


def slow_while_the_loop_waits(folder: Path) -> Source:
    """Sample 11 begins while the first batch is waited for, and ends when that has been delivered."""

    def source(info: SampleInfo) -> np.int64:
        if info.idx_in_epoch == 3:
            while not (folder / "begun").exists():
                time.sleep(0.001)
            time.sleep(TIMEOUT_S / 3)
        if info.idx_in_epoch == 11:
            (folder / "begun").touch()
            while not (folder / "delivered").exists():
                time.sleep(0.001)
            (folder / "ended").touch()
        return np.int64(info.idx_in_epoch)

    return source


# Conditions that tests wait for


def run(pipe: Pipeline) -> list[int]:
    """The samples of the next batch."""
    samples: list[int] = pipe.run()[0].as_array().tolist()
    return samples


def after_the_time_out(times: float) -> None:
    """Return when so many times the time-out has passed."""
    end = time.monotonic() + times * TIMEOUT_S
    wait_until(lambda: time.monotonic() > end, "the passing of time")
