"""Data loading for training loops: Python callbacks in parallel worker processes, batches through shared memory, DALI's
API.

>>> from dali_like import fn, pipeline_def, types
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dali_like.common.lazy_names import importer

if TYPE_CHECKING:
    from dali_like import (  # noqa: F401
        backend,
        backend_impl,
        data,
        data_node,
        errors,
        external_source,
        fn,
        math,
        ops,
        pickling,
        pipeline,
        plugin,
        plugin_manager,
        remote,
        tensors,
        tfrecord,
        types,
    )
    from dali_like.common.cpu_only import use_cpu
    from dali_like.engine.worker.info import WorkerInfo, get_worker_info
    from dali_like.fn._custom_operator import operator
    from dali_like.graph.expressions import newaxis
    from dali_like.graph.pipeline_arguments import OperatorConcurrency, StreamPolicy
    from dali_like.pipeline.definition import pipeline_def
    from dali_like.pipeline.pipeline import Pipeline
    from dali_like.serving.consumer import connect

__version__ = "0.1.0"

__all__ = [
    "OperatorConcurrency",
    "Pipeline",
    "StreamPolicy",
    "WorkerInfo",
    "__version__",
    "backend",
    "backend_impl",
    "connect",
    "data_node",
    "errors",
    "fn",
    "get_worker_info",
    "math",
    "newaxis",
    "operator",
    "ops",
    "pickling",
    "pipeline_def",
    "tensors",
    "tfrecord",
    "types",
    "use_cpu",
]

#: Modules with the names that they provide. All are imported on first use: spawned workers import this package too.
_PLACES = {
    "dali_like.backend": (),
    "dali_like.backend_impl": (),
    "dali_like.common.cpu_only": ("use_cpu",),
    "dali_like.data": (),
    "dali_like.data_node": (),
    "dali_like.engine.worker.info": ("WorkerInfo", "get_worker_info"),
    "dali_like.errors": (),
    "dali_like.external_source": (),
    "dali_like.fn": (),
    "dali_like.fn._custom_operator": ("operator",),
    "dali_like.graph.expressions": ("newaxis",),
    "dali_like.graph.pipeline_arguments": ("OperatorConcurrency", "StreamPolicy"),
    "dali_like.math": (),
    "dali_like.ops": (),
    "dali_like.pickling": (),
    "dali_like.pipeline": (),
    "dali_like.pipeline.definition": ("pipeline_def",),
    "dali_like.pipeline.pipeline": ("Pipeline",),
    "dali_like.plugin": (),
    "dali_like.plugin_manager": (),
    "dali_like.remote": (),
    "dali_like.serving.consumer": ("connect",),
    "dali_like.tensors": (),
    "dali_like.tfrecord": (),
    "dali_like.types": (),
}

__getattr__, _ = importer(__name__, _PLACES)


def __dir__() -> list[str]:
    return __all__
