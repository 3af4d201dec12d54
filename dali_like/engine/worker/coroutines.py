"""Coroutine functions as sources: many samples computed at once in one process.

A process that calls coroutine functions has one event loop for as long as it runs, so that sessions and connection pools of
the loop serve all batches. asyncio is imported with the first coroutine: most programs have none.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import inspect
import os
import threading
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from dali_like.common.foreign_errors import cause_of, is_a
from dali_like.common.interrupts import deferred_interrupts
from dali_like.engine.worker.info import get_worker_info, is_worker_thread, join_worker

if TYPE_CHECKING:
    import asyncio


class EventLoop:
    """The event loop of a process. It is made for the first coroutine.

    Attributes:
        is_closing: whether its tasks are being cancelled, or have been, and none has begun since.
    """

    def __init__(self) -> None:
        self._runner: asyncio.Runner | None = None
        self._finalizer: Callable[[], Any] | None = None
        self.is_closing = False

    def finish(self, value: Any) -> Any:
        """Return the result of a coroutine, or any other value as it is.

        Raises:
            Exception: the exception of the coroutine. That includes StopIteration, which Python turns into RuntimeError.
        """
        return self.run(value) if inspect.iscoroutine(value) else value

    def read_all(self, group: ReadGroup, limit: int, progress: Callable[[int], None]) -> None:
        """Carry out the reads of one group, at most `limit` at a time, and wait for all of them; see `Reads`."""
        reads = Reads(self, limit, progress=progress)
        reads.add(group)
        try:
            reads.wait()
        finally:
            reads.close()

    def new_task(self, coroutine: Coroutine[Any, Any, Any], context: contextvars.Context) -> asyncio.Task[Any]:
        """Begin a task. It goes on while `run` does."""
        return self.begin().get_loop().create_task(coroutine, context=context)

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Return the result of a coroutine. Meanwhile, tasks that were begun before go on.

        Raises:
            Exception: see `finish`.
        """
        import asyncio  # most programs have no coroutines

        runner = self.begin()
        try:
            return _run(runner, coroutine)
        except asyncio.CancelledError:
            raise _cancelled() from None
        except Exception as error:
            if (first := original(error)) is not error:
                raise first from None
            raise
        except BaseException:  # Ctrl-C: nothing may go on in the loop
            self.close()
            raise

    def begin(self) -> asyncio.Runner:
        """Make the loop, unless there is one."""
        import asyncio  # see `run`

        if self._runner is None:
            self.is_closing = False
            # With a factory, asyncio does not change the program's current event loop.
            self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
            # Not __del__: garbage is finalized in any order, perhaps the loop first.
            self._finalizer = weakref.finalize(self, _end, self._runner, os.getpid())
        return self._runner

    def close(self) -> None:
        """Cancel all tasks and close the loop. May be called twice. Garbage collection does the same."""
        self.is_closing = True
        finalizer, self._finalizer, self._runner = self._finalizer, None, None
        if finalizer is not None:
            finalizer()


class _Failed:
    """The exception of a read, in place of its result."""

    __slots__ = ("error",)

    def __init__(self, error: Exception) -> None:
        self.error = error


class ReadGroup:
    """The reads of one task.

    Args:
        indices: of the reads.
        read: begins a read, given its index.
        is_last: whether the reads of higher indices can be left out after an exception.
        is_cancelled: whether reads that have not begun can be left out.

    Attributes:
        lowest: the lowest index that is not finished.
        context: the context variables of each read.
    """

    def __init__(
        self,
        indices: range,
        read: Callable[[int], Awaitable[Any]],
        is_last: Callable[[Exception], bool],
        is_cancelled: Callable[[], int] = lambda: False,
    ) -> None:
        self.read, self.is_last, self.is_cancelled = read, is_last, is_cancelled
        self.context = contextvars.copy_context()
        self.next, self.stop = indices.start, indices.stop
        self.running: dict[int, asyncio.Task[None]] = {}
        self.lowest = indices.start
        self._results: dict[int, Any] = {}
        self._begin = indices.start

    @property
    def num_left(self) -> int:
        """The number of reads that have not finished."""
        return max(self.stop - self.next, 0) + len(self.running)

    def errors(self) -> list[tuple[int, Exception]]:
        """Return the exceptions of reads, by ascending index."""
        return [(i, result.error) for i, result in sorted(self._results.items()) if type(result) is _Failed]

    def take(self, index: int) -> Any:
        """Return the result of a read, once.

        Raises:
            Exception: the exception of the read.
        """
        result = self._results.pop(index)
        if type(result) is _Failed:
            try:
                raise result.error
            finally:
                del result  # the traceback refers to this frame
        return result

    def note(self, index: int, result: Any) -> None:
        """Note the result of a read."""
        self._results[index] = result
        while self.lowest in self._results:
            self.lowest += 1

    def fail(self, index: int, error: Exception) -> _Failed:
        """Return the value that `note` gets for an exception, and cancel the reads that it makes needless."""
        if index < self.stop and self.is_last(error):
            self.stop = index + 1
            for other, task in self.running.items():
                if other > index:
                    task.cancel()
        return _Failed(error)


