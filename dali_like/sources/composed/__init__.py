"""Composed datasets: a description of sources and stages, evaluated at positions or in logical shards.

`dataset` has the class that users see. `stage` has the contract of stages, the other modules the stages. `positions` is the
arithmetic of shards and ranks, and `stream` evaluates a dataset in one process. Nothing here knows loaders or pipelines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dali_like.common.lazy_names import importer

if TYPE_CHECKING:
    from dali_like.sources.composed import bucketing, draws, from_files, mixing, packing

__all__ = ["bucketing", "draws", "from_files", "mixing", "packing"]

# Programs that do not need these modules start sooner.
__getattr__, __dir__ = importer(__name__, {f"{__name__}.{name}": () for name in __all__})
