"""Operators that move and scale pixels: properties for any shape, dtype and layout."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("cv2")

from dali_like import fn, types
from dali_like.errors import ArgumentClashError, ArgumentError, SampleError
from dali_like.operators.geometry._resampling import Axis, Filters, resample
from dali_like.operators.geometry._windows import random_window
from dali_like.operators.machinery.description import description_of
from dali_like.types import INTERP_CUBIC, INTERP_LANCZOS3, INTERP_LINEAR, INTERP_NN, DALIInterpType
from tests.operators.running import run

LAYOUTS = ["HWC", "CHW", "FHWC", "FCHW", "CFHW"]
extents = st.integers(1, 12)


def call_of(name, layout):
    """Return the operator call for one sample of this layout."""
    from dali_like.graph.language.operator_interface import OperatorCall
    from dali_like.types import SampleInfo

    function = description_of(name).function
    return lambda *inputs, **arguments: function(OperatorCall(SampleInfo(0, 0, 0, 0), [layout]), *inputs, **arguments)


@st.composite
def pictures(draw, layouts=tuple(LAYOUTS)):
    layout = draw(st.sampled_from(layouts))
    shape = [draw(st.integers(1, 3)) if letter == "F" else draw(extents) for letter in layout]
    dtype = draw(st.sampled_from([np.uint8, np.int16, np.float32]))
    return layout, np.random.default_rng(draw(st.integers(0, 9))).integers(0, 256, shape).astype(dtype)


class TestFlip:
    @given(pictures(), st.booleans(), st.booleans())
    @settings(max_examples=50, deadline=None)
    def test_twice_is_nothing(self, picture, horizontal, vertical):
        layout, array = picture
        flip = call_of("flip", layout)

        once = flip(array, horizontal=horizontal, vertical=vertical)
        np.testing.assert_array_equal(flip(once, horizontal=horizontal, vertical=vertical), array, strict=True)
        assert once.flags.c_contiguous

    def test_the_axis_is_that_of_the_layout(self):
        array = np.arange(8, dtype=np.uint8).reshape(1, 2, 4)

        np.testing.assert_array_equal(call_of("flip", "CHW")(array), array[:, :, ::-1])
        np.testing.assert_array_equal(call_of("flip", "HWC")(array), array[:, ::-1])


class TestCropAndSlice:
    @given(pictures(), st.data())
    @settings(max_examples=50, deadline=None)
    def test_a_crop_is_a_window(self, picture, data):
        layout, array = picture
        height, width = (array.shape[layout.index(letter)] for letter in "HW")
        size = [data.draw(st.integers(1, height)), data.draw(st.integers(1, width))]
        place = data.draw(st.floats(0, 1))

        cropped = call_of("crop", layout)(array, crop=size, crop_pos_x=place, crop_pos_y=place)

        offsets = [int(place * (extent - side) + 0.5) for extent, side in zip((height, width), size, strict=True)]
        moved = np.moveaxis(array, [layout.index("H"), layout.index("W")], [0, 1])
        expected = moved[offsets[0] : offsets[0] + size[0], offsets[1] : offsets[1] + size[1]]
        found = np.moveaxis(cropped, [layout.index("H"), layout.index("W")], [0, 1])
        if abs(place * (height - size[0]) % 1 - 0.5) > 1e-4 < abs(place * (width - size[1]) % 1 - 0.5):
            np.testing.assert_array_equal(found, expected)
        assert found.shape == expected.shape

    @given(pictures(("HWC",)), st.integers(-5, 15), st.integers(0, 15))
    @settings(max_examples=50, deadline=None)
    def test_a_padded_window_is_that_of_a_padded_image(self, picture, start, size):
        _, array = picture
        window = {"start": (start, 0), "end": (start + size, array.shape[1]), "axis_names": "HW"}

        found = call_of("slice", "HWC")(array, **window, out_of_bounds_policy="pad", fill_values=(7,))
        trimmed = call_of("slice", "HWC")(array, **window, out_of_bounds_policy="trim_to_shape")

        large = np.pad(array, [(30, 30), (0, 0), (0, 0)], constant_values=7)
        np.testing.assert_array_equal(found, large[start + 30 : start + 30 + size], strict=True)
        np.testing.assert_array_equal(trimmed, array[max(start, 0) : max(start + size, 0)], strict=True)

    @pytest.mark.parametrize(
        ("policies", "mode"),
        [
            (("reflect_101",), "reflect"),
            (("reflect", "reflect_1001"), "symmetric"),
            (("wrap",), "wrap"),
            (("clamp", "edge"), "edge"),
            (("constant",), "constant"),
        ],
    )
    @given(pictures(("HWC",)), st.tuples(*[st.integers(-20, 25)] * 3), st.tuples(*[st.integers(0, 12)] * 3))
    @settings(max_examples=30, deadline=None)
    def test_a_window_continues_the_image_as_the_policy_says(self, policies, mode, picture, start, size):
        _, array = picture
        large = np.pad(array, 40, mode)
        expected = large[tuple(slice(40 + first, 40 + first + count) for first, count in zip(start, size, strict=True))]
        for policy in policies:
            window = {"start": start, "shape": size, "axis_names": "HWC", "out_of_bounds_policy": policy}

            found = call_of("slice", "HWC")(array, **window)
            wide = call_of("slice", "HWC")(array, **window, dtype=np.dtype(np.float64))

            np.testing.assert_array_equal(found, expected, strict=True)
            np.testing.assert_array_equal(wide, expected.astype(np.float64), strict=True)

    def test_a_crop_larger_than_the_images_of_a_batch_mirrors_them(self):
        images = [np.arange(6, dtype=np.uint8).reshape(2, 3, 1) + i for i in range(4)]

        (outputs,) = run(
            lambda image: fn.crop(image, crop=[4, 5], out_of_bounds_policy="reflect_101"), images, layouts=["HWC"]
        )

        for output, image in zip(outputs[0], images, strict=True):
            np.testing.assert_array_equal(output, np.pad(image, [(1, 1), (1, 1), (0, 0)], "reflect"), strict=True)

    def test_nothing_continues_an_axis_without_elements(self):
        with pytest.raises(SampleError, match=r'extent 0 in axis 0, so out_of_bounds_policy="wrap" repeats nothing'):
            call_of("slice", "HWC")(
                np.zeros((0, 2, 3), np.uint8), start=(0,), shape=(2,), axis_names="H", out_of_bounds_policy="wrap"
            )

    def test_a_window_outside_is_an_error_that_says_so(self):
        with pytest.raises(SampleError, match=r"window from \(2, 2, 0\) to \(9, 9, 3\) is not inside") as info:
            run(lambda image: fn.slice(image, start=[2, 2], end=[9, 9]), [np.zeros((5, 9, 3), np.uint8)], layouts=["HWC"])
        assert info.value.__notes__ == ["raised by fn.slice for sample 0 of iteration 0 in epoch 0 (idx_in_epoch 0)"]

    def test_values_that_the_dtype_does_not_hold(self):
        large = np.array([[[300.0, -5.0, 3.6]]], np.float32)

        limited = call_of("crop", "HWC")(large, dtype=np.dtype(np.uint8))

        assert limited.tolist() == [[[255, 0, 3]]]


class TestPad:
    def test_to_the_largest_of_the_batch(self):
        arrays = [np.full(shape, 5, np.int16) for shape in ((2, 7), (4, 1), (3, 3))]

        ((results,),) = run(lambda data: fn.pad(data, fill_value=-1), arrays)

        for result, array in zip(results, arrays, strict=True):
            expected = np.full((4, 7), -1, np.int16)
            expected[: array.shape[0], : array.shape[1]] = 5
            np.testing.assert_array_equal(result, expected, strict=True)


class TestResize:
    @given(
        pictures(("HWC",)),
        st.tuples(extents, extents),
        st.sampled_from(DALIInterpType),
        st.booleans(),
        st.tuples(st.floats(-3, 3), st.floats(4, 15)),
    )
    @settings(max_examples=100, deadline=None)
    def test_of_a_constant_is_that_constant(self, picture, size, kind, antialias, region):
        """All weights sum to one, in every region."""
        _, array = picture
        out = np.empty((*size, array.shape[2]), np.float32)
        axes = (Axis(size[0], *region), Axis(size[1], *region[::-1]))

        resample(np.full_like(array, 77), axes, Filters(kind, kind, antialias), out)

        np.testing.assert_allclose(out, 77, rtol=1e-5)

    @given(pictures(("HWC",)), st.tuples(st.integers(1, 40), st.integers(1, 40)), st.booleans())
    @settings(max_examples=60, deadline=None)
    def test_as_the_sum_over_all_pixels(self, picture, size, antialias):
        """The reference is a plain loop over the filter's weights."""
        _, array = picture
        out = np.empty((*size, array.shape[2]), np.float32)

        resample(
            array,
            (Axis(size[0], 0, array.shape[0]), Axis(size[1], 0, array.shape[1])),
            Filters(INTERP_LINEAR, INTERP_LINEAR, antialias),
            out,
        )

        rows, columns = (triangle(array.shape[i], size[i], antialias) for i in (0, 1))
        np.testing.assert_allclose(out, np.einsum("ih,hwc,jw->ijc", rows, array.astype(float), columns), atol=2e-3)

    @pytest.mark.parametrize("kind", [INTERP_NN, INTERP_LINEAR, INTERP_CUBIC, INTERP_LANCZOS3])
    def test_to_the_same_size_is_nothing(self, kind):
        image = np.random.default_rng(1).integers(0, 256, (40, 37, 3), np.uint8)

        np.testing.assert_array_equal(call_of("resize", "HWC")(image, size=(40, 37), interp_type=kind), image, strict=True)

    def test_overshoots_are_limited(self):
        edge = np.repeat(np.uint8([0, 255]), 8)[np.newaxis, :, np.newaxis]

        sharp = call_of("resize", "HWC")(edge, size=(1, 61), interp_type=INTERP_LANCZOS3)

        assert (sharp[0, :20].max(), sharp[0, -20:].min()) >= (0, 240)
        assert sharp.dtype == np.uint8

    def test_other_dtypes(self):
        ((results,),) = run(
            lambda image: fn.resize(image, size=[3, 3], dtype=types.FLOAT), [np.eye(6)[..., None]], layouts=["HWC"]
        )

        assert results[0].dtype == np.float32

    @pytest.mark.parametrize(
        ("arguments", "kind", "message"),
        [
            (
                {},
                ArgumentClashError,
                r"fn.resize: pass exactly one of size, resize_shorter, resize_longer, or some of .* and resize_z$",
            ),
            ({"size": 3, "resize_x": 3}, ArgumentClashError, r"fn.resize: pass exactly one of .*, not size and resize_x"),
            ({"size": 3, "mode": "x"}, ArgumentError, r"fn.resize: mode must be one of 'default', 'stretch', 'not_larger'"),
            ({"size": 3, "roi_end": [3, 3]}, ArgumentClashError, r"fn.resize: roi_start and roi_end must be given together"),
            (
                {"size": 3, "interp_type": 7},
                ArgumentError,
                r"fn.resize: interp_type must be one of INTERP_NN",
            ),
        ],
    )
    def test_wrong_arguments_are_refused_when_the_graph_is_made(self, arguments, kind, message):
        with pytest.raises(kind, match=message):
            fn.resize(fn.external_source(name="x"), **arguments)


