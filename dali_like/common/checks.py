"""Checks of single arguments. Each takes the name and the value of an argument, and returns the value to keep."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dali_like.errors import ArgumentError, ArgumentTypeError

__all__ = [
    "Check",
    "auto_or_flag",
    "byte_size",
    "choice",
    "error_policy",
    "flag",
    "is_int",
    "not_negative",
    "one_of",
    "or_none",
    "positive",
    "queue_depth",
    "unchecked",
]

#: Each batch that is requested ahead takes time and memory in the main process, too.
_MOST_BATCHES = 1 << 16

Check = Callable[[str, Any], Any]


def is_int(value: Any) -> bool:
    """Return whether a value is an integer of Python or NumPy. Booleans are not integers here."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def positive(name: str, value: Any) -> int:
    """Accept integers from 1 on."""
    if not is_int(value):
        raise ArgumentTypeError(f"{name} must be a positive integer, not {value!r}")
    if value < 1:
        raise ArgumentError(f"{name} must be a positive integer, not {value!r}")
    return operator.index(value)


def queue_depth(name: str, value: Any) -> int:
    """Accept a number of batches to compute ahead."""
    depth = positive(name, value)
    if depth > _MOST_BATCHES:
        raise ArgumentError(f"{name} must be at most {_MOST_BATCHES}, not {depth}: so many batches would be computed ahead")
    return depth


def not_negative(name: str, value: Any) -> int:
    """Accept integers from 0 on."""
    if not is_int(value):
        raise ArgumentTypeError(f"{name} must be an integer from 0 on, not {value!r}")
    if value < 0:
        raise ArgumentError(f"{name} must be an integer from 0 on, not {value!r}")
    return operator.index(value)


def byte_size(name: str, value: Any) -> int:
    """Return a number of bytes, given as such, or as a text like "16GiB" or "500MB".

    Raises:
        ArgumentTypeError, ArgumentError: it is neither a positive integer nor such a text.
    """
    if not isinstance(value, str):
        return positive(name, value)
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B\s*", value)
    if match is None:
        raise ArgumentError(f'{name} should be a number of bytes, such as "16GiB", not {value!r}')
    number, prefix, binary = match.groups()
    return positive(name, int(float(number) * (1024 if binary else 1000) ** " KMGT".index(prefix or " ")))


def flag(name: str, value: Any) -> bool:
    """Accept True, False, 1 and 0."""
    if not isinstance(value, (bool, np.bool_)) and not (is_int(value) and value in (0, 1)):
        raise ArgumentTypeError(f"{name} must be True or False, not {value!r}")
    return bool(value)


def auto_or_flag(name: str, value: Any) -> bool | str:
    """Accept "auto", True, False, 1 and 0."""
    if isinstance(value, str) and value == "auto":
        return value
    try:
        return flag(name, value)
    except ArgumentTypeError:
        raise ArgumentTypeError(f'{name} must be True, False or "auto", not {value!r}') from None


def one_of(name: str, value: Any, choices: Sequence[str]) -> str:
    """Accept one of some words."""
    if value not in choices:
        raise ArgumentError(f"{name} must be {' or '.join(map(repr, choices))}, not {value!r}")
    word: str = value
    return word


def choice(*choices: str) -> Check:
    """Return the check that accepts one of some words."""
    return lambda name, value: one_of(name, value, choices)


def error_policy(name: str, value: Any) -> str | Callable[[Any, Exception], Any]:
    """Accept a reaction to exceptions of user code: "raise", "skip" or a callable."""
    if not callable(value) and value not in ("raise", "skip"):
        raise ArgumentError(f'{name} must be "raise", "skip" or a callable that makes a replacement, not {value!r}')
    policy: str | Callable[[Any, Exception], Any] = value
    return policy


def unchecked(name: str, value: Any) -> Any:
    """Accept anything: the allowed values depend on other arguments, and are checked with them."""
    return value


def or_none(check: Check) -> Check:
    """Accept None as well."""
    return lambda name, value: None if value is None else check(name, value)
