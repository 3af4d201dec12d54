"""Arrays with the same value everywhere, in threads and in workers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dali_like import fn, types
from dali_like.errors import ArgumentError, SampleError
from tests.operators.running import WAYS, batches, run

ROWS = [np.arange(3, dtype=np.float32) * i for i in range(2)]


@pytest.mark.parametrize("way", WAYS)
def test_filled_arrays(way: str) -> None:
    def define(row: Any) -> Any:
        return (
            fn.zeros(shape=[2, 3]),
            fn.ones(shape=row.shape(), dtype=types.FLOAT16),
            fn.full(row, shape=[2, 3]),
            fn.full_like(row, 7) + row,
        )

    for outputs in run(define, ROWS, way=way, iterations=2):
        for row, zeros, ones, full, like in zip(ROWS, *outputs, strict=True):
            np.testing.assert_array_equal(zeros, np.zeros((2, 3), np.int32), strict=True)
            np.testing.assert_array_equal(ones, np.ones(3, np.float16), strict=True)
            np.testing.assert_array_equal(full, np.stack([row, row]), strict=True)
            np.testing.assert_array_equal(like, row + 7, strict=True)


@pytest.mark.parametrize("way", WAYS)
def test_filled_arrays_have_the_given_layout(way: str) -> None:
    def define(row: Any) -> Any:
        return (
            fn.zeros(shape=[2, 3], layout="HW"),
            fn.ones(shape=row.shape(), layout="C"),
            fn.full(row, shape=[2, 3], layout="HW"),
            fn.ones(shape=[2, 3]),
        )

    (outputs,) = batches(define, ROWS, way=way)

    assert [output.layout() for output in outputs] == ["HW", "C", "HW", ""]


def test_layout_of_another_length_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"fn.zeros: the layout 'HWC' must have as many letters as the shape \[2, 3\]"):
        fn.zeros(shape=[2, 3], layout="HWC")
    with pytest.raises(ArgumentError, match=r"fn.ones: the layout 'C' must have as many letters as the shape \[\]"):
        fn.ones(layout="C")
    with pytest.raises(SampleError, match=r"the layout 'HW' must have as many letters as the shape \[3\]"):
        run(lambda row: fn.ones(shape=row.shape(), layout="HW"), ROWS)


def test_values_that_do_not_fit() -> None:
    with pytest.raises(SampleError, match=r"fill_value of shape \(3,\) cannot be broadcast to the shape \(2, 2\)"):
        run(lambda row: fn.full(row, shape=[2, 2]), ROWS)
