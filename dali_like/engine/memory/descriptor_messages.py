"""Messages with file descriptors, through pairs of sockets between the main process and its forkservers.

It calls the interpreter's C functions directly: importing the module `socket` takes two milliseconds, in the program and in
each spawned forkserver.
"""

from __future__ import annotations

import _socket
import contextlib
import struct
from collections.abc import Iterator, Sequence

from dali_like.engine.memory.descriptors import Descriptor

__all__ = ["as_socket", "receive", "send", "socket_pair"]

_FD = struct.Struct("i")


def socket_pair() -> tuple[Descriptor, Descriptor]:
    """Return the two ends of a pair of sockets for whole messages.

    Raises:
        OSError: the system refuses them.
    """
    ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    return Descriptor(ours.detach()), Descriptor(theirs.detach())


@contextlib.contextmanager
def as_socket(descriptor: Descriptor, *, blocking: bool = True) -> Iterator[_socket.socket]:
    """Use a descriptor as a socket inside of the context. The descriptor stays its owner."""
    made = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, descriptor.fileno())
    try:
        made.setblocking(blocking)  # also where the program has set a default timeout
        yield made
    finally:
        made.detach()


def send(socket: _socket.socket, message: bytes, descriptors: Sequence[int] = ()) -> None:
    """Send a message with descriptors."""
    numbers = struct.pack(f"{len(descriptors)}i", *descriptors)
    socket.sendmsg([message], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, numbers)] if descriptors else [])


def receive(socket: _socket.socket, nbytes: int, most_descriptors: int) -> tuple[bytes, list[int]]:
    """Return the next message, empty at the end of file, and its descriptors, which are not inherited."""
    room = _socket.CMSG_LEN(most_descriptors * _FD.size)
    message, ancillary, _, _ = socket.recvmsg(nbytes, room, _socket.MSG_CMSG_CLOEXEC)
    return message, [
        number
        for level, kind, data in ancillary
        if (level, kind) == (_socket.SOL_SOCKET, _socket.SCM_RIGHTS)
        for (number,) in _FD.iter_unpack(data[: len(data) // _FD.size * _FD.size])
    ]
