"""``fn.experimental.decoders`` and ``fn.experimental.peek_image_shape``, against DALI: all types, color formats and windows.

Pixels are the same, except for these:

* YCbCr of more than eight bits is computed in single precision by both, in another order: 1 of 65536 levels.
* Palettes of TIFF have 16 bits, which DALI keeps and OpenCV cuts to eight.
* Gray of CMYK: OpenCV computes with integers.
"""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

pytest.importorskip("nvidia.dali")
pytest.importorskip("simplejpeg")
pytest.importorskip("skimage")

from dali_like.errors import DecodeError
from dali_like.images.decode import decode_image
from dali_like.types import ANY_DATA, RGB
from tests.image_files import FILES, FLOAT_FILES, ORIENTED_FILES, RGB_PIXELS, as_file, image_file, with_tifffile
from tests.parity.conftest import OURS
from tests.parity.operators import compare, error_of, outputs

pytestmark = pytest.mark.peers

TYPES = ("UINT8", "UINT16", "FLOAT", "INT8", "INT16", "INT32", "UINT32")
COLORS = ("RGB", "BGR", "GRAY", "YCbCr", "ANY_DATA")
#: DALI fails, because a field is missing that has a default; or it delivers alpha as green.
NOT_BY_DALI = {"tiff_gray", "tiff_1", "tiff_fax", "tiff_gray_alpha"}
#: With ANY_DATA, DALI fails, delivers inks, or ends the process.
NOT_AS_STORED = {"jpeg_gray", "jpeg_cmyk", "jpeg_cmyk_plain", "jpeg_ycck", "tiff_cmyk"}
NOT_AS_STORED |= {"png_gray_alpha", "png_gray_alpha_16", "bmp_rgb_32", "bmp_rgba"}
OTHERWISE_ROUNDED = {"tiff_palette", "tiff_cmyk"}
RANGES = {"UINT8": 255, "INT8": 127, "UINT16": 65535, "INT16": 32767, "INT32": 2**31, "UINT32": 2**32, "FLOAT": 1}


def bound_of(color: str, dtype: str, *, is_rounded: bool) -> float:
    if is_rounded:
        return max(RANGES[dtype] / 255, 1) if dtype != "FLOAT" else 1 / 255
    if dtype == "FLOAT":
        return 2e-7 if color != "YCbCr" else 1e-6
    return 0 if color != "YCbCr" or RANGES[dtype] < 256 else max(1, RANGES[dtype] / 2**22)


def files_named(names):
    return [as_file(FLOAT_FILES[name][0]()) if name in FLOAT_FILES else image_file(name) for name in names]


@pytest.mark.parametrize("is_rounded", [False, True])
@pytest.mark.parametrize("color", COLORS)
def test_types_and_color_formats(color, is_rounded, dali):
    names = [
        name for name in (*FILES, *FLOAT_FILES) if name not in NOT_BY_DALI and (name in OTHERWISE_ROUNDED) == is_rounded
    ]
    if color == "ANY_DATA":
        names = [name for name in names if name not in NOT_AS_STORED]

    def define(library, data):
        types = library.types
        return [
            library.fn.experimental.decoders.image(
                data, output_type=getattr(types, color), dtype=getattr(types, dtype), adjust_orientation=False
            )
            for dtype in TYPES
        ]

    ours, theirs = (outputs(library, define, [files_named(names)]) for library in (OURS, dali))

    for dtype, one, other in zip(TYPES, ours, theirs, strict=True):
        assert one.layout == other.layout == "HWC"
        bound = bound_of(color, dtype, is_rounded=is_rounded)
        for name, sample, same in zip(names, one.samples, other.samples, strict=True):
            assert (sample.dtype, sample.shape) == (same.dtype, same.shape), (name, dtype)
            assert np.abs(sample.astype(float) - same).max() <= bound * 1.01, (name, dtype)


def bands(count, dtype):
    """An image with so many channels."""
    return (np.arange(11 * 13 * count).reshape(11, 13, count) * 7 % np.iinfo(dtype).max).astype(dtype)


