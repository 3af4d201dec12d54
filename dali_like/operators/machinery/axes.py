"""Resolve the axes that arguments name by number or by layout letter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from dali_like.errors import ArgumentClashError, ArgumentError, AxisError

T = TypeVar("T")


def axis_of(name: str, layout: str) -> int:
    """Return the axis that has a letter in the layout.

    Raises:
        ArgumentClashError: the layout has no such letter.
    """
    if name not in layout:
        raise ArgumentClashError(f"there is no axis {name!r} in the layout {layout!r} of the input")
    return layout.index(name)


def check_different(numbers: Sequence[int], name: str) -> None:
    """Reject axes that occur twice, and negative ones.

    Raises:
        ArgumentClashError: an axis occurs twice or is negative.
    """
    if len(set(numbers)) < len(numbers):
        raise ArgumentClashError(f"{name} has an axis twice: {list(numbers)}")
    if min(numbers, default=0) < 0:
        raise ArgumentClashError(f"{name} has the negative axis {min(numbers)}; axes count from 0")


def check_below(name: str, axes: Sequence[int], ndim: int) -> None:
    """Reject axes beyond the last one.

    Raises:
        AxisError: there is such an axis.
    """
    if wrong := [axis for axis in axes if axis >= ndim]:
        raise AxisError(f"{name} has {wrong[0]}, but axes are numbered from 0 to {ndim - 1}")


def checked_axes(axes: Sequence[int], ndim: int) -> tuple[int, ...]:
    """Return non-negative axis numbers, given axes that may count from the end.

    Raises:
        AxisError: an axis does not exist.
        ArgumentClashError: an axis occurs twice.
    """
    if wrong := [axis for axis in axes if not -ndim <= axis < ndim]:
        raise AxisError(f"axes has {wrong[0]}, but axes are numbered from {-ndim} to {ndim - 1}")
    found = tuple([axis % ndim for axis in axes])
    if len(set(found)) < len(found):
        raise ArgumentClashError(f"axes has an axis twice: {list(axes)}")
    return found


def axes_of(layout: str, axes: Sequence[int] | None, axis_names: str | None, ndim: int) -> list[int]:
    """Return the axes of an operator, given as numbers or letters; all axes if neither is given.

    Raises:
        AxisError: an axis does not exist.
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
    """Return the layout after checking that it has the given axes; the ``output_layout`` of operators with `axes`.

    Raises:
        ArgumentError: an axis does not exist.
    """
    if layout:
        axes_of(layout, given["axes"], given["axis_names"], len(layout))
    return layout


def for_each_axis(name: str, values: Sequence[T], count: int) -> Sequence[T]:
    """Expand an argument that has one element for all axes, or one for each."""
    if len(values) not in (0, 1, count):
        raise ArgumentError(f"{name} must have one element, or one for each of the {count} axes, not {len(values)}")
    return values if len(values) == count else [*values] * count
