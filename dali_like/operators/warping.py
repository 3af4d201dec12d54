"""Operators that turn and distort images, as in ``nvidia.dali.fn``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dali_like.errors import ArgumentClashError, ArgumentError, SampleError
from dali_like.extras import optional
from dali_like.graph.operators import Array, Call
from dali_like.operators._windows import round_half_up, store
from dali_like.operators.description import operator
from dali_like.operators.parameters import Floats, PerSample
from dali_like.types import INTERP_LINEAR, INTERP_NN, DALIInterpType

_LAYOUTS = "HWC FHWC"
#: OpenCV's functions take so many channels at once.
_MOST_CHANNELS = 4


def _check_warp(given: Mapping[str, Any]) -> None:
    if given.get("interp_type", INTERP_LINEAR) not in (INTERP_NN, INTERP_LINEAR):
        raise ArgumentError("interp_type must be INTERP_NN or INTERP_LINEAR")
    size, matrix = given.get("size"), given.get("matrix")
    if isinstance(size, Sequence) and len(size) != 2:
        raise ArgumentError(f"size must be a height and a width, not {size!r}")
    if isinstance(matrix, Sequence) and np.size(matrix) != 6:
        raise ArgumentError(f"matrix must have 6 elements, the rows of a 2x3 matrix, not {np.size(matrix)}")


@operator(layouts=_LAYOUTS, check=_check_warp)
def warp_affine(
    call: Call,
    image: Array,
    matrix_input: Array | None = None,
    /,
    *,
    matrix: PerSample[Floats] | None = None,
    inverse_map: bool = True,
    size: PerSample[Floats] | None = None,
    fill_value: float | None = None,
    interp_type: DALIInterpType = INTERP_LINEAR,
    dtype: np.dtype[Any] | None = None,
) -> Array:
    """Map images by affine transforms.

    Args:
        image: any dtype.
        matrix_input: the transform, as a 2x3 matrix of floats, instead of `matrix`.
        matrix: the rows of the transform of (x, y) in pixels; the middle of the first pixel is (0.5, 0.5).
        inverse_map: whether the transform is from the result to the image; otherwise it is inverted.
        size: of the result, as (height, width). Default: that of the image.
        fill_value: what is outside of the image. Default: its edge goes on.
        interp_type: INTERP_NN or INTERP_LINEAR.
        dtype: FLOAT, or that of the input, which is the default.
    """
    if (matrix is None) == (matrix_input is None):
        raise ArgumentClashError("fn.warp_affine: the transform must be given by the argument matrix or by the second input")
    rows = np.asarray(matrix if matrix_input is None else matrix_input, np.float64)
    if rows.size != 6:
        raise ArgumentError(f"fn.warp_affine: matrix must have 6 elements, the rows of a 2x3 matrix, not {rows.size}")
    transform = np.vstack([rows.reshape(2, 3), [0, 0, 1]])
    if not inverse_map:
        transform = np.linalg.inv(transform)
    height, width = image.shape[-3:-1] if size is None else _whole("fn.warp_affine", size)
    return _warp(call, image, transform, (height, width), fill_value, interp_type, dtype)


@operator(layouts=_LAYOUTS, check=_check_warp)
def rotate(
    call: Call,
    image: Array,
    *,
    angle: PerSample[float],
    size: PerSample[Floats] | None = None,
    keep_size: bool = False,
    fill_value: float | None = None,
    interp_type: DALIInterpType = INTERP_LINEAR,
    dtype: np.dtype[Any] | None = None,
) -> Array:
    """Turn images about their middle.

    Args:
        image: any dtype.
        angle: in degrees, counter-clockwise.
        size: of the result, as (height, width). Default: such that all of the image is seen.
        keep_size: keep the size of the image instead.
        fill_value: what is outside of the image. Default: its edge goes on.
        interp_type: INTERP_NN or INTERP_LINEAR.
        dtype: FLOAT, or that of the input, which is the default.
    """
    height, width = image.shape[-3:-1]
    radians = float(np.float32(math.radians(angle)))
    cosine, sine = math.cos(radians), math.sin(radians)
    if size is not None:
        down, across = _whole("fn.rotate", size)
    else:
        down, across = (height, width) if keep_size else _canvas(height, width, abs(cosine), abs(sine))
    about_middle = np.array([[1, 0, width / 2], [0, 1, height / 2], [0, 0, 1]])
    turn = np.array([[cosine, -sine, 0], [sine, cosine, 0], [0, 0, 1]])
    to_middle = np.array([[1, 0, -across / 2], [0, 1, -down / 2], [0, 0, 1]])
    return _warp(call, image, about_middle @ turn @ to_middle, (down, across), fill_value, interp_type, dtype)


def _whole(name: str, size: Floats) -> tuple[int, int]:
    if len(size) != 2:
        raise ArgumentError(f"{name}: size must be a height and a width, not {size}")
    return round_half_up(size[0]), round_half_up(size[1])


def _canvas(height: int, width: int, cosine: float, sine: float) -> tuple[int, int]:
    """The size that shows all of a turned image. It is odd or even as the image is, so that the middle stays a pixel."""
    across = math.ceil(cosine * width + sine * height - 0.01)
    down = math.ceil(cosine * height + sine * width - 0.01)
    like = (height, width) if sine <= cosine else (width, height)
    return down + (down - like[0]) % 2, across + (across - like[1]) % 2


def _warp(
    call: Call,
    image: Array,
    transform: NDArray[np.float64],
    size: tuple[int, int],
    fill_value: float | None,
    kind: DALIInterpType,
    dtype: np.dtype[Any] | None,
) -> Array:
    """Map an image, or each of several, by a transform from the result to it."""
    if dtype not in (None, image.dtype, np.float32):
        raise SampleError(f"dtype must be FLOAT or that of the input, {image.dtype}, not {dtype}")
    if not image.size:
        raise SampleError(f"an image of shape {image.shape} cannot be mapped")
    channels = image.shape[-1]
    out = call.empty((*image.shape[:-3], *size, channels), image.dtype if dtype is None else dtype)
    warp = _nearest if kind == INTERP_NN else _linear
    for picture, place in zip(image.reshape(-1, *image.shape[-3:]), out.reshape(-1, *size, channels), strict=True):
        warp(picture, transform, fill_value, place)
    return out


def _nearest(image: Array, transform: NDArray[np.float64], fill_value: float | None, out: Array) -> None:
    height, width = image.shape[:2]
    x, y = np.arange(out.shape[1]) + 0.5, np.arange(out.shape[0])[:, np.newaxis] + 0.5
    column, row = (np.floor(a * x + (b * y + c)).astype(np.int64) for a, b, c in transform[:2])
    pixels = image[row.clip(0, height - 1), column.clip(0, width - 1)]
    if fill_value is not None:
        outside = (row < 0) | (row >= height) | (column < 0) | (column >= width)
        filling = np.empty((), image.dtype)
        store(np.asarray(fill_value), filling, truncate=True)
        pixels[outside] = filling
    store(pixels, out)


def _linear(image: Array, transform: NDArray[np.float64], fill_value: float | None, out: Array) -> None:
    cv2: Any = optional("cv2", "turning images", "images")
    # OpenCV's first pixel has its middle at (0, 0).
    shifted = transform[:2].copy()
    shifted[:, 2] += transform[:2, :2] @ [0.5, 0.5] - 0.5
    if image.dtype != np.uint8 or out.dtype != np.uint8:  # others of OpenCV's types are interpolated less exactly
        image = image.astype(np.float32)
    mode = cv2.BORDER_REPLICATE if fill_value is None else cv2.BORDER_CONSTANT
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    for first in range(0, image.shape[2], _MOST_CHANNELS):
        some = np.ascontiguousarray(image[:, :, first : first + _MOST_CHANNELS])
        border = (0.0 if fill_value is None else fill_value,) * 4
        mapped = cv2.warpAffine(some, shifted, out.shape[1::-1], flags=flags, borderMode=mode, borderValue=border)
        store(mapped.reshape(*out.shape[:2], -1), out[:, :, first : first + _MOST_CHANNELS])
