"""Small image files of every kind, made of one photograph, for the tests of the image decoder.

`FILES` names them; `image_file(name)` is the file as a 1-D uint8 array, and `stored_pixels(name)` its pixels, which
`ANY_DATA` should decode, or None where the format loses something. Sizes are odd, so that no block of a
codec fits exactly, and height and width differ, so that a transposed image shows.
"""

from __future__ import annotations

import functools
import importlib.util
import io
import itertools
import re
import struct
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import cv2
import numpy as np
import tifffile
from PIL import Image

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray


def photograph(name: str) -> NDArray[np.uint8]:
    """Return a photograph of scikit-image as RGB, without importing the package, which takes longer than most tests."""
    spec = importlib.util.find_spec("skimage")
    assert spec is not None
    assert spec.origin is not None
    pixels = cv2.imread(str(Path(spec.origin).parent / "data" / f"{name}.png"))
    return np.ascontiguousarray(pixels[:, :, ::-1])


RGB_PIXELS = np.ascontiguousarray(photograph("chelsea")[60:121, 120:209])
HEIGHT, WIDTH = RGB_PIXELS.shape[:2]
GRAY_PIXELS = cv2.cvtColor(RGB_PIXELS, cv2.COLOR_RGB2GRAY)[:, :, np.newaxis]
ALPHA_PIXELS = (np.add.outer(np.arange(HEIGHT) * 3, np.arange(WIDTH) * 2) % 256).astype(np.uint8)[:, :, np.newaxis]
RGBA_PIXELS = np.concatenate([RGB_PIXELS, ALPHA_PIXELS], axis=2)
GRAY_ALPHA_PIXELS = np.concatenate([GRAY_PIXELS, ALPHA_PIXELS], axis=2)
PALETTE_IMAGE = Image.fromarray(RGB_PIXELS).quantize(64)
PALETTE_PIXELS = np.asarray(PALETTE_IMAGE.convert("RGB"))
BILEVEL_IMAGE = Image.fromarray(GRAY_PIXELS[:, :, 0]).convert("1")
BILEVEL_PIXELS = np.asarray(BILEVEL_IMAGE.convert("L"))[:, :, np.newaxis]
CMYK_IMAGE = Image.fromarray(np.random.default_rng(1).integers(0, 256, (8, 11, 4), np.uint8), "CMYK").resize((WIDTH, HEIGHT))


def sixteen_bit(pixels: NDArray[np.uint8]) -> NDArray[np.uint16]:
    """Samples whose upper eight bits are `pixels`, and whose lower ones are anything."""
    noise = np.random.default_rng(2).integers(0, 256, pixels.shape, np.uint16)
    return pixels.astype(np.uint16) * 256 + noise


def with_pillow(pixels: NDArray[Any] | Image.Image, kind: str, **options: Any) -> bytes:
    if not isinstance(pixels, Image.Image):
        pixels = Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)
    file = io.BytesIO()
    pixels.save(file, kind, **options)
    return file.getvalue()


def with_opencv(pixels: NDArray[Any], suffix: str, *parameters: int) -> bytes:
    bgr = pixels[:, :, [2, 1, 0, 3][: pixels.shape[2]]] if pixels.shape[2] > 1 else pixels
    return bytes(cv2.imencode(suffix, np.ascontiguousarray(bgr), parameters)[1])


def with_tifffile(pixels: NDArray[Any], **options: Any) -> bytes:
    file = io.BytesIO()
    tifffile.imwrite(file, pixels, **{"photometric": "rgb", **options})
    return file.getvalue()


def png_chunk(kind: bytes, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload)) + kind + payload + struct.pack(">I", zlib.crc32(kind + payload))


def png_header(height: int, width: int) -> bytes:
    """The chunk that says how large an image of 8-bit RGB is."""
    return png_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))


