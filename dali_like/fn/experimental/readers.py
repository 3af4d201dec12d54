"""Readers, as in ``nvidia.dali.fn.experimental.readers``."""

from __future__ import annotations

from dali_like.fn._lazy_operators import lazy_readers

__getattr__, __dir__ = lazy_readers(__name__)
