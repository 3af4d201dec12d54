"""An exception is an output of a stage like any other: the outputs behind it stay where they are, also after a resume."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dali_like.data import ComposedDataset
from dali_like.sources.composed.blocks import BlockShuffle


def fail_at(*failing: int) -> Callable[[int], bool]:
    """Return a function that raises for some numbers, and accepts the others."""

    def function(number: int) -> bool:
        if number in failing:
            raise ValueError(number)
        return True

    return function


def numbers(*failing: int, count: int = 8) -> ComposedDataset:
    """Return a dataset in one logical shard that raises ValueError in the place of some numbers."""
    return ComposedDataset.source(range(count)).filter(fail_at(*failing)).with_options(shards=1)


def outputs(dataset: ComposedDataset) -> list[Any]:
    """Return all elements; in the place of an exception, its class."""
    iterator = iter(dataset)
    result: list[Any] = []
    while True:
        try:
            result.append(next(iterator))
        except StopIteration:
            return result
        except Exception as error:
            result.append(type(error))


def outputs_of_resumes(dataset: ComposedDataset) -> list[list[Any]]:
    """Return, for each position, the outputs from there on, of an iterator that resumes there."""
    iterator, result = iter(dataset), []
    while True:
        resumed = iter(dataset)
        resumed.load_state_dict(json.loads(json.dumps(iterator.state_dict())))
        rest: list[Any] = []
        while not rest or rest[-1] is not StopIteration:
            try:
                rest.append(next(resumed))
            except Exception as error:
                rest.append(type(error))
        result.append(rest[:-1])
        try:
            next(iterator)
        except StopIteration:
            return result
        except ValueError:
            pass


def check(dataset: ComposedDataset, expected: list[Any]) -> None:
    assert outputs(dataset) == expected
    assert outputs_of_resumes(dataset) == [expected[i:] for i in range(len(expected) + 1)]


def test_positions_count_exceptions_of_the_input() -> None:
    check(numbers(1, count=3).enumerate(), [(0, 0), ValueError, (2, 2)])


def test_a_window_leaves_out_an_element_that_raises() -> None:
    check(numbers(2, count=5).window(3, 1), [ValueError, [0, 1, 3], [1, 3, 4]])


def test_an_exception_ahead_of_the_first_window_is_over() -> None:
    check(numbers(0, 1, count=3).window(1), [ValueError, ValueError, [2]])


def test_a_window_steps_over_exceptions_in_gaps() -> None:
    check(numbers(1, count=5).window(1, 2), [[0], [2], [4]])


def test_a_slice_steps_over_exceptions_before_its_start() -> None:
    check(numbers(0, count=4).skip(2), [2, 3])


def test_a_repetition_of_exceptions_alone_is_not_empty() -> None:
    assert outputs(numbers(0, count=1).repeat().take(3)) == [ValueError] * 3


def test_inputs_of_zip_stay_together_when_one_raises_while_it_is_skipped() -> None:
    check(ComposedDataset.zip(numbers(0, 1, count=3), numbers(count=3)).skip(1), [ValueError, (2, 2)])


def test_a_block_that_raises_is_one_output(monkeypatch: pytest.MonkeyPatch) -> None:
    shuffled = BlockShuffle.drafts

    def fail_in_second(stage: Any, elements: list[Any], *place: Any) -> Any:
        if 3 in elements:
            raise ValueError(elements)
        return sorted(shuffled(stage, elements, *place))

    monkeypatch.setattr(BlockShuffle, "drafts", fail_in_second)

    check(numbers(count=6).shuffle(block=2), [0, 1, ValueError, 4, 5])


def test_an_array_in_place_of_a_truth_value_names_the_filter() -> None:
    arrays = ComposedDataset.source([np.arange(3)]).filter(lambda array: array > 1).with_options(shards=1)
    with pytest.raises(ValueError, match="ambiguous") as caught:
        next(iter(arrays))
    assert "raised by stage filter" in caught.value.__notes__[0]
