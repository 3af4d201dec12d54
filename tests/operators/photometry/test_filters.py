"""Blurring, JPEG artifacts and erasing: rejected arguments, and general properties. tests/parity has the rest."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dali_like import fn, types
from dali_like.errors import ArgumentClashError, ArgumentError, SampleError
from dali_like.graph.language.operator_interface import OperatorCall
from dali_like.operators.machinery.description import description_of
from dali_like.types import SampleInfo
from tests.operators.running import WAYS, run

NOISE = np.random.default_rng(1).integers(0, 256, (20, 30, 3), np.uint8)


def apply(path: str, data: np.ndarray, layout: str, **arguments: Any) -> np.ndarray:
    """Return the operator's result for one sample, without a pipeline."""
    bound = description_of(path).bind([layout], arguments)
    return bound.compute(OperatorCall(SampleInfo(0, 0, 0, 0), [layout]), [data], {})[0]


class TestBlurring:
    @settings(max_examples=30, deadline=None)
    @given(
        st.sampled_from(["HWC", "CHW", "FHWC", "DHWC", "CDHW", "HW", "W", "WC"]),
        st.sampled_from(["uint8", "int16", "uint32", "float16", "float32"]),
        st.integers(1, 7),
        st.floats(0.1, 4),
    )
    def test_constant_data_stay_constant(self, layout, dtype, size, sigma):
        data = np.full([size + i for i in range(len(layout))], 100, dtype)

        result = apply("gaussian_blur", data, layout, sigma=sigma)

        assert (result.dtype, result.shape) == (data.dtype, data.shape)
        np.testing.assert_allclose(result, data, rtol=1e-3 if dtype == "float16" else 1e-6)

    def test_a_point_becomes_a_bell(self):
        point = np.zeros((1, 9, 1), np.float32)
        point[0, 4] = 1

        result = apply("gaussian_blur", point, "HWC", sigma=1.0, window_size=[1, 5])[0, :, 0]

        weights = np.exp(-np.square([2, 1, 0, 1, 2]) / 2)
        np.testing.assert_allclose(result[2:7], weights / weights.sum(), rtol=1e-6)
        assert not result[[0, 1, 7, 8]].any()

    @pytest.mark.parametrize("layout", ["HWC", "DHWC"])
    def test_axes_have_their_own(self, layout):
        point = np.zeros((5,) * (len(layout) - 1) + (1,), np.float32)
        point[(2,) * (len(layout) - 1)] = 1

        result = apply("gaussian_blur", point, layout, window_size=[5, *[1] * (len(layout) - 2)])

        assert result.any(axis=tuple(range(1, point.ndim))).all()
        assert np.count_nonzero(result) == 5

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({}, "sigma and window_size shouldn't be 0 at the same time"),
            ({"sigma": -1.0}, "sigma must be .* from 0 on, .* not -1"),
            ({"window_size": [3, -5]}, "window_size must be .* from 0 on, .* not .*-5"),
            ({"window_size": 4}, r"the kernel window should have odd length, got window_size=\[4\]"),
        ],
    )
    def test_wrong_arguments(self, arguments, message):
        with pytest.raises(ArgumentError, match=rf"fn.gaussian_blur: {message}"):
            fn.gaussian_blur(fn.external_source(lambda info: NOISE, batch=False), **arguments)

    def test_wrong_arguments_of_samples(self):
        with pytest.raises(ArgumentError, match=r"dtype must be FLOAT or that of the input, uint8, not int16"):
            apply("gaussian_blur", NOISE, "HWC", sigma=1.0, dtype=types.INT16)
        with pytest.raises(ArgumentError, match=r"sigma must have one element, or one for each of the 2 axes, not 3"):
            apply("gaussian_blur", NOISE, "HWC", sigma=[1.0, 2.0, 3.0])
        with pytest.raises(ArgumentError, match=r"one of them positive, not 0.0 and 0"):
            run(lambda image, sigma: fn.gaussian_blur(image, sigma=sigma), [NOISE], [np.float32([0])], layouts=["HWC"])

    @pytest.mark.parametrize("layout", ["HCW", "HWF", "FC", "HFW"])
    def test_wrong_layouts(self, layout):
        node = fn.external_source(lambda info: NOISE, batch=False, layout=layout)
        with pytest.raises(
            ArgumentError, match=rf"channel-last layouts of one to three axes, frames first, .* not '{layout}'"
        ):
            fn.gaussian_blur(node, sigma=1.0)


