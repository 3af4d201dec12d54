"""Feeds training loops from Python callbacks, in parallel worker processes, through shared memory, with DALI's API.

>>> from dali_like import fn, pipeline_def, types
"""

from __future__ import annotations

from dali_like import errors, fn, tensors, types
from dali_like.definition import pipeline_def
from dali_like.pipeline import Pipeline

__version__ = "0.1.0"

__all__ = ["Pipeline", "__version__", "errors", "fn", "pipeline_def", "tensors", "types"]
