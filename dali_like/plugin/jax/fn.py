"""Functions of JAX arrays as operators, as in ``nvidia.dali.plugin.jax.fn``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding

from dali_like.common.articles import kind_of
from dali_like.errors import ArgumentClashError, ArgumentError, ArgumentTypeError, OutputCountError, SampleTypeError
from dali_like.graph.language.nodes import DataNode
from dali_like.graph.language.operator_interface import Array
from dali_like.operators.machinery.description import description_of
from dali_like.operators.machinery.functions import make_function
from dali_like.operators.parameters import Parameter

__all__ = ["jax_function"]


def jax_function(
    function: Callable[..., Any] | None = None,
    num_outputs: int = 1,
    output_layouts: str | Sequence[str] | None = None,
    sharding: Any = None,
    device: str | None = None,
    preserve: bool = True,
) -> Callable[..., Any]:
    """Make an operator from a function of JAX arrays. Also a decorator, with or without arguments.

    The function is called once per batch, in the main process, one call at a time and in order. Data are on the CPU also
    for ``device="gpu"``, and copied to the GPU behind the function; in DALI they are on the GPU.

    Args:
        function: receives a ``jax.Array`` for each input, whose first dimension counts the samples. So all samples must have
            one shape. It returns an array of this kind; or a tuple of them; or None if there are no outputs. It may be a
            function of ``jax.jit`` or ``jax.vmap``.
        num_outputs: number of outputs. With 0, the operator returns None.
        output_layouts: layouts of the samples: one for all outputs, or a list of layouts. Default: output i has the layout
            of input i, if it has as many dimensions.
        sharding: a ``NamedSharding`` over several processes, each with one device. The function then receives global arrays.
        device: where the results are wanted: "cpu" or "gpu". Default: on the GPU if an input is wanted there.
        preserve: whether to call the function even if its results are unused.

    Returns:
        A function of `DataNode` inputs that adds the operator to a pipeline.

    Raises:
        ArgumentError: an argument is wrong.

    >>> from dali_like import fn, pipeline_def
    >>> @jax_function
    ... def doubled(batch):
    ...     return batch * 2
    >>> @pipeline_def(batch_size=2, num_threads=1)
    ... def pipeline():
    ...     return doubled(fn.external_source(lambda info: np.int32([info.idx_in_epoch]), batch=False))
    >>> pipe = pipeline()
    >>> pipe.run()[0].as_array().tolist()
    [[0], [2]]
    >>> pipe.close()
    """
    if function is None:
        return lambda function: jax_function(function, num_outputs, output_layouts, sharding, device, preserve)
    if not callable(function):
        raise ArgumentTypeError(f"jax_function: function must be callable, not {kind_of(function)}")
    if num_outputs < 0:
        raise ArgumentClashError(f"jax_function: num_outputs must be from 0 on, not {num_outputs}")
    call = _ListsCall(function if sharding is None else _with_sharding(function, sharding), num_outputs)
    described = description_of("python_function")
    make = make_function(replace(described, common={**described.common, "preserve": Parameter("preserve", bool, preserve)}))

    def operator(*inputs: Any) -> Any:
        layouts = output_layouts
        if layouts is None:
            layouts = [node.layout if isinstance(node, DataNode) else "" for node in inputs][: max(num_outputs, 1)]
        nodes = make(
            *(inputs or (0,)),
            function=call if inputs else lambda batch: call.of_batch(len(batch)),
            num_outputs=max(num_outputs, 1),
            output_layouts=layouts,
            batch_processing=True,
            device=device,
            name="jax_function",
        )
        return nodes if num_outputs else None

    return operator


class _ListsCall:
    """Calls a function of JAX arrays with lists of samples."""

    def __init__(self, function: Callable[..., Any], num_outputs: int) -> None:
        self._function = function
        self._num_outputs = num_outputs

    def __call__(self, *batches: list[Array]) -> Any:
        return self.of_batch(len(batches[0]), *map(_stacked, batches))

    def of_batch(self, count: int, *arrays: Any) -> Any:
        """Call the function for a batch of so many samples."""
        results = self._function(*arrays)
        if self._num_outputs == 0:
            if results is not None:
                raise OutputCountError("the function must return None, as num_outputs is 0")
            return [np.zeros(0, np.uint8)] * count
        outputs = tuple(results) if isinstance(results, (tuple, list)) else (results,)
        if len(outputs) != self._num_outputs:
            raise OutputCountError(f"the function returned {len(outputs)} arrays, but num_outputs is {self._num_outputs}")
        samples = [_samples(output, count) for output in outputs]
        return tuple(samples) if len(samples) > 1 else samples[0]


def _stacked(batch: list[Array]) -> Any:
    shapes = {sample.shape for sample in batch}
    if len(shapes) > 1:
        raise SampleTypeError(f"the samples of a batch have different shapes, {sorted(shapes)}: resize or pad them first")
    return jax.numpy.asarray(np.stack(batch))


def _samples(output: Any, count: int) -> list[Array]:
    if not isinstance(output, jax.Array):
        raise SampleTypeError(f"the function must return JAX arrays, not {kind_of(output)}")
    array = np.asarray(output)
    if array.ndim == 0 or len(array) != count:
        raise OutputCountError(f"the function returned an array of shape {array.shape} for a batch of {count} samples")
    return list(array)


def _with_sharding(function: Callable[..., Any], sharding: Any) -> Callable[..., Any]:
    """Return a function of arrays of this process, given one of global arrays.

    Raises:
        ArgumentError: the sharding is of another kind, or this process has several devices.
    """
    if not isinstance(sharding, NamedSharding):
        raise ArgumentError(f"jax_function: sharding must be a NamedSharding, not {kind_of(sharding)}")
    if (count := jax.local_device_count()) != 1:
        raise ArgumentError(f"jax_function: sharding needs processes with one device each, but this one has {count}")

    def inner(*arrays: Any) -> Any:
        shards = [
            jax.make_array_from_single_device_arrays((sharding.mesh.size * len(array), *array.shape[1:]), sharding, [array])
            for array in arrays
        ]
        results = function(*shards)
        if results is None:
            return None
        outputs = results if isinstance(results, (tuple, list)) else (results,)
        return tuple([output.addressable_shards[0].data for output in outputs])

    return inner
