"""User functions as operators: their arguments, allowed results, and order of calls."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest

from dali_like import Pipeline, fn, ops
from dali_like.errors import (
    ArgumentError,
    ArgumentTypeError,
    DtypeMismatchError,
    OutputCountError,
    SampleTypeError,
    SerializationError,
)
from tests.conftest import wait_until
from tests.operators.running import WAYS, batches, pipeline, run

NUMBERS = [np.arange(6, dtype=np.uint8).reshape(2, 3) + i for i in range(4)]


def call(function: Any, **arguments: Any) -> Any:
    return lambda *inputs: fn.python_function(*inputs, function=function, **arguments)


def let_others_run() -> None:
    """Yield to other threads."""
    for _ in range(100):
        time.sleep(0)


class TestCalls:
    @pytest.mark.parametrize("way", WAYS)
    def test_with_samples(self, way):
        ((sums,),) = run(call(lambda a, b: a + b), NUMBERS, NUMBERS, way=way)

        np.testing.assert_array_equal(sums, np.multiply(NUMBERS, 2))

    def test_with_batches(self):
        ((backwards,),) = run(call(lambda batch: batch[::-1], batch_processing=True), NUMBERS)

        np.testing.assert_array_equal(backwards, NUMBERS[::-1])

    @pytest.mark.parametrize("batch_processing", [False, True])
    def test_without_inputs(self, batch_processing):
        function = (lambda: [np.float32(i) for i in range(3)]) if batch_processing else (lambda: np.float32(7))

        ((results,),) = run(call(function, batch_processing=batch_processing), batch_size=3)

        assert [float(result) for result in results] == ([0, 1, 2] if batch_processing else [7, 7, 7])

    def test_several_outputs(self):
        ((low, high),) = run(call(lambda a: (a.min(), a.max()), num_outputs=2), NUMBERS)
        ((same, sums),) = run(
            call(lambda batch: (batch, [a.sum() for a in batch]), num_outputs=2, batch_processing=True), NUMBERS
        )

        assert [*map(int, low)] == [0, 1, 2, 3]
        assert [*map(int, high)] == [5, 6, 7, 8]
        np.testing.assert_array_equal(same, NUMBERS)
        assert [*map(int, sums)] == [15, 21, 27, 33]

    def test_layouts(self):
        def define(data: Any) -> Any:
            two = fn.python_function(data, function=lambda a: (a, a), num_outputs=2, output_layouts=["AB"])
            return [*two, fn.python_function(data, function=lambda a: a), ops.PythonFunction(function=np.copy)(data)]

        (outputs,) = batches(define, NUMBERS, layouts=["HW"])

        assert [output.layout() for output in outputs] == ["AB", "", "", ""]

    @pytest.mark.parametrize("way", WAYS)
    def test_in_order_and_one_at_a_time(self, way):
        seen, calls = [], threading.Lock()

        def number(sample: np.ndarray) -> np.ndarray:
            assert calls.acquire(blocking=False)
            let_others_run()
            seen.append(int(sample[0, 0]))
            calls.release()
            return np.int32(len(seen) - 1)

        results = run(call(number), NUMBERS, iterations=5, prefetch_queue_depth=4, num_threads=4, way=way)

        assert [int(number) for (numbers,) in results for number in numbers] == list(range(20))
        assert seen[:20] == [0, 1, 2, 3] * 5

    def test_in_order_when_an_epoch_is_left(self):
        """A batch in progress is finished before the next epoch begins."""
        seen, calls = [], threading.Lock()

        def note(sample: np.ndarray) -> np.ndarray:
            with calls:
                let_others_run()
                seen.append(int(sample))
            return sample

        pipe = Pipeline(batch_size=2, num_threads=2, prefetch_queue_depth=3)
        with pipe:
            data = fn.external_source(lambda info: np.int32(10 * info.epoch_idx + info.idx_in_epoch), batch=False)
            pipe.set_outputs(fn.python_function(data, function=note))
        try:
            results = [pipe.run()[0].as_array().tolist() for _ in range(2)]
            wait_until(calls.locked, "a call ahead")
            pipe.reset()
            assert not calls.locked()
            assert len(seen) == 6
            results += [pipe.run()[0].as_array().tolist() for _ in range(2)]
        finally:
            pipe.close()

        assert results == [[0, 1], [2, 3], [10, 11], [12, 13]]
        assert seen == sorted(seen)

    def test_function_without_a_used_result_is_called(self):
        seen = []

        def define(data: Any) -> Any:
            fn.python_function(data, function=lambda a: seen.append(a.copy()) or a)
            return data

        run(define, NUMBERS)

        np.testing.assert_array_equal(seen[:4], NUMBERS)

    def test_a_result_that_is_the_input_is_copied(self):
        """The result may be the input: the outputs are copies."""
        ((source, result),) = batches(lambda data: [data, fn.python_function(data, function=lambda a: a)], NUMBERS)

        result.at(0)[...] = 99

        np.testing.assert_array_equal(source.at(0), NUMBERS[0])


class TestErrors:
    @pytest.mark.parametrize("way", WAYS)
    def test_of_the_function(self, way):
        def fussy(sample: np.ndarray) -> np.ndarray:
            if sample[0, 0] == 2:
                raise KeyError("not this one")
            return sample

        with pytest.raises(KeyError, match="not this one") as info:
            run(call(fussy), NUMBERS, way=way)

        assert info.value.__notes__ == [
            "raised for sample 2 of the batch",
            "raised by fn.python_function for iteration 0 in epoch 0",
        ]

    def test_stop_iteration_does_not_end_the_epoch(self):
        with pytest.raises(RuntimeError, match="the function raised StopIteration"):
            run(call(lambda a: next(iter(()))), NUMBERS)

    @pytest.mark.parametrize(
        ("function", "arguments", "error", "message"),
        [
            (lambda a: None, {}, SampleTypeError, r"must return arrays of numbers, not a NoneType"),
            (lambda a: a, {"num_outputs": 2}, SampleTypeError, "has 2 outputs and must return a tuple, not an ndarray"),
            (lambda a: (a,) * 3, {"num_outputs": 2}, OutputCountError, "got 3, expected 2"),
            (lambda a: (a, a), {}, OutputCountError, "got 2, expected 1"),
            (lambda a: a[:2], {"batch_processing": True}, OutputCountError, "the 4 samples of the batch, not 2 samples"),
            (
                np.stack,
                {"batch_processing": True},
                OutputCountError,
                "the 4 samples of the batch, not an ndarray",
            ),
            (
                lambda a: a if a[0, 0] else a * 0.5,
                {},
                DtypeMismatchError,
                "fn.python_function returned float64 for sample 0, and uint8",
            ),
        ],
    )
    def test_wrong_results(self, function, arguments, error, message):
        with pytest.raises(error, match=message):
            run(call(function, **arguments), NUMBERS)

    def test_wrong_arguments(self):
        node = fn.external_source(lambda info: NUMBERS[0], batch=False)

        with pytest.raises(ArgumentTypeError, match=r"fn.python_function: function must be callable, not an int"):
            fn.python_function(node, function=5)
        with pytest.raises(ArgumentTypeError, match=r"fn.python_function needs the argument function"):
            fn.python_function(node)
        with pytest.raises(ArgumentError, match=r"fn.python_function: num_outputs must be an integer from 1 on, not 0"):
            fn.python_function(node, function=abs, num_outputs=0)

    def test_serialization(self):
        pipe = pipeline(call(np.copy), NUMBERS)
        try:
            with pytest.raises(
                SerializationError, match=r"fn.python_function: the argument function is an? .* JSON cannot hold"
            ):
                pipe.serialize()
        finally:
            pipe.close()


class TestCapsules:
    @pytest.mark.parametrize("way", WAYS)
    def test_there_and_back(self, way):
        names = []

        def swap(batch: list[Any]) -> list[Any]:
            names.extend(type(capsule).__name__ for capsule in batch)
            return batch[::-1]

        ((same,),) = run(lambda data: fn.dl_tensor_python_function(data, function=swap), NUMBERS, way=way)

        np.testing.assert_array_equal(same, NUMBERS[::-1])
        assert {*names} == {"PyCapsule"}

    def test_arrays_as_results(self):
        call = fn.dl_tensor_python_function
        ((ones,),) = run(lambda data: call(data, function=lambda _: np.ones(2), batch_processing=False), NUMBERS)

        np.testing.assert_array_equal(ones, np.ones((4, 2)))

    def test_a_result_that_is_not_a_capsule_is_an_error(self):
        with pytest.raises(SampleTypeError, match="must return DLPack capsules, not an int"):
            run(lambda data: fn.dl_tensor_python_function(data, function=lambda _: 3, batch_processing=False), NUMBERS)
