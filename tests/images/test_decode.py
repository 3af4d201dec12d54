"""The CPU image decoder: every format, output type and orientation, and every kind of damage."""

from __future__ import annotations

import io
import itertools
import subprocess
import sys
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

cv2 = pytest.importorskip("cv2")
simplejpeg = pytest.importorskip("simplejpeg")
pytest.importorskip("skimage")

from PIL import Image  # noqa: E402

from dali_like.errors import ArgumentError, DecodeError, MissingExtraError, SampleTypeError  # noqa: E402
from dali_like.images.decode import ImageHeader, decode_image, decoded_shape, read_header  # noqa: E402
from dali_like.images.header import jpeg_is_complete  # noqa: E402
from dali_like.types import ANY_DATA, BGR, GRAY, RGB, DALIImageType, YCbCr  # noqa: E402
from tests.image_files import (  # noqa: E402
    ALPHA_PIXELS,
    FILES,
    HEIGHT,
    ORIENTED_FILES,
    RGB_PIXELS,
    WIDTH,
    as_file,
    exif,
    image_file,
    jpeg_of_flat_gray,
    jpeg_promising,
    jpeg_with_exif,
    png_chunk,
    png_header,
    png_promising,
    png_with_exif,
    stored_pixels,
    turned,
    with_opencv,
    with_pillow,
    with_tifffile,
)

LOSSLESS_FILES = [name for name in FILES if stored_pixels(name) is not None]
ROUNDED = {"tiff_rgb_16": 1, "tiff_rgba_16": 1, "tiff_cmyk": 1}  # libtiff rounds where the recipe rounds down
ONE_OF_EACH_FORMAT = ["jpeg_420", "jpeg_progressive", "jpeg_cmyk", "png_rgb", "webp_lossy", "webp_lossless", "bmp_rgb"]
ONE_OF_EACH_FORMAT += ["bmp_palette", "tiff_rgb", "tiff_rgb_lzw", "tiff_rgb_tiles", "tiff_rgb_planes"]


def difference(one: np.ndarray, other: np.ndarray) -> int:
    assert one.shape == other.shape
    return int(np.abs(one.astype(int) - other).max())


def luma(rgb: np.ndarray) -> np.ndarray:
    return rgb[:, :, :3].astype(float) @ np.array([[0.299], [0.587], [0.114]])


class TestChannels:
    @pytest.mark.parametrize("name", LOSSLESS_FILES)
    def test_any_data_keeps_the_stored_channels_and_other_types_convert_them(self, name):
        """ANY_DATA keeps it, RGB repeats gray and drops alpha, GRAY is the luma of color."""
        stored, is_gray = stored_pixels(name), stored_pixels(name).shape[2] == 1
        bound = ROUNDED.get(name, 0)
        assert difference(decode_image(image_file(name), ANY_DATA), stored) <= bound
        rgb = np.repeat(stored, 3, axis=2) if is_gray else stored[:, :, :3]
        assert difference(decode_image(image_file(name)), rgb) <= bound
        gray = decode_image(image_file(name), GRAY)
        if is_gray:
            np.testing.assert_array_equal(gray, stored)
        else:
            assert np.abs(gray - luma(stored)).max() <= 1.5

    @pytest.mark.parametrize("name", FILES)
    def test_bgr_and_ycbcr_follow_from_rgb(self, name):
        """BGR is reversed RGB, and YCbCr follows ITU-R BT.601, limited range."""
        rgb = decode_image(image_file(name), RGB)
        np.testing.assert_array_equal(decode_image(image_file(name), BGR), rgb[:, :, ::-1])
        matrix = np.array([[65.481, 128.553, 24.966], [-37.797, -74.203, 112.0], [112.0, -93.786, -18.214]]) / 255
        ycbcr = rgb.astype(float) @ matrix.T + [16, 128, 128]
        assert np.abs(decode_image(image_file(name), YCbCr) - ycbcr).max() <= 0.51

    @pytest.mark.parametrize("name", ["jpeg_gray", "png_gray", "tiff_gray"])
    def test_any_data_of_gray_is_gray(self, name):
        gray = decode_image(image_file(name), ANY_DATA)
        np.testing.assert_array_equal(gray, decode_image(image_file(name), GRAY))

    def test_colors_under_transparent_pixels_survive(self):
        transparent = np.concatenate([RGB_PIXELS, np.zeros_like(ALPHA_PIXELS)], axis=2)
        for kind in ("PNG", "TIFF"):
            np.testing.assert_array_equal(decode_image(as_file(with_pillow(transparent, kind))), RGB_PIXELS)


