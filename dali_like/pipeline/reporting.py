"""What a pipeline says of itself: what has happened, its outputs, its memory, its graph."""

from __future__ import annotations

import os
from collections.abc import Container
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dali_like.common.notices import warn
from dali_like.errors import ArgumentClashError
from dali_like.graph.defining import Definable
from dali_like.graph.expectations import per_output
from dali_like.graph.nodes import Graph, OperatorNode, producer_names
from dali_like.graph.pipeline_arguments import HasArguments
from dali_like.monitor.loops import LoopMeter
from dali_like.monitor.monitored import Monitored
from dali_like.types import DALIDataType

if TYPE_CHECKING:
    from dali_like.monitor.statistics import Statistics
    from dali_like.pipeline.runtime import Runtime


class Reporting(HasArguments, Definable, Monitored):
    """The methods that look at a pipeline and change nothing, but for the graph: it is defined where it has not been."""

    _batch_size: int
    _call: AbstractContextManager[None]
    _runtime: Runtime | None
    _meter: LoopMeter
    _final_statistics: Statistics | None

    @property
    def py_worker_pids(self) -> list[int]:
        """The process ids of the workers; empty before they have started."""
        runtime = self._runtime  # another thread may be closing the pipeline
        return runtime.process_pool.worker_pids if runtime is not None and runtime.process_pool is not None else []

    @property
    def _loop_meter(self) -> LoopMeter:
        return self._meter

    def statistics(self, *, memory: bool = False) -> Statistics:
        """What has happened so far, and where the time has gone. Any thread may ask, and after `close`, too.

        It is measured in any case, which takes less than a hundredth of the time.

        Args:
            memory: whether to ask the system how much memory the processes take, which takes it some milliseconds each.

        >>> import numpy as np
        >>> from dali_like import fn, pipeline_def
        >>> @pipeline_def(batch_size=4)
        ... def pipeline():
        ...     return fn.external_source(source=lambda info: np.array(info.idx_in_epoch), batch=False)
        >>> with pipeline() as pipe:
        ...     for _ in range(10):
        ...         batch = pipe.run()
        >>> pipe.statistics().loop.batches
        10
        """
        from dali_like.monitor.gathering import num_cpus  # noqa: PLC0415  # not before somebody wants to know
        from dali_like.monitor.process_memory import memory_of  # noqa: PLC0415
        from dali_like.monitor.statistics import Settings, Statistics  # noqa: PLC0415
        from dali_like.pipeline.pipeline_statistics import statistics_of  # noqa: PLC0415

        runtime = self._runtime
        if self._final_statistics is not None:  # looked at last, since another thread may be closing the pipeline
            return self._final_statistics
        settings = Settings("pipeline", self._batch_size, num_cpus=num_cpus())
        if runtime is None:
            return Statistics(settings=settings)
        statistics = statistics_of(runtime, self._meter)
        if not memory:
            return statistics
        here = self._arguments.py_start_method != "ray"  # the workers, whose numbers else say nothing
        return replace(statistics, memory=memory_of(self.py_worker_pids if here else ()))

    @property
    def num_outputs(self) -> int:
        """How many outputs there are."""
        with self._call:
            return len(self._make_graph().outputs)

    def output_dtype(self) -> list[DALIDataType | None]:
        """The data type that each output is declared to have; None where it may have any."""
        return per_output("output_dtype", self._arguments.output_dtype, self.num_outputs)

    def output_ndim(self) -> list[int | None]:
        """The number of dimensions that each output is declared to have; None where it may have any."""
        return per_output("output_ndim", self._arguments.output_ndim, self.num_outputs)

    def output_stream(self) -> None:
        """The CUDA stream of the outputs. There is none on the CPU."""

    def epoch_size(self, name: str | None = None) -> dict[str, int]:
        """The sizes of DALI's readers. There are none, and external sources end when they say so.

        Raises:
            ArgumentClashError: the size of one is asked for.
        """
        return self.reader_meta(name)

    def reader_meta(self, name: str | None = None) -> dict[str, Any]:
        """What DALI's readers say of themselves. There are none.

        Raises:
            ArgumentClashError: that of one is asked for.
        """
        if name is not None:
            raise ArgumentClashError(f"Operator {name} not found or does not expose valid metadata: there are no readers")
        return {}

    def executor_statistics(self) -> dict[str, Any]:
        """Nothing, as DALI has it under its default executor; see `statistics`."""
        return {}

    def external_source_shm_statistics(self) -> dict[str, list[int]]:
        """The shared memory of parallel sources.

        Returns:
            "capacities": how many bytes each batch takes that is being made, ready, held by somebody, or kept for reuse.
            "per_sample_capacities": the same, divided by ``batch_size``.
        """
        runtime = self._runtime  # another thread may be closing the pipeline
        capacities = runtime.process_pool.slot_bytes if runtime is not None and runtime.process_pool is not None else []
        return {
            "capacities": capacities,
            "per_sample_capacities": [capacity // self._batch_size for capacity in capacities],
        }

    @property
    def operator_places(self) -> dict[str, str]:
        """By operator, "workers" if it runs in these, right behind the source it works on, or else "threads"."""
        with self._call:
            graph = self._make_graph()
            fused = self._fused(graph)
        names = producer_names(graph)
        return {names[node]: "workers" if node in fused else "threads" for node in graph.operators}

    def save_graph_to_dot_file(
        self,
        filename: str | os.PathLike[str],
        *,
        show_tensors: bool = False,
        show_ids: bool | None = None,
        use_colors: bool = False,
    ) -> None:
        """Write the graph into a file, as a drawing for Graphviz. Operators that run in the workers have a double line.

        Args:
            filename: the file; it is overwritten.
            show_tensors: draw the data between the operators, too.
            show_ids: without effect, and deprecated.
            use_colors: tell sources, operators and constants apart by colour.
        """
        from dali_like.graph.dot import dot_of  # noqa: PLC0415  # few programs draw

        if show_ids is not None:
            warn("show_ids is deprecated and has no effect", DeprecationWarning)
        with self._call:
            graph = self._make_graph()
            fused = self._fused(graph)
        with open(filename, "w", encoding="utf-8") as file:
            file.write(dot_of(graph, show_tensors, use_colors, fused))

    def _fused(self, graph: Graph) -> Container[OperatorNode]:
        """The operators that run in the workers."""
        from dali_like.graph.placement import fused_operators, place  # noqa: PLC0415  # which the engine imports, too

        return fused_operators(place(graph, self._arguments, 0))
