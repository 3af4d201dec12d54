"""Experimental operators and readers, as in ``nvidia.dali.ops.experimental``."""

from __future__ import annotations

from dali_like.ops.experimental import decoders, inputs, readers

__all__ = ["decoders", "inputs", "readers"]
