"""Call operators on tensors, batches and arrays, in this thread and in the threads of the context."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dali_like.common.foreign_errors import add_note
from dali_like.errors import ArgumentError, ArgumentTypeError, DeviceError
from dali_like.experimental.dynamic.data_types import DType, type_id
from dali_like.experimental.dynamic.evaluation import EvalContext
from dali_like.experimental.dynamic.placing import Device
from dali_like.experimental.dynamic.random_keys import key_from
from dali_like.experimental.dynamic.values import Batch, Tensor, as_batch, common_batch_size, device_of, laid_out
from dali_like.graph.operator_random import RandomKey, key_of_seed
from dali_like.operators.description import BoundOperator, Description
from dali_like.operators.immediate import LaidOut, compute, prepare
from dali_like.tensors import TensorListCPU
from dali_like.types import NO_TYPE, SampleInfo

_FIRST = SampleInfo(0, 0, 0, 0)
#: Types of most constants, which are passed on as they are.
_PLAIN = frozenset({bool, int, float, str, list, tuple})


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
    values = [_checked(value) for value in data]
    arguments = {name: _checked(value) for name, value in others.items()} if others else others
    if Batch in map(type, (*values, *arguments.values())):
        size = common_batch_size(description.name, [*values, *arguments.values()])
    layouts = [(value.layout or "") for value in values]
    bound = prepare(description, layouts, constants, [*arguments])
    key, first = _random_position(bound, rng)
    if size is None:
        made: list[Any] = _compute_one(bound, values, arguments, key, first)
    else:
        made = _compute_batch(bound, values, arguments, key, first, size)
    wanted = _wanted_gpu(description, device, data)
    results = tuple(made) if wanted is None else tuple([value.to_device(wanted) for value in made])
    return results[0] if len(results) == 1 else results


def _varies(value: Any) -> bool:
    return isinstance(value, (Tensor, Batch, np.ndarray, np.generic, TensorListCPU)) or type(value).__module__ == "torch"


def _plain(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.item() if not value.ndim else np.asarray(value).tolist()
    return value.tolist() if isinstance(value, np.ndarray) else value


def _checked(value: Any) -> Batch | LaidOut:
    """Return an input as a batch or as one sample."""
    if isinstance(value, Tensor):
        return LaidOut(value._array, value._layout)
    if isinstance(value, (Batch, TensorListCPU)):
        return as_batch(value)
    return LaidOut(*laid_out(value))


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


def _random_position(bound: BoundOperator, rng: Any) -> tuple[RandomKey | None, SampleInfo]:
    """Return the key of the random numbers, and the sample that they are for.

    Raises:
        ArgumentError: `rng` is a sample, and the operator has no seed.
    """
    if bound.seed is None:
        return None, _FIRST
    if isinstance(rng, SampleInfo):
        if bound.seed < 0:
            raise ArgumentError(f"{bound.name}: rng=SampleInfo(...) says which sample of a pipeline; pass seed=, too")
        return key_of_seed(bound.seed), rng
    return (key_of_seed(bound.seed) if bound.seed >= 0 else key_from(rng)), _FIRST


def _compute_one(
    bound: BoundOperator, values: Sequence[Any], arguments: Mapping[str, Any], key: RandomKey | None, info: SampleInfo
) -> list[Tensor]:
    if bound.per_sample:
        return [Tensor.of(*output) for output in compute(bound, values, arguments, info, key)]
    inputs = [LaidOut([value.array], value.layout) for value in values]
    others = {name: LaidOut([value.array], value.layout) for name, value in arguments.items()}
    return [Tensor.of(np.asarray(output.array[0]), output.layout) for output in compute(bound, inputs, others, info, key)]


def _compute_batch(
    bound: BoundOperator,
    values: Sequence[Any],
    arguments: Mapping[str, Any],
    key: RandomKey | None,
    first: SampleInfo,
    size: int,
) -> list[Batch]:
    if not bound.per_sample:
        everything = [LaidOut([_sample(value, i).array for i in range(size)], value.layout or "") for value in values]
        others = {
            name: LaidOut([_sample(value, i).array for i in range(size)], value.layout or "")
            for name, value in arguments.items()
        }
        outputs = compute(bound, everything, others, first, key, size)
        return [Batch.of([np.asarray(sample) for sample in output.array], output.layout) for output in outputs]
    results: list[Any] = [None] * size

    def compute_sample(i: int) -> None:
        samples = [_sample(value, i) for value in values]
        others = {name: _sample(value, i) for name, value in arguments.items()}
        try:
            info = SampleInfo(first.idx_in_epoch + i, first.idx_in_batch + i, first.iteration, first.epoch_idx)
            results[i] = compute(bound, samples, others, info, key)
        except Exception as error:
            add_note(error, f"raised by {bound.name} for sample {i} of the batch")
            raise

    EvalContext.current().for_each(size, compute_sample)
    columns = zip(*results, strict=True) if results else [()] * len(bound.layouts)
    return [Batch.of([one.array for one in column], column[0].layout if column else "") for column in columns]


def _sample(value: Batch | LaidOut, i: int) -> LaidOut:
    return LaidOut(value._list.at(i), value._list.layout()) if isinstance(value, Batch) else value
