"""``batch_at``: the batch of any step again, in this process, without disturbing the loop."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from dali_like.data import ComposedDataset, DataLoader, IterableDataset, get_worker_info
from dali_like.errors import ArgumentError, CheckpointError, NotRepeatableError, SampleIndexError
from tests.data.loader_cases import MANY_WORKERS

pytestmark = pytest.mark.filterwarnings(MANY_WORKERS)


class Augmented:
    """Samples with random numbers of the global generators."""

    def __len__(self) -> int:
        return 44

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {
            "index": index,
            "noise": np.random.random(),
            "other": random.random(),
            "worker": get_worker_info() is not None,
        }


class Plain:
    def __len__(self) -> int:
        return 44

    def __getitem__(self, index: int) -> int:
        return index


class Parts(IterableDataset[Any]):
    """Each worker has its part; they have different lengths."""

    def __iter__(self) -> Iterator[tuple[int, float]]:
        worker = get_worker_info()
        number, count = (0, 1) if worker is None else (worker.id, worker.num_workers)
        for i in range(number, 31 + 8 * number, count):
            yield i, 0.0 if worker is None else np.random.random()


class Stateful(Parts):
    """A dataset that is its own, stateful iterator."""

    def __init__(self) -> None:
        self.at = 0

    def __iter__(self) -> Iterator[tuple[int, float]]:
        while self.at < 30:
            self.at += 1
            yield self.at, 0.0
        self.at = 0

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


def same(first: Any, second: Any) -> bool:
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same(first[name], second[name]) for name in first)
    if isinstance(first, list | tuple):
        return len(first) == len(second) and all(map(same, first, second))
    return np.asarray(first).dtype == np.asarray(second).dtype and np.array_equal(first, second)


def run(loader: Any, saved_at: int) -> tuple[list[Any], Any]:
    """Return the batches of an epoch, and the state behind one of them, as text that has passed through JSON."""
    batches, state = [], None
    for number, batch in enumerate(loader):
        batches.append(batch)
        if number == saved_at:
            state = json.loads(json.dumps(loader.state_dict()))
    return batches, state


@pytest.mark.parametrize(
    "options", [{}, {"shuffle": True}, {"shuffle": True, "generator": 5}, {"batch_size": None}], ids=str
)
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_random_samples_of_workers_are_repeated_bit_for_bit(method: str, options: dict[str, Any]) -> None:
    loader = DataLoader(Augmented(), **{"batch_size": 8, "num_workers": 2, "multiprocessing_context": method, **options})
    for epoch in range(2):
        batches, state = run(loader, saved_at=2)

        for step in (0, 2, len(batches) - 1):
            assert same(loader.batch_at(step, state), batches[step]), (epoch, step)
            assert same(loader.batch_at(step), batches[step])


def test_another_loader_repeats_batches_from_a_state() -> None:
    options: dict[str, Any] = {"batch_size": 8, "shuffle": True}
    batches, state = run(DataLoader(Augmented(), num_workers=2, **options), saved_at=4)

    later = DataLoader(Augmented(), num_workers=1, **options)

    assert all(same(later.batch_at(step, state), batch) for step, batch in enumerate(batches))


@pytest.mark.parametrize("workers", [0, 2])
def test_the_loop_is_not_disturbed(workers: int) -> None:
    def epoch(asks: bool) -> list[Any]:
        random.seed(3)
        np.random.seed(3)
        loader: Any = DataLoader(Plain(), 8, shuffle=True, num_workers=workers)
        found = []
        for _ in range(2):
            for step, batch in enumerate(loader):
                found.append((batch.tolist(), random.random(), np.random.random()))
                if asks:
                    assert loader.batch_at(step).tolist() == batch.tolist()
        return found

    assert epoch(asks=True) == epoch(asks=False)
    assert get_worker_info() is None


def test_a_user_sampler_is_copied_not_advanced() -> None:
    class Sampler:
        drawn = 0

        def __iter__(self) -> Iterator[int]:
            for number in range(12):
                self.drawn += 1
                yield number

        def state_dict(self) -> dict[str, int]:
            return {"drawn": 0}

        def load_state_dict(self, state: dict[str, int]) -> None:
            self.drawn = 100

    sampler = Sampler()
    loader: Any = DataLoader(Plain(), 4, sampler=sampler)
    batches = iter(loader)
    next(batches)

    assert loader.batch_at(2).tolist() == [8, 9, 10, 11]
    assert sampler.drawn == 4


@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("saved_at", [0, 3])
def test_iterable_datasets_are_walked_to_the_step(workers: int, saved_at: int) -> None:
    loader: Any = DataLoader(Parts(), 4, num_workers=workers)

    batches, state = run(loader, saved_at)

    for step in range(len(batches)):
        assert same(loader.batch_at(step, state), batches[step]), step
    with pytest.raises(SampleIndexError, match=f"no batch {len(batches)}"):
        loader.batch_at(len(batches), state)


@pytest.mark.parametrize("workers", [0, 1])
def test_stateful_datasets_are_walked_from_their_state(workers: int) -> None:
    dataset = Stateful()
    loader: Any = DataLoader(dataset, 4, num_workers=workers)
    loader.state_dict()

    batches, state = run(loader, saved_at=3)

    before = dataset.at
    for step in (3, 4, 7):
        assert same(loader.batch_at(step, state), batches[step]), step
    assert dataset.at == before


def is_kept(number: int) -> bool:
    return number % 3 > 0


def noisy(number: int, rng: np.random.Generator) -> tuple[int, float]:
    return number, rng.random()


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("saved_at", [0, 3, 9])
@pytest.mark.parametrize("sharded", [False, True])
def test_composed_datasets_are_repeated_at_their_positions(workers: int, saved_at: int, sharded: bool) -> None:
    dataset = ComposedDataset.source(range(50)).shuffle(seed=1)
    dataset = (dataset.filter(is_kept) if sharded else dataset).map(noisy, rng=True)
    loader: Any = DataLoader(dataset, 4, num_workers=workers)
    steps: list[int] = []
    batches, saved = [], None
    for batch in loader:
        state = loader.state_dict()
        steps.append(state["position"] // 4 - 1)  # -1 behind the last one
        batches.append(batch)
        if len(batches) == saved_at + 1:
            saved = state

    known = [number for number, step in enumerate(steps) if step >= 0]
    assert len(known) >= 10
    for number in known:
        assert same(loader.batch_at(steps[number], saved), batches[number]), number
    empty = set(range(steps[known[-1]])) - set(steps)
    assert bool(empty) == sharded
    for step in [*empty, 99]:
        with pytest.raises(SampleIndexError, match=f"the epoch has no batch {step}"):
            loader.batch_at(step, saved)


def test_worker_init_fn_prepares_a_copy_of_the_dataset() -> None:
    class Opened(Plain):
        file: Any = None

        def __getitem__(self, index: int) -> int:
            assert self.file == "open"
            return index

    def open_file(worker: int) -> None:
        info = get_worker_info()
        assert info is not None
        info.dataset.file = "open"

    dataset = Opened()
    loader: Any = DataLoader(dataset, 4, num_workers=1, worker_init_fn=open_file)
    next(iter(loader))

    assert loader.batch_at(1).tolist() == [4, 5, 6, 7]
    assert dataset.file is None


@pytest.mark.parametrize(
    ("dataset", "options", "message"),
    [
        (Augmented(), {}, "only worker processes seed these"),
        (Augmented(), {"num_workers": 1, "multiprocessing_context": "thread"}, "only worker processes seed these"),
        (Augmented(), {"num_workers": 1, "worker_seeding": "torch"}, 'worker_seeding="torch" seeds these for each worker'),
        (Parts(), {"num_workers": 1, "worker_seeding": "torch"}, 'worker_seeding="torch" seeds these for each worker'),
        (Parts(), {"num_workers": 2, "in_order": False}, "the speed of the workers decides"),
        (ComposedDataset.source(Augmented()), {"num_workers": 1}, "global generators"),
    ],
)
def test_batch_at_refuses_samples_that_depend_on_more_than_the_state(
    dataset: Any, options: dict[str, Any], message: str
) -> None:
    loader: Any = DataLoader(dataset, 4, **options)
    next(iter(loader))

    with pytest.raises(NotRepeatableError, match=message):
        loader.batch_at(1)


@pytest.mark.parametrize("options", [{"worker_seeding": "torch"}, {"multiprocessing_context": "thread"}, {}], ids=str)
def test_samples_without_random_numbers_are_repeated_with_any_seeding(options: dict[str, Any]) -> None:
    loader: Any = DataLoader(Plain(), 4, num_workers=1, shuffle=True, **options)
    batches = list(loader)

    assert loader.batch_at(3).tolist() == batches[3].tolist()


def test_errors_of_the_dataset_are_raised_as_they_are() -> None:
    class Broken(Plain):
        def __getitem__(self, index: int) -> int:
            return 1 // (index - 5)

    loader: Any = DataLoader(Broken(), 4, num_workers=1)
    next(iter(loader))

    assert loader.batch_at(0).tolist() == [1 // (index - 5) for index in range(4)]
    with pytest.raises(ZeroDivisionError):
        loader.batch_at(1)


def test_wrong_steps_and_states_are_errors() -> None:
    loader: Any = DataLoader(Plain(), 4)
    with pytest.raises(CheckpointError, match="before the first epoch"):
        loader.batch_at(0)
    next(iter(loader))
    with pytest.raises(ArgumentError, match="step"):
        loader.batch_at(-1)
    with pytest.raises(CheckpointError, match="it counts batches of 4 samples"):
        DataLoader(Plain(), 5).batch_at(0, loader.state_dict())
    with pytest.raises(SampleIndexError, match="the epoch has no batch 11"):
        loader.batch_at(11)


@pytest.mark.parametrize("dataset", ["map-style", "composed", "shards"])
def test_repeated_batches_have_the_column_of_origins(dataset: str) -> None:
    composed = ComposedDataset.source(range(40)).shuffle(seed=2)
    found: Any = {"map-style": Plain(), "composed": composed, "shards": composed.filter(lambda number: number % 3 > 0)}
    loader = DataLoader(found[dataset], 4, origins=True)

    batches = list(zip(range(4), loader, strict=False))

    for step, batch in batches:
        assert repr(loader.batch_at(step)) == repr(batch)
