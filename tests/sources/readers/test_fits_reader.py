"""``fn.experimental.readers.fits``. DALI 1.53 needs a GPU for it, so astropy is the reference, as in DALI's own test."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from astropy.io import fits

from dali_like import fn, types
from dali_like.errors import ArgumentError, BrokenFileError, MissingFileError

from .reading import pipeline_with

IMAGE = np.arange(24).reshape(2, 3, 4)


def write(path: Path, *images: Any) -> str:
    """Write a file with an empty first HDU, and these HDUs or arrays behind it."""
    hdus = [
        each if isinstance(each, fits.BinTableHDU | fits.ImageHDU | fits.CompImageHDU) else fits.ImageHDU(each)
        for each in images
    ]
    fits.HDUList([fits.PrimaryHDU(), *hdus]).writeto(path)
    return str(path)


def read(num_batches: int = 1, **options: Any) -> list[np.ndarray]:
    """All outputs of the next samples."""
    with pipeline_with(fn.experimental.readers.fits, 1, **options) as pipe:
        return [np.array(output.at(0)) for _ in range(num_batches) for output in pipe.run()]


@pytest.mark.parametrize("dtype", ["u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f4", "f8"])
def test_dtypes(dtype: str, tmp_path: Path) -> None:
    (image,) = read(files=write(tmp_path / "a.fits", IMAGE.astype(dtype)))

    assert image.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(image, IMAGE)


@pytest.mark.parametrize("compression", ["RICE_1", "GZIP_1", "GZIP_2", "PLIO_1", "HCOMPRESS_1"])
def test_compressed_images(compression: str, tmp_path: Path) -> None:
    pixels = np.arange(400, dtype=np.int16).reshape(20, 20)
    (image,) = read(files=write(tmp_path / "a.fits", fits.CompImageHDU(pixels, compression_type=compression)))

    assert image.dtype == np.int16
    np.testing.assert_array_equal(image, pixels)


def test_compressed_files(tmp_path: Path) -> None:
    data = Path(write(tmp_path / "a.fits", IMAGE)).read_bytes()
    (tmp_path / "a.fits.gz").write_bytes(gzip.compress(data))

    np.testing.assert_array_equal(read(files=str(tmp_path / "a.fits.gz"))[0], IMAGE)


def test_several_hdus(tmp_path: Path) -> None:
    path = write(tmp_path / "a.fits", IMAGE.astype("f4"), np.arange(5, dtype=np.int16))
    numbers, image = read(files=path, hdu_indices=[3, 2], dtypes=[types.INT16, types.FLOAT])

    np.testing.assert_array_equal(image, IMAGE.astype("f4"))
    np.testing.assert_array_equal(numbers, np.arange(5))


def test_scaled_and_blank_pixels(tmp_path: Path) -> None:
    scaled, blank = (fits.ImageHDU(np.arange(6, dtype=np.int16)) for _ in range(2))
    scaled.header["BSCALE"] = 2.0
    scaled.header["BZERO"] = 1.0
    blank.header["BLANK"] = 3

    images = read(files=write(tmp_path / "a.fits", scaled, blank), hdu_indices=[2, 3])
    assert [image.dtype for image in images] == [np.float32] * 2
    np.testing.assert_array_equal(images, [np.arange(6) * 2 + 1, [0, 1, 2, np.nan, 4, 5]])


def test_files(tmp_path: Path) -> None:
    for folder in ("b", "a/deep"):
        (tmp_path / folder).mkdir(parents=True)
    for i, name in enumerate(["top.fits", "b/1.fits", "b/2.FITS", "a/x.fits", "a/deep/y.fits"]):
        write(tmp_path / name, np.full(2, i, np.uint8))
    (tmp_path / "list.txt").write_text("b/1.fits\n\na/x.fits\n")

    assert [image[0] for image in read(4, file_root=str(tmp_path))] == [0, 3, 1, 0]
    assert [image[0] for image in read(file_root=str(tmp_path), file_filter="*.FITS")] == [2]
    assert [image[0] for image in read(2, file_list=str(tmp_path / "list.txt"))] == [1, 3]
    assert [image[0] for image in read(files=["top.fits"], file_root=str(tmp_path))] == [0]


@pytest.mark.filterwarnings("ignore:File may have been truncated", "ignore:.*truncated")
@pytest.mark.parametrize(
    ("change", "options"),
    [
        (lambda data: data[:-2880], {}),
        (lambda data: data[:3000], {}),
        (lambda data: b"", {}),
        (lambda data: b"x" * 4000, {}),
        (lambda data: data, {"hdu_indices": [1]}),
        (lambda data: data, {"hdu_indices": [3]}),
        (lambda data: data, {"hdu_indices": [4]}),
    ],
    ids=["no data", "no header", "empty", "garbage", "no pixels", "table", "too few HDUs"],
)
def test_broken_files(change: Any, options: dict[str, Any], tmp_path: Path) -> None:
    table = fits.BinTableHDU.from_columns([fits.Column(name="a", format="J", array=np.arange(3))])
    path = Path(write(tmp_path / "a.fits", IMAGE, *[table] * bool(options)))
    path.write_bytes(change(path.read_bytes()))

    with pytest.raises(BrokenFileError, match=r"a\.fits of \d+ bytes, HDU") as caught:
        read(files=str(path), **options)
    assert caught.value.file == str(path)


def test_vanished_files(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError):
        read(files=str(tmp_path / "missing.fits"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hdu_indices": [0]}, "numbers from 1 on"),
        ({"hdu_indices": [2, 3], "dtypes": [types.FLOAT]}, "dtypes has 1 data types, but hdu_indices has 2 numbers"),
        ({"dtypes": [types.BOOL]}, "dtypes cannot contain BOOL"),
        ({"file_list": "b"}, "not both"),
    ],
)
def test_wrong_arguments(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        fn.experimental.readers.fits(files="a", **options)
