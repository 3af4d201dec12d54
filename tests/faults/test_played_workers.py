"""Guarantees of a pool for any order of events, with played workers, see `faults.played`."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import itertools
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dali_like.engine.memory.batch_key import ANY_WORKER, BatchKey
from dali_like.engine.memory.protocol import DONE, PAGE_BYTES, TASK, Status
from dali_like.engine.pool.batch import Batch
from dali_like.engine.pool.hangs import HangWatch
from dali_like.engine.pool.pipes import pipe_bytes
from dali_like.engine.pool.recovery import Phase, RestartPolicy
from dali_like.engine.worker.exceptions import pack_exception
from dali_like.engine.worker.source import Source, SourceType
from dali_like.engine.worker.streams import Stream
from dali_like.engine.worker.task import NoMemoryError, Region
from dali_like.engine.worker.worker import START_FAILED, leave_message
from dali_like.errors import DtypeMismatchError, OutOfMemoryError, WorkerDiedError
from dali_like.types import SampleInfo
from tests.faults.played import Death, PlayedPool, PlayedWorker
from tests.internals import cells_of, in_flight_of, note_report, restart_policy_of, unfinished_task_of

SIZE = 8
MIB = 1 << 20

SEEDS = range(10)
#: With this seed, other tasks are open when the sample that kills becomes a suspect, so that the pool is seen to drain.
DRAINING_SEED = 3


def rows(info: SampleInfo) -> NDArray[Any]:
    return np.full(3, info.idx_in_epoch)


def ragged(info: SampleInfo) -> NDArray[Any]:
    return np.full(info.idx_in_epoch % 3 + 1, info.idx_in_epoch)


@contextlib.contextmanager
def played(make_sources: Callable[[], Sequence[Source]], capacity: int = SIZE, **options: Any) -> Iterator[PlayedPool]:
    pool = PlayedPool(make_sources, capacity, **options)
    try:
        yield pool
    finally:
        pool.close()


def of(*callbacks: Callable[[Any], Any], **options: Any) -> Callable[[], Sequence[Source]]:
    return lambda: [Source("a source", callback, **options) for callback in callbacks]


def walks(num_items: int) -> Callable[[], Sequence[Source]]:
    """A source that walks through batches; each worker has a walk of its own."""
    return lambda: [
        Source(
            "a walk",
            Stream(lambda: iter([[np.array([SIZE * i + j]) for j in range(SIZE)] for i in range(num_items)])),
            batch=True,
            type=SourceType.STREAM,
            in_order=True,
        )
    ]


def logged_walks(num_items: int, calls: list[list[int]]) -> Callable[[], Sequence[Source]]:
    """The same, with the requests to each worker's iterable."""

    class Logged(Stream):
        def __init__(self, begin: Callable[[], Iterator[Any]]) -> None:
            super().__init__(begin)
            self.asked: list[int] = []
            calls.append(self.asked)

        def __call__(self, info: Any) -> Any:
            self.asked.append(info.iteration)
            return super().__call__(info)

    return lambda: [source._replace(callback=Logged(source.callback.begin)) for source in walks(num_items)()]  # type: ignore[attr-defined]


def first_values(samples: Sequence[NDArray[Any]]) -> list[int]:
    return [int(sample[0]) for sample in samples]


def samples_of(pool: PlayedPool, batch: Batch) -> list[int]:
    """Return the numbers of a batch's samples, and release the batch."""
    values = first_values(pool.wait(batch)[0])
    batch.outcome = None
    return values


def batch_of(iteration: int) -> list[int]:
    return list(range(iteration * SIZE, (iteration + 1) * SIZE))


@pytest.mark.parametrize("callback", [rows, ragged])
@pytest.mark.parametrize("deaths", [0.0, 0.1])
def test_each_batch_comes_once_and_whole_and_leaves_nothing(callback: Callable[[Any], Any], deaths: float) -> None:
    for seed in SEEDS:
        with played(of(callback), num_workers=3, deaths=deaths, seed=seed) as pool:
            batches = [pool.begin(iteration, SIZE) for iteration in range(6)]

            assert [samples_of(pool, batch) for batch in batches] == [batch_of(iteration) for iteration in range(6)]

            pool.play_on()
            assert pool.is_settled


