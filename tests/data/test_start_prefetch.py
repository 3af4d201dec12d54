"""``start_prefetch`` of loaders and pipelines: the first batches are computed before the loop begins."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dali_like import Pipeline, fn, pipeline_def
from dali_like.data import ComposedDataset, DataLoader
from dali_like.types import SampleInfo
from tests.conftest import wait_until


class Noted:
    """A source whose samples leave files behind, in any process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> int:
        (self.folder / str(index)).touch()
        return index

    def sample(self, info: SampleInfo) -> Any:
        return np.array([self[info.idx_in_epoch]])

    def wait_for(self, *indices: int) -> None:
        """Wait until some samples have been computed."""
        wait_until(lambda: all((self.folder / str(index)).exists() for index in indices), f"samples {indices}")


def numbers(batches: Any) -> list[list[int]]:
    return [np.asarray(batch).tolist() for batch in batches]


# Loaders

BATCHES = [[4 * batch + row for row in range(4)] for batch in range(8)]


@pytest.mark.parametrize("kind", ["map-style", "composed", "logical shards"])
@pytest.mark.parametrize("persistent", [False, True])
def test_workers_compute_the_first_batches_before_the_loop(tmp_path: Path, kind: str, persistent: bool) -> None:
    noted = Noted(tmp_path)
    dataset: Any = noted if kind == "map-style" else ComposedDataset.source(noted)
    if kind == "logical shards":
        dataset = dataset.filter(lambda number: True).with_options(shards=2)
    loader = DataLoader(dataset, batch_size=4, num_workers=2, persistent_workers=persistent)

    loader.start_prefetch()
    loader.start_prefetch()  # no effect
    noted.wait_for(*range(4))

    assert numbers(loader) == BATCHES
    assert numbers(loader) == BATCHES  # the next epoch


def test_a_loaded_state_is_the_beginning_and_stays_the_state_before_the_first_batch(tmp_path: Path) -> None:
    loader = DataLoader(ComposedDataset.source(Noted(tmp_path)), batch_size=4, num_workers=1)
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    del batches

    resumed = DataLoader(ComposedDataset.source(Noted(tmp_path)), batch_size=4, num_workers=1)
    resumed.load_state_dict(state)
    resumed.start_prefetch()

    assert resumed.state_dict() == state
    assert numbers(resumed) == BATCHES[1:]


@pytest.mark.parametrize("composed", [False, True])
def test_a_state_that_is_loaded_afterwards_begins_anew(tmp_path: Path, composed: bool) -> None:
    dataset: Any = ComposedDataset.source(Noted(tmp_path)) if composed else Noted(tmp_path)
    first = DataLoader(dataset, batch_size=4, num_workers=1)
    batches = iter(first)
    next(batches)
    next(batches)
    state = first.state_dict()
    del batches

    loader = DataLoader(dataset, batch_size=4, num_workers=1)
    loader.start_prefetch()
    loader.load_state_dict(state)

    assert numbers(loader) == BATCHES[2:]


def test_the_epoch_of_the_loaded_position_keeps_it_and_another_one_begins_anew(tmp_path: Path) -> None:
    dataset = ComposedDataset.source(Noted(tmp_path)).shuffle()
    expected = [[dataset[32 * epoch + position] for position in range(32)] for epoch in range(3)]
    loader = DataLoader(dataset, batch_size=4, num_workers=1)
    loader.set_epoch(1)
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    del batches

    def epochs(first: int) -> list[list[int]]:
        resumed = DataLoader(dataset, batch_size=4, num_workers=1)
        resumed.load_state_dict(state)
        resumed.start_prefetch()
        found = []
        for epoch in range(first, 3):
            resumed.set_epoch(epoch)
            found.append([number for batch in numbers(resumed) for number in batch])
        return found

    assert epochs(1) == [expected[1][4:], expected[2]]
    assert epochs(2) == [expected[2]]


def test_copies_begin_their_own_loops(tmp_path: Path) -> None:
    loader = DataLoader(Noted(tmp_path), batch_size=4, num_workers=1)
    loader.start_prefetch()

    assert numbers(copy.copy(loader)) == numbers(pickle.loads(pickle.dumps(loader))) == numbers(loader) == BATCHES


def test_a_loader_that_is_dropped_ends_its_workers(tmp_path: Path) -> None:
    noted = Noted(tmp_path)
    loader = DataLoader(noted, batch_size=4, num_workers=2)
    loader.start_prefetch()
    noted.wait_for(0)
    del loader  # the fixture of all tests looks for processes


def test_without_workers_nothing_is_computed(tmp_path: Path) -> None:
    loader = DataLoader(Noted(tmp_path), batch_size=4)
    loader.start_prefetch()

    assert not list(tmp_path.iterdir())
    assert numbers(loader) == BATCHES


def test_a_loop_over_a_subclass_with_an_iteration_of_its_own_takes_it(tmp_path: Path) -> None:
    class Doubled(DataLoader[Any]):
        def __iter__(self) -> Any:
            return (2 * batch for batch in super().__iter__())

    noted = Noted(tmp_path)
    loader = Doubled(noted, batch_size=4, num_workers=1)
    loader.start_prefetch()
    noted.wait_for(0)

    assert numbers(loader)[1] == [8, 10, 12, 14]


# Pipelines


def pipeline(source: Any, **options: Any) -> Pipeline:
    @pipeline_def(batch_size=4, num_threads=1, py_num_workers=2, seed=1, enable_checkpointing=True)
    def define() -> Any:
        return fn.external_source(source, batch=False, parallel=True)

    made: Pipeline = define(**options)
    return made


@pytest.mark.parametrize("composed", [False, True])
def test_workers_of_a_pipeline_compute_the_first_batches_before_the_first_run(tmp_path: Path, composed: bool) -> None:
    noted = Noted(tmp_path)
    source: Any = ComposedDataset.source(noted).map(_as_array) if composed else noted.sample
    with pipeline(source) as pipe:
        pipe.start_prefetch()
        noted.wait_for(*range(4))
        pipe.start_prefetch()  # no effect

        assert [pipe.run()[0].as_array()[:, 0].tolist() for _ in range(8)] == BATCHES


def _as_array(number: int) -> Any:
    return np.array([number])


def test_a_state_of_a_pipeline_is_the_beginning_whether_it_comes_before_or_after(tmp_path: Path) -> None:
    noted = Noted(tmp_path)
    with pipeline(noted.sample) as pipe:
        pipe.run()
        state = pipe.state_dict()
        second = pipe.run()[0].as_array()[:, 0].tolist()
    for loads_first in (True, False):
        with pipeline(noted.sample) as pipe:
            if loads_first:
                pipe.load_state_dict(state)
            pipe.start_prefetch()
            if not loads_first:
                pipe.load_state_dict(state)
            assert pipe.state_dict() == state
            assert pipe.run()[0].as_array()[:, 0].tolist() == second


def test_sources_in_the_main_process_are_called_by_run_alone(tmp_path: Path) -> None:
    noted, other = Noted(tmp_path), []

    @pipeline_def(batch_size=4, num_threads=1, py_num_workers=1)
    def define() -> Any:
        here = fn.external_source(lambda info: other.append(info.idx_in_epoch) or noted.sample(info), batch=False)
        return here, fn.external_source(noted.sample, batch=False, parallel=True)

    with define() as pipe:
        pipe.start_prefetch()
        noted.wait_for(0)
        assert other == []
        here, there = pipe.run()
        assert here.as_array().tolist() == there.as_array().tolist() == [[0], [1], [2], [3]]
