"""Large containers of plain values: which are found, and that spawned workers get their own."""

from __future__ import annotations

import enum
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dali_like.data import DataLoader
from dali_like.sources.plain_parts import plain_parts
from dali_like.sources.travel.callback_pickler import dumps

MANY = 10_000


class Holder:
    """A dataset with some attributes."""

    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)


class Color(enum.IntEnum):
    """A number of another class than Python's own."""

    RED = 1


class Text(str):
    """A text of a class."""


PLAIN: dict[str, Callable[[], Any]] = {
    "texts": lambda: [f"{i}" for i in range(MANY)],
    "pairs": lambda: [(f"{i}", i, (None, 1.5)) for i in range(MANY)],
    "dict": lambda: {i: f"{i}" for i in range(MANY)},
    "dicts": lambda: [{"path": f"{i}", "size": (i, i)} for i in range(MANY)],
    "lists": lambda: {i: [i, b"x"] for i in range(MANY)},
    "sets": lambda: [{i} for i in range(MANY)],
    "set": lambda: set(range(MANY)),
    "few long bytes": lambda: [bytes(1 << 19), bytes(1 << 19)],
}

OTHER: dict[str, Callable[[], Any]] = {
    "few": lambda: ["text"] * 100,
    "arrays": lambda: [np.zeros(1)] * MANY,
    "objects": lambda: [Holder() for _ in range(MANY)],
    "enumerations": lambda: [Color.RED] * MANY,
    "texts of a class": lambda: [Text(i) for i in range(MANY)],
    "lists in tuples": lambda: [([],) for _ in range(MANY)],
    "lists in lists in lists": lambda: [[[]] for _ in range(MANY)],
    "lists beside tuples": lambda: [[], *[(i,) for i in range(MANY)]],
    "dicts with keys of a class": lambda: [{Text("key"): i} for i in range(MANY)],
    "NumPy's numbers": lambda: [np.float64(i) for i in range(MANY)],
    "the same list again and again": lambda: [[]] * MANY,
}


@pytest.mark.parametrize("name", PLAIN)
def test_large_containers_of_plain_values_are_found(name: str) -> None:
    many = PLAIN[name]()

    found = plain_parts(Holder(inner=Holder(many=[many])))

    assert len(found) == 1
    assert found[0] is many


@pytest.mark.parametrize("name", OTHER)
def test_other_containers_stay_in_the_pickle(name: str) -> None:
    assert plain_parts(Holder(held=OTHER[name]())) == []


def test_a_dict_that_is_also_elsewhere_stays_the_same_object() -> None:
    rows = [{"row": i} for i in range(MANY)]

    assert plain_parts(Holder(rows=rows, first=rows[0])) == []


def test_objects_with_attributes_that_raise_are_left_alone() -> None:
    class Odd:
        @property
        def __dict__(self) -> Any:  # type: ignore[override]
            raise RuntimeError("odd")

    assert plain_parts([Odd()]) == []


def test_a_pickle_refers_to_plain_parts_once_and_does_not_contain_them() -> None:
    paths = [f"path {i}" for i in range(MANY)]
    pickled = dumps({"source": Holder(paths=paths, same=paths)}, "a source")

    assert len(pickled.plain) == 1
    assert len(pickled.data) < 1000
    assert len(pickled.plain[0]) > MANY


def test_receivers_on_other_machines_get_everything_in_the_pickle() -> None:
    pickled = dumps({"source": Holder(paths=PLAIN["texts"]())}, "a source", inherits=False)

    assert pickled.plain == ()
    assert len(pickled.data) > MANY


class Changing:
    """A dataset that changes its containers, and returns copies of its own view."""

    def __init__(self) -> None:
        self.paths = [f"{i}" for i in range(MANY)]
        self.same = self.paths
        self.rows = [{"row": i} for i in range(MANY)]

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        self.paths.append("new")
        self.rows[index]["row"] += 1
        number = len(self.paths) - MANY
        return index, os.getpid(), number, len(self.same) - MANY, self.rows[index]["row"], int(self.paths[index])


@pytest.mark.parametrize("num_workers", [1, 2])
def test_each_spawned_worker_has_its_own_containers(num_workers: int) -> None:
    loader = DataLoader(Changing(), 4, num_workers=num_workers, multiprocessing_context="spawn")

    for _ in range(2):  # workers of the second epoch are new, and do not see the changes of the first
        seen: dict[int, list[int]] = {}
        for indices, pids, numbers, same, rows, paths in loader:
            assert rows.tolist() == (indices + 1).tolist()
            assert paths.tolist() == indices.tolist()
            assert same.tolist() == numbers.tolist(), "one list"
            for pid, number in zip(pids.tolist(), numbers.tolist(), strict=True):
                seen.setdefault(pid, []).append(number)
        assert all(sorted(numbers) == list(range(1, len(numbers) + 1)) for numbers in seen.values())
