"""The diagnosis names the bottleneck, in made-up statistics and in loops with a deliberate one."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dali_like import Pipeline
from dali_like.data import DataLoader
from dali_like.engine.pool.settings import MOST_WORKERS, Limits, Measurement, decide
from dali_like.monitor.measure.diagnosis import Bottleneck, Diagnosis, diagnose
from dali_like.monitor.measure.durations import Durations
from dali_like.monitor.measure.statistics import (
    ChosenSettings,
    CopyStatistics,
    LoopStatistics,
    OperatorStatistics,
    Settings,
    SourceStatistics,
    Statistics,
)
from tests.conftest import wait_until

MakePipeline = Callable[..., Pipeline]
BATCHES = 100


def loop(wait_ms: float, work_ms: float, for_workers: bool = True, batches: int = BATCHES) -> LoopStatistics:
    """Return the statistics of a loop with equal times for each batch."""
    wait = Durations.of([wait_ms / 1e3] * batches)
    waited_s = wait.total_s + 0.5 if for_workers else 0.0
    return LoopStatistics(batches + 1, 0, 0, 0.5, wait, Durations.of([work_ms / 1e3] * batches), waited_s)


def source(
    busy_ms: float, place: str = "workers", cpu: float = 1.0, callback: float = 1.0, **given: Any
) -> SourceStatistics:
    """Return the statistics of a source, given the time per batch and the shares of CPU time and of the callback."""
    busy_s = busy_ms / 1e3 * BATCHES
    calls = Durations.of([busy_ms / 64e3] * 64 * BATCHES)
    return SourceStatistics(
        "external_source of load",
        place,
        batches=BATCHES,
        samples=64 * BATCHES,
        callback=calls,
        busy_s=busy_s,
        callback_s=busy_s * callback,
        cpu_s=busy_s * cpu,
        **given,
    )


def settings(workers: int = 0, cpus: int = 8, **given: Any) -> Settings:
    return Settings(batch_size=64, num_workers=workers, start_method="fork", num_cpus=cpus, prefetch=3, **given)


def diagnosis_of(statistics: Statistics) -> Diagnosis:
    found = diagnose(statistics)
    assert found.sentence.endswith(".")
    assert found.advice.endswith(".")
    assert found.speedup >= 1
    return found


# Made-up statistics


def test_of_few_batches_nothing_is_said() -> None:
    found = diagnosis_of(Statistics(loop=loop(100, 1, batches=5)))

    assert (found.bottleneck, found.speedup) == (Bottleneck.UNKNOWN, 1)


def test_of_ten_batches_something_is() -> None:
    few, enough = (Statistics(loop=loop(100, 1, batches=batches), sources=(source(9),)) for batches in (9, 10))

    assert diagnosis_of(few).bottleneck is Bottleneck.UNKNOWN
    assert diagnosis_of(enough).bottleneck is not Bottleneck.UNKNOWN


def test_before_the_first_batch_nothing_is_said_of_ends() -> None:
    assert diagnosis_of(Statistics()).sentence == "Too few batches so far: 0."


def test_of_several_sources_those_are_named_that_give_nothing() -> None:
    sources = (source(1), replace(source(0), name="external_source of nothing", batches=0))
    found = diagnosis_of(Statistics(loop=LoopStatistics(epochs=1), sources=sources))

    assert "without a single batch; empty: external_source of nothing." in found.sentence


@pytest.mark.parametrize("workers", [1, 2])
def test_a_loop_that_hardly_waits_may_have_a_worker_to_spare(workers: int) -> None:
    found = diagnosis_of(Statistics(settings=settings(workers), loop=loop(1, 99), sources=(source(90),)))

    assert ("free CPUs with fewer workers" in found.advice) == (workers > 1)


def test_a_loop_that_hardly_waits_is_the_bottleneck_itself() -> None:
    found = diagnosis_of(Statistics(settings=settings(4), loop=loop(1, 99), sources=(source(390),)))

    assert found.bottleneck is Bottleneck.LOOP
    assert found.speedup == pytest.approx(100 / 99)
    assert "works 99 ms on each batch" in found.sentence


@pytest.mark.parametrize("place", ["workers", "main process"])
def test_a_loop_that_works_nearly_all_the_time_is_so_though_callbacks_are_all_the_rest(place: str) -> None:
    is_serial = place == "main process"
    found = diagnosis_of(
        Statistics(settings=settings(0 if is_serial else 1), loop=loop(6, 94, not is_serial), sources=(source(6, place),))
    )

    assert (found.bottleneck, found.changes) == (Bottleneck.LOOP, {})
    assert "would gain 6.0% at most" in found.advice
    assert found.speedup == pytest.approx(100 / 94)


def test_a_callback_in_the_main_process_is_to_go_to_workers() -> None:
    found = diagnosis_of(Statistics(settings=settings(), loop=loop(80, 20, False), sources=(source(80, "main process"),)))

    assert found.bottleneck is Bottleneck.CALLBACK
    assert found.changes == {"py_num_workers": 5}  # enough to keep up with the loop, with a margin
    assert "parallel=True and py_num_workers=5" in found.advice
    assert found.speedup == pytest.approx(5)


def test_workers_do_nothing_about_other_waiting() -> None:
    found = diagnosis_of(Statistics(settings=settings(), loop=loop(80, 20, False), sources=(source(60, "main process"),)))

    assert found.changes == {"py_num_workers": 4}
    assert found.speedup == pytest.approx(100 / 35)


def test_of_several_sources_the_one_that_is_called_in_the_main_process_is_to_go() -> None:
    in_workers = replace(source(300), name="external_source of others")
    here = source(80, "main process")
    found = diagnosis_of(Statistics(settings=settings(4), loop=loop(80, 20, False), sources=(in_workers, here)))

    assert f": {here.name} is called in the main process" in found.sentence


def test_a_callback_that_waits_for_a_cpu_calls_for_no_more_workers_than_there_are_cpus() -> None:
    busy = source(80, "main process", cpu=0.3, delayed_s=5.6)
    found = diagnosis_of(Statistics(settings=settings(cpus=2), loop=loop(80, 1, False), sources=(busy,)))

    assert found.changes == {"py_num_workers": 2}


def test_a_callback_in_the_main_process_calls_for_no_more_workers_than_cpus() -> None:
    found = diagnosis_of(
        Statistics(settings=settings(cpus=2), loop=loop(80, 1, False), sources=(source(80, "main process"),))
    )

    assert found.changes == {"py_num_workers": 2}
    assert found.speedup == pytest.approx(81 / 40)


def test_busy_workers_are_too_few_where_cpus_are_left() -> None:
    found = diagnosis_of(Statistics(settings=settings(2), loop=loop(40, 10), sources=(source(98),)))

    assert found.bottleneck is Bottleneck.WORKERS
    assert found.changes == {"py_num_workers": 8}
    assert found.speedup == pytest.approx(50 / (98 / 8))


def test_the_proposed_number_of_workers_is_the_one_that_auto_chooses() -> None:
    found = diagnosis_of(Statistics(settings=settings(2, cpus=2), loop=loop(40, 10), sources=(source(98, cpu=0.02),)))

    limits = Limits(
        cpus=2,
        most_workers=MOST_WORKERS,
        tasks_per_batch=32,
        worker_bytes=1,
        batch_bytes=1,
        available_bytes=1 << 40,
        batches_bytes=1 << 40,
    )
    seen = Measurement(busy_s=0.098, waiting=0.98, late_s=0.0, loop_s=0.01)
    assert found.changes == {"py_num_workers": decide(ChosenSettings(8, 2), seen, limits).num_workers}


def test_workers_that_sleep_do_not_need_cpus() -> None:
    found = diagnosis_of(Statistics(settings=settings(2, cpus=2), loop=loop(40, 10), sources=(source(98, cpu=0.02),)))

    assert found.bottleneck is Bottleneck.WORKERS
    assert found.changes == {"py_num_workers": 13}
    assert found.speedup == pytest.approx(5)
    assert "concurrency=" in found.advice


@pytest.mark.parametrize(
    "given",
    [{"cpu": 0.1, "delayed_s": 2.94}, {"cpu": 0.02, "concurrency": 4}, {"cpu": 0.02, "name": "dataset Folder"}],
    ids=["but wait for a CPU", "but are coroutines", "but are a dataset's"],
)
def test_coroutines_are_not_proposed_where_callbacks_wait(given: dict[str, Any]) -> None:
    name = given.pop("name", "external_source of load")
    busy = replace(source(98, **given), name=name)
    found = diagnosis_of(Statistics(settings=settings(2), loop=loop(40, 10), sources=(busy,)))

    assert found.bottleneck is Bottleneck.WORKERS
    assert "concurrency=" not in found.advice


@pytest.mark.parametrize("given", [{}, {"callback": 0.2, "operators_s": 30.0}], ids=["callbacks", "operators"])
def test_a_little_more_of_the_cpus_is_not_worth_more_workers(given: dict[str, Any]) -> None:
    found = diagnosis_of(Statistics(settings=settings(8, cpus=9), loop=loop(40, 10), sources=(source(390, **given),)))

    assert (found.changes, found.provided) == ({}, "if that takes half as long")


def test_where_all_cpus_are_taken_the_callback_is_the_bottleneck() -> None:
    found = diagnosis_of(Statistics(settings=settings(8), loop=loop(40, 10), sources=(source(390),)))

    assert found.bottleneck is Bottleneck.CALLBACK
    assert found.changes == {}
    assert "7.8 of 8 CPUs" in found.sentence
    assert (found.speedup, found.provided) == (pytest.approx(50 / (390 / 16)), "if that takes half as long")


def test_more_workers_do_not_help_where_other_processes_have_the_cpus() -> None:
    busy = source(98, cpu=0.3, delayed_s=6.0)
    found = diagnosis_of(Statistics(settings=settings(2, cpus=2), loop=loop(40, 10), sources=(busy,)))

    assert found.bottleneck is Bottleneck.CALLBACK
    assert "2 workers use 0.6 of 2 CPUs, and would use 1.8 if they got them" in found.sentence


def test_callback_of_workers_that_share_cpus_is_the_bottleneck() -> None:
    """There are more workers than CPUs, so each gets part of one."""
    found = diagnosis_of(Statistics(settings=settings(8, cpus=2), loop=loop(40, 10), sources=(source(390, cpu=0.25),)))

    assert found.bottleneck is Bottleneck.CALLBACK


def test_writing_can_take_longer_than_the_callback() -> None:
    found = diagnosis_of(
        Statistics(settings=settings(4), loop=loop(40, 10), sources=(source(190, callback=0.2, made_bytes=10**10),))
    )

    assert found.bottleneck is Bottleneck.TRANSPORT
    assert "80% of their time writing samples into batches of 100.0 MB" in found.sentence
    assert found.speedup == pytest.approx(5)  # the loop's own work is the next limit


def test_writing_of_several_sources_together_can_take_longer_than_the_callbacks() -> None:
    sources = (source(98, callback=0.45),) * 2
    found = diagnosis_of(Statistics(settings=settings(4), loop=loop(40, 10), sources=sources))

    assert found.bottleneck is Bottleneck.TRANSPORT


def test_operators_in_workers_can_take_longest() -> None:
    found = diagnosis_of(
        Statistics(settings=settings(8), loop=loop(40, 10), sources=(source(390, callback=0.2, operators_s=30.0),))
    )

    assert found.bottleneck is Bottleneck.OPERATORS
    assert "8 workers use 7.8 of 8 CPUs" in found.advice


def test_more_workers_help_operators_too() -> None:
    found = diagnosis_of(
        Statistics(settings=settings(2), loop=loop(40, 10), sources=(source(98, callback=0.2, operators_s=7.0),))
    )

    assert (found.bottleneck, found.changes) == (Bottleneck.OPERATORS, {"py_num_workers": 8})


def test_operators_in_threads() -> None:
    waiting = replace(loop(40, 10, False), waited_for_operators_s=3.9)
    operators = OperatorStatistics(Durations.of([0.05] * BATCHES))
    few = Statistics(settings=settings(num_threads=2), loop=waiting, operators=operators)
    all_cpus = replace(few, settings=settings(num_threads=8))

    assert diagnosis_of(few).bottleneck is diagnosis_of(all_cpus).bottleneck is Bottleneck.OPERATORS
    assert diagnosis_of(few).changes == {"num_threads": 8}
    assert diagnosis_of(few).speedup == pytest.approx(4)
    assert diagnosis_of(all_cpus).changes == {}
    assert diagnosis_of(all_cpus).speedup == pytest.approx(50 / (50 - 39 / 2))


def test_copies_to_the_gpu() -> None:
    found = diagnosis_of(
        Statistics(
            settings=settings(4),
            loop=loop(40, 10, False),
            sources=(source(50),),
            copies=CopyStatistics(BATCHES, 10**10, 3.8, 3.5),
        )
    )

    assert found.bottleneck is Bottleneck.GPU_COPY
    assert "100.0 MB a batch" in found.sentence
    assert found.speedup == pytest.approx(5)


@pytest.mark.parametrize(("kind", "advice"), [("loader", "collate_fn"), ("pipeline", "fewer outputs")])
def test_batches_that_the_main_process_puts_together(kind: str, advice: str) -> None:
    found = diagnosis_of(Statistics(settings=settings(4, kind=kind), loop=loop(40, 10, False), sources=(source(50),)))

    assert advice in found.advice

    assert found.bottleneck is Bottleneck.TRANSPORT
    assert "main process needs 40 ms of it to assemble the batch" in found.sentence
    assert found.speedup == pytest.approx(5)


def test_the_main_process_waits_for_a_cpu() -> None:
    """Its work on a batch takes long because busy workers have all CPUs; the callbacks are the reason."""
    found = diagnosis_of(Statistics(settings=settings(8), loop=loop(10, 40, False), sources=(source(390),)))

    assert found.bottleneck is Bottleneck.CALLBACK
    assert "callback cheaper" in found.advice


def test_idle_workers_call_for_more_batches_ahead() -> None:
    found = diagnosis_of(Statistics(settings=settings(8), loop=loop(40, 10), sources=(source(100),)))

    assert found.bottleneck is Bottleneck.CALLBACK
    assert found.changes == {"prefetch_queue_depth": 8}
    assert "busy only 25%" in found.sentence


def test_handing_over_tiny_batches_takes_longer_than_making_them() -> None:
    found = diagnosis_of(Statistics(settings=settings(2), loop=loop(0.2, 0.01), sources=(source(0.05),)))

    assert found.bottleneck is Bottleneck.TRANSPORT


def test_one_worker_alone_may_be_able_to_make_a_source() -> None:
    found = diagnosis_of(Statistics(settings=settings(8), loop=loop(40, 10), sources=(source(48, is_bound=True),)))

    assert found.bottleneck is Bottleneck.CALLBACK
    assert "sharded=True" in found.advice
    assert found.speedup == pytest.approx(5)


@pytest.mark.parametrize(("workers", "busy_ms"), [(1, 48), (8, 20)], ids=["it is alone", "it is idle"])
def test_sharding_is_not_advised_where_it_does_not_help(workers: int, busy_ms: float) -> None:
    bound = source(busy_ms, is_bound=True)
    found = diagnosis_of(Statistics(settings=settings(workers), loop=loop(40, 10), sources=(bound,)))

    assert "sharded=True" not in found.advice


def test_workers_without_a_logical_shard_do_not_count() -> None:
    """Two of eight workers have a shard. They are saturated, so prefetching more would be wrong advice."""
    few = source(96, logical_shards=2)
    statistics = Statistics(settings=settings(8, kind="loader"), loop=loop(40, 10), sources=(few,))
    found = diagnosis_of(statistics)

    assert found.bottleneck is Bottleneck.WORKERS
    assert "2 logical shards" in found.sentence
    assert "6 of 8 workers are idle" in found.sentence
    assert "shards=" in found.advice
    assert found.speedup == pytest.approx(50 / 24)


def test_no_more_workers_than_logical_shards_are_proposed() -> None:
    few = source(48, logical_shards=3)
    found = diagnosis_of(Statistics(settings=settings(1, kind="loader"), loop=loop(40, 10), sources=(few,)))

    assert found.changes == {"num_workers": 3}


def test_arguments_of_loaders_are_called_as_loaders_do() -> None:
    serial = Statistics(settings=settings(kind="loader"), loop=loop(80, 20, False), sources=(source(80, "main process"),))
    idle = Statistics(settings=settings(8, kind="loader"), loop=loop(40, 10), sources=(source(100),))

    assert diagnosis_of(serial).changes == {"num_workers": 5}
    assert "parallel=True" not in diagnosis_of(serial).advice
    assert diagnosis_of(idle).changes == {"prefetch_factor": 1}
    assert diagnosis_of(replace(idle, settings=settings(5, kind="loader"))).changes == {"prefetch_factor": 2}


AUTO_WORKERS = ChosenSettings(2, 3, "callbacks wait for 99% of their time; a larger increase waits for the next measurement")
AUTO_DEPTH = ChosenSettings(8, 3, "", "more batches of 100 MiB would take over half of max_held_bytes")


def test_a_chosen_number_of_workers_is_explained_and_no_other_is_proposed() -> None:
    found = diagnosis_of(Statistics(settings=settings(2, chosen=AUTO_WORKERS), loop=loop(40, 10), sources=(source(98),)))

    assert (found.bottleneck, found.changes, found.provided) == (Bottleneck.WORKERS, {}, "with 8 workers")
    assert f'py_num_workers="auto" has chosen 2 so far: {AUTO_WORKERS.num_workers_reason}' in found.advice
    assert "py_num_workers=" not in found.advice.replace('py_num_workers="auto"', "")


def test_a_chosen_number_of_workers_is_explained_for_slow_operators() -> None:
    busy = source(98, callback=0.2, operators_s=7.0)
    found = diagnosis_of(Statistics(settings=settings(2, chosen=AUTO_WORKERS), loop=loop(40, 10), sources=(busy,)))

    assert (found.bottleneck, found.changes) == (Bottleneck.OPERATORS, {})
    assert 'py_num_workers="auto" has chosen 2' in found.advice


def test_batches_ahead_that_are_chosen_are_explained_with_the_knob() -> None:
    found = diagnosis_of(Statistics(settings=settings(8, chosen=AUTO_DEPTH), loop=loop(40, 10), sources=(source(100),)))

    assert found.changes == {}
    assert 'prefetch_queue_depth="auto" has chosen 3 so far: more batches of 100 MiB would take over half' in found.advice
    assert "max_held_bytes" in found.advice


def test_a_number_that_is_given_is_proposed_though_the_other_is_chosen() -> None:
    idle = Statistics(settings=settings(8, chosen=AUTO_WORKERS), loop=loop(40, 10), sources=(source(100),))
    few = Statistics(settings=settings(2, chosen=AUTO_DEPTH), loop=loop(40, 10), sources=(source(98),))

    assert diagnosis_of(idle).changes == {"prefetch_queue_depth": 8}
    assert diagnosis_of(few).changes == {"py_num_workers": 8}


def test_auto_is_enough_for_a_callback_that_is_to_go_to_workers(make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(sleep_1_ms, "serial", workers="auto")

    assert finds(Bottleneck.CALLBACK, pipe, take_20(pipe)).advice == "Let workers call it: parallel=True."


def stops(info: Any) -> Any:
    raise StopIteration


@pytest.mark.parametrize("way", ["serial", "fork"])
def test_a_source_that_gives_nothing_is_named(make_pipeline: MakePipeline, way: str) -> None:
    pipe = make_pipeline(stops, way)
    for _ in range(2):
        with pytest.raises(StopIteration):
            pipe.run()
        pipe.reset()

    found = diagnosis_of(pipe.statistics())
    assert found.bottleneck is Bottleneck.UNKNOWN
    assert "an epoch 2 times without a single batch; empty: external_source of" in found.sentence
    assert "stops." in found.sentence
    assert "without a single batch" in " ".join(str(pipe.report()).split())


@pytest.mark.parametrize("workers", [0, 1])
def test_an_empty_dataset_is_named(workers: int) -> None:
    loader: DataLoader[Any] = DataLoader([], batch_size=2, num_workers=workers)

    assert list(loader) == []
    assert "empty: dataset list." in diagnosis_of(loader.statistics()).sentence


# Real pipelines and loaders


def sleep_1_ms(info: Any) -> Any:
    time.sleep(0.001)
    return np.zeros(3)


def finds(bottleneck: Bottleneck, monitored: Pipeline | DataLoader[Any], run: Callable[[], Any]) -> Diagnosis:
    """Repeat a run until the diagnosis finds a bottleneck. Other programs may slow down single runs."""

    def diagnosis() -> Diagnosis | None:
        before = monitored.statistics()
        run()
        found = diagnosis_of(monitored.statistics().since(before))
        return found if found.bottleneck is bottleneck else None

    found: Diagnosis = wait_until(diagnosis, f"a run that is held up by {bottleneck}")
    return found


def take_20(pipe: Pipeline, work_s: float = 0.0) -> Callable[[], None]:
    def run() -> None:
        for _ in range(20):
            pipe.run()
            time.sleep(work_s)

    return run


def test_a_slow_loop_is_found(make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(lambda info: np.zeros(3), "fork")

    assert finds(Bottleneck.LOOP, pipe, take_20(pipe, work_s=0.02)).speedup < 1.1


def test_a_slow_callback_is_found(make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(sleep_1_ms, "serial")

    assert finds(Bottleneck.CALLBACK, pipe, take_20(pipe)).changes["py_num_workers"] > 1


def test_too_few_workers_are_found(make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(sleep_1_ms, "fork", workers=1, batch_size=16)

    assert finds(Bottleneck.WORKERS, pipe, take_20(pipe)).changes["py_num_workers"] > 1


@pytest.mark.parametrize(("workers", "bottleneck"), [(0, Bottleneck.CALLBACK), (1, Bottleneck.WORKERS)])
def test_too_few_workers_of_a_loader_are_found(workers: int, bottleneck: Bottleneck) -> None:
    class Sleepy:
        def __len__(self) -> int:
            return 320

        def __getitem__(self, index: int) -> Any:
            return sleep_1_ms(index)

    loader: DataLoader[Any] = DataLoader(Sleepy(), batch_size=16, num_workers=workers)

    assert finds(bottleneck, loader, lambda: list(loader)).changes["num_workers"] > 1


def test_batches_of_objects_that_the_main_process_unpickles_are_found() -> None:
    class Slow:
        def __reduce__(self) -> Any:
            return time.sleep, (0.002,)

    class Objects:
        def __len__(self) -> int:
            return 40

        def __getitem__(self, index: int) -> Any:
            return Slow()

    loader: DataLoader[Any] = DataLoader(Objects(), batch_size=2, num_workers=1, collate_fn=list)

    assert finds(Bottleneck.TRANSPORT, loader, lambda: list(loader)).speedup > 1
