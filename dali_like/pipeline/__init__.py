"""Pipelines: definition, arguments, runtime, checkpoints, serialization. DALI's names are importable from here.

`dali_like.pipeline.pipeline` is the class that users see; `runtime` owns shared memory, worker pools and the executor.
Imports every layer below: `monitor`, `fn`, `operators`, `graph`, `tensors`, `sources`, `device`, `engine`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dali_like.common.lazy_names import importer

if TYPE_CHECKING:
    from dali_like.graph.execution.pipeline_arguments import OperatorConcurrency, StreamPolicy
    from dali_like.graph.language.nodes import DataNode
    from dali_like.pipeline import experimental
    from dali_like.pipeline.definition import do_not_convert, pipeline_def
    from dali_like.pipeline.pipeline import Pipeline

__all__ = ["DataNode", "OperatorConcurrency", "Pipeline", "StreamPolicy", "do_not_convert", "experimental", "pipeline_def"]

_PLACES = {
    "dali_like.graph.language.nodes": ("DataNode",),
    "dali_like.graph.execution.pipeline_arguments": ("OperatorConcurrency", "StreamPolicy"),
    "dali_like.pipeline.definition": ("do_not_convert", "pipeline_def"),
    "dali_like.pipeline.experimental": (),
    "dali_like.pipeline.pipeline": ("Pipeline",),
}

__getattr__, __dir__ = importer(__name__, _PLACES)
