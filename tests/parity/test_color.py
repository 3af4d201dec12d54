"""Colours as DALI changes them: the same to the last bit, since the arithmetic is the same in the same order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.image_files import GRAY_PIXELS, RGB_PIXELS
from tests.parity.alike import assert_both_refuse
from tests.parity.side_by_side import assert_alike

SMALL = RGB_PIXELS[:20, ::2]
IMAGES = {
    "uint8": [RGB_PIXELS, SMALL],
    "int16": [(RGB_PIXELS.astype(np.int16) - 100) * 200, SMALL.astype(np.int16)],
    "int32": [(RGB_PIXELS.astype(np.int32) - 100) * 8_000_000, SMALL.astype(np.int32)],
    "float32": [RGB_PIXELS / np.float32(255), SMALL / np.float32(100)],
}
BRIGHTNESS = ({"brightness": 1.3, "contrast": 0.7, "brightness_shift": 0.1}, {"contrast": 1.7, "contrast_center": 100.0}, {})
TWISTS = ({"hue": 30.0, "saturation": 0.7}, {"hue": -200.0, "saturation": 2.5}, {"saturation": 0.0}, {})


@pytest.mark.parametrize("dtype", IMAGES)
def test_brightness_and_contrast(dtype):
    def define(library: Any, image: Any) -> dict[str, Any]:
        fn, types = library.fn, library.types
        outputs = {
            f"{result} {arguments}": fn.brightness_contrast(image, dtype=getattr(types, result), **arguments)
            for result in ("UINT8", "INT16", "INT32", "FLOAT")
            for arguments in BRIGHTNESS
        }
        return outputs | {
            "halves": fn.brightness_contrast(image, brightness=1.5),
            "brightness": fn.brightness(image, brightness=0.6, brightness_shift=0.2),
            "contrast": fn.contrast(image, contrast=1.4, contrast_center=0.3),
        }

    assert_alike(define, IMAGES[dtype], layouts=["HWC"])


@pytest.mark.parametrize("dtype", [*IMAGES, "float16"])
def test_hue_and_saturation(dtype):
    """Halves of the smallest number of half precision, FLOAT16's 2**-24, are rounded to even."""

    def define(library: Any, image: Any) -> dict[str, Any]:
        fn, types = library.fn, library.types
        outputs = {}
        for result in ("UINT8", "INT16", "INT32", "FLOAT16", "FLOAT"):
            kind = getattr(types, result)
            for twist in TWISTS:
                outputs[f"{result} hsv {twist}"] = fn.hsv(image, value=1.3, dtype=kind, **twist)
                outputs[f"{result} twist {twist}"] = fn.color_twist(image, brightness=1.3, contrast=0.6, dtype=kind, **twist)
        return outputs | {
            "hue": fn.hue(image, hue=45.0),
            "saturation": fn.saturation(image, saturation=0.3),
            "halves": fn.color_twist(image, brightness=1.5),
            "hsv": fn.hsv(image),
        }

    images = [image.astype(np.float16) for image in IMAGES["float32"]] if dtype == "float16" else IMAGES[dtype]
    assert_alike(define, images, layouts=["HWC"], bounds={"FLOAT16": 2**-24})


def test_rounding_to_half_precision():
    """Halves away from zero, wherever numbers of half precision are made; NumPy rounds them to even ones."""
    numbers = np.float32([1 + 2**-11, 1 + 3 * 2**-11, -1 - 2**-11, 65519.996, 65520, 70000, np.inf, np.nan, 1 / 3, -2e-3])
    image = np.zeros((1, numbers.size, 3), np.float32)
    image[0, :, 0] = numbers

    def define(library: Any, image: Any, numbers: Any) -> dict[str, Any]:
        half = {"dtype": library.types.FLOAT16}
        return {
            "cast": library.fn.cast(numbers, **half),
            "hsv": library.fn.hsv(image, **half),
            "normalized": library.fn.crop_mirror_normalize(image, **half),
        }

    assert_alike(define, [image], [numbers], layouts=["HWC"])


def test_colour_models():
    noise = np.random.default_rng(1).integers(0, 256, (64, 64, 3), np.uint8)

    def define(library: Any, image: Any, gray: Any) -> dict[str, Any]:
        kinds = {name: getattr(library.types, name) for name in ("RGB", "BGR", "YCbCr", "GRAY")}
        return {
            f"{before} to {after}": library.fn.color_space_conversion(
                gray if before == "GRAY" else image, image_type=kinds[before], output_type=kinds[after]
            )
            for before in kinds
            for after in kinds
            if before != after
        }

    assert_alike(define, [noise, RGB_PIXELS], [noise[..., :1], GRAY_PIXELS], layouts=["HWC", "HWC"])


