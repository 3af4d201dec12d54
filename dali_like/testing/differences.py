"""Compares values bit for bit, and names the first difference."""

from __future__ import annotations

from typing import Any

import numpy as np

from dali_like.common.nesting import is_record, parts_of

__all__ = ["first_difference"]


def first_difference(expected: Any, got: Any, where: str = "") -> str | None:
    """Return the first difference between two values; None if they are the same, bit for bit.

    Arrays and tensors have the same class, dtype, shape and bytes. Mappings, sequences and dataclasses are compared part by
    part, floating point numbers by their bits, exceptions by class and arguments, other objects by ``==``.

    Args:
        where: the place of the values in an element, such as ``['image'][0]``.

    >>> print(first_difference({"x": [1, 2]}, {"x": [1, 3]}))
    ['x'][1]: expected 2, got 3
    """
    if type(expected) is not type(got):
        return _differ(where, f"{expected!r:.200} ({type(expected).__name__})", f"{got!r:.200} ({type(got).__name__})")
    if isinstance(expected, (np.ndarray, np.generic, float, complex)) or _is_array_of_library(expected):
        return _array_difference(np.asarray(expected), np.asarray(got), where)
    items, others = _items(expected), _items(got)
    if items is None or others is None:
        return _object_difference(expected, got, where)
    if list(items) != list(others):
        return _differ(where, f"{len(items)} items {' '.join(items):.100}", f"{len(others)} items {' '.join(others):.100}")
    return next(filter(None, (first_difference(items[key], others[key], where + key) for key in items)), None)


def _items(value: Any) -> dict[str, Any] | None:
    """Return the parts of a value, by their place in it; None for other objects."""
    if isinstance(value, BaseException):
        return {".args": value.args}
    if (parts := parts_of(value)) is None:
        return None
    return {f".{key}" if is_record(value) else f"[{key!r}]": part for key, part in parts}


def _is_array_of_library(value: Any) -> bool:
    """Whether a value is a tensor, or another object that NumPy can read."""
    return hasattr(value, "__array__") and hasattr(value, "dtype")


def _object_difference(expected: Any, got: Any, where: str) -> str | None:
    if expected is got or bool(expected == got):
        return None
    has_equality = getattr(type(expected), "__eq__", None) is not getattr(object, "__eq__", None)
    hint = "" if has_equality else f"; give {type(expected).__name__} a method __eq__"
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
