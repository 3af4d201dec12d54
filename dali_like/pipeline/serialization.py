"""Pipelines as text, and pipelines made of it again.

The text is JSON: arguments, nodes, outputs. Sources cannot travel in it; in their place come inputs of the same name, which
the loaded pipeline is fed through. Nothing that is loaded is run or unpickled: operators are looked up by name among those
of ``fn``, everything else is numbers and strings, and all of it is checked. So a file from a stranger can be loaded; at
worst it asks for more memory than there is.

::

    {"format": "dali_like pipeline", "version": 1,
     "arguments": {"batch_size": 4, ...},
     "nodes": [{"kind": "source", "name": "images", "num_outputs": null, "layouts": [""], ...},
               {"kind": "constant", "dtype": "INT32", "shape": [], "layout": "", "data": base64},
               {"kind": "operator", "name": "fn.decoders.image", "arguments": {...}, "inputs": [[0, 0]],
                "argument_inputs": {}}],
     "outputs": [[2, 0], [1, 0]], "sinks": []}

A pair is the number of a node among the nodes before, and of one of its outputs.
"""

from __future__ import annotations

import base64
import functools
import importlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any, TypeVar

import numpy as np

from dali_like.engine.memory.protocol import DTYPES, UNKNOWN
from dali_like.errors import DaliLikeError, SerializationError
from dali_like.fn import external_source
from dali_like.graph.arithmetic import OPERATIONS, apply_elementwise
from dali_like.graph.constants import Constant
from dali_like.graph.nodes import (
    ConstantNode,
    DataNode,
    Graph,
    Producer,
    SourceNode,
    constant_node,
    producer_names,
)
from dali_like.graph.operator_interface import Operator
from dali_like.graph.pipeline_arguments import Arguments, OperatorConcurrency, StreamPolicy
from dali_like.graph.subscripts import subscribe_again
from dali_like.sources.external_source import ExternalSource
from dali_like.types import BOOL, NO_TYPE, OBJECT, DALIDataType, numpy_dtype, to_dali_type

_T = TypeVar("_T")

_FORMAT = "dali_like pipeline"
_VERSION = 1

#: The arguments that travel: not those that are about the machine and its workers.
_ARGUMENTS = (
    *("batch_size", "num_threads", "device_id", "seed", "prefetch_queue_depth", "bytes_per_sample"),
    *("exec_pipelined", "exec_async", "exec_dynamic", "set_affinity", "enable_memory_stats", "stream_policy", "concurrency"),
    *("output_dtype", "output_ndim", "output_layout"),
)


@dataclass(frozen=True)
class InputSpec:
    """What it takes to make the input that stands in for a source.

    Attributes:
        name: what the loaded pipeline's user calls it.
        num_outputs: as given to ``fn.external_source``.
        layouts, dtypes, ndims: what was declared of each output; an empty layout, or None: nothing.
        batch: whether the source made batches, and not samples.
    """

    name: str
    num_outputs: int | None
    layouts: Sequence[str]
    dtypes: Sequence[str | None]
    ndims: Sequence[int | None]
    batch: bool


@dataclass(frozen=True)
class Document:
    """A pipeline that has been loaded: its arguments, and nodes for its outputs and sinks."""

    arguments: dict[str, Any]
    outputs: list[DataNode]
    sinks: list[DataNode]


def make_input(spec: InputSpec) -> list[DataNode]:
    """The nodes of an input that is fed; of a source of several outputs, of as many inputs, with a number behind the name.

    Raises:
        ArgumentError: what was declared does not go together.
    """
    single = spec.num_outputs is None
    outputs = enumerate(zip(spec.layouts, spec.dtypes, spec.ndims, strict=True))
    return [
        external_source(
            name=spec.name if single else f"{spec.name}_{i}",
            layout=layout,
            dtype=None if dtype is None else DALIDataType[dtype],
            ndim=ndim,
            batch=spec.batch,
        )
        for i, (layout, dtype, ndim) in outputs
    ]


# Writing


def dumps(arguments: Arguments, graph: Graph) -> bytes:
    """The text of a pipeline."""
    numbers = {producer: i for i, producer in enumerate(_in_order(graph))}
    names = producer_names(graph)

    def pairs(nodes: Sequence[DataNode]) -> list[list[Any]]:
        return [[numbers[node.producer], node.output, *([] if node.device == "cpu" else [node.device])] for node in nodes]

    def describe(producer: Producer) -> dict[str, Any]:
        if isinstance(producer, SourceNode):
            return {"kind": "source", **asdict(_spec_of(names[producer], producer.external))}
        if isinstance(producer, ConstantNode):
            return {"kind": "constant", **_describe_constant(producer.constant)}
        operator = producer.operator
        return {
            "kind": "operator",
            "name": operator.name,
            "arguments": _describe_arguments(operator),
            "inputs": pairs(producer.inputs),
            "argument_inputs": dict(zip(producer.argument_inputs, pairs([*producer.argument_inputs.values()]), strict=True)),
        }

    document = {
        "format": _FORMAT,
        "version": _VERSION,
        "arguments": {name: _plain(getattr(arguments, name)) for name in _ARGUMENTS},
        "nodes": [describe(producer) for producer in numbers],
        "outputs": pairs(graph.outputs),
        "sinks": pairs(graph.sinks),
    }
    return json.dumps(document, indent=1).encode()


