"""Choice of the number of workers and of prefetched batches: decisions from measurements, and complete pipelines."""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dali_like import Pipeline
from dali_like.data import DataLoader
from dali_like.engine.backends.processes import ProcessWorkers
from dali_like.engine.memory.limits import available_cpus
from dali_like.engine.memory.protocol import CELL_BYTES, CELL_TASKS, CELL_UNMEASURED, METER_WORDS, control_bytes
from dali_like.engine.memory.space import SharedSpace
from dali_like.engine.pool import tuner
from dali_like.engine.pool.recovery import Recovery
from dali_like.engine.pool.settings import (
    MOST_WORKERS,
    NOT_MEASURED,
    ChosenSettings,
    Limits,
    Measurement,
    adjusted,
    decide,
    first_workers,
)
from dali_like.engine.pool.tuner import Totals, Tuner
from dali_like.engine.worker import meters
from dali_like.engine.worker.meters import Reading
from dali_like.errors import ArgumentClashError, ArgumentError
from dali_like.monitor.measure.gathering import worker_statistics
from dali_like.monitor.measure.statistics import RingStatistics, Statistics, WorkerStatistics
from dali_like.monitor.trace.trace_records import WORKERS
from dali_like.types import SampleInfo
from tests.conftest import DEADLINE_S, wait_until
from tests.internals import pool_of, set_decided

MakePipeline = Callable[..., Pipeline]

MIB = 1 << 20

#: A batch of 64 samples that take 10 ms of computing each, and a loop that does nothing but ask for the next.
COMPUTING = Measurement(busy_s=0.64, waiting=0.0, late_s=0.0, loop_s=0.0)
#: The same samples, with 9.9 ms of waiting.
SLEEPING = COMPUTING._replace(waiting=0.99)

LIMITS = Limits(
    cpus=8,
    most_workers=MOST_WORKERS,
    tasks_per_batch=32,
    worker_bytes=10 * MIB,
    batch_bytes=MIB,
    available_bytes=1 << 40,
    batches_bytes=1 << 40,
)


FIRST = ChosenSettings(4, 2)


def settle(seen: Measurement, limits: Limits = LIMITS, now: ChosenSettings = FIRST) -> ChosenSettings:
    """Return the settings after some looks."""
    for _ in range(5):
        now = decide(now, seen, limits)
    return now


def test_tasks_are_late_by_three_standard_deviations() -> None:
    """Four tasks: two take 10 ms, two take 30 ms. Each computes for 4 ms."""
    totals = Totals(1.0, busy_s=0.08, cpu_s=0.016, tasks=4, squares_s2=0.002, cpu_squares_s2=0.000064)

    assert totals.late_s(on_cpu=False) == pytest.approx(0.050)
    assert totals.late_s(on_cpu=True) == pytest.approx(0.004)


def test_tasks_that_are_late_by_little_want_no_more_batches_ahead() -> None:
    quick = COMPUTING._replace(busy_s=0.0003, late_s=0.0006)
    slow = COMPUTING._replace(busy_s=0.003, late_s=0.006)

    assert settle(quick).prefetch_depth == settle(quick._replace(late_s=0.0)).prefetch_depth
    assert settle(slow).prefetch_depth > settle(slow._replace(late_s=0.0)).prefetch_depth


class TestWorkers:
    def test_that_compute_are_as_many_as_there_are_cpus(self) -> None:
        settings = settle(COMPUTING)

        assert settings.num_workers == 8
        assert settings.num_workers_reason == "callbacks compute, and there are 8 CPUs"

    def test_that_compute_may_have_a_part_of_a_cpu(self) -> None:
        assert settle(COMPUTING, LIMITS._replace(cpus=0.5), ChosenSettings(1, 2)).num_workers == 1
        assert settle(COMPUTING, LIMITS._replace(cpus=5.5)).num_workers == 6

    @pytest.mark.parametrize(
        ("waiting", "expected"), [(0.2, 8), (0.5, 16), (0.75, 32), (0.99, MOST_WORKERS), (1.0, MOST_WORKERS)]
    )
    def test_that_wait_are_so_many_that_the_cpus_are_busy(self, waiting: float, expected: int) -> None:
        assert settle(COMPUTING._replace(waiting=waiting)).num_workers == expected

    def test_are_no_more_than_the_loop_needs(self) -> None:
        settings = settle(SLEEPING._replace(loop_s=0.1))

        assert settings.num_workers == 8  # 6.4 of them, and some more
        assert settings.num_workers_reason == "the loop takes 100 ms for a batch, and workers 640 ms"

    def test_are_not_fewer_because_the_loop_does_a_little_between_batches(self) -> None:
        assert settle(COMPUTING._replace(busy_s=0.001, loop_s=1e-6)).num_workers == 8

    def test_grow_step_by_step(self) -> None:
        first = decide(ChosenSettings(2, 2), SLEEPING, LIMITS)

        assert first.num_workers == 8
        assert (
            first.num_workers_reason
            == "callbacks wait for 99% of their time; a larger increase waits for the next measurement"
        )
        assert decide(first, SLEEPING, LIMITS).num_workers == 32

    def test_never_become_fewer(self) -> None:
        before = settle(SLEEPING)

        after = decide(before, COMPUTING, LIMITS)

        assert (after.num_workers, after.num_workers_reason) == (before.num_workers, before.num_workers_reason)

    def test_have_the_memory_that_they_take(self) -> None:
        settings = settle(SLEEPING, LIMITS._replace(available_bytes=200 * MIB))

        assert settings.num_workers == 4 + 5 * 5  # a quarter of it, each time, as if they took nothing
        assert "quarter of the available memory, at 10 MiB each" in settings.num_workers_reason

    def test_are_few_before_anything_is_known(self) -> None:
        assert [first_workers(cpus) for cpus in (0.5, 1, 2, 4, 128)] == [1, 1, 2, 4, 4]


