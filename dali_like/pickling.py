"""How sources travel to spawned workers: by value, with cloudpickle.

What can be imported by name travels as a name. What cannot, such as lambdas, local functions and classes, and everything
defined in ``__main__`` or in a notebook's cell, travels with its code and the globals that it uses.
"""

from __future__ import annotations

from typing import Any

import cloudpickle

from dali_like.errors import PicklingError
from dali_like.introspection import parts_of


def dumps(parts: dict[str, Any], name: str) -> bytes:
    """Pickle what a source consists of, all together: what two of them share is shared afterwards, too.

    Args:
        parts: what to pickle, by how messages call it; what is pickled is a tuple of the values.
        name: how messages call the source.

    Raises:
        PicklingError: it cannot be pickled; the message names the innermost attribute that refuses.
    """
    try:
        return bytes(cloudpickle.dumps(tuple(parts.values())))
    except Exception as error:
        first, part = next(((key, part) for key, part in parts.items() if not _can_be_pickled(part)), ("source", parts))
        path, culprit = _find_culprit(part, first)
        raise PicklingError(
            f"{name} cannot be pickled for spawned workers: {path}, a {type(culprit).__qualname__}, refuses: {error}. "
            "Make it in the worker instead (in __setstate__ or at the first call), or use py_start_method='fork'"
        ) from error


def _find_culprit(value: Any, path: str) -> tuple[str, Any]:
    """The innermost part of `value` that cannot be pickled, and how one gets there."""
    seen = {id(value)}
    while True:
        for step, part in parts_of(value):
            if id(part) not in seen and not _can_be_pickled(part):
                seen.add(id(part))
                path, value = path + step, part
                break
        else:
            return path, value


def _can_be_pickled(value: Any) -> bool:
    try:
        cloudpickle.dumps(value)
    except Exception:  # whatever a user's class does when pickled
        return False
    return True
