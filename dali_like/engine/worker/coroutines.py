"""Coroutine functions as sources: many samples computed at once in one process.

A process that calls coroutine functions has one event loop for as long as it runs, so that sessions and connection pools of
the loop serve all batches. asyncio is imported with the first coroutine: most programs have none.
"""

from __future__ import annotations

import contextlib
import contextvars
import inspect
import os
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any

from dali_like.common.foreign_errors import cause_of, is_a
from dali_like.common.interrupts import deferred_interrupts

if TYPE_CHECKING:
    import asyncio


class EventLoop:
    """The event loop of a process. It is made for the first coroutine."""

    def __init__(self) -> None:
        self._runner: asyncio.Runner | None = None
        self._finalizer: Callable[[], Any] | None = None

    def finish(self, value: Any) -> Any:
        """Return the result of a coroutine, or any other value as it is.

        Raises:
            Exception: the exception of the coroutine. That includes StopIteration, which Python turns into RuntimeError.
        """
        return self._run(value) if inspect.iscoroutine(value) else value

    def make_concurrently(
        self,
        make: Callable[[int], Awaitable[None]],
        indices: range,
        limit: int,
        is_last: Callable[[Exception], bool],
        progress: Callable[[int], None],
    ) -> dict[int, Exception]:
        """Compute samples, several at a time.

        Args:
            make: computes one.
            indices: the samples.
            limit: how many at a time.
            is_last: whether the samples after the one that raised an exception can be left out.
            progress: called with the lowest index that is not finished.

        Returns:
            The exceptions, by index.
        """
        errors: dict[int, Exception] = self._run(_make_concurrently(make, indices, limit, is_last, progress))
        return errors

    def _run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        import asyncio  # most programs have no coroutines

        if self._runner is None:
            # With a factory, asyncio does not change the program's current event loop.
            self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
            # Not __del__: garbage is finalized in any order, perhaps the loop first.
            self._finalizer = weakref.finalize(self, _end, self._runner, os.getpid())
        try:
            return _run(self._runner, coroutine)
        except asyncio.CancelledError:
            raise _cancelled() from None
        except Exception as error:
            if (first := original(error)) is not error:
                raise first from None
            raise
        except BaseException:  # Ctrl-C: nothing may go on in the loop
            self.close()
            raise

    def close(self) -> None:
        """Cancel all tasks and close the loop. May be called twice. Garbage collection does the same."""
        finalizer, self._finalizer, self._runner = self._finalizer, None, None
        if finalizer is not None:
            finalizer()


async def _make_concurrently(
    make: Callable[[int], Awaitable[None]],
    indices: range,
    limit: int,
    is_last: Callable[[Exception], bool],
    progress: Callable[[int], None],
) -> dict[int, Exception]:
    samples = _SampleTasks(make, indices, limit, is_last, progress)
    try:
        await samples.run()
    except BaseException:
        await samples.cancel()
        raise
    return samples.errors


class _SampleTasks:
    """Computes samples in as few asyncio tasks as they need: a task takes one sample after another until one has to wait.

    Another task stands by then, and goes on. A task that has changed context variables ends. A task for each sample would
    take 10 us, several times as long as a short coroutine. See `EventLoop.make_concurrently` for the arguments.
    """

    def __init__(
        self,
        make: Callable[[int], Awaitable[None]],
        indices: range,
        limit: int,
        is_last: Callable[[Exception], bool],
        progress: Callable[[int], None],
    ) -> None:
        import asyncio  # see EventLoop

        self.errors: dict[int, Exception] = {}
        self._make, self._limit, self._is_last, self._progress = make, limit, is_last, progress
        self._next, self._stop = indices.start, indices.stop
        self._lowest, self._done = indices.start, set[int]()
        self._running: dict[int, asyncio.Task[None]] = {}  # by the sample
        self._tasks: set[asyncio.Task[None]] = set()
        self._has_standby = False
        self._cancelled = asyncio.CancelledError
        self._context = contextvars.copy_context()
        self._loop = asyncio.get_running_loop()
        self._end: asyncio.Future[None] = self._loop.create_future()
        self._current_task = asyncio.current_task

    async def run(self) -> None:
        """Compute all samples."""
        if self._next < self._stop:
            self._progress(self._next)
            self._begin_task()
            await self._end

    async def cancel(self) -> None:
        """Cancel all samples, and wait until they have ended."""
        import asyncio  # see EventLoop

        self._stop = self._next
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin_task(self) -> None:
        self._has_standby = True
        task = self._loop.create_task(self._work(), context=self._context.copy())
        self._tasks.add(task)
        task.add_done_callback(self._note_end)

    def _note_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if self._end.done():
            return
        if error is not None:  # a BaseException that is not an Exception: it ends all samples
            self._end.set_exception(error)
        elif not self._tasks:
            self._end.set_result(None)

    async def _work(self) -> None:
        self._has_standby = False
        task = self._current_task()
        assert task is not None
        while (i := self._next) < self._stop:
            self._next = i + 1
            if not self._has_standby and self._next < self._stop and len(self._tasks) < self._limit:
                self._begin_task()
            self._running[i] = task
            try:
                await self._make(i)
            except self._cancelled:
                if i >= self._stop:  # a sample before this one was the last
                    return
                while task.cancelling():
                    task.uncancel()
                self.errors[i] = _cancelled()
            except Exception as error:
                self._note_error(i, original(error))
            finally:
                del self._running[i]
            self._note_done(i)
            if contextvars.copy_context() != self._context:  # the next sample must not see the variables of this one
                break
        if self._next < self._stop and not self._has_standby:
            self._begin_task()

    def _note_error(self, i: int, error: Exception) -> None:
        self.errors[i] = error
        if i < self._stop and self._is_last(error):
            self._stop = i
            for other, task in self._running.items():
                if other > i:
                    task.cancel()

    def _note_done(self, i: int) -> None:
        self._done.add(i)
        if i == self._lowest:
            while self._lowest in self._done:
                self._done.remove(self._lowest)
                self._lowest += 1
            if self._lowest < self._stop:
                self._progress(self._lowest)


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
