"""Cutting JPEG files to their upper rows keeps the pixels, and happens only where possible."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("cv2")
pytest.importorskip("simplejpeg")
pytest.importorskip("skimage")

import cv2

from dali_like import fn
from dali_like.errors import DecodeError
from dali_like.images.decode import decode_image, decode_jpeg_smaller, read_header
from dali_like.images.jpeg_rows import upper_rows
from dali_like.types import RGB
from tests.image_files import HEIGHT, RGB_PIXELS, as_file, image_file, with_opencv, with_pillow
from tests.operators.running import run

PHOTOGRAPH = np.tile(RGB_PIXELS, (3, 2, 1))
#: OpenCV's names of chroma subsampling.
SAMPLINGS = (0x411111, 0x221111, 0x211111, 0x121111, 0x111111)
FILES = {
    **{
        f"sampling {sampling:x}": with_opencv(PHOTOGRAPH, ".jpg", cv2.IMWRITE_JPEG_SAMPLING_FACTOR, sampling)
        for sampling in SAMPLINGS
    },
    "gray": with_pillow(PHOTOGRAPH[:, :, :1], "JPEG"),
    "own Huffman tables": with_pillow(PHOTOGRAPH, "JPEG", optimize=True),
}
OTHERS = {
    "progressive": with_pillow(PHOTOGRAPH, "JPEG", progressive=True),
    "with restart markers": with_pillow(PHOTOGRAPH, "JPEG", restart_marker_rows=1),
    "PNG": with_pillow(PHOTOGRAPH, "PNG"),
}


@pytest.mark.parametrize("file", FILES.values(), ids=FILES)
@pytest.mark.parametrize("rows", [1, 14, 15, 16, 100, 101])
def test_upper_rows_have_the_same_pixels(file: bytes, rows: int) -> None:
    upper = decode_image(upper_rows(as_file(file), rows))

    assert rows <= len(upper) <= rows + 32
    np.testing.assert_array_equal(upper[:rows], decode_image(as_file(file))[:rows])


@pytest.mark.parametrize("file", FILES.values(), ids=FILES)
@pytest.mark.parametrize("factor", [2, 4, 8])
def test_upper_rows_have_the_same_pixels_at_a_smaller_scale(file: bytes, factor: int) -> None:
    smaller = []
    for part in (as_file(file), upper_rows(as_file(file), 96 + factor)):
        extents = (read_header(part).height, PHOTOGRAPH.shape[1])
        smaller.append(np.zeros((*(-(-extent // factor) for extent in extents), 3), np.uint8))
        assert decode_jpeg_smaller(part, RGB, factor, smaller[-1])
    whole, upper = smaller

    assert len(upper) < len(whole)
    np.testing.assert_array_equal(upper[: 96 // factor + 1], whole[: 96 // factor + 1])


@pytest.mark.parametrize("file", OTHERS.values(), ids=OTHERS)
def test_files_that_are_stored_otherwise_stay_as_they_are(file: bytes) -> None:
    whole = as_file(file)

    assert upper_rows(whole, 16) is whole


@pytest.mark.parametrize("rows", [HEIGHT - 1, HEIGHT])
def test_nothing_is_copied_where_nothing_is_saved(rows: int) -> None:
    whole = image_file("jpeg_420")

    assert upper_rows(whole, rows) is whole


def test_the_file_is_not_changed() -> None:
    whole = as_file(FILES["gray"])
    whole.flags.writeable = False

    upper = upper_rows(whole, 30)

    assert (read_header(whole).height, read_header(upper).height) == (len(PHOTOGRAPH), 32)


def test_damaged_headers_are_left_to_the_decoder() -> None:
    file = FILES["sampling 221111"]

    for end in range(file.index(b"\xff\xda") + 5):
        part = as_file(file[:end])
        assert upper_rows(part, 16) is part


class TestDecoders:
    """Decode a file that is damaged in its lower half."""

    FILE = as_file(FILES["sampling 221111"][: len(FILES["sampling 221111"]) // 2])

    def test_rows_below_the_window_are_not_looked_at(self) -> None:
        ended = np.append(self.FILE, as_file(b"\xff\xd9"))

        ((parts,),) = run(lambda data: fn.decoders.image_crop(data, crop=[20, 30], crop_pos_y=0.0), [ended])

        assert parts[0].shape == (20, 30, 3)

    def test_the_window_is(self) -> None:
        with pytest.raises(DecodeError, match="cannot decode jpeg data"):
            run(lambda data: fn.decoders.image_crop(data, crop=[20, 30], crop_pos_y=1.0), [self.FILE])
