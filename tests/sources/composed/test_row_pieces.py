"""Runs: the places of rows of logical shards in a batch."""

from __future__ import annotations

import pickle
from typing import Any

import hypothesis
import numpy as np
from hypothesis import strategies as st

from dali_like.sources.composed.record_batches import OpenBatch
from dali_like.sources.composed.row_pieces import RowPieces, Runs, runs_of
from dali_like.sources.sharding import Shard


def naive(positions: Any, num_shards: int, ended: Any, ahead: Any) -> dict[int, list[int]]:
    """Return the places of each shard."""
    places: dict[int, list[int]] = {}
    for place, position in enumerate(positions):
        number, shard = divmod(position, num_shards)
        if shard not in ended and number >= ahead.get(shard, 0):
            places.setdefault(shard, []).append(place)
    return places


@st.composite
def batches(draw: st.DrawFn) -> tuple[Any, int, set[int], dict[int, int]]:
    """Positions of a batch of a rank, the number of shards, those at their end, and those that are ahead."""
    ranks, of_rank = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    shards = st.integers(0, ranks * of_rank - 1)
    positions: Any = Shard(draw(st.integers(0, ranks - 1)), ranks).stripe(draw(st.integers(0, 40)), draw(st.integers(1, 30)))
    if draw(st.booleans()):  # positions that repeat at the end of an epoch
        length = draw(st.integers(1, 50))
        positions = [position % length for position in positions]
    return positions, ranks * of_rank, draw(st.sets(shards, max_size=2)), draw(st.dictionaries(shards, st.integers(0, 9)))


@hypothesis.given(batches())
def test_runs_have_the_places_that_are_not_empty(batch: tuple[Any, int, set[int], dict[int, int]]) -> None:
    positions, num_shards, ended, ahead = batch

    runs = runs_of(positions, num_shards, ended, ahead)

    expected = naive(positions, num_shards, ended, ahead)
    assert list(runs) == [place for shard in sorted(expected) for place in expected[shard]]
    assert len(runs) == len(list(runs))


@hypothesis.given(batches())
def test_the_rows_of_a_run_follow_each_other_in_one_shard(batch: tuple[Any, int, set[int], dict[int, int]]) -> None:
    positions, num_shards, *_ = batch

    for run in runs_of(*batch).ranges:
        assert {positions[place] - positions[run[0]] - i * num_shards for i, place in enumerate(run)} == {0}


def test_a_stripe_has_one_run_for_each_shard() -> None:
    assert runs_of(range(30, 38), 3) == Runs([range(0, 7, 3), range(1, 8, 3), range(2, 6, 3)])


def test_pickled_runs_have_the_same_size_for_any_number_of_rows() -> None:
    sizes = {len(pickle.dumps(runs_of(range(count), 10))) for count in (300, 3_000, 30_000)}

    assert max(sizes) - min(sizes) < 100


def test_pieces_are_rows_and_one_record_batch_in_the_order_of_places() -> None:
    batch = OpenBatch({"x": np.arange(9)})
    pieces = RowPieces([(batch, 1, range(0, 3, 2)), (batch, 7, range(1, 2))])

    assert [row["x"] for row in pieces] == [1, 2, 7]
    assert [(place, row["x"]) for place, row in pieces.in_order()] == [(0, 1), (1, 7), (2, 2)]
    assert pieces.joined()["x"].tolist() == [1, 7, 2]
    assert (len(pieces), list(pieces.places), pieces[2]["x"]) == (3, [0, 2, 1], 7)


def test_pickled_pieces_have_their_rows_alone() -> None:
    pieces = RowPieces([(OpenBatch({"x": np.arange(10_000)}), 5_000, range(0, 6, 3))])

    pickled = pickle.dumps(pieces)

    assert len(pickled) < 1000
    assert pickle.loads(pickled).in_order() == pieces.in_order() == [(0, {"x": 5_000}), (3, {"x": 5_001})]
