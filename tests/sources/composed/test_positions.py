"""Arithmetic of positions: steps, ranks, and logical shards."""

from __future__ import annotations

import itertools
import random

import pytest

from dali_like.errors import ArgumentError
from dali_like.sources.composed.positions import check_ranks, num_delivered, owned_shards
from dali_like.sources.sharding import Shard


@pytest.mark.parametrize(
    ("begin", "batch_size", "ranks", "expected"),
    [
        (0, 4, 2, [0, 2, 4, 6]),
        (0, 2, 4, [0, 4]),
        (0, 5, 4, [0, 4, 8, 12, 16]),
        (15, 1, 4, [16]),
        (12, 3, 3, [12, 15, 18]),
    ],
)
def test_rank_0_takes_these_positions(begin: int, batch_size: int, ranks: int, expected: list[int]) -> None:
    assert list(Shard(0, ranks).stripe(begin, batch_size)) == expected


def test_owners_stay_the_same_when_only_the_batch_size_changes() -> None:
    assert [position % 12 % 3 for position in Shard(0, 3).stripe(12, 3)] == [0, 0, 0]


def test_the_batches_of_all_ranks_are_a_partition_while_ranks_and_batch_size_change() -> None:
    draw = random.Random(1)
    for _ in range(50):
        num_shards = draw.choice([4, 12, 60])
        position, seen = 0, set[int]()
        for _ in range(20):
            ranks = draw.choice([count for count in range(1, num_shards + 1) if num_shards % count == 0])
            batch_size = draw.randint(1, 9)
            batches = [list(Shard(rank, ranks).stripe(position, batch_size)) for rank in range(ranks)]
            assert all(len(batch) == batch_size and batch == sorted(batch) for batch in batches)
            for rank, batch in enumerate(batches):
                assert {each % num_shards for each in batch} <= set(owned_shards(num_shards, Shard(rank, ranks)))
            taken = set(itertools.chain.from_iterable(batches))
            assert not taken & seen
            seen |= taken
            position += ranks * batch_size
        assert seen == set(range(position))


def test_the_outputs_of_a_shard_before_a_position_are_counted() -> None:
    for position, shard in itertools.product(range(40), range(7)):
        assert num_delivered(position, shard, 7) == sum(each % 7 == shard for each in range(position))


@pytest.mark.parametrize(("ranks", "nearest"), [(5, "4 or 6"), (7, "6 or 12"), (13, "12")])
def test_a_wrong_number_of_ranks_names_the_nearest(ranks: int, nearest: str) -> None:
    with pytest.raises(ArgumentError, match=f"{ranks} ranks cannot share out 12 logical shards evenly. Use {nearest} ranks"):
        check_ranks(12, ranks)
