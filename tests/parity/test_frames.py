"""Arguments with a value for each frame of a sequence, as DALI has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

pytest.importorskip("nvidia.dali")

from tests.image_files import RGB_PIXELS
from tests.parity.conftest import OURS
from tests.parity.operators import compare, error_of

pytestmark = pytest.mark.peers

#: Two sequences of three frames and of two.
VIDEOS = [np.stack([RGB_PIXELS[i : i + 20, i : i + 27] for i in range(count)]) for count in (3, 2)]
VOLUMES = [np.stack([video, video[:, ::-1]]) for video in VIDEOS]
FACTORS = [np.float32([0.5, 1.5, 1.2]), np.float32([2, 0.7])]
ANGLES = [np.float32([10, 100, -45]), np.float32([30, 60])]
PAIRS = [np.float32([[0.5, 2], [1, 1], [2, 0.7]]), np.float32([[1, 3], [0.4, 0.4]])]
WINDOWS = [np.int32([3, 5, 9]), np.int32([1, 7])]
AXES = [np.float32([[0, 0, 1], [1, 2, 0]]), np.float32([[0, -2, 0], [1, 1, 1]])]
MATRICES = [
    np.float32([[[1, 0.1, 2], [0, 1.2, 3]], [[1, 0, 0], [0, 1, 0]], [[0.8, 0.3, 1], [-0.2, 1, 0]]]),
    np.float32([[[1, 0, 0.3], [0, 1, -2]], [[0.6, 0, 0], [0, 0.6, 0]]]),
]
#: One for each sample.
EACH = [np.float32(0.8), np.float32(1.7)]

#: Arguments with a value for each frame, and arguments with one for each sample.
COLOURS: dict[str, tuple[str, list[str]]] = {
    "brightness": ("brightness", ["brightness_shift"]),
    "brightness brightness_shift": ("brightness", []),
    "contrast contrast_center": ("contrast", []),
    "contrast brightness_shift": ("brightness_contrast", ["brightness"]),
    "hue": ("hue", []),
    "saturation": ("saturation", []),
    "hue value": ("hsv", ["saturation"]),
    "brightness contrast hue": ("color_twist", ["saturation"]),
}


@pytest.mark.parametrize("framed", COLOURS)
def test_colours(framed: str, dali: Any) -> None:
    operator, single = COLOURS[framed]

    def define(library: Any, video: Any, factors: Any, each: Any) -> Any:
        arguments = dict.fromkeys(framed.split(), library.fn.per_frame(factors)) | dict.fromkeys(single, each)
        return getattr(library.fn, operator)(video, **arguments), each

    compare(dali, define, [VIDEOS, FACTORS, EACH], ["FHWC"])


#: Operators that turn or blur, their values, and further arguments.
CASES: dict[str, tuple[str, str, Sequence[Any], dict[str, Any]]] = {
    "rotate": ("rotate", "angle", ANGLES, {}),
    "rotate within the size": ("rotate", "angle", ANGLES, {"keep_size": True, "fill_value": 7.0}),
    "rotate to a size": ("rotate", "angle", ANGLES, {"size": [9, 30]}),
    "rotate, of shape F1": ("rotate", "angle", [angles[:, np.newaxis] for angles in ANGLES], {}),
    "rotate all by one": ("rotate", "angle", [angles[:1] for angles in ANGLES], {}),
    "warp_affine": ("warp_affine", "matrix", MATRICES, {}),
    "gaussian_blur": ("gaussian_blur", "sigma", FACTORS, {}),
    "gaussian_blur, two axes": ("gaussian_blur", "sigma", PAIRS, {}),
    "gaussian_blur by windows": ("gaussian_blur", "window_size", WINDOWS, {}),
    "gaussian_blur of one sigma": ("gaussian_blur", "window_size", WINDOWS, {"sigma": 1.5}),
}


@pytest.mark.parametrize(("operator", "argument", "values", "others"), CASES.values(), ids=CASES)
def test_shapes(operator: str, argument: str, values: Sequence[Any], others: dict[str, Any], dali: Any) -> None:
    def define(library: Any, video: Any, values: Any) -> Any:
        return getattr(library.fn, operator)(video, **{argument: library.fn.per_frame(values)}, **others)

    compare(dali, define, [VIDEOS, values], ["FHWC"], bound=1)


def test_transforms_that_are_an_input(dali: Any) -> None:
    compare(
        dali,
        lambda library, video, matrices: library.fn.warp_affine(video, library.fn.per_frame(matrices), fill_value=0.0),
        [VIDEOS, MATRICES],
        ["FHWC"],
        bound=1,
    )


@pytest.mark.parametrize("keep_size", [True, False])
def test_volumes(keep_size: bool, dali: Any) -> None:
    def define(library: Any, volumes: Any, angles: Any, axes: Any) -> Any:
        per_frame = library.fn.per_frame
        return library.fn.rotate(volumes, angle=per_frame(angles), axis=per_frame(axes), keep_size=keep_size)

    compare(dali, define, [VOLUMES, [angles[:2] for angles in ANGLES], AXES], ["FDHWC"], bound=1)


@pytest.mark.parametrize("layout", ["FCHW", "CFHW"])
def test_channels_first(layout: str, dali: Any) -> None:
    order = ["FHWC".index(letter) for letter in layout]
    compare(
        dali,
        lambda library, video, sigma: library.fn.gaussian_blur(video, sigma=library.fn.per_frame(sigma)),
        [[video.transpose(order) for video in VIDEOS], FACTORS],
        [layout],
        bound=1,
    )


def test_the_canvas_of_a_sequence(dali: Any) -> None:
    """As large as the frames want, and odd or even as the most of them."""
    random = np.random.default_rng(0)
    blank = [np.zeros((count, *random.integers(1, 14, 2), 1), np.uint8) for count in random.integers(1, 5, 60)]
    angles = [random.uniform(-180, 180, len(video)).astype(np.float32) for video in blank]

    compare(
        dali,
        lambda library, video, angles: library.fn.rotate(video, angle=library.fn.per_frame(angles)),
        [blank, angles],
        ["FHWC"],
    )


def test_a_layout_is_as_good_as_the_operator(dali: Any) -> None:
    def define(library: Any, video: Any, factors: Any) -> Any:
        return library.fn.saturation(video, saturation=factors)

    compare(dali, define, [VIDEOS, FACTORS], ["FHWC", "F"])


def test_single_images_take_the_value_of_one_frame(dali: Any) -> None:
    compare(
        dali,
        lambda library, image, factors: library.fn.saturation(image, saturation=library.fn.per_frame(factors)),
        [[video[0] for video in VIDEOS], [factors[:1] for factors in FACTORS]],
        ["HWC"],
    )


@pytest.mark.parametrize(
    ("layout", "replace", "shape"),
    [(None, False, (2,)), (None, False, (2, 3, 1)), ("FX", False, (2, 3)), ("XY", True, (2, 3)), ("FX", True, (2, 3))],
)
def test_layouts(layout: str | None, replace: bool, shape: tuple[int, ...], dali: Any) -> None:
    values = [np.ones(shape, np.float32)] * 2
    compare(dali, lambda library, values: library.fn.per_frame(values, replace=replace), [values], [layout])


WRONG: dict[str, tuple[Callable[..., Any], Sequence[Any]]] = {
    "too few": (lambda fn, video, values: fn.rotate(video, angle=values), [np.float32([1, 2])] * 2),
    "none": (lambda fn, video, values: fn.rotate(video, angle=values), [np.float32([])] * 2),
    "flip": (lambda fn, video, values: fn.flip(video, horizontal=values), [np.int32([1, 0, 1])] * 2),
    "crop": (lambda fn, video, values: fn.crop(video, crop=[2, 2], crop_pos_x=values), [FACTORS[0]] * 2),
    "no frames": (lambda fn, video, values: fn.hue(fn.reshape(video, layout="DHWC"), hue=values), [FACTORS[0]] * 2),
}


@pytest.mark.parametrize(("use", "values"), WRONG.values(), ids=WRONG)
def test_wrong_arguments_are_errors_in_both_libraries(use: Callable[..., Any], values: Sequence[Any], dali: Any) -> None:
    def define(library: Any, video: Any, values: Any) -> Any:
        return use(library.fn, library.fn.reshape(video, layout="FHWC"), library.fn.per_frame(values))

    errors = [error_of(library, define, [[VIDEOS[0]] * 2, values]) for library in (OURS, dali)]

    assert all(errors), errors
