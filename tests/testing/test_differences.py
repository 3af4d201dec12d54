from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from dali_like.testing import object_samples, ragged_arrays
from dali_like.testing.differences import first_difference

NAN = float("nan")


class Identity:
    """Has no ``__eq__`` of its own."""


@pytest.mark.parametrize(
    ("expected", "got", "text"),
    [
        (1, 2, "expected 1, got 2"),
        (1, True, "expected 1 (int), got True (bool)"),
        ([1], (1,), "expected [1] (list), got (1,) (tuple)"),
        ([1, 2], [1], "expected 2 items [0] [1], got 1 items [0]"),
        ({"a": [1, 2]}, {"a": [1, 3]}, "['a'][1]: expected 2, got 3"),
        ({"a": 1}, {"b": 1}, "expected 1 items ['a'], got 1 items ['b']"),
        (0.0, -0.0, f"expected {np.float64(0.0)!r}, got {np.float64(-0.0)!r}"),
        (np.int32(1), np.int64(1), f"expected {np.int32(1)!r} (int32), got {np.int64(1)!r} (int64)"),
        (np.zeros(2, "f4"), np.zeros(2, "f8"), "expected dtype float32, got float64"),
        (np.zeros((2, 1)), np.zeros(2), "expected shape (2, 1), got (2,)"),
        (np.array([[1, 2], [3, 4]]), np.array([[1, 2], [3, 5]]), f"[1, 1]: expected {np.int64(4)!r}, got {np.int64(5)!r}"),
        (np.array([None, 1]), np.array([None, 2]), "[1]: expected 1, got 2"),
        (ValueError("a"), ValueError("b"), ".args[0]: expected 'a', got 'b'"),
    ],
)
def test_the_first_difference_is_named(expected: Any, got: Any, text: str) -> None:
    assert first_difference(expected, got) == text


@pytest.mark.parametrize("value", [NAN, [NAN, math.inf], np.array([NAN, 1.0]), "text", {"a": (1, None)}, KeyError(1)])
def test_equal_bits_are_the_same(value: Any) -> None:
    assert first_difference(value, copy.deepcopy(value)) is None


def test_a_transposed_array_is_compared_by_its_elements() -> None:
    array = np.arange(6).reshape(2, 3)

    assert first_difference(array.T, np.ascontiguousarray(array.T)) is None
    text = f"[0, 0]: expected {np.int64(0)!r}, got {np.int64(1)!r}"
    assert first_difference(array.T, array.T + np.eye(3, 2, dtype=int)) == text


def test_objects_without_equality_name_the_remedy() -> None:
    assert str(first_difference(Identity(), Identity())).endswith("; give Identity a method __eq__")


@given(object_samples())
def test_samples_of_the_strategy_can_be_pickled_and_compared(sample: Any) -> None:
    assert first_difference(sample, pickle.loads(pickle.dumps(sample))) is None


@given(ragged_arrays(dtypes=["float32", "uint8"], min_ndim=1, max_ndim=2, max_side=3))
def test_arrays_of_the_strategy_are_within_its_limits(array: Any) -> None:
    assert array.dtype in (np.float32, np.uint8)
    assert 1 <= array.ndim <= 2
    assert max(array.shape) <= 3
