"""The lender: sends the batches of one process to consumers in others, and owns their memory.

A batch stays in memory until each consumer has returned its lease, or has ended. All of it runs in the thread that calls the
lender, in its waits.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from dali_like.common.interrupts import InterruptSafeLock, interruptible
from dali_like.engine.memory.descriptors import Alarm, Descriptor, DescriptorRoom
from dali_like.engine.worker.out_of_band import Reducers
from dali_like.errors import ClosedError, ConsumerTimeoutError, DescriptorLimitError
from dali_like.serving.parcels import Packer, Parcel, read_only
from dali_like.serving.wire import NO_DESCRIPTORS, VERSION, Connection, Kind, Listener

Policy = Literal["same", "split"]

#: Items that a consumer may have before it takes them. More would not fit into the buffer of its socket.
MOST_LEAD = 64
#: Batches that consumers held when their lender was closed. Their memory must not be reused as long as this process lives.
abandoned: list[Any] = []


@dataclass(eq=False)
class _LentItem:
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
        left: the epoch that it has left before its end; -1 before.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.is_active = False
        self.taken_s = 0.0
        self.untaken: deque[_LentItem] = deque()
        self.held: dict[int, _LentItem] = {}
        self.files: set[int] = set()
        self.left = -1

    @property
    def descriptors(self) -> list[Descriptor]:
        """The connection, and the end of the process."""
        end = self.connection.peer_end
        return [self.connection] if end is None else [self.connection, end]


class Lender:
    """Lends batches to consumers. They connect to the listener, and get all later batches.

    Args:
        listener: where consumers connect.
        reducers: see `dali_like.engine.worker.out_of_band`.
        policy: "same": each consumer gets each batch. "split": each batch goes to one of them.
        lead: how many items a consumer may be sent before it takes them.
        timeout_s: detach a consumer that makes the lender wait this long, and raise an error if there are too few for this
            long. None: wait forever.
        length_of: returns the number of batches of an epoch; None if it is unknown.

    Attributes:
        taken_state: the state of the last item that all consumers have taken.
    """

    def __init__(
        self,
        listener: Listener,
        reducers: Reducers,
        *,
        policy: Policy = "same",
        lead: int = MOST_LEAD,
        timeout_s: float | None = None,
        length_of: Callable[[], int | None] = lambda: None,
    ) -> None:
        self.pid = os.getpid()
        self.lock = InterruptSafeLock()
        self.is_closed = False
        self.taken_state: Mapping[str, Any] | None = None
        self._policy = policy
        self._lead = lead
        self._timeout_s = timeout_s
        self._length_of = length_of
        self._is_closing = False
        self._peers: dict[int, _Peer] = {}  # by each of their descriptors
        self._open: deque[_LentItem] = deque()  # items that not all have taken, in order
        self._waiting: deque[_LentItem] = deque()  # batches of consumers that have ended before taking them
        self._count = 0
        self._listener = listener
        self._packer = Packer(reducers)
        self._alarm = Alarm()
        #: For consumers that come when no descriptor is left, and for files that are sent to others.
        self._room = DescriptorRoom(self._alarm, 1)
        self._poll = select.poll()
        for descriptor in (self._listener, self._alarm):
            self._poll.register(descriptor, select.POLLIN)

    @property
    def path(self) -> str:
        """The path of the listener."""
        return self._listener.path

    @property
    def consumer_pids(self) -> list[int]:
        """Process ids of the consumers that get batches."""
        return sorted(peer.connection.peer for peer in self._active())

    def close(self, reason: str) -> None:
        """End the service. Consumers get the batches that they have not taken yet, then `dali_like.errors.ServerError`.

        Batches that they hold stay valid. May be called repeatedly, and while another thread waits in the lender.
        """
        if self.pid != os.getpid() or self.is_closed:
            return
        self._is_closing = True
        self._alarm.ring()
        with self.lock:
            if not self.is_closed:
                self.is_closed = True
                self._close(reason)

    def _close(self, reason: str) -> None:
        self._listener.close()
        held: list[_LentItem] = []
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

    # Lending. The caller holds the lock

    def lend(self, batch: Any, epoch: int, iteration: int, state: Any = None) -> None:
        """Send a batch to all consumers, or to one of them.

        Args:
            state: the position behind it.

        Raises:
            Exception: the batch cannot be pickled.
            OutOfMemoryError: there is no memory for arrays that do not lie in a shared space.
        """
        item = _LentItem(Kind.BATCH, (self._count, epoch, iteration), batch, state=state)
        item.parcel = self._packer.pack(batch)
        self._publish(item)

    def end_epoch(self, epoch: int, state: Any = None) -> None:
        """Send the end of an epoch to all consumers. It is an item, too, so that it counts against the lead."""
        if self._policy == "split":
            self._wait(lambda: not self._open, self._with_untaken)
        self._publish(_LentItem(Kind.END, (self._count, epoch), state=state))

    def leave_epoch(self, epoch: int) -> None:
        """Send the end of an epoch, unless the lender is in use. Finalizers may call this."""
        if self.pid != os.getpid() or self.is_closed or not self.lock.take_unless(lambda: True):
            return
        try:
            if len(self.lock.deferrals) == 1 and not self.is_closed:  # else this finalizer runs within another call
                self.end_epoch(epoch)
        finally:
            self.lock.__exit__(*sys.exc_info())

    def _publish(self, item: _LentItem) -> None:
        """Send a new item to all consumers, or a batch to one of them."""
        self._count += 1
        self._open.append(item)
        if self._policy == "split" and item.kind is Kind.BATCH:
            self._waiting.append(item)
            self._hand_out()
            return
        peers = [peer for peer in self._active() if peer.left < item.words[1]]
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

    def _send(self, peer: _Peer, item: _LentItem) -> None:
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

    def wait_for_consumers(self, count: int, timeout_s: float | None = None) -> None:
        """Wait until so many consumers have connected.

        Args:
            timeout_s: how long; None: the timeout of the lender.

        Raises:
            ConsumerTimeoutError: they have not in time.
        """
        began_s, path = time.monotonic(), self._listener.path
        while not self._wait(lambda: len(self._active()) >= count, list, timeout_s or self._timeout_s):
            raise ConsumerTimeoutError(
                f"{len(self._active())} of {count} consumers are connected to {path} after "
                f"{time.monotonic() - began_s:.1f} s; start them with dali_like.connect({path!r}), or raise "
                "consumer_timeout_s"
            )

    def wait_for_room(self) -> bool:
        """Wait until another batch may be lent. Return whether there is a consumer."""
        self._wait(self._has_room, lambda: [peer for peer in self._active() if len(peer.untaken) >= self._lead])
        return bool(self._active())

    def wait_until_taken(self) -> None:
        """Wait until all consumers have taken all items."""
        self._wait(lambda: not any(peer.untaken for peer in self._active()), self._with_untaken)

    def _has_room(self) -> bool:
        peers = self._active()
        rooms = [len(peer.untaken) < self._lead for peer in peers]
        return not peers or (all(rooms) if self._policy == "same" else any(rooms) and not self._waiting)

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
                    f"consumers of {self._listener.path} cannot connect: the system has no file descriptor left; close some",
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
                elif record.kind == Kind.LEFT:
                    peer.left = record.words[0]
                    self._give_up_untaken(peer)
            return False
        return True

    def _welcome(self, peer: _Peer, version: int) -> None:
        if version != VERSION:
            peer.connection.send(Kind.CLOSED, text="it has another version of dali_like; install the same one for both")
            return
        length = self._length_of()
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
                self.taken_state = item.state

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

    def _end_lease(self, peer: _Peer, item: _LentItem | None) -> None:
        if item is not None:
            item.holders.discard(peer)
            self._free_if_unused(item)

    def _free_if_unused(self, item: _LentItem) -> None:
        if not item.holders and item not in self._waiting:
            item.batch = None
            if item.parcel is not None:
                self._packer.free(item.parcel)
                item.parcel = None

    def _active(self) -> list[_Peer]:
        return [peer for fd, peer in self._peers.items() if peer.is_active and fd == peer.connection.fileno()]
