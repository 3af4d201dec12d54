"""Windows of arrays that are given by where they begin and end: what of the arguments goes together, and what they mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeAlias, TypeVar

from dali_like.errors import ArgumentClashError, ArgumentError, SampleError
from dali_like.graph.operator_interface import Array
from dali_like.operators._windows import round_half_up
from dali_like.operators.parameters import DISTINCT, FINITE, Floats, Ints, at_least

T = TypeVar("T")

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


def for_each_axis(name: str, values: Sequence[T], count: int) -> Sequence[T]:
    """An argument that has one element for all axes, or one for each."""
    if len(values) not in (0, 1, count):
        raise ArgumentError(f"{name} must have one element, or one for each of the {count} axes, not {len(values)}")
    return values if len(values) == count else [*values] * count


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
