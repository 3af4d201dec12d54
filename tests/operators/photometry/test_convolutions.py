"""Filters: properties of windows, and refused inputs. tests/parity has the comparison with DALI."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("cv2")

from dali_like import fn, types
from dali_like.errors import ArgumentError, SampleError
from dali_like.graph.language.operator_interface import OperatorCall
from dali_like.operators.machinery.description import description_of
from dali_like.types import SampleInfo
from tests.operators.running import WAYS, run

NOISE = np.random.default_rng(1).integers(0, 256, (2, 5, 6, 7, 3), np.uint8)
SHAPES = {"HW": (5, 6), "HWC": (5, 6, 3), "FCHW": (2, 3, 5, 6), "DHW": (4, 5, 6), "FDHWC": (2, 4, 5, 6, 2)}


def filtered(data: np.ndarray, layout: str, window: Any, **arguments: Any) -> np.ndarray:
    """Return the filtered data, without a pipeline."""
    bound = description_of("experimental.filter").bind([layout, ""], arguments)
    call = OperatorCall(SampleInfo(0, 0, 0, 0), [layout, ""])
    return bound.compute(call, [data, np.asarray(window, np.float32)], {})[0]


@pytest.mark.parametrize("border", ["reflect_101", "reflect_1001", "wrap", "clamp", "constant"])
@pytest.mark.parametrize("layout", SHAPES)
@pytest.mark.parametrize("dtype", ["uint8", "int32", "uint64", "float16", "float32", "float64", "bool"])
def test_a_point_moves_the_data(layout, dtype, border):
    """A window with a single weight in front of the anchor shifts by one element along the last spatial axis."""
    data = np.random.default_rng(1).integers(0, 100, SHAPES[layout]).astype(dtype)
    width = layout.index("W")
    window = np.zeros((3,) * (len(layout.replace("F", "").replace("C", ""))))
    window[(*(1,) * (window.ndim - 1), 0)] = 1

    result = filtered(data, layout, window, border=border)

    first, *others = np.split(result, [1], axis=width)
    expected = np.split(data, [1], axis=width)[0]
    at = {"reflect_101": 1, "reflect_1001": 0, "wrap": data.shape[width] - 1, "clamp": 0, "constant": None}[border]
    expected = np.zeros_like(first) if at is None else np.take(data, [at], width)
    np.testing.assert_array_equal(first, expected, strict=True)
    np.testing.assert_array_equal(others[0], np.delete(data, -1, width), strict=True)


@pytest.mark.parametrize("way", WAYS)
def test_in_pipelines(way):
    def define(image: Any) -> Any:
        return fn.experimental.filter(image, np.ones((3, 3), np.float32), dtype=types.FLOAT), fn.laplacian(image)

    images = [NOISE[0, 0], np.full((4, 5, 3), 7, np.uint8)]
    ((sums, laplacians),) = run(define, images, layouts=["HWC"], way=way)

    np.testing.assert_array_equal(sums[1], np.full((4, 5, 3), 63, np.float32))
    np.testing.assert_array_equal(laplacians[1], np.zeros((4, 5, 3), np.uint8))
    np.testing.assert_array_equal(sums[0][1, 1], NOISE[0, 0, :3, :3].sum((0, 1)).astype(np.float32))


@pytest.mark.parametrize("shape", [(0, 5, 3), (5, 0, 3), (4, 5, 0)])
def test_data_without_elements(shape):
    assert filtered(np.zeros(shape, np.uint8), "HWC", np.ones((3, 3))).shape == shape


def test_valid_windows_of_volumes():
    volume = NOISE[..., 0].astype(np.float32)

    result = filtered(volume, "FDHW", np.ones((2, 3, 4)), mode="valid")

    expected = np.lib.stride_tricks.sliding_window_view(volume, (2, 3, 4), (1, 2, 3)).sum((-3, -2, -1))
    np.testing.assert_allclose(result, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("match", "layout", "window", "arguments"),
    [
        ("larger than the data", "HWC", np.ones((6, 3)), {"mode": "valid"}),
        ("as many dimensions", "DHW", np.ones((3, 3)), {}),
        ("must have two or three axes", "WC", np.ones(3), {}),
        ("channel-first and channel-last", "HCW", np.ones((3, 3)), {}),
        ("anchor must lie within the filter", "HWC", np.ones((3, 3)), {"anchor": 3}),
    ],
)
def test_wrong_inputs(match, layout, window, arguments):
    with pytest.raises(SampleError, match=match):
        filtered(NOISE[0, 0, 0] if len(layout) == 2 else NOISE[0, 0, :5], layout, window, **arguments)


def test_other_result_types():
    with pytest.raises(ArgumentError, match="dtype must be FLOAT or that of the input, uint8, not int16"):
        filtered(NOISE[0, 0], "HWC", np.ones((3, 3)), dtype=types.INT16)


def test_laplacian_of_a_paraboloid():
    """The second derivatives of x ** 2 + 3 * y ** 2 are 2 and 6 everywhere."""
    y, x = np.mgrid[:9, :11].astype(np.float32)
    bound = description_of("laplacian").bind(["HW"], {"normalized_kernel": True, "window_size": 5})
    call = OperatorCall(SampleInfo(0, 0, 0, 0), ["HW"])

    result = bound.compute(call, [x**2 + 3 * y**2], {})[0]

    np.testing.assert_allclose(result[2:-2, 2:-2], 8, rtol=1e-6)
