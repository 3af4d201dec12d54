"""Which rank a process is, as PyTorch and JAX know it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys

import pytest

from dali_like.sources.ranks import detect_shard
from dali_like.sources.sharding import Shard

JAX_PROGRAM = """
import sys
import jax
from dali_like.sources.ranks import detect_shard
assert detect_shard().count == 1, detect_shard()
jax.distributed.initialize(f"127.0.0.1:{sys.argv[1]}", num_processes=2, process_id=int(sys.argv[2]))
shard = detect_shard()
assert (shard.id, shard.count) == (int(sys.argv[2]), 2) == (jax.process_index(), jax.process_count()), shard
jax.distributed.shutdown()
"""

#: Each process has two devices: its row of the mesh. It prints the elements of each global batch that its devices hold.
JAX_LOADER_PROGRAM = """
import json, sys
import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from dali_like.data import ComposedDataset
from dali_like.plugin.jax import DataLoader

jax.config.update("jax_num_cpu_devices", 2)
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(f"127.0.0.1:{sys.argv[1]}", num_processes=2, process_id=int(sys.argv[2]))
mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("data", "model"))
dataset = ComposedDataset.source(np.arange(40)).shuffle(seed=1)
options = dict(batch_size=4, num_workers=1, mesh=mesh, sharding=NamedSharding(mesh, PartitionSpec("data")))
loader = DataLoader(dataset, **options)
total, seen, state = jax.jit(lambda batch: batch.sum()), [], None
for step, batch in enumerate(loader):
    assert batch.shape == (8,) and not batch.is_fully_addressable
    seen.append([shard.data.tolist() for shard in batch.addressable_shards] + [int(total(batch))])
    if step == 1:
        state = loader.state_dict()
resumed = DataLoader(dataset, **options)
resumed.load_state_dict(state)
again = [[shard.data.tolist() for shard in batch.addressable_shards] + [int(total(batch))] for batch in resumed]
assert again == seen[2:], (again, seen)
print(json.dumps(seen))
jax.distributed.shutdown()
"""


def test_shard_is_detected_from_pytorch() -> None:
    torch = pytest.importorskip("torch.distributed")
    fake = pytest.importorskip("torch.testing._internal.distributed.fake_pg")
    torch.init_process_group("fake", rank=3, world_size=8, store=fake.FakeStore())
    try:
        assert detect_shard() == Shard(3, 8)
    finally:
        torch.destroy_process_group()

    assert detect_shard() == Shard(0, 1)


def test_shard_is_detected_from_jax() -> None:
    pytest.importorskip("jax")

    outputs_of_two_processes(JAX_PROGRAM)


def test_global_batches_of_two_jax_processes_hold_each_element_once_and_resume() -> None:
    pytest.importorskip("jax")

    first, second = (json.loads(output.splitlines()[-1]) for output in outputs_of_two_processes(JAX_LOADER_PROGRAM))

    assert len(first) == len(second) == 5
    elements: list[int] = []
    for (mine, my_peer, total), (others, their_peer, their_total) in zip(first, second, strict=True):
        assert (mine, others) == (my_peer, their_peer), "devices of one row have the same samples"
        assert total == their_total == sum(mine + others)
        elements += mine + others
    assert sorted(elements) == list(range(40))


def outputs_of_two_processes(program: str) -> list[str]:
    """Run a program of JAX as two processes with a port and their number as arguments; return what they print."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(port), str(rank)],
            env={**os.environ, "JAX_PLATFORMS": "cpu"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]

    written = [rank.communicate(timeout=300) for rank in ranks]

    assert [rank.returncode for rank in ranks] == [0, 0], [errors for _, errors in written]
    return [output for output, _ in written]
