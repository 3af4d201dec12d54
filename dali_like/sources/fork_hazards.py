"""Warnings for sources that hold objects which do not survive a fork: locked locks, open files, connections, threads.

A forked worker has its own copy of a lock, which stays locked; it shares file positions and connections with the parent; and
it has none of the parent's threads. The result is often a hang or mixed-up data.

Local classes need care as well. Their objects come back from a worker by value, together with the class. They are instances
of the program's own class only if cloudpickle has given the class an identity before the fork.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import sys
import threading
import types
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from dali_like.common.notices import warn
from dali_like.sources.introspection import parts_of

if TYPE_CHECKING:
    from dali_like.sources.external_source import ExternalSource

#: Depth of the search, and parts per object: enough for attributes and their attributes.
_DEPTH = 3
_PARTS = 200


def warn_of_fork_hazards(sources: Iterable[ExternalSource]) -> None:
    """Warn of objects in sources that do not work as expected in forked workers."""
    for source in sources:
        assert source.kind is not None
        for hazard in fork_hazards(source.kind.callback):
            warn(
                f"{source.name} does not fork well: {hazard}. Create it in the worker, at the first call, or use "
                "py_start_method='spawn'",
                RuntimeWarning,
            )


def announce_local_classes(sources: Iterable[ExternalSource]) -> None:
    """Give an identity to the local classes of sources of Python objects, before workers are forked."""
    for source in sources:
        if any(source.objects) and source.kind is not None:
            announce_local_classes_of(source.kind.callback)


def announce_local_classes_of(value: Any) -> None:
    """Give an identity to the local classes that a value refers to, before workers are forked."""
    for kind in _local_classes(value, _DEPTH, set()):
        from dali_like.common.pickling_by_value import dumps_by_value  # noqa: PLC0415  # most programs need no cloudpickle

        with contextlib.suppress(Exception):  # a class that cannot be pickled fails later, with its objects
            dumps_by_value(kind)


def _local_classes(value: Any, depth: int, seen: set[int]) -> Iterator[type]:
    if id(value) in seen:
        return
    seen.add(id(value))
    kind = value if isinstance(value, type) else type(value)
    if "<locals>" in kind.__qualname__:
        yield kind
    if depth and not isinstance(value, (type, types.ModuleType)):
        parts: list[tuple[str, Any]] = []
        with contextlib.suppress(Exception):  # attributes of user objects may raise anything
            parts = list(itertools.islice(parts_of(value), _PARTS))
        for step, part in parts:
            yield from _local_classes(part, depth - bool(step), seen)


def fork_hazards(source: Any) -> list[str]:
    """Return the hazards of a source in a forked worker, one clause each."""
    return list(_search(source, "source", _DEPTH, set()))


def _search(value: Any, path: str, depth: int, seen: set[int]) -> Iterator[str]:
    if id(value) in seen:
        return
    seen.add(id(value))
    try:
        problem = _problem(value)
        parts = list(itertools.islice(parts_of(value), _PARTS))
    except Exception:  # attributes of user objects may raise anything
        return
    if problem is not None:
        yield f"{path} is {problem}"
    elif depth and not isinstance(value, (type, types.ModuleType)):
        for step, part in parts:
            yield from _search(part, path + step, depth - bool(step), seen)


def _problem(value: Any) -> str | None:
    if isinstance(value, (type(threading.Lock()), type(threading.RLock()))):
        # The owner of a lock is unknown. A free lock is harmless.
        if isinstance(value, type(threading.Lock())) and value.locked():
            return "a locked lock, which stays locked in the workers forever"
    elif isinstance(value, threading.Thread):
        if value.is_alive():
            return "a running thread, which does not run in the workers"
    elif isinstance(value, io.IOBase) and not isinstance(value, (io.BytesIO, io.StringIO)):
        # Sharing these is normal.
        streams = (sys.stdin, sys.stdout, sys.stderr, sys.__stdin__, sys.__stdout__, sys.__stderr__)
        if not value.closed and not any(value is stream for stream in streams):
            return "an open file, whose position all workers share"
    elif (socket := sys.modules.get("socket")) is not None and isinstance(value, socket.socket):
        if value.fileno() >= 0:
            return "an open socket, which all workers share"
    elif (sqlite3 := sys.modules.get("sqlite3")) is not None and isinstance(value, sqlite3.Connection):
        return "a database connection, which must not be used after a fork"
    return None
