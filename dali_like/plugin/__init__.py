"""Iterators over pipelines for training loops, with DALI's arguments."""

from __future__ import annotations

from dali_like.plugin.base_iterator import BaseIterator
from dali_like.plugin.numpy import DALIGenericIterator, DALIRaggedIterator
from dali_like.plugin.progress import LastBatchPolicy

__all__ = ["BaseIterator", "DALIGenericIterator", "DALIRaggedIterator", "LastBatchPolicy"]
