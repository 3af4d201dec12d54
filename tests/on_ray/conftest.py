"""Workers that are actors of Ray, on a cluster of this machine. These tests have an environment of their own: `make ray`."""

from __future__ import annotations

import gc
import importlib.util
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Resources, wait_until

collect_ignore_glob = ["test_*.py"] if importlib.util.find_spec("ray") is None else []

STORE_BYTES = 100 << 20


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    """A cluster that this program is connected to, with one node; tests may add others."""
    import ray
    from ray.cluster_utils import Cluster

    # Workers import the package and the tests from where this process does.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.getcwd(), os.environ.get("PYTHONPATH")]))
    # The death of a node is noticed within three seconds, and not after fifteen.
    watch = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 1000, "health_check_failure_threshold": 3}
    head = {"num_cpus": 4, "object_store_memory": STORE_BYTES, "include_dashboard": False, "_system_config": watch}
    made = Cluster(initialize_head=True, head_node_args=head)
    ray.init(made.address, log_to_driver=False)
    yield made
    ray.shutdown()
    made.shutdown()


@pytest.fixture
def add_node(cluster: Any) -> Iterator[Callable[..., Any]]:
    """Adds nodes to the cluster, and removes those again that are still there."""
    nodes: list[Any] = []

    def add(**options: Any) -> Any:
        nodes.append(cluster.add_node(num_cpus=2, object_store_memory=STORE_BYTES, **options))
        return nodes[-1]

    yield add
    for node in nodes:
        if node in cluster.list_all_nodes():
            cluster.remove_node(node)


@pytest.fixture(autouse=True)
def _leaves_nothing_behind() -> Iterator[None]:
    """Fail a test that leaves an actor, a thread or memory of ours. Ray's own processes come and go as it likes."""
    before = Resources()
    yield

    def is_clean() -> bool:
        gc.collect()
        ours = [thread for thread in threading.enumerate() if thread.name.startswith("dali_like")]
        return not ours and Resources().mappings <= before.mappings and not actors()

    wait_until(is_clean, "the end of all actors, threads and memory")


def actors() -> list[int]:
    """The process ids of the actors that are there: Ray names their processes so."""
    pids = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                title = (entry / "cmdline").read_bytes()
            except OSError:  # it has just ended
                continue
            if title.startswith(b"ray::RayWorker"):
                pids.append(int(entry.name))
    return pids
