"""Find large containers of plain values in a source: lists of paths, tables of annotations, encoded images.

Loading such a container runs no code of the program, so the process from which spawned workers are forked does it once for
all of them. Each worker still has its own containers: it is a fork, and copies the pages that it writes to.

A container is plain if its values are numbers, texts and bytes, tuples of these, or lists, dicts and sets of these that only
this container refers to. Whether a tuple or text is the same object elsewhere does not matter, as it cannot be changed.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Collection, Iterable
from typing import Any

#: Smaller containers are left in the pickle of the source. Texts and bytes may be few if they are long.
_LEAST_VALUES = 10_000
_LEAST_BYTES = 1 << 20
#: Limits of the search: objects that are looked at, and values of a container of other objects.
_MOST_OBJECTS, _MOST_VALUES = 1000, 1000
#: Depth of tuples in tuples.
_DEPTH = 4

_CONTAINERS = (list, tuple, dict, set, frozenset)
_MUTABLE = frozenset({list, dict, set})
_IMMUTABLE = frozenset({str, bytes, int, float, complex, bool, type(None)})
#: The count of references to an object that is only in a list, when `map` calls the function.
_ONLY_IN_LIST = max(map(sys.getrefcount, [[]]))
_ONLY_IN_DICT = max(map(sys.getrefcount, {0: []}.values()))


def plain_parts(source: Any) -> list[Any]:
    """Return the large plain containers among the attributes of a source, and of the objects in them."""
    found: list[Any] = []
    seen: set[int] = set()
    pending = [source]
    while pending and len(seen) < _MOST_OBJECTS:
        value = pending.pop()
        if id(value) in seen or type(value) in _IMMUTABLE:
            continue
        seen.add(id(value))
        if type(value) not in _CONTAINERS:
            with contextlib.suppress(Exception):  # an object may define any `__dict__`
                pending += vars(value).values() if not isinstance(value, type) else ()
        elif _is_large(value) and _is_plain(value):
            found.append(value)
        elif len(value) <= _MOST_VALUES:
            pending += _values_of(value)
    return found


def _values_of(container: Any) -> Collection[Any]:
    return container.values() if type(container) is dict else container


def _is_large(container: Any) -> bool:
    if len(container) >= _LEAST_VALUES:
        return True
    values = _values_of(container)
    return {str, bytes}.issuperset(map(type, values)) and sum(map(len, values)) >= _LEAST_BYTES


def _is_plain(container: Any) -> bool:
    values = _values_of(container)
    kinds = set(map(type, values))
    if type(container) is dict and not _are_immutable(container):
        return False
    if mutable := kinds & _MUTABLE:
        if len(kinds) > 1 or type(container) not in (list, dict):
            return False
        only = _ONLY_IN_DICT if type(container) is dict else _ONLY_IN_LIST
        if max(map(sys.getrefcount, values)) > only:
            return False
        if dict in mutable and not _are_immutable(itertools.chain.from_iterable(values)):
            return False
        values = list(itertools.chain.from_iterable(map(dict.values, values) if dict in mutable else values))
    return _are_immutable(values)


def _are_immutable(values: Iterable[Any], depth: int = _DEPTH) -> bool:
    """Return whether values are immutable ones of Python, or tuples of such values."""
    values = values if isinstance(values, Collection) else list(values)
    kinds = set(map(type, values)) - _IMMUTABLE
    if not kinds:
        return True
    if kinds != {tuple} or not depth:
        return False
    tuples = [value for value in values if type(value) is tuple]
    return _are_immutable(list(itertools.chain.from_iterable(tuples)), depth - 1)
