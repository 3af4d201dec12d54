"""The iterator over pipelines that delivers arrays of JAX, and the decorator that makes iterators of functions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
from jax.sharding import Sharding

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
    """Delivers batches as dicts: the name of each output, and the samples of all pipelines as one array.

    An array of one pipeline is a view of its batch, by DLPack, wherever JAX can do without a copy; and the batch is not
    overwritten as long as the array, or what JAX computes of it, needs it. It is on the device that the output is on. With
    several pipelines:

    - and a sharding, their batches are one array along the first dimension, with a shard on each device: for ``jax.jit``;
    - else, they are stacked along a new first dimension, on the devices that they are on: for ``jax.pmap``.

    The samples of an output must have one shape, with several pipelines the same in all. Outputs of Python objects come as
    one list.

    Arguments and errors are those of `BaseIterator`, without `fill_last_batch` and `dynamic_shape`, and some more. They
    follow ``nvidia.dali.plugin.jax.DALIGenericIterator`` 1.53.

    Args:
        last_batch_policy: FILL or DROP. With PARTIAL, shapes would change.
        sharding: splits the first dimension, and no other, among devices, of which there is one for each pipeline, in the
            order of their numbers. Batches in host memory are taken there.
        devices: where the batches of the pipelines are taken if they are in host memory and there is no sharding.

    Raises:
        IteratorArgumentError: `last_batch_policy` is PARTIAL; `sharding` is none, or has another number of devices in this
            process than there are pipelines; or there are as many `devices`.
        ShardError: from ``next``: the batches do not make one array. They are lost.

    >>> import numpy as np
    >>> from dali_like import fn, pipeline_def
    >>> @pipeline_def(batch_size=4)
    ... def pipeline():
    ...     return fn.external_source(source=lambda info: np.int32(info.idx_in_epoch), batch=False)
    >>> iterator = DALIGenericIterator(pipeline(), ["index"], size=8)
    >>> [batch["index"] for batch in iterator]
    [Array([0, 1, 2, 3], dtype=int32), Array([4, 5, 6, 7], dtype=int32)]
    """

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
        progress: bool = False,
    ) -> None:
        if last_batch_policy is LastBatchPolicy.PARTIAL:
            raise IteratorArgumentError(
                "last_batch_policy cannot be PARTIAL: JAX compiles functions anew for each shape. Take FILL or DROP"
            )
        _check_one(sharding, devices)
        self._sharding = _checked_sharding(sharding)
        self._devices = devices
        _check_number(pipelines, devices if sharding is None else local_devices(sharding))
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
        raise ArgumentClashError(
            "sharding and devices cannot be given both; take sharding for jax.jit, devices for jax.pmap"
        )


def _check_number(pipelines: Any, devices: Sequence[jax.Device] | None) -> None:
    num_pipelines = len(pipelines) if isinstance(pipelines, (list, tuple)) else 1
    if devices is not None and len(devices) != num_pipelines:
        raise IteratorArgumentError(
            f"there must be one pipeline for each of the {len(devices)} devices, not {num_pipelines}"
        )


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
    progress: bool = False,
) -> Any:
    """Make a function that returns data nodes into one that returns a `DALIGenericIterator` over pipelines of it.

    Calls of the decorated function take its own arguments, those of `Pipeline`, and ``checkpoints``: what
    `DALIGenericIterator.checkpoints` has returned, to go on from there. There is one pipeline; with `sharding` or `devices`,
    there is one for each device, with an equal part of the ``batch_size``, rounded down, and the function is told by
    ``shard_id`` and ``num_shards`` which part of the data is its own. The pipelines end with the iterator.

    Arguments and errors are those of `DALIGenericIterator`, and some more. They follow
    ``nvidia.dali.plugin.jax.data_iterator`` 1.53.

    Args:
        pipeline_fn: the function, as for `pipeline_def`.
        devices: of JAX, in a program of one process: batches are stacked, one on each device, for ``jax.pmap``.

    Raises:
        ArgumentClashError: both `sharding` and `devices` are given, or `devices` in one of several processes; from calls of
            the decorated function, for another number of checkpoints than of pipelines.
        ArgumentError: from calls with `sharding` or `devices`: there is no ``batch_size``, or what the iterator has to say
            is given, ``device_id`` say.

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
    """A decorator that makes iterators of functions, or a decorated function.

    Args:
        kind: the class of the iterators.
        pipeline_fn: the function to be decorated, or None for the decorator.
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


class _Shard(NamedTuple):
    """Which part of the data a pipeline is to deliver, of how many in all processes."""

    shard_id: int
    num_shards: int


def _shards(sharding: Sharding | None, devices: Sequence[jax.Device] | None) -> list[_Shard] | None:
    _check_one(sharding, devices)
    if _checked_sharding(sharding) is not None:
        everywhere = all_devices(sharding)
        return [_Shard(everywhere.index(device), len(everywhere)) for device in local_devices(sharding)]
    if devices is not None:
        if jax.process_count() > 1:
            raise ArgumentClashError("devices is for programs of one process; in one of several, give a sharding")
        return [_Shard(i, len(devices)) for i in range(len(devices))]
    return None


def _arguments(
    shards: list[_Shard] | None, checkpoints: Sequence[Any] | None, given: dict[str, Any]
) -> list[dict[str, Any]]:
    """The keyword arguments that make each of the pipelines."""
    num_pipelines = 1 if shards is None else len(shards)
    if checkpoints and len(checkpoints) != num_pipelines:
        raise ArgumentClashError(
            f"checkpoints must be one for each of {num_pipelines} pipelines; these are {len(checkpoints)}"
        )
    if shards is None:
        arguments = [{"device_id": 0, **given}]
    else:
        if taken := sorted({"device_id", "shard_id", "num_shards"} & set(given)):
            raise ArgumentTypeError(f"with sharding or devices, the iterator itself says {', '.join(taken)}")
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