def triangle(extent, size, antialias):
    scale = extent / size
    radius = max(scale, 1) if antialias else 1
    weights = np.zeros((size, extent))
    for i in range(size):
        center = (i + 0.5) * scale - 0.5
        for j in range(-2 * extent, 3 * extent):
            weights[i, min(max(j, 0), extent - 1)] += max(1 - abs(j - center) / radius, 0)
    return weights / weights.sum(axis=1, keepdims=True)


class TestRandomWindows:
    @given(st.integers(1, 60), st.integers(1, 60), st.integers(0, 1000))
    @settings(max_examples=200, deadline=None)
    def test_lie_within_the_image(self, height, width, seed):
        window = random_window(np.random.default_rng(seed), height, width, (0.08, 1.0), (3 / 4, 4 / 3), 10)

        assert 0 <= window.top <= window.top + window.height <= height
        assert 0 <= window.left <= window.left + window.width <= width
        assert min(window.height, window.width) >= 1

    def test_of_an_image_with_an_impossible_ratio_is_the_largest(self):
        window = random_window(np.random.default_rng(0), 10, 1000, (0.9, 1.0), (3 / 4, 4 / 3), 10)

        assert (window.height, window.width) == (10, 13)

    def test_wrong_ranges(self):
        node = fn.external_source(name="x")
        with pytest.raises(
            ArgumentError, match=r"fn.random_resized_crop: random_area must be .* above 0, the lower .* \[1, 0\]"
        ):
            fn.random_resized_crop(node, size=3, random_area=[1, 0])
        with pytest.raises(ArgumentError, match=r"fn.random_resized_crop: num_attempts must be an integer from 1 on, not 0"):
            fn.random_resized_crop(node, size=3, num_attempts=0)


