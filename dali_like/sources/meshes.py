"""The shard of this process in a mesh of processes: peers of model-parallel dimensions have the same shard."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from dali_like.errors import ArgumentError, ArgumentTypeError
from dali_like.sources.sharding import Shard

__all__ = ["peers_in_mesh", "shard_in_mesh"]

#: Words in the names of dimensions along which the samples differ.
_DATA = frozenset({"batch", "data", "ddp", "dp", "hsdp", "replica", "replicas", "replicate"})
#: The same, of dimensions along which the samples are equal: tensor, context (sequence) and pipeline parallelism.
_MODEL = frozenset(
    {"context", "cp", "mp", "model", "pipe", "pipeline", "pp", "seq", "sequence", "sp", "stage", "tensor", "tp"}
)
#: Words that say no more about a dimension.
_FILLERS = frozenset({"axis", "dim", "inter", "intra", "mesh", "parallel", "shard", "sharded"})


def shard_in_mesh(mesh: Any, mesh_dims: str | int | Sequence[str | int] | None = None) -> Shard:
    """Return the shard of this process: its place among the processes that have different samples.

    Args:
        mesh: a ``torch.distributed.device_mesh.DeviceMesh`` that contains this process, or a ``jax.sharding.Mesh``.
        mesh_dims: the data-parallel dimensions: their names, or in a mesh without names their numbers. None: those with a
            name such as "dp", "data", "batch", "dp_replicate" or "dp_shard". "fsdp" counts as one only if all dimensions are
            of this kind, since it may contain context parallelism. Peers in other dimensions ("tp", "cp", "pp" ...) have
            the same shard.

    Raises:
        ArgumentError: the names do not decide which dimensions those are; a dimension is unknown; this process is not part
            of the mesh; or, in JAX, its devices belong to several shards.
        ArgumentTypeError: an argument has a wrong type.
    """
    names, sizes, coordinates = _layout(mesh)
    chosen = _chosen_dims(names, mesh_dims)
    places = {tuple(coordinate[dim] for dim in chosen) for coordinate in coordinates}
    if len(places) > 1:
        along = _listed([names[dim] for dim in chosen])
        raise ArgumentError(
            f"mesh: the devices of this process belong to {len(places)} shards along {along}. If each process loads what "
            "its devices need, pass shard_id=jax.process_index() and num_shards=jax.process_count()"
        )
    shard_id, count = 0, 1
    for dim, place in zip(chosen, places.pop(), strict=True):
        shard_id, count = shard_id * int(sizes[dim]) + int(place), count * int(sizes[dim])
    return Shard(shard_id, count)


def peers_in_mesh(mesh: Any, mesh_dims: str | int | Sequence[str | int] | None = None) -> tuple[int, list[int]]:
    """Return the rank of this process, and the ranks of all processes with its shard, in ascending order.

    Args:
        mesh, mesh_dims: see `shard_in_mesh`.

    Raises:
        ArgumentError, ArgumentTypeError: see `shard_in_mesh`.
    """
    names, _, coordinates = _layout(mesh)
    chosen = _chosen_dims(names, mesh_dims)
    if _is_of_jax(mesh):
        ranks = np.vectorize(lambda device: device.process_index, otypes=[int])(mesh.devices)
    else:
        ranks = np.asarray(mesh.mesh)
    here = tuple(slice(None) if dim not in chosen else coordinates[0][dim] for dim in range(ranks.ndim))
    return int(ranks[coordinates[0]]), sorted({int(rank) for rank in np.ravel(ranks[here])})


def _is_of_jax(mesh: Any) -> bool:
    return isinstance(getattr(mesh, "axis_names", None), tuple) and hasattr(mesh, "devices")


def _layout(mesh: Any) -> tuple[tuple[Any, ...], tuple[int, ...], list[tuple[int, ...]]]:
    """Return the names of the dimensions, their sizes, and the coordinates of this process."""
    if _is_of_jax(mesh):
        return mesh.axis_names, np.shape(mesh.devices), _coordinates_in_jax(mesh)
    if not (hasattr(mesh, "mesh_dim_names") and callable(getattr(mesh, "get_coordinate", None))):
        raise ArgumentTypeError(
            f"mesh must be a DeviceMesh of PyTorch or a Mesh of JAX, not an object of type {type(mesh).__qualname__}"
        )
    sizes = tuple(mesh.shape)
    names = tuple(mesh.mesh_dim_names or range(len(sizes)))
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        raise ArgumentError(f"mesh: this process is not part of the mesh of {_listed(names)}")
    return names, sizes, [tuple(coordinate)]


def _chosen_dims(names: Sequence[Any], mesh_dims: Any) -> list[int]:
    """Return the numbers of the dimensions along which the samples differ."""
    return _data_dims(names) if mesh_dims is None else _named_dims(names, mesh_dims)


def _coordinates_in_jax(mesh: Any) -> list[tuple[int, ...]]:
    """Return the coordinates of all devices of this process."""
    devices = np.asarray(mesh.devices, dtype=object)
    here = devices.flat[0].client.process_index()
    coordinates = [place for place, device in np.ndenumerate(devices) if device.process_index == here]
    if not coordinates:
        raise ArgumentError(f"mesh: no device of this process is part of the mesh of {_listed(mesh.axis_names)}")
    return coordinates


def _data_dims(names: Sequence[Any]) -> list[int]:
    """Return the numbers of the data-parallel dimensions, in the order of the mesh."""
    kinds = [_kind(name) for name in names]
    if "fsdp" in kinds and set(kinds) <= {"fsdp", "data"}:
        kinds = ["data"] * len(kinds)
    if not set(kinds) <= {"data", "model"}:
        raise ArgumentError(
            f"mesh: the names {_listed(names)} do not tell along which dimensions the samples differ: name these with "
            "mesh_dims="
        )
    return [dim for dim, kind in enumerate(kinds) if kind == "data"]


def _kind(name: Any) -> str:
    """Return the kind of a dimension: "data", "model" or "fsdp"; "unknown" also for names with words of two kinds."""
    words = set(re.findall("[a-z]+", str(name).lower()))
    known = {
        "data": words & _DATA,
        "model": words & _MODEL,
        "fsdp": words & {"fsdp"},
        "unknown": words - _DATA - _MODEL - _FILLERS - {"fsdp"},
    }
    found = [kind for kind, part in known.items() if part]
    return found[0] if len(found) == 1 else "unknown"


def _named_dims(names: Sequence[Any], mesh_dims: Any) -> list[int]:
    """Return the numbers of the dimensions that the user names, in the order of the mesh: the one of peers' ranks."""
    wanted = [mesh_dims] if isinstance(mesh_dims, str | int) else mesh_dims
    if not isinstance(wanted, Collection) or not all(isinstance(name, str | int) for name in wanted):
        raise ArgumentTypeError(f"mesh_dims must be a name of a dimension of the mesh, or several, not {mesh_dims!r}")
    for name in wanted:
        if name not in names:
            raise ArgumentError(f"mesh_dims: the mesh has no dimension {name!r}; its dimensions are {_listed(names)}")
    return [dim for dim, name in enumerate(names) if name in wanted]


def _listed(names: Sequence[Any]) -> str:
    return ", ".join(map(repr, names))
