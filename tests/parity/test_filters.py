"""Blurring, JPEG and erasing as DALI does it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dali_like
from tests.image_files import GRAY_PIXELS, RGB_PIXELS
from tests.parity.alike import assert_both_refuse
from tests.parity.side_by_side import assert_alike, run_one

SMALL = RGB_PIXELS[:20, ::2]
BLURS = (
    {"sigma": 1.0},
    {"window_size": 5},
    {"sigma": 2.0, "window_size": 7},
    {"sigma": [0.5, 2.0]},
    {"window_size": [3, 25]},
)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16", "int32", "int64", "float16", "float32", "float64"])
def test_blurred_images(dtype):
    """The weights are the same, but products are added up in another order. So a float of single precision may be one
    of the next ones, and an integer may be the next one where the sum lies next to a half. Of half precision, DALI also
    rounds the blurred values in one direction."""
    rounding = {"float16": 2**-2, "float32": 2**-14, "float64": 2**-14}.get(dtype, 1)
    precision = 2**-2 if dtype == "float16" else 2**-14

    def define(library: Any, image: Any) -> dict[str, Any]:
        same = {f"same {blur}": library.fn.gaussian_blur(image, **blur) for blur in BLURS}
        return same | {f"float {blur}": library.fn.gaussian_blur(image, dtype=library.types.FLOAT, **blur) for blur in BLURS}

    images = [(image // (2 if dtype == "int8" else 1)).astype(dtype) for image in (RGB_PIXELS, SMALL)]
    assert_alike(define, images, layouts=["HWC"], bounds={"same": rounding, "float": precision})


LAYOUTS = {
    "HWC": (9, 11, 3),
    "CHW": (3, 9, 11),
    "FHWC": (2, 9, 11, 3),
    "FCHW": (2, 3, 9, 11),
    "CFHW": (3, 2, 9, 11),
    "DHWC": (5, 9, 11, 2),
    "CDHW": (2, 5, 9, 11),
    "FDHWC": (2, 5, 4, 3, 2),
    "DHW": (5, 9, 11),
    "FHW": (2, 9, 11),
    "HW": (9, 11),
    "W": (11,),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_blur_equals_dali_for_each_layout(layout):
    noise = np.random.default_rng(1).random(LAYOUTS[layout], np.float32)

    def define(library: Any, data: Any, plain: Any) -> dict[str, Any]:
        outputs = {"one": library.fn.gaussian_blur(data, sigma=1.0)}
        if noise.ndim <= 3:
            outputs["plain"] = library.fn.gaussian_blur(plain, window_size=5)
        return outputs

    assert_alike(define, [noise, noise[..., ::-1]], [noise, noise], layouts=[layout], bounds=2**-20)


def test_images_that_are_smaller_than_the_window():
    noise = np.random.default_rng(1).random((4, 3, 3), np.float32)

    assert_alike(
        lambda library, image: {"it": library.fn.gaussian_blur(image, sigma=3.0)},
        [noise, noise[:1, :2], noise[:1, :1]],
        layouts=["HWC"],
        bounds=2**-20,
    )


def test_blurs_for_each_sample():
    assert_alike(
        lambda library, image, sigma, size: {"it": library.fn.gaussian_blur(image, sigma=sigma, window_size=size)},
        [RGB_PIXELS, SMALL],
        [np.float32([1.5]), np.float32([0.5, 2])],
        [np.int32([0]), np.int32([3, 7])],
        layouts=["HWC"],
        bounds=1,
    )


def test_jpeg():
    """The same to the last bit, with the same libjpeg-turbo."""

    def define(library: Any, image: Any, video: Any, quality: Any) -> dict[str, Any]:
        distort = library.fn.jpeg_compression_distortion
        outputs = {f"{value}": distort(image, quality=value) for value in (-5, 1, 10, 50, 95, 100, 300)}
        return outputs | {
            "default": distort(image),
            "video": distort(video, quality=20),
            "each": distort(image, quality=quality),
        }

    videos = [np.stack([image, image[::-1]]) for image in (RGB_PIXELS, SMALL)]
    assert_alike(define, [RGB_PIXELS, SMALL], videos, [np.int32(3), np.int32(80)], layouts=["HWC", "FHWC"])


ERASED = (
    {"anchor": (2, 3), "shape": (4, 5)},
    {"anchor": (2, 3), "shape": (4, 5), "axis_names": "WH", "fill_value": (1, 2, 3)},
    {"anchor": (2, 3), "shape": (4, 5), "axes": (1, 0), "fill_value": 300.7},
    {"anchor": (3,), "shape": (4,), "axis_names": "W", "fill_value": -3.7},
    {"anchor": (2, 3, 10, 11), "shape": (4, 5, 3, 3)},
    {"anchor": (0.1, 0.2), "shape": (0.33, 0.25), "normalized": True},
    {"anchor": (0.1, 0.2), "shape": (4, 5), "normalized_anchor": True},
    {"anchor": (2, 3), "shape": (0.2, 0.3), "normalized_shape": True},
    {"anchor": (10, 10), "shape": (5, 4), "centered_anchor": True},
    {"anchor": (0.5, 0.5), "shape": (0.3, 0.3), "normalized": True, "centered_anchor": True},
    {"anchor": (-2.7, -3.2), "shape": (4.6, 5.9)},
    {"anchor": (18, 28), "shape": (500, 6)},
    {"anchor": (80, 3), "shape": (5, 6)},
    {"anchor": (2, 3), "shape": (-4, 5)},
    {"shape": (4, 5)},
    {"anchor": (2, 3, 1), "shape": (5, 6, 1), "axis_names": "HWC", "fill_value": (1, 2, 3)},
    {},
)


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32"])
def test_erased_regions(dtype):
    def define(library: Any, image: Any) -> dict[str, Any]:
        return {f"{region}": library.fn.erase(image, **region) for region in ERASED}

    assert_alike(define, [image.astype(dtype) for image in (RGB_PIXELS, SMALL)], layouts=["HWC"])


def test_erased_regions_of_other_layouts():
    def define(library: Any, planar: Any, video: Any, flat: Any, plain: Any) -> dict[str, Any]:
        fn, region = library.fn, {"anchor": (2, 3), "shape": (4, 5)}
        return {
            "planar": fn.erase(planar, fill_value=(1, 2, 3), **region),
            "frames": fn.erase(video, anchor=(1, 2, 3), shape=(1, 4, 5)),
            "every frame": fn.erase(video, axis_names="HW", **region),
            "flat": fn.erase(flat, **region),
            "plain": fn.erase(plain, axes=(0, 1), **region),
        }

    assert_alike(
        define,
        [np.ascontiguousarray(RGB_PIXELS.transpose(2, 0, 1))],
        [np.stack([RGB_PIXELS, RGB_PIXELS])],
        [GRAY_PIXELS[..., 0]],
        [RGB_PIXELS],
        layouts=["CHW", "FHWC", "HW", ""],
    )


def test_erased_regions_of_each_sample():
    assert_alike(
        lambda library, image, anchor, shape, fill: {
            "it": library.fn.erase(image, anchor=anchor, shape=shape, fill_value=fill)
        },
        [RGB_PIXELS, SMALL],
        [np.float32([2, 3]), np.float32([0, 1, 5, 6])],
        [np.float32([9, 8]), np.float32([2, 2, 4, 4])],
        [np.float32([1, 2, 3]), np.float32([9, 8, 7])],
        layouts=["HWC"],
    )


GRIDS = (
    {},
    {"tile": 20},
    {"tile": 10, "ratio": 0.7},
    {"tile": 20, "ratio": 0.3},
    {"tile": 17, "ratio": 0.4, "angle": 0.5, "shift_x": 3.5, "shift_y": -40.0},
    {"tile": 7, "shift_x": -3.0},
    {"tile": 30, "angle": -2.0},
    {"tile": 13, "ratio": 0.77, "angle": 3.9, "shift_x": 100.3, "shift_y": 7.1},
    {"tile": 5, "ratio": 1.5},
    {"tile": 1, "ratio": 0.0},
)


@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32", "float32"])
def test_grid_masks(dtype):
    given = [np.float32(value) for value in (0.2, 1.3)], [np.int32(9), np.int32(30)]

    def define(library: Any, image: Any, angle: Any, tile: Any) -> dict[str, Any]:
        outputs = {f"{grid}": library.fn.grid_mask(image, **grid) for grid in GRIDS}
        return outputs | {"samples": library.fn.grid_mask(image, angle=angle, tile=tile, ratio=angle, shift_x=angle)}

    assert_alike(define, [image.astype(dtype) + 1 for image in (RGB_PIXELS, SMALL)], *given, layouts=["HWC"])


@pytest.mark.parametrize("layout", ["CHW", "FHWC", "FCHW"])
def test_grid_masks_of_other_layouts(layout):
    """DALI takes the first two axes for height and width, for any layout."""
    images = [np.stack([RGB_PIXELS, RGB_PIXELS[::-1]]) + 1, RGB_PIXELS[None, :40] + 1]
    if layout == "CHW":
        images = [image[0].transpose(2, 0, 1) for image in images]
    elif layout == "FCHW":
        images = [image.transpose(0, 3, 1, 2) for image in images]

    def define(library: Any, image: Any) -> dict[str, Any]:
        return {"it": library.fn.grid_mask(image, tile=16, angle=0.3)}

    plain = run_one(dali_like, define, [[RGB_PIXELS + 1, RGB_PIXELS[:40] + 1]], ["HWC"])["it"].samples
    for image, mask, result in zip(images, plain, run_one(dali_like, define, [images], [layout])["it"].samples, strict=True):
        is_masked = ~mask.any(-1)
        np.testing.assert_array_equal(
            result, np.where(is_masked if layout in ("CHW", "FCHW") else is_masked[..., None], 0, image)
        )


def test_wrong_grids():
    assert_both_refuse(
        lambda library, image: library.fn.grid_mask(image, tile=0), [SMALL], layouts=["HWC"], match="tile must be"
    )
