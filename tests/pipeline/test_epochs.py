"""Epochs: the arguments of callables, the end of an epoch, and the beginning of the next one."""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dali_like import Pipeline, fn, pipeline_def
from dali_like.engine.memory.batch_key import BatchKey
from dali_like.engine.pool.batch import Batch, result_of
from dali_like.feed.feed import Feed, SourcePlan
from dali_like.feed.lockstep import Lockstep
from dali_like.types import SampleInfo
from tests.conftest import in_both_places, wait_until

MakePipeline = Callable[..., Pipeline]
Source = Callable[[SampleInfo], NDArray[Any]]


def epochs_of(length: int) -> Source:
    """A source of epochs of `length` batches. Each sample is the argument of its call."""

    def source(info: SampleInfo) -> NDArray[Any]:
        if info.iteration >= length:
            raise StopIteration
        return np.array(info)

    return source


def infos_of(epoch: int, iterations: Sequence[int], batch_size: int = 4) -> list[list[SampleInfo]]:
    """The result of `epochs_of` for these iterations of an epoch."""
    return [
        [SampleInfo(iteration * batch_size + i, i, iteration, epoch) for i in range(batch_size)] for iteration in iterations
    ]


def told(batch: Sequence[Any]) -> list[SampleInfo]:
    """The samples of `epochs_of` in the first output of a batch."""
    return [SampleInfo(*map(int, np.asarray(sample))) for sample in batch[0]]


def rest_of_epoch(pipe: Pipeline) -> list[list[SampleInfo]]:
    """The batches up to the end of the epoch."""
    batches = []
    for _ in range(100):
        try:
            batches.append(told(pipe.run()))
        except StopIteration:
            return batches
    pytest.fail("the epoch does not end")


@contextlib.contextmanager
def pipeline_of(sources: Sequence[Source], ways: Sequence[str], **options: Any) -> Iterator[Pipeline]:
    """A pipeline of several sources, each "serial" or "parallel"."""

    @pipeline_def(**{"batch_size": 4, "py_num_workers": 2, **options})
    def pipeline() -> Any:
        return [
            fn.external_source(source=source, batch=False, parallel=way == "parallel")
            for source, way in zip(sources, ways, strict=True)
        ]

    with contextlib.closing(pipeline()) as pipe:
        yield pipe