def _describe_arguments(operator: Operator) -> dict[str, Any]:
    arguments = dict(operator.arguments)
    for name, value in arguments.items():
        try:
            json.dumps(value)
        except TypeError:
            raise SerializationError(
                f"{operator.name}: {name} is a {type(value).__qualname__}, which cannot be saved as text"
            ) from None
    return arguments


def _in_order(graph: Graph) -> Iterator[Producer]:
    """Everything that produces data, after what it needs for that."""
    yield from graph.sources
    yield from graph.constants
    yield from graph.operators


def _spec_of(name: str, external: ExternalSource) -> InputSpec:
    dtypes, ndims = [], []
    for i, output in enumerate(external.declared):
        dtype = OBJECT if external.is_object(i) else None if output.dtype == UNKNOWN else to_dali_type(DTYPES[output.dtype])
        dtypes.append(None if dtype is None else dtype.name)
        ndims.append(None if output.ndim == UNKNOWN or dtype is OBJECT else output.ndim)
    return InputSpec(name, external.num_outputs, external.layouts, dtypes, ndims, external.batch)


def _describe_constant(constant: Constant) -> dict[str, Any]:
    data = base64.b64encode(constant.array.tobytes()).decode()
    return {"dtype": constant.dtype.name, "shape": constant.shape, "layout": constant.layout, "data": data}


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(part) for part in value]
    return value.name if isinstance(value, Enum) else value


# Reading


