"""States: merged from ranks, and compared with the description."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from dali_like.data import ComposedDataset, merge_states
from dali_like.errors import CheckpointError
from dali_like.sources.composed.positions import owned_shards
from dali_like.sources.composed.states import checked_state, make_state, shard_states
from dali_like.sources.sharding import Shard
from dali_like.sources.state_format import ShardState

DATASET = ComposedDataset.source(list(range(40))).filter(bool).with_options(shards=4)


def state_of(rank: int, ranks: int, position: int = 8) -> dict[str, Any]:
    """Return the state of a rank."""
    elements = DATASET.elements()
    owned = owned_shards(4, Shard(rank, ranks))
    states = {shard: elements.state(0, shard, position) for shard in owned}
    return make_state(DATASET.description, 0, 4, 0, position, states, Shard(rank, ranks))


def test_merged_states_continue_where_all_ranks_have_stopped() -> None:
    iterator = iter(DATASET)
    iterator.load_state_dict([state_of(1, 2), state_of(0, 2)])

    assert list(iterator) == list(DATASET)[8:]
    assert merge_states([state_of(0, 2), state_of(1, 2)])["num_ranks"] == 1


def test_a_missing_shard_names_its_rank() -> None:
    with pytest.raises(CheckpointError, match="logical shard 1 is missing; it was saved by rank 1 of 2"):
        merge_states([state_of(0, 2)])


def test_a_rank_that_is_ahead_has_delivered_its_elements() -> None:
    merged = merge_states([state_of(0, 2, 16), state_of(1, 2, 8)])
    iterator = iter(DATASET)
    iterator.load_state_dict(merged)

    elements, stream = list(iterator), list(DATASET)
    assert elements == [element for i, element in enumerate(stream) if i >= 16 or (i >= 8 and i % 2)]
    assert merged["position"] == 8


def test_a_state_between_two_positions_of_ranks_continues_in_the_same_way() -> None:
    iterator, resumed = iter(DATASET), iter(DATASET)
    iterator.load_state_dict([state_of(0, 2, 20), state_of(1, 2, 8)])

    for _ in range(3):
        next(iterator)
    resumed.load_state_dict(json.loads(json.dumps(iterator.state_dict())))

    assert list(resumed) == list(iterator)


def test_exceptions_of_a_rank_that_is_ahead_are_not_raised_again() -> None:
    ahead = state_of(0, 2, 16)
    ahead["states"]["0"] = state_of(0, 2, 8)["states"]["0"]  # since then, its outputs were exceptions

    merged = merge_states([ahead, state_of(1, 2, 8)])
    iterator = iter(DATASET)
    iterator.load_state_dict(merged)

    assert merged["states"]["0"] == [2, state_of(0, 2, 8)["states"]["0"][1], 4]
    assert [next(iterator) for _ in range(4)] == [list(DATASET)[i] for i in (9, 11, 13, 15)]


def test_a_rank_at_the_beginning_of_the_next_epoch_has_finished_this_one() -> None:
    finished = {**state_of(0, 2, 0), "epoch": 1}
    iterator = iter(DATASET)
    iterator.load_state_dict([finished, state_of(1, 2, 8)])

    assert list(iterator) == list(range(9, 40, 2))


def test_ranks_in_the_middle_of_different_epochs_are_refused() -> None:
    with pytest.raises(CheckpointError, match="rank 0 has epoch 1, and rank 1 has 0"):
        merge_states([state_of(1, 2), {**state_of(0, 2), "epoch": 1}])


def test_positions_of_a_stream_with_random_access_must_agree() -> None:
    state = iter(ComposedDataset.source(list(range(9)))).state_dict()
    of_ranks = [{**state, "position": position, "num_ranks": 2, "rank": i} for i, position in enumerate((4, 8))]

    with pytest.raises(CheckpointError, match=r"rank 1 has position 8, and rank 0 has 4.*pass the state of one rank alone"):
        merge_states(of_ranks)
    assert merge_states([of_ranks[0], {**of_ranks[1], "epoch": 1, "position": 0}])["position"] == 4


def test_nothing_cannot_be_merged() -> None:
    with pytest.raises(CheckpointError, match="no states to merge"):
        merge_states([])


@pytest.mark.parametrize("saved", [[-1, None], [2], [2, None, None], [2, None, 3, 4], 7])
def test_a_state_of_a_shard_without_a_number_of_outputs_is_refused(saved: Any) -> None:
    state = state_of(0, 1)
    state["states"]["2"] = saved
    with pytest.raises(CheckpointError, match="logical shard 2 should be at output 2"):
        shard_states(state)


def test_the_first_difference_is_named() -> None:
    state = state_of(0, 1)
    for other, message in (
        (DATASET.with_options(seed=5), "seed=0, and this dataset has seed=5"),
        (DATASET.with_options(shards=8), "shards=4, and this dataset has shards=8"),
        (DATASET.map(abs), r"line 0 of the description was 'filter\(bool\)', and is 'map\(abs\)' now. Use the same [a-z]+$"),
    ):
        with pytest.raises(CheckpointError, match=message):
            iter(other).load_state_dict(state)
    with pytest.raises(CheckpointError, match="is not a state of a composed dataset"):
        iter(DATASET).load_state_dict({"version": 99})


def test_parts_that_may_change_stand_behind_a_semicolon() -> None:
    saved = make_state(["mix(2 inputs); weights=[1, 2]"], 0, None, 0, 8, {})
    now = ["mix(2 inputs); weights=[1, 3]"]

    assert checked_state(saved, now, 0, None, ["weights"])["position"] == 8
    with pytest.raises(CheckpointError, match="line 0 of the description"):
        checked_state(saved, now, 0, None)


def test_streams_of_random_access_save_a_position_alone() -> None:
    iterator = iter(ComposedDataset.source(list(range(9))))
    list(itertools.islice(iterator, 4))

    state = iterator.state_dict()
    assert (state["position"], state["states"]) == (4, {})
    assert shard_states(make_state([], 0, None, 0, 4, {0: ShardState(1, None)})) == {}


@pytest.mark.parametrize(
    ("drawn", "merged"), [([[5, 2], [3, 9]], [5, 9]), ([[5, 2], []], [5, 2]), ([[], []], []), ([[5, 2], None], None)]
)
def test_merged_states_have_the_progress_of_mixtures(drawn: list[Any], merged: list[int] | None) -> None:
    states = [state_of(rank, 2) for rank in range(2)]
    for state, each in zip(states, drawn, strict=True):
        state.update({} if each is None else {"drawn": each})

    assert merge_states(states).get("drawn") == merged
