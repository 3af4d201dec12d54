"""Which rank a process is, as PyTorch and JAX know it."""

from __future__ import annotations

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
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    variables = {**os.environ, "JAX_PLATFORMS": "cpu"}
    ranks = [
        subprocess.Popen([sys.executable, "-c", JAX_PROGRAM, str(port), str(rank)], env=variables, stderr=subprocess.PIPE)
        for rank in range(2)
    ]

    errors = [rank.communicate(timeout=300)[1].decode() for rank in ranks]

    assert [rank.returncode for rank in ranks] == [0, 0], errors
