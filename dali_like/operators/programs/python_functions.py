"""User functions as operators, as in ``nvidia.dali.fn`` and ``nvidia.dali.plugin.pytorch.fn``.

They run in the main process, one call at a time and in the order of the samples, so they may keep state between calls.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, TypeAlias

import numpy as np

from dali_like.common.articles import kind_of, with_article
from dali_like.common.extras import optional
from dali_like.common.foreign_errors import add_note
from dali_like.errors import ArgumentClashError, ArgumentTypeError, OutputCountError, SampleTypeError
from dali_like.graph.language.operator_interface import Array, OperatorCall
from dali_like.operators.machinery.description import operator
from dali_like.operators.parameters import Strings, at_least
from dali_like.types import to_dali_type

#: For each input or output, all samples of a batch.
_Batches: TypeAlias = Sequence[list[Any]]


def _check(given: Mapping[str, Any]) -> None:
    if not callable(given["function"]):
        raise ArgumentTypeError(f"function must be callable, not {kind_of(given['function'])}")
    layouts, count = given.get("output_layouts", ()), given.get("num_outputs", 1)
    if not isinstance(layouts, str) and len(layouts) > count:
        raise ArgumentClashError(f"output_layouts has {len(layouts)} layouts, but num_outputs is {count}")


def _layouts(_: str, given: Mapping[str, Any]) -> Sequence[str]:
    layouts = given["output_layouts"] or ()
    return [layouts] * given["num_outputs"] if isinstance(layouts, str) else layouts


#: Describes an operator that calls a user function.
_calls_function = functools.partial(
    operator,
    check=_check,
    min_inputs=0,
    num_outputs=lambda given: given["num_outputs"],
    output_layout=_layouts,
    per_sample=False,
    in_order=True,
    preserve=True,
)


@_calls_function()
def python_function(
    call: OperatorCall,
    *inputs: list[Array],
    function: Callable[..., Any],
    num_outputs: Annotated[int, at_least(1)] = 1,
    output_layouts: Strings | None = None,
    batch_processing: bool = False,
) -> Any:
    """Call a Python function with NumPy arrays.

    The main process calls it in a separate thread, ahead of `Pipeline.run`. Calls come one at a time and in the order of the
    samples, even if the outputs are unused. A pipeline with this operator cannot be serialized.

    Args:
        inputs: any dtypes.
        function: receives one sample of each input, or a list of all samples of each input. It returns an array or a list of
            arrays, or a tuple of these for several outputs. It must not modify its arguments.
        num_outputs: number of outputs.
        output_layouts: one layout for all outputs, or a list of layouts for the first outputs.
        batch_processing: whether the function is called once per batch, with lists.
    """
    calls = _call_with_batch if batch_processing else _call_with_samples
    return _results(calls(function, inputs, call.count, num_outputs), num_outputs, np.asarray)


@_calls_function()
def torch_python_function(
    call: OperatorCall,
    *inputs: list[Array],
    function: Callable[..., Any],
    num_outputs: Annotated[int, at_least(1)] = 1,
    output_layouts: Strings | None = None,
    batch_processing: bool = True,
) -> Any:
    """Call a Python function with PyTorch tensors; see `python_function`.

    Args:
        inputs: any dtypes.
        function: receives a list of all samples of each input as tensors, or one sample of each input. It returns a list of
            tensors or a tensor, or a tuple of these for several outputs. It must not modify its arguments.
        num_outputs: number of outputs.
        output_layouts: one layout for all outputs, or a list of layouts for the first outputs.
        batch_processing: whether the function is called once per batch, with lists.
    """
    torch = optional("torch", "fn.torch_python_function", "pytorch")
    tensors = [
        [torch.from_numpy(sample if sample.flags.writeable else sample.copy()) for sample in batch] for batch in inputs
    ]
    calls = _call_with_batch if batch_processing else _call_with_samples

    def to_array(tensor: Any) -> Array:
        if not isinstance(tensor, torch.Tensor):
            raise SampleTypeError(f"the function must return PyTorch tensors, not {kind_of(tensor)}")
        return np.asarray(tensor.detach().cpu().numpy())

    return _results(calls(function, tensors, call.count, num_outputs), num_outputs, to_array)


@_calls_function(ignored={"synchronize_stream": True})
def dl_tensor_python_function(
    call: OperatorCall,
    *inputs: list[Array],
    function: Callable[..., Any],
    num_outputs: Annotated[int, at_least(1)] = 1,
    output_layouts: Strings | None = None,
    batch_processing: bool = True,
) -> Any:
    """Call a Python function with DLPack capsules; see `python_function`.

    Args:
        inputs: any dtypes.
        function: receives a list of all samples of each input as DLPack capsules, or one sample of each input. It returns a
            list of capsules or a capsule, or a tuple of these for several outputs. Objects with the method ``__dlpack__``
            are accepted as well. It must not modify its arguments.
        num_outputs: number of outputs.
        output_layouts: one layout for all outputs, or a list of layouts for the first outputs.
        batch_processing: whether the function is called once per batch, with lists.
    """
    capsules = [[(sample if sample.flags.writeable else sample.copy()).__dlpack__() for sample in batch] for batch in inputs]
    calls = _call_with_batch if batch_processing else _call_with_samples
    return _results(calls(function, capsules, call.count, num_outputs), num_outputs, _from_dlpack)


class _Capsule:
    """A DLPack capsule as an object with the method that NumPy asks for."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0  # CPU


