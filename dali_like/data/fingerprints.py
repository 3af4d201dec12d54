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
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dali_like.engine.backends.main_import import IMPORTED_MAIN, MAIN

if TYPE_CHECKING:
    from dali_like.sources.travel.main_module import ImportedMain

#: A part takes about a microsecond.
MOST_PARTS = 500
#: Of these, items of one container. Of a larger one, this number of items is looked at, and the rest is unknown.
_MOST_ITEMS = 64
#: Larger arrays and texts are unknown: comparing many would take too long, and remembering them takes memory.
_MOST_BYTES = 4096

_PLAIN = (int, bool, type(None), type(Ellipsis), bytes, str)
_CONTAINERS = (list, tuple, dict, set, frozenset, deque)
#: Their text says all of them: NaN is not equal to itself, and the others would be compared by their addresses.
_SHOWN = (float, complex, range)
_SHOWN_MODULES = ("decimal", "fractions", "pathlib", "uuid")
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType)


class Fingerprint(NamedTuple):
    """Result of a look at some objects.

    Attributes:
        parts: differ after a change that was seen. They keep no object of the program alive.
        is_complete: whether no part is unknown: with equal parts, the objects have not changed.
    """

    parts: tuple[Any, ...]
    is_complete: bool


def fingerprint_of(value: Any, main: ImportedMain | None = None) -> Fingerprint:
    """Look at an object.

    Args:
        value: the object.
        main: the main module that workers import. Other classes and functions of the program travel by value.

    >>> dataset = types.SimpleNamespace(epoch=1, samples=list(range(100_000)))
    >>> before = fingerprint_of(dataset)
    >>> dataset.epoch = 2
    >>> fingerprint_of(dataset).parts == before.parts, before.is_complete
    (False, False)
    """
    look = _Look(main)
    look.take(value)
    return Fingerprint(tuple(look.parts), look.is_complete)


class _Look:
    """Goes through the attributes and items of an object, nearer ones first."""

    def __init__(self, main: ImportedMain | None) -> None:
        self.main = main
        self.parts: list[Any] = []
        self.is_complete = True
        self._waiting: deque[Any] = deque()
        self._seen: dict[int, Any] = {}

    def take(self, value: Any) -> None:
        """Add the parts of an object until all are added, or too many."""
        self._waiting.append(value)
        while self._waiting and len(self.parts) < MOST_PARTS:
            self._add(self._waiting.popleft())
        self.is_complete &= not self._waiting

    def _add(self, value: Any) -> None:
        kind = type(value)
        if kind in _PLAIN and (kind not in (str, bytes) or len(value) <= _MOST_BYTES):
            self.parts.append((kind, value))
        elif kind in _SHOWN or _package_of(kind) in _SHOWN_MODULES:
            self.parts.append((kind, repr(value)))
        elif issubclass(kind, np.generic):
            self.parts.append((kind, value.dtype.str, None if value.dtype.hasobject else value.tobytes()))
        elif id(value) in self._seen:
            self.parts.append(kind)
        else:
            self._seen[id(value)] = value  # kept, so that its address stays its own
            # Another object may have the address later: a program that replaces one twice gets the first address again. So
            # the class is a part, too.
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
        elif issubclass(kind, np.dtype):
            self.parts.append(repr(value))
        elif not issubclass(kind, (type, types.ModuleType, enum.Enum)):
            self._add_attributes(value, kind)

    def _add_array(self, array: NDArray[Any]) -> None:
        self.parts.append((array.shape, array.dtype.str))
        if array.nbytes <= _MOST_BYTES and not array.dtype.hasobject:
            self.parts.append(array.tobytes())
        else:
            self.is_complete = False
            if type(array) is np.ndarray and array.flags.c_contiguous and not array.dtype.hasobject:
                self.parts.append(array.reshape(-1)[:: -(-array.size // _MOST_ITEMS)].tobytes())

    def _add_tensor(self, tensor: Any) -> None:
        """Add a tensor, which counts its changes. Workers see the content of one in shared memory: it does not matter."""
        self.is_complete = False  # changes through a view of NumPy are not counted
        with contextlib.suppress(RuntimeError, NotImplementedError):  # sparse tensors and tensors of inference mode
            self.parts.append((tuple(tensor.shape), None if tensor.is_shared() else tensor._version))
            if tensor.numel() <= _MOST_ITEMS and tensor.device.type == "cpu" and not tensor.is_shared():
                self.parts.append(repr(tensor.tolist()))

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
        self._note_code(function)
        if isinstance(function, types.BuiltinFunctionType):
            self._waiting.append(function.__self__)
        else:
            self.parts.append(hash(function.__code__))
        cells: Iterable[Any] = getattr(function, "__closure__", None) or ()
        self._waiting += (cell.cell_contents for cell in cells if _is_filled(cell))
        self._waiting += (getattr(function, "__defaults__", None), getattr(function, "__kwdefaults__", None))

    def _note_code(self, code: Any) -> None:
        """Note a function or class. Parts of a program that workers do not import travel with the globals that they read."""
        if _package_of(code) in (MAIN, IMPORTED_MAIN) and not (self.main is not None and self.main.has(code)):
            self.is_complete = False

    def _add_attributes(self, value: Any, kind: type) -> None:
        """Add the attributes of an object. Classes of the standard library, such as locks, are skipped."""
        self._note_code(kind)
        if _package_of(kind) in sys.stdlib_module_names and kind is not types.SimpleNamespace:
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


def _package_of(code: Any) -> str:
    """Return the package of a function or class; "" if it does not say."""
    module = getattr(code, "__module__", None)
    return module.partition(".")[0] if type(module) is str else ""


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
