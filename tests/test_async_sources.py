"""Coroutine functions as sources: several samples in the making at once, and what becomes of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dali_like import Pipeline, errors, fn
from dali_like.types import SampleInfo

MakePipeline = Callable[..., Pipeline]

LENGTH = 20


async def numbers(info: SampleInfo) -> Any:
    await asyncio.sleep(0)
    if info.idx_in_epoch >= LENGTH:
        raise StopIteration
    return np.int64(info.idx_in_epoch)


def samples_in(pipe: Any) -> list[int]:
    return [int(sample) for (batch,) in pipe for sample in batch.as_array()]


def test_samples_come_in_order(way: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(numbers, way)

    assert [samples_in(pipe) for _ in range(2)] == [list(range(LENGTH))] * 2


def test_objects_that_are_called_with_await(way: str, make_pipeline: MakePipeline) -> None:
    class Source:
        async def __call__(self, info: SampleInfo) -> Any:
            return await numbers(info)

    assert samples_in(make_pipeline(Source(), way)) == list(range(LENGTH))


@pytest.mark.parametrize(("concurrency", "at_once"), [(1, 1), (3, 3), (None, 4)])
def test_as_many_samples_are_made_at_once_as_is_said(
    concurrency: int | None, at_once: int, make_pipeline: MakePipeline
) -> None:
    making, most = set(), []

    async def source(info: SampleInfo) -> Any:
        making.add(info.idx_in_batch)
        most.append(len(making))
        for _ in range(10):
            await asyncio.sleep(0)
        making.discard(info.idx_in_batch)
        return np.int64(info.idx_in_epoch)

    make_pipeline(source, "serial", source_options={"concurrency": concurrency}).run()

    assert max(most) == at_once


def test_samples_that_wait_for_each_other(way: str, make_pipeline: MakePipeline) -> None:
    """With two samples a worker and batch, the first goes on when the second has come."""

    class Pairs:
        def __init__(self) -> None:
            self.events: dict[tuple[int, int], asyncio.Event] = {}

        async def __call__(self, info: SampleInfo) -> Any:
            pair = self.events.setdefault((info.iteration, info.idx_in_batch // 2), asyncio.Event())
            if info.idx_in_batch % 2:
                pair.set()
            await pair.wait()
            return np.int64(info.idx_in_epoch)

    batch = make_pipeline(Pairs(), way).run()[0]

    assert batch.as_array().tolist() == [0, 1, 2, 3]


def test_lowest_sample_that_fails_is_raised(way: str, make_pipeline: MakePipeline) -> None:
    async def source(info: SampleInfo) -> Any:
        for _ in range(4 - info.idx_in_batch):  # the higher one fails earlier
            await asyncio.sleep(0)
        if info.iteration == 1 and info.idx_in_batch in (1, 2):
            raise ValueError(info.idx_in_batch)
        return np.int64(info.idx_in_epoch)

    pipe = make_pipeline(source, way)
    pipe.run()

    with pytest.raises(ValueError, match="1") as info:
        pipe.run()
    assert "sample 1 of iteration 1" in info.value.__notes__[0]
    assert pipe.run()[0].as_array().tolist() == [8, 9, 10, 11]


def test_samples_that_fail_are_replaced(way: str, make_pipeline: MakePipeline) -> None:
    async def source(info: SampleInfo) -> Any:
        await asyncio.sleep(0)
        if info.idx_in_epoch in (1, 6):
            raise ValueError
        return await numbers(info)

    pipe = make_pipeline(source, way, source_options={"on_error": "skip"})

    assert samples_in(pipe) == [0, 2, 2, 3, 4, 5, 7, 7, *range(8, LENGTH)]


def test_random_numbers_and_places_are_those_of_the_sample(way: str, make_pipeline: MakePipeline) -> None:
    async def source(info: SampleInfo) -> Any:
        array = info.empty((2,), np.int64)
        await asyncio.sleep(0)
        array[:] = info.idx_in_epoch, info.rng().integers(1 << 30)
        return array

    first, second = (make_pipeline(source, way, seed=5) for _ in range(2))

    for _ in range(3):
        batch = first.run()[0].as_array().tolist()
        assert batch == second.run()[0].as_array().tolist()
        assert len({number for _, number in batch}) == 4


def test_inside_a_running_event_loop(make_pipeline: MakePipeline) -> None:
    async def notebook() -> list[int]:
        return samples_in(make_pipeline(numbers, "serial"))

    assert asyncio.run(notebook()) == list(range(LENGTH))


def test_setup_may_be_a_coroutine_function(way: str, make_pipeline: MakePipeline) -> None:
    class Source:
        factor = 0

        async def open(self) -> None:
            await asyncio.sleep(0)
            self.factor = 3

        async def __call__(self, info: SampleInfo) -> Any:
            return np.int64(info.idx_in_epoch * self.factor)

    source = Source()
    pipe = make_pipeline(source, way, source_options={"worker_setup": source.open})

    assert pipe.run()[0].as_array().tolist() == [0, 3, 6, 9]


def test_concurrency_of_plain_functions_is_refused() -> None:
    with pytest.raises(errors.ArgumentError, match="async def"):
        fn.external_source(lambda info: np.zeros(1), batch=False, concurrency=2)