async def _nothing(_: int) -> None:
    """Read nothing."""


#: The reads of a task that has none.
NO_READS = ReadGroup(range(0), _nothing, lambda _: True)


class Reads:
    """The reads of several groups, in their order. The next group begins while the last reads of another run.

    They take as few asyncio tasks as they need: a task carries out one read after another until one has to wait. Then
    another task, which stands by, goes on. A task that has changed context variables ends. A task for each read would take
    10 us, several times as long as a short coroutine.

    Args:
        loop: runs them.
        limit: how many at a time.
        max_bytes: if the results of complete reads are larger, only reads of the first group begin. None: no limit.
        progress: called with the lowest index that is not finished in the first group.
    """

    # Invariants
    # - `_groups` has the groups that have not been removed; `_waiting` those of them with reads that have not begun.
    # - If a read may begin, a task stands by or as many tasks run as are allowed. So after each event that may allow another
    #   read, `_begin_task` is called.

    def __init__(
        self,
        loop: EventLoop,
        limit: int,
        max_bytes: int | None = None,
        progress: Callable[[int], None] = lambda _: None,
    ) -> None:
        import asyncio  # see EventLoop

        loop.begin()
        self._loop, self._limit, self._max_bytes, self._progress = loop, limit, max_bytes, progress
        self._groups: deque[ReadGroup] = deque()
        self._waiting: deque[ReadGroup] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._has_standby = False
        self._held_bytes: dict[ReadGroup, int] = {}
        self._news: asyncio.Future[None] | None = None
        self._failure: BaseException | None = None
        self._is_closed = False
        self._current_task, self._cancelled = asyncio.current_task, asyncio.CancelledError

    @property
    def has_room(self) -> bool:
        """Whether another group would begin a read now."""
        return sum(group.num_left for group in self._groups) < self._limit and not self._is_full

    @property
    def is_first_done(self) -> bool:
        """Whether all reads of the first group have finished."""
        return not self._groups[0].num_left

    def add(self, group: ReadGroup) -> None:
        """Append a group."""
        self._groups.append(group)
        if group.num_left:
            self._waiting.append(group)
        if len(self._groups) == 1:
            self._progress(group.lowest)
        self._begin_task()

    def remove_first(self) -> None:
        """Remove the first group, which is done: its results have been taken."""
        self._held_bytes.pop(self._groups.popleft(), None)
        if self._groups:
            self._progress(self._groups[0].lowest)
        self._begin_task()

    def wait(self, files: Sequence[int] = ()) -> None:
        """Wait until the first group is done; or a file can be read, and there is room."""
        if self._failure is not None or not self.is_first_done:
            self._loop.run(self._wait(files))

    def close(self) -> None:
        """Cancel all reads that have not finished, and wait for their ends."""
        self._is_closed = True
        if self._tasks and not self._loop.is_closing:
            self._loop.run(self._cancel())

    async def _wait(self, files: Sequence[int]) -> None:
        import asyncio  # see EventLoop

        loop, is_readable, is_watching = asyncio.get_running_loop(), [False], False

        def note_file() -> None:
            is_readable[0] = True
            self._wake()

        try:
            while self._failure is None and not (self.is_first_done or is_readable[0]):
                if files and not is_watching and self.has_room:
                    is_watching = True
                    for file in files:
                        loop.add_reader(file, note_file)
                self._news = loop.create_future()
                await self._news
            if self._failure is not None:
                raise self._failure  # noqa: TRY301  # as an interrupt does, it ends the other reads
        except BaseException:
            await self._cancel()
            raise
        finally:
            self._news = None
            if is_watching:
                for file in files:
                    loop.remove_reader(file)

    async def _cancel(self) -> None:
        import asyncio  # see EventLoop

        self._is_closed = True
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    @property
    def _is_full(self) -> bool:
        return self._max_bytes is not None and sum(self._held_bytes.values()) >= self._max_bytes

    def _next_group(self) -> ReadGroup | None:
        """Return the group whose read may begin next."""
        while self._waiting:
            group = self._waiting[0]
            if group.next < group.stop and group.is_cancelled():
                group.stop = group.next
            if group.next < group.stop:
                return group if group is self._groups[0] or not self._is_full else None
            self._waiting.popleft()
        return None

    def _begin_task(self) -> None:
        """Let another task stand by, if a read may begin."""
        if self._has_standby or len(self._tasks) >= self._limit or self._is_closed or self._loop.is_closing:
            return
        if (group := self._next_group()) is None:
            return
        self._has_standby = True
        task = self._loop.new_task(self._work(group), group.context.copy())
        self._tasks.add(task)
        task.add_done_callback(self._note_end)

    def _note_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # else asyncio would report that nobody has seen it
        self._begin_task()
        self._wake()

    async def _work(self, group: ReadGroup) -> None:
        self._has_standby = False
        task, read, running = self._current_task(), group.read, group.running
        assert task is not None
        while self._next_group() is group:
            i = group.next
            group.next = i + 1
            if not self._has_standby:
                self._begin_task()
            running[i] = task
            try:
                result = await read(i)
            except self._cancelled:
                if i >= group.stop or self._is_closed or self._loop.is_closing:  # a read before this one was the last
                    return
                while task.cancelling():
                    task.uncancel()
                result = _Failed(_cancelled())
            except Exception as error:
                result = group.fail(i, original(error))
            except BaseException as error:  # it ends all reads
                self._failure = self._failure or error
                raise
            finally:
                del running[i]
                if self._news is not None:
                    self._wake()
            group.note(i, result)
            if self._max_bytes is not None:
                self._held_bytes[group] = self._held_bytes.get(group, 0) + size_of(result)
            if group is self._groups[0]:
                self._progress(group.lowest)
            if contextvars.copy_context() != group.context:  # the next read must not see the variables of this one
                return


