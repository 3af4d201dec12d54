"""Dimensions of arrays, as arguments name them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from dali_like.errors import ArgumentClashError, ArgumentError, AxisError

T = TypeVar("T")


def axis_of(name: str, layout: str) -> int:
    """The dimension that has a letter in the layout.

    Raises:
        ArgumentClashError: none has.
    """
    if name not in layout:
        raise ArgumentClashError(f"there is no axis {name!r} in the layout {layout!r} of the input")
    return layout.index(name)


def check_different(numbers: Sequence[int], name: str) -> None:
    """Refuse dimensions that are named twice, and negative ones.

    Raises:
        ArgumentClashError: there are some.
    """
    if len(set(numbers)) < len(numbers):
        raise ArgumentClashError(f"{name} has a dimension twice: {list(numbers)}")
    if min(numbers, default=0) < 0:
        raise ArgumentClashError(f"{name} has a negative number, {min(numbers)}; dimensions count from the first one, 0")


def check_below(name: str, axes: Sequence[int], ndim: int) -> None:
    """Refuse dimensions that there are not.

    Raises:
        AxisError: there are some.
    """
    if wrong := [axis for axis in axes if axis >= ndim]:
        raise AxisError(f"{name} has {wrong[0]}, where dimensions count from 0 to {ndim - 1}")


def checked_axes(axes: Sequence[int], ndim: int) -> tuple[int, ...]:
    """Dimensions that may count from the end, counted from the first one.

    Raises:
        AxisError: there are not so many.
        ArgumentClashError: two are the same.
    """
    if wrong := [axis for axis in axes if not -ndim <= axis < ndim]:
        raise AxisError(f"axes has {wrong[0]}, where dimensions count from {-ndim} to {ndim - 1}")
    found = tuple([axis % ndim for axis in axes])
    if len(set(found)) < len(found):
        raise ArgumentClashError(f"axes has a dimension twice: {list(axes)}")
    return found


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


def for_each_axis(name: str, values: Sequence[T], count: int) -> Sequence[T]:
    """An argument that has one element for all axes, or one for each."""
    if len(values) not in (0, 1, count):
        raise ArgumentError(f"{name} must have one element, or one for each of the {count} axes, not {len(values)}")
    return values if len(values) == count else [*values] * count
