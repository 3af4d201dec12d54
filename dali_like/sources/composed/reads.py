"""Functions of `map` that read: several calls at a time, in threads or as coroutines.

With random access, several threads evaluate a dataset. One of them at a time, except within the functions that read: stages
need no locks, and other functions of the program are not called at the same time.

In logical shards, each walk begins reads for its next outputs, so that later stages, batches and tasks do not wait for them.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self

from dali_like.engine.worker.coroutines import original
from dali_like.sources.composed.background_reads import background_reads
from dali_like.sources.composed.elementwise import Elementwise, Map, is_coroutine_function
from dali_like.sources.composed.stage import Place, RandomAccess, ShardWalk, generator_at, skip_any

__all__ = ["Calls", "ElementsAhead", "InTurns", "ReadingMap"]


class _HeldLocks(threading.local):
    """The locks that this thread holds, the innermost one last."""

    def __init__(self) -> None:
        self.held: list[threading.Lock] = []


_held_locks = _HeldLocks()


class ReadTurn:
    """Lets one thread of a process at a time evaluate a dataset; the others wait, or are within `elsewhere`."""

    def __init__(self) -> None:
        self._locks: dict[int, threading.Lock] = {}  # by process: a fork may happen while another thread holds one

    def __enter__(self) -> Self:
        lock = self._locks.setdefault(os.getpid(), threading.Lock())
        lock.acquire()
        _held_locks.held.append(lock)
        return self

    def __exit__(self, *_: object) -> None:
        _held_locks.held.pop().release()


class InTurns(RandomAccess):
    """Evaluates a stage in one thread at a time."""

    def __init__(self, access: RandomAccess) -> None:
        self._access = access
        self._turn = ReadTurn()
        self.length = access.length

    def at(self, position: int) -> Any:
        with self._turn:
            return self._access.at(position)


@contextlib.contextmanager
def elsewhere() -> Iterator[None]:
    """Let other threads evaluate the dataset meanwhile."""
    if not _held_locks.held:
        yield
        return
    lock = _held_locks.held[-1]
    lock.release()
    try:
        yield
    finally:
        lock.acquire()


class Calls:
    """Calls of a function that reads, `count` at a time in each process.

    Args:
        function: blocks, or is a coroutine function.
        count: number of calls at a time.

    Attributes:
        walks: the walks that begin calls ahead of time.
    """

    def __init__(self, function: Callable[..., Any], count: int) -> None:
        self.walks: weakref.WeakSet[Any] = weakref.WeakSet()
        self._function = function
        self._count = count
        self._is_async = is_coroutine_function(function)
        self._starts: dict[int, Callable[..., Future[Any]]] = {}  # by process: threads do not survive a fork

    @property
    def num_ahead(self) -> int:
        """The number of calls that each walk has begun and not taken."""
        return -(-self._count // max(len(self.walks), 1))

    def start(self, *args: Any) -> Future[Any]:
        """Begin a call as soon as fewer than `count` run."""
        start = self._starts.get(os.getpid())
        if start is None:
            start = self._starts[os.getpid()] = self._coroutines() if self._is_async else self._threads()
        return start(*args)

    def __call__(self, *args: Any) -> Any:
        """Return the result of a call. Meanwhile, other threads evaluate the dataset."""
        future = self.start(*args)
        with elsewhere():
            return result_of(future)

    def _threads(self) -> Callable[..., Future[Any]]:
        threads = ThreadPoolExecutor(self._count, "dali_like_reads")
        return functools.partial(threads.submit, self._function)

    def _coroutines(self) -> Callable[..., Future[Any]]:
        import asyncio  # most datasets have no coroutines

        function, reads, limit = self._function, background_reads(), asyncio.Semaphore(self._count)

        async def call(*args: Any) -> Any:
            async with limit:
                return await function(*args)

        return lambda *args: reads.start(call(*args))


def result_of(future: Future[Any]) -> Any:
    """Return the result of a call. An interrupt cancels it.

    Raises:
        Exception: the exception of the function.
    """
    try:
        return future.result()
    except Exception as error:
        if (first := original(error)) is not error:
            raise first from None
        raise
    except BaseException:
        future.cancel()
        raise


@dataclass(frozen=True)
class ReadingMap(Map):
    """A `Map` in a process that calls its function."""

    @cached_property
    def calls(self) -> Calls:
        """The calls of the function."""
        return Calls(self.function, self.num_reads)

    def for_process(self) -> Elementwise:
        return self

    def walk(self, place: Place, source: ShardWalk, epoch: int, shard: int, taken: int) -> ShardWalk:
        if self.num_reads == 1:
            return super().walk(place, source, epoch, shard, taken)
        return ReadingWalk(self, place, source, epoch, shard, taken)

    def start(self, element: Any, place: Place, epoch: int, position: int) -> Future[Any]:
        """Begin the call for an element."""
        return self.calls.start(element, *([generator_at(place, epoch, position)] if self.rng else []))

    def apply(self, element: Any, place: Place, epoch: int, position: int) -> Any:
        with self.noting(epoch, position):
            return self.calls(element, *([generator_at(place, epoch, position)] if self.rng else []))

    @contextlib.contextmanager
    def noting(self, epoch: int, position: int) -> Iterator[None]:
        """Add the place of an element to an exception."""
        try:
            yield
        except StopIteration:  # a generator must not raise it
            raise
        except Exception as error:  # a user's function may raise anything
            self.note(error, epoch, position)
            raise


class _Begun(NamedTuple):
    """An output whose call has been begun.

    Attributes:
        state: of the input before it.
        call: None: the input has raised `error` in its place.
    """

    state: Any
    call: Future[Any] | None
    error: Exception | None = None


class ReadingWalk(ShardWalk):
    """The state is that of a `CountingWalk`. Calls for the next outputs are begun ahead of time."""

    # Invariant: `_begun` has the outputs from number `_taken` on, and the input is behind them.

    def __init__(self, stage: ReadingMap, place: Place, source: ShardWalk, epoch: int, shard: int, taken: int) -> None:
        self._stage, self._place, self._source = stage, place, source
        self._epoch, self._shard, self._taken = epoch, shard, taken
        self._begun: deque[_Begun] = deque()
        self._is_at_end = False
        stage.calls.walks.add(self)

    def begin(self) -> None:
        self._begin(self._stage.calls.num_ahead)

    def __next__(self) -> Any:
        self._begin(self._stage.calls.num_ahead)
        if not self._begun:
            raise StopIteration
        begun, position = self._begun.popleft(), self._position(self._taken)
        self._taken += 1
        self._begin(self._stage.calls.num_ahead)  # not behind the wait: the worker may be idle afterwards
        if begun.call is None:
            assert begun.error is not None
            raise begun.error
        with self._stage.noting(self._epoch, position):
            return result_of(begun.call)

    def skip(self) -> None:
        if not self._begun:
            skip_any(self._source)
        elif (call := self._begun.popleft().call) is not None:
            call.cancel()
        self._taken += 1

    def state(self) -> list[Any]:
        return [self._begun[0].state if self._begun else self._source.state(), self._taken]

    def __del__(self) -> None:
        for begun in self._begun:
            if begun.call is not None:
                begun.call.cancel()

    def _position(self, number: int) -> int:
        return number * self._place.num_shards + self._shard

    def _begin(self, count: int) -> None:
        while len(self._begun) < count and not self._is_at_end:
            state = self._source.state()
            try:
                element = next(self._source)
            except StopIteration:
                self._is_at_end = True
                self._stage.calls.walks.discard(self)
            except Exception as error:  # an output like any other
                self._begun.append(_Begun(state, None, error))
            else:
                position = self._position(self._taken + len(self._begun))
                call = self._stage.start(element, self._place, self._epoch, position)
                self._begun.append(_Begun(state, call))


class ElementsAhead:
    """Computes elements with random access ahead of a loop, in threads.

    Args:
        at: returns the element at a position.
        end: the end of the positions; None: they are endless.
        count: the number of elements that are computed at a time.
    """

    def __init__(self, at: Callable[[int], Any], end: int | None, count: int) -> None:
        self._at, self._end, self._count = at, end, count
        self._threads = ThreadPoolExecutor(count, "dali_like_elements")
        self._begun: deque[Future[Any]] = deque()
        self._next: int | None = None

    def take(self, position: int) -> Any:
        """Return the element at a position, which follows the one of the last call."""
        if self._next is None:
            self._next = position
        self._begin()
        future = self._begun.popleft()
        self._begin()
        return result_of(future)

    def _begin(self) -> None:
        assert self._next is not None
        while len(self._begun) < self._count and (self._end is None or self._next < self._end):
            self._begun.append(self._threads.submit(self._at, self._next))
            self._next += 1