def png_promising(height: int, width: int) -> bytes:
    """A file that has no pixels to speak of."""
    chunks = [png_header(height, width), png_chunk(b"IDAT", zlib.compress(b"0")), png_chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def jpeg_promising(height: int, width: int, *, progressive: bool = False) -> bytes:
    """Likewise."""
    file = bytearray(with_pillow(RGB_PIXELS, "JPEG", progressive=progressive))
    frame = file.index(b"\xff\xc2" if progressive else b"\xff\xc0")
    file[frame + 5 : frame + 9] = struct.pack(">HH", height, width)
    return bytes(file)


def png_of_16_bit_gray_and_alpha() -> bytes:
    """By hand, because none of the libraries here writes it."""
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in sixteen_bit(GRAY_ALPHA_PIXELS))
    header = struct.pack(">IIBBBBB", WIDTH, HEIGHT, 16, 4, 0, 0, 0)
    chunks = png_chunk(b"IHDR", header) + png_chunk(b"IDAT", zlib.compress(rows)) + png_chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunks


def jpeg_of_plain_cmyk() -> bytes:
    """Without the marker that tells that the inks are stored as Adobe does, inverted."""
    data = image_file("jpeg_cmyk").tobytes()
    start = data.index(b"\xff\xee")
    return data[:start] + data[start + 2 + 14 :]


def jpeg_of_ycck() -> bytes:
    """Such that the same bytes are taken for YCCK: the last byte of the Adobe marker says so."""
    data = bytearray(image_file("jpeg_cmyk").tobytes())
    data[data.index(b"Adobe") + 11] = 2
    return bytes(data)


