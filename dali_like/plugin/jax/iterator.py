"""Iterator over pipelines that delivers JAX arrays, and the decorator that turns a function into such an iterator."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
from jax.sharding import Sharding

from dali_like.common.suggestions import suggest_arguments
from dali_like.errors import ArgumentClashError, ArgumentError, ArgumentTypeError, IteratorArgumentError
from dali_like.pipeline.definition import pipeline_def
from dali_like.pipeline.pipeline import Pipeline
from dali_like.plugin._outputs import dense
from dali_like.plugin.base_iterator import BaseIterator
from dali_like.plugin.epoch_progress import LastBatchPolicy
from dali_like.plugin.jax.batches import all_devices, local_devices, sharded, stacked, to_array
from dali_like.tensors import TensorListCPU

__all__ = ["DALIGenericIterator", "data_iterator"]

AnyIterator = TypeVar("AnyIterator", bound="DALIGenericIterator")


class DALIGenericIterator(BaseIterator[Any, dict[str, Any]]):
    """Deliver batches as dicts: {name of output: one array over the samples of all pipelines}.

    With one pipeline, an array has shape (samples, ...) and is on the device of the output. In host memory, it is a DLPack
    view of the batch unless JAX must copy. On a GPU, it is a copy. The batch is not overwritten while the array, or a JAX
    computation on it, needs it. With several pipelines:

    - With a sharding, the batches are concatenated along the first dimension, one shard per device, for ``jax.jit``.
    - Without, the batches are stacked along a new first dimension, on their devices, for ``jax.pmap``.

    All samples of an output must have one shape, in every pipeline. Outputs of Python objects become one list.

    Other arguments and errors: see `BaseIterator`; there is no `fill_last_batch` and no `dynamic_shape`. Follows
    ``nvidia.dali.plugin.jax.DALIGenericIterator`` 1.53.

    Args:
        last_batch_policy: FILL or DROP. PARTIAL would change shapes.
        sharding: splits only the first dimension. It has one device of this process for each pipeline, sorted by id. Batches
            in host memory are copied to these devices.
        devices: without a sharding, the target device of each pipeline's batches in host memory.

    Raises:
        IteratorArgumentError: `last_batch_policy` is PARTIAL; `sharding` is not a ``jax.sharding.Sharding``; or there is
            not one pipeline for each of `devices`, or for each device of `sharding` in this process.
        ArgumentClashError: both `sharding` and `devices` are given.
        ShardError: from ``next``: the batches cannot form one array. They are lost.

    >>> import numpy as np
    >>> from dali_like import fn, pipeline_def
    >>> @pipeline_def(batch_size=4)
    ... def pipeline():
    ...     return fn.external_source(source=lambda info: np.int32(info.idx_in_epoch), batch=False)
    >>> iterator = DALIGenericIterator(pipeline(), ["index"], size=8)
    >>> [batch["index"] for batch in iterator]
    [Array([0, 1, 2, 3], dtype=int32), Array([4, 5, 6, 7], dtype=int32)]
    """

    @suggest_arguments
    def __init__(
        self,
        pipelines: Pipeline | Sequence[Pipeline],
        output_map: Sequence[str],
        size: int = -1,
        reader_name: str | None = None,
        auto_reset: bool | str | None = False,
        last_batch_padded: bool = False,
        last_batch_policy: LastBatchPolicy = LastBatchPolicy.FILL,
        prepare_first_batch: bool = True,
        sharding: Sharding | None = None,
        *,
        devices: Sequence[jax.Device] | None = None,
        progress: bool | str = False,
    ) -> None:
        if last_batch_policy is LastBatchPolicy.PARTIAL:
            raise IteratorArgumentError(
                "last_batch_policy cannot be PARTIAL: JAX compiles functions again for each shape. Use FILL or DROP"
            )
        _check_one(sharding, devices)
        self._sharding = _checked_sharding(sharding)
        self._devices = devices
        num_pipelines = len(pipelines) if isinstance(pipelines, (list, tuple)) else 1
        of_pipelines = devices if sharding is None else local_devices(sharding)
        if of_pipelines is not None and len(of_pipelines) != num_pipelines:
            raise IteratorArgumentError(
                f"there must be one pipeline for each of the {len(of_pipelines)} devices, not {num_pipelines}"
            )
        super().__init__(
            pipelines,
            output_map,
            size,
            reader_name,
            auto_reset,
            last_batch_padded=last_batch_padded,
            last_batch_policy=last_batch_policy,
            prepare_first_batch=prepare_first_batch,
            progress=progress,
        )

    def _convert(self, name: str, output: TensorListCPU) -> Any:
        return dense(name, output)

    def _combine(self, batches: list[dict[str, Any]]) -> dict[str, Any]:
        return {name: self._join(name, [batch[name] for batch in batches]) for name in self.output_map}

    def _join(self, name: str, outputs: list[Any]) -> Any:
        if isinstance(outputs[0], list):
            return [value for output in outputs for value in output]
        if self._sharding is not None:
            return sharded(name, outputs, self._sharding)
        if len(outputs) > 1:
            return stacked(name, outputs, self._devices)
        return to_array(outputs[0], self._devices[0] if self._devices else None)


def _checked_sharding(sharding: Any) -> Sharding | None:
    if sharding is not None and not isinstance(sharding, Sharding):
        raise IteratorArgumentError(f"sharding must be a jax.sharding.Sharding, such as NamedSharding, not {sharding!r}")
    return sharding


def _check_one(sharding: Any, devices: Any) -> None:
    if sharding is not None and devices is not None:
        raise ArgumentClashError("sharding and devices cannot both be given; use sharding for jax.jit, devices for jax.pmap")


def data_iterator(
    pipeline_fn: Callable[..., Any] | None = None,
    output_map: Sequence[str] = (),
    size: int = -1,
    reader_name: str | None = None,
    auto_reset: bool | str | None = False,
    last_batch_padded: bool = False,
    last_batch_policy: LastBatchPolicy = LastBatchPolicy.FILL,
    prepare_first_batch: bool = True,
    sharding: Sharding | None = None,
    devices: Sequence[jax.Device] | None = None,
    *,
    progress: bool | str = False,
) -> Any:
    """Decorate a function that returns data nodes, to return a `DALIGenericIterator` over pipelines of it.

    The decorated function takes its own arguments, the arguments of `Pipeline`, and ``checkpoints``, the result of
    `DALIGenericIterator.checkpoints`, to resume. It creates one pipeline, or one per device with `sharding` or `devices`.
    Each of those gets an equal part of ``batch_size``, rounded down, and the arguments ``shard_id`` and ``num_shards``,
    which select its part of the data. The pipelines end with the iterator.

    Other arguments and errors: see `DALIGenericIterator`. Follows ``nvidia.dali.plugin.jax.data_iterator`` 1.53.

    Args:
        pipeline_fn: the function, as for `pipeline_def`.
        devices: JAX devices, in a program of one process. Batches are stacked, one on each device, for ``jax.pmap``.

    Raises:
        ArgumentClashError: both `sharding` and `devices` are given, or `devices` in a program of several processes. From the
            decorated function: the number of checkpoints differs from the number of pipelines.
        ArgumentError: from the decorated function with `sharding` or `devices`: ``batch_size`` is missing, or an argument is
            given that the iterator sets itself, such as ``device_id``.

    >>> import numpy as np
    >>> from dali_like import fn
    >>> @data_iterator(output_map=["index"], size=8)
    ... def indices(first):
    ...     return fn.external_source(source=lambda info: np.int32(first + info.idx_in_epoch), batch=False)
    >>> [batch["index"] for batch in indices(10, batch_size=4)]
    [Array([10, 11, 12, 13], dtype=int32), Array([14, 15, 16, 17], dtype=int32)]
    """
    options = {
        "output_map": output_map,
        "size": size,
        "reader_name": reader_name,
        "auto_reset": auto_reset,
        "last_batch_padded": last_batch_padded,
        "last_batch_policy": last_batch_policy,
        "prepare_first_batch": prepare_first_batch,
        "sharding": sharding,
        "devices": devices,
        "progress": progress,
    }
    return decorator_of(DALIGenericIterator, pipeline_fn, options)


def decorator_of(kind: type[AnyIterator], pipeline_fn: Callable[..., Any] | None, options: dict[str, Any]) -> Any:
    """Return the decorated function, or a decorator if there is no function yet.

    Args:
        kind: the class of the iterators.
        pipeline_fn: the function to decorate, or None for a decorator.
        options: the arguments of the iterators.
    """
    shards = _shards(options["sharding"], options["devices"])

    def decorate(function: Callable[..., Any]) -> Callable[..., AnyIterator]:
        make_pipeline = pipeline_def(function)

        @functools.wraps(function)
        def make_iterator(*args: Any, checkpoints: Sequence[Any] | None = None, **kwargs: Any) -> AnyIterator:
            given = _arguments(shards, checkpoints, kwargs)
            return kind([make_pipeline(*args, **keywords) for keywords in given], **options)

        return make_iterator

    return decorate if pipeline_fn is None else decorate(pipeline_fn)


class _PipelineShard(NamedTuple):
    """Part of the data that one pipeline delivers, and number of parts over all processes."""

    shard_id: int
    num_shards: int


def _shards(sharding: Sharding | None, devices: Sequence[jax.Device] | None) -> list[_PipelineShard] | None:
    _check_one(sharding, devices)
    if _checked_sharding(sharding) is not None:
        everywhere = all_devices(sharding)
        return [_PipelineShard(everywhere.index(device), len(everywhere)) for device in local_devices(sharding)]
    if devices is not None:
        if jax.process_count() > 1:
            raise ArgumentClashError("devices only works in a program of one process; pass sharding= instead")
        return [_PipelineShard(i, len(devices)) for i in range(len(devices))]
    return None


def _arguments(
    shards: list[_PipelineShard] | None, checkpoints: Sequence[Any] | None, given: dict[str, Any]
) -> list[dict[str, Any]]:
    """Return the keyword arguments of each pipeline."""
    num_pipelines = 1 if shards is None else len(shards)
    if checkpoints and len(checkpoints) != num_pipelines:
        raise ArgumentClashError(
            f"checkpoints must have one element for each of the {num_pipelines} pipelines, not {len(checkpoints)}"
        )
    if shards is None:
        arguments = [{"device_id": 0, **given}]
    else:
        if taken := sorted({"device_id", "shard_id", "num_shards"} & set(given)):
            raise ArgumentTypeError(
                f"with sharding or devices, the iterator sets {', '.join(taken)} itself; leave this out of the call"
            )
        if not given.get("batch_size"):
            raise ArgumentError("batch_size must be given with sharding or devices: it is divided among the devices")
        batch_size = given["batch_size"] // shards[0].num_shards
        arguments = [
            {**given, "batch_size": batch_size, "device_id": i, **shard._asdict()} for i, shard in enumerate(shards)
        ]
    return [
        {**keywords, "checkpoint": checkpoint}
        for keywords, checkpoint in zip(arguments, checkpoints or [None] * num_pipelines, strict=True)
    ]
