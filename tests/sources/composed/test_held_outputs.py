"""Outputs of logical shards in another order: walks that hold them, and states from which others are delivered in order."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from dali_like.data import ComposedDataset
from dali_like.errors import CheckpointError
from dali_like.sources.composed.held_outputs import HeldState, HoldingWalk, held_state, open_shard
from dali_like.sources.composed.stage import Place
from dali_like.sources.state_format import ENDED
from tests.internals import stage_of


def checked(number: int) -> int:
    if number == 6:
        raise ValueError("six")
    return number


SHARDED: Any = stage_of(ComposedDataset.source(range(20)).filter(lambda _: True).map(checked)).evaluator(Place(0, 2))


def rest_of(walk: Any) -> list[Any]:
    found: list[Any] = []
    while True:
        try:
            found.append(next(walk))
        except StopIteration:
            return found
        except ValueError as error:
            found.append(str(error))


def read(walk: HoldingWalk, number: int) -> None:
    walk.read_to(number, lambda output: output / 2, lambda function: function)


def test_outputs_are_held_until_they_are_taken() -> None:
    walk = HoldingWalk(SHARDED.open(0, 0), 0)
    read(walk, 3)

    assert walk.costs(0, 9) == [0.0, 1.0, 2.0]
    assert walk.take(2) == 4
    assert [walk.can_give(number) for number in range(4)] == [True, True, False, True]
    assert walk.costs(1, 3) == [1.0, 2.0]
    walk.forget(1)
    assert not walk.can_give(0)


def test_an_exception_is_an_output_without_a_cost() -> None:
    walk = HoldingWalk(SHARDED.open(0, 0), 0)
    read(walk, 5)

    assert walk.costs(2, 5) == [2.0, 0.0, 4.0]
    with pytest.raises(ValueError, match="six"):
        walk.take(3)
    assert walk.take(4) == 8


def test_a_walk_ends_behind_its_last_output() -> None:
    walk = HoldingWalk(SHARDED.open(0, 0), 0)
    read(walk, 99)

    assert (walk.number, walk.has_ended, walk.state()) == (10, True, ENDED)
    assert HoldingWalk(None, 10).has_ended


@pytest.mark.parametrize("delivered", [[], [3], [4, 5], [2, 3, 9], list(range(2, 10))])
def test_the_rest_comes_in_order_from_any_state(delivered: list[int]) -> None:
    walk = SHARDED.open(0, 0)
    list(itertools.islice(walk, 2))
    state: Any = HeldState(walk.state(), 2, delivered).plain()
    expected = ["six" if number == 3 else 2 * number for number in range(2, 10) if number not in delivered]

    for passed in range(len(expected) + 1):
        begun = open_shard(SHARDED, 0, 0, state)
        for _ in range(passed):
            begun.skip() if passed % 2 else rest_of(itertools.islice(begun, 1))
        assert rest_of(open_shard(SHARDED, 0, 0, begun.state())) == expected[passed:]


def test_the_state_is_that_of_the_walk_behind_all_that_was_delivered() -> None:
    state = HeldState(None, 0, [0, 2]).plain()
    walk = open_shard(SHARDED, 0, 0, state)

    assert held_state(walk.state()) == HeldState(None, 0, [0, 2])
    assert next(walk) == 2
    assert held_state(walk.state()) is None


@pytest.mark.parametrize(
    "parts", [None, [], [None, -1, [], 0, 0.0, 0], [None, 0, [2, 1], 0, 0.0, 0], [None, 0, [], 0, -1, 0]]
)
def test_damaged_states_are_refused(parts: Any) -> None:
    with pytest.raises(CheckpointError, match="not a state of a shard that is read ahead"):
        held_state({"read_ahead": parts})


@pytest.mark.parametrize("state", [None, 3, [1, 2], {"position": 3}, {"read_ahead": [], "other": 1}])
def test_states_of_walks_are_left_alone(state: Any) -> None:
    assert held_state(state) is None
