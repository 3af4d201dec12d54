"""Coroutine functions as sources: many samples in the making at once, in one process.

A process that calls coroutine functions has one event loop, for as long as it runs: so sessions and connection pools that
belong to the loop serve all batches.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any


class EventLoop:
    """The event loop of a process; it is made when the first coroutine comes."""

    def __init__(self) -> None:
        self._runner: asyncio.Runner | None = None

    def finish(self, value: Any) -> Any:
        """The result of a coroutine; any other value as it is.

        Raises:
            Exception: what the coroutine raises. That includes StopIteration, which Python itself does not let pass.
        """
        if not inspect.iscoroutine(value):
            return value
        if self._runner is None:
            self._runner = asyncio.Runner()
        try:
            # Not the context that the loop was made in: the sample is in it.
            return _outside_of_loops(self._runner.run, value, context=contextvars.copy_context())
        except Exception as error:
            raise original(error) from error.__cause__
        except BaseException:  # Ctrl-C: nothing of what it was about may go on
            self.close()
            raise

    def close(self) -> None:
        """Cancel what goes on in it, and end it. May be called twice, and is when nobody refers to it any more."""
        runner, self._runner = self._runner, None
        if runner is not None:
            _outside_of_loops(runner.close)

    def __del__(self) -> None:
        self.close()


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
    for i, task in tasks.items():
        progress(i)
        await asyncio.wait((task,))
        if task.cancelled():
            errors[i] = RuntimeError("the coroutine was cancelled")
    return errors


def original(error: Exception) -> Exception:
    """The exception that a coroutine raised: it cannot raise StopIteration, which comes out as RuntimeError."""
    if isinstance(error, StopAsyncIteration):
        return StopIteration(*error.args)
    if isinstance(error, RuntimeError) and isinstance(error.__cause__, StopIteration):
        return error.__cause__
    return error


def _outside_of_loops(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function that runs an event loop; in another thread if there is a loop in this one, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return function(*args, **kwargs)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(function, *args, **kwargs).result()
