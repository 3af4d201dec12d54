"""Checks and geometry of bounding boxes, for several operators.

Boxes are rows of an array; points are (x, y) or (x, y, z).
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from dali_like.errors import ArgumentError, SampleError
from dali_like.graph.language.operator_interface import Array

Floats64 = NDArray[np.float64]


def check_coordinates(boxes: Array) -> None:
    """Reject boxes that are not of dtype float32.

    Raises:
        SampleError: they are not.
    """
    if boxes.dtype != np.float32:
        raise SampleError(f"boxes must be of dtype float32, not {boxes.dtype}; convert them with fn.cast(dtype=types.FLOAT)")


def check_rows(boxes: Array, *columns: int) -> None:
    """Reject boxes that are not an array of float32 with one row each.

    Raises:
        SampleError: they are not.
    """
    check_coordinates(boxes)
    if boxes.ndim != 2 or boxes.shape[1] not in columns:
        wanted = " or ".join(f"(N, {count})" for count in columns)
        raise SampleError(f"boxes must have the shape {wanted}, not {boxes.shape}")


def check_labels(labels: Array | None, count: int) -> None:
    """Reject labels that are not integers of shape (count,) or (count, 1).

    Raises:
        SampleError: they are not.
    """
    if labels is not None and (labels.dtype.kind not in "iu" or labels.shape not in ((count,), (count, 1))):
        raise SampleError(
            f"labels must be integers of shape ({count},) or ({count}, 1), one for each box, not {labels.dtype} of shape "
            f"{labels.shape}"
        )


@functools.cache
def parse_layout(layout: str, rank: int) -> tuple[list[int], list[int], bool]:
    """Return the columns of the starts, the columns of the ends, and whether the ends are extents.

    Raises:
        ArgumentError: the layout is not one of boxes of this rank.
    """
    starts, ends, extents = "xyz"[:rank], "XYZ"[:rank], "WHD"[:rank]
    for second in (ends, extents):
        if sorted(layout) == sorted(starts + second):
            return (
                [layout.index(letter) for letter in starts],
                [layout.index(letter) for letter in second],
                second == extents,
            )
    raise ArgumentError(f"bbox_layout={layout!r} must have the letters {starts + ends!r} or {starts + extents!r}")


def areas(low: Floats64, high: Floats64) -> Floats64:
    """Return the areas, or volumes, of boxes; zero for those that end before they begin."""
    extents = high - low
    sizes: Floats64 = np.multiply.reduce(np.maximum(extents, 0, out=extents), axis=-1)
    return sizes


def ratios(parts: Floats64, wholes: Floats64) -> Floats64:
    """Return parts / wholes; zero where the whole is empty."""
    return np.divide(parts, wholes, out=np.zeros_like(parts), where=wholes > 0)
