"""Operators that read, as in ``nvidia.dali.ops.io``."""

from __future__ import annotations

from dali_like.ops.io import file

__all__ = ["file"]
