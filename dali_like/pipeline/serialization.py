"""Serialization of pipelines as JSON, and loading of such texts.

The text holds arguments, nodes and outputs. Sources cannot travel in it: inputs of the same names take their places, and the
user of the loaded pipeline feeds them. Readers travel as their arguments. Loading unpickles nothing: operators and readers
are looked up by name in their registries; everything else is numbers and strings, and all of it is checked. Operators and
readers of the library get only arguments whose annotation allows it (`dali_like.common.saved_arguments`). Operators that
write, and operators and readers of the user's, are refused, and readers store no indexes, unless the caller trusts the text.
A file from a stranger can therefore be loaded and run. At worst it asks for more memory than there is, or for any file that
the user can read, or URL.

::

    {"format": "dali_like pipeline", "version": 1,
     "arguments": {"batch_size": 4, ...},
     "nodes": [{"kind": "source", "name": "images", "num_outputs": null, "layouts": [""], ...},
               {"kind": "reader", "name": "fn.readers.file", "arguments": {...}},
               {"kind": "constant", "dtype": "INT32", "shape": [], "layout": "", "data": base64},
               {"kind": "operator", "name": "fn.decoders.image", "arguments": {...}, "inputs": [[0, 0]],
                "argument_inputs": {}}],
     "outputs": [[2, 0], [1, 0]], "sinks": []}

An operator in a branch of a conditional is of the kind "operator in branch", and has also a "scope": a list of conditions
and the values that they must have, ``[[[4, 0], true]]``.

A pair holds the number of an earlier node and the number of one of its outputs; a third entry is the device, if not "cpu".
"""

from __future__ import annotations

import base64
import functools
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

import numpy as np

from dali_like.common.articles import kind_of
from dali_like.common.json_state import (
    BOOLEAN,
    LIST,
    MAPPING,
    TEXT,
    Schema,
    check,
    field,
    integer,
    list_of,
    mapping,
    optional,
    plain,
)
from dali_like.engine.memory.protocol import DTYPES, UNKNOWN
from dali_like.errors import DaliLikeError, SerializationError
from dali_like.fn import external_source
from dali_like.graph.execution.cache_operator import is_cache, without_cache
from dali_like.graph.execution.pipeline_arguments import Arguments, OperatorConcurrency, StreamPolicy
from dali_like.graph.language.arithmetic import OPERATIONS, apply_elementwise
from dali_like.graph.language.branches import condition, merge
from dali_like.graph.language.conditions import Scope, in_scope
from dali_like.graph.language.constants import Constant
from dali_like.graph.language.nodes import (
    ConstantNode,
    DataNode,
    Graph,
    Producer,
    SourceNode,
    constant_node,
    producer_names,
)
from dali_like.graph.language.subscripts import subscribe_again
from dali_like.operators.machinery.description import Description, descriptions, internal_descriptions
from dali_like.operators.machinery.functions import apply, make_function
from dali_like.operators.machinery.reader_functions import apply_reader, is_own_reader, reader_descriptions
from dali_like.operators.parameters import REQUIRED
from dali_like.sources.external_source import ExternalSource
from dali_like.types import BOOL, NO_TYPE, OBJECT, DALIDataType, numpy_dtype, to_dali_type

_FORMAT = "dali_like pipeline"
_VERSION = 1


@dataclass(frozen=True)
class InputSpec:
    """Description of the input that takes the place of a source.

    Attributes:
        name: name of the input in the loaded pipeline.
        num_outputs: as given to ``fn.external_source``.
        layouts, dtypes, ndims: declaration of each output; an empty layout or None if nothing was declared.
        batch: whether the source returned batches rather than samples.
    """

    name: str
    num_outputs: int | None
    layouts: Sequence[str]
    dtypes: Sequence[str | None]
    ndims: Sequence[int | None]
    batch: bool


@dataclass(frozen=True)
class Document:
    """A loaded pipeline: its arguments, and the nodes of its outputs and sinks."""

    arguments: dict[str, Any]
    outputs: list[DataNode]
    sinks: list[DataNode]


