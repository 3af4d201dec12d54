"""Operators of ``fn`` and ``ops``: one module for each group.

Each operator is a function of one sample with a description (`description`). `functions` turns descriptions into the public
functions and classes. Imports the layers below: `graph`, `images`, `device`, `common`.
"""

from __future__ import annotations

from dali_like.operators import (
    arrays,
    audio,
    box_crops,
    boxes,
    color,
    decoding,
    file_access,
    filters,
    geometry,
    masks,
    normalizing,
    pasting,
    python_functions,
    randoms,
    reductions,
    region,
    resizing,
    shaping,
    video_decoding,
    warping,
)

__all__ = [
    "arrays",
    "audio",
    "box_crops",
    "boxes",
    "color",
    "decoding",
    "file_access",
    "filters",
    "geometry",
    "masks",
    "normalizing",
    "pasting",
    "python_functions",
    "randoms",
    "reductions",
    "region",
    "resizing",
    "shaping",
    "video_decoding",
    "warping",
]
