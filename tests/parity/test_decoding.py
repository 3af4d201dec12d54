"""Decoding parts of images, shapes of images and arrays, against DALI. All is exact."""

from __future__ import annotations

import io

import numpy as np
import pytest

pytest.importorskip("nvidia.dali")
pytest.importorskip("simplejpeg")
pytest.importorskip("skimage")

from tests.image_files import FILES, image_file
from tests.parity.conftest import OURS
from tests.parity.operators import compare, outputs

pytestmark = pytest.mark.peers

IMAGES = [image_file(name) for name in ("jpeg_420", "jpeg_progressive", "png_rgb", "bmp_rgb", "tiff_rgb_lzw")]
#: Whose shapes DALI says otherwise: with alpha that it drops, in padding bytes, in inks; or it does not know the format.
OTHER_SHAPES = {
    *("png_gray_alpha", "png_gray_alpha_16", "tiff_gray_alpha", "webp_lossy_alpha"),
    *("bmp_rgb_32", "tiff_rgb_bigtiff", "tiff_cmyk", "jpeg2000_codestream", "pnm_gray_comment"),
}


@pytest.mark.parametrize(
    "arguments",
    [
        {"crop": [20, 30]},
        {"crop": [20.9, 31], "crop_pos_x": 0.3, "crop_pos_y": 0.77},
        {"crop_w": 21, "crop_h": 10, "rounding": "truncate"},
        {},
    ],
    ids=str,
)
def test_image_crop(arguments, dali):
    compare(dali, lambda library, data: library.fn.decoders.image_crop(data, **arguments), [IMAGES])


@pytest.mark.parametrize(
    "arguments",
    [
        {"start": [5, 6], "end": [20, 30]},
        {"rel_start": [0.2, 0.1], "rel_shape": [0.5, 0.613]},
        {"start": [6], "end": [20], "axes": [0]},
        {"start": [6, 5], "shape": [20, 30], "axis_names": "HW"},
    ],
    ids=str,
)
def test_image_slice(arguments, dali):
    compare(dali, lambda library, data: library.fn.decoders.image_slice(data, **arguments), [IMAGES])


def test_image_slice_by_inputs(dali):
    starts = [np.float32([0.1 * i, 0.2]) for i in range(5)]
    shapes = [np.float32([0.5, 0.1 * (i + 1)]) for i in range(5)]

    compare(dali, lambda library, *nodes: library.fn.decoders.image_slice(*nodes), [IMAGES, starts, shapes])


def test_sizes_of_random_windows_are_distributed_alike(dali):
    def sizes(library):
        (result,) = outputs(
            library,
            lambda library, data: library.fn.decoders.image_random_crop(data, random_area=[0.1, 0.9]),
            [[image_file("png_gray")] * 1000],
        )
        return np.array([sample.shape[:2] for sample in result.samples])

    ours, theirs = sizes(OURS), sizes(dali)

    for percent in (5, 25, 50, 75, 95):
        apart = np.percentile(ours, percent, axis=0) - np.percentile(theirs, percent, axis=0)
        assert np.abs(apart).max() <= 4


def test_shapes(dali):
    files = [image_file(name) for name in FILES if name not in OTHER_SHAPES]

    compare(dali, lambda library, data: library.fn.peek_image_shape(data), [files])
    compare(dali, lambda library, data: library.fn.peek_image_shape(data, dtype=library.types.FLOAT), [files])


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float16, np.bool_])
def test_numpy(dtype, dali):
    arrays = [np.ones((2, i), dtype) for i in range(3)]
    files = []
    for array in arrays:
        file = io.BytesIO()
        np.save(file, array)
        files.append(np.frombuffer(file.getvalue(), np.uint8))

    compare(dali, lambda library, data: library.fn.decoders.numpy(data), [files])
