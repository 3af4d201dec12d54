"""The nodes of a pipeline's graph, as the pipeline's function handles them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, NoReturn, TypeAlias

import numpy as np

from dali_like.errors import ArgumentClashError, ArgumentError, ArgumentTypeError, DefinitionError, DeviceError
from dali_like.graph.constants import Constant
from dali_like.graph.expressions import Expression
from dali_like.graph.operator_interface import Operator, ShapeOf
from dali_like.sources.external_source import ExternalSource
from dali_like.types import INT64, numpy_dtype, to_dali_type


@dataclass(frozen=True, eq=False)
class SourceNode:
    """An external source in a graph."""

    external: ExternalSource

    @property
    def layouts(self) -> Sequence[str]:
        """Of each output."""
        return self.external.layouts


@dataclass(frozen=True, eq=False)
class OperatorNode:
    """An operator applied to data in a graph.

    Attributes:
        operator: what it does.
        inputs: what it does it to.
        argument_inputs: those of its arguments that differ from sample to sample.
        number: counts the applications in the order in which they were made. Those to several inputs in one call have the
            same, and the same random numbers.
        adapt: given the layouts of its inputs, `operator` for those: what is fed to an input may have another one than was
            known before. None: it is the same for all.
    """

    operator: Operator
    inputs: tuple[DataNode, ...]
    argument_inputs: Mapping[str, DataNode] = field(default_factory=dict)
    number: int = field(default_factory=itertools.count().__next__)
    adapt: Callable[[Sequence[str]], Operator] | None = None

    @property
    def needs(self) -> tuple[DataNode, ...]:
        """All nodes that it takes data from."""
        return (*self.inputs, *self.argument_inputs.values())

    @property
    def is_on_gpu(self) -> bool:
        """Whether its output is; see `dali_like.graph.operator_interface.GpuOperator`."""
        return hasattr(self.operator, "compute_on_gpu")

    @property
    def layouts(self) -> Sequence[str]:
        """Of each output."""
        return self.operator.layouts


@dataclass(frozen=True, eq=False)
class ConstantNode:
    """A constant in a graph: batches of equal samples."""

    constant: Constant

    @property
    def layouts(self) -> Sequence[str]:
        """Of each output."""
        return (self.constant.layout,)


Producer: TypeAlias = SourceNode | OperatorNode | ConstantNode


@dataclass(frozen=True, eq=False)
class DataNode(Expression):
    """One output of a source or an operator: a batch in every iteration, which has no value while the graph is made.

    It has Python's operators, and indices in brackets; see `dali_like.graph.arithmetic` and `dali_like.graph.subscripts`.

    Attributes:
        name: for messages.
        device: where the data is wanted: "cpu" or "gpu". Nodes of both may have the same producer.
        producer: where the data comes from.
        output: which output of the producer it is.
    """

    name: str
    device: str
    producer: Producer = field(repr=False)
    output: int = 0

    @property
    def source(self) -> Producer:
        """Where the data comes from; DALI's name for `producer`."""
        return self.producer

    @property
    def layout(self) -> str:
        """The layout of its samples, as far as the graph knows it."""
        layouts = self.producer.layouts[self.output].split()
        return layouts[0] if len(layouts) == 1 else ""

    def gpu(self) -> DataNode:
        """The same data on the GPU. Whether there is one is looked for when the pipeline is built.

        Raises:
            DefinitionError: the data are Python objects.
        """
        if is_of_objects(self):
            raise DefinitionError(f"{self.name} is of Python objects, which cannot go to a GPU: leave .gpu() out")
        return self if self.device == "gpu" else replace(self, device="gpu")

    def cpu(self) -> DataNode:
        """The same data in host memory."""
        return self if self.device == "cpu" else replace(self, device="cpu")

    def shape(self, *, dtype: Any = None, device: str = "cpu") -> DataNode:
        """A node of the shape of each sample, as a one-dimensional array of INT64, or of `dtype`."""
        operator = ShapeOf(numpy_dtype(INT64 if dtype is None else to_dali_type(dtype)))
        return DataNode(operator.name, checked_device(device), OperatorNode(operator, (self.cpu(),)))

    def property(self, key: str, *, device: str = "cpu") -> DataNode:
        """A node of what is known of each sample besides its data, as an array of bytes.

        Args:
            key: "layout", the layout that the graph gives it; or "source_info", which no source of this version fills.

        Raises:
            ArgumentError: another key.
        """
        checked_device(device)
        texts = {"layout": self.layout, "source_info": ""}
        if key not in texts:
            raise ArgumentError(f"DataNode.property knows the keys {', '.join(texts)}, not {key!r}")
        return constant_node(Constant(np.frombuffer(texts[key].encode(), np.uint8), device=device))

    def source_info(self, *, device: str = "cpu") -> DataNode:
        """As ``property("source_info")``."""
        return self.property("source_info", device=device)

    def __bool__(self) -> NoReturn:
        raise DefinitionError(
            "a DataNode stands for batches that are computed later and has no truth value while the pipeline is defined; "
            "this version has no conditional execution (enable_conditionals)"
        )

    def __iter__(self) -> NoReturn:
        raise DefinitionError("a DataNode cannot be unpacked; a source has several outputs if num_outputs= says so")


