"""A pipeline's graph as a drawing, in Graphviz' language."""

from __future__ import annotations

import json
from collections.abc import Container, Iterator

from dali_like.graph.language.nodes import DataNode, Graph, OperatorNode, Producer, producer_names

_COLORS = {"SourceNode": "blue", "OperatorNode": "green", "ConstantNode": "gray"}


def dot_of(graph: Graph, show_tensors: bool, use_colors: bool, in_workers: Container[Producer] = ()) -> str:
    """Return the text of a drawing.

    Args:
        graph: the graph.
        show_tensors: draw the data between the operators, too.
        use_colors: color sources, operators and constants differently.
        in_workers: operators that run in the workers; drawn with a double line.
    """
    names = {producer: json.dumps(name) for producer, name in producer_names(graph).items()}
    lines = [f"{name}{_look(producer, use_colors, producer in in_workers)};" for producer, name in names.items()]
    lines += _tensors(graph, names) if show_tensors else []
    for producer, name in names.items():
        if isinstance(producer, OperatorNode):
            lines += [f"{_origin(node, names, show_tensors)} -> {name};" for node in producer.needs]
    for kind, nodes in (("output", graph.outputs), ("sink", graph.sinks)):
        lines += [f'{_origin(node, names, show_tensors)} -> "{kind} {i}";' for i, node in enumerate(nodes)]
    body = "\n".join("  " + line for line in lines)
    return f"digraph pipeline {{\n{body}\n}}\n"


def _look(producer: Producer, use_colors: bool, in_workers: bool) -> str:
    color = [f"color={_COLORS[type(producer).__name__]}"] if use_colors else []
    parts = [*color, *(["peripheries=2"] if in_workers else [])]
    return f" [{' '.join(parts)}]" if parts else ""


def _tensors(graph: Graph, names: dict[Producer, str]) -> Iterator[str]:
    """Yield the lines for data in use, each as a box connected to its producer."""
    inputs = [node for operator in graph.operators for node in operator.needs]
    for node in {(node.producer, node.output): node for node in (*inputs, *graph.outputs, *graph.sinks)}.values():
        yield f"{_tensor(node, names)} [shape=box];"
        yield f"{names[node.producer]} -> {_tensor(node, names)};"


def _origin(node: DataNode, names: dict[Producer, str], show_tensors: bool) -> str:
    return _tensor(node, names) if show_tensors else names[node.producer]


def _tensor(node: DataNode, names: dict[Producer, str]) -> str:
    return f'{names[node.producer][:-1]}[{node.output}]"'