class TestDepth:
    def test_lets_all_workers_have_work(self) -> None:
        assert settle(COMPUTING).prefetch_depth == 2
        assert settle(SLEEPING).prefetch_depth == 5
        assert settle(SLEEPING, LIMITS._replace(tasks_per_batch=1)).prefetch_depth == 2 * MOST_WORKERS + 1

    def test_hides_tasks_that_take_longer(self) -> None:
        settings = settle(COMPUTING._replace(late_s=0.4))

        assert settings.prefetch_depth == 6  # 80 ms a batch
        assert settings.prefetch_depth_reason == "tasks take up to 400 ms, and a batch is due each 80 ms"

    def test_hides_less_where_the_loop_takes_its_time(self) -> None:
        assert settle(COMPUTING._replace(late_s=0.4, loop_s=0.2)).prefetch_depth == 3

    def test_does_not_hide_everything(self) -> None:
        assert settle(COMPUTING._replace(late_s=100.0)).prefetch_depth == 16

    def test_has_the_memory_that_batches_take(self) -> None:
        limits = LIMITS._replace(batch_bytes=100 * MIB, batches_bytes=800 * MIB)

        settings = settle(COMPUTING._replace(late_s=0.4), limits)

        assert settings.prefetch_depth == 4
        assert settings.prefetch_depth_reason == "more batches of 100 MiB would take over half of max_held_bytes"

    def test_never_becomes_less_as_it_is_decided(self) -> None:
        before = settle(COMPUTING._replace(late_s=0.4))

        assert decide(before, COMPUTING, LIMITS) == before

    @pytest.mark.parametrize(
        ("depth", "least_ready", "expected"),
        [(9, 9, 2), (9, 5, 6), (9, 3, 8), (9, 2, 9), (9, 1, 9), (9, 0, 18), (12, 0, 20), (20, 0, 20), (2, 3, 2), (1, 3, 1)],
    )
    def test_is_adjusted_by_the_least_number_of_ready_batches(self, depth: int, least_ready: int, expected: int) -> None:
        assert adjusted(depth, 20, least_ready) == expected


class StandIn:
    """A pool with the measurements that a test gives it."""

    def __init__(self) -> None:
        self.totals = Totals()
        self.forked_pids: list[int] = []
        self.tasks_per_batch = 32
        self.batch_bytes = MIB
        self.limit_bytes = 1 << 40
        self.ready = 0
        self.grown: list[int] = []
        self.measures: list[bool] = []

    def num_ready(self, source: int) -> int:
        return self.ready

    def measure(self, *, quick_tasks: bool) -> None:
        self.measures.append(quick_tasks)

    def grow(self, num_workers: int) -> None:
        self.grown.append(num_workers)

    def work(self, busy_s: float, cpu_s: float, tasks: int = 32) -> None:
        """Workers make a batch."""
        old = self.totals
        self.totals = Totals(
            old.batches + 1,
            old.busy_s + busy_s,
            old.cpu_s + cpu_s,
            old.tasks + tasks,
            old.squares_s2 + busy_s**2 / tasks,
            old.cpu_squares_s2 + cpu_s**2 / tasks,
        )


def take(pool: StandIn, chooser: Tuner, clock: list[float], source: int = 0) -> None:
    """The loop takes a batch that it has to wait for."""
    chooser.begin_wait(pool, source)
    clock[0] += 0.02
    chooser.end_wait()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock of the tuner."""
    now = [0.0]
    monkeypatch.setattr(tuner.time, "monotonic", lambda: now[0])
    return now


def measured_by(chooser: Tuner, pool: StandIn) -> Measurement:
    """Return the measurement of the tuner's next look."""
    seen: list[Measurement] = []

    def see(before: ChosenSettings, measured: Measurement, limits: Limits) -> ChosenSettings:
        seen.append(measured)
        return before

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuner, "decide", see)
        chooser.look(pool)
    (measured,) = seen
    return measured