class TestJpeg:
    @pytest.mark.parametrize("name", [name for name in FILES if name.startswith("jpeg_") and "k" not in name[5:]])
    def test_same_pixels_as_libjpeg_in_pillow(self, name):
        """Fails with the fast transform or fast chroma upsampling, which differ by tens of levels."""
        reference = np.asarray(Image.open(io.BytesIO(image_file(name))).convert("RGB"))
        assert difference(decode_image(image_file(name)), reference) <= 1

    @pytest.mark.parametrize(("name", "inverted"), [("jpeg_cmyk", True), ("jpeg_ycck", True), ("jpeg_cmyk_plain", False)])
    def test_cmyk_is_light_that_two_inks_let_through(self, name, inverted):
        cmyk = simplejpeg.decode_jpeg(image_file(name), "CMYK").astype(int)
        light = cmyk if inverted else 255 - cmyk
        expected = light[:, :, :3] * light[:, :, 3:] // 255
        np.testing.assert_array_equal(decode_image(image_file(name), RGB), expected)
        np.testing.assert_array_equal(decode_image(image_file(name), ANY_DATA), expected)
        assert np.abs(decode_image(image_file(name), GRAY) - luma(expected)).max() <= 1

    @pytest.mark.parametrize("sampling", [0x31, 0x13, 0x32, 0x41, 0x22])
    def test_sampling_factors_without_a_name(self, sampling):
        """TurboJPEG rejects factors such as three by one."""
        pixels = decode_image(as_file(jpeg_of_flat_gray(sampling, level=77)))
        np.testing.assert_array_equal(pixels, np.full((48, 48, 3), 77))

    def test_truncated_with_sampling_factors_without_a_name(self):
        """OpenCV's JPEG decoder is the fallback here. It fills up missing data, in some releases silently."""
        thumbnail = exif(1) + image_file("jpeg_gray").tobytes()
        data = jpeg_with_exif(thumbnail, jpeg_of_flat_gray(0x31))
        assert jpeg_is_complete(memoryview(data))
        assert not jpeg_is_complete(memoryview(data[:-2]))
        with pytest.raises(DecodeError, match="cannot decode jpeg"):
            decode_image(as_file(data[:-2]))

    def test_bytes_left_over_after_the_image(self):
        """Files of cameras and of ImageNet have such bytes, which hide no damage. DALI decodes these files, too."""
        data = image_file("jpeg_gray").tobytes()
        padded = data[:-2] + bytes([1] * 14) + data[-2:]
        with pytest.raises(ValueError, match="extraneous bytes"):
            simplejpeg.decode_jpeg(padded)
        np.testing.assert_array_equal(decode_image(as_file(padded)), decode_image(image_file("jpeg_gray")))

    def test_damage_that_libjpeg_notices(self):
        data = bytearray(image_file("jpeg_progressive").tobytes())
        middle = len(data) // 2
        data[middle : middle + 200] = b"\xff\0" * 100
        with pytest.raises(DecodeError, match=f"cannot decode jpeg data: .*{len(data)} bytes, which start with ff d8"):
            decode_image(as_file(bytes(data)))

    def test_missing_end_marker(self):
        with pytest.raises(DecodeError, match="Premature end"):
            decode_image(image_file("jpeg_420")[:-2])


