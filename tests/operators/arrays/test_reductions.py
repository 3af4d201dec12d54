"""Reductions: general properties and placement.

tests/parity/test_reductions.py compares the results with DALI.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as numpy_st

from dali_like import fn, ops, types
from dali_like.errors import AxisError
from tests.operators.running import WAYS, batches, run

IMAGES = [np.arange(24, dtype=np.uint8).reshape(2, 4, 3) + i for i in range(4)]


@pytest.mark.parametrize("way", WAYS)
def test_the_same_in_threads_and_in_workers(way):
    def define(image):
        mean = fn.reductions.mean(image, axis_names="HW", keep_dims=True)
        deviation = fn.reductions.std_dev(image, mean, axis_names="HW", keep_dims=True)
        return [(image - mean) / deviation, fn.reductions.max(image, axes=-1)]

    ((normal, largest),) = batches(define, IMAGES, layouts=["HWC"], way=way)

    images = np.stack(IMAGES).astype(np.float64)
    expected = (images - images.mean((1, 2), keepdims=True)) / images.std((1, 2), keepdims=True)
    np.testing.assert_allclose(normal.as_array(), expected, rtol=1e-6)
    np.testing.assert_array_equal(largest.as_array(), np.max(IMAGES, axis=-1), strict=True)
    assert (normal.layout(), largest.layout()) == ("HWC", "HW")


@given(
    numpy_st.arrays(st.sampled_from([np.uint8, np.int16, np.int32]), numpy_st.array_shapes(max_dims=3, max_side=4)),
    st.data(),
)
@settings(max_examples=40, deadline=None)
def test_any_dimensions_of_integers(array, data):
    """Sums are exact, and means are rounded once."""
    axes = data.draw(st.lists(st.integers(0, array.ndim - 1), unique=True))
    keep_dims = data.draw(st.booleans())

    def define(node):
        given = {"axes": axes, "keep_dims": keep_dims}
        return [fn.reductions.sum(node, **given), fn.reductions.mean(node, **given)]

    ((total, mean),) = run(define, [array])

    expected = array.astype(object).sum(tuple(axes), keepdims=keep_dims)
    count = math.prod(array.shape[axis] for axis in axes)
    assert np.array_equal(total[0], np.asarray(expected, total[0].dtype))
    assert total[0].shape == np.shape(expected)
    means = [np.float32(float(Fraction(int(number), count))) for number in np.ravel(expected)]
    assert mean[0].ravel().tolist() == means


@pytest.mark.parametrize(
    ("dtype", "total", "mean"),
    [("?", "u8", "f4"), ("f2", "f4", "f4"), ("f8", "f8", "f8")],
    ids=["BOOL", "FLOAT16", "FLOAT64"],
)
def test_types_that_dali_refuses(dtype, total, mean):
    array = np.array([1, 0, 1], dtype)

    def define(node):
        reductions = fn.reductions
        return [reductions.sum(node), reductions.mean(node), reductions.max(node), reductions.variance(node, 0.5)]

    ((sums,), (means,), (most,), (variances,)) = run(define, [array])[0]

    assert (sums, means, most, variances) == (2, means.dtype.type(2 / 3), 1, 0.25)
    assert [result.dtype.str[1:] for result in (sums, means, most, variances)] == [total, mean, array.dtype.str[1:], mean]


def test_many_numbers_lose_nothing():
    """A sum in FLOAT would stop at 2**24."""
    ((total, mean),) = run(
        lambda node: [fn.reductions.sum(node, dtype=types.FLOAT64), fn.reductions.mean(node)],
        [np.ones(2**24 + 2, np.float32)],
    )

    assert (total[0], mean[0]) == (2**24 + 2, 1)


def test_a_dimension_that_no_image_has_is_refused_when_the_graph_is_made():
    image = fn.external_source(name="x", layout="HWC")

    with pytest.raises(AxisError, match=r"fn.reductions.min: axes has 3, but axes are numbered from -3 to 2"):
        fn.reductions.min(image, axes=3)


def test_classes_have_the_names_of_dali():
    assert {name for name in dir(ops.reductions) if not name.startswith("_")} == {
        *("Max", "Mean", "MeanSquare", "Min", "RMS", "StdDev", "Sum", "Variance")
    }
