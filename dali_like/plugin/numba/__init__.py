"""Operators that call functions compiled by Numba, as in ``nvidia.dali.plugin.numba``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dali_like.common.lazy_names import importer

if TYPE_CHECKING:
    from dali_like.plugin.numba import experimental, fn

__all__ = ["experimental", "fn"]

__getattr__, __dir__ = importer(__name__, {"dali_like.plugin.numba.experimental": (), "dali_like.plugin.numba.fn": ()})
