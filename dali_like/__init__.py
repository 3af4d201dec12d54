"""Feeds training loops from Python callbacks, in parallel worker processes, through shared memory, with DALI's API.

>>> from dali_like import fn, pipeline_def, types
"""

from __future__ import annotations

from dali_like import backend, data_node, errors, fn, math, ops, pickling, tensors, types
from dali_like.arguments import OperatorConcurrency, StreamPolicy
from dali_like.definition import pipeline_def
from dali_like.expressions import newaxis
from dali_like.pipeline import Pipeline
from dali_like.workers.info import WorkerInfo, get_worker_info

__version__ = "0.1.0"

__all__ = [
    "OperatorConcurrency",
    "Pipeline",
    "StreamPolicy",
    "WorkerInfo",
    "__version__",
    "backend",
    "data_node",
    "errors",
    "fn",
    "get_worker_info",
    "math",
    "newaxis",
    "ops",
    "pickling",
    "pipeline_def",
    "tensors",
    "types",
]
