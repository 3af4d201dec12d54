"""Pixel operators accept arrays of any strides: cropped, mirrored and transposed ones."""

from __future__ import annotations

import numpy as np
import pytest

from tests.operators.photometry.test_filters import apply

NOISE = np.random.default_rng(1).integers(0, 256, (20, 30, 3), np.uint8)
VIEWS = {
    "crop": lambda image: image[3:15, 4:19],
    "mirrored": lambda image: image[:, ::-1],
    "upside down": lambda image: image[::-1],
    "turned": lambda image: image.transpose(1, 0, 2),
    "other order of channels": lambda image: image[..., ::-1],
    "every second row": lambda image: image[::2, ::3],
    "planar": lambda image: np.ascontiguousarray(image.transpose(2, 0, 1)).transpose(1, 2, 0),
    "read-only": lambda image: np.frombuffer(image.tobytes(), image.dtype).reshape(image.shape),
}
OPERATORS = {
    "brightness_contrast": {"brightness": 1.2},
    "color_twist": {"contrast": 0.5, "hue": 20.0},
    "gaussian_blur": {"sigma": 1.0},
    "erase": {"anchor": (2, 3), "shape": (4, 5)},
    "crop_mirror_normalize": {"mean": 3.0, "std": 0.5, "mirror": 1, "crop": (9, 7), "dtype": "float16"},
    "normalize": {"axes": (0, 1)},
}
OF_BYTES = {
    "color_space_conversion": {"image_type": 0, "output_type": 3},
    "jpeg_compression_distortion": {},
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32"])
def test_the_same_as_of_an_array_without_gaps(dtype, view):
    image = VIEWS[view](NOISE.astype(dtype))
    operators = OPERATORS | (OF_BYTES if dtype == "uint8" else {})

    for path, arguments in operators.items():
        expected = apply(path, image.copy(order="C"), "HWC", **arguments)
        np.testing.assert_array_equal(apply(path, image, "HWC", **arguments), expected, err_msg=path)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("path", ["brightness_contrast", "color_twist", "crop_mirror_normalize", "normalize"])
def test_numbers_that_are_not_finite_are_no_warnings(path, dtype):
    image = np.full((2, 3, 3), 3e38, np.float32)
    image[0, 0], image[0, 1] = np.inf, np.nan

    result = apply(
        path, image, "HWC", **{name: value for name, value in OPERATORS[path].items() if name != "crop"} | {"dtype": dtype}
    )

    assert not np.isfinite(result).all()
