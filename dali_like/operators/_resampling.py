"""Scales images as DALI does: separable filters at any positions, which widen where the image shrinks.

OpenCV's `resize` has no such filters: where it shrinks an image by more than two, it leaves pixels out. So each axis is
multiplied by a band matrix. A few rows of the result need a few neighbouring rows of the image; these small dense products
run at the speed of BLAS, without the GIL. They are kept so small that OpenBLAS starts no threads of its own for them.

The filters are DALI's: positions outside of the image count as its edge, and the weights of each pixel sum to one. DALI
reads all but the triangular filter from tables, which makes a difference of 0.04 grey levels for cubic and Lanczos filters;
the cut-off ends of its Gaussian make one of up to 0.9.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dali_like.common.extras import optional
from dali_like.graph.operator_interface import Array, scratch
from dali_like.operators._windows import store
from dali_like.types import (
    INTERP_CUBIC,
    INTERP_GAUSSIAN,
    INTERP_LANCZOS3,
    INTERP_LINEAR,
    INTERP_NN,
    INTERP_TRIANGULAR,
    DALIInterpType,
)

_Floats = NDArray[np.float32]

#: Rows of the result that are computed at once: more need more products with zeros, fewer more calls.
_BLOCK = 8
#: OpenBLAS multiplies matrices in one thread if the product of the three extents is at most this.
_SINGLE_THREADED = 4 * 65536


@dataclass(frozen=True)
class Filters:
    """How values between pixels are made.

    Attributes:
        shrink: where there are fewer pixels in the result than in the region.
        grow: elsewhere.
        antialias: whether filters widen where the image shrinks.
    """

    shrink: DALIInterpType
    grow: DALIInterpType
    antialias: bool


class Axis(NamedTuple):
    """What becomes of one axis: the region from `start` to `end`, in pixels, is scaled to `size`; from back to front if
    `start` is behind `end`.
    """

    size: int
    start: float
    end: float

    def is_whole(self, extent: int) -> bool:
        """Whether nothing changes for an axis of this extent."""
        return self == (extent, 0, extent)

    @property
    def shrinks(self) -> bool:
        return abs(self.end - self.start) > self.size


def resample(image: Array, axes: Sequence[Axis], filters: Filters, out: Array) -> None:
    """Scale an image or a volume.

    Args:
        image: an axis for each of `axes`, and channels.
        axes: what becomes of them.
        filters: for all of them.
        out: of the sizes of `axes` and the channels; of the image's dtype, or any other, to which values are rounded.
    """
    image, axes = _forwards(image, axes)
    chosen = [filters.shrink if axis.shrinks else filters.grow for axis in axes]
    for i, (axis, kind) in enumerate(zip(axes, chosen, strict=True)):
        if kind == INTERP_NN and not axis.is_whole(image.shape[i]):
            image = image.take(_nearest(axis, image.shape[i]), axis=i)
    left = [i for i, kind in enumerate(chosen) if kind != INTERP_NN and not axes[i].is_whole(image.shape[i])]
    if left and _is_bilinear(image, axes, chosen, filters, out):
        _cv2().resize(image, out.shape[1::-1], dst=out, interpolation=_cv2().INTER_LINEAR)
        return
    # First those that shrink, so that there is less work for the others; the first axis needs no swapping.
    for i in sorted(left, key=lambda i: axes[i].size > image.shape[i]):
        image = _scale(image, i, axes[i], chosen[i], filters.antialias)
    if left and out.dtype.kind in "iu":
        _store_rounded(image, out)
    else:
        store(image, out)


def _forwards(image: Array, axes: Sequence[Axis]) -> tuple[Array, list[Axis]]:
    """The image, turned round where an axis begins behind its end."""
    forwards = list(axes)
    for i, axis in enumerate(axes):
        if axis.start > axis.end:
            extent = image.shape[i]
            image, forwards[i] = np.flip(image, i), Axis(axis.size, extent - axis.start, extent - axis.end)
    return image, forwards


def _is_bilinear(image: Array, axes: Sequence[Axis], kinds: Sequence[DALIInterpType], filters: Filters, out: Array) -> bool:
    """Whether OpenCV has the same filter: two neighbours in each axis, of all of a picture."""
    return (
        image.ndim == 3
        and image.dtype == out.dtype == np.uint8
        and image.shape[2] in (1, 3, 4)
        and image.strides[1:] == (image.shape[2], 1)
        and out.flags.c_contiguous
        and all(kind in (INTERP_LINEAR, INTERP_TRIANGULAR) for kind in kinds)
        and all((axis.start, axis.end) == (0, extent) for axis, extent in zip(axes, image.shape, strict=False))
        and not (filters.antialias and any(axis.shrinks for axis in axes))
    )


def _store_rounded(values: _Floats, out: Array) -> None:
    """Write values into an array of integers. They are changed themselves, since new memory would take twice as long."""
    limits = np.iinfo(out.dtype)
    np.rint(values, out=values)
    np.clip(values, limits.min, limits.max, out=values)
    np.copyto(out, values, casting="unsafe")


def _nearest(axis: Axis, extent: int) -> NDArray[np.int64]:
    scale = (axis.end - axis.start) / axis.size
    positions: NDArray[np.int64] = np.floor(axis.start + (np.arange(axis.size) + 0.5) * scale).astype(np.int64)
    positions.clip(0, extent - 1, out=positions)
    return positions


def _scale(image: Array, i: int, axis: Axis, kind: DALIInterpType, antialias: bool) -> _Floats:
    """An image with one axis scaled, as floats."""
    if i == 0:
        return _multiply(_band(axis, image.shape[0], kind, antialias), image, "product 0")
    swapped = _swap(image, i, f"swapped {i}")
    return _swap(_multiply(_band(axis, swapped.shape[0], kind, antialias), swapped, f"product {i}"), i, f"swapped back {i}")


def _swap(image: Array, i: int, name: str) -> Array:
    """The image with axes 0 and `i` exchanged, in one piece; in scratch memory of this name."""
    exchanged = image.swapaxes(0, i)
    out = scratch(name, exchanged.shape, image.dtype)
    if i == 1 and image.ndim == 3 and image.shape[2] in (3, 4) and image.dtype in (np.uint8, np.float32):
        _cv2().transpose(np.ascontiguousarray(image), dst=out)  # several times faster
    else:
        np.copyto(out, exchanged)
    return out


class _Band(NamedTuple):
    """The rows of a matrix that is zero but for a few columns in each.

    Attributes:
        starts, ends: for each block of rows, the columns that are not zero.
        rows: what stands there; shape (rows, widest block).
    """

    starts: list[int]
    ends: list[int]
    rows: _Floats


@functools.lru_cache(512)  # random crops have as many different extents; each takes some 12 KiB
def _band(axis: Axis, extent: int, kind: DALIInterpType, antialias: bool) -> _Band:
    """The matrix that scales an axis of so many pixels, which does not begin behind its end."""
    size = axis.size
    scale = (axis.end - axis.start) / size
    filter_, radius = _FILTERS[kind]
    radius *= max(scale, 1.0) if antialias else 1.0
    taps = np.arange(math.ceil(2 * radius))
    centres = axis.start + (np.arange(size) + 0.5) * scale - 0.5
    first = np.ceil(centres - radius)
    weights = filter_(((first - centres)[:, np.newaxis] + taps) / radius)
    weights /= weights.sum(axis=1, keepdims=True)
    columns = first.astype(np.int64)
    last = columns + taps[-1]
    # Positions ascend, so that the first row of a block begins it, and the last one ends it.
    starts = columns[::_BLOCK].clip(0, extent - 1)
    ends = np.append(last[_BLOCK - 1 :: _BLOCK], last[-1:])[: len(starts)].clip(0, extent - 1) + 1
    span = int((ends - starts).max())
    rows = np.zeros(size * span, np.float32)
    offsets = np.arange(0, size * span, span) - starts.repeat(_BLOCK)[:size]  # of column 0 in each row
    low, high = int(np.searchsorted(columns, 0)), int(np.searchsorted(last, extent))
    rows[(offsets + columns)[low:high, np.newaxis] + taps] = weights[low:high]
    for row in (*range(low), *range(max(low, high), size)):  # several positions count as the edge
        np.add.at(rows, offsets[row] + (columns[row] + taps).clip(0, extent - 1), weights[row])
    return _Band(starts.tolist(), ends.tolist(), rows.reshape(size, span))


def _multiply(band: _Band, image: Array, name: str) -> _Floats:
    """The product of a band matrix with the first axis of an image; in scratch memory of this name."""
    size, span = band.rows.shape
    width = math.prod(image.shape[1:])
    out = scratch(name, (size, width), np.float32)
    step = max(_SINGLE_THREADED // (_BLOCK * span), 64)
    for block, (start, end) in enumerate(zip(band.starts, band.ends, strict=True)):
        part = image[start:end].astype(np.float32, order="C", copy=False).reshape(end - start, width)
        rows = slice(block * _BLOCK, (block + 1) * _BLOCK)
        weights = band.rows[rows, : end - start]
        for left in range(0, width, step):
            np.matmul(weights, part[:, left : left + step], out=out[rows, left : left + step])
    return out.reshape(size, *image.shape[1:])


# The filters: of positions relative to the radius.


def _triangle(x: Array) -> Array:
    weights: Array = np.maximum(1 - np.abs(x), 0)
    return weights


def _cubic(x: Array) -> Array:
    x = 2 * np.abs(x)
    near = (1.5 * x - 2.5) * x * x + 1
    far = ((-0.5 * x + 2.5) * x - 4) * x + 2
    return np.where(x < 1, near, np.where(x < 2, far, 0))


def _lanczos(x: Array) -> Array:
    return np.where(np.abs(x) < 1, np.sinc(3 * x) * np.sinc(x), 0)


def _gaussian(x: Array) -> Array:
    return np.where(np.abs(x) <= 1 + 1e-9, np.exp(-4 * x * x), 0)


_FILTERS: dict[DALIInterpType, tuple[Callable[[Array], Array], float]] = {
    INTERP_LINEAR: (_triangle, 1.0),
    INTERP_TRIANGULAR: (_triangle, 1.0),
    INTERP_CUBIC: (_cubic, 2.0),
    INTERP_LANCZOS3: (_lanczos, 3.0),
    INTERP_GAUSSIAN: (_gaussian, 1.0),
}


def _cv2() -> Any:
    return optional("cv2", "scaling images", "images")
