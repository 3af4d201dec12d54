"""Windows of JPEGs, decoded by dali-like-kernels or TurboJPEG 3, have the pixels of the whole image; other files are left to
other decoders.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cv2")
pytest.importorskip("simplejpeg")
pytest.importorskip("skimage")

import cv2

from benchmarks.with_turbojpeg import packaged_turbojpeg
from dali_like import fn, types
from dali_like.common import kernel_library
from dali_like.errors import DecodeError
from dali_like.images import decode, jpeg_windows
from dali_like.images.decode import decode_image, decode_jpeg_smaller, read_header
from dali_like.images.jpeg_windows import LIBRARY_VARIABLE, JpegWindow, decode_jpeg_window, find_turbojpeg
from dali_like.types import ANY_DATA, BGR, GRAY, RGB, DALIImageType, YCbCr
from tests.compiled import kernels_from, library
from tests.image_files import as_file, image_file, with_opencv
from tests.images.test_jpeg_rows import FILES, OTHERS, PHOTOGRAPH
from tests.operators.running import run

#: Wide and high enough for several blocks, and a multiple of none.
ODD = PHOTOGRAPH[:201, :203]
WINDOWED = {
    **FILES,
    **{name: file for name, file in OTHERS.items() if name != "PNG"},
    **{
        f"odd, sampling {sampling:x}": with_opencv(ODD, ".jpg", cv2.IMWRITE_JPEG_SAMPLING_FACTOR, sampling)
        for sampling in (0x411111, 0x221111, 0x211111, 0x121111, 0x111111)
    },
}
NO_LIMIT = 1 << 40
DAMAGES = 3000 if os.environ.get("PARITY") == "full" else 60


@pytest.fixture
def turbojpeg(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let TurboJPEG be found, or the test be skipped."""
    monkeypatch.setenv(LIBRARY_VARIABLE, packaged_turbojpeg() or "")
    find_turbojpeg.cache_clear()
    if find_turbojpeg() is None:
        pytest.skip("TurboJPEG 3 is not installed")
    with kernels_from("0"):
        yield
    find_turbojpeg.cache_clear()


@pytest.fixture
def compiled() -> Iterator[None]:
    """Let the decoder of dali-like-kernels be found, or the test be skipped."""
    with kernels_from(library()):
        if kernel_library.kernels().decode_window is None:
            pytest.skip("dali-like-kernels was built without libjpeg-turbo")
        yield


@pytest.fixture(params=["compiled", "turbojpeg"])
def decoder(request: pytest.FixtureRequest) -> None:
    request.getfixturevalue(request.param)


def window_of(file: bytes, window: JpegWindow, output_type: DALIImageType = RGB, limit_bytes: int = NO_LIMIT) -> Any:
    return decode_jpeg_window(as_file(file), output_type, window, lambda shape: np.empty(shape, np.uint8), limit_bytes)


