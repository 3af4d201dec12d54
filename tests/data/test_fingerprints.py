"""Looks at datasets: the changes they see, their cost, and the objects they keep."""

from __future__ import annotations

import functools
import itertools
import math
import sys
import threading
import types
import weakref
from collections import UserDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dali_like.data.fingerprints import MOST_PARTS, fingerprint_of
from dali_like.engine.backends.main_import import MainModule
from dali_like.sources.travel.main_module import ImportedMain


class Inner:
    def __init__(self) -> None:
        self.rate = 0.5


class Slotted:
    __slots__ = ("__hidden", "later", "shown")

    def __init__(self) -> None:
        self.shown, self.__hidden = 1, 2

    def hide(self, value: int) -> None:
        self.__hidden = value


class Dataset:
    def __init__(self) -> None:
        self.epoch = 0
        self.name = "train"
        self.rate = math.nan
        self.inner = Inner()
        self.transforms = [functools.partial(pow, 2), Inner().__init__]  # type: ignore[misc]
        self.slotted = Slotted()
        self.small = np.zeros(3)
        self.large = np.zeros(1 << 12)
        self.options = {"size": (3, 4)}
        self.samples = list(range(10_000))
        self.function = self.closure(3)
        self.itself = self
        self.lock = threading.Lock()

    @staticmethod
    def closure(value: int) -> Any:
        return lambda: value


CHANGES: dict[str, Callable[[Dataset], Any]] = {
    "number": lambda dataset: setattr(dataset, "epoch", 1),
    "type of a number": lambda dataset: setattr(dataset, "epoch", False),
    "text": lambda dataset: setattr(dataset, "name", "test"),
    "float": lambda dataset: setattr(dataset, "rate", 0.0),
    "new attribute": lambda dataset: setattr(dataset, "other", None),
    "attribute of an object": lambda dataset: setattr(dataset.inner, "rate", 1.0),
    "object": lambda dataset: setattr(dataset, "inner", Inner()),
    "slot": lambda dataset: setattr(dataset.slotted, "shown", 5),
    "private slot": lambda dataset: dataset.slotted.hide(5),
    "empty slot": lambda dataset: setattr(dataset.slotted, "later", 5),
    "partial": lambda dataset: dataset.transforms.__setitem__(0, functools.partial(pow, 3)),
    "small array": lambda dataset: dataset.small.__setitem__(0, 1),
    "other array": lambda dataset: setattr(dataset, "large", np.zeros(1 << 12)),
    "nested container": lambda dataset: dataset.options.update(size=(4, 3)),
    "length of a list": lambda dataset: dataset.samples.append(0),
    "closure": lambda dataset: setattr(dataset, "function", Dataset.closure(4)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_look_sees_a_change(change: str) -> None:
    dataset = Dataset()
    before = fingerprint_of(dataset)
    assert fingerprint_of(dataset) == before

    CHANGES[change](dataset)

    assert fingerprint_of(dataset).parts != before.parts


REPLACEABLE: dict[str, Callable[[int], Any]] = {
    "range": range,
    "function": lambda number: types.FunctionType(compile(f"{number}", "text", "eval"), {}),
    "path": lambda number: Path(f"{number}"),
    "number of NumPy": np.float32,
    "large array": lambda number: np.full(1 << 12, number),
    "structured dtype": lambda number: np.dtype([(f"{number}", "i4")]),
    "method of a dict": lambda number: {0: number}.get,
}


@pytest.mark.parametrize("kind", REPLACEABLE)
def test_look_sees_that_an_object_was_replaced_though_the_new_one_has_its_address(kind: str) -> None:
    held, seen = types.SimpleNamespace(), []
    for number in range(8):
        held.value = REPLACEABLE[kind](number)
        seen.append(fingerprint_of(held).parts)

    assert all(parts != before for parts, before in itertools.combinations(seen, 2))


def test_look_is_complete_for_classes_of_the_program_only_where_workers_import_them(monkeypatch: Any) -> None:
    """Others travel with the globals that their methods read, and a look does not see those."""
    monkeypatch.setattr(Inner, "__module__", "__main__")
    monkeypatch.setattr(sys.modules["__main__"], "Inner", Inner, raising=False)
    imported = ImportedMain(MainModule(None, "program.py"), frozenset({"Inner"}))

    assert not fingerprint_of(Inner()).is_complete
    assert fingerprint_of(Inner(), imported).is_complete


COMPLETE: dict[str, Any] = {
    "numbers": (1, 2.5, None, "text", b"bytes"),
    "small containers": [{"a": {1, 2}}, (3,)],
    "an object": Inner(),
    "a small array": np.zeros(3),
    "a range": range(1_000_000),
    "a path": Path("folder"),
}
UNKNOWN: dict[str, Any] = {
    "a long list": list(range(1000)),
    "a long text": "x" * 10_000,
    "a large array": np.zeros(10_000),
    "an array of objects": np.array([object()]),
    "a lock": threading.Lock(),
    "too many parts": [[[i] * 9 for i in range(9)] for _ in range(60)],
    "a compiled object": memoryview(b"123"),
    "a class of the standard library": UserDict(),
}


@pytest.mark.parametrize("kind", COMPLETE | UNKNOWN)
def test_look_knows_whether_it_has_seen_everything(kind: str) -> None:
    assert fingerprint_of((COMPLETE | UNKNOWN)[kind]).is_complete == (kind in COMPLETE)


@pytest.mark.parametrize("size", [100, 100_000])
def test_look_takes_a_limited_number_of_parts_of_a_dataset_of_any_size(size: int) -> None:
    held = types.SimpleNamespace(
        arrays=[np.zeros(4) for _ in range(size)],
        texts={str(i): str(i) for i in range(size)},
        nested=[[[str(i)] * 9] * 9 for i in range(size)],
    )

    assert len(fingerprint_of(held).parts) <= MOST_PARTS + 64


def test_look_keeps_no_object_of_the_dataset() -> None:
    inner = Inner()
    reference = weakref.ref(inner)

    parts = fingerprint_of([inner]).parts
    del inner

    assert reference() is None
    assert parts


class Hostile:
    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)


def test_look_does_not_call_the_methods_of_an_object() -> None:
    hostile = Hostile()

    assert fingerprint_of([hostile]).parts
