"""Images as arguments of transforms: arrays (height, width) or (height, width, channels)."""

from __future__ import annotations

import enum
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dali_like.common.extras import optional
from dali_like.errors import ArgumentError, ArgumentTypeError

__all__ = ["InterpolationMode", "as_image", "as_interpolation", "averaged", "is_array"]

#: What OpenCV averages.
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


def averaged(image: NDArray[Any], height: int, width: int) -> NDArray[Any]:
    """Shrink an image: each pixel of the result is the average of an area.

    Raises:
        ArgumentTypeError: OpenCV does not average images of this dtype or number of channels.
    """
    if image.shape[:2] == (height, width):
        return image
    if image.dtype not in _OPENCV_DTYPES or math.prod(image.shape[2:]) > _OPENCV_CHANNELS:
        names = ", ".join(sorted(map(str, _OPENCV_DTYPES)))
        raise ArgumentTypeError(
            f"OpenCV averages images of the dtypes {names} and up to {_OPENCV_CHANNELS} channels. "
            f"Got {image.dtype} and shape {image.shape}"
        )
    cv2 = optional("cv2", "resizing images", "images")
    pixels: NDArray[Any] = cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA)
    return pixels.reshape(height, width, *image.shape[2:])  # OpenCV drops a last dimension of 1
