"""Loaders of composed datasets with PyTorch: tensors, ranks of torch.distributed, distributed checkpoints."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402

import dali_like.data  # noqa: E402
from dali_like.data import ComposedDataset  # noqa: E402
from dali_like.plugin.pytorch import DataLoader  # noqa: E402
from tests.parity.process_groups import in_ranks  # noqa: E402
from tests.parity.same import assert_same  # noqa: E402

pytestmark = [
    pytest.mark.peers,
    pytest.mark.filterwarnings("ignore:torch.distributed is disabled"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
]

SHARDS = 4
COUNT = 48


def is_kept(number: int) -> bool:
    return True


def sample(number: int) -> dict[str, Any]:
    return {"image": np.full((2, 3), number, np.float32), "label": number, "name": str(number)}


def sharded() -> ComposedDataset:
    return ComposedDataset.source(range(COUNT)).filter(is_kept).with_options(shards=SHARDS)


def random_access() -> ComposedDataset:
    return ComposedDataset.source(range(COUNT))


@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("make", [sharded, random_access])
def test_batches_are_those_of_our_loader_as_tensors(make: Callable[[], ComposedDataset], workers: int) -> None:
    dataset = make().map(sample)
    options: dict[str, Any] = {"batch_size": 5, "num_workers": workers, "shard_id": 0, "num_shards": 1}

    tensors = list(DataLoader(dataset, **options))
    arrays = list(dali_like.data.DataLoader(dataset, **options))

    assert len(tensors) == len(arrays) == 10
    for batch, expected in zip(tensors, arrays, strict=True):
        assert_same(batch, {name: torch.as_tensor(value) if name != "name" else value for name, value in expected.items()})


@pytest.mark.parametrize("make", [sharded, random_access])
def test_batches_of_random_access_are_those_of_pytorch(make: Callable[[], ComposedDataset]) -> None:
    ours = list(DataLoader(make().map(sample), batch_size=5))

    theirs = list(torch.utils.data.DataLoader([sample(number) for number in range(COUNT)], batch_size=5))

    assert_same(ours, theirs)


def test_states_are_the_same_as_those_of_our_loader() -> None:
    loaders = [DataLoader(sharded(), batch_size=3), dali_like.data.DataLoader(sharded(), batch_size=3)]
    for each in loaders:
        next(iter(each))

    assert loaders[0].state_dict() == loaders[1].state_dict()


def test_the_rank_is_that_of_the_process_group(tmp_path: Path) -> None:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/ranks", rank=0, world_size=1)
    try:
        state = DataLoader(sharded(), batch_size=2).state_dict()
    finally:
        dist.destroy_process_group()

    assert (state["rank"], state["num_ranks"]) == (0, 1)


def test_a_distributed_checkpoint_has_one_key_for_each_shard(tmp_path: Path) -> None:
    loader = DataLoader(sharded(), batch_size=6)
    next(iter(loader))

    dcp.save({"loader": loader}, checkpoint_id=tmp_path)

    keys = dcp.FileSystemReader(tmp_path).read_metadata().state_dict_metadata
    assert {f"loader.states.{shard}" for shard in range(SHARDS)} <= set(keys)
    resumed = DataLoader(sharded(), batch_size=3)
    dcp.load({"loader": resumed}, checkpoint_id=tmp_path)
    assert next(iter(resumed)).tolist() == [6, 7, 8]


def test_a_distributed_checkpoint_has_the_batch_size_that_was_set(tmp_path: Path) -> None:
    loader = DataLoader(sharded(), batch_size=6)
    batches = iter(loader)
    next(batches)
    loader.set_batch_size(4)

    dcp.save({"loader": loader}, checkpoint_id=tmp_path)
    resumed = DataLoader(sharded(), batch_size=3)
    dcp.load({"loader": resumed}, checkpoint_id=tmp_path)

    assert next(iter(resumed)).tolist() == next(batches).tolist() == [6, 7, 8, 9]


@pytest.mark.skipif(not dist.is_gloo_available(), reason="this PyTorch has no gloo")
def test_ranks_agree_on_a_batch_size(tmp_path: Path) -> None:
    in_ranks(2, tmp_path, _resize)


@pytest.mark.skipif(not dist.is_gloo_available(), reason="this PyTorch has no gloo")
def test_ranks_agree_on_weights_and_resume_from_a_distributed_checkpoint(tmp_path: Path) -> None:
    in_ranks(2, tmp_path, _reweigh)
    in_ranks(3, tmp_path, _resume_with_weights)


def _mixture() -> ComposedDataset:
    datasets = [ComposedDataset.source(range(begin, begin + 600)) for begin in (0, 1000)]
    mixture = ComposedDataset.mix(datasets, [3, 1], block=8, names=["web", "code"], stop="never")
    return mixture.filter(is_kept).with_options(shards=6)


def _reweigh(rank: int, folder: Path) -> None:
    loader = DataLoader(_mixture(), batch_size=6)
    batches = iter(loader)
    for _ in range(2 + rank):  # the ranks have drawn different numbers of inputs
        next(batches)
    position = loader.set_weights({"web": 1, "code": 3})
    for _ in range(2 - rank):
        next(batches)
    (folder / f"position-{rank}").write_text(str(position))
    dcp.save({"loader": loader}, checkpoint_id=folder / "weights")


def _resume_with_weights(rank: int, folder: Path) -> None:
    loader = DataLoader(_mixture(), batch_size=4)
    dcp.load({"loader": loader}, checkpoint_id=folder / "weights")
    found = next(iter(loader)).tolist()
    (change,) = loader.state_dict()["changes"]
    plain = iter(_mixture())
    plain.load_state_dict({**plain.state_dict(), "changes": [change]})

    assert {(folder / f"position-{each}").read_text() for each in range(2)} == {str(change[2])}
    assert found == [next(plain) for _ in range(60)][48:][rank::3]


def _resize(rank: int, folder: Path) -> None:
    loader = _loader(3)
    batches = iter(loader)
    for _ in range(1 + rank):  # the second rank is ahead, so the first one has its next batch as before
        next(batches)

    assert loader.set_batch_size(2) == 12
    assert [len(next(batches)) for _ in range(2)] == ([3, 2] if rank == 0 else [2, 2])


@pytest.mark.skipif(not dist.is_gloo_available(), reason="this PyTorch has no gloo")
def test_a_distributed_checkpoint_serves_other_numbers_of_ranks(tmp_path: Path) -> None:
    in_ranks(2, tmp_path, _save)
    in_ranks(4, tmp_path, _load)


def _loader(batch_size: int) -> Any:
    return DataLoader(sharded(), batch_size=batch_size, shard_rest="uneven")


def _save(rank: int, folder: Path) -> None:
    loader = _loader(3)
    batches = iter(loader)
    assert [next(batches).tolist() for _ in range(2)] == [
        [rank, rank + 2, rank + 4],
        [rank + 6, rank + 8, rank + 10],
    ]
    dcp.save({"loader": loader}, checkpoint_id=folder / "checkpoint")


def _load(rank: int, folder: Path) -> None:
    loader = _loader(2)
    dcp.load({"loader": loader}, checkpoint_id=folder / "checkpoint")
    assert [number for batch in loader for number in batch.tolist()] == list(range(12 + rank, COUNT, 4))
    assert loader.state_dict()["epoch"] == 1


@pytest.mark.skipif(not dist.is_gloo_available(), reason="this PyTorch has no gloo")
@pytest.mark.parametrize("make", [sharded, random_access])
def test_peers_in_a_mesh_have_the_same_batches_and_resume_on_other_meshes(
    tmp_path: Path, make: Callable[[], ComposedDataset]
) -> None:
    in_ranks(4, tmp_path, functools.partial(_save_in_mesh, make))
    states = [json.loads((tmp_path / f"state-{rank}").read_text()) for rank in range(4)]

    for sizes in ((4, 1), (1, 4)):
        folder = tmp_path / f"{sizes[0]}x{sizes[1]}"
        folder.mkdir()
        in_ranks(4, folder, functools.partial(_load_in_mesh, make, sizes, states))
        delivered = [json.loads((folder / f"rest-{rank}").read_text()) for rank in range(4)]
        assert delivered == [list(range(12 + rank // sizes[1], COUNT, sizes[0])) for rank in range(4)]


def _mesh_loader(make: Callable[[], ComposedDataset], sizes: tuple[int, int], batch_size: int, num_workers: int) -> Any:
    mesh = init_device_mesh("cpu", sizes, mesh_dim_names=("dp", "tp"))
    return DataLoader(make(), batch_size=batch_size, num_workers=num_workers, shard_rest="uneven", mesh=mesh)


def _save_in_mesh(make: Callable[[], ComposedDataset], rank: int, folder: Path) -> None:
    loader = _mesh_loader(make, (2, 2), batch_size=3, num_workers=1)
    batches = iter(loader)
    delivered = [number for _ in range(2) for number in next(batches).tolist()]
    assert delivered == list(range(rank // 2, 12, 2))
    (folder / f"state-{rank}").write_text(json.dumps(loader.state_dict()))


def _load_in_mesh(
    make: Callable[[], ComposedDataset], sizes: tuple[int, int], states: list[Any], rank: int, folder: Path
) -> None:
    loader = _mesh_loader(make, sizes, batch_size=2, num_workers=0)
    loader.load_state_dict(states)
    (folder / f"rest-{rank}").write_text(json.dumps([number for batch in loader for number in batch.tolist()]))
