"""Decode windows of JPEG files: by dali-like-kernels if it is installed, else by TurboJPEG 3 where the system has it.

simplejpeg decodes all columns of an image, and all rows above a window. These decode the bits of the rows but not their
pixels, and leave out the columns beside the window, at full size and at a half, a quarter or an eighth of it. The pixels are
the same. dali-like-kernels stops at the end of the window, and TurboJPEG reads the file to its end.

TurboJPEG 3 is libturbojpeg of libjpeg-turbo 3.0 or later; see https://libjpeg-turbo.org/Documentation.
"""

from __future__ import annotations

import ctypes
import functools
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dali_like.common.kernel_library import address_of, kernels
from dali_like.images.header import SAMPLES_OF_SCANS, SCANS, file_facts, has_more_scans, most_scans
from dali_like.types import ANY_DATA, BGR, GRAY, RGB

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dali_like.types import DALIImageType

__all__ = [
    "COLOR_FORMATS",
    "LIBRARY_VARIABLE",
    "JpegWindow",
    "decode_jpeg_by_kernel",
    "decode_jpeg_window",
    "find_turbojpeg",
]

#: Environment variable with the path of the library, for one that the system's linker does not find.
LIBRARY_VARIABLE = "DALI_LIKE_TURBOJPEG"
_LIBRARY = "libturbojpeg.so.0"

# From turbojpeg.h
_INIT_DECOMPRESS = 1
_SUBSAMPLING, _WIDTH, _HEIGHT, _COLORS, _FAST_DCT = 4, 5, 6, 8, 10
_COLORS_GRAY, _COLORS_CMYK = 2, (3, 4)
_PIXEL_FORMATS = {RGB: 0, BGR: 1, GRAY: 6}
#: In kernels/src/jpeg.c.
COLOR_FORMATS = {RGB: 0, BGR: 1, GRAY: 2}
#: Width of the blocks that are stored together, for 4:4:4, 4:2:2, 4:2:0, gray, 4:4:0, 4:1:1 and 4:4:1.
_BLOCK_WIDTHS = (8, 16, 16, 8, 8, 32, 8)
#: Pixels beside a window that its pixels depend on: subsampled colors are interpolated between columns.
_CONTEXT_COLUMNS = 2


_JPEG_START = b"\xff\xd8\xff"


class JpegWindow(NamedTuple):
    """A part of an image that is scaled down by a factor, in pixels of the scaled image; factor: 1, 2, 4 or 8."""

    top: int
    left: int
    height: int
    width: int
    factor: int = 1


class _BlockRegion(ctypes.Structure):
    _fields_ = (("x", ctypes.c_int), ("y", ctypes.c_int), ("w", ctypes.c_int), ("h", ctypes.c_int))


class _ScaleFactor(ctypes.Structure):
    _fields_ = (("numerator", ctypes.c_int), ("denominator", ctypes.c_int))