def _from_dlpack(result: Any) -> Array:
    if not hasattr(result, "__dlpack__"):
        if type(result).__name__ != "PyCapsule":
            raise SampleTypeError(f"the function must return DLPack capsules, not {kind_of(result)}")
        result = _Capsule(result)
    return np.from_dlpack(result)


def _call_with_batch(function: Callable[..., Any], inputs: _Batches, count: int, num_outputs: int) -> _Batches:
    outputs = _as_outputs(_called(function, inputs), num_outputs)
    for output in outputs:
        if not isinstance(output, Sequence) or len(output) != count:
            what = f"{len(output)} samples" if isinstance(output, Sequence) else kind_of(output)
            raise OutputCountError(f"the function must return a list of the {count} samples of the batch, not {what}")
    return [list(output) for output in outputs]


def _call_with_samples(function: Callable[..., Any], inputs: _Batches, count: int, num_outputs: int) -> _Batches:
    results: list[tuple[Any, ...]] = []
    for arguments in zip(*inputs, strict=True) if inputs else itertools.repeat((), count):
        try:
            results.append(_as_outputs(_called(function, arguments), num_outputs))
        except Exception as error:
            add_note(error, f"raised for sample {len(results)} of the batch")
            raise
    return [*map(list, zip(*results, strict=True))]


def _called(function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    try:
        return function(*arguments)
    except StopIteration as error:  # would end the epoch
        raise RuntimeError("the function raised StopIteration") from error


def _as_outputs(result: Any, count: int) -> tuple[Any, ...]:
    if not isinstance(result, tuple):
        if count == 1:
            return (result,)
        raise SampleTypeError(f"the function has {count} outputs and must return a tuple, not {kind_of(result)}")
    if len(result) != count:
        raise OutputCountError(f"unexpected number of outputs of the function: got {len(result)}, expected {count}")
    return result


def _results(outputs: _Batches, count: int, to_array: Callable[[Any], Array]) -> Any:
    batches = [_checked(output, to_array) for output in outputs]
    return batches if count > 1 else batches[0]


def _checked(results: Sequence[Any], to_array: Callable[[Any], Array]) -> list[Array]:
    arrays = [*map(to_array, results)]
    for dtype in dict.fromkeys([array.dtype for array in arrays]):
        try:
            to_dali_type(dtype)
        except ValueError as error:
            kind = next(type(result) for result, array in zip(results, arrays, strict=True) if array.dtype == dtype)
            raise SampleTypeError(
                f"the function must return arrays of numbers, not {with_article(kind.__qualname__)} ({dtype})"
            ) from error
    return arrays
