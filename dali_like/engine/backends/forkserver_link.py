"""The main process's end of one forkserver, or of a reserve: messages, death, exit status. Runs in the main process."""

from __future__ import annotations

import contextlib
import os
import signal
from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from dali_like.engine.backends.forkserver import MESSAGE, Message
from dali_like.engine.memory.descriptor_messages import as_socket, receive, send, socket_pair
from dali_like.engine.memory.descriptors import Descriptor, DescriptorRoom, EventSet
from dali_like.engine.memory.protocol import FORKSERVER
from dali_like.engine.memory.system_calls import required

if TYPE_CHECKING:
    import _socket

#: A killed process has this long to end. More would mean that the kernel hangs.
_END_S = 60.0

#: The forkservers that end without being waited for.
_ending: list[Descriptor] = []


class News(NamedTuple):
    """A message of a forkserver or a worker: STARTED or ENDED.

    Attributes:
        worker: the number of the worker.
        pid: its process id.
        status: its wait status (ENDED).
        pidfd: refers to the process (STARTED); None if this process had no descriptor left for it.
    """

    kind: Message
    worker: int
    pid: int
    status: int
    pidfd: Descriptor | None


class ForkserverLink:
    """A socket to a forkserver, and its pidfd as soon as the forkserver has announced itself.

    Args:
        events: becomes readable when there is news, or the forkserver has ended.
        room: for the pidfds in messages.

    Attributes:
        pids: the process id of the forkserver, once it is known. A list: a return value of its start could be lost.
        is_announced: whether the forkserver has announced itself.
        is_at_end: whether the forkserver has closed its socket, because it ends or has ended.
    """

    def __init__(self, events: EventSet, room: DescriptorRoom) -> None:
        with required("socketpair(SOCK_SEQPACKET)", "to talk to the process that starts them"):
            self._socket, theirs = socket_pair()
        self._theirs: Descriptor | None = theirs
        os.set_blocking(self._socket.fileno(), False)
        self._events = events
        self._room = room
        events.add(self._socket)
        self.pids: list[int] = []
        self._pidfd: Descriptor | None = None
        self.is_at_end = False
        self._unsent: deque[tuple[bytes, tuple[Descriptor, ...]]] = deque()

    @property
    def pid(self) -> int:
        """The process id of the forkserver; 0 while it is unknown."""
        return self.pids[0] if self.pids else 0

    @property
    def is_announced(self) -> bool:
        """Whether the forkserver has announced itself."""
        return self._pidfd is not None

    def take_theirs(self) -> Descriptor:
        """Return the forkserver's end of the socket, which the caller must close."""
        theirs, self._theirs = self._theirs, None
        assert theirs is not None
        return theirs

    def send(self, kind: Message, worker: int = 0, value: int = 0, descriptors: Sequence[Descriptor] = ()) -> None:
        """Send a message, with descriptors, which stay open until it has been sent."""
        self._unsent.append((MESSAGE.pack(kind, worker, 0, value), tuple(descriptors)))
        self.send_rest()

    def send_rest(self) -> None:
        """Send queued messages. The socket has room for under 300; the others wait for the next call."""
        if not self._unsent:
            return
        # If the forkserver has ended, `receive` shows it.
        with as_socket(self._socket, blocking=False) as ours, contextlib.suppress(BlockingIOError, ConnectionError):
            while self._unsent:
                message, descriptors = self._unsent[0]
                send(ours, message, [descriptor.fileno() for descriptor in descriptors])
                self._unsent.popleft()

    def receive(self) -> tuple[list[News], bool]:
        """Read all messages. Return the news, and whether the forkserver has ended. Then there is no further news of workers
        that could take a task.

        Each worker announces itself before it takes a task. The kernel kills the workers before it shows the end of their
        forkserver, and a killed process sends nothing that it has not begun to send. So the end is looked for first.
        """
        has_ended = self._pidfd is not None and self._pidfd.wait(0)
        news = list(self._read())
        # Without a pidfd, the end of file shows the end.
        return news, has_ended or (self.is_at_end and self._pidfd is None)

    def _read(self) -> Iterator[News]:
        with as_socket(self._socket, blocking=False) as ours:
            while not self.is_at_end:
                message, fds = self._receive_one(ours)
                if not fds:
                    self._room.hold_one()
                if message is None:
                    return
                if not message:
                    self.is_at_end = True
                    self._events.remove(self._socket)  # else it would be readable from now on
                    return
                kind, worker, pid, status = MESSAGE.unpack(message)
                pidfd = Descriptor(fds[0]) if fds else None
                if worker == FORKSERVER:
                    self.pids[:] = [pid]
                    self._pidfd = pidfd
                    if pidfd is not None:
                        self._events.add(pidfd)
                else:
                    yield News(Message(kind), worker, pid, status, pidfd)

    def _receive_one(self, ours: _socket.socket) -> tuple[bytes | None, Sequence[int]]:
        """Return the next message and its descriptors; None if no message waits, and b"" at the end of file."""
        self._room.free_one()
        try:
            message, fds = receive(ours, MESSAGE.size, 1)
        except BlockingIOError:
            return None, ()
        except ConnectionResetError:
            return b"", ()
        return message, fds

    def kill(self) -> None:
        """Kill the forkserver, if it still runs."""
        if self._pidfd is not None:
            kill(self._pidfd)
        elif self.pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def reap(self) -> int | None:
        """Wait for the end of a forkserver that ends, and return its exit code as `multiprocessing` defines it.

        Returns:
            None if it is unknown: the forkserver is not a child of this process, because another forkserver has forked it,
            or the program has waited for all its children.
        """
        if self._pidfd is not None:
            self._pidfd.wait(_END_S)
            return reap(self._pidfd)
        try:
            return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1]) if self.pids else None
        except ChildProcessError:
            return None

    def leave(self) -> bool:
        """Leave a forkserver that ends to `reap_forkservers`. Return False if that is not possible."""
        if self._pidfd is None:
            return False
        self._events.remove(self._pidfd)
        _ending.append(self._pidfd)
        self._pidfd = None
        return True

    def close(self) -> None:
        """Close the descriptors."""
        for descriptor in (self._socket, self._theirs, self._pidfd):
            if descriptor is not None:
                self._events.remove(descriptor)
                descriptor.close()
        if self._pidfd is not None:
            self._room.hold_one()
        self._unsent.clear()


def kill(pidfd: Descriptor) -> None:
    """Kill a process, if it still runs."""
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd.fileno(), signal.SIGKILL)


def reap(pidfd: Descriptor) -> int | None:
    """Reap a process that has ended, and return its exit code; None if it is not a child of this process."""
    try:
        result = os.waitid(os.P_PIDFD, pidfd.fileno(), os.WEXITED | os.WNOHANG)
    except ChildProcessError:
        return None
    if result is None:
        return None
    return result.si_status if result.si_code == os.CLD_EXITED else -result.si_status


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_ending.clear)


def reap_forkservers() -> bool:
    """Reap the forkservers that have ended without being waited for. Return whether all have.

    The start and the end of other workers call it. Until then, an ended forkserver is a zombie, as a process of
    `multiprocessing` is until the start of the next one.
    """
    for pidfd in list(_ending):
        if pidfd.wait(0):
            reap(pidfd)
            with contextlib.suppress(ValueError):  # another thread was faster
                _ending.remove(pidfd)
    return not _ending
