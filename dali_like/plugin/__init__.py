"""Iterators over pipelines for training loops, with DALI's arguments.

The names of this package deliver NumPy arrays. `pytorch` and `jax` have iterators for these frameworks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dali_like.common.lazy_names import importer

if TYPE_CHECKING:
    from dali_like.plugin.base_iterator import BaseIterator
    from dali_like.plugin.epoch_progress import LastBatchPolicy
    from dali_like.plugin.numpy import DALIGenericIterator, DALIRaggedIterator

__all__ = ["BaseIterator", "DALIGenericIterator", "DALIRaggedIterator", "LastBatchPolicy"]

_PLACES = {
    "dali_like.plugin.base_iterator": ("BaseIterator",),
    "dali_like.plugin.numpy": ("DALIGenericIterator", "DALIRaggedIterator"),
    "dali_like.plugin.epoch_progress": ("LastBatchPolicy",),
}

__getattr__, __dir__ = importer(__name__, _PLACES)
