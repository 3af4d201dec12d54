"""Stateful iterable datasets: a loader resumes them from their states, and does not skip."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dali_like.data import DataLoader, IterableDataset, get_worker_info
from dali_like.errors import CheckpointError
from tests.data.loader_cases import MANY_WORKERS, Stream, all_of, loader_of
from tests.data.test_loader_state import KINDS, rest_of, states_of

pytestmark = pytest.mark.filterwarnings(MANY_WORKERS)

LENGTH = 7


def begin_of_worker() -> int:
    info = get_worker_info()
    return 0 if info is None else 1000 * info.id


class Counter(IterableDataset[Any]):
    """Numbers that can only be repeated by loading a state. There is one iteration at a time; the next one continues."""

    def __init__(self, number: int = 0) -> None:
        self.number = number
        self.position = 0

    def state_dict(self) -> dict[str, int]:
        return {"number": self.number, "position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.number, self.position = state["number"], state["position"]

    def __iter__(self) -> Iterator[Any]:
        while self.position < LENGTH:
            self.position += 1
            self.number += 1
            yield np.array([self.number + begin_of_worker(), np.random.randint(1000)])
        self.position = 0


class Book:
    """A stateful iterator."""

    def __init__(self, number: int) -> None:
        self.state = {"number": number, "left": LENGTH}

    def state_dict(self) -> dict[str, int]:
        return self.state

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.state = dict(state)

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        if not self.state["left"]:
            raise StopIteration
        self.state["left"] -= 1
        self.state["number"] += 1
        return np.array([self.state["number"]])


class Shelf(IterableDataset[Any]):
    """A dataset with stateful iterators."""

    def __init__(self, number: int = 0) -> None:
        self.number = number

    def __iter__(self) -> Iterator[Any]:
        return Book(self.number + begin_of_worker())


def numbers_of(batches: Any) -> list[list[int]]:
    return [batch[:, 0].tolist() for batch in batches]


@pytest.mark.parametrize(
    ("kind", "workers", "drop_last"),
    [
        *itertools.product([Counter, Shelf], [0, 2], [False]),
        *itertools.product([Counter, Shelf], [0], [True]),
        (Counter, 1, True),
        (Shelf, 2, True),
    ],
)
def test_resume_after_any_batch_delivers_the_missing_batches(workers: int, kind: Any, drop_last: bool) -> None:
    """A worker without a reported state keeps its own state."""

    def make(number: int) -> DataLoader[Any]:
        return loader_of(kind(number), workers, batch_size=2, drop_last=drop_last, generator=5)

    expected = all_of(make(100))

    for state, delivered in states_of(make(100)):
        resumed = make(0 if len(delivered) >= max(workers, 1) else 100)
        assert seen(delivered + rest_of(resumed, state), workers) == seen(expected, workers)


def seen(batches: list[Any], workers: int) -> list[Any]:
    """Return the content of batches from `all_of`; with random numbers if workers seed the generators."""
    return [batch[-1] if workers else [row[0] for row in batch[-1]] for batch in batches]


@pytest.mark.parametrize("method", ["spawn", "thread"])
def test_workers_of_other_kinds_say_the_same(method: str) -> None:
    loader = loader_of(Shelf(100), 1, method, batch_size=2)
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()

    assert numbers_of(batches) == [[103, 104], [105, 106], [107]]
    for other in ("fork", method):
        resumed = loader_of(Shelf(0), 1, other, batch_size=2)
        resumed.load_state_dict(state)
        assert numbers_of(resumed) == [[103, 104], [105, 106], [107]]


@pytest.mark.parametrize("batch_size", [2, LENGTH], ids=["the end is met in a batch", "behind the last"])
def test_in_this_process_the_next_epochs_go_on_too(batch_size: int) -> None:
    loader = loader_of(Counter(100), batch_size=batch_size)
    batches = iter(loader)
    next(batches)
    middle = loader.state_dict()
    list(batches)
    end = loader.state_dict()
    begun = iter(loader)
    beginning = loader.state_dict()
    expected = numbers_of(begun)

    assert list(itertools.chain(*expected)) == list(range(108, 115))
    for state, epochs in ((middle, 1), (end, 0), (beginning, 0)):
        resumed = loader_of(Counter(0), batch_size=batch_size)
        resumed.load_state_dict(state)
        for _ in range(epochs):
            list(resumed)
        assert numbers_of(resumed) == expected


def test_resuming_does_not_walk_over_earlier_items() -> None:
    taken = []

    class Counted(Book):
        def __next__(self) -> Any:
            item = super().__next__()
            taken.append(int(item[0]))
            return item

    class Counting(Shelf):
        def __iter__(self) -> Iterator[Any]:
            return Counted(self.number)

    loader = loader_of(Counting(), batch_size=2)
    list(itertools.islice(loader, 2))
    state = loader.state_dict()
    resumed = loader_of(Counting(), batch_size=2)
    resumed.load_state_dict(state)
    taken.clear()

    next(iter(resumed))

    assert taken == [5, 6]


def test_replacement_worker_continues_from_the_reported_state(tmp_path: Path) -> None:
    class Dying(Counter):
        def __iter__(self) -> Iterator[Any]:
            for item in super().__iter__():
                with (tmp_path / "taken").open("a") as log:
                    log.write(f"{item[0]} ")
                if item[0] == 105 and not (tmp_path / "died").exists():
                    (tmp_path / "died").touch()
                    os.kill(os.getpid(), signal.SIGKILL)
                yield item

    loader = loader_of(Dying(100), 1, batch_size=1, prefetch_factor=1)

    assert numbers_of(loader) == [[101 + number] for number in range(LENGTH)]
    assert (tmp_path / "taken").read_text().split().count("101") == 1


def test_datasets_that_know_nothing_are_walked_through() -> None:
    class Silent(Counter):
        def state_dict(self) -> Any:
            return None

    for _, dataset in (("silent", Silent()), ("without a state", KINDS["iterable"]())):
        loader = loader_of(dataset, batch_size=2)
        next(iter(loader))

        assert loader.state_dict()["iterator"]["states"] == {"0": [0, None, 1]}


class Wordless(IterableDataset[Any]):
    """A dataset without states."""

    def __iter__(self) -> Iterator[Any]:
        return map(np.atleast_1d, range(LENGTH))

    def load_state_dict(self, state: Any) -> None:
        raise AssertionError


def assert_walked_through(dataset: Any, workers: int) -> None:
    loader = loader_of(dataset, workers, batch_size=2)
    next(batches := iter(loader))
    resumed = loader_of(dataset, workers, batch_size=2)
    resumed.load_state_dict(loader.state_dict())

    assert numbers_of(resumed) == numbers_of(batches) == [[2, 3], [4, 5], [6]]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_state_dict_that_is_meant_for_something_else_is_left_alone(workers: int, caplog: pytest.LogCaptureFixture) -> None:
    class Streaming(Wordless):
        def state_dict(self, num_samples: int) -> Any:
            return {"samples": num_samples}

    assert_walked_through(Streaming(), workers)
    assert not caplog.records


def test_a_state_dict_that_fails_is_left_alone_and_reported(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(Wordless):
        def state_dict(self) -> Any:
            raise TypeError("no state")

    assert_walked_through(Failing(), 0)
    assert "Failing.state_dict() raised TypeError: no state" in caplog.text


@pytest.mark.parametrize(
    ("saved", "message"),
    [(Counter, "the state of a dataset, and here is one that has no load_state_dict"), (Shelf, "the state of an iterator")],
)
def test_states_of_others_are_refused(saved: Any, message: str) -> None:
    loader = loader_of(saved(), batch_size=2)
    next(iter(loader))

    with pytest.raises(CheckpointError, match=message):
        rest_of(loader_of(Stream(), batch_size=2), loader.state_dict())


class Expensive(Counter):
    """Counts the calls of state_dict in all processes; each reads a file and takes a while, for a clock that tests set."""

    def __init__(self, folder: Path) -> None:
        super().__init__(100)
        self.calls = folder / "calls"
        self.calls.touch()

    def state_dict(self) -> dict[str, int]:
        with self.calls.open("ab") as file:
            file.write(b".")
        sum(range(20_000))  # longer than a batch
        return super().state_dict()

    @property
    def num_calls(self) -> int:
        return self.calls.stat().st_size


def test_without_workers_states_of_a_dataset_are_read_on_request_and_at_the_end_only(tmp_path: Path) -> None:
    dataset = Expensive(tmp_path)
    loader = DataLoader(dataset, batch_size=1)
    batches = iter(loader)
    for _ in range(5):
        next(batches)

    assert dataset.num_calls == 0
    loader.state_dict()
    assert dataset.num_calls == 1
    list(batches)
    assert dataset.num_calls == 2  # another epoch may begin from there


def test_without_workers_the_state_of_an_iterator_is_read_on_request_and_in_the_middle_of_an_epoch_only() -> None:
    class CountingBook(Book):
        num_calls = 0

        def state_dict(self) -> Any:
            CountingBook.num_calls += 1
            return super().state_dict()

    class Library(IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            return CountingBook(0)

    loader = DataLoader(Library(), batch_size=2)
    list(loader)
    assert CountingBook.num_calls == 0
    for _ in loader:
        break
    assert CountingBook.num_calls == 1  # the iterator is gone, and its state may be wanted
    loader.state_dict()
    assert CountingBook.num_calls == 1


@pytest.mark.parametrize("method", ["fork", "thread"])
def test_workers_read_few_states_until_the_program_asks_for_one(method: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("dali_like.data.iterable_walk._SHARE_OF_REPORTS", 1e-9)  # one report takes all of the time
    dataset = Expensive(tmp_path)
    loader = loader_of(Shared(dataset), 1, method, batch_size=1, prefetch_factor=1)
    batches = iter(loader)
    for _ in range(4):
        next(batches)

    assert dataset.num_calls == 1
    for _ in range(2):
        loader.state_dict()  # from the next request on
        next(batches)
    assert dataset.num_calls > 1


class Shared(IterableDataset[Any]):
    """Stateful iterators, also in threads."""

    def __init__(self, dataset: Expensive) -> None:
        self.dataset = dataset

    def __iter__(self) -> Iterator[Any]:
        return Reader(self.dataset)


class Reader(Book):
    def __init__(self, dataset: Expensive) -> None:
        super().__init__(100)
        self.dataset = dataset

    def state_dict(self) -> dict[str, int]:
        self.dataset.state_dict()
        return super().state_dict()


@pytest.mark.parametrize("kind", [Counter, Shelf])
@pytest.mark.parametrize(("workers", "before"), [(0, 3), (1, 3), (2, 5)])
def test_first_state_that_a_program_asks_for_is_exact(kind: Any, workers: int, before: int, monkeypatch: Any) -> None:
    monkeypatch.setattr("dali_like.data.iterable_walk._SHARE_OF_REPORTS", 1e-9)
    expected = all_of(loader_of(kind(100), workers, batch_size=1, generator=5))
    loader = loader_of(kind(100), workers, batch_size=1, generator=5)
    batches = iter(loader)
    for _ in range(before):
        next(batches)

    resumed = loader_of(kind(0), workers, batch_size=1)
    rest = rest_of(resumed, loader.state_dict())

    assert seen(rest, workers) == seen(expected[before:], workers)


def test_state_of_a_loop_that_was_left_is_that_behind_its_last_batch() -> None:
    loader = DataLoader(Counter(100), batch_size=1)
    for number, _ in enumerate(loader):
        if number == 2:
            break

    assert numbers_of(rest_of_batches(DataLoader(Counter(), batch_size=1), loader.state_dict())) == [
        [104],
        [105],
        [106],
        [107],
    ]


def rest_of_batches(loader: DataLoader[Any], state: dict[str, Any]) -> list[Any]:
    loader.load_state_dict(state)
    return list(loader)


class Interrupted(IterableDataset[Any]):
    """Its iterators are interrupted once, before the fourth item."""

    is_due = True

    def __iter__(self) -> Iterator[Any]:
        return InterruptedBook(self)


class InterruptedBook(Book):
    def __init__(self, dataset: Interrupted) -> None:
        super().__init__(0)
        self.dataset = dataset

    def __next__(self) -> Any:
        if self.dataset.is_due and self.state["number"] == 3:
            self.dataset.is_due = False
            raise KeyboardInterrupt
        return super().__next__()


@pytest.mark.parametrize("later", [0, 1], ids=["right behind", "one batch later"])
def test_state_behind_an_interrupt_continues_with_the_items_that_the_loop_would_get(later: int) -> None:
    loader = DataLoader(Interrupted(), batch_size=2)
    batches = iter(loader)
    next(batches)
    with pytest.raises(KeyboardInterrupt):
        next(batches)
    for _ in range(later):
        next(batches)

    resumed = rest_of_batches(loader_of(Shelf(), batch_size=2), loader.state_dict())

    assert numbers_of(resumed) == numbers_of(batches)
    assert len(resumed) == 2 - later
