"""Operators that change values of pixels: colors, filters, noise, normalization."""

from __future__ import annotations

from dali_like.operators.photometry import color, convolutions, filters, morphology, noises, normalizing

__all__ = ["color", "convolutions", "filters", "morphology", "noises", "normalizing"]
