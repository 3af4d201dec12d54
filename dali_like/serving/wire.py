"""The connection of a server and its consumers: a Unix socket with a path, and records of a fixed size.

The socket keeps message boundaries (SOCK_SEQPACKET). Its folder has mode 0700, and both sides check the peer's user id, so
only processes of the same user meet. Records of the server may carry a descriptor (SCM_RIGHTS) or a text.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import socket
import stat
import struct
import sys
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from dali_like.engine.memory.descriptors import Descriptor
from dali_like.errors import ArgumentError, ServerError, UnsupportedSystemError

#: Changes with every change of the records or of the parcels.
VERSION = 2

#: Longest text of a record, in bytes.
_TEXT_BYTES = 4096
_RECORD = struct.Struct("=6q")
_CREDENTIALS = struct.Struct("=iII")  # see SO_PEERCRED in unix(7)
_BACKLOG = 128
#: Error numbers of a process, or a system, that has no descriptor left.
NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)


class Kind(IntEnum):
    """The first word of a record. The comments name the other words."""

    # From the server
    WELCOME = 1  # version, batches of an epoch or -1; text: the policy
    FILE = 2  # number of the file, size; with its descriptor
    FORGET = 3  # number of a file that no later batch lies in
    BATCH = 4  # number of the batch, epoch, iteration, number of the file, offset of the parcel
    END = 5  # number, epoch: the end of an epoch counts as a batch
    DETACHED = 6  # text: the reason
    CLOSED = 7  # text: the reason
    # From a consumer
    HELLO = 8  # version
    TAKEN = 9  # number of a batch
    RELEASED = 10  # number of a batch
    LEFT = 11  # epoch: no more of its batches, please


class WireRecord(NamedTuple):
    """A record, with the descriptor and the text that it carries."""

    kind: int
    words: tuple[int, ...]
    text: str = ""
    descriptor: Descriptor | None = None


class Connection(Descriptor):
    """One end of a connection.

    Attributes:
        peer: process id of the other side; 0 if it is in another namespace.
        peer_end: readable when that process has ended. None: without a process id, and where the system has no such
            descriptors. The end of the socket then tells, once no child of that process has it open.
    """

    peer_end: Descriptor | None = None

    def __init__(self, connected: socket.socket) -> None:
        packed = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        peer, user, _ = _CREDENTIALS.unpack(packed)
        super().__init__(connected.detach())
        os.set_blocking(self.fileno(), False)
        if user != os.geteuid():
            self.close()
            raise ServerError(
                f"the process at the other end of the socket, {peer}, belongs to user {user}, and this one to "
                f"{os.geteuid()}; batches are shared only among processes of one user"
            )
        self.peer = peer
        if peer > 0:
            self.peer_end = _end_of(peer)

    def send(self, kind: Kind, *words: int, text: str = "", fd: int | None = None) -> bool:
        """Send a record. Return False if the other side is gone, or does not read."""
        message = _RECORD.pack(kind, *words, *[0] * (5 - len(words))) + text.encode()[:_TEXT_BYTES]
        try:
            with _borrowed(self) as connected:
                if fd is None:
                    connected.send(message, socket.MSG_NOSIGNAL)
                else:
                    socket.send_fds(connected, [message], [fd], socket.MSG_NOSIGNAL)
        except OSError as error:
            if error.errno in (errno.EPIPE, errno.ECONNRESET, errno.EAGAIN, errno.ENOTCONN, errno.EBADF):
                return False
            raise
        return True

    def receive(self, *, takes_descriptors: bool) -> WireRecord | None:
        """Return the next record; None if none has arrived.

        Args:
            takes_descriptors: whether records of the other side may carry one. If not, the kernel drops them.

        Raises:
            EOFError: the other side has closed the connection, and all its records have been read.
            OSError: no descriptor is left for the one of a record.
        """
        try:
            message, fds, flags = self._receive(takes_descriptors)
        except BlockingIOError:
            return None
        except ConnectionError:
            raise EOFError from None
        descriptor = Descriptor(fds[0]) if fds else None
        if takes_descriptors and flags & socket.MSG_CTRUNC:
            raise OSError(
                errno.EMFILE, "no file descriptor is left for the memory of batches; close some, or raise `ulimit -n`"
            )
        if len(message) < _RECORD.size:
            raise EOFError
        kind, *words = _RECORD.unpack_from(message)
        return WireRecord(kind, tuple(words), message[_RECORD.size :].decode(errors="replace"), descriptor)

    def _receive(self, takes_descriptors: bool) -> tuple[bytes, list[int], int]:
        nbytes = _RECORD.size + _TEXT_BYTES
        with _borrowed(self) as connected:
            read = functools.partial(socket.recv_fds, connected, nbytes, int(takes_descriptors), socket.MSG_CMSG_CLOEXEC)
            try:
                return read()[:3]
            except ConnectionResetError:
                # The other side has ended before it has read all. This error comes once, before its last records.
                return read()[:3]

    def close(self) -> None:
        """Close the connection."""
        if self.peer_end is not None:
            self.peer_end.close()
        super().close()


class Listener(Descriptor):
    """The socket of a server.

    Args:
        path: its path. Its folder is created if it does not exist. None: it has no file, and gets an address from the
            kernel. So nothing stays behind after a kill.

    Attributes:
        path: absolute path, or the address with ``@`` in place of the zero byte at its beginning; see unix(7).

    Raises:
        ArgumentError: the folder is not private to this user; the path exists and is not a socket; another server uses it.
        UnsupportedSystemError: this system is not Linux.
    """

    path: str
    _file: int | None = None

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        _check_system()
        self._pid = os.getpid()
        if path is None:
            with _new_socket() as listening:
                listening.bind("")
                listening.listen(_BACKLOG)
                self.path = "@" + listening.getsockname()[1:].decode()
                super().__init__(listening.detach())
            return
        self.path = os.path.abspath(path)
        folder = os.path.dirname(self.path)
        if not os.path.exists(folder):
            os.mkdir(folder, 0o700)
        with private_address(self.path) as address:
            self._remove_abandoned(address)
            with _new_socket() as listening:
                listening.bind(address)
                listening.listen(_BACKLOG)
                self._file = os.stat(address).st_ino
                super().__init__(listening.detach())

    def accept(self) -> Connection | None:
        """Return the next connection; None if no connection waits, or it is another user's.

        Raises:
            OSError: no descriptor is left for it. It stays in the queue.
        """
        while True:
            try:
                with _borrowed(self) as listening:
                    connected, _ = listening.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return None
            with contextlib.suppress(ServerError, OSError):
                return Connection(connected)

    def close(self) -> None:
        """Close the socket, and remove its path."""
        if self._file is not None and self.fileno() >= 0 and self._pid == os.getpid():
            with contextlib.suppress(OSError):
                if os.stat(self.path).st_ino == self._file:
                    os.unlink(self.path)
        super().close()

    def _remove_abandoned(self, address: str) -> None:
        """Remove the socket of a server that has been killed."""
        try:
            if not stat.S_ISSOCK(os.lstat(address).st_mode):
                raise ArgumentError(f"{self.path} exists and is not a socket; pass a path that does not exist")
        except FileNotFoundError:
            return
        with _new_socket() as probe:
            try:
                probe.connect(address)
            except ConnectionRefusedError:
                os.unlink(address)
                return
            except BlockingIOError:
                pass  # its queue of connections is full
        raise ArgumentError(f"another server uses {self.path}; pass another path, or end that server")


def dial(path: str | os.PathLike[str]) -> Connection:
    """Connect to the server at a path.

    Raises:
        ArgumentError: the folder is not private to this user.
        ServerError: the server belongs to another user.
        FileNotFoundError, ConnectionRefusedError, BlockingIOError: no server answers there now.
    """
    _check_system()
    with private_address(os.path.abspath(path)) as address, _new_socket() as connecting:
        connecting.connect(address)
        return Connection(connecting)


def dial_address(address: str) -> Connection:
    """Connect to a server whose listener has no file.

    Args:
        address: the path of that listener.

    Raises:
        ServerError: the server belongs to another user.
        ConnectionRefusedError, BlockingIOError: no server answers there now.
    """
    with _new_socket() as connecting:
        connecting.connect("\0" + address[1:])
        return Connection(connecting)


@contextlib.contextmanager
def private_address(path: str) -> Iterator[str]:
    """Check the folder of a path, and yield an address that leads to it even if folders are renamed, and of any length.

    Raises:
        ArgumentError: the folder belongs to another user, or others may use it.
        FileNotFoundError: there is no such folder.
        UnsupportedSystemError: there is no /proc.
    """
    folder, name = os.path.split(path)
    opened = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        status = os.fstat(opened)
        if status.st_uid != os.geteuid():
            raise ArgumentError(
                f"{folder} belongs to user {status.st_uid}, and this process to {os.geteuid()}; put the socket into a "
                "folder of your own"
            )
        if stat.S_IMODE(status.st_mode) & 0o077:
            raise ArgumentError(
                f"other users may use {folder} (mode {stat.S_IMODE(status.st_mode):o}), and whoever reaches the socket gets "
                f"the batches; pass a path in a folder of your own, such as {folder}/private/{name}: the server creates it"
            )
        if not os.path.exists(f"/proc/self/fd/{opened}"):
            raise UnsupportedSystemError(
                errno.ENOSYS,
                "serving batches needs /proc, which is missing; mount it: `mount -t proc proc /proc`",
            )
        yield f"/proc/self/fd/{opened}/{name}"
    finally:
        os.close(opened)


def _end_of(pid: int) -> Descriptor | None:
    """Return a descriptor that is readable when a process has ended; None if it has ended, or the system refuses."""
    try:
        return Descriptor(os.pidfd_open(pid))
    except OSError as error:
        # After its end, the number may be another process's; but then the socket is at its end, too.
        if error.errno in (errno.ESRCH, errno.ENOSYS, errno.EPERM, *NO_DESCRIPTORS):
            return None
        raise


def _new_socket() -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
    made.setblocking(False)
    return made


@contextlib.contextmanager
def _borrowed(descriptor: Descriptor) -> Iterator[socket.socket]:
    """A socket object of a descriptor, for one call. A lasting one would close the number, too."""
    borrowed = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, descriptor.fileno())
    try:
        yield borrowed
    finally:
        borrowed.detach()


def _check_system() -> None:
    if sys.platform != "linux":
        raise UnsupportedSystemError(
            errno.ENOSYS, f"sharing batches with other processes needs Linux, and this system is {sys.platform}"
        )
