"""Statistics of pipelines: sources, workers and loops."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dali_like import Pipeline, fn, pipeline_def
from dali_like.engine.worker.meters import SlowCall
from dali_like.errors import ClosedError
from dali_like.monitor.measure import process_memory
from dali_like.monitor.measure.durations import Durations
from dali_like.monitor.measure.process_memory import memory_of
from dali_like.monitor.measure.statistics import RingStatistics, SourceStatistics, Statistics
from dali_like.testing.simulated_device import SimulatedDevice
from dali_like.types import BatchInfo, SampleInfo
from tests.conftest import in_both_places, wait_until
from tests.faults.processes import wait_for_processes

MakePipeline = Callable[..., Pipeline]
BATCHES = 6
#: Time of the slow sample. On a busy machine some other samples may take longer, but not so many that this one drops out of
#: the slowest of its source.
SLOW_S = 0.2


def dense(info: SampleInfo) -> Any:
    return np.full((10, 10), info.idx_in_epoch % 251, np.uint8)


def sleepy_at(slow: int, info: SampleInfo) -> Any:
    """Return a sample after a short time; take longer for the sample `slow`."""
    time.sleep(SLOW_S if info.idx_in_epoch == slow else 0.001)
    return dense(info)


sleepy = partial(sleepy_at, 5)


def slow_call(source: SourceStatistics, sample: int) -> SlowCall:
    """Return the record of a sample among the slowest of a source."""
    [call] = [call for call in source.slowest if call.sample == sample]
    assert call.duration_ns >= SLOW_S * 10**9
    return call


def run(pipe: Pipeline, batches: int = BATCHES) -> Statistics:
    for _ in range(batches):
        pipe.run()
    return pipe.statistics()


# The loop


@in_both_places
def test_before_the_first_batch_there_is_nothing(make_pipeline: MakePipeline, way: str) -> None:
    pipe = make_pipeline(dense, way)
    before = pipe.statistics()
    pipe.build()

    for statistics in (before, pipe.statistics()):
        assert (statistics.seconds, statistics.loop.batches, statistics.loop.wait.count) == (0, 0, 0)
        assert statistics.loop.batches_per_s == statistics.loop.wait_share == statistics.samples_per_s == 0


def test_the_loop_waits_or_works(make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(sleepy, "serial")
    begin = time.monotonic()
    for _ in range(BATCHES):
        pipe.run()
        time.sleep(0.002)
    pipe.run()
    took_s = time.monotonic() - begin
    loop = pipe.statistics().loop

    assert (loop.batches, loop.wait.count, loop.work.count) == (BATCHES + 1, BATCHES, BATCHES)
    assert loop.work.total_s >= BATCHES * 0.002
    assert loop.wait.total_s >= BATCHES * 4 * 0.001
    assert loop.seconds + loop.first_batch_s <= took_s


def test_the_last_batches_are_told_one_by_one(make_pipeline: MakePipeline) -> None:
    recent = run(make_pipeline(dense, "serial")).loop.recent

    assert len(recent) == BATCHES
    assert recent[0].work_ns == 0 < recent[1].work_ns
    for before, batch in itertools.pairwise(recent):
        assert batch.end_ns - before.end_ns == batch.wait_ns + batch.work_ns


def test_time_between_epochs_does_not_count_as_work(make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(dense, "serial", source_options={"size": 8})
    for _ in range(3):
        assert len(list(pipe)) == 2
    loop = pipe.statistics().loop

    assert (loop.epochs, loop.batches, loop.work.count) == (3, 6, 3)


def test_time_after_a_reset_does_not_count_as_work(make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(dense, "serial")
    for _ in range(3):
        pipe.run()
        pipe.reset()

    assert pipe.statistics().loop.work.count == 0


@in_both_places
def test_errors_are_counted(make_pipeline: MakePipeline, way: str) -> None:
    def odd(info: SampleInfo) -> Any:
        if info.iteration % 2 == 0:
            raise LookupError
        return dense(info)

    pipe = make_pipeline(odd, way)
    for iteration in range(4):
        if iteration % 2 == 0:
            with pytest.raises(LookupError):
                pipe.run()
        else:
            pipe.run()

    loop = pipe.statistics().loop
    assert (loop.errors, loop.batches) == (2, 2)
    assert loop.work.count == 0  # handling an error is not work on a batch


# Sources


@in_both_places
def test_a_source_is_told_by_its_name_and_place(make_pipeline: MakePipeline, way: str) -> None:
    [source] = run(make_pipeline(dense, way)).sources

    assert source.name == "external_source of dense"
    assert (source.place, source.unit) == ("main process" if way == "serial" else "workers", "sample")


@in_both_places
def test_batches_samples_and_bytes_are_counted(make_pipeline: MakePipeline, way: str) -> None:
    pipe = make_pipeline(dense, way, batch_size=4, source_options={"size": 20})
    assert len(list(pipe)) == 5
    [source] = pipe.statistics().sources

    assert source.batches == 5 if way == "serial" else source.batches >= 5  # workers may have begun the next epoch
    assert source.samples == 4 * source.batches
    assert source.made_bytes == pytest.approx(400 * source.batches, rel=0.5)  # the first batch has gaps


@in_both_places
def test_the_slowest_samples_are_told_by_their_index(make_pipeline: MakePipeline, way: str) -> None:
    [source] = run(make_pipeline(sleepy, way)).sources

    call = slow_call(source, 5)
    assert (call.num_samples, call.epoch, call.iteration) == (1, 0, 1)
    assert list(source.slowest) == sorted(source.slowest, reverse=True)


def test_callbacks_are_measured(make_pipeline: MakePipeline, way: str) -> None:
    [source] = run(make_pipeline(sleepy, way)).sources

    assert source.callback.count >= 4 * BATCHES
    assert source.callback.median_s >= 0.0009
    assert source.callback.p99_s >= 0.04
    assert source.callback.total_s == pytest.approx(source.callback_s, rel=0.01)
    assert source.callback_s <= source.busy_s
    assert source.cpu_s < source.busy_s / 2  # it sleeps


@in_both_places
def test_whole_batches_are_measured_as_such(make_pipeline: MakePipeline, way: str) -> None:
    def make_batch(info: BatchInfo) -> Any:
        time.sleep(0.002)
        return np.zeros((4, 3), np.uint8)

    pipe = make_pipeline(make_batch, way, source_options={"batch": True, "batch_info": True})
    [source] = run(pipe).sources

    assert (source.unit, source.slowest[0].num_samples) == ("batch", 4)
    assert source.slowest[0].sample == source.slowest[0].iteration * 4
    assert BATCHES <= source.callback.count <= BATCHES + 3


@in_both_places
def test_items_of_iterables_are_measured(make_pipeline: MakePipeline, way: str) -> None:
    def items() -> Iterator[Any]:
        for i in range(100):
            time.sleep(0.001)
            yield np.full((4, 3), i, np.uint8)

    pipe = make_pipeline(items, way, source_options={"batch": True})
    [source] = run(pipe).sources

    assert source.callback.median_s >= 0.0009
    assert source.is_bound is (way != "serial")


@in_both_places
def test_coroutines_are_measured_while_others_run(make_pipeline: MakePipeline, way: str) -> None:
    async def fetch(info: SampleInfo) -> Any:
        await asyncio.sleep(0.01)
        return dense(info)

    pipe = make_pipeline(fetch, way, batch_size=8, source_options={"concurrency": 8})
    [source] = run(pipe, 3).sources

    assert source.concurrency == 8
    assert source.callback.median_s >= 0.009
    assert source.callback.total_s > source.busy_s  # several calls at a time
    assert source.callback_s <= source.busy_s


def test_operators_in_workers_are_told_apart_from_the_callback() -> None:
    @pipeline_def(batch_size=4, num_threads=1, py_num_workers=1)
    def pipeline() -> Any:
        images = fn.external_source(lambda info: np.zeros((300, 300, 3), np.uint8), batch=False, parallel=True)
        return fn.resize(images, size=(200, 200))

    with pipeline() as pipe:
        assert set(pipe.operator_places.values()) == {"workers"}
        [source] = run(pipe).sources

    assert source.operators_s > source.callback_s > 0
    assert source.callback_s + source.operators_s + source.writing_s == pytest.approx(source.busy_s)


def test_sources_have_their_own_figures() -> None:
    @pipeline_def(batch_size=4, num_threads=1, py_num_workers=2)
    def pipeline() -> Any:
        return (
            fn.external_source(sleepy, batch=False, parallel=True),
            fn.external_source(partial(sleepy_at, 2), batch=False),
            fn.external_source(name="fed"),
            fn.external_source(lambda info: np.tile(sleepy_at(7, info), 10), batch=False, parallel=True),
        )

    with pipeline() as pipe:
        for _ in range(3):
            pipe.run(fed=np.zeros((4, 2)))
        sources = pipe.statistics().sources

    assert [source.place for source in sources] == ["workers", "main process", "workers"]
    for source, slow, sample_bytes in zip(sources, (5, 2, 7), (100, 100, 1000), strict=True):
        assert slow_call(source, slow)
        assert source.busy_s >= SLOW_S
        assert source.made_bytes / source.samples == pytest.approx(sample_bytes, rel=0.5)  # the first batch has gaps


# The ring


def test_occupied_slots_are_told() -> None:
    @pipeline_def(batch_size=4, py_num_workers=1, prefetch_queue_depth=2)
    def pipeline() -> Any:
        return fn.external_source(dense, batch=False, parallel=True, prefetch_queue_depth=2)

    def ring() -> RingStatistics:
        return pipe.statistics().sources[0].ring

    with pipeline() as pipe:
        held = [pipe.run() for _ in range(3)]
        # Private: may be None here
        pool: Any = pipe._runtime
        wait_until(lambda: pool.process_pool.poll() or ring().ready == 4, "batches that are ready")

        assert (ring().making, ring().held, len(held)) == (0, 3, 3)
        assert ring().slots == ring().making + ring().ready + ring().held + ring().free
        assert pipe.statistics().settings.prefetch == 4
        assert 0 < ring().mean_ready <= 5  # the pipeline begins one more batch while the loop waits

        held.clear()
        assert (ring().making, ring().ready, ring().held, ring().free) == (0, 4, 0, 3)


# Workers


def test_workers_are_listed_with_their_tasks(make_pipeline: MakePipeline, start_method: str) -> None:
    pipe = make_pipeline(sleepy, start_method, workers=2)
    run(pipe)
    wait_until(lambda: all(worker.tasks for worker in run(pipe, 1).workers), "a task of each worker")
    statistics = pipe.statistics()

    assert [worker.pid for worker in statistics.workers] == pipe.py_worker_pids
    assert sum(worker.tasks for worker in statistics.workers) >= 2 * BATCHES
    for worker in statistics.workers:
        assert 0 < worker.busy_s <= worker.alive_s + worker.on_task_s
        assert 0 < worker.busy_share <= 1
    assert (statistics.settings.num_workers, statistics.settings.start_method) == (2, start_method)


def test_statistics_have_the_time_on_the_current_task(make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(lambda info: threading.Event().wait(60), "fork", workers=1)
    pipe.build()

    def ask() -> None:
        with pytest.raises(ClosedError):
            pipe.run()

    thread = threading.Thread(target=ask)
    thread.start()
    wait_until(lambda: any(worker.on_task_s > 0.01 for worker in pipe.statistics().workers), "a task")
    pipe.close()
    thread.join()


def test_measurements_of_a_dead_worker_stay(make_pipeline: MakePipeline, tmp_path: Path) -> None:
    def die_once(info: SampleInfo) -> Any:
        if info.idx_in_epoch == 12 and not (tmp_path / "died").exists():
            (tmp_path / "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return sleepy(info)

    statistics = run(make_pipeline(die_once, "fork", workers=1))

    assert statistics.worker_restarts == 1
    assert statistics.workers[0].tasks >= 2 * BATCHES
    assert statistics.sources[0].callback.count >= 4 * BATCHES - 2  # the lost task is not counted
    assert slow_call(statistics.sources[0], 5)


def test_the_time_the_loop_waits_for_workers_is_told(make_pipeline: MakePipeline) -> None:
    loop = run(make_pipeline(sleepy, "fork")).loop

    assert 0 < loop.waited_for_workers_s <= loop.wait.total_s + loop.first_batch_s


# Operators in threads, copies to a GPU


def test_operators_in_threads_are_measured(make_pipeline: MakePipeline) -> None:
    @pipeline_def(batch_size=4, num_threads=2)
    def pipeline() -> Any:
        return fn.resize(fn.external_source(lambda info: np.zeros((300, 300, 3), np.uint8), batch=False), size=(200, 200))

    with pipeline() as pipe:
        statistics = run(pipe)

    assert BATCHES <= statistics.operators.batches.count <= BATCHES + 2
    assert statistics.operators.batches.median_s > 0
    assert statistics.loop.waited_for_operators_s > 0
    assert statistics.settings.num_threads == 2


def test_copies_are_measured(gpus: list[SimulatedDevice]) -> None:
    @pipeline_def(batch_size=4, num_threads=2, device_id=0)
    def pipeline() -> Any:
        return fn.external_source(dense, batch=False).gpu()

    with pipeline() as pipe:
        copies = run(pipe).copies

    assert copies.batches >= BATCHES
    assert copies.copied_bytes == 400 * copies.batches
    assert 0 <= copies.waited_s <= copies.host_s


# Memory


def test_memory_is_told_when_it_is_asked_for(make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(dense, "fork")
    pipe.build()
    wait_until(lambda: len(pipe.py_worker_pids) == 2, "workers")

    assert pipe.statistics().memory is None
    memory = pipe.statistics(memory=True).memory
    assert memory is not None
    assert memory.main_bytes > 1 << 20
    assert len(memory.worker_bytes) == 2
    assert all(nbytes > 1 << 16 for nbytes in (*memory.worker_bytes, memory.forkserver_bytes))
    assert memory.total_bytes == memory.main_bytes + sum(memory.worker_bytes) + memory.forkserver_bytes


def test_memory_of_the_reserve_counts(make_pipeline: MakePipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = make_pipeline(dense, "fork")
    forkserver, reserve, *_ = wait_for_processes(pipe)
    monkeypatch.setattr(process_memory, "pss_bytes", lambda pid: {forkserver: 1, reserve: 2}.get(pid, 0))

    memory = pipe.statistics(memory=True).memory

    assert memory is not None
    assert memory.forkserver_bytes == 3


def test_threads_of_this_process_have_no_memory_of_their_own() -> None:
    with_thread = memory_of([threading.get_native_id()])

    assert (with_thread.worker_bytes, with_thread.forkserver_bytes) == ((), 0)


# Statistics since an earlier moment, and after the end


@in_both_places
def test_a_part_of_the_time_can_be_told(make_pipeline: MakePipeline, way: str) -> None:
    pipe = make_pipeline(sleepy, way)
    before = run(pipe)
    part = run(pipe, 3).since(before)

    assert (part.loop.batches, part.loop.wait.count, len(part.loop.recent)) == (3, 3, 3)
    assert part.loop.first_batch_s == 0
    assert 0 < part.seconds < pipe.statistics().seconds
    assert part.sources[0].callback.count < pipe.statistics().sources[0].callback.count
    assert part.settings == before.settings


def test_a_part_without_measured_calls_has_the_earlier_durations() -> None:
    source = SourceStatistics("source", callback=Durations.of([1e-6] * 9), busy_s=9.0, callback_s=6.0, cpu_s=3.0)
    before = Statistics(sources=(source,))
    part = Statistics(sources=(replace(source, busy_s=12.0, callback_s=8.0, cpu_s=4.0),)).since(before).sources[0]

    assert part.callback == source.callback
    assert (part.busy_s, part.callback_s, part.cpu_s) == (3.0, 2.0, 1.0)


@in_both_places
def test_after_the_end_they_stay_as_they_were(make_pipeline: MakePipeline, way: str) -> None:
    pipe = make_pipeline(sleepy, way)
    before = run(pipe)
    pipe.close()
    after = pipe.statistics()

    assert after.loop == before.loop
    assert after.sources[0].callback.count >= before.sources[0].callback.count
    assert [worker.pid for worker in after.workers] == [0] * len(before.workers)
    assert pipe.statistics() is after


def test_other_threads_may_ask_meanwhile(make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(dense, "fork")
    errors: list[Exception] = []
    ends = threading.Event()

    def ask() -> None:
        while not ends.is_set():
            try:
                pipe.statistics(memory=True)
                str(pipe.report())
            except Exception as error:
                errors.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    for _ in range(3):
        run(pipe, 50)
        pipe.reset()
    pipe.close()
    ends.set()
    thread.join()

    assert errors == []
