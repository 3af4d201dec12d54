"""Batches as trees: lists, tuples, named tuples, mappings and dataclasses of arrays and other objects."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any


def map_arrays(value: Any, kind: type, function: Callable[[Any], Any], other: Callable[[Any], Any]) -> Any:
    """Return a batch with other arrays, and containers of the same classes.

    Args:
        value: the batch.
        kind: the class of arrays.
        function: called with each array, in the order of the batch.
        other: called with each other object.
    """
    if isinstance(value, kind):
        return function(value)
    if isinstance(value, Mapping):
        return _like(value, {key: map_arrays(item, kind, function, other) for key, item in value.items()})
    if isinstance(value, (list, tuple)):
        items = [map_arrays(item, kind, function, other) for item in value]
        if type(value) is list:
            return items
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return other(value)
    changed = copy.copy(value)
    for field in dataclasses.fields(value):
        if hasattr(value, field.name):
            item = map_arrays(getattr(value, field.name), kind, function, other)
            object.__setattr__(changed, field.name, item)  # also of frozen ones
    return changed


def _like(mapping: Mapping[Any, Any], items: dict[Any, Any]) -> Any:
    """Return other items in a mapping of the same class, or in a dict."""
    if type(mapping) is not dict:
        with contextlib.suppress(Exception):  # the class of the user, which may do anything
            copied: Any = copy.copy(mapping)
            copied.update(items)
            return copied
    return items
