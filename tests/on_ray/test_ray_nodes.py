"""Clusters of several nodes, which come and go; and the one that a pipeline starts for itself."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dali_like import Pipeline
from dali_like.engine.backends.ray import ray_dispatcher
from tests.conftest import DEADLINE_S, descendants_of, wait_until
from tests.on_ray.test_ray_pool import content, dense

ON_CALLBACK_NODES = {"num_cpus": 1, "resources": {"callbacks": 1}}


@pytest.fixture
def _each_has_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks do not share calls, or one actor might make all of a batch."""
    monkeypatch.setattr(ray_dispatcher, "_CALL_S", 1e-9)


def where(_: Any) -> Any:
    import ray

    return np.frombuffer(bytes.fromhex(ray.get_runtime_context().get_node_id()), np.uint8)


@pytest.mark.usefixtures("_each_has_tasks")
def test_workers_go_where_their_resources_are(make_pipeline: Callable[..., Pipeline], add_node: Callable[..., Any]) -> None:
    nodes = {add_node(resources={"callbacks": 1}).node_id for _ in range(2)}
    pipe = make_pipeline(where, "ray", workers=2, py_worker_options=ON_CALLBACK_NODES)

    pipe.run()
    wait_until(lambda: len(pipe.py_worker_pids) == 2, "the start of both")
    places = {np.asarray(sample).tobytes().hex() for _ in range(10) for sample in pipe.run()[0]}

    assert places == nodes


@pytest.mark.usefixtures("_each_has_tasks")
def test_workers_go_where_a_scheduling_strategy_says(
    make_pipeline: Callable[..., Pipeline], add_node: Callable[..., Any]
) -> None:
    from ray.util.placement_group import placement_group, remove_placement_group
    from ray.util.scheduling_strategies import (
        NodeAffinitySchedulingStrategy,
        PlacementGroupSchedulingStrategy,
    )

    def places_by(strategy: Any) -> set[str]:
        pipe = make_pipeline(where, "ray", py_worker_options={"num_cpus": 1, "scheduling_strategy": strategy})
        pipe.run()
        wait_until(lambda: len(pipe.py_worker_pids) == 2, "the start of both")
        places = {np.asarray(sample).tobytes().hex() for _ in range(10) for sample in pipe.run()[0]}
        pipe.close()
        return places

    nodes = [add_node().node_id for _ in range(2)]

    assert places_by(NodeAffinitySchedulingStrategy(nodes[1], soft=False)) == {nodes[1]}
    group = placement_group([{"CPU": 1}] * 2, strategy="STRICT_SPREAD")
    assert len(places_by(PlacementGroupSchedulingStrategy(group))) == 2
    remove_placement_group(group)


def test_workers_wait_for_a_node_that_comes_later(
    make_pipeline: Callable[..., Pipeline], add_node: Callable[..., Any]
) -> None:
    pipe = make_pipeline(where, "ray", workers=2, py_worker_options=ON_CALLBACK_NODES)
    with pytest.warns(UserWarning, match=r"too small for 2 workers \(callbacks: 0 of 2\)"):
        pipe.build()

    node = add_node(resources={"callbacks": 2})

    assert np.asarray(pipe.run()[0][0]).tobytes().hex() == node.node_id


def test_nodes_are_killed_and_the_stream_is_that_of_one_process(
    make_pipeline: Callable[..., Pipeline], cluster: Any, add_node: Callable[..., Any]
) -> None:
    options = {"py_worker_options": ON_CALLBACK_NODES, "py_worker_restarts": None}
    pipe = make_pipeline(dense, "ray", seed=5, **options)
    forked = make_pipeline(dense, "fork", seed=5)
    node, batches = add_node(resources={"callbacks": 2}), []

    def have_begun() -> bool:
        batches.append(content(pipe.run()))
        return len(pipe.py_worker_pids) == 2

    def were_lost(num_workers: int) -> bool:
        batches.append(content(pipe.run()))
        return pipe.statistics().worker_restarts >= num_workers

    for num_lost in (2, 4):
        wait_until(have_begun, "the start of both")
        before, node = node, add_node(resources={"callbacks": 2})  # actors that lose their node go to the new one
        cluster.remove_node(before, allow_graceful=False)
        wait_until(functools.partial(were_lost, num_lost), "the loss of both")
    batches += [content(pipe.run()) for _ in range(5)]

    assert batches == [content(forked.run()) for _ in batches]


ALONE = """
import sys
import numpy as np
import ray
from dali_like import fn, pipeline_def

path = sys.argv[1]

@pipeline_def(batch_size=2, num_threads=1, py_num_workers=1, py_start_method="ray")
def pipeline():
    down = lambda: open(path, "w").write("down")
    return fn.external_source(
        source=lambda info: np.array(info.idx_in_epoch), parallel=True, batch=False, worker_teardown=down
    )

first, second = pipeline(), pipeline()
first.run(), second.run()
first.close()
assert ray.is_initialized() and second.run()[0].as_array().tolist() == [2, 3]
if sys.argv[2] == "close":
    second.close()
    assert not ray.is_initialized()
print("done")
"""


@pytest.mark.parametrize("end", ["close", "exit"])
def test_a_cluster_of_its_own_ends_with_the_last_pipeline(end: str, tmp_path: Any) -> None:
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", ALONE, str(tmp_path / "down"), end]

    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    wait_until(lambda: list(descendants_of(process.pid)), "the cluster")
    output, errors = process.communicate(timeout=2 * DEADLINE_S)

    assert process.returncode == 0, errors
    assert output == "done\n"
    assert "Error" not in errors
    assert (tmp_path / "down").read_text() == "down"
