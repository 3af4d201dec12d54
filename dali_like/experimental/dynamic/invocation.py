"""Call operators on tensors, batches and arrays, in this thread and in the threads of the context."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dali_like.errors import ArgumentTypeError, DeviceError
from dali_like.experimental.dynamic.data_types import DType, type_id
from dali_like.experimental.dynamic.evaluation import EvalContext
from dali_like.experimental.dynamic.placing import Device
from dali_like.experimental.dynamic.random_keys import key_from
from dali_like.experimental.dynamic.values import Batch, Tensor, as_batch, common_batch_size, laid_out
from dali_like.graph.operator_random import RandomKey, key_of_seed
from dali_like.operators.description import BoundOperator, Description
from dali_like.operators.immediate import LaidOut, compute, prepare
from dali_like.tensors import TensorListCPU
from dali_like.types import NO_TYPE, SampleInfo

_FIRST = SampleInfo(0, 0, 0, 0)


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
        elif isinstance(value, DType):
            constants[name] = type_id(value)
        elif _varies(value) and name in description.parameters and description.parameters[name].per_sample:
            others[name] = as_batch(value) if isinstance(value, TensorListCPU) else value
        else:
            constants[name] = value.tolist() if isinstance(value, np.generic) else _plain(value)
    data = [as_batch(value) if isinstance(value, TensorListCPU) else value for value in inputs if value is not None]
    _check_count(description, data)
    size = common_batch_size(description.name, [*data, *others.values()]) or size
    values = [value if isinstance(value, Batch) else LaidOut(*laid_out(value)) for value in data]
    arguments = {name: value if isinstance(value, Batch) else LaidOut(*laid_out(value)) for name, value in others.items()}
    layouts = [(value.layout or "") for value in values]
    bound = prepare(description, layouts, constants, list(arguments))
    key = None if bound.seed is None else key_of_seed(bound.seed) if bound.seed >= 0 else key_from(rng)
    if size is None:
        made: list[Any] = _compute_one(bound, values, arguments, key)
    else:
        made = _compute_batch(bound, values, arguments, key, size)
    wants_gpu = _wants_gpu(description, device, data)
    results = tuple([value.gpu() for value in made]) if wants_gpu else tuple(made)
    return results[0] if len(results) == 1 else results


def _varies(value: Any) -> bool:
    return isinstance(value, (Tensor, Batch, np.ndarray, np.generic, TensorListCPU)) or type(value).__module__ == "torch"


def _plain(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.item() if not value.ndim else np.asarray(value).tolist()
    return value.tolist() if isinstance(value, np.ndarray) else value


def _check_count(description: Description, data: Sequence[Any]) -> None:
    least, most = description.min_inputs, description.max_inputs
    if len(data) < least or (most is not None and len(data) > most):
        allowed = f"{least}" if least == most else f"{least} or more" if most is None else f"{least} to {most}"
        raise ArgumentTypeError(
            f"{description.path} takes {allowed} inputs ({', '.join(description.inputs)}), not {len(data)}. Other arguments "
            "are given by name"
        )


def _wants_gpu(description: Description, device: Any, data: Sequence[Any]) -> bool:
    if device is None:
        return any(isinstance(value, (Tensor, Batch)) and value._remote is not None for value in data)
    wanted = device if isinstance(device, Device) else Device(device)
    if wanted.device_type == "mixed" and "decoders" not in description.path.split("."):
        raise DeviceError(f'{description.path}: device="mixed" is for decoders: pass "cpu" or "gpu"')
    return wanted.device_type != "cpu"


def _compute_one(
    bound: BoundOperator, values: Sequence[Any], arguments: Mapping[str, Any], key: RandomKey | None
) -> list[Tensor]:
    if bound.per_sample:
        return [Tensor.of(*output) for output in compute(bound, values, arguments, _FIRST, key)]
    inputs = [LaidOut([value.array], value.layout) for value in values]
    others = {name: LaidOut([value.array], value.layout) for name, value in arguments.items()}
    return [Tensor.of(np.asarray(output.array[0]), output.layout) for output in compute(bound, inputs, others, _FIRST, key)]


def _compute_batch(
    bound: BoundOperator, values: Sequence[Any], arguments: Mapping[str, Any], key: RandomKey | None, size: int
) -> list[Batch]:
    if not bound.per_sample:
        everything = [LaidOut([_sample(value, i).array for i in range(size)], value.layout or "") for value in values]
        others = {
            name: LaidOut([_sample(value, i).array for i in range(size)], value.layout or "")
            for name, value in arguments.items()
        }
        outputs = compute(bound, everything, others, _FIRST, key, size)
        return [Batch.of([np.asarray(sample) for sample in output.array], output.layout) for output in outputs]
    results: list[Any] = [None] * size

    def compute_sample(i: int) -> None:
        samples = [_sample(value, i) for value in values]
        others = {name: _sample(value, i) for name, value in arguments.items()}
        try:
            results[i] = compute(bound, samples, others, SampleInfo(i, i, 0, 0), key)
        except Exception as error:
            error.add_note(f"raised by {bound.name} for sample {i} of the batch")
            raise

    EvalContext.current().for_each(size, compute_sample)
    columns = zip(*results, strict=True) if results else [()] * len(bound.layouts)
    return [Batch.of([one.array for one in column], column[0].layout if column else "") for column in columns]


def _sample(value: Batch | LaidOut, i: int) -> LaidOut:
    return LaidOut(value._list.at(i), value._list.layout()) if isinstance(value, Batch) else value
