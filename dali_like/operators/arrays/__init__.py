"""Operators for arrays of any kind: shapes, reductions, masks, boxes, sequences, random numbers."""

from __future__ import annotations

from dali_like.operators.arrays import (
    arrays,
    box_crops,
    boxes,
    filling,
    inflating,
    inspection,
    masks,
    permutations,
    randoms,
    reductions,
    sequences,
    shaping,
)

__all__ = [
    "arrays",
    "box_crops",
    "boxes",
    "filling",
    "inflating",
    "inspection",
    "masks",
    "permutations",
    "randoms",
    "reductions",
    "sequences",
    "shaping",
]
