"""Operators that decode, as in ``nvidia.dali.ops.decoders``."""

from __future__ import annotations

from dali_like.fn._publishing import publisher

__getattr__, __dir__ = publisher(__name__)
