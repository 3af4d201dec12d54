"""The order of samples with shuffling. Without it, see tests/parity."""

from __future__ import annotations

from typing import Any

import pytest

from dali_like.errors import ArgumentClashError, ArgumentError
from dali_like.sources.readers.reader_order import ReaderOptions, ReaderOrder


def epochs(
    size: int, num_epochs: int, shard: int = 0, seed: int = 1, batch_size: int = 3, **options: Any
) -> list[list[int]]:
    """The samples of the first epochs of a shard."""
    given = ReaderOptions(shard_id=shard, random_shuffle=True, **options)
    order = ReaderOrder(size, batch_size, given, seed)
    begins = [size * i // given.num_shards for i in range(given.num_shards + 1)]
    position, seen = 0, []
    for epoch in range(num_epochs):
        mine = shard if given.sticks else (shard + epoch) % given.num_shards
        length = begins[mine + 1] - begins[mine]
        if given.pad_last_batch:
            length = given.batches_per_epoch(size, batch_size) * batch_size
        seen.append([order.index(position + i) for i in range(length)])
        position += length
    return seen


@pytest.mark.parametrize("size", [1, 10, 5000])
def test_each_epoch_is_a_permutation(size: int) -> None:
    first, second = epochs(size, 2)

    assert sorted(first) == sorted(second) == [*range(size)]
    assert size == 1 or first != second


@pytest.mark.parametrize("stick", [False, True])
@pytest.mark.parametrize("num_shards", [2, 3, 5])
def test_ranks_with_different_seeds_deliver_each_sample_once(num_shards: int, stick: bool) -> None:
    ranks = [epochs(17, 7, shard, seed=shard, num_shards=num_shards, stick_to_shard=stick) for shard in range(num_shards)]

    for epoch in range(7):
        assert sorted(i for rank in ranks for i in rank[epoch]) == [*range(17)]
    assert sorted(ranks[0][0]) != sorted(ranks[0][num_shards]), "the shards should have other samples in each epoch"


def test_padding_repeats_the_last_sample_of_the_shard() -> None:
    (epoch,) = epochs(7, 1, shard=0, num_shards=2, pad_last_batch=True)

    assert len(epoch) == 6
    assert epoch[2:] == [epoch[2]] * 4
    assert len(set(epoch)) == 3


def test_the_order_depends_on_the_seed() -> None:
    assert epochs(20, 1, seed=1) != epochs(20, 1, seed=2)
    assert epochs(20, 1, seed=1, num_shards=2) != epochs(20, 1, seed=2, num_shards=2)


@pytest.mark.parametrize("num_shards", [1, 2])
def test_the_order_of_shuffle_after_epoch_does_not_depend_on_the_seed(num_shards: int) -> None:
    options = ReaderOptions(shuffle_after_epoch=True, num_shards=num_shards)
    orders = [ReaderOrder(20, batch_size, options, seed) for batch_size, seed in ((3, 1), (4, 2))]
    first, second = ([order.index(position) for position in range(40)] for order in orders)
    length = 20 // num_shards

    assert first == second
    assert len(set(first[:length])) == length
    assert sorted(first[:length]) != first[:length] != first[length : 2 * length], "each epoch should have its own order"


@pytest.mark.parametrize("num_shards", [1, 2])
def test_shuffle_after_epoch_seed_gives_another_order_that_all_ranks_share(num_shards: int) -> None:
    def first_epoch(seed: int | None) -> list[int]:
        given = {"shuffle_after_epoch": True, "shuffle_after_epoch_seed": seed, "num_shards": num_shards}
        shards = [ReaderOrder(20, 3, ReaderOptions(shard_id=i, **given), seed=i) for i in range(num_shards)]
        return [shard.index(position) for shard in shards for position in range(20 // num_shards)]

    orders = [first_epoch(seed) for seed in (None, 0, 7, -7)]

    assert all(sorted(order) == [*range(20)] for order in orders)
    assert len({tuple(order) for order in orders}) == 4
    assert first_epoch(7) == orders[2]


def test_shuffle_after_epoch_seed_has_no_effect_on_random_shuffle() -> None:
    assert epochs(20, 2, shuffle_after_epoch_seed=5) == epochs(20, 2)


def test_any_position_can_be_asked_for() -> None:
    options = ReaderOptions(random_shuffle=True, num_shards=3, shard_id=1)
    order = ReaderOrder(11, 4, options, 5)
    forwards = [order.index(position) for position in range(60)]
    again = ReaderOrder(11, 4, options, 5)

    assert [again.index(position) for position in reversed(range(60))] == forwards[::-1]


def test_shuffle_after_epoch_sticks_to_the_shard() -> None:
    meta = ReaderOptions(shuffle_after_epoch=True, num_shards=2).meta(7)

    assert meta["stick_to_shard"] == 1


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"shard_id": 1}, ArgumentError),
        ({"shard_id": -1}, ArgumentError),
        ({"num_shards": 0}, ArgumentError),
        ({"shuffle_after_epoch": True, "random_shuffle": True}, ArgumentClashError),
        ({"shuffle_after_epoch": True, "stick_to_shard": True}, ArgumentClashError),
    ],
    ids=str,
)
def test_errors(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        ReaderOptions(**options)


def test_fewer_samples_than_shards() -> None:
    with pytest.raises(ArgumentError, match=r"number of input samples: 2, needs to be at least .* shards: 3"):
        ReaderOptions(num_shards=3).check_size(2)


@pytest.mark.parametrize("num_shards", [1, 3])
@pytest.mark.parametrize("sizes", [[3, 1, 4, 2], [5, 0, 5], [10]], ids=str)
def test_files_are_shuffled_and_their_samples_stay_in_order(sizes: list[int], num_shards: int) -> None:
    size = sum(sizes)
    files = [list(range(sum(sizes[:i]), sum(sizes[: i + 1]))) for i in range(len(sizes)) if sizes[i]]

    def epoch(number: int, **given: Any) -> list[int]:
        found: list[int] = []
        for shard in range(num_shards):
            place = {"num_shards": num_shards, "shard_id": shard}
            options = ReaderOptions(shuffle_after_epoch=True, shuffles_files=True, **place, **given)
            order = ReaderOrder(size, 2, options, seed=4, file_sizes=sizes)
            count = size * (shard + 1) // num_shards - size * shard // num_shards
            found += [order.index(number * count + offset) for offset in range(count)]
        return found

    epochs = [epoch(number) for number in range(8)]
    for order in epochs:
        files_in_order = [file for index in order for file in files if file[0] == index]
        assert [index for file in files_in_order for index in file] == order
    assert len({tuple(order) for order in epochs}) > (len(files) > 1)
    assert sorted(epoch(0, random_shuffle=True)) == [*range(size)]
