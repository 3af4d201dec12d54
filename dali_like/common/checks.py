"""Checks of single arguments: each is given the name of an argument and its value, and returns what is kept of it."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from dali_like.errors import ArgumentError, ArgumentTypeError

__all__ = ["Check", "error_policy", "flag", "is_int", "list_unknown", "not_negative", "or_none", "positive"]

Check = Callable[[str, Any], Any]


def is_int(value: Any) -> bool:
    """Whether a value is an integer, of Python or of NumPy, and no bool."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def positive(name: str, value: Any) -> int:
    """An integer from 1 on."""
    if not is_int(value):
        raise ArgumentTypeError(f"{name} must be a positive integer, not {value!r}")
    if value < 1:
        raise ArgumentError(f"{name} must be a positive integer, not {value!r}")
    return operator.index(value)


def not_negative(name: str, value: Any) -> int:
    """An integer from 0 on."""
    if not is_int(value):
        raise ArgumentTypeError(f"{name} must be an integer from 0 on, not {value!r}")
    if value < 0:
        raise ArgumentError(f"{name} must be an integer from 0 on, not {value!r}")
    return operator.index(value)


def list_unknown(unknown: Iterable[str], known: Iterable[str]) -> str:
    """Names of arguments that there are not, for a message; each with the one that may be meant."""
    import difflib  # noqa: PLC0415  # only who has made a mistake needs it

    names = list(known)
    close = {name: difflib.get_close_matches(name, names, 1) for name in unknown}
    return ", ".join(f"{name} (did you mean {meant[0]}?)" if meant else name for name, meant in close.items())


def flag(name: str, value: Any) -> bool:
    """True or False, or 1 or 0."""
    if not isinstance(value, (bool, np.bool_)) and not (is_int(value) and value in (0, 1)):
        raise ArgumentTypeError(f"{name} must be True or False, not {value!r}")
    return bool(value)


def error_policy(name: str, value: Any) -> str | Callable[[Any, Exception], Any]:
    """What happens when the user's code raises."""
    if not callable(value) and value not in ("raise", "skip"):
        raise ArgumentError(f'{name} must be "raise", "skip" or a callable that makes a replacement, not {value!r}')
    policy: str | Callable[[Any, Exception], Any] = value
    return policy


def or_none(check: Check) -> Check:
    """Such a value, or None."""
    return lambda name, value: None if value is None else check(name, value)
