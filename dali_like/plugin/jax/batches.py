"""Batches as arrays of JAX: of one pipeline, and of several together.

On the CPU, JAX takes memory over by DLPack where it is aligned to 64 bytes, as the rows of batches are, and where it knows
the dtype: without ``jax_enable_x64``, elements of 64 bits are made 32. Otherwise it copies, by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding

from dali_like.errors import ShardError
from dali_like.plugin._outputs import exportable
from dali_like.tensors import TensorCPU


def local_devices(sharding: Sharding) -> list[jax.Device]:
    """The devices of a sharding that belong to this process, by their numbers."""
    return sorted(sharding.addressable_devices, key=_number)


def all_devices(sharding: Sharding) -> list[jax.Device]:
    """The devices of a sharding in all processes, by their numbers."""
    return sorted(sharding.device_set, key=_number)


def _number(device: jax.Device) -> int:
    return int(device.id)


def to_array(tensor: Any, device: jax.Device | None = None) -> jax.Array:
    """A tensor as an array, which keeps it.

    Args:
        device: where it is to be. None: where it is. One that is on a GPU stays there in any case.
    """
    if device is not None and isinstance(tensor, TensorCPU):
        return jax.device_put(np.asarray(tensor), device)  # without a copy where that is a device of the CPU
    return jax.dlpack.from_dlpack(exportable(tensor))


def sharded(name: str, tensors: Sequence[Any], sharding: Sharding) -> jax.Array:
    """The batches of several pipelines one behind the other, each on a device of its own.

    Raises:
        ShardError: they have different shapes, or the sharding does not split arrays of their dimensions among its devices
            along the first one.
    """
    _check_alike(name, tensors)
    shards = [to_array(tensor, device) for tensor, device in zip(tensors, local_devices(sharding), strict=True)]
    samples, *rest = shards[0].shape
    shape = (len(sharding.device_set) * samples, *rest)
    try:
        expected = sharding.shard_shape(shape)
    except ValueError as error:
        raise ShardError(f"output {name!r} cannot be made an array of shape {shape} by {sharding}: {error}") from None
    if expected != shards[0].shape:
        raise ShardError(
            f"output {name!r} cannot be made an array of shape {shape} of batches of shape {shards[0].shape}, since "
            f"{sharding} wants shards of shape {expected}: it must split the first dimension, and no other, over all devices"
        )
    return jax.make_array_from_single_device_arrays(shape, sharding, shards)


def stacked(name: str, tensors: Sequence[Any], devices: Sequence[jax.Device] | None) -> jax.Array:
    """The batches of several pipelines, with another dimension before the others that counts them.

    Args:
        devices: for each, where it is to be if it is in host memory. None: there.

    Raises:
        ShardError: they have different shapes; or some are on the same device, and others are not.
    """
    _check_alike(name, tensors)
    arrays = [to_array(tensor, device) for tensor, device in zip(tensors, devices or [None] * len(tensors), strict=True)]
    places = [array.device for array in arrays]
    if len(set(places)) == 1:
        return jnp.stack(arrays)
    if len(set(places)) < len(places):
        raise ShardError(
            f"output {name!r} comes from {len(places)} pipelines on {len(set(places))} devices; it must be one for each, "
            "or one for all"
        )
    sharding = NamedSharding(Mesh(np.array(places), ("shard",)), PartitionSpec("shard"))
    shards = [array[None] for array in arrays]
    return jax.make_array_from_single_device_arrays((len(shards), *arrays[0].shape), sharding, shards)


def _check_alike(name: str, tensors: Sequence[Any]) -> None:
    shapes = [tuple(tensor.shape()) for tensor in tensors]
    if len(set(shapes)) > 1:
        raise ShardError(
            f"the batches that the pipelines have given for output {name!r} do not make one array, since they have the "
            f"shapes {', '.join(map(str, shapes))}"
        )
