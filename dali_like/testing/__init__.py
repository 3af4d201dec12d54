"""Helpers for tests of this library and of its users: checks and strategies for datasets, a simulated GPU in host memory.

No other package imports from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dali_like.common.lazy_names import importer

if TYPE_CHECKING:
    from dali_like.testing.dataset_check import check_dataset
    from dali_like.testing.strategies import composed_datasets, object_samples, ragged_arrays

__all__ = ["check_dataset", "composed_datasets", "object_samples", "ragged_arrays"]

_PLACES = {
    "dali_like.testing.dataset_check": ("check_dataset",),
    "dali_like.testing.strategies": ("composed_datasets", "object_samples", "ragged_arrays"),
}

__getattr__, __dir__ = importer(__name__, _PLACES)
