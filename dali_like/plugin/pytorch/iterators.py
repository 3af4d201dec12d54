"""Iterators over pipelines that yield PyTorch tensors, as in ``nvidia.dali.plugin.pytorch`` 1.53.

Nothing is copied: a tensor is a view of the batch, by DLPack. The batch is not overwritten as long as a tensor of it, or a
view of one, is alive.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from dali_like.errors import IteratorArgumentError, TargetMismatchError
from dali_like.plugin._outputs import dense, exportable
from dali_like.plugin.base_iterator import BaseIterator
from dali_like.plugin.classification import ClassificationIterator
from dali_like.plugin.ragged import RaggedIterator
from dali_like.tensors import TensorCPU, TensorListCPU
from dali_like.types import DALIDataType

__all__ = [
    "DALIClassificationIterator",
    "DALIGenericIterator",
    "DALIRaggedIterator",
    "feed_ndarray",
    "to_torch_type",
]

#: Maps DALI's dtypes to PyTorch's.
to_torch_type = {
    DALIDataType.FLOAT: torch.float32,
    DALIDataType.FLOAT64: torch.float64,
    DALIDataType.FLOAT16: torch.float16,
    DALIDataType.UINT8: torch.uint8,
    DALIDataType.UINT16: torch.uint16,
    DALIDataType.UINT32: torch.uint32,
    DALIDataType.UINT64: torch.uint64,
    DALIDataType.INT8: torch.int8,
    DALIDataType.INT16: torch.int16,
    DALIDataType.INT32: torch.int32,
    DALIDataType.INT64: torch.int64,
    DALIDataType.BOOL: torch.bool,
}


def feed_ndarray(dali_tensor: TensorCPU | TensorListCPU, arr: torch.Tensor, cuda_stream: Any = None) -> torch.Tensor:
    """Copy a tensor, or a batch of samples of one shape, into a PyTorch tensor.

    Args:
        dali_tensor: the source.
        arr: the target on any device, with the same shape, and the dtype of `to_torch_type`.
        cuda_stream: a ``torch.cuda.Stream`` or the address of a stream for an asynchronous copy. None: copy on the current
            stream. Without effect on the CPU.

    Returns:
        `arr`.

    Raises:
        TargetMismatchError: `arr` has another dtype or shape.
        RaggedError: the samples of the batch have different shapes.
    """
    tensor: Any = dali_tensor if hasattr(dali_tensor, "__dlpack__") else dali_tensor.as_tensor()
    dtype, shape = to_torch_type[tensor.dtype], tuple(tensor.shape())
    if arr.dtype is not dtype or tuple(arr.shape) != shape:
        raise TargetMismatchError(
            f"a tensor of {dtype} and shape {shape} cannot be copied into one of {arr.dtype} and shape {tuple(arr.shape)}"
        )
    with torch.cuda.stream(_stream_of(cuda_stream, arr)):
        arr.detach().copy_(_tensor_of(tensor), non_blocking=cuda_stream is not None)
    return arr


def _stream_of(given: Any, arr: torch.Tensor) -> Any:
    if given is None or not arr.is_cuda:
        return None
    if isinstance(given, torch.cuda.Stream):
        return given
    return torch.cuda.ExternalStream(int(getattr(given, "ptr", given)), arr.device)


def _tensor_of(tensor: Any) -> torch.Tensor:
    return torch.from_dlpack(exportable(tensor))


class DALIGenericIterator(BaseIterator[Any, list[dict[str, Any]]]):
    """Yields batches as a list with one dict per pipeline, from the names of outputs to tensors.

    The tensors are on the device of the outputs. All samples of an output must have one shape within a batch. Otherwise
    ``next`` raises `RaggedError` and the batch is lost; use `DALIRaggedIterator` instead. Outputs of Python objects are
    lists.

    See `BaseIterator` for arguments and errors. Follows ``nvidia.dali.plugin.pytorch.DALIGenericIterator`` 1.53.

    >>> import numpy as np
    >>> from dali_like import fn, pipeline_def
    >>> from dali_like.plugin.pytorch import LastBatchPolicy
    >>> @pipeline_def(batch_size=4)
    ... def pipeline():
    ...     return fn.external_source(source=lambda info: np.array(info.idx_in_epoch), batch=False)
    >>> iterator = DALIGenericIterator(pipeline(), ["index"], size=10, last_batch_policy=LastBatchPolicy.PARTIAL)
    >>> [batch["index"] for [batch] in iterator]
    [tensor([0, 1, 2, 3]), tensor([4, 5, 6, 7]), tensor([8, 9])]
    """

    def _convert(self, name: str, output: TensorListCPU) -> torch.Tensor:
        return _tensor_of(dense(name, output))


class DALIClassificationIterator(ClassificationIterator, DALIGenericIterator):
    """A `DALIGenericIterator` for pipelines of two outputs, with the names "data" and "label".

    See `BaseIterator` for arguments and errors; there is no `output_map`. Follows
    ``nvidia.dali.plugin.pytorch.DALIClassificationIterator`` 1.53.
    """


class DALIRaggedIterator(RaggedIterator[list[dict[str, Any]]]):
    """A `DALIGenericIterator` for outputs whose samples may have different shapes.

    The type of an output depends only on its tag, and not on the shapes in a batch.

    See `BaseIterator` for the other arguments and errors. Follows
    ``nvidia.dali.plugin.pytorch.DALIRaggedIterator`` 1.53.

    Args:
        output_types: for each output, `DENSE_TAG` for one tensor; `SPARSE_LIST_TAG` for a list of tensors; or
            `SPARSE_COO_TAG` for a sparse tensor of shape (samples, length of the longest, ...), whose element ``[i, j]`` is
            element or row j of sample i. None: all are dense.

    Raises:
        IteratorArgumentError: `output_types` does not have one of the three tags for each output. In ``next``: samples of a
            sparse output have no dimensions, or differ in other dimensions than the first.

    >>> import numpy as np
    >>> from dali_like import fn, pipeline_def
    >>> @pipeline_def(batch_size=3)
    ... def pipeline():
    ...     return fn.external_source(source=lambda info: np.arange(info.idx_in_batch), batch=False)
    >>> iterator = DALIRaggedIterator(pipeline(), ["points"], output_types=[DALIRaggedIterator.SPARSE_COO_TAG])
    >>> [batch] = next(iterator)
    >>> batch["points"].to_dense()
    tensor([[0, 0],
            [0, 0],
            [0, 1]])
    """

    SPARSE_COO_TAG: ClassVar[str] = "sparse_coo"
    _TAGS = (*RaggedIterator._TAGS, SPARSE_COO_TAG)

    def _dense(self, name: str, output: TensorListCPU) -> torch.Tensor:
        return _tensor_of(dense(name, output))

    def _list(self, output: TensorListCPU) -> list[torch.Tensor]:
        return [_tensor_of(sample) for sample in output]

    def _combine(self, batches: list[dict[str, Any]]) -> list[dict[str, Any]]:
        sparse = [name for name, tag in self._types.items() if tag == self.SPARSE_COO_TAG]
        return [{**batch, **{name: _sparse(name, batch[name]) for name in sparse}} for batch in batches]


def _sparse(name: str, samples: list[torch.Tensor]) -> torch.Tensor:
    shapes = {tuple(sample.shape[1:]) for sample in samples if sample.ndim}
    if len(shapes) != 1 or not all(sample.ndim for sample in samples):
        raise IteratorArgumentError(
            f"output_types: output {name!r} cannot be {DALIRaggedIterator.SPARSE_COO_TAG!r}, since its samples differ in "
            f"more than their first dimension, or have none; take it as {DALIRaggedIterator.SPARSE_LIST_TAG!r}"
        )
    elements = torch.cat(samples)
    device = elements.device
    lengths = torch.tensor([len(sample) for sample in samples], device=device)
    rows = torch.repeat_interleave(torch.arange(len(samples), device=device), lengths)
    columns = torch.arange(len(elements), device=device) - (lengths.cumsum(0) - lengths)[rows]
    size = (len(samples), int(lengths.max()), *elements.shape[1:])
    return torch.sparse_coo_tensor(torch.stack([rows, columns]), elements, size, check_invariants=False)
