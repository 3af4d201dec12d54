"""Samples of a batch in another order: the same as DALI's; random orders have the same distribution."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import dali_like
from tests.parity.alike import DALI, OURS, assert_both_refuse
from tests.parity.side_by_side import assert_alike

SAMPLES = [np.full((i + 1, 2), i, np.float32) for i in range(4)]


def test_permuted_batches():
    def define(library: Any, data: Any, numbers: Any) -> dict[str, Any]:
        permute = library.fn.permute_batch
        return {
            "list": permute(data, indices=[3, 2, 1, 0]),
            "repeated": permute(data, indices=[1, 1, 3, 1]),
            "node": permute(data, indices=numbers),
            "behind": permute(data + 1, indices=numbers),
        }

    assert_alike(define, SAMPLES, [np.int32(number) for number in (1, 1, 3, 0)], layouts=["HW"])


@pytest.mark.parametrize(
    ("match", "indices"),
    [
        ("a number for each of the 4 samples", [3, 2, 1]),
        ("a number for each of the 4 samples", 2),
        ("numbered from 0 to 3", [0, 1, 2, 4]),
        ("indices must be", [0, 1, 2, -1]),
        ("needs the argument indices", None),
    ],
)
def test_wrong_indices(match, indices):
    given = {} if indices is None else {"indices": indices}

    assert_both_refuse(lambda library, data: library.fn.permute_batch(data, **given), SAMPLES, match=match)


def test_wrong_indices_of_samples():
    def permuted(library: Any, data: Any, numbers: Any) -> Any:
        return library.fn.permute_batch(data, indices=numbers)

    assert_both_refuse(permuted, SAMPLES, [np.int32(i + 1) for i in range(4)], match="numbered from 0 to 3")
    assert_both_refuse(permuted, SAMPLES, [np.int32([i, i]) for i in range(4)], match="one number for each sample")


COUNT = 1500


def drawn(library: Any, batch_size: int, **arguments: Any) -> Counter[tuple[int, ...]]:
    pipe = library.Pipeline(batch_size=batch_size, num_threads=1, device_id=None, seed=3)
    with pipe:
        pipe.set_outputs(library.fn.batch_permutation(**arguments))
    pipe.build()
    found: Counter[tuple[int, ...]] = Counter()
    for _ in range(COUNT):
        (batch,) = pipe.run()
        numbers = [np.array(batch.at(i)) for i in range(len(batch))]
        assert {(number.dtype.name, number.shape) for number in numbers} == {("int32", ())}
        found[tuple(map(int, numbers))] += 1
    if library is dali_like:
        pipe.close()
    return found


@pytest.mark.parametrize(
    ("arguments", "kinds"),
    [
        ({}, 6),
        ({"no_fixed_points": True}, 2),
        ({"allow_repetitions": True}, 27),
        ({"allow_repetitions": True, "no_fixed_points": True}, 8),
    ],
)
def test_random_orders(arguments, kinds):
    """Each possible order is drawn about equally often."""
    for library in (DALI, OURS):
        found = drawn(library, 3, **arguments)

        assert len(found) == kinds
        expected = COUNT / kinds
        assert sum((count - expected) ** 2 / expected for count in found.values()) < kinds - 1 + 6 * (2 * kinds) ** 0.5


@pytest.mark.parametrize("arguments", [{}, {"no_fixed_points": True}, {"allow_repetitions": True, "no_fixed_points": True}])
def test_a_batch_of_one_sample_stays(arguments):
    def define(library: Any) -> dict[str, Any]:
        return {"it": library.fn.batch_permutation(**arguments)}

    assert_alike(define)
