"""Windows of arrays: compute their position, cut them out, and fill the parts that lie outside the array.

Operators give a window in three ways: as size and relative position (`cut`), as start and end (`check_slice`,
`slice_window`), or as random area and aspect ratio (`random_window`).
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from dali_like.common.saved_arguments import SavedText
from dali_like.errors import ArgumentClashError, ArgumentError, SampleError
from dali_like.graph.language.operator_interface import Array, OperatorCall
from dali_like.operators.machinery.axes import for_each_axis
from dali_like.operators.machinery.conversion import convert
from dali_like.operators.parameters import ASCENDING, DISTINCT, FINITE, SOME, Floats, Ints, above, at_least, between, count

#: Treatment of a window that reaches beyond the array.
Policy: TypeAlias = Literal["error", "pad", "constant", "trim_to_shape"]
#: The same for operators that can also continue the array.
BorderPolicy: TypeAlias = Literal[
    "error", "pad", "constant", "trim_to_shape", "reflect_101", "reflect", "reflect_1001", "wrap", "clamp", "edge"
]
#: Rounding of positions between pixels.
Rounding: TypeAlias = Literal["round", "truncate"]
#: Size of a window in all axes, in their order, or in one axis; 0: the whole axis.
Sides: TypeAlias = Annotated[Floats, count(2, 3), at_least(0)]
Side: TypeAlias = Annotated[float, at_least(0)]
#: Position of a window in an axis, from 0 (first) to 1 (last).
Position: TypeAlias = Annotated[float, between(0, 1)]
#: Fill value outside the image: one for all channels, or one for each.
Filling: TypeAlias = Annotated[Floats, SOME]
#: Axes to cut, as numbers or as letters.
Axes: TypeAlias = Annotated[Ints, DISTINCT]
AxisNames: TypeAlias = Annotated[SavedText, DISTINCT]
#: Start or end of a window, as fractions of the extents.
Parts: TypeAlias = Annotated[Floats, FINITE]
#: Size of a window, in elements or as fractions of the extents.
Extents: TypeAlias = Annotated[Ints, at_least(0)]
RelativeExtents: TypeAlias = Annotated[Floats, at_least(0)]

STARTS = ("start", "rel_start")
ENDS = ("end", "rel_end", "shape", "rel_shape")
#: Minimum and maximum of a positive quantity; one number for both.
Range: TypeAlias = Annotated[Floats, count(1, 2), above(0), ASCENDING]
Attempts: TypeAlias = Annotated[int, at_least(1)]


def round_half_up(value: float) -> int:
    """Round to the nearest integer, halves away from zero."""
    return int(math.copysign(math.floor(abs(value) + 0.5), value))


def in_single(part: float, extent: int, rounding: Rounding) -> int:
    """Return ``part * extent`` as an integer; the product is in single precision, as in DALI."""
    value = float(np.float32(part) * np.float32(extent))
    return round_half_up(value) if rounding == "round" else math.trunc(value)


def cut(
    call: OperatorCall,
    array: Array,
    start: Sequence[int],
    shape: Sequence[int],
    policy: BorderPolicy = "error",
    fill_values: Sequence[float] = (0.0,),
    dtype: np.dtype[Any] | None = None,
) -> Array:
    """Return the window of an array that begins at `start`.

    Args:
        policy: treatment of parts outside the array: "error", "pad" or "constant" (the fill values), "trim_to_shape", or a
            name of `continued`.
        fill_values: one for all channels, or one for each (of a layout that has "C").
        dtype: data type of the result, for `_store`. Default: that of the array.
    """
    if policy in _PLACES:
        return _stored(call, continued(array, start, shape, policy), dtype)
    part, extents, place = overlap(array, start, shape, policy)
    if part.shape == extents and (dtype is None or dtype == array.dtype):  # NumPy: float64 == None
        return call.part(part)
    out = call.empty(extents, array.dtype if dtype is None else dtype)
    if part.shape != extents:
        fill(out, fill_values, call.layout)
    if part.size:
        _store(part, out[place])
    return out


def _stored(call: OperatorCall, values: Array, dtype: np.dtype[Any] | None) -> Array:
    if dtype is None or dtype == values.dtype:
        return call.part(values)
    out = call.empty(values.shape, dtype)
    if values.size:
        _store(values, out)
    return out


def _mirrored(places: Array, extent: int) -> Array:
    """Reflect places at the centers of the outer elements, which appear once."""
    places = places % max(2 * (extent - 1), 1)
    mirrored: Array = np.minimum(places, 2 * (extent - 1) - places)
    return mirrored


def _mirrored_at_edges(places: Array, extent: int) -> Array:
    places = places % (2 * extent)
    mirrored: Array = np.minimum(places, 2 * extent - 1 - places)
    return mirrored


def _clamped(places: Array, extent: int) -> Array:
    return np.clip(places, 0, extent - 1)


#: For each policy that continues an array: which element is at a place outside.
_PLACES: Mapping[str, Callable[[Array, int], Array]] = {
    "reflect_101": _mirrored,
    "reflect": _mirrored_at_edges,
    "reflect_1001": _mirrored_at_edges,
    "wrap": np.remainder,
    "clamp": _clamped,
    "edge": _clamped,
}


def continued(array: Array, start: Sequence[int], shape: Sequence[int], policy: str) -> Array:
    """Return a window of an array that is continued beyond its borders in each axis.

    Args:
        policy: for the elements 1 2 3: "reflect_101" is 3 2 | 1 2 3 | 2 1; "reflect" and "reflect_1001" are
            2 1 | 1 2 3 | 3 2; "wrap" is 2 3 | 1 2 3 | 1 2; "clamp" and "edge" are 1 1 | 1 2 3 | 3 3.

    Raises:
        SampleError: the array has no elements that could be repeated.
    """
    for axis, (first, size) in enumerate(zip(start, shape, strict=True)):
        extent = array.shape[axis]
        if first >= 0 and first + size <= extent:
            array = array[(slice(None),) * axis + (slice(first, first + size),)]
        elif size and not extent:
            raise SampleError(f'the input has extent 0 in axis {axis}, so out_of_bounds_policy="{policy}" repeats nothing')
        else:
            array = array.take(_PLACES[policy](np.arange(first, first + size), extent), axis)
    return array


def overlap(
    array: Array, start: Sequence[int], shape: Sequence[int], policy: BorderPolicy
) -> tuple[Array, tuple[int, ...], tuple[slice, ...]]:
    """Return the overlap of array and window, the shape of the result, and the place of the overlap in it; see `cut`.

    Raises:
        SampleError: the window reaches beyond the array, and the policy is "error".
    """
    stop = [*map(operator.add, start, shape)]
    inside = min(start, default=0) >= 0 and all(map(operator.le, stop, array.shape))
    if not inside and policy == "error":
        raise SampleError(
            f"the window from {tuple(start)} to {tuple(stop)} is not inside the input of shape {array.shape}; "
            'pass out_of_bounds_policy="pad" or "trim_to_shape" to allow it'
        )
    if inside:
        part = array[tuple(map(slice, start, stop))]
        return part, part.shape, (slice(None),) * array.ndim
    begins = [min(max(begin, 0), extent) for begin, extent in zip(start, array.shape, strict=True)]
    ends = [min(max(end, begin), extent) for end, begin, extent in zip(stop, begins, array.shape, strict=True)]
    part = array[tuple(map(slice, begins, ends))]
    if policy == "trim_to_shape":
        return part, part.shape, (slice(None),) * array.ndim
    place = [slice(begin - first, end - first) for begin, end, first in zip(begins, ends, start, strict=True)]
    return part, tuple(shape), tuple(place)


def fill(out: Array, values: Sequence[float], layout: str) -> None:
    """Fill an array with one value, or one for each channel. As in C, integers are truncated and wrap around."""
    filling = _filling(tuple(values), tuple(map(repr, values)), out.dtype)
    if filling.size == 1:
        filling = filling.reshape(())
    else:
        channels = out.shape[layout.index("C")] if "C" in layout else 0
        if filling.size != channels:
            raise ArgumentError(f"fill_values has {filling.size} values for {channels} channels; pass one, or one each")
        filling = filling.reshape([-1 if letter == "C" else 1 for letter in layout])
    out[...] = filling


@functools.lru_cache(256)
def _filling(values: tuple[float, ...], texts: tuple[str, ...], dtype: np.dtype[Any]) -> Array:
    """Return fill values as elements of an array.

    Args:
        texts: of the values: equal numbers, such as 1 and 1.0, or 0.0 and -0.0, may be converted in several ways.
    """
    filling = np.asarray(values)
    if filling.dtype.kind == "f":
        filling = filling.astype(np.float32)
    if dtype.kind in "iu":
        filling = convert(np.trunc(filling), np.dtype(np.int64)).astype(dtype)
    converted: Array = convert(filling, dtype)
    converted.flags.writeable = False
    return converted


def _store(values: Array, out: Array) -> None:
    """Write values into an array; numbers beyond its range saturate, and fractions of integers are cut off.

    The operators for windows do so in DALI, unlike others, which round; see `convert`.
    """
    if values.dtype.kind == "f" and out.dtype.kind in "iu":
        values = np.trunc(values)  # `convert` finds nothing left to round
    elif values.dtype != out.dtype and out.dtype in (np.float16, np.float32):
        limits = np.finfo(out.dtype)
        if out.dtype == np.float16 or values.dtype == np.float64:
            values = np.clip(values, float(limits.min), float(limits.max))
    convert(values, out.dtype, out)


# Windows given by start and end


def check_slice(given: Mapping[str, Any]) -> None:
    """Check the arguments that select a window.

    Raises:
        ArgumentError: they contradict each other, or select a window outside of any array.
    """
    for names in (STARTS, ENDS):
        if len(both := [name for name in names if name in given]) > 1:
            raise ArgumentClashError(f"{' and '.join(both)} exclude each other")
    if ("anchor" in given) != ("shape_input" in given):
        raise ArgumentError("pass the inputs anchor and shape together, or use arguments such as start and end")
    if "anchor" in given and {*STARTS, *ENDS} & set(given):
        raise ArgumentClashError("the inputs anchor and shape exclude start, end, shape and so on")
    constants = {name: given[name] for name in (*STARTS, *ENDS) if isinstance(given.get(name), tuple)}
    axes = given.get("axis_names", given.get("axes", (1, 0)))
    if isinstance(axes, (tuple, str)):
        for name, values in constants.items():
            for_each_axis(name, values, len(axes) or len(values))
    if given.get("out_of_bounds_policy", "error") == "error":
        for name, values in constants.items():
            _check_inside(name, values)
    for first, last in (("start", "end"), ("rel_start", "rel_end")):
        pairs = zip(constants.get(first, ()), constants.get(last, ()), strict=False)
        if wrong := [pair for pair in pairs if pair[0] - pair[1] > 1e-6]:
            raise ArgumentClashError(
                f"{first}={wrong[0][0]} is greater than {last}={wrong[0][1]}; a window must not end before it begins"
            )


def _check_inside(name: str, values: Sequence[float]) -> None:
    """Reject positions outside of an array of any extent."""
    most = 1.5 if name.startswith("rel_") else float("inf")  # positions are rounded
    if wrong := [value for value in values if value <= -0.5 or value >= most]:
        raise ArgumentError(
            f'{name} has {wrong[0]}, outside of any input; pass out_of_bounds_policy="pad" or "trim_to_shape" to allow it'
        )


def slice_window(
    extents: Sequence[int],
    anchor: Array | None,
    shape: Array | None,
    normalized: tuple[bool, bool],
    named: Mapping[str, Any],
) -> list[tuple[int, int]]:
    """Return (start, end) of the window for each sliced axis.

    Args:
        extents: lengths of those axes.
        anchor, shape: the inputs of these names.
        normalized: whether floating-point `anchor` and `shape` are fractions of the extents.
        named: the other arguments, with one number for all axes or one for each; None or empty: not given.
    """
    if anchor is not None and shape is not None:
        if anchor.dtype != shape.dtype:
            raise SampleError(f"anchor and shape must have the same dtype, not {anchor.dtype} and {shape.dtype}")
        relative = [flag and anchor.dtype.kind == "f" for flag in normalized]
        named = {
            "rel_start" if relative[0] else "start": tuple(anchor.ravel().tolist()),
            "rel_shape" if relative[1] else "shape": tuple(shape.ravel().tolist()),
        }
    given = {name: for_each_axis(name, values, len(extents)) for name, values in named.items() if values}
    return [_span(extent, {name: values[i] for name, values in given.items()}) for i, extent in enumerate(extents)]


def _span(extent: int, named: Mapping[str, float | None]) -> tuple[int, int]:
    """Return start and end of the window in one axis."""
    start, rel_start = named.get("start"), named.get("rel_start")
    begin = float(start) if start is not None else rel_start * extent if rel_start is not None else 0.0
    stop, rel_stop, size, rel_size = (named.get(name) for name in ENDS)
    if stop is not None:
        end = float(stop)
    elif rel_stop is not None:
        end = rel_stop * extent
    elif size is not None:
        end = begin + size
    else:
        end = begin + rel_size * extent if rel_size is not None else float(extent)
    first, last = round_half_up(begin), round_half_up(end)
    if last < first:
        raise SampleError(f"the window begins at {first} and ends before that, at {last}")
    return first, last


# Random windows


class PixelWindow(NamedTuple):
    """A part of an image, in pixels."""

    top: int
    left: int
    height: int
    width: int


def random_window(
    rng: np.random.Generator,
    height: int,
    width: int,
    areas: Sequence[float],
    ratios: Sequence[float],
    num_attempts: int,
) -> PixelWindow:
    """Draw a window of random area and aspect ratio at a random position.

    Follows the augmentation used to train Inception.

    Args:
        areas: minimum and maximum area, as fractions of the image, distributed uniformly.
        ratios: minimum and maximum of width / height; its logarithm is distributed uniformly.
        num_attempts: number of draws. If no window fits, the result is the largest one of the nearest aspect ratio.
    """
    least, most = math.log(ratios[0]), math.log(ratios[-1])
    random = rng.random  # `rng.uniform` takes four times as long
    for _ in range(num_attempts):
        area = height * width * (areas[0] + (areas[-1] - areas[0]) * random())
        ratio = math.exp(least + (most - least) * random())
        across, down = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < across <= width and 0 < down <= height:
            break
    else:
        across, down = width, height
        if width > ratios[-1] * height:
            across = max(round(ratios[-1] * height), 1)
        elif width < ratios[0] * height:
            down = max(round(width / ratios[0]), 1)
        shrink = math.sqrt(min(areas[-1] * height * width / (across * down), 1))
        across, down = max(round(across * shrink), 1), max(round(down * shrink), 1)
    top, left = int(rng.integers(height - down + 1)), int(rng.integers(width - across + 1))
    return PixelWindow(top, left, down, across)
