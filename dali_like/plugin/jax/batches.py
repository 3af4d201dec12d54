"""Convert batches of one or several pipelines to JAX arrays.

On the CPU, JAX shares memory through DLPack if JAX supports the dtype and the memory is aligned to 64 bytes. Rows of batches
are aligned so. Otherwise JAX copies, as from a GPU. Without ``jax_enable_x64``, it converts 64-bit elements to 32 bits.
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
    """Return the devices of a sharding that belong to this process, sorted by id."""
    return sorted(sharding.addressable_devices, key=_number)


def all_devices(sharding: Sharding) -> list[jax.Device]:
    """Return the devices of a sharding in all processes, sorted by id."""
    return sorted(sharding.device_set, key=_number)


def _number(device: jax.Device) -> int:
    return int(device.id)


def to_array(tensor: Any, device: jax.Device | None = None) -> jax.Array:
    """Return a tensor as an array: a view if the tensor is in host memory, a copy if it is on a GPU.

    The memory of a GPU tensor is reused behind the streams of its user. JAX's functions run on a stream of XLA, which XLA
    does not tell, and they may still read an array that the program has dropped. So JAX copies the tensor, and this
    function waits for the copy.

    Args:
        tensor: a `TensorCPU` or `TensorGPU`.
        device: the device of the array. None: the device of the tensor. Tensors on a GPU always stay on their device.
    """
    if device is not None and isinstance(tensor, TensorCPU):
        return jax.device_put(np.asarray(tensor), device)  # no copy if `device` is a CPU
    array = jax.dlpack.from_dlpack(exportable(tensor))
    return array if isinstance(tensor, TensorCPU) else array.copy().block_until_ready()


def sharded(name: str, tensors: Sequence[Any], sharding: Sharding) -> jax.Array:
    """Return the batches of several pipelines as one array, concatenated along the first dimension, one shard per device.

    Args:
        name: the output, for error messages.
        tensors: a batch for each device of this process, all of one shape.
        sharding: splits the first dimension over all devices.

    Raises:
        ShardError: the shapes of the batches differ, or `sharding` splits another dimension than the first.
    """
    _check_alike(name, tensors)
    shards = [to_array(tensor, device) for tensor, device in zip(tensors, local_devices(sharding), strict=True)]
    samples, *rest = shards[0].shape
    shape = (len(sharding.device_set) * samples, *rest)
    try:
        expected = sharding.shard_shape(shape)
    except ValueError as error:
        raise ShardError(f"output {name!r}: {sharding} does not apply to an array of shape {shape}: {error}") from None
    if expected != shards[0].shape:
        raise ShardError(
            f"output {name!r}: batches of shape {shards[0].shape} cannot form an array of shape {shape}, because {sharding} "
            f"requires shards of shape {expected}. The sharding must split only the first dimension, over all devices"
        )
    return jax.make_array_from_single_device_arrays(shape, sharding, shards)


def stacked(name: str, tensors: Sequence[Any], devices: Sequence[jax.Device] | None) -> jax.Array:
    """Return the batches of several pipelines stacked along a new first dimension.

    Args:
        name: the output, for error messages.
        tensors: the batches, all of one shape.
        devices: the target device of each batch in host memory. None: batches stay in host memory.

    Raises:
        ShardError: the shapes differ; or only some batches share a device.
    """
    _check_alike(name, tensors)
    arrays = [to_array(tensor, device) for tensor, device in zip(tensors, devices or [None] * len(tensors), strict=True)]
    places = [array.device for array in arrays]
    if len(set(places)) == 1:
        return jnp.stack(arrays)
    if len(set(places)) < len(places):
        raise ShardError(
            f"output {name!r} comes from {len(places)} pipelines on {len(set(places))} devices; use one device for each "
            "pipeline, or one for all"
        )
    sharding = NamedSharding(Mesh(np.array(places), ("shard",)), PartitionSpec("shard"))
    shards = [array[None] for array in arrays]
    return jax.make_array_from_single_device_arrays((len(shards), *arrays[0].shape), sharding, shards)


def _check_alike(name: str, tensors: Sequence[Any]) -> None:
    shapes = [tuple(tensor.shape()) for tensor in tensors]
    if len(set(shapes)) > 1:
        raise ShardError(
            f"the batches of output {name!r} cannot form one array, because their shapes differ between pipelines: "
            f"{', '.join(map(str, shapes))}"
        )
