"""Operators that filter images and volumes with windows of weights, as in ``nvidia.dali.fn``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np

from dali_like.errors import ArgumentError, SampleError
from dali_like.graph.operator_interface import Array, OperatorCall
from dali_like.operators._convolving import CORRELATED, SpatialAxes, correlate, spatial_axes
from dali_like.operators.axes import for_each_axis
from dali_like.operators.conversion import convert
from dali_like.operators.description import operator
from dali_like.operators.parameters import Ints, PerFrame, at_least

_Border: TypeAlias = Literal["reflect_101", "reflect_1001", "wrap", "clamp", "constant"]
#: Borders as `numpy.pad` calls them.
_PADDING: dict[_Border, Any] = {
    "reflect_101": "reflect",
    "reflect_1001": "symmetric",
    "wrap": "wrap",
    "clamp": "edge",
    "constant": "constant",
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
    shape = list(data.shape)
    if mode == "valid":
        first = data.ndim - axes.ndim - (axes.channels > 0)
        positions = [extent - size + 1 for extent, size in zip(data.shape[first:], filter.shape, strict=False)]
        shape[first : first + axes.ndim] = positions
        if min(positions) < 1:
            raise SampleError(f"the filter of shape {filter.shape} is larger than the data of shape {data.shape}")
    out = call.empty(tuple(shape), result)
    if not out.size:
        return out
    stack = data.reshape((*axes.split(data.shape, 3), 1)[:5])
    window = filter.reshape(-1, *filter.shape[-2:])
    if mode == "same":
        inside = [(0, 0)] * (4 - axes.ndim)
        widths = [(anchor, size - anchor - 1) for anchor, size in zip(anchors, filter.shape, strict=True)]
        fill = {} if fill_value is None or border != "constant" else {"constant_values": fill_value}
        stack = np.pad(stack, [*inside, *widths, (0, 0)], _PADDING[border], **fill)
    if stack.dtype not in CORRELATED:
        stack = stack.astype(np.float32)
    exact = result if len(window) == 1 and result in (stack.dtype, np.float32) else np.dtype(np.float32)
    convert(correlate(stack, window, exact), result, out.reshape((*axes.split(out.shape, 3), 1)[:5]))
    return out


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
