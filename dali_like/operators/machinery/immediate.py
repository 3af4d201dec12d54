"""Programs of single operators on arrays, without a graph, for dynamic mode and users' callbacks.

`prepare` converts and checks the constant arguments of a call, and remembers the program. Programs are applied as those of
pipelines are; see `dali_like.graph.execution.batch_runs`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from dali_like.engine.memory.limits import LEAST_IMAGE_LIMIT_BYTES, allowed_cpus, available_bytes
from dali_like.errors import ArgumentError
from dali_like.graph.execution.program import Program, operator_program
from dali_like.graph.language.constants import Constant
from dali_like.graph.language.nodes import constant_node
from dali_like.operators.machinery.deprecations import current_arguments
from dali_like.operators.machinery.description import BoundOperator, Description
from dali_like.operators.machinery.functions import check_names

#: Programs that are kept. Users repeat few calls; others have constants that differ in each call.
_MOST_KEPT = 1024
_kept: dict[Any, Program] = {}


def prepare(
    description: Description, layouts: Sequence[str], constants: Mapping[str, Any], others: Mapping[str, str]
) -> Program:
    """Return the program of an operator with its constant arguments.

    Args:
        description: of the operator.
        layouts: of the inputs; "" if unknown.
        constants: the arguments that are the same for all samples.
        others: the arguments that differ from sample to sample, with their layouts. They are inputs after the others.

    Raises:
        ArgumentError: an argument is not allowed; the message names it.
    """
    key = (
        description,
        tuple(layouts),
        tuple([(name, frozen(value)) for name, value in constants.items()]) if constants else (),
        tuple(others.items()) if others else (),
    )
    try:
        found = _kept.get(key)
    except TypeError:  # a constant cannot be hashed, such as an array
        return _program(description, layouts, constants, others)
    if found is None:
        found = _program(description, layouts, constants, others)
        if len(_kept) >= _MOST_KEPT:
            _kept.clear()
        _kept[key] = found
    return found


def _program(
    description: Description, layouts: Sequence[str], constants: Mapping[str, Any], others: Mapping[str, str]
) -> Program:
    bound = _bind(description, layouts, constants, [*others])
    return operator_program(bound, layouts, others, _image_limit_bytes())


@functools.cache
def _image_limit_bytes() -> int:
    return max(LEAST_IMAGE_LIMIT_BYTES, available_bytes() // 2 // allowed_cpus())


def frozen(value: Any) -> Any:
    """Return a key for a value: equal only for equal values of the same types and signs. 1, 1.0 and True are different
    constants, and so are 0.0 and -0.0.
    """
    if isinstance(value, (list, tuple)):
        kinds = tuple(map(type, value))
        if list in kinds or tuple in kinds:
            return (kinds, *map(frozen, value))
        return (kinds, *value, *map(str, value)) if 0 in value else (kinds, *value)
    return type(value), value if value else str(value)


def _bind(
    description: Description, layouts: Sequence[str], constants: Mapping[str, Any], others: Sequence[str]
) -> BoundOperator:
    given = current_arguments(description, {**constants, **dict.fromkeys(others, _stand_in())})
    check_names(description, given)
    own = {name: value for name, value in given.items() if value is not _stand_in()}
    for name in [*own]:
        if name in description.common:
            description.common[name].convert(own.pop(name), description.name)
    if description.check is not None:
        values = {name: description.parameters[name].convert(value, description.name) for name, value in own.items()}
        inputs = dict.fromkeys(description.inputs[: len(layouts)], _stand_in())
        try:
            description.check({**inputs, **{name: values.get(name, _stand_in()) for name in given}})
        except ArgumentError as error:
            raise type(error)(f"{description.name}: {error}") from None
    return description.bind(layouts, own)


@functools.cache
def _stand_in() -> Any:
    """Return a node, in place of a value that differs from sample to sample."""
    return constant_node(Constant(0))
