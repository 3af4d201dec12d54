"""Batches that nothing but garbage holds: their memory is found before its lack is an error, and is not looked for else."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dali_like import Pipeline, fn, pipeline_def
from dali_like.data import DataLoader
from dali_like.types import SampleInfo
from tests.conftest import in_both_places, time_limit

MIB = 1 << 20
LIMIT_BYTES = 24 * MIB

MakePipeline = Callable[..., Pipeline]


class Cycle:
    """Holds batches, and itself."""

    def __init__(self) -> None:
        self.batches: list[Any] = []
        self.itself = self


class Collections:
    """Counts the requests for a collection."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self._collect = gc.collect
        monkeypatch.setattr(gc, "collect", self)

    def __call__(self) -> int:
        self.count += 1
        return self._collect()


@pytest.fixture(autouse=True)
def collections(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collections]:
    """Python looks for garbage only where it is asked to."""
    gc.collect()
    gc.disable()
    with time_limit():
        yield Collections(monkeypatch)
    gc.enable()


def source(info: SampleInfo) -> NDArray[Any]:
    return np.full(MIB, info.idx_in_epoch % 251, np.uint8)


def brightened() -> Pipeline:
    """Samples whose memory an operator in the main process takes."""

    @pipeline_def(batch_size=4, num_threads=2, max_held_bytes=LIMIT_BYTES)
    def pipeline() -> Any:
        return fn.external_source(source, batch=False) + np.uint8(0)

    return pipeline()


def run_with_cycles(run: Callable[[], Any], times: int) -> list[int]:
    """Return the first elements of batches. A reference cycle keeps each batch."""
    elements = []
    for _ in range(times):
        cycle = Cycle()
        cycle.batches.append(run())
        elements.append(int(np.asarray(cycle.batches[0][0][0])[0]))
    return elements


@in_both_places
def test_garbage_that_holds_batches_is_no_lack_of_memory(
    way: str, make_pipeline: MakePipeline, collections: Collections
) -> None:
    pipe = make_pipeline(source, way, max_held_bytes=LIMIT_BYTES)

    assert run_with_cycles(pipe.run, 30) == [4 * n % 251 for n in range(30)]
    assert 1 <= collections.count <= 30


def test_garbage_that_holds_results_of_operators_is_no_lack_of_memory(collections: Collections) -> None:
    with brightened() as pipe:
        assert run_with_cycles(pipe.run, 30) == [4 * n % 251 for n in range(30)]
    assert 1 <= collections.count <= 30


def run_holding_two(pipe: Pipeline, times: int) -> None:
    kept: list[Any] = []
    for _ in range(times):
        kept = [*kept[-1:], pipe.run()]


@in_both_places
def test_less_memory_than_batches_ahead_could_use_costs_no_collection(
    way: str, make_pipeline: MakePipeline, collections: Collections
) -> None:
    pipe = make_pipeline(source, way, max_held_bytes=LIMIT_BYTES, prefetch_queue_depth=9)
    run_holding_two(pipe, 20)  # the slots from before the schema was known are gone
    before = collections.count

    run_holding_two(pipe, 20)

    assert pipe.statistics().sources[0].ring.slots < 9
    assert collections.count == before


class Samples:
    """Of 1 MiB, which say which they are."""

    def __len__(self) -> int:
        return 120

    def __getitem__(self, index: int) -> NDArray[Any]:
        return np.full(MIB, index, np.uint8)


def test_garbage_that_holds_batches_of_a_loader_is_no_lack_of_memory(collections: Collections) -> None:
    batches = iter(DataLoader(Samples(), 4, num_workers=2, multiprocessing_context="fork", max_held_bytes=LIMIT_BYTES))

    assert run_with_cycles(lambda: [next(batches)], 30) == list(range(0, 120, 4))
    assert 1 <= collections.count <= 30
