"""Datasets that only look up their samples: which ones these are, and the random numbers of collations behind them."""

from __future__ import annotations

import mmap
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dali_like.data import DataLoader
from dali_like.data.array_backends import ArrayBackend
from dali_like.data.lookups import looks_up

NUMBERS = [3, 1, 4, 1, 5]


class Listed:
    """Holds its samples."""

    def __init__(self, items: Any, others: Any = ()) -> None:
        self.items = items
        self.others = others

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        """Look up an item."""
        return self.items[index]


class Pairs(Listed):
    def __getitem__(self, index: int) -> Any:
        return self.items[index], self.others[index]


class Single(Listed):
    def __getitem__(self, index: int) -> Any:
        return (self.items[index],)


class Named(Listed):
    def __getitem__(self, index: int) -> Any:
        """Look up two items."""
        return {"text": self.items[index], "label": self.others[index]}


class NamedSingle(Listed):
    def __getitem__(self, index: int) -> Any:
        return {"text": self.items[index]}


class NamedTwice(Listed):
    def __getitem__(self, index: int) -> Any:
        return {"text": self.items[index], "again": self.items[index + 1]}


class Numbered(Listed):
    def __getitem__(self, index: int) -> Any:
        return {0: self.items[index], 1: self.others[index]}


class Computed(Listed):
    def __getitem__(self, index: int) -> Any:
        items = self.items
        return items[index]


class Called(Listed):
    def __getitem__(self, index: int) -> Any:
        return self.items(index)


class Twice(Listed):
    def __getitem__(self, index: int) -> Any:
        return self.items[index][index]


class Swapped(Listed):
    def __getitem__(self, index: Any) -> Any:
        return index[self.items]  # type: ignore[index]


class Outside(Listed):
    def __getitem__(self, index: int) -> Any:
        return NUMBERS[index]


class Several(Listed):
    def __getitem__(self, *index: int) -> Any:
        return self.items[index]


class Property(Listed):
    others: Any

    @property  # type: ignore[no-redef]
    def items(self) -> Any:
        return [random.random()]

    @items.setter
    def items(self, value: Any) -> None:
        vars(self)["items"] = value


class Watched(Listed):
    def __getattribute__(self, name: str) -> Any:
        return super().__getattribute__(name)


class OwnList(list[Any]):
    def __getitem__(self, index: Any) -> Any:
        return random.random()


@pytest.mark.parametrize(
    "dataset",
    [
        *(NUMBERS, (1, 2), range(3), "abc", b"abc", np.zeros(3)),
        *(Listed(NUMBERS), Pairs(NUMBERS, "abcde"), Single(range(3)), Named(NUMBERS, "abcde"), NamedSingle(NUMBERS)),
    ],
    ids=lambda dataset: type(dataset).__name__,
)
def test_a_dataset_that_selects_items_of_plain_sequences_only_looks_up(dataset: Any) -> None:
    assert looks_up(dataset)


@pytest.mark.parametrize(
    "dataset",
    [
        *(kind(NUMBERS) for kind in (Computed, Called, Twice, Swapped, Outside, Several, Property, Watched)),
        OwnList(NUMBERS),
        Listed(OwnList(NUMBERS)),
        Listed({0: 1}),
        NamedTwice(NUMBERS),
        Named(NUMBERS, {0: 1}),
        Numbered(NUMBERS, "abcde"),
        Pairs(NUMBERS, OwnList(NUMBERS)),
        {0: 1},
        np.ma.array(NUMBERS),
    ],
    ids=lambda dataset: type(dataset).__name__,
)
def test_a_dataset_that_may_run_other_code_does_not(dataset: Any) -> None:
    assert not looks_up(dataset)


def drawing(batch: Any) -> Any:
    """Collate with random numbers."""
    return batch, random.random(), np.random.random()


@pytest.mark.parametrize("options", [{"batch_size": 20}, {"batch_size": 3}, {"batch_size": None}], ids=str)
def test_a_collation_draws_the_same_behind_datasets_that_look_up_and_that_compute(options: Any) -> None:
    looked_up, computed = (
        list(DataLoader(kind(range(50)), generator=1, collate_fn=drawing, num_workers=2, **options))
        for kind in (Listed, Computed)
    )

    assert looked_up == computed
    assert len({drawn for _, *numbers in computed for drawn in numbers}) == 2 * len(computed)


def test_a_replacement_of_a_failed_sample_draws_the_same() -> None:
    def replaced(index: int, error: Exception) -> float:
        return random.random()

    looked_up, computed = (
        [
            batch.tolist()
            for batch in DataLoader(kind(range(40)), 8, generator=1, sampler=range(48), on_error=replaced, num_workers=2)
        ]
        for kind in (Listed, Computed)
    )

    assert looked_up == computed


class Key:
    """A key of a sampler that draws."""

    def __index__(self) -> int:
        return random.randrange(50)


def test_keys_that_draw_are_seeded() -> None:
    looked_up, computed = (
        [batch.tolist() for batch in DataLoader(kind(list(range(50))), 16, generator=1, sampler=[Key()] * 64, num_workers=2)]
        for kind in (Listed, Computed)
    )

    assert looked_up == computed


SEEDS: dict[str, tuple[Callable[[], Any], dict[str, Any], int]] = {
    "computed samples": (lambda: Computed(range(64)), {"batch_size": 64}, 8),
    "samples that are looked up": (lambda: Listed(range(64)), {"batch_size": 64}, 0),
    "dicts that are looked up": (lambda: Named(range(64), "x" * 64), {"batch_size": 64}, 0),
    "texts that are looked up": (lambda: ["text"] * 64, {"batch_size": 64}, 0),
    "own collation": (lambda: Listed(range(64)), {"batch_size": 64, "collate_fn": list}, 1),
    "single numbers": (lambda: range(4), {"batch_size": None}, 0),
}


@pytest.mark.parametrize("case", SEEDS)
def test_generators_are_seeded_only_for_samples_and_collations_that_may_draw(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset, options, expected = SEEDS[case]
    counts = mmap.mmap(-1, 4096)  # shared with the worker

    def count(seed: int) -> None:
        counts[0] += 1

    monkeypatch.setattr(ArrayBackend, "seeders", lambda self, seed: (count,))

    list(DataLoader(dataset(), num_workers=1, multiprocessing_context="fork", **options))

    assert counts[0] == expected
