"""The event loop that coroutines of the user's run in. It is made when the first one comes: few programs need asyncio."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dali_like.engine.worker.coroutines import EventLoop


class LazyEventLoop:
    """A `dali_like.engine.worker.coroutines.EventLoop`, or none yet."""

    def __init__(self) -> None:
        self._loop: EventLoop | None = None

    def finish(self, value: Any) -> Any:
        """The result of a coroutine; any other value as it is.

        Raises:
            Exception: what the coroutine raises.
        """
        if not inspect.iscoroutine(value):
            return value
        if self._loop is None:
            from dali_like.engine.worker.coroutines import EventLoop  # noqa: PLC0415  # asyncio

            self._loop = EventLoop()
        return self._loop.finish(value)

    def make_concurrently(
        self,
        make: Callable[[int], Awaitable[None]],
        indices: range,
        limit: int,
        is_last: Callable[[Exception], bool],
        progress: Callable[[int], None],
    ) -> dict[int, Exception]:
        """Make samples, several at a time; see `dali_like.engine.worker.coroutines.make_concurrently`."""
        from dali_like.engine.worker.coroutines import make_concurrently  # noqa: PLC0415  # asyncio

        errors: dict[int, Exception] = self.finish(make_concurrently(make, indices, limit, is_last, progress))
        return errors

    def close(self) -> None:
        """Cancel what goes on in it, and end it, if there is one."""
        if self._loop is not None:
            self._loop.close()