def jpeg_of_flat_gray(sampling: int, level: int = 128) -> bytes:
    """A 3-component JPEG of 48x48 pixels of one gray, with any luma sampling factors (0x31: three by one).

    Each block is "no difference, end of block", so that bits can be written by hand; `level` shifts the first block.
    """
    table = lambda kind, code_lengths, symbols: bytes([kind]) + bytes(code_lengths) + bytes(symbols)  # noqa: E731
    segment = lambda marker, payload: bytes([0xFF, marker]) + struct.pack(">H", len(payload) + 2) + payload  # noqa: E731
    across, down = sampling >> 4, sampling & 15
    difference = (level - 128) * 8  # of the DC coefficient, quantized by 1
    bits_of_first = abs(difference).bit_length()
    # DC: category 0 is "0", the category of the first block "10". AC: end of block is "0".
    tables = table(0x00, [1, 1, *[0] * 14], [0, bits_of_first]) + table(0x10, [1, *[0] * 15], [0])
    value = difference if difference >= 0 else difference + (1 << bits_of_first) - 1
    first_block = f"10{value:0{bits_of_first}b}0" if difference else "00"
    units = -(-48 // (8 * across)) * -(-48 // (8 * down))
    bits = first_block + "00" * (units * (across * down + 2) - 1)
    bits += "1" * (-len(bits) % 8)
    scan = int(bits, 2).to_bytes(len(bits) // 8, "big").replace(b"\xff", b"\xff\0")
    return b"".join(
        [
            b"\xff\xd8",
            segment(0xDB, b"\0" + b"\1" * 64),
            segment(0xC0, struct.pack(">BHHB", 8, 48, 48, 3) + bytes([1, sampling, 0, 2, 0x11, 0, 3, 0x11, 0])),
            segment(0xC4, tables),
            segment(0xDA, bytes([3, 1, 0, 2, 0, 3, 0, 0, 63, 0])),
            scan,
            b"\xff\xd9",
        ]
    )


def bmp_of_rgba() -> bytes:
    """With the BITMAPV4HEADER that says which bits are alpha; libraries write different values."""
    masks = struct.pack("<4I", 0xFF0000, 0xFF00, 0xFF, 0xFF000000)
    pixels = np.ascontiguousarray(RGBA_PIXELS[::-1, :, [2, 1, 0, 3]]).tobytes()
    header = struct.pack("<IiiHHIIiiII", 108, WIDTH, HEIGHT, 1, 32, 3, len(pixels), 0, 0, 0, 0) + masks + b"BGRs" + bytes(48)
    return b"BM" + struct.pack("<IHHI", 14 + 108 + len(pixels), 0, 0, 14 + 108) + header + pixels


def with_scan_parameters(jpeg: bytes, *parameters: int) -> bytes:
    """A JPEG whose first scan has these: start and end of the spectrum, and bits of successive approximation."""
    data = bytearray(jpeg)
    scan = data.index(b"\xff\xda")
    end = scan + 2 + int.from_bytes(data[scan + 2 : scan + 4], "big")
    data[end - 3 : end] = bytes(parameters)
    return bytes(data)


def with_jfif_version(jpeg: bytes, major: int) -> bytes:
    data = bytearray(jpeg)
    data[data.index(b"JFIF\0") + 5] = major
    return bytes(data)


def with_adobe_transform(jpeg: bytes, transform: int) -> bytes:
    """A JPEG with a marker of Adobe, in place of that of JFIF if it has none."""
    start = jpeg.find(b"Adobe")
    if start < 0:
        end = 4 + int.from_bytes(jpeg[4:6], "big")
        jpeg, start = jpeg[:2] + b"\xff\xee\0\x0eAdobe\0\x64" + bytes(5) + jpeg[end:], 6
    return jpeg[: start + 11] + bytes([transform]) + jpeg[start + 12 :]


def with_restart_numbers(jpeg: bytes, number: Callable[[int], int]) -> bytes:
    """A JPEG whose restart markers have these numbers, given their number in order."""
    numbers = itertools.count()
    scan = jpeg.index(b"\xff\xda")
    return jpeg[:scan] + re.sub(rb"\xff[\xd0-\xd7]", lambda _: bytes([0xFF, 0xD0 + number(next(numbers)) % 8]), jpeg[scan:])


def with_bytes_behind_scans(jpeg: bytes, inserted: bytes, *scans: int) -> bytes:
    """A JPEG with other bytes behind the data of some scans."""
    ends = [end.start() for end in re.finditer(rb"\xff(?=[\xc4\xd9\xda])", jpeg)]
    begin = jpeg.index(b"\xff\xda")
    ends = [end for end in ends if end > begin and jpeg[end - 1] != 0xFF]
    for scan in sorted(scans, reverse=True):
        jpeg = jpeg[: ends[scan]] + inserted + jpeg[ends[scan] :]
    return jpeg


class _Recipe(NamedTuple):
    encode: Callable[[], bytes]
    pixels: NDArray[np.uint8] | None = None


def codestream_of(jp2: bytes) -> bytes:
    """The codestream of a JP2 file, without the boxes around it."""
    return jp2[jp2.index(b"\xff\x4f\xff\x51") :]


_LOSSLESS_JP2 = (cv2.IMWRITE_JPEG2000_COMPRESSION_X1000, 1000)
_JPEG_SAMPLING = cv2.IMWRITE_JPEG_SAMPLING_FACTOR
_RECIPES = {
    "jpeg_444": _Recipe(lambda: with_pillow(RGB_PIXELS, "JPEG", quality=90, subsampling=0)),
    "jpeg_422": _Recipe(lambda: with_pillow(RGB_PIXELS, "JPEG", quality=90, subsampling=1)),
    "jpeg_420": _Recipe(lambda: with_pillow(RGB_PIXELS, "JPEG", quality=90, subsampling=2)),
    "jpeg_440": _Recipe(lambda: with_opencv(RGB_PIXELS, ".jpg", _JPEG_SAMPLING, cv2.IMWRITE_JPEG_SAMPLING_FACTOR_440)),
    "jpeg_411": _Recipe(lambda: with_opencv(RGB_PIXELS, ".jpg", _JPEG_SAMPLING, cv2.IMWRITE_JPEG_SAMPLING_FACTOR_411)),
    "jpeg_restarts": _Recipe(lambda: with_opencv(RGB_PIXELS, ".jpg", cv2.IMWRITE_JPEG_RST_INTERVAL, 4)),
    "jpeg_progressive": _Recipe(lambda: with_pillow(RGB_PIXELS, "JPEG", quality=90, progressive=True)),
    "jpeg_rgb": _Recipe(lambda: with_pillow(RGB_PIXELS, "JPEG", quality=90, subsampling=0, keep_rgb=True)),
    "jpeg_gray": _Recipe(lambda: with_pillow(GRAY_PIXELS, "JPEG", quality=90)),
    "jpeg_cmyk": _Recipe(lambda: with_pillow(CMYK_IMAGE, "JPEG", quality=95)),
    "jpeg_cmyk_plain": _Recipe(jpeg_of_plain_cmyk),
    "jpeg_ycck": _Recipe(jpeg_of_ycck),
    "jpeg_odd_sampling": _Recipe(lambda: jpeg_of_flat_gray(0x31, level=100)),
    "png_gray": _Recipe(lambda: with_pillow(GRAY_PIXELS, "PNG"), GRAY_PIXELS),
    "png_gray_16": _Recipe(lambda: with_opencv(sixteen_bit(GRAY_PIXELS), ".png"), GRAY_PIXELS),
    "png_gray_1": _Recipe(lambda: with_pillow(BILEVEL_IMAGE, "PNG"), BILEVEL_PIXELS),
    "png_gray_alpha": _Recipe(lambda: with_pillow(GRAY_ALPHA_PIXELS, "PNG"), GRAY_PIXELS),
    "png_gray_alpha_16": _Recipe(png_of_16_bit_gray_and_alpha, GRAY_PIXELS),
    "png_gray_transparent": _Recipe(
        lambda: with_pillow(GRAY_PIXELS, "PNG", transparency=int(GRAY_PIXELS[5, 5, 0])), GRAY_PIXELS
    ),
    "png_rgb": _Recipe(lambda: with_pillow(RGB_PIXELS, "PNG"), RGB_PIXELS),
    "png_rgb_16": _Recipe(lambda: with_opencv(sixteen_bit(RGB_PIXELS), ".png"), RGB_PIXELS),
    "png_rgb_transparent": _Recipe(
        lambda: with_pillow(RGB_PIXELS, "PNG", transparency=tuple(int(value) for value in RGB_PIXELS[5, 5])), RGB_PIXELS
    ),
    "png_rgba": _Recipe(lambda: with_pillow(RGBA_PIXELS, "PNG"), RGBA_PIXELS),
    "png_rgba_16": _Recipe(lambda: with_opencv(sixteen_bit(RGBA_PIXELS), ".png"), RGBA_PIXELS),
    "png_palette": _Recipe(lambda: with_pillow(PALETTE_IMAGE, "PNG"), PALETTE_PIXELS),
    "png_palette_alpha": _Recipe(
        lambda: with_pillow(PALETTE_IMAGE, "PNG", transparency=bytes(range(0, 256, 4))), PALETTE_PIXELS
    ),
    "webp_lossy": _Recipe(lambda: with_pillow(RGB_PIXELS, "WEBP", quality=90)),
    "webp_lossy_alpha": _Recipe(lambda: with_pillow(RGBA_PIXELS, "WEBP", quality=90)),
    "webp_lossless": _Recipe(lambda: with_pillow(RGB_PIXELS, "WEBP", lossless=True), RGB_PIXELS),
    "webp_lossless_alpha": _Recipe(lambda: with_pillow(RGBA_PIXELS, "WEBP", lossless=True, exact=True), RGBA_PIXELS),
    "bmp_rgb": _Recipe(lambda: with_pillow(RGB_PIXELS, "BMP"), RGB_PIXELS),
    "bmp_rgb_32": _Recipe(lambda: with_pillow(RGBA_PIXELS, "BMP"), RGB_PIXELS),
    "bmp_rgba": _Recipe(bmp_of_rgba, RGBA_PIXELS),
    "bmp_gray": _Recipe(lambda: with_pillow(GRAY_PIXELS, "BMP"), GRAY_PIXELS),
    "bmp_palette": _Recipe(lambda: with_pillow(PALETTE_IMAGE, "BMP"), PALETTE_PIXELS),
    "bmp_1": _Recipe(lambda: with_pillow(BILEVEL_IMAGE, "BMP"), BILEVEL_PIXELS),
    "tiff_rgb": _Recipe(lambda: with_pillow(RGB_PIXELS, "TIFF"), RGB_PIXELS),
    "tiff_rgb_lzw": _Recipe(lambda: with_pillow(RGB_PIXELS, "TIFF", compression="tiff_lzw"), RGB_PIXELS),
    "tiff_rgb_deflate": _Recipe(lambda: with_pillow(RGB_PIXELS, "TIFF", compression="tiff_adobe_deflate"), RGB_PIXELS),
    "tiff_rgb_jpeg": _Recipe(lambda: with_pillow(RGB_PIXELS, "TIFF", compression="jpeg")),
    "tiff_rgb_16": _Recipe(lambda: with_tifffile(sixteen_bit(RGB_PIXELS)), RGB_PIXELS),
    "tiff_rgb_big_endian": _Recipe(lambda: with_tifffile(RGB_PIXELS, byteorder=">"), RGB_PIXELS),
    "tiff_rgb_bigtiff": _Recipe(lambda: with_tifffile(RGB_PIXELS, bigtiff=True), RGB_PIXELS),
    "tiff_rgb_tiles": _Recipe(lambda: with_tifffile(RGB_PIXELS, tile=(32, 32)), RGB_PIXELS),
    "tiff_rgb_strips": _Recipe(lambda: with_tifffile(RGB_PIXELS, rowsperstrip=7), RGB_PIXELS),
    "tiff_rgb_pages": _Recipe(lambda: with_tifffile(np.stack([RGB_PIXELS, RGB_PIXELS[::-1]])), RGB_PIXELS),
    "tiff_rgb_planes": _Recipe(
        lambda: with_tifffile(np.ascontiguousarray(RGB_PIXELS.transpose(2, 0, 1)), planarconfig="separate"), RGB_PIXELS
    ),
    "tiff_rgba": _Recipe(lambda: with_tifffile(RGBA_PIXELS, extrasamples=["unassalpha"]), RGBA_PIXELS),
    "tiff_rgba_associated": _Recipe(lambda: with_tifffile(RGBA_PIXELS, extrasamples=["assocalpha"]), RGBA_PIXELS),
    "tiff_rgba_16": _Recipe(lambda: with_tifffile(sixteen_bit(RGBA_PIXELS), extrasamples=["unassalpha"]), RGBA_PIXELS),
    "tiff_gray": _Recipe(lambda: with_pillow(GRAY_PIXELS, "TIFF"), GRAY_PIXELS),
    "tiff_gray_16": _Recipe(lambda: with_tifffile(sixteen_bit(GRAY_PIXELS[:, :, 0]), photometric="minisblack"), GRAY_PIXELS),
    "tiff_gray_alpha": _Recipe(lambda: with_pillow(GRAY_ALPHA_PIXELS, "TIFF"), GRAY_PIXELS),
    "tiff_gray_inverted": _Recipe(lambda: with_tifffile(255 - GRAY_PIXELS[:, :, 0], photometric="miniswhite"), GRAY_PIXELS),
    "tiff_palette": _Recipe(lambda: with_pillow(PALETTE_IMAGE, "TIFF"), PALETTE_PIXELS),
    "tiff_1": _Recipe(lambda: with_pillow(BILEVEL_IMAGE, "TIFF"), BILEVEL_PIXELS),
    "tiff_fax": _Recipe(lambda: with_pillow(BILEVEL_IMAGE, "TIFF", compression="group4"), BILEVEL_PIXELS),
    "jpeg2000_rgb": _Recipe(lambda: with_opencv(RGB_PIXELS, ".jp2", *_LOSSLESS_JP2), RGB_PIXELS),
    "jpeg2000_gray": _Recipe(lambda: with_opencv(GRAY_PIXELS, ".jp2", *_LOSSLESS_JP2), GRAY_PIXELS),
    "jpeg2000_rgb_16": _Recipe(lambda: with_opencv(sixteen_bit(RGB_PIXELS), ".jp2", *_LOSSLESS_JP2), RGB_PIXELS),
    "jpeg2000_codestream": _Recipe(lambda: codestream_of(with_opencv(RGB_PIXELS, ".jp2", *_LOSSLESS_JP2)), RGB_PIXELS),
    "jpeg2000_lossy": _Recipe(lambda: with_opencv(RGB_PIXELS, ".jp2", cv2.IMWRITE_JPEG2000_COMPRESSION_X1000, 200)),
    "pnm_rgb": _Recipe(lambda: with_opencv(RGB_PIXELS, ".ppm"), RGB_PIXELS),
    "pnm_rgb_text": _Recipe(lambda: with_opencv(RGB_PIXELS, ".ppm", cv2.IMWRITE_PXM_BINARY, 0), RGB_PIXELS),
    "pnm_rgb_16": _Recipe(lambda: with_opencv(sixteen_bit(RGB_PIXELS), ".ppm"), RGB_PIXELS),
    "pnm_gray": _Recipe(lambda: with_opencv(GRAY_PIXELS, ".pgm"), GRAY_PIXELS),
    "pnm_gray_text": _Recipe(lambda: with_opencv(GRAY_PIXELS, ".pgm", cv2.IMWRITE_PXM_BINARY, 0), GRAY_PIXELS),
    "pnm_gray_comment": _Recipe(
        lambda: b"P5 # of the test\n# and more\n%d\t%d\n255\n" % (WIDTH, HEIGHT) + GRAY_PIXELS.tobytes(), GRAY_PIXELS
    ),
    "pnm_1": _Recipe(lambda: with_opencv(BILEVEL_PIXELS, ".pbm"), BILEVEL_PIXELS),
    "pnm_1_text": _Recipe(lambda: with_opencv(BILEVEL_PIXELS, ".pbm", cv2.IMWRITE_PXM_BINARY, 0), BILEVEL_PIXELS),
    "tiff_cmyk": _Recipe(lambda: with_pillow(CMYK_IMAGE, "TIFF"), np.asarray(CMYK_IMAGE.convert("RGB"))),
}
FILES = tuple(_RECIPES)
#: JPEGs with harmless irregularities: the name of the file, and how it is changed.
IRREGULAR_JPEGS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "end of the spectrum 0": ("jpeg_420", lambda jpeg: with_scan_parameters(jpeg, 0, 0, 0)),
    "successive approximation": ("jpeg_444", lambda jpeg: with_scan_parameters(jpeg, 0, 63, 17)),
    "JFIF 2": ("jpeg_gray", lambda jpeg: with_jfif_version(jpeg, 2)),
    "JFIF 2, progressive": ("jpeg_progressive", lambda jpeg: with_jfif_version(jpeg, 2)),
    "Adobe transform 2 of three components": ("jpeg_420", lambda jpeg: with_adobe_transform(jpeg, 2)),
    "Adobe transform 1 of inks": ("jpeg_ycck", lambda jpeg: with_adobe_transform(jpeg, 1)),
    "Adobe transform 9 of inks": ("jpeg_ycck", lambda jpeg: with_adobe_transform(jpeg, 9)),
    "restart markers from 3 on": ("jpeg_restarts", lambda jpeg: with_restart_numbers(jpeg, lambda number: number + 3)),
    "restart markers of one number": ("jpeg_restarts", lambda jpeg: with_restart_numbers(jpeg, lambda number: 0)),
    "bytes between two scans": ("jpeg_progressive", lambda jpeg: with_bytes_behind_scans(jpeg, b"\1" * 5, 1)),
    "stuffed bytes between scans": ("jpeg_progressive", lambda jpeg: with_bytes_behind_scans(jpeg, b"\xff\0" * 9, 2)),
    "bytes behind three scans": ("jpeg_progressive", lambda jpeg: with_bytes_behind_scans(jpeg, b"\1" * 300, 0, 3, 4)),
    "spectrum and bytes at the end": (
        "jpeg_422",
        lambda jpeg: with_bytes_behind_scans(with_scan_parameters(jpeg, 0, 0, 0), b"\1" * 9, 0),
    ),
}
#: RGB from a little below 0 to a little above 1.
FLOAT_PIXELS = (RGB_PIXELS.astype(np.float32) / 200 - 0.1).astype(np.float32)
#: Files with floating-point samples, and their pixels. Only the experimental decoders take them.
FLOAT_FILES: dict[str, tuple[Callable[[], bytes], NDArray[np.float32]]] = {
    "tiff_rgb_float": (lambda: with_tifffile(FLOAT_PIXELS), FLOAT_PIXELS),
    "tiff_rgb_float_deflate": (lambda: with_tifffile(FLOAT_PIXELS, compression="zlib"), FLOAT_PIXELS),
    "tiff_rgb_float_tiles": (lambda: with_tifffile(FLOAT_PIXELS, tile=(32, 16)), FLOAT_PIXELS),
    "tiff_gray_float": (
        lambda: with_tifffile(FLOAT_PIXELS[:, :, 0], photometric="minisblack"),
        np.ascontiguousarray(FLOAT_PIXELS[:, :, :1]),
    ),
}


@functools.cache
def image_file(name: str) -> NDArray[np.uint8]:
    """The bytes of a file of `FILES`; read-only, as bytes that come from a mapped file are."""
    return np.frombuffer(_RECIPES[name].encode(), np.uint8)


def stored_pixels(name: str) -> NDArray[np.uint8] | None:
    """The pixels that `ANY_DATA` should decode a file of `FILES` to; None for lossy formats."""
    return _RECIPES[name].pixels


def as_file(data: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(data, np.uint8)


def exif(orientation: int, order: str = "<") -> bytes:
    """The smallest EXIF block with an orientation tag."""
    entry = struct.pack(f"{order}HHIHH", 0x112, 3, 1, orientation, 0)
    return {"<": b"II", ">": b"MM"}[order] + struct.pack(f"{order}HIH", 42, 8, 1) + entry + bytes(4)


def jpeg_with_exif(block: bytes, data: bytes | None = None) -> bytes:
    """A JPEG with an APP1 segment of this EXIF block right after its start marker."""
    data = image_file("jpeg_420").tobytes() if data is None else data
    return data[:2] + b"\xff\xe1" + struct.pack(">H", len(block) + 8) + b"Exif\0\0" + block + data[2:]


def png_with_exif(block: bytes, *, at_end: bool = False) -> bytes:
    """A PNG with an eXIf chunk right after its header, or right before its end."""
    data = image_file("png_rgb").tobytes()
    position = len(data) - 12 if at_end else 8 + 25
    return data[:position] + png_chunk(b"eXIf", block) + data[position:]


ORIENTED_FILES: dict[str, Callable[[int], bytes]] = {
    "jpeg": lambda orientation: jpeg_with_exif(exif(orientation)),
    "jpeg_big_endian": lambda orientation: jpeg_with_exif(exif(orientation, ">")),
    "jpeg_gray": lambda orientation: jpeg_with_exif(exif(orientation), image_file("jpeg_gray").tobytes()),
    "jpeg_cmyk": lambda orientation: jpeg_with_exif(exif(orientation), image_file("jpeg_cmyk").tobytes()),
    "png": lambda orientation: png_with_exif(exif(orientation)),
    "png_at_end": lambda orientation: png_with_exif(exif(orientation), at_end=True),
    "png_rgba": lambda orientation: with_pillow(RGBA_PIXELS, "PNG", exif=exif(orientation)),
    "webp": lambda orientation: with_pillow(RGB_PIXELS, "WEBP", quality=90, exif=exif(orientation)),
    "tiff": lambda orientation: with_pillow(RGB_PIXELS, "TIFF", tiffinfo={0x112: orientation}),
    "tiff_rgba": lambda orientation: with_pillow(RGBA_PIXELS, "TIFF", tiffinfo={0x112: orientation}),
    "tiff_rgb_16": lambda orientation: with_tifffile(
        sixteen_bit(RGB_PIXELS), extratags=[(0x112, "H", 1, orientation, True)]
    ),
}


def turned(pixels: NDArray[np.uint8], orientation: int) -> NDArray[np.uint8]:
    """How EXIF means stored pixels to be seen: which sides of the scene its row 0 and column 0 are."""
    transposed = pixels.transpose(1, 0, 2)
    return {
        1: pixels,
        2: pixels[:, ::-1],
        3: pixels[::-1, ::-1],
        4: pixels[::-1],
        5: transposed,
        6: transposed[:, ::-1],
        7: transposed[::-1, ::-1],
        8: transposed[::-1],
    }[orientation]
