"""The server: draws the batches of a loader or pipeline, and lends them to consumers.

It runs in one thread, the one that calls `Server.run`, and owns all memory. A batch stays in memory until each consumer has
returned its lease, or has ended. The end of an epoch is an item of the stream, too, so that it counts against the lead.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple, Self, get_args

from dali_like.common.arguments import checked
from dali_like.common.interrupts import InterruptSafeLock, interruptible
from dali_like.common.tracebacks import user_frames_first
from dali_like.engine.memory.descriptors import Alarm, Descriptor, DescriptorRoom
from dali_like.engine.worker.out_of_band import Reducers
from dali_like.errors import ArgumentError, ClosedError, ConsumerTimeoutError, DescriptorLimitError, ForkedError
from dali_like.serving.parcels import Packer, Parcel, read_only
from dali_like.serving.wire import NO_DESCRIPTORS, VERSION, Connection, Kind, Listener

Policy = Literal["same", "split"]

#: Items that a consumer may have before it takes them. More would not fit into the buffer of its socket.
_MOST_LEAD = 64
#: Batches that consumers held when their server was closed. Their memory must not be reused as long as this process lives.
abandoned: list[Any] = []


class Served(NamedTuple):
    """The loader or pipeline behind a server.

    Attributes:
        name: its class, for messages.
        begin: begins an epoch.
        state: returns the position behind the last batch; None if there are no states.
        length: returns the number of batches of an epoch; None if it is unknown.
        reducers: see `dali_like.engine.worker.out_of_band`.
    """

    name: str
    begin: Callable[[], Iterator[Any]]
    state: Callable[[], Mapping[str, Any] | None]
    length: Callable[[], int | None]
    reducers: Reducers


@dataclass(eq=False)
class _ServedItem:
    """A batch or the end of an epoch.

    Attributes:
        batch: the batch, which keeps its memory.
        state: the position behind it.
        untaken: consumers that have not taken it yet.
        holders: consumers whose lease has not ended.
        was_taken: whether a consumer has taken it.
    """

    kind: Kind
    words: tuple[int, ...]
    batch: Any = None
    parcel: Parcel | None = None
    state: Any = None
    untaken: set[_Peer] = field(default_factory=set)
    holders: set[_Peer] = field(default_factory=set)
    was_taken: bool = False


class _Peer:
    """A consumer as the server sees it.

    Attributes:
        is_active: whether it gets items: it has said hello, and is not detached.
        taken_s: when it last took an item.
        untaken: items sent and not taken, in order.
        held: items whose lease has not ended, by number.
        files: numbers of the files that it has descriptors of.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.is_active = False
        self.taken_s = 0.0
        self.untaken: deque[_ServedItem] = deque()
        self.held: dict[int, _ServedItem] = {}
        self.files: set[int] = set()

    @property
    def descriptors(self) -> list[Descriptor]:
        """The connection, and the end of the process."""
        end = self.connection.peer_end
        return [self.connection] if end is None else [self.connection, end]


def _policy(name: str, value: Any) -> Any:
    if value not in get_args(Policy):
        raise ArgumentError(f'{name} must be "same" or "split", not {value!r}')
    return value


