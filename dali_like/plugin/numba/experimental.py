"""Classes of operators that call functions compiled by Numba, as in ``nvidia.dali.plugin.numba.experimental``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dali_like.common.lazy_names import importer

if TYPE_CHECKING:
    from dali_like.ops import experimental

    NumbaFunction = experimental.NumbaFunction

__all__ = ["NumbaFunction"]

__getattr__, __dir__ = importer(__name__, {"dali_like.ops.experimental": ("NumbaFunction",)})