class TestJpeg:
    @pytest.mark.parametrize("way", WAYS)
    def test_less_quality_is_further_away(self, way):
        smooth = np.add.outer(np.arange(64), np.arange(64))[..., np.newaxis].repeat(3, axis=2).astype(np.uint8)

        ((results,),) = run(
            lambda image, quality: fn.jpeg_compression_distortion(image, quality=quality),
            [smooth] * 3,
            [np.int32(quality) for quality in (5, 50, 100)],
            layouts=["HWC"],
            way=way,
        )

        errors = [np.abs(result.astype(int) - smooth).mean() for result in results]
        assert errors[0] > errors[1] > errors[2]

    def test_other_images(self):
        with pytest.raises(SampleError, match=r"must be of dtype uint8 and have 3 channels, not float32 and 3"):
            apply("jpeg_compression_distortion", NOISE.astype(np.float32), "HWC")


class TestErasing:
    @settings(max_examples=50, deadline=None)
    @given(st.lists(st.tuples(*[st.integers(-5, 12)] * 4), max_size=4), st.floats(0, 255, width=16))
    def test_regions(self, regions, fill):
        data = np.full((9, 8, 2), 7, np.float32)
        anchor = [value for y, x, _, _ in regions for value in (y, x)]
        shape = [value for _, _, height, width in regions for value in (height, width)]

        result = apply("erase", data, "HWC", anchor=anchor, shape=shape, fill_value=fill)

        rows, columns = np.mgrid[:9, :8]
        inside = [(y <= rows) & (rows < y + h) & (x <= columns) & (columns < x + w) for y, x, h, w in regions]
        erased = functools.reduce(np.logical_or, inside, np.zeros((9, 8), bool))
        np.testing.assert_array_equal(result, np.where(erased[..., np.newaxis], np.float32(fill), data))

    def test_the_input_is_left_alone(self):
        image = NOISE.copy()

        ((same, erased),) = run(lambda image: [image, fn.erase(image, shape=(20, 30))], [image], layouts=["HWC"])

        assert not erased[0].any()
        np.testing.assert_array_equal(same[0], NOISE)

    def test_arguments_that_do_not_go_together(self):
        node = fn.external_source(lambda info: NOISE, batch=False)

        with pytest.raises(
            ArgumentClashError, match=r"fn.erase: normalized is incompatible with providing a separate value"
        ):
            fn.erase(node, anchor=(0, 0), shape=(1, 1), normalized=True, normalized_shape=True)
        with pytest.raises(ArgumentError, match=r"fn.erase: there must be at least one axis"):
            fn.erase(node, shape=(1, 1), axes=())
        with pytest.raises(ArgumentError, match=r"fn.erase: anchor is given without shape"):
            fn.erase(node, anchor=(0, 0))

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"anchor": (1, 2), "shape": (1, 2, 3)}, "2 numbers for each region, not 2 and 3"),
            ({"anchor": (1, 2, 3), "shape": (1, 2, 3)}, "2 numbers for each region, not 3 and 3"),
            ({"shape": (1, 2), "fill_value": (1, 2)}, "fill_value has 2 values, but the input has 3 channels"),
            ({"shape": (1, 2), "axis_names": "HX"}, "axis_names='HX' are not all in the layout 'HWC' of the input"),
            ({"shape": (1, 2), "axes": (0, 3)}, r"axes=\[0, 3\]: the input has 3 dimensions"),
        ],
    )
    def test_arguments_that_do_not_fit_the_data_are_refused(self, arguments, message):
        with pytest.raises(ArgumentError, match=message):
            apply("erase", NOISE, "HWC", **arguments)
