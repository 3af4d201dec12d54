"""The choice of an augmentation for each sample: branches of the program, as of ``if``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dali_like.errors import ArgumentError
from dali_like.graph.language.branches import condition, merge_values
from dali_like.graph.language.conditions import current_scope, in_scope
from dali_like.graph.language.nodes import DataNode

CONVERT_CONDITIONALS = True

_PLACE = "dali_like.auto_aug"


def select(ops: Sequence[Callable[..., Any]], selected_op_idx: int | DataNode, *op_args: Any, **op_kwargs: Any) -> Any:
    """Apply one of several functions to each sample, as ``ops[selected_op_idx](*op_args, **op_kwargs)``.

    Args:
        ops: augmentations or other functions of nodes.
        selected_op_idx: from 0 to ``len(ops) - 1``; a scalar for each sample, or the same for all.
        op_args, op_kwargs: arguments of all functions.

    Raises:
        ArgumentError: there are no functions.
        DeviceError: the index is on the GPU.

    Follows ``nvidia.dali.auto_aug.core.select`` 1.53.
    """
    if not ops:
        raise ArgumentError("select: the list of functions is empty: pass at least one")
    if not isinstance(selected_op_idx, DataNode):
        return ops[selected_op_idx](*op_args, **op_kwargs)
    return _select_from(range(len(ops)), ops, selected_op_idx, op_args, op_kwargs)


def _select_from(
    choices: range, ops: Sequence[Callable[..., Any]], index: DataNode, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    if len(choices) == 1:
        return ops[choices[0]](*args, **kwargs)
    half = (len(choices) + 1) // 2
    predicate = index < choices[half]
    if len(choices) == len(ops):  # inner branches need no check that the index is a scalar
        predicate = condition(predicate, expression="if", where=_PLACE)
    with in_scope((*current_scope(), (predicate, True))):
        first = _select_from(choices[:half], ops, index, args, kwargs)
    with in_scope((*current_scope(), (predicate, False))):
        second = _select_from(choices[half:], ops, index, args, kwargs)
    return merge_values(predicate, first, second, name="samples", where=_PLACE)
