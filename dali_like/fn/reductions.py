"""Sums, means and extremes, as in ``nvidia.dali.fn.reductions``."""

from __future__ import annotations

from dali_like.operators.functions import publish_functions

__all__ = [*publish_functions(__name__)]  # noqa: PLE0604


def __dir__() -> list[str]:
    return __all__
