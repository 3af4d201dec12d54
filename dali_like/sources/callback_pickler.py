"""How sources travel to spawned workers; forked ones have them already. The names follow ``nvidia.dali.pickling`` 1.53.

By default what workers cannot import travels with its code, see `dali_like.sources.by_value`. Users may give `Pipeline` a
pickler of their own as ``py_callback_pickler``. What that makes is packed once more, together with its ``loads``, so that in
the worker ``pickle.loads`` reads every source, whoever has pickled it.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from dali_like.engine.backends.inherited import InheritedObjects
from dali_like.engine.worker.out_of_band import put_large_aside
from dali_like.engine.worker.source import PickledSource
from dali_like.errors import ArgumentError, ArgumentTypeError, PicklingError
from dali_like.sources import by_value
from dali_like.sources.introspection import parts_of

__all__ = ["pickle_by_value"]

#: How deep in a source one looks for what cannot be pickled. That may be its depth.
_DEPTH = 50

_REMEDY = (
    "Make it in the worker instead (in worker_setup, in __setstate__ or at the first call), or use py_start_method='fork'"
)

_Function = TypeVar("_Function", bound=Callable[..., Any])


def pickle_by_value(function: _Function) -> _Function:
    """Let a function of a module travel to spawned workers with its code, as if it were defined in ``__main__``.

    Workers then need not be able to import its module, and see it as it is now. The functions of the module that it calls
    travel by name, unless they are decorated, too. For the default pickler; one given as ``py_callback_pickler`` decides for
    itself.

    Raises:
        ArgumentTypeError: it is not a plain function.

    >>> @pickle_by_value
    ... def callback(info):
    ...     return np.full((2, 3), info.idx_in_epoch)
    """
    if not inspect.isfunction(function):
        raise ArgumentTypeError(f"only plain functions can be pickled by value, not a {type(function).__qualname__}")
    by_value.mark(function)
    return function


@dataclass(frozen=True)
class CallbackPickler:
    """A pickler of the user's own, with its keyword arguments."""

    dumps: Callable[[Any], Any]
    loads: Callable[[Any], Any]


def make_callback_pickler(value: Any) -> CallbackPickler:
    """Check the argument ``py_callback_pickler`` of a pipeline.

    Raises:
        ArgumentError: it is neither a pickler nor a tuple of one and its keyword arguments.
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
    """What a pickler has made of an object. Unpickling it gives the object."""

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
    remedy: str = _REMEDY,
    inherits: bool = True,
) -> PickledSource:
    """Pickle what a source consists of, all together: what two of them share is shared afterwards, too.

    Large arrays stay apart, so that workers can share them. A pickler of the user's own puts them into what it makes.

    Args:
        parts: what to pickle, by how messages call it, the source first. Unpickling gives a tuple of the values.
        name: how messages call the source.
        pickler: the user's own; None: the default one.
        innards: what messages speak of instead of the parts, where those are not the user's.
        remedy: what messages say that the user may do.
        inherits: whether it goes to processes of this machine, which inherit what `multiprocessing` has made.

    Raises:
        PicklingError: it cannot be pickled; the message names the innermost part that refuses.
    """
    dump = functools.partial(_dump, inherits=inherits)
    try:
        packed = tuple(parts.values()) if pickler is None else _pack(pickler, *parts.values())
        return dump(packed)
    except Exception as error:
        path, culprit = _find_culprit(innards or parts, pickler, dump)
        raise PicklingError(
            f"{name} cannot be pickled for spawned workers: {path}, a {type(culprit).__qualname__}, refuses: "
            f"{str(error) or repr(error)}. {remedy}"
        ) from error


def _dump(value: Any, *, inherits: bool) -> PickledSource:
    buffers: list[pickle.PickleBuffer] = []
    modules: dict[str, None] = {}
    inherited = InheritedObjects() if inherits else None
    data = by_value.dumps(value, put_large_aside(buffers), modules.setdefault, inherited)
    descriptors = tuple(inherited.descriptors.values()) if inherited is not None else ()
    return PickledSource(data, tuple(buffers), tuple(modules), descriptors)


def _pack(pickler: CallbackPickler, source: Any, *others: Any) -> Any:
    if all(part is None or isinstance(part, str) for part in others):
        return (_Packed(pickler, source), *others)  # as in DALI, whose picklers see the callback alone
    return _Packed(pickler, (source, *others))


def _find_culprit(parts: dict[str, Any], pickler: CallbackPickler | None, dump: Callable[[Any], Any]) -> tuple[str, Any]:
    search = _CulpritSearch([dump] if pickler is None else [pickler.dumps, dump])
    candidates = parts if pickler is None else {**parts, "loads of py_callback_pickler": pickler.loads}
    for name, part in candidates.items():
        if not search.can_be_pickled(part):
            return search.find(part, name, _DEPTH) or (name, part)
    return next(iter(parts.items()))


class _CulpritSearch:
    """Finds what it is that cannot be pickled, by the user's pickler or by value: some picklers refuse all but sources."""

    def __init__(self, ways: list[Callable[[Any], Any]]) -> None:
        self._ways = ways
        self._seen: dict[int, Any] = {}

    def find(self, value: Any, path: str, depth: int) -> tuple[str, Any] | None:
        """The innermost part of a value that refuses, and how one gets there; None if that is not within this value."""
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
            is_victim = True  # of what refers to it
        return None if is_victim and _can_be_reduced(value) else (path, value)

    def can_be_pickled(self, value: Any) -> bool:
        for dump in self._ways:
            with contextlib.suppress(Exception):  # whatever a user's class does when pickled
                dump(value)
                return True
        return False


def _parts_of(value: Any) -> Iterator[tuple[str, Any]]:
    if type(value).__module__.startswith("multiprocessing."):
        return  # what refuses in it is not what the user has made
    with contextlib.suppress(Exception):  # objects may say anything of themselves, or refuse to
        yield from parts_of(value)
        yield ".__class__", type(value)


def _can_be_reduced(value: Any) -> bool:
    """Whether it is not the value itself that refuses."""
    try:
        value.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
    except Exception:  # see above
        return False
    return True
