"""Decode JPEG, JPEG 2000, PNG, WebP, BMP, PNM and TIFF images to HWC arrays on the CPU, as DALI's image decoders do.

The functions are pure functions of bytes, without state, and know nothing of pipelines. `header` reads the declared
properties of a file; this module decodes the pixels and checks them against the header. simplejpeg (libjpeg-turbo) decodes
JPEG, directly into the caller's memory if no conversion or rotation is needed. OpenCV decodes the other formats, and
imagecodecs the TIFFs that OpenCV does not support. They release the GIL while they decode.

The reference is DALI 1.53 with device="cpu". `adjust_orientation=False` follows ``nvidia.dali.fn.decoders.image``, which
ignores EXIF. `adjust_orientation=True` follows ``nvidia.dali.fn.experimental.decoders.image``, and so does `dtype`. Where
these two differ in other pixels, `tests/parity/test_image_decoder.py` states the reference and the reason.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from dali_like.common.extras import optional
from dali_like.engine.memory.limits import LEAST_IMAGE_LIMIT_BYTES, available_bytes
from dali_like.errors import ArgumentError, DecodeError, OutOfMemoryError, SampleTypeError
from dali_like.images.decoding_limit import DecodingLimit
from dali_like.images.header import (
    FileFacts,
    ImageHeader,
    PlainTiff,
    file_facts,
    has_more_scans,
    jpeg_blocks,
    jpeg_is_complete,
    most_scans,
)
from dali_like.images.jpeg_repairs import without_irregularity
from dali_like.images.jpeg_windows import JpegWindow, decode_jpeg_by_kernel
from dali_like.images.value_ranges import bands, gray_of, in_range_of
from dali_like.types import ANY_DATA, BGR, GRAY, RGB, DALIImageType, YCbCr

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

__all__ = ["ImageHeader", "decode_image", "decode_jpeg_smaller", "decoded_shape", "may_be_decoded_smaller", "read_header"]

# libjpeg's message for extra bytes after the last block of a complete image. libjpeg reports the first irregularity, and
# nothing follows the end marker, so the image has no other defect. DALI decodes such files, too.
_BYTES_LEFT_OVER = "extraneous bytes before marker 0xd9"
#: Largest number of times that a JPEG with irregularities is decoded.
_MOST_DECODINGS = 24
# TurboJPEG's message for sampling factors that it has no name for; OpenCV's libjpeg decodes them.
_UNNAMED_SAMPLING = "subsampling"

#: Compressions of TIFF that OpenCV decodes: none, fax, LZW, JPEG, Deflate and PackBits.
_OPENCV_COMPRESSIONS = frozenset({1, 2, 3, 4, 5, 7, 8, 32773, 32946})
#: Samples counted per pixel, for any output type; those of the file if it has more. Decoders temporarily need
#: up to three times as much.
_PIXEL_SAMPLES = 3
#: Bits of a sample that are decoded to eight.
_MOST_BITS = 16
#: Types of samples in files, besides JPEG.
_DEPTHS = frozenset(map(np.dtype, ("uint8", "uint16", "float32", "float64")))
_NO_LIMIT = 1 << 62
#: Smaller images skip the check for available memory, which takes a tenth of a millisecond.
_MUCH_BYTES = 1 << 26


def read_header(encoded: NDArray[np.uint8]) -> ImageHeader | None:
    """Read the image header; None if the bytes are not an image or the header is broken.

    Raises:
        SampleTypeError: `encoded` is not a 1-D uint8 array.
    """
    facts = file_facts(_checked(encoded).data)
    return facts.header if facts is not None else None


def decoded_shape(
    encoded: NDArray[np.uint8], output_type: DALIImageType, adjust_orientation: bool = True
) -> tuple[int, int, int] | None:
    """Return the (height, width, channels) that `decode_image` would return; None where the header makes it raise.

    Raises:
        SampleTypeError: `encoded` is not a 1-D uint8 array.
    """
    header = read_header(encoded)
    return None if header is None else _shape(header, output_type, adjust_orientation)


def decode_image(
    encoded: NDArray[np.uint8],
    output_type: DALIImageType = RGB,
    adjust_orientation: bool = True,
    out: NDArray[Any] | Callable[[tuple[int, int, int]], NDArray[Any]] | None = None,
    limit_bytes: int = LEAST_IMAGE_LIMIT_BYTES,
    dtype: np.dtype[Any] | None = None,
    fast_idct: bool = False,
) -> NDArray[Any]:
    """Decode one image.

    `output_type` selects the channels. RGB, BGR and YCbCr have three: gray is repeated, and alpha is dropped without
    blending. GRAY has one. ANY_DATA keeps those of the file: 1 for gray, 3 for color, palettes and CMYK, 4 for color with
    alpha, and all bands of a TIFF that has others, of which RGB takes the first three. Alpha with gray is dropped, as is a
    color or palette entry declared transparent. YCbCr is converted from RGB by
    ITU-R BT.601, limited range. Of several frames or pages the first is decoded.

    Args:
        encoded: the bytes of the file, 1-D uint8.
        output_type: color format of the result.
        adjust_orientation: whether to rotate and mirror the image according to its EXIF or TIFF tag.
        out: C-contiguous array of the decoded shape and dtype to decode into, or a function that returns one for a shape.
            After an error its contents are undefined.
        limit_bytes: maximum for the pixels declared by the header, at three samples each.
        dtype: data type of the result. Samples are scaled from the range of the file to that of this type; see
            `dali_like.images.value_ranges`. None: uint8, and 16-bit samples keep their upper eight bits (RGB TIFFs: rounded
            to eight).
        fast_idct: whether to decode JPEGs with a faster and less accurate transform.

    Returns:
        `out`, or else a new C-contiguous array (height, width, channels).

    Raises:
        SampleTypeError: `encoded` is not a 1-D uint8 array.
        DecodeError: the format is not supported, the data are incomplete or detectably damaged, or the image exceeds
            `limit_bytes`.
        OutOfMemoryError: not enough memory is available now.
        ArgumentError: `out` has another shape or dtype, is read-only or is not C-contiguous.
        MissingExtraError: simplejpeg, OpenCV, or, for a rare TIFF, imagecodecs is not installed.
    """
    encoded = _checked(encoded)
    facts = file_facts(encoded.data)
    if facts is None:
        raise DecodeError(f"not a JPEG, JPEG 2000, PNG, WebP, BMP, PNM or TIFF image: {_described(encoded)}")
    if encoded.size < facts.needs_bytes:
        raise _error(encoded, facts, f"truncated: the file should have {facts.needs_bytes} bytes or more")
    if facts.header is None:
        raise _error(encoded, facts, facts.problem)
    if facts.bits > _MOST_BITS and dtype is None:
        raise _error(
            encoded,
            facts,
            f"samples of {facts.bits} bits, {_MOST_BITS} is the most: use fn.experimental.decoders.image(dtype=types.FLOAT)",
        )

    result = np.dtype(np.uint8) if dtype is None else dtype
    _check_size(encoded, facts, facts.header, limit_bytes, result.itemsize)
    shape = _shape(facts.header, output_type, adjust_orientation)
    if callable(out):
        out = out(shape)
    if out is not None:
        _check_out(out, shape, result)
    orientation = facts.header.orientation if adjust_orientation else 1
    decoded_type = RGB if output_type == YCbCr else output_type
    into = out if result == np.uint8 and decoded_type == output_type and orientation == 1 else None

    if facts.format == "jpeg":
        pixels = _decode_jpeg(encoded, facts, facts.header, decoded_type, into, fast_idct)
    elif dtype is None and (facts.plain_tiff is None or not facts.plain_tiff.has_bands):
        pixels = _decode_with_opencv(encoded, facts, facts.header, decoded_type, into)
    else:
        pixels = _decode_any_depth(encoded, facts, facts.header, decoded_type)
    stored_shape = _shape(facts.header, decoded_type, False)
    if pixels.shape != stored_shape:
        raise _error(encoded, facts, f"its header says shape {stored_shape}, its data have {pixels.shape}")
    pixels = in_range_of(pixels, result, to_ycbcr=output_type == YCbCr)
    if pixels is into or (out is None and orientation == 1):
        return pixels
    if out is None:
        out = np.empty(shape, result)
    _turn_upright(pixels, orientation, out)
    return out


def may_be_decoded_smaller(encoded: NDArray[np.uint8], factor: int, limit_bytes: int) -> bool:
    """Return whether the limit allows decoding a JPEG at this divisor. Only JPEGs with sequential rows save memory."""
    header = read_header(encoded)
    if header is None or has_more_scans(encoded.data, most_scans(header.height, header.width)):
        return False
    divisor = factor**2 if jpeg_blocks(encoded.data) is not None else 1
    return header.height * header.width * _PIXEL_SAMPLES // divisor <= limit_bytes


def decode_jpeg_smaller(encoded: NDArray[np.uint8], output_type: DALIImageType, factor: int, out: NDArray[np.uint8]) -> bool:
    """Decode a JPEG at half, a quarter or an eighth of its size, which skips most of the decoding arithmetic.

    Args:
        encoded: the bytes of the file, 1-D uint8.
        output_type: RGB, BGR or GRAY.
        factor: 2, 4 or 8.
        out: C-contiguous uint8 array for the image in stored orientation; its extents are those of the image divided by the
            factor, rounded up.

    Returns:
        Whether the file was decoded. If not, only `decode_image` can decode it or raise the reason.
    """
    facts = file_facts(_checked(encoded).data)
    if facts is None or facts.format != "jpeg" or facts.header is None or facts.ink != "none":
        return False
    colorspace = {RGB: "RGB", BGR: "BGR", GRAY: "GRAY"}.get(output_type)
    height, width, channels = _shape(facts.header, output_type, False)
    smaller = -(-height // factor), -(-width // factor)
    if colorspace is None or out.shape != (*smaller, channels):
        return False
    simplejpeg = _extra("simplejpeg")
    least = {"min_height": smaller[0], "min_width": smaller[1]}

    def decode(file: NDArray[np.uint8]) -> NDArray[np.uint8]:
        if simplejpeg.decode_jpeg_header(file, **least)[:2] != smaller:
            raise ValueError("the decoder has no such factor")
        return _simplejpeg_pixels(file, colorspace, out, **least)

    try:
        _decode_regular_jpeg(encoded, decode)
    except ValueError:
        return False
    return True


def _decode_jpeg(
    encoded: NDArray[np.uint8],
    facts: FileFacts,
    header: ImageHeader,
    output_type: DALIImageType,
    into: NDArray[np.uint8] | None,
    fast_idct: bool,
) -> NDArray[np.uint8]:
    """Decode a JPEG in stored orientation; return `into` if the pixels were written there."""
    gray = output_type == GRAY or (output_type == ANY_DATA and header.channels == 1)
    colorspace = "GRAY" if gray else "BGR" if output_type == BGR else "RGB"
    if facts.ink != "none":
        colorspace, into = "CMYK", None
    else:
        whole = JpegWindow(0, 0, header.height, header.width)
        wanted = DALIImageType[colorspace]
        decoded = decode_jpeg_by_kernel(
            encoded,
            wanted,
            whole,
            lambda shape: np.empty(shape, np.uint8) if into is None else into,
            _NO_LIMIT,  # it has been checked
            fast_idct,
        )
        if decoded is not None:
            return decoded
    try:
        pixels = _decode_regular_jpeg(encoded, lambda file: _simplejpeg_pixels(file, colorspace, into, fastdct=fast_idct))
    except ValueError as error:
        # OpenCV may silently fill up a truncated JPEG, so check for its end marker.
        if _UNNAMED_SAMPLING in str(error) and jpeg_is_complete(encoded.data):
            return _decode_with_opencv(encoded, facts, header, output_type, into)
        raise _error(encoded, facts, str(error)) from None
    if facts.ink != "none":
        return _cmyk_to(output_type, pixels, inverted=facts.ink == "inverted")
    return pixels if into is None else into


def _simplejpeg_pixels(
    encoded: NDArray[np.uint8], colorspace: str, into: NDArray[np.uint8] | None, **options: Any
) -> NDArray[np.uint8]:
    """Decode a JPEG, into `into` if it is given.

    Raises:
        ValueError: the first irregularity, but bytes after the image.
    """
    simplejpeg = _extra("simplejpeg")
    try:
        pixels: NDArray[np.uint8] = simplejpeg.decode_jpeg(encoded, colorspace, buffer=into, **options)
    except ValueError as error:
        if _BYTES_LEFT_OVER not in str(error):
            raise
        if into is not None:
            return into  # reported after all pixels are decoded
        pixels = simplejpeg.decode_jpeg(encoded, colorspace, strict=False, **options)
    return pixels


def _decode_regular_jpeg(
    encoded: NDArray[np.uint8], decode: Callable[[NDArray[np.uint8]], NDArray[np.uint8]]
) -> NDArray[np.uint8]:
    """Return the result of a decoder that raises after any irregularity. Harmless ones are removed before.

    Raises:
        ValueError: the first irregularity, if one of them is serious.
    """
    first: ValueError | None = None
    files: Iterator[NDArray[np.uint8]] = iter([encoded])
    for _ in range(_MOST_DECODINGS):
        file = next(files, None)
        if file is None:
            break
        try:
            return decode(file)
        except ValueError as error:
            first = first or error
            files = itertools.chain(without_irregularity(file, str(error)), files)
    assert first is not None
    raise first


def _decode_with_opencv(
    encoded: NDArray[np.uint8],
    facts: FileFacts,
    header: ImageHeader,
    output_type: DALIImageType,
    into: NDArray[np.uint8] | None,
) -> NDArray[np.uint8]:
    """Decode any format to eight bits in stored orientation; return `into` if the pixels were written there."""
    pixels = _opencv_pixels(encoded, facts, header, output_type, into)
    if pixels is None:
        if facts.plain_tiff is not None and facts.plain_tiff.compression not in _OPENCV_COMPRESSIONS:
            return _decode_any_depth(encoded, facts, header, output_type)
        raise _error(encoded, facts, "damaged, or of a variant that OpenCV does not support")
    if pixels.dtype == np.uint16:
        pixels = (pixels >> 8).astype(np.uint8)
    elif pixels.dtype != np.uint8:
        raise _error(encoded, facts, f"samples of type {pixels.dtype}; only uint8 and uint16 are supported")
    return pixels


def _decode_any_depth(
    encoded: NDArray[np.uint8], facts: FileFacts, header: ImageHeader, output_type: DALIImageType
) -> NDArray[Any]:
    """Decode any format but JPEG in stored orientation, with samples of the type in the file."""
    plain = facts.plain_tiff
    # OpenCV refuses to make gray of floating-point samples, and mixes up planes of more than eight bits.
    to_gray = facts.format == "tiff" and output_type == GRAY and header.channels >= 3
    decoded_type = RGB if to_gray else output_type
    by_opencv = plain is None or not (plain.has_bands or (plain.is_planar and facts.bits > 8))
    pixels = _opencv_pixels(encoded, facts, header, decoded_type, any_depth=True) if by_opencv else None
    if pixels is None and plain is not None:
        pixels = _decode_plain_tiff(encoded, facts, plain, header, decoded_type)
    if pixels is None:
        raise _error(encoded, facts, "damaged, or of a variant that OpenCV does not support")
    if pixels.dtype not in _DEPTHS:
        raise _error(
            encoded, facts, f"samples of type {pixels.dtype}; supported are uint8, uint16 and floating-point numbers"
        )
    return gray_of(pixels) if to_gray else pixels


def _opencv_pixels(
    encoded: NDArray[np.uint8],
    facts: FileFacts,
    header: ImageHeader,
    output_type: DALIImageType,
    into: NDArray[np.uint8] | None = None,
    *,
    any_depth: bool = False,
) -> NDArray[Any] | None:
    """Return pixels, `into` if they were written there; None if OpenCV cannot decode the file."""
    cv2 = _extra("cv2")
    in_order = False
    if output_type == GRAY or (output_type == ANY_DATA and header.channels == 1):
        flags = cv2.IMREAD_GRAYSCALE | cv2.IMREAD_IGNORE_ORIENTATION
    elif output_type == ANY_DATA and header.channels == 4:
        flags = cv2.IMREAD_UNCHANGED
    else:
        # OpenCV 5 mixes up the channels of some TIFFs then. Before 4.11, it lacked the flag.
        in_order = output_type != BGR and facts.format == "png" and hasattr(cv2, "IMREAD_COLOR_RGB")
        flags = (cv2.IMREAD_COLOR_RGB if in_order else cv2.IMREAD_COLOR) | cv2.IMREAD_IGNORE_ORIENTATION
    if any_depth and flags != cv2.IMREAD_UNCHANGED:
        flags |= cv2.IMREAD_ANYDEPTH
    if facts.patches:
        encoded = encoded.copy()
        for position, replacement in facts.patches:
            encoded[position : position + len(replacement)] = np.frombuffer(replacement, np.uint8)
    try:
        pixels: NDArray[Any] | None = cv2.imdecode(encoded, flags)
    except cv2.error as error:
        raise _error(encoded, facts, f"OpenCV says: {error}") from None
    return pixels if pixels is None or in_order else _in_order(pixels, output_type, into)


def _in_order(pixels: NDArray[Any], output_type: DALIImageType, into: NDArray[Any] | None) -> NDArray[Any]:
    """Return OpenCV's pixels in the order of channels of `output_type`."""
    if pixels.ndim == 2:
        return pixels[:, :, np.newaxis]
    if output_type == BGR or pixels.shape[2] < 3:
        return pixels
    # cv2.cvtColor would start OpenCV's threads in each worker process.
    fits = into is not None and (into.shape, into.dtype) == (pixels.shape, pixels.dtype)
    rgb = into if into is not None and fits else np.empty_like(pixels)
    for channel, source in enumerate((2, 1, 0, 3)[: pixels.shape[2]]):
        rgb[:, :, channel] = pixels[:, :, source]
    return rgb


