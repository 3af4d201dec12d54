"""Nodes of ``torchdata.nodes`` with readers of dynamic mode."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dali_like.experimental.dynamic as ndd
from dali_like import errors

pytest.importorskip("torchdata.nodes")

from torchdata.nodes import Loader

from dali_like.experimental.dynamic.pytorch import nodes

pytestmark = pytest.mark.peers


@pytest.fixture
def context() -> Iterator[ndd.EvalContext]:
    with ndd.EvalContext(num_threads=1) as context:
        yield context


@pytest.fixture
def files(tmp_path: Path, context: ndd.EvalContext) -> list[str]:
    for number in range(7):
        np.save(tmp_path / f"{number}.npy", np.int32([number]))
    return [str(tmp_path / f"{number}.npy") for number in range(7)]


def graph(files: list[str], **options: Any) -> Any:
    reader = nodes.Reader(ndd.readers.Numpy, batch_size=2, output_names=["data"], files=files, **options)
    return nodes.ToTorch(nodes.DictMapper(reader, lambda data: data * 10))


def numbers(batches: Any) -> list[list[int]]:
    return [batch.flatten().tolist() for (batch,) in batches]


def test_graph_yields_tensors_of_each_epoch(files: list[str]) -> None:
    loader = Loader(graph(files))
    assert [numbers(loader) for _ in range(2)] == [
        [[0, 10], [20, 30], [40, 50], [60, 0]],
        [[10, 20], [30, 40], [50, 60], [0, 10]],
    ]


@pytest.mark.parametrize("steps", [1, 3, 4])
def test_loader_resumes_within_an_epoch(files: list[str], steps: int) -> None:
    options = {"random_shuffle": True, "seed": 3}
    loader = Loader(graph(files, **options))
    epoch = iter(loader)
    for _ in range(steps):
        next(epoch)
    state = loader.state_dict()
    rest, following = numbers(epoch), numbers(loader)

    again = Loader(graph(files, **options))
    again.load_state_dict(state)
    resumed = numbers(again)
    if steps < 4:
        assert resumed == rest
        assert numbers(again) == following
    else:  # torchdata begins the next epoch
        assert resumed in ([], following)


def test_loop_that_is_left_does_not_disturb_the_next_epoch(files: list[str]) -> None:
    node = graph(files)
    node.reset()
    next(node)
    node.reset()
    assert numbers(node) == [[0, 10], [20, 30], [40, 50], [60, 0]]


def test_wrong_names_and_states_are_errors(files: list[str]) -> None:
    unnamed = nodes.Reader(ndd.readers.Numpy, batch_size=None, files=files)
    with pytest.raises(errors.PipelineStateError, match="reset"):
        unnamed.next()
    unnamed.reset()
    with pytest.raises(errors.ArgumentError, match="pass output_names"):
        unnamed.next()
    with pytest.raises(errors.CheckpointError, match="not a state"):
        unnamed.reset({"other": 1})
    assert unnamed.get_metadata()["epoch_size"] == 7
