"""Changes between epochs reach kept workers; without a change, they are not restarted."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dali_like.data import ConcatDataset, DataLoader, Subset
from dali_like.data.fetcher import Fetcher, last_schemas
from tests.data.loader_cases import MANY_WORKERS, Made, Squares, loader_of
from tests.internals import loader_workers_of

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


def test_workers_go_on_while_the_dataset_does_not_change() -> None:
    dataset = Unpicklable()
    dataset.others.append(dataset)
    loader = kept(dataset)

    assert pids_of(loader) == pids_of(loader)


class Holder(Squares):
    """Has samples in a large list, which is not looked at item by item, and a small array."""

    def __init__(self) -> None:
        super().__init__(1)
        self.samples = list(range(2000))
        self.small = np.zeros(4)
        self.large = np.zeros(1 << 16)
        self.numbers = {"rate": 0.5, "levels": [1, 2]}

    def __getitem__(self, index: int) -> Any:
        return self.samples[-2], len(self.samples), self.small[0], self.numbers["rate"], self.numbers["levels"][0]


#: A change of the dataset by the program, and the samples of kept workers after it.
SEEN: dict[str, tuple[Callable[[Holder], Any], list[float]]] = {
    "a number in a dict": (lambda holder: holder.numbers.update(rate=0.25), [1998, 2000, 0, 0.25, 1]),
    "a number in a list in a dict": (lambda holder: holder.numbers["levels"].insert(0, 7), [1998, 2000, 0, 0.5, 7]),  # type: ignore[attr-defined]
    "a longer list": (lambda holder: holder.samples.append(-1), [1999, 2001, 0, 0.5, 1]),
    "another list": (lambda holder: setattr(holder, "samples", [5] * 2000), [5, 2000, 0, 0.5, 1]),
    "an element of a small array": (lambda holder: holder.small.__setitem__(0, 3), [1998, 2000, 3, 0.5, 1]),
}


@pytest.mark.parametrize("change", SEEN)
def test_kept_workers_see_changes_that_a_look_finds(change: str) -> None:
    apply, expected = SEEN[change]
    holder = Holder()
    loader = kept(holder)
    before = pids_of(loader)

    apply(holder)

    assert [[part.item() for part in batch] for batch in loader] == [expected]
    assert pids_of(loader) != before


@pytest.mark.parametrize("change", ["an item of a large list", "an element of a large array"])
def test_kept_workers_keep_the_rest_as_in_pytorch_until_the_loader_is_refreshed(change: str) -> None:
    holder = Holder()
    loader = kept(holder)
    before = pids_of(loader)

    if change == "an item of a large list":
        holder.samples[-2] = -5
    else:
        holder.large[7] = 1

    assert pids_of(loader) == before
    loader.refresh()
    assert pids_of(loader) != before
    assert next(iter(loader))[0].item() == holder.samples[-2]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_that_are_not_kept_see_every_change_in_the_next_epoch(method: str) -> None:
    holder = Holder()
    loader = loader_of(holder, 1, method)
    seen = []
    for value in (1998, -5, -6):
        holder.samples[-2] = value
        seen += [batch[0].item() for batch in loader]

    assert seen == [1998, -5, -6]


class Counting:
    """Counts how often it is pickled."""

    pickled = 0

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> int:
        return index

    def __reduce__(self) -> Any:
        Counting.pickled += 1
        return Counting, ()


def test_kept_dataset_is_pickled_only_for_the_start_of_workers() -> None:
    loader = loader_of(Counting(), 1, "spawn", persistent_workers=True)
    list(loader)
    pickled = Counting.pickled

    for _ in range(3):
        list(loader)

    assert Counting.pickled == pickled


@pytest.mark.parametrize(("before", "after"), [("fork", "spawn"), ("spawn", "fork")])
def test_another_way_to_start_workers_starts_others(before: str, after: str) -> None:
    loader = kept(Made(int, 1))
    loader.multiprocessing_context = before
    first = pids_of(loader)

    loader.multiprocessing_context = after

    assert pids_of(loader) != first
    workers = loader_workers_of(loader)
    assert workers is not None
    assert workers.terms.start_method == after


def test_the_same_way_does_not() -> None:
    loader = kept(Made(int, 1))
    first = pids_of(loader)

    loader.multiprocessing_context = "fork"

    assert pids_of(loader) == first


# Workers that are not kept


class Sized(Squares):
    """Samples whose shape the program changes."""

    shape = (2, 3)

    def __getitem__(self, index: int) -> Any:
        return np.full(self.shape, index)


def test_workers_of_a_later_epoch_know_the_shape_of_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    loader = loader_of(Sized(16), 2, batch_size=4)
    first = [batch.tolist() for batch in loader]
    monkeypatch.setattr(Fetcher, "collate", lambda *_: pytest.fail("the main process collates a batch"))

    assert [batch.tolist() for batch in loader] == first


def test_another_shape_in_a_later_epoch_makes_no_difference() -> None:
    dataset = Sized(16)
    loader = loader_of(dataset, 2, batch_size=4)
    list(loader)
    dataset.shape = (5,)

    assert [batch.tolist() for batch in loader] == [batch.tolist() for batch in DataLoader(dataset, batch_size=4)]


def test_the_shape_of_samples_is_forgotten_with_their_dataset() -> None:
    before = len(last_schemas)
    dataset = Sized(16)
    list(loader_of(dataset, 1, batch_size=4))
    during = len(last_schemas)
    del dataset
    gc.collect()

    assert (during, len(last_schemas)) == (before + 1, before)


class Blocks:
    """Samples of 8 KiB; batches of eight lie in the memory of the workers as long as the program holds them."""

    def __len__(self) -> int:
        return 800

    def __getitem__(self, index: int) -> Any:
        return np.full(1 << 13, index % 100, np.uint8)


def test_a_program_may_hold_as_many_batches_of_later_workers_as_of_the_first() -> None:
    dataset = Blocks()

    for _ in range(2):
        held = list(DataLoader(dataset, 8, num_workers=2, multiprocessing_context="fork"))

        assert [int(batch[0, 0]) for batch in held] == [8 * i % 100 for i in range(100)]
        del held