BANDS = [(count, dtype) for count in (2, 3, 4, 5, 6, 8) for dtype in (np.uint8, np.uint16)]


def tiff_of_bands(count, dtype, **options):
    return as_file(with_tifffile(bands(count, dtype), photometric="minisblack", planarconfig="contig", **options))


@pytest.mark.parametrize("color", ["RGB", "BGR", "GRAY", "ANY_DATA"])
def test_tiffs_with_other_channels_than_those_of_colors(color, dali):
    """With two of them, only ANY_DATA is compared: DALI makes blue of memory that it has not written."""
    files = [tiff_of_bands(*each) for each in BANDS if color == "ANY_DATA" or each[0] > 2]

    def define(library, data):
        types = library.types
        return [
            *(
                library.fn.experimental.decoders.image(data, output_type=getattr(types, color), dtype=getattr(types, dtype))
                for dtype in ("UINT8", "UINT16")
            ),
            library.fn.experimental.peek_image_shape(data, image_type=getattr(types, color)),
            library.fn.peek_image_shape(data),
        ]

    ours, theirs = (outputs(library, define, [files]) for library in (OURS, dali))

    for one, other in zip(ours, theirs, strict=True):
        for sample, same in zip(one.samples, other.samples, strict=True):
            np.testing.assert_array_equal(sample, same)


@pytest.mark.parametrize("color", ["RGB", "GRAY", "ANY_DATA"])
def test_tiffs_with_other_channels_by_decoders_image(color, dali):
    files = [tiff_of_bands(count, np.uint8, compression=each) for count in (5, 8) for each in (None, "zlib", "zstd")]

    def define(library, data):
        return [library.fn.decoders.image(data, output_type=getattr(library.types, color))]

    compare(dali, define, [files], bound=1 if color == "GRAY" else 0)


@pytest.mark.parametrize(("count", "dtype"), BANDS)
def test_planes_of_a_tiff_are_its_channels(count, dtype):
    """DALI fails, or mixes them up."""
    stored = bands(count, dtype)
    file = as_file(
        with_tifffile(np.ascontiguousarray(stored.transpose(2, 0, 1)), photometric="minisblack", planarconfig="separate")
    )

    np.testing.assert_array_equal(decode_image(file, ANY_DATA, dtype=np.dtype(dtype)), stored)
    colors = stored[:, :, :3] if count > 2 else np.repeat(stored[:, :, :1], 3, axis=2)
    np.testing.assert_array_equal(decode_image(file, RGB, dtype=np.dtype(dtype)), colors)
    assert decode_image(file, ANY_DATA).shape == stored.shape


def test_damaged_tiffs_raise_nothing_but_decode_error():
    """imagecodecs decodes files that OpenCV cannot, and has exceptions of its own."""
    rng = np.random.default_rng(0)
    for file in (tiff_of_bands(5, np.uint16), as_file(with_tifffile(RGB_PIXELS[:9, :9]))):
        for _ in range(1500):
            damaged = file.copy()
            damaged[rng.integers(len(file))] = rng.integers(256)
            with contextlib.suppress(DecodeError):
                decode_image(damaged, RGB, dtype=np.dtype(np.uint16))


ORIENTED = [as_file(ORIENTED_FILES[kind](i)) for kind in ("jpeg", "png", "tiff_rgb_16") for i in (1, 2, 5, 6)]


