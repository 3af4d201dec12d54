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
        import asyncio  # noqa: PLC0415  # most programs have no coroutines

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
    import asyncio  # noqa: PLC0415  # see EventLoop

    gate = asyncio.Semaphore(limit)
    errors: dict[int, Exception] = {}

    async def make_one(i: int) -> None:
        async with gate:
            try:
                await make(i)
            except Exception as error:
                errors[i] = original(error)
                if is_last(errors[i]):
                    for j in range(i + 1, indices.stop):
                        tasks[j].cancel()

    tasks = {i: asyncio.ensure_future(make_one(i)) for i in indices}
    try:
        for i, task in tasks.items():
            progress(i)
            await asyncio.wait((task,))
            if task.cancelled():
                errors[i] = _cancelled()
            else:
                task.result()  # raises a BaseException that is no Exception: it ends all samples
    except BaseException:
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)
        raise
    return errors


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
    from concurrent.futures import Future, ThreadPoolExecutor  # noqa: PLC0415  # see EventLoop

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
    import asyncio  # noqa: PLC0415  # see EventLoop

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
            from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415  # see EventLoop

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
    import asyncio  # noqa: PLC0415  # see EventLoop

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
