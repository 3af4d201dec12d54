"""Primitives of `multiprocessing` in sources: counters, locks, queues and pipes that spawned workers share with the program.

`multiprocessing` lets them be pickled only while it starts a process, because the descriptors in them cannot go into a
pickle. Here it believes that it does. The descriptors come to the forkserver along with the bundle, which keeps them for as
long as the sources live, and workers inherit them. In a pickle stands which file a descriptor refers to, and how that is
open: numbers differ where descriptors have gone through a socket.

Semaphores and shared memory are found by their names. The latter are registered by whoever opens them with the resource
tracker of `multiprocessing`. That would be one for each worker, which removed the memory at the end of the worker; so
workers inherit the tracker of the program.

Forked workers have all of that already, but `multiprocessing` has to be told that they are other processes.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, NamedTuple

from dali_like.engine.memory.descriptors import Descriptor
from dali_like.errors import PicklingError

#: Where `multiprocessing` reduces what has descriptors in it, or memory of such. It reduces other things, too, in no better
#: way than pickle does.
_MODULES = ("multiprocessing.connection", "multiprocessing.heap", "multiprocessing.sharedctypes")


class _File(NamedTuple):
    """What tells open files from each other; the two ends of a pipe are one but for the access."""

    device: int
    inode: int
    access: int

    @classmethod
    def of(cls, fd: int) -> _File:
        status = os.fstat(fd)
        return cls(status.st_dev, status.st_ino, fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE)


_inherited: dict[_File, Descriptor] = {}


class _Inherited:
    """A descriptor in a pickle; as `multiprocessing.reduction.DupFd`."""

    def __init__(self, file: _File) -> None:
        self._file = file

    def detach(self) -> int:
        """In the worker: a descriptor, which is the caller's."""
        return os.dup(_inherited[self._file].fileno())


class InheritedObjects:
    """Lets primitives of `multiprocessing` be pickled by the current thread, as a context manager.

    It takes the place of the `Popen` of `multiprocessing` in that.

    Args:
        for_spawned: whether what is pickled is going to spawned workers, rather than to be compared.

    Attributes:
        descriptors: what is to be inherited, by file.
    """

    DupFd = _Inherited

    def __init__(self, for_spawned: bool = True) -> None:
        from multiprocessing import (  # noqa: PLC0415  # few programs need it
            context,
            reduction,
            resource_tracker,
            shared_memory,
            sharedctypes,
            synchronize,
        )

        self.descriptors: dict[_File, Descriptor] = {}
        self._for_spawned = for_spawned
        self._context: Any = context
        self._reducers: dict[type, Callable[[Any], Any]] = reduction.ForkingPickler._extra_reducers  # type: ignore[attr-defined]
        self._reduce_ctype: Any = sharedctypes.reduce_ctype  # type: ignore[attr-defined]
        self._semaphores = synchronize.SemLock
        self._memories = (shared_memory.SharedMemory, shared_memory.ShareableList)
        self._tracker: Any = resource_tracker._resource_tracker

    def __enter__(self) -> InheritedObjects:
        self._outer = self._context.get_spawning_popen()
        self._context.set_spawning_popen(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._context.set_spawning_popen(self._outer)

    def duplicate_for_child(self, fd: int) -> _File:
        """Take a descriptor along; what it is called in the pickle."""
        file = _File.of(fd)
        if file not in self.descriptors:
            self.descriptors[file] = Descriptor(os.dup(fd))
        return file

    def reduce(self, value: Any) -> Any:
        """How to pickle it, as `pickle.Pickler.reducer_override` says it.

        Raises:
            PicklingError: it can only be inherited by fork.
        """
        if isinstance(value, self._semaphores):
            return self._reduce_semaphore(value)
        if isinstance(value, self._memories) and self._tracker._fd is not None:
            tracker = _Inherited(self.duplicate_for_child(self._tracker._fd))
            return _attach, (tracker, *value.__reduce__()[:2])
        reducer = self._reducers.get(type(value))
        if reducer is None or reducer.__module__ not in _MODULES:
            return NotImplemented
        if reducer is self._reduce_ctype and not hasattr(value, "_wrapper"):
            return NotImplemented  # its memory is not shared
        return reducer(value)

    def _reduce_semaphore(self, value: Any) -> Any:
        if value._semlock.name is not None:
            return NotImplemented
        if self._for_spawned:
            raise PicklingError(
                "A SemLock created in a fork context is being shared with a process in a spawn context. This is not "
                'supported. Make it by multiprocessing.get_context("spawn"), as in get_context("spawn").Value("i")'
            )
        return type(value), (value._semlock.handle,)


def _attach(tracker: _Inherited, kind: type, arguments: tuple[Any, ...]) -> Any:
    from multiprocessing import resource_tracker  # noqa: PLC0415  # see `InheritedObjects`

    own: Any = resource_tracker._resource_tracker
    if own._fd is None:
        own._fd = tracker.detach()
    return kind(*arguments)


@contextlib.contextmanager
def inheriting(descriptors: Iterable[Descriptor]) -> Iterator[None]:
    """Let what is unpickled meanwhile find its descriptors among these."""
    _inherited.update((_File.of(descriptor.fileno()), descriptor) for descriptor in descriptors)
    try:
        yield
    finally:
        _inherited.clear()


def enter_process(worker: int, program: int, sentinel: int) -> None:
    """At the beginning of a worker: let `multiprocessing` know that it is in a process of its own, as in its own ones.

    Of what has come with a fork, proxies of managers then connect anew, and queues start threads; otherwise workers would
    read each other's answers, and what they put into a queue would stay there.

    Args:
        worker: its number.
        program: the process that ``parent_process()`` is to name.
        sentinel: a descriptor that is readable when that has ended, and is not closed here.
    """
    process: Any = sys.modules.get("multiprocessing.process")
    util: Any = sys.modules.get("multiprocessing.util")
    if process is not None:
        process._process_counter = itertools.count(worker + 1)
        own = process.BaseProcess(name=f"dali_like:{worker}", daemon=False)
        own._parent_pid = program
        process._current_process = own
        process._parent_process = process._ParentProcess(own._parent_name, program, sentinel)
        process._process_counter, process._children = itertools.count(1), set()
    if util is not None:
        util._finalizer_registry.clear()
        util._run_after_forkers()


def finish_queues() -> None:
    """At the end of a worker: let queues send what has been put into them, as processes of `multiprocessing` do."""
    util: Any = sys.modules.get("multiprocessing.util")
    if util is not None:
        util._run_finalizers()  # those that belong to another process do nothing