def loads(text: str | bytes) -> Document:
    """The pipeline that a text describes.

    Raises:
        SerializationError: it is none, or does not hang together.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SerializationError(f"this is no serialised pipeline: {error}") from error
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        raise SerializationError(f'this is no serialised pipeline: it has no "format": "{_FORMAT}"')
    if document.get("version") != _VERSION:
        raise SerializationError(f"version {document.get('version')!r} of the format is not known; {_VERSION} is")
    where = "the document"
    nodes: list[list[DataNode]] = []
    for i, node in enumerate(_field(document, "nodes", list, where)):
        nodes.append(_make(_checked(node, dict, f"node {i}"), nodes, f"node {i}"))
    return Document(
        _read_arguments(_field(document, "arguments", dict, where)),
        _read_pairs(_field(document, "outputs", list, where), nodes, "outputs"),
        _read_pairs(_field(document, "sinks", list, where), nodes, "sinks"),
    )


def _read_arguments(given: dict[str, Any]) -> dict[str, Any]:
    if unknown := sorted(set(given) - set(_ARGUMENTS)):
        raise SerializationError(f"arguments: {', '.join(unknown)} are not known")
    kinds = {"stream_policy": StreamPolicy, "concurrency": OperatorConcurrency, "output_dtype": DALIDataType}
    return {name: _members(kinds[name], value, name) if name in kinds else value for name, value in given.items()}


def _members(kind: type[Enum], value: Any, where: str) -> Any:
    return [_member(kind, part, where) for part in value] if isinstance(value, list) else _member(kind, value, where)


def _make(node: dict[str, Any], before: Sequence[list[DataNode]], where: str) -> list[DataNode]:
    """The outputs of a node."""
    kind = _field(node, "kind", str, where)
    if kind == "source":
        spec = _read_spec(node, where)
        try:
            return make_input(spec)
        except DaliLikeError as error:
            raise SerializationError(f"{where} is no source: {error}") from error
    if kind == "constant":
        return [_read_constant(node, where)]
    if kind == "operator":
        return _read_operator(node, before, where)
    raise SerializationError(f"{where}: there are nodes of the kinds source, constant and operator, not {kind!r}")


def _read_spec(node: dict[str, Any], where: str) -> InputSpec:
    num_outputs = None if node.get("num_outputs") is None else _field(node, "num_outputs", int, where)
    layouts = [_checked(layout, str, f"{where}: layouts") for layout in _field(node, "layouts", list, where)]
    dtypes = [_member(DALIDataType, dtype, f"{where}: dtypes") for dtype in _field(node, "dtypes", list, where)]
    ndims = [None if ndim is None else _checked(ndim, int, f"{where}: ndims") for ndim in _field(node, "ndims", list, where)]
    if {len(layouts), len(dtypes), len(ndims)} != {1 if num_outputs is None else num_outputs}:
        raise SerializationError(f"{where}: layouts, dtypes and ndims must have an entry for each output")
    return InputSpec(
        _field(node, "name", str, where),
        num_outputs,
        layouts,
        [None if dtype is None else dtype.name for dtype in dtypes],
        ndims,
        _field(node, "batch", bool, where),
    )


def _read_constant(node: dict[str, Any], where: str) -> DataNode:
    dtype = _member(DALIDataType, _field(node, "dtype", str, where), f"{where}: dtype")
    shape = [_checked(extent, int, f"{where}: shape") for extent in _field(node, "shape", list, where)]
    layout = _field(node, "layout", str, where)
    try:
        data = base64.b64decode(_field(node, "data", str, where), validate=True)
        # NumPy would believe every byte of a Boolean, and not only 0 and 1.
        array = np.frombuffer(data, np.uint8 if dtype is BOOL else numpy_dtype(dtype)).reshape(shape)
        return constant_node(Constant(array.astype(numpy_dtype(dtype)), dtype=dtype, layout=layout))
    except (ValueError, OverflowError) as error:
        raise SerializationError(f"{where} is no constant: {error}") from error


def _read_operator(node: dict[str, Any], before: Sequence[list[DataNode]], where: str) -> list[DataNode]:
    name = _field(node, "name", str, where)
    inputs = _read_pairs(_field(node, "inputs", list, where), before, f"{where}: inputs")
    arguments = dict(_field(node, "arguments", dict, where))
    given = _field(node, "argument_inputs", dict, where)
    pairs = _read_pairs(list(given.values()), before, f"{where}: argument_inputs")
    arguments |= dict(zip(given, pairs, strict=True))
    function = _function(name)
    if function is None:
        raise SerializationError(f"{where}: there is no operator {name!r}")
    try:
        made = function(*inputs, **arguments)
    except (DaliLikeError, TypeError, ValueError) as error:
        raise SerializationError(f"{where}: {name} refuses its arguments: {error}") from error
    return [_checked(output, DataNode, where) for output in (made if isinstance(made, list) else [made])]


def _function(name: str) -> Callable[..., Any] | None:
    """The public function of ``fn`` of that name, or the method of nodes."""
    methods: dict[str, Callable[..., Any]] = {"DataNode.shape": DataNode.shape, "DataNode.__getitem__": subscribe_again}
    if name in methods or name == "fn.external_source":
        return methods.get(name)
    first, *parts = name.split(".")
    if first == "math":
        return functools.partial(apply_elementwise, *parts) if parts and parts[0] in OPERATIONS else None
    found: Any = importlib.import_module("dali_like.fn") if first == "fn" else None
    for part in parts:
        found = getattr(found, part) if part in getattr(found, "__all__", ()) else None
    return found if callable(found) else None


def _read_pairs(pairs: list[Any], nodes: Sequence[list[DataNode]], where: str) -> list[DataNode]:
    read = []
    for pair in pairs:
        *numbers, device = [*_checked(pair, list, where), "cpu"][:3]
        numbers = [_checked(number, int, where) for number in numbers]
        is_place = len(numbers) == 2 and len(pair) <= 3 and device in ("cpu", "gpu")
        if not is_place or numbers[0] >= len(nodes) or numbers[1] >= len(nodes[numbers[0]]):
            raise SerializationError(f"{where}: {pair!r} is not the number of a node before and of one of its outputs")
        node = nodes[numbers[0]][numbers[1]]
        read.append(node.gpu() if device == "gpu" else node.cpu())
    return read


def _member(kind: type[Enum], value: Any, where: str) -> Any:
    """The member of an enumeration that a name says; None stays None."""
    if value is None:
        return None
    names = [name for name in kind.__members__ if name != NO_TYPE.name]
    if value not in names:
        raise SerializationError(f"{where} should be one of {', '.join(names)}, not {value!r}")
    return kind[value]


def _field(record: dict[str, Any], key: str, kind: type[_T], where: str) -> _T:
    if key not in record:
        raise SerializationError(f"{where} has no {key!r}")
    return _checked(record[key], kind, f"{where}: {key}")


def _checked(value: Any, kind: type[_T], where: str) -> _T:
    """The value, if it is of that type; integers are not Booleans, and not negative."""
    is_wrong_number = isinstance(value, int) and (isinstance(value, bool) is not (kind is bool) or value < 0)
    if not isinstance(value, kind) or is_wrong_number:
        raise SerializationError(f"{where} should be {_KINDS[kind]}, not {value!r}")
    return value


_KINDS = {
    bool: "true or false",
    int: "an integer from 0 on",
    str: "a string",
    list: "a list",
    dict: "an object",
    DataNode: "an operator with one output",
}
