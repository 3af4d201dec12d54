"""Experimental operators and readers, as in ``nvidia.dali.ops.experimental``."""

from __future__ import annotations

from dali_like.fn._lazy_operators import lazy_operators

__getattr__, __dir__ = lazy_operators(__name__, "decoders", "inputs", "readers")
