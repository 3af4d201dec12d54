"""Workers with resources that no node has: Ray's autoscaler starts nodes for them, and ends idle nodes.

Its provider is the one that Ray has for such tests, which starts nodes as processes of this machine. Ray's own
`AutoscalingCluster` would end every process of Ray that there is on the machine, and wants a file that its package lacks.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.conftest import DEADLINE_S, descendants_of, wait_until
from tests.on_ray.conftest import STORE_BYTES

NODE_TYPES = {
    "ray.head.default": {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0},
    "callback.node": {
        "resources": {"CPU": 1, "callbacks": 1, "object_store_memory": STORE_BYTES},
        "node_config": {},
        "min_workers": 0,
        "max_workers": 4,
    },
}
#: Required fields that have no effect here.
UNUSED: dict[str, Any] = {
    **{name: {} for name in ("auth", "docker", "file_mounts")},
    **{f"{name}_commands": [] for name in ("initialization", "setup", "head_setup", "worker_setup")},
    **{f"{name}_start_ray_commands": [] for name in ("head", "worker")},
    **{name: [] for name in ("cluster_synced_files", "rsync_exclude", "rsync_filter")},
    "file_mounts_sync_continuously": False,
}


class Head(NamedTuple):
    """The first node of a cluster: where it is, and the environment of programs that are to reach it."""

    address: str
    environment: dict[str, str]


@pytest.fixture
def head(tmp_path: Path) -> Iterator[Head]:
    """The head of a cluster that grows up to five nodes; no worker fits on it."""
    from ray.util import get_node_ip_address

    with socket.socket() as probe:
        probe.bind(("", 0))
        port = probe.getsockname()[1]
    address = f"{get_node_ip_address()}:{port}"
    (tmp_path / "cluster.yaml").write_text(json.dumps(cluster_at(address)))
    # It can be reached from other machines, but only with this token.
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    environment = {**os.environ, **token, "PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path])}
    command = [
        *(sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", f"--port={port}", "--num-cpus=0"),
        *("--include-dashboard=false", "--disable-usage-stats", f"--object-store-memory={STORE_BYTES}"),
        f"--autoscaling-config={tmp_path / 'cluster.yaml'}",
    ]
    scaling = {"RAY_FAKE_CLUSTER": "1", "AUTOSCALER_UPDATE_INTERVAL_S": "1"}
    with (tmp_path / "head.txt").open("w") as output:
        process = subprocess.Popen(command, env=environment | scaling, stdout=output, stderr=output)
    try:
        wait_until(lambda: answers(address), "the head of the cluster")
        yield Head(address, environment)
    finally:
        made = list(descendants_of(process.pid))
        process.terminate()
        process.wait(DEADLINE_S)
        for pid in made:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def cluster_at(address: str) -> dict[str, Any]:
    """The autoscaler's configuration."""
    provider = {"type": "fake_multinode", "gcs_address": address}
    provider |= dict.fromkeys(["use_node_id_as_ip", "disable_node_updaters", "disable_launch_config_check"], True)
    return {
        "cluster_name": "callbacks",
        "provider": provider,
        "max_workers": 4,
        "upscaling_speed": 1.0,
        "idle_timeout_minutes": 0.02,
        "available_node_types": NODE_TYPES,
        "head_node_type": "ray.head.default",
        **UNUSED,
    }


def answers(address: str) -> bool:
    """Whether a server listens there."""
    host, port = address.split(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


PROGRAM = """
import sys
import numpy as np
import ray
from dali_like import fn, pipeline_def
from tests.conftest import wait_until

ray.init(sys.argv[1], log_to_driver=False)
ON_CALLBACK_NODES = {"num_cpus": 1, "resources": {"callbacks": 1}}

def sample(info):
    return info.rng().integers(0, 255, (20, 3), np.uint8)

@pipeline_def(batch_size=4, num_threads=1, seed=5)
def pipeline(parallel):
    return fn.external_source(source=sample, parallel=parallel, batch=False)

def num_nodes():
    return sum(node["Alive"] for node in ray.nodes())

batches = []
def have_begun():
    batches.append(pipe.run()[0].as_array().tolist())
    return len(pipe.py_worker_pids) == 2

print(num_nodes())
pipe = pipeline(True, py_num_workers=2, py_start_method="ray", py_worker_options=ON_CALLBACK_NODES)
wait_until(have_begun, "the start of both")
print(num_nodes())
batches += [pipe.run()[0].as_array().tolist() for _ in range(5)]
pipe.close()
alone = pipeline(False)
assert batches == [alone.run()[0].as_array().tolist() for _ in batches]
wait_until(lambda: num_nodes() == 1, "the end of idle nodes")
print("gone")
"""


def test_nodes_come_for_workers_and_go_when_they_have_ended(head: Head) -> None:
    command = [sys.executable, "-c", PROGRAM, head.address]

    ended = subprocess.run(
        command, env=head.environment, capture_output=True, text=True, timeout=4 * DEADLINE_S, check=False
    )

    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split() == ["1", "3", "gone"]
    assert "too small for 2 workers (CPU: 0 of 2, callbacks: 0 of 2)" in ended.stderr
