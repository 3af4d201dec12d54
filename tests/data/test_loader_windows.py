"""``reorder_window``: batches that are ready overtake a limited number of others."""

from __future__ import annotations

import mmap
from typing import Any

import pytest

from dali_like.data import ComposedDataset, DataLoader
from dali_like.errors import ArgumentClashError
from tests.conftest import wait_until

NUM_BATCHES = 12
WINDOW = 3


class Numbers:
    """Numbers; the first one is computed when the test allows it."""

    def __init__(self) -> None:
        self._made = mmap.mmap(-1, NUM_BATCHES + 1)

    def __len__(self) -> int:
        return NUM_BATCHES

    def __getitem__(self, index: int) -> int:
        if index == 0:
            wait_until(lambda: self._made[NUM_BATCHES] == 1, "permission")
        self._made[index] = 1
        return index

    def allow(self) -> None:
        self._made[NUM_BATCHES] = 1

    def has_made(self, index: int) -> bool:
        return self._made[index] == 1


def loader_of(numbers: Any, **options: Any) -> DataLoader[Any]:
    return DataLoader(numbers, 1, num_workers=2, multiprocessing_context="fork", prefetch_factor=4, **options)


def test_batches_of_the_window_overtake_a_slow_one_and_later_ones_do_not() -> None:
    numbers = Numbers()
    batches = iter(loader_of(numbers, reorder_window=WINDOW))

    overtaking = [next(batches).item() for _ in range(WINDOW - 1)]
    wait_until(lambda: numbers.has_made(WINDOW), "the first batch outside the window")
    numbers.allow()

    assert overtaking == [1, 2]
    assert next(batches).item() == 0
    assert sorted(batch.item() for batch in batches) == list(range(WINDOW, NUM_BATCHES))


def test_a_resumed_loader_yields_the_overtaken_batch_and_no_batch_twice() -> None:
    numbers = Numbers()
    loader = loader_of(numbers, reorder_window=WINDOW)
    batches = iter(loader)
    taken = [next(batches).item() for _ in range(WINDOW - 1)]
    state = loader.state_dict()
    numbers.allow()
    del batches

    resumed = loader_of(numbers)
    resumed.load_state_dict(state)

    assert [batch.item() for batch in resumed] == sorted(set(range(NUM_BATCHES)) - set(taken))


def test_without_workers_a_window_changes_nothing() -> None:
    assert [batch.item() for batch in DataLoader(range(5), 1, reorder_window=4)] == list(range(5))


def test_a_window_and_batches_in_any_order_exclude_each_other() -> None:
    with pytest.raises(ArgumentClashError, match="in_order=False has no window"):
        DataLoader(range(5), in_order=False, reorder_window=4)


def test_a_window_for_a_composed_dataset_is_an_error() -> None:
    with pytest.raises(ArgumentClashError, match="delivered in order"):
        DataLoader(ComposedDataset.source([1, 2]), reorder_window=4)
