"""File descriptors with an owner.

A forked child inherits every descriptor of its parent. Those of other pipelines would keep their pipes open and count
against its limits, so the forkserver closes all but its own; a plain number could not be closed safely, since whoever else
holds it might close it again when it means something new.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import weakref
from collections.abc import Collection
from contextlib import suppress
from typing import ClassVar

from dali_like.errors import DescriptorLimitError

_FIRST_FREE = 3


class Descriptor:
    """A file descriptor that is closed once: by `close`, or when its owner is gone.

    It is moved away from the numbers of the standard streams, should those be free: somebody may open them one day.
    """

    _open: ClassVar[weakref.WeakSet[Descriptor]] = weakref.WeakSet()
    _fd = -1
    _close = staticmethod(os.close)  # the end of a program takes modules apart before everybody has closed theirs

    def __init__(self, fd: int) -> None:
        if fd < _FIRST_FREE:
            fd, low = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE), fd
            os.close(low)
        self._fd = fd
        self._open.add(self)

    def fileno(self) -> int:
        """The number; -1 when closed."""
        return self._fd

    def wait(self, timeout_s: float) -> bool:
        """Wait until there is something to be read, or nothing will be any more; whether that is so in time."""
        poll = select.poll()
        poll.register(self, select.POLLIN)
        return bool(poll.poll(timeout_s * 1000))

    def close(self) -> None:
        """Close it, unless that has been done."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            self._close(fd)

    def __del__(self) -> None:
        self.close()

    @classmethod
    def close_all_but(cls, kept: Collection[Descriptor]) -> None:
        """In a forked child: close all that the parent had open except those given."""
        for descriptor in list(cls._open):
            if descriptor not in kept:
                descriptor.close()


class Alarm(Descriptor):
    """A descriptor by which a thread of this process wakes another one that waits for it to be readable."""

    def __init__(self) -> None:
        super().__init__(os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC))

    def ring(self) -> None:
        """Let it be readable."""
        os.eventfd_write(self.fileno(), 1)

    def clear(self) -> None:
        """Let it not be, until it rings again."""
        with suppress(BlockingIOError):  # it has not rung
            os.eventfd_read(self.fileno())


class enough_descriptors:  # noqa: N801  # it is used like those of contextlib
    """A context in which workers are started, and the error says what to do if there are no descriptors for that.

    It is no generator: from Python 3.12 on, the frame of one would keep itself and what failed alive, and with it the
    descriptors that are there.

    Args:
        whose: what they are for, for the message.

    Raises:
        DescriptorLimitError: there are not.
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
                f"no file descriptors are left for {self._whose}, which needs 8 and up to three for each worker; "
                "close some, or raise `ulimit -n`",
            ) from error
