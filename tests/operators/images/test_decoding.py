"""Decoding of image windows, image shapes, and arrays."""

from __future__ import annotations

import io

import numpy as np
import pytest

pytest.importorskip("cv2")
pytest.importorskip("simplejpeg")
pytest.importorskip("skimage")

from dali_like import fn, types
from dali_like.errors import ArgumentError, DecodeError, OutOfMemoryError, SampleError
from dali_like.images.decode import decode_image
from dali_like.types import ANY_DATA
from tests.image_files import FILES, as_file, image_file, jpeg_promising, photograph, png_promising, with_pillow
from tests.operators.running import WAYS, batches, run

ONE_OF_EACH = ["jpeg_420", "jpeg_gray", "png_rgb", "png_gray_16", "webp_lossy", "bmp_palette", "tiff_rgb"]


def saved(array: np.ndarray) -> np.ndarray:
    file = io.BytesIO()
    np.save(file, array)
    return as_file(file.getvalue())


class TestParts:
    @pytest.mark.parametrize("way", WAYS)
    def test_are_windows_of_the_whole(self, way):
        files = [image_file(name) for name in ONE_OF_EACH]

        def define(data):
            decoders = fn.decoders
            return [
                decoders.image(data),
                decoders.image_crop(data, crop=[20, 30], crop_pos_x=0.0, crop_pos_y=1.0),
                decoders.image_slice(data, start=[3, 5], shape=[40, 21]),
                decoders.image_random_crop(data, random_area=[1.0, 1.0], random_aspect_ratio=[89 / 61, 89 / 61]),
            ]

        ((wholes, crops, slices, all_of_it),) = run(define, files, way=way)

        for whole, crop, part, same in zip(wholes, crops, slices, all_of_it, strict=True):
            np.testing.assert_array_equal(crop, whole[-20:, :30], strict=True)
            np.testing.assert_array_equal(part, whole[5:26, 3:43], strict=True)
            np.testing.assert_array_equal(same, whole, strict=True)

    def test_random_windows_are_windows(self):
        whole = decode_image(image_file("png_rgb"), adjust_orientation=False)

        ((parts,),) = run(fn.decoders.image_random_crop, [image_file("png_rgb")] * 8)

        rows = {tuple(row) for row in whole.reshape(-1, 3)}
        assert len({part.shape for part in parts}) > 4
        for part in parts:
            assert {tuple(row) for row in part.reshape(-1, 3)} <= rows

    def test_of_other_color_formats(self):
        ((batch,),) = batches(
            lambda data: fn.decoders.image_crop(data, crop=[9, 9], output_type=types.GRAY), [image_file("png_rgb")]
        )

        assert (batch.layout(), batch.at(0).shape) == ("HWC", (9, 9, 1))

    @pytest.mark.parametrize(
        ("define", "message"),
        [
            (
                lambda data: fn.decoders.image_crop(data, crop=[200, 20]),
                "window of 200x20 from row -70 and column 35",
            ),
            (
                lambda data: fn.decoders.image_slice(data, start=[50, 0], end=[90, 9]),
                "is not inside the image of 61x89",
            ),
        ],
    )
    def test_windows_outside(self, define, message):
        with pytest.raises(SampleError, match=message):
            run(define, [image_file("jpeg_420")])

    def test_windows_of_channels(self):
        with pytest.raises(ArgumentError, match=r"fn.decoders.image_slice: .* it has all channels"):
            fn.decoders.image_slice(fn.external_source(name="x"), start=[0], end=[1], axes=[2])

    @pytest.mark.parametrize("name", ["image", "image_crop", "image_random_crop"])
    def test_of_a_file_that_is_not_an_image_is_an_error(self, name):
        with pytest.raises(DecodeError, match="not a JPEG, JPEG 2000, PNG, WebP, BMP, PNM or TIFF image") as info:
            run(getattr(fn.decoders, name), [as_file(b"hello, this is text")])
        assert info.value.__notes__ == [
            f"raised by fn.decoders.{name} for sample 0 of iteration 0 in epoch 0 (idx_in_epoch 0)"
        ]


