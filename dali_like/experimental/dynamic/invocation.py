"""Call operators on tensors, batches and arrays, in this thread and in the threads of the context."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dali_like.errors import ArgumentError, ArgumentTypeError, DeviceError
from dali_like.experimental.dynamic.data_types import DType, type_id
from dali_like.experimental.dynamic.evaluation import EvalContext
from dali_like.experimental.dynamic.placing import Device
from dali_like.experimental.dynamic.random_keys import key_from
from dali_like.experimental.dynamic.values import (
    Batch,
    Tensor,
    apply_to_batch,
    apply_to_one,
    as_operands,
    device_of,
    plain_call,
)
from dali_like.graph.execution.program import Program
from dali_like.graph.language.operator_interface import Operator
from dali_like.graph.language.operator_random import RandomKey, key_of_seed
from dali_like.operators.machinery.description import Description
from dali_like.operators.machinery.immediate import frozen, prepare
from dali_like.tensors import TensorListCPU
from dali_like.types import NO_TYPE, DALIDataType, DALIImageType, DALIInterpType, SampleInfo

_FIRST = SampleInfo(0, 0, 0, 0)
#: Types of most constants, which are passed on as they are.
_PLAIN = frozenset({bool, int, float, str, list, tuple})
#: Those of them that can be part of a key.
_HASHED = frozenset({bool, int, str, DALIDataType, DALIInterpType, DALIImageType})
#: Functions for calls on one sample with nothing but constants; see `plain_call`. By operator, layouts and constants.
_plain_calls: dict[tuple[Any, ...], Callable[[Sequence[NDArray[Any]]], Any]] = {}
_MOST_PLAIN_CALLS = 1024


def call_operator(description: Description, inputs: Sequence[Any], given: Mapping[str, Any]) -> Any:
    """Compute an operator.

    Args:
        description: of the operator.
        inputs: tensors, batches, arrays, numbers and lists of numbers. None counts as not given.
        given: the arguments, and besides ``batch_size``, ``device`` and ``rng``. None counts as not given.

    Returns:
        A batch if an input or argument is one, or with ``batch_size``; otherwise a tensor. A tuple with several outputs.

    Raises:
        ArgumentError, DeviceError: an input or an argument is not allowed; the message names it.
    """
    arrays: list[NDArray[Any]] = []
    parts: list[Any] = [description]
    for value in inputs:
        if type(value) is Tensor and value._remote is None:
            arrays.append(value._array)
            parts.append(value._layout)
        elif type(value) is np.ndarray:
            arrays.append(value)
            parts.append("")
        else:
            return _call(description, inputs, given)
    for name, value in given.items():
        kind = type(value)
        if kind in _HASHED:
            parts += (name, kind, value)
        elif kind is float:
            parts += (name, kind, value or str(value))  # 0.0 and -0.0 are equal, but two constants
        elif kind is DType:
            parts += (name, kind, value.type_id)
        elif kind is list or kind is tuple:
            parts += (name, frozen(value))
        else:
            return _call(description, inputs, given)
    key = tuple(parts)
    try:
        call = _plain_calls.get(key)
    except TypeError:  # a list has something that cannot be hashed
        return _call(description, inputs, given)
    return _call(description, inputs, given, key) if call is None else call(arrays)


def _call(
    description: Description, inputs: Sequence[Any], given: Mapping[str, Any], key: tuple[Any, ...] | None = None
) -> Any:
    """As `call_operator`; remember the function for a key of a call with nothing but constants."""
    constants: dict[str, Any] = {}
    others: dict[str, Any] = {}
    size = device = rng = None
    for name, value in given.items():
        if value is None or value is NO_TYPE:
            continue
        if name == "batch_size":
            size = int(value)
        elif name == "device":
            device = value
        elif name == "rng":
            rng = value
        elif type(value) in _PLAIN:
            constants[name] = value
        elif isinstance(value, DType):
            constants[name] = type_id(value)
        elif _varies(value) and name in description.parameters and description.parameters[name].per_sample:
            others[name] = value
        else:
            constants[name] = value.tolist() if isinstance(value, np.generic) else _plain(value)
    data = [value for value in inputs if value is not None]
    if not description.min_inputs <= len(data) <= (len(data) if description.max_inputs is None else description.max_inputs):
        raise _wrong_count(description, len(data))
    operands, layouts, common = as_operands(description.name, (*data, *others.values()) if others else data)
    program = prepare(
        description, layouts[: len(data)], constants, dict(zip(others, layouts[len(data) :], strict=True)) if others else {}
    )
    info = _FIRST
    if program.steps[0].operator.seed is not None:
        key, info = _random_position(program.steps[0].operator, rng)
        program = program.with_key(key)
    size = size if common is None else common
    if key is not None and size is None and data and given.keys() <= description.parameters.keys():
        _remember(key, program)
    made: Any = apply_to_one(program, operands, info) if size is None else apply_to_batch(program, operands, size, info)
    if device is not None or not data or any(map(_is_remote, data)):
        wanted = _wanted_gpu(description, device, data)
        made = made if wanted is None else [value.to_device(wanted) for value in made]
    return made[0] if len(made) == 1 else tuple(made)


def _remember(key: tuple[Any, ...], program: Program) -> None:
    call = plain_call(program)
    if call is not None:
        if len(_plain_calls) >= _MOST_PLAIN_CALLS:
            _plain_calls.clear()
        _plain_calls[key] = call


def _is_remote(value: Any) -> bool:
    return getattr(value, "_remote", None) is not None


def _varies(value: Any) -> bool:
    return isinstance(value, (Tensor, Batch, np.ndarray, np.generic, TensorListCPU)) or type(value).__module__ == "torch"


def _plain(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.item() if not value.ndim else np.asarray(value).tolist()
    return value.tolist() if isinstance(value, np.ndarray) else value


def _wrong_count(description: Description, count: int) -> ArgumentTypeError:
    least, most = description.min_inputs, description.max_inputs
    allowed = f"{least}" if least == most else f"{least} or more" if most is None else f"{least} to {most}"
    return ArgumentTypeError(
        f"{description.path} takes {allowed} inputs ({', '.join(description.inputs)}), not {count}. Other arguments are "
        "given by name"
    )


def _wanted_gpu(description: Description, device: Any, data: Sequence[Any]) -> Device | None:
    """Return the GPU where the results are wanted; None for the CPU."""
    if device is None and data:
        return device_of(data)
    if device is None:
        wanted = Device.current() if Device.is_chosen() else EvalContext.current().device or Device.current()
    else:
        wanted = device if isinstance(device, Device) else Device(device)
    if wanted.device_type == "mixed" and "decoders" not in description.path.split("."):
        raise DeviceError(f'{description.path}: device="mixed" is for decoders: pass "cpu" or "gpu"')
    return None if wanted.device_type == "cpu" else Device("gpu", wanted.device_id)


def _random_position(operator: Operator, rng: Any) -> tuple[RandomKey, SampleInfo]:
    """Return the key of the random numbers, and the sample that they are for.

    Raises:
        ArgumentError: `rng` is a sample, and the operator has no seed.
    """
    seed = operator.seed
    assert seed is not None
    if isinstance(rng, SampleInfo):
        if seed < 0:
            raise ArgumentError(f"{operator.name}: rng=SampleInfo(...) says which sample of a pipeline; pass seed=, too")
        return key_of_seed(seed), rng
    return (key_of_seed(seed) if seed >= 0 else key_from(rng)), _FIRST
