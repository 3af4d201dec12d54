"""Looking into a user's source: what it consists of, as far as pickle and fork are concerned."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from typing import Any


def parts_of(value: Any) -> Iterator[tuple[str, Any]]:
    """The parts of a value, each with what one appends to the value's name to get there."""
    if inspect.ismethod(value):
        yield ".__self__", value.__self__
    elif inspect.isfunction(value):
        variables = inspect.getclosurevars(value)
        for name, part in {**variables.globals, **variables.nonlocals}.items():
            yield f" -> {name}", part
    elif isinstance(value, dict):
        for key, part in value.items():
            yield f"[{key!r}]", part
    elif isinstance(value, (list, tuple, set, frozenset)):
        for i, part in enumerate(value):
            yield f"[{i}]", part
    elif isinstance(value, functools.partial):
        yield ".func", value.func
        yield ".args", value.args
        yield ".keywords", value.keywords
    else:
        for name, part in getattr(value, "__dict__", {}).items():
            yield f".{name}", part
