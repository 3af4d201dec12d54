"""Pickling by value of sources, with parts that workers cannot import. It runs in the main process.

Objects that workers can import by name travel as names, those of ``__main__`` if workers import it; see
`dali_like.sources.travel.main_module`. Lambdas, local functions and classes, and everything else defined in ``__main__``
or in a notebook's cell travel with their code and the globals that they use. cloudpickle does that for functions and
classes, and leaves the rest to pickle. `pickling_by_value` keeps file names of code. This module adds:

- modules that workers would not find: their objects travel by value; see `dali_like.sources.travel.lost_modules`;
- functions under ``functools.cache``, ``lru_cache`` or ``singledispatch``, and ``typing.NewType``: they travel by value;
  caches are empty there;
- ``functools.cached_property``, which has a lock in Python 3.11, and ``functools.singledispatchmethod``, which has weak
  references from 3.13 on: lock and references are left out;
- functions of ``__main__`` that travel by value, where workers import it: they use the variables of the imported module;
- other objects that are pickled as a name in ``__main__``, where workers do not have it: they are refused;
- ``numpy.memmap``: its content can be sent out of band, as that of other arrays;
- open text files: they are refused; cloudpickle would silently send their content;
- primitives of `multiprocessing`, see `dali_like.engine.backends.inherited`;
- the standard streams: a worker gets its own.
"""

from __future__ import annotations

import contextlib
import functools
import io
import pickle
import sys
import types
import typing
import weakref
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import cloudpickle
import numpy as np

from dali_like.common.pickling_by_value import ByValuePickler
from dali_like.engine.backends.inherited import InheritedObjects
from dali_like.engine.backends.main_import import IMPORTED_MAIN, MAIN, MainVariables
from dali_like.errors import PicklingError
from dali_like.sources.travel import REDUCERS
from dali_like.sources.travel.lost_modules import is_lost
from dali_like.sources.travel.main_module import ImportedMain

_CachedFunction: Any = type(functools.lru_cache(len))

#: All functions made by singledispatch have the same code, and these attributes.
_generic: Any = functools.singledispatch(lambda _: None)
_GENERIC_CODE = _generic.__code__
_GENERIC_METHODS = frozenset(vars(_generic)) - {"__wrapped__"}

_STREAMS = ("stdout", "stderr", "__stdout__", "__stderr__")

#: Types of objects that travel as the name of a module, or as a name in one.
_NAMED = (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType)

#: Types of objects that can travel as a name in the main module.
_OF_MAIN = (type, types.FunctionType, _CachedFunction, typing.NewType)

_marked: weakref.WeakSet[types.FunctionType] = weakref.WeakSet()


def mark(function: types.FunctionType) -> None:
    """Let a function travel by value, wherever it was defined."""
    _marked.add(function)


def _is_marked(value: Any) -> bool:
    return isinstance(value, types.FunctionType) and value in _marked


def dumps(
    value: Any,
    buffer_callback: Callable[[pickle.PickleBuffer], Any] | None = None,
    note_module: Callable[[str], object] | None = None,
    inherited: InheritedObjects | None = None,
    main: ImportedMain | None = None,
    apart: Sequence[Any] = (),
) -> bytes:
    """Return a pickle for ``pickle.loads`` in a process that has not run the program's main module, or has imported it.

    Args:
        value: the object.
        buffer_callback: as for ``pickle.dumps``.
        note_module: called with the name of each module that the pickle refers to.
        inherited: takes the descriptors of primitives of `multiprocessing`; None: the primitives are refused.
        main: the main module that the process has imported; None: none.
        apart: objects that are pickled elsewhere. The pickle has the number of each as a persistent id.
    """
    with io.BytesIO() as file:
        pickler = (_PicklerWithout if apart else _Pickler)(file, buffer_callback=buffer_callback)
        pickler.apart = {id(part): number for number, part in enumerate(apart)}
        pickler.note_module = note_module
        pickler.inherited = inherited
        pickler.main = main
        try:
            with inherited or contextlib.nullcontext():
                pickler.dump(value)
        finally:
            pickler.forget_modules()
        return file.getvalue()


class _Pickler(ByValuePickler):
    note_module: Callable[[str], object] | None = None
    inherited: InheritedObjects | None = None
    main: ImportedMain | None = None
    apart: Mapping[int, int] = MappingProxyType({})
    _main_variables = MainVariables()

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._checked: set[str] = set()
        self._by_value: list[types.ModuleType] = []

    def forget_modules(self) -> None:
        """Let cloudpickle treat modules that workers do not find as it did before."""
        for module in self._by_value:
            cloudpickle.unregister_pickle_by_value(module)

    def _check_module(self, name: object) -> None:
        """Let the objects of a module travel by value if workers do not find it."""
        if not isinstance(name, str) or name in self._checked or name in (MAIN, IMPORTED_MAIN) or self._is_for_threads:
            return
        self._checked.add(name)
        if is_lost(name) and not _is_module_by_value(name):
            cloudpickle.register_pickle_by_value(sys.modules[name])
            self._by_value.append(sys.modules[name])

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, _NAMED):
            self._check_module(value.__name__ if isinstance(value, types.ModuleType) else value.__module__)
        reduced = NotImplemented if self.inherited is None else self.inherited.reduce(value)
        if reduced is NotImplemented and not self._is_of_main(value):
            reduced = self._reduce(value)
        if self.note_module is not None and isinstance(value, _NAMED):
            if isinstance(value, types.ModuleType):
                self.note_module(value.__name__)
            elif reduced is NotImplemented and isinstance(value.__module__, str):  # it travels by name
                self.note_module(value.__module__)
        return reduced

    @property
    def _is_for_threads(self) -> bool:
        """Whether workers are threads, which have all modules of the program."""
        return self.main is not None and self.main.module is None

    def _is_of_main(self, value: Any) -> bool:
        """Return whether the object travels as a name in the main module."""
        return self.main is not None and isinstance(value, _OF_MAIN) and not _is_marked(value) and self.main.has(value)

    def _reduce(self, value: Any) -> Any:
        if isinstance(value, types.FunctionType):
            if value.__code__ is _GENERIC_CODE and not _travels_by_name(value):
                return _reduce_generic(value)
            if _is_marked(value):
                return self._dynamic_function_reduce(value)  # cloudpickle offers this for modules only
        elif isinstance(value, io.IOBase):
            return _reduce_file(value)
        elif type(value) in REDUCERS:
            if not _travels_by_name(value):
                return REDUCERS[type(value)](value)
        elif _is_pickled_by_code_of_main(value) and type(value) not in self.dispatch_table:
            return _reduce_its_own_way(value, self.main)
        return super().reducer_override(value)

    def _dynamic_function_reduce(self, function: types.FunctionType) -> Any:
        """Reduce a function by value. One of the main module gets the variables of the imported module as its globals."""
        reduced = super()._dynamic_function_reduce(function)
        if self.main is None or function.__module__ not in (MAIN, IMPORTED_MAIN):
            return reduced
        make, (code, _, *rest), (attributes, parts), *others = reduced
        others_of_main = {name: part for name, part in parts["__globals__"].items() if name not in self.main.names}
        state = attributes, {**parts, "__globals__": others_of_main}
        return make, (code, self._main_variables, *rest), state, *others


