"""Traces of pipelines: the main process, the workers and the GPU."""

from __future__ import annotations

import functools
import os
import time
from typing import TYPE_CHECKING, Any

from dali_like.common.hooks import GraphHooks, InlineHooks, LoopHooks
from dali_like.engine.pool.assembler import Assembler
from dali_like.engine.pool.batch import Batch
from dali_like.graph.execution.batch_runs import BatchId
from dali_like.monitor.trace.trace import Trace, count_nothing, details_of_key
from dali_like.monitor.trace.trace_records import BUILD, OPERATORS, WAIT
from dali_like.monitor.trace.tracer import track_of_thread

if TYPE_CHECKING:
    from dali_like.pipeline.pipeline import Pipeline


class PipelineTrace(Trace):
    """A trace of a pipeline. Entering it builds the pipeline, and records that; see `dali_like.monitor.trace.trace`."""

    def __init__(self, pipe: Pipeline, path: str | os.PathLike[str] | None, *, nvtx: bool = False) -> None:
        super().__init__(path, nvtx=nvtx)
        self._pipe = pipe

    @property
    def owner(self) -> Pipeline:
        return self._pipe

    def begin(self) -> None:
        pipe, begin_ns = self._pipe, time.monotonic_ns()
        pipe.build()
        self.tracer.add(track_of_thread(), BUILD, begin_ns, time.monotonic_ns(), {})
        pipe._monitor.begin_trace(self, "pipeline")
        runtime = pipe._runtime
        assert runtime is not None
        tracer, executor = self.tracer, runtime.executor
        assert executor is not None
        assert runtime.inline_pool is not None
        hooks = GraphHooks(
            wait=tracer.span(WAIT),
            compute=tracer.span(
                OPERATORS if executor.has_threads else "begin copies", lambda _, batch_id: batch_id._asdict()
            ),
            times=functools.partial(tracer.add_operators, BatchId._asdict),
        )
        tracer.hook(executor.computation, hooks)
        tracer.hook(runtime.inline_pool, InlineHooks(compute=tracer.span("serial source", _details_of_source)))
        if runtime.gpu_pool is not None:
            tracer.hook(runtime.gpu_pool, InlineHooks(compute=tracer.span("GPU source", details_of_key)))
        if runtime.device is not None:
            tracer.watch_copies(runtime.device)
        count = count_nothing if runtime.process_pool is None else self.follow_pool(runtime.process_pool)
        self.tracer.hook(pipe._monitor, LoopHooks(take=functools.partial(self.calls.call, count)))

    def end(self) -> None:
        self._pipe._monitor.end_trace(self.records)


def _details_of_source(batch: Batch, assembler: Assembler, *_: Any) -> dict[str, Any]:
    return {"source": assembler.source.name, **details_of_key(batch.key)}
