"""The rank of this process: given by the user, known to a framework, or set by the launcher."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from dali_like.common.checks import not_negative, positive
from dali_like.errors import ArgumentClashError, ArgumentError
from dali_like.sources.meshes import shard_in_mesh
from dali_like.sources.sharding import ALONE, Rest, Shard

__all__ = ["choose_shard", "detect_shard", "rank_in_job"]

#: Environment variables of launchers: rank and number of ranks. MPI comes before Slurm, which may have started ``mpirun``.
_VARIABLES = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)


def choose_shard(
    shard: Any, shard_id: Any, num_shards: Any, rest: Any, mesh: Any = None, mesh_dims: Any = None
) -> tuple[Shard | None, Rest]:
    """Return the shard of a source, or None; and the treatment of the samples left over.

    Args:
        shard: "auto", to use `detect_shard`; or None.
        shard_id, num_shards: the number of the shard, and the number of shards; or None.
        mesh, mesh_dims: the mesh of processes that gives these numbers, and its data-parallel dimensions; or None. See
            `dali_like.sources.meshes.shard_in_mesh`.
        rest: the value of a `Rest`; None: "drop".

    Raises:
        ArgumentError: a value is out of range or unknown.
        ArgumentClashError: only one of the two numbers is given; or two of "auto", the numbers and a mesh; or a rest without
            shards; or dimensions without a mesh.
    """
    if (shard_id is None) != (num_shards is None):
        raise ArgumentClashError(f"shard_id and num_shards belong together; got {shard_id!r} and {num_shards!r}")
    if shard not in (None, "auto"):
        raise ArgumentError(f'shard must be "auto" or None, not {shard!r}; numbers are given as shard_id and num_shards')
    if rest not in (None, *(member.value for member in Rest)):
        names = ", ".join(repr(member.value) for member in Rest)
        raise ArgumentError(f"shard_rest must be one of {names}, not {rest!r}")
    if shard is not None and shard_id is not None:
        raise ArgumentClashError('shard="auto" detects shard_id and num_shards: pass either it or them')
    if mesh is not None and (shard is not None or shard_id is not None):
        raise ArgumentClashError("mesh gives shard_id and num_shards: pass either it or them")
    if mesh is None and mesh_dims is not None:
        raise ArgumentClashError("mesh_dims names dimensions of a mesh: pass mesh, too")
    chosen: Shard | None = None
    if mesh is not None:
        chosen = shard_in_mesh(mesh, mesh_dims)
    elif shard is not None:
        chosen = detect_shard()
    elif shard_id is not None:
        chosen = _checked(not_negative("shard_id", shard_id), positive("num_shards", num_shards), "shard_id", "num_shards")
    elif rest is not None:
        raise ArgumentClashError('shard_rest is for shards: pass shard="auto", or shard_id and num_shards, or mesh')
    return chosen, Rest(rest or "drop")


def detect_shard() -> Shard:
    """Return the rank of this process, and the number of ranks.

    The sources are, in this order: torch.distributed or JAX, if this process has initialized them; the environment variables
    RANK and WORLD_SIZE (torchrun), OMPI_COMM_WORLD_* (Open MPI), PMI_* (MPICH, Intel MPI), SLURM_PROCID and SLURM_NTASKS
    (srun). Without any of them, the process is the only rank.

    Raises:
        ArgumentError: only one variable of a pair is set, or its value is not a number or out of range.
    """
    return rank_in_job() or _of_environment(os.environ) or ALONE


def rank_in_job() -> Shard | None:
    """Return the rank of this process, and the number of ranks, in torch.distributed or JAX; None without either."""
    return _of_torch() or _of_jax()


def _of_torch() -> Shard | None:
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return Shard(int(distributed.get_rank()), int(distributed.get_world_size()))


def _of_jax() -> Shard | None:
    """Return the arguments of ``jax.distributed.initialize``. Calling ``jax.process_index`` would initialize the GPUs."""
    state = getattr(sys.modules.get("jax._src.distributed"), "global_state", None)
    if getattr(state, "client", None) is None:
        return None
    return Shard(int(state.process_id), int(state.num_processes))  # type: ignore[union-attr]


def _of_environment(variables: Mapping[str, str]) -> Shard | None:
    for rank, size in _VARIABLES:
        if rank in variables:
            if size not in variables:
                raise ArgumentError(f'shard="auto": {rank} is set in the environment, and {size} is not: set both')
            return _checked(_number(rank, variables), _number(size, variables), rank, size)
    return None


def _number(name: str, variables: Mapping[str, str]) -> int:
    try:
        return int(variables[name])
    except ValueError:
        raise ArgumentError(f'shard="auto": {name} in the environment should be a number, not {variables[name]!r}') from None


def _checked(shard_id: int, num_shards: int, id_name: str, count_name: str) -> Shard:
    if not 0 <= shard_id < num_shards:
        raise ArgumentError(f"{id_name} must be from 0 to {count_name} - 1, which is {num_shards - 1}, not {shard_id}")
    return Shard(shard_id, num_shards)