def make_input(spec: InputSpec) -> list[DataNode]:
    """Return the node of an input, or one node per output; the names of several inputs get numbers.

    Raises:
        ArgumentError: the declarations contradict each other.
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
    """Return the text of a pipeline."""
    numbers = {producer: i for i, producer in enumerate(_in_order(graph))}
    names = producer_names(graph)

    def pairs(nodes: Sequence[DataNode]) -> list[list[Any]]:
        nodes = [without_cache(node) for node in nodes]
        return [[numbers[node.producer], node.output, *([] if node.device == "cpu" else [node.device])] for node in nodes]

    def describe(producer: Producer) -> dict[str, Any]:
        if isinstance(producer, SourceNode) and (reader := producer.external.reader) is not None:
            name = reader.label(None)
            described = {"kind": "reader", "name": name, "arguments": _plain_arguments(name, reader.arguments)}
            infos = {"kind": "reader with source_info", "source_info": [*reader.infos.values()]}
            return {**described, **infos} if reader.infos else described
        if isinstance(producer, SourceNode):
            return {"kind": "source", **asdict(_spec_of(names[producer], producer.external))}
        if isinstance(producer, ConstantNode):
            constant = producer.constant
            data = base64.b64encode(constant.array.tobytes()).decode()
            kind, shape = constant.dtype.name, constant.shape
            return {"kind": "constant", "dtype": kind, "shape": shape, "layout": constant.layout, "data": data}
        operator = producer.operator
        description = {
            "kind": "operator",
            "name": operator.name,
            "arguments": _plain_arguments(operator.name, operator.arguments),
            "inputs": pairs(producer.inputs),
            "argument_inputs": dict(zip(producer.argument_inputs, pairs([*producer.argument_inputs.values()]), strict=True)),
        }
        if not producer.scope:
            return description
        scope = [[*pairs([node]), value] for node, value in producer.scope]
        return {**description, "kind": "operator in branch", "scope": scope}

    document = {
        "format": _FORMAT,
        "version": _VERSION,
        "arguments": {name: _plain(getattr(arguments, name)) for name in Arguments.saved()},
        "nodes": [describe(producer) for producer in numbers],
        "outputs": pairs(graph.outputs),
        "sinks": pairs(graph.sinks),
    }
    return json.dumps(document, indent=1).encode()


def _plain_arguments(where: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that a text may hold. The others are for the machine at hand, like those of workers.

    Raises:
        SerializationError: the operator needs an argument that JSON cannot hold, such as a function.
    """
    found = _described(where)
    if found is not None and _is_of_library(found):
        needed = {name for name, parameter in found.all_parameters.items() if parameter.default is REQUIRED}
        arguments = {name: value for name, value in arguments.items() if name in _saved(found) | needed}
    for name, value in arguments.items():
        try:
            json.dumps(value)
        except TypeError:
            raise SerializationError(f"{where}: the argument {name} is {kind_of(value)}, which JSON cannot hold") from None
    return dict(arguments)


def _in_order(graph: Graph) -> Iterator[Producer]:
    """Yield all producers, each behind the producers of its inputs."""
    yield from graph.sources
    yield from graph.constants
    yield from (node for node in graph.operators if not is_cache(node))


def _spec_of(name: str, external: ExternalSource) -> InputSpec:
    dtypes, ndims = [], []
    for i, output in enumerate(external.declared):
        dtype = OBJECT if external.is_object(i) else None if output.dtype == UNKNOWN else to_dali_type(DTYPES[output.dtype])
        dtypes.append(None if dtype is None else dtype.name)
        ndims.append(None if output.ndim == UNKNOWN or dtype is OBJECT else output.ndim)
    return InputSpec(name, external.num_outputs, external.layouts, dtypes, ndims, external.batch)


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(part) for part in value]
    return value.name if isinstance(value, Enum) else value


# Reading