def test_sample_info_counts_samples_batches_and_epochs(way: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(epochs_of(3), way)

    assert rest_of_epoch(pipe) == infos_of(0, range(3))
    pipe.reset()
    assert rest_of_epoch(pipe) == infos_of(1, range(3))


def test_callable_is_given_a_sample_info(way: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(lambda info: np.array([type(info) is SampleInfo, info.idx_in_batch == info[1]]), way)

    assert pipe.run()[0].as_array().all()


# The end of an epoch


@pytest.mark.parametrize("sample", [0, 1, 3])
def test_stop_iteration_in_any_sample_discards_the_batch(sample: int, way: str, make_pipeline: MakePipeline) -> None:
    def source(info: SampleInfo) -> NDArray[Any]:
        if info.idx_in_epoch == 2 * 4 + sample:
            raise StopIteration
        return np.array(info)

    pipe = make_pipeline(source, way)

    assert rest_of_epoch(pipe) == infos_of(0, range(2))


@pytest.mark.parametrize("size", [7, 8])
@in_both_places
def test_only_full_batches_are_delivered(size: int, way: str, make_pipeline: MakePipeline) -> None:
    def source(info: SampleInfo) -> NDArray[Any]:
        if info.idx_in_epoch >= size:
            raise StopIteration
        return np.array(info)

    pipe = make_pipeline(source, way)

    assert rest_of_epoch(pipe) == infos_of(0, range(size // 4))


def test_run_raises_stop_iteration_until_reset(way: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(epochs_of(1), way)
    pipe.run()

    for _ in range(5):
        with pytest.raises(StopIteration):
            pipe.run()

    pipe.reset()
    assert rest_of_epoch(pipe) == infos_of(1, range(1))


def test_epochs_without_batches(way: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(epochs_of(0), way)

    for _ in range(3):
        assert rest_of_epoch(pipe) == []
        pipe.reset()


def test_an_empty_epoch_between_others(way: str, make_pipeline: MakePipeline) -> None:
    def source(info: SampleInfo) -> NDArray[Any]:
        if info.iteration >= (2, 0, 1)[info.epoch_idx % 3]:
            raise StopIteration
        return np.array(info)

    pipe = make_pipeline(source, way)

    for epoch, length in enumerate((2, 0, 1, 2)):
        assert rest_of_epoch(pipe) == infos_of(epoch, range(length))
        pipe.reset()


WAYS_OF_TWO = [("parallel", "parallel"), ("serial", "parallel"), ("parallel", "serial"), ("serial", "serial")]


@pytest.mark.parametrize("ways", WAYS_OF_TWO, ids="-".join)
@pytest.mark.parametrize("lengths", [(2, 5), (5, 2)])
def test_first_source_to_stop_ends_the_epoch_for_all(lengths: tuple[int, int], ways: tuple[str, str]) -> None:
    with pipeline_of([epochs_of(length) for length in lengths], ways) as pipe:
        for epoch in range(3):
            for iteration in range(2):
                one, other = pipe.run()
                assert told([one]) == told([other]) == infos_of(epoch, [iteration])[0]
            with pytest.raises(StopIteration):
                pipe.run()
            pipe.reset()


# The next epoch


def test_reset_twice_begins_one_epoch(way: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(epochs_of(2), way)
    rest_of_epoch(pipe)

    pipe.reset()
    pipe.reset()

    assert rest_of_epoch(pipe) == infos_of(1, range(2))


@pytest.mark.parametrize("prepare", ["defined", "started", "built"])
@in_both_places
def test_reset_before_anything_was_taken_has_no_effect(prepare: str, way: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(epochs_of(2), way)
    {"defined": lambda: None, "started": pipe.start_py_workers, "built": pipe.build}[prepare]()

    pipe.reset()

    assert rest_of_epoch(pipe) == infos_of(0, range(2))


@pytest.mark.parametrize("taken", [1, 2, 3])
@in_both_places
def test_reset_in_the_middle_begins_the_next_epoch(taken: int, way: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(epochs_of(4), way)

    for epoch in range(3):
        assert [told(pipe.run()) for _ in range(taken)] == infos_of(epoch, range(taken))
        pipe.reset()

    assert rest_of_epoch(pipe) == infos_of(3, range(4))


def test_reset_when_all_was_taken_but_the_end_not_seen(way: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(epochs_of(2), way)
    pipe.run()
    pipe.run()

    pipe.reset()

    assert rest_of_epoch(pipe) == infos_of(1, range(2))


def test_reset_after_an_error_begins_the_next_epoch(way: str, make_pipeline: MakePipeline) -> None:
    def source(info: SampleInfo) -> NDArray[Any]:
        if info.epoch_idx == 0:
            raise ValueError("not in this epoch")
        return np.array(info)

    pipe = make_pipeline(source, way)
    with pytest.raises(ValueError, match="not in this epoch"):
        pipe.run()

    pipe.reset()

    assert told(pipe.run()) == infos_of(1, [0])[0]


def test_shuffling_by_epoch(way: str, make_pipeline: MakePipeline) -> None:
    def source(info: SampleInfo) -> NDArray[Any]:
        if info.idx_in_epoch >= 12:
            raise StopIteration
        return np.array(np.random.default_rng(info.epoch_idx).permutation(12)[info.idx_in_epoch])

    pipe = make_pipeline(source, way)

    epochs = [np.concatenate([batch.as_array() for (batch,) in pipe]).tolist() for _ in range(3)]

    assert epochs == [np.random.default_rng(epoch).permutation(12).tolist() for epoch in range(3)]


# In a for loop


def test_for_loop_runs_through_an_epoch_and_the_next_through_the_next(way: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(epochs_of(3), way)

    epochs = [[told(batch) for batch in pipe] for _ in range(4)]

    assert epochs == [infos_of(epoch, range(3)) for epoch in range(4)]


def test_for_loop_goes_on_with_an_epoch_that_has_not_ended(way: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(epochs_of(4), way)
    for batch in pipe:
        if told(batch)[0].iteration == 1:
            break

    rest = [told(batch) for batch in pipe]

    assert rest == infos_of(0, [2, 3])


def test_for_loop_begins_anew_after_a_break_and_reset(way: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(epochs_of(2), way)
    next(iter(pipe))

    pipe.reset()

    assert [told(batch) for batch in pipe] == infos_of(1, range(2))


def test_pipeline_is_its_own_iterator(make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(epochs_of(2), "serial")

    assert iter(pipe) is pipe
    assert told(next(pipe)) == infos_of(0, [0])[0]


# Exceptions and the end of an epoch


def test_exception_at_one_iteration_and_the_end_at_a_later_one(way: str, make_pipeline: MakePipeline) -> None:
    def source(info: SampleInfo) -> NDArray[Any]:
        if info.iteration == 1 and info.idx_in_batch == 2:
            raise ZeroDivisionError("the second batch")
        if info.iteration >= 3:
            raise StopIteration
        return np.array(info)

    pipe = make_pipeline(source, way)

    for epoch in range(2):
        assert told(pipe.run()) == infos_of(epoch, [0])[0]
        with pytest.raises(ZeroDivisionError, match="the second batch"):
            pipe.run()
        assert rest_of_epoch(pipe) == infos_of(epoch, [2])
        pipe.reset()


@pytest.mark.parametrize("batch_size", [4, 33])
@pytest.mark.parametrize(("stops", "fails"), [(1, 2), (2, 1), (0, 3), (3, 0)])
@in_both_places
def test_lowest_sample_decides_between_the_end_and_an_exception(
    stops: int, fails: int, batch_size: int, way: str, make_pipeline: MakePipeline
) -> None:
    stop_index, fail_index = stops * batch_size // 4, fails * batch_size // 4

    def source(info: SampleInfo) -> NDArray[Any]:
        if info.iteration == 1 and info.idx_in_batch == stop_index:
            raise StopIteration
        if info.iteration == 1 and info.idx_in_batch == fail_index:
            raise ZeroDivisionError
        return np.array(info)

    pipe = make_pipeline(source, way, batch_size=batch_size)
    pipe.run()

    with pytest.raises(StopIteration if stops < fails else ZeroDivisionError):
        pipe.run()


def test_lowest_sample_decides_even_behind_one_that_was_too_large(way: str, make_pipeline: MakePipeline) -> None:
    def source(info: SampleInfo) -> NDArray[Any]:
        if info.iteration == 3:
            if info.idx_in_batch == 0:
                return np.zeros(5 << 20, np.uint8)  # far more than the batches before have needed
            if info.idx_in_batch == 1:
                raise ZeroDivisionError
            if info.idx_in_batch == 30:
                raise StopIteration
        return np.zeros(info.idx_in_batch % 5 + 1, np.uint8)

    pipe = make_pipeline(source, way, batch_size=33)
    for _ in range(3):
        pipe.run()

    with pytest.raises(ZeroDivisionError):
        pipe.run()


def test_failures_beyond_the_end_are_dropped(way: str, make_pipeline: MakePipeline) -> None:
    def source(info: SampleInfo) -> NDArray[Any]:
        if info.iteration == 2:
            raise StopIteration
        if info.iteration > 2:
            raise ZeroDivisionError
        return np.array(info)

    pipe = make_pipeline(source, way, prefetch_queue_depth=4)

    for epoch in range(3):
        assert rest_of_epoch(pipe) == infos_of(epoch, range(2))
        pipe.reset()


@pytest.mark.parametrize("ways", WAYS_OF_TWO, ids="-".join)
def test_exception_of_one_source_where_another_ends(ways: tuple[str, str], tmp_path: Path) -> None:
    """The epoch ends there, and the exception is beyond it; nothing of the next epoch is delivered before `reset`."""
    ahead = tmp_path / "workers are past iteration 3"

    def failing(info: SampleInfo) -> NDArray[Any]:
        if info.iteration == 3:
            raise ZeroDivisionError
        if info.iteration > 3 or info.epoch_idx:
            ahead.touch()
        return np.array(info)

    with pipeline_of([failing, epochs_of(3)], ways, py_num_workers=1) as pipe:
        for iteration in range(3):
            assert told(pipe.run()) == infos_of(0, [iteration])[0]
        if ways == ("parallel", "parallel"):
            wait_until(ahead.exists, "that the worker is past the end of the epoch")

        with pytest.raises(StopIteration):
            pipe.run()
        with pytest.raises(StopIteration):
            pipe.run()

        pipe.reset()
        assert told(pipe.run()) == infos_of(1, [0])[0]


def test_exceptions_in_two_sources_cost_one_batch_and_the_first_is_raised(way: str) -> None:
    def failing_by(error: type[Exception]) -> Callable[[SampleInfo], NDArray[Any]]:
        def source(info: SampleInfo) -> NDArray[Any]:
            if info.iteration == 1:
                raise error
            return np.array(info)

        return source

    kind = "serial" if way == "serial" else "parallel"
    options = {} if way == "serial" else {"py_start_method": way}
    with pipeline_of([failing_by(ZeroDivisionError), failing_by(LookupError)], [kind, kind], **options) as pipe:
        pipe.run()
        with pytest.raises(ZeroDivisionError):
            pipe.run()
        one, other = pipe.run()

    assert told([one]) == told([other]) == infos_of(0, [2])[0]


# Working ahead


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
@in_both_places
def test_prefetching_does_not_change_the_batches(depth: int, way: str, make_pipeline: MakePipeline) -> None:
    options = {} if way == "serial" else {"source_options": {"prefetch_queue_depth": 5 - depth}}
    pipe = make_pipeline(epochs_of(6), way, prefetch_queue_depth=depth, **options)

    for epoch in range(2):
        assert rest_of_epoch(pipe) == infos_of(epoch, range(6))
        pipe.reset()


@pytest.mark.parametrize(("pipeline_depth", "source_depth"), [(1, 1), (1, 3), (3, 1), (4, 4)])
def test_workers_are_ahead_by_both_depths_and_no_more(
    pipeline_depth: int, source_depth: int, make_pipeline: MakePipeline, tmp_path: Path
) -> None:
    def source(info: SampleInfo) -> NDArray[Any]:
        (tmp_path / str(info.iteration)).touch()
        return np.array(info)

    pipe = make_pipeline(
        source, "fork", prefetch_queue_depth=pipeline_depth, source_options={"prefetch_queue_depth": source_depth}
    )
    pipe.run()
    last = pipeline_depth + source_depth  # the first has been delivered

    wait_until((tmp_path / str(last)).exists, "that the workers are ahead")
    pipe.close()  # and no worker is left

    assert {int(name) for name in os.listdir(tmp_path)} == set(range(last + 1))


@pytest.mark.parametrize("length", [1, 5])
def test_workers_begin_the_next_epoch_before_it_is_asked_for(
    length: int, make_pipeline: MakePipeline, tmp_path: Path
) -> None:
    def source(info: SampleInfo) -> NDArray[Any]:
        if info.epoch_idx == 0 and info.iteration >= length:
            raise StopIteration
        (tmp_path / str(info.epoch_idx)).touch()
        return np.array(info)

    pipe = make_pipeline(source, "fork")

    assert rest_of_epoch(pipe) == infos_of(0, range(length))

    wait_until((tmp_path / "1").exists, "that the workers are on the next epoch")
    pipe.reset()
    assert told(pipe.run()) == infos_of(1, [0])[0]


class LatePool:
    """A pool for which nothing is ever complete before it is waited for; it has epochs of one batch."""

    def __init__(self) -> None:
        self.submitted: list[tuple[int, int]] = []

    def submit(self, key: BatchKey) -> Batch:
        self.submitted.append((key.epoch, key.iteration))
        return Batch(key)

    def poll(self) -> None:
        pass

    def wait(self, batch: Batch) -> Sequence[Any]:
        batch.outcome = [np.zeros(4)] if batch.key.iteration == 0 else StopIteration()
        return result_of(batch)

    def cancel(self, batch: Batch) -> None:
        pass

    def close(self) -> None:
        pass


def test_next_epoch_is_submitted_when_the_end_is_seen_late() -> None:
    pool = LatePool()
    lockstep = Lockstep([Feed(SourcePlan(0, 4), pool, 3, parallel=True)])
    lockstep.next()

    with pytest.raises(StopIteration):
        lockstep.next()

    assert (1, 0) in pool.submitted


@pytest.mark.parametrize("ways", [("serial", "parallel"), ("serial", "serial")], ids="-".join)
def test_serial_source_is_not_called_for_the_next_epoch_before_reset(ways: tuple[str, str]) -> None:
    iterations: defaultdict[int, set[int]] = defaultdict(set)

    def serial(info: SampleInfo) -> NDArray[Any]:
        iterations[info.epoch_idx].add(info.iteration)
        return np.array(info)

    with pipeline_of([serial, epochs_of(2)], ways, prefetch_queue_depth=3) as pipe:
        for epoch in range(3):
            rest_of_epoch(pipe)
            with pytest.raises(StopIteration):
                pipe.run()
            assert set(iterations) == set(range(epoch + 1))
            pipe.reset()

    assert max(iterations[0]) < 2 + 3


def test_a_serial_source_is_not_called_after_its_end(make_pipeline: MakePipeline) -> None:
    asked: list[int] = []

    def source(info: SampleInfo) -> NDArray[Any]:
        asked.append(info.iteration)
        return epochs_of(2)(info)

    pipe = make_pipeline(source, "serial", prefetch_queue_depth=6)

    rest_of_epoch(pipe)

    assert max(asked) == 2


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_serial_source_is_called_ahead_by_the_depth_of_the_pipeline(depth: int, make_pipeline: MakePipeline) -> None:
    infos: list[SampleInfo] = []

    def source(info: SampleInfo) -> NDArray[Any]:
        infos.append(info)
        return np.array(info)

    pipe = make_pipeline(source, "serial", prefetch_queue_depth=depth)

    pipe.run()

    assert infos == [info for batch in infos_of(0, range(depth)) for info in batch]
