"""Iterators of loaders that another thread ends, and whose samplers are interrupted."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from dali_like import fn, pipeline_def, types
from dali_like.data import DataLoader, IterableDataset
from dali_like.errors import ClosedError
from tests.conftest import wait_until
from tests.internals import loader_workers_of


class Batches:
    """A batch sampler without an end, which calls a function before one of its items."""

    def __init__(self) -> None:
        self.number = -1
        self.function: Callable[[], Any] = lambda: None
        self.num_drawn = 0

    def __iter__(self) -> Iterator[list[int]]:
        return self._Iterator(self)

    class _Iterator(Iterator[list[int]]):
        def __init__(self, batches: Batches) -> None:
            self._batches = batches
            self._numbers = itertools.count()
            self._next: int | None = None

        def __next__(self) -> list[int]:
            number = next(self._numbers) if self._next is None else self._next
            self._next = number  # an exception of the function does not take the item
            if number == self._batches.number:
                self._batches.number = -1
                self._batches.function()
            self._next = None
            self._batches.num_drawn += 1
            return [number]


def test_an_iterator_that_is_ended_while_the_sampler_draws_stops_drawing() -> None:
    sampler = Batches()
    loader = DataLoader(range(1000), batch_sampler=sampler, num_workers=1, multiprocessing_context="thread")
    batches: Any = iter(loader)

    def end() -> None:
        threading.Thread(target=batches.end).start()
        wait_until(lambda: loader_workers_of(batches) is None, "the end of the iterator")

    sampler.number, sampler.function = sampler.num_drawn, end
    with pytest.raises(ClosedError, match="have been ended"):
        next(batches)

    assert sampler.num_drawn <= 5


def test_a_dataset_that_ends_its_iterator_without_workers_is_an_error_of_that_name() -> None:
    class Ending:
        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: int) -> int:
            batches.end()
            return index

    batches: Any = iter(DataLoader(Ending()))  # type: ignore[arg-type]

    with pytest.raises(ClosedError, match="have been ended"):
        next(batches)
    with pytest.raises(StopIteration):
        next(batches)


def test_an_interrupt_while_delivered_batches_are_skipped_loses_no_batch() -> None:
    sampler = Batches()
    loader = DataLoader(range(1000), batch_sampler=sampler)
    next(iter(loader))
    state = loader.state_dict()
    state["iterator"].update(position=1, ahead=[2, 3])  # as a loader leaves it whose batches have overtaken each other

    def interrupt() -> None:
        raise KeyboardInterrupt

    resumed = DataLoader(range(1000), batch_sampler=sampler)
    resumed.load_state_dict(state)
    batches = iter(resumed)
    first = next(batches).item()
    sampler.number, sampler.function = 3, interrupt
    with pytest.raises(KeyboardInterrupt):
        next(batches)

    assert [first, next(batches).item(), next(batches).item()] == [1, 4, 5]


class Restarting:
    """Its own iterator, which begins again with each call of ``iter``, and counts these."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.begun = 0

    def __iter__(self) -> Restarting:
        self.begun += 1
        self.number = 0
        return self

    def __next__(self) -> int:
        if self.number == self.count:
            raise StopIteration
        self.number += 1
        return self.number


class RestartingDataset(Restarting, IterableDataset[int]):
    pass


@pytest.mark.parametrize("num_workers", [0, 1])
@pytest.mark.parametrize("batch_size", [None, 2])
def test_iterators_that_begin_again_yield_each_item_once(num_workers: int, batch_size: int | None) -> None:
    expected: list[Any] = [1, 2, 3, 4, 5] if batch_size is None else [[1, 2], [3, 4], [5]]
    options: dict[str, Any] = {"batch_size": batch_size, "num_workers": num_workers}
    for loader in (DataLoader(RestartingDataset(5), **options), DataLoader(range(9), sampler=Restarting(5), **options)):
        assert [[np.asarray(batch).tolist() for batch in loader] for _ in range(2)] == [expected] * 2


def test_sources_that_begin_again_yield_each_item_once() -> None:
    source = Restarting(5)

    @pipeline_def(batch_size=2, num_threads=1)
    def numbers() -> Any:
        return fn.external_source(source, batch=False, dtype=types.INT64, last_batch_policy="partial")

    with numbers() as pipe:
        found = [[int(number) for number in np.asarray(batch.as_array())] for (batch,) in pipe]
    assert found == [[1, 2], [3, 4], [5]]
