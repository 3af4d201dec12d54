"""Operators that filter images and volumes with windows of weights, as in ``nvidia.dali.fn``."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dali_like.errors import ArgumentClashError, ArgumentError, SampleError
from dali_like.graph.language.operator_interface import Array, OperatorCall
from dali_like.operators.machinery.axes import for_each_axis
from dali_like.operators.machinery.conversion import convert
from dali_like.operators.machinery.description import operator
from dali_like.operators.parameters import Floats, Ints, PerFrame, at_least, between, count
from dali_like.operators.photometry._convolving import (
    CORRELATED,
    SpatialAxes,
    convolve,
    convolve_volume,
    correlate,
    correlate_images,
    spatial_axes,
)

_Border: TypeAlias = Literal["reflect_101", "reflect_1001", "wrap", "clamp", "constant"]
#: For more elements, indexing takes longer than `numpy.pad`, whose own steps take 60 us.
_FEW_ELEMENTS = 1 << 15
#: Borders as `numpy.pad` calls them.
_PADDING: dict[_Border, Any] = {
    "reflect_101": "reflect",
    "reflect_1001": "symmetric",
    "wrap": "wrap",
    "clamp": "edge",
    "constant": "constant",
}
#: Borders of images that OpenCV adds itself.
_BORDERS: dict[_Border, str] = {
    "reflect_101": "BORDER_REFLECT_101",
    "reflect_1001": "BORDER_REFLECT",
    "clamp": "BORDER_REPLICATE",
}


@operator(module="experimental", name="filter", strided=True)
def filter_data(
    call: OperatorCall,
    data: Array,
    filter: Array,
    fill_value: Array | None = None,
    /,
    *,
    anchor: PerFrame[Annotated[Ints, at_least(-1)]] = (-1,),
    border: _Border = "reflect_101",
    dtype: np.dtype[Any] | None = None,
    mode: Literal["same", "valid"] = "same",
) -> Array:
    """Filter images and volumes with a window of weights.

    Each element of the result is the sum of the elements below the window, times their weights. This is a correlation: the
    window is not flipped. All axes except "F" and "C" are filtered. Channels must come first or last, frames first. Sums are
    computed in single precision; integers are rounded and saturate.

    Args:
        data: images, videos and volumes of any dtype.
        filter: the weights, FLOAT or FLOAT64: (height, width), or (depth, height, width) for volumes.
        fill_value: value outside the data for ``border="constant"``: a scalar of the dtype of the data. Default: 0.
        anchor: element of the window that lies on the element to compute: one number for all axes, or one for each; -1: the
            middle.
        border: values outside the data: "reflect_101" (mirrored, without the outermost elements), "reflect_1001" (mirrored),
            "wrap" (periodic), "clamp" (the nearest element), or "constant".
        dtype: FLOAT, or the type of the data, which is the default.
        mode: "same": the result has the shape of the data. "valid": the window stays inside the data, and the result is
            smaller.
    """
    result = data.dtype if dtype is None else dtype
    if result not in (data.dtype, np.float32):
        raise ArgumentError(f"dtype must be FLOAT or that of the input, {data.dtype}, not {result}")
    axes = spatial_axes(call.layout, data.shape)
    _check_inputs(axes, data, filter, fill_value)
    anchors = _anchors(anchor, filter.shape)
    out = call.empty(data.shape if mode == "same" else _shape_inside(axes, data.shape, filter.shape), result)
    if not out.size:
        return out
    window = filter.reshape(-1, *filter.shape[-2:])
    stack = _as_volumes(axes, data)
    is_plain = axes.ndim == 2 and mode == "same" and border in _BORDERS and data.dtype in CORRELATED
    if is_plain and (result == data.dtype or data.dtype != np.float64):
        correlate_images(stack[:, 0], filter, anchors, _BORDERS[border], _as_volumes(axes, out)[:, 0])
        return out
    if mode == "same":
        widths = [(at, size - at - 1) for at, size in zip(anchors, filter.shape, strict=True)]
        stack = _extended(stack, [*[(0, 0)] * (4 - axes.ndim), *widths, (0, 0)], border, fill_value)
    if stack.dtype not in CORRELATED:
        stack = stack.astype(np.float32)
    is_exact = len(window) == 1 and result == stack.dtype
    sums = correlate(stack, window, result if is_exact else np.dtype(np.float32))
    convert(sums, result, _as_volumes(axes, out))
    return out


def _extended(stack: Array, widths: Sequence[tuple[int, int]], border: _Border, fill_value: Array | None) -> Array:
    """Return the data with a border."""
    if border == "constant" or stack.size > _FEW_ELEMENTS:
        fill: dict[str, Any] = {"constant_values": fill_value} if border == "constant" and fill_value is not None else {}
        return np.pad(stack, widths, _PADDING[border], **fill)
    for axis, (before, behind) in enumerate(widths):
        if before or behind:
            stack = stack.take(_places(stack.shape[axis], before, behind, _PADDING[border]), axis)
    return stack


@functools.lru_cache(256)
def _places(extent: int, before: int, behind: int, mode: Any) -> NDArray[np.intp]:
    """Return which element each place along an axis has, if it has a border. The place of elements is their number."""
    return np.pad(np.arange(extent), (before, behind), mode)


def _as_volumes(axes: SpatialAxes, data: Array) -> Array:
    """Return the data with the axes (stacked volumes, depth, height, width, channels)."""
    return data.reshape((*axes.split(data.shape, 3), 1)[:5])


def _shape_inside(axes: SpatialAxes, shape: tuple[int, ...], window: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of the positions of a window inside the data."""
    first = len(shape) - axes.ndim - (axes.channels > 0)
    positions = [extent - size + 1 for extent, size in zip(shape[first:], window, strict=False)]
    if min(positions) < 1:
        raise SampleError(f"the filter of shape {window} is larger than the data of shape {shape}")
    return (*shape[:first], *positions, *shape[first + axes.ndim :])


