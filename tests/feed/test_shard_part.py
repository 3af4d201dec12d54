"""The evaluation of a part: elements, rows, ended shards, errors and states."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from dali_like.data import ComposedDataset
from dali_like.feed.shards import Conduct, PositionsAnswer, PositionsPart, PositionsRequest, take_part


def never_3(number: int) -> bool:
    return number != 3


def failing_at_4(number: int) -> int:
    if number == 4:
        raise ValueError("four")
    return number


def dataset_of(count: int = 12) -> ComposedDataset:
    return ComposedDataset.source(range(count)).filter(never_3).with_options(shards=2)


def conduct(**options: Any) -> Conduct:
    plain = {"cell": [0], "seed": lambda position: None, "seed_every": None, "timed": lambda function: function}
    return Conduct(**{**plain, **options})


def take(dataset: ComposedDataset, positions: list[int], part: PositionsPart, **options: Any) -> PositionsAnswer:
    wanted = PositionsRequest(None, 0, 0, positions)
    return take_part(dataset.elements(), 2, wanted, part, conduct(**options))


def test_an_answer_has_the_elements_and_the_states_behind_them() -> None:
    answer = take(dataset_of(), [0, 1, 2, 3], PositionsPart([0, 2], {}))

    assert (answer.found, answer.others, answer.ended) == ([0, 2], [0, 2], [])
    assert answer.states[0].taken == 2
    assert answer.states.keys() == {0}


def test_a_part_continues_from_its_states() -> None:
    first = take(dataset_of(), [0, 1, 2, 3], PositionsPart([0, 1, 2, 3], {}))

    second = take(dataset_of(), [4, 5], PositionsPart([0, 1], first.states))

    assert first.others + second.others == [0, 1, 2, 5, 4, 7]


def test_positions_behind_the_end_of_a_shard_are_empty() -> None:
    answer = take(dataset_of(4), [0, 1, 2, 3], PositionsPart([0, 1, 2, 3], {}))

    assert (answer.found, answer.others, answer.ended) == ([0, 1, 2], [0, 1, 2], [1])
    assert answer.states[1].taken == 2, "the empty position counts"


@pytest.mark.parametrize(("seed_every", "seeded"), [(None, [4]), (1, [4, 6, 7]), (2, [4, 7])])
def test_generators_are_seeded_and_places_are_noted_before_elements(seed_every: int | None, seeded: list[int]) -> None:
    cell, calls = [-1], []

    def timed(function: Callable[[int], Any]) -> Callable[[int], Any]:
        def call(position: int) -> Any:
            calls.append((cell[0], position))
            return function(position)

        return call

    options = {"cell": cell, "seed": calls.append, "seed_every": seed_every, "timed": timed}
    take(dataset_of(), [4, 5, 6, 7], PositionsPart([0, 2, 3], {}), **options)

    assert [call for call in calls if isinstance(call, tuple)] == [(0, 4), (2, 6), (3, 7)]
    assert [calls[i + 1][1] for i, call in enumerate(calls) if not isinstance(call, tuple)] == seeded


def test_elements_go_to_rows_in_groups_up_to_the_first_that_does_not_fit() -> None:
    puts: list[tuple[list[int], list[int]]] = []

    def put(places: list[int], elements: list[int]) -> int:
        puts.append((places, elements))
        return sum(element < 5 for element in elements)

    answer = take(dataset_of(), list(range(8)), PositionsPart([0, 1, 2, 3, 4, 5], {}), put=put, together=2)

    assert puts == [([0, 1], [0, 1]), ([2, 3], [2, 5])], "behind an element in no row, none goes to one"
    assert (answer.in_rows, answer.others) == ([0, 1, 2], [5, 4, 7])


def test_an_error_is_raised_or_replaced() -> None:
    def replace(position: int, error: Exception, others: Iterable[tuple[str, Callable[[], Any]]]) -> Any:
        name, compute = next(iter(others))
        return position, str(error), name, compute()

    dataset, part = dataset_of().map(failing_at_4), PositionsPart([0, 1, 2], {})
    with pytest.raises(ValueError, match="four"):
        take(dataset, [2, 4, 6], part)

    answer = take(dataset, [2, 4, 6], part, replace=replace)

    assert answer.others == [2, (4, "four", "position 6", 6), 6], "the replacement is not taken out of the stream"
    assert answer.states[0].taken == 4
