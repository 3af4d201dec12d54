"""The consumer: receives the batches of a server in another process, as views of the server's memory.

A lease of a batch ends with its last array. Its finalizer only appends to a deque; the next call in the consumer's thread
drops the pages that the program has written to, and tells the server.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import time
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple, Self

from dali_like.common.interrupts import InterruptSafeLock, interruptible
from dali_like.common.stability import unstable
from dali_like.common.tracebacks import user_frames_first
from dali_like.engine.memory.ring import Lease
from dali_like.errors import ArgumentError, ClosedError, ForkedError, ServerError, ServerTimeoutError
from dali_like.serving.parcels import FilePart, PrivateMapping, load, places_of
from dali_like.serving.wire import VERSION, Connection, Kind, WireRecord, dial

#: Pause between two attempts to connect to a server that is not there yet.
_RETRY_S = 0.02


class _Lent(NamedTuple):
    """The memory of a batch."""

    number: int
    places: tuple[FilePart, ...]
    mappings: tuple[PrivateMapping, ...]


class _Leases:
    """The leases of a consumer, and its connection. Implements `dali_like.engine.memory.ring.Lessor`."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._released: deque[_Lent] = deque()
        self._num_lent = 0
        self._is_closed = False

    def lease(self, lent: _Lent) -> Lease[_Lent]:
        """Lease a batch."""
        self._num_lent += 1
        return Lease(self, lent)

    def release(self, lent: _Lent, /) -> None:
        self._released.append(lent)
        if self._is_closed and len(self._released) == self._num_lent:
            self.connection.close()

    def flush(self) -> None:
        """Tell the server which leases have ended."""
        while self._released:
            lent = self._released.popleft()
            self._num_lent -= 1
            for place, mapping in zip(lent.places, lent.mappings, strict=True):
                mapping.drop_written(place.offset, place.nbytes)
            self.connection.send(Kind.RELEASED, lent.number)

    def close(self) -> None:
        """Close the connection, now or with the last lease: its end lets the server reuse the memory."""
        self.flush()
        self._is_closed = True
        if len(self._released) == self._num_lent:
            self.connection.close()