class TestOrientation:
    @pytest.mark.parametrize("kind", ORIENTED_FILES)
    def test_adjusted_or_as_stored(self, kind):
        upright = as_file(ORIENTED_FILES[kind](1))
        for orientation, output_type in itertools.product(range(1, 9), DALIImageType):
            data, stored = as_file(ORIENTED_FILES[kind](orientation)), decode_image(upright, output_type)
            case = f"{orientation} {output_type}"
            np.testing.assert_array_equal(decode_image(data, output_type, False), stored, case)
            np.testing.assert_array_equal(decode_image(data, output_type, True), turned(stored, orientation), case)

    @pytest.mark.parametrize("kind", ORIENTED_FILES)
    def test_into_out(self, kind):
        for orientation, output_type in itertools.product(range(1, 9), DALIImageType):
            data = as_file(ORIENTED_FILES[kind](orientation))
            out = np.zeros(decoded_shape(data, output_type), np.uint8)
            assert decode_image(data, output_type, out=out) is out
            expected = decode_image(data, output_type)
            np.testing.assert_array_equal(out, expected, f"{orientation} {output_type}")
            assert expected.flags.c_contiguous

    def test_meaning_of_six(self):
        """The stored row 0 is the right-hand side of the scene, as written by cameras held upright."""
        scene = np.zeros((16, 8, 3), np.uint8)
        scene[:, 4:] = 255
        data = with_pillow(np.ascontiguousarray(np.rot90(scene)), "PNG", exif=exif(6))
        np.testing.assert_array_equal(decode_image(as_file(data)), scene)

    @pytest.mark.parametrize("orientation", [0, 9, 65535])
    def test_a_number_that_means_nothing(self, orientation):
        data = as_file(jpeg_with_exif(exif(orientation)))
        assert read_header(data).orientation == 1
        np.testing.assert_array_equal(decode_image(data), decode_image(image_file("jpeg_420")))

    def test_after_a_chunk_of_odd_length(self):
        """RIFF pads such chunks, without counting the padding in the length."""
        parities = set()
        for rows in range(20, 30):
            data = with_pillow(RGB_PIXELS[:rows], "WEBP", lossless=True, exif=exif(6))
            start = data.index(b"VP8L") + 4
            parities.add(int.from_bytes(data[start : start + 4], "little") % 2)
            assert read_header(as_file(data)).orientation == 6
        assert parities == {0, 1}

    def test_fill_bytes_before_a_marker(self):
        data = jpeg_with_exif(exif(6))
        filled = as_file(data[:2] + b"\xff\xff" + data[2:])
        np.testing.assert_array_equal(decode_image(filled), decode_image(as_file(data)))

    def test_other_application_segments_before_exif(self):
        data = jpeg_with_exif(exif(6))
        other = b"\xff\xe1\0\x0chttp://ns." + b"\xff\xfe\0\x04hi"
        assert read_header(as_file(data[:2] + other + data[2:])).orientation == 6


class TestOut:
    @pytest.mark.parametrize("name", FILES)
    def test_same_pixels_as_without(self, name):
        for output_type in DALIImageType:
            out = np.zeros(decoded_shape(image_file(name), output_type), np.uint8)
            assert decode_image(image_file(name), output_type, out=out) is out
            np.testing.assert_array_equal(out, decode_image(image_file(name), output_type), str(output_type))

    @pytest.mark.parametrize("output_type", [RGB, BGR, GRAY, ANY_DATA])
    def test_jpeg_is_decoded_in_place(self, monkeypatch, output_type):
        decode_jpeg, buffers = simplejpeg.decode_jpeg, []

        def spy(*args, **options):
            buffers.append(options["buffer"])
            return decode_jpeg(*args, **options)

        monkeypatch.setattr(simplejpeg, "decode_jpeg", spy)
        out = np.empty(decoded_shape(image_file("jpeg_420"), output_type), np.uint8)
        decode_image(image_file("jpeg_420"), output_type, out=out)
        assert len(buffers) == 1
        assert buffers[0] is out

    def test_part_of_a_larger_buffer(self):
        """As with a slot of a batch, adjacent memory must stay unchanged."""
        batch = np.zeros((3, HEIGHT, WIDTH, 3), np.uint8)
        for name in ("jpeg_420", "png_rgb"):
            batch[:] = 0
            decode_image(image_file(name), out=batch[1])
            assert batch[1].any()
            assert not batch[[0, 2]].any()

    @pytest.mark.parametrize("name", ["jpeg_420", "png_rgb"])
    @pytest.mark.parametrize(
        ("out", "message"),
        [
            (np.empty((HEIGHT, WIDTH, 1), np.uint8), rf"out has shape \({HEIGHT}, {WIDTH}, 1\)"),
            (np.empty((WIDTH, HEIGHT, 3), np.uint8), "out has shape"),
            (np.empty((HEIGHT * WIDTH * 3,), np.uint8), "out has shape"),
            (np.empty((HEIGHT, WIDTH, 3), np.int8), "dtype int8"),
            (np.empty((3, HEIGHT, WIDTH), np.uint8).transpose(1, 2, 0), "not C-contiguous"),
            (np.frombuffer(bytes(HEIGHT * WIDTH * 3), np.uint8).reshape(HEIGHT, WIDTH, 3), "read-only"),
        ],
    )
    def test_unsuitable(self, name, out, message):
        with pytest.raises(ArgumentError, match=message):
            decode_image(image_file(name), out=out)


