"""Peers of a mesh on one host that share one loader: ``DataLoader(mesh=..., peers="serve")``. Runs in the main process.

1. In their first loop, the peers meet (`dali_like.data.peer_meeting`). The lowest rank on the host leads: it loads, as
   without peers. The others follow: they have no workers, and connect to it.
2. The leader delivers a batch to its own loop, and lends it to the followers (`dali_like.serving.lender`), with the state
   behind it. It does so in its own calls of ``next``, without a thread; followers may be `MOST_LEAD` batches behind it.
3. The items of a loop are its beginning, batches, exceptions, and its end. Each loop has a number, which all peers count. A
   follower that begins its next loop skips the remaining items of the one before.
4. Followers with ``device=`` copy batches into page-locked memory of their own, and from there to the device ahead.

A follower notices the end of the leader's process by its pidfd. A leader that leaves its loop early sends the end of an
epoch.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from dali_like.data.loader_iterator import LoaderIterator
from dali_like.data.options import LoaderOptions, check_before_iteration
from dali_like.data.peer_meeting import Peers, await_all, find_board, meet
from dali_like.engine.worker.exceptions import pack_exception, unpack_exception
from dali_like.errors import (
    ArgumentClashError,
    BuffersInUseError,
    ForkedError,
    LoaderTimeoutError,
    OutOfMemoryError,
    PeerError,
    ServerError,
)
from dali_like.serving.consumer import Consumer
from dali_like.serving.lender import Lender
from dali_like.serving.wire import Listener, dial_address
from dali_like.sources.composed import is_composed
from dali_like.sources.meshes import peers_in_mesh

if TYPE_CHECKING:
    from dali_like.data.device_senders import DeviceSender

#: How long to wait for the other peers in the first loop; as `dali_like.connect` waits for a server.
_MEETING_S = 300.0
#: Loaders with peers of this process, in the order of their first loops.
_numbers = itertools.count()


class _Kind(Enum):
    """The kinds of items. Each has a value and a state."""

    BEGIN = 0  #: a digest of the loader; the state at the beginning
    BATCH = 1  #: the batch, and the state behind it
    ERROR = 2  #: a packed exception
    END = 3  #: the state behind the last batch
    SENT = 4  #: a batch that has been sent to the device, and the state behind it


class _Item(NamedTuple):
    kind: _Kind
    value: Any
    state: Any


class PeerLink:
    """The link of a loader to its peers. There is one for all its loops.

    Attributes:
        peers: None before the first loop.
        state: of a follower: the state behind the last batch that it took; None: the state of its own loader counts.
        loop: number of the latest loop; -1 before the first.
    """

    def __init__(self) -> None:
        self.peers: Peers | None = None
        self.state: Mapping[str, Any] | None = None
        self.loop = -1
        self.sender: DeviceSender | None = None
        self._pid = os.getpid()
        self._changes: dict[str, Any] = {}
        self._lender: Lender | None = None
        self._consumer: Consumer | None = None

    def note(self, name: str, value: Any) -> None:
        """Note that the program has loaded a state, or set an epoch, for the next loop."""
        self._changes[name] = value

    def meet(self, mesh: Any, mesh_dims: Any, reducers: Any, begin: Callable[[], Any]) -> Any:
        """Find the peers in the first loop, and connect with them. Return the result of `begin` if this process leads.

        Args:
            begin: begins a loop without peers; the workers of the leader load while it waits for the others.

        Raises:
            ServerTimeoutError: a peer does not come.
            ForkedError: the link belongs to the parent of this process.
        """
        if self._pid != os.getpid():
            raise ForkedError('peers="serve": this process was forked from one of the peers; make a loader of its own here')
        if self.peers is not None:
            return begin() if self.peers.is_leading else None
        rank, ranks = peers_in_mesh(mesh, mesh_dims)
        board, name = find_board(mesh), f"dali_like/peers/{next(_numbers)}"
        peers = meet(board, name, rank, ranks, _MEETING_S)
        address = f"{name}/address/{peers.leader}"
        if not peers.is_leading:
            found = await_all(board, {peers.leader: address}, _MEETING_S)
            deadline_s = time.monotonic() + _MEETING_S
            self._consumer = Consumer(dial_address(found[peers.leader]), f"rank {peers.leader}", deadline_s)
            self.peers = peers
            return None
        begun = begin()
        if peers.others:
            lender = Lender(Listener(None), reducers)
            # Not at exit: a lender holds batches of pools that end in the same moment. The end of the process tells.
            weakref.finalize(self, lender.close, "it has dropped its loader").atexit = False
            board.put(address, lender.path)
            with lender.lock:
                lender.wait_for_consumers(len(peers.others), _MEETING_S)
            self._lender = lender
        self.peers = peers
        return begun

    def begin_loop(self, about: str) -> str:
        """Begin the next loop. Return a digest of the loader, its state and its epoch, which must be the same on all peers.

        Args:
            about: describes the loader.
        """
        self.loop += 1
        changes, self._changes = self._changes, {}
        return hashlib.sha256(json.dumps([about, changes], sort_keys=True, default=repr).encode()).hexdigest()

    # Of the leader

    def lend(self, item: _Item, iteration: int = 0) -> None:
        """Send an item of the current loop to the followers."""
        if (lender := self._lender) is None:
            return
        with lender.lock:
            lender.wait_for_room()
            lender.lend(tuple(item), self.loop, iteration)

    def end_lending(self, loop: int) -> None:
        """Tell the followers that a loop gets no more items. Finalizers may call this."""
        if self._lender is not None:
            self._lender.leave_epoch(loop)

    # Of a follower

    def take(self, loop: int, timeout_s: float = math.inf) -> _Item | None:
        """Return the next item of a loop; None after a timeout.

        Raises:
            PeerError: there will be none.
        """
        assert self._consumer is not None
        try:
            taken = self._consumer.take(epoch=loop, timeout_s=timeout_s)
        except ServerError as error:
            raise self.error(str(error)) from None
        except StopIteration:
            raise self.error("it has left its loop before the end") from None
        return None if taken is None else _Item(*taken)

    def leave(self, loop: int) -> None:
        """Take no more batches of a loop. Finalizers may call this."""
        if self._consumer is not None:
            self._consumer.leave(loop)

    def error(self, reason: str) -> PeerError:
        """Return the error of a follower."""
        assert self.peers is not None
        return PeerError(
            f"rank {self.peers.leader}, which loads for rank {self.peers.rank}, gives no more batches: {reason}",
            self.peers.leader,
        )


def begin_with_peers(loader: Any, begin: Callable[[], Any]) -> Iterator[Any]:
    """Begin a loop over a loader with peers.

    Args:
        begin: begins a loop without peers.

    Raises:
        PeerError: the leader does not begin the same loop.
        ServerTimeoutError: a peer does not come.
        ArgumentClashError: the iterator is of another library.
    """
    check_before_iteration(loader)
    link: PeerLink = loader._dali_like_link
    own = link.meet(loader.mesh, loader.mesh_dims, loader._dali_like_array_backend.reducers, begin)
    if own is None:
        return FollowingIterator(loader, link)
    if not isinstance(own, LoaderIterator):
        raise ArgumentClashError(
            f'peers="serve" needs an iterator of this library, and {loader._dali_like_why_foreign or "this is another one"}'
        )
    return LeadingIterator(loader, link, own)


def _about(options: LoaderOptions) -> str:
    """Describe a loader, apart from its state."""
    dataset = options.dataset
    what = [*dataset.description, dataset.seed] if is_composed(dataset) else [type(dataset).__qualname__]
    return json.dumps([what, options.samples_per_batch, options.drop_last], default=repr)


class LeadingIterator(Iterator[Any]):
    """Yields the batches of a loader, and lends them to the other peers."""

    def __init__(self, loader: Any, link: PeerLink, own: LoaderIterator) -> None:
        self._loader = loader
        self._link = link
        self._own = own
        own.keeps_sent = True
        self._number = 0
        self._is_over = False
        #: An item that an interrupt has kept from the followers.
        self._unsent: tuple[_Item, Any] | None = None
        digest = link.begin_loop(_about(LoaderOptions.of(loader)))
        self._loop = link.loop
        link.lend(_Item(_Kind.BEGIN, digest, loader.state_dict()))

    def __iter__(self) -> Self:
        return self

    def __len__(self) -> int:
        return len(self._own)

    def __next__(self) -> Any:
        if self._unsent is None:
            self._unsent = self._taken()
        item, result = self._unsent
        if not self._is_over:
            self._link.lend(item, self._number)
        self._unsent = None
        self._number += 1
        if item.kind is _Kind.BATCH:
            return result
        self._is_over = self._is_over or item.kind is _Kind.END
        try:
            raise result
        finally:
            del result  # the traceback refers to this frame

    def __del__(self) -> None:
        if not self._is_over:
            self._link.end_lending(self._loop)

    def _taken(self) -> tuple[_Item, Any]:
        """Take the next batch, and return it with its item; or an exception."""
        own = self._own
        try:
            batch = next(own)
        except StopIteration as end:
            return _Item(_Kind.END, None, self._loader.state_dict()), end
        except Exception as error:
            return _Item(_Kind.ERROR, pack_exception(error), self._loader.state_dict()), error
        sent, own.latest_sent = own.latest_sent, None
        return _Item(_Kind.BATCH, batch if sent is None else sent, self._loader.state_dict()), batch


class FollowingIterator(Iterator[Any]):
    """Yields the batches that another rank loads."""

    def __init__(self, loader: Any, link: PeerLink) -> None:
        self._is_over = True  # until it has begun: see `__del__`
        self._loader = loader
        self._link = link
        options = LoaderOptions.of(loader)
        self._timeout_s = options.timeout_s or math.inf
        self._pin = options.array_backend.pin if options.pins_memory else None
        self._meter = loader._dali_like_factory.counters.loop
        self._items: deque[_Item] = deque()
        digest = link.begin_loop(_about(options))
        self._loop = link.loop
        self._sender: DeviceSender | None = loader._dali_like_sender_for(options, link.sender)
        link.sender = self._sender
        begin = self._wait_for_item()
        if begin.value != digest:
            raise link.error(
                "it has another loader, or has loaded another state or set another epoch. All ranks with the same samples "
                "must do so alike, and iterate over their loaders in one order"
            )
        link.state = begin.state
        self._is_over = False

    def __iter__(self) -> Self:
        return self

    def __len__(self) -> int:
        return len(self._loader)

    def __next__(self) -> Any:
        if self._is_over:
            raise StopIteration
        self._meter.begin()
        try:
            batch = self._next()
        except BaseException as error:
            self._meter.fail(error)
            raise
        self._meter.end()
        return batch

    def __del__(self) -> None:
        if not self._is_over:
            self._link.leave(self._loop)

    def _next(self) -> Any:
        items = self._items
        if not items:
            items.append(self._wait_for_item())
        if (sender := self._sender) is not None:
            self._send_ahead(sender)
        item = items.popleft()
        if item.kind is _Kind.END:
            self._is_over = True
            self._loader._dali_like_load(item.state)
            raise StopIteration
        self._link.state = item.state
        if item.kind is _Kind.ERROR:
            raise unpack_exception(item.value)
        if sender is not None:
            return sender.deliver(item.value)
        return item.value if self._pin is None else self._pin(item.value)

    def _wait_for_item(self) -> _Item:
        item = self._link.take(self._loop, self._timeout_s)
        if item is None:
            peers = self._link.peers
            assert peers is not None
            raise LoaderTimeoutError(
                f"DataLoader timed out after {self._timeout_s} seconds: rank {peers.leader}, which loads for rank "
                f"{peers.rank}, has taken no batch for so long"
            )
        return item

    def _send_ahead(self, sender: DeviceSender) -> None:
        """Begin the copies of the next batches that have arrived. The first one must be sent."""
        items = self._items
        for place in range(sender.num_ahead + 1):
            if place == len(items):
                if items[-1].kind is _Kind.END or (item := self._link.take(self._loop, 0)) is None:
                    return
                items.append(item)
            item = items[place]
            if item.kind is not _Kind.BATCH:
                continue
            turn = sender.num_delivered + sum(each.kind is _Kind.SENT for each in items)
            if place and not sender.can_send(turn):
                return
            try:
                sent = sender.send(item.value, turn)
            except (OutOfMemoryError, BuffersInUseError):
                if not place:
                    raise
                return  # tried again when the program needs the batch
            items[place] = _Item(_Kind.SENT, sent, item.state)
