"""Outputs of pipelines as what frameworks take: single tensors, and memory that they may take over by DLPack."""

from __future__ import annotations

from typing import Any

from dali_like.errors import RaggedError
from dali_like.tensors import TensorCPU, TensorListCPU


def dense(name: str, output: TensorListCPU) -> TensorCPU:
    """A batch as one tensor, which is a view of it.

    Raises:
        RaggedError: its samples have different shapes.
    """
    try:
        return output.as_tensor()
    except RaggedError:
        shapes = sorted(set(output.shape()))
        raise RaggedError(
            f"the samples of output {name!r} have {len(shapes)} different shapes, from {shapes[0]} to {shapes[-1]}, and do "
            "not make one array. Give them one shape in the pipeline, or take them as a list, by a DALIRaggedIterator"
        ) from None


def exportable(tensor: Any) -> Any:
    """An object with ``__dlpack__`` over the memory of a tensor, or of a copy where frameworks could not take it over.

    A tensor on a GPU is one by itself. Of one in host memory, frameworks are to have memory that may be written to, since
    PyTorch knows no other, and without gaps, which JAX does not take; for negative strides, PyTorch ends the process.
    Pipelines deliver such memory only where an input has been fed with ``no_copy=True``.
    """
    if not isinstance(tensor, TensorCPU):
        return tensor
    array = tensor.__array__()
    return array if array.flags.carray else array.copy()
