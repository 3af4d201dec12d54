"""Meters: measured and sampled times of the tasks of a source, and their counts."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from dali_like.engine.memory.space import SharedSpace
from dali_like.engine.worker import meters
from dali_like.engine.worker.meters import (
    NUM_BINS,
    NUM_OPERATORS,
    Interval,
    Meter,
    Reading,
    SlowCall,
    Stopwatch,
    bin_of,
    edges_ns,
    meter_of,
    read_meters,
)
from dali_like.types import BatchInfo, SampleInfo

US = 1_000
MS = 1_000_000


class Clock:
    """Clock that only a test advances."""

    def __init__(self) -> None:
        self.now_ns = 1

    def __call__(self) -> int:
        return self.now_ns


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Replace the system's clocks."""
    clock = Clock()
    monkeypatch.setattr(meters, "monotonic_ns", clock)
    monkeypatch.setattr(meters, "thread_time_ns", clock)
    return clock


class Worker:
    """Computes tasks with given times per sample."""

    def __init__(self, clock: Clock, meter: Meter) -> None:
        self._clock = clock
        self._meter = meter
        self._next = 0

    def compute(self, *durations_ns: int, writing_ns: int = 0, operators_ns: int | None = None) -> None:
        watch = self._meter.begin()

        def callback(info: SampleInfo) -> None:
            self._clock.now_ns += durations_ns[info.idx_in_batch]

        def with_operators(info: SampleInfo) -> None:
            inner(info)
            self._clock.now_ns += operators_ns or 0
            if watch is not None:
                watch.operator_times(2)[1] += operators_ns or 0

        inner = callback if watch is None or operators_ns is None else watch.timed_within(callback)
        outer = inner if operators_ns is None else with_operators
        call = outer if watch is None else watch.timed(outer)
        for i in range(len(durations_ns)):
            call(SampleInfo(self._next + i, i, 0, 0))
        self._clock.now_ns += writing_ns
        span = Interval(0, 0, self._next, len(durations_ns))
        self._next += len(durations_ns)
        self._meter.end(watch, span)
        self._meter.note()

    @property
    def reading(self) -> Reading:
        return self._meter.reading


@pytest.fixture
def worker(clock: Clock) -> Worker:
    return Worker(clock, Meter())


# Bins


def test_bins_are_where_their_edges_say() -> None:
    edges = edges_ns().tolist()

    for i, (begin, end) in enumerate(itertools.pairwise(edges)):
        assert bin_of(begin) == bin_of(end - 1) == i


def test_bins_grow_by_a_quarter_at_most() -> None:
    edges = edges_ns()[1:]

    assert (edges[1:] / edges[:-1]).max() <= 1.25


@pytest.mark.parametrize("ns", [0, 255, 1 << 62])
def test_every_duration_has_a_bin(ns: int) -> None:
    assert 0 <= bin_of(ns) < NUM_BINS


# Counts


def test_tasks_and_the_time_they_take_are_counted(worker: Worker) -> None:
    worker.compute(1 * US, 2 * US, writing_ns=4 * US)
    worker.compute(1 * US)

    assert (worker.reading.tasks, worker.reading.busy_ns) == (2, 8 * US)


def test_slow_calls_are_all_measured(worker: Worker) -> None:
    for _ in range(10):
        worker.compute(1 * MS, 3 * MS)

    counts = worker.reading.counts
    assert (counts[bin_of(1 * MS)], counts[bin_of(3 * MS)]) == (10, 10)
    assert worker.reading.callback_ns == 40 * MS


def test_of_fast_calls_those_of_one_task_count_for_many(worker: Worker) -> None:
    num_tasks = 255  # the last one is measured
    for _ in range(num_tasks):
        worker.compute(1 * US, 2 * US)

    counts = worker.reading.counts
    assert (counts[bin_of(1 * US)], counts[bin_of(2 * US)]) == (num_tasks, num_tasks)
    assert worker.reading.callback_ns == num_tasks * 3 * US


def test_times_of_one_task_count_for_many_too(worker: Worker) -> None:
    num_tasks = 255
    for _ in range(num_tasks):
        worker.compute(1 * US, operators_ns=2 * US, writing_ns=4 * US)

    reading = worker.reading
    times = reading.callback_ns, reading.operators_ns, reading.timed_ns, reading.cpu_ns
    assert times == (num_tasks * 1 * US, num_tasks * 2 * US, num_tasks * 7 * US, num_tasks * 7 * US)
    assert reading.each_operator_ns[:3] == (0, num_tasks * 2 * US, 0)


def test_operators_beyond_the_last_word_share_it(worker: Worker, clock: Clock) -> None:
    meter = Meter()
    watch = meter.begin()
    assert watch is not None
    times_ns = watch.operator_times(NUM_OPERATORS + 5)
    times_ns[:] = [3] * len(times_ns)
    meter.end(watch, Interval(0, 0, 0, 1))
    meter.note()

    assert meter.reading.operators_ns == 3 * (NUM_OPERATORS + 5)
    assert meter.reading.each_operator_ns == (3,) * (NUM_OPERATORS - 1) + (3 * 6,)


