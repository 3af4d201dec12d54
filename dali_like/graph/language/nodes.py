"""The nodes of a pipeline's graph, as the pipeline's function sees them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, NoReturn, TypeAlias

import numpy as np

from dali_like.common.cpu_only import is_cpu_only
from dali_like.errors import ArgumentClashError, ArgumentError, ArgumentTypeError, DefinitionError, DeviceError
from dali_like.graph.language.conditions import Merge, Scope, current_scope, is_visible
from dali_like.graph.language.constants import Constant
from dali_like.graph.language.expressions import Expression
from dali_like.graph.language.operator_interface import Operator, ShapeOf, choose_layout
from dali_like.graph.language.stepping import computed_by, current_stepper
from dali_like.sources.external_source import ExternalSource, Read
from dali_like.types import INT64, numpy_dtype, to_dali_type


@dataclass(eq=False)
class SourceNode:
    """An external source in a graph.

    Attributes:
        external: its options.
        number: of the source among those of the pipeline, for random numbers. None: its place in the graph.
    """

    external: ExternalSource
    number: int | None = None

    def read_without_workers(self) -> None:
        """Let the main process read, if the source is a reader: the pipeline has no workers."""
        if self.external.reader is not None and self.external.parallel:
            self.external = self.external.replaced(parallel=False)

    def source_info(self, output: int) -> DataNode:
        """Return a node of the origin of each sample of an output: another output of a reader, or a constant."""
        if not isinstance(self.external, Read):
            return _no_text()
        number = self.external.reader.number_of_info(output)  # of an origin, it is the same, as in a loaded pipeline
        if number is None:
            number = len(self.external.declared)
            self.external = self.external.with_source_info(output)
        return DataNode(f"source_info of {self.external.name}", "cpu", self, number)

    @property
    def layouts(self) -> Sequence[str]:
        """The layout of each output."""
        return self.external.layouts


@dataclass(frozen=True, eq=False)
class OperatorNode:
    """An operator applied to data in a graph.

    Attributes:
        operator: the operator with its constant arguments.
        device: where the program wants its results: "cpu" or "gpu".
        inputs: the data it works on.
        argument_inputs: arguments that differ from sample to sample.
        number: counts applications in the order of the calls. One call with several input sets gives all of them one
            number, and so the same random numbers.
        adapt: returns the operator for other layouts of its inputs, because data fed to an input may have another
            layout than declared. None: the operator suits every layout.
        scope: the conditions under which a sample is computed.
    """

    operator: Operator
    inputs: tuple[DataNode, ...]
    argument_inputs: Mapping[str, DataNode] = field(default_factory=dict)
    number: int = field(default_factory=itertools.count().__next__)
    adapt: Callable[[Sequence[str]], Operator] | None = None
    device: str = "cpu"
    scope: Scope = field(default_factory=current_scope)

    def __post_init__(self) -> None:
        inputs = () if isinstance(self.operator, Merge) else (*self.inputs, *self.argument_inputs.values())
        for data in inputs:
            if not is_visible(scope_of(data), self.scope):
                raise ArgumentClashError(
                    f"{self.operator.name}: the input {data.name} was computed in a branch of a conditional that has ended. "
                    "Assign it to a variable in each branch, and use that variable"
                )
        if (stepper := current_stepper()) is not None:
            stepper.compute(self)

    @property
    def needs(self) -> tuple[DataNode, ...]:
        """All nodes that it takes data from."""
        return (*self.inputs, *self.argument_inputs.values(), *(condition for condition, _ in self.scope))

    @property
    def layouts(self) -> Sequence[str]:
        """The layout of each output."""
        return self.operator.layouts


@dataclass(frozen=True, eq=False)
class ConstantNode:
    """A constant in a graph: batches of equal samples."""

    constant: Constant

    @property
    def layouts(self) -> Sequence[str]:
        """The layout of each output."""
        return (self.constant.layout,)


#: What to use instead of attributes of arrays and batches that nodes lack.
_INSTEAD = {
    "dtype": "`dtype` of the batch that `run` returns, or fn.cast(node, dtype=...) for a certain one",
    "astype": "fn.cast(node, dtype=...)",
    "ndim": "node.shape().shape(), or `ndim` of the batch that `run` returns",
    "size": "node.shape(), a node of the shape of each sample",
    "T": "fn.transpose(node)",
    "transpose": "fn.transpose(node, perm=...)",
    "reshape": "fn.reshape(node, shape=...)",
    "squeeze": "fn.squeeze(node, axes=...)",
    "clip": "math.clamp(node, low, high) of dali_like",
    "flatten": "fn.reshape(node, shape=[-1])",
    **{name: f"fn.reductions.{name}(node)" for name in ("sum", "mean", "min", "max")},
    "std": "fn.reductions.std_dev(node, fn.reductions.mean(node))",
    **{name: f"`{name}` of the batch that `run` returns" for name in ("at", "as_array", "as_cpu", "as_tensor")},
    "numpy": "`as_array` of the batch that `run` returns",
}

Producer: TypeAlias = SourceNode | OperatorNode | ConstantNode


@dataclass(frozen=True, eq=False)
class DataNode(Expression):
    """One output of a source or an operator: a batch in every iteration, without a value while the graph is defined.

    Supports Python's operators and indices in brackets; see `dali_like.graph.language.arithmetic` and
    `dali_like.graph.language.subscripts`.

    Attributes:
        name: for messages.
        device: where the data is wanted: "cpu" or "gpu". Nodes for both may share a producer.
        producer: where the data comes from.
        output: number of the producer's output.
    """

    name: str
    device: str
    producer: Producer = field(repr=False)
    output: int = 0

    @property
    def source(self) -> Producer:
        """DALI's name for `producer`."""
        return self.producer

    @property
    def layout(self) -> str:
        """The layout of its samples, as far as the graph knows it."""
        layouts = self.producer.layouts[self.output].split()
        return layouts[0] if len(layouts) == 1 else ""

    def get(self) -> Any:
        """Return the batch: a `TensorListCPU` or `TensorListGPU`, or a list of Python objects. For ``debug=True`` only.

        In a branch of a conditional, it has the samples that take the branch.

        Raises:
            DefinitionError: the node has no batch, since the pipeline is being defined.
        """
        stepper, producer = current_stepper(), self.producer
        if isinstance(producer, ConstantNode) and stepper is not None:
            samples: list[Any] = [producer.constant.array] * stepper.size
            layouts: Sequence[str] = producer.layouts
        elif (computed := computed_by(producer)) is not None:
            samples = [sample for sample in computed.columns[self.output] if sample is not None]
            layouts = computed.layouts
        else:
            raise DefinitionError(
                f"{self.name} has no batch while the pipeline is defined: pass debug=True to pipeline_def, and run it"
            )
        if is_of_objects(self):
            return samples
        from dali_like.tensors import TensorListCPU  # graphs need no tensors

        made = TensorListCPU.of_arrays(samples, choose_layout(layouts[self.output], samples[0].ndim) if samples else "")
        return made._as_gpu() if self.device == "gpu" and not is_cpu_only() else made

    def __repr__(self) -> str:
        if computed_by(self.producer) is None:
            return f"DataNode(name={self.name!r}, device={self.device!r}, output={self.output})"
        return f"DataNode(\n    name={self.name!r},\n    data={self.get()})"

    def gpu(self) -> DataNode:
        """Return the same data on the GPU. Building the pipeline checks that there is one.

        Raises:
            DefinitionError: the data are Python objects.
        """
        if is_of_objects(self):
            raise DefinitionError(f"{self.name} returns Python objects, which cannot go to a GPU: remove .gpu()")
        return self if self.device == "gpu" else replace(self, device="gpu")

    def cpu(self) -> DataNode:
        """Return the same data in host memory."""
        return self if self.device == "cpu" else replace(self, device="cpu")

    def shape(self, *, dtype: Any = None, device: str = "cpu") -> DataNode:
        """Return a node of the shape of each sample: a one-dimensional array of INT64, or of `dtype`."""
        operator = ShapeOf(numpy_dtype(INT64 if dtype is None else to_dali_type(dtype)))
        return DataNode(operator.name, checked_device(device), OperatorNode(operator, (self.cpu(),)))

    def property(self, key: str, *, device: str = "cpu") -> DataNode:
        """Return a node of a property of each sample, as an array of bytes.

        Args:
            key: "layout" for the layout in the graph; or "source_info" for the name of the file that a reader has read the
                sample from, directly or with operators between; empty for other samples.
            device: where the property is wanted.

        Raises:
            ArgumentError: the key is unknown.
        """
        checked_device(device)
        if key == "source_info":
            return replace(source_info_of(self), device=device)
        if key != "layout":
            raise ArgumentError(f"DataNode.property knows the keys layout, source_info, not {key!r}")
        return constant_node(Constant(np.frombuffer(self.layout.encode(), np.uint8), device=device))

    def source_info(self, *, device: str = "cpu") -> DataNode:
        """Return ``property("source_info")``."""
        return self.property("source_info", device=device)

    def __bool__(self) -> NoReturn:
        raise DefinitionError(
            "a DataNode has no truth value while the pipeline is defined: its batches are computed later. For `if`, `and`, "
            "`or` and `not`, pass enable_conditionals=True to pipeline_def, for a function whose code is in a file or a "
            "notebook. `while`, `in`, `break`, functions with do_not_convert, classes derived from Pipeline, and code of "
            "`python -c` or of standard input cannot depend on a DataNode"
        )

    def __len__(self) -> int:
        raise DefinitionError(
            "a DataNode has no length while the pipeline is defined: len() of the batch counts its samples, and "
            "node.shape() is a node of the shape of each sample"
        )

    def __getattr__(self, name: str) -> NoReturn:
        hint = f": use {_INSTEAD[name]}" if name in _INSTEAD else ""
        raise AttributeError(f"a DataNode has no attribute {name!r}{hint}", name=name, obj=self)

    def __iter__(self) -> NoReturn:
        raise DefinitionError(
            "a DataNode cannot be unpacked: it is a single output. For a source with several outputs, pass num_outputs= to "
            "fn.external_source"
        )