def test_windows(dali):
    """If DALI turns an image on its side, it fails at windows that the stored image would not contain."""

    def define(library, data, size, start, shape):
        decoders, types = library.fn.experimental.decoders, library.types
        return [
            decoders.image_crop(data, crop=[20, 30], crop_pos_x=0.3, crop_pos_y=0.47),
            decoders.image_crop(data, crop=size, dtype=types.UINT16, rounding="truncate"),
            decoders.image_crop(data, crop_w=21, crop_h=10, adjust_orientation=False, output_type=types.GRAY),
            decoders.image_slice(data, start, shape, dtype=types.FLOAT),
            decoders.image_slice(data, start=[5, 6], end=[20, 30], output_type=types.BGR),
            decoders.image_slice(data, rel_start=[0.1, 0.2], rel_shape=[0.5, 0.3], axes=[0, 1], output_type=types.ANY_DATA),
            decoders.image_slice(data, start=[6, 5], shape=[20, 30], axis_names="HW", adjust_orientation=False),
        ]

    count = len(ORIENTED)
    sizes = [np.float32([20 + i, 41.7]) for i in range(count)]
    starts = [np.float32([0.02 * i, 0.2]) for i in range(count)]
    shapes = [np.float32([0.5, 0.04 * (i + 1)]) for i in range(count)]
    compare(dali, define, [ORIENTED, sizes, starts, shapes], bound=2e-7)


def test_sizes_of_random_windows_are_distributed_alike(dali):
    def sizes(library):
        (result,) = outputs(
            library,
            lambda library, data: library.fn.experimental.decoders.image_random_crop(
                data, random_area=[0.1, 0.9], dtype=library.types.UINT16
            ),
            [[image_file("png_gray")] * 1000],
        )
        return np.array([sample.shape[:2] for sample in result.samples])

    ours, theirs = sizes(OURS), sizes(dali)

    for percent in (5, 25, 50, 75, 95):
        apart = np.percentile(ours, percent, axis=0) - np.percentile(theirs, percent, axis=0)
        assert np.abs(apart).max() <= 4


def test_fast_transform(dali):
    def define(library, data):
        fn = library.fn
        return [
            *(decoders.image(data, use_fast_idct=True) for decoders in (fn.decoders, fn.experimental.decoders)),
            fn.decoders.image_crop(data, crop=[9, 9], use_fast_idct=True),
            fn.experimental.decoders.image_crop(data, crop=[9, 9], use_fast_idct=True),
        ]

    compare(dali, define, [[image_file(name) for name in ("jpeg_444", "jpeg_420", "jpeg_progressive")]])


@pytest.mark.parametrize("color", COLORS)
def test_shapes(color, dali):
    names = [name for name in (*FILES, *FLOAT_FILES) if name not in {*NOT_BY_DALI, *NOT_AS_STORED}]
    files = [*files_named(names), *ORIENTED]

    def define(library, data):
        peek, types = library.fn.experimental.peek_image_shape, library.types
        kind = getattr(types, color)
        return [
            peek(data, image_type=kind),
            peek(data, image_type=kind, adjust_orientation=False, dtype=types.INT32),
            peek(data, image_type=kind, dtype=types.FLOAT),
        ]

    compare(dali, define, [files])


@pytest.mark.parametrize(
    "arguments",
    [
        {"dtype": "FLOAT16"},
        {"dtype": "FLOAT64"},
        {"dtype": "BOOL"},
        {"dtype": "INT64"},
        {"output_type": 77},
        {"sideways": 1},
    ],
    ids=str,
)
def test_wrong_arguments(arguments, dali):
    def define(library, data):
        given = {
            name: getattr(library.types, value, value) if name == "dtype" else value for name, value in arguments.items()
        }
        return library.fn.experimental.decoders.image(data, **given)

    for library in (OURS, dali):
        assert error_of(library, define, [[image_file("png_rgb")]]) is not None


@pytest.mark.parametrize(
    "data",
    [
        image_file("jpeg2000_rgb")[:-300],
        image_file("pnm_rgb")[:-300],
        as_file(with_tifffile(RGB_PIXELS.astype(np.int16))),
        as_file(with_tifffile(RGB_PIXELS.astype(np.uint32))),
    ],
    ids=["jpeg 2000", "pnm", "int16", "uint32"],
)
def test_files_that_both_refuse(data, dali):
    for library in (OURS, dali):
        assert error_of(library, lambda library, data: library.fn.experimental.decoders.image(data), [[data]]) is not None
