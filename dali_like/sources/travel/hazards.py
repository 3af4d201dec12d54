"""Warnings for sources and datasets with objects that workers cannot share, or must not copy. Runs in the main process.

- A forked worker has its own copy of a lock, which stays locked; it shares file positions and connections with the parent;
  and it has none of the parent's threads. The result is often a hang or mixed-up data.
- Worker threads share the position of a file as well: one thread moves it while another reads.
- Worker processes, and threads with copies, have copies of a random generator, which draw the same numbers.

Local classes need care as well. Their objects come back from a worker by value, together with the class. They are instances
of the program's own class only if cloudpickle has given the class an identity before the fork.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import random
import sys
import threading
import types
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from dali_like.common.notices import warn
from dali_like.engine.memory.limits import recently_available_bytes
from dali_like.engine.memory.space import mib
from dali_like.engine.pool.backend_traits import BACKENDS
from dali_like.sources.travel.introspection import large_containers, parts_of

if TYPE_CHECKING:
    from dali_like.sources.external_source import ExternalSource

#: Depth of the search, and parts per object: enough for attributes and their attributes.
_DEPTH = 3
_PARTS = 200

#: The share of the available memory for copies of objects, above which a warning is due.
_SHARE_OF_COPIES = 0.5

#: Methods in which a source or a dataset uses global variables.
_METHODS = ("__call__", "__getitem__", "__getitems__", "__iter__")
#: Libraries whose objects are open files or connections.
_OPENING = ("h5py", "tables", "netCDF4", "lmdb", "duckdb", "psycopg", "psycopg2", "pymysql", "MySQLdb", "redis", "pymongo")


class UseInWorkers(NamedTuple):
    """Where and how workers use an object, for the choice of hazards and of advice.

    Attributes:
        start_method: the name of the workers' backend.
        are_several: whether several workers use the object.
        repeats: whether copies of a random generator draw the same numbers: nothing can have seeded them.
        setup: the argument for a function that each worker calls at its start.
        random: the advice on random numbers.
    """

    start_method: str
    are_several: bool
    repeats: bool
    setup: str
    random: str

    @property
    def is_shared(self) -> bool:
        """Whether workers are threads that share the object."""
        return BACKENDS[self.start_method].shares_objects

    @property
    def opening(self) -> str:
        """The advice on files and connections."""
        if self.is_shared:
            return f"Give each thread its own: keep it in a threading.local, and open it in {self.setup}"
        return f"Open it in the worker, in {self.setup} or when it is first used"


def warn_of_hazards(sources: Iterable[ExternalSource], start_method: str, num_workers: int) -> None:
    """Warn of objects in sources of a pipeline that do not work as expected in workers."""
    for source in sources:
        are_several = num_workers > 1 and (not source.in_order or source.sharded or source.in_shards)
        place = UseInWorkers(
            start_method=start_method,
            are_several=are_several,
            repeats=are_several and source.options["worker_setup"] is None,
            setup="worker_setup",
            random="Draw from info.rng(), of a SampleInfo or BatchInfo, whose numbers depend on the sample",
        )
        for hazard in hazards_of(source.callback, "source", place):
            warn(f"{source.name}: {hazard}", RuntimeWarning)
        warn_of_copies(source.callback, f"{source.name}: source", start_method, num_workers)


def warn_of_hazards_in_dataset(dataset: Any, start_method: str, num_workers: int, *, repeats: bool) -> None:
    """Warn of objects in the dataset of a loader that do not work as expected in workers.

    Args:
        dataset, start_method, num_workers: of the loader.
        repeats: whether the loader indexes the dataset, and no ``worker_init_fn`` can have seeded generators.
    """
    advice = "Draw from the global generators of random, NumPy and PyTorch, which the loader seeds"
    place = UseInWorkers(
        start_method=start_method,
        are_several=num_workers > 1,
        repeats=repeats,
        setup="worker_init_fn",
        random="Make one from the index"
        if BACKENDS[start_method].are_threads
        else f"{advice}, or seed this one in worker_init_fn",
    )
    for hazard in hazards_of(dataset, "dataset", place):
        warn(hazard, RuntimeWarning)
    warn_of_copies(dataset, "dataset", start_method, num_workers)


def warn_of_copies(value: Any, name: str, start_method: str, num_workers: int) -> None:
    """Warn of large lists and dicts of objects whose copies in all workers would take half of the available memory.

    The search looks at a few hundred objects. Workers take the memory as they read, so it is not short yet.
    """
    if num_workers < 2 or not BACKENDS[start_method].copies_objects or not (large := large_containers(value, name)):
        return
    nbytes, available = sum(container.bytes_to_copy() for container in large), recently_available_bytes()
    if nbytes * num_workers > available * _SHARE_OF_COPIES:
        kinds = dict.fromkeys("SharedDict" if isinstance(found.objects, dict) else "SharedList" for found in large)
        warn(
            f"{'; '.join(found.text for found in large)}: each worker copies objects by reading them, about {mib(nbytes)}. "
            f"{num_workers} workers need {mib(nbytes * num_workers)} for that, and {mib(available)} are available. "
            f"Share the memory: {', '.join(f'dali_like.data.{kind}(...)' for kind in kinds)}",
            RuntimeWarning,
        )


def is_opened(value: Any) -> bool:
    """Return whether an object is an open file or connection, which neither a pickle nor a fork brings to workers."""
    return type(value).__module__.partition(".")[0] in _OPENING or _sharing(value) is not None


def announce_local_classes(sources: Iterable[ExternalSource]) -> None:
    """Give an identity to the local classes of sources of Python objects, before workers are forked."""
    for source in sources:
        if any(source.objects):
            announce_local_classes_of(source.callback)


def announce_local_classes_of(value: Any) -> None:
    """Give an identity to the local classes that a value refers to, before workers are forked."""
    for kind in _local_classes(value, _DEPTH, set()):
        from dali_like.common.pickling_by_value import dumps_by_value  # most programs need no cloudpickle

        with contextlib.suppress(Exception):  # a class that cannot be pickled fails later, with its objects
            dumps_by_value(kind)


def _local_classes(value: Any, depth: int, seen: set[int]) -> Iterator[type]:
    if id(value) in seen:
        return
    seen.add(id(value))
    kind = value if issubclass(type(value), type) else type(value)  # isinstance() would ask the object for its class
    if "<locals>" in kind.__qualname__:
        yield kind
    if depth and not issubclass(type(value), (type, types.ModuleType)):
        parts: list[tuple[str, Any]] = []
        with contextlib.suppress(Exception):  # attributes of user objects may raise anything
            parts = list(itertools.islice(parts_of(value), _PARTS))
        for step, part in parts:
            yield from _local_classes(part, depth - bool(step), seen)


def hazards_of(value: Any, name: str, place: UseInWorkers) -> list[str]:
    """Return the hazards of a source or dataset in workers, each with advice."""
    seen: set[int] = set()
    found = list(_search(value, name, place, _DEPTH, seen))
    for method in _METHODS:
        function = getattr(type(value), method, None)
        if isinstance(function, types.FunctionType):
            found += _search(function, f"{name}.{method}", place, _DEPTH, seen)
    return found


def _search(value: Any, path: str, place: UseInWorkers, depth: int, seen: set[int]) -> Iterator[str]:
    if id(value) in seen or _is_queue(value) or getattr(type(value), "opens_in_each_process", None) is True:
        return
    seen.add(id(value))
    try:
        problem = _problem(value, place)
        parts = list(itertools.islice(parts_of(value), _PARTS))
    except Exception:  # attributes of user objects may raise anything
        return
    if problem is not None:
        yield f"{path} is {problem}"
    elif depth and not isinstance(value, (type, types.ModuleType)):
        for step, part in parts:
            if not (_is_generator(part) and _is_of_library(type(value))):  # libraries such as Albumentations seed their own
                yield from _search(part, path + step, place, depth - bool(step), seen)


def _is_of_library(kind: type) -> bool:
    """Return whether a class comes from an installed library."""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None) or ""
    return any(folder in file for folder in ("/site-packages/", "/dist-packages/"))


def _problem(value: Any, place: UseInWorkers) -> str | None:
    is_forked = BACKENDS[place.start_method].forks
    if is_forked and isinstance(value, type(threading.Lock())) and value.locked():  # a free lock is harmless
        return f"a locked lock, which stays locked in the workers. Release it first, or create it in {place.setup}"
    if is_forked and isinstance(value, threading.Thread) and value.is_alive():
        return f"a running thread, which does not run in the workers. Start it in {place.setup}"
    is_shared = place.are_several if place.is_shared else is_forked
    if is_shared and (sharing := _sharing(value)) is not None:
        return f"{sharing}. {place.opening}"
    if place.repeats and not place.is_shared and _is_generator(value):
        return f"a random generator. Each worker starts with a copy, and draws the same numbers. {place.random}"
    return None


def _is_queue(value: Any) -> bool:
    """Return whether an object is a queue of multiprocessing. It makes its thread and its locks anew in a forked process."""
    queues = sys.modules.get("multiprocessing.queues")
    return queues is not None and issubclass(type(value), queues.Queue)  # isinstance() would ask the object for its class


def _sharing(value: Any) -> str | None:
    """Describe the parts of an open file or connection that workers share; None for other objects."""
    if isinstance(value, io.IOBase) and not isinstance(value, (io.BytesIO, io.StringIO)):
        # Sharing the standard streams, and files that are only written to, is normal.
        streams = (sys.stdin, sys.stdout, sys.stderr, sys.__stdin__, sys.__stdout__, sys.__stderr__)
        if not value.closed and value.readable() and not any(value is stream for stream in streams):
            return "an open file, whose position all workers share"
    elif (socket := sys.modules.get("socket")) is not None and isinstance(value, socket.socket):
        if value.fileno() >= 0:
            return "an open socket, which all workers share"
    elif (sqlite3 := sys.modules.get("sqlite3")) is not None and isinstance(value, sqlite3.Connection):
        return "a database connection, which only the process and thread that opened it may use"
    return None


def _is_generator(value: Any) -> bool:
    """Return whether an object is a random generator, other than the global ones. Never run code of the object."""
    kind = type(value)  # isinstance() would ask the object for its class
    if issubclass(kind, random.Random):
        return not issubclass(kind, random.SystemRandom) and value is not getattr(random, "_inst", None)
    if (numpy := sys.modules.get("numpy.random")) is not None:
        if issubclass(kind, numpy.RandomState):
            return value is not numpy.mtrand._rand
        if issubclass(kind, (numpy.Generator, numpy.BitGenerator)):
            return True
    torch = sys.modules.get("torch")
    return torch is not None and issubclass(kind, torch.Generator) and value is not torch.default_generator
