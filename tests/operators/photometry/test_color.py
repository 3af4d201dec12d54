"""Color operators: the meaning of arguments, and rejected ones. tests/parity compares the results with DALI."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from dali_like import fn, types
from dali_like.errors import ArgumentError, SampleError
from tests.compiled import kernels_from, library
from tests.operators.running import WAYS, run

NOISE = np.random.default_rng(1).integers(0, 256, (20, 30, 3), np.uint8)
GRAY = np.repeat(NOISE[..., :1], 3, axis=2)


def results(define: Any, *images: np.ndarray, **options: Any) -> list[np.ndarray]:
    """Return the first sample of each output."""
    (outputs,) = run(define, *[[image] for image in images], **{"layouts": ["HWC"] * len(images), **options})
    return [samples[0] for samples in outputs]


class TestBrightnessAndContrast:
    def test_halves_are_rounded_away_from_zero(self):
        odd = np.arange(1, 400, 2, np.int16).reshape(1, 1, -1)

        up, down = results(lambda a, b: [fn.brightness(a, brightness=0.5), fn.brightness(b, brightness=0.5)], odd, -odd)

        np.testing.assert_array_equal(up, (odd + 1) // 2)
        np.testing.assert_array_equal(down, -up)

    def test_values_just_below_a_half_are_rounded_down(self):
        below = np.nextafter(np.float32([0.5, 1.5, 2.5, 1000.5]), np.float32(0)).reshape(1, 4, 1)

        (result,) = results(lambda a: fn.brightness(a, dtype=types.INT16), below)

        assert result.ravel().tolist() == [0, 1, 2, 1000]

    @pytest.mark.parametrize("size", [(2, 2), (20, 20)], ids=["computed", "looked up"])
    def test_values_out_of_range_saturate(self, size):
        image = np.full((*size, 1), 200, np.uint8)

        (bright, dark) = results(lambda a: [fn.brightness(a, brightness=2), fn.brightness(a, brightness_shift=-1)], image)

        assert np.unique(bright) == 255
        assert np.unique(dark) == 0

    def test_the_shift_is_in_parts_of_the_range_of_the_result(self):
        def define(image: Any) -> list[Any]:
            dtypes = (types.UINT8, types.INT16, types.FLOAT)
            return [fn.brightness(image, brightness=0, brightness_shift=0.5, dtype=dtype) for dtype in dtypes]

        assert [result.flat[0] for result in results(define, NOISE)] == [128, 16384, 0.5]

    def test_without_contrast_all_is_the_center(self):
        def define(image: Any, floats: Any) -> list[Any]:
            return [
                fn.contrast(image, contrast=0),
                fn.contrast(image, contrast=0, contrast_center=50),
                fn.contrast(floats, contrast=0),
            ]

        assert [np.unique(result) for result in results(define, NOISE, NOISE / np.float32(255))] == [128, 50, 0.5]

    @pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16", "uint32", "int32", "float16", "float64"])
    def test_any_dtype_in_and_out(self, dtype):
        image = (NOISE // 2).astype(dtype)

        (result,) = results(
            lambda image: fn.brightness_contrast(image, brightness=0.75, contrast=0.5, contrast_center=8), image
        )

        assert result.dtype == dtype
        exact = 0.75 * (8 + 0.5 * (image.astype(np.float64) - 8))
        assert np.abs(result - exact).max() <= (0.5 if np.dtype(dtype).kind in "iu" else 0.02)


class TestHueAndSaturation:
    def test_gray_has_no_hue(self):
        turned, twisted = results(lambda image: [fn.hsv(image, hue=77), fn.color_twist(image, hue=200)], GRAY)

        for image in (turned, twisted):
            assert np.abs(image.astype(int) - GRAY).max() <= 1

    def test_without_saturation_all_channels_are_alike(self):
        gray, none = results(lambda image: [fn.saturation(image, saturation=0), fn.hsv(image, saturation=0)], NOISE)

        assert np.ptp(gray.astype(int), axis=2).max() <= 1
        np.testing.assert_array_equal(gray, none)

    def test_a_whole_turn_of_hue_changes_nothing(self):
        whole, forth_and_back = results(
            lambda image: [fn.hue(image, hue=360), fn.hue(fn.hue(image, hue=50, dtype=types.FLOAT), hue=-50)],
            NOISE.astype(np.float32),
        )

        np.testing.assert_allclose(whole, NOISE, atol=1e-3)
        np.testing.assert_allclose(forth_and_back, NOISE, atol=1e-3)

    @pytest.mark.parametrize("way", WAYS)
    def test_different_for_each_sample(self, way):
        values = [np.float32(0), np.float32(1)]

        ((dark, same),) = run(
            lambda image, value: fn.hsv(image, value=value), [NOISE, NOISE], values, layouts=["HWC"], way=way
        )[0]

        assert not dark.any()
        np.testing.assert_array_equal(same, NOISE)

    def test_frames_are_images(self):
        frames = np.stack([NOISE, NOISE[::-1]])

        video, still = results(
            lambda video, image: [fn.hsv(video, hue=20), fn.hsv(image, hue=20)], frames, NOISE, layouts=["FHWC", "HWC"]
        )

        np.testing.assert_array_equal(video, [still, still[::-1]])

    def test_other_numbers_of_channels(self):
        with pytest.raises(SampleError, match=r"the image must have the three channels of RGB, not 1"):
            results(fn.hsv, NOISE[..., :1])


class TestColorModels:
    def test_there_and_back(self):
        def define(image: Any) -> Any:
            model = fn.color_space_conversion(image, image_type=types.RGB, output_type=types.YCbCr)
            return fn.color_space_conversion(model, image_type=types.YCbCr, output_type=types.RGB)

        (result,) = results(define, NOISE)

        assert np.abs(result.astype(int) - NOISE).max() <= 3

    def test_black_and_white(self):
        image = np.array([[[0, 0, 0], [255, 255, 255]]], np.uint8)

        def define(image: Any) -> list[Any]:
            models = (types.YCbCr, types.GRAY, types.BGR)
            return [fn.color_space_conversion(image, image_type=types.RGB, output_type=model) for model in models]

        ycbcr, gray, bgr = results(define, image)

        assert ycbcr.tolist() == [[[16, 128, 128], [235, 128, 128]]]
        assert gray.tolist() == [[[0], [255]]]
        np.testing.assert_array_equal(bgr, image)

    def test_wrong_arguments(self):
        def convert(before: Any, after: Any) -> Any:
            return lambda image: fn.color_space_conversion(image, image_type=before, output_type=after)

        with pytest.raises(ArgumentError, match=r"fn.color_space_conversion: image_type and output_type are the same"):
            results(convert(types.RGB, types.RGB), NOISE)
        with pytest.raises(ArgumentError, match=r"output_type must be one of RGB, BGR, GRAY, YCbCr, not ANY_DATA"):
            results(convert(types.RGB, types.ANY_DATA), NOISE)
        with pytest.raises(SampleError, match=r"GRAY images must be of dtype uint8 and have 1 channels, not uint8 and 3"):
            results(convert(types.GRAY, types.RGB), NOISE)


@pytest.mark.parametrize(
    "name", ["brightness_contrast", "brightness", "contrast", "hsv", "hue", "saturation", "color_twist"]
)
def test_dtypes_that_are_not_made(name):
    with pytest.raises(ArgumentError, match=rf"fn.{name}: this operator cannot return dtype int64; pass dtype= one of"):
        results(lambda image: getattr(fn, name)(image, dtype=types.INT64), NOISE)


def test_no_pixels():
    def define(image: Any) -> list[Any]:
        gray = fn.color_space_conversion(image, image_type=types.RGB, output_type=types.GRAY)
        return [fn.hsv(image, hue=5), fn.brightness(image), gray]

    assert [result.shape for result in results(define, NOISE[:0])] == [(0, 30, 3), (0, 30, 3), (0, 30, 1)]


@pytest.mark.parametrize(("position", "tile"), [((0, 0), "RGGB"), ((0, 1), "GRBG"), ((1, 0), "GBRG"), ((1, 1), "BGGR")])
@pytest.mark.parametrize("algorithm", ["bilinear_ocv", "edgeaware_ocv", "vng_ocv"])
def test_an_even_color_behind_a_filter_array(position, tile, algorithm):
    """The tile of the first row and column has blue in the opposite corner."""
    color = {"R": 200, "G": 120, "B": 40}
    mosaic = np.tile(np.array([color[letter] for letter in tile], np.uint8).reshape(2, 2), (6, 7))

    define = functools.partial(fn.experimental.debayer, blue_position=position, algorithm=algorithm)
    ((images,),) = run(define, [mosaic], layouts=["HW"])

    np.testing.assert_array_equal(images[0], np.broadcast_to(np.uint8([200, 120, 40]), (12, 14, 3)))


class TestLimitedEqualization:
    """``fn.clahe``."""

    def test_one_tile_without_a_limit_gives_each_value_the_share_of_the_pixels_up_to_it(self) -> None:
        gray = NOISE[..., :1] // 3 + 40

        (result,) = results(lambda image: fn.clahe(image, tiles_x=1, tiles_y=1, clip_limit=0.0), gray)

        shares = np.cumsum(np.bincount(gray.ravel(), minlength=256)) / gray.size
        np.testing.assert_array_equal(result, np.rint(255 * np.float32(shares)).astype(np.uint8)[gray])

    def test_tiles_are_equalized_each_by_itself(self) -> None:
        dark, bright = np.full((64, 64, 1), 10, np.uint8), np.full((64, 64, 1), 200, np.uint8)
        dark[::2], bright[::2] = 20, 220
        image = np.concatenate([dark, bright], axis=1)

        (result,) = results(lambda image: fn.clahe(image, tiles_x=2, tiles_y=1, clip_limit=0.0), image)

        assert {*np.unique(result[:, :30])} == {*np.unique(result[:, -30:])} == {128, 255}

    def test_a_low_limit_keeps_the_contrast_low(self) -> None:
        gray = NOISE[..., :1] // 16 + 100

        def define(image: Any) -> list[Any]:
            return [fn.clahe(image, tiles_x=1, tiles_y=1, clip_limit=limit) for limit in (1.0, 4.0, 0.0)]

        least, some, most = (int(np.ptp(result)) for result in results(define, gray))

        assert np.ptp(gray) < least < some < most

    def test_colors_keep_their_hue_unless_each_channel_is_equalized(self) -> None:
        reddish = np.stack([NOISE[..., 0] // 4 + 150, NOISE[..., 0] // 4 + 20, NOISE[..., 0] // 4 + 20], axis=-1)

        def define(image: Any) -> list[Any]:
            return [fn.clahe(image, tiles_x=1, tiles_y=1, clip_limit=0.0, luma_only=only) for only in (True, False)]

        red, gray = results(define, reddish)

        assert (red[..., 0] >= red[..., 1]).mean() > 0.9
        np.testing.assert_array_equal(gray, np.broadcast_to(gray[..., :1], gray.shape))

    @pytest.mark.parametrize("image", [NOISE[..., :2], NOISE.astype(np.uint16)])
    def test_other_images_are_refused(self, image: np.ndarray) -> None:
        with pytest.raises(SampleError, match="images must be of dtype uint8 and have 1 or 3 channels"):
            results(lambda image: fn.clahe(image, tiles_x=2, tiles_y=2, clip_limit=2.0), image)

    def test_images_without_pixels_stay_empty(self) -> None:
        (result,) = results(lambda image: fn.clahe(image, tiles_x=2, tiles_y=2, clip_limit=2.0), NOISE[:0])

        assert result.shape == (0, 30, 3)


@pytest.mark.parametrize("shape", [(7, 5, 3), (90, 111, 3), (2, 40, 30, 3)], ids=str)
def test_compiled_loops_change_colors_to_the_same_bits(shape):
    image = np.random.default_rng(4).integers(0, 256, shape, np.uint8)
    layout = "HWC" if len(shape) == 3 else "FHWC"

    def changes(data):
        return [
            fn.hsv(data, hue=50, saturation=1.7, value=0.8),
            fn.color_twist(data, hue=-170, contrast=1.9, brightness=1.4),
            fn.saturation(data, saturation=0.0),
            fn.hue(data, hue=360.0),
        ]

    with kernels_from("0"):
        expected = run(changes, [image], layouts=[layout])
    with kernels_from(library()):
        made = run(changes, [image], layouts=[layout])
    for column, wanted in zip(made[0], expected[0], strict=True):
        np.testing.assert_array_equal(column[0], wanted[0], strict=True)