class TestWarps:
    def test_a_quarter_turn(self):
        image = np.random.default_rng(1).integers(0, 256, (6, 9, 3), np.uint8)

        np.testing.assert_array_equal(call_of("rotate", "HWC")(image, angle=90.0), np.rot90(image))

    @pytest.mark.parametrize(("axis", "turned"), [((0, 0, 1), (1, 2)), ((0, 1, 0), (0, 2)), ((1, 0, 0), (1, 0))], ids=str)
    def test_a_quarter_turn_of_a_volume(self, axis, turned):
        volume = np.random.default_rng(1).integers(0, 256, (4, 6, 9, 2), np.uint8)
        turn = call_of("rotate", "DHWC")

        once = turn(volume, angle=90.0, axis=axis)
        assert once.shape == np.rot90(volume, axes=turned).shape
        assert any(np.array_equal(once, np.rot90(volume, k, axes=turned)) for k in (1, -1))
        np.testing.assert_array_equal(turn(once, angle=-90.0, axis=axis), volume)

    def test_a_volume_needs_an_axis(self):
        with pytest.raises(ArgumentError, match=r"fn.rotate: volumes need a nonzero axis"):
            call_of("rotate", "DHWC")(np.zeros((2, 2, 2, 1)), angle=1.0)

    def test_many_channels(self):
        """More channels than OpenCV supports at once."""
        image = np.random.default_rng(1).integers(0, 256, (6, 9, 7), np.uint8)
        moved = call_of("warp_affine", "HWC")(image, matrix=(1, 0, 2, 0, 1, 1), fill_value=0.0)

        np.testing.assert_array_equal(moved[:5, :7], image[1:, 2:])
        assert not moved[5:].any()
        assert not moved[:, 7:].any()


class TestPaddingOfBatches:
    """Ragged batches are padded at once, from the memory in which they lie."""

    @pytest.mark.parametrize("way", ["threads", "workers"])
    @pytest.mark.parametrize(
        "shapes", [[(3,), (0,), (5,), (4,)], [(2, 3), (4, 3), (1, 3)], [(900, 3), (1000, 3)], [(0,), (0,)]]
    )
    @pytest.mark.parametrize("arguments", [{}, {"align": [4], "axes": [0]}, {"axes": [0], "fill_value": 7.9}])
    def test_the_end_of_the_first_axis_is_filled(self, way, shapes, arguments):
        arrays = [np.arange(np.prod(shape), dtype=np.int16).reshape(shape) for shape in shapes]
        longest, step = max(len(array) for array in arrays), arguments.get("align", [1])[0]
        length, value = -(-longest // step) * step, int(arguments.get("fill_value", 0))

        ((padded,),) = run(lambda data: [fn.pad(data, **arguments)], arrays, way=way)

        for array, result in zip(arrays, padded, strict=True):
            expected = np.full((length, *array.shape[1:]), value, np.int16)
            expected[: len(array)] = array
            np.testing.assert_array_equal(result, expected, strict=True)
