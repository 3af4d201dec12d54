"""Data loading for training loops: Python callbacks in parallel worker processes, batches through shared memory, DALI's
API.

>>> from dali_like import fn, pipeline_def, types
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dali_like.common.lazy_names import add_module, alias, importer

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
    from dali_like.graph.execution.pipeline_arguments import OperatorConcurrency, StreamPolicy
    from dali_like.graph.language.expressions import newaxis
    from dali_like.monitor.show.progress import progress
    from dali_like.pipeline.definition import pipeline_def
    from dali_like.pipeline.pipeline import Pipeline
    from dali_like.serving.consumer import connect
    from dali_like.showing.pictures import show

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
    "progress",
    "show",
    "tensors",
    "tfrecord",
    "types",
    "use_cpu",
]

#: Modules for programs written for DALI, which no file defines: docstring, defining module, and names. Without names, those
#: of the defining module's ``__all__``.
ALIASES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "backend": (
        "The classes of batches and tensors, and what programs ask of DALI's backend, as in ``nvidia.dali.backend``.",
        "dali_like.compat.backend",
        (),
    ),
    "backend_impl": (
        "The names of `dali_like.backend`, as in ``nvidia.dali.backend_impl``.",
        "dali_like.compat.backend",
        (),
    ),
    "data_node": ("`DataNode`, as in ``nvidia.dali.data_node``.", "dali_like.graph.language.nodes", ("DataNode",)),
    "external_source": (
        "`external_source`, as in ``nvidia.dali.external_source``; see `dali_like.fn`.",
        "dali_like.fn",
        ("external_source",),
    ),
    "math": (
        "Mathematical functions of data nodes, as in ``nvidia.dali.math``; see `dali_like.graph.language.math_functions`.",
        "dali_like.graph.language.math_functions",
        (),
    ),
    "pickling": (
        "`pickle_by_value`, as in ``nvidia.dali.pickling``; see `dali_like.sources.travel.callback_pickler`.",
        "dali_like.sources.travel.callback_pickler",
        ("pickle_by_value",),
    ),
    "plugin_manager": (
        "Libraries of operators, as in ``nvidia.dali.plugin_manager``: operators are Python functions here.",
        "dali_like.compat.plugin_manager",
        (),
    ),
    "tfrecord": (
        "Features of ``fn.readers.tfrecord``, as in ``nvidia.dali.tfrecord``.",
        "dali_like.sources.readers.tfrecord_features",
        ("Feature", "FixedLenFeature", "VarLenFeature", "float32", "int64", "string"),
    ),
}

#: Names that DALI has in a module, and that a module of a higher layer defines here.
ADDED = {
    ("dali_like.types", "Constant"): "dali_like.graph.language.constants",
    ("dali_like.types", "ScalarConstant"): "dali_like.graph.language.constants",
}

#: Other modules with the names that they provide. All are imported on first use: spawned workers import this package too.
_PLACES = {
    "dali_like.common.cpu_only": ("use_cpu",),
    "dali_like.data": (),
    "dali_like.engine.worker.info": ("WorkerInfo", "get_worker_info"),
    "dali_like.errors": (),
    "dali_like.fn": (),
    "dali_like.fn._custom_operator": ("operator",),
    "dali_like.graph.language.expressions": ("newaxis",),
    "dali_like.graph.execution.pipeline_arguments": ("OperatorConcurrency", "StreamPolicy"),
    "dali_like.monitor.show.progress": ("progress",),
    "dali_like.ops": (),
    "dali_like.pipeline": (),
    "dali_like.pipeline.definition": ("pipeline_def",),
    "dali_like.pipeline.pipeline": ("Pipeline",),
    "dali_like.plugin": (),
    "dali_like.remote": (),
    "dali_like.serving.consumer": ("connect",),
    "dali_like.showing.pictures": ("show",),
    "dali_like.tensors": (),
    "dali_like.types": (),
}

for _name, (_doc, _source, _names) in ALIASES.items():
    add_module(f"{__name__}.{_name}", _doc, alias(f"{__name__}.{_name}", _source, _names))

__getattr__, _ = importer(__name__, _PLACES)


def __dir__() -> list[str]:
    return __all__
