"""Windows of arrays: where they lie, and what becomes of what they hold outside of the array."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np

from dali_like.errors import ArgumentError, AxisError, SampleError
from dali_like.graph.operator_interface import Array, OperatorCall
from dali_like.operators.parameters import SOME, Floats, at_least, between, count

#: What becomes of a window that does not lie within the array.
Policy: TypeAlias = Literal["error", "pad", "trim_to_shape"]
#: How positions between pixels are made whole.
Rounding: TypeAlias = Literal["round", "truncate"]
#: The sizes of a window, in the order of the axes, and that of one axis; 0 for all of it.
Sides: TypeAlias = Annotated[Floats, count(2, 3), at_least(0)]
Side: TypeAlias = Annotated[float, at_least(0)]
#: Where a window lies in an axis, from its beginning to its end.
Position: TypeAlias = Annotated[float, between(0, 1)]
#: What is there where an image is not: one for all channels, or one for each.
Filling: TypeAlias = Annotated[Floats, SOME]


def round_half_up(value: float) -> int:
    """The nearest integer; of two, the one further from zero."""
    return int(math.copysign(math.floor(abs(value) + 0.5), value))


def in_single(part: float, extent: int, rounding: Rounding) -> int:
    """A part of an extent as an integer; the product is in single precision, as in DALI."""
    value = float(np.float32(part) * np.float32(extent))
    return round_half_up(value) if rounding == "round" else math.trunc(value)


def cut(
    call: OperatorCall,
    array: Array,
    start: Sequence[int],
    shape: Sequence[int],
    policy: Policy = "error",
    fill_values: Sequence[float] = (0.0,),
    dtype: np.dtype[Any] | None = None,
) -> Array:
    """The window of an array from `start` on.

    Args:
        policy: what becomes of what lies outside: "error", "pad" with the fill values, or "trim_to_shape".
        fill_values: one for all, or one for each channel (of a layout that has "C").
        dtype: of the result. Default: that of the array.
    """
    there, extents, place = overlap(array, start, shape, policy)
    if there.shape == extents and dtype in (None, array.dtype):
        return call.part(there)
    out = call.empty(extents, array.dtype if dtype is None else dtype)
    if there.shape != extents:
        fill(out, fill_values, call.layout)
    if there.size:
        store(there, out[place])
    return out


def overlap(
    array: Array, start: Sequence[int], shape: Sequence[int], policy: Policy
) -> tuple[Array, tuple[int, ...], tuple[slice, ...]]:
    """What a window holds of an array, the shape of the window, and where in it that lies; see `cut`.

    Raises:
        SampleError: the window does not lie within the array, and the policy is "error".
    """
    stop = [begin + extent for begin, extent in zip(start, shape, strict=True)]
    inside = all(begin >= 0 and end <= extent for begin, end, extent in zip(start, stop, array.shape, strict=True))
    if not inside and policy == "error":
        raise SampleError(
            f"the window from {tuple(start)} to {tuple(stop)} does not lie within the input, which has the shape "
            f'{array.shape}; out_of_bounds_policy="pad" or "trim_to_shape" allows that'
        )
    begins = [min(max(begin, 0), extent) for begin, extent in zip(start, array.shape, strict=True)]
    ends = [min(max(end, begin), extent) for end, begin, extent in zip(stop, begins, array.shape, strict=True)]
    there = array[tuple(map(slice, begins, ends))]
    if inside or policy == "trim_to_shape":
        return there, there.shape, (slice(None),) * array.ndim
    place = [slice(begin - first, end - first) for begin, end, first in zip(begins, ends, start, strict=True)]
    return there, tuple(shape), tuple(place)


def fill(out: Array, values: Sequence[float], layout: str) -> None:
    """Fill an array with one value, or one for each channel."""
    filling = np.asarray(values)
    if filling.size == 1:
        filling = filling.reshape(())
    else:
        channels = out.shape[layout.index("C")] if "C" in layout else 0
        if filling.size != channels:
            raise ArgumentError(f"there are {filling.size} fill values for {channels} channels")
        filling = filling.reshape([-1 if letter == "C" else 1 for letter in layout])
    store(np.broadcast_to(filling, out.shape), out, truncate=True)


def store(values: Array, out: Array, *, truncate: bool = False) -> None:
    """Write values into an array, limited as its dtype demands, and rounded or truncated."""
    if values.dtype != out.dtype and out.dtype.kind in "iu":
        limits = np.iinfo(out.dtype)
        if values.dtype.kind == "f":
            values = np.trunc(values) if truncate else np.rint(values)
        if not np.can_cast(values.dtype, out.dtype):
            values = np.clip(values, limits.min, limits.max)
    np.copyto(out, values, casting="unsafe")


def axes_of(layout: str, axes: Sequence[int] | None, axis_names: str | None, ndim: int) -> list[int]:
    """The axes that an operator works on, given by numbers or by names; all of them if there are none.

    Raises:
        AxisError: there is no such axis.
    """
    if axis_names:
        if not set(axis_names) <= set(layout):
            raise AxisError(f"axis_names={axis_names!r} are not all in the layout {layout!r} of the input")
        return [layout.index(letter) for letter in axis_names]
    if not axes:
        return list(range(ndim))
    if any(not -ndim <= axis < ndim for axis in axes):
        raise AxisError(f"axes={list(axes)}: the input has {ndim} dimensions")
    return [axis % ndim for axis in axes]


def layout_with_axes(layout: str, given: Mapping[str, Any]) -> str:
    """The same layout, if it has the axes that the arguments name: the ``output_layout`` of operators on some axes.

    Raises:
        ArgumentError: it has not.
    """
    if layout:
        axes_of(layout, given["axes"], given["axis_names"], len(layout))
    return layout
