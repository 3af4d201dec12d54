"""The operators: one module for each group, and what makes ``fn`` and ``ops`` of them."""

from __future__ import annotations

from dali_like.operators import (
    arrays,
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
from dali_like.operators import color as colour

__all__ = [
    "arrays",
    "colour",
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
