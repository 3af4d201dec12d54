"""Pickling of sources for spawned workers; forked workers have them already. The names follow ``nvidia.dali.pickling`` 1.53.

By default, objects that workers cannot import travel with their code, see `dali_like.sources.travel.by_value`. Users may
pass `Pipeline` their own pickler as ``py_callback_pickler``. Its result is pickled again, together with its ``loads``: in
the worker, ``pickle.loads`` reads every source.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import marshal
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from dali_like.common.articles import kind_of, with_article
from dali_like.common.foreign_errors import repr_of, text_of, type_name
from dali_like.engine.backends.inherited import InheritedObjects
from dali_like.engine.worker.out_of_band import put_large_aside
from dali_like.engine.worker.source import PickledSource
from dali_like.errors import ArgumentError, ArgumentTypeError, PicklingError
from dali_like.sources.plain_parts import plain_parts
from dali_like.sources.travel import by_value
from dali_like.sources.travel.hazards import is_opened
from dali_like.sources.travel.introspection import parts_of
from dali_like.sources.travel.main_module import ImportedMain, has_unguarded_main

__all__ = ["pickle_by_value"]

#: Depth of the search in a source for an object that cannot be pickled.
_DEPTH = 50

#: Advice at the end of messages, and an alternative for objects that forked workers can use.
Remedy = tuple[str, str]
REMEDY = (
    "Create it in the worker instead (in worker_setup, in __setstate__ or at the first call)",
    "py_start_method='fork'",
)
#: Threads can share what cannot be copied.
REMEDY_OF_THREADS = REMEDY[0], "py_start_method='thread', whose threads share one object"

_Function = TypeVar("_Function", bound=Callable[..., Any])


def pickle_by_value(function: _Function) -> _Function:
    """Let a function of a module travel to spawned workers with its code, as if it were defined in ``__main__``.

    Workers then need not be able to import its module, and see the function as it is now. Other functions of the module
    travel by name, unless they are decorated, too. This affects the default pickler only.

    Raises:
        ArgumentTypeError: `function` is not a plain function.

    >>> @pickle_by_value
    ... def callback(info):
    ...     return np.full((2, 3), info.idx_in_epoch)
    """
    if not inspect.isfunction(function):
        raise ArgumentTypeError(f"only plain functions can be pickled by value, not {kind_of(function)}")
    by_value.mark(function)
    return function


@dataclass(frozen=True)
class CallbackPickler:
    """A user's pickler, with its keyword arguments."""

    dumps: Callable[[Any], Any]
    loads: Callable[[Any], Any]


def make_callback_pickler(value: Any) -> CallbackPickler:
    """Check the argument ``py_callback_pickler`` of a pipeline.

    Raises:
        ArgumentError: it is not a pickler, nor a tuple of one and its keyword arguments.
    """
    pickler, *keywords = value if isinstance(value, (tuple, list)) and value and not _is_pickler(value) else (value,)
    if not _is_pickler(pickler) or len(keywords) > 2 or not all(map(_are_keywords, keywords)):
        raise ArgumentError(
            f"Unsupported py_callback_pickler value provided: {value!r}. It must be a module or object with functions dumps "
            "and loads, or a tuple of one, a dict of keyword arguments for dumps and, if need be, another for loads"
        )
    for_dumps, for_loads = [given or {} for given in (*keywords, None, None)][:2]
    return CallbackPickler(functools.partial(pickler.dumps, **for_dumps), functools.partial(pickler.loads, **for_loads))


def _is_pickler(value: Any) -> bool:
    return callable(getattr(value, "dumps", None)) and callable(getattr(value, "loads", None))


def _are_keywords(value: Any) -> bool:
    return value is None or (isinstance(value, dict) and all(isinstance(name, str) for name in value))


class _Packed:
    """The result of a user's pickler for an object. Unpickling it gives the object."""

    def __init__(self, pickler: CallbackPickler, value: Any) -> None:
        self._loads = pickler.loads
        self._data = pickler.dumps(value)

    def __reduce__(self) -> tuple[Callable[[Any], Any], tuple[Any]]:
        return self._loads, (self._data,)


