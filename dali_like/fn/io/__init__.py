"""Operators that read, as in ``nvidia.dali.fn.io``."""

from __future__ import annotations

from dali_like.fn.io import file

__all__ = ["file"]
