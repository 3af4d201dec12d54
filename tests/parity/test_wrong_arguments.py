"""Arguments of operators that DALI refuses: ours is an error that ``except`` clauses for DALI's catch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.parity.alike import assert_both_refuse

IMAGE = np.zeros((6, 8, 3), np.uint8)
CORNER: dict[str, Any] = {"anchor": [0, 0], "shape": [1, 1]}
START: dict[str, Any] = {"start": [0, 0], "end": [1, 1]}


@pytest.mark.parametrize(
    ("operator", "given", "message"),
    [
        ("slice", {**START, "axis_names": "XY"}, "axis_names='XY' are not all in the layout"),
        ("slice", {**START, "axes": [0, 5]}, r"axes=\[0, 5\]: the input has 3 dimensions"),
        ("slice", {**START, "out_of_bounds_policy": "no"}, "out_of_bounds_policy must be one of"),
        ("pad", {"axis_names": "XY"}, "axis_names='XY' are not all in the layout"),
        ("pad", {"axes": [5]}, r"axes=\[5\]: the input has 3 dimensions"),
        ("pad", {"axes": [0], "shape": [1, 2]}, "shape must have one element"),
        ("erase", {**CORNER, "axis_names": "XY"}, "axis_names='XY' are not all in the layout"),
        ("erase", {**CORNER, "axes": [0, 1], "fill_value": [1, 2]}, "fill_value has 2 values"),
        ("normalize", {"axis_names": "XY"}, "axis_names='XY' are not all in the layout"),
        ("normalize", {"axes": [5]}, r"axes=\[5\]: the input has 3 dimensions"),
        ("crop_mirror_normalize", {"mean": [1, 2]}, "mean has 2 elements"),
        ("crop_mirror_normalize", {"output_layout": "CHX"}, "output_layout='CHX' is not a permutation"),
        ("resize", {"size": [4, 5, 6]}, "size must have one element, or one for each of the 2 axes"),
        ("resize", {"size": [4, 5], "mode": "no"}, "mode must be one of"),
        ("rotate", {"angle": 3, "size": [1, 2, 3]}, "size must have 2 elements"),
        ("rotate", {}, "needs the argument angle"),
        ("gaussian_blur", {}, "sigma and window_size shouldn't be 0"),
        ("gaussian_blur", {"window_size": 4}, "odd length"),
        ("gaussian_blur", {"sigma": [1.0, 2.0, 3.0]}, "sigma must have one element, or one for each of the 2 axes"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_of_images(operator: str, given: dict[str, Any], message: str) -> None:
    assert_both_refuse(
        lambda library, image: getattr(library.fn, operator)(image, **given), [IMAGE], layouts=["HWC"], match=message
    )


def test_axes_that_are_nodes() -> None:
    assert_both_refuse(
        lambda library, image, axes: library.fn.pad(image, axes=axes),
        [IMAGE],
        [np.array([0, 5])],
        layouts=["HWC"],
        match=r"axes=\[0, 5\]: the input has 3 dimensions",
    )


@pytest.mark.parametrize("shape", [(), (4, 5), (2, 3, 4, 5)], ids=str)
def test_number_of_dimensions(shape: tuple[int, ...]) -> None:
    assert_both_refuse(
        lambda library, image: library.fn.paste(image, ratio=2, fill_value=0), [np.zeros(shape, np.uint8)], match="no layout"
    )


def test_numbers_are_not_blurred() -> None:
    assert_both_refuse(
        lambda library, image: library.fn.gaussian_blur(image, sigma=1.0), [np.uint8(3)], match="from 1 to 3 dimensions"
    )


def test_arguments_that_are_no_sequences() -> None:
    assert_both_refuse(
        lambda library, image: library.fn.per_frame(image), [IMAGE], layouts=["HWC"], match="does not begin with F"
    )


@pytest.mark.parametrize("count", [0, 2])
def test_number_of_inputs(count: int) -> None:
    assert_both_refuse(
        lambda library, image: library.fn.flip(*[image] * count), [IMAGE], layouts=["HWC"], match="takes 1 inputs"
    )
