"""Sums, means and extremes, as in ``nvidia.dali.ops.reductions``."""

from __future__ import annotations

from dali_like.fn._publishing import publisher

__getattr__, __dir__ = publisher(__name__)
