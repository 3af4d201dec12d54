"""Iterators over pipelines that deliver NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dali_like.plugin._outputs import dense
from dali_like.plugin.base_iterator import BaseIterator
from dali_like.plugin.epoch_progress import LastBatchPolicy
from dali_like.plugin.ragged import RaggedIterator
from dali_like.tensors import TensorListCPU

__all__ = ["DALIGenericIterator", "DALIRaggedIterator", "LastBatchPolicy"]


class DALIGenericIterator(BaseIterator[NDArray[Any], list[dict[str, NDArray[Any]]]]):
    """Deliver batches as a list of dicts, one per pipeline: {name of output: array of shape (samples, ...)}.

    Arrays are views of the batch, which is not overwritten while an array is alive. Outputs on a GPU are copied.

    Arguments and errors: see `BaseIterator`. In addition, ``next`` raises `RaggedError` if the samples of an output have
    different shapes. That batch is lost. Use `DALIRaggedIterator` for such outputs. Follows
    ``nvidia.dali.plugin.pytorch.DALIGenericIterator`` 1.53.

    >>> import numpy as np
    >>> from dali_like import fn, pipeline_def
    >>> @pipeline_def(batch_size=4)
    ... def pipeline():
    ...     return fn.external_source(source=lambda info: np.array(info.idx_in_epoch), batch=False)
    >>> iterator = DALIGenericIterator(pipeline(), ["index"], size=10, last_batch_policy=LastBatchPolicy.PARTIAL)
    >>> len(iterator)
    3
    >>> [batch["index"].tolist() for [batch] in iterator]
    [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    """

    def _convert(self, name: str, output: TensorListCPU) -> NDArray[Any]:
        return np.asarray(dense(name, output.as_cpu()))


class DALIRaggedIterator(RaggedIterator[list[dict[str, Any]]]):
    """Like `DALIGenericIterator`, for samples of different shapes: a list of arrays per output, one per sample.

    `output_types` alone decides the form of an output, not the shapes in a batch.

    Other arguments and errors: see `BaseIterator`. Follows ``nvidia.dali.plugin.pytorch.DALIRaggedIterator`` 1.53.

    Args:
        output_types: for each output, `DENSE_TAG` for one array, or `SPARSE_LIST_TAG` for a list. None: all are dense.

    Raises:
        IteratorArgumentError: `output_types` does not have one of the two tags for each output.

    >>> import numpy as np
    >>> from dali_like import fn, pipeline_def
    >>> @pipeline_def(batch_size=3)
    ... def pipeline():
    ...     return fn.external_source(source=lambda info: np.arange(info.idx_in_batch), batch=False)
    >>> iterator = DALIRaggedIterator(pipeline(), ["points"], output_types=[DALIRaggedIterator.SPARSE_LIST_TAG])
    >>> [batch] = next(iterator)
    >>> [points.tolist() for points in batch["points"]]
    [[], [0], [0, 1]]
    """

    def _dense(self, name: str, output: TensorListCPU) -> NDArray[Any]:
        return np.asarray(dense(name, output.as_cpu()))

    def _list(self, output: TensorListCPU) -> list[NDArray[Any]]:
        samples = output.as_cpu()
        return [samples.at(i) for i in range(len(samples))]
