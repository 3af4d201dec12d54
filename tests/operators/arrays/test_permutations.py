"""Samples of a batch in another order, in threads and behind workers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dali_like import fn
from dali_like.errors import SampleError
from tests.operators.running import WAYS, run

SAMPLES = [np.full((i + 1, 2), i, np.float32) for i in range(4)]


@pytest.mark.parametrize("way", WAYS)
def test_samples_follow_their_numbers(way: str) -> None:
    def define(data: Any) -> Any:
        numbers = fn.batch_permutation(no_fixed_points=True)
        return numbers, fn.permute_batch(data + 1, indices=numbers), fn.permute_batch(data, indices=[3, 3, 0, 1]) + 1

    for numbers, permuted, listed in run(define, SAMPLES, way=way, iterations=3):
        assert sorted(map(int, numbers)) == [0, 1, 2, 3]
        assert all(int(number) != i for i, number in enumerate(numbers))
        for number, sample in zip(numbers, permuted, strict=True):
            np.testing.assert_array_equal(sample, SAMPLES[int(number)] + 1)
        assert [len(sample) for sample in listed] == [4, 4, 1, 2]


def test_random_orders_differ_from_batch_to_batch_and_can_be_repeated() -> None:
    def orders(seed: int) -> list[list[int]]:
        batches = run(fn.batch_permutation, batch_size=8, iterations=4, seed=seed)
        return [[int(number) for number in numbers] for (numbers,) in batches]

    assert orders(1) == orders(1) != orders(2)
    assert len({tuple(order) for order in orders(1)}) == 4


def test_indices_for_another_number_of_samples() -> None:
    with pytest.raises(SampleError, match="a number for each of the 4 samples of the batch, not 3"):
        run(lambda data: fn.permute_batch(data, indices=[0, 1, 2]), SAMPLES)
