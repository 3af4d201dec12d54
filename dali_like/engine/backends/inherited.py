"""Primitives of `multiprocessing` in sources: counters, locks, queues and pipes that spawned workers share with the program.

Tensors of PyTorch in shared memory count as such primitives, see `dali_like.engine.backends.inherited_tensors`.

Runs in the main process (pickling) and in workers. `multiprocessing` pickles such objects only while it starts a process,
because their descriptors cannot go into a pickle. This module simulates such a start. The descriptors travel to the
forkserver with the source bundle, which keeps them as long as the sources live, and workers inherit them. The pickle names
the file of a descriptor and its access mode, because the numbers of descriptors change when they go through a socket.

Semaphores and shared memory have names. Each process that opens shared memory registers it with the resource tracker of
`multiprocessing`. A tracker of each worker would remove the memory at the end of the worker, so workers inherit the tracker
of the program.

Forked workers have all of these objects, but `multiprocessing` must learn that they are other processes.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, NamedTuple

from dali_like.engine.memory.descriptors import Descriptor, LentDescriptor
from dali_like.errors import PicklingError

#: Modules whose reducers handle objects with descriptors. Other reducers of `multiprocessing` are no better than pickle.
_MODULES = ("multiprocessing.connection", "multiprocessing.heap", "multiprocessing.sharedctypes")


class _File(NamedTuple):
    """Identity of an open file. The two ends of a pipe differ in access only."""

    device: int
    inode: int
    access: int

    @classmethod
    def of(cls, fd: int) -> _File:
        import fcntl  # absent on Windows

        status = os.fstat(fd)
        return cls(status.st_dev, status.st_ino, fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE)


#: While sources are unpickled, by file: its descriptor, or the object that has taken the place of the descriptor.
_inherited: dict[_File, Any] = {}


class Inherited:
    """A descriptor in a pickle. Replaces `multiprocessing.reduction.DupFd`."""

    def __init__(self, file: _File) -> None:
        self._file = file

    def detach(self) -> int:
        """Return a duplicate of the descriptor, for the caller to close. Runs in the worker."""
        return os.dup(_inherited[self._file].fileno())

    def become(self, make: Callable[[Descriptor], Any]) -> Any:
        """Return the object that takes the place of the descriptor: a process has one descriptor for it, and not two.

        Args:
            make: makes the object, the first time. It detaches the descriptor.
        """
        found = _inherited[self._file]
        if isinstance(found, Descriptor):
            found = _inherited[self._file] = make(found)
        return found


class InheritedObjects:
    """Context manager in which the current thread can pickle primitives of `multiprocessing`.

    It replaces the `Popen` object of `multiprocessing`.

    Args:
        for_spawned: whether the pickle is for spawned workers, and not for a comparison.

    Attributes:
        descriptors: the descriptors to inherit, by file.
    """

    DupFd = Inherited

    def __init__(self, for_spawned: bool = True) -> None:
        from multiprocessing import (  # few programs need it
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
        self._of_tensors: Mapping[type, Callable[[Any, InheritedObjects], Any]] = {}
        if "torch.multiprocessing.reductions" in sys.modules:
            from dali_like.engine.backends.inherited_tensors import REDUCERS  # imports PyTorch

            self._of_tensors = REDUCERS

    def __enter__(self) -> InheritedObjects:
        self._outer = self._context.get_spawning_popen()
        self._context.set_spawning_popen(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._context.set_spawning_popen(self._outer)

    def duplicate_for_child(self, fd: int) -> _File:
        """Add a descriptor to `descriptors`, and return its name in the pickle."""
        file = _File.of(fd)
        if self._for_spawned and file not in self.descriptors:
            self.descriptors[file] = Descriptor(os.dup(fd))
        return file

    def lend_to_child(self, fd: int, owner: object) -> _File:
        """As `duplicate_for_child`, for a descriptor that its owner never closes. So no duplicate is needed."""
        file = _File.of(fd)
        if self._for_spawned and file not in self.descriptors:
            self.descriptors[file] = LentDescriptor(fd, owner)
        return file

    def reduce(self, value: Any) -> Any:
        """Reduce an object, for `pickle.Pickler.reducer_override`.

        Raises:
            PicklingError: only fork can share the object.
        """
        if isinstance(value, self._semaphores):
            return self._reduce_semaphore(value)
        if isinstance(value, self._memories) and self._tracker._fd is not None:
            tracker = Inherited(self.duplicate_for_child(self._tracker._fd))
            return _attach, (tracker, *value.__reduce__()[:2])
        if (of_tensor := self._of_tensors.get(type(value))) is not None:
            return of_tensor(value, self)
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
                'supported. Create it with multiprocessing.get_context("spawn"), as in get_context("spawn").Value("i")'
            )
        return type(value), (value._semlock.handle,)


def _attach(tracker: Inherited, kind: type, arguments: tuple[Any, ...]) -> Any:
    from multiprocessing import resource_tracker  # see `InheritedObjects`

    own: Any = resource_tracker._resource_tracker
    if own._fd is None:
        own._fd = tracker.detach()
    return kind(*arguments)


@contextlib.contextmanager
def inheriting(descriptors: Iterable[Descriptor]) -> Iterator[None]:
    """Provide the descriptors for objects that are unpickled inside of the context."""
    _inherited.update((_File.of(descriptor.fileno()), descriptor) for descriptor in descriptors)
    try:
        yield
    finally:
        _inherited.clear()


def enter_process(worker: int, program: int, sentinel: int) -> None:
    """Tell `multiprocessing`, at the start of a worker, that this is a process of its own.

    Then inherited proxies of managers connect again, and inherited queues start their threads. Otherwise workers would read
    each other's answers, and items put into a queue would not leave the worker.

    Args:
        worker: number of the worker.
        program: the process for ``parent_process()``.
        sentinel: a descriptor that becomes readable when `program` ends. It is not closed here.
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
    """Let queues send their items, at the end of a worker, as processes of `multiprocessing` do."""
    util: Any = sys.modules.get("multiprocessing.util")
    if util is not None:
        util._run_finalizers()  # finalizers of another process do nothing