class TestHeader:
    @pytest.mark.parametrize("name", FILES)
    def test_shape_read_from_the_header_is_that_of_the_decoded_image(self, name):
        for output_type in DALIImageType:
            decoded = decode_image(image_file(name), output_type)
            assert decoded_shape(image_file(name), output_type) == decoded.shape, output_type
            assert decoded.dtype == np.uint8
            assert decoded.flags.c_contiguous
            assert decoded.flags.writeable

    @pytest.mark.parametrize(
        ("name", "header"),
        [
            ("jpeg_gray", ImageHeader("jpeg", HEIGHT, WIDTH, 1, 1)),
            ("jpeg_cmyk", ImageHeader("jpeg", HEIGHT, WIDTH, 3, 1)),
            ("png_gray_alpha", ImageHeader("png", HEIGHT, WIDTH, 1, 1)),
            ("png_palette_alpha", ImageHeader("png", HEIGHT, WIDTH, 3, 1)),
            ("webp_lossy_alpha", ImageHeader("webp", HEIGHT, WIDTH, 4, 1)),
            ("bmp_palette", ImageHeader("bmp", HEIGHT, WIDTH, 3, 1)),
            ("tiff_rgba_16", ImageHeader("tiff", HEIGHT, WIDTH, 4, 1)),
        ],
    )
    def test_fields(self, name, header):
        assert read_header(image_file(name)) == header

    def test_size_is_the_stored_one_and_shape_the_adjusted_one(self):
        data = as_file(png_with_exif(exif(5)))
        assert read_header(data) == ImageHeader("png", HEIGHT, WIDTH, 3, 5)
        assert decoded_shape(data, GRAY) == (WIDTH, HEIGHT, 1)
        assert decoded_shape(data, GRAY, adjust_orientation=False) == (HEIGHT, WIDTH, 1)

    def test_is_read_without_the_data_behind_it(self):
        """Fails if reading a header decodes data."""
        assert read_header(image_file("jpeg_420")[:700]) == read_header(image_file("jpeg_420"))
        assert read_header(image_file("png_rgb")[:60]) == read_header(image_file("png_rgb"))

    @pytest.mark.parametrize("data", [b"", b"\xff", b"GIF89a" + bytes(50), b"RIFF\0\0\0\0WAVE", b"\xff\xd8\xff\xd9"])
    def test_none_of_something_else(self, data):
        assert read_header(as_file(data)) is None
        assert decoded_shape(as_file(data), RGB) is None

    def test_bottom_up_and_top_down_bmp(self):
        data = bytearray(image_file("bmp_rgb").tobytes())
        data[22:26] = (-HEIGHT).to_bytes(4, "little", signed=True)
        assert read_header(as_file(bytes(data))).height == HEIGHT
        np.testing.assert_array_equal(decode_image(as_file(bytes(data))), RGB_PIXELS[::-1])


