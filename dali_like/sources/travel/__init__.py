"""Travel of a user's callable to workers by value, and objects that cannot travel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: How `by_value` pickles the direct instances of some classes. A library adds its classes without importing cloudpickle.
REDUCERS: dict[Any, Callable[[Any], Any]] = {}


def register(kind: type, reduce: Callable[[Any], Any]) -> None:
    """Pickle the direct instances of a class in another way from now on.

    Args:
        kind: the class. Its subclasses are not affected.
        reduce: returns the result of ``__reduce__`` for an instance.
    """
    REDUCERS[kind] = reduce