def loads(text: str | bytes, *, trusted: bool = False) -> Document:
    """Return the pipeline that a text describes.

    Args:
        text: of the pipeline.
        trusted: whether the text may have operators that write, operators and readers of the user's, and any arguments.

    Raises:
        SerializationError: the text does not describe a valid pipeline.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SerializationError(f"this is not a serialized pipeline: {error}") from error
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        raise SerializationError(f'this is not a serialized pipeline: it has no "format": "{_FORMAT}"')
    if document.get("version") != _VERSION:
        raise SerializationError(
            f"the document has version {document.get('version')!r} of the format; this version of dali_like reads {_VERSION}"
        )
    nodes: list[list[DataNode]] = []
    for i, node in enumerate(_field(document, "nodes", LIST, "the document")):
        nodes.append(_make(node, nodes, f"node {i}", trusted=trusted))
    return Document(
        _read_arguments(_field(document, "arguments", MAPPING, "the document")),
        _read_pairs(_field(document, "outputs", LIST, "the document"), nodes, "outputs"),
        _read_pairs(_field(document, "sinks", LIST, "the document"), nodes, "sinks"),
    )


def _read_arguments(given: dict[str, Any]) -> dict[str, Any]:
    if unknown := sorted(set(given) - {*Arguments.saved()}):
        raise SerializationError(f"arguments has the unknown entries {', '.join(unknown)}")
    kinds = {"stream_policy": StreamPolicy, "concurrency": OperatorConcurrency, "output_dtype": DALIDataType}
    return {name: _members(kinds[name], value, name) if name in kinds else value for name, value in given.items()}


def _members(kind: type[Enum], value: Any, where: str) -> Any:
    """Return the member of an enumeration, or a list of members; None stays None."""
    if isinstance(value, list):
        return [_members(kind, part, where) for part in value]
    check(value, optional(_name_in(kind)), f"arguments: {where}", SerializationError)
    return None if value is None else kind[value]


def _name_in(kind: type[Enum]) -> Schema:
    names = [name for name in kind.__members__ if name != NO_TYPE.name]
    return plain(f"one of {', '.join(names)}", lambda value: value in names)


_DTYPE = _name_in(DALIDataType)
_NODES = {
    "source": mapping(
        kind=TEXT,
        name=TEXT,
        num_outputs=optional(integer()),
        layouts=list_of(TEXT),
        dtypes=list_of(optional(_DTYPE)),
        ndims=list_of(optional(integer())),
        batch=BOOLEAN,
    ),
    "reader": mapping(kind=TEXT, name=TEXT, arguments=MAPPING),
    "reader with source_info": mapping(kind=TEXT, name=TEXT, arguments=MAPPING, source_info=list_of(integer())),
    "constant": mapping(kind=TEXT, dtype=_DTYPE, shape=list_of(integer()), layout=TEXT, data=TEXT),
    "operator": mapping(kind=TEXT, name=TEXT, arguments=MAPPING, inputs=LIST, argument_inputs=MAPPING),
    "operator in branch": mapping(
        kind=TEXT, name=TEXT, arguments=MAPPING, inputs=LIST, argument_inputs=MAPPING, scope=list_of(LIST)
    ),
}


def _make(node: Any, before: Sequence[list[DataNode]], where: str, *, trusted: bool) -> list[DataNode]:
    """Return the outputs of a node."""
    kind = _field(node, "kind", TEXT, where)
    if kind not in _NODES:
        raise SerializationError(f"{where}: kind should be one of {', '.join(_NODES)}, not {kind!r}")
    check(node, _NODES[kind], where, SerializationError)
    fields = {name: value for name, value in node.items() if name != "kind"}
    if kind == "source":
        spec = InputSpec(**fields)
        if {len(spec.layouts), len(spec.dtypes), len(spec.ndims)} != {1 if spec.num_outputs is None else spec.num_outputs}:
            raise SerializationError(f"{where}: layouts, dtypes and ndims must have an entry for each output")
        try:
            return make_input(spec)
        except DaliLikeError as error:
            raise SerializationError(f"{where} is not a valid source: {error}") from error
    if kind.startswith("reader"):
        infos = fields.pop("source_info", [])
        outputs = _read_operator(**fields, inputs=[], argument_inputs={}, before=before, where=where, trusted=trusted)
        if any(output >= len(outputs) for output in infos):
            raise SerializationError(f"{where}: source_info should be numbers of the {len(outputs)} outputs, not {infos}")
        return [*outputs, *[outputs[output].source_info() for output in infos]]
    if kind == "constant":
        return [_read_constant(where=where, **fields)]
    with in_scope(_read_scope(fields.pop("scope", ()), before, where)):
        return _read_operator(before=before, where=where, trusted=trusted, **fields)


def _read_scope(pairs: Sequence[Any], before: Sequence[list[DataNode]], where: str) -> Scope:
    if any(len(pair) != 2 or not isinstance(pair[1], bool) for pair in pairs):
        raise SerializationError(f"{where}: scope should be a list of nodes with the values true or false")
    nodes = _read_pairs([node for node, _ in pairs], before, f"{where}: scope")
    return tuple((node, value) for node, (_, value) in zip(nodes, pairs, strict=True))


def _read_constant(*, dtype: str, shape: list[int], layout: str, data: str, where: str) -> DataNode:
    try:
        kind = DALIDataType[dtype]
        content = base64.b64decode(data, validate=True)
        # NumPy would take any byte of a Boolean array as it is, and not only 0 and 1.
        array = np.frombuffer(content, np.uint8 if kind is BOOL else numpy_dtype(kind)).reshape(shape)
        return constant_node(Constant(array.astype(numpy_dtype(kind)), dtype=kind, layout=layout))
    except (ValueError, OverflowError) as error:
        raise SerializationError(f"{where} is not a valid constant: {error}") from error


def _read_operator(
    *,
    name: str,
    inputs: list[Any],
    arguments: dict[str, Any],
    argument_inputs: dict[str, Any],
    before: Sequence[list[DataNode]],
    where: str,
    trusted: bool,
) -> list[DataNode]:
    nodes = _read_pairs(inputs, before, f"{where}: inputs")
    tensors = _read_pairs([*argument_inputs.values()], before, f"{where}: argument_inputs")
    function = _function(name, where, [*arguments, *argument_inputs], trusted=trusted)
    try:
        made = function(*nodes, **{**arguments, **dict(zip(argument_inputs, tensors, strict=True))})
    except (DaliLikeError, TypeError, ValueError) as error:
        raise SerializationError(f"{where}: {name} refuses its arguments: {error}") from error
    outputs = made if isinstance(made, list) else [*made.values()] if isinstance(made, dict) else [made]
    if not all(isinstance(output, DataNode) for output in outputs):
        raise SerializationError(f"{where}: {name} should be an operator with outputs, and returned {made!r:.200}")
    return outputs


#: Makers of nodes that are not operators of ``fn``. Their arguments are numbers and strings without effect elsewhere.
_OTHERS: Mapping[str, Callable[..., Any]] = {
    "DataNode.shape": DataNode.shape,
    "DataNode.__getitem__": subscribe_again,
    "conditional.condition": condition,
    "conditional.merge": merge,
    **{f"math.{operation}": functools.partial(apply_elementwise, operation) for operation in OPERATIONS},
}
_TRUST = "If you trust the origin of the text, pass trusted=True"


def _function(name: str, where: str, arguments: Collection[str], *, trusted: bool) -> Callable[..., Any]:
    """Return the function that makes a node.

    Raises:
        SerializationError: no operator has that name, or the text must be trusted for it or one of its arguments.
    """
    if (other := _OTHERS.get(name)) is not None:
        return other
    description = _described(name)
    if description is None:
        raise SerializationError(f"{where}: there is no operator {name!r}")
    if not trusted and not _is_of_library(description):
        raise SerializationError(f"{where}: {name} is not part of dali_like, and could run any code. {_TRUST}")
    if not trusted and description.writes:
        raise SerializationError(f"{where}: {name} writes files. {_TRUST}")
    if not trusted and (refused := sorted({*arguments} - _saved(description))):
        unknown = [argument for argument in refused if argument not in description.all_parameters]
        if unknown:
            raise SerializationError(f"{where}: {name} refuses its arguments: it has no {', '.join(unknown)}")
        raise SerializationError(
            f"{where}: {name} takes {', '.join(refused)} from a program only: a serialized pipeline could open caches, "
            f"write files or configure libraries with it. {_TRUST}"
        )
    is_reader = description.path in reader_descriptions()
    return make_function(description, functools.partial(apply_reader, stores_indexes=trusted) if is_reader else apply)


def _described(name: str) -> Description | None:
    """Return the operator or reader with this name for messages, a public or an internal one, or None."""
    path = name.removeprefix("fn.")
    if path == name:
        return None
    return {**descriptions(), **internal_descriptions(), **reader_descriptions()}.get(path)


def _is_of_library(description: Description) -> bool:
    return description.travels is None and is_own_reader(description)


def _saved(description: Description) -> set[str]:
    """Return the names of the arguments that a text may hold."""
    return {name for name, parameter in description.all_parameters.items() if parameter.saved}


def _read_pairs(pairs: list[Any], nodes: Sequence[list[DataNode]], where: str) -> list[DataNode]:
    read = []
    for pair in pairs:
        *numbers, device = [*check(pair, LIST, where, SerializationError), "cpu"][:3]
        check(numbers, list_of(integer()), where, SerializationError)
        is_valid = len(numbers) == 2 and len(pair) <= 3 and device in ("cpu", "gpu")
        if not is_valid or numbers[0] >= len(nodes) or numbers[1] >= len(nodes[numbers[0]]):
            raise SerializationError(f"{where}: {pair!r} should be the numbers of an earlier node and of one of its outputs")
        node = nodes[numbers[0]][numbers[1]]
        read.append(node.gpu() if device == "gpu" else node.cpu())
    return read


def _field(record: Any, key: str, schema: Schema, where: str) -> Any:
    return field(record, key, schema, where, SerializationError)
