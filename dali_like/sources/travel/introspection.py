"""The parts of a user's source, for messages about pickling and for warnings about forks."""

from __future__ import annotations

import contextlib
import dis
import functools
import inspect
import itertools
import weakref
from collections import deque
from collections.abc import Iterator
from types import CodeType, MemberDescriptorType, ModuleType
from typing import Any

#: Limits of the search for large containers.
_MANY_OBJECTS = 100_000
_MOST_PARTS = 500

#: Cache of the names of global variables by code: each epoch of a loader asks again, and the search is slow.
_names: weakref.WeakKeyDictionary[CodeType, tuple[str, ...]] = weakref.WeakKeyDictionary()


def parts_of(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the parts of a value, each with the suffix to append to the name of the value."""
    if inspect.ismethod(value):
        yield ".__self__", value.__self__
    elif inspect.isfunction(value):
        for name in _global_names(value.__code__):
            if name in value.__globals__:
                yield f" -> {name}", value.__globals__[name]
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # a variable without a value
                yield f" -> {name}", cell.cell_contents
        defaults = value.__defaults__ or ()
        names = value.__code__.co_varnames[: value.__code__.co_argcount]
        for name, default in (*zip(names[::-1], defaults[::-1], strict=False), *(value.__kwdefaults__ or {}).items()):
            yield f" -> {name}", default
    elif type(value).__module__.startswith("dali_like."):
        # A wrapper around the user's source: messages do not mention it.
        for part in value if isinstance(value, tuple) else getattr(value, "__dict__", {}).values():
            yield "", part
    elif isinstance(value, functools.partial):
        yield ".func", value.func
        yield ".args", value.args
        yield ".keywords", value.keywords
    else:
        yield from _items_of(value)
        yield from _attributes_of(value)


def large_containers(value: Any, name: str) -> tuple[str, ...]:
    """Describe lists and dicts of a source with at least 100,000 objects, for advice to share their memory.

    Forked workers copy the pages of such objects by reading them, spawned workers unpickle them. Lists of lists count once.

    Args:
        value: the source, or the dataset.
        name: its name in the descriptions.
    """
    found: list[str] = []
    ahead, seen = deque([(name, value)]), {id(value)}
    while ahead and len(seen) < _MOST_PARTS:
        path, part = ahead.popleft()
        with contextlib.suppress(Exception):  # attributes of users' objects may raise any error
            if isinstance(part, (list, dict)) and len(part) >= _MANY_OBJECTS:
                found.append(f"{path}, a {type(part).__name__} of {len(part):,} objects")
            elif not isinstance(part, (ModuleType, type)):
                for suffix, inner in itertools.islice(parts_of(part), _MOST_PARTS):
                    if id(inner) not in seen:
                        seen.add(id(inner))
                        ahead.append((path + suffix, inner))
    return tuple(found)


def _items_of(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, part in value.items():
            yield f"[{key!r}]", part
    elif isinstance(value, (list, tuple, set, frozenset, deque)):
        for i, part in enumerate(value):
            yield f"[{i}]", part


def _attributes_of(value: Any) -> Iterator[tuple[str, Any]]:
    for name, part in getattr(value, "__dict__", {}).items():
        yield f".{name}", part
    for kind in type(value).__mro__:
        if "__slots__" in vars(kind):
            for name, member in vars(kind).items():
                if isinstance(member, MemberDescriptorType):
                    with contextlib.suppress(AttributeError):  # a slot without a value
                        yield f".{name}", member.__get__(value)


def _global_names(code: CodeType) -> tuple[str, ...]:
    """Return the names of global variables used by code, including nested functions and classes."""
    if code not in _names:
        _names[code] = tuple(dict.fromkeys(_names_in(code)))
    return _names[code]


def _names_in(code: CodeType) -> Iterator[str]:
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield instruction.argval
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)
