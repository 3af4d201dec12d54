"""The names of `dali_like.backend`, as in ``nvidia.dali.backend_impl``."""

from __future__ import annotations

from typing import Any

from dali_like import backend

__all__ = backend.__all__


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(backend, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
