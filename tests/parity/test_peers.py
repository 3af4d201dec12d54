"""Peers of a mesh that share one loader, in processes of gloo; `tests/data/test_peers.py` has the other cases."""

from __future__ import annotations

import functools
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402

from dali_like.data import ComposedDataset  # noqa: E402
from dali_like.device.opening import substitute  # noqa: E402
from dali_like.errors import PeerError  # noqa: E402
from dali_like.plugin.pytorch import DataLoader  # noqa: E402
from dali_like.testing.simulated_device import DEFAULT_STREAM, SimulatedDevice  # noqa: E402
from examples import mesh_training  # noqa: E402
from tests.conftest import wait_until  # noqa: E402
from tests.parity.process_groups import in_ranks  # noqa: E402

pytestmark = [
    pytest.mark.peers,
    pytest.mark.skipif(not dist.is_gloo_available(), reason="this PyTorch has no gloo"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
]

COUNT = 48
SIDE = 256  # so that tensors are large enough to lie in slots


def sample(number: int) -> Any:
    return {"image": torch.full((SIDE, SIDE), number, dtype=torch.uint8), "label": number, "pid": os.getppid()}


def is_kept(sample: Any) -> bool:
    return True


def stream() -> ComposedDataset:
    return ComposedDataset.source(range(COUNT)).map(sample).filter(is_kept).with_options(shards=4)


def shared(sizes: tuple[int, int], **options: Any) -> Any:
    mesh = init_device_mesh("cpu", sizes, mesh_dim_names=("dp", "tp"))
    given = {"batch_size": 3, "num_workers": 1, "shard_rest": "uneven", "peers": "serve", **options}
    return DataLoader(stream(), mesh=mesh, **given)


def numbers(batches: Any) -> list[int]:
    found = []
    for batch in batches:
        assert (batch["image"] == batch["label"][:, None, None]).all()
        found += batch["label"].tolist()
    return found


def test_peers_share_a_loader_and_resume_on_other_meshes(tmp_path: Path) -> None:
    in_ranks(4, tmp_path, _save)
    texts = [json.loads((tmp_path / f"state-{rank}").read_text()) for rank in range(4)]
    assert texts[0] == texts[1]
    assert texts[2] == texts[3]

    for sizes in ((4, 1), (1, 4)):
        folder = tmp_path / f"{sizes[0]}x{sizes[1]}"
        folder.mkdir()
        in_ranks(4, folder, functools.partial(_resume, sizes, [text["state"] for text in texts]))
        delivered = [json.loads((folder / f"rest-{rank}").read_text()) for rank in range(4)]
        assert delivered == [list(range(12 + rank // sizes[1], COUNT, sizes[0])) for rank in range(4)]


def _save(rank: int, folder: Path) -> None:
    loader = shared((2, 2))
    batches = iter(loader)
    taken = [next(batches) for _ in range(2)]
    assert numbers(taken) == list(range(rank // 2, 12, 2))
    assert isinstance(taken[0]["image"], torch.Tensor)
    found = {"state": loader.state_dict(), "processes": taken[0]["pid"].tolist()}
    (folder / f"state-{rank}").write_text(json.dumps(found))


def _resume(sizes: tuple[int, int], states: list[Any], rank: int, folder: Path) -> None:
    loader = shared(sizes, batch_size=2, num_workers=0)
    loader.load_state_dict(states)
    (folder / f"rest-{rank}").write_text(json.dumps(numbers(loader)))


def test_all_peers_take_part_in_a_distributed_checkpoint(tmp_path: Path) -> None:
    in_ranks(4, tmp_path, _save_distributed)
    in_ranks(2, tmp_path, _load_distributed)


def _save_distributed(rank: int, folder: Path) -> None:
    loader = shared((2, 2))
    batches = iter(loader)
    numbers([next(batches), next(batches)])
    dcp.save({"loader": loader}, checkpoint_id=folder / "checkpoint")


def _load_distributed(rank: int, folder: Path) -> None:
    loader = shared((1, 2))
    dcp.load({"loader": loader}, checkpoint_id=folder / "checkpoint")
    assert numbers(loader) == list(range(12, COUNT))


def test_peers_of_a_rank_that_is_killed_get_an_error_that_names_it(tmp_path: Path) -> None:
    in_ranks(4, tmp_path, _lose_leader, killed=[2])


def _lose_leader(rank: int, folder: Path) -> None:
    batches = iter(shared((2, 2)))
    next(batches)
    (folder / f"ready-{rank}").touch()
    if rank == 2:
        wait_until((folder / "ready-3").exists, "a batch of rank 3")
        os.kill(os.getpid(), signal.SIGKILL)
    if rank == 3:
        with pytest.raises(PeerError, match="rank 2, which loads for rank 3, gives no more batches") as raised:
            list(batches)
        assert raised.value.rank == 2
    else:
        numbers(batches)


@pytest.mark.parametrize("num_workers", [0, 1])
@pytest.mark.parametrize("is_static", [False, True])
def test_batches_go_to_the_device_of_each_peer(num_workers: int, is_static: bool, tmp_path: Path) -> None:
    in_ranks(2, tmp_path, functools.partial(_to_device, num_workers, is_static))


def _to_device(num_workers: int, is_static: bool, rank: int, folder: Path) -> None:
    gpu = SimulatedDevice()
    with substitute(lambda number: gpu):
        loader = shared((1, 2), num_workers=num_workers, device="cuda:0", static_buffers=is_static)
        found, states, addresses = [], [], set()
        for batch in loader:
            states.append(loader.state_dict()["position"])
            addresses.add(batch["image"].data_ptr())
            gpu.run(DEFAULT_STREAM)
            found += numbers([batch])
            del batch
        assert found == list(range(COUNT))
        assert states == list(range(3, COUNT + 1, 3))  # of the batches that the program has taken, not of those ahead
        if is_static:
            assert len(addresses) == 3
        assert loader.state_dict()["epoch"] == 1
        del loader
    assert not gpu.faults


def test_the_example_trains_on_a_mesh(tmp_path: Path) -> None:
    in_ranks(4, tmp_path, _train)


def _train(rank: int, folder: Path) -> None:
    losses = mesh_training.train(3, 2, save=folder / "first")
    resumed = mesh_training.train(2, 4, save=folder / "second", resume=folder / "first")
    assert len(losses) == 3
    assert len(resumed) == 2
