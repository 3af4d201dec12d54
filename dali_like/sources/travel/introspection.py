"""The parts of a user's source, for messages about pickling and for warnings about forks."""

from __future__ import annotations

import contextlib
import dis
import functools
import inspect
import itertools
import sys
import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from types import CodeType, MemberDescriptorType, ModuleType
from typing import Any, NamedTuple

from dali_like.common.articles import kind_of
from dali_like.engine.memory.protocol import PAGE_BYTES

#: Limits of the search for large containers.
_MANY_OBJECTS = 100_000
_MOST_PARTS = 500
#: Objects of a large container that are looked at to estimate its memory, and the depth of the look.
_LOOKS, _LOOK_DEPTH = 200, 3

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


class LargeContainer(NamedTuple):
    """A list or dict with many objects.

    Attributes:
        path: where it is in the source.
        objects: the list or dict.
    """

    path: str
    objects: list[Any] | dict[Any, Any]

    @property
    def text(self) -> str:
        """The description, for messages."""
        return f"{self.path}, {kind_of(self.objects)} of {len(self.objects):,} objects"

    def bytes_to_copy(self) -> int:
        """Estimate, from some of the objects, the memory that a worker copies by reading each object once.

        Reading an object changes its count of references, and so copies its page. The other pages of large objects, such as
        the text of a long string, stay shared.
        """
        step = max(1, len(self.objects) // _LOOKS)
        parts: Iterable[Any] = self.objects.items() if isinstance(self.objects, dict) else self.objects
        seen: set[int] = set()
        nbytes = sum(_touched_bytes(part, seen, _LOOK_DEPTH) for part in itertools.islice(parts, 0, None, step))
        return sys.getsizeof(self.objects) + nbytes * step


def _touched_bytes(value: Any, seen: set[int], depth: int) -> int:
    """Return the size of an object with its parts, each at most a page. Objects in `seen` do not count again."""
    if id(value) in seen or isinstance(value, (type, ModuleType)):
        return 0
    seen.add(id(value))
    nbytes = min(sys.getsizeof(value), PAGE_BYTES)
    if depth and not isinstance(value, (str, bytes, int, float)):
        for _, part in itertools.islice((*_items_of(value), *_attributes_of(value)), _MOST_PARTS):
            nbytes += _touched_bytes(part, seen, depth - 1)
    return nbytes


def large_containers(value: Any, name: str) -> tuple[LargeContainer, ...]:
    """Find lists and dicts of a source with at least 100,000 objects, for advice to share their memory.

    Forked workers copy the pages of such objects by reading them, spawned workers unpickle them. Lists of lists count once.

    Args:
        value: the source, or the dataset.
        name: its name in the descriptions.
    """
    found: list[LargeContainer] = []
    ahead, seen = deque([(name, value)]), {id(value)}
    while ahead and len(seen) < _MOST_PARTS:
        path, part = ahead.popleft()
        with contextlib.suppress(Exception):  # attributes of users' objects may raise any error
            if isinstance(part, (list, dict)) and len(part) >= _MANY_OBJECTS:
                found.append(LargeContainer(path, part))
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
