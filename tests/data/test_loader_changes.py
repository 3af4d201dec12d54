"""Changes between epochs reach kept workers; without a change, they are not restarted."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from dali_like.data import ConcatDataset, DataLoader, Subset
from tests.data.loader_cases import MANY_WORKERS, Made, Squares, loader_of

pytestmark = pytest.mark.filterwarnings(MANY_WORKERS)


class Unpicklable(Squares):
    """Has a lock, which cannot be pickled."""

    epoch = 0

    def __init__(self) -> None:
        super().__init__(1)
        self.lock = threading.Lock()
        self.others: list[Any] = []

    def __getitem__(self, index: int) -> Any:
        return self.epoch


def kept(dataset: Any, **options: Any) -> DataLoader[Any]:
    return loader_of(dataset, 1, persistent_workers=True, **options)


def pids_of(loader: Any) -> list[int]:
    """Return the process ids of the workers of an epoch."""
    batches = iter(loader)
    list(batches)
    return [worker.pid for worker in batches._workers]


WRAPPED: dict[str, Any] = {
    "itself": lambda dataset: dataset,
    "in another": lambda dataset: Subset(dataset, [0]),
    "in a list": lambda dataset: ConcatDataset([dataset, Squares(0)]),
}


@pytest.mark.parametrize("wrap", WRAPPED.values(), ids=WRAPPED)
def test_a_dataset_that_cannot_be_pickled_is_looked_at_all_the_same(wrap: Any) -> None:
    dataset = Unpicklable()
    loader = kept(wrap(dataset))
    seen = []
    for epoch in (3, 4, 4):
        dataset.epoch = epoch
        seen += [batch.item() for batch in loader]

    assert seen == [3, 4, 4]


def test_as_long_as_it_does_not_change_workers_go_on() -> None:
    dataset = Unpicklable()
    dataset.others.append(dataset)
    loader = kept(dataset)

    assert pids_of(loader) == pids_of(loader)


def test_too_many_parts_are_not_looked_at() -> None:
    dataset = Unpicklable()
    dataset.others = [dataset.lock, *range(2000)]
    loader = kept(dataset)
    before = pids_of(loader)

    dataset.others[-1] = -1
    assert pids_of(loader) == before
    dataset.epoch = 1
    assert pids_of(loader) != before


@pytest.mark.parametrize(("before", "after"), [("fork", "spawn"), ("spawn", "fork")])
def test_another_way_to_start_workers_starts_others(before: str, after: str) -> None:
    loader = kept(Made(int, 1))
    loader.multiprocessing_context = before
    first = pids_of(loader)

    loader.multiprocessing_context = after

    assert pids_of(loader) != first
    workers = loader._factory.manager.workers
    assert workers is not None
    assert workers.start_method == after


def test_the_same_way_does_not() -> None:
    loader = kept(Made(int, 1))
    first = pids_of(loader)

    loader.multiprocessing_context = "fork"

    assert pids_of(loader) == first