def _check_inputs(axes: SpatialAxes, data: Array, filter: Array, fill_value: Array | None) -> None:
    if axes.ndim < 2:
        raise SampleError("the data must have two or three axes to filter, not 1; add one with fn.expand_dims")
    if filter.dtype not in (np.float32, np.float64) or filter.ndim != axes.ndim or not filter.size:
        raise SampleError(
            f"the filter must be an array of FLOAT or FLOAT64 with as many dimensions as the data has axes to filter, "
            f"{axes.ndim}, not {filter.dtype} of shape {filter.shape}"
        )
    if fill_value is not None and (fill_value.ndim or fill_value.dtype != data.dtype):
        raise SampleError(
            f"fill_value must be a scalar of the dtype of the data, {data.dtype}, not {fill_value.dtype} of shape "
            f"{fill_value.shape}"
        )


def _anchors(anchor: Ints, shape: Sequence[int]) -> Sequence[int]:
    """Return the anchor in each axis of a filter."""
    anchors = for_each_axis("anchor", anchor, len(shape))
    if any(number >= size for number, size in zip(anchors, shape, strict=True)):
        raise SampleError(f"anchor must lie within the filter of shape {tuple(shape)}, not at {list(anchors)}")
    return [size // 2 if number < 0 else number for number, size in zip(anchors, shape, strict=True)]


# Laplacian

_Sizes: TypeAlias = Annotated[Ints, count(1, 2, 3), between(1, 31)]


def _check_laplacian(given: Mapping[str, Any]) -> None:
    if given.get("normalized_kernel") and "scale" in given:
        raise ArgumentClashError("scale and normalized_kernel=True exclude each other")
    for name, least in (("window_size", 3), ("smoothing_size", 1)):
        if isinstance(given.get(name), tuple):
            _check_sizes(name, given[name], least)


def _check_sizes(name: str, sizes: Ints, least: int) -> None:
    if any(size < least or size % 2 == 0 for size in sizes):
        raise ArgumentError(f"{name} must be odd numbers from {least} to 31, not {list(sizes)}")


@operator(check=_check_laplacian, strided=True)
def laplacian(
    call: OperatorCall,
    data: Array,
    *,
    dtype: np.dtype[Any] | None = None,
    normalized_kernel: bool = False,
    scale: PerFrame[Annotated[Floats, count(1, 2, 3)]] = (1.0,),
    smoothing_size: PerFrame[_Sizes] | None = None,
    window_size: PerFrame[_Sizes] = (3,),
) -> Array:
    """Compute the Laplacian of images, volumes and signals: the sum of the second derivatives along their axes.

    A derivative is a convolution with a derivative window along its axis, and with smoothing windows along the others. All
    axes except "F" and "C" count. Channels must come first or last, frames first. Values are mirrored at the edges. Sums are
    computed in single precision; integers are rounded and saturate.

    Args:
        data: any dtype.
        dtype: FLOAT, or the type of the data, which is the default.
        normalized_kernel: whether to scale each derivative by ``2 ** (n + 2 - s)``, with n axes and the sum s of the lengths
            of its windows.
        scale: factor for each derivative: one for all axes, or one for each.
        smoothing_size: lengths of the smoothing windows, odd numbers: one for all axes, or one for each; 1: not smoothed.
            Default: for each derivative, the length of its derivative window.
        window_size: lengths of the derivative windows, odd numbers from 3 on: one for all axes, or one for each.
    """
    result = data.dtype if dtype is None else dtype
    if result not in (data.dtype, np.float32):
        raise ArgumentError(f"dtype must be FLOAT or that of the input, {data.dtype}, not {result}")
    axes = spatial_axes(call.layout, data.shape)
    partials = _derivatives(axes.ndim, window_size, smoothing_size, None if normalized_kernel else scale)
    out = call.empty(data.shape, result)
    if not data.size:
        return out
    source = data if data.dtype in (np.uint8, np.float32) else data.astype(np.float32)
    filtered = convolve_volume if axes.ndim == 3 else _convolved
    shape = axes.split(data.shape, 2)
    for pixels, target in zip(source.reshape(shape), out.reshape(shape), strict=True):
        total = np.zeros(pixels.shape, np.float32)
        for factor, windows in partials:
            total += factor * filtered(pixels, windows)
        convert(total, result, target)
    return out


def _convolved(pixels: Array, windows: Sequence[Array]) -> Array:
    return convolve(pixels, windows, np.empty(pixels.shape, np.float32))


def _derivatives(
    ndim: int, window_size: Ints, smoothing_size: Ints | None, scale: Floats | None
) -> list[tuple[np.float32, list[Array]]]:
    """Return the factor and the windows of the derivative along each axis.

    Args:
        scale: None: normalized.
    """
    _check_sizes("window_size", window_size, 3)
    _check_sizes("smoothing_size", smoothing_size or (1,), 1)
    sizes = for_each_axis("window_size", window_size, ndim)
    partials = []
    for axis, size in enumerate(sizes):
        lengths = [*for_each_axis("smoothing_size", smoothing_size or (size,), ndim)]
        lengths[axis] = size
        windows = [_binomial(length) for length in lengths]
        windows[axis] = np.convolve(_binomial(size - 2), np.array([1, -2, 1], np.float32))
        factor = 2.0 ** (ndim + 2 - sum(lengths)) if scale is None else for_each_axis("scale", scale, ndim)[axis]
        partials.append((np.float32(factor), windows))
    return partials


@functools.lru_cache(32)
def _binomial(length: int) -> Array:
    """Return the binomial coefficients, a window that smooths."""
    return np.array([math.comb(length - 1, i) for i in range(length)], np.float32)