def test_fewer_and_fewer_of_the_fast_calls_are_measured(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[int] = []
    stopwatch = meters.Stopwatch
    monkeypatch.setattr(meters, "Stopwatch", lambda: measured.append(worker.reading.tasks) or stopwatch())
    for _ in range(4 * meters.MEASURED_EVERY):
        worker.compute(1 * US)

    assert measured == [0, 2, 6, 14, 30, 62, 126, 254, 254 + meters.MEASURED_EVERY, 254 + 2 * meters.MEASURED_EVERY]


def test_calls_that_become_slow_are_all_measured_from_the_next_task_on(worker: Worker) -> None:
    worker.compute(1 * US)
    worker.compute(1 * US)
    for _ in range(4):
        worker.compute(1 * MS)

    assert worker.reading.counts[bin_of(1 * MS)] >= 3


def test_calls_that_become_slow_by_little_are_noticed_too(worker: Worker) -> None:
    for _ in range(4):  # the last is not measured, and the next two would not be
        worker.compute(1 * US)
    worker.compute(250 * US)
    worker.compute(250 * US)

    assert worker.reading.counts[bin_of(250 * US)] == 1 + 2  # the last two calls before it were not measured


def test_the_time_of_operators_is_not_that_of_the_callback(worker: Worker) -> None:
    worker.compute(1 * MS, 1 * MS, operators_ns=2 * MS, writing_ns=3 * MS)

    reading = worker.reading
    assert (reading.callback_ns, reading.operators_ns, reading.timed_ns) == (2 * MS, 4 * MS, 9 * MS)


def test_the_reading_has_the_running_task_and_its_begin(clock: Clock) -> None:
    meter = Meter()
    clock.now_ns = 17
    watch = meter.begin()
    assert meter.reading.since_ns == 17

    meter.end(watch, Interval(0, 0, 0, 0))
    assert meter.reading.since_ns == 0


def test_the_reading_of_an_unreported_task_has_its_timed_calls(clock: Clock) -> None:
    meter = Meter()
    watch = meter.begin()
    assert watch is not None
    watch.timed(lambda _: setattr(clock, "now_ns", clock.now_ns + MS))(0)
    meter.end(watch, Interval(0, 0, 0, 1))
    clock.now_ns += MS  # while it is reported

    assert (meter.reading.tasks, meter.reading.busy_ns, sum(meter.reading.counts)) == (1, MS, 0)
    meter.note()
    reading = meter.reading
    assert (reading.tasks, reading.timed_ns, reading.cpu_ns, sum(reading.counts)) == (1, MS, MS, 1)


@pytest.mark.parametrize("persists", [True, False])
def test_reader_of_a_meter_waits_for_the_notes_of_a_reported_task(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, *, persists: bool
) -> None:
    space = SharedSpace.create()
    meter = meter_of(space, 0, 1, 2)
    watch = meter.begin()
    assert watch is not None
    watch.timed(lambda _: setattr(clock, "now_ns", clock.now_ns + MS))(0)
    meter.end(watch, Interval(0, 0, 0, 1))

    def sleep(_: float) -> None:
        clock.now_ns += MS
        if persists:
            meter.note()

    monkeypatch.setattr(meters, "sleep", sleep)
    [[_, reading]] = read_meters(space, np.zeros((1, 2), np.int64), 2)

    assert (reading.tasks, sum(reading.counts)) == (1, 1 if persists else 0)


def test_a_worker_that_is_stopped_is_waited_for_once(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    space = SharedSpace.create()
    meter, overdue = meter_of(space, 0, 1, 2), np.zeros((1, 2), np.int64)
    waits: list[int] = []

    def sleep(_: float) -> None:
        clock.now_ns += MS
        waits.append(meter.reading.tasks)

    monkeypatch.setattr(meters, "sleep", sleep)
    for _ in range(2):
        meter.end(meter.begin() or Stopwatch(), Interval(0, 0, 0, 1))
        for _ in range(3):
            assert read_meters(space, overdue, 2)[0][1].tasks == meter.reading.tasks
        meter.note()

    assert waits == [1] * 50 + [2] * 50


def test_time_without_a_cpu_is_measured(worker: Worker, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    delays = iter([100 * MS, 130 * MS, 135 * MS])
    monkeypatch.setattr(meters, "delayed_ns", lambda: next(delays))
    clock.now_ns = meters.ASK_EVERY_NS
    for _ in range(11):  # the meter reads the delay at the first, the sixth and the last
        worker.compute(meters.ASK_EVERY_NS // 5)

    assert worker.reading.delayed_ns == 35 * MS  # without the delay before the first reading


def test_the_system_tells_it() -> None:
    assert meters.delayed_ns() >= 0


# The slowest samples


def test_the_slowest_calls_are_told_by_their_samples(worker: Worker) -> None:
    durations = [1 * MS + i for i in range(20)]
    worker.compute(*durations)

    slowest = worker.reading.slowest
    assert [call.sample for call in slowest] == [19, 18, 17, 16, 15, 14, 13, 12]
    assert slowest[0] == SlowCall(1 * MS + 19, 19, 1, 0, 0)


def test_a_slow_one_among_fast_ones_is_told_by_its_task(worker: Worker) -> None:
    worker.compute(1 * US, 1 * US)
    worker.compute(1 * US, 5 * MS)

    assert worker.reading.slowest[0] == SlowCall(5 * MS, 2, 2, 0, 0)


@pytest.mark.parametrize(
    ("called_with", "first", "sample"),
    [
        (SampleInfo(70, 6, 1, 0), 64, 70),
        (BatchInfo(1, 0), 64, 64),
        (12, -1, 12),
        ("a.jpg", -1, -1),
        ((1, 2, 3, 4), -1, -1),
    ],
    ids=["sample", "batch", "index of a dataset", "text", "tuple"],
)
def test_the_slowest_call_names_its_samples(clock: Clock, called_with: Any, first: int, sample: int) -> None:
    meter = Meter()
    watch = meter.begin()
    assert watch is not None
    watch.timed(lambda _: setattr(clock, "now_ns", clock.now_ns + MS))(called_with)
    meter.end(watch, Interval(3, 1, first, 6))
    meter.note()

    assert meter.reading.slowest == [SlowCall(MS, sample, 6, 3, 1)]


def test_a_call_that_raises_is_not_measured() -> None:
    meter = Meter()
    watch = meter.begin()
    assert watch is not None
    with pytest.raises(ZeroDivisionError):
        watch.timed(lambda _: 1 // 0)(0)
    meter.end(watch, Interval(0, 0, 0, 1))
    meter.note()

    assert sum(meter.reading.counts) == 0


# Replacements of workers, and workers on other machines


def test_a_worker_that_takes_the_place_of_another_goes_on_counting(clock: Clock) -> None:
    first = Meter()
    Worker(clock, first).compute(*[2 * MS] * 8)
    watch = first.begin()  # and the worker dies
    assert watch is not None

    second = Worker(clock, Meter(first.words))
    assert second.reading.since_ns == 0
    second.compute(3 * MS)

    assert (second.reading.tasks, second.reading.busy_ns) == (2, 19 * MS)
    assert [call.duration_ns for call in second.reading.slowest] == [3 * MS] + [2 * MS] * 7


def test_measurements_taken_from_one_meter_can_be_merged_into_another(clock: Clock) -> None:
    here, there = Meter(), Meter()
    elsewhere = Worker(clock, there)
    for durations in ([1 * MS] * 5, [2 * MS] * 5):
        elsewhere.compute(*durations)
        here.merge(there.take())

    reading = here.reading
    assert (reading.tasks, reading.busy_ns, sum(reading.counts)) == (2, 15 * MS, 10)
    assert [call.duration_ns for call in reading.slowest] == [2 * MS] * 5 + [1 * MS] * 3
    assert there.reading.tasks == 0


def test_measurements_are_taken_once(clock: Clock) -> None:
    there = Meter()
    elsewhere = Worker(clock, there)
    elsewhere.compute(*[5 * MS] * 8)
    there.take()
    for ns in (1 * MS, 6 * MS):  # below and above the slowest call so far
        elsewhere.compute(ns)
        here = Meter()
        here.merge(there.take())

        assert [call.duration_ns for call in here.reading.slowest] == [ns]
        assert here.reading.tasks == 1


def test_a_meter_is_as_old_as_the_first_worker_that_has_had_it(clock: Clock) -> None:
    clock.now_ns = 5
    elsewhere = Meter()
    clock.now_ns = 17
    meter = Meter()
    clock.now_ns = 23

    assert Meter(meter.words).reading.made_ns == 17
    meter.merge(elsewhere.take())  # from a machine with another clock
    assert meter.reading.made_ns == 17


def test_a_sum_of_readings_has_the_first_begin_and_the_last_task(clock: Clock) -> None:
    clock.now_ns = 5
    idle = Meter().reading
    clock.now_ns = 17
    busy = Meter()
    busy.begin()
    none = Reading()

    for some, others in ((idle, busy.reading), (busy.reading, idle)):
        assert ((some + others).made_ns, (some + others).since_ns) == (5, 17)
    for some, others in ((none, idle), (idle, none)):
        assert ((some + others).made_ns, (some + others).since_ns) == (5, 0)


def test_readings_add_up(clock: Clock) -> None:
    workers = [Worker(clock, Meter()) for _ in range(2)]
    workers[0].compute(1 * MS)
    workers[1].compute(2 * MS, 3 * MS)

    total = workers[0].reading + workers[1].reading
    assert (total.tasks, total.callback_ns, len(total.slowest)) == (2, 6 * MS, 3)
