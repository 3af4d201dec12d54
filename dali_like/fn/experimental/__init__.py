"""Experimental operators and readers, as in ``nvidia.dali.fn.experimental``."""

from __future__ import annotations

from dali_like.fn.experimental import decoders, inputs, readers

__all__ = ["decoders", "inputs", "readers"]
