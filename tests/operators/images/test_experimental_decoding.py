"""Decoding of images of any depth; tests/parity compares every format, type and window with DALI's."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("cv2")
pytest.importorskip("simplejpeg")
pytest.importorskip("skimage")

from dali_like import fn, types
from dali_like.errors import ArgumentError, DecodeError, MissingExtraError
from tests.image_files import (
    FLOAT_FILES,
    FLOAT_PIXELS,
    ORIENTED_FILES,
    RGB_PIXELS,
    as_file,
    image_file,
    sixteen_bit,
    turned,
    with_tifffile,
)
from tests.operators.running import WAYS, batches, run

DEEP = ["png_rgb_16", "tiff_rgb_16", "pnm_rgb_16", "jpeg2000_rgb_16"]
decoders = fn.experimental.decoders


class TestTypes:
    @pytest.mark.parametrize("way", WAYS)
    def test_sixteen_bits(self, way):
        def define(data):
            return [decoders.image(data, dtype=types.UINT16), decoders.image(data), decoders.image(data, dtype=types.FLOAT)]

        ((deep, rounded, floats),) = run(define, [image_file(name) for name in DEEP], way=way)

        stored = sixteen_bit(RGB_PIXELS)
        for i in range(len(DEEP)):
            np.testing.assert_array_equal(deep[i], stored, strict=True)
            np.testing.assert_array_equal(rounded[i], np.rint(stored / 257).astype(np.uint8), strict=True)
            np.testing.assert_allclose(floats[i], stored / np.float32(65535), rtol=1e-6)

    @pytest.mark.parametrize("name", FLOAT_FILES)
    def test_floating_point(self, name):
        file, pixels = FLOAT_FILES[name]

        def define(data):
            options = {"output_type": types.ANY_DATA}
            return [decoders.image(data, dtype=types.FLOAT, **options), decoders.image(data, dtype=types.UINT8, **options)]

        ((same, clipped),) = run(define, [as_file(file())])

        np.testing.assert_array_equal(same[0], pixels, strict=True)
        expected = np.clip(np.trunc(pixels * np.float32(255) + 0.5), 0, 255).astype(np.uint8)
        np.testing.assert_array_equal(clipped[0], expected, strict=True)

    def test_eight_bits_fill_the_range(self):
        ((deep,), (wide,)) = (
            run(lambda data, dtype=dtype: decoders.image(data, dtype=dtype), [image_file("png_rgb")])[0]
            for dtype in (types.UINT16, types.INT8)
        )

        np.testing.assert_array_equal(deep[0], RGB_PIXELS.astype(np.uint16) * 257, strict=True)
        np.testing.assert_array_equal(wide[0], np.trunc(RGB_PIXELS * (127 / 255) + 0.5).astype(np.int8), strict=True)

    def test_other_types(self):
        with pytest.raises(ArgumentError, match=r"dtype must be a data type .*, one of UINT8, INT8, UINT16"):
            decoders.image(fn.external_source(name="x"), dtype=types.FLOAT16)


class TestOrientation:
    @pytest.mark.parametrize("dtype", [types.UINT16, types.UINT32, types.FLOAT])
    def test_images_are_upright(self, dtype):
        files = [as_file(ORIENTED_FILES["tiff_rgb_16"](i)) for i in range(1, 9)]

        def define(data):
            return [decoders.image(data, dtype=dtype), fn.experimental.peek_image_shape(data)]

        ((images, shapes),) = run(define, files)

        for i, (image, shape) in enumerate(zip(images, shapes, strict=True), 1):
            np.testing.assert_array_equal(image, turned(images[0], i), strict=True)
            assert tuple(shape) == image.shape

    @pytest.mark.parametrize("way", WAYS)
    def test_windows_are_those_of_the_upright_image(self, way):
        files = [as_file(ORIENTED_FILES["jpeg"](i)) for i in range(1, 9)]

        def define(data):
            return [
                decoders.image(data),
                decoders.image_crop(data, crop=[20, 30], crop_pos_x=0.0, crop_pos_y=1.0),
                decoders.image_slice(data, start=[3, 5], shape=[40, 21]),
                decoders.image_random_crop(data, random_area=[1.0, 1.0], random_aspect_ratio=[0.1, 10.0], num_attempts=1),
            ]

        ((wholes, crops, slices, _),) = run(define, files, way=way)

        for whole, crop, part in zip(wholes, crops, slices, strict=True):
            np.testing.assert_array_equal(crop, whole[-20:, :30], strict=True)
            np.testing.assert_array_equal(part, whole[5:26, 3:43], strict=True)


@pytest.mark.parametrize("way", WAYS)
def test_the_other_decoders_have_the_types_and_the_orientation_of_dali_2(way):
    files = [as_file(ORIENTED_FILES["tiff_rgb_16"](i)) for i in (6, 1)]
    given = {"dtype": types.UINT16, "adjust_orientation": True}
    window = {"crop": [20, 30], "crop_pos_x": 0.0, "crop_pos_y": 1.0}
    whole = {"random_area": [1.0, 1.0], "random_aspect_ratio": [0.1, 10.0], "num_attempts": 1, "seed": 3}

    def define(data):
        pairs = [
            (
                module.image(data, **given),
                module.image_crop(data, **window, **given),
                module.image_slice(data, start=[3, 5], shape=[40, 21], **given),
                module.image_random_crop(data, **whole, **given),
            )
            for module in (fn.decoders, decoders)
        ]
        smaller = fn.decoders.image(data, min_size=10, **given)
        return [*pairs[0], *pairs[1], smaller]

    (outputs,) = run(define, files, way=way)

    for plain, experimental in zip([*outputs[:3], outputs[8]], [*outputs[4:7], outputs[4]], strict=True):
        for image, expected in zip(plain, experimental, strict=True):
            np.testing.assert_array_equal(image, expected, strict=True)
    assert all(image.dtype == np.uint16 for image in outputs[3])


def test_shapes_of_the_stored_and_of_the_upright_image():
    file = as_file(ORIENTED_FILES["jpeg"](6))
    height, width = RGB_PIXELS.shape[:2]

    def define(data):
        peek = fn.peek_image_shape
        return [peek(data), peek(data, adjust_orientation=True), peek(data, image_type=types.GRAY)]

    ((stored,), (upright,), (gray,)) = run(define, [file])[0]

    assert [tuple(shape) for shape in (stored, upright, gray)] == [
        (height, width, 3),
        (width, height, 3),
        (height, width, 1),
    ]


class TestTiffsThatOpenCvLacks:
    FILE = as_file(with_tifffile(sixteen_bit(RGB_PIXELS).transpose(2, 0, 1).copy(), planarconfig="separate"))

    def test_need_another_package(self, monkeypatch):
        monkeypatch.setitem(__import__("sys").modules, "imagecodecs", None)
        with pytest.raises(MissingExtraError, match="TIFF with compression 1 needs imagecodecs: pip install"):
            run(lambda data: decoders.image(data, dtype=types.UINT16), [self.FILE])

    def test_with_bands_need_it_too_and_their_shape_has_all_of_them(self, monkeypatch):
        file = as_file(with_tifffile(np.zeros((4, 5, 6), np.uint8), photometric="minisblack", planarconfig="contig"))
        ((shapes,),) = run(fn.peek_image_shape, [file])
        assert tuple(shapes[0]) == (4, 5, 6)
        monkeypatch.setitem(__import__("sys").modules, "imagecodecs", None)
        with pytest.raises(MissingExtraError, match="TIFF with 6 channels needs imagecodecs: pip install"):
            run(fn.decoders.image, [file])

    def test_with_inverted_bands_are_refused(self):
        file = as_file(with_tifffile(np.zeros((4, 5, 3), np.uint8), photometric="miniswhite", planarconfig="contig"))
        with pytest.raises(DecodeError, match="3 channels of which 0 is white"):
            run(fn.decoders.image, [file])

    @pytest.mark.parametrize("output_type", [types.RGB, types.BGR, types.ANY_DATA])
    def test_with_it(self, output_type):
        pytest.importorskip("imagecodecs")
        ((images,),) = run(lambda data: decoders.image(data, dtype=types.UINT16, output_type=output_type), [self.FILE])

        stored = sixteen_bit(RGB_PIXELS)
        np.testing.assert_array_equal(images[0], stored[:, :, ::-1] if output_type == types.BGR else stored, strict=True)


def test_shapes_by_color_format():
    def define(data):
        peek = fn.experimental.peek_image_shape
        return [peek(data), peek(data, image_type=types.GRAY, dtype=types.INT32), peek(data, image_type=types.ANY_DATA)]

    (outputs,) = batches(define, [image_file("png_rgba"), as_file(FLOAT_FILES["tiff_rgb_float"][0]())])

    height, width = RGB_PIXELS.shape[:2]
    assert [[tuple(np.array(output.at(i))) for i in range(2)] for output in outputs] == [
        [(height, width, 3)] * 2,
        [(height, width, 1)] * 2,
        [(height, width, 4), (height, width, 3)],
    ]
    assert FLOAT_PIXELS.shape == (height, width, 3)


@pytest.mark.parametrize("operator", [decoders.image, fn.experimental.peek_image_shape])
def test_a_file_that_is_not_an_image_is_an_error(operator):
    with pytest.raises(DecodeError, match="not a JPEG, JPEG 2000, PNG"):
        run(operator, [as_file(b"hello, this is text")])