@functools.cache
def find_turbojpeg() -> ctypes.CDLL | None:
    """Load TurboJPEG 3; None if the system has none, or an older one.

    Raises:
        OSError: the path in ``DALI_LIKE_TURBOJPEG`` cannot be loaded.
    """
    path = os.environ.get(LIBRARY_VARIABLE)
    try:
        library = ctypes.CDLL(path or _LIBRARY)
    except OSError:
        if path:
            raise
        return None
    if not hasattr(library, "tj3SetCroppingRegion"):
        return None
    handle, data = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_size_t)
    for name, result, arguments in (
        ("tj3Init", handle, (ctypes.c_int,)),
        ("tj3Destroy", None, (handle,)),
        ("tj3DecompressHeader", ctypes.c_int, (handle, *data)),
        ("tj3Get", ctypes.c_int, (handle, ctypes.c_int)),
        ("tj3Set", ctypes.c_int, (handle, ctypes.c_int, ctypes.c_int)),
        ("tj3SetScalingFactor", ctypes.c_int, (handle, _ScaleFactor)),
        ("tj3SetCroppingRegion", ctypes.c_int, (handle, _BlockRegion)),
        ("tj3Decompress8", ctypes.c_int, (handle, *data, ctypes.c_void_p, ctypes.c_int, ctypes.c_int)),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


class _Decompressor:
    """A decompressor of TurboJPEG, for one thread."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._handle = library.tj3Init(_INIT_DECOMPRESS)
        if not self._handle:
            raise MemoryError("TurboJPEG cannot make a decompressor")

    def __del__(self) -> None:
        if handle := getattr(self, "_handle", None):
            self._library.tj3Destroy(handle)

    def decode(
        self,
        encoded: NDArray[np.uint8],
        output_type: DALIImageType,
        window: JpegWindow,
        memory: Callable[[tuple[int, int, int]], NDArray[np.uint8]],
        limit_bytes: int,
        fast_idct: bool,
    ) -> NDArray[np.uint8] | None:
        """Decode a window; None if the file needs another decoder, or is damaged."""
        library, handle, data, size = self._library, self._handle, address_of(encoded), encoded.size
        if library.tj3DecompressHeader(handle, data, size):
            return None
        get = library.tj3Get
        subsampling, colors = get(handle, _SUBSAMPLING), get(handle, _COLORS)
        image_width, image_height = get(handle, _WIDTH), get(handle, _HEIGHT)
        if output_type == ANY_DATA:
            output_type = GRAY if colors == _COLORS_GRAY else RGB
        pixel_format = _PIXEL_FORMATS.get(output_type)
        if (
            not 0 <= subsampling < len(_BLOCK_WIDTHS)
            or colors in _COLORS_CMYK
            or pixel_format is None
            or image_height * image_width * 3 > limit_bytes
            or has_more_scans(encoded.data, most_scans(image_height, image_width))
        ):
            return None
        if window.factor > 1:
            image_width, image_height = -(-image_width // window.factor), -(-image_height // window.factor)
        block = max(1, _BLOCK_WIDTHS[subsampling] // window.factor)
        left = max(0, window.left - _CONTEXT_COLUMNS) // block * block
        right = min(image_width, window.left + window.width + _CONTEXT_COLUMNS)
        bottom = min(image_height, window.top + window.height)
        region = _BlockRegion(left, window.top, right - left, bottom - window.top)
        if region.w < 1 or region.h < 1:  # TurboJPEG would decode the rest of the image
            return None
        channels = 1 if output_type == GRAY else 3
        failed = (
            library.tj3Set(handle, _FAST_DCT, fast_idct)
            or library.tj3SetScalingFactor(handle, _ScaleFactor(1, window.factor))
            or library.tj3SetCroppingRegion(handle, region)
        )
        if failed:
            return None
        image = memory((region.h, region.w, channels))
        if library.tj3Decompress8(handle, data, size, address_of(image), 0, pixel_format):
            return None  # also after a warning, such as the one about missing data
        return image[:, window.left - left : window.left - left + window.width]


_of_thread = threading.local()


#: The struct Window of kernels/src/jpeg.c.
_WindowNumbers: Any = ctypes.c_int64 * 10


def decode_jpeg_by_kernel(
    encoded: NDArray[np.uint8],
    output_type: DALIImageType,
    window: JpegWindow,
    memory: Callable[[tuple[int, int, int]], NDArray[np.uint8]],
    limit_bytes: int,
    fast_idct: bool = False,
) -> NDArray[np.uint8] | None:
    """Decode a window by dali-like-kernels; see `decode_jpeg_window`. Also None if the package is not installed."""
    compiled = kernels()
    if compiled is None or compiled.decode_window is None or encoded[:3].tobytes() != _JPEG_START:
        return None
    top, left, height, width, factor = window
    if output_type == ANY_DATA or factor > 1:
        facts = file_facts(encoded.data)
        if facts is None or facts.header is None:
            return None
        if output_type == ANY_DATA:
            output_type = GRAY if facts.header.channels == 1 else RGB
        height = min(height, -(-facts.header.height // factor) - top)
        width = min(width, -(-facts.header.width // factor) - left)
    color_format = COLOR_FORMATS.get(output_type)
    if color_format is None or height < 1 or width < 1:
        return None
    most_pixels, scanned = limit_bytes // 3, SAMPLES_OF_SCANS // 3
    numbers = _WindowNumbers(top, left, height, width, factor, color_format, fast_idct, most_pixels, SCANS, scanned)
    image = memory((height, width, 1 if output_type == GRAY else 3))
    failed = compiled.decode_window(address_of(encoded), encoded.size, ctypes.addressof(numbers), address_of(image))
    return None if failed else image


def decode_jpeg_window(
    encoded: NDArray[np.uint8],
    output_type: DALIImageType,
    window: JpegWindow,
    memory: Callable[[tuple[int, int, int]], NDArray[np.uint8]],
    limit_bytes: int,
    fast_idct: bool = False,
) -> NDArray[np.uint8] | None:
    """Decode a window of a JPEG in stored orientation.

    Args:
        encoded: the bytes of the file, 1-D uint8.
        output_type: RGB, BGR, GRAY or ANY_DATA.
        window: inside the image. The last row and column may be outside, because scaled extents are rounded.
        memory: returns a C-contiguous uint8 array of a shape, in which the window and columns beside it are decoded.
        limit_bytes: maximum for all pixels of the file, at three samples each.
        fast_idct: whether to decode with a faster and less accurate transform.

    Returns:
        A part of the array; None if only `dali_like.images.decode.decode_image` can decode the file or raise the reason.

    Raises:
        OSError: see `find_turbojpeg`.
    """
    if (pixels := decode_jpeg_by_kernel(encoded, output_type, window, memory, limit_bytes, fast_idct)) is not None:
        return pixels
    library = find_turbojpeg()
    if library is None or encoded[:3].tobytes() != _JPEG_START:
        return None
    decompressor: _Decompressor | None = getattr(_of_thread, "decompressor", None)
    if decompressor is None:
        decompressor = _of_thread.decompressor = _Decompressor(library)
    pixels = decompressor.decode(encoded, output_type, window, memory, limit_bytes, fast_idct)
    if pixels is None:
        del _of_thread.decompressor  # after some errors it cannot decode another file
    return pixels
