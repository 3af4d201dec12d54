"""Convert outputs of pipelines for frameworks: to single tensors, and to memory that DLPack can share."""

from __future__ import annotations

from typing import Any

from dali_like.errors import RaggedError
from dali_like.tensors import TensorCPU, TensorListCPU


def dense(name: str, output: TensorListCPU) -> TensorCPU:
    """Return a batch as one tensor, a view of shape (samples, ...).

    Raises:
        RaggedError: the samples have different shapes.
    """
    try:
        return output.as_tensor()
    except RaggedError:
        shapes = sorted(set(output.shape()))
        raise RaggedError(
            f"the samples of output {name!r} have {len(shapes)} different shapes, from {shapes[0]} to {shapes[-1]}, and "
            "cannot form one array. Give them one shape in the pipeline, or use DALIRaggedIterator to get a list"
        ) from None


def exportable(tensor: Any) -> Any:
    """Return an object with ``__dlpack__`` over a tensor's memory, or over a copy that every framework accepts.

    A tensor on a GPU is returned as it is. A tensor in host memory is copied if it is read-only, which PyTorch does not
    support, or has gaps, which JAX rejects. Negative strides would abort the process in PyTorch. Such memory only comes from
    inputs fed with ``no_copy=True``.
    """
    if not isinstance(tensor, TensorCPU):
        return tensor
    array = tensor.__array__()
    return array if array.flags.carray else array.copy()
