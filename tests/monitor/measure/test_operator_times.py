"""Statistics, report, trace and picture show the same time for each operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dali_like import Pipeline, fn, pipeline_def
from dali_like.monitor.measure.durations import Durations
from dali_like.monitor.measure.statistics import OperatorTime
from dali_like.monitor.trace import chrome
from dali_like.monitor.trace.trace_records import CALLBACK, PART_OF, Records, Span
from dali_like.types import SampleInfo
from tests.monitor.made_up import everything

BATCHES, BATCH = 3, 4
NAMES = ["fn.gaussian_blur_0", "fn.resize_1"]

Blurred = Callable[..., Pipeline]


def image(info: SampleInfo) -> Any:
    if info.iteration >= BATCHES:
        raise StopIteration
    return np.full((16, 16, 3), info.idx_in_batch, np.uint8)


@pytest.fixture
def blurred() -> Iterator[Blurred]:
    """``blurred(parallel=, py_start_method=, ...)``: a pipeline of two operators behind a source."""
    made = []

    def make(source: Any = image, *, parallel: bool, **options: Any) -> Pipeline:
        @pipeline_def(batch_size=BATCH, py_num_workers=2, **options)
        def pipeline() -> Any:
            images = fn.external_source(source, batch=False, parallel=parallel)
            return fn.resize(fn.gaussian_blur(images, window_size=5), size=[8, 8])

        made.append(pipeline())
        return made[-1]

    yield make
    for pipe in made:
        pipe.close()


def parts_of(records: Records) -> list[Span]:
    return [span for span in records.spans if PART_OF in span.details]


def total_s(records: Records, name: str) -> float:
    return sum(span.end_ns - span.begin_ns for span in records.spans if span.name == name) / 1e9


@pytest.mark.parametrize("start_method", ["thread", "fork"])
def test_of_operators_in_workers_trace_and_statistics_agree(blurred: Blurred, start_method: str) -> None:
    pipe = blurred(parallel=True, py_start_method=start_method, num_threads=1)
    with pipe.trace() as trace:
        for _ in pipe:
            pass
    [source] = pipe.statistics().sources

    assert [each.name for each in source.operator_times] == NAMES
    for each in source.operator_times:
        # The tasks of the last batches are in one of the two alone, where the epoch ended in them.
        assert total_s(trace.records, each.name) == pytest.approx(each.seconds, rel=0.5)
        assert each.seconds > 0
    assert sum(each.seconds for each in source.operator_times) == pytest.approx(source.operators_s)
    assert {span.details[PART_OF] for span in parts_of(trace.records)} == {"external_source of image"}


def test_parts_lie_in_their_task_one_after_another(blurred: Blurred) -> None:
    pipe = blurred(parallel=True, py_start_method="thread", num_threads=1)
    with pipe.trace() as trace:
        for _ in range(BATCHES):
            pipe.run()
    tasks = [span for span in trace.records.spans if span.name == "external_source of image" and "ended" not in span.details]

    assert sum(int(span.details["iteration"]) < BATCHES for span in tasks) >= BATCHES
    for task in tasks:
        where = {**task.details, PART_OF: task.name}
        parts = [span for span in parts_of(trace.records) if span.details == where and span.track == task.track]
        assert [span.name for span in parts] == [CALLBACK, *NAMES]
        assert parts[0].begin_ns == task.begin_ns
        assert [span.begin_ns for span in parts[1:]] == [span.end_ns for span in parts[:-1]]
        assert parts[-1].end_ns <= task.end_ns


def test_of_operators_in_threads_trace_and_statistics_agree(blurred: Blurred) -> None:
    pipe = blurred(parallel=False, num_threads=2)
    with pipe.trace() as trace:
        for _ in range(BATCHES):
            pipe.run()
    times = pipe.statistics().operators.operator_times

    assert [each.name for each in times] == NAMES
    for each in times:
        assert total_s(trace.records, each.name) == pytest.approx(each.seconds)
    assert {span.details[PART_OF] for span in parts_of(trace.records)} == {"operators"}


def test_of_coroutines_the_operators_are_measured_too(blurred: Blurred) -> None:
    async def slowly(info: SampleInfo) -> Any:
        return image(info)

    pipe = blurred(slowly, parallel=True, py_start_method="thread", num_threads=1)
    for _ in pipe:
        pass
    [source] = pipe.statistics().sources

    assert all(each.seconds > 0 for each in source.operator_times)


@pipeline_def(batch_size=BATCH, num_threads=1, py_num_workers=1, py_start_method="thread", enable_conditionals=True)
def branching() -> Any:
    images = fn.external_source(image, batch=False, parallel=True)
    if fn.reductions.max(images) > 200:
        images = fn.gaussian_blur(images, window_size=5)
    return images


def test_operators_of_a_branch_that_no_sample_takes_take_no_time() -> None:
    pipe = branching()
    for _ in pipe:
        pass
    times = {each.name.rpartition("_")[0]: each.seconds for each in pipe.statistics().sources[0].operator_times}
    pipe.close()

    assert times["fn.reductions.max"] > 0
    assert times["fn.gaussian_blur"] == 0


def test_a_difference_of_statistics_has_that_of_operators() -> None:
    def after(seconds: float) -> Any:
        statistics = everything()
        [source] = statistics.sources
        times = (OperatorTime("fn.resize_0", seconds), OperatorTime("fn.flip_1", 1.0))
        calls = Durations.of([0.001] * round(seconds))
        return replace(statistics, sources=(replace(source, operator_times=times, callback=calls),))

    [part] = after(3.0).since(after(1.0)).sources
    assert part.operator_times == (OperatorTime("fn.resize_0", 2.0), OperatorTime("fn.flip_1", 0.0))


def test_the_difference_to_the_time_before_the_start_is_the_whole(blurred: Blurred) -> None:
    pipe = blurred(parallel=False, num_threads=1)
    before = pipe.statistics()
    pipe.run()

    [source] = pipe.statistics().since(before).sources
    assert (before.sources, source.samples) == ((), pipe.statistics().sources[0].samples)


def test_a_trace_has_a_diagnosis(blurred: Blurred, tmp_path: Path) -> None:
    pipe = blurred(parallel=False, num_threads=1)
    with pipe.trace(tmp_path / "run.json") as trace:
        pipe.run()

    assert trace.records.diagnosis["bottleneck"] == "not known yet"
    assert trace.records.diagnosis["sentence"] == "Too few batches so far: 1."
    assert chrome.load(tmp_path / "run.json").diagnosis == trace.records.diagnosis
