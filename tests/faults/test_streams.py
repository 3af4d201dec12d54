"""Workers that come to an end, or hang, while they walk through an iterable: nothing of it is skipped, or comes twice."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from numpy.typing import NDArray

from dali_like import Pipeline, get_worker_info
from dali_like.engine.pool.hangs import HangWatch
from dali_like.errors import OutOfMemoryError, WorkerDiedError, WorkerTimeoutError
from dali_like.types import BatchInfo, SampleInfo
from tests.batches import BATCH_SIZE, END, LENGTH, Batches, batch_of, batches_in, epoch_of, outcome, outcomes, pipeline_of
from tests.conftest import is_running, wait_until
from tests.faults.processes import kill_and_wait, wait_until_all, workers_of
from tests.faults.streams import CRASHES, HANGS, die_of_sigkill, happens, sleep_for_ever, stop_oneself
from tests.faults.test_interrupts import interrupt_at
from tests.faults.test_restarts import make_deadly

MIB = 1 << 20
#: The timeout of these tests; long enough for a batch on a busy machine.
TIMEOUT_S = 1.0

Make = Callable[[int], Any]


def disturbed(folder: Path, at: Collection[int], event: Callable[[], Any], times: int = 1, make: Make = batch_of) -> Make:
    """Makes batches, and lets something happen before some of them, so many times for each."""

    def make_after_event(number: int) -> Any:
        if number in at and happens(folder / str(number), times):
            event()
        return make(number)

    return make_after_event


class WithEnd:
    """An iterable whose end is disturbed, too: it is asked for a batch that it does not have."""

    def __init__(self, make: Make, length: int = LENGTH) -> None:
        self.make = make
        self.length = length

    def __iter__(self) -> Iterator[Any]:
        number = 0
        while True:
            batch = self.make(number)
            if number == self.length:
                return
            yield batch
            number += 1


#: Iterables, which begin anew in each epoch, and iterators, which cannot.
KINDS: dict[str, Callable[[Make], Any]] = {
    "iterable": lambda make: Batches(make=make),
    "iterable, disturbed at its end": WithEnd,
    "iterator": lambda make: map(make, range(LENGTH)),
    "generator": lambda make: iter(WithEnd(make)),
}


def epochs_of(kind: str) -> list[Any]:
    """The batches of the first two epochs."""
    return 2 * epoch_of() if kind.startswith("iterable") else [*epoch_of(), *[END] * (LENGTH + 1)]


class TestAWorkerThatDies:
    @pytest.mark.parametrize("crash", ["SIGSEGV", "os._exit(0)", "sys.exit()"])
    def test_of_any_kind_leaves_no_trace(self, crash: str, start_method: str, tmp_path: Path) -> None:
        source = Batches(make=disturbed(tmp_path, {0, 3}, CRASHES[crash]))

        with pipeline_of((source, {}), way=start_method) as pipe:
            assert outcomes(pipe, 2 * LENGTH + 2) == 2 * epoch_of()
            assert pipe.statistics().worker_restarts == 2

    @pytest.mark.parametrize("at", [{0}, {3}, {LENGTH - 1}, {LENGTH}, {1, 2, 3}, set(range(LENGTH + 1))], ids=str)
    @pytest.mark.parametrize("kind", KINDS)
    def test_in_the_middle_of_any_iterable_leaves_no_trace(self, kind: str, at: set[int], tmp_path: Path) -> None:
        source = KINDS[kind](disturbed(tmp_path, at, die_of_sigkill))

        with pipeline_of((source, {}), py_worker_restarts=None) as pipe:
            assert outcomes(pipe, 2 * LENGTH + 2) == epochs_of(kind)

    def test_in_the_middle_of_an_iterator_that_was_pickled_leaves_no_trace(self, tmp_path: Path) -> None:
        source = map(disturbed(tmp_path, {0, 3, 5}, die_of_sigkill), range(LENGTH))

        with pipeline_of((source, {}), way="spawn") as pipe:
            assert outcomes(pipe, LENGTH + 2) == [*epoch_of(), END]

    @pytest.mark.parametrize("depth", [1, 6])
    @pytest.mark.parametrize("kind", KINDS)
    def test_may_have_any_number_of_batches_before_it(self, kind: str, depth: int, tmp_path: Path) -> None:
        source = KINDS[kind](disturbed(tmp_path, {2, 4}, die_of_sigkill))

        with pipeline_of((source, {}), prefetch_queue_depth=depth) as pipe:
            assert outcomes(pipe, 2 * LENGTH + 2) == epochs_of(kind)

    @pytest.mark.parametrize("taken", [1, 4, LENGTH, LENGTH + 1])
    @pytest.mark.parametrize("kind", KINDS)
    def test_may_be_idle(self, kind: str, taken: int, tmp_path: Path) -> None:
        def noted(number: int) -> NDArray[Any]:
            happens(tmp_path / str(number), times=100)
            return batch_of(number)

        with pipeline_of((KINDS[kind](noted), {})) as pipe:
            seen = outcomes(pipe, taken)
            wait_until((tmp_path / f"{min(taken + 2, LENGTH - 1)}.0").exists, "the batches ahead")
            pids = workers_of(pipe)
            wait_until_all(pids, psutil.STATUS_SLEEPING)

            kill_and_wait(pids)

            assert seen + outcomes(pipe, 2 * LENGTH + 2 - taken) == epochs_of(kind)

    @pytest.mark.parametrize("which", [1, 2, 5])
    @pytest.mark.parametrize("when", ["before", "after"])
    @pytest.mark.parametrize("call", ["splice", "write"], ids=["taking a task", "reporting a task"])
    @pytest.mark.parametrize("kind", ["iterable", "iterator"])
    def test_may_be_on_either_side_of_a_system_call(
        self, kind: str, call: str, when: str, which: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with pipeline_of((KINDS[kind](batch_of), {}), workers=1) as pipe:
            monkeypatch.setattr(os, call, make_deadly(call, when, which, tmp_path / "dead", getattr(os, call)))
            pipe.start_py_workers()
            monkeypatch.undo()

            assert outcomes(pipe, 2 * LENGTH + 2) == epochs_of(kind)
        assert (tmp_path / "dead.0").exists()

    @pytest.mark.parametrize("kind", ["iterable", "iterator"])
    def test_may_be_in_the_middle_of_a_copy(self, kind: str, tmp_path: Path) -> None:
        def large(number: int) -> NDArray[Any]:
            return batch_of(number, width=8 * MIB // 8)

        alarm = functools.partial(signal.setitimer, signal.ITIMER_REAL, 0.001)
        source = KINDS[kind](disturbed(tmp_path, {0, 3}, alarm, make=large))

        with pipeline_of((source, {})) as pipe:
            assert outcomes(pipe, LENGTH + 1) == epoch_of()

    @pytest.mark.parametrize("at", [{3}, {4}, {3, 4, 5}], ids=str)
    @pytest.mark.parametrize("kind", ["iterable", "iterator"])
    def test_may_leave_a_batch_that_has_found_no_room(self, kind: str, at: set[int], tmp_path: Path) -> None:
        """Batch 3 is to be made again, while those behind it are made."""

        def growing(number: int) -> list[NDArray[Any]]:
            length = MIB // 2 if number in (3, 4) else 10
            return [np.full(length + i, 100 * number + i) for i in range(BATCH_SIZE)]

        source = KINDS[kind](disturbed(tmp_path, at, die_of_sigkill, make=growing))

        with pipeline_of((source, {}), prefetch_queue_depth=3) as pipe:
            assert outcomes(pipe, LENGTH + 1) == epoch_of()

    @pytest.mark.parametrize("kind", KINDS)
    def test_may_leave_a_batch_that_has_found_no_memory(self, kind: str, tmp_path: Path) -> None:
        def growing(number: int) -> list[NDArray[Any]]:
            length = MIB // 2 if number >= 2 else 10
            return [np.full(length + i, 100 * number + i) for i in range(BATCH_SIZE)]

        source = KINDS[kind](disturbed(tmp_path, {2, 3, 5}, die_of_sigkill, make=growing))

        with pipeline_of((source, {}), max_held_bytes=40 * MIB, py_worker_restarts=None) as pipe:
            held, seen = [], []
            while len(seen) < LENGTH:
                try:
                    held.append(pipe.run())
                    seen.append(batches_in(held[-1]))
                except OutOfMemoryError:
                    held.clear()

        assert seen == list(range(LENGTH))

    def test_may_leave_a_batch_that_had_found_no_memory_and_was_given_some(self, tmp_path: Path) -> None:
        """It dies when it copies a batch for the second time."""

        class Deadly:
            def __init__(self, number: int, i: int) -> None:
                self.number, self.i = number, i

            def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
                if self.i == 0 and not happens(tmp_path / str(self.number)) and happens(tmp_path / "dead"):
                    die_of_sigkill()
                return np.full(MIB // 4 + self.i, 100 * self.number + self.i)

        def make(number: int) -> Any:
            return [Deadly(number, i) for i in range(BATCH_SIZE)]

        options = {"dtype": np.int64, "ndim": 1}
        with pipeline_of((Batches(make=make), options), max_held_bytes=36 * MIB, prefetch_queue_depth=1) as pipe:
            held, seen, shortages = [], [], 0
            while len(seen) < LENGTH:
                try:
                    held.append(pipe.run())
                    seen.append(batches_in(held[-1]))
                except OutOfMemoryError:
                    shortages += 1
                    held.clear()
            assert pipe.statistics().worker_restarts == 1

        assert seen == list(range(LENGTH))
        assert shortages

    def test_leaves_errors_as_they_are(self, tmp_path: Path) -> None:
        def failing(number: int) -> Any:
            if number in (1, 4):
                raise LookupError
            return batch_of(number)

        source = Batches(make=disturbed(tmp_path, {1, 2, 5}, die_of_sigkill, make=failing))

        with pipeline_of((source, {}), way="fork") as pipe:
            assert outcomes(pipe, LENGTH + 1) == [0, "LookupError", 2, 3, "LookupError", 5, END]

    def test_leaves_held_batches_unchanged(self, tmp_path: Path) -> None:
        source = Batches(20, disturbed(tmp_path, {3, 9, 15}, die_of_sigkill))

        with pipeline_of((source, {})) as pipe:
            held = list(pipe)

        assert [batches_in(outputs) for outputs in held] == list(range(20))

    @pytest.mark.parametrize("kind", KINDS)
    def test_may_be_on_a_batch_of_an_epoch_that_was_left(self, kind: str, tmp_path: Path) -> None:
        source = KINDS[kind](disturbed(tmp_path, {2, 3}, die_of_sigkill))

        with pipeline_of((source, {})) as pipe:
            seen = outcomes(pipe, 1)
            pipe.reset()
            seen += outcomes(pipe, 2)
            pipe.reset()
            seen += outcomes(pipe, LENGTH + 1)

        anew = [0, 0, 1, *epoch_of()]
        assert seen == (anew if kind.startswith("iterable") else [0, 1, 2, 3, 4, 5, *[END] * 4])

    def test_may_walk_through_several_iterables(self, tmp_path: Path) -> None:
        folders = [tmp_path / str(i) for i in range(3)]
        for folder in folders:
            folder.mkdir()
        sources = [(KINDS[kind](disturbed(folder, {1, 4}, die_of_sigkill)), {}) for kind, folder in zip(KINDS, folders)]  # noqa: B905

        for workers in (1, 2):
            with pipeline_of(*sources[: 3 if workers == 1 else 2], workers=workers, py_worker_restarts=None) as pipe:
                assert outcomes(pipe, LENGTH + 1) == epoch_of()

    @pytest.mark.parametrize("kind", KINDS)
    def test_may_go_on_from_a_checkpoint(self, kind: str, tmp_path: Path) -> None:
        with pipeline_of((KINDS[kind](batch_of), {}), enable_checkpointing=True) as pipe:
            outcomes(pipe, 2)
            checkpoint = pipe.checkpoint()
        source = KINDS[kind](disturbed(tmp_path, {1, 2, 4}, die_of_sigkill))

        with pipeline_of((source, {}), checkpoint=checkpoint) as pipe:
            assert outcomes(pipe, LENGTH - 1) == epoch_of()[2:]


class TestOneOfTheOtherWorkers:
    @pytest.mark.parametrize("kind", KINDS)
    def test_may_die(self, kind: str, tmp_path: Path) -> None:
        """Its samples may be made by the one that walks through the iterable."""

        def sample(info: SampleInfo) -> NDArray[Any]:
            if info.idx_in_epoch in (5, 9, 14) and happens(tmp_path / str(info.idx_in_epoch)):
                die_of_sigkill()
            return np.array([100 * info.iteration + info.idx_in_batch])

        sources = [(KINDS[kind](batch_of), {}), (sample, {"batch": False})]
        with pipeline_of(*sources) as pipe:
            assert outcomes(pipe, LENGTH + 1) == epoch_of()

    @pytest.mark.parametrize("workers", [1, 3])
    @pytest.mark.parametrize("kind", KINDS)
    def test_may_be_killed_by_a_sample_again_and_again(self, kind: str, workers: int) -> None:
        """Then all workers retire, and the sample is tried alone."""

        def sample(info: SampleInfo) -> NDArray[Any]:
            if info.idx_in_epoch == 9:
                die_of_sigkill()
            return np.array([100 * info.iteration + info.idx_in_batch])

        sources = [(KINDS[kind](batch_of), {}), (sample, {"batch": False})]
        with pipeline_of(*sources, workers=workers, py_worker_restarts=None) as pipe:
            assert outcomes(pipe, LENGTH + 1) == [0, 1, "WorkerDiedError", 3, 4, 5, END]


class TestABatchThatKillsItsWorkers:
    @pytest.mark.parametrize("kind", KINDS)
    def test_is_made_after_two(self, kind: str, tmp_path: Path) -> None:
        source = KINDS[kind](disturbed(tmp_path, {0, 3}, die_of_sigkill, times=2))

        with pipeline_of((source, {}), py_worker_restarts=None) as pipe:
            assert outcomes(pipe, 2 * LENGTH + 2) == epochs_of(kind)

    @pytest.mark.parametrize("kind", KINDS)
    def test_is_given_up_after_three_and_those_behind_it_are_made(self, kind: str, tmp_path: Path) -> None:
        source = KINDS[kind](disturbed(tmp_path, {3}, die_of_sigkill, times=3))

        with pipeline_of((source, {}), py_worker_restarts=None) as pipe:
            assert outcomes(pipe, LENGTH + 1) == [0, 1, 2, "WorkerDiedError", 4, 5, END]

    @pytest.mark.parametrize("restarts", [0, 1, 3])
    @pytest.mark.parametrize("kind", ["iterable", "generator"])
    def test_always_is_an_error_and_so_is_all_that_comes_behind_it(self, kind: str, restarts: int, tmp_path: Path) -> None:
        source = KINDS[kind](disturbed(tmp_path, {3}, die_of_sigkill, times=1000))

        with pipeline_of((source, {"name": "batches"}), py_worker_restarts=restarts) as pipe:
            assert outcomes(pipe, 3) == [0, 1, 2]
            for _ in range(4):
                with pytest.raises(WorkerDiedError, match=r"SIGKILL while .*'batches' was computing"):
                    pipe.run()
            assert pipe.statistics().worker_restarts == restarts

    def test_always_is_an_error_each_time_where_workers_are_always_replaced(self, tmp_path: Path) -> None:
        source = Batches(make=disturbed(tmp_path, {3}, die_of_sigkill, times=1000))

        with pipeline_of((source, {}), py_worker_restarts=None) as pipe:
            assert outcomes(pipe, 6) == [0, 1, 2, *["WorkerDiedError"] * 3]


class TestAHang:
    @pytest.mark.parametrize("hang", [*HANGS, "stopped"])
    def test_that_comes_once_leaves_no_trace(self, hang: str, tmp_path: Path) -> None:
        event = HANGS.get(hang, stop_oneself)
        source = Batches(make=disturbed(tmp_path, {0, 3}, event))

        with pipeline_of((source, {}), way="fork", py_timeout_s=TIMEOUT_S) as pipe:
            assert outcomes(pipe, LENGTH + 1) == epoch_of()
            assert pipe.statistics().worker_restarts == 2

    @pytest.mark.parametrize("kind", ["iterator", "generator"])
    def test_of_an_iterator_that_comes_once_leaves_no_trace(self, kind: str, tmp_path: Path) -> None:
        source = KINDS[kind](disturbed(tmp_path, {2}, sleep_for_ever))

        with pipeline_of((source, {}), py_timeout_s=TIMEOUT_S) as pipe:
            assert outcomes(pipe, LENGTH + 1) == epoch_of()

    def test_that_comes_again_is_an_error_that_shows_where(self, tmp_path: Path) -> None:
        source = Batches(make=disturbed(tmp_path, {3}, sleep_for_ever, times=2))

        with pipeline_of((source, {"name": "batches"}), py_timeout_s=TIMEOUT_S) as pipe:
            assert outcomes(pipe, 3) == [0, 1, 2]
            with pytest.raises(WorkerTimeoutError, match=r"(?s)'batches'.* iteration 3 in epoch 0.*in sleep_for_ever"):
                pipe.run()
            assert outcomes(pipe, 3) == [4, 5, END]

    def test_of_an_idle_worker_leaves_no_trace(self) -> None:
        with pipeline_of((Batches(), {}), py_timeout_s=TIMEOUT_S) as pipe:
            seen = outcomes(pipe, 1)
            for pid in workers_of(pipe):
                os.kill(pid, signal.SIGSTOP)

            assert seen + outcomes(pipe, LENGTH) == epoch_of()

    def test_is_not_reported_for_a_replacement_that_skips_many_items(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The replacement of a worker iterates through all earlier items, for longer than the timeout."""
        count, looks, done = 12, tmp_path / "looks", tmp_path / "done"
        looks.touch()
        due = HangWatch.due

        def counted(watch: HangWatch) -> bool:
            if is_due := due(watch):
                with looks.open("a") as file:
                    file.write(".")
            return is_due

        def slow(number: int) -> NDArray[Any]:
            """Return when the main process has looked at the workers: eight times within the timeout."""
            before = looks.stat().st_size
            while looks.stat().st_size == before and not done.exists():
                time.sleep(0.001)
            return batch_of(number)

        monkeypatch.setattr(HangWatch, "due", counted)
        source = Batches(count, disturbed(tmp_path, {count - 2}, die_of_sigkill, make=slow))

        with pipeline_of((source, {}), py_timeout_s=TIMEOUT_S) as pipe:
            assert outcomes(pipe, count + 1) == epoch_of(count)
            done.touch()
            assert pipe.statistics().worker_restarts == 1


