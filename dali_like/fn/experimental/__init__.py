"""Readers whose arguments may change, as in ``nvidia.dali.fn.experimental``."""

from __future__ import annotations

from dali_like.fn.experimental import readers

__all__ = ["readers"]
