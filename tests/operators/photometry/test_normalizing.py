"""crop_mirror_normalize and normalize: results and rejected arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dali_like import fn, types
from dali_like.errors import ArgumentClashError, ArgumentError, SampleError
from tests.operators.photometry.test_filters import apply
from tests.operators.running import WAYS, run

NOISE = np.random.default_rng(1).integers(0, 256, (20, 30, 3), np.uint8)


def node(layout: str = "HWC") -> Any:
    return fn.external_source(lambda info: NOISE, batch=False, layout=layout)


class TestCropMirrorNormalize:
    @settings(max_examples=60, deadline=None)
    @given(
        st.sampled_from(["HWC", "CHW", "FHWC", "CFHW", "CDHW"]),
        st.sampled_from(["uint8", "int8", "uint16", "int16", "int32", "int64", "float32", "float64"]),
        st.sampled_from(["float32", "float16", "uint8", "int16"]),
        st.integers(1, 5),
        st.booleans(),
        st.booleans(),
        st.data(),
    )
    def test_is_the_same_as_its_parts_one_after_another(self, layout, dtype, result, channels, mirror, pad, data):
        extents = {**dict.fromkeys(layout, 2), "C": channels, "H": 7, "W": 6}
        image = np.random.default_rng(1).integers(0, 128, [extents[letter] for letter in layout]).astype(dtype)
        permuted = "".join(data.draw(st.permutations(layout)))
        height, width = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 9))
        mean = [float(i) for i in range(channels)]

        got = apply(
            "crop_mirror_normalize",
            image,
            layout,
            crop_h=height,
            crop_w=width,
            crop_pos_x=0,
            crop_pos_y=1,
            out_of_bounds_policy="pad",
            fill_values=3,
            mirror=mirror,
            mean=mean,
            std=2,
            dtype=result,
            pad_output=pad,
            output_layout=permuted,
        )

        expected = np.moveaxis(image, layout.index("C"), -1).astype(np.float64) - mean
        expected = np.moveaxis(expected / 2, -1, layout.index("C"))
        wanted = {"H": (7 - height, height), "W": (0, width)}
        for axis, letter in enumerate(layout):
            begin, size = wanted.get(letter, (0, expected.shape[axis]))
            rows = [expected.take([i], axis) if 0 <= i < expected.shape[axis] else None for i in range(begin, begin + size)]
            shape = list(expected.shape)
            shape[axis] = 1
            expected = np.concatenate([np.full(shape, 3.0) if row is None else row for row in rows], axis)
        if mirror:
            expected = np.flip(expected, layout.index("W"))
        if pad:
            more = {1: 0, 2: 0, 3: 1, 4: 0, 5: 3}[channels]
            expected = np.pad(expected, [(0, more * (letter == "C")) for letter in layout], constant_values=3)
        expected = expected.transpose([layout.index(letter) for letter in permuted])
        assert got.dtype == result
        assert got.shape == expected.shape
        limits = np.iinfo(result) if np.dtype(result).kind in "iu" else None
        expected = expected if limits is None else np.clip(expected, limits.min, limits.max)
        assert np.abs(got - expected).max() <= (0.5 if limits else 0.05 if result == "float16" else 1e-4)

    def test_column_of_height_channels_width_is_cropped(self):
        result = apply("crop_mirror_normalize", NOISE, "HWC", crop=(20, 1), output_layout="HCW")

        np.testing.assert_array_equal(result[:, :, 0], NOISE[:, 15])

    @pytest.mark.parametrize("way", WAYS)
    def test_of_each_sample(self, way):
        mirrors = [np.int32(0), np.int32(1)]

        ((plain, mirrored),) = run(
            lambda image, mirror: fn.crop_mirror_normalize(image, mirror=mirror, output_layout="HWC", dtype=types.UINT8),
            [NOISE, NOISE],
            mirrors,
            layouts=["HWC"],
            way=way,
        )[0]

        np.testing.assert_array_equal(plain, NOISE)
        np.testing.assert_array_equal(mirrored, NOISE[:, ::-1])

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"mean": [1, 2], "std": [1, 2, 3]}, "mean and std must either be of the same size, be scalars, or"),
            ({"mean": []}, "mean must be .*, at least one of them, .* not "),
            ({"crop_h": 5}, "crop_w and crop_h must be given together"),
            ({"crop": (5, 5), "crop_h": 4, "crop_w": 4}, "crop excludes crop_w, crop_h and crop_d"),
            ({"crop": (5, 5), "crop_pos_x": 1.5}, "crop_pos_x must be a number from 0 to 1, .* not 1.5"),
            ({"output_layout": "HW"}, "output_layout='HW' is not a permutation of the layout of the input"),
            ({"out_of_bounds_policy": "wrap"}, "out_of_bounds_policy must be one of 'error', 'pad', 'constant', 'trim"),
            ({"dtype": types.INT64}, "this operator cannot return dtype int64"),
        ],
    )
    def test_wrong_arguments(self, arguments, message):
        for layout in ("HWC", "", "CHW"):
            with pytest.raises(ArgumentError, match=rf"fn.crop_mirror_normalize: {message}"):
                fn.crop_mirror_normalize(node(layout), **arguments)

    def test_the_default_layout_of_videos(self):
        with pytest.raises(ArgumentError, match=r"output_layout='CHW' is not a permutation of the layout .* 'FHWC'"):
            fn.crop_mirror_normalize(node("FHWC"))

    def test_layouts_of_results(self):
        results = [
            fn.crop_mirror_normalize(node("HWC")),
            fn.crop_mirror_normalize(node("HWC"), output_layout=""),
            fn.crop_mirror_normalize(node(""), output_layout="CFHW"),
        ]

        assert [result.producer.layouts for result in results] == [("CHW",), ("HWC",), ("CFHW",)]

    @pytest.mark.parametrize(
        ("arguments", "error", "message"),
        [
            ({"crop": (21, 5)}, SampleError, r"is not inside the input of shape \(20, 30, 3\)"),
            ({"mean": [1, 2]}, ArgumentError, "mean has 2 elements; it must have one, or one for each of the 3 channels"),
            (
                {"crop": (21, 5), "out_of_bounds_policy": "pad", "fill_values": [1, 2]},
                ArgumentError,
                "fill_values has 2 elements",
            ),
        ],
    )
    def test_arguments_that_do_not_fit_the_image_are_refused(self, arguments, error, message):
        with pytest.raises(error, match=message):
            apply("crop_mirror_normalize", NOISE, "HWC", **arguments)


class TestNormalize:
    @settings(max_examples=40, deadline=None)
    @given(
        st.sampled_from(["uint8", "int16", "int64", "float32", "float64"]),
        st.integers(1, 4),
        st.data(),
        st.integers(0, 1),
        st.sampled_from([0.0, 2.5]),
    )
    def test_the_mean_is_0_and_the_deviation_1(self, dtype, ndim, data, ddof, epsilon):
        sample = np.random.default_rng(1).integers(0, 128, range(2, 2 + ndim)).astype(dtype)
        axes = data.draw(st.lists(st.integers(0, ndim - 1), min_size=1, max_size=ndim, unique=True))

        result = apply("normalize", sample, "", axes=axes, ddof=ddof, epsilon=epsilon, scale=3, shift=10)

        exact = sample.astype(np.float64)
        variance = exact.var(axis=tuple(axes), keepdims=True, ddof=ddof) + epsilon
        expected = (exact - exact.mean(axis=tuple(axes), keepdims=True)) / np.sqrt(np.where(variance, variance, 1)) * 3 + 10
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)

    def test_of_a_batch_it_is_that_of_all_samples(self):
        samples = [NOISE, NOISE[:5] // 2, NOISE[:0]]

        ((results,),) = run(lambda image: fn.normalize(image, batch=True, axes=[0, 1]), samples, layouts=["HWC"])

        pixels = np.concatenate(results).reshape(-1, 3)
        np.testing.assert_allclose(pixels.mean(axis=0), 0, atol=1e-5)
        np.testing.assert_allclose(pixels.std(axis=0), 1, atol=1e-5)

    def test_numbers_have_no_variance(self):
        assert apply("normalize", np.uint8(3), "", shift=5) == 5
        assert apply("normalize", np.uint8(3), "", mean=1, stddev=4) == 0.5

    def test_constant_data_become_the_shift(self):
        assert np.unique(apply("normalize", np.full((3, 4), 7, np.uint8), "", shift=5)) == 5

    @pytest.mark.parametrize(
        ("arguments", "error", "message"),
        [
            ({"axes": [0], "axis_names": "H"}, ArgumentClashError, "axes and axis_names are mutually exclusive"),
            ({"axes": []}, ArgumentError, "axes must specify at least one reduction axis"),
            ({"mean": 1, "stddev": 1, "axes": [0]}, ArgumentClashError, "axes must not be specified when both mean and"),
            ({"mean": [[[1, 2, 3]]], "batch": True}, ArgumentClashError, "batch normalization cannot be used with a mean"),
            ({"mean": "a"}, TypeError, "mean must be a number, or an array of numbers, or a DataNode"),
        ],
    )
    def test_wrong_arguments(self, arguments, error, message):
        with pytest.raises(error, match=rf"fn.normalize: {message}"):
            fn.normalize(node(), **arguments)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"axes": [3]}, r"axes=\[3\]: the input has 3 dimensions"),
            ({"axis_names": "D"}, "axis_names='D' are not all in the layout 'HWC'"),
            ({"mean": [1, 2, 3]}, "mean and stddev must be numbers, or have 3 dimensions like the input, not 1"),
            ({"mean": [[[1, 2, 3]]], "axes": [0]}, r"shape of mean or stddev is \(1, 1, 3\); it should be \(1, 30, 3\)"),
        ],
    )
    def test_arguments_that_do_not_fit_the_data_are_refused(self, arguments, message):
        with pytest.raises(ArgumentError, match=message):
            apply("normalize", NOISE, "HWC", **arguments)

    def test_batches_of_different_extents(self):
        with pytest.raises(
            SampleError, match=r"have equal extents in all samples of the batch, not \(20, 1, 1\) and \(5, 1, 1"
        ):
            run(lambda image: fn.normalize(image, batch=True, axes=[1, 2]), [NOISE, NOISE[:5]], layouts=["HWC"])
