"""Feeds training loops from Python callbacks, in parallel worker processes, through shared memory, with DALI's API.

>>> from dali_like import fn, pipeline_def, types
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dali_like import backend, backend_impl, data_node, errors, fn, math, ops, pickling, tensors, types
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
    "backend_impl",
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

#: Where those names are that are no modules.
_MODULES = {
    "OperatorConcurrency": "arguments",
    "Pipeline": "pipeline",
    "StreamPolicy": "arguments",
    "WorkerInfo": "workers.info",
    "get_worker_info": "workers.info",
    "newaxis": "expressions",
    "pipeline_def": "definition",
}


def __getattr__(name: str) -> Any:
    """Import what is used when it is first used: spawned workers, which import this package too, need little of it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_MODULES.get(name, name)}")
    value = globals()[name] = getattr(module, name) if name in _MODULES else module
    return value


def __dir__() -> list[str]:
    return __all__
