"""crop_mirror_normalize and normalize as DALI does it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.image_files import GRAY_PIXELS, RGB_PIXELS
from tests.parity.side_by_side import assert_alike

SMALL = np.ascontiguousarray(RGB_PIXELS[:50, ::2])
USUAL = {"mean": [123.675, 116.28, 103.53], "std": [58.395, 57.12, 57.375]}
IMAGES = {
    "uint8": RGB_PIXELS,
    "int16": (RGB_PIXELS.astype(np.int16) - 100) * 200,
    "uint16": RGB_PIXELS.astype(np.uint16) * 257,
    "int32": (RGB_PIXELS.astype(np.int32) - 100) * 8_000_000,
    "float32": RGB_PIXELS / np.float32(255),
    "float16": (RGB_PIXELS / np.float32(255)).astype(np.float16),
}
CROPS = (
    {},
    {"crop": (40, 50)},
    {"crop": (40, 50), "mirror": 1},
    {"crop": (40, 50), "output_layout": "HWC"},
    {"crop": (40, 50), "output_layout": "HWC", "mirror": 1, "pad_output": True},
    {"pad_output": True},
    {"pad_output": True, "fill_values": 5},
    {"output_layout": "WCH"},
    {"crop_h": 30.7, "crop_w": 20, "crop_pos_x": 0.3, "crop_pos_y": 0.9},
    {"crop": (41, 50), "rounding": "truncate", "crop_pos_y": 0.51},
    {"crop": (100, 20), "out_of_bounds_policy": "pad"},
    {"crop": (100, 120), "out_of_bounds_policy": "pad", "mirror": 1, "fill_values": 7.4, "crop_pos_x": 0.1},
    {"crop": (100, 120), "out_of_bounds_policy": "pad", "mirror": 1, "fill_values": [1, 2, 3], "output_layout": "HWC"},
    {
        "crop": (99, 99),
        "out_of_bounds_policy": "pad",
        "fill_values": [1, 2, 3, 4.5],
        "pad_output": True,
        "output_layout": "HWC",
    },
    {"crop": (100, 120), "out_of_bounds_policy": "trim_to_shape"},
    {"scale": 3.7, "shift": 1.3},
    {"scale": 60.0, "shift": 130.0},
)
SCALINGS = ({}, {"mean": 1.5}, {"std": 3.0}, {"std": [1, 2, 3.0]}, {"scale": 1 / 255}, {"std": 0.0}, {"shift": -3.0})


class TestCropMirrorNormalize:
    """The same to the last bit: the arithmetic is the same, in single precision."""

    @pytest.mark.parametrize("dtype", IMAGES)
    def test_images(self, dtype):
        def define(library: Any, image: Any) -> dict[str, Any]:
            return {
                f"{result} {crop}": library.fn.crop_mirror_normalize(
                    image, dtype=getattr(library.types, result), **{**USUAL, **crop}
                )
                for result in ("FLOAT", "FLOAT16", "UINT8", "INT8")
                for crop in CROPS
            }

        assert_alike(define, [IMAGES[dtype]], layouts=["HWC"])

    def test_scaling(self):
        def define(library: Any, image: Any, plain: Any) -> dict[str, Any]:
            normalize = library.fn.crop_mirror_normalize
            outputs = {f"{arguments}": normalize(image, **arguments) for arguments in SCALINGS}
            return outputs | {"plain": normalize(plain)}

        assert_alike(define, [RGB_PIXELS, SMALL], [RGB_PIXELS, SMALL], layouts=["HWC"])

    @pytest.mark.parametrize("layout", ["CHW", "FHWC", "DHWC", "FCHW", "CFHW", "CDHW", "FDHWC", "FCDHW", "CFDHW"])
    def test_layouts(self, layout):
        noise = np.random.default_rng(1).integers(0, 256, ["CHWFD".index(letter) + 3 for letter in layout], np.uint8)
        noise = noise.take(range(3), layout.index("C"))
        others = layout.replace("C", "")
        crop = (3, 2, 3) if "D" in layout else (2, 3)

        def define(library: Any, data: Any) -> dict[str, Any]:
            normalize = library.fn.crop_mirror_normalize
            outputs = {
                f"{permuted} {mirror}": normalize(data, crop=crop, mirror=mirror, output_layout=permuted, **USUAL)
                for permuted in (layout, f"{others}C", f"C{others}", layout[::-1])
                for mirror in (0, 1)
            }
            return outputs | {"whole": normalize(data, output_layout="", pad_output=True)}

        assert_alike(define, [noise], layouts=[layout])

    def test_numbers_of_channels(self):
        def define(library: Any, gray: Any, five: Any) -> dict[str, Any]:
            return {
                f"{name} {arguments}": library.fn.crop_mirror_normalize(data, mean=3.0, mirror=1, **arguments)
                for name, data in (("gray", gray), ("five", five))
                for arguments in ({}, {"pad_output": True}, {"pad_output": True, "crop": (5, 6), "output_layout": "HWC"})
            }

        assert_alike(define, [GRAY_PIXELS], [np.concatenate([RGB_PIXELS, RGB_PIXELS[..., :2]], 2)], layouts=["HWC", "HWC"])

    def test_arguments_for_each_sample(self):
        assert_alike(
            lambda library, image, crop, mirror, mean, position: {
                "it": library.fn.crop_mirror_normalize(
                    image, crop=crop, mirror=mirror, mean=mean, std=mean, crop_pos_x=position, crop_pos_y=position
                )
            },
            [RGB_PIXELS, SMALL],
            [np.float32([10, 12])] * 2,
            [np.int32(1), np.int32(0)],
            [np.float32([1, 2, 3]), np.float32([4, 5, 6])],
            [np.float32(0.3), np.float32(1)],
            layouts=["HWC"],
        )


NORMALIZATIONS = (
    {},
    {"axes": (0, 1)},
    {"axes": (0,)},
    {"axis_names": "HW", "ddof": 1},
    {"mean": 100.0},
    {"stddev": 20.0},
    {"mean": 100.0, "axes": (0, 1)},
    {"mean": 100.0, "stddev": 20.0, "epsilon": 5.0},
)


class TestNormalize:
    """Sums are rounded at other places: results of up to ten differ by 3e-6 at most."""

    @pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16", "int32", "uint32", "float32"])
    def test_images(self, dtype):
        def define(library: Any, image: Any) -> dict[str, Any]:
            outputs = {f"{arguments}": library.fn.normalize(image, **arguments) for arguments in NORMALIZATIONS}
            for result in ("UINT8", "INT16", "INT32"):
                outputs[f"integer {result}"] = library.fn.normalize(
                    image, mean=40.3, stddev=20.7, scale=30.0, shift=128, dtype=getattr(library.types, result)
                )
            return outputs

        images = [(image // 2).astype(dtype) for image in (RGB_PIXELS, SMALL)]
        assert_alike(
            define, images, layouts=["HWC"], bounds={f"{arguments}".split()[0]: 3e-6 for arguments in NORMALIZATIONS}
        )

    def test_no_variance(self):
        def define(library: Any, image: Any) -> dict[str, Any]:
            fn = library.fn
            outputs = {
                f"{ddof} {epsilon}": fn.normalize(image, ddof=ddof, epsilon=epsilon)
                for ddof in (0, 60, 99)
                for epsilon in (0, 1)
            }
            return outputs | {
                "means": fn.normalize(image, mean=3.0, ddof=60),
                "nothing": fn.normalize(image, mean=3.0, stddev=0.0),
                "channels": fn.normalize(image, axes=(0, 1), shift=2.0),
            }

        assert_alike(define, [np.full((4, 5, 3), 9, np.uint8)], layouts=["HWC"])

    def test_batches(self):
        def define(library: Any, image: Any) -> dict[str, Any]:
            fn = library.fn
            return {
                "all": fn.normalize(image, batch=True),
                "channels": fn.normalize(image, batch=True, axes=(0, 1)),
                "mean": fn.normalize(image, batch=True, mean=90.0, ddof=3),
                "stddev": fn.normalize(image, batch=True, stddev=20.0),
            }

        assert_alike(define, [RGB_PIXELS, SMALL], layouts=["HWC"], bounds=3e-6)

    def test_arrays_of_means_and_standard_deviations(self):
        def define(library: Any, image: Any, array: Any) -> dict[str, Any]:
            fn = library.fn
            return {
                "mean": fn.normalize(image, mean=array),
                "stddev": fn.normalize(image, stddev=array),
                "both": fn.normalize(image, mean=array, stddev=array),
                "axes": fn.normalize(image, mean=array, axes=(0, 1)),
                "number": fn.normalize(image, mean=array, stddev=2.0),
                "constant": fn.normalize(image, mean=np.float32([[[100, 110, 120]]])),
            }

        arrays = [np.float32([[[100, 110, 120]]]), np.float32([[[50, 55, 0]]])]
        assert_alike(define, [RGB_PIXELS, SMALL], arrays, layouts=["HWC"], bounds=3e-6)