def whole_of(file: bytes, output_type: DALIImageType, factor: int) -> np.ndarray:
    """Return the image as simplejpeg decodes it."""
    if factor == 1:
        with kernels_from("0"):
            return decode_image(as_file(file), output_type)
    header = read_header(as_file(file))
    assert header is not None
    extents = -(-header.height // factor), -(-header.width // factor)
    whole = np.empty((*extents, 1 if output_type == GRAY else 3), np.uint8)
    assert decode_jpeg_smaller(as_file(file), output_type, factor, whole)
    return whole


@pytest.mark.usefixtures("decoder")
@pytest.mark.parametrize("factor", [1, 2, 4, 8])
@pytest.mark.parametrize("file", WINDOWED.values(), ids=WINDOWED)
def test_windows_have_the_pixels_of_the_image(file: bytes, factor: int) -> None:
    rng = np.random.default_rng(factor)
    for output_type in (RGB, BGR, GRAY):
        whole = whole_of(file, output_type, factor)
        for _ in range(20):
            height, width = (int(rng.integers(1, extent + 1)) for extent in whole.shape[:2])
            top, left = int(rng.integers(whole.shape[0] - height + 1)), int(rng.integers(whole.shape[1] - width + 1))
            window = window_of(file, JpegWindow(top, left, height, width, factor), output_type)
            np.testing.assert_array_equal(window, whole[top : top + height, left : left + width])


@pytest.mark.usefixtures("turbojpeg")
def test_columns_beside_the_window_are_left_out() -> None:
    """Otherwise it would be no faster."""
    shapes = []

    def memory(shape: tuple[int, int, int]) -> np.ndarray:
        shapes.append(shape)
        return np.empty(shape, np.uint8)

    decode_jpeg_window(as_file(FILES["sampling 221111"]), RGB, JpegWindow(40, 100, 20, 30), memory, NO_LIMIT)

    ((height, width, _),) = shapes
    assert height == 20
    assert 30 <= width <= 30 + 2 * 16


@pytest.mark.usefixtures("decoder")
def test_rows_and_columns_outside_of_the_image_are_left_out() -> None:
    """Rounding the extents of a scaled window may give one too many."""
    whole = whole_of(WINDOWED["odd, sampling 111111"], RGB, 2)

    window = window_of(WINDOWED["odd, sampling 111111"], JpegWindow(90, 90, 12, 13, 2))

    np.testing.assert_array_equal(window, whole[90:, 90:])


@pytest.mark.usefixtures("decoder")
@pytest.mark.parametrize("window", [JpegWindow(5, 6, 0, 7), JpegWindow(190, 6, 7, 7), JpegWindow(5, 500, 7, 7)])
def test_windows_without_pixels_are_left_to_other_decoders(window: JpegWindow) -> None:
    """For TurboJPEG and libjpeg-turbo an extent of 0 is that of the image: they would write beyond the memory."""
    assert window_of(WINDOWED["odd, sampling 221111"], window) is None


@pytest.mark.usefixtures("decoder")
def test_any_data_has_the_channels_of_the_file() -> None:
    window = JpegWindow(3, 4, 5, 6)
    assert window_of(FILES["gray"], window, ANY_DATA).shape == (5, 6, 1)
    assert window_of(FILES["sampling 221111"], window, ANY_DATA).shape == (5, 6, 3)


@pytest.mark.usefixtures("decoder")
@pytest.mark.parametrize(
    ("file", "output_type", "limit_bytes"),
    [
        pytest.param(OTHERS["PNG"], RGB, NO_LIMIT, id="PNG"),
        pytest.param(image_file("jpeg_cmyk").tobytes(), RGB, NO_LIMIT, id="CMYK"),
        pytest.param(FILES["gray"][:700], RGB, NO_LIMIT, id="truncated"),
        pytest.param(FILES["gray"], YCbCr, NO_LIMIT, id="YCbCr"),
        pytest.param(FILES["gray"], RGB, PHOTOGRAPH.size - 1, id="above the limit"),
        pytest.param(b"", RGB, NO_LIMIT, id="empty"),
    ],
)
def test_other_files_are_left_to_other_decoders(file: bytes, output_type: DALIImageType, limit_bytes: int) -> None:
    assert window_of(file, JpegWindow(90, 0, 8, 8), output_type, limit_bytes) is None


@pytest.mark.usefixtures("decoder")
def test_the_next_file_is_decoded_after_a_damaged_one() -> None:
    """A decompressor does not recover from a bad Huffman table."""
    bad = bytearray(FILES["sampling 411111"])
    bad[219] = 222
    for damaged in (FILES["gray"][:700], bytes(bad)):
        assert window_of(damaged, JpegWindow(90, 0, 8, 8, 2)) is None
    np.testing.assert_array_equal(
        window_of(FILES["gray"], JpegWindow(1, 2, 9, 8)), whole_of(FILES["gray"], RGB, 1)[1:10, 2:10]
    )


def in_operators(data: Any) -> list[Any]:
    random = {"random_area": [0.2, 0.9], "seed": 3}
    return [
        fn.decoders.image_random_crop(data, **random),
        fn.decoders.image_random_crop(data, min_size=20, **random),
        fn.decoders.image_crop(data, crop=(50, 70), crop_pos_x=0.3, output_type=types.GRAY),
        fn.decoders.image_slice(data, start=[5, 9], shape=[30, 40], use_fast_idct=True),
        fn.decoders.image_slice(data, start=[5, 9], shape=[0, 40]),
        fn.decoders.image_slice(data, start=[5, 9], shape=[30, 0]),
        fn.decoders.image(data, min_size=30),
    ]


@pytest.mark.usefixtures("decoder")
@pytest.mark.parametrize("way", ["threads", "workers"])
def test_operators_return_the_same_with_and_without_it(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    named = ("sampling 221111", "gray", "progressive", "odd, sampling 211111")
    files = [as_file(WINDOWED[name]) for name in named]
    by_windows = run(in_operators, files, way=way)
    monkeypatch.setattr(jpeg_windows, "find_turbojpeg", lambda: None)
    with kernels_from("0"):
        by_others = run(in_operators, files, way=way)

    for one, other in zip(by_windows[0], by_others[0], strict=True):
        for window, expected in zip(one, other, strict=True):
            np.testing.assert_array_equal(window, expected)


def damaged(file: bytes, rng: np.random.Generator) -> bytes:
    """Return a file that is cut off, or has other, fewer or more bytes at a random place."""
    place, count = int(rng.integers(2, len(file) + 1)), int(rng.integers(1, 5))
    new = rng.integers(0, 256, count, dtype=np.uint8).tobytes()
    return (
        file[:place],
        file[:place] + new + file[place + count :],
        file[:place] + new + file[place:],
        file[:place] + file[place + count :],
        file[: len(file) - count] + new + file[len(file) - count :],
    )[rng.integers(5)]


def pixels_or_error(file: bytes) -> Any:
    try:
        return decode_image(as_file(file), adjust_orientation=False).tolist()
    except DecodeError as error:
        return str(error)


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("name", ["gray", "progressive", "odd, sampling 221111", "odd, sampling 211111", "restart markers"])
def test_damaged_files_have_the_pixels_or_the_error_of_simplejpeg(name: str) -> None:
    files = {**WINDOWED, "restart markers": with_opencv(ODD, ".jpg", cv2.IMWRITE_JPEG_RST_INTERVAL, 3)}
    rng = np.random.default_rng(len(name))
    for _ in range(DAMAGES):
        file = damaged(files[name], rng)
        found = pixels_or_error(file)
        with kernels_from("0"):
            assert pixels_or_error(file) == found


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("file", WINDOWED.values(), ids=WINDOWED)
def test_whole_images_need_no_other_decoder(file: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = whole_of(file, RGB, 1)

    monkeypatch.setattr(decode, "_simplejpeg_pixels", None)

    np.testing.assert_array_equal(decode_image(as_file(file)), expected)


def test_a_path_that_cannot_be_loaded_is_an_error() -> None:
    """Not silently ignored: the user has asked for this library."""
    program = "from dali_like.images.jpeg_windows import find_turbojpeg; find_turbojpeg()"
    finished = subprocess.run(
        [sys.executable, "-c", program],
        env={LIBRARY_VARIABLE: "/nowhere/libturbojpeg.so"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert "OSError: /nowhere/libturbojpeg.so" in finished.stderr
