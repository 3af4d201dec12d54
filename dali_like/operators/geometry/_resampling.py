"""Scale images as DALI does: separable filters at any positions, widened where the image shrinks.

OpenCV's `resize` has no such filters: it skips pixels when it shrinks an image by more than two. Therefore each axis is
multiplied by a band matrix. A few rows of the result need a few neighboring rows of the image. These small dense products
run at BLAS speed, without the GIL, and are small enough that OpenBLAS starts no threads for them.

The filters are DALI's: positions outside the image count as its edge, and the weights of each pixel sum to one. DALI reads
all but the triangular filter from tables. For cubic and Lanczos filters the difference is 0.04 gray levels; for the
Gaussian, whose ends DALI cuts off, up to 0.9.

Bytes are scaled to bytes in numbers that single precision holds exactly, except by filters with negative weights: weights
are multiples of 1/4096, and pixels between the two products are rounded to 1/16. So all sums are exact, in any order, and
results are the same with any BLAS library, on any processor, and with the loops of dali-like-kernels. Before rounding, they
differ from exact weights by some hundredths of a gray level.
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dali_like.common.extras import optional
from dali_like.common.kernel_library import address_of, kernels
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
#: OpenCV's codes for the axes to mirror.
_FLIPS = {frozenset({0}): 0, frozenset({1}): 1, frozenset({0, 1}): -1}
#: Images of at most so many elements are scaled by whole matrices.
FEW_ELEMENTS = 4096
#: Units of exact weights, and of pixels between two products: 8 bits of a pixel, 4 and 12 are the 24 that are exact.
WEIGHT_UNITS = 4096
_PIXEL_UNITS = 16
#: With more neighbors, exact weights would be too coarse.
_MOST_EXACT_TAPS = 256


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
    is_few = image.ndim == 3 and image.size <= FEW_ELEMENTS and out.size <= FEW_ELEMENTS
    image, axes, mirrored = _forwards(image, axes)
    left = [i for i, kind in enumerate(chosen) if kind != INTERP_NN and not axes[i].is_whole(image.shape[i])]
    if not is_few and left and _is_bilinear(image, axes, chosen, filters, out):
        scaled = scratch("scaled", out.shape, out.dtype) if mirrored else out
        if not (image.shape[2] == 3 and _bilinear_is_compiled() and _bilinear_compiled(image, scaled)):
            _cv2().resize(image, out.shape[1::-1], dst=scaled, interpolation=_cv2().INTER_LINEAR)
        if mirrored:
            _cv2().flip(scaled, _FLIPS[frozenset(mirrored)], dst=out)
        return
    if not left:
        convert(image, out.dtype, out)
        return
    are_bytes = image.dtype == np.uint8 and all(chosen[i] in _NONNEGATIVE for i in left)
    is_exact = (
        are_bytes
        and out.dtype == np.uint8
        and len(left) <= 2
        and all(_count_of_taps(axes[i], chosen[i], filters.antialias) <= _MOST_EXACT_TAPS for i in left)
    )
    # Scale shrinking axes first, to leave less work for the others. The first axis needs no swapping.
    left.sort(key=lambda i: axes[i].size > image.shape[i])
    for i in left:
        image, axes[i] = _seen(image, i, axes[i], chosen[i], filters.antialias)
    if is_exact and _resample_compiled(image, axes, chosen, filters.antialias, left, mirrored, out):
        return
    *others, last = left
    units = _units(len(left), is_exact=is_exact)
    if is_few:
        _resample_few(image, axes, chosen, filters.antialias, left, mirrored, units, out)
        return
    for i in others:
        scaled = _scale(image, i, _band(axes[i], image.shape[i], chosen[i], filters.antialias, units[0]), i in mirrored)
        if is_exact:
            np.rint(scaled, out=scaled)
        image = _swap(scaled, i, f"swapped back {i}")
    band = _band(axes[last], image.shape[last], chosen[last], filters.antialias, units[-1])
    image = _scale(image, last, band, last in mirrored)
    if out.dtype.kind in "iu":  # round first, because swapping bytes is faster than swapping floats
        image = _rounded(image, out.dtype, are_bytes)
    convert(_swap(image, last, f"swapped back {last}"), out.dtype, out)


def _bilinear_compiled(image: Array, out: Array) -> bool:
    """Scale an image of RGB bytes as OpenCV does, by dali-like-kernels; return whether it can on this processor."""
    height, width, _ = image.shape
    rows, columns, _ = out.shape
    return not kernels().bilinear(address_of(image), image.strides[0], height, width, address_of(out), rows, columns)


def _bilinear_is_compiled() -> bool:
    return (compiled := kernels()) is not None and _agrees_with_opencv(compiled)


@functools.lru_cache(4)
def _agrees_with_opencv(compiled: Any) -> bool:
    """Whether the compiled loop has the bits of the installed OpenCV, whose versions may differ."""
    image = np.random.default_rng(0).integers(0, 256, (67, 97, 3), np.uint8)
    for side in (31, 67, 150):
        made = np.empty((side, side + 2, 3), np.uint8)
        if not _bilinear_compiled(image, made):
            return False
        if not np.array_equal(made, _cv2().resize(image, (side + 2, side), interpolation=_cv2().INTER_LINEAR)):
            return False
    return True


def _units(count: int, *, is_exact: bool) -> list[float]:
    """Return the factor of the weights for each of `count` products; 0: weights are not rounded."""
    if not is_exact:
        return [0] * count
    return [1] if count == 1 else [_PIXEL_UNITS, 1 / _PIXEL_UNITS]


def _resample_few(
    image: Array,
    axes: Sequence[Axis],
    kinds: Sequence[DALIInterpType],
    antialias: bool,
    order: Sequence[int],
    mirrored: Collection[int],
    units: Sequence[float],
    out: Array,
) -> None:
    """Scale a small image by one product for each axis of `order`. Blocks and swapped axes would only cost calls."""
    are_bytes = image.dtype == out.dtype == np.uint8 and all(kinds[i] in _NONNEGATIVE for i in order)
    values: Any = image.astype(np.float32)
    for i, unit in zip(order, units, strict=True):
        extent = values.shape[i]
        matrix = _matrix(axes[i], extent, kinds[i], antialias, unit)[:: -1 if i in mirrored else 1]
        rows = values.reshape(extent, -1) if i == 0 else values
        values = np.matmul(matrix, rows).reshape(*values.shape[:i], len(matrix), *values.shape[i + 1 :])
        if unit == _PIXEL_UNITS:
            np.rint(values, out=values)
    if are_bytes and out.flags.c_contiguous:
        _cv2().convertScaleAbs(values.reshape(len(out), -1), dst=out.reshape(len(out), -1))
    else:
        convert(_rounded(values, out.dtype, are_bytes) if out.dtype.kind in "iu" else values, out.dtype, out)


@functools.lru_cache(512)
def _matrix(axis: Axis, extent: int, kind: DALIInterpType, antialias: bool, units: float) -> _Floats:
    """Return the matrix of `_band` with all of its columns."""
    firsts, weights = neighbors(axis, extent, kind, antialias, units)
    matrix = np.zeros((axis.size, extent), np.float32)
    matrix[np.arange(axis.size)[:, np.newaxis], firsts[:, np.newaxis] + np.arange(weights.shape[1])] = weights
    return matrix


def _count_of_taps(axis: Axis, kind: DALIInterpType, antialias: bool) -> int:
    """Return how many neighbors are added for a pixel, with start <= end."""
    scale = (axis.end - axis.start) / axis.size
    return math.ceil(2 * _FILTERS[kind][1] * (max(scale, 1.0) if antialias else 1.0))


def neighbors(
    axis: Axis, extent: int, kind: DALIInterpType, antialias: bool, units: float
) -> tuple[NDArray[np.int64], _Floats]:
    """Return which pixels are added for each pixel of a scaled axis, with start <= end.

    Args:
        units: multiplies the weights, which are rounded to multiples of 1/4096 before; 0: they are not rounded.

    Returns:
        The first pixel, and the weights of this one and its successors: shape (size, neighbors). All are inside the image:
        weights of pixels outside are added to those of its edge.
    """
    size = axis.size
    scale = (axis.end - axis.start) / size
    filter_, radius = _FILTERS[kind]
    radius *= max(scale, 1.0) if antialias else 1.0
    taps = np.arange(_count_of_taps(axis, kind, antialias))
    centers = axis.start + (np.arange(size) + 0.5) * scale - 0.5
    first = np.ceil(centers - radius)
    weights = filter_(((first - centers)[:, np.newaxis] + taps) / radius)
    weights /= weights.sum(axis=1, keepdims=True)
    if units:  # sums are rounded, so that all weights together stay 1
        sums = np.rint(np.cumsum(weights, axis=1) * WEIGHT_UNITS)
        weights = np.diff(sums, axis=1, prepend=0) * (units / WEIGHT_UNITS)
    columns = first.astype(np.int64)
    count = min(len(taps), extent)
    firsts = columns.clip(0, extent - count)
    inside = (columns[:, np.newaxis] + taps).clip(0, extent - 1) - firsts[:, np.newaxis]
    folded = np.zeros((size, count))
    np.add.at(folded, (np.arange(size)[:, np.newaxis], inside), weights)
    return firsts, folded.astype(np.float32)


class _CompiledBand(NamedTuple):
    """The struct Band of kernels/src/resample.c; the arrays are its memory."""

    numbers: tuple[int, int, int, int]
    firsts: NDArray[np.int32]
    weights: _Floats


@functools.lru_cache(512)
def _compiled_band(axis: Axis, extent: int, kind: DALIInterpType, antialias: bool, mirrors: bool) -> _CompiledBand:
    firsts, weights = neighbors(axis, extent, kind, antialias, WEIGHT_UNITS)
    step = -1 if mirrors else 1
    places, weights = firsts[::step].astype(np.int32), np.ascontiguousarray(weights[::step])
    return _CompiledBand((axis.size, weights.shape[1], address_of(places), address_of(weights)), places, weights)


def _resample_compiled(
    image: Array,
    axes: Sequence[Axis],
    kinds: Sequence[DALIInterpType],
    antialias: bool,
    order: Sequence[int],
    mirrored: Collection[int],
    out: Array,
) -> bool:
    """Scale an image of bytes by dali-like-kernels; return whether it is installed and supports the memory.

    Args:
        axes: with start <= end.
        order: the axes to scale, the first one first.
        mirrored: axes whose results are reversed.
    """
    if image.ndim != 3 or image.strides[1:] != (image.shape[2], 1) or not out.flags.c_contiguous:
        return False
    compiled = kernels()
    if compiled is None:
        return False
    height, width, channels = image.shape
    to, row_bytes = address_of(out), out.strides[0]
    if 0 in mirrored:  # rows are made from the top to the bottom of the image
        to, row_bytes = to + (out.shape[0] - 1) * row_bytes, -row_bytes
    bands = [
        _compiled_band(axes[i], image.shape[i], kinds[i], antialias, mirrors).numbers
        if i in order
        else (axes[i].size, 0, 0, 0)
        for i, mirrors in ((0, False), (1, 1 in mirrored))
    ]
    numbers = _ImageNumbers(
        address_of(image), to, image.strides[0], row_bytes, height, width, channels, [*order] == [1, 0], *bands[0], *bands[1]
    )
    return not compiled.resample(ctypes.addressof(numbers))


#: The struct Image of kernels/src/resample.c.
_ImageNumbers: Any = ctypes.c_int64 * 16


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


def _scale(image: Array, i: int, band: _Band, mirror: bool) -> _Floats:
    """Return an image with axis `i` scaled, mirrored if wanted, and exchanged with axis 0, as floats."""
    scaled = _multiply(band, _swap(image, i, f"swapped {i}"), f"product {i}")
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
def _band(axis: Axis, extent: int, kind: DALIInterpType, antialias: bool, units: float) -> _Band:
    """Return the matrix that scales an axis of this extent, with start <= end; see `neighbors`."""
    firsts, weights = neighbors(axis, extent, kind, antialias, units)
    size, count = weights.shape
    # Positions ascend, so the first row of a block has its first column, and the last row its last column.
    starts = firsts[::_BLOCK]
    ends = np.append(firsts[_BLOCK - 1 :: _BLOCK], firsts[-1:])[: len(starts)] + count
    span = int((ends - starts).max())
    rows = np.zeros((size, span), np.float32)
    offsets = firsts - starts.repeat(_BLOCK)[:size]
    rows[np.arange(size)[:, np.newaxis], offsets[:, np.newaxis] + np.arange(count)] = weights
    return _Band(starts.tolist(), ends.tolist(), rows)


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
