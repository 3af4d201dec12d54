"""Python functions as operators: against DALI's where it needs no GPU; tensors of PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dali_like
from dali_like.errors import ArgumentClashError
from tests.parity.side_by_side import assert_alike

torch = pytest.importorskip("torch")
SAMPLES = [np.arange(6, dtype=np.uint8).reshape(2, 3) + i for i in range(3)]


def test_functions_of_arrays():
    def define(library: Any, data: Any) -> dict[str, Any]:
        python = library.fn.python_function
        one, other = python(data, data, function=lambda a, b: (a + b, a - b), num_outputs=2, output_layouts=["AB"])
        both = python(data, function=lambda a: (a, a + 1), num_outputs=2, output_layouts="CD")
        return {
            "one": one,
            "other": other,
            "same": python(data, function=lambda a: a),
            "tuple": python(data, function=lambda a: (a,), output_layouts="CD"),
            "layout of both, first": both[0],
            "layout of both, second": both[1],
            "turned": python(data, function=lambda a: a.T),
            "backwards": python(data, function=lambda a: a[:, ::-1]),
            "nothing": python(function=lambda: np.array(3)),
            "batch": python(data, function=lambda batch: batch[::-1], batch_processing=True),
        }

    assert_alike(define, SAMPLES, layouts=["HW"])


def test_functions_of_capsules():
    def define(library: Any, data: Any) -> dict[str, Any]:
        call = library.fn.dl_tensor_python_function
        two = call(data, data, function=lambda a, b: (b, a), num_outputs=2, output_layouts=["AB"])
        return {
            "batch": call(data, function=lambda batch: batch[::-1]),
            "one": two[0],
            "other": two[1],
            "sample": call(data, function=lambda capsule: capsule, batch_processing=False, output_layouts="HW"),
            "torch": call(data, function=lambda capsule: to_dlpack(from_dlpack(capsule) + 1), batch_processing=False),
        }

    from torch.utils.dlpack import from_dlpack, to_dlpack

    assert_alike(define, SAMPLES, layouts=["HW"])


def test_more_layouts_than_outputs_are_refused():
    with pytest.raises(ArgumentClashError, match="output_layouts has 2 layouts, but num_outputs is 1"):
        dali_like.fn.python_function(function=lambda: np.zeros((1, 1)), output_layouts=["HW", "HWC"])


class TestTensors:
    """DALI's needs CUDA even for tensors on the CPU."""

    def run(self, *inputs: Any, **arguments: Any) -> list[list[np.ndarray]]:
        pipe = dali_like.Pipeline(batch_size=3, num_threads=1)
        with pipe:
            nodes = [dali_like.fn.external_source(lambda: SAMPLES) for _ in inputs]
            result = dali_like.fn.torch_python_function(*nodes, **arguments)
            pipe.set_outputs(*(result if isinstance(result, list) else [result]))
        try:
            return [[np.array(output.at(i)) for i in range(3)] for output in pipe.run()]
        finally:
            pipe.close()

    def test_of_batches(self):
        (stacked, sums) = self.run(1, function=lambda batch: (batch[::-1], [a.sum() for a in batch]), num_outputs=2)

        np.testing.assert_array_equal(stacked, SAMPLES[::-1])
        assert sums == [15, 21, 27]
        assert sums[0].dtype == np.int64

    def test_of_samples(self):
        (products,) = self.run(1, 1, function=lambda a, b: a * b.float().requires_grad_(), batch_processing=False)

        np.testing.assert_array_equal(products, np.square(SAMPLES, dtype=np.float32))

    def test_function_that_returns_no_tensor_is_refused(self):
        with pytest.raises(TypeError, match=r"the function must return PyTorch tensors, not an ndarray"):
            self.run(1, function=lambda a: a.numpy(), batch_processing=False)

    def test_where_dali_has_it(self):
        from dali_like.plugin import pytorch

        assert pytorch.fn.torch_python_function is dali_like.fn.torch_python_function
        assert pytorch.TorchPythonFunction is dali_like.ops.TorchPythonFunction