def _consumers(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ArgumentError(f"{name} must be a positive integer, not {value!r}: how many to wait for at first")
    return value


def _lead(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MOST_LEAD:
        raise ArgumentError(f"{name} must be an integer from 1 to {_MOST_LEAD}, not {value!r}")
    return value


def _timeout_s(name: str, value: Any) -> float | None:
    if value is not None and not value > 0:
        raise ArgumentError(f"{name} must be positive, or None for no limit, not {value!r}")
    limit: float | None = value
    return limit


class Server:
    """Lends the batches of a loader or pipeline to consumers. Made by ``serve`` of loaders and pipelines.

    `run` does the work, in the thread that calls it. Use the server as a context, or call `close`.
    """

    @checked
    def __init__(
        self,
        served: Served,
        path: str | os.PathLike[str],
        *,
        policy: Annotated[Policy, _policy],
        consumers: Annotated[int, _consumers],
        lead: Annotated[int, _lead],
        consumer_timeout_s: Annotated[float | None, _timeout_s],
    ) -> None:
        self._served = served
        self._path = os.path.abspath(path)
        self._policy = policy
        self._num_first = consumers
        self._lead = lead
        self._timeout_s = consumer_timeout_s
        self._lock = InterruptSafeLock()
        self._pid = os.getpid()
        self._is_closing = self._is_closed = False
        self._peers: dict[int, _Peer] = {}  # by each of their descriptors
        self._open: deque[_ServedItem] = deque()  # items that not all have taken, in order
        self._waiting: deque[_ServedItem] = deque()  # batches of consumers that have ended before taking them
        self._state: Mapping[str, Any] | None = None
        self._count = self._epoch = 0
        self._has_begun = False
        self._batches: Iterator[Any] | None = None  # of the epoch in progress
        self._iteration = 0
        self._listener = Listener(path)
        self._packer = Packer(served.reducers)
        self._alarm = Alarm()
        #: For consumers that come when no descriptor is left, and for files that are sent to others.
        self._room = DescriptorRoom(self._alarm, 1)
        self._poll = select.poll()
        for descriptor in (self._listener, self._alarm):
            self._poll.register(descriptor, select.POLLIN)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, *_: object) -> None:
        if error is None:
            self.close()
        else:
            self.close(f"the server's program has raised {type(error).__name__}: {error}")

    @property
    def path(self) -> str:
        """The path of the socket."""
        return self._path

    @property
    def consumer_pids(self) -> list[int]:
        """Process ids of the consumers that get batches. They are up to date while `run` waits, and after it."""
        return sorted(peer.connection.peer for peer in self._active())

    def state_dict(self) -> Mapping[str, Any] | None:
        """Return the state of the loader or pipeline behind the last batch that all consumers have taken.

        The loader or pipeline itself is ahead of it. None: no batch has been drawn yet, or the pipeline has no states.
        """
        return self._state

    @user_frames_first
    def run(self, epochs: int | None = 1) -> None:
        """Serve epochs, and return when all consumers have taken the last batch.

        Args:
            epochs: number of epochs; None: until `close`, in another thread, or an interrupt.

        Raises:
            Exception: an exception of the loader or pipeline. Another call continues behind it.
            ConsumerTimeoutError: ``consumer_timeout_s`` is over, and there are fewer consumers than needed.
            ClosedError, ForkedError: the server has been closed; it belongs to the parent of this process.
        """
        if self._pid != os.getpid():
            raise ForkedError(
                f"this server belongs to process {self._pid}, the parent of this fork; serve another path here"
            )
        with self._lock:
            number = 0
            while epochs is None or number < epochs:
                self._run_epoch()
                number += 1
            self._wait(lambda: not any(peer.untaken for peer in self._active()), self._with_untaken)

    @user_frames_first
    def close(self, reason: str = "the server has been closed") -> None:
        """End the service. Consumers get the batches that they have not taken yet, then `dali_like.errors.ServerError`.

        Batches that they hold stay valid. May be called repeatedly, and while `run` is in progress in another thread.
        """
        if self._pid != os.getpid() or self._is_closed:
            return
        self._is_closing = True
        self._alarm.ring()
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                self._close(reason)

    def _close(self, reason: str) -> None:
        self._listener.close()
        held: list[_ServedItem] = []
        for peer in set(self._peers.values()):
            if peer.is_active:
                peer.connection.send(Kind.CLOSED, text=reason)
            end = peer.connection.peer_end
            if not (self._receive_all(peer) or (end is not None and end.wait(0))):
                held += peer.held.values()
            peer.connection.close()
        for item in held:
            for number in item.parcel.files if item.parcel is not None else ():
                if (file := self._packer.files.file(number)) is not None:
                    file.is_lent = True
                    abandoned.append(file)
        abandoned.extend(item.batch for item in held)
        self._peers.clear()
        self._open.clear()
        self._waiting.clear()
        self._alarm.close()
        self._room.close()
        del self._packer

    # Drawing batches

    def _run_epoch(self) -> None:
        """Serve one epoch, or the rest of an epoch that an error has interrupted."""
        self._wait_for_consumers(1 if self._has_begun else self._num_first)
        self._has_begun = True
        if self._state is None:
            self._state = self._served.state()
        if self._batches is None:
            with interruptible():
                self._batches = self._served.begin()
        while True:
            self._wait_for_room()
            try:
                with interruptible():
                    batch = next(self._batches)
            except StopIteration:
                break
            item = _ServedItem(Kind.BATCH, (self._count, self._epoch, self._iteration), batch, state=self._served.state())
            self._iteration += 1
            item.parcel = self._packer.pack(batch)
            self._publish(item)
            del batch, item
        if self._policy == "split":
            self._wait(lambda: not self._open, self._with_untaken)
        self._publish(_ServedItem(Kind.END, (self._count, self._epoch), state=self._served.state()))
        self._epoch += 1
        self._batches, self._iteration = None, 0

    def _publish(self, item: _ServedItem) -> None:
        """Send a new item to all consumers, or a batch to one of them."""
        self._count += 1
        self._open.append(item)
        if self._policy == "split" and item.kind is Kind.BATCH:
            self._waiting.append(item)
            self._hand_out()
            return
        peers = self._active()
        item.untaken.update(peers)
        item.holders.update(peers)
        for peer in peers:
            self._send(peer, item)
        self._settle()
        self._free_if_unused(item)

    def _hand_out(self) -> None:
        """Give waiting batches to the consumers with the fewest untaken ones."""
        while self._waiting and (peers := [peer for peer in self._active() if len(peer.untaken) < self._lead]):
            peer = min(peers, key=lambda each: (len(each.untaken), each.taken_s))
            item = self._waiting.popleft()
            item.untaken.add(peer)
            item.holders.add(peer)
            self._send(peer, item)

    def _send(self, peer: _Peer, item: _ServedItem) -> None:
        """Send an item to a consumer, after the descriptors of its files."""
        peer.untaken.append(item)
        if item.parcel is None:
            item.holders.discard(peer)
            sent = peer.connection.send(item.kind, *item.words)
        else:
            peer.held[item.words[0]] = item
            try:
                sent = self._send_files(peer, item.parcel)
            except OSError as error:
                if error.errno not in NO_DESCRIPTORS:
                    raise
                self._refuse(peer.connection)
                sent = False
            sent = sent and peer.connection.send(item.kind, *item.words, self._packer.number, item.parcel.offset)
        if not sent:
            self._drop(peer)

    def _send_files(self, peer: _Peer, parcel: Parcel) -> bool:
        files = self._packer.files
        for number in [number for number in files.ended if number in peer.files]:
            peer.files.discard(number)
            if not peer.connection.send(Kind.FORGET, number):
                return False
        for number in parcel.files - peer.files:
            file = files.file(number)
            assert file is not None  # the batch keeps it
            self._room.free_one()
            try:
                readable = read_only(file)
                sent = peer.connection.send(Kind.FILE, number, file.size, fd=readable.fileno())
                readable.close()
            finally:
                self._room.hold_one()
            if not sent:
                return False
            peer.files.add(number)
        return True

    # Waiting

    def _wait_for_consumers(self, count: int) -> None:
        """Wait until so many consumers have connected.

        Raises:
            ConsumerTimeoutError: they have not in time.
        """
        began_s = time.monotonic()
        while not self._wait(lambda: len(self._active()) >= count, list, self._timeout_s):
            raise ConsumerTimeoutError(
                f"{len(self._active())} of {count} consumers are connected to {self._path} after "
                f"{time.monotonic() - began_s:.1f} s; start them with dali_like.connect({self._path!r}), or raise "
                "consumer_timeout_s"
            )

    def _wait_for_room(self) -> None:
        """Wait until another batch may be drawn."""
        while True:
            if not self._active():
                self._wait_for_consumers(1)
            self._wait(self._has_room, self._without_room)
            if self._active():
                return

    def _has_room(self) -> bool:
        peers = self._active()
        rooms = [len(peer.untaken) < self._lead for peer in peers]
        return not peers or (all(rooms) if self._policy == "same" else any(rooms) and not self._waiting)

    def _without_room(self) -> list[_Peer]:
        return [peer for peer in self._active() if len(peer.untaken) >= self._lead]

    def _with_untaken(self) -> list[_Peer]:
        return [peer for peer in self._active() if peer.untaken]

    def _wait(self, is_met: Callable[[], bool], blockers: Callable[[], list[_Peer]], timeout_s: float | None = None) -> bool:
        """Serve requests until a condition is met. Detach consumers that prevent it for too long.

        Returns:
            False after the timeout.
        """
        began_s = time.monotonic()
        self._serve_requests(0)
        while not is_met():
            if timeout_s is not None and time.monotonic() - began_s >= timeout_s:
                return False
            ends_s = [] if timeout_s is None else [began_s + timeout_s]
            if self._timeout_s is not None:
                for peer in blockers():
                    end_s = max(began_s, peer.taken_s) + self._timeout_s
                    if end_s <= time.monotonic():
                        self._detach(peer)
                    else:
                        ends_s.append(end_s)
                if is_met():
                    break
            self._serve_requests(None if not ends_s else max(min(ends_s) - time.monotonic(), 0))
        return True

    def _serve_requests(self, timeout_s: float | None) -> None:
        """Wait for the records of consumers, and process them.

        Raises:
            ClosedError: the server is being closed.
        """
        with interruptible():
            events = self._poll.poll(None if timeout_s is None else int(timeout_s * 1000) + (timeout_s > 0))
        if self._is_closing:
            raise ClosedError("the server has been closed")
        for fd, _ in events:
            if (peer := self._peers.get(fd)) is not None:
                is_over = self._receive_all(peer)
                if is_over or fd != peer.connection.fileno():
                    self._drop(peer)
        if any(fd == self._listener.fileno() for fd, _ in events):
            # Last, because new connections get the numbers of closed ones: events above would go to them.
            while (connection := self._accept_or_refuse()) is not None:
                peer = _Peer(connection)
                for descriptor in peer.descriptors:
                    self._peers[descriptor.fileno()] = peer
                    self._poll.register(descriptor, select.POLLIN)
        self._hand_out()

    def _accept_or_refuse(self) -> Connection | None:
        """Return the next connection, or None. Refuse those for which no descriptor is left.

        Raises:
            DescriptorLimitError: the whole system has no descriptor left.
        """
        while True:
            try:
                return self._listener.accept()
            except OSError as error:
                if error.errno not in NO_DESCRIPTORS:
                    raise
            self._room.free_one()
            try:
                connection = self._listener.accept()
                if connection is None:
                    return None
                self._refuse(connection)
                connection.close()
            except OSError as error:
                raise DescriptorLimitError(
                    error.errno,
                    f"consumers of {self._path} cannot connect: the system has no file descriptor left; close some",
                ) from error
            finally:
                self._room.hold_one()

    def _refuse(self, connection: Connection) -> None:
        reason = "the server has no file descriptor left for another consumer; raise `ulimit -n` where it starts"
        logging.getLogger("dali_like").warning("consumer %d is refused: %s", connection.peer, reason)
        connection.send(Kind.CLOSED, text=reason)

    def _receive_all(self, peer: _Peer) -> bool:
        """Process all records of a consumer. Return whether it has closed the connection."""
        with contextlib.suppress(EOFError):
            while (record := peer.connection.receive(takes_descriptors=False)) is not None:
                if record.kind == Kind.HELLO:
                    self._welcome(peer, record.words[0])
                elif record.kind == Kind.TAKEN:
                    self._note_taken(peer, record.words[0])
                elif record.kind == Kind.RELEASED:
                    self._end_lease(peer, peer.held.pop(record.words[0], None))
            return False
        return True

    def _welcome(self, peer: _Peer, version: int) -> None:
        if version != VERSION:
            peer.connection.send(Kind.CLOSED, text="it has another version of dali_like; install the same one for both")
            return
        length = self._served.length()
        peer.connection.send(Kind.WELCOME, VERSION, -1 if length is None else length, text=self._policy)
        peer.is_active = True
        peer.taken_s = time.monotonic()

    def _note_taken(self, peer: _Peer, number: int) -> None:
        peer.taken_s = time.monotonic()
        # Consumers take items in the order in which they were sent. Numbers may fall: batches of ended consumers come back.
        if not any(item.words[0] == number for item in peer.untaken):
            return  # it has been detached
        while True:
            item = peer.untaken.popleft()
            item.untaken.discard(peer)
            item.was_taken = True
            if item.words[0] == number:
                break
        self._settle()

    def _settle(self) -> None:
        """Advance the state over the items that all have taken."""
        while self._open and not self._open[0].untaken:
            if self._open[0] in self._waiting:
                return
            item = self._open.popleft()
            if item.was_taken:
                self._state = item.state

    # The end of consumers

    def _detach(self, peer: _Peer) -> None:
        """Send no more to a stalled consumer. The batches that it has keep their memory until it ends or returns them."""
        taken_s = peer.taken_s
        self._receive_all(peer)
        if peer.taken_s != taken_s:
            return  # it has taken a batch meanwhile
        peer.is_active = False
        peer.connection.send(
            Kind.DETACHED,
            text=f"the server has waited for consumer_timeout_s={self._timeout_s} s until this consumer took a batch, and "
            "then detached it; connect again to get later batches, or raise consumer_timeout_s",
        )
        self._give_up_untaken(peer)

    def _drop(self, peer: _Peer) -> None:
        """End the leases of a consumer that is gone, after its last records: batches that it has taken go to nobody else."""
        self._receive_all(peer)
        for descriptor in peer.descriptors:
            if self._peers.pop(descriptor.fileno(), None) is not None:
                self._poll.unregister(descriptor)
        peer.is_active = False
        peer.connection.close()
        self._give_up_untaken(peer)
        held, peer.held = peer.held, {}
        for item in held.values():
            self._end_lease(peer, item)

    def _give_up_untaken(self, peer: _Peer) -> None:
        """Count its untaken items as taken, or give them to others with the policy "split"."""
        returned = []
        while peer.untaken:
            item = peer.untaken.popleft()
            item.untaken.discard(peer)
            if self._policy == "split" and item.kind is Kind.BATCH:
                returned.append(item)
        self._waiting.extendleft(reversed(returned))
        self._settle()

    def _end_lease(self, peer: _Peer, item: _ServedItem | None) -> None:
        if item is not None:
            item.holders.discard(peer)
            self._free_if_unused(item)

    def _free_if_unused(self, item: _ServedItem) -> None:
        if not item.holders and item not in self._waiting:
            item.batch = None
            if item.parcel is not None:
                self._packer.free(item.parcel)
                item.parcel = None

    def _active(self) -> list[_Peer]:
        return [peer for fd, peer in self._peers.items() if peer.is_active and fd == peer.connection.fileno()]