class _PicklerWithout(_Pickler):
    """Leaves out objects that are pickled elsewhere. The method is called for each object, so others do without."""

    def persistent_id(self, value: Any) -> int | None:
        return self.apart.get(id(value))


def _travels_by_name(value: Any) -> bool:
    """Return whether a worker can import the object."""
    name, path = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if name is None or path is None or name in (MAIN, IMPORTED_MAIN) or name not in sys.modules or _is_module_by_value(name):
        return False
    found: Any = sys.modules[name]
    for step in path.split("."):
        found = getattr(found, step, None)
    return found is value


def _is_module_by_value(name: str) -> bool:
    """Return whether the user has registered the module with cloudpickle."""
    return any(name == module or name.startswith(f"{module}.") for module in cloudpickle.list_registry_pickle_by_value())


def _reduce_cached_function(function: Any) -> tuple[Any, ...]:
    attributes = {name: part for name, part in vars(function).items() if name != "cache_parameters"}
    return _make_cached_function, (function.__wrapped__, function.cache_parameters()), attributes


def _make_cached_function(function: Callable[..., Any], parameters: dict[str, Any]) -> Any:
    return functools.lru_cache(**parameters)(function)


def _reduce_cached_property(value: Any) -> tuple[Any, ...]:
    attributes = {name: part for name, part in vars(value).items() if name != "lock"}
    return functools.cached_property, (value.func,), attributes


def _reduce_generic_method(value: Any) -> tuple[Any, ...]:
    return functools.singledispatchmethod, (value.func,), {"dispatcher": value.dispatcher}


def _reduce_new_type(value: Any) -> tuple[Any, ...]:
    return typing.NewType, (value.__name__, value.__supertype__), vars(value)


def _reduce_memmap(array: Any) -> tuple[Any, ...]:
    return _make_memmap, (np.asarray(array),)


def _make_memmap(array: Any) -> Any:
    return array.view(np.memmap)


REDUCERS.update(
    {
        _CachedFunction: _reduce_cached_function,
        functools.cached_property: _reduce_cached_property,
        functools.singledispatchmethod: _reduce_generic_method,
        typing.NewType: _reduce_new_type,
        np.memmap: _reduce_memmap,
    }
)


def _reduce_generic(function: Any) -> tuple[Any, ...]:
    """Reduce a function under ``functools.singledispatch``.

    The implementations may refer to the function: they are its state, and are pickled after it.
    """
    attributes = {name: part for name, part in vars(function).items() if name not in _GENERIC_METHODS}
    attributes.update((name, getattr(function, name)) for name in ("__module__", "__name__", "__qualname__", "__doc__"))
    state = (attributes, dict(function.registry))
    return functools.singledispatch, (function.__wrapped__,), state, None, None, _set_generic


def _set_generic(function: Any, state: tuple[dict[str, Any], dict[type, Callable[..., Any]]]) -> None:
    attributes, registry = state
    for name, value in attributes.items():
        setattr(function, name, value)
    for kind, implementation in registry.items():
        function.register(kind, implementation)


def _reduce_file(file: io.IOBase) -> Any:
    for name in _STREAMS:
        if file is getattr(sys, name):
            return getattr, (sys, name)
    if type(file) is io.TextIOWrapper and not file.closed:
        raise PicklingError("an open file cannot be sent: open it in the worker")
    return NotImplemented


def _is_pickled_by_code_of_main(value: Any) -> bool:
    """Return whether an object of ``__main__`` defines its own pickling."""
    kind: Any = type(value)
    return (
        (kind.__reduce_ex__ is not object.__reduce_ex__ or kind.__reduce__ is not object.__reduce__)
        and not isinstance(value, type)
        and getattr(value, "__module__", None) in (MAIN, IMPORTED_MAIN)
    )


def _reduce_its_own_way(value: Any, main: ImportedMain | None) -> Any:
    reduced = value.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
    if isinstance(reduced, str) and (main is None or reduced.partition(".")[0] not in main.names):
        raise PicklingError(
            f"it is pickled by its name, {reduced!r} in {MAIN}, which workers do not have: "
            "move it into a module that they can import"
        )
    return reduced