class Gate:
    """Makes batches; those from some number on only when the gate has been opened."""

    def __init__(self, folder: Path, number: int) -> None:
        self.reached = folder / "reached"
        self.opened = folder / "opened"
        self.number = number

    def __call__(self, number: int) -> NDArray[Any]:
        if number >= self.number:
            self.reached.touch()
            while not self.opened.exists():
                time.sleep(0.001)
        return batch_of(number)


def runs_a_pipeline() -> bool:
    """Whether the main thread is in `run`."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None and frame.f_code is not Pipeline.run.__code__:
        frame = frame.f_back
    return frame is not None


class TestWhileAnIterableBlocks:
    def test_close_ends_its_worker(self, tmp_path: Path) -> None:
        gate = Gate(tmp_path, 2)
        with pipeline_of((Batches(make=gate), {}), way="fork") as pipe:
            outcomes(pipe, 2)
            wait_until(gate.reached.exists, "the gate")
            pids = workers_of(pipe)

            pipe.close()

            assert not any(map(is_running, pids))

    def test_close_ends_a_run_in_another_thread(self, tmp_path: Path) -> None:
        gate = Gate(tmp_path, 2)
        with pipeline_of((Batches(make=gate), {})) as pipe:
            outcomes(pipe, 2)
            seen: list[Any] = []
            thread = threading.Thread(target=lambda: seen.append(outcome(pipe)))
            thread.start()
            wait_until(gate.reached.exists, "the gate")

            pipe.close()
            thread.join()

        assert seen == ["ClosedError"]

    @pytest.mark.parametrize("kind", KINDS)
    def test_interrupts_cost_nothing(self, kind: str, tmp_path: Path) -> None:
        gate = Gate(tmp_path, 2)

        def press_ctrl_c() -> None:
            wait_until(runs_a_pipeline, "the call of run()")
            os.kill(os.getpid(), signal.SIGINT)

        with pipeline_of((KINDS[kind](gate), {})) as pipe:
            seen = outcomes(pipe, 2)
            for _ in range(3):
                thread = threading.Thread(target=press_ctrl_c)
                thread.start()
                with pytest.raises(KeyboardInterrupt):
                    pipe.run()
                thread.join()
            gate.opened.touch()

            assert seen + outcomes(pipe, LENGTH - 1) == epoch_of()

    def test_its_worker_may_be_killed(self, tmp_path: Path) -> None:
        gate = Gate(tmp_path, 2)
        with pipeline_of((Batches(make=gate), {})) as pipe:
            seen = outcomes(pipe, 2)
            wait_until(gate.reached.exists, "the gate")
            kill_and_wait(workers_of(pipe))
            gate.opened.touch()

            assert seen + outcomes(pipe, LENGTH - 1) == epoch_of()


# Shards


class DisturbedShards:
    """Worker `i` makes the batches from number 10 i on."""

    def __init__(self, lengths: tuple[int, ...], make: Make) -> None:
        self.lengths = lengths
        self.make = make

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        assert info is not None
        return map(self.make, range(10 * info.id, 10 * info.id + self.lengths[info.id]))


SHARDED = {"sharded": True}
#: The batches of `DisturbedShards` with two shards of 3 and 5 batches.
EPOCH_OF_SHARDS = [0, 10, 1, 11, 2, 12, 13, 14, END]


class TestAShardWithADeadWorker:
    @pytest.mark.parametrize("at", [{0}, {10, 12, 14}, {2}, {0, 1, 2, 10, 11, 12, 13, 14}], ids=str)
    @pytest.mark.parametrize("cycle", [None, "no"])
    def test_leaves_no_trace(self, cycle: str | None, at: set[int], tmp_path: Path) -> None:
        source = DisturbedShards((3, 5), disturbed(tmp_path, at, die_of_sigkill))

        with pipeline_of((source, SHARDED | {"cycle": cycle}), way="fork", py_worker_restarts=None) as pipe:
            assert outcomes(pipe, 9) == EPOCH_OF_SHARDS
            assert outcomes(pipe, 1) == ([0] if cycle is None else [END])

    def test_after_another_has_ended_late_leaves_no_trace(self, tmp_path: Path) -> None:
        """Its next batches then answer calls before the ones that had been begun."""
        end, death = tmp_path / "end", tmp_path / "death"

        def shard() -> Iterator[Any]:
            is_first = get_worker_info().id == 0  # type: ignore[union-attr]
            yield from map(batch_of, range(3) if is_first else range(10, 14))
            while not (end if is_first else death).exists():
                time.sleep(0.001)
            if not is_first:
                if happens(tmp_path / "14"):
                    die_of_sigkill()
                yield batch_of(14)

        with pipeline_of((shard, SHARDED | {"cycle": "no"})) as pipe:
            seen = outcomes(pipe, 6)
            end.touch()
            seen += outcomes(pipe, 1)
            death.touch()
            seen += outcomes(pipe, 2)

        assert seen == EPOCH_OF_SHARDS

    def test_is_given_up_after_three_batch_by_batch(self, tmp_path: Path) -> None:
        source = DisturbedShards((3, 5), disturbed(tmp_path, {12}, die_of_sigkill, times=3))
        expected = [number if number != 12 else "WorkerDiedError" for number in EPOCH_OF_SHARDS]

        with pipeline_of((source, SHARDED), py_worker_restarts=None) as pipe:
            assert outcomes(pipe, 9) == expected

    def test_without_replacement_is_an_error(self, tmp_path: Path) -> None:
        source = DisturbedShards((9, 9), disturbed(tmp_path, {12}, die_of_sigkill))

        with pipeline_of((source, SHARDED), py_worker_restarts=0) as pipe:
            seen = outcomes(pipe, 8)

        first = seen.index("WorkerDiedError")
        assert seen[:first] == [0, 10, 1, 11, 2][:first]
        assert set(seen[first:]) == {"WorkerDiedError"}

    def test_may_be_idle(self) -> None:
        with pipeline_of((DisturbedShards((3, 5), batch_of), SHARDED), py_worker_restarts=None) as pipe:
            seen = []
            for taken in (1, 4, 4):
                seen += outcomes(pipe, taken)
                kill_and_wait([pid for pid in workers_of(pipe) if psutil.pid_exists(pid)])
            assert seen + outcomes(pipe, 9) == 2 * EPOCH_OF_SHARDS

    def test_hangs_once_and_leaves_no_trace(self, tmp_path: Path) -> None:
        source = DisturbedShards((3, 5), disturbed(tmp_path, {1, 12}, sleep_for_ever))

        with pipeline_of((source, SHARDED), py_timeout_s=TIMEOUT_S) as pipe:
            assert outcomes(pipe, 9) == EPOCH_OF_SHARDS

    @pytest.mark.parametrize("depth", [1, 4])
    @pytest.mark.parametrize("cycle", [None, "no"])
    def test_may_go_on_from_a_checkpoint(self, cycle: str | None, depth: int, tmp_path: Path) -> None:
        options = SHARDED | {"cycle": cycle, "prefetch_queue_depth": depth}
        with pipeline_of((DisturbedShards((3, 5), batch_of), options), enable_checkpointing=True) as pipe:
            outcomes(pipe, 5)
            checkpoint = pipe.checkpoint()
        source = DisturbedShards((3, 5), disturbed(tmp_path, {0, 2, 11, 13}, die_of_sigkill))

        with pipeline_of((source, options), checkpoint=checkpoint) as pipe:
            assert outcomes(pipe, 4) == EPOCH_OF_SHARDS[5:]


# A storm


@pytest.mark.parametrize("stops", [False, True], ids=["kills", "kills and stops"])
def test_a_storm_leaves_no_trace(stops: bool) -> None:
    """An iterable, an iterator, samples, batches and shards at once; large batches now and then."""
    length = 60

    def make(number: int) -> Any:
        if number % 17 == 16:
            return [np.full(20_000 * (number // 17 + 1) + i, 100 * number + i) for i in range(BATCH_SIZE)]
        return [np.full(10 + i, 100 * number + i) for i in range(BATCH_SIZE)]

    def sample(info: SampleInfo) -> NDArray[Any]:
        return np.array([100 * info.iteration + info.idx_in_batch])

    def of_batch(info: BatchInfo) -> Any:
        return make(info.iteration)

    def shard() -> Iterator[Any]:
        worker = get_worker_info()
        assert worker is not None
        yield from map(make, range(worker.id, length, worker.num_workers))

    sources: list[tuple[Any, dict[str, Any]]] = [
        (Batches(length, make), {}),
        (map(make, range(10 * length)), {}),
        (sample, {"batch": False}),
        (of_batch, {"batch_info": True}),
        (shard, {"sharded": True}),
    ]

    def read(outputs: Any) -> tuple[Any, Any]:
        return batches_in([outputs[0], *outputs[2:]]), batches_in(outputs[1:2])

    options = {"py_timeout_s": TIMEOUT_S} if stops else {}
    with pipeline_of(*sources, py_worker_restarts=None, **options) as pipe:
        seen = outcomes(pipe, 1, read)
        rng = random.Random(815)
        for number in range(16):
            seen += outcomes(pipe, rng.randrange(1, 5), read)
            disturb_someone(pipe, rng, signal.SIGSTOP if stops and number % 4 == 3 else signal.SIGKILL)
        seen += outcomes(pipe, 5, read)
        assert pipe.statistics().worker_restarts > 5

    ahead = [entry for entry in seen if entry != END]
    assert ahead == [(number % length, number) for number in range(len(ahead))]


def disturb_someone(pipe: Pipeline, rng: random.Random, number: signal.Signals) -> None:
    """Send a signal to a worker, after a moment."""
    moment = time.perf_counter() + rng.uniform(0, 0.005)
    while time.perf_counter() < moment:
        pass
    with contextlib.suppress(ProcessLookupError):
        os.kill(rng.choice(workers_of(pipe)), number)


# Interrupts


@pytest.mark.parametrize("way", ["serial", "fork"])
def test_an_interrupt_at_each_point_of_run_loses_a_batch_at_worst(way: str) -> None:
    """And never lets an iterator fall out of step with the others."""

    def samples() -> Iterator[Any]:
        return (np.array([100 * (i // BATCH_SIZE) + i % BATCH_SIZE]) for i in itertools.count())

    def ragged(number: int) -> Any:
        return [np.full(i + 1, 100 * number + i) for i in range(BATCH_SIZE)]

    numbers = itertools.count()
    sources: list[tuple[Any, dict[str, Any]]] = [
        (map(batch_of, numbers), {}),
        (Batches(10**6), {}),
        (map(ragged, itertools.count()), {}),
        (samples(), {"batch": False, "parallel": False}),
    ]

    with pipeline_of(*sources, way=way, workers=1) as pipe:
        seen = [batches_in(pipe.run())]
        for point in itertools.count():
            has_come, outputs = interrupt_at(point, lambda: outcome(pipe))
            seen.extend(entry for entry in (outputs, outcome(pipe), outcome(pipe)) if entry is not None)
            last = next(entry for entry in reversed(seen) if entry != "LostItemError")
            assert last < len(seen) + point + 1, seen
            if not has_come:
                break

    numbers_seen = [entry for entry in seen if entry != "LostItemError"]
    assert numbers_seen == sorted(set(numbers_seen)), seen
