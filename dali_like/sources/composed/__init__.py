"""Composed datasets: a description of sources and stages, evaluated at positions or in logical shards.

`dataset` has the class that users see. `stage` has the contract of stages, the other modules the stages. `positions` is the
arithmetic of shards and ranks, and `stream` evaluates a dataset in one process. Nothing here knows loaders or pipelines.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from dali_like.common.lazy_names import importer

if TYPE_CHECKING:
    from dali_like.sources.composed import bucketing, columnar, costs, draws, from_files, mixing, packing, reader_samples

__all__ = ["bucketing", "columnar", "costs", "draws", "from_files", "is_composed", "mixing", "packing", "reader_samples"]

# Programs that do not need these modules start sooner.
__getattr__, __dir__ = importer(__name__, {f"{__name__}.{name}": () for name in __all__ if name != "is_composed"})


def is_composed(source: Any) -> bool:
    """Return whether a source is a composed dataset. If its module is not imported, no object is one."""
    module = sys.modules.get(f"{__name__}.dataset")
    return module is not None and isinstance(source, module.ComposedDataset)
