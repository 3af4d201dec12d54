"""Readers whose arguments may change, as in ``nvidia.dali.ops.experimental``."""

from __future__ import annotations

from dali_like.ops.experimental import readers

__all__ = ["readers"]