def test_videos_volumes_and_any_number_of_channels():
    def define(library: Any, video: Any, volume: Any, four: Any, plain: Any) -> dict[str, Any]:
        fn, types = library.fn, library.types
        outputs = {"four": fn.brightness_contrast(four, brightness=1.3), "plain": fn.hsv(plain, hue=20.0)}
        for name, data in (("video", video), ("volume", volume)):
            outputs[f"{name} hsv"] = fn.hsv(data, hue=9.0)
            outputs[f"{name} contrast"] = fn.brightness_contrast(data, contrast=2.0)
            for kind in (types.YCbCr, types.GRAY):
                outputs[f"{name} {kind}"] = fn.color_space_conversion(data, image_type=types.RGB, output_type=kind)
        return outputs

    frames = np.stack([RGB_PIXELS, RGB_PIXELS[::-1]])
    four = np.concatenate([RGB_PIXELS, GRAY_PIXELS], axis=2)
    assert_alike(define, [frames], [frames], [four], [frames], layouts=["FHWC", "DHWC", "HWC", ""])


def test_arguments_for_each_sample():
    def define(library: Any, image: Any, a: Any) -> dict[str, Any]:
        fn = library.fn
        return {
            "hsv": fn.hsv(image, hue=a, saturation=a, value=a),
            "twist": fn.color_twist(image, brightness=a, contrast=a, hue=a, saturation=a),
            "contrast": fn.brightness_contrast(image, brightness=a, contrast=a, contrast_center=a, brightness_shift=a),
        }

    assert_alike(define, IMAGES["uint8"], [np.float32(0.3), np.float32(1.2)], layouts=["HWC"])


def test_equalized_histograms():
    equalize = {"HWC": RGB_PIXELS, "CHW": RGB_PIXELS.transpose(2, 0, 1), "HW": GRAY_PIXELS[..., 0] // 3 + 40}
    videos = {f"F{layout}": np.stack([image, image[::-1] // 2]) for layout, image in equalize.items()}
    plain = {"": SMALL, " ": SMALL[None], "  ": SMALL[..., 0]}
    even = np.full((4, 5, 2), 7, np.uint8)
    images = {**equalize, **videos, **plain, "HWC ": even}

    assert_alike(
        lambda library, *nodes: {str(i): library.fn.experimental.equalize(node) for i, node in enumerate(nodes)},
        *([image] for image in images.values()),
        layouts=[layout.strip() for layout in images],
    )


MOSAIC = (RGB_PIXELS[:40, :60, 1] // 2) + RGB_PIXELS[:40, :60, 0] // 3
POSITIONS = [[0, 0], [0, 1], [1, 0], [1, 1], 1]


@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
def test_color_filter_arrays(dtype):
    mosaic = MOSAIC.astype(dtype) * (1 if dtype == "uint8" else 200)
    videos, plain = [np.stack([mosaic, mosaic[::-1]])] * 2, [mosaic, mosaic[:20, :10]]
    algorithms = ["bilinear_ocv", "edgeaware_ocv", "gray_ocv", *(["vng_ocv"] if dtype == "uint8" else [])]

    def define(library: Any, image: Any, channel: Any, video: Any, bare: Any, place: Any, places: Any) -> dict[str, Any]:
        debayer, per_frame = library.fn.experimental.debayer, library.fn.per_frame
        outputs = {
            f"{algorithm} {position}": debayer(image, blue_position=position, algorithm=algorithm)
            for algorithm in algorithms
            for position in POSITIONS
        }
        return outputs | {
            "channel": debayer(channel, blue_position=place),
            "video": debayer(video, blue_position=place),
            "frames": debayer(video, blue_position=per_frame(places)),
            "bare": debayer(bare, blue_position=[0, 1]),
        }

    assert_alike(
        define,
        plain,
        [image[..., None] for image in plain],
        videos,
        plain,
        [np.int32([0, 1]), np.int32([1, 0])],
        [np.int32([[0, 1], [1, 1]]), np.int32([[0, 0], [1, 0]])],
        layouts=["HW", "HWC", "FHW", ""],
    )


@pytest.mark.parametrize(
    ("match", "image", "arguments"),
    [
        ("one channel", RGB_PIXELS, {}),
        ("must be even", MOSAIC[:3, :, None], {}),
        ("uint8 or uint16", MOSAIC[..., None].astype(np.int16), {}),
        ("dtype uint8", MOSAIC[..., None].astype(np.uint16), {"algorithm": "vng_ocv"}),
        ("algorithm must be one of", MOSAIC[..., None], {"algorithm": "default_npp"}),
        ("blue_position must be", MOSAIC[..., None], {"blue_position": [0, 2]}),
        ("blue_position must be", MOSAIC[..., None], {"blue_position": [0, 0, 0]}),
    ],
)
def test_wrong_color_filter_arrays(match, image, arguments):
    given = {"blue_position": [0, 0], **arguments}

    assert_both_refuse(
        lambda library, data: library.fn.experimental.debayer(data, **given), [image], layouts=["HWC"], match=match
    )


def test_other_dtypes_are_not_equalized():
    assert_both_refuse(
        lambda library, data: library.fn.experimental.equalize(data),
        [RGB_PIXELS.astype(np.uint16)],
        layouts=["HWC"],
        match="uint8, not uint16; convert",
    )
