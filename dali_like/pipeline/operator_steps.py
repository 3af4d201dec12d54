"""The way of one sample through the operators of a pipeline: `Pipeline.steps_at`.

A second pipeline without workers computes the sources of the batch (`dali_like.pipeline.second_pipeline`). Then the debug
mode computes one operator after another, with the same random numbers, and keeps the result of each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from dali_like.errors import SampleIndexError
from dali_like.graph.execution.batch_runs import BatchId
from dali_like.graph.execution.placement import image_limit_bytes
from dali_like.graph.language.nodes import DataNode, Graph, OperatorNode, Producer, make_graph, producer_names
from dali_like.graph.language.operator_interface import choose_layout
from dali_like.graph.language.stepping import computed_by, record
from dali_like.graph.stepwise.debug_run import CallLog, DebugRun
from dali_like.pipeline.debugging import computed_batch
from dali_like.pipeline.pipeline import Pipeline

__all__ = ["OperatorStep", "sources_of", "steps_of"]


class OperatorStep(NamedTuple):
    """One sample as it leaves a source or an operator.

    Attributes:
        name: of the source or operator, as in `Pipeline.operator_places`.
        outputs: the sample in each output: an array, or another object of a source.
        layouts: of the outputs; "" for outputs without one.
    """

    name: str
    outputs: tuple[Any, ...]
    layouts: tuple[str, ...]


def sources_of(graph: Graph) -> Graph:
    """Return the part of a graph that computes its sources."""
    return make_graph([output for source in graph.sources for output in _outputs_of(source)])


def _outputs_of(source: Any) -> list[DataNode]:
    device = "gpu" if source.external.may_be_on_gpu else "cpu"
    return [DataNode(source.external.name, device, source, i) for i in range(len(source.external.declared))]


def steps_of(graph: Graph, other: Pipeline, outputs: Sequence[Any], batch_id: BatchId, sample: int) -> list[OperatorStep]:
    """Return the steps of a sample, in the order of the pipeline's function, without branches that it does not take.

    Args:
        graph: of the second pipeline, with operators.
        other: the second pipeline, which computes the sources.
        outputs: its batch: the outputs of all sources.
        batch_id: the place of the batch in its epoch.
        sample: the place of the sample in the batch.

    Raises:
        SampleIndexError: the batch has fewer samples.
    """
    size = len(outputs[0])
    if sample >= size:
        raise SampleIndexError(f"the batch has {size} samples, and none with number {sample}")
    rest = iter(outputs)
    for source in graph.sources:
        record(source, computed_batch([next(rest) for _ in source.external.declared]))
    run = DebugRun(
        log=CallLog(),
        batch_id=lambda _: batch_id,
        capacity=size,
        entropy=other._entropy,
        image_limit_bytes=image_limit_bytes(other._arguments),
        fetch=_refuse_sources,
    )
    for node in graph.operators:
        run.compute(node)
    names = producer_names(graph)
    return list(_steps((*graph.sources, *graph.operators), names.__getitem__, sample))


def _steps(producers: Sequence[Producer], name_of: Callable[[Producer], str], sample: int) -> Iterator[OperatorStep]:
    for producer in producers:
        computed = computed_by(producer)
        assert computed is not None
        values = tuple(column[sample] for column in computed.columns)
        if not isinstance(producer, OperatorNode) or not any(value is None for value in values):
            layouts = zip(computed.layouts, values, strict=True)
            yield OperatorStep(
                name_of(producer), values, tuple(choose_layout(each, getattr(value, "ndim", 0)) for each, value in layouts)
            )


def _refuse_sources(number: int, external: Any) -> Any:
    raise AssertionError("the sources of the batch have been computed before")