class ReadThreads:
    """Threads for reads that block.

    Args:
        count: the number of threads.
    """

    def __init__(self, count: int) -> None:
        from concurrent.futures import ThreadPoolExecutor  # see EventLoop

        be_worker = functools.partial(join_worker, get_worker_info()) if is_worker_thread() else None
        self._threads = ThreadPoolExecutor(count, "dali_like_reads", be_worker)

    def in_thread(self, read: Callable[[int], Any]) -> Callable[[int], Awaitable[Any]]:
        """Return a coroutine function that calls a function in one of the threads."""

        def call(i: int) -> Any:
            try:
                return read(i)
            except StopIteration as stop:  # futures cannot carry it
                raise RuntimeError("a read raised StopIteration") from stop

        async def read_in_thread(i: int) -> Any:
            import asyncio  # see EventLoop

            context = contextvars.copy_context()
            return await asyncio.get_running_loop().run_in_executor(self._threads, context.run, call, i)

        return read_in_thread

    def close(self) -> None:
        """End the threads. Reads that have begun go on to their ends."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def size_of(value: Any) -> int:
    """Return the bytes of arrays, texts and buffers in a sample; other objects do not count."""
    if isinstance(value, (tuple, list)):
        return sum(map(size_of, value))
    if isinstance(value, dict):
        return sum(map(size_of, value.values()))
    if isinstance(value, (bytes, bytearray, str)):
        return len(value)
    nbytes = getattr(value, "nbytes", 0)
    return nbytes if isinstance(nbytes, int) else 0


def original(error: Exception) -> Exception:
    """Return the exception that a coroutine raised. Python turns its StopIteration into a RuntimeError."""
    if is_a(error, StopAsyncIteration):
        return StopIteration(*error.args)
    cause = cause_of(error)
    if is_a(error, RuntimeError) and isinstance(cause, StopIteration):
        return cause
    return error


def _cancelled() -> Exception:
    return RuntimeError("the coroutine was cancelled")


def _run(runner: asyncio.Runner, coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine; in another thread if an event loop runs in this one, as in a notebook."""
    # The context of this call, not the one in which the loop was made: it holds the sample.
    context = contextvars.copy_context()
    if not _is_in_loop():
        return runner.run(coroutine, context=context)
    from concurrent.futures import Future, ThreadPoolExecutor  # see EventLoop

    loop = runner.get_loop()
    with ThreadPoolExecutor(1) as thread:
        result: Future[Any] | None = None
        try:
            with deferred_interrupts():  # else an interrupt could lose the result of a coroutine that has begun
                result = thread.submit(runner.run, coroutine, context=context)
            return result.result()
        except BaseException:
            if result is not None and not result.done():  # Ctrl-C, which only this thread gets
                loop.call_soon_threadsafe(_cancel_all, loop)
            raise


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    import asyncio  # see EventLoop

    for task in asyncio.all_tasks(loop):
        task.cancel()


def _end(runner: asyncio.Runner, pid: int) -> None:
    if pid != os.getpid():
        # Closing the loop would change the epoll instance that the parent process still uses; so would its own finalizer.
        with contextlib.suppress(AttributeError):
            runner.get_loop().is_closed = lambda: True  # type: ignore[method-assign]
        return
    try:
        if _is_in_loop():
            from concurrent.futures import ThreadPoolExecutor  # see EventLoop

            with ThreadPoolExecutor(1) as thread:
                thread.submit(runner.close).result()
        else:
            runner.close()
    except RuntimeError as error:
        # Python 3.12.1 starts no threads any more once the main thread waits for the others to end.
        if threading.main_thread().is_alive() and "interpreter shutdown" not in str(error):
            raise
        # The program exits. The threads of asyncio.to_thread have ended already.


def _is_in_loop() -> bool:
    import asyncio  # see EventLoop

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
