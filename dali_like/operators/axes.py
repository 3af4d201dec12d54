"""Dimensions of arrays, as arguments name them."""

from __future__ import annotations

from collections.abc import Sequence

from dali_like.errors import ArgumentClashError, AxisError


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