class Graph(NamedTuple):
    """The graph of a pipeline.

    Attributes:
        outputs: the nodes whose batches `Pipeline.run` returns.
        sinks: nodes to compute although nothing uses their batches.
        sources: the sources that outputs and sinks depend on.
        operators: the operators that outputs and sinks depend on, in an order of execution.
        constants: the constants that outputs and sinks depend on.
        cpu_only: whether nothing may use a GPU, and all outputs are wanted in host memory; see `dali_like.use_cpu`.
    """

    outputs: tuple[DataNode, ...]
    sinks: tuple[DataNode, ...]
    sources: tuple[SourceNode, ...]
    operators: tuple[OperatorNode, ...]
    constants: tuple[ConstantNode, ...]
    cpu_only: bool

    @property
    def wants_gpu(self) -> str:
        """The first part that needs a GPU, for messages; empty if no part does."""
        if self.cpu_only:
            return ""
        names = [source.external.name for source in self.sources if source.external.may_be_on_gpu]
        names += [node.operator.name for node in self.operators if hasattr(node.operator, "compute_on_gpu")]
        names += [node.name for node in self.outputs if node.device == "gpu"]
        return f"{names[0]} on the GPU" if names else ""

    def device_of(self, output: DataNode) -> str:
        """Return where `Pipeline.run` delivers an output: "cpu" or "gpu"."""
        return "cpu" if self.cpu_only else output.device


