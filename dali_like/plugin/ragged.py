"""Base class of the iterators over outputs with samples of different shapes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from dali_like.common.suggestions import suggest_arguments
from dali_like.errors import IteratorArgumentError
from dali_like.pipeline.pipeline import Pipeline
from dali_like.plugin.base_iterator import BaseIterator, Batch
from dali_like.plugin.epoch_progress import LastBatchPolicy
from dali_like.tensors import TensorListCPU

__all__ = ["RaggedIterator"]


class RaggedIterator(BaseIterator[Any, Batch]):
    """Iterate over batches; each output is one array, or a list with one array per sample.

    The iterators of each framework define `_dense` and `_list`, and may add to `_TAGS`.

    Other arguments and errors: see `BaseIterator`.

    Args:
        output_types: one of the tags for each output. None: all are dense.

    Raises:
        IteratorArgumentError: `output_types` does not have one of the tags for each output.
    """

    DENSE_TAG: ClassVar[str] = "dense"
    SPARSE_LIST_TAG: ClassVar[str] = "sparse_list"
    _TAGS: ClassVar[tuple[str, ...]] = (DENSE_TAG, SPARSE_LIST_TAG)

    @suggest_arguments
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
        *,
        progress: bool | str = False,
    ) -> None:
        types = [self.DENSE_TAG] * len(output_map) if output_types is None else list(output_types)
        if len(types) != len(output_map) or not set(self._TAGS).issuperset(types):
            raise IteratorArgumentError(
                f"output_types must be {' or '.join(map(repr, self._TAGS))} for each of the outputs {output_map!r}, not "
                f"{output_types!r}"
            )
        self._types = dict(zip(output_map, types, strict=True))
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
            progress=progress,
        )

    @abstractmethod
    def _dense(self, name: str, output: TensorListCPU) -> Any:
        """Return an output as one array."""

    @abstractmethod
    def _list(self, output: TensorListCPU) -> list[Any]:
        """Return an output as a list of arrays."""

    def _convert(self, name: str, output: TensorListCPU) -> Any:
        return self._dense(name, output) if self._types[name] == self.DENSE_TAG else self._list(output)
