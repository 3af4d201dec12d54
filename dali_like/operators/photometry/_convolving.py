"""Convolve the spatial axes of images, volumes and signals: the axes other than "F" and "C"."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dali_like.errors import SampleError
from dali_like.graph.language.operator_interface import Array
from dali_like.operators.machinery._pixels import opencv

#: Window that leaves an axis as it is.
WHOLE = np.ones(1, np.float32)


class SpatialAxes(NamedTuple):
    """The spatial axes of a layout.

    Attributes:
        stacked: number of images or volumes: frames times channels that come first.
        ndim: number of spatial axes, from 1 to 3.
        channels: number of trailing channels; 0: the last axis is spatial.
    """

    stacked: int
    ndim: int
    channels: int

    def split(self, shape: Sequence[int], least: int) -> tuple[int, ...]:
        """Return the shape with one axis for the stack, at least `least` spatial axes, and the channels, if any."""
        first = len(shape) - self.ndim - (self.channels > 0)
        return (self.stacked, *(1,) * (least - self.ndim), *shape[first:])


def spatial_axes(layout: str, shape: Sequence[int], lead: int = 0) -> SpatialAxes:
    """Find the spatial axes. Without a layout, all axes are spatial.

    Raises:
        SampleError: channels are neither first nor last, frames are not first, or there are more than three spatial axes.
    """
    if not layout:
        if not 0 < len(shape) - lead <= 3:
            raise SampleError(f"data without a layout must have from 1 to 3 dimensions, not {len(shape) - lead}")
        return SpatialAxes(math.prod(shape[:lead]), len(shape) - lead, 0)
    inner = layout.removesuffix("C")
    first = len(inner) - len(inner.lstrip("NCF"))
    axes = inner[first:]
    if not axes or len(axes) > 3 or set(axes) & set("CF"):
        raise SampleError(
            "only channel-first and channel-last layouts of one to three axes, frames first, can be filtered, "
            f"not {layout!r}"
        )
    return SpatialAxes(math.prod(shape[:first]), len(axes), shape[-1] if inner != layout else 0)


def stacked_shape(layout: str, shape: Sequence[int]) -> tuple[int, ...]:
    """Return the shape with one axis for frames and leading channels: (count, height, width), or with more channels."""
    return spatial_axes(layout, shape).split(shape, 2)


def convolve(pixels: Array, windows: Sequence[Array], out: Array) -> Array:
    """Convolve the first two axes with a window each, or the second one if there is a single window.

    Values are mirrored at the edges.

    Args:
        pixels: uint8 or float32.
        out: likewise.
    """
    cv2 = opencv()
    depth = cv2.CV_8U if out.dtype == np.uint8 else cv2.CV_32F
    vertical = windows[-2] if len(windows) > 1 else WHOLE
    shape = pixels.shape[:2] if pixels.ndim < 3 or pixels.shape[2] == 1 else pixels.shape
    target = out.reshape(shape)
    cv2.sepFilter2D(pixels.reshape(shape), depth, windows[-1], vertical, dst=target, borderType=cv2.BORDER_REFLECT_101)
    return out


def convolve_volume(pixels: Array, windows: Sequence[Array]) -> Array:
    """Convolve the first three axes with a window each, in float32."""
    slices = np.empty(pixels.shape, np.float32)
    for source, target in zip(pixels, slices, strict=True):
        convolve(source, windows[1:], target)
    rows = slices.reshape(len(slices), -1)
    return convolve(rows, (windows[0], WHOLE), np.empty(rows.shape, np.float32)).reshape(slices.shape)


_DEPTHS = {"uint8": "CV_8U", "uint16": "CV_16U", "int16": "CV_16S", "float32": "CV_32F", "float64": "CV_64F"}


def correlate_images(images: Array, window: Array, anchor: Sequence[int], border: str, out: Array) -> None:
    """Write the sums of products of a window with the surroundings of each pixel.

    Args:
        images: shape (count, height, width, channels), of a dtype in `CORRELATED`.
        window: weights of shape (height, width).
        anchor: row and column of the window that lie on the pixel.
        border: how OpenCV continues images.
        out: memory for the result, C-contiguous, of the same dtype or FLOAT.
    """
    cv2 = opencv()
    kind, flag, at = getattr(cv2, _DEPTHS[out.dtype.name]), getattr(cv2, border), (anchor[1], anchor[0])
    for image, target in zip(images, out, strict=True):
        cv2.filter2D(image, kind, window, dst=target, anchor=at, borderType=flag)


#: dtypes that `correlate` accepts.
CORRELATED = frozenset(map(np.dtype, ("uint8", "uint16", "int16", "float32", "float64")))


def correlate(stack: Array, window: Array, dtype: np.dtype[Any]) -> Array:
    """Return the sums of products of a window with all parts of each volume that have its shape.

    Args:
        stack: volumes of shape (count, depth, height, width, channels), at least as large as the window, of a dtype in
            `CORRELATED`.
        window: weights of shape (depth, height, width).
        dtype: data type of the result: that of `stack`, or FLOAT. Integers need a window with a depth of 1. If `stack` is
            FLOAT64, the result is, too.
    """
    cv2 = opencv()
    kind = getattr(cv2, "CV_64F" if stack.dtype == np.float64 else _DEPTHS[dtype.name])
    rows = stack.reshape(-1, *stack.shape[3:])  # a window that begins at the end of a slice is dropped below
    depth, height, width = (extent - size + 1 for extent, size in zip(stack.shape[1:4], window.shape, strict=True))

    def sums(i: int) -> Array:
        filtered: Array = cv2.filter2D(rows, kind, window[i], anchor=(0, 0), borderType=cv2.BORDER_CONSTANT)
        return filtered.reshape(stack.shape)[:, i : i + depth, :height, :width]

    total = sums(0)
    for i in range(1, len(window)):
        total = total + sums(i)
    return total