class Graph(NamedTuple):
    """What a pipeline computes.

    Attributes:
        outputs: the nodes whose batches `Pipeline.run` returns.
        sinks: nodes that are computed although nobody gets their batches.
        sources: those that the outputs and sinks need.
        operators: those that the outputs and sinks need, in an order in which they can run.
        constants: those that the outputs and sinks need.
    """

    outputs: tuple[DataNode, ...]
    sinks: tuple[DataNode, ...]
    sources: tuple[SourceNode, ...]
    operators: tuple[OperatorNode, ...]
    constants: tuple[ConstantNode, ...]

    @property
    def wants_gpu(self) -> str:
        """What of it wants a GPU, for messages; empty: nothing does."""
        names = [source.external.name for source in self.sources if source.external.options["device"] == "gpu"]
        names += [node.operator.name for node in self.operators if node.is_on_gpu]
        names += [node.name for node in self.outputs if node.device == "gpu"]
        return f"{names[0]} on the GPU" if names else ""


def make_graph(outputs: Sequence[DataNode], sinks: Sequence[DataNode] = ()) -> Graph:
    """The graph that ends in `outputs` and `sinks`.

    Raises:
        DefinitionError: an operator is applied to Python objects.
        ArgumentClashError: two sources have the same name.
    """
    sources: dict[SourceNode, None] = {}
    operators: dict[OperatorNode, None] = {}
    constants: dict[ConstantNode, None] = {}

    def visit(node: DataNode) -> None:
        producer = node.producer
        if isinstance(producer, SourceNode):
            sources[producer] = None
        elif isinstance(producer, ConstantNode):
            constants[producer] = None
        elif producer not in operators:
            for data in producer.needs:
                _refuse_objects(producer, data)
                _refuse_gpu(producer, data)
                visit(data)
            operators[producer] = None

    for node in (*outputs, *sinks):
        visit(node)
    _check_names(sources)
    in_order = sorted(operators, key=lambda node: node.number)  # what an operator needs was there before it
    return Graph(tuple(outputs), tuple(sinks), tuple(sources), tuple(in_order), tuple(constants))


def _check_names(sources: Iterable[SourceNode]) -> None:
    names = [source.external.key for source in sources if source.external.key]
    for name in names:
        if names.count(name) > 1:
            raise ArgumentClashError(f"several external sources have the name {name!r}; give each a name of its own")


def is_of_objects(data: DataNode) -> bool:
    """Whether a node's data are Python objects."""
    return isinstance(data.producer, SourceNode) and data.producer.external.is_object(data.output)


