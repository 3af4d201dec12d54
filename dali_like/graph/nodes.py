"""The nodes of a pipeline's graph, as the pipeline's function handles them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NoReturn

from dali_like.errors import DefinitionError, DeviceError
from dali_like.external_source import ExternalSource
from dali_like.graph.operators import Operator


@dataclass(frozen=True, eq=False)
class SourceNode:
    """An external source in a graph."""

    external: ExternalSource


@dataclass(frozen=True, eq=False)
class OperatorNode:
    """An operator applied to data in a graph."""

    operator: Operator
    inputs: tuple[DataNode, ...]


@dataclass(frozen=True, eq=False)
class DataNode:
    """One output of a source or an operator: a batch in every iteration, which has no value while the graph is made.

    Attributes:
        name: for messages.
        device: "cpu".
        producer: where the data comes from.
        output: which output of the producer it is.
    """

    name: str
    device: str
    producer: SourceNode | OperatorNode = field(repr=False)
    output: int = 0

    def gpu(self) -> NoReturn:
        """Move the data to the GPU.

        Raises:
            DeviceError: always, in this version.
        """
        raise DeviceError("batches on the GPU are not there in this version: leave .gpu() out")

    def cpu(self) -> DataNode:
        """The node itself: its data is in host memory."""
        return self

    def __bool__(self) -> NoReturn:
        raise DefinitionError(
            "a DataNode stands for batches that are computed later and has no truth value while the pipeline is defined"
        )

    def __iter__(self) -> NoReturn:
        raise DefinitionError("a DataNode cannot be unpacked; a source has several outputs if num_outputs= says so")


@dataclass(frozen=True)
class Graph:
    """What a pipeline computes.

    Attributes:
        outputs: the nodes whose batches `Pipeline.run` returns.
        sources: those that the outputs need.
        operators: those that the outputs need, in an order in which they can run.
    """

    outputs: tuple[DataNode, ...]
    sources: tuple[SourceNode, ...]
    operators: tuple[OperatorNode, ...]


def make_graph(outputs: Any) -> Graph:
    """The graph that ends in `outputs`.

    Raises:
        DefinitionError: there are no outputs, or they are something other than data nodes.
    """
    nodes = _check_outputs(outputs)
    sources: dict[SourceNode, None] = {}
    operators: dict[OperatorNode, None] = {}

    def visit(node: DataNode) -> None:
        producer = node.producer
        if isinstance(producer, SourceNode):
            sources[producer] = None
        elif producer not in operators:
            for data in producer.inputs:
                _refuse_objects(producer, data)
                visit(data)
            operators[producer] = None

    for node in nodes:
        visit(node)
    return Graph(tuple(nodes), tuple(sources), tuple(operators))


def _refuse_objects(producer: OperatorNode, data: DataNode) -> None:
    if isinstance(data.producer, SourceNode) and data.producer.external.is_object(data.output):
        raise DefinitionError(f"{producer.operator.name} works on tensors; {data.name} is of Python objects")


def _check_outputs(outputs: Any) -> list[DataNode]:
    if outputs is None or (isinstance(outputs, (list, tuple)) and not outputs):
        raise DefinitionError(
            "the pipeline has no outputs: return the nodes that run() is to deliver from the pipeline's function, or pass "
            "them to set_outputs()"
        )
    nodes = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
    for i, node in enumerate(nodes):
        if isinstance(node, (list, tuple)):
            raise DefinitionError(
                f"Illegal pipeline output type. The output {i} contains a nested `DataNode`: "
                "return the nodes of a source with several outputs one by one, with a star in front"
            )
        if not isinstance(node, DataNode):
            raise DefinitionError(f"Illegal output type. The output {i} is a `{type(node).__qualname__}`, not a DataNode")
    return nodes
