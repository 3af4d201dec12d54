"""Operators that blur, degrade and erase parts of images, as in ``nvidia.dali.fn``."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from dali_like.common.saved_arguments import SavedText
from dali_like.errors import ArgumentClashError, ArgumentError, SampleError
from dali_like.graph.language.operator_interface import Array, OperatorCall
from dali_like.operators.machinery._pixels import fill_numbers, opencv
from dali_like.operators.machinery.axes import axes_of, for_each_axis, layout_with_axes
from dali_like.operators.machinery.conversion import convert
from dali_like.operators.machinery.description import IMAGES, operator
from dali_like.operators.parameters import FINITE, Floats, Ints, PerFrame, PerSample, at_least, count
from dali_like.operators.photometry._convolving import convolve, convolve_volume, spatial_axes, stacked_shape

# Blurring


_NO_WINDOW = "sigma and window_size shouldn't be 0 at the same time; give at least one of them"


def _check_blur(given: Mapping[str, Any]) -> None:
    sigma, sizes = given.get("sigma", (0.0,)), given.get("window_size", (0,))
    if isinstance(sizes, tuple) and any(size and size % 2 == 0 for size in sizes):
        raise ArgumentError(f"the kernel window should have odd length, got window_size={list(sizes)}")
    if isinstance(sigma, tuple) and isinstance(sizes, tuple):
        count = max(len(sigma), len(sizes))
        for pair in zip(*_for_each_axis(sigma, sizes, count), strict=True):
            if not any(pair):
                raise ArgumentError(_NO_WINDOW)


def _blurred_layout(layout: str, given: Mapping[str, Any]) -> str:
    if layout:
        try:
            count = spatial_axes(layout, (1,) * len(layout)).ndim
        except SampleError as error:
            raise ArgumentError(str(error)) from None
        _for_each_axis(given["sigma"], given["window_size"], count)
    return layout


@operator(check=_check_blur, output_layout=_blurred_layout, strided=True, stacks=())
def gaussian_blur(
    call: OperatorCall,
    image: Array,
    *,
    sigma: PerFrame[Annotated[Floats, count(1, 2, 3), at_least(0)]] = (0.0,),
    window_size: PerFrame[Annotated[Ints, count(1, 2, 3), at_least(0)]] = (0,),
    dtype: np.dtype[Any] | None = None,
) -> Array:
    """Blur images, volumes and signals.

    All axes except "F" and "C" are blurred. Channels must come first or last, frames first. Without a layout, data may have
    up to three axes, and all are blurred. Values are mirrored at the edges.

    Args:
        image: any dtype.
        sigma: standard deviation of the Gaussian: one for all axes, or one for each, outermost first. Default: ``(radius -
            1) * 0.3 + 0.8`` with ``radius = (window_size - 1) / 2``.
        window_size: length of the kernel in elements, an odd number; one for all axes, or one for each. Default: ``2 *
            ceil(3 * sigma) + 1``.
        dtype: data type of the result: FLOAT. Default: that of the image.
    """
    result = image.dtype if dtype is None else dtype
    if result not in (image.dtype, np.float32):
        raise ArgumentError(f"dtype must be FLOAT or that of the input, {image.dtype}, not {result}")
    axes = spatial_axes(call.layout, image.shape, call.lead)
    kernels = [_kernel(*pair) for pair in zip(*_for_each_axis(sigma, window_size, axes.ndim), strict=True)]
    out = call.empty(image.shape, result)
    if not image.size:
        return out
    shape = axes.split(image.shape, 2)
    direct = image.dtype in (np.uint8, np.float32)
    source = image if direct else image.astype(np.float32)
    for pixels, target in zip(source.reshape(shape), out.reshape(shape), strict=True):
        if axes.ndim == 3:
            target[...] = convert(convolve_volume(pixels, kernels), result)
        elif direct:
            convolve(pixels, kernels, target)
        else:
            target[...] = convert(convolve(pixels, kernels, np.empty(pixels.shape, np.float32)), result)
    return out


def _for_each_axis(sigma: Floats, window_size: Ints, count: int) -> tuple[Sequence[float], Sequence[int]]:
    return for_each_axis("sigma", sigma, count), for_each_axis("window_size", window_size, count)


@functools.lru_cache(256)
def _kernel(sigma: float, size: int) -> Array:
    """Return the weights in single precision, as DALI computes them."""
    if sigma < 0 or size < 0 or (size and size % 2 == 0) or not (sigma or size):
        raise ArgumentError(
            f"sigma must be non-negative, window_size an odd number or 0, and one of them positive, not {sigma} and {size}"
        )
    sigma = float(np.float32(sigma))
    size = size or 2 * math.ceil(np.float32(sigma * 3)) + 1
    radius = size // 2
    sigma = sigma or float(np.float32((radius - 1) * 0.3 + 0.8))
    squares = np.square(np.arange(-radius, radius + 1, dtype=np.float32))
    weights = np.exp(-squares * (np.float32(0.5) / (np.float32(sigma) * np.float32(sigma))))
    total = np.float32(2) * weights[:radius].cumsum(dtype=np.float32)[-1:].sum() + np.float32(1)
    kernel: Array = weights * (np.float32(1) / total)
    return kernel


# Median


@operator(module="experimental", layouts="HW HWC FHWC CHW FCHW", strided=True, stacks=())
def median_blur(
    call: OperatorCall, input: Array, *, window_size: PerSample[Annotated[Ints, count(1, 2), at_least(1)]] = (3, 3)
) -> Array:
    """Replace each element by the median of its surroundings, in each channel.

    Args:
        input: images of any dtype. Outside, they continue with the nearest edge element.
        window_size: width and height of the surroundings, odd numbers; one number for both.
    """
    width, height = for_each_axis("window_size", window_size, 2)
    if width % 2 == 0 or height % 2 == 0:
        raise ArgumentError(f"window_size must be odd numbers, not {list(window_size)}")
    out = call.empty(input.shape, input.dtype)
    if not input.size:
        return out
    shape = stacked_shape(call.layout, input.shape)
    by_opencv = width == height > 1 and (input.dtype == np.uint8 or (width <= 5 and input.dtype in (np.uint16, np.float32)))
    for pixels, target in zip(input.reshape(shape), out.reshape(shape), strict=True):
        if by_opencv and (pixels.ndim == 2 or pixels.shape[2] <= 4):
            target[...] = opencv().medianBlur(pixels, width).reshape(target.shape)
        else:
            _median(pixels, height, width, target)
    return out


def _median(pixels: Array, height: int, width: int, out: Array) -> None:
    edges = [(height // 2,) * 2, (width // 2,) * 2, *[(0, 0)] * (pixels.ndim - 2)]
    padded = np.pad(pixels, edges, "edge")
    for top, row in enumerate(out):
        windows = np.lib.stride_tricks.sliding_window_view(padded[top : top + height], (height, width), (0, 1))
        flat = windows.reshape(*row.shape, height * width)
        row[...] = np.partition(flat, height * width // 2, axis=-1)[..., height * width // 2]


# JPEG


@operator(layouts="HWC FHWC", strided=True, stacks=())
def jpeg_compression_distortion(call: OperatorCall, image: Array, *, quality: PerSample[int] = 50) -> Array:
    """Add the artifacts of JPEG compression to images.

    Args:
        image: uint8, RGB.
        quality: from 1 (worst) to 100 (best); values outside are clipped.
    """
    if image.dtype != np.uint8 or image.shape[-1] != 3:
        raise SampleError(f"images must be of dtype uint8 and have 3 channels, not {image.dtype} and {image.shape[-1]}")
    cv2 = opencv()
    options = [cv2.IMWRITE_JPEG_QUALITY, quality]
    out = call.empty(image.shape, image.dtype)
    frames = image.shape[-3:]
    for pixels, target in zip(image.reshape(-1, *frames), out.reshape(-1, *frames), strict=True):
        file = cv2.imencode(".jpg", cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR), options)[1]
        cv2.cvtColor(cv2.imdecode(file, cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB, dst=target)
    return out


# Erasing


@operator(layouts=IMAGES, strided=True, stacks=(), kernel="photometry.pixel_kernels.grid_mask", kernel_for_large=True)
def grid_mask(
    call: OperatorCall,
    image: Array,
    *,
    angle: PerSample[Annotated[float, FINITE]] = 0.0,
    ratio: PerSample[Annotated[float, FINITE]] = 0.5,
    shift_x: PerSample[Annotated[float, FINITE]] = 0.0,
    shift_y: PerSample[Annotated[float, FINITE]] = 0.0,
    tile: PerSample[Annotated[int, at_least(1)]] = 100,
) -> Array:
    """Set squares of a regular grid to zero, as in the augmentation "GridMask".

    Args:
        image: any dtype.
        angle: rotation of the grid about the upper left corner, in radians.
        ratio: side of the squares, as a fraction of `tile`.
        shift_x, shift_y: translation of the rotated grid, in pixels.
        tile: distance between the squares, from the beginning of one to the next, in pixels.
    """
    height, width = (image.shape[call.layout.index(letter)] for letter in "HW")
    pixel_bytes = image.itemsize * (image.shape[-1] if call.layout.endswith("C") else 1)
    kept = _kept_bytes(height, width, pixel_bytes, angle, ratio, shift_x, shift_y, tile)
    out = call.empty(image.shape, image.dtype)
    shape = (-1 if image.size else 0, *kept.shape)
    data = np.ascontiguousarray(image).reshape(-1).view(np.uint8)
    np.bitwise_and(data.reshape(shape), kept, out=out.reshape(-1).view(np.uint8).reshape(shape))
    return out


@functools.lru_cache(4)
def _kept_bytes(
    height: int, width: int, pixel_bytes: int, angle: float, ratio: float, shift_x: float, shift_y: float, tile: int
) -> NDArray[np.uint8]:
    """Return the bits of each row that `grid_mask` keeps. One operation then masks rows of any dtype."""
    y, x = np.ogrid[:height, :width]
    cos, sin, per_pixel = np.cos(np.float32(angle)), np.sin(np.float32(angle)), np.float32(1) / np.float32(tile)
    x, y = x.astype(np.float32), y.astype(np.float32)  # single precision, in the same order as DALI
    if sin:
        across, down = x * cos - y * sin, x * sin + y * cos
    else:
        across, down = x * cos, y * cos
    kept_pixels = ~(_is_inside(across, shift_x, per_pixel, ratio) & _is_inside(down, shift_y, per_pixel, ratio))
    kept = np.empty((height, width, pixel_bytes), np.uint8)
    kept[...] = -kept_pixels.view(np.int8)[:, :, np.newaxis]
    return kept.reshape(height, width * pixel_bytes)


def _is_inside(places: Array, shift: float, per_pixel: np.float32, ratio: float) -> Array:
    """Return whether places along an axis of the grid lie in its squares."""
    tiles = (places - np.float32(shift)) * per_pixel
    inside: Array = tiles - np.floor(tiles) < np.float32(ratio)
    return inside


def _check_erase(given: Mapping[str, Any]) -> None:
    if "normalized" in given and {"normalized_anchor", "normalized_shape"} & set(given):
        raise ArgumentClashError(
            "normalized is incompatible with providing a separate value for normalized_anchor and normalized_shape"
        )
    anchor, shape = given.get("anchor"), given.get("shape", ())
    if anchor is not None and "shape" not in given:
        raise ArgumentError("anchor is given without shape; pass shape= with the size of the regions")
    axes = given.get("axis_names", given.get("axes"))
    if axes is not None and not len(axes):
        raise ArgumentError("there must be at least one axis")
    if isinstance(shape, tuple) and (isinstance(anchor, tuple) or anchor is None):
        _check_region_counts(anchor or (0.0,) * len(shape), shape, 1 if axes is None else len(axes))


def _erased_layout(layout: str, given: Mapping[str, Any]) -> str:
    shape = given["shape"]
    if layout and shape and given["axes"] is None and given["axis_names"] is None:
        _check_region_counts(given["anchor"] or (0.0,) * len(shape), shape, len(layout.replace("C", "")))
    return layout_with_axes(layout, given)


def _check_region_counts(anchor: Sequence[float], shape: Sequence[float], axes: int) -> None:
    if len(anchor) != len(shape) or len(shape) % max(axes, 1):
        raise ArgumentError(
            f"anchor and shape must have {axes} numbers for each region, not {len(anchor)} and {len(shape)} in all"
        )


@operator(
    check=_check_erase,
    output_layout=_erased_layout,
    strided=True,
    stacks=(),
    kernel="photometry.pixel_kernels.erase",
    kernel_for_large=True,
    kernel_for_stacks=False,
)
def erase(
    call: OperatorCall,
    data: Array,
    *,
    anchor: PerSample[Annotated[Floats, FINITE]] = (),
    shape: PerSample[Annotated[Floats, FINITE]] = (),
    fill_value: PerSample[Floats] = (0.0,),
    axes: Ints | None = None,
    axis_names: SavedText | None = None,
    normalized: bool = False,
    normalized_anchor: bool = False,
    normalized_shape: bool = False,
    centered_anchor: bool = False,
) -> Array:
    """Fill regions with a value.

    Args:
        data: any dtype and layout.
        anchor: start of each region, such as (y, x, y, x, ...). Default: 0.
        shape: size of each region, in the same order. Regions may extend beyond the data.
        fill_value: one value, or one for each channel.
        axes: axes of the numbers in `anchor` and `shape`. Default: all but the channels.
        axis_names: the same as letters of the layout, such as "HW"; takes precedence over `axes`.
        normalized: whether `anchor` and `shape` are fractions of the extents, from 0 to 1.
        normalized_anchor: the same for `anchor` alone.
        normalized_shape: the same for `shape` alone.
        centered_anchor: whether `anchor` is the center of the regions.
    """
    lead, ndim, layout = call.lead, data.ndim - call.lead, call.layout[call.lead :]
    numbers: Sequence[int] = [axis for axis in range(ndim) if layout[axis : axis + 1] != "C"]
    if axes is not None or axis_names is not None:
        numbers = axes_of(layout, axes, axis_names, ndim)
    numbers = [axis + lead for axis in numbers]
    fill = _filling(fill_value or (0.0,), data, call.layout)
    scaled = (normalized or normalized_anchor, normalized or normalized_shape)
    regions = _regions(anchor, shape, tuple(numbers), data.shape, scaled, centered_anchor)
    out = call.empty(data.shape, data.dtype)
    out[...] = data
    for region in regions:
        out[region] = fill[region] if fill.ndim else fill
    return out


def _filling(values: Sequence[float], data: Array, layout: str) -> Array:
    """Return the fill values, broadcast to the shape of the data; a single one without dimensions."""
    filling = fill_numbers(values, data.dtype)
    if filling.size != 1:
        channels = data.shape[layout.index("C")] if "C" in layout else 0
        if filling.size != channels:
            raise ArgumentError(f"fill_value has {filling.size} values, but the input has {channels} channels")
        return np.broadcast_to(filling.reshape([-1 if letter == "C" else 1 for letter in layout]), data.shape)
    return filling.reshape(())


@functools.lru_cache(256)
def _regions(
    anchor: tuple[float, ...] | None,
    shape: tuple[float, ...],
    axes: tuple[int, ...],
    extents: tuple[int, ...],
    scaled: tuple[bool, bool],
    centered: bool,
) -> Sequence[tuple[slice, ...]]:
    """Return the index of each region. Positions are computed in single precision and truncated, as in DALI."""
    anchor = anchor or (0.0,) * len(shape)
    _check_region_counts(anchor, shape, len(axes))
    regions = []
    for first in range(0, len(shape), max(len(axes), 1)):
        region = [slice(None)] * len(extents)
        for i, axis in enumerate(axes, first):
            extent = np.float32(extents[axis])
            begin, size = np.float32(anchor[i]), np.float32(shape[i])
            begin, size = begin * extent if scaled[0] else begin, size * extent if scaled[1] else size
            if centered:
                begin -= size / np.float32(2)
            region[axis] = slice(max(int(begin), 0), max(int(begin + size), 0))
        regions.append(tuple(region))
    return regions
