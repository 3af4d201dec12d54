"""Changes of a dataset whose copies are in kept workers, found by a bounded look at it.

Looking at everything would take longer than an epoch of a large dataset, so the look takes at most about a millisecond. It
sees what a program changes on purpose: numbers, texts and small containers anywhere in the attributes of the dataset, other
objects in their places, and longer or shorter containers. It does not see other elements in large containers and arrays.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import sys
import types
from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

#: A part takes about a microsecond.
MOST_PARTS = 500
#: Of these, items of one container. Of a larger one, this number of items is looked at, and the rest is unknown.
_MOST_ITEMS = 64
#: Larger arrays and texts are unknown: comparing many would take too long, and remembering them takes memory.
_MOST_BYTES = 4096

_PLAIN = (int, bool, type(None), type(Ellipsis), bytes, str)
_CONTAINERS = (list, tuple, dict, set, frozenset, deque)
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType)


class Fingerprint(NamedTuple):
    """What a look at some objects has seen.

    Attributes:
        parts: differ after a change that was seen. They keep no object of the program alive.
        is_complete: whether no part is unknown: with equal parts, the objects have not changed.
    """

    parts: tuple[Any, ...]
    is_complete: bool


def fingerprint_of(value: Any) -> Fingerprint:
    """Look at an object.

    >>> dataset = types.SimpleNamespace(epoch=1, samples=list(range(100_000)))
    >>> before = fingerprint_of(dataset)
    >>> dataset.epoch = 2
    >>> fingerprint_of(dataset).parts == before.parts, before.is_complete
    (False, False)
    """
    look = _Look()
    look.take(value)
    return Fingerprint(tuple(look.parts), look.is_complete)


class _Look:
    """Goes through the attributes and items of an object, nearer ones first."""

    def __init__(self) -> None:
        self.parts: list[Any] = []
        self.is_complete = True
        self._waiting: deque[Any] = deque()
        self._seen: dict[int, Any] = {}

    def take(self, value: Any) -> None:
        """Add the parts of an object until there are none left, or too many."""
        self._waiting.append(value)
        while self._waiting and len(self.parts) < MOST_PARTS:
            self._add(self._waiting.popleft())
        self.is_complete &= not self._waiting

    def _add(self, value: Any) -> None:
        kind = type(value)
        if kind in _PLAIN and (kind not in (str, bytes) or len(value) <= _MOST_BYTES):
            self.parts.append((kind, value))
        elif kind in (float, complex):
            self.parts.append((kind, repr(value)))  # NaN is not equal to itself
        elif id(value) in self._seen:
            self.parts.append(kind)
        else:
            self._seen[id(value)] = value  # kept, so that its address stays its own
            # Another object may have the address later. Most likely its parts differ, too.
            self.parts.append((kind, None if kind is tuple else id(value)))
            self._add_parts(value, kind)

    def _add_parts(self, value: Any, kind: type) -> None:
        # By the class: `isinstance` would also ask the object.
        if issubclass(kind, np.ndarray):
            self._add_array(value)
        elif any((base.__module__, base.__qualname__) == ("torch", "Tensor") for base in kind.__mro__):
            self._add_tensor(value)
        elif issubclass(kind, _CONTAINERS):
            self._add_items(value)
            self._add_attributes(value, kind)  # of a subclass
        elif kind in _FUNCTIONS:
            self._add_function(value)
        elif kind is types.MethodType:
            self._waiting += (value.__func__, value.__self__)
        elif issubclass(kind, functools.partial):
            self._waiting += (value.func, value.args, value.keywords)
        elif not issubclass(kind, (type, types.ModuleType, enum.Enum, np.dtype, range)):
            self._add_attributes(value, kind)

    def _add_array(self, array: NDArray[Any]) -> None:
        self.parts.append((array.shape, array.dtype.str))
        if array.nbytes <= _MOST_BYTES and not array.dtype.hasobject:
            self.parts.append(array.tobytes())
        else:
            self.is_complete = False

    def _add_tensor(self, tensor: Any) -> None:
        """Add a tensor, which counts its changes. Workers see the content of one in shared memory: it does not matter."""
        self.is_complete = False  # changes through a view of NumPy are not counted
        with contextlib.suppress(RuntimeError, NotImplementedError):  # sparse ones and those of inference mode
            self.parts.append((tuple(tensor.shape), None if tensor.is_shared() else tensor._version))

    def _add_items(self, container: Any) -> None:
        size = len(container)
        self.parts.append(size)
        if size <= _MOST_ITEMS:
            if isinstance(container, dict):
                self._waiting += container.keys()
                self._waiting += container.values()
            else:
                self._waiting += container
            return
        self.is_complete = False
        if isinstance(container, (list, tuple)):
            for i in range(0, size, -(-size // _MOST_ITEMS)):
                item = container[i]
                self.parts.append((type(item), item if type(item) in _PLAIN[:3] else id(item)))

    def _add_function(self, function: Any) -> None:
        if getattr(function, "__module__", None) == "__main__":
            self.is_complete = False  # travels by value, with the globals that it reads
        cells: Iterable[Any] = getattr(function, "__closure__", None) or ()
        self._waiting += (cell.cell_contents for cell in cells if _is_filled(cell))
        self._waiting += (getattr(function, "__defaults__", None), getattr(function, "__kwdefaults__", None))

    def _add_attributes(self, value: Any, kind: type) -> None:
        """Add the attributes of an object. Those of the standard library's classes, such as locks, are their own matter."""
        if kind.__module__.partition(".")[0] in sys.stdlib_module_names and kind is not types.SimpleNamespace:
            self.is_complete &= kind in _CONTAINERS
            return
        attributes = object.__getattribute__(value, "__dict__") if _has_dict(kind) else {}
        self._waiting += attributes.keys()
        self._waiting += attributes.values()
        slots = [name for base in kind.__mro__ for name in _slots_of(base)]
        for name in slots:
            try:
                self._waiting.append(object.__getattribute__(value, name))
            except AttributeError:  # no value yet
                self._waiting.append(None)
        if not attributes and not slots:
            self.is_complete = False  # an object of a compiled class


def _has_dict(kind: type) -> bool:
    return any("__dict__" in base.__dict__ for base in kind.__mro__)


def _slots_of(kind: type) -> list[str]:
    """Return the attributes in the slots of one class, as they are named."""
    slots = kind.__dict__.get("__slots__", ())
    names = [slots] if isinstance(slots, str) else list(slots)
    private = f"_{kind.__name__.lstrip('_')}"
    return [
        f"{private}{name}" if name.startswith("__") and not name.endswith("__") else name
        for name in names
        if name not in ("__dict__", "__weakref__")
    ]


def _is_filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True
