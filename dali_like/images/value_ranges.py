"""Convert pixels between data types: the full range of one becomes the full range of the other, as DALI's decoders do.

Black is 0, and white is the largest integer of a type, or 1.0. Integers saturate, and are rounded to nearest, halves away
from zero.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

__all__ = ["bands", "gray_of", "in_range_of"]

_BAND_PIXELS = 1 << 16
# ITU-R BT.601, limited range, for RGB of full range; the rows are Y, Cb, Cr.
_YCBCR = np.array(
    [
        [0.25678824, 0.50412941, 0.09790588],
        [-0.14822290, -0.29099279, 0.43921569],
        [0.43921569, -0.36778831, -0.07142737],
    ],
    dtype=np.float32,
)
#: In parts of the range; DALI takes 256 parts of integers and of floating-point numbers alike.
_YCBCR_OFFSET = np.array([16, 128, 128], dtype=np.float32) / 256
_LUMA = (np.float32(0.299), np.float32(0.587), np.float32(0.114))


def in_range_of(pixels: NDArray[Any], dtype: np.dtype[Any], *, to_ycbcr: bool = False) -> NDArray[Any]:
    """Return pixels in the range of another type, in a new array; `pixels` itself if nothing changes.

    Args:
        pixels: shape (height, width, channels), of an unsigned integer or floating-point type.
        dtype: type of the result.
        to_ycbcr: whether to convert RGB to YCbCr, too.
    """
    if pixels.dtype == dtype and not to_ycbcr:
        return pixels
    converted = np.empty(pixels.shape, dtype)
    factor = np.float32(_white(dtype)) / np.float32(_white(pixels.dtype))
    for band in bands(pixels):
        scaled: NDArray[Any] = pixels[band].astype(np.float32)
        scaled *= factor
        if to_ycbcr:
            steps = 1 if dtype.kind == "f" else _white(dtype) + 1
            scaled = scaled @ _YCBCR.T + _YCBCR_OFFSET * np.float32(steps)
        converted[band] = scaled if dtype.kind == "f" else _rounded(scaled, dtype)
    return converted


def gray_of(rgb: NDArray[Any]) -> NDArray[Any]:
    """Return the luma of RGB pixels, of shape (height, width, 1) and the same dtype."""
    gray = np.empty((*rgb.shape[:2], 1), rgb.dtype)
    for band in bands(rgb):
        # Not a product of matrices: some processors round that once, others after each step.
        red, green, blue = (np.multiply(rgb[band][:, :, i], _LUMA[i], dtype=np.float32) for i in range(3))
        luma = red + green + blue
        gray[band] = (luma if rgb.dtype.kind == "f" else _rounded(luma, rgb.dtype))[:, :, np.newaxis]
    return gray


def bands(pixels: NDArray[Any]) -> Iterator[slice]:
    """Return bands of rows to convert one at a time, because conversion needs several times their memory."""
    rows = max(1, _BAND_PIXELS // max(pixels.shape[1], 1))
    return (slice(begin, begin + rows) for begin in range(0, pixels.shape[0], rows))


def _white(dtype: np.dtype[Any]) -> int:
    return 1 if dtype.kind == "f" else int(np.iinfo(dtype).max)


def _rounded(numbers: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[np.float64]:
    limits = np.iinfo(dtype)
    exact = numbers.astype(np.float64)  # the sum with a half has more digits than float32
    rounded: NDArray[np.float64] = np.clip(np.trunc(exact + np.copysign(0.5, exact)), limits.min, limits.max)
    return rounded
