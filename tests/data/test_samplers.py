"""Samplers: their indices, the order and its dependencies."""

from __future__ import annotations

import collections
import itertools
import pickle
import sys
from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dali_like.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from dali_like.data.generators import NumpyRandomness
from dali_like.errors import ArgumentClashError, ArgumentError, ArgumentTypeError, MissingMethodError

RANDOM = {
    "permutation": lambda generator: RandomSampler(range(40), generator=generator),
    "replacement": lambda generator: RandomSampler(range(40), True, generator=generator),
    "subset": lambda generator: SubsetRandomSampler(range(100, 140), generator=generator),
    "weighted": lambda generator: WeightedRandomSampler(np.arange(1.0, 41), 40, generator=generator),
    "weighted once each": lambda generator: WeightedRandomSampler(np.arange(1.0, 41), 40, False, generator=generator),
}


@pytest.fixture(params=RANDOM)
def make(request: pytest.FixtureRequest) -> Any:
    """Makes a random sampler with a generator."""
    return RANDOM[request.param]


# All samplers


def test_a_sampler_without_iter_says_so() -> None:
    with pytest.raises(MissingMethodError, match="Subclasses of Sampler should implement __iter__"):
        iter(Sampler())


@pytest.mark.parametrize(
    "sampler",
    [
        SequentialSampler("abc"),
        *(make(1) for make in RANDOM.values()),
        DistributedSampler("abc", 2, 1),
        SubsetRandomSampler([3, 5]),
    ],
    ids=lambda sampler: type(sampler).__name__,
)
def test_indices_are_python_integers_and_as_many_as_the_length_says(sampler: Any) -> None:
    indices = list(sampler)

    assert {type(index) for index in indices} == {int}
    assert len(indices) == len(sampler)


def test_samplers_can_be_pickled(make: Any) -> None:
    sampler = make(1)
    copied = pickle.loads(pickle.dumps(sampler))

    assert list(copied) == list(sampler)


# Dependencies of the order


def test_a_seed_fixes_all_passes(make: Any) -> None:
    one, other = make(5), make(5)

    passes = [list(one) for _ in range(3)]

    assert passes == [list(other) for _ in range(3)]
    assert passes[0] != passes[1] != passes[2]


def test_a_generator_is_shared_and_goes_on(make: Any) -> None:
    generator, same = np.random.default_rng(3), np.random.default_rng(3)

    first = list(make(generator))

    assert first == list(make(same))
    assert generator.bit_generator.state == same.bit_generator.state
    assert list(make(generator)) != first


def test_without_a_generator_the_seed_of_numpy_decides(make: Any) -> None:
    sampler = make(None)
    np.random.seed(3)
    passes = [list(sampler) for _ in range(2)]
    np.random.seed(3)

    assert passes == [list(sampler) for _ in range(2)]
    assert passes[0] != passes[1]


def test_nothing_is_drawn_before_it_is_needed(make: Any) -> None:
    generator = np.random.default_rng(3)
    np.random.seed(3)
    untouched = generator.bit_generator.state, np.random.get_state()[1].tolist()

    iter(make(generator))
    iter(make(None))

    assert (generator.bit_generator.state, np.random.get_state()[1].tolist()) == untouched


def test_a_generator_may_be_given_later(make: Any) -> None:
    sampler = make(None)
    sampler.generator = np.random.default_rng(9)

    assert list(sampler) == list(make(9))


@pytest.mark.parametrize("generator", ["dice", 1.5, -1, object()])
def test_invalid_generator_is_refused(make: Any, generator: Any) -> None:
    with pytest.raises(ArgumentTypeError, match="generator should be"):
        make(generator)


def test_a_subclass_may_choose_where_fresh_numbers_come_from(make: Any) -> None:
    class Fixed(NumpyRandomness):
        @classmethod
        def fresh(cls) -> Fixed:
            return cls(np.random.default_rng(11))

    sampler = make(None)
    sampler.__class__ = type("Chosen", (type(sampler),), {"randomness": Fixed})

    assert list(sampler) == list(sampler) == list(make(11))


# SequentialSampler


def test_in_order() -> None:
    assert list(SequentialSampler("abcd")) == [0, 1, 2, 3]


def test_a_growing_dataset_is_as_long_as_it_is_when_a_pass_begins() -> None:
    data = [1, 2]
    sampler, running = SequentialSampler(data), iter(SequentialSampler(data))
    data.append(3)

    assert list(running) == [0, 1]
    assert (list(sampler), len(sampler)) == ([0, 1, 2], 3)


