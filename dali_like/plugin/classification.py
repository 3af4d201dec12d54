"""Base class of the iterators over images and labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dali_like.common.suggestions import suggest_arguments
from dali_like.pipeline.pipeline import Pipeline
from dali_like.plugin.base_iterator import BaseIterator
from dali_like.plugin.epoch_progress import LastBatchPolicy

__all__ = ["ClassificationIterator"]


class ClassificationIterator(BaseIterator[Any, list[dict[str, Any]]]):
    """Iterate over pipelines of two outputs, with the names "data" and "label".

    The iterators of each framework derive from this class and, behind it, from their `DALIGenericIterator`.

    Arguments and errors: see `BaseIterator`; there is no `output_map`.
    """

    @suggest_arguments
    def __init__(
        self,
        pipelines: Pipeline | Sequence[Pipeline],
        size: int = -1,
        reader_name: str | None = None,
        auto_reset: bool | str | None = False,
        fill_last_batch: bool | None = None,
        dynamic_shape: Any = False,
        last_batch_padded: bool = False,
        last_batch_policy: LastBatchPolicy = LastBatchPolicy.FILL,
        prepare_first_batch: bool = True,
        *,
        progress: bool | str = False,
    ) -> None:
        super().__init__(
            pipelines,
            ["data", "label"],
            size=size,
            reader_name=reader_name,
            auto_reset=auto_reset,
            fill_last_batch=fill_last_batch,
            dynamic_shape=dynamic_shape,
            last_batch_padded=last_batch_padded,
            last_batch_policy=last_batch_policy,
            prepare_first_batch=prepare_first_batch,
            progress=progress,
        )