class Consumer(Iterator[Any]):
    """Yields the batches of a server in another process. Made by `connect`.

    Each ``for`` loop yields the rest of an epoch. The server begins the epochs. Arrays are views of the server's memory, and
    may be written to: other consumers do not see that.

    Attributes:
        policy: "same" or "split".
        epoch: epoch of the last batch; -1 before the first.
        iteration: number of the last batch in its epoch, counted over all consumers; -1 before the first.
        server_pid: process id of the server; 0 if it is in another namespace.
    """

    def __init__(self, connection: Connection, path: str, deadline_s: float) -> None:
        self._path = path
        self._connection = connection
        self._leases = _Leases(connection)
        self._lock = InterruptSafeLock()
        self._pid = os.getpid()
        self._queue: deque[WireRecord] = deque()
        self._mappings: dict[int, PrivateMapping] = {}
        self._is_over = self._is_closed = False
        self._failure: str | None = None
        self.epoch = self.iteration = -1
        self.server_pid = connection.peer
        self._poll = select.poll()
        self._poll.register(connection, select.POLLIN)
        if connection.peer_end is not None:
            self._poll.register(connection.peer_end, select.POLLIN)
        connection.send(Kind.HELLO, VERSION)
        with self._lock:
            welcome = self._take_record(deadline_s)
        if welcome is None:
            raise ServerTimeoutError(
                f"the server at {path}, process {self.server_pid}, does not answer; it answers in server.run(), between two "
                "batches. Call that, or raise timeout_s"
            )
        self.policy = welcome.text
        self._length = welcome.words[1]

    @user_frames_first
    def __next__(self) -> Any:
        """Return the next batch.

        Raises:
            StopIteration: the epoch has ended. The next call returns the first batch of the next one.
            ServerError: the server has ended, or has detached this consumer.
            Exception: the batch cannot be unpickled here.
            ClosedError, ForkedError: the consumer has been closed; it belongs to the parent of this process.
        """
        return self.take()

    def take(self, *, epoch: int | None = None, timeout_s: float = math.inf) -> Any:
        """Return the next batch, as ``next``; None after a timeout.

        Args:
            epoch: the epoch to take it from; batches of earlier ones are left out. None: the current one.
        """
        self._check()
        with self._lock:
            self._check()
            self._leases.flush()
            deadline_s = time.monotonic() + timeout_s
            while (record := self._take_record(deadline_s)) is not None:
                number, of_epoch = record.words[:2]
                is_early = epoch is not None and of_epoch < epoch
                if epoch is not None and of_epoch > epoch:
                    self._queue.appendleft(record)
                    raise StopIteration
                self.epoch = of_epoch
                if record.kind == Kind.END:
                    self._connection.send(Kind.TAKEN, number)
                    if not is_early:
                        raise StopIteration
                elif is_early:
                    self._connection.send(Kind.TAKEN, number)
                    self._connection.send(Kind.RELEASED, number)
                else:
                    break
            if record is None:
                return None
            self.iteration = record.words[2]
            try:
                return self._open(record)
            finally:
                self._connection.send(Kind.TAKEN, number)

    def leave(self, epoch: int) -> None:
        """Ask the server for no more batches of an epoch. Finalizers may call this."""
        if self._pid == os.getpid() and not self._is_closed:
            self._connection.send(Kind.LEFT, epoch)

    def __len__(self) -> int:
        """Return the number of batches of an epoch of the server, for all consumers together.

        Raises:
            TypeError: the server does not know it.
        """
        if self._length < 0:
            raise TypeError("the number of batches is unknown: the server's loader or pipeline has no length")
        return self._length

    def __bool__(self) -> bool:
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the server. Batches that the program holds stay valid. May be called repeatedly."""
        if self._pid != os.getpid() or self._is_closed:
            return
        with self._lock:
            self._is_closed = True
            self._queue.clear()
            self._mappings.clear()
            self._leases.close()

    def __getstate__(self) -> Any:
        raise TypeError("a consumer cannot be pickled; connect in the other process")

    def _check(self) -> None:
        if self._pid != os.getpid():
            raise ForkedError(f"this consumer belongs to process {self._pid}, the parent of this fork; connect again here")
        if self._is_closed:
            raise ClosedError("the consumer has been closed; connect again")

    def _open(self, record: WireRecord) -> Any:
        number, _, _, file, offset = record.words
        places, data = places_of(self._mappings[file], offset)
        mappings = tuple(self._mappings[place.file] for place in places)
        lease = self._leases.lease(_Lent(number, tuple(places), mappings))
        with interruptible():
            return load(data, places, mappings, lease)

    def _take_record(self, deadline_s: float) -> WireRecord | None:
        """Return the next batch, end of an epoch or welcome; None at the deadline.

        Raises:
            ServerError: there will be none.
        """
        while True:
            self._receive_all()
            if self._failure is not None:
                self._fail(self._failure)
            if self._queue:
                record = self._queue.popleft()
                if record.kind == Kind.CLOSED:
                    self._fail(record.text)
                return record
            if self._is_over:
                self._fail("it has ended unexpectedly")
            if (remaining_s := deadline_s - time.monotonic()) <= 0:
                return None
            with interruptible():
                self._poll.poll(None if remaining_s == math.inf else math.ceil(remaining_s * 1000))

    def _receive_all(self) -> None:
        """Read all records that have arrived, and notice the end of the server."""
        end = self._connection.peer_end
        has_ended = end is not None and end.wait(0)  # ask before reading: records sent before its end count
        with contextlib.suppress(EOFError):
            while (record := self._connection.receive(takes_descriptors=True)) is not None:
                if record.kind == Kind.FILE:
                    assert record.descriptor is not None
                    self._mappings[record.words[0]] = PrivateMapping(record.descriptor, record.words[1])
                elif record.kind == Kind.FORGET:
                    self._mappings.pop(record.words[0], None)  # leases of earlier batches keep it
                elif record.kind == Kind.DETACHED:
                    self._failure = record.text
                else:
                    self._queue.append(record)
            if not has_ended:
                return
        self._is_over = True
        if not any(record.kind == Kind.CLOSED for record in self._queue):
            self._failure = self._failure or "it has ended unexpectedly"

    def _fail(self, reason: str) -> None:
        self._failure = reason
        self._queue.clear()
        self._leases.flush()
        raise ServerError(f"no more batches from the server at {self._path}, process {self.server_pid}: {reason}")


@unstable("dali_like.connect()")
@user_frames_first
def connect(path: str | os.PathLike[str], *, timeout_s: float = 300.0) -> Consumer:
    """Connect to a loader or pipeline that another process of this user serves; see ``serve`` of loaders and pipelines.

    The batches belong to the server's loader or pipeline, and their arrays are views of its memory. The memory is used
    again when the program has dropped all arrays of a batch and asks for the next one.

    Args:
        path: path of the server's socket.
        timeout_s: how long to wait for the server to appear and to answer, in seconds.

    Raises:
        ServerTimeoutError: there is no answer in time.
        ServerError: the server belongs to another user, has another version, or ends.
        ArgumentError: the folder of the path is not private to this user.
    """
    path = os.path.abspath(path)
    if not timeout_s >= 0:
        raise ArgumentError(f"timeout_s must be a number of seconds from 0 on, not {timeout_s!r}")
    deadline_s = time.monotonic() + timeout_s
    while True:
        try:
            connection = dial(path)
            break
        except (FileNotFoundError, ConnectionRefusedError, BlockingIOError):
            if time.monotonic() >= deadline_s:
                raise ServerTimeoutError(
                    f"no server has answered at {path} for {timeout_s} s; start it with serve({path!r}) of a loader or "
                    "pipeline, or raise timeout_s"
                ) from None
        time.sleep(_RETRY_S)
    try:
        return Consumer(connection, path, deadline_s)
    except BaseException:
        connection.close()
        raise