class TestTheTuner:
    def test_decides_nothing_before_there_is_something_to_judge_by(self, clock: list[float]) -> None:
        pool, chooser = StandIn(), Tuner(8)
        pool.work(0.001, 0.001)

        chooser.look(pool)

        assert pool.grown == []
        assert chooser.settings == ChosenSettings(4, 2, NOT_MEASURED, NOT_MEASURED)

    def test_lets_the_pool_grow_and_gives_the_reason(self, clock: list[float]) -> None:
        pool, chooser = StandIn(), Tuner(8)
        pool.work(0.64, 0.0064)

        chooser.look(pool)

        assert pool.grown == [16]
        assert (
            chooser.settings.num_workers_reason
            == "callbacks wait for 99% of their time; a larger increase waits for the next measurement"
        )

    def test_begins_with_the_given_numbers_or_one_thread(self) -> None:
        assert Tuner(8, are_threads=True).settings[:2] == (1, 2)
        assert Tuner(8, num_workers=3, depth=5).settings[:2] == (3, 5)
        assert Tuner(8, depth=3, per_worker=True).settings[:2] == (4, 12)

    def test_provides_for_as_many_workers_as_there_are_cpus(self) -> None:
        assert Tuner(100.5).most_workers == 101
        assert Tuner(2).most_workers == MOST_WORKERS
        assert Tuner(100.5, num_workers=3).most_workers == 3

    def test_decides_nothing_before_a_batch_has_been_made(self, clock: list[float]) -> None:
        pool, chooser = StandIn(), Tuner(8)
        pool.totals = Totals(batches=0.0, busy_s=1.0, cpu_s=1.0)

        chooser.look(pool)

        assert pool.grown == []

    def test_looks_as_soon_as_there_is_something_to_judge_by(self, clock: list[float]) -> None:
        pool, chooser = StandIn(), Tuner(8)  # four workers to begin with
        pool.work(0.004, 0.004)
        chooser.look(pool)
        pool.work(0.016, 0.016)
        clock[0] = 0.0041

        chooser.look(pool)

        assert pool.grown == [8]

    def test_looks_ever_more_rarely(self, clock: list[float]) -> None:
        pool, chooser = StandIn(), Tuner(8)
        looks = 0
        for _ in range(1000):
            clock[0] += 0.1
            pool.work(0.1, 0.1)
            before = len(pool.grown)
            chooser.look(pool)
            looks += len(pool.grown) - before

        assert 3 <= looks <= 6

    def test_knows_the_loops_own_time(self, clock: list[float]) -> None:
        pool, chooser = StandIn(), Tuner(64)
        for _ in range(5):
            clock[0] += 0.1  # the loop
            pool.work(0.64, 0.64)
            take(pool, chooser, clock)

        assert chooser.settings.num_workers == 16  # of the first look, which knows nothing of it
        assert "waits for the next measurement" in chooser.settings.num_workers_reason
        set_decided(chooser, chooser.settings._replace(num_workers=5, num_workers_reason=""))
        for _ in range(20):
            clock[0] += 0.1
            pool.work(0.64, 0.64)
            take(pool, chooser, clock)
        assert chooser.settings.num_workers == 8
        assert chooser.settings.num_workers_reason == "the loop takes 100 ms for a batch, and workers 640 ms"

    def test_knows_the_loop_s_own_time_where_there_are_several_sources(self, clock: list[float]) -> None:
        pool, chooser = StandIn(), Tuner(8)
        pool.work(0.4, 0.4)
        take(pool, chooser, clock)  # the first look, which knows nothing of it
        set_decided(chooser, ChosenSettings(2, 2))
        for _ in range(100):
            clock[0] += 0.11
            pool.work(0.4, 0.4)
            for source in range(3):
                take(pool, chooser, clock, source)

        assert chooser.settings.num_workers == 5
        assert chooser.settings.num_workers_reason == "the loop takes 110 ms for a batch, and workers 400 ms"

    def test_computes_fewer_batches_ahead_if_all_are_ready_and_more_if_no_batch_is(self, clock: list[float]) -> None:
        pool, chooser = StandIn(), Tuner(8)
        changes: list[int] = []
        chooser.on_deeper = changes.append

        def go_on(batches: int, ready: int) -> int:
            pool.ready = ready
            for _ in range(batches):
                take(pool, chooser, clock)
            return chooser.settings.prefetch_depth

        for busy_s in (0.64, 3.0):
            pool.work(busy_s, busy_s, tasks=1)
            chooser.look(pool)
        deepest = go_on(64, ready=0)
        reason = chooser.settings.prefetch_depth_reason
        after_a_while = go_on(63, ready=deepest), go_on(1, ready=deepest)
        missed = chooser.settings.prefetch_depth_reason
        again = go_on(64, ready=0), go_on(64, ready=0)

        assert deepest >= 8
        assert after_a_while == (deepest, 2)
        assert missed == f"{deepest - 2} more went unused"
        assert again == (4, 8)
        assert go_on(64, ready=1) == 8
        assert go_on(64 * 4, ready=0) == deepest
        assert chooser.settings.prefetch_depth_reason == reason
        assert sum(changes) == deepest - 2

    def test_leaves_a_given_depth_with_any_number_of_ready_batches(self, clock: list[float]) -> None:
        pool, chooser = StandIn(), Tuner(8, depth=9)
        changes: list[int] = []
        chooser.on_deeper = changes.append
        pool.ready = 9
        for _ in range(200):
            pool.work(0.64, 0.64)
            take(pool, chooser, clock)

        assert (chooser.settings.prefetch_depth, changes) == (9, [])

    def test_makes_no_more_batches_ahead_again_for_having_measured_again(self, clock: list[float]) -> None:
        pool, chooser = StandIn(), Tuner(8)
        for busy_s in (0.64, 3.0):
            pool.work(busy_s, busy_s, tasks=1)
            chooser.look(pool)
        deepest = pool.ready = chooser.settings.prefetch_depth
        for _ in range(64):
            take(pool, chooser, clock)
        fewer = chooser.settings.prefetch_depth

        for _ in range(30):
            clock[0] += 10.0
            pool.work(3.0, 3.0, tasks=1)
            chooser.look(pool)

        assert chooser.settings.prefetch_depth == fewer < deepest

    def test_keeps_a_depth_that_was_too_small_once(self, clock: list[float]) -> None:
        pool, chooser = StandIn(), Tuner(8)
        pool.work(0.64, 0.64, tasks=1)
        chooser.look(pool)
        pool.work(3.0, 3.0, tasks=1)
        chooser.look(pool)
        depth = chooser.settings.prefetch_depth
        for number in range(64):
            pool.ready = 1 if number == 30 else depth
            take(pool, chooser, clock)

        assert chooser.settings.prefetch_depth == depth > 2

    def test_lets_quick_tasks_be_for_a_while_when_it_has_seen_nothing_new(self, clock: list[float]) -> None:
        pool, chooser = StandIn(), Tuner(4, depth=2)
        for _ in range(3):  # the first look may be wrong; the second says the same
            clock[0] += 0.1
            pool.work(0.1, 0.1)
            take(pool, chooser, clock)
        unmeasured = list(pool.measures)
        clock[0] += 0.1
        take(pool, chooser, clock)
        before = list(pool.measures)
        clock[0] += 10.0
        take(pool, chooser, clock)

        assert (unmeasured, before, pool.measures) == ([False], [False], [False, True])

    def test_goes_by_nothing_that_was_before_such_a_while(self, clock: list[float]) -> None:
        pool, chooser = StandIn(), Tuner(4, depth=2)
        for _ in range(1000):
            clock[0] += 0.1
            if pool.measures[-1:] == [False]:  # batches, but nothing is measured
                pool.work(0.0, 0.0, tasks=1)
            else:
                pool.work(1.0, 0.01 if pool.measures else 1.0)
            take(pool, chooser, clock)
            if chooser.settings.num_workers > 4:
                break

        assert chooser.settings.num_workers_reason.startswith("the loop takes 100 ms for a batch, and workers 1e+03 ms")

    def test_takes_workers_that_wait_for_a_cpu_for_ones_that_compute(
        self, clock: list[float], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pool, chooser = StandIn(), Tuner(2)
        pool.forked_pids = [11, 12]
        waited_for_cpu_ns = 5 * 10**9  # before there was anything to measure; each
        monkeypatch.setattr(
            tuner, "read_file", lambda path: f"77000000000 {waited_for_cpu_ns} 9" if path.endswith("schedstat") else ""
        )
        chooser.begin()
        for _ in range(20):
            clock[0] += 1.0
            chooser.look(pool)
            pool.work(1.0, 0.5)
            waited_for_cpu_ns += 250_000_000

        assert chooser.settings.num_workers == 2
        assert "callbacks compute" in chooser.settings.num_workers_reason

    def test_counts_the_delays_of_workers_since_the_last_look_only(
        self, clock: list[float], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pool, chooser = StandIn(), Tuner(4)
        pool.forked_pids = [11]
        monkeypatch.setattr(tuner, "read_file", lambda path: "0 5000000000 9" if path.endswith("schedstat") else "")
        for _ in range(2):
            clock[0] += 10.0
            pool.work(1.0, 0.1)
            chooser.look(pool)

        assert (
            chooser.settings.num_workers_reason
            == "callbacks wait for 90% of their time; a larger increase waits for the next measurement"
        )

    def test_believes_workers_that_wait_at_the_first_look_however_few_cpus_there_are(self, clock: list[float]) -> None:
        pool, chooser = StandIn(), Tuner(0.5)
        pool.work(1.0, 0.1)

        chooser.look(pool)

        assert chooser.settings.num_workers == 4

    @pytest.mark.parametrize(("are_threads", "expected"), [(False, 6), (True, 4)])
    def test_knows_the_memory_that_a_process_takes_and_a_thread_does_not(
        self, are_threads: bool, expected: int, clock: list[float], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        memory = "Rss: 90000 kB\nPrivate_Clean: 1024 kB\nPrivate_Dirty: 9216 kB\n"  # 10 MiB
        pool, chooser = StandIn(), Tuner(8, are_threads=are_threads)
        pool.forked_pids = [11]
        monkeypatch.setattr(tuner, "read_file", lambda path: memory if path == "/proc/11/smaps_rollup" else "")
        monkeypatch.setattr(tuner, "available_bytes", lambda: 80 * MIB)
        pool.work(1.0, 0.01)

        chooser.look(pool)

        assert chooser.settings.num_workers == expected

    def test_does_not_count_the_time_between_two_pools_as_the_loops(self, clock: list[float]) -> None:
        chooser = Tuner(8)
        take(StandIn(), chooser, clock)
        chooser.begin()
        clock[0] += 1000.0
        pool = StandIn()
        pool.work(0.64, 0.0064)

        take(pool, chooser, clock)

        assert chooser.settings.num_workers == 16

    def test_begins_anew_with_another_pool(self, clock: list[float]) -> None:
        before, pool, chooser = StandIn(), StandIn(), Tuner(4, depth=2)
        for _ in range(3):  # until it has seen nothing new, and lets tasks be for a while
            clock[0] += 0.1
            before.work(0.64, 0.64)
            chooser.look(before)
        assert before.measures == [False]

        chooser.begin()
        pool.work(0.03, 0.03)

        assert chooser.poll_ms == 20
        chooser.look(pool)
        assert len(pool.grown) == 1
        assert chooser.poll_ms == math.inf

    def test_measures_on_where_only_the_depth_has_changed(self, clock: list[float]) -> None:
        pool, chooser = StandIn(), Tuner(8, num_workers=3)
        pool.work(0.64, 0.64)
        chooser.look(pool)
        clock[0] += 1.0
        for _ in range(10):
            pool.work(0.64, 0.0, tasks=2)
        depth = chooser.settings.prefetch_depth

        chooser.look(pool)

        assert chooser.settings.prefetch_depth > depth
        assert pool.measures == []

    def test_knows_that_the_first_tasks_take_longer(self, clock: list[float]) -> None:
        pool, chooser = StandIn(), Tuner(8, num_workers=3)
        for _ in range(10):
            pool.work(0.64, 0.0, tasks=2)

        chooser.look(pool)

        assert chooser.settings.prefetch_depth == 2

    def test_knows_the_loops_own_time_of_many_batches(self, clock: list[float]) -> None:
        pool, chooser = StandIn(), Tuner(64)
        for _ in range(10):
            clock[0] += 0.1
            pool.work(0.0, 0.0)  # nothing to judge by
            take(pool, chooser, clock)
        clock[0] += 0.1
        for _ in range(11):
            pool.work(0.64, 0.64)

        measured = measured_by(chooser, pool)

        assert measured.loop_s == pytest.approx(0.1)

    @pytest.mark.parametrize("delayed_ns", [0, 10**9])
    def test_accepts_more_workers_than_cpus_if_their_waits_for_a_cpu_are_known(
        self, delayed_ns: int, clock: list[float], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pool, chooser = StandIn(), Tuner(2)
        pool.forked_pids = [11]
        delayed = 0
        monkeypatch.setattr(tuner, "read_file", lambda path: f"0 {delayed} 9" if path.endswith("schedstat") else "")
        pool.work(10.0, 1.0)
        chooser.look(pool)
        assert chooser.settings.num_workers > 2

        clock[0] += 10.0
        pool.work(10.0, 7.0)
        delayed = delayed_ns

        waiting = measured_by(chooser, pool).waiting
        assert waiting == pytest.approx(2 / 9 if delayed_ns else 0.9)

    def test_does_not_believe_threads_that_together_take_more_than_half_of_the_gil(self, clock: list[float]) -> None:
        pool, chooser = StandIn(), Tuner(8, are_threads=True)
        pool.work(1.0, 1.0)
        chooser.look(pool)
        clock[0] += 10.0
        pool.work(20.0, 7.0)

        assert measured_by(chooser, pool).waiting == 0.0

    @pytest.mark.parametrize(
        ("cpu_s", "delayed_ns"), [(1.01, 5 * 10**9), (1.0, 0)], ids=["clocks differ", "others have come"]
    )
    def test_takes_no_worker_for_one_that_waits_for_less_than_nothing(
        self, cpu_s: float, delayed_ns: int, clock: list[float], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A worker in the place of a dead one has not waited for as long as that one."""
        pool, chooser = StandIn(), Tuner(8)
        pool.forked_pids = [11]
        delayed = 5 * 10**9
        monkeypatch.setattr(tuner, "read_file", lambda path: f"0 {delayed} 9" if path.endswith("schedstat") else "")
        pool.work(1.0, 1.0)
        chooser.look(pool)
        clock[0] += 10.0
        pool.work(1.0, cpu_s)
        delayed = delayed_ns

        assert measured_by(chooser, pool).waiting == 0.0

    @pytest.mark.parametrize(("memory", "nbytes"), [("", MIB), ("Shared_Clean: 9000 kB\nPrivate_Dirty: 2048 kB\n", 2 * MIB)])
    def test_estimates_the_private_memory_of_another_worker(
        self, memory: str, nbytes: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pool, chooser = StandIn(), Tuner(8)
        pool.forked_pids = [11]
        monkeypatch.setattr(tuner, "read_file", lambda path: memory)

        # Private: one term of a decision, which depends on many others
        assert chooser._limits(pool).worker_bytes == nbytes

    def test_does_not_believe_workers_that_wait_where_they_may_wait_for_a_cpu(self, clock: list[float]) -> None:
        pool, chooser = StandIn(), Tuner(2)
        pool.work(1.0, 0.1)
        chooser.look(pool)
        assert chooser.settings.num_workers == 8

        for _ in range(30):
            clock[0] += 10.0
            pool.work(1.0, 0.02)
            chooser.look(pool)

        assert chooser.settings.num_workers_reason == "callbacks wait for 90% of their time"

    def test_believes_a_callback_that_waits_for_half_of_its_time_at_the_second_look(self, clock: list[float]) -> None:
        pool, chooser = StandIn(), Tuner(4)
        pool.work(1.0, 0.5)
        chooser.look(pool)
        assert chooser.settings.num_workers == 4

        clock[0] += 10.0
        pool.work(1.0, 0.5)
        chooser.look(pool)

        assert chooser.settings.num_workers == 8
        assert chooser.settings.num_workers_reason == "callbacks wait for 50% of their time"

    def test_takes_a_thread_that_waits_for_the_gil_for_one_that_computes(self, clock: list[float]) -> None:
        pool, chooser = StandIn(), Tuner(8, are_threads=True)
        for _ in range(20):
            clock[0] += 0.1
            workers = chooser.settings.num_workers
            pool.work(0.1 * workers, 0.1)  # one at a time
            chooser.look(pool)

        assert chooser.settings.num_workers == 8

    def test_leaves_given_numbers_alone(self, clock: list[float]) -> None:
        pool, chooser = StandIn(), Tuner(8, num_workers=3)
        deeper: list[int] = []
        chooser.on_deeper = deeper.append
        pool.work(0.02, 0.0)
        chooser.look(pool)
        for _ in range(10):
            clock[0] += 1
            pool.work(0.64, 0.0, tasks=2)
        chooser.look(pool)

        assert (pool.grown, chooser.settings.num_workers, chooser.settings.num_workers_reason) == ([], 3, "")
        assert deeper == [chooser.settings.prefetch_depth - 2]

    def test_keeps_a_depth_that_is_given_for_each_worker(self, clock: list[float]) -> None:
        pool, chooser = StandIn(), Tuner(8, depth=3, per_worker=True)
        pool.work(0.64, 0.0)
        chooser.look(pool)

        assert (chooser.settings.num_workers, chooser.settings.prefetch_depth) == (16, 48)


def test_a_worker_measures_slow_tasks_always_and_quick_ones_when_it_is_to(monkeypatch: pytest.MonkeyPatch) -> None:
    now_ns = 0
    monkeypatch.setattr(meters, "monotonic_ns", lambda: now_ns)
    space = SharedSpace.create()
    space.allocate(control_bytes(1, 1))
    cell = memoryview(space.map)[:CELL_BYTES]
    tasks, is_unmeasured = cell[CELL_TASKS:][:8].cast("q"), cell[CELL_UNMEASURED:][:8].cast("q")
    [meter] = meters.worker_meters(space, num_sources=1, worker=0, num_workers=1, is_tuned=True)

    counts = []
    for is_unmeasured[0], took_ns in ((0, 1000), (1, 1000), (0, 1000), (0, 10**7), (1, 10**7), (1, 1000), (1, 1000)):
        watch = meter.begin()
        now_ns += took_ns
        meter.end(watch, meters.Interval(0, 0, 0, 1))
        counts.append(tasks[0])

    assert counts == [1, 1, 2, 3, 4, 5, 5]


def test_cpus_are_those_of_the_affinity_or_the_quota(tmp_path: Path) -> None:
    quota = tmp_path / "sys/fs/cgroup/cpu.max"
    quota.parent.mkdir(parents=True)
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/\n")

    quota.write_text("max 100000\n")
    unlimited = available_cpus(tmp_path)
    quota.write_text("50000 100000\n")

    assert unlimited >= 1
    assert available_cpus(tmp_path) == 0.5


# Pipelines and loaders


def sleeping(info: SampleInfo) -> Any:
    time.sleep(0.005)
    return np.int64(info.idx_in_epoch)


class Sleeping:
    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> int:
        time.sleep(0.005)
        return index


@pytest.mark.parametrize("way", ["fork", "thread"])
def test_pipeline_with_waiting_samples_gets_more_workers(way: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(sleeping, way, batch_size=32, workers="auto", prefetch_queue_depth="auto")

    assert pipe.run()[0].as_array().tolist() == list(range(32))
    first = 32
    end = time.monotonic() + DEADLINE_S
    while pipe.statistics().settings.chosen.num_workers <= available_cpus() and time.monotonic() < end:  # type: ignore[union-attr]
        assert pipe.run()[0].as_array().tolist() == list(range(first, first + 32))
        first += 32
    settings = pipe.statistics().settings.chosen

    assert settings is not None
    assert settings.num_workers > available_cpus()
    assert settings.num_workers_reason.startswith("callbacks wait for")
    if way == "fork":
        assert len(pipe.py_worker_pids) <= settings.num_workers
    for _ in range(5):  # cut for other numbers of workers, and of other depths
        assert pipe.run()[0].as_array().tolist() == list(range(first, first + 32))
        first += 32
    assert pipe.statistics().worker_restarts == 0


def test_the_chosen_number_of_workers_is_started(make_pipeline: MakePipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []
    start = ProcessWorkers.start
    monkeypatch.setattr(ProcessWorkers, "start", lambda workers, worker: (started.append(worker), start(workers, worker)))
    pipe = make_pipeline(lambda info: np.int64(info.idx_in_epoch), workers="auto")

    pipe.run()

    assert started == list(range(pipe.statistics().settings.num_workers))


def test_statistics_and_traces_know_workers_that_come_later(
    make_pipeline: MakePipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuner, "MOST_WORKERS", 6)
    pipe = make_pipeline(sleeping, batch_size=32, workers="auto", prefetch_queue_depth="auto")
    pipe.build()
    before = now = pipe.statistics()
    with pipe.trace() as trace:
        end = time.monotonic() + DEADLINE_S
        while time.monotonic() < end:
            pipe.run()
            now = pipe.statistics()
            if now.settings.num_workers > before.settings.num_workers and all(worker.tasks for worker in now.workers):
                break
    traced = {span.track.name for span in trace.records.spans if span.track.group == WORKERS}

    assert len(now.workers) == now.settings.num_workers > before.settings.num_workers == len(before.workers)
    assert [worker.pid for worker in now.workers] == pipe.py_worker_pids
    assert traced >= {f"worker {number}" for number in range(len(now.workers))}
    assert now.settings.chosen is not None
    assert now.settings.prefetch == now.settings.chosen.prefetch_depth + 1  # of the source itself


def test_statistics_since_another_time_know_workers_that_came_later() -> None:
    before = Statistics(workers=(WorkerStatistics(0, tasks=2),))
    now = Statistics(workers=(WorkerStatistics(0, tasks=5), WorkerStatistics(1, tasks=4)))

    assert [worker.tasks for worker in now.since(before).workers] == [3, 4]


def test_a_worker_that_has_come_later_has_been_there_for_less_time() -> None:
    first, second, third = np.zeros((3, METER_WORDS), np.int64)
    first[7], second[7] = 10**9, 4 * 10**9  # when they were made

    workers = worker_statistics([[Reading(first), Reading(second), Reading(third)]], [], alive_s=5.0)

    assert [worker.alive_s for worker in workers] == [5.0, 2.0, 0.0]


def always(depth: int) -> Callable[..., ChosenSettings]:
    """Return a stand-in for `decide` that chooses this depth, and no more workers, for any measurement."""
    return lambda now, seen, limits: ChosenSettings(now.num_workers, depth, "since it is", "so decided")


def test_a_pipeline_makes_as_many_batches_ahead_as_it_says(
    make_pipeline: MakePipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuner, "decide", always(8))
    begun = set()

    def source(info: SampleInfo) -> Any:
        begun.add(info.iteration)
        return sleeping(info)

    pipe = make_pipeline(source, "thread", batch_size=2, workers="auto", prefetch_queue_depth="auto")
    delivered, depth = 0, 0
    while depth < 8 and delivered < 1000:
        pipe.run()
        delivered += 1
        depth = pipe.statistics().settings.chosen.prefetch_depth  # type: ignore[union-attr]

    assert depth >= 8
    wait_until(lambda: max(begun) + 1 - delivered >= depth, "the batches ahead")


def test_a_pipeline_that_makes_fewer_batches_ahead_gives_their_memory_back(
    make_pipeline: MakePipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuner, "decide", always(9))
    pipe = make_pipeline(sleeping, "thread", batch_size=4, workers="auto", prefetch_queue_depth="auto")

    def ring() -> RingStatistics:
        pipe.run()
        return pipe.statistics().sources[0].ring

    wait_until(lambda: ring().slots > 9, "the batches ahead")
    monkeypatch.setattr(tuner, "decide", always(2))

    wait_until(lambda: ring().slots <= 5, "fewer of them")
    assert ring().making + ring().ready <= 3
    assert pipe.run()[0].as_array()[0] % 4 == 0


@pytest.mark.parametrize("way", ["fork", "thread"])
def test_a_pipeline_can_be_closed_while_it_grows(
    make_pipeline: MakePipeline, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuner, "MOST_WORKERS", 8)
    pipe = make_pipeline(sleeping, way, batch_size=32, workers="auto", prefetch_queue_depth="auto")
    pipe.build()
    before = pipe.statistics().settings.num_workers
    while pipe.statistics().settings.num_workers == before:
        pipe.run()

    pipe.close()  # some have only been asked for

    assert pipe.py_worker_pids == []


def test_ctrl_c_while_a_pipeline_grows_loses_a_batch_at_worst(
    make_pipeline: MakePipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuner, "MOST_WORKERS", 8)
    grow = Recovery.grow

    def grow_and_interrupt(self: Recovery, num_workers: int) -> None:
        if num_workers > self.num_workers:
            os.kill(os.getpid(), signal.SIGINT)
        grow(self, num_workers)

    monkeypatch.setattr(Recovery, "grow", grow_and_interrupt)
    pipe = make_pipeline(sleeping, batch_size=32, workers="auto", prefetch_queue_depth="auto")
    made: list[int] = []
    interrupted = 0

    def run() -> bool:
        nonlocal interrupted
        try:
            made.extend(pipe.run()[0].as_array().tolist())
        except KeyboardInterrupt:
            interrupted += 1
        return interrupted > 0 and len(made) >= 320

    wait_until(run, "some batches after an interrupt")
    batches = made[::32]
    assert made == [sample for first in batches for sample in range(first, first + 32)]
    assert batches == sorted(set(batches))
    assert batches[-1] // 32 < len(batches) + interrupted
    wait_until(lambda: len(pipe.py_worker_pids) == pipe.statistics().settings.num_workers, "the start of all workers")


def test_a_loader_makes_as_many_batches_ahead_as_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuner, "decide", always(8))
    drawn = []

    def sampler() -> Iterator[int]:
        for index in range(1 << 12):
            drawn.append(index)
            yield index

    loader = DataLoader(
        Sleeping(), 2, num_workers="auto", prefetch_factor="auto", multiprocessing_context="thread", sampler=sampler()
    )
    for number, _ in enumerate(loader, start=1):  # noqa: B007  # how many have been delivered
        depth = loader.statistics().settings.chosen.prefetch_depth  # type: ignore[union-attr]
        if depth >= 8:
            break

    assert depth >= 8
    assert len(drawn) // 2 - number >= depth - 1


def test_a_pool_that_grows_replaces_workers_that_die(make_pipeline: MakePipeline, tmp_path: Path) -> None:
    def dies_now_and_then(info: SampleInfo) -> Any:
        mark = tmp_path / str(info.idx_in_epoch)
        if info.idx_in_epoch % 50 == 7 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return sleeping(info)

    pipe = make_pipeline(
        dies_now_and_then, batch_size=16, workers="auto", prefetch_queue_depth="auto", py_worker_restarts=None
    )

    batches = [pipe.run()[0].as_array().tolist() for _ in range(25)]

    assert batches == [list(range(first, first + 16)) for first in range(0, 400, 16)]
    assert pipe.statistics().worker_restarts >= 8


def test_measurements_of_dead_workers_still_count(make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(sleeping, batch_size=8, workers="auto", py_worker_restarts=None)
    for _ in range(20):
        pipe.run()
    pool = pool_of(pipe)
    assert pool is not None
    before = pool.scale.totals
    for pid in pipe.py_worker_pids:
        os.kill(pid, signal.SIGKILL)

    wait_until(lambda: pipe.run() and pipe.statistics().worker_restarts > 0, "another worker")
    assert pool.scale.totals.tasks >= before.tasks
    assert pool.scale.totals.squares_s2 >= before.squares_s2


def test_workers_that_divide_an_iterable_stay_as_many(make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline([[np.int64(1)] * 4] * 3, workers="auto", source_options={"batch": True})

    assert len(list(pipe)) == 3
    settings = pipe.statistics().settings.chosen
    assert settings is not None
    assert (settings.num_workers, settings.num_workers_reason) == (first_workers(available_cpus()), "")


def test_pipeline_with_given_numbers_has_no_chosen_settings(make_pipeline: MakePipeline) -> None:
    assert make_pipeline(sleeping).statistics().settings.chosen is None


def test_loader_with_waiting_samples_gets_more_workers_and_keeps_the_number() -> None:
    loader = DataLoader(
        Sleeping(), 32, num_workers="auto", prefetch_factor="auto", multiprocessing_context="thread", sampler=range(1 << 12)
    )
    end = time.monotonic() + DEADLINE_S
    for number, batch in enumerate(loader):
        assert batch.tolist() == list(range(32 * number, 32 * number + 32))
        settings = loader.statistics().settings.chosen
        assert settings is not None
        if settings.num_workers > available_cpus() or time.monotonic() > end:
            break

    assert settings.num_workers > available_cpus()
    assert isinstance(loader.num_workers, int)
    next(iter(loader))
    assert loader.statistics().settings.chosen.num_workers >= settings.num_workers  # type: ignore[union-attr]


def test_a_number_that_the_user_sets_later_is_taken() -> None:
    loader = DataLoader(range(8), 4, num_workers="auto", multiprocessing_context="thread")
    list(loader)
    assert loader.statistics().settings.chosen is not None

    loader.num_workers = 3 + loader.num_workers
    with pytest.warns(UserWarning, match="will create"):
        list(loader)

    assert loader.statistics().settings.chosen is None


@pytest.mark.parametrize("name", ["py_num_workers", "prefetch_queue_depth"])
def test_only_auto_is_a_word_for_a_number(name: str) -> None:
    with pytest.raises(ArgumentError, match=name):
        Pipeline(1, **{name: "automatic"})
    with pytest.raises(ArgumentClashError, match="ray"):
        Pipeline(1, py_start_method="ray", **{name: "auto"})
