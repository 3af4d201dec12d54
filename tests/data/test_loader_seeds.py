"""Random numbers of workers in successive epochs: kept, restarted and resumed workers."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest

from dali_like.data import DataLoader


class Noise:
    """Random samples; the epoch can be set."""

    epoch = 0

    def __getitem__(self, index: int) -> Any:
        return np.array([index, random.random(), np.random.random()])

    def __len__(self) -> int:
        return 12


def loader(dataset: Any = None, **options: Any) -> Any:
    given = {"batch_size": 4, "num_workers": 1, "generator": 5, **options}
    return DataLoader(Noise() if dataset is None else dataset, **given)


def values(batches: Any) -> list[Any]:
    return [batch.tolist() for batch in batches]


def epochs(changes: bool, **options: Any) -> list[Any]:
    """Return three epochs of kept workers; before each, the dataset may change."""
    dataset = Noise()
    kept = loader(dataset, persistent_workers=True, **options)
    passes = []
    for epoch in range(3):
        dataset.epoch = epoch if changes else 0
        passes.append(values(kept))
    return passes


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("seeding", ["tasks", "torch"])
def test_workers_that_are_started_again_for_a_changed_dataset_do_not_draw_the_same_again(method: str, seeding: str) -> None:
    first, second, third = epochs(True, worker_seeding=seeding, multiprocessing_context=method)

    assert first != second != third != first


def test_random_numbers_of_samples_do_not_depend_on_changes_of_the_dataset() -> None:
    assert epochs(True) == epochs(False)


def test_nothing_is_drawn_from_the_programs_generator_when_the_dataset_has_changed() -> None:
    states = []
    for changes in (False, True):
        generator = np.random.default_rng(3)
        epochs(changes, generator=generator)
        states.append(generator.bit_generator.state)

    assert states[0] == states[1]


#: Options, and numbers of delivered batches at their states.
RESUMED: list[tuple[dict[str, bool], int]] = [
    *(({}, delivered) for delivered in (1, 3, 4, 6)),
    *(({"persistent_workers": True, "shuffle": True}, delivered) for delivered in (1, 3, 4, 6)),
    *(({"shuffle": True}, delivered) for delivered in (3, 4)),
    *(({"persistent_workers": True}, delivered) for delivered in (1, 6)),
    *(({"persistent_workers": True, "shuffle": True, "prefetch_epochs": True}, delivered) for delivered in (3, 4)),
]


@pytest.mark.parametrize(("options", "delivered"), RESUMED, ids=str)
def test_later_epochs_of_a_resumed_loader_equal_the_originals(options: Any, delivered: int) -> None:
    """In the middle and at the end of the first and the second epoch."""
    first = loader(**options)
    taken, state = 0, {}
    expected: list[Any] = []
    for _ in range(4):
        for batch in first:
            taken += 1
            if taken > delivered:
                expected.append(batch.tolist())
            elif taken == delivered and taken % 3:
                state = json.loads(json.dumps(first.state_dict()))
        if taken == delivered:
            state = json.loads(json.dumps(first.state_dict()))

    second = loader(**options)
    second.load_state_dict(state)
    resumed: list[Any] = []
    while len(resumed) < len(expected):
        resumed += values(second)

    assert resumed == expected


@pytest.mark.parametrize("num_batches", [1, 2, 3])
def test_epochs_as_short_as_the_prefetch_depth_are_complete(num_batches: int) -> None:
    short = loader(range(4 * num_batches), num_workers=2, persistent_workers=True, prefetch_epochs=True)

    passes = [values(short) for _ in range(3)]

    assert passes == [values(loader(range(4 * num_batches), num_workers=0))] * 3


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_pass_goes_on_when_the_dataset_is_changed_and_another_begins(method: str) -> None:
    dataset = Noise()
    kept = loader(dataset, persistent_workers=True, multiprocessing_context=method)
    outer, numbers = [], []
    for number, batch in enumerate(kept):
        dataset.epoch = number
        outer.append(batch[0, 0])
        numbers.append(len(values(kept)))

    assert (outer, numbers) == ([0, 4, 8], [3, 3, 3])


def test_a_pass_goes_on_when_another_goes_back_to_its_beginning() -> None:
    kept = loader(persistent_workers=True)
    first = iter(kept)
    next(first)
    kept.load_state_dict(kept.state_dict())

    assert len(list(kept)) == len(list(first)) == 2