def make_graph(outputs: Sequence[DataNode], sinks: Sequence[DataNode] = ()) -> Graph:
    """Return the graph that ends in `outputs` and `sinks`.

    Raises:
        DefinitionError: an operator is applied to Python objects, or an output exists for some samples only.
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
                refuse_objects(producer, data)
                visit(data)
            operators[producer] = None

    check_complete(outputs)
    for node in (*outputs, *sinks):
        visit(node)
    _check_names(sources)
    in_order = sorted(operators, key=lambda node: node.number)  # the inputs of an operator were created before it
    return Graph(tuple(outputs), tuple(sinks), tuple(sources), tuple(in_order), tuple(constants), is_cpu_only())


def check_complete(outputs: Iterable[DataNode]) -> None:
    """Refuse outputs that exist for some samples only.

    Raises:
        DefinitionError: an output was computed in a branch.
    """
    for node in outputs:
        if scope_of(node):
            raise DefinitionError(
                f"the output {node.name} was computed in a branch of a conditional. Assign it to a variable in each branch, "
                "and return that variable"
            )


def _check_names(sources: Iterable[SourceNode]) -> None:
    names = [source.external.key for source in sources if source.external.key]
    for name in names:
        if names.count(name) > 1:
            raise ArgumentClashError(f"several external sources have the name {name!r}; give each a name of its own")


def scope_of(data: DataNode) -> Scope:
    """Return the conditions under which a sample of a node exists."""
    return data.producer.scope if isinstance(data.producer, OperatorNode) else ()


def is_of_objects(data: DataNode) -> bool:
    """Whether a node's data are Python objects."""
    return isinstance(data.producer, SourceNode) and data.producer.external.is_object(data.output)


def device_of_result(inputs: Iterable[DataNode]) -> str:
    """Return where the result of an operator is wanted that names no device: on the GPU if an input is wanted there."""
    return "gpu" if any(node.device == "gpu" for node in inputs) else "cpu"


def refuse_objects(producer: OperatorNode, data: DataNode) -> None:
    """Refuse Python objects as the data of an operator.

    Raises:
        DefinitionError: the data are Python objects.
    """
    if is_of_objects(data):
        raise DefinitionError(f"{producer.operator.name} works on tensors; {data.name} returns Python objects")


