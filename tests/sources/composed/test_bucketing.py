"""Batches of similar length, batches within a budget, and batches of a fixed size."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dali_like.data import ComposedDataset, jagged_collate
from dali_like.errors import ArgumentError, EmptyFilterError, SampleError, SampleTypeError
from tests.sources.composed.resuming import assert_resumes

NUMBERS = st.lists(st.integers(0, 12), max_size=30)


def identity(number: Any) -> Any:
    return number


def composed(elements: Any, shards: int = 1) -> ComposedDataset:
    return ComposedDataset.source(elements).with_options(shards=shards)


# Buckets


@settings(max_examples=80, deadline=None)
@given(lengths=NUMBERS, block=st.integers(1, 12), shards=st.integers(1, 3), rest=st.sampled_from(["keep", "drop"]))
def test_buckets_have_batches_of_similar_length(lengths: list[int], block: int, shards: int, rest: str) -> None:
    sizes = [4, 3, 2]
    found = list(composed(lengths, shards).bucket(identity, [4, 8], sizes, block=block, rest=rest))
    expected: Counter[tuple[int, ...]] = Counter()
    for shard in range(shards):
        mine = lengths[shard::shards]
        for begin in range(0, len(mine), block):
            for bucket, size in enumerate(sizes):
                inside = [n for n in mine[begin : begin + block] if min(n // 4, 2) == bucket]
                expected.update(tuple(inside[i : i + size]) for i in range(0, len(inside), size))
    if rest == "drop":
        expected = Counter({batch: n for batch, n in expected.items() if len(batch) == sizes[min(batch[0] // 4, 2)]})
    assert Counter(map(tuple, found)) == expected


@settings(max_examples=30, deadline=None)
@given(lengths=st.lists(st.integers(0, 12), max_size=14), padded=st.booleans())
def test_batches_resume_at_each_batch(lengths: list[int], padded: bool) -> None:
    dataset = composed(lengths, 2)
    assert_resumes(dataset.bucket(identity, [4, 8], [3, 2, 1], block=4))
    assert_resumes(dataset.batch_by_budget(11, identity, block=4, padded=padded))


def test_dropping_all_batches_of_an_endless_stream_is_an_error() -> None:
    dataset = composed([1, 2]).repeat().bucket(identity, [4], [3, 3], block=2, rest="drop")
    with pytest.raises(EmptyFilterError, match=r"no outputs of 1000 blocks in a row in shard 0\..*larger block="):
        next(iter(dataset))


def test_batches_of_a_block_come_in_an_order_by_seed() -> None:
    def batches(seed: int) -> list[Any]:
        return list(composed(range(30)).with_options(seed=seed).bucket(identity, [10, 20], [1, 1, 1]))

    assert batches(1) == batches(1) != batches(2)
    assert sorted(batches(1)) == sorted(batches(2))


# Budgets


@settings(max_examples=80, deadline=None)
@given(
    costs=NUMBERS,
    block=st.integers(1, 12),
    shards=st.integers(1, 3),
    padded=st.booleans(),
    most=st.none() | st.integers(1, 3),
)
def test_batches_stay_within_the_budget(costs: list[int], block: int, shards: int, padded: bool, most: int | None) -> None:
    batches = list(composed(costs, shards).batch_by_budget(12, identity, block=block, padded=padded, most=most))
    assert all((max(batch) * len(batch) if padded else sum(batch)) <= 12 for batch in batches)
    assert all(0 < len(batch) <= (most or block) for batch in batches)
    assert sorted(cost for batch in batches for cost in batch) == sorted(costs)


def test_batches_fill_the_budget() -> None:
    assert sorted(composed([5, 6, 4, 5]).batch_by_budget(10, identity)) == [[5, 5], [6, 4]]
    assert sorted(composed([5, 1, 4, 1, 1]).batch_by_budget(10, identity, padded=True)) == [[1, 1, 1], [4, 5]]


def test_costs_may_be_fractions_and_numbers_of_numpy() -> None:
    costs = [np.uint8(200), 55.25, np.float32(0.5), True]
    (batch,) = composed(costs).batch_by_budget(256.75, identity)
    assert batch == costs
    batches = composed([np.uint8(200)] * 3).batch_by_budget(400, identity, padded=True)
    assert sorted(map(len, batches)) == [1, 2]


def test_an_element_above_the_budget_is_an_error_or_dropped() -> None:
    dataset = composed([3, 12, 4])
    with pytest.raises(SampleError, match=r'has the cost 12, and a batch the budget 10\. Pass too_large="drop"') as caught:
        next(iter(dataset.batch_by_budget(10, identity)))
    assert "raised by stage batch_by_budget(10, identity, block=1024, most=None)" in caught.value.__notes__[0]
    assert list(dataset.batch_by_budget(10, identity, too_large="drop")) == [[3, 4]]


def test_dropping_all_elements_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dali_like.sources.composed.dataset._MOST_REJECTED", 3)
    with pytest.raises(EmptyFilterError, match=r"filter\(WithinBudget\)"):
        next(iter(composed([9, 9, 9]).batch_by_budget(8, identity, too_large="drop")))


# Batches of a fixed size


def test_batches_are_stacked() -> None:
    dataset = ComposedDataset.source(range(5)).batch(2)
    assert [batch.tolist() for batch in dataset] == [[0, 1], [2, 3], [4]]
    assert len(dataset) == 3
    assert dataset[1].tolist() == [2, 3]
    assert len(ComposedDataset.source(range(5)).batch(2, drop_remainder=True)) == 2


def test_batches_can_be_collated_otherwise() -> None:
    dataset = ComposedDataset.source([[1], [2, 3]])
    assert list(dataset.batch(2, collate=list)) == [[[1], [2, 3]]]
    (batch,) = dataset.map(np.array).batch(2, collate=jagged_collate)
    assert batch.values.tolist() == [1, 2, 3]


# Errors


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda d: d.bucket(len, [], [1]), r"boundaries should ascend, but got \[\]"),
        (lambda d: d.bucket(len, [4, 4], [1, 1, 1]), r"boundaries should ascend, but got \[4, 4\]"),
        (lambda d: d.bucket(len, [4], [1]), "1 boundaries make 2 buckets, but batch_sizes has 1: pass one for each"),
        (lambda d: d.bucket(len, [4], [1, 0]), "batch_sizes must be a positive integer"),
        (lambda d: d.bucket(len, [4], [1, 1], rest="pad"), "rest must be 'keep' or 'drop', not 'pad'"),
        (lambda d: d.bucket(4, [4], [1, 1]), "a stage needs a function, but got"),
        (lambda d: d.batch_by_budget(0, len), "budget should be positive, but got 0"),
        (lambda d: d.batch_by_budget(4, len, too_large="alone"), "too_large must be 'error' or 'drop', not 'alone'"),
        (lambda d: d.batch_by_budget(4, len, most=0), "most must be a positive integer"),
        (lambda d: d.batch(0), "size must be a positive integer"),
        (lambda d: d.batch(2, collate=3), "a stage needs a function, but got"),
    ],
)
def test_wrong_arguments_are_refused(call: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        call(composed([]))


@pytest.mark.parametrize(
    ("value", "kind", "message"),
    [
        (None, SampleTypeError, "identity should return a number, but it returned a NoneType"),
        (-1, SampleError, "identity should return a number from 0 on, but it returned -1"),
        (float("nan"), SampleError, "but it returned nan"),
    ],
)
def test_wrong_lengths_are_errors_that_name_the_place(value: Any, kind: type[Exception], message: str) -> None:
    for dataset in (composed([value]).bucket(identity, [4], [1, 1]), composed([value]).batch_by_budget(4, identity)):
        with pytest.raises(kind, match=message) as caught:
            next(iter(dataset))
        assert "the input before 1 in shard 0" in caught.value.__notes__[0]
