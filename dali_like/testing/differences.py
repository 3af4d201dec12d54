"""Compares values bit for bit, and names the first difference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["first_difference"]


def first_difference(expected: Any, got: Any, where: str = "") -> str | None:
    """Return the first difference between two values; None if they are the same, bit for bit.

    Arrays and tensors have the same class, dtype, shape and bytes. Mappings, lists and tuples are compared item by item,
    floating point numbers by their bits, exceptions by class and arguments, other objects by ``==``.

    Args:
        where: the place of the values in an element, such as ``['image'][0]``.

    >>> print(first_difference({"x": [1, 2]}, {"x": [1, 3]}))
    ['x'][1]: expected 2, got 3
    """
    if type(expected) is not type(got):
        return _differ(where, f"{expected!r:.200} ({type(expected).__name__})", f"{got!r:.200} ({type(got).__name__})")
    if isinstance(expected, (np.ndarray, np.generic)) or (hasattr(expected, "__array__") and hasattr(expected, "dtype")):
        return _array_difference(np.asarray(expected), np.asarray(got), where)
    if isinstance(expected, Mapping):
        if list(expected) != list(got):
            return _differ(where, f"the keys {list(expected)!r:.200}", f"{list(got)!r:.200}")
        return next(filter(None, (first_difference(expected[key], got[key], f"{where}[{key!r}]") for key in expected)), None)
    if isinstance(expected, (list, tuple)):
        if len(expected) != len(got):
            return _differ(where, f"{len(expected)} items", str(len(got)))
        pairs = enumerate(zip(expected, got, strict=True))
        return next(filter(None, (first_difference(one, other, f"{where}[{i}]") for i, (one, other) in pairs)), None)
    if isinstance(expected, BaseException):
        return first_difference(expected.args, got.args, f"{where}.args")
    if isinstance(expected, (float, complex)):
        expected, got = np.asarray(expected), np.asarray(got)
        return _array_difference(expected, got, where)
    if expected is got or bool(expected == got):
        return None
    hint = f"; give {type(expected).__name__} a method __eq__" if type(expected).__eq__ is object.__eq__ else ""
    return _differ(where, f"{expected!r:.200}", f"{got!r:.200}{hint}")


def _array_difference(expected: np.ndarray[Any, Any], got: np.ndarray[Any, Any], where: str) -> str | None:
    for name in ("dtype", "shape"):
        if getattr(expected, name) != getattr(got, name):
            return _differ(where, f"{name} {getattr(expected, name)}", str(getattr(got, name)))
    if expected.dtype.hasobject:
        return first_difference(expected.tolist(), got.tolist(), where)
    if expected.tobytes() == got.tobytes():
        return None
    one, other = (np.atleast_1d(np.ascontiguousarray(array)) for array in (expected, got))
    size = expected.dtype.itemsize
    differs = (one.view(np.uint8).reshape(-1, size) != other.view(np.uint8).reshape(-1, size)).any(axis=1)
    index = np.unravel_index(int(differs.argmax()), expected.shape) if expected.ndim else ()
    place = f"{where}[{', '.join(map(str, index))}]" if index else where
    return _differ(place, f"{expected[index]!r}", f"{got[index]!r}")


def _differ(where: str, expected: str, got: str) -> str:
    return f"{where}: expected {expected}, got {got}" if where else f"expected {expected}, got {got}"