def _refuse_gpu(producer: OperatorNode, data: DataNode) -> None:
    if data.device != "cpu":
        raise ArgumentClashError(f"{producer.operator.name} works on the CPU; {data.name} is on the GPU: give it its .cpu()")


def _refuse_objects(producer: OperatorNode, data: DataNode) -> None:
    if is_of_objects(data):
        raise DefinitionError(f"{producer.operator.name} works on tensors; {data.name} is of Python objects")


def adapted_operators(graph: Graph, seen: Mapping[SourceNode, Sequence[str]]) -> dict[OperatorNode, Operator]:
    """The operators of a graph, for the data that its sources have.

    Args:
        seen: the layouts of that, where they are not those that were declared.

    Raises:
        ArgumentError: an operator does not work on data of such a layout.
    """
    if not seen:
        return {node: node.operator for node in graph.operators}
    layouts: dict[Producer, Sequence[str]] = {constant: constant.layouts for constant in graph.constants}
    layouts |= {source: seen.get(source, source.layouts) for source in graph.sources}
    operators = {}
    for node in graph.operators:
        inputs = [layouts[data.producer][data.output] for data in node.inputs]
        operators[node] = node.operator if node.adapt is None else node.adapt(inputs)
        layouts[node] = operators[node].layouts
    return operators


def unused_outputs(graph: Graph) -> dict[SourceNode, list[int]]:
    """Of the sources that make several outputs: those of them that nobody needs."""
    used = {(node.producer, node.output) for node in (*graph.outputs, *graph.sinks)}
    used |= {(node.producer, node.output) for operator in graph.operators for node in operator.needs}
    counts = {source: range(len(source.external.declared)) for source in graph.sources}
    unused = {source: [i for i in count if (source, i) not in used] for source, count in counts.items()}
    return {source: outputs for source, outputs in unused.items() if outputs}


def producer_names(graph: Graph) -> dict[Producer, str]:
    """A name for everything that produces data, all different; those of sources are what users have given, if they have."""
    names: dict[Producer, str] = {}
    for i, source in enumerate(graph.sources):
        names[source] = source.external.key or f"__ExternalSource_{i}"
    names |= {constant: f"__Constant_{i}" for i, constant in enumerate(graph.constants)}
    return names | {node: f"{node.operator.name}_{i}" for i, node in enumerate(graph.operators)}


def constant_node(constant: Constant) -> DataNode:
    """The node of a constant."""
    return DataNode(constant.name, constant.device, ConstantNode(constant))


def output_nodes(outputs: Iterable[Any]) -> tuple[DataNode, ...]:
    """What is given as outputs, as nodes; numbers, lists of numbers and arrays become constants.

    Raises:
        DefinitionError: one of them is something else.
        ArgumentError: one of them has numbers that are too large.
    """
    return tuple(_output_node(i, output) for i, output in enumerate(outputs))


def _output_node(index: int, output: Any) -> DataNode:
    if isinstance(output, DataNode):
        return output
    if isinstance(output, Constant):
        return constant_node(output)
    if contains_node(output):
        raise DefinitionError(
            f"Illegal pipeline output type. The output {index} contains a nested `DataNode`. Return the nodes of a source "
            "with several outputs one by one, with a star (*) in front"
        )
    try:
        return constant_node(Constant(output))
    except ArgumentTypeError as error:
        raise DefinitionError(
            f"Illegal output type. The output {index} is a `{type(output).__qualname__}`. Allowed are DataNodes, numbers, "
            "one-dimensional lists of numbers, and arrays"
        ) from error


def contains_node(value: Any) -> bool:
    """Whether a list or tuple has a node in it, however deep."""
    return isinstance(value, (list, tuple)) and any(isinstance(part, DataNode) or contains_node(part) for part in value)


def checked_device(device: str) -> str:
    """A place for data.

    Raises:
        DeviceError: it is another than "cpu" and "gpu".
    """
    if device not in ("cpu", "gpu"):
        raise DeviceError(f'device={device!r}: data is on the "cpu" or on the "gpu"')
    return device
