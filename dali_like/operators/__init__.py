"""The operators: one module for each group, and what makes ``fn`` and ``ops`` of them."""

from __future__ import annotations

from dali_like.operators import (
    arrays,
    color,
    decoding,
    filters,
    geometry,
    normalizing,
    python_functions,
    randoms,
    reductions,
    resizing,
    shaping,
    warping,
)

__all__ = [
    "arrays",
    "color",
    "decoding",
    "filters",
    "geometry",
    "normalizing",
    "python_functions",
    "randoms",
    "reductions",
    "resizing",
    "shaping",
    "warping",
]
