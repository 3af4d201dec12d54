"""Scale images as DALI does: separable filters at any positions, widened where the image shrinks.

OpenCV's `resize` has no such filters: it skips pixels when it shrinks an image by more than two. Therefore each axis is
multiplied by a band matrix. A few rows of the result need a few neighboring rows of the image. These small dense products
run at BLAS speed, without the GIL, and are small enough that OpenBLAS starts no threads for them.

The filters are DALI's: positions outside the image count as its edge, and the weights of each pixel sum to one. DALI reads
all but the triangular filter from tables. For cubic and Lanczos filters the difference is 0.04 gray levels; for the
Gaussian, whose ends DALI cuts off, up to 0.9.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dali_like.common.extras import optional
from dali_like.graph.language.operator_interface import Array, scratch
from dali_like.operators.machinery.conversion import convert
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

#: Rows of the result per product. More rows mean more multiplications by zero, fewer rows more calls.
_BLOCK = 8
#: OpenBLAS uses one thread if the product of the three matrix extents is at most this.
_SINGLE_THREADED = 4 * 65536
#: Images of at most so many elements are scaled by whole matrices.
_FEW_ELEMENTS = 4096


class Filters(NamedTuple):
    """Interpolation filters.

    Attributes:
        shrink: filter where the result has fewer pixels than the region.
        grow: filter elsewhere.
        antialias: whether filters widen where the image shrinks.
    """

    shrink: DALIInterpType
    grow: DALIInterpType
    antialias: bool


class Axis(NamedTuple):
    """Scaling of one axis: the region from `start` to `end`, in pixels, becomes `size` pixels, reversed if `start` >
    `end`.
    """

    size: int
    start: float
    end: float

    def is_whole(self, extent: int) -> bool:
        """Return whether an axis of this extent stays unchanged."""
        return self == (extent, 0, extent)

    @property
    def shrinks(self) -> bool:
        return abs(self.end - self.start) > self.size


@np.errstate(over="ignore", invalid="ignore")
def resample(image: Array, axes: Sequence[Axis], filters: Filters, out: Array) -> None:
    """Scale an image or a volume.

    Args:
        image: an axis for each of `axes`, and channels.
        axes: scaling of each axis.
        filters: filters for all axes.
        out: memory with the sizes of `axes` and the channels; any dtype. Values are rounded to it.
    """
    chosen = [filters.shrink if axis.shrinks else filters.grow for axis in axes]
    axes = list(axes)
    for i, (axis, kind) in enumerate(zip(axes, chosen, strict=True)):
        if kind == INTERP_NN and not axis.is_whole(image.shape[i]):
            image, axes[i] = image.take(_nearest(axis, image.shape[i]), axis=i), Axis(axis.size, 0, axis.size)
    if image.ndim == 3 and image.size <= _FEW_ELEMENTS and out.size <= _FEW_ELEMENTS:
        _resample_few(image, axes, chosen, filters.antialias, out)
        return
    image, axes, mirrored = _forwards(image, axes)
    left = [i for i, kind in enumerate(chosen) if kind != INTERP_NN and not axes[i].is_whole(image.shape[i])]
    if left and _is_bilinear(image, axes, chosen, filters, out):
        _cv2().resize(image, out.shape[1::-1], dst=out, interpolation=_cv2().INTER_LINEAR)
        return
    if not left:
        convert(image, out.dtype, out)
        return
    are_bytes = image.dtype == np.uint8 and all(chosen[i] in _NONNEGATIVE for i in left)
    for i in left:
        image, axes[i] = _seen(image, i, axes[i], chosen[i], filters.antialias)
    # Scale shrinking axes first, to leave less work for the others. The first axis needs no swapping.
    *others, last = sorted(left, key=lambda i: axes[i].size > image.shape[i])
    for i in others:
        image = _swap(_scale(image, i, axes[i], chosen[i], filters.antialias, i in mirrored), i, f"swapped back {i}")
    image = _scale(image, last, axes[last], chosen[last], filters.antialias, last in mirrored)
    if out.dtype.kind in "iu":  # round first, because swapping bytes is faster than swapping floats
        image = _rounded(image, out.dtype, are_bytes)
    convert(_swap(image, last, f"swapped back {last}"), out.dtype, out)


def _resample_few(image: Array, axes: Sequence[Axis], kinds: Sequence[DALIInterpType], antialias: bool, out: Array) -> None:
    """Scale a small image by one product for each axis. Blocks and swapped axes would only cost calls."""
    left = [i for i in (0, 1) if kinds[i] != INTERP_NN and not axes[i].is_whole(image.shape[i])]
    if not left:
        convert(image, out.dtype, out)
        return
    are_bytes = image.dtype == out.dtype == np.uint8 and all(kinds[i] in _NONNEGATIVE for i in left)
    values: Any = image.astype(np.float32)
    for i in left:
        extent = values.shape[i]
        matrix = _matrix(axes[i], extent, kinds[i], antialias)
        rows = values.reshape(extent, -1) if i == 0 else values
        values = np.matmul(matrix, rows).reshape(*values.shape[:i], len(matrix), *values.shape[i + 1 :])
    if are_bytes and out.flags.c_contiguous:
        _cv2().convertScaleAbs(values.reshape(len(out), -1), dst=out.reshape(len(out), -1))
    else:
        convert(_rounded(values, out.dtype, are_bytes) if out.dtype.kind in "iu" else values, out.dtype, out)


@functools.lru_cache(512)
def _matrix(axis: Axis, extent: int, kind: DALIInterpType, antialias: bool) -> _Floats:
    """Return the matrix of `_band` with all of its columns, also for start > end."""
    if axis.start > axis.end:
        return _matrix(Axis(axis.size, extent - axis.start, extent - axis.end), extent, kind, antialias)[:, ::-1]
    scale = (axis.end - axis.start) / axis.size
    filter_, radius = _FILTERS[kind]
    radius *= max(scale, 1.0) if antialias else 1.0
    centers = axis.start + (np.arange(axis.size) + 0.5) * scale - 0.5
    before = max(math.ceil(radius - centers[0]), 0)
    behind = max(math.ceil(radius + centers[-1]) + 1 - extent, 0)
    weights = filter_((np.arange(-before, extent + behind) - centers[:, np.newaxis]) / radius)
    inside = weights[:, before : before + extent]
    if before:
        inside[:, 0] += weights[:, :before].sum(axis=1)
    if behind:
        inside[:, -1] += weights[:, -behind:].sum(axis=1)
    matrix: _Floats = (inside / inside.sum(axis=1, keepdims=True)).astype(np.float32)
    return matrix


def _forwards(image: Array, axes: Sequence[Axis]) -> tuple[Array, list[Axis], set[int]]:
    """Return the image, its axes with start <= end, and which results must be reversed, to mirror them.

    Axes of unchanged extent are reversed in the image.
    """
    forwards, mirrored = list(axes), set()
    for i, axis in enumerate(axes):
        if axis.start > axis.end:
            forwards[i] = Axis(axis.size, axis.end, axis.start)
            if forwards[i].is_whole(image.shape[i]):
                image = np.flip(image, i)
            else:
                mirrored.add(i)
    return image, forwards, mirrored


def _seen(image: Array, i: int, axis: Axis, kind: DALIInterpType, antialias: bool) -> tuple[Array, Axis]:
    """Return the part of an image that the result of an axis depends on."""
    margin = _FILTERS[kind][1] * (max((axis.end - axis.start) / axis.size, 1.0) if antialias else 1.0) + 1
    extent = image.shape[i]
    begin = min(max(math.floor(axis.start - margin), 0), extent - 1)
    end = max(min(math.ceil(axis.end + margin), extent), begin + 1)
    if begin == 0 and end == extent:
        return image, axis
    part = image[(slice(None),) * i + (slice(begin, end),)]
    return part, Axis(axis.size, axis.start - begin, axis.end - begin)


def _is_bilinear(image: Array, axes: Sequence[Axis], kinds: Sequence[DALIInterpType], filters: Filters, out: Array) -> bool:
    """Return whether OpenCV has the same filter: two neighbors in each axis, over the whole image."""
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


def _rounded(values: _Floats, dtype: np.dtype[Any], are_bytes: bool) -> Array:
    """Return values rounded to an integer dtype, in scratch memory. Changes `values`.

    Args:
        values: the values.
        dtype: the integer dtype.
        are_bytes: whether all values are from 0 to 255, except for rounding.
    """
    out = scratch("rounded", values.shape, dtype)
    if are_bytes and dtype == np.uint8:
        rows = values.reshape(len(values), -1)
        _cv2().convertScaleAbs(rows, dst=out.reshape(rows.shape))  # one pass; halves are rounded to even as by rint
        return out
    limits = np.iinfo(dtype)
    np.rint(values, out=values)
    np.clip(values, limits.min, limits.max, out=values)
    np.copyto(out, values, casting="unsafe")
    return out


@functools.lru_cache(512)
def _nearest(axis: Axis, extent: int) -> NDArray[np.int64]:
    # In single precision and in these steps, as in DALI: at borders of pixels, rounding decides.
    start, end = np.array([axis.start, axis.end], np.float32)
    centers = np.arange(axis.size, dtype=np.float32) + np.float32(0.5)
    positions: NDArray[np.int64] = np.floor(start + centers * ((end - start) / np.float32(axis.size))).astype(np.int64)
    positions.clip(0, extent - 1, out=positions)
    return positions


def _scale(image: Array, i: int, axis: Axis, kind: DALIInterpType, antialias: bool, mirror: bool) -> _Floats:
    """Return an image with axis `i` scaled, mirrored if wanted, and exchanged with axis 0, as floats."""
    swapped = _swap(image, i, f"swapped {i}")
    scaled = _multiply(_band(axis, swapped.shape[0], kind, antialias), swapped, f"product {i}")
    return scaled[::-1] if mirror else scaled


def _swap(image: Array, i: int, name: str) -> Array:
    """Return an image with axes 0 and `i` exchanged, in scratch memory of this name; for axis 0 the image itself."""
    if i == 0:
        return image
    exchanged = image.swapaxes(0, i)
    out = scratch(name, exchanged.shape, image.dtype)
    if i == 1 and image.ndim == 3 and image.shape[2] in (3, 4) and image.dtype in (np.uint8, np.float32):
        _cv2().transpose(np.ascontiguousarray(image), dst=out)  # several times faster
    else:
        np.copyto(out, exchanged)
    return out


class _Band(NamedTuple):
    """Rows of a matrix with few nonzero columns in each.

    Attributes:
        starts, ends: nonzero columns of each block of rows.
        rows: the values; shape (rows, widest block).
    """

    starts: list[int]
    ends: list[int]
    rows: _Floats


@functools.lru_cache(512)  # random crops have many different extents; each entry takes about 12 KiB
def _band(axis: Axis, extent: int, kind: DALIInterpType, antialias: bool) -> _Band:
    """Return the matrix that scales an axis of this extent, with start <= end."""
    size = axis.size
    scale = (axis.end - axis.start) / size
    filter_, radius = _FILTERS[kind]
    radius *= max(scale, 1.0) if antialias else 1.0
    taps = np.arange(math.ceil(2 * radius))
    centers = axis.start + (np.arange(size) + 0.5) * scale - 0.5
    first = np.ceil(centers - radius)
    weights = filter_(((first - centers)[:, np.newaxis] + taps) / radius)
    weights /= weights.sum(axis=1, keepdims=True)
    columns = first.astype(np.int64)
    last = columns + taps[-1]
    # Positions ascend, so the first row of a block has its first column, and the last row its last column.
    starts = columns[::_BLOCK].clip(0, extent - 1)
    ends = np.append(last[_BLOCK - 1 :: _BLOCK], last[-1:])[: len(starts)].clip(0, extent - 1) + 1
    span = int((ends - starts).max())
    rows = np.zeros(size * span, np.float32)
    offsets = np.arange(0, size * span, span) - starts.repeat(_BLOCK)[:size]  # position of column 0 in each row
    low, high = int(np.searchsorted(columns, 0)), int(np.searchsorted(last, extent))
    rows[(offsets + columns)[low:high, np.newaxis] + taps] = weights[low:high]
    for row in (*range(low), *range(max(low, high), size)):  # several positions fall onto the edge
        np.add.at(rows, offsets[row] + (columns[row] + taps).clip(0, extent - 1), weights[row])
    return _Band(starts.tolist(), ends.tolist(), rows.reshape(size, span))


def _multiply(band: _Band, image: Array, name: str) -> _Floats:
    """Multiply a band matrix with the first axis of an image; the result is in scratch memory of this name."""
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


# Filters: functions of positions relative to the radius


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

#: Filters whose results lie between the pixels.
_NONNEGATIVE = (INTERP_LINEAR, INTERP_TRIANGULAR, INTERP_GAUSSIAN)


def _cv2() -> Any:
    return optional("cv2", "scaling images", "images")