class TestBroken:
    @pytest.mark.parametrize("name", ONE_OF_EACH_FORMAT)
    def test_truncated(self, name, capfd):
        data = image_file(name)
        for kept in [*range(0, 64, 3), *range(64, data.size, data.size // 23), *range(data.size - 20, data.size)]:
            with pytest.raises(DecodeError, match=f"{kept} bytes|no bytes"):
                decode_image(data[:kept])
        assert capfd.readouterr().err == ""

    @pytest.mark.parametrize("name", ONE_OF_EACH_FORMAT)
    def test_bytes_after_the_end_do_not_matter(self, name):
        longer = np.concatenate([image_file(name), np.full(10, 7, np.uint8)])
        np.testing.assert_array_equal(decode_image(longer), decode_image(image_file(name)))

    def test_damaged_png(self):
        data = bytearray(image_file("png_rgb").tobytes())
        data[len(data) // 2] ^= 1
        with pytest.raises(DecodeError, match="cannot decode png data: damaged"):
            decode_image(as_file(bytes(data)))

    @pytest.mark.parametrize("name", ["png_rgb", "jpeg_odd_sampling"])
    def test_header_and_data_that_disagree(self, monkeypatch, name):
        """No file is known for which OpenCV and the header disagree; with one, `out` would receive the wrong shape."""
        monkeypatch.setattr(cv2, "imdecode", lambda *_: np.zeros((5, 6, 3), np.uint8))
        out = np.empty(decoded_shape(image_file(name), RGB), np.uint8)
        with pytest.raises(DecodeError, match=r"its header says shape .*, its data have \(5, 6, 3\)"):
            decode_image(image_file(name), out=out)

    def test_samples_that_are_not_integers(self):
        data = with_tifffile(RGB_PIXELS.astype(np.float32) / 255)
        for output_type in DALIImageType:
            with pytest.raises(DecodeError, match="tiff data: samples of 32 bits"):
                decode_image(as_file(data), output_type)
        assert read_header(as_file(data)) == ImageHeader("tiff", HEIGHT, WIDTH, 3, 1)

    @pytest.mark.parametrize(
        ("data", "message"),
        [
            (b"", "not a JPEG, JPEG 2000, PNG, WebP, BMP, PNM or TIFF image: no bytes at all"),
            (b"GIF89a" + bytes(4), "10 bytes, which start with 47 49 46 38 39 61 00 00"),
            (b"\xff\xd8\xff\xe0\0\x10JFIF", "cannot decode jpeg data: incomplete or broken header"),
            (b"\x89PNG\r\n\x1a\n" + png_chunk(b"IEND", b""), "cannot decode png data: incomplete or broken header"),
            (b"BM" + bytes(100), "cannot decode bmp data"),
            (b"II*\0\x08\0\0\0" + bytes(100), "cannot decode tiff data: incomplete or broken header"),
        ],
    )
    def test_the_error_names_the_fault_and_the_file(self, data, message):
        with pytest.raises(DecodeError, match=message):
            decode_image(as_file(data))

    @pytest.mark.parametrize(
        ("encoded", "message"),
        [
            (b"\xff\xd8\xff", "not bytes"),
            ([255, 216, 255], "not list"),
            (np.zeros((2, 50), np.uint8), "not 2-D uint8"),
            (np.zeros(100, np.int8), "not 1-D int8"),
        ],
    )
    def test_not_an_array_of_bytes(self, encoded, message):
        for use in (decode_image, read_header, lambda data: decoded_shape(data, RGB)):
            with pytest.raises(SampleTypeError, match=message):
                use(encoded)

    def test_strided_input_is_an_array_of_bytes(self):
        strided = np.repeat(image_file("jpeg_420"), 2)[::2]
        np.testing.assert_array_equal(decode_image(strided), decode_image(image_file("jpeg_420")))


MAGIC = [b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"RIFF\x40\0\0\0WEBPVP8X", b"BM", b"II*\0\x08\0\0\0", b"MM\0+\0\x08\0\0"]


class TestLies:
    """The header reader uses the same fields as the decoders."""

    def test_a_second_header(self):
        file = as_file(png_promising(60, 50)[:-12] + png_header(3, 2) + png_chunk(b"IEND", b""))

        assert read_header(file)[1:3] == (60, 50)

    def test_header_after_an_invalid_segment_is_not_read(self):
        file = jpeg_promising(60, 50)
        frame = file.index(b"\xff\xc0")

        header = read_header(as_file(file[:frame] + b"\xff\x00\x00\x15" + file[frame : frame + 19] + file[frame:]))

        assert header is None


@pytest.mark.parametrize("name", ["jpeg_420", "jpeg_cmyk"])
@pytest.mark.parametrize("output_type", [BGR, GRAY, YCbCr])
def test_pixels_do_not_depend_on_the_rows_converted_together(name, output_type, monkeypatch):
    whole = decode_image(image_file(name), output_type)

    monkeypatch.setattr("dali_like.images.value_ranges._BAND_PIXELS", 7 * WIDTH)

    assert difference(decode_image(image_file(name), output_type), whole) == 0


class TestGarbage:
    @settings(deadline=None)
    @given(st.binary(max_size=300), st.sampled_from([b"", *MAGIC]))
    def test_reading_a_header_never_raises(self, garbage, magic):
        header = read_header(as_file(magic + garbage))
        assert header is None or 1 <= header.orientation <= 8

    @settings(deadline=None)
    @given(st.sampled_from(FILES), st.data())
    def test_reading_a_damaged_header_never_raises(self, name, data):
        damaged = image_file(name).copy()
        for _ in range(data.draw(st.integers(1, 8))):
            damaged[data.draw(st.integers(0, min(200, damaged.size) - 1))] = data.draw(st.integers(0, 255))
        read_header(damaged)

    @settings(deadline=None)
    @given(st.binary(max_size=200), st.sampled_from([b"", b"II*\0", b"MM\0*", b"II+\0\x08\0\0\0", b"II*\0\x08\0\0\0"]))
    def test_exif_of_garbage_does_no_harm(self, garbage, start):
        plain = decode_image(image_file("jpeg_420"))
        data = as_file(jpeg_with_exif(start + garbage))
        np.testing.assert_array_equal(decode_image(data), turned(plain, read_header(data).orientation))

    @settings(deadline=None, max_examples=50)
    @given(st.binary(max_size=300), st.sampled_from([b"", *MAGIC]))
    def test_decoding_raises_nothing_but_decode_error(self, garbage, magic):
        with pytest.raises(DecodeError):
            decode_image(as_file(magic + garbage))


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".webp", ".tiff"])
def test_other_threads_run_while_decoding(suffix):
    """With this switch interval, the thread wakes during decoding only if the decoder releases the GIL."""
    large = as_file(with_opencv(np.tile(RGB_PIXELS, (20, 20, 1)), suffix))
    interval = sys.getswitchinterval()
    overlapped = False
    sys.setswitchinterval(1000)
    try:
        for _ in range(200):  # the scheduler may wake this thread too late; one success is proof
            begun, done = threading.Event(), []

            def decode(begun=begun, done=done):
                begun.set()
                decode_image(large, BGR)
                done.append(True)

            thread = threading.Thread(target=decode)
            thread.start()
            begun.wait()
            overlapped = not done
            thread.join()
            if overlapped:
                break
    finally:
        sys.setswitchinterval(interval)
    assert overlapped


def test_importing_loads_no_decoder():
    program = "import sys, dali_like.images.decode; print(sorted({'cv2', 'simplejpeg'} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"


@pytest.mark.parametrize(("module", "name"), [("simplejpeg", "jpeg_420"), ("cv2", "png_rgb")])
def test_without_the_extra(monkeypatch, module, name):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(
        MissingExtraError, match=rf"needs {module}: pip install 'simplejpeg>=1\.8' 'opencv-python-headless>="
    ):
        decode_image(image_file(name))


def test_jpeg_does_without_opencv(monkeypatch):
    monkeypatch.setitem(sys.modules, "cv2", None)
    decode_image(image_file("jpeg_420"))
