"""Checkpoints of Orbax with states of loaders. They need orbax-checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")
ocp = pytest.importorskip("orbax.checkpoint")

from dali_like import fn, pipeline_def  # noqa: E402
from dali_like.data import ComposedDataset, DataLoader  # noqa: E402
from dali_like.errors import CheckpointError  # noqa: E402
from dali_like.plugin.jax.orbax import LoaderHandler, LoaderRestore, LoaderSave  # noqa: E402


def loader_of(batch_size: int, rank: int = 0, num_ranks: int = 1) -> Any:
    dataset = ComposedDataset.source(range(1000)).shuffle().filter(bool).repeat().with_options(shards=12)
    return DataLoader(dataset, batch_size=batch_size, shard_id=rank, num_shards=num_ranks)


def test_a_manager_saves_and_restores_a_loader_beside_the_parameters(tmp_path: Path) -> None:
    loader, params = loader_of(6), {"weights": jax.numpy.arange(4.0)}
    batches = iter(loader)
    next(batches)

    with ocp.CheckpointManager(tmp_path) as manager:
        manager.save(1, args=ocp.args.Composite(model=ocp.args.StandardSave(params), data=LoaderSave(loader)))
        manager.wait_until_finished()
        resumed = loader_of(6)
        found = manager.restore(1, args=ocp.args.Composite(model=ocp.args.StandardRestore(), data=LoaderRestore(resumed)))

    assert found.data is resumed
    assert found.model["weights"].tolist() == [0, 1, 2, 3]
    assert next(iter(resumed)).tolist() == next(batches).tolist()


def in_process(monkeypatch: pytest.MonkeyPatch, rank: int, count: int) -> None:
    monkeypatch.setattr(jax, "process_index", lambda: rank)
    monkeypatch.setattr(jax, "process_count", lambda: count)


def test_another_number_of_processes_continues_with_the_same_elements(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = [loader_of(6, rank, 2) for rank in range(2)]
    iterators = [iter(loader) for loader in two]
    for rank, iterator in enumerate(iterators):
        next(iterator)
        in_process(monkeypatch, rank, 2)
        LoaderHandler().save(tmp_path, LoaderSave(two[rank]))
    expected = np.stack([next(iterator) for iterator in iterators], axis=1).ravel().tolist()

    three = [loader_of(4, rank, 3) for rank in range(3)]
    for rank, loader in enumerate(three):
        in_process(monkeypatch, rank, 3)
        LoaderHandler().restore(tmp_path, LoaderRestore(loader))

    assert np.stack([next(iter(loader)) for loader in three], axis=1).ravel().tolist() == expected


def test_loaders_of_other_datasets_need_the_same_number_of_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaders = [DataLoader(range(20 * rank, 20 * rank + 20), batch_size=4) for rank in range(2)]
    for rank, loader in enumerate(loaders):
        batches = iter(loader)
        for _ in range(rank + 1):
            next(batches)
        in_process(monkeypatch, rank, 2)
        LoaderHandler().save(tmp_path, LoaderSave(loader))

    resumed = DataLoader(range(20, 40), batch_size=4)
    LoaderHandler().restore(tmp_path, LoaderRestore(resumed))
    assert next(iter(resumed)).tolist() == [28, 29, 30, 31]
    in_process(monkeypatch, 0, 3)
    with pytest.raises(CheckpointError, match="the states are of 2 processes, and there are 3"):
        LoaderHandler().restore(tmp_path, LoaderRestore(resumed))


def test_a_missing_file_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_process(monkeypatch, 0, 2)
    with pytest.raises(CheckpointError, match="states of 0 of all processes"):
        LoaderHandler().restore(tmp_path, LoaderRestore(loader_of(4)))
    LoaderHandler().save(tmp_path, LoaderSave(loader_of(4, 0, 2)))
    with pytest.raises(CheckpointError, match="states of 1 of 2 processes"):
        LoaderHandler().restore(tmp_path, LoaderRestore(loader_of(4)))


def test_pipelines_have_states_as_well(tmp_path: Path) -> None:
    @pipeline_def(batch_size=2, num_threads=1, seed=1, enable_checkpointing=True)
    def numbers() -> Any:
        return fn.external_source(lambda info: np.array([info.idx_in_epoch]), batch=False)

    with numbers() as pipe, numbers() as resumed:
        pipe.run()
        LoaderHandler().save(tmp_path, LoaderSave(pipe))
        LoaderHandler().restore(tmp_path, LoaderRestore(resumed))
        assert resumed.run()[0].as_array().tolist() == [[2], [3]]