# RandomSampler


@given(st.integers(1, 20), st.integers(1, 70), st.integers(0, 5))
@settings(max_examples=50, deadline=None)
def test_more_samples_than_there_are_come_permutation_by_permutation(length: int, total: int, seed: int) -> None:
    indices = list(RandomSampler(range(length), num_samples=total, generator=seed))

    assert len(indices) == total
    for begin in range(0, total, length):
        part = indices[begin : begin + length]
        assert len(set(part)) == len(part)
        assert set(part) <= set(range(length))


def test_permutations_are_equally_likely() -> None:
    sampler = RandomSampler(range(3), generator=1)

    counts = collections.Counter(tuple(sampler) for _ in range(6000))

    assert len(counts) == 6
    assert all(850 < count < 1150 for count in counts.values())


def test_with_replacement_indices_are_equally_likely() -> None:
    counts = collections.Counter(RandomSampler(range(5), True, num_samples=10_000, generator=1))

    assert set(counts) == set(range(5))
    assert all(1850 < count < 2150 for count in counts.values())


def test_a_pass_over_grown_data_has_all_of_it() -> None:
    data = [0, 1]
    sampler = RandomSampler(data)
    data.append(2)

    assert (sorted(sampler), len(sampler), sampler.num_samples) == ([0, 1, 2], 3, 3)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((range(3), 0), ArgumentTypeError, "replacement should be a boolean value, but got replacement=0"),
        ((range(3), False, 0), ArgumentError, "num_samples should be a positive integer value, but got num_samples=0"),
        ((range(3), False, 1.0), ArgumentError, "but got num_samples=1.0"),
        ((range(3), False, True), ArgumentError, "but got num_samples=True"),
        (([],), ArgumentError, "but got num_samples=0"),
        (([], False, 3), ArgumentError, "num_samples=3 cannot be drawn from an empty data source"),
        (([], True, 3), ArgumentError, "num_samples=3 cannot be drawn from an empty data source"),
    ],
)
def test_random_samplers_that_cannot_be(arguments: tuple[Any, ...], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        RandomSampler(*arguments)


def test_data_that_have_gone_are_noticed() -> None:
    data = [1]
    sampler = RandomSampler(data, num_samples=3)
    data.clear()

    with pytest.raises(ArgumentError, match="empty data source"):
        iter(sampler)


# SubsetRandomSampler


def test_each_of_the_indices_comes_once() -> None:
    assert sorted(SubsetRandomSampler(["x", "y", "z"])) == ["x", "y", "z"]


def test_no_indices_are_an_empty_pass() -> None:
    assert list(SubsetRandomSampler([])) == []


# WeightedRandomSampler


@pytest.mark.parametrize("replacement", [True, False])
def test_indices_are_as_likely_as_their_weights_say(replacement: bool) -> None:
    sampler = WeightedRandomSampler([1, 0, 2, 5], 1, replacement, generator=1)

    counts = collections.Counter(next(iter(sampler)) for _ in range(8000))

    assert counts[1] == 0
    assert 850 < counts[0] < 1150
    assert 1850 < counts[2] < 2150
    assert 4800 < counts[3] < 5200


def test_second_draw_without_replacement_follows_the_remaining_weights() -> None:
    sampler = WeightedRandomSampler([6, 2, 1], 2, False, generator=1)

    counts = collections.Counter(tuple(sampler) for _ in range(9000))

    assert 3850 < counts[0, 1] < 4150  # 6/9 of 2/3
    assert 1850 < counts[0, 2] < 2150
    assert 130 < counts[2, 1] < 380  # 1/9 of 2/8


@given(st.lists(st.floats(0, 1e300), min_size=1, max_size=20).filter(any), st.data())
@settings(max_examples=100, deadline=None)
def test_without_replacement_no_index_comes_twice_nor_has_weight_zero(weights: list[float], data: st.DataObject) -> None:
    possible = {index for index, weight in enumerate(weights) if weight}
    count = data.draw(st.integers(1, len(possible)))

    indices = list(WeightedRandomSampler(weights, count, False, generator=data.draw(st.integers(0, 9))))

    assert len(set(indices)) == count
    assert set(indices) <= possible


@given(st.lists(st.floats(0, 1.7e308), min_size=1, max_size=20).filter(any), st.integers(0, 9))
@settings(max_examples=100, deadline=None)
def test_with_replacement_no_index_has_weight_zero(weights: list[float], seed: int) -> None:
    indices = set(WeightedRandomSampler(weights, 50, generator=seed))

    assert all(weights[index] > 0 for index in indices)


def test_there_may_be_more_weights_than_pytorch_allows() -> None:
    weights = np.zeros(2**24 + 2)
    weights[-1] = 1

    assert list(WeightedRandomSampler(weights, 2)) == [2**24 + 1, 2**24 + 1]


def test_weights_may_be_changed_between_passes() -> None:
    sampler = WeightedRandomSampler([1.0, 0.0], 2)
    sampler.weights[:] = 0, 1

    assert list(sampler) == [1, 1]


def test_weights_that_have_become_wrong_are_noticed() -> None:
    sampler = WeightedRandomSampler([1.0, 0.0], 2)
    sampler.weights[:] = np.nan

    with pytest.raises(ArgumentClashError, match="check the weights"):
        iter(sampler)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (([1, 2], 0), ArgumentError, "num_samples should be a positive integer value, but got num_samples=0"),
        (([1, 2], True), ArgumentError, "but got num_samples=True"),
        (([1, 2], 1, 1), ArgumentError, "replacement should be a boolean value, but got replacement=1"),
        (([[1, 2]], 1), ArgumentError, r"weights should be a 1d sequence but given weights have shape \(1, 2\)"),
        ((3.0, 1), ArgumentError, r"given weights have shape \(\)"),
        (([1, -1], 1), ArgumentClashError, "element < 0"),
        (([1, float("nan")], 1), ArgumentClashError, "`nan`"),
        (([1, float("inf")], 1), ArgumentClashError, "`inf`"),
        (([0, 0], 1), ArgumentClashError, "no weight is positive"),
        (([], 1), ArgumentClashError, "no weight is positive"),
        (([1, 2], 3, False), ArgumentClashError, "num_samples=3, and 2 of 2 weights are positive"),
        (([1, 0, 0], 2, False), ArgumentClashError, "num_samples=2, and 1 of 3 weights are positive"),
    ],
)
def test_weights_that_cannot_be_drawn_by(arguments: tuple[Any, ...], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        WeightedRandomSampler(*arguments)


# BatchSampler


@given(st.integers(0, 30), st.integers(1, 7), st.booleans())
@settings(max_examples=50, deadline=None)
def test_batches_are_the_indices_in_order(total: int, batch_size: int, drop_last: bool) -> None:
    sampler = BatchSampler(range(total), batch_size, drop_last)

    batches = list(sampler)

    indices = list(itertools.chain(*batches))
    assert indices == list(range(len(indices)))
    assert len(indices) == (total // batch_size * batch_size if drop_last else total)
    assert all(len(batch) == batch_size for batch in batches[:-1])
    assert len(sampler) == len(batches)


def test_no_index_is_taken_before_its_batch_is_asked_for() -> None:
    taken = []

    def indices() -> Iterator[int]:
        for index in range(10):
            taken.append(index)
            yield index

    batches = iter(BatchSampler(indices(), 3, False))
    assert taken == []
    next(batches)

    assert taken == [0, 1, 2]


def test_a_batch_may_be_of_anything() -> None:
    assert list(BatchSampler("abc", 2, False)) == [["a", "b"], ["c"]]


def test_the_length_of_batches_follows_the_sampler() -> None:
    data = list(range(4))
    sampler = BatchSampler(SequentialSampler(data), 2, False)
    data.append(4)

    assert len(sampler) == 3


def test_a_sampler_without_length_gives_batches_without_length() -> None:
    sampler = BatchSampler(iter([1, 2]), 2, False)

    with pytest.raises(TypeError, match="has no len"):
        len(sampler)


@pytest.mark.parametrize(
    ("batch_size", "drop_last", "message"),
    [
        (0, False, "batch_size should be a positive integer value, but got batch_size=0"),
        (-1, False, "but got batch_size=-1"),
        (True, False, "but got batch_size=True"),
        (2.0, False, "but got batch_size=2.0"),
        (2, 0, "drop_last should be a boolean value, but got drop_last=0"),
    ],
)
def test_batches_that_cannot_be(batch_size: Any, drop_last: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        BatchSampler(range(3), batch_size, drop_last)


# DistributedSampler


def shares(length: int, replicas: int, **options: Any) -> list[list[int]]:
    return [list(DistributedSampler(range(length), replicas, rank, **options)) for rank in range(replicas)]


def interleaved(parts: Iterable[list[int]]) -> list[int]:
    return [index for row in zip(*parts, strict=True) for index in row]


@given(st.integers(0, 30), st.integers(1, 8), st.booleans(), st.booleans())
@settings(max_examples=100, deadline=None)
def test_shares_together_are_the_dataset(length: int, replicas: int, shuffle: bool, drop_last: bool) -> None:
    parts = shares(length, replicas, shuffle=shuffle, drop_last=drop_last)

    whole = interleaved(parts)
    once = whole[:length]
    assert {len(part) for part in parts} == {len(DistributedSampler(range(length), replicas, 0, drop_last=drop_last))}
    assert len(set(once)) == len(once)
    assert len(whole) == (length // replicas if drop_last else -(-length // replicas)) * replicas
    if length:
        assert whole == [whole[position % length] for position in range(len(whole))]  # padded from the beginning
    if not shuffle:
        assert once == list(range(len(once)))


def test_each_epoch_has_an_order_of_its_own_and_all_ranks_agree_on_it() -> None:
    orders = []
    for epoch in range(3):
        parts = []
        for rank in (0, 1):
            sampler = DistributedSampler(range(30), 2, rank, seed=4)
            sampler.set_epoch(epoch)
            parts.append(list(sampler))
        orders.append(tuple(interleaved(parts)))

    assert len(set(orders)) == 3
    assert {tuple(sorted(order)) for order in orders} == {tuple(range(30))}


def test_seeds_and_epochs_are_not_mistaken_for_one_another() -> None:
    """In PyTorch epoch 1 of seed 0 is epoch 0 of seed 1."""
    one, other = DistributedSampler(range(30), 1, 0, seed=0), DistributedSampler(range(30), 1, 0, seed=1)
    one.set_epoch(1)

    assert list(one) != list(other)


def test_negative_seeds_are_seeds() -> None:
    assert sorted(DistributedSampler(range(9), 1, 0, seed=-5)) == list(range(9))


def test_without_set_epoch_the_order_stays() -> None:
    sampler = DistributedSampler(range(30), 1, 0)

    assert list(sampler) == list(sampler)


def test_a_pass_keeps_the_epoch_that_it_began_with() -> None:
    sampler = DistributedSampler(range(30), 1, 0)
    expected = list(sampler)
    indices = iter(sampler)
    begun = [next(indices)]

    sampler.set_epoch(1)

    assert begun + list(indices) == expected


def test_the_dataset_may_grow() -> None:
    data = list(range(4))
    sampler = DistributedSampler(data, 2, 1, shuffle=False)
    data += [4, 5]

    assert (list(sampler), len(sampler), sampler.num_samples, sampler.total_size) == ([1, 3, 5], 3, 3, 6)


@pytest.mark.parametrize(("replicas", "rank", "last"), [(3, 3, 2), (3, -1, 2), (0, 0, -1)])
def test_wrong_ranks_are_refused(replicas: int, rank: int, last: int) -> None:
    message = rf"Invalid rank {rank}, rank should be in the interval \[0, {last}\]"

    with pytest.raises(ArgumentError, match=message):
        DistributedSampler(range(3), replicas, rank)


@pytest.mark.parametrize(
    ("distributed", "message"),
    [
        (None, "Requires distributed package to be available, or num_replicas to be given"),
        (SimpleNamespace(is_available=lambda: False), "Requires distributed package to be available"),
        (
            SimpleNamespace(is_available=lambda: True, is_initialized=lambda: False),
            "Default process group has not been initialized, please make sure to call init_process_group. Or give num_rep",
        ),
    ],
)
def test_without_a_process_group_it_has_to_be_told(monkeypatch: pytest.MonkeyPatch, distributed: Any, message: str) -> None:
    monkeypatch.setitem(sys.modules, "torch.distributed", distributed)

    with pytest.raises(ArgumentClashError, match=message):
        DistributedSampler(range(3))


def test_with_a_process_group_it_knows_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    group = SimpleNamespace(
        is_available=lambda: True, is_initialized=lambda: True, get_world_size=lambda: 3, get_rank=lambda: 2
    )
    monkeypatch.setitem(sys.modules, "torch.distributed", group)

    assert list(DistributedSampler(range(6), shuffle=False)) == [2, 5]
    assert list(DistributedSampler(range(6), rank=0, shuffle=False)) == [0, 3]
