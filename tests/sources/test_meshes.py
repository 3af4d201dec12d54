"""Meshes of processes: which processes have the same samples, and which shard each of them has."""

from __future__ import annotations

import itertools
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dali_like import Pipeline, fn
from dali_like.data import ComposedDataset, DataLoader, ShardedBatchSampler
from dali_like.errors import ArgumentClashError, ArgumentError, ArgumentTypeError
from dali_like.sources.meshes import shard_in_mesh
from dali_like.sources.sharding import Shard


def mesh_at(coordinate: tuple[int, ...] | None, **sizes: int) -> Any:
    """The mesh of PyTorch, as the process at a coordinate sees it."""
    return SimpleNamespace(
        mesh_dim_names=tuple(sizes), shape=tuple(sizes.values()), get_coordinate=lambda: coordinate and list(coordinate)
    )


def mesh_of_jax(processes: Any, here: int, *names: str) -> Any:
    """The mesh of JAX with the processes of its devices, as one process sees it."""
    client = SimpleNamespace(process_index=lambda: here)
    devices = [SimpleNamespace(process_index=process, client=client) for process in np.ravel(processes)]
    array = np.empty(len(devices), object)
    array[:] = devices
    return SimpleNamespace(axis_names=names, devices=array.reshape(np.shape(processes)))


@pytest.mark.parametrize(
    ("sizes", "data"),
    [
        ({"dp": 4}, ["dp"]),
        ({"dp": 2, "tp": 3}, ["dp"]),
        ({"pp": 2, "dp_replicate": 2, "dp_shard": 3, "cp": 2, "tp": 2}, ["dp_replicate", "dp_shard"]),
        ({"batch": 2, "sequence_parallel": 2}, ["batch"]),
        ({"DP": 2, "model_parallel": 2}, ["DP"]),
        ({"fsdp": 4}, ["fsdp"]),
        ({"replica": 2, "fsdp": 2}, ["replica", "fsdp"]),
        ({"tp": 4}, []),
    ],
    ids="-".join,
)
def test_shards_differ_along_data_parallel_dimensions_only(sizes: dict[str, int], data: list[str]) -> None:
    dims = [list(sizes).index(name) for name in data]
    expected = {place: number for number, place in enumerate(itertools.product(*(range(sizes[name]) for name in data)))}

    for coordinate in itertools.product(*map(range, sizes.values())):
        shard = shard_in_mesh(mesh_at(coordinate, **sizes))
        assert shard == Shard(expected[tuple(coordinate[dim] for dim in dims)], len(expected))


@pytest.mark.parametrize(
    "names",
    [("x", "y"), ("dp", "x"), ("fsdp", "tp"), ("dp_cp",), ("dp", "ep"), ("dp_shard_in_ep",), ("shard",)],
    ids="-".join,
)
def test_names_that_do_not_decide_are_an_error_that_lists_them(names: tuple[str, ...]) -> None:
    with pytest.raises(ArgumentError, match=", ".join(map(repr, names)) + " do not tell .* mesh_dims="):
        shard_in_mesh(mesh_at((0,) * len(names), **dict.fromkeys(names, 1)))


def test_named_dimensions_count_in_the_order_of_the_mesh() -> None:
    mesh = mesh_at((1, 0, 2), x=2, y=2, z=3)

    assert shard_in_mesh(mesh, "z") == Shard(2, 3)
    assert shard_in_mesh(mesh, ["z", "x"]) == shard_in_mesh(mesh, ("x", "z")) == Shard(5, 6)
    assert shard_in_mesh(mesh, []) == Shard(0, 1)


def test_dimensions_without_names_are_named_by_their_numbers() -> None:
    mesh = SimpleNamespace(mesh_dim_names=None, shape=(2, 3), get_coordinate=lambda: [1, 2])

    assert shard_in_mesh(mesh, 1) == Shard(2, 3)
    with pytest.raises(ArgumentError, match="0, 1 do not tell"):
        shard_in_mesh(mesh)


@pytest.mark.parametrize(
    ("mesh", "dims", "error", "message"),
    [
        (mesh_at(None, dp=2), None, ArgumentError, "this process is not part of the mesh of 'dp'"),
        (mesh_at((0,), dp=2), "tp", ArgumentError, "no dimension 'tp'; its dimensions are 'dp'"),
        (mesh_at((0,), dp=2), 1.5, ArgumentTypeError, "mesh_dims must be a name of a dimension of the mesh, or several"),
        ("dp", None, ArgumentTypeError, "must be a DeviceMesh of PyTorch or a Mesh of JAX, not an object of type str"),
        (mesh_of_jax([[0, 1]], 2, "data", "model"), None, ArgumentError, "no device of this process"),
        (mesh_of_jax([0, 0, 1, 1], 1, "data"), None, ArgumentError, "belong to 2 shards along 'data'"),
    ],
)
def test_wrong_meshes_are_errors(mesh: Any, dims: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        shard_in_mesh(mesh, dims)


def test_a_mesh_of_jax_counts_processes_along_its_data_axis() -> None:
    processes = [[[0, 0], [1, 1]], [[2, 2], [3, 3]]]

    shards = [shard_in_mesh(mesh_of_jax(processes, here, "data", "model", "tensor")) for here in range(4)]

    assert shards == [Shard(0, 2), Shard(0, 2), Shard(1, 2), Shard(1, 2)]


@pytest.mark.parametrize("place", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_loaders_samplers_and_sources_have_the_shard_of_the_mesh(place: tuple[int, int]) -> None:
    mesh = mesh_at(place, dp=2, tp=2)
    rank = {"shard_id": place[0], "num_shards": 2}
    dataset = ComposedDataset.source(range(24)).shuffle(seed=1)

    loaders = [DataLoader(dataset, 3, **options) for options in ({"mesh": mesh}, {"mesh": mesh, "mesh_dims": "dp"}, rank)]
    batches = [[batch.tolist() for batch in loader] for loader in loaders]
    assert batches[0] == batches[1] == batches[2]
    samplers = [ShardedBatchSampler(range(24), 3, **options) for options in ({"mesh": mesh}, rank)]  # type: ignore[arg-type]
    assert list(samplers[0]) == list(samplers[1])
    rows = [_rows(**options) for options in ({"mesh": mesh}, rank)]
    assert rows[0] == rows[1]


def _rows(**options: Any) -> list[Any]:
    pipe = Pipeline(3, num_threads=1)
    pipe.set_outputs(fn.external_source(lambda info: np.int64(info.idx_in_epoch), batch=False, size=24, **options))
    with closing(pipe):
        return [outputs[0].as_array().tolist() for outputs in pipe]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mesh": mesh_at((0,), dp=1), "shard_id": 0, "num_shards": 1}, "mesh gives shard_id and num_shards"),
        ({"mesh_dims": "dp"}, "mesh_dims names dimensions of a mesh: pass mesh, too"),
    ],
)
def test_a_mesh_beside_numbers_and_dimensions_without_a_mesh_are_errors(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentClashError, match=message):
        DataLoader(ComposedDataset.source(range(4)), **options)
    with pytest.raises(ArgumentClashError, match=message):
        ShardedBatchSampler(range(4), 2, **options)
    with pytest.raises(ArgumentClashError, match=message):
        _rows(**options)


def test_a_mesh_with_another_dataset_names_the_way() -> None:
    with pytest.raises(ArgumentClashError, match="mesh is for composed datasets"):
        DataLoader(range(4), mesh=mesh_at((0,), dp=1))
