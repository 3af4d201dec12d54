"""Operators that move pixels and coordinates: crops, sizes, rotations, displacements."""

from __future__ import annotations

from dali_like.operators.geometry import coordinates, displacing, geometry, matrices, pasting, region, resizing, warping

__all__ = ["coordinates", "displacing", "geometry", "matrices", "pasting", "region", "resizing", "warping"]
