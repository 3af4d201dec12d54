"""The definition of a pipeline: its outputs and sinks, and the stack of pipelines being defined in this thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from dali_like.common.articles import kind_of
from dali_like.errors import DefinitionError, NoOutputsError, PipelineStateError
from dali_like.graph.language.nodes import DataNode, Graph, make_graph, output_nodes

NO_OUTPUTS = (
    "the pipeline has no outputs: return the nodes that run() is to deliver from the pipeline's function, or pass them to "
    "set_outputs()"
)


class _Current(threading.local):
    """The pipelines being defined in this thread, the innermost last."""

    def __init__(self) -> None:
        self.pipelines: list[Any] = []


_current = _Current()


def current_pipeline() -> Any:
    """Return the pipeline being defined in this thread: the innermost ``with pipe:``, or None."""
    return _current.pipelines[-1] if _current.pipelines else None


def push_pipeline(pipeline: Any) -> Any:
    """Make a pipeline the current one until `pop_pipeline`. Return the one before it."""
    before = current_pipeline()
    _current.pipelines.append(pipeline)
    return before


def pop_pipeline() -> None:
    """Make the pipeline before it the current one again.

    Raises:
        PipelineStateError: there is no current pipeline.
    """
    if not _current.pipelines:
        raise PipelineStateError("pop_current() needs a push_current() before it")
    _current.pipelines.pop()


class Definition:
    """Outputs and sinks of one pipeline, and the graph made from them on first use. A pipeline owns it.

    Attributes:
        graph: the graph, once made; then the definition cannot change any more.
    """

    def __init__(self) -> None:
        self.graph: Graph | None = None
        self._outputs: tuple[DataNode, ...] = ()
        self._sinks: list[DataNode] = []

    @property
    def has_outputs(self) -> bool:
        """Whether `set_outputs` has been called with outputs."""
        return bool(self._outputs)

    def set_outputs(self, *outputs: Any) -> None:
        """Set the outputs; see `dali_like.Pipeline.set_outputs`."""
        self._check_open("set_outputs()")
        self._outputs = output_nodes(outputs)

    def add_sink(self, edge: DataNode) -> None:
        """Add a sink; see `dali_like.Pipeline.add_sink`."""
        self._check_open("add_sink()")
        if not isinstance(edge, DataNode):
            raise DefinitionError(f"add_sink() takes a DataNode, not {kind_of(edge)}")
        self._sinks.append(edge)

    def make_graph(self, define: Callable[[], Any]) -> Graph:
        """Return the graph. The first call makes it, from the outputs or else from the result of `define`.

        Raises:
            NoOutputsError: there are no outputs.
        """
        if self.graph is None:
            nodes = self._outputs
            if not nodes:
                outputs = define()
                nodes = output_nodes(outputs if isinstance(outputs, (list, tuple)) else [outputs])
                if not nodes:
                    raise NoOutputsError(NO_OUTPUTS)
            self.graph = make_graph(nodes, self._sinks)
        return self.graph

    def clear(self) -> None:
        """Release the sources and everything they refer to."""
        self.graph = None
        self._outputs = ()
        self._sinks = []

    def _check_open(self, method: str) -> None:
        if self.graph is not None:
            raise DefinitionError(f"{method} must be called before build()")
