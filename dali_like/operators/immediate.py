"""Call operators on arrays, without a graph. Dynamic mode and users' callbacks do, in their own thread.

`prepare` converts and checks the constant arguments of a call, and remembers the result. `compute` computes one sample, or
one batch for operators on batches. The operator is the same that a pipeline runs; see
`dali_like.operators.description.BoundOperator`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dali_like.engine.memory.limits import LEAST_IMAGE_LIMIT_BYTES, allowed_cpus, available_bytes
from dali_like.errors import ArgumentError
from dali_like.graph.constants import Constant
from dali_like.graph.nodes import constant_node
from dali_like.graph.operator_interface import Array, OperatorCall, choose_layout
from dali_like.graph.operator_random import RandomKey
from dali_like.operators.deprecations import current_arguments
from dali_like.operators.description import BoundOperator, Description
from dali_like.operators.functions import check_names
from dali_like.types import SampleInfo

#: Bound operators that are kept. Programs repeat few calls; others have constants that differ in each call.
_MOST_KEPT = 1024
_kept: dict[Any, BoundOperator] = {}


class LaidOut(NamedTuple):
    """A sample and its layout."""

    array: Any
    layout: str


def prepare(
    description: Description, layouts: Sequence[str], constants: Mapping[str, Any], others: Sequence[str]
) -> BoundOperator:
    """Return the operator with its constant arguments.

    Args:
        description: of the operator.
        layouts: of the inputs; "" if unknown.
        constants: the arguments that are the same for all samples.
        others: names of the arguments that differ from sample to sample.

    Raises:
        ArgumentError: an argument is not allowed; the message names it.
    """
    key = description, tuple(layouts), tuple([(name, _frozen(value)) for name, value in constants.items()]), tuple(others)
    try:
        found = _kept.get(key)
    except TypeError:  # a constant cannot be hashed, such as an array
        return _bind(description, layouts, constants, others)
    if found is None:
        found = _bind(description, layouts, constants, others)
        if len(_kept) >= _MOST_KEPT:
            _kept.clear()
        _kept[key] = found
    return found


def compute(
    bound: BoundOperator,
    inputs: Sequence[LaidOut],
    arguments: Mapping[str, LaidOut],
    info: SampleInfo,
    key: RandomKey | None = None,
    count: int = 1,
) -> list[LaidOut]:
    """Return the outputs for one sample; for an operator on batches, lists of samples.

    Args:
        bound: from `prepare`.
        inputs: a sample of each input; for an operator on batches, a list of samples.
        arguments: the same for the arguments that differ from sample to sample.
        info: the sample; its index in the epoch selects the random numbers.
        key: of the random numbers.
        count: the number of samples.

    Raises:
        SampleError, SampleTypeError: the operator refuses the sample.
    """
    framed: list[str | int] = [i for i in range(1, len(inputs)) if inputs[i].layout[:1] == "F"]
    arrays: dict[str, Any] = {}
    for name, value in arguments.items():
        arrays[name] = value.array
        if value.layout[:1] == "F":
            framed.append(name)
    call = OperatorCall(
        info,
        [value.layout for value in inputs],
        key,
        _no_place,  # without it, results may lie in scratch memory
        None,
        count,
        _image_limit_bytes(),
        framed,
    )
    outputs = bound.compute(call, [value.array for value in inputs], arrays)
    if not bound.per_sample:
        outputs = [[*output] for output in outputs]
    return [LaidOut(array, _layout(words, array)) for words, array in zip(bound.layouts, outputs, strict=True)]


def _layout(words: str, array: Any) -> str:
    if not words:
        return ""
    if isinstance(array, list):
        return choose_layout(words, np.ndim(array[0])) if array else ""
    return choose_layout(words, array.ndim)


def _no_place(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array | None:
    return None


@functools.cache
def _image_limit_bytes() -> int:
    return max(LEAST_IMAGE_LIMIT_BYTES, available_bytes() // 2 // allowed_cpus())


def _frozen(value: Any) -> Any:
    """Return a key for a value: equal only for equal values of the same types. 1, 1.0 and True are different constants."""
    if isinstance(value, (list, tuple)):
        kinds = tuple(map(type, value))
        return (kinds, *map(_frozen, value)) if list in kinds or tuple in kinds else (kinds, *value)
    return type(value), value


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
