"""Functions of the user's that Numba compiles, as in ``nvidia.dali.plugin.numba``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dali_like.common.articles import kind_of
from dali_like.common.extras import optional
from dali_like.errors import (
    ArgumentClashError,
    ArgumentError,
    ArgumentTypeError,
    DtypeMismatchError,
    NdimMismatchError,
    SampleError,
)
from dali_like.graph.language.operator_interface import Array, OperatorCall
from dali_like.operators.machinery.description import operator
from dali_like.types import numpy_dtype, to_dali_type


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _dtypes(value: Any) -> list[np.dtype[Any]]:
    return [numpy_dtype(to_dali_type(part)) for part in _listed(value)]


def _check_numba(given: Mapping[str, Any]) -> None:
    for name in ("run_fn", "setup_fn"):
        if name in given and not callable(given[name]):
            raise ArgumentTypeError(f"{name} must be callable, not {kind_of(given[name])}")
    for types, ndims in (("out_types", "outs_ndim"), ("in_types", "ins_ndim")):
        dtypes, counts = _dtypes(given[types]), _listed(given[ndims])
        if len(dtypes) != len(counts):
            raise ArgumentClashError(f"{types} has {len(dtypes)} elements, but {ndims} has {len(counts)}")
        if np.dtype(np.float16) in dtypes:
            raise ArgumentError(f"{types} has FLOAT16, which Numba does not support on the CPU: use FLOAT")
        if wrong := [count for count in counts if not isinstance(count, int) or count < 1]:
            raise ArgumentError(f"{ndims} has {wrong[0]!r}; arrays must have one dimension or more")
    if "setup_fn" not in given and len(_listed(given["out_types"])) > len(_listed(given["in_types"])):
        raise ArgumentClashError("there are more outputs than inputs: pass setup_fn, to define their shapes")


@operator(
    module="experimental",
    min_inputs=1,
    num_outputs=lambda given: len(_listed(given["out_types"])),
    output_layout="",
    check=_check_numba,
    per_sample=lambda values: not values.get("batch_processing", False),
    preserve=True,
    ignored={"blocks": None, "threads_per_block": None},
)
def numba_function(
    call: OperatorCall,
    *inputs: Any,
    run_fn: Callable[..., Any],
    out_types: Any,
    in_types: Any,
    outs_ndim: Any,
    ins_ndim: Any,
    setup_fn: Callable[..., Any] | None = None,
    batch_processing: bool = False,
) -> Any:
    """Call a function that Numba compiles at its first call. Requires the package numba.

    Workers and threads call it, unless it processes batches. It releases the GIL.

    Args:
        inputs: arrays of `in_types` with `ins_ndim` dimensions.
        run_fn: function that Numba can compile in nopython mode. It receives the outputs, then the inputs, and writes into
            the outputs. These are arrays; with `batch_processing`, lists with an array for each sample.
        out_types: data types of the outputs.
        in_types: data types of the inputs.
        outs_ndim: number of dimensions of each output.
        ins_ndim: number of dimensions of each input.
        setup_fn: function that defines the shapes of the outputs. It receives ``outs`` and ``ins``, and writes
            ``outs[output][sample][dimension]``; ``ins`` has the shapes of the inputs. Default: each output has the shape of
            the input with the same number.
        batch_processing: whether `run_fn` is called once per batch, in the main process.
    """
    batches = inputs if batch_processing else [[sample] for sample in inputs]
    _check_inputs(batches, _dtypes(in_types), _listed(ins_ndim))
    arrays = [[_plain(sample) for sample in batch] for batch in batches]
    outs = _outputs(arrays, _dtypes(out_types), _listed(outs_ndim), setup_fn)
    run = _compiled(run_fn)
    if batch_processing:
        numba = _numba()
        run(*[numba.typed.List(batch) for batch in (*outs, *arrays)])
        results: list[Any] = outs
    else:
        run(*[out[0] for out in outs], *[batch[0] for batch in arrays])
        results = [out[0] for out in outs]
    return tuple(results) if len(results) > 1 else results[0]


def _numba() -> Any:
    return optional("numba", "fn.experimental.numba_function", "numba")


@functools.lru_cache(maxsize=64)
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    if hasattr(function, "py_func"):
        return function
    compiled: Callable[..., Any] = _numba().njit(nogil=True)(function)
    return compiled


def _check_inputs(batches: Sequence[Sequence[Array]], dtypes: Sequence[np.dtype[Any]], ndims: Sequence[int]) -> None:
    """Refuse samples that are not as declared.

    Raises:
        SampleError: as above.
    """
    if len(batches) != len(dtypes):
        raise SampleError(f"there are {len(batches)} inputs, but in_types has {len(dtypes)} elements")
    for i, (batch, dtype, ndim) in enumerate(zip(batches, dtypes, ndims, strict=True)):
        for sample in batch:
            if sample.dtype != dtype:
                raise DtypeMismatchError(f"input {i} is of dtype {sample.dtype}, but in_types says {dtype}")
            if sample.ndim != ndim:
                raise NdimMismatchError(f"input {i} has {sample.ndim} dimensions, but ins_ndim says {ndim}")


def _plain(sample: Array) -> Array:
    """Return a sample as an array of the one type that the function is compiled for: contiguous and writable."""
    return sample if sample.flags.c_contiguous and sample.flags.writeable else sample.copy()


def _outputs(
    inputs: Sequence[Sequence[Array]], dtypes: Sequence[np.dtype[Any]], ndims: Sequence[int], setup: Any
) -> list[list[Array]]:
    count = len(inputs[0])
    shapes = [[np.array(sample.shape, np.int64) for sample in batch] for batch in inputs]
    if setup is not None:
        found = [[np.zeros(ndim, np.int64) for _ in range(count)] for ndim in ndims]
        getattr(setup, "py_func", setup)(found, shapes)
    else:
        found = shapes[: len(dtypes)]
    for i, (of_output, ndim) in enumerate(zip(found, ndims, strict=True)):
        if wrong := [shape for shape in of_output if len(shape) != ndim or min(shape) < 0]:
            raise SampleError(
                f"output {i} would be of shape {tuple(wrong[0].tolist())}, but outs_ndim says {ndim} dimensions"
            )
    return [[np.zeros(shape, dtype) for shape in batch] for batch, dtype in zip(found, dtypes, strict=True)]
