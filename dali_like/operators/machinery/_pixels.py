"""Pixel arithmetic of operators: split images into float32 planes, and convert planes to the result's dtype.

As in DALI, results are rounded to nearest, halves away from zero, and integers saturate. OpenCV splits and merges images,
because NumPy is several times faster on planes than on interleaved channels.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dali_like.common.extras import optional
from dali_like.errors import ArgumentError
from dali_like.graph.language.operator_interface import Array

#: dtypes that OpenCV can split, merge and flip.
_OPENCV_DTYPES = frozenset(map(np.dtype, ("uint8", "int8", "uint16", "int16", "int32", "float32", "float64")))

#: Result dtypes of DALI's color operators, and some more.
_RESULTS = frozenset(map(np.dtype, ("uint8", "int8", "uint16", "int16", "uint32", "int32", "float16", "float32", "float64")))


def opencv() -> Any:
    """Return the module ``cv2``."""
    return optional("cv2", "computing with images", "images")


def check_result(dtype: np.dtype[Any]) -> None:
    """Check that pixel operators support a result of this dtype.

    Raises:
        ArgumentError: they do not.
    """
    if dtype not in _RESULTS:
        names = ", ".join(sorted(str(allowed) for allowed in _RESULTS))
        raise ArgumentError(f"this operator cannot return dtype {dtype}; pass dtype= one of {names}")


def planes(image: Array) -> list[Array]:
    """Split an image of shape (..., width, channels) into contiguous two-dimensional arrays, one per channel."""
    width, channels = image.shape[-2:]
    if not image.size:
        return [np.empty((math.prod(image.shape[:-2]), width), image.dtype)] * channels
    if image.dtype not in _OPENCV_DTYPES:
        image = image.astype(np.float32)
    image = image.reshape(-1, width, channels)
    return [image[..., 0]] if channels == 1 else list(opencv().split(image))


def merge(channels: list[Array], out: Array) -> None:
    """Merge channels into an array of shape (..., width, channels) with any strides; the reverse of `planes`."""
    if not out.size:
        return
    if out.dtype == np.float16:
        channels, out = [plane.view(np.int16) for plane in channels], out.view(np.int16)
    if out.flags.c_contiguous:  # ignores the strides of axes of length one, which OpenCV rejects
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
    """Return a plane with left and right exchanged."""
    return opencv().flip(plane, 1) if plane.dtype in _OPENCV_DTYPES and plane.size else plane[:, ::-1]


def look_up(plane: Array, table: Array, out: Array) -> None:
    """Replace each byte of a plane by the table's entry, with a table of 256 entries."""
    if table.dtype not in _OPENCV_DTYPES:  # cv2.LUT only copies elements, so any dtype of the same size works
        carrier = np.dtype(f"i{table.itemsize}")
        table, out = table.view(carrier), out.view(carrier)
    if out.strides[-1] == out.itemsize:
        opencv().LUT(plane, table, out)
    else:
        out[...] = table[plane]


def fill_numbers(values: Sequence[float], dtype: np.dtype[Any]) -> Array:
    """Convert fill values as DALI does: like a C cast, which truncates fractions and wraps on overflow. Read-only."""
    return _fill_numbers(tuple(values), tuple(map(repr, values)), dtype)


@functools.lru_cache(256)
def _fill_numbers(values: tuple[float, ...], texts: tuple[str, ...], dtype: np.dtype[Any]) -> Array:
    """Return fill values as elements of an array. Equal numbers, such as 0.0 and -0.0, differ in their texts."""
    numbers = np.array(values, np.float32)
    with np.errstate(over="ignore"):
        converted: Array = (numbers if dtype.kind == "f" else numbers.astype(np.int64)).astype(dtype)
    converted.flags.writeable = False
    return converted
