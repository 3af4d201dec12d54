"""The process that computes a batch, and the place of its results."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import numpy as np
import pytest

from dali_like import Pipeline, fn, types
from dali_like.common import work_sharing
from dali_like.engine.memory.ring import Lease
from dali_like.errors import SampleError
from dali_like.graph.execution.computation import Computation

FOREVER_NS = 1 << 60


def set_limits(monkeypatch: pytest.MonkeyPatch, limit_ns: int) -> None:
    """Let the calling thread compute batches that take less."""
    monkeypatch.setattr(work_sharing, "SHORT_NS", limit_ns)
    monkeypatch.setattr(work_sharing, "LONG_NS", limit_ns)


@contextmanager
def running(define: Callable[[Any], Any], batch: Any) -> Iterator[Pipeline]:
    with closing(Pipeline(3, num_threads=2)) as pipe:
        with pipe:
            results = define(fn.external_source(lambda: batch))
            pipe.set_outputs(*results)
        yield pipe


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each batch was computed by the calling thread."""
    caller, noted, compute = threading.get_ident(), [], Computation.compute

    def noting(self: Computation, *args: Any) -> Any:
        noted.append(threading.get_ident() == caller)
        return compute(self, *args)

    monkeypatch.setattr(Computation, "compute", noting)
    return noted


def test_batches_of_short_operators_are_computed_by_the_calling_thread(
    threads: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limits(monkeypatch, FOREVER_NS)
    with running(lambda x: [x + 1], np.zeros((3, 2))) as pipe:
        for _ in range(9):
            np.testing.assert_array_equal(pipe.run()[0].as_array(), np.ones((3, 2)))

    assert not threads[0]  # its duration is not known yet
    assert all(threads[4:])


def test_other_batches_are_computed_in_threads(threads: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    set_limits(monkeypatch, 0)
    with running(lambda x: [x + 1], np.zeros((3, 2))) as pipe:
        for _ in range(9):
            pipe.run()

    assert not any(threads)


@pytest.mark.parametrize("limit_ns", [0, FOREVER_NS], ids=["in threads", "in the calling thread"])
@pytest.mark.parametrize("define", [fn.flip, fn.copy, fn.random.uniform], ids=["alone", "packed", "random"])
def test_the_memory_of_a_batch_is_free_without_a_garbage_collection(
    define: Callable[[Any], Any], limit_ns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limits(monkeypatch, limit_ns)
    ragged = [np.zeros((2 + i, 3, 3), np.uint8) for i in range(3)]
    gc.disable()
    try:
        with running(lambda x: [define(x)], ragged) as pipe:
            for _ in range(30):
                pipe.run()
            leases = [each for each in gc.get_objects() if isinstance(each, Lease)]
            assert len(leases) < 20  # of the batches in progress
    finally:
        gc.enable()


def test_functions_that_see_batches_in_order_stay_in_their_thread(
    threads: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limits(monkeypatch, FOREVER_NS)
    with running(lambda x: [fn.python_function(x, function=lambda data: data + 1)], np.zeros((3, 2))) as pipe:
        for _ in range(9):
            pipe.run()

    assert not any(threads)


def test_an_error_of_a_short_operator_is_raised_in_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    set_limits(monkeypatch, FOREVER_NS)
    numbers, got = iter(range(100)), []
    with closing(Pipeline(1, prefetch_queue_depth=3)) as pipe:
        with pipe:
            x = fn.external_source(lambda: [np.zeros((next(numbers) % 5, 1))])
            pipe.set_outputs(x[2])
        for _ in range(20):
            try:
                pipe.run()
            except SampleError:
                got.append("error")
            else:
                got.append("ok")

    assert got == ["error"] * 3 + ["ok"] * 2 + ["error"] * 3 + ["ok"] * 2 + (["error"] * 3 + ["ok"] * 2) * 2


def test_an_interrupted_batch_is_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    set_limits(monkeypatch, FOREVER_NS)
    numbers, compute, calls = iter(range(100)), Computation.compute, []

    def interrupted(self: Computation, *args: Any) -> Any:
        calls.append(threading.current_thread() is threading.main_thread())
        if sum(calls) == 3 and calls[-1]:
            calls.append(False)
            raise KeyboardInterrupt
        return compute(self, *args)

    monkeypatch.setattr(Computation, "compute", interrupted)
    got, interrupts = [], 0
    with closing(Pipeline(1)) as pipe:
        with pipe:
            pipe.set_outputs(fn.external_source(lambda: [np.array(next(numbers))]) + 1)
        while len(got) < 9:
            try:
                got.append(pipe.run()[0].at(0).item())
            except KeyboardInterrupt:
                interrupts += 1

    assert interrupts == 1
    assert got == list(range(1, 10))


@pytest.mark.parametrize("batch", [np.arange(12.0).reshape(3, 4), [np.arange(4.0), np.arange(8.0), np.arange(2.0)]])
def test_other_shapes_of_a_batch_are_views_of_it(batch: Any) -> None:
    with running(lambda x: [x, fn.expand_dims(fn.reshape(x, shape=[2, -1]), axes=[0])], batch) as pipe:
        given, shaped = pipe.run()

        for i in range(3):
            assert np.shares_memory(given.at(i), shaped.at(i))
            assert shaped.at(i).shape == (1, 2, len(batch[i]) // 2)
            np.testing.assert_array_equal(shaped.at(i).ravel(), batch[i])


def test_views_keep_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = iter(range(100))
    with closing(Pipeline(2)) as pipe:
        with pipe:
            pipe.set_outputs(fn.reshape(fn.external_source(lambda: np.full((2, 5000), next(numbers))), shape=[50, 100]))
        kept = [pipe.run()[0] for _ in range(9)]

        assert [set(batch.as_array().ravel().tolist()) for batch in kept] == [{i} for i in range(9)]


def test_other_shapes_of_computed_samples_are_results_of_their_own() -> None:
    numbers = iter(range(100))
    with closing(Pipeline(2)) as pipe:
        with pipe:
            x = fn.external_source(lambda: [np.full((50, 100 + i), next(numbers), np.float32) for i in range(2)])
            pipe.set_outputs(fn.reshape(x + 1, shape=[-1]))
        kept = [pipe.run()[0] for _ in range(9)]

        assert [batch.at(1).min() for batch in kept] == [2 * i + 2 for i in range(9)]


def test_constants_are_no_views() -> None:
    with running(lambda x: [fn.reshape(types.Constant([1, 2]), shape=[2, 1]), x], np.zeros((3, 2))) as pipe:
        constants, _ = pipe.run()

        np.testing.assert_array_equal(constants.as_array(), [[[1], [2]]] * 3)