class TestPromises:
    """Small files whose headers declare a large image."""

    @pytest.mark.parametrize("way", WAYS)
    @pytest.mark.parametrize("is_output", [True, False])
    def test_larger_than_an_image_may_be(self, way, is_output):
        def define(data):
            image = fn.decoders.image(data)
            return image if is_output else fn.resize(image, size=[10, 10])

        with pytest.raises(
            DecodeError, match=r"declares 60000x50000 pixels, which take 8583 MiB.*raise max_held_bytes"
        ) as info:
            run(define, [as_file(png_promising(60000, 50000))], way=way, max_held_bytes=1 << 26)
        assert "raised by fn.decoders.image for sample 0" in str(info.value.__notes__)

    @pytest.mark.parametrize(
        "define",
        [
            lambda data: fn.decoders.image(data, min_size=[9000, 9000]),
            lambda data: fn.decoders.image_crop(data, crop=[10, 10]),
            lambda data: fn.decoders.image_slice(data, start=[0, 0], end=[40000, 20], axes=[0, 1]),
            lambda data: fn.decoders.image_random_crop(data, min_size=[10000, 10000]),
        ],
        ids=["smaller", "crop", "slice", "random crop"],
    )
    @pytest.mark.parametrize("progressive", [True, False])
    def test_large_image_with_a_small_window_is_refused(self, define, progressive):
        with pytest.raises(DecodeError, match="pixels, which take"):
            run(define, [as_file(jpeg_promising(60000, 60000, progressive=progressive))], max_held_bytes=1 << 26)

    def test_as_large_as_photographs_of_satellites(self):
        with pytest.raises(DecodeError, match="damaged"):
            run(fn.decoders.image, [as_file(png_promising(9000, 12000))], num_threads=64)

    def test_as_large_as_max_held_bytes_allows(self):
        with pytest.raises(DecodeError, match="damaged"):
            run(
                lambda data: fn.shapes(fn.decoders.image(data)),
                [as_file(png_promising(14000, 14000))],
                max_held_bytes=1 << 40,
            )

    def test_image_beyond_the_available_memory_raises_out_of_memory(self, monkeypatch):
        monkeypatch.setattr("dali_like.images.decode.available_bytes", lambda: 1 << 20)

        with pytest.raises(OutOfMemoryError, match="9000x12000 pixels needs 308 MiB"):
            run(lambda data: fn.shapes(fn.decoders.image(data)), [as_file(png_promising(9000, 12000))])


class TestShapes:
    def test_are_the_shapes_of_the_decoded_images(self):
        files = [image_file(name) for name in FILES]

        ((shapes, images),) = run(
            lambda data: [fn.peek_image_shape(data), fn.decoders.image(data, output_type=ANY_DATA)], files
        )

        assert [shape.tolist() for shape in shapes] == [list(image.shape) for image in images]
        assert shapes[0].dtype == np.int64

    def test_dtype(self):
        ((shapes,),) = run(lambda data: fn.peek_image_shape(data, dtype=types.FLOAT), [image_file("jpeg_420")])

        assert shapes[0].dtype == np.float32

    def test_of_a_file_that_is_not_an_image_is_an_error(self):
        with pytest.raises(DecodeError, match="not a JPEG"):
            run(fn.peek_image_shape, [as_file(b"hello, this is text")])


