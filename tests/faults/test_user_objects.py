"""Datasets and samplers whose attributes answer anything: nothing that only the loader asks for breaks an epoch."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest

from dali_like.common.user_objects import is_stateful, method_of
from dali_like.data import DataLoader, IterableDataset


class Items:
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        return np.full(3, index)


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return (np.full(3, index) for index in range(4))


class Shuffled:
    def __len__(self) -> int:
        return 4

    def __iter__(self) -> Iterator[Any]:
        return iter([2, 0, 1, 3])


class Batches:
    def __len__(self) -> int:
        return 2

    def __iter__(self) -> Iterator[Any]:
        return iter([[2, 0], [1, 3]])


class Indices:
    def __init__(self) -> None:
        self.left = iter([2, 0, 1, 3])

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        return next(self.left)


def raising(kind: type[Exception]) -> Callable[[Any, str], Any]:
    def answer(self: Any, name: str) -> Any:
        raise kind(name)

    return answer


#: Answers of `__getattr__` for a name that the class does not have.
ANSWERS: dict[str, Callable[[Any, str], Any]] = {
    "None": lambda self, name: None,
    "a text": lambda self, name: name,
    "the object": lambda self, name: self,
    "a mock": lambda self, name: MagicMock(),
    "a function with arguments": lambda self, name: lambda one, two: None,
    "a function that returns a number": lambda self, name: lambda *given: 7,
    "AttributeError": raising(AttributeError),
    "KeyError": raising(KeyError),
    "RuntimeError": raising(RuntimeError),
}

#: For each role, a loader over an object in this role, and the indices of its batches.
ROLES: dict[str, tuple[type, Callable[..., DataLoader], list[list[int]]]] = {
    "dataset": (Items, DataLoader, [[0, 1], [2, 3]]),
    "iterable dataset": (Stream, DataLoader, [[0, 1], [2, 3]]),
    "sampler": (Shuffled, lambda it, size, **more: DataLoader(Items(), size, sampler=it, **more), [[2, 0], [1, 3]]),
    "batch sampler": (Batches, lambda it, size, **more: DataLoader(Items(), batch_sampler=it, **more), [[2, 0], [1, 3]]),
    "iterator of the sampler": (
        Indices,
        lambda it, size, **more: DataLoader(Items(), size, sampler=iter_of(it), **more),
        [[2, 0], [1, 3]],
    ),
}


def iter_of(indices: Any) -> Any:
    """Return a sampler with a given iterator."""

    class Given(Shuffled):
        def __iter__(self) -> Iterator[Any]:
            return indices  # type: ignore[no-any-return]

    return Given()


def with_attributes(kind: type, answer: Callable[[Any, str], Any]) -> Any:
    """Return an object of a class whose `__getattr__` answers every name but the names of Python's protocols."""

    def get(self: Any, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return answer(self, name)

    return type(kind.__name__, (kind,), {"__getattr__": get})()


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("answer", ANSWERS)
def test_epoch_is_complete_with_any_answer_of_an_objects_attributes(answer: str, role: str, workers: int) -> None:
    kind, make, indices = ROLES[role]
    context = {"multiprocessing_context": "thread"} if workers else {}

    loader = make(with_attributes(kind, ANSWERS[answer]), 2, num_workers=workers, **context)

    assert [batch[:, 0].tolist() for batch in loader] == indices


class Stateful(Shuffled):
    """A sampler whose state is for another caller, or is broken."""

    def __init__(self, state_dict: Callable[..., Any]) -> None:
        self.state_dict = state_dict

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        raise AssertionError("nobody loads a state")


def broken() -> Any:
    raise ValueError("no state today")


@pytest.mark.parametrize("workers", [0, 1])
def test_sampler_with_a_failing_state_is_resumed_by_counting(workers: int, caplog: pytest.LogCaptureFixture) -> None:
    context = {"multiprocessing_context": "thread"} if workers else {}

    def loader() -> DataLoader:
        return DataLoader(Items(), 1, sampler=Stateful(broken), num_workers=workers, **context)  # type: ignore[arg-type]

    with caplog.at_level(logging.WARNING, "dali_like"):
        first = loader()
        begun = iter(first)
        taken = [next(begun)[0, 0] for _ in range(2)]
        resumed = loader()
        resumed.load_state_dict(first.state_dict())
        rest = [batch[0, 0] for batch in resumed]

    assert (taken, rest) == ([2, 0], [1, 3])
    assert caplog.messages[0] == (
        "Stateful.state_dict() raised ValueError: no state today; a loader that resumes from a state skips items of the "
        "sampler instead"
    )


def test_sampler_state_with_arguments_causes_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "dali_like"):
        batches = list(DataLoader(Items(), 1, sampler=Stateful(lambda consumed: {"consumed": consumed})))  # type: ignore[arg-type]

    assert [batch[0, 0] for batch in batches] == [2, 0, 1, 3]
    assert not caplog.messages


class FailsAtStart:
    def __len__(self) -> int:
        return 4

    def __iter__(self) -> Iterator[int]:
        raise ValueError("no order")


class FailsAlways(Indices):
    def __next__(self) -> int:
        raise ValueError("no index")


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("sampler", [FailsAtStart(), iter_of(FailsAlways())], ids=["at the start", "at each index"])
@pytest.mark.filterwarnings("error")
def test_error_of_a_sampler_is_raised_once_and_ends_the_epoch_without_a_warning(sampler: Any, workers: int) -> None:
    context = {"multiprocessing_context": "thread"} if workers else {}
    loader = DataLoader(Items(), 2, sampler=sampler, num_workers=workers, **context)

    begun: list[Iterator[Any]] = []

    def first() -> Any:
        begun.append(iter(loader))  # raises with workers, as in PyTorch: they begin at once
        return next(begun[0])

    with pytest.raises(ValueError, match=r"no (order|index)"):
        first()

    assert [list(batches) for batches in begun] in ([], [[]])


class FailsForEachSample(Items):
    def __getitem__(self, index: int) -> Any:
        raise ValueError(f"sample {index}")


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.filterwarnings("error")
def test_epoch_of_failed_batches_is_not_reported_as_empty(workers: int) -> None:
    context = {"multiprocessing_context": "thread"} if workers else {}
    batches = iter(DataLoader(FailsForEachSample(), 2, num_workers=workers, **context))

    for _ in range(2):
        with pytest.raises(ValueError, match="sample"):
            next(batches)

    assert list(batches) == []


def test_method_of_an_object_with_failing_attributes_is_none() -> None:
    value = with_attributes(Items, ANSWERS["KeyError"])

    assert method_of(value, "state_dict") is None
    assert not is_stateful(value)
