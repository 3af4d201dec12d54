"""Batches in logical shards: parts of workers, ended shards, and states, without any worker."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from dali_like.feed.shards import PositionsAnswer, PositionsPart, ShardProgress, unpacked
from dali_like.sources.composed.row_pieces import Runs
from dali_like.sources.state_format import ENDED, ShardState


def answer(found: list[int], states: dict[int, ShardState], ended: list[int] | None = None) -> PositionsAnswer:
    return PositionsAnswer(found, [], [], states, ended or [])


def parts(progress: ShardProgress, positions: Sequence[int]) -> dict[int, PositionsPart]:
    """Return the part of each worker."""
    return {worker: unpacked(text) for worker, text in progress.by_worker(positions).items()}


def test_each_shard_has_one_worker() -> None:
    progress = ShardProgress(12, range(0, 12, 2), 0, {}, num_workers=2)

    first, second = parts(progress, range(0, 10, 2)), parts(progress, range(10, 20, 2))

    assert {worker: part.places for worker, part in first.items()} == {0: [0, 2, 4], 1: [1, 3]}
    assert {worker: part.places for worker, part in second.items()} == {1: [0, 2, 4], 0: [1, 3]}


def test_the_places_of_workers_are_looked_up_once_in_a_period(monkeypatch: pytest.MonkeyPatch) -> None:
    progress = ShardProgress(12, range(0, 12, 2), 0, {}, num_workers=2)
    looked_up: list[int] = []
    remaining = progress.remaining
    monkeypatch.setattr(progress, "remaining", lambda positions: looked_up.append(positions[0]) or remaining(positions))

    for begin in range(0, 240, 8):
        progress.by_worker(range(begin, begin + 8, 2))

    assert len(looked_up) == 3


@pytest.mark.parametrize(("is_shared", "workers"), [(False, {0}), (True, {0, 1, 2})])
def test_only_shards_behind_a_map_are_shared(is_shared: bool, workers: set[int]) -> None:
    progress = ShardProgress(1, [0], 0, {}, num_workers=3, is_shared=is_shared)

    assert progress.by_worker(range(7)).keys() == workers


def test_two_shards_share_four_workers() -> None:
    progress = ShardProgress(2, [0, 1], 0, {}, num_workers=4, is_shared=True)

    assert {worker: part.places for worker, part in parts(progress, range(8)).items()} == {
        0: [0, 4],
        1: [1, 5],
        2: [2, 6],
        3: [3, 7],
    }


def test_positions_of_ended_shards_are_left_out() -> None:
    progress = ShardProgress(4, range(4), 0, {}, num_workers=1)
    progress.note([answer([0, 1, 3], {}, ended=[2])])

    assert progress.remaining([4, 5, 6, 7]) == [0, 1, 3]
    assert progress.remaining([6]) == []
    assert parts(progress, [6]) == {0: PositionsPart([], {})}, "each batch has a task"


def test_positions_that_were_delivered_before_a_resume_are_left_out() -> None:
    states = {0: ShardState(1, None), 1: ShardState(3, None), 2: ShardState(0, None, 2), 3: ShardState(1, None, 1)}
    progress = ShardProgress(4, range(4), 4, states, num_workers=1)

    assert progress.remaining([4, 5, 6, 7]) == [0, 3]
    assert progress.remaining([8, 9, 10, 11]) == [0, 2, 3]
    assert progress.remaining([12, 13, 14, 15]) == [0, 1, 2, 3]


def test_shards_that_had_ended_before_a_resume_are_left_out() -> None:
    progress = ShardProgress(2, range(2), 4, {0: ShardState(0, ENDED), 1: ShardState(2, None)}, num_workers=1)

    assert progress.remaining([4, 5]) == [1]


def test_the_epoch_ends_with_the_last_shard() -> None:
    progress = ShardProgress(2, range(2), 0, {}, num_workers=1)

    progress.note([answer([], {}, ended=[1])])
    assert not progress.is_at_end
    progress.note([answer([], {}, ended=[0])])
    assert progress.is_at_end


def test_padded_positions_never_end() -> None:
    progress = ShardProgress(1, [0], 0, {}, is_padded=True)
    progress.note([answer([], {}, ended=[0])])

    assert not progress.is_at_end
    assert progress.remaining([0, 1]) == [0, 1]


def test_a_part_has_the_latest_states_of_its_shards_alone() -> None:
    progress = ShardProgress(4, range(4), 0, {0: ShardState(1, "a"), 1: ShardState(1, "b")}, num_workers=2)
    progress.note([answer([0], {0: ShardState(2, "c")})])

    assert parts(progress, [8, 9])[0] == PositionsPart([0], {0: ShardState(2, "c")})
    assert parts(progress, [8, 9])[1] == PositionsPart([1], {1: ShardState(1, "b")})


def test_the_state_of_a_shared_shard_is_that_of_its_farthest_worker() -> None:
    progress = ShardProgress(1, [0], 0, {}, num_workers=2, is_shared=True)

    progress.note([answer([1], {0: ShardState(2, "far")}), answer([0], {0: ShardState(1, "near")})])

    assert progress.states == {0: ShardState(2, "far")}


def test_a_replaced_element_moves_its_state_back() -> None:
    progress = ShardProgress(1, [0], 0, {0: ShardState(5, None)}, num_workers=1)

    progress.note([answer([0], {0: ShardState(3, "s")})])

    assert progress.states == {0: ShardState(3, "s")}


def test_rows_in_columns_have_a_range_of_places_for_each_shard() -> None:
    progress = ShardProgress(4, range(4), 0, {}, num_workers=2, in_columns=True)
    first = parts(progress, range(6, 18))
    progress.note([answer([], {}, ended=[2])])
    second = parts(progress, range(6, 18))

    assert first[0].places == Runs([range(2, 11, 4), range(0, 9, 4)])
    assert first[1].places == Runs([range(3, 12, 4), range(1, 10, 4)])
    assert second[0].places == Runs([range(2, 11, 4)])


def test_padded_rows_in_columns_repeat_those_of_a_shard() -> None:
    progress = ShardProgress(2, range(2), 0, {}, num_workers=1, is_padded=True, in_columns=True)

    assert parts(progress, range(4))[0].places == Runs([range(0, 3, 2), range(1, 4, 2)])
    assert parts(progress, [4, 5, 0, 1])[0].places == Runs([range(1), range(2, 3), range(1, 2), range(3, 4)])


def test_places_in_rows_are_those_before_the_others() -> None:
    assert PositionsAnswer([0, 2, 5], [], ["x"], {}, []).in_rows == [0, 2]
