"""Workers that die and are replaced: for any cause, at any time, the batches are the same as without a death."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import random
import signal
import sys
import termios
import threading
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from dali_like import Pipeline, get_worker_info
from dali_like.engine.memory.protocol import DONE, TASK
from dali_like.engine.pool import recovery
from dali_like.errors import WorkerDiedError
from dali_like.types import SampleInfo
from tests.conftest import is_running, time_limit, wait_until
from tests.faults.processes import children_of, kill_and_wait, reserve_of, wait_until_idle, workers_of
from tests.faults.streams import (
    CRASHES,
    END,
    Disturbed,
    Noise,
    Source,
    batches_of,
    counted,
    die_of_sigkill,
    digest,
    happens,
    in_first_epochs,
    times_made,
)
from tests.internals import backend_of, dispatcher_of, pool_of, recovery_of

BATCH_SIZE = 4
#: Batches in an epoch of `Noise`, and the number of results of `batches_of` for two epochs.
LENGTH = Noise.length // BATCH_SIZE
TWO_EPOCHS = 2 * (LENGTH + 1)

MakePipeline = Callable[..., Pipeline]


@pytest.fixture
def undisturbed(make_pipeline: MakePipeline) -> Callable[..., list[str]]:
    """The result of `batches_of` without workers, so without deaths."""

    def run(source: Source, count: int = TWO_EPOCHS, **options: Any) -> list[str]:
        return batches_of(make_pipeline(source, "serial", **options), count)

    return run


class TestAWorkerThatDies:
    @pytest.mark.parametrize(("crash", "way"), [*((crash, "fork") for crash in CRASHES), ("SIGSEGV", "spawn")])
    def test_is_replaced_without_a_trace_in_the_batches(
        self, crash: str, way: str, make_pipeline: MakePipeline, undisturbed: Any, tmp_path: Path
    ) -> None:
        source = Disturbed(Noise(), {(0, 0), (0, 21), (1, 47)}, CRASHES[crash], tmp_path)
        pipe = make_pipeline(source, way)

        assert batches_of(pipe, TWO_EPOCHS) == undisturbed(Noise())
        assert pipe.statistics().worker_restarts == 3

    @pytest.mark.parametrize("workers", [1, 2, 5])
    def test_may_have_made_samples_of_any_shape(
        self, workers: int, make_pipeline: MakePipeline, undisturbed: Any, start_method: str, tmp_path: Path
    ) -> None:
        source = Disturbed(Noise(ragged=True), in_first_epochs([0, 5, 21, 22, 47]), die_of_sigkill, tmp_path)
        pipe = make_pipeline(source, start_method, workers=workers, py_worker_restarts=None)

        assert batches_of(pipe, TWO_EPOCHS) == undisturbed(Noise(ragged=True))
        assert pipe.statistics().worker_restarts == 10

    def test_may_be_in_its_thousandth_task(self, make_pipeline: MakePipeline, undisturbed: Any, tmp_path: Path) -> None:
        noise = Noise(length=1024)
        source = Disturbed(noise, {(0, 999), (0, 1000)}, die_of_sigkill, tmp_path)
        pipe = make_pipeline(source, "fork", workers=1)

        assert batches_of(pipe, 257) == undisturbed(noise, 257)
        assert pipe.statistics().worker_restarts == 2

    @pytest.mark.parametrize("ragged", [False, True], ids=["dense", "ragged"])
    def test_may_be_asking_an_object_for_its_array(
        self, ragged: bool, make_pipeline: MakePipeline, undisturbed: Any, tmp_path: Path
    ) -> None:
        class Lazy:
            def __init__(self, info: SampleInfo) -> None:
                self.info = info

            def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
                return Disturbed(Noise(ragged), in_first_epochs([6, 17]), die_of_sigkill, tmp_path)(self.info)

        def source(info: SampleInfo) -> Lazy:
            Noise()(info)  # which ends the epoch
            return Lazy(info)

        pipe = make_pipeline(source, "fork", py_worker_restarts=None)

        assert batches_of(pipe, TWO_EPOCHS) == undisturbed(Noise(ragged))
        assert pipe.statistics().worker_restarts == 4

    @pytest.mark.parametrize("ragged", [False, True], ids=["dense", "ragged"])
    def test_may_be_in_the_middle_of_a_copy(
        self, ragged: bool, make_pipeline: MakePipeline, undisturbed: Any, tmp_path: Path
    ) -> None:
        pipe = make_pipeline(killed_by_alarm_in_its_copy(tmp_path, ragged), "fork")

        assert batches_of(pipe, 4) == undisturbed(large_samples(ragged), 4)
        assert pipe.statistics().worker_restarts == 3

    @pytest.mark.parametrize("which", [1, 6])
    @pytest.mark.parametrize("when", ["before", "after"])
    @pytest.mark.parametrize("call", ["splice", "write"], ids=["taking a task", "reporting a task"])
    def test_may_be_on_either_side_of_a_system_call(
        self,
        call: str,
        when: str,
        which: int,
        make_pipeline: MakePipeline,
        undisturbed: Any,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        deadly = functools.partial(make_deadly, call, when, which, tmp_path / "dead")
        monkeypatch.setattr(os, call, deadly(getattr(os, call)))
        pipe = make_pipeline(Noise(), "fork")
        pipe.start_py_workers()
        monkeypatch.undo()

        assert batches_of(pipe, TWO_EPOCHS) == undisturbed(Noise())
        assert (tmp_path / "dead.0").exists()

    @pytest.mark.parametrize("times", [1, 3])
    def test_may_be_starting(self, times: int, make_pipeline: MakePipeline, undisturbed: Any, tmp_path: Path) -> None:
        marker = tmp_path / "dead"
        source = WithSetup(Noise(), lambda: happens(marker, times) and die_of_sigkill())
        pipe = make_pipeline(source, "spawn", workers=1)  # another one might make everything before the news comes

        assert batches_of(pipe, TWO_EPOCHS) == undisturbed(Noise())
        assert pipe.statistics().worker_restarts == times

    def test_may_have_been_stopped(self, make_pipeline: MakePipeline, undisturbed: Any) -> None:
        pipe = make_pipeline(Noise(), "fork")
        seen = batches_of(pipe, 1)
        for pid in workers_of(pipe):
            os.kill(pid, signal.SIGSTOP)
            os.kill(pid, signal.SIGKILL)

        assert seen + batches_of(pipe, TWO_EPOCHS - 1) == undisturbed(Noise())

    def test_may_be_on_a_batch_that_is_no_longer_wanted(
        self, make_pipeline: MakePipeline, undisturbed: Any, tmp_path: Path
    ) -> None:
        source = Disturbed(Noise(), {(0, 5), (0, 6), (0, 7)}, die_of_sigkill, tmp_path)
        pipe = make_pipeline(source, "fork")
        batches_of(pipe, 1)

        pipe.reset()

        assert batches_of(pipe, LENGTH + 1) == undisturbed(Noise())[LENGTH + 1 :]

    def test_may_be_where_the_epoch_has_already_ended(
        self, make_pipeline: MakePipeline, undisturbed: Any, tmp_path: Path
    ) -> None:
        source = Disturbed(Noise(), in_first_epochs(range(48, 52)), die_of_sigkill, tmp_path)
        pipe = make_pipeline(source, "fork", py_worker_restarts=None)

        assert batches_of(pipe, TWO_EPOCHS) == undisturbed(Noise())

    def test_leaves_exceptions_of_callbacks_as_they_are(self, make_pipeline: MakePipeline, tmp_path: Path) -> None:
        def source(info: SampleInfo) -> np.int64:
            if info.idx_in_epoch == 6:
                raise ValueError("no such sample")
            return np.int64(info.idx_in_epoch)

        disturbed = Disturbed(source, {(0, index) for index in (5, 6, 7)}, die_of_sigkill, tmp_path)
        pipe = make_pipeline(disturbed, "fork", py_worker_restarts=None)

        seen: list[Any] = []
        for _ in range(4):
            try:
                seen.append(pipe.run()[0].as_array().tolist())
            except ValueError as error:
                seen.append(str(error))

        assert seen == [[0, 1, 2, 3], "no such sample", [8, 9, 10, 11], [12, 13, 14, 15]]

    def test_leaves_a_held_batch_unchanged(self, make_pipeline: MakePipeline, undisturbed: Any, tmp_path: Path) -> None:
        pipe = make_pipeline(
            Disturbed(Noise(), in_first_epochs(range(4, 40, 5)), die_of_sigkill, tmp_path),
            "fork",
            py_worker_restarts=None,
        )

        held = [pipe.run() for _ in range(LENGTH)]

        assert [digest(batch) for batch in held] == undisturbed(Noise(), LENGTH)


class TestAnIdleWorkerThatIsKilled:
    @pytest.mark.parametrize("crash", ["SIGKILL", "SIGTERM"])
    def test_is_replaced_in_the_company_of_all_others(
        self, crash: str, make_pipeline: MakePipeline, undisturbed: Any, tmp_path: Path
    ) -> None:
        pipe = make_pipeline(counted(Noise(), tmp_path), "fork")
        seen = batches_of(pipe, 1)
        pids = workers_of(pipe)
        wait_until_idle(pids, tmp_path, 4 * BATCH_SIZE)

        kill_and_wait(pids, signal.Signals[crash])

        assert seen + batches_of(pipe, TWO_EPOCHS - 1) == undisturbed(Noise())
        assert pipe.statistics().worker_restarts == 2

    def test_leaves_its_finished_samples(self, make_pipeline: MakePipeline, tmp_path: Path) -> None:
        pipe = make_pipeline(counted(Noise(), tmp_path), "fork")
        batches_of(pipe, 1)
        pids = workers_of(pipe)
        wait_until_idle(pids, tmp_path, 4 * BATCH_SIZE)

        kill_and_wait(pids)
        batches_of(pipe, 3)

        assert all(times == 1 for times in times_made(tmp_path)[: 4 * BATCH_SIZE])

    def test_may_be_between_two_epochs(self, make_pipeline: MakePipeline, undisturbed: Any, tmp_path: Path) -> None:
        pipe = make_pipeline(Noise(), "fork")
        seen = [digest(batch) for batch in pipe]
        pids = workers_of(pipe)

        kill_and_wait(pids)
        pipe.reset()

        assert [*seen, END, *batches_of(pipe, LENGTH + 1)] == undisturbed(Noise())

    def test_may_be_the_only_one_and_its_end_be_seen_before_it_is_missed(
        self, make_pipeline: MakePipeline, undisturbed: Any
    ) -> None:
        pipe = make_pipeline(Noise(), "fork", workers=1)
        seen = batches_of(pipe, 1)
        (pid,) = workers_of(pipe)
        kill_and_wait([pid])

        assert pipe.py_worker_pids == [pid]  # which reads the news, and that of the end among them

        assert seen + batches_of(pipe, TWO_EPOCHS - 1) == undisturbed(Noise())

    def test_may_be_watched_by_another_thread(self, make_pipeline: MakePipeline, undisturbed: Any, tmp_path: Path) -> None:
        source = Disturbed(Noise(), in_first_epochs(range(0, 48, 4)), die_of_sigkill, tmp_path)
        pipe = make_pipeline(source, "fork", workers=1, py_worker_restarts=None)

        with watched(pipe):
            seen = batches_of(pipe, TWO_EPOCHS)

        assert seen == undisturbed(Noise())

    def test_may_have_died_while_another_raised(self, make_pipeline: MakePipeline, tmp_path: Path) -> None:
        pipe = make_pipeline(one_dies_and_then_the_other_raises(tmp_path), "fork")
        assert pipe.run()[0].as_array().tolist() == [0, 1, 2, 3]
        (tmp_path / "delivered").touch()
        other = wait_until((tmp_path / "other").read_text, "the other one")
        wait_until_idle([int(other)], tmp_path / "made", 4 * BATCH_SIZE - 1)

        with pytest.raises(ValueError, match="the other one has died"):
            pipe.run()

        assert [pipe.run()[0].as_array().tolist() for _ in range(2)] == [[8, 9, 10, 11], [12, 13, 14, 15]]


class TestTheNumberOfRestarts:
    def test_is_three_a_minute_for_each_worker(self, make_pipeline: MakePipeline, tmp_path: Path) -> None:
        at = {(0, index) for index in (5, 10, 15, 20)}
        pipe = make_pipeline(Disturbed(Noise(), at, die_of_sigkill, tmp_path), "fork", workers=1)
        delivered = []

        with pytest.raises(WorkerDiedError, match=r"was killed by SIGKILL .*idx_in_epoch 20\)"):  # noqa: PT012
            while True:
                delivered.append(digest(pipe.run()))

        assert len(delivered) == 20 // BATCH_SIZE
        assert pipe.statistics().worker_restarts == 3

    def test_is_counted_for_each_worker_by_itself(
        self, make_pipeline: MakePipeline, undisturbed: Any, tmp_path: Path
    ) -> None:
        noise = Noise(length=400)
        pipe = make_pipeline(each_worker_dies_three_times(noise, tmp_path), "fork")

        assert batches_of(pipe, 100) == undisturbed(noise, 100)
        assert pipe.statistics().worker_restarts == 6

    def test_begins_anew_after_a_minute(
        self, make_pipeline: MakePipeline, undisturbed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(recovery, "_RESTART_PERIOD_S", 0.0)
        source = Disturbed(Noise(), in_first_epochs(range(0, 48, 6)), die_of_sigkill, tmp_path)
        pipe = make_pipeline(source, "fork", workers=1)

        assert batches_of(pipe, TWO_EPOCHS) == undisturbed(Noise())

    def test_may_be_without_limit(self, make_pipeline: MakePipeline, undisturbed: Any, tmp_path: Path) -> None:
        source = Disturbed(Noise(), in_first_epochs(range(48)), die_of_sigkill, tmp_path)
        pipe = make_pipeline(source, "fork", py_worker_restarts=None)

        assert batches_of(pipe, TWO_EPOCHS) == undisturbed(Noise())
        assert pipe.statistics().worker_restarts == 96

    def test_may_be_none(self, make_pipeline: MakePipeline, undisturbed: Any, tmp_path: Path) -> None:
        source = Disturbed(Noise(), {(0, 9)}, die_of_sigkill, tmp_path)
        pipe = make_pipeline(source, "fork", py_worker_restarts=0)

        assert batches_of(pipe, 2) == undisturbed(Noise(), 2)
        with pytest.raises(WorkerDiedError, match=r"idx_in_epoch 9\)"):
            pipe.run()
        assert pipe.statistics().worker_restarts == 0

    def test_is_zero_without_a_death(self, make_pipeline: MakePipeline, way: str) -> None:
        pipe = make_pipeline(Noise(), way)
        assert pipe.statistics().worker_restarts == 0

        batches_of(pipe, TWO_EPOCHS)

        assert pipe.statistics().worker_restarts == 0

    def test_limits_workers_that_never_start(self, make_pipeline: MakePipeline) -> None:
        pipe = make_pipeline(WithSetup(Noise(), die_of_sigkill), "spawn", workers=1)

        with pytest.raises(WorkerDiedError, match="while it was idle"):
            pipe.run()

        assert pipe.statistics().worker_restarts == 3

    def test_can_be_asked_for_after_the_end(self, make_pipeline: MakePipeline, tmp_path: Path) -> None:
        pipe = make_pipeline(Disturbed(Noise(), {(0, 0)}, die_of_sigkill, tmp_path), "fork")
        batches_of(pipe, 1)

        pipe.close()

        assert pipe.statistics().worker_restarts == 1


class TestASampleThatKillsEveryWorker:
    @pytest.mark.parametrize("index", [0, 6, 19])
    def test_is_given_up_after_three_and_named(
        self, index: int, make_pipeline: MakePipeline, start_method: str, tmp_path: Path
    ) -> None:
        only_now = Disturbed(Noise(), {(0, index)}, die_of_sigkill, tmp_path, times=99)  # the next epoch may have begun
        pipe = make_pipeline(only_now, start_method)

        errors = errors_of(pipe, LENGTH)

        ((number, error),) = errors.items()
        assert number == index // BATCH_SIZE
        assert isinstance(error, WorkerDiedError)
        assert error.exitcode == -signal.SIGKILL
        assert f"sample {index % BATCH_SIZE} of iteration {number} in epoch 0 (idx_in_epoch {index})" in str(error)
        assert pipe.statistics().worker_restarts == 3

    @pytest.mark.parametrize("ragged", [False, True], ids=["dense", "ragged"])
    def test_takes_its_batch_and_no_other(self, ragged: bool, make_pipeline: MakePipeline, undisturbed: Any) -> None:
        noise = Noise(ragged)
        pipe = make_pipeline(always_dies_at({6}, noise), "fork", py_worker_restarts=None)

        expected = undisturbed(noise)
        del expected[LENGTH + 1 + 1], expected[1]
        delivered = []
        while len(delivered) < TWO_EPOCHS - 2:
            with contextlib.suppress(WorkerDiedError):
                delivered += batches_of(pipe, 1)

        assert delivered == expected

    def test_runs_alone_in_a_worker_that_may_still_be_replaced(self, make_pipeline: MakePipeline, tmp_path: Path) -> None:
        """One of two workers has died of it as often as it may."""
        fatal, deaths = tmp_path / "fatal", tmp_path / "deaths"
        deaths.touch()

        def source(info: SampleInfo) -> Any:
            worker = get_worker_info()
            assert worker is not None
            if worker.id == 1:
                wait_until(lambda: deaths.stat().st_size >= 2, "the end of the other worker, twice")
            elif not fatal.exists():
                fatal.write_text(str(info.idx_in_epoch))
            if fatal.read_text() == str(info.idx_in_epoch):
                with deaths.open("a") as file:
                    file.write("+")
                os._exit(3)
            return np.int64(info.idx_in_epoch)

        pipe = make_pipeline(source, "fork", py_worker_restarts=2)

        with pytest.raises(WorkerDiedError) as caught:
            pipe.run()

        assert f"(idx_in_epoch {fatal.read_text()})" in str(caught.value)
        assert pipe.run()[0].as_array().tolist() == [4, 5, 6, 7]

    def test_may_have_others_like_it(self, make_pipeline: MakePipeline) -> None:
        pipe = make_pipeline(always_dies_at({6, 9, 10, 11}, Noise()), "fork", py_worker_restarts=None)

        errors = errors_of(pipe, LENGTH)

        assert list(errors) == [1, 2]
        assert "idx_in_epoch 6)" in str(errors[1])
        assert "idx_in_epoch 9)" in str(errors[2])

    def test_is_not_given_up_after_two(self, make_pipeline: MakePipeline, undisturbed: Any, tmp_path: Path) -> None:
        source = Disturbed(Noise(), in_first_epochs([0, 6, 7, 21, 47]), die_of_sigkill, tmp_path, times=2)
        pipe = make_pipeline(source, "fork", py_worker_restarts=None)

        assert batches_of(pipe, TWO_EPOCHS) == undisturbed(Noise())
        assert pipe.statistics().worker_restarts == 20

    def test_is_dealt_with_also_when_it_comes_to_light_between_two_runs(
        self, make_pipeline: MakePipeline, tmp_path: Path
    ) -> None:
        options = {"worker_setup": functools.partial(happens, tmp_path / "started", times=4)}
        pipe = make_pipeline(dies_twice_behind_a_slow_sample(tmp_path), "fork", source_options=options)
        assert pipe.run()[0].as_array().tolist() == [0, 1, 2, 3]
        wait_until(lambda: len(times_made(tmp_path / "made")) >= 3 * BATCH_SIZE - 1, "all samples but that one")

        assert [pipe.run()[0].as_array().tolist() for _ in range(2)] == [[4, 5, 6, 7], [8, 9, 10, 11]]


@pytest.mark.parametrize("ragged", [False, True], ids=["dense", "ragged"])
class TestAStorm:
    def test_of_20_kills_leaves_no_trace_in_the_batches(
        self, ragged: bool, make_pipeline: MakePipeline, undisturbed: Any, start_method: str
    ) -> None:
        noise, batch_size = Noise(ragged, length=64 * 10), 64
        pipe = make_pipeline(noise, start_method, batch_size=batch_size, py_worker_restarts=None)

        seen = run_through_storm(pipe, [signal.SIGKILL] * 20)

        assert seen == undisturbed(noise, len(seen), batch_size=batch_size)
        assert pipe.statistics().worker_restarts >= 15

    def test_of_kills_and_stops_leaves_no_trace_in_the_batches(
        self, ragged: bool, make_pipeline: MakePipeline, undisturbed: Any
    ) -> None:
        noise, batch_size = Noise(ragged, length=64 * 10), 64
        pipe = make_pipeline(noise, "fork", batch_size=batch_size, py_worker_restarts=None, py_timeout_s=0.6)

        seen = run_through_storm(pipe, [signal.SIGKILL, signal.SIGSTOP, signal.SIGKILL] * 4)

        assert seen == undisturbed(noise, len(seen), batch_size=batch_size)
        assert pipe.statistics().worker_restarts > 0


class TestClose:
    @pytest.mark.parametrize("crash", ["SIGKILL", "SIGTERM", "SIGSTOP"])
    def test_ends_workers_that_are_just_being_killed(self, crash: str, make_pipeline: MakePipeline) -> None:
        pipe = make_pipeline(Noise(), "fork")
        batches_of(pipe, 2)
        pids = workers_of(pipe)
        forkserver = psutil.Process(pids[0]).ppid()
        killer = threading.Thread(target=kill_gently, args=(pids, signal.Signals[crash]))

        killer.start()
        pipe.close()
        killer.join()

        assert not any(map(is_running, [forkserver, *pids]))

    def test_knows_the_exit_codes_of_a_worker_and_of_its_replacement(self, make_pipeline: MakePipeline) -> None:
        pipe = make_pipeline(Noise(), "fork", workers=1)
        batches_of(pipe, 1)
        (pid,) = workers_of(pipe)
        pool = pool_of(pipe)
        assert pool is not None
        kill_and_wait([pid])
        wait_until(lambda: backend_of(pool).read_news() or pool.exitcodes, "the news")
        backend_of(pool).start(0)

        pipe.close()

        assert pool.exitcodes.pop(pid) == -signal.SIGKILL
        assert len(pool.exitcodes) == 1

    def test_ends_workers_that_have_just_been_started_in_the_place_of_others(self, make_pipeline: MakePipeline) -> None:
        pipe = make_pipeline(Noise(), "fork", workers=1)
        batches_of(pipe, 1)
        (pid,) = workers_of(pipe)
        forkserver = psutil.Process(pid).ppid()
        kill_and_wait([pid])
        while not pipe.statistics().worker_restarts:
            batches_of(pipe, 1)

        pipe.close()

        assert not is_running(forkserver)


# Sources. They are made by functions so that they travel to spawned workers by value.


class WithSetup:
    """A source whose worker does something when it is unpickled, before it takes its first task."""

    def __init__(self, source: Source, setup: Callable[[], Any]) -> None:
        self.source = source
        self.setup = setup

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.setup()

    def __call__(self, info: SampleInfo) -> Any:
        return self.source(info)


def always_dies_at(indices: set[int], source: Source) -> Source:
    def deadly_source(info: SampleInfo) -> Any:
        if info.idx_in_epoch in indices:
            os.kill(os.getpid(), signal.SIGKILL)
        return source(info)

    return deadly_source


def each_worker_dies_three_times(source: Source, folder: Path) -> Source:
    """The name of its process identifies a worker, for any pid. A worker that has died three times waits for the other."""

    def deadly_source(info: SampleInfo) -> Any:
        with open("/proc/self/comm", encoding="ascii") as file:
            worker = file.read().strip()
        if info.iteration > 0:  # from here on the other one always finds samples ahead that have killed nobody
            if happens(folder / str(info.idx_in_epoch)) and happens(folder / worker, times=3):
                os.kill(os.getpid(), signal.SIGKILL)
            while (folder / f"{worker}.2").exists() and len(list(folder.glob("dali_like:?.2"))) < 2:
                time.sleep(0.001)
        return source(info)

    return deadly_source


def one_dies_and_then_the_other_raises(folder: Path) -> Source:
    """One worker dies of sample 9 between two runs; the other one then raises at sample 4.

    Nothing is left to be done but sample 9.
    """
    (folder / "made").mkdir()
    (folder / "one").touch()
    (folder / "other").touch()

    def source(info: SampleInfo) -> np.int64:
        index = info.idx_in_epoch
        if index == 9 and happens(folder / "dead"):
            while not (folder / "delivered").exists():
                time.sleep(0.001)
            (folder / "one").write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)
        if index == 4:
            (folder / "other").write_text(str(os.getpid()))
            while not (one := (folder / "one").read_text()) or os.path.exists(f"/proc/{one}"):
                time.sleep(0.001)
        happens(folder / "made" / str(index))
        if index == 4:
            raise ValueError("the other one has died")
        return np.int64(index)

    return source


def dies_twice_behind_a_slow_sample(folder: Path) -> Source:
    """Sample 3 is not made before sample 9 has killed two workers, and two others have started."""
    (folder / "made").mkdir()

    def source(info: SampleInfo) -> np.int64:
        index = info.idx_in_epoch
        if index == 9 and happens(folder / "dead", times=2):
            os.kill(os.getpid(), signal.SIGKILL)
        if index == 3:
            while not (folder / "started.3").exists():  # the main process has replaced both
                time.sleep(0.001)
        happens(folder / "made" / str(index))
        return np.int64(index)

    return source


def large_samples(ragged: bool) -> Source:
    """Samples whose copies take many milliseconds."""

    def source(info: SampleInfo) -> Any:
        return np.full((16 + ragged * info.idx_in_epoch, 1 << 20), info.idx_in_epoch, np.uint8)

    return source


def killed_by_alarm_in_its_copy(folder: Path, ragged: bool) -> Source:
    samples = large_samples(ragged)

    def source(info: SampleInfo) -> Any:
        sample = samples(info)
        if info.idx_in_epoch in (0, 6, 11) and happens(folder / str(info.idx_in_epoch)):
            signal.setitimer(signal.ITIMER_REAL, 0.001)
        return sample

    return source


# System calls of a worker, in which it dies


def make_deadly(call: str, when: str, which: int, marker: Path, original: Callable[..., Any]) -> Callable[..., Any]:
    """A system call that kills the worker before or after its nth use, the first worker that comes to it."""
    main_pid = os.getpid()
    forkserver_pid = os.getppid()  # under spawn, where this function runs in the worker
    record = {"splice": TASK.size, "write": DONE.size}[call]
    uses = 0

    def deadly(*args: Any, **kwargs: Any) -> Any:
        nonlocal uses
        is_record = args[2] == record if call == "splice" else len(args[1]) == record
        is_worker = (os.getpid() != main_pid and os.getppid() != main_pid) or os.getppid() == forkserver_pid
        uses += is_record and is_worker
        dies = is_record and is_worker and uses == which and happens(marker)
        if dies and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*args, **kwargs)
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    return deadly


# Simultaneous events


@contextlib.contextmanager
def watched(pipe: Pipeline) -> Iterator[None]:
    """Another thread asks for the workers again and again."""
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            assert len(pipe.py_worker_pids) <= pipe.py_num_workers

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def kill_gently(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def run_through_storm(pipe: Pipeline, signals: Sequence[signal.Signals]) -> list[str]:
    """Send signals to random workers at random moments, running a few batches after each; all batches seen."""
    seen = batches_of(pipe, 1)
    forkserver = psutil.Process(workers_of(pipe)[0]).ppid()
    rng = random.Random(4711)
    for number in signals:
        seen += batches_of(pipe, rng.randrange(1, 5))
        moment = time.perf_counter() + rng.uniform(0, 0.003)
        while time.perf_counter() < moment:
            pass
        while not (workers := list(filter(is_running, set(children_of(forkserver)) - {reserve_of(pipe)}))):
            seen += batches_of(pipe, 1)
        victim = rng.choice(workers)
        kill_gently([victim], number)
        if number == signal.SIGKILL:
            wait_until(lambda pid=victim: not is_running(pid), "its death")
    return seen + batches_of(pipe, 10)


def errors_of(pipe: Pipeline, count: int) -> dict[int, Exception]:
    """The errors among so many batches, by the number of the batch."""
    errors = {}
    for number in range(count):
        try:
            pipe.run()
        except WorkerDiedError as error:
            errors[number] = error
    return errors


def test_two_samples_of_one_task_may_kill(make_pipeline: MakePipeline, tmp_path: Path) -> None:
    """The first is cleared of suspicion when it runs alone; the second then comes under it in the same task."""

    def source(info: SampleInfo) -> np.int64:
        if info.idx_in_epoch == 0 and len(os.listdir(tmp_path)) < 2:
            (tmp_path / str(os.getpid())).touch()
            os._exit(3)
        if info.idx_in_epoch == 1:
            os._exit(4)
        return np.int64(info.idx_in_epoch)

    pipe = make_pipeline(source, "fork", batch_size=8, py_worker_restarts=None)

    with pytest.raises(WorkerDiedError, match=r"exit code 4 .*\(idx_in_epoch 1\)"):
        pipe.run()

    assert pipe.run()[0].as_array().tolist() == list(range(8, 16))


def test_tasks_with_unread_reports_are_not_lost(make_pipeline: MakePipeline) -> None:
    """However long the main process has not come to read them."""
    pipe = make_pipeline(Noise(), "fork", prefetch_queue_depth=4)
    seen = batches_of(pipe, 1)
    pool = pool_of(pipe)
    assert pool is not None
    work = dispatcher_of(pool)
    reports = work.pipes.done
    wait_until(lambda: not work.has_waiting_tasks() and _unread(reports) == work.num_open_tasks * DONE.size, "all reports")

    recovery_of(pool).check_for_lost_tasks()

    assert len(seen + batches_of(pipe, 5)) == 6


def _unread(pipe: Any) -> int:
    waiting = array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, waiting)
    return waiting[0]


class TestStartsThatFail:
    """Without a limit of restarts, they would go on for ever."""

    def test_of_one_worker_end_with_an_error(self, make_pipeline: MakePipeline, start_method: str) -> None:
        pipe = make_pipeline(
            Noise(), start_method, workers=1, py_worker_restarts=None, source_options={"worker_setup": die_of_sigkill}
        )

        with time_limit(), pytest.raises(WorkerDiedError) as caught:
            pipe.run()

        assert "10 starts in a row have failed before the first task" in caught.value.__notes__[0]

    def test_of_the_forkserver_end_with_an_error(self, make_pipeline: MakePipeline, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "executable", "/bin/true")
        pipe = make_pipeline(Noise(), "spawn", workers=1, py_worker_restarts=None)

        with time_limit(), pytest.raises(WorkerDiedError, match="the process that starts the workers") as caught:
            pipe.run()

        assert "10 starts in a row have failed before the first task" in caught.value.__notes__[0]

    def test_do_not_add_up_over_workers_that_start(
        self, make_pipeline: MakePipeline, undisturbed: Any, tmp_path: Path
    ) -> None:
        source = Disturbed(Noise(), in_first_epochs(range(24)), die_of_sigkill, tmp_path)
        pipe = make_pipeline(source, "fork", workers=1, py_worker_restarts=None)

        assert batches_of(pipe, TWO_EPOCHS) == undisturbed(Noise())
        assert pipe.statistics().worker_restarts > 10
