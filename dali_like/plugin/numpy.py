"""Iterators over pipelines that deliver NumPy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from numpy.typing import NDArray

from dali_like.errors import IteratorArgumentError, RaggedError
from dali_like.pipeline import Pipeline
from dali_like.plugin.base_iterator import BaseIterator
from dali_like.plugin.progress import LastBatchPolicy
from dali_like.tensors import TensorListCPU

__all__ = ["DALIGenericIterator", "DALIRaggedIterator", "LastBatchPolicy"]


class DALIGenericIterator(BaseIterator[NDArray[Any], list[dict[str, NDArray[Any]]]]):
    """Delivers batches as a list with a dict for each pipeline: the name of each output, and its samples as one array.

    The arrays are views of the batch, which is not overwritten as long as one of them is held. The samples of an output must
    have one shape in each batch; where they have not, ``next`` raises `RaggedError`, that batch is lost, and
    `DALIRaggedIterator` is the one to use.

    Arguments and errors are those of `BaseIterator`. They follow ``nvidia.dali.plugin.pytorch.DALIGenericIterator`` 1.53.

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
        return _dense(name, output)


class DALIRaggedIterator(BaseIterator[NDArray[Any] | list[NDArray[Any]], list[dict[str, Any]]]):
    """As `DALIGenericIterator`, for outputs whose samples may have different shapes: such an output is a list of arrays.

    An output is always the one or always the other, whatever the shapes in a batch happen to be.

    Arguments and errors are those of `BaseIterator`, and one more. They follow
    ``nvidia.dali.plugin.pytorch.DALIRaggedIterator`` 1.53.

    Args:
        output_types: for each output, `DENSE_TAG` for one array, or `SPARSE_LIST_TAG` for a list. None: all are dense.

    Raises:
        IteratorArgumentError: `output_types` does not say one of the two for each output.

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

    DENSE_TAG: ClassVar[str] = "dense"
    SPARSE_LIST_TAG: ClassVar[str] = "sparse_list"

    def __init__(
        self,
        pipelines: Pipeline | Sequence[Pipeline],
        output_map: Sequence[str],
        size: int = -1,
        reader_name: str | None = None,
        output_types: Sequence[str] | None = None,
        auto_reset: bool | str | None = False,
        fill_last_batch: bool | None = None,
        dynamic_shape: Any = False,
        last_batch_padded: bool = False,
        last_batch_policy: LastBatchPolicy = LastBatchPolicy.FILL,
        prepare_first_batch: bool = True,
    ) -> None:
        types = [self.DENSE_TAG] * len(output_map) if output_types is None else list(output_types)
        if len(types) != len(output_map) or not {self.DENSE_TAG, self.SPARSE_LIST_TAG}.issuperset(types):
            raise IteratorArgumentError(
                f"output_types must be {self.DENSE_TAG!r} or {self.SPARSE_LIST_TAG!r} for each of the outputs "
                f"{output_map!r}, not {output_types!r}"
            )
        self._lists = {name for name, tag in zip(output_map, types, strict=True) if tag == self.SPARSE_LIST_TAG}
        super().__init__(
            pipelines,
            output_map,
            size,
            reader_name,
            auto_reset,
            fill_last_batch,
            dynamic_shape,
            last_batch_padded,
            last_batch_policy,
            prepare_first_batch,
        )

    def _convert(self, name: str, output: TensorListCPU) -> NDArray[Any] | list[NDArray[Any]]:
        if name in self._lists:
            return [output.at(i) for i in range(len(output))]
        return _dense(name, output)


def _dense(name: str, output: TensorListCPU) -> NDArray[Any]:
    try:
        return output.as_array()
    except RaggedError:
        shapes = sorted(set(output.shape()))
        raise RaggedError(
            f"the samples of output {name!r} have {len(shapes)} different shapes, from {shapes[0]} to {shapes[-1]}, and do "
            "not make one array. Give them one shape in the pipeline, or take them as a list, by a DALIRaggedIterator"
        ) from None
