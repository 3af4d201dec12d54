"""Batches of similar lengths."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import pytest

from dali_like.data import DataLoader, LengthBatchSampler
from dali_like.errors import ArgumentError, CheckpointError

LENGTHS = np.random.default_rng(0).integers(1, 1000, 1003)


def sampler_of(rank: int = 0, ranks: int = 1, batch_size: int = 8, **options: Any) -> LengthBatchSampler:
    return LengthBatchSampler(LENGTHS, batch_size, seed=3, shard_id=rank, num_shards=ranks, **options)


def padding_of(batches: list[list[int]]) -> float:
    """Return the share of padding in batches."""
    kept = sum(LENGTHS[batch].sum() for batch in batches)
    return float(1 - kept / sum(LENGTHS[batch].max() * len(batch) for batch in batches))


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("ranks", [1, 3])
def test_ranks_together_have_each_sample_once(ranks: int, shuffle: bool) -> None:
    found = [sampler_of(rank, ranks, shuffle=shuffle, shard_rest="uneven") for rank in range(ranks)]
    assert sorted(itertools.chain(*itertools.chain(*found))) == list(range(len(LENGTHS)))


def test_padding_becomes_less_with_larger_windows() -> None:
    shares = [padding_of(list(sampler_of(window=window))) for window in (1, 8, 64)]
    assert shares[0] > 0.4
    assert shares[0] > shares[1] > shares[2]
    assert shares[2] < 0.03


def test_batches_of_a_window_come_in_random_order_of_lengths() -> None:
    means = [LENGTHS[batch].mean() for batch in sampler_of()]
    assert abs(np.corrcoef(means[:64], range(64))[0, 1]) < 0.5


def test_epochs_have_other_batches_and_seeds_repeat_them() -> None:
    sampler = sampler_of()
    first = list(sampler)
    sampler.set_epoch(1)
    second = list(sampler)
    assert first != second
    assert {frozenset(batch) for batch in first} != {frozenset(batch) for batch in second}
    assert first == list(sampler_of())


def test_ranks_have_similar_lengths_in_an_iteration() -> None:
    ranks = [list(sampler_of(rank, 4)) for rank in range(4)]
    for step in zip(*ranks, strict=True):
        sums = [LENGTHS[batch].sum() for batch in step]
        assert max(sums) <= 1.1 * min(sums) + 8


def test_dropped_samples_are_of_all_lengths() -> None:
    sampler = sampler_of(batch_size=500)
    dropped = []
    for epoch in range(50):
        sampler.set_epoch(epoch)
        dropped += list(LENGTHS[list(set(range(len(LENGTHS))) - set(itertools.chain(*sampler)))])
    assert len(dropped) == 150
    assert 0.8 < np.mean(dropped) / LENGTHS.mean() < 1.2


def test_padded_epochs_begin_again_with_the_first_samples() -> None:
    ranks = [list(sampler_of(rank, 3, shard_rest="pad")) for rank in range(3)]
    assert {len(batch) for batch in itertools.chain(*ranks)} == {8}
    assert set(itertools.chain(*itertools.chain(*ranks))) == set(range(len(LENGTHS)))


@pytest.mark.parametrize(("ranks", "batch_size"), [(4, 4), (1, 16)])
def test_states_continue_on_other_numbers_of_ranks(ranks: int, batch_size: int) -> None:
    iterators = [iter(sampler_of(rank, 2)) for rank in range(2)]
    for _ in range(5):
        for iterator in iterators:
            next(iterator)
    state = json.loads(json.dumps(iterators[0].state_dict()))
    expected = [sorted(itertools.chain(*step)) for step in zip(*iterators, strict=True)]

    others = [iter(sampler_of(rank, ranks, batch_size)) for rank in range(ranks)]
    for other in others:
        other.load_state_dict(state)
    assert [sorted(itertools.chain(*step)) for step in zip(*others, strict=True)] == expected


def test_loaders_resume_behind_the_batch_of_the_state() -> None:
    data = np.arange(len(LENGTHS))
    loader = DataLoader(data, batch_sampler=sampler_of())
    batches = iter(loader)
    for _ in range(7):
        next(batches)
    state = loader.state_dict()
    rest = [batch.tolist() for batch in batches]

    resumed = DataLoader(data, batch_sampler=sampler_of())
    resumed.load_state_dict(state)
    assert [batch.tolist() for batch in resumed] == rest


def test_states_of_other_windows_are_refused() -> None:
    state = iter(sampler_of(window=8)).state_dict()
    with pytest.raises(CheckpointError, match="with window=8, and this has window=64"):
        iter(sampler_of()).load_state_dict(state)


@pytest.mark.parametrize("lengths", [["a", "b"], [[1, 2]], 5])
def test_lengths_that_are_not_one_number_a_sample_are_refused(lengths: Any) -> None:
    with pytest.raises(ArgumentError, match="lengths should have one number for each sample"):
        LengthBatchSampler(lengths, 2)
