"""How the graph of a pipeline is defined, and which pipeline is being defined."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from dali_like.common.interrupts import interruptible
from dali_like.errors import DefinitionError, NoOutputsError, PipelineStateError
from dali_like.graph.nodes import DataNode, Graph, make_graph, output_nodes

if TYPE_CHECKING:
    from dali_like.pipeline.pipeline import Pipeline


_NO_OUTPUTS = (
    "the pipeline has no outputs: return the nodes that run() is to deliver from the pipeline's function, or pass them to "
    "set_outputs()"
)


class _Current(threading.local):
    """The pipelines that are being defined in this thread, the innermost last."""

    def __init__(self) -> None:
        self.pipelines: list[Any] = []


_current = _Current()


class Definable:
    """What a pipeline delivers: set by `set_outputs`, or by `define_graph` in a class that derives from Pipeline."""

    def __init__(self) -> None:
        super().__init__()
        self._outputs: tuple[DataNode, ...] = ()
        self._sinks: list[DataNode] = []
        self._graph: Graph | None = None

    @staticmethod
    def current() -> Pipeline | None:
        """The pipeline that is being defined in this thread: the innermost ``with pipe:``, or None."""
        return _current.pipelines[-1] if _current.pipelines else None

    @staticmethod
    def push_current(pipeline: Pipeline) -> Pipeline | None:
        """Make a pipeline the current one, until `pop_current`. Returns the one before it."""
        before = Definable.current()
        _current.pipelines.append(pipeline)
        return before

    @staticmethod
    def pop_current() -> None:
        """Make the pipeline before it the current one again.

        Raises:
            PipelineStateError: there is no current one.
        """
        if not _current.pipelines:
            raise PipelineStateError("pop_current() without push_current() before it")
        _current.pipelines.pop()

    def __enter__(self) -> Self:
        """Make this the current pipeline. Leaving the context does not close it."""
        _current.pipelines.append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.pop_current()

    def set_outputs(self, *outputs: Any) -> None:
        """Say what `run` delivers.

        Args:
            outputs: nodes; or numbers, one-dimensional lists of numbers and arrays, which are delivered as constants: see
                `dali_like.types.Constant`.

        Raises:
            DefinitionError: something is neither, or the pipeline has been built.
        """
        self._check_undefined("set_outputs()")
        self._outputs = output_nodes(outputs)

    def add_sink(self, edge: DataNode) -> None:
        """Have a node computed although no output needs it, for what its callback does besides.

        Raises:
            DefinitionError: it is not a node, or the pipeline has been built.
        """
        self._check_undefined("add_sink()")
        if not isinstance(edge, DataNode):
            raise DefinitionError(f"add_sink() takes a DataNode, not a {type(edge).__qualname__}")
        self._sinks.append(edge)

    def define_graph(self) -> Any:
        """What a class that derives from Pipeline may define: it returns the outputs, as a tuple or list or a single one.

        It is called when the pipeline is built, unless `set_outputs` has been.
        """
        raise NoOutputsError(_NO_OUTPUTS)

    def iter_setup(self) -> None:
        """What a class that derives from Pipeline may define: it is called before each batch is taken.

        It may raise StopIteration, which ends the epoch.
        """

    def _make_graph(self) -> Graph:
        if self._graph is None:
            self._graph = make_graph(self._outputs or self._define(), self._sinks)
        return self._graph

    def _define(self) -> tuple[DataNode, ...]:
        with self, interruptible():
            outputs = self.define_graph()
        nodes = output_nodes(outputs if isinstance(outputs, (list, tuple)) else [outputs])
        if not nodes:
            raise NoOutputsError(_NO_OUTPUTS)
        return nodes

    def _forget_graph(self) -> None:
        """Let go of the sources, and whatever they hold."""
        self._outputs = ()
        self._sinks = []
        self._graph = None

    def _check_undefined(self, what: str) -> None:
        if self._graph is not None:
            raise DefinitionError(f"{what} comes before build()")
