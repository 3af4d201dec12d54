"""Operators for sound."""

from __future__ import annotations

from dali_like.operators.sound import audio, spectra

__all__ = ["audio", "spectra"]