def test_batches_of_several_sources_come_whole() -> None:
    for seed in SEEDS:
        with played(of(rows, ragged), deaths=0.1, seed=seed) as pool:
            batches = [pool.begin(i, SIZE, source=source) for i in range(4) for source in (0, 1)]

            assert [samples_of(pool, batch) for batch in batches] == [batch_of(i // 2) for i in range(8)]


def test_canceled_batches_leave_nothing_behind() -> None:
    """Some in the middle of being made, some ready, some waiting for their turn."""
    for seed in SEEDS:
        with played(of(ragged), deaths=0.1, seed=seed) as pool:
            batches = [pool.begin(iteration, SIZE) for iteration in range(8)]
            for _ in range(5 * seed):
                pool.play()
                pool.poll()
            for batch in batches[1:7]:
                pool.cancel(batch)

            assert samples_of(pool, batches[7]) == batch_of(7)
            assert samples_of(pool, batches[0]) == batch_of(0)

            pool.play_on()
            assert pool.is_settled


@pytest.mark.parametrize("have_begun", [True, False])
def test_no_worker_begins_a_task_of_a_canceled_batch(have_begun: bool) -> None:
    made = []

    def callback(info: SampleInfo) -> NDArray[Any]:
        made.append(info.iteration)
        return rows(info)

    with played(of(callback)) as pool:
        first = pool.begin(0, SIZE)
        if have_begun:
            assert samples_of(pool, first) == batch_of(0)
        others = [pool.begin(iteration, SIZE) for iteration in range(1, 4)]
        assert all((batch.slot is not None) is have_begun for batch in others)
        for batch in others:
            pool.cancel(batch)
        pool.play_on()

    assert set(made) == {0}


def test_pool_that_is_closed_keeps_no_batch() -> None:
    """Neither ready batches nor batches in flight."""
    with played(of(lambda info: np.zeros(MIB, np.uint8)), 4) as pool:
        batches = [pool.begin(iteration, 4) for iteration in range(3)]
        pool.wait_for(batches[2:])
        pool.begin(3, 4)
        assert pool.used_bytes > 12 * MIB
        del batches

        pool.close()

        assert pool.used_bytes < MIB


def test_other_batches_wait_until_the_first_has_shown_the_schema() -> None:
    with played(of(rows)) as pool:
        batches = [pool.begin(iteration, SIZE) for iteration in range(3)]

        assert [batch.slot is not None for batch in batches] == [True, False, False]
        assert [samples_of(pool, batch) for batch in batches] == [batch_of(iteration) for iteration in range(3)]
        assert [stage.ring.slot_layout.all_dense for stage in pool.assemblers] == [True]


def test_first_task_is_enough_to_show_it() -> None:
    with played(of(rows), num_workers=1) as pool:
        batches = [pool.begin(iteration, SIZE) for iteration in range(2)]
        while batches[1].slot is None:
            assert pool.play()
            pool.poll()

        assert batches[0].outcome is None
        assert batches[0].open_tasks.bit_count() == 1


def test_no_more_tasks_are_posted_than_the_pipes_take() -> None:
    """Half of their capacity, so that no process blocks on one. Further tasks wait in the backlog."""
    with played(of(rows), 32, num_workers=16) as pool:
        assert samples_of(pool, pool.begin(0, 32)) == list(range(32))
        most = pool.dispatcher.pipes.most_open_tasks
        assert most == pipe_bytes(pool.dispatcher.pipes.done) // DONE.size // 2
        batches = [pool.begin(iteration, 32) for iteration in range(1, most // 32 + 10)]

        assert pool.dispatcher.num_open_tasks <= most
        assert pool.dispatcher.backlog
        assert [samples_of(pool, batch)[0] for batch in batches] == [32 * i for i in range(1, len(batches) + 1)]


def test_pipes_of_single_workers_may_be_the_smallest(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel makes small pipes for a user with many of them; see pipe(7)."""

    make, made = os.pipe, []

    def pipe() -> tuple[int, int]:
        made.append(make())
        if len(made) > 2:  # the first two are shared by all workers
            fcntl.fcntl(made[-1][1], fcntl.F_SETPIPE_SZ, PAGE_BYTES)
        return made[-1]

    monkeypatch.setattr(os, "pipe", pipe)
    with played(walks(2)) as pool:
        assert pool.dispatcher.pipes.most_open_tasks == PAGE_BYTES // TASK.size // 2


def test_error_of_a_batch_is_that_of_its_lowest_sample_and_costs_no_slot() -> None:
    def callback(info: SampleInfo) -> NDArray[Any]:
        if info.idx_in_epoch in (9, 14):
            raise KeyError(info.idx_in_epoch)
        return rows(info)

    for seed in SEEDS:
        with played(of(callback), num_workers=3, deaths=0.05, seed=seed) as pool:
            batches = [pool.begin(iteration, SIZE) for iteration in range(3)]

            assert samples_of(pool, batches[0]) == batch_of(0)
            with pytest.raises(KeyError, match="9"):
                pool.wait(batches[1])
            assert samples_of(pool, batches[2]) == batch_of(2)
            pool.play_on()
            assert pool.is_settled


def test_samples_of_different_shapes_lie_where_vector_instructions_want_them() -> None:
    with played(of(ragged)) as pool:
        (samples,) = pool.wait(pool.begin(0, SIZE))

        assert [sample.ctypes.data % 128 for sample in samples] == [0] * SIZE


def test_batch_of_mismatched_samples_returns_its_slot() -> None:
    def callback(info: SampleInfo) -> NDArray[Any]:
        return rows(info).astype(np.float32 if info.idx_in_epoch == 5 else np.int64)

    for seed in SEEDS:
        with played(of(callback), seed=seed) as pool:
            batch = pool.begin(0, SIZE)
            with pytest.raises(DtypeMismatchError):
                pool.wait(batch)

            pool.play_on()
            assert pool.is_settled


def test_samples_that_outgrow_their_room_are_made_again_and_cost_no_slot() -> None:
    def callback(info: SampleInfo) -> NDArray[Any]:
        return np.full(3 * MIB if info.idx_in_epoch == 21 else 1 + info.idx_in_epoch % 2, info.idx_in_epoch, np.uint8)

    for seed in SEEDS:
        with played(of(callback), deaths=0.05, seed=seed) as pool:
            assert samples_of(pool, pool.begin(0, SIZE)) == batch_of(0)
            assert pool.assemblers[0].ring.slot_layout.region_bytes < 3 * MIB
            batches = [pool.begin(iteration, SIZE) for iteration in range(1, 4)]

            assert [samples_of(pool, batch) for batch in batches] == [batch_of(iteration) for iteration in range(1, 4)]
            pool.play_on()
            assert pool.is_settled


def test_sample_in_the_place_of_a_bad_one_may_outgrow_its_room() -> None:
    """It is made again with its batch, and no other one is tried."""

    def callback(info: SampleInfo) -> NDArray[Any]:
        if info.idx_in_epoch == 10:
            raise KeyError(info.idx_in_epoch)
        return np.full(3 * MIB if info.idx_in_epoch == 11 else 1 + info.idx_in_epoch % 2, info.idx_in_epoch, np.uint8)

    with played(of(callback, on_error="skip")) as pool:
        assert samples_of(pool, pool.begin(0, SIZE)) == batch_of(0)

        assert samples_of(pool, pool.begin(1, SIZE)) == [8, 9, 11, 11, 12, 13, 14, 15]


def test_the_first_delivered_batch_determines_the_schema() -> None:
    """The first that is delivered says it, and not the first that was begun."""

    def callback(info: SampleInfo) -> NDArray[Any]:
        if info.idx_in_epoch == SIZE - 1:
            raise KeyError(info.idx_in_epoch)
        return rows(info).astype(np.int64 if info.iteration == 0 else np.float32)

    for seed in SEEDS:
        with played(of(callback), seed=seed) as pool:
            batches = [pool.begin(iteration, SIZE) for iteration in range(3)]
            with pytest.raises(KeyError):
                pool.wait(batches[0])

            assert [samples_of(pool, batch) for batch in batches[1:]] == [batch_of(1), batch_of(2)]


def test_error_behind_a_sample_that_has_found_no_room_is_not_the_lowest() -> None:
    """Later samples of its task have not been requested yet."""

    def callback(info: SampleInfo) -> NDArray[Any]:
        errors = {11: ValueError, 14: KeyError}
        if info.idx_in_epoch in errors:
            raise errors[info.idx_in_epoch]
        return np.zeros(3 * MIB if info.idx_in_epoch == 10 else 1 + info.idx_in_epoch % 2, np.uint8)

    for seed in SEEDS:
        with played(of(callback), seed=seed) as pool:
            pool.wait(pool.begin(0, SIZE))

            with pytest.raises(ValueError):  # noqa: PT011
                pool.wait(pool.begin(1, SIZE))


def test_regions_have_room_for_tasks_many_times_as_large_as_the_largest_seen() -> None:
    for seed in SEEDS:
        with played(of(lambda info: np.zeros(MIB if info.idx_in_epoch == 2 else 1, np.uint8)), seed=seed) as pool:
            pool.wait(pool.begin(0, SIZE))

            assert pool.assemblers[0].ring.slot_layout.region_bytes >= 16 * MIB


class TestSampleThatKills:
    """All samples but one are harmless; recomputed samples are the same."""

    def make(self, killer: int, times: int) -> Callable[[], Sequence[Source]]:
        killed: list[int] = []

        def callback(info: SampleInfo) -> NDArray[Any]:
            if info.idx_in_epoch == killer and len(killed) < times:
                killed.append(killer)
                raise Death
            return rows(info)

        return of(callback)

    @pytest.mark.parametrize("times", [1, 2])
    def test_twice_costs_nothing(self, times: int) -> None:
        for seed in SEEDS:
            with played(self.make(10, times), num_workers=3, seed=seed) as pool:
                pids = set(pool.workers.pids)
                batches = [pool.begin(iteration, SIZE) for iteration in range(6)]

                assert [samples_of(pool, batch) for batch in batches] == [batch_of(iteration) for iteration in range(6)]
                assert pool.num_restarts == times
                pool.play_on()
                assert pool.is_settled
                assert len(pool.workers.running) == 3
                assert len(pids & set(pool.workers.pids)) == (2 if times == 1 else 0), "no one is suspected at once"

    def test_runs_alone_the_third_time(self) -> None:
        """So that no other worker can be to blame."""
        for seed in SEEDS:
            alone = []

            def callback(info: SampleInfo) -> NDArray[Any]:
                if info.idx_in_epoch == 10:
                    alone.append(len(pool.workers.running) == 1)  # noqa: B023  # called before the loop goes on
                    raise Death
                return rows(info)

            with played(of(callback), num_workers=3, seed=seed) as pool:
                batches = [pool.begin(iteration, SIZE) for iteration in range(6)]
                assert samples_of(pool, batches[0]) == batch_of(0)
                with pytest.raises(WorkerDiedError):
                    pool.wait(batches[1])
                assert [samples_of(pool, batch) for batch in batches[2:]] == [batch_of(i) for i in range(2, 6)]

                assert alone[2:] == [True]

    def until_workers_are_told_to_end(self, pool: PlayedPool) -> list[PlayedWorker]:
        """Play until the workers have been asked to stop, for the isolation, and return the ones still running."""
        pool.play_until(lambda: pool.recovery.phase is Phase.RETIRING)
        return [*pool.workers.running.values()]

    def test_lets_all_others_be_made_first(self) -> None:
        for seed in SEEDS:
            with played(self.make(10, 99), num_workers=3, seed=seed) as pool:
                for iteration in range(3):
                    pool.begin(iteration, SIZE)

                self.until_workers_are_told_to_end(pool)

                assert pool.dispatcher.num_open_tasks == 1

    @pytest.mark.parametrize("num_deaf", [1, 3])
    def test_runs_alone_at_once_where_others_die_before_they_hear_that_they_are_to_end(self, num_deaf: int) -> None:
        """The fresh worker does not read their stop records. It would end, too, and count as a restart."""
        with played(self.make(10, 99), num_workers=3) as pool:
            batches = [pool.begin(iteration, SIZE) for iteration in range(3)]
            for worker in self.until_workers_are_told_to_end(pool)[:num_deaf]:
                pool.workers.end(worker.index, -signal.SIGKILL)

            with pytest.raises(WorkerDiedError):
                pool.wait(batches[1])

            assert samples_of(pool, batches[2]) == batch_of(2)
            assert pool.num_restarts == 3

    @pytest.mark.parametrize("state", ["stopped", "starting"])
    @pytest.mark.parametrize("index", [0, 1])  # the sample runs alone in the first
    def test_leaves_workers_as_they_should_be_after_one_that_hung_when_it_was_to_end(
        self, index: int, state: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now_s, stopped = 0.0, set[int]()
        monkeypatch.setattr("dali_like.engine.pool.hangs.time", SimpleNamespace(monotonic=lambda: now_s))
        monkeypatch.setattr(HangWatch, "is_stopped", lambda watch, worker: worker in stopped)
        monkeypatch.setattr(HangWatch, "stack_of", lambda watch, worker: "its stack")

        def look_until(has_come_about: Callable[[], bool]) -> None:
            nonlocal now_s
            for _ in range(20):
                now_s += 1
                pool.recovery.look()
                if has_come_about():
                    return
            pytest.fail("nobody sees that it hangs")

        with played(self.make(10, 99), num_workers=2, timeout_s=8) as pool:
            batches = [pool.begin(iteration, SIZE) for iteration in range(3)]
            self.until_workers_are_told_to_end(pool)
            pool.workers.running[1 - index].step()
            if state == "stopped":
                stopped.add(index)
            else:
                cells_of(pool).clear(index)
            look_until(lambda: index not in pool.workers.running)
            stopped.clear()
            with pytest.raises(WorkerDiedError):
                pool.wait(batches[1])
            assert samples_of(pool, batches[2]) == batch_of(2)
            assert pool.num_restarts == 3

            batch = pool.begin(3, SIZE)
            hanging = pool.workers.running[index]
            hanging.step()
            look_until(lambda: pool.workers.running.get(index) is not hanging)
            assert samples_of(pool, batch) == batch_of(3)

    def test_is_not_lost_while_it_waits_to_run_alone(self) -> None:
        """At any moment each task is known to be somewhere."""
        for seed in SEEDS:
            with played(self.make(10, 99), num_workers=3, seed=seed) as pool:
                batches = [pool.begin(iteration, SIZE) for iteration in range(3)]
                pool.on_step = lambda worker: pool.recovery.check_for_lost_tasks()  # called in the loop

                with pytest.raises(WorkerDiedError):
                    pool.wait(batches[1])
                assert samples_of(pool, batches[2]) == batch_of(2)

    @pytest.mark.parametrize("phase", [Phase.DRAINING, Phase.RETIRING, Phase.ISOLATED])
    def test_runs_alone_also_where_the_pool_is_to_grow(self, phase: Phase) -> None:
        alone = []

        def callback(info: SampleInfo) -> NDArray[Any]:
            if info.idx_in_epoch == 10:
                alone.append(len(pool.workers.running) == 1)
                raise Death
            return rows(info)

        with played(of(callback), num_workers=3, first_workers=2, seed=DRAINING_SEED) as pool:
            batches = [pool.begin(iteration, SIZE) for iteration in range(3)]
            pool.play_until(lambda: pool.recovery.phase is phase)
            pool.recovery.grow(3)

            with pytest.raises(WorkerDiedError):
                pool.wait(batches[1])
            assert alone == [False, False, True]
            pool.recovery.grow(3)
            assert len(pool.workers.running) == 3

    def test_runs_alone_where_a_worker_may_be_replaced_most_often(self) -> None:
        with played(self.make(10, 99), num_workers=2, restarts=3) as pool:
            batches = [pool.begin(iteration, SIZE) for iteration in range(3)]
            self.until_workers_are_told_to_end(pool)
            counts = [restart_policy_of(pool).num_taken(worker) for worker in (0, 1)]
            for worker in range(2):
                while counts[worker] < (3 if worker == 0 else 1):
                    assert restart_policy_of(pool).take(worker)
                    counts[worker] += 1

            with pytest.raises(WorkerDiedError, match="worker 1 "):
                pool.wait(batches[1])
            assert samples_of(pool, batches[2]) == batch_of(2)

    @pytest.mark.parametrize("deaths", [0.0, 0.1])
    def test_three_times_fails_its_batch_and_no_other(self, deaths: float) -> None:
        for seed in SEEDS:
            with played(self.make(10, 99), num_workers=3, deaths=deaths, seed=seed) as pool:
                batches = [pool.begin(iteration, SIZE) for iteration in range(6)]

                assert samples_of(pool, batches[0]) == batch_of(0)
                with pytest.raises(WorkerDiedError, match=r"sample 2 of iteration 1") as raised:
                    pool.wait(batches[1])
                assert [samples_of(pool, batch) for batch in batches[2:]] == [batch_of(i) for i in range(2, 6)]
                assert "has ended 3 workers;" in raised.value.__notes__[0]
                del raised
                pool.play_on()
                assert pool.is_settled

    def test_is_not_computed_again_after_its_batch_is_canceled(self) -> None:
        with played(self.make(10, 99), num_workers=2) as pool:
            batches = [pool.begin(iteration, SIZE) for iteration in range(3)]
            pool.play_until(lambda: pool.num_restarts)
            pool.cancel(batches[1])
            pool.play_on()

            assert samples_of(pool, batches[2]) == batch_of(2)
            assert pool.num_restarts == 1

    def test_of_a_canceled_batch_is_not_suspected(self) -> None:
        calls = []

        def callback(info: SampleInfo) -> NDArray[Any]:
            if info.idx_in_epoch == 10:
                calls.append(info)
                if len(calls) == 2:
                    pool.cancel(batches[1])
                raise Death
            return rows(info)

        with played(of(callback), num_workers=2) as pool:
            batches = [pool.begin(iteration, SIZE) for iteration in range(3)]
            pool.play_until(lambda: pool.num_restarts == 2)

            assert not pool.recovery.is_isolating
            assert samples_of(pool, batches[2]) == batch_of(2)

    def test_may_share_its_task_with_another_one(self) -> None:
        """Alone in its worker, too."""
        plan = [11, 11, 10, 10]

        def callback(info: SampleInfo) -> NDArray[Any]:
            if plan and info.idx_in_epoch == plan[0]:
                plan.pop(0)
                raise Death
            return rows(info)

        with played(of(callback), num_workers=2) as pool:
            batches = [pool.begin(iteration, SIZE) for iteration in range(3)]

            assert [samples_of(pool, batch) for batch in batches] == [batch_of(iteration) for iteration in range(3)]
            assert not plan

    def test_beside_another_one_is_handled_alone(self) -> None:
        def callback(info: SampleInfo) -> NDArray[Any]:
            if info.idx_in_epoch in (3, 10, 13):
                raise Death
            return rows(info)

        for seed in SEEDS:
            with played(of(callback), num_workers=3, seed=seed) as pool:
                batches = [pool.begin(iteration, SIZE) for iteration in range(4)]

                for batch, sample in ((batches[0], 3), (batches[1], 10)):
                    with pytest.raises(WorkerDiedError, match=rf"idx_in_epoch {sample}\)"):
                        pool.wait(batch)
                assert [samples_of(pool, batch) for batch in batches[2:]] == [batch_of(2), batch_of(3)]
                assert pool.num_restarts == 3 * 3, "nobody else was told to end, and did so later"


class TestWorkersThatMayNotBeReplaced:
    def callback(self, info: SampleInfo) -> NDArray[Any]:
        if info.idx_in_epoch == 2 * SIZE:
            raise Death
        return rows(info)

    def test_leave_earlier_batches_to_the_others(self) -> None:
        with played(of(self.callback), num_workers=2, restarts=0) as pool:
            assert samples_of(pool, pool.begin(0, SIZE)) == batch_of(0)
            batches = [pool.begin(iteration, SIZE) for iteration in (1, 2)]
            slow, quick = pool.workers.running.values()
            slow.step()
            while quick.index in pool.workers.running:
                quick.step()

            assert samples_of(pool, batches[0]) == batch_of(1)
            with pytest.raises(WorkerDiedError, match=f"idx_in_epoch {2 * SIZE}"):
                pool.wait(batches[1])

    def test_lose_the_batches_of_their_tasks(self) -> None:
        """All of it, for any order of deaths."""
        with played(of(rows), num_workers=3, restarts=0) as pool:
            assert samples_of(pool, pool.begin(0, SIZE)) == batch_of(0)
            batches = [pool.begin(iteration, SIZE) for iteration in (1, 2)]
            first, other, last = pool.workers.running.values()
            first.step()
            while other.task is None or other.task[0] != batches[1].ticket:
                other.step()
            for worker in (first, other):
                pool.workers.end(worker.index, -signal.SIGKILL)
                pool.recovery.look()

            for batch in batches:
                with pytest.raises(WorkerDiedError):
                    pool.wait(batch)
            assert pool.workers.running == {last.index: last}

    def test_do_not_lose_batches_computed_by_others(self) -> None:
        """Of several batches it is given first, also where another one will not come."""
        with played(of(rows), num_workers=2, restarts=0) as pool:
            assert samples_of(pool, pool.begin(0, SIZE)) == batch_of(0)
            begun = pool.begin(1, SIZE)
            pool.workers.end(0, -signal.SIGKILL)
            pool.recovery.look()
            lost = pool.begin(2, SIZE)

            assert pool.wait_for((lost, begun)) is begun
            with pytest.raises(WorkerDiedError):
                pool.wait(lost)

    def test_never_let_the_pool_wait_for_ever(self) -> None:
        """A batch comes, or an error does: also while a sample is under suspicion."""
        for seed in range(60):
            with played(of(self.callback), num_workers=3, restarts=1, deaths=0.1, seed=seed) as pool:
                batches = [pool.begin(iteration, SIZE) for iteration in range(5)]
                for iteration, batch in enumerate(batches):
                    with contextlib.suppress(WorkerDiedError):
                        assert samples_of(pool, batch) == batch_of(iteration)

    def test_end_everything_while_a_sample_is_under_suspicion(self) -> None:
        """It is to run alone when all have ended, and one will never be there for that."""
        with played(of(self.callback), num_workers=2, restarts=1) as pool:
            assert samples_of(pool, pool.begin(0, SIZE)) == batch_of(0)
            suspected, other = pool.begin(2, SIZE), pool.begin(1, SIZE)
            running = pool.workers.running
            first, second = running[0], running[1]
            while running.get(0) is first:
                first.step()
            pool.recovery.look()
            while running[0].task is None or running[0].task[0] != other.ticket:
                running[0].step()
            while running.get(1) is second:
                second.step()
            pool.recovery.look()
            assert pool.recovery.is_isolating

            pool.workers.end(0, -signal.SIGKILL)

            with pytest.raises(WorkerDiedError):
                pool.wait(suspected)

    def test_are_those_that_have_been_too_often_in_the_last_minute(self, monkeypatch: pytest.MonkeyPatch) -> None:
        now_s = 0.0
        monkeypatch.setattr("dali_like.engine.pool.recovery.time", SimpleNamespace(monotonic=lambda: now_s))
        with played(of(rows), num_workers=1, restarts=1) as pool:
            for iteration in range(3):
                pool.workers.end(0, -signal.SIGKILL)
                assert samples_of(pool, pool.begin(iteration, SIZE)) == batch_of(iteration)
                now_s += 61

            now_s -= 2
            pool.workers.end(0, -signal.SIGKILL)

            with pytest.raises(WorkerDiedError):
                pool.wait(pool.begin(3, SIZE))

    def test_may_be_again_a_minute_after_each_single_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        times_s = iter([0.0, 40.0, 61.0, 62.0, 101.0])
        monkeypatch.setattr("dali_like.engine.pool.recovery.time", SimpleNamespace(monotonic=lambda: next(times_s)))
        allowance = RestartPolicy(2, 1)

        taken = [allowance.take(0) for _ in range(5)]

        assert taken == [True, True, True, False, True]

    @pytest.mark.parametrize("num_workers", [2, 3])
    def test_first_cause_is_the_one_that_is_told(self, num_workers: int) -> None:
        with played(of(rows), num_workers=num_workers, restarts=0) as pool:
            first, other, *_ = pool.workers.running.values()
            assert samples_of(pool, pool.begin(0, SIZE)) == batch_of(0)
            pool.workers.end(first.index, -signal.SIGSEGV)
            pool.workers.end(other.index, -signal.SIGKILL)

            for iteration in (1, 2):
                pool.recovery.look()
                batch = pool.begin(iteration, SIZE)
                with pytest.raises(WorkerDiedError, match=f"pid {first.pid}"):
                    pool.wait(batch)


class TestRest:
    @pytest.mark.parametrize("phase", [Phase.DRAINING, Phase.RETIRING, Phase.ISOLATED])
    def test_forgets_samples_under_suspicion(self, phase: Phase) -> None:
        """Their batches are cancelled. Later suspects are isolated as usual."""
        alone = []

        def callback(info: SampleInfo) -> NDArray[Any]:
            if info.idx_in_epoch == 10:
                raise Death
            if info.idx_in_epoch == 6 * SIZE:
                alone.append(len(pool.workers.running) == 1)
                raise Death
            return rows(info)

        with played(of(callback), num_workers=2, seed=DRAINING_SEED) as pool:
            for iteration in range(3):
                pool.begin(iteration, SIZE)
            pool.play_until(lambda: pool.recovery.phase is phase)

            pool.rest()
            pool.wake(b"")

            assert pool.is_settled
            with pytest.raises(WorkerDiedError):
                pool.wait(pool.begin(6, SIZE))
            assert alone == [False, False, True]

    def test_leaves_no_slot_to_others_that_a_thread_may_still_write_to(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A thread cannot be killed: it is given up, and goes on."""
        monkeypatch.setattr("dali_like.engine.pool.recovery._REST_GRACE_S", 0.0)
        kept: list[Any] = []

        with played(of(rows), num_workers=1) as pool:
            assert samples_of(pool, pool.begin(0, SIZE)) == batch_of(0)
            written = pool.begin(1, SIZE).slot
            (thread,) = pool.workers.running.values()
            thread.step()
            with monkeypatch.context() as patch:
                patch.setattr(pool.workers, "wait_for_news", lambda timeout_s: None)
                patch.setattr(pool.workers, "signal", lambda worker, number: pool.workers.end(worker, 0, kept.append))
                pool.rest()
            pool.wake(b"")

            meanwhile = pool.begin(2, SIZE)
            assert meanwhile.slot is not written
            kept.clear()  # the thread has ended
            assert pool.begin(3, SIZE).slot is written
            pool.play_on()
            assert pool.num_restarts == 0, "what the thread has not taken, its end among it, is not there for another one"

    def test_is_no_matter_to_workers_that_cannot_start_meanwhile(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail_to_start(timeout_s: float) -> None:
            for index in list(pool.workers.running):
                leave_message(index, SimpleNamespace(space=pool.space, num_workers=2), pack_exception(OSError("no start")))  # type: ignore[arg-type]
                pool.workers.end(index, START_FAILED)

        with played(of(rows), num_workers=2) as pool:
            with monkeypatch.context() as patch:
                patch.setattr(pool.workers, "wait_for_news", fail_to_start)
                pool.rest()
            pool.wake(b"")

            assert samples_of(pool, pool.begin(0, SIZE)) == batch_of(0)
            pool.workers.end(1, START_FAILED)
            assert samples_of(pool, pool.begin(1, SIZE)) == batch_of(1)
            assert pool.num_restarts == 1, "it has ended like that by itself, and said nothing"


class TestOwners:
    """Each task of a batch has its worker."""

    OWNERS = (1, 0, 2)

    def test_alone_compute_their_tasks(self) -> None:
        def check(worker: PlayedWorker) -> None:
            batch = worker.task and pool.dispatcher.batch_of(worker.task[0], worker.task[2])
            if batch:
                assert batch.key.worker_of(worker.task[2]) == worker.index  # type: ignore[index]

        for callback, deaths, seed in itertools.product((rows, ragged), (0.0, 0.1), SEEDS):
            make_sources = of(callback, in_order=True, task_size=lambda num_workers: 3)
            with played(make_sources, num_workers=3, deaths=deaths, seed=seed) as pool:
                pool.on_step = check
                batches = [pool.submit(BatchKey(0, 0, i, SIZE * i, SIZE, turn=i, owners=self.OWNERS)) for i in range(6)]

                assert [samples_of(pool, batch) for batch in batches] == [batch_of(i) for i in range(6)]
                pool.play_on()
                assert pool.is_settled

    def test_death_of_one_that_may_not_be_replaced_is_told_at_once(self) -> None:
        make_sources = of(rows, in_order=True, task_size=lambda num_workers: 3)
        with played(make_sources, num_workers=3, restarts=0) as pool:
            batch = pool.submit(BatchKey(0, 0, 0, 0, SIZE, owners=self.OWNERS))
            pool.workers.end(2, -signal.SIGKILL)

            with pytest.raises(WorkerDiedError):
                pool.wait(batch)


class TestWalks:
    """An iterable only goes forward, and each worker has its own."""

    def begin(self, pool: PlayedPool, num_batches: int, worker: int = 1) -> list[Batch]:
        return [pool.begin(iteration, SIZE, worker=worker) for iteration in range(num_batches)]

    def test_nothing_is_lost_with_a_worker(self) -> None:
        for seed in SEEDS:
            with played(walks(8), num_workers=2, deaths=0.1, seed=seed) as pool:
                batches = self.begin(pool, 8)

                assert [samples_of(pool, batch) for batch in batches] == [batch_of(iteration) for iteration in range(8)]
                pool.play_on()
                assert pool.is_settled

    def test_only_goes_forward_in_each_worker(self) -> None:
        """The tasks left in the pipe of a dead worker come after its unfinished task."""
        for seed in SEEDS:
            calls: list[list[int]] = []
            with played(logged_walks(8, calls), num_workers=2, deaths=0.1, seed=seed) as pool:
                for batch in self.begin(pool, 8):
                    pool.wait(batch)

            assert all(iterations == sorted(set(iterations)) for iterations in calls)

    def test_canceled_batches_are_not_computed_again_after_a_death(self) -> None:
        for seed in SEEDS:
            calls: list[list[int]] = []
            with played(logged_walks(8, calls), num_workers=2, seed=seed) as pool:
                batches = self.begin(pool, 8)
                assert samples_of(pool, batches[0]) == batch_of(0)
                for _ in range(seed):
                    pool.play()
                for batch in batches[2:]:
                    pool.cancel(batch)
                pool.workers.end(1, -signal.SIGKILL)
                num_walks = len(calls)

                assert samples_of(pool, batches[1]) == batch_of(1)
                pool.play_on()
                assert pool.is_settled

            assert [iterations for iterations in calls[num_walks:] if iterations] in ([], [[1]])

    def test_lose_no_memory_with_a_worker(self) -> None:
        """Which one of them may have been given alone."""

        def make_sources() -> list[Source]:
            items = [[np.full(MIB + 1000 * j, 4 * i + j, np.uint8) for j in range(4)] for i in range(6)]
            return [Source("a walk", Stream(lambda: iter(items)), batch=True, type=SourceType.STREAM, in_order=True)]

        for seed in SEEDS:
            with played(make_sources, 4, num_workers=2, limit_bytes=11 * MIB, deaths=0.2, seed=seed) as pool:
                batches = [pool.begin(iteration, 4, worker=1) for iteration in range(6)]

                assert [samples_of(pool, batch)[0] for batch in batches] == [0, 4, 8, 12, 16, 20]

    def test_killer_among_them_runs_alone_in_the_worker_that_must_make_it(self) -> None:
        seen = []

        def make_sources() -> list[Source]:
            def walk() -> Iterator[list[NDArray[Any]]]:
                for i in range(4):
                    if i == 2:
                        seen.append([worker.index for worker in pool.workers.running.values() if worker.task is not None])
                        raise Death
                    yield [np.array([SIZE * i + j]) for j in range(SIZE)]

            return [Source("a walk", Stream(walk), batch=True, type=SourceType.STREAM, in_order=True)]

        with played(make_sources, num_workers=2) as pool:
            batches = self.begin(pool, 3)

            assert [samples_of(pool, batch) for batch in batches[:2]] == [batch_of(0), batch_of(1)]
            with pytest.raises(WorkerDiedError) as raised:
                pool.wait(batches[2])
            assert "has ended 3 workers;" in raised.value.__notes__[0]
            del raised
            assert seen == [[1], [1], [1]]

    def test_end_of_one_that_may_not_be_replaced_is_told_at_once(self) -> None:
        """No other worker could compute the batches before."""
        with played(walks(8), num_workers=2, restarts=0) as pool:
            batches = self.begin(pool, 3)
            pool.workers.end(1, -signal.SIGKILL)

            with pytest.raises(WorkerDiedError):
                pool.wait(batches[0])


class TestLittleMemory:
    """There is memory for so much, and batches need more of it than that together."""

    def callback(self, info: SampleInfo) -> NDArray[Any]:
        return np.full(MIB + 1000 * info.idx_in_batch, info.idx_in_epoch, np.uint8)

    @pytest.mark.parametrize("deaths", [0.0, 0.05])
    def test_costs_no_batch_and_keeps_the_order(self, deaths: float) -> None:
        for seed in SEEDS[:4]:
            with played(of(self.callback), 4, limit_bytes=11 * MIB, deaths=deaths, seed=seed) as pool:
                batches = [pool.begin(iteration, 4) for iteration in range(5)]

                assert [samples_of(pool, batch) for batch in batches] == [[4 * i + j for j in range(4)] for i in range(5)]
                pool.play_on()
                assert pool.is_settled

    def test_is_an_error_while_it_is_held_and_then_no_more(self) -> None:
        with played(of(self.callback), 4, limit_bytes=7 * MIB) as pool:
            held = [*pool.wait(pool.begin(0, 4))]
            batch = pool.begin(1, 4)
            for _ in range(2):
                with pytest.raises(OutOfMemoryError):
                    pool.wait(batch)

            held.clear()

            assert samples_of(pool, batch) == [4, 5, 6, 7]

    def test_that_the_system_refuses_again_and_again_is_an_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Though the limit would allow it."""

        def refuse(region: Region, end: int) -> None:
            raise NoMemoryError(MIB)

        with played(of(self.callback), 4) as pool:
            with monkeypatch.context() as patch:
                patch.setattr(Region, "_grow", refuse)
                batch = pool.begin(0, 4)
                for _ in range(2):
                    with pytest.raises(OutOfMemoryError, match="the system refuses"):
                        pool.wait(batch)

            assert samples_of(pool, batch) == [0, 1, 2, 3]

    def test_that_only_garbage_holds_is_had(self) -> None:
        with played(of(self.callback), 4, limit_bytes=7 * MIB) as pool:
            garbage: list[Any] = [*pool.wait(pool.begin(0, 4))]
            garbage.append(garbage)
            gc.disable()
            try:
                del garbage
                assert samples_of(pool, pool.begin(1, 4)) == [4, 5, 6, 7]
            finally:
                gc.enable()

    def test_is_left_to_a_batch_that_is_short_of_memory(self) -> None:
        """Nothing is begun beside it. Else they might take it from each other for ever."""
        is_last = []

        def look(worker: PlayedWorker) -> None:
            begun = in_flight_of(pool)
            is_last.extend(max(begun) == ticket for ticket, batch in begun.items() if batch.missing_bytes)

        with played(of(self.callback), 4, limit_bytes=11 * MIB) as pool:
            pool.on_step = look
            batches = [pool.begin(iteration, 4) for iteration in range(5)]
            for batch in batches:
                samples_of(pool, batch)

        assert is_last
        assert all(is_last)

    def ready(self, pool: PlayedPool, *turns: int, worker: int = ANY_WORKER) -> list[Batch]:
        """Batches of the first source that are ready, and take all the memory that there is."""
        batches = [pool.begin(turn, 4, worker=worker) for turn in turns]
        pool.play_on()
        assert all(batch.outcome is not None for batch in batches)
        pool.space.limit_bytes = pool.used_bytes + MIB
        return batches

    def test_comes_from_the_last_of_the_batches_that_are_ready(self) -> None:
        """That one is made again."""
        with played(of(self.callback, self.callback), 4) as pool:
            later = self.ready(pool, 2, 3, 4)
            due = pool.begin(1, 4, source=1)

            assert samples_of(pool, due) == [4, 5, 6, 7]

            assert [batch.outcome is None for batch in later] == [False, False, True]
            assert [samples_of(pool, batch)[0] for batch in later] == [8, 12, 16]

    def test_does_not_come_from_batches_that_are_due_no_later(self) -> None:
        with played(of(self.callback, self.callback), 4) as pool:
            ready = self.ready(pool, 0, 1)
            due = pool.begin(1, 4, source=1)

            with pytest.raises(OutOfMemoryError):
                pool.wait(due)

            assert [samples_of(pool, batch)[0] for batch in ready] == [0, 4]
            assert samples_of(pool, due) == [4, 5, 6, 7]

    def test_does_not_come_from_batches_that_cannot_be_made_again(self) -> None:
        def make_sources() -> list[Source]:
            items = ([np.full(MIB, SIZE * i + j, np.uint8) for j in range(4)] for i in range(4))
            walk = Source("a walk", Stream(lambda: items, once=True), batch=True, type=SourceType.STREAM, in_order=True)
            return [walk, Source("a source", self.callback)]

        with played(make_sources, 4, num_workers=1) as pool:
            ready = self.ready(pool, 0, 1, worker=0)
            due = pool.submit(BatchKey(1, 0, 0, 0, 4))

            with pytest.raises(OutOfMemoryError):
                pool.wait(due)

            assert [samples_of(pool, batch)[0] for batch in ready] == [0, 8]
            assert samples_of(pool, due) == [0, 1, 2, 3]


class TestReports:
    """A reported task is not reported again."""

    def test_of_an_unfinished_task_names_a_sample_of_that_task(self) -> None:
        """Also when it has just taken one, and its cell still says where it was in another."""
        with played(of(rows), num_workers=1) as pool:
            batches = [pool.begin(iteration, SIZE) for iteration in range(3)]
            (worker,) = pool.workers.running.values()
            seen = []
            while batches[2].outcome is None:
                worker.step()
                pool.poll()
                if (unfinished := unfinished_task_of(pool, 0)) is not None:
                    seen.append((unfinished.task, unfinished.sample // 4))

            assert set(seen) == {(0, 0), (1, 1)}

    def test_of_samples_that_dead_workers_have_replaced_count(self) -> None:
        def callback(info: SampleInfo) -> NDArray[Any]:
            if info.idx_in_epoch % SIZE == 2:
                raise KeyError(info.idx_in_epoch)
            return rows(info)

        with played(of(callback, on_error="skip"), num_workers=2) as pool:
            for iteration in range(4):
                pool.wait(pool.begin(iteration, SIZE))
                pool.workers.end(iteration % 2, -signal.SIGKILL)
                pool.recovery.look()

            assert (pool.num_replaced, pool.num_restarts) == (4, 4)

    def test_of_a_dead_worker_count(self) -> None:
        """Its task is not done twice."""
        made = []

        def callback(info: SampleInfo) -> NDArray[Any]:
            made.append(info.idx_in_epoch)
            return rows(info)

        with played(of(callback), num_workers=1) as pool:
            batch = pool.begin(0, SIZE)
            (worker,) = pool.workers.running.values()
            for _ in range(3):
                worker.step()  # taken, computed, reported
            pool.workers.end(0, -signal.SIGKILL)

            assert samples_of(pool, batch) == batch_of(0)
            pool.play_on()
            assert sorted(made) == batch_of(0)

    def test_that_come_twice_count_once(self) -> None:
        with played(of(rows), num_workers=2) as pool:
            assert samples_of(pool, pool.begin(0, SIZE)) == batch_of(0)
            batch = pool.begin(1, SIZE)
            for _ in range(3):
                note_report(pool, batch.ticket, 0, 0, Status.DENSE, 0)

            assert pool.dispatcher.num_open_tasks == 3
            assert samples_of(pool, batch)[2:] == batch_of(1)[2:]
