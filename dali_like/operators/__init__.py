"""Operators of ``fn`` and ``ops``: one folder for each family.

Each operator is a function of one sample with a description (`description`). `functions` turns descriptions into the public
functions and classes. Imports the layers below: `graph`, `images`, `device`, `common`.
"""

from __future__ import annotations

from dali_like.operators import arrays, geometry, images, photometry, programs, sound

__all__ = ["arrays", "geometry", "images", "photometry", "programs", "sound"]
