"""Sums, means and extremes, as in ``nvidia.dali.ops.reductions``."""

from __future__ import annotations

from dali_like.operators.functions import publish_classes

__all__ = [*publish_classes(__name__)]  # noqa: PLE0604


def __dir__() -> list[str]:
    return __all__
