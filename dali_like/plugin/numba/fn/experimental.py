"""Operators that call functions compiled by Numba, as in ``nvidia.dali.plugin.numba.fn.experimental``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dali_like.common.lazy_names import importer

if TYPE_CHECKING:
    from dali_like.fn import experimental

    numba_function = experimental.numba_function

__all__ = ["numba_function"]

__getattr__, __dir__ = importer(__name__, {"dali_like.fn.experimental": ("numba_function",)})
