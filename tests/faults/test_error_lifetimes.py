"""Errors without a reference are freed at once, and their batches with them, without a garbage collection."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dali_like import Pipeline, fn, pipeline_def
from dali_like.data import DataLoader
from dali_like.types import SampleInfo

MIB = 1 << 20

MakePipeline = Callable[..., Pipeline]


@pytest.fixture(autouse=True)
def _without_garbage_collection() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


class NoSuchSampleError(Exception):
    """One to which there can be weak references."""


class Indices:
    """A sampler of the values that a function yields."""

    def __init__(self, function: Callable[[], Iterator[Any]]) -> None:
        self.function = function

    def __iter__(self) -> Iterator[Any]:
        return self.function()


def error_of(call: Callable[[], Any]) -> weakref.ref[Exception]:
    """Return the error that a call raises, without another reference to it."""
    try:
        call()
    except Exception as error:
        return weakref.ref(error)
    pytest.fail("there has been no error")


def test_no_memory_for_results_of_operators() -> None:
    @pipeline_def(batch_size=4, num_threads=2, max_held_bytes=24 * MIB)
    def pipeline() -> Any:
        return fn.external_source(lambda info: np.full(MIB, info.iteration, np.uint8), batch=False) + np.uint8(0)

    with pipeline() as pipe:
        held: list[Any] = []

        def hold_all() -> None:
            while True:
                held.append(pipe.run())

        error = error_of(hold_all)

        assert error() is None
        num_held = len(held)
        held.clear()
        assert pipe.run()[0].at(0)[0] == num_held


def test_errors_of_a_source_in_front_of_operators_do_not_keep_those_before_them() -> None:
    def source(info: SampleInfo) -> NDArray[np.uint8]:
        if info.iteration % 2:
            raise NoSuchSampleError
        return np.zeros(1, np.uint8)

    @pipeline_def(batch_size=1, num_threads=1)
    def pipeline() -> Any:
        return fn.external_source(source, batch=False) + np.uint8(0)

    with pipeline() as pipe:
        errors = []
        for _ in range(8):
            pipe.run()
            errors.append(error_of(pipe.run))
        gc.collect()

        assert [error() for error in errors[:6]] == [None] * 6  # that which is raised next may keep the last


def test_no_memory_for_a_batch(make_pipeline: MakePipeline) -> None:
    def source(info: SampleInfo) -> NDArray[np.uint8]:
        return np.full(MIB, info.idx_in_epoch, np.uint8)

    pipe = make_pipeline(source, "serial", max_held_bytes=24 * MIB)
    held: list[Any] = []

    def hold_all() -> None:
        while True:
            held.append(pipe.run())

    error = error_of(hold_all)

    assert error() is None
    num_held = len(held)
    held.clear()
    assert pipe.run()[0].at(0)[0] == 4 * num_held


def test_an_exception_in_a_callback(way: str, make_pipeline: MakePipeline) -> None:
    def source(info: SampleInfo) -> np.int64:
        if info.iteration == 1:
            raise NoSuchSampleError
        return np.int64(info.idx_in_epoch)

    pipe = make_pipeline(source, way)
    pipe.run()

    error = error_of(pipe.run)

    assert error() is None


def test_error_of_a_sampler_before_its_turn_is_freed_with_the_iterator() -> None:
    """It has been raised while the first batch was waited for, and does not keep the pass."""

    def indices() -> Iterator[list[int]]:
        yield [0]
        raise NoSuchSampleError

    loader = DataLoader(range(3), batch_sampler=Indices(indices), num_workers=1, multiprocessing_context="fork")
    batches = iter(loader)
    assert next(batches).tolist() == [0]

    dropped = weakref.ref(batches)
    del batches

    assert dropped() is None
