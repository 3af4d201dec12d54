"""JPEGs with harmless irregularities have the pixels of the regular file; serious ones behind these are still errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("cv2")
simplejpeg = pytest.importorskip("simplejpeg")
pytest.importorskip("skimage")

from dali_like import fn, types  # noqa: E402
from dali_like.errors import DecodeError  # noqa: E402
from dali_like.images.decode import decode_image, decode_jpeg_smaller  # noqa: E402
from dali_like.types import ANY_DATA, BGR, GRAY, RGB, DALIImageType  # noqa: E402
from tests.image_files import IRREGULAR_JPEGS, as_file, image_file, with_restart_numbers  # noqa: E402
from tests.operators.running import run  # noqa: E402

kinds = pytest.mark.parametrize("kind", IRREGULAR_JPEGS)


def regular(kind: str) -> bytes:
    return image_file(IRREGULAR_JPEGS[kind][0]).tobytes()


def irregular(kind: str) -> bytes:
    changed = IRREGULAR_JPEGS[kind][1](regular(kind))
    assert changed != regular(kind)
    return changed


@kinds
def test_a_harmless_irregularity_is_a_warning_of_libjpeg(kind: str) -> None:
    with pytest.raises(ValueError, match=r"Invalid SOS|JFIF|Adobe|RST|extraneous"):
        simplejpeg.decode_jpeg(irregular(kind), "CMYK" if "inks" in kind else "RGB")


@kinds
@pytest.mark.parametrize("output_type", [RGB, BGR, GRAY, ANY_DATA])
@pytest.mark.parametrize("in_place", [False, True])
def test_an_irregular_file_has_the_pixels_of_the_regular_one(kind: str, output_type: DALIImageType, in_place: bool) -> None:
    expected = decode_image(as_file(regular(kind)), output_type)
    out = np.zeros_like(expected) if in_place else None

    np.testing.assert_array_equal(decode_image(as_file(irregular(kind)), output_type, out=out), expected)


@kinds
@pytest.mark.parametrize("share", [0.5, 0.75, 0.99])
def test_a_truncated_file_is_refused_although_its_first_irregularity_is_harmless(kind: str, share: float) -> None:
    data = irregular(kind)
    with pytest.raises(DecodeError, match="cannot decode jpeg data"):
        decode_image(as_file(data[: int(len(data) * share)]))


@kinds
def test_damaged_data_are_refused_although_the_first_irregularity_is_harmless(kind: str) -> None:
    data = irregular(kind)
    begin = data.rindex(b"\xff\xda") + 20
    with pytest.raises(DecodeError, match="cannot decode jpeg data"):
        decode_image(as_file(data[:begin] + data[(begin + len(data)) // 2 :]))


def test_a_file_that_lacks_a_restart_interval_is_refused() -> None:
    """Its markers are not renumbered: the following data would be in the place of the missing data."""
    data = with_restart_numbers(image_file("jpeg_restarts").tobytes(), lambda number: number)
    begin, end = data.index(b"\xff\xd1"), data.index(b"\xff\xd2")
    with pytest.raises(DecodeError, match="instead of RST"):
        decode_image(as_file(data[:begin] + data[end:]))


@pytest.mark.parametrize("kind", [kind for kind in IRREGULAR_JPEGS if "inks" not in kind])
def test_smaller_images_of_irregular_files_have_the_pixels_of_regular_ones(kind: str) -> None:
    small = [np.zeros((31, 45, 3), np.uint8) for _ in range(2)]
    for data, out in zip((regular(kind), irregular(kind)), small, strict=True):
        assert decode_jpeg_smaller(as_file(data), RGB, 2, out)

    np.testing.assert_array_equal(*small)


def in_operators(data: Any) -> list[Any]:
    return [
        fn.decoders.image(data),
        fn.decoders.image(data, min_size=30),
        fn.decoders.image_crop(data, crop=(20, 30), crop_pos_x=0.3, output_type=types.GRAY),
        fn.decoders.image_slice(data, start=[5, 9], shape=[30, 40], use_fast_idct=True),
        fn.decoders.image_random_crop(data, random_area=[0.2, 0.9], seed=3),
        fn.experimental.decoders.image(data, device="cpu"),
        fn.experimental.decoders.image_crop(data, crop=(20, 30), device="cpu"),
        fn.experimental.decoders.image_slice(data, start=[5, 9], shape=[30, 40], device="cpu"),
        fn.experimental.decoders.image_random_crop(data, random_area=[0.2, 0.9], seed=3, device="cpu"),
        fn.peek_image_shape(data),
    ]


def test_all_decoders_take_irregular_files() -> None:
    (expected,) = run(in_operators, [as_file(regular(kind)) for kind in IRREGULAR_JPEGS])
    (results,) = run(in_operators, [as_file(irregular(kind)) for kind in IRREGULAR_JPEGS])

    for one, other in zip(results, expected, strict=True):
        for pixels, regular_pixels in zip(one, other, strict=True):
            np.testing.assert_array_equal(pixels, regular_pixels)