def dumps(
    parts: dict[str, Any],
    name: str,
    pickler: CallbackPickler | None = None,
    *,
    innards: dict[str, Any] | None = None,
    remedy: Remedy = REMEDY,
    inherits: bool = True,
    main: ImportedMain | None = None,
) -> PickledSource:
    """Pickle the parts of a source together, so that objects shared by two parts stay shared.

    Large arrays travel out of band: workers share them. A user's pickler includes them in its result.

    Args:
        parts: the parts by their names in messages, the source first. Unpickling gives a tuple of the values.
        name: name of the source in messages.
        pickler: the user's pickler; None: the default one.
        innards: parts to name in messages, if the actual parts are not the user's objects.
        remedy: advice at the end of messages, and an alternative, unless the culprit is an open file or connection.
        inherits: whether the receivers are processes of this machine, which inherit primitives of `multiprocessing`.
        main: the main module that the receivers import; None: none.

    Raises:
        PicklingError: a part cannot be pickled; the message names its innermost part that refuses.
    """
    dump = functools.partial(_dump, inherits=inherits, main=main)
    try:
        packed = tuple(parts.values()) if pickler is None else _pack(pickler, *parts.values())
        return dump(packed)
    except Exception as error:
        path, culprit = _find_culprit(innards or parts, pickler, dump)
        receivers = "worker threads with copies" if main is not None and main.module is None else "spawned workers"
        advice = remedy[0] if is_opened(culprit) else ", or use ".join(remedy)
        if main is None and inherits and " -> " in path and has_unguarded_main():
            advice += '. Or put the code that starts the program under `if __name__ == "__main__":`; workers import the rest'
        raise PicklingError(
            f"{name} cannot be pickled for {receivers}: {path}, {with_article(type_name(culprit))}, refuses: "
            f"{text_of(error) or repr_of(error)}. {advice}"
        ) from error


def _dump(value: Any, *, inherits: bool, main: ImportedMain | None) -> PickledSource:
    buffers: list[pickle.PickleBuffer] = []
    modules: dict[str, None] = {}
    inherited = InheritedObjects() if inherits else None
    plain = plain_parts(value) if inherits else []
    data = by_value.dumps(value, put_large_aside(buffers), modules.setdefault, inherited, main, plain)
    descriptors = tuple(inherited.descriptors.values()) if inherited is not None else ()
    packed = tuple(map(marshal.dumps, plain))  # ten times as fast as pickle, and the same interpreter reads them
    return PickledSource(data, tuple(buffers), tuple(modules), descriptors, None if main is None else main.module, packed)


def _pack(pickler: CallbackPickler, source: Any, *others: Any) -> Any:
    if all(part is None or isinstance(part, str) for part in others):
        return (_Packed(pickler, source), *others)  # as in DALI: picklers see the callback only
    return _Packed(pickler, (source, *others))


def _find_culprit(parts: dict[str, Any], pickler: CallbackPickler | None, dump: Callable[[Any], Any]) -> tuple[str, Any]:
    search = _CulpritSearch([dump] if pickler is None else [pickler.dumps, dump])
    candidates = parts if pickler is None else {**parts, "loads of py_callback_pickler": pickler.loads}
    for name, part in candidates.items():
        if not search.can_be_pickled(part):
            return search.find(part, name, _DEPTH) or (name, part)
    return next(iter(parts.items()))


class _CulpritSearch:
    """Finds the object that refuses to be pickled, by the user's pickler and by value.

    A value passes if one of the two ways accepts it: some picklers refuse everything but sources.
    """

    def __init__(self, ways: list[Callable[[Any], Any]]) -> None:
        self._ways = ways
        self._seen: dict[int, Any] = {}

    def find(self, value: Any, path: str, depth: int) -> tuple[str, Any] | None:
        """Return the innermost part of a value that refuses, with its path; None if it lies outside of this value."""
        self._seen[id(value)] = value
        is_victim = False
        for step, part in _parts_of(value):
            if self.can_be_pickled(part):
                continue
            if not depth:
                break
            found = None if id(part) in self._seen else self.find(part, path + step, depth - 1)
            if found is not None:
                return found
            is_victim = True  # a part refuses, because it refers back to an outer object
        return None if is_victim and _can_be_reduced(value) else (path, value)

    def can_be_pickled(self, value: Any) -> bool:
        for dump in self._ways:
            with contextlib.suppress(Exception):  # pickling a user's class may raise anything
                dump(value)
                return True
        return False


def _parts_of(value: Any) -> Iterator[tuple[str, Any]]:
    if type(value).__module__.startswith("multiprocessing."):
        return  # its parts are not the user's objects
    with contextlib.suppress(Exception):  # attributes of user objects may raise anything
        yield from parts_of(value)
        yield ".__class__", type(value)


def _can_be_reduced(value: Any) -> bool:
    """Return whether the value itself can be reduced."""
    try:
        value.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
    except Exception:  # as above
        return False
    return True
