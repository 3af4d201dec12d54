"""Windows of arrays: where they lie, and what becomes of what they hold outside of the array."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from dali_like.errors import ArgumentClashError, ArgumentError, SampleError
from dali_like.graph.operator_interface import Array, OperatorCall
from dali_like.operators.axes import for_each_axis
from dali_like.operators.parameters import ASCENDING, DISTINCT, FINITE, SOME, Floats, Ints, above, at_least, between, count

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
#: The axes that are cut: by numbers, and by letters.
Axes: TypeAlias = Annotated[Ints, DISTINCT]
AxisNames: TypeAlias = Annotated[str, DISTINCT]
#: Where windows begin or end, in parts of the extents.
Parts: TypeAlias = Annotated[Floats, FINITE]
#: How large they are, in elements, and in parts of the extents.
Extents: TypeAlias = Annotated[Ints, at_least(0)]
RelativeExtents: TypeAlias = Annotated[Floats, at_least(0)]

STARTS = ("start", "rel_start")
ENDS = ("end", "rel_end", "shape", "rel_shape")
#: The least and the largest of something positive; one number for both.
Range: TypeAlias = Annotated[Floats, count(1, 2), above(0), ASCENDING]
Attempts: TypeAlias = Annotated[int, at_least(1)]


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


# Windows by their beginning and end


def check_slice(given: Mapping[str, Any]) -> None:
    """What does not go together of the arguments that say which window it is."""
    for names in (STARTS, ENDS):
        if len(both := [name for name in names if name in given]) > 1:
            raise ArgumentClashError(f"{' and '.join(both)} exclude each other")
    if ("anchor" in given) != ("shape_input" in given):
        raise ArgumentError("the inputs anchor and shape must be given together, or start, end and so on")
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
                f"{first}={wrong[0][0]} is behind {last}={wrong[0][1]}; a window ends where it begins or later"
            )


def _check_inside(name: str, values: Sequence[float]) -> None:
    """Refuse what lies outside of an array whatever its extent is."""
    most = 1.5 if name.startswith("rel_") else float("inf")  # positions are rounded
    if wrong := [value for value in values if value <= -0.5 or value >= most]:
        raise ArgumentError(
            f'{name} has {wrong[0]}, outside of any input; out_of_bounds_policy="pad" or "trim_to_shape" allows that'
        )


def slice_window(
    extents: Sequence[int],
    anchor: Array | None,
    shape: Array | None,
    normalized: tuple[bool, bool],
    named: Mapping[str, Any],
) -> list[tuple[int, int]]:
    """Of each axis that is cut, where the window begins and ends.

    Args:
        extents: of those axes.
        anchor, shape: the inputs of that name.
        normalized: whether these, if they are floats, are parts of the extents.
        named: the other arguments, with a number for all axes, or one for each; None or empty: not given.
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
    """Where the window begins and ends in one axis."""
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
        raise SampleError(f"the window begins at {first} and ends before, at {last}")
    return first, last


# Random windows


class Window(NamedTuple):
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
) -> Window:
    """A window of random area and aspect ratio at a random place.

    Args:
        areas: the least and the largest area, in parts of the image; all are equally likely.
        ratios: the least and the largest width over height; their logarithms are equally likely.
        num_attempts: how often what does not fit is drawn again. Then it is the largest that fits of the nearest ratio.
    """
    least, most = math.log(ratios[0]), math.log(ratios[-1])
    for _ in range(num_attempts):
        area = height * width * rng.uniform(areas[0], areas[-1])
        ratio = math.exp(rng.uniform(least, most))
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
    top, left = rng.integers(0, [height - down + 1, width - across + 1]).tolist()
    return Window(top, left, down, across)