def adapted_operators(graph: Graph, seen: Mapping[SourceNode, Sequence[str]]) -> dict[OperatorNode, Operator]:
    """Return the operators of a graph, adapted to the layouts of the source data.

    Args:
        graph: the graph.
        seen: observed layouts of sources where they differ from the declared ones.

    Raises:
        ArgumentError: an operator does not support the layout of its input.
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
    """Return the unused outputs of sources with several outputs."""
    used = {(node.producer, node.output) for node in (*graph.outputs, *graph.sinks)}
    used |= {(node.producer, node.output) for operator in graph.operators for node in operator.needs}
    counts = {source: range(len(source.external.declared)) for source in graph.sources}
    unused = {source: [i for i in count if (source, i) not in used] for source, count in counts.items()}
    return {source: outputs for source, outputs in unused.items() if outputs}


def producer_names(graph: Graph) -> dict[Producer, str]:
    """Return a unique name for each producer; for sources, the user's name if given."""
    names: dict[Producer, str] = {}
    for i, source in enumerate(graph.sources):
        names[source] = source.external.key or f"__{source.external.kind_name}_{i}"
    names |= {constant: f"__Constant_{i}" for i, constant in enumerate(graph.constants)}
    return names | {node: f"{node.operator.name}_{i}" for i, node in enumerate(graph.operators)}


def constant_node(constant: Constant) -> DataNode:
    """Return the node of a constant."""
    return DataNode(constant.name, constant.device, ConstantNode(constant))


def source_info_of(node: DataNode) -> DataNode:
    """Return a node of the origin of each sample: that of the first input of its operator, and so on, as in DALI."""
    producer = node.producer
    if isinstance(producer, OperatorNode) and producer.inputs:
        return source_info_of(producer.inputs[0])
    return producer.source_info(node.output) if isinstance(producer, SourceNode) else _no_text()


def origin_of(node: DataNode) -> tuple[SourceNode | None, int]:
    """Return the source, and the number of its output, that a node's data come from by `source_info_of`."""
    producer = node.producer
    if isinstance(producer, OperatorNode) and producer.inputs:
        return origin_of(producer.inputs[0])
    if not isinstance(producer, SourceNode):
        return None, 0
    reader = producer.external.reader
    is_text = reader is not None and node.output in reader.infos
    return producer, 0 if is_text else node.output


def _no_text() -> DataNode:
    return constant_node(Constant(np.zeros(0, np.uint8)))


def source_nodes(external: ExternalSource) -> list[DataNode]:
    """Return the nodes of a new source in a graph, one per output."""
    stepper = current_stepper()
    node = SourceNode(external) if stepper is None else stepper.take(external)
    names = [f"{external.name}[{i}]" for i in range(len(external.declared))]
    if external.num_outputs is None and external.key is not None:
        names = [external.key]
    return [DataNode(name, "cpu", node, i) for i, name in enumerate(names)]


def output_nodes(outputs: Iterable[Any]) -> tuple[DataNode, ...]:
    """Return a pipeline's outputs as nodes; numbers, lists of numbers and arrays become constants.

    Raises:
        DefinitionError: an output is neither.
        ArgumentError: a number is too large.
    """
    return tuple(_output_node(i, output) for i, output in enumerate(outputs))


def _output_node(index: int, output: Any) -> DataNode:
    if isinstance(output, DataNode):
        return output
    if isinstance(output, Constant):
        return constant_node(output)
    if (stepper := current_stepper()) is not None and (node := stepper.node_of(output)) is not None:
        return node
    if contains_node(output):
        raise DefinitionError(
            f"Illegal pipeline output type. The output {index} contains a nested `DataNode`. Return the nodes of a source "
            "with several outputs one by one, with a star (*) in front"
        )
    try:
        return constant_node(Constant(output, device="cpu"))
    except ArgumentTypeError as error:
        raise DefinitionError(
            f"Illegal output type. The output {index} is a `{type(output).__qualname__}`. Allowed are DataNodes, numbers, "
            "one-dimensional lists of numbers, and arrays"
        ) from error


def contains_node(value: Any) -> bool:
    """Whether a list or tuple contains a node at any depth."""
    return isinstance(value, (list, tuple)) and any(isinstance(part, DataNode) or contains_node(part) for part in value)


def checked_device(device: str) -> str:
    """Return `device`.

    Raises:
        DeviceError: it is neither "cpu" nor "gpu".
    """
    if device not in ("cpu", "gpu"):
        raise DeviceError(f'device={device!r} is not a device; pass "cpu" or "gpu"')
    return device
