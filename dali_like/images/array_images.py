"""Image arithmetic for transforms. Images are arrays (height, width) or (height, width, channels); OpenCV does most of the
work.
"""

from __future__ import annotations

import enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dali_like.common.extras import optional
from dali_like.errors import ArgumentError, ArgumentTypeError

__all__ = ["InterpolationMode", "as_image", "as_interpolation", "is_array", "mirrored", "padded", "resized"]

#: dtypes that OpenCV supports. It also flips others, but converts int64 to int32.
_OPENCV_DTYPES = frozenset(map(np.dtype, ("uint8", "uint16", "int16", "float32", "float64")))
_OPENCV_CHANNELS = 4


class InterpolationMode(enum.Enum):
    """Interpolation of `Resize` and `RandomResizedCrop`, which also accept the names."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    LANCZOS = "lanczos"


_OPENCV_NAMES = {
    InterpolationMode.NEAREST: "INTER_NEAREST",
    InterpolationMode.NEAREST_EXACT: "INTER_NEAREST_EXACT",
    InterpolationMode.BILINEAR: "INTER_LINEAR",
    InterpolationMode.BICUBIC: "INTER_CUBIC",
    InterpolationMode.BOX: "INTER_AREA",
    InterpolationMode.LANCZOS: "INTER_LANCZOS4",
}
_SMOOTH = (InterpolationMode.BILINEAR, InterpolationMode.BICUBIC, InterpolationMode.LANCZOS)


def is_array(value: Any) -> bool:
    """Return whether a value is an array or has the array interface."""
    return isinstance(value, np.ndarray) or (hasattr(value, "__array_interface__") and not isinstance(value, type))


def as_image(img: Any) -> NDArray[Any]:
    """Return an argument of a transform as an array.

    Raises:
        ArgumentTypeError: it is not an array.
        ArgumentError: it has neither two nor three dimensions.
    """
    if not is_array(img):
        raise ArgumentTypeError(f"img should be PIL Image or ndarray. Got {type(img)}")
    image = np.asarray(img)
    if image.ndim not in (2, 3):
        raise ArgumentError(f"img should be (height, width) or (height, width, channels). Got shape {image.shape}")
    return image


def as_interpolation(value: Any) -> InterpolationMode:
    """Return the interpolation mode, given as a mode or by its name.

    Raises:
        ArgumentTypeError: there is no such mode.
    """
    try:
        return InterpolationMode(value)
    except ValueError:
        names = ", ".join(mode.value for mode in InterpolationMode)
        raise ArgumentTypeError(f"Interpolation should be a InterpolationMode or one of {names}. Got {value!r}") from None


def padded(image: NDArray[Any], height: int, width: int) -> NDArray[Any]:
    """Pad an image with zeros on all sides up to a minimum size."""
    missing = [max(0, height - image.shape[0]), max(0, width - image.shape[1])]
    if not any(missing):
        return image
    return np.pad(image, [*((count // 2, (count + 1) // 2) for count in missing), *[(0, 0)] * (image.ndim - 2)])


def mirrored(image: NDArray[Any]) -> NDArray[Any]:
    """Return the image with left and right exchanged."""
    if not _opencv_takes(image):
        return np.ascontiguousarray(image[:, ::-1])
    cv2 = optional("cv2", "flipping images", "images")
    return _with_channels(cv2.flip(image, 1), image)


def resized(image: NDArray[Any], height: int, width: int, interpolation: InterpolationMode, antialias: bool) -> NDArray[Any]:
    """Resize an image. With `antialias`, sides that shrink are filtered first.

    Raises:
        ArgumentError: there are no pixels before or after.
        ArgumentTypeError: OpenCV does not resize images of this dtype or number of channels.
    """
    if image.shape[:2] == (height, width):
        return image
    if 0 in image.shape or min(height, width) < 1:
        raise ArgumentError(f"an image of shape {image.shape} cannot be resized to height {height} and width {width}")
    if not _opencv_takes(image):
        names = ", ".join(sorted(map(str, _OPENCV_DTYPES)))
        raise ArgumentTypeError(
            f"OpenCV resizes images of the dtypes {names} and up to {_OPENCV_CHANNELS} channels. "
            f"Got {image.dtype} and shape {image.shape}"
        )
    cv2 = optional("cv2", "resizing images", "images")
    pixels = image
    if antialias and interpolation in _SMOOTH:
        shrunk = min(height, image.shape[0]), min(width, image.shape[1])
        if shrunk != image.shape[:2]:
            pixels = cv2.resize(pixels, shrunk[::-1], interpolation=cv2.INTER_AREA)
    if pixels.shape[:2] != (height, width):
        pixels = cv2.resize(pixels, (width, height), interpolation=getattr(cv2, _OPENCV_NAMES[interpolation]))
    return _with_channels(pixels, image)


def _opencv_takes(image: NDArray[Any]) -> bool:
    channels = image.shape[2] if image.ndim == 3 else 1
    return image.dtype in _OPENCV_DTYPES and channels <= _OPENCV_CHANNELS and image.size > 0


def _with_channels(pixels: NDArray[Any], like: NDArray[Any]) -> NDArray[Any]:
    """Restore a last dimension of 1, which OpenCV drops."""
    return pixels.reshape(*pixels.shape[:2], *like.shape[2:])