def _decode_plain_tiff(
    encoded: NDArray[np.uint8], facts: FileFacts, plain: PlainTiff, header: ImageHeader, output_type: DALIImageType
) -> NDArray[Any]:
    """Decode a TIFF that OpenCV does not support: with bands, another compression, or planes of more than 8 bits."""
    kind = f"{header.channels} channels" if plain.has_bands else f"compression {plain.compression}"
    imagecodecs = optional("imagecodecs", f"decoding a TIFF with {kind}", "formats")
    try:
        pixels: NDArray[Any] = imagecodecs.tiff_decode(encoded)
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise _error(encoded, facts, f"libtiff says: {error}") from None
    if plain.is_planar:
        pixels = np.moveaxis(pixels, 0, -1)
    pixels = pixels if pixels.ndim == 3 else pixels[:, :, np.newaxis]
    if output_type == ANY_DATA:
        return np.ascontiguousarray(pixels[:, :, : header.channels])
    if header.channels <= 2:
        return np.ascontiguousarray(np.repeat(pixels[:, :, :1], 1 if output_type == GRAY else 3, axis=2))
    return np.ascontiguousarray(pixels[:, :, 2::-1] if output_type == BGR else pixels[:, :, :3])


def _cmyk_to(output_type: DALIImageType, cmyk: NDArray[np.uint8], *, inverted: bool) -> NDArray[np.uint8]:
    """Convert CMYK as DALI does: multiply ink and black transmission, rounded down."""
    converted = np.empty((*cmyk.shape[:2], 1 if output_type == GRAY else 3), np.uint8)
    for band in bands(cmyk):
        passed = (cmyk[band] if inverted else 255 - cmyk[band]).astype(np.uint16)
        rgb = (passed[:, :, :3] * passed[:, :, 3:] // 255).astype(np.uint8)
        if output_type == GRAY:
            light = rgb * np.array([0.299, 0.587, 0.114], dtype=np.float32)
            converted[band] = light.sum(axis=2, keepdims=True, dtype=np.float32)
        else:
            converted[band] = rgb[:, :, ::-1] if output_type == BGR else rgb
    return converted


def _turn_upright(pixels: NDArray[Any], orientation: int, out: NDArray[Any]) -> None:
    """Write pixels of EXIF orientation 1 to 8 to `out`, upright."""
    if orientation == 1:
        np.copyto(out, pixels)
        return
    if pixels.dtype == np.uint32:  # OpenCV 4 lacks it
        pixels, out = pixels.view(np.int32), out.view(np.int32)
    cv2 = _extra("cv2")
    match orientation:
        case 2:
            cv2.flip(pixels, 1, dst=out)
        case 3:
            cv2.rotate(pixels, cv2.ROTATE_180, dst=out)
        case 4:
            cv2.flip(pixels, 0, dst=out)
        case 5:
            cv2.transpose(pixels, dst=out)
        case 6:
            cv2.rotate(pixels, cv2.ROTATE_90_CLOCKWISE, dst=out)
        case 7:
            cv2.flip(cv2.transpose(pixels), -1, dst=out)
        case 8:
            cv2.rotate(pixels, cv2.ROTATE_90_COUNTERCLOCKWISE, dst=out)


def _shape(header: ImageHeader, output_type: DALIImageType, adjust_orientation: bool) -> tuple[int, int, int]:
    channels = header.channels if output_type == ANY_DATA else 1 if output_type == GRAY else 3
    if adjust_orientation and header.orientation >= 5:
        return header.width, header.height, channels
    return header.height, header.width, channels


def _check_size(encoded: NDArray[np.uint8], facts: FileFacts, header: ImageHeader, limit_bytes: int, itemsize: int) -> None:
    """Check the declared size before allocating memory, because a small file can declare any size."""
    nbytes = header.height * header.width * max(_PIXEL_SAMPLES, header.channels) * itemsize
    limit = DecodingLimit.of_pipeline(limit_bytes)
    if nbytes > limit_bytes:
        raise _error(
            encoded,
            facts,
            f"its header declares {header.height}x{header.width} pixels, which take {nbytes >> 20} MiB; the limit for an "
            f"image is {limit_bytes >> 20} MiB. {limit.remedy}",
        )
    if facts.format == "jpeg" and has_more_scans(encoded.data, scans := most_scans(header.height, header.width)):
        raise _error(
            encoded,
            facts,
            f"it has more than {scans} scans of {header.height}x{header.width} pixels, which would take very long. If it is "
            "no attack, write it with fewer scans: jpegtran -copy all -progressive old.jpg > new.jpg.",
        )
    if nbytes > _MUCH_BYTES and nbytes > (available := available_bytes()):
        raise OutOfMemoryError(
            f"an image of {header.height}x{header.width} pixels needs {nbytes >> 20} MiB to be decoded, "
            f"but only {available >> 20} MiB are available"
        )


def _checked(encoded: NDArray[np.uint8]) -> NDArray[np.uint8]:
    if not isinstance(encoded, np.ndarray):
        raise SampleTypeError(f"encoded images must be 1-D uint8 arrays, not {type(encoded).__name__}")
    if encoded.dtype != np.uint8 or encoded.ndim != 1:
        raise SampleTypeError(f"encoded images must be 1-D uint8 arrays, not {encoded.ndim}-D {encoded.dtype}")
    return np.ascontiguousarray(encoded)


def _check_out(out: NDArray[Any], shape: tuple[int, int, int], dtype: np.dtype[Any]) -> None:
    if out.shape != shape or out.dtype != dtype:
        raise ArgumentError(f"out has shape {out.shape} and dtype {out.dtype}, but the image decodes to {shape} and {dtype}")
    if not (out.flags.c_contiguous and out.flags.writeable):
        raise ArgumentError("out is read-only" if out.flags.c_contiguous else "out is not C-contiguous")


def _error(encoded: NDArray[np.uint8], facts: FileFacts, what: str) -> DecodeError:
    return DecodeError(f"cannot decode {facts.format} data: {what} ({_described(encoded)})")


def _described(encoded: NDArray[np.uint8]) -> str:
    if encoded.size == 0:
        return "no bytes at all"
    return f"{encoded.size} bytes, which start with {encoded[:8].tobytes().hex(' ')}"


def _extra(module: str) -> Any:
    return optional(module, "decoding images", "images")
