"""The report: the bottleneck of a loop and its figures, on one screen of text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dali_like import Pipeline
from dali_like.data import DataLoader
from dali_like.monitor.measure.diagnosis import Bottleneck
from dali_like.monitor.measure.durations import Durations
from dali_like.monitor.measure.statistics import ChosenSettings, SlowCall, Statistics
from dali_like.monitor.show.report import Report
from tests.conftest import in_both_places
from tests.monitor.made_up import everything

MakePipeline = Callable[..., Pipeline]

WIDE = 125
HIGH = 40


def test_report_begins_with_rates_and_the_bottleneck() -> None:
    lines = str(Report(everything())).splitlines()

    assert lines[0] == "Pipeline: 101 batches of 64: 20.0 batches/s, 1,280 samples/s, 200 MB/s; the first after 250 ms"
    assert lines[2] == "Bottleneck: workers"
    assert "py_num_workers=8" in str(Report(everything()))
    assert "Expected: at most 100.0 batches/s instead of 20.0, 5.0 times as many." in str(Report(everything()))


def test_report_has_the_chosen_settings_and_their_reasons() -> None:
    statistics = everything()
    chosen = ChosenSettings(64, 5, "callbacks wait for 99% of their time", "so that 64 workers have 2 tasks each")
    statistics = replace(statistics, settings=replace(statistics.settings, chosen=chosen))

    assert (
        "chosen: 64 workers, 5 batches ahead: callbacks wait for 99% of their time" in str(Report(statistics)).splitlines()
    )


def of_loader(wait_s: float, work_s: float, busy_s: float, inside_s: float) -> Statistics:
    """Return the statistics of 100 batches of a loader with two workers. All seconds are of one batch."""
    statistics = everything()
    loop = replace(statistics.loop, wait=Durations.of([wait_s] * 100), work=Durations.of([work_s] * 100))
    source = replace(statistics.sources[0], busy_s=100 * busy_s, callback_s=100 * inside_s, operators_s=0.0)
    alive_s = 100 * (wait_s + work_s)
    workers = tuple(replace(worker, busy_s=50 * busy_s, alive_s=alive_s) for worker in statistics.workers)
    settings = replace(statistics.settings, kind="loader")
    return replace(statistics, settings=settings, loop=loop, sources=(source,), workers=workers)


@pytest.mark.parametrize(
    ("seconds", "why"),
    [
        ((0.05, 0.0, 0.1, 0.095), "95% of the workers' time is spent in the dataset, which takes as long in any loader"),
        ((0.001, 0.1, 0.04, 0.01), "the loop waits 1% of the time, and the workers are busy 20% of it at most"),
        ((0.05, 0.0, 0.1, 0.05), ""),
        ((0.001, 0.1, 0.19, 0.01), ""),
    ],
    ids=["dataset", "idle workers", "neither", "busy workers"],
)
def test_report_says_when_the_loader_of_pytorch_would_be_as_fast(seconds: Any, why: str) -> None:
    text = " ".join(str(Report(of_loader(*seconds))).split())

    assert ("PyTorch's loader would be about as fast" in text) == bool(why)
    assert why in text
    assert "PyTorch's loader" not in str(Report(everything()))


def test_report_has_the_parts_of_the_time() -> None:
    text = str(Report(everything()))

    for part in (
        "the loop waits                            4.0 s     80%     38 ms     41 ms     42 ms",
        "in workers: 8.0 s in all (callback 75%, operators 12%, writing 12%); CPU 88%",
        "workers: 2 (fork) on 8 CPUs; busy 80% 80%",
        "10; 1 being made, 2 ready, 3 held, 4 free; 2.5 ready on the average",
        "sample 0 of epoch 0 10 ms",
        "copies to the GPU: 1.0 GB in 100 batches; 200 ms of the main process, 100 ms of it waiting",
        "memory behind batches: 3.0 MB; all processes 130 MB; workers restarted: 1; samples replaced: 2; errors: 0",
    ):
        assert part in text


def test_report_has_the_number_of_workers_without_a_logical_shard() -> None:
    statistics = everything(num_workers=4)
    (source,) = statistics.sources

    assert "idle" not in str(Report(replace(statistics, sources=(replace(source, logical_shards=4),))))
    text = str(Report(replace(statistics, sources=(replace(source, logical_shards=1),))))
    assert "busy 80% 80% 80% 80%; 3 without a logical shard, so idle" in text


def test_report_recommends_a_cache_if_the_samples_fit_into_memory() -> None:
    statistics = everything()
    (source,) = statistics.sources
    for_loader = replace(statistics.settings, kind="loader")
    slow = replace(statistics, sources=(replace(source, cacheable_bytes=10**9),))
    quick = replace(source, cacheable_bytes=10**9, callback_s=0.1, operators_s=0.1)

    assert "all samples take 1.0 GB, which fits into memory;" in str(Report(slow))
    assert "cache the deterministic part: fn.cache(...)" in str(Report(slow))
    text = str(Report(replace(slow, settings=for_loader)))
    assert "cache the deterministic part: dali_like.data.CachedDataset(...)" in text
    assert "cache the" not in str(Report(statistics))
    assert "cache the" not in str(Report(replace(statistics, sources=(quick,))))


@pytest.mark.parametrize(("num_sources", "num_workers"), [(1, 2), (3, 64)])
def test_report_fits_on_one_screen(num_sources: int, num_workers: int) -> None:
    lines = str(Report(everything(num_sources, num_workers))).splitlines()

    assert len(lines) <= HIGH
    assert max(map(len, lines)) <= WIDE


def test_the_expectation_may_depend_on_the_user() -> None:
    few_cpus = replace(everything(), settings=replace(everything().settings, num_cpus=1))

    assert "Expected, if that takes half as long: at most" in str(Report(few_cpus))


def test_of_nothing_there_is_a_report_too() -> None:
    assert "Bottleneck: not known yet" in str(Report(Statistics()))


def test_slow_calls_are_told_as_far_as_they_are_known() -> None:
    [source] = everything().sources
    slow = (SlowCall(9, 64, 32, 0, 1), SlowCall(8, -1, 1, 0, 7))
    text = str(Report(replace(everything(), sources=(replace(source, slowest=slow),))))

    assert "samples 64 to 95 of epoch 0" in text
    assert "one of batch 7 of epoch 0" in text


@in_both_places
def test_pipelines_make_it(make_pipeline: MakePipeline, way: str) -> None:
    pipe = make_pipeline(lambda info: np.zeros(3), way)
    assert pipe.report().diagnosis.bottleneck is Bottleneck.UNKNOWN
    for _ in range(20):
        pipe.run()
    earlier = pipe.statistics()
    assert str(pipe.report()).startswith("Pipeline: 20 batches of 4")
    for _ in range(12):
        pipe.run()

    assert str(pipe.report(since=earlier)).startswith("Pipeline: 12 batches of 4")
    pipe.close()
    assert str(pipe.report()).startswith("Pipeline: 32 batches of 4")


@pytest.mark.parametrize("workers", [0, 1])
def test_loaders_make_it(workers: int) -> None:
    loader: DataLoader[Any] = DataLoader(np.arange(48), batch_size=4, num_workers=workers)
    list(loader)

    assert str(loader.report()).startswith("Loader: 12 batches of 4")
