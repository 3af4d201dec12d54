"""Operators of ``fn`` and ``ops``: one module for each group.

Each operator is a function of one sample with a description (`description`). `functions` turns descriptions into the public
functions and classes. Imports the layers below: `graph`, `images`, `device`, `common`.
"""

from __future__ import annotations

from dali_like.operators import (
    arrays,
    audio,
    color,
    convolutions,
    decoding,
    experimental_decoding,
    file_access,
    filling,
    filters,
    geometry,
    inflating,
    inspection,
    morphology,
    noises,
    normalizing,
    numba_functions,
    permutations,
    python_functions,
    randoms,
    reductions,
    region,
    resizing,
    sequences,
    shaping,
    spectra,
    video_decoding,
    warping,
)

__all__ = [
    "arrays",
    "audio",
    "color",
    "convolutions",
    "decoding",
    "experimental_decoding",
    "file_access",
    "filling",
    "filters",
    "geometry",
    "morphology",
    "noises",
    "normalizing",
    "permutations",
    "inflating",
    "inspection",
    "numba_functions",
    "python_functions",
    "randoms",
    "reductions",
    "region",
    "resizing",
    "sequences",
    "shaping",
    "spectra",
    "video_decoding",
    "warping",
]
