"""Pixels as operators compute with them: planes of single precision, and from there to the dtype of the result.

Results are rounded to the nearest, halves away from zero, and integers are limited to what their type holds, as in DALI.
OpenCV takes images apart and puts them together; NumPy computes several times faster with planes than with channels that
lie side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dali_like.common.extras import optional
from dali_like.errors import ArgumentError
from dali_like.graph.operator_interface import Array

#: What OpenCV takes apart and turns around.
_OPENCV_DTYPES = frozenset(map(np.dtype, ("uint8", "int8", "uint16", "int16", "int32", "float32", "float64")))

#: The dtypes of results that DALI's operators on colors have, and some more.
_RESULTS = frozenset(map(np.dtype, ("uint8", "int8", "uint16", "int16", "uint32", "int32", "float16", "float32", "float64")))


def opencv() -> Any:
    """The module ``cv2``."""
    return optional("cv2", "computing with images", "images")


def check_result(dtype: np.dtype[Any]) -> None:
    """Whether operators on pixels can make a result of this dtype.

    Raises:
        ArgumentError: they cannot.
    """
    if dtype not in _RESULTS:
        names = ", ".join(sorted(str(allowed) for allowed in _RESULTS))
        raise ArgumentError(f"pixels of dtype {dtype} are not made by this operator; give it a dtype of {names}")


def planes(image: Array) -> list[Array]:
    """The channels of an image of shape (..., width, channels), as arrays of two dimensions without gaps."""
    width, channels = image.shape[-2:]
    if not image.size:
        return [np.empty((0, width), image.dtype)] * channels
    if image.dtype not in _OPENCV_DTYPES:
        image = image.astype(np.float32)
    image = image.reshape(-1, width, channels)
    return [image[..., 0]] if channels == 1 else list(opencv().split(image))


def merge(channels: list[Array], out: Array) -> None:
    """The reverse of `planes`: put channels together in an array of shape (..., width, channels), with any strides."""
    if not out.size:
        return
    if out.dtype == np.float16:
        channels, out = [plane.view(np.int16) for plane in channels], out.view(np.int16)
    if out.flags.c_contiguous:  # also says so of axes of one element with any stride, which OpenCV does not take
        out = out.reshape(-1).reshape(-1, *out.shape[-2:])
    if (
        out.dtype in _OPENCV_DTYPES
        and len(channels) > 1
        and out.strides[-2:] == (out.shape[-1] * out.itemsize, out.itemsize)
    ):
        opencv().merge(channels, out)
        return
    for channel, plane in enumerate(channels):
        out[..., channel] = plane.reshape(out.shape[:-1])


def mirrored(plane: Array) -> Array:
    """A plane with left and right exchanged."""
    return opencv().flip(plane, 1) if plane.dtype in _OPENCV_DTYPES and plane.size else plane[:, ::-1]


def look_up(plane: Array, table: Array, out: Array) -> None:
    """For each byte of a plane, what a table of 256 elements says."""
    if table.dtype not in _OPENCV_DTYPES:  # OpenCV only moves bits
        carrier = np.dtype(f"i{table.itemsize}")
        table, out = table.view(carrier), out.view(carrier)
    if out.strides[-1] == out.itemsize:
        opencv().LUT(plane, table, out)
    else:
        out[...] = table[plane]


def fill_numbers(values: Sequence[float], dtype: np.dtype[Any]) -> Array:
    """What DALI fills with for these numbers: as a conversion in C does it, cut off, and begun anew if too large."""
    numbers = np.array(values, np.float32)
    with np.errstate(over="ignore"):
        return (numbers if dtype.kind == "f" else numbers.astype(np.int64)).astype(dtype)
