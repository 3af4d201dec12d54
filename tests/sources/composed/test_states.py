"""States: merged from ranks, and compared with the description."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from dali_like.data import ComposedDataset, merge_states
from dali_like.errors import CheckpointError
from dali_like.sources.composed.positions import owned_shards
from dali_like.sources.composed.states import checked_state, make_state, shard_states
from dali_like.sources.composed.stream import ShardState
from dali_like.sources.sharding import Shard

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


def test_unequal_positions_name_the_ranks() -> None:
    with pytest.raises(CheckpointError, match="rank 1 has position 12, and rank 0 has 8"):
        merge_states([state_of(0, 2), state_of(1, 2, 12)])


def test_nothing_cannot_be_merged() -> None:
    with pytest.raises(CheckpointError, match="no states to merge"):
        merge_states([])


def test_a_shard_at_another_output_is_refused() -> None:
    state = state_of(0, 1)
    state["states"]["2"][0] = 7
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
