"""Coroutine functions as sources: many samples in the making at once, in one process.

A process that calls coroutine functions has one event loop, for as long as it runs: so sessions and connection pools that
belong to the loop serve all batches.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from dali_like.common.interrupts import deferred_interrupts


class EventLoop:
    """The event loop of a process."""

    def __init__(self) -> None:
        self._runner: asyncio.Runner | None = None
        self._finalizer: Callable[[], Any] | None = None

    def finish(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """The result of a coroutine.

        Raises:
            Exception: what the coroutine raises. That includes StopIteration, which Python itself does not let pass.
        """
        if self._runner is None:
            # With a factory it leaves alone what the program has for the current event loop.
            self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
            # Not by __del__: garbage is finalized in any order, the loop before its owner, say.
            self._finalizer = weakref.finalize(self, _end, self._runner, os.getpid())
        try:
            return _run(self._runner, coroutine)
        except asyncio.CancelledError:
            raise _cancelled() from None
        except Exception as error:
            if (first := original(error)) is not error:
                raise first from None
            raise
        except BaseException:  # Ctrl-C: nothing of what it was about may go on
            self.close()
            raise

    def close(self) -> None:
        """Cancel what goes on in it, and end it. May be called twice, and is when nobody refers to it any more."""
        finalizer, self._finalizer, self._runner = self._finalizer, None, None
        if finalizer is not None:
            finalizer()


async def make_concurrently(
    make: Callable[[int], Awaitable[None]],
    indices: range,
    limit: int,
    is_last: Callable[[Exception], bool],
    progress: Callable[[int], None],
) -> dict[int, Exception]:
    """Make samples, several at a time.

    Args:
        make: makes one.
        indices: which.
        limit: how many at a time.
        is_last: whether, after such an exception, samples behind the one that raised it need not be made.
        progress: told the lowest index that is not finished.

    Returns:
        The exceptions, by index.
    """
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
                task.result()  # raises what is no Exception, and so about more than this sample
    except BaseException:
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)
        raise
    return errors


def original(error: Exception) -> Exception:
    """The exception that a coroutine raised: it cannot raise StopIteration, which comes out as RuntimeError."""
    if isinstance(error, StopAsyncIteration):
        return StopIteration(*error.args)
    if isinstance(error, RuntimeError) and isinstance(error.__cause__, StopIteration):
        return error.__cause__
    return error


def _cancelled() -> Exception:
    return RuntimeError("the coroutine was cancelled")


def _run(runner: asyncio.Runner, coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine; in another thread if there is an event loop in this one, as in a notebook."""
    # Not the context that the loop was made in: the sample is in it.
    context = contextvars.copy_context()
    if not _is_in_loop():
        return runner.run(coroutine, context=context)
    loop = runner.get_loop()
    with ThreadPoolExecutor(1) as thread:
        result: Future[Any] | None = None
        try:
            with deferred_interrupts():  # else it might have begun, and nobody would know of it
                result = thread.submit(runner.run, coroutine, context=context)
            return result.result()
        except BaseException:
            if result is not None and not result.done():  # Ctrl-C, which only this thread has seen
                loop.call_soon_threadsafe(_cancel_all, loop)
            raise


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    for task in asyncio.all_tasks(loop):
        task.cancel()


def _end(runner: asyncio.Runner, pid: int) -> None:
    if pid != os.getpid():
        # Ending it would take its descriptors from the process that this one was forked from; so would its own finalizer.
        with contextlib.suppress(AttributeError):
            runner.get_loop().is_closed = lambda: True  # type: ignore[method-assign]
        return
    try:
        if _is_in_loop():
            with ThreadPoolExecutor(1) as thread:
                thread.submit(runner.close).result()
        else:
            runner.close()
    except RuntimeError as error:
        # Python 3.12.1 starts no more threads while the main one still waits for the others.
        if threading.main_thread().is_alive() and "interpreter shutdown" not in str(error):
            raise
        # The program ends: Python starts no more threads, not even to end those of asyncio.to_thread, which have ended.


def _is_in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
