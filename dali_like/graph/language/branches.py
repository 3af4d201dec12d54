"""Add conditions and branches to a graph.

Each sample takes its own branch, in a worker or a thread. Batches are not split. Where the samples of a task are alike, an
operator in a branch gets the stack of those that take it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from enum import Enum
from numbers import Number
from typing import Any

import numpy as np

from dali_like.common.articles import kind_of
from dali_like.common.nesting import rebuilt
from dali_like.errors import ArgumentClashError, ArgumentTypeError, DaliLikeError, DefinitionError, DeviceError
from dali_like.graph.language.conditions import Condition, Merge, current_scope, in_scope
from dali_like.graph.language.constants import Constant
from dali_like.graph.language.nodes import DataNode, OperatorNode, output_nodes


def condition(data: DataNode, *, expression: str, where: str) -> DataNode:
    """Add a check of a condition to the graph.

    Args:
        data: the condition.
        expression: "if", "not", "and" or "or".
        where: the file and line of the expression, for messages.

    Returns:
        A node of Booleans; for "not", of the inverse.

    Raises:
        DeviceError: the condition is on the GPU.
    """
    if data.device == "gpu":
        raise DeviceError(f"`{expression}` in {where}: the condition {data.name} is on the GPU: compute it on the CPU")
    operator = Condition(expression, where)
    return DataNode(f"`{expression}`", "cpu", OperatorNode(operator, (data,)))


def in_branch(predicate: DataNode, taken: bool, branch: Callable[[], Any]) -> Any:
    """Call a function whose operators are for the samples with a value of the predicate only. Return its result."""
    with in_scope((*current_scope(), (predicate, taken))):
        return branch()


def merge(predicate: DataNode, if_true: DataNode, if_false: DataNode, *, variable: str) -> DataNode:
    """Add a merge to the graph: each sample has the result of the branch that it takes.

    Args:
        predicate: which branch the sample takes; see `condition`.
        if_true, if_false: the results of the branches.
        variable: the variable with the result, and its place in the program, for messages.

    Raises:
        DeviceError: one result is on the GPU, the other is not.
        ArgumentClashError: the results have no possible layout in common.
    """
    if if_true.device != if_false.device:
        raise DeviceError(
            f"{variable}: the result of one branch is on the {if_true.device.upper()}, the other on the "
            f"{if_false.device.upper()}: use .gpu() in both branches, or .cpu()"
        )
    inputs = (predicate, if_true, if_false)
    adapt = functools.partial(adapted, variable)
    operator = adapt([node.producer.layouts[node.output] for node in inputs])
    return DataNode(variable, if_true.device, OperatorNode(operator, inputs, adapt=adapt))


def adapted(variable: str, layouts: Sequence[str]) -> Merge:
    """Return the operator that merges results with these possible layouts.

    Args:
        variable: see `merge`.
        layouts: of the condition, and of the results of both branches.

    Raises:
        ArgumentClashError: the results have no layout in common.
    """
    _, one, other = layouts
    kept = [layout for layout in one.split() if layout in other.split()]
    if one and other and not kept:
        raise ArgumentClashError(
            f"{variable}: the branches have the layouts {one!r} and {other!r}. Layouts must be equal, or have one "
            "in common: use fn.transpose, or fn.reshape with layout="
        )
    if not (one and other):
        return Merge(variable, (one or other,))
    refused = [layout for layout in f"{one} {other}".split() if layout not in kept]
    return Merge(variable, (" ".join(kept),), refused=" ".join(dict.fromkeys(refused)))


def merge_values(predicate: DataNode, if_true: Any, if_false: Any, *, name: str, where: str) -> Any:
    """Merge the values that a variable has after two branches.

    Args:
        predicate: which branch a sample takes.
        if_true, if_false: nodes, constants, or lists, tuples and dictionaries of these with the same structure. One object
            that is not a number stays as it is.
        name: of the variable.
        where: the file and line of the conditional, for messages.

    Raises:
        ArgumentTypeError: the values have different structures, or no numbers.
        ArgumentClashError, DeviceError: layouts or devices differ.
    """
    parts = (list, tuple, dict)
    if if_true is if_false and not _becomes_constant(if_true):
        return if_true
    if isinstance(if_true, parts) or isinstance(if_false, parts):
        return _merge_parts(predicate, if_true, if_false, name=name, where=where)
    nodes = [_as_node(value, name, where) for value in (if_true, if_false)]
    return merge(predicate, *nodes, variable=f"`{name}` after `if` in {where}")


def _becomes_constant(value: Any) -> bool:
    return isinstance(value, (Number, np.generic, np.ndarray, Constant)) and not isinstance(value, Enum)


def _merge_parts(predicate: DataNode, one: Any, other: Any, *, name: str, where: str) -> Any:
    same = type(one) is type(other) and len(one) == len(other)
    if not same or (isinstance(one, dict) and one.keys() != other.keys()):
        raise ArgumentTypeError(
            f"the branches of `if` in {where} assign different structures to `{name}`: {_shown(one)} and {_shown(other)}. "
            "Assign lists, tuples or dictionaries of the same kind, length and keys"
        )
    keys = [*one] if isinstance(one, dict) else range(len(one))
    merged = [merge_values(predicate, one[key], other[key], name=f"{name}[{key!r}]", where=where) for key in keys]
    return rebuilt(one, merged)


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return f"a dictionary with the keys {[*value]}"
    if isinstance(value, (list, tuple)):
        return f"{kind_of(value)} of {len(value)}"
    return kind_of(value)


def _as_node(value: Any, name: str, where: str) -> DataNode:
    try:
        return output_nodes([value])[0]
    except DefinitionError:
        raise ArgumentTypeError(
            f"a branch of `if` in {where} assigns {value!r} to `{name}`. Assign a DataNode, a number or an array, or use "
            "another variable that is not read after the conditional"
        ) from None
    except DaliLikeError as error:
        raise type(error)(f"`{name}` in a branch of `if` in {where}: {error}") from None
