"""The promises of docs/stability.md as code: unstable interfaces, and deprecated ones.

Each process decides by the environment variable DALI_LIKE_WARN_UNSTABLE whether unstable interfaces warn. Deprecated ones
always do.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from dali_like.common.notices import warn
from dali_like.errors import UnstableWarning

__all__ = ["SWITCH", "deprecated", "unstable", "warn_deprecated", "warn_unstable"]

#: Environment variable: any value except "" and "0" turns warnings of unstable interfaces on.
SWITCH = "DALI_LIKE_WARN_UNSTABLE"

_P = ParamSpec("_P")
_R = TypeVar("_R")


def unstable(name: str) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Mark a function or method as unstable: it may change in each minor version.

    Args:
        name: as users write it, for the warning: "Pipeline.serve()".
    """

    def mark(function: Callable[_P, _R]) -> Callable[_P, _R]:
        @functools.wraps(function)
        def marked(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            warn_unstable(name)
            return function(*args, **kwargs)

        vars(marked)["__unstable__"] = name
        return marked

    return mark


def warn_unstable(name: str) -> None:
    """Warn that the program uses an unstable interface, if it wants to know."""
    if os.environ.get(SWITCH, "0") not in ("", "0"):
        warn(f"{name} is unstable: it may change in each minor version; docs/stability.md lists what is", UnstableWarning)


def deprecated(name: str, use: str) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Mark a function as deprecated; see `warn_deprecated` for the arguments."""

    def mark(function: Callable[_P, _R]) -> Callable[_P, _R]:
        @functools.wraps(function)
        def marked(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            warn_deprecated(name, use)
            return function(*args, **kwargs)

        return marked

    return mark


def warn_deprecated(name: str, use: str = "") -> None:
    """Warn that the program uses a deprecated name or argument.

    Args:
        name: as users write it: "fn.uniform", "Pipeline: max_streams".
        use: the replacement; "" if the argument has no effect.
    """
    warn(f"{name} is deprecated; use {use}" if use else f"{name} is deprecated and has no effect", DeprecationWarning)
