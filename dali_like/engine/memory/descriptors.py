"""File descriptors with an owner, in the main process and in forkservers.

A forked child inherits every descriptor of its parent. Descriptors of other pipelines would keep their pipes open, and count
against the child's limits. So the forkserver closes all but its own. Plain numbers could not be closed safely: the owner
might close the same number again when it belongs to another file.
"""

from __future__ import annotations

import errno
import os
import select
import weakref
from collections.abc import Collection
from contextlib import suppress
from typing import ClassVar

from dali_like.errors import DescriptorLimitError

_FIRST_FREE = 3
_ALARM_BYTES = 4096


def _duplicate(fd: int) -> int:
    """Return another number for an open file, which is not the number of a standard stream."""
    import fcntl  # absent on Windows

    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE)


class Descriptor:
    """A file descriptor that is closed exactly once: by `close`, or with the garbage collection of this object.

    If the number is one of a closed standard stream, it is replaced: the program may open that stream again. With the number
    -1 it is closed from the start.

    Attributes:
        number: as `fileno` returns it. It is read for each batch, where a call would cost more.
    """

    _open: ClassVar[weakref.WeakSet[Descriptor]] = weakref.WeakSet()
    number = -1
    _close = staticmethod(os.close)  # at the exit of the program, modules may be empty before the last descriptor is closed

    def __init__(self, fd: int) -> None:
        if 0 <= fd < _FIRST_FREE:
            fd, low = _duplicate(fd), fd
            os.close(low)
        self.number = fd
        self._open.add(self)

    def fileno(self) -> int:
        """Return the number; -1 when closed."""
        return self.number

    def wait(self, timeout_s: float) -> bool:
        """Wait until it is readable or at end of file. Return False after the timeout."""
        poll = select.poll()
        poll.register(self, select.POLLIN)
        return bool(poll.poll(timeout_s * 1000))

    def close(self) -> None:
        """Close it. Calling it again does nothing."""
        fd, self.number = self.number, -1
        if fd >= 0:
            self._close(fd)

    def detach(self) -> int:
        """Return the number, which the caller must close from now on."""
        fd, self.number = self.number, -1
        return fd

    def __del__(self) -> None:
        self.close()

    @classmethod
    def close_all_but(cls, kept: Collection[Descriptor]) -> None:
        """Close all descriptors that the parent had open, except `kept`. For forked children."""
        for descriptor in list(cls._open):
            if descriptor not in kept:
                descriptor.close()


class LentDescriptor(Descriptor):
    """A file descriptor that belongs to another object, which this one keeps. `close` gives the object up."""

    def __init__(self, fd: int, owner: object) -> None:
        self.number = fd
        self._owner: object = owner

    def detach(self) -> int:
        """Return a duplicate: the number itself stays with the owner."""
        return _duplicate(self.number)

    def close(self) -> None:
        """Give the owner up."""
        self.number, self._owner = -1, None


class Alarm(Descriptor):
    """A descriptor that one thread makes readable to wake another thread of this process: the end of a pipe."""

    def __init__(self) -> None:
        read, write = os.pipe()
        super().__init__(read)
        self._write = Descriptor(write)
        os.set_blocking(self.fileno(), False)
        os.set_blocking(self._write.fileno(), False)

    def ring(self) -> None:
        """Make it readable."""
        with suppress(BlockingIOError):  # the pipe is full, so it is readable
            os.write(self._write.fileno(), b"!")

    def clear(self) -> None:
        """Make it unreadable until the next `ring`."""
        with suppress(BlockingIOError):  # it was unreadable
            while len(os.read(self.fileno(), _ALARM_BYTES)) == _ALARM_BYTES:
                pass

    def close(self) -> None:
        """Close both ends."""
        super().close()
        self._write.close()


class EventSet(Descriptor):
    """A set of descriptors (epoll). It is readable while any of them is, or is at end of file.

    A child that the program forks shares the set with its parent. It must not change it, not even when it drops the set.
    """

    _epoll: select.epoll | None = None

    def __init__(self) -> None:
        self._pid = os.getpid()
        made = select.epoll()
        super().__init__(_duplicate(made.fileno()))
        made.close()
        self._epoll = select.epoll.fromfd(self.number)

    def add(self, descriptor: Descriptor) -> None:
        """Add a descriptor. Remove it before it is closed: copies in other processes would keep it in the set."""
        if self._epoll is not None:
            self._epoll.register(descriptor, select.EPOLLIN)

    def remove(self, descriptor: Descriptor) -> None:
        """Remove a descriptor. Does nothing if it is not in the set, or in a child of the process that made the set."""
        with suppress(OSError, ValueError):
            if self._epoll is not None and self._pid == os.getpid():
                self._epoll.unregister(descriptor)

    def close(self) -> None:
        """Close the set, but no descriptor in it. Calling it again does nothing."""
        self.number = -1
        if self._epoll is not None:
            self._epoll.close()


class DescriptorRoom:
    """Room for descriptors that arrive in messages: the kernel drops them if the process has reached its limit.

    Args:
        some: any open descriptor.
        count: how many may arrive. Each takes the place of one that this object holds.

    Raises:
        OSError: the limit leaves too few.
    """

    def __init__(self, some: Descriptor, count: int) -> None:
        self._some = some
        self._held: list[Descriptor] = []
        for _ in range(count):
            self._held.append(self._make())  # not a comprehension: after an error, the list has the ones to close

    def free_one(self) -> None:
        """Make room for the next message."""
        if self._held:
            self._held.pop().close()

    def hold_one(self) -> None:
        """Hold room again: the message had no descriptor, or the descriptor has been closed."""
        with suppress(OSError):  # another thread has taken the room
            self._held.append(self._make())

    def close(self) -> None:
        """Close all that are held."""
        while self._held:
            self.free_one()

    def _make(self) -> Descriptor:
        return Descriptor(_duplicate(self._some.fileno()))


class enough_descriptors:  # noqa: N801  # it is used like those of contextlib
    """Context manager for the start of workers: turns EMFILE and ENFILE into an error with advice.

    It is not a generator: from Python 3.12 on, the frame of a generator would keep itself, the failed object and its
    descriptors alive.

    Args:
        whose: the object that needs the descriptors, for the message.

    Raises:
        DescriptorLimitError: there are too few descriptors.
    """

    __slots__ = ("_whose",)

    def __init__(self, whose: str) -> None:
        self._whose = whose

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, *_: object) -> None:
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            raise DescriptorLimitError(
                error.errno,
                f"no file descriptors are left for {self._whose}, which needs 13 and up to three for each worker; "
                "close some, or raise `ulimit -n`",
            ) from error
