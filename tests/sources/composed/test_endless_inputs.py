"""Epochs of endless inputs in logical shards: other elements in each, and in the first one those of the endless input."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from dali_like.data import ComposedDataset
from dali_like.sources.composed.endless_inputs import with_epochs
from dali_like.sources.composed.stage import Place, Sharded
from dali_like.sources.composed.stream import Elements
from tests.internals import stage_of

SHARDS = 3
NUMBERS = ComposedDataset.source(range(10))
LETTERS = ComposedDataset.source("abcdefg")


def always(_: Any) -> bool:
    return True


def mixed(*datasets: ComposedDataset, **options: Any) -> ComposedDataset:
    return ComposedDataset.mix(list(datasets), [3, 1], **{"block": 4, "stop": "never", **options})


#: Endless datasets with random access.
ENDLESS = {
    "repeated": NUMBERS.shuffle().repeat(),
    "repeated, with a seed": NUMBERS.shuffle(seed=5).repeat(),
    "mixed": mixed(NUMBERS.shuffle(), LETTERS),
    "mixed with an endless one": mixed(NUMBERS.shuffle().repeat(), LETTERS, stop="first"),
    "mixed twice": mixed(mixed(NUMBERS.shuffle(), LETTERS.shuffle()), LETTERS.shuffle().repeat()),
    "enumerated": mixed(NUMBERS, LETTERS).enumerate(),
    "concatenated": ComposedDataset.concat([LETTERS, mixed(NUMBERS.shuffle(), LETTERS)]),
    "zipped": ComposedDataset.zip([NUMBERS.shuffle().repeat(), mixed(NUMBERS, LETTERS)]),
    "shuffled in blocks": mixed(NUMBERS, LETTERS).shuffle(block=8),
    "in windows": mixed(NUMBERS, LETTERS).window(2),
}


def outputs(evaluator: Any, epoch: int, count: int = 60) -> list[Any]:
    assert isinstance(evaluator, Sharded)
    return [list(itertools.islice(evaluator.open(shard, epoch), count)) for shard in range(SHARDS)]


@pytest.mark.parametrize("name", ENDLESS)
def test_the_first_epoch_has_the_elements_of_the_endless_input_and_later_ones_have_others(name: str) -> None:
    stage = stage_of(ENDLESS[name].filter(always).take(900))
    place = Place(7, SHARDS)
    ended = with_epochs(stage).evaluator(place)

    assert outputs(ended, 0) == outputs(stage.evaluator(place), 0)
    epochs = [outputs(ended, epoch) for epoch in range(4)]
    assert all(one != other for one, other in itertools.combinations(epochs, 2))


@pytest.mark.parametrize("name", ENDLESS)
def test_a_stream_without_an_end_stays_as_it_is(name: str) -> None:
    stage = stage_of(ENDLESS[name].filter(always))

    assert with_epochs(stage) is stage


def test_numbers_of_enumerate_begin_with_each_epoch() -> None:
    dataset = ENDLESS["enumerated"].filter(always).take(9).with_options(shards=SHARDS)
    elements = Elements(stage_of(dataset), 0, SHARDS)

    assert [[elements.at(epoch, position)[0] for position in range(9)] for epoch in range(3)] == [list(range(9))] * 3


def test_inputs_that_a_mixture_begins_again_have_epochs_too() -> None:
    part = mixed(NUMBERS.shuffle(), LETTERS.shuffle()).filter(always).take(12)
    dataset = mixed(part, LETTERS.map(str.upper)).filter(always).with_options(shards=SHARDS)
    found = [element for element in itertools.islice(dataset, 48) if not str(element).isupper()]

    assert found[:12] != found[12:24] != found[24:36] != found[:12]


def test_epochs_beyond_the_range_of_positions_begin_anew() -> None:
    dataset = ENDLESS["mixed"].filter(always).take(9).with_options(shards=SHARDS)

    assert outputs(with_epochs(stage_of(dataset)).evaluator(Place(0, SHARDS)), 1 << 40)
