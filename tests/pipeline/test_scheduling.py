"""Running pipelines by schedule_run and outputs, and that the ways to run them are not mixed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dali_like import Pipeline
from dali_like.errors import ClosedError, InputNameError, PipelineStateError
from dali_like.types import SampleInfo

MakePipeline = Callable[..., Pipeline]


def numbers(length: int | None = None) -> Callable[[SampleInfo], NDArray[Any]]:
    """A source of consecutive numbers, with so many batches in an epoch."""

    def source(info: SampleInfo) -> NDArray[Any]:
        if info.iteration == length:
            raise StopIteration
        return np.array(info.idx_in_epoch)

    return source


def first(outputs: tuple[Any, ...]) -> int:
    return int(outputs[0].at(0))


def test_batches_come_in_order(way: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(numbers(), way)

    seen = []
    for _ in range(6):
        pipe.schedule_run()
        seen.append(first(pipe.share_outputs()))
        pipe.release_outputs()

    assert seen == [0, 4, 8, 12, 16, 20]


@pytest.mark.parametrize(
    ("options", "expected"), [({}, 2), ({"prefetch_queue_depth": 3}, 3), ({"exec_pipelined": False}, 1)]
)
def test_the_first_call_schedules_as_many_batches_as_are_computed_ahead(
    options: dict[str, Any], expected: int, make_pipeline: MakePipeline
) -> None:
    pipe = make_pipeline(numbers(), "serial", **options)

    pipe.schedule_run()
    for _ in range(expected):
        assert not pipe.empty()
        pipe.outputs()

    assert pipe.empty()
    with pytest.raises(StopIteration):
        pipe.outputs()


def test_nothing_is_scheduled_at_first(make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(numbers(), "serial")

    assert pipe.empty()
    pipe.release_outputs()
    with pytest.raises(StopIteration):
        pipe.share_outputs()


@pytest.mark.parametrize("depth", [1, 2])
def test_epochs_end_at_outputs_and_begin_again_by_reset(depth: int, way: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(numbers(3), way, prefetch_queue_depth=depth)

    for _ in range(2):
        seen = []
        for _ in range(3):
            pipe.schedule_run()
            seen.append(first(pipe.outputs()))
        for _ in range(2):
            pipe.schedule_run()
            assert pipe.empty()
            with pytest.raises(StopIteration):
                pipe.outputs()
        pipe.reset()
        assert seen == [0, 4, 8]


def test_reset_drops_scheduled_batches(make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(lambda info: np.array(info.epoch_idx), "serial")
    pipe.schedule_run()

    pipe.reset()

    assert pipe.empty()
    pipe.schedule_run()
    assert first(pipe.outputs()) == 1


def test_an_exception_of_a_callback_is_raised_at_its_scheduled_batch(way: str, make_pipeline: MakePipeline) -> None:
    def source(info: SampleInfo) -> NDArray[Any]:
        if info.iteration == 1:
            raise LookupError("not this one")
        return np.array(info.iteration)

    pipe = make_pipeline(source, way, prefetch_queue_depth=1)
    pipe.schedule_run()

    with pytest.raises(LookupError, match="not this one"):
        pipe.schedule_run()
    pipe.schedule_run()

    assert [first(pipe.outputs()), first(pipe.outputs())] == [0, 2]


def test_iter_setup_is_called_for_each_batch_that_is_scheduled() -> None:
    class Counting(Pipeline):
        calls = 0

        def iter_setup(self) -> None:
            self.calls += 1
            if self.calls == 4:
                raise StopIteration

    with closing(Counting(1, 1)) as pipe:
        pipe.set_outputs(5)
        for expected in (2, 3, 4, 4):
            pipe.schedule_run()
            assert pipe.calls == expected


@pytest.mark.parametrize("call", ["schedule_run", "outputs", "share_outputs", "release_outputs"])
def test_a_pipeline_that_is_run_is_not_scheduled(call: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(numbers(), "serial")
    pipe.run()

    with pytest.raises(
        PipelineStateError,
        match=r"Mixing pipeline API type\. Currently used: PipelineAPIType\.BASIC, but trying to use "
        r"PipelineAPIType\.SCHEDULED",
    ):
        getattr(pipe, call)()
    assert first(pipe.run()) == 4


def test_a_pipeline_that_is_scheduled_is_not_run(make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(numbers(), "serial")
    pipe.schedule_run()

    for call in (pipe.run, lambda: next(pipe)):
        with pytest.raises(PipelineStateError, match=r"used: PipelineAPIType\.SCHEDULED.* use PipelineAPIType\.BASIC"):
            call()
    assert first(pipe.outputs()) == 0


def test_without_the_check_batches_come_in_order_from_run_and_outputs(make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(numbers(), "serial", prefetch_queue_depth=1)

    pipe.enable_api_check(False)
    seen = [first(pipe.run())]
    pipe.schedule_run()
    pipe.schedule_run()
    seen += [first(pipe.outputs()), first(pipe.run()), first(pipe.run())]
    pipe.enable_api_check(True)
    seen.append(first(pipe.run()))

    assert seen == [0, 4, 8, 12, 16]


@pytest.mark.parametrize("stream", [None, 0, object()])
def test_streams_are_without_effect(stream: Any, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(numbers(), "serial")
    pipe.enable_api_check(False)

    assert first(pipe.run(stream)) == 0
    pipe.schedule_run()
    assert [first(pipe.outputs(stream)), first(pipe.share_outputs(cuda_stream=stream))] == [4, 8]


def test_a_stream_has_no_name(make_pipeline: MakePipeline) -> None:
    with pytest.raises(InputNameError):
        make_pipeline(numbers(), "serial").run(cuda_stream=None)


def test_closing_drops_scheduled_batches(way: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(numbers(), way)
    pipe.schedule_run()

    pipe.close()

    assert pipe.empty()
    for call in (pipe.schedule_run, pipe.outputs):
        with pytest.raises(ClosedError):
            call()