class TestArrays:
    @pytest.mark.parametrize(
        "array",
        [
            np.arange(6, dtype=np.int32).reshape(2, 3),
            np.asfortranarray(np.arange(6, dtype=np.int16).reshape(2, 3)),
            np.float64(3),
            np.array([True, False]),
            np.arange(3, dtype=">i4"),
            np.zeros((0, 3), np.uint8),
            np.float16([1, 2]),
        ],
        ids=lambda array: f"{array.dtype.str}{array.shape}",
    )
    def test_come_back_as_they_were(self, array):
        ((results,),) = run(fn.decoders.numpy, [saved(array)])

        np.testing.assert_array_equal(results[0], array.astype(array.dtype.newbyteorder("=")), strict=True)

    def test_as_another_dtype(self):
        ((results,),) = run(lambda data: fn.decoders.numpy(data, dtype=types.FLOAT), [saved(np.arange(3))])

        np.testing.assert_array_equal(results[0], np.arange(3, dtype=np.float32), strict=True)

    @pytest.mark.parametrize(
        ("data", "message"),
        [
            (b"hello, this is text", "this is not a numeric array written by numpy.save"),
            (saved(np.zeros(2, np.complex64)).tobytes(), "this is not a numeric array"),
            (
                saved(np.zeros(300)).tobytes()[:-20],
                "of float64 needs 2400 bytes, not 2380",
            ),
        ],
    )
    def test_of_a_file_that_is_not_an_array_is_an_error(self, data, message):
        with pytest.raises(DecodeError, match=message):
            run(fn.decoders.numpy, [as_file(data)])

    def test_objects_are_not_unpickled(self):
        with pytest.raises(DecodeError, match="not a numeric array"):
            run(fn.decoders.numpy, [saved(np.array([{}], object))])


class TestSmallerScales:
    """A photograph of 451x300. Only JPEGs are decoded at a smaller scale, and only if allowed."""

    PHOTOGRAPH = photograph("chelsea")
    FILE = as_file(with_pillow(PHOTOGRAPH, "JPEG", quality=95))

    @pytest.mark.parametrize(
        ("min_size", "shape"),
        [
            ([150, 200], (150, 226, 3)),
            ([151, 200], (300, 451, 3)),
            (75, (75, 113, 3)),
            ([1, 1], (38, 57, 3)),
            ([301, 1], (300, 451, 3)),
        ],
    )
    def test_the_smallest_that_is_large_enough(self, min_size, shape):
        ((images,),) = run(lambda data: fn.decoders.image(data, min_size=min_size), [self.FILE])

        assert images[0].shape == shape

    @pytest.mark.parametrize("output_type", [types.RGB, types.BGR, types.GRAY])
    def test_the_pixels_are_means_of_pixels(self, output_type):
        ((small, large),) = run(
            lambda data: [
                fn.decoders.image(data, min_size=[150, 150], output_type=output_type),
                fn.decoders.image(data, output_type=output_type),
            ],
            [self.FILE],
        )

        means = large[0][:, :450].reshape(150, 2, 225, 2, -1).mean(axis=(1, 3))
        assert np.abs(small[0][:, :225] - means).mean() < 1.5

    @pytest.mark.parametrize("way", WAYS)
    def test_random_windows_are_the_same_ones(self, way):
        def define(data):
            random = {"random_area": [0.5, 0.9], "seed": 3}
            return [
                fn.decoders.image_random_crop(data, min_size=[64, 64], **random),
                fn.decoders.image_random_crop(data, **random),
            ]

        ((small, large),) = run(define, [self.FILE] * 6, way=way)

        for one, other in zip(small, large, strict=True):
            factor = 4 if min(other.shape[:2]) >= 256 else 2
            assert one.shape[:2] == tuple(round(extent / factor) for extent in other.shape[:2])
            assert abs(one.mean() - other.mean()) < 2

    @pytest.mark.parametrize("name", ["png_rgb", "jpeg_cmyk", "jpeg_odd_sampling"])
    def test_other_files_are_decoded_as_they_are(self, name):
        ((small, whole),) = run(
            lambda data: [fn.decoders.image(data, min_size=[2, 2]), fn.decoders.image(data)], [image_file(name)]
        )

        np.testing.assert_array_equal(small[0], whole[0])

    def test_truncated_files_are_refused(self):
        with pytest.raises(DecodeError, match="cannot decode jpeg data"):
            run(lambda data: fn.decoders.image(data, min_size=[2, 2]), [self.FILE[:-5000]])

    def test_wrong_sizes(self):
        with pytest.raises(ArgumentError, match=r"fn.decoders.image: min_size must be .*, 1 or 2 of them, from 1 on, not"):
            fn.decoders.image(fn.external_source(name="x"), min_size=[3, 0])
