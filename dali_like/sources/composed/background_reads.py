"""Reads of remote files in the background: one thread with an event loop, shared by all sources of a process.

The thread starts with the first remote read, and stops when no reader is left. A forked process starts its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import threading
import weakref
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any

__all__ = ["BackgroundReads", "background_reads"]


class BackgroundReads:
    """A thread that runs coroutines. Garbage collection stops it.

    Attributes:
        readers: the objects that use it; they share the memory for reads ahead.
    """

    def __init__(self) -> None:
        self.readers: weakref.WeakSet[Any] = weakref.WeakSet()
        # In a context of its own: the loop keeps the one of its beginning, and with it the sample of the first read.
        self._loop = contextvars.Context().run(asyncio.new_event_loop)
        thread = threading.Thread(target=_serve, args=(self._loop,), name="dali_like_reads", daemon=True)
        weakref.finalize(self, _stop, self._loop, thread, os.getpid())
        thread.start()

    def start(self, coroutine: Coroutine[Any, Any, Any]) -> Future[Any]:
        """Start a coroutine in the thread."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)


def background_reads() -> BackgroundReads:
    """Return the thread of this process. The caller keeps it running by a reference."""
    reads = _running.get(os.getpid())
    if reads is None:
        reads = _running[os.getpid()] = BackgroundReads()
    return reads


#: By process id.
_running: weakref.WeakValueDictionary[int, BackgroundReads] = weakref.WeakValueDictionary()


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.wait(tasks))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


def _stop(loop: asyncio.AbstractEventLoop, thread: threading.Thread, pid: int) -> None:
    if pid != os.getpid():
        # Closing the loop would change the epoll instance that the parent process still uses; so would its finalizer.
        loop.is_closed = lambda: True  # type: ignore[method-assign]
        return
    with contextlib.suppress(RuntimeError):  # it was never started
        loop.call_soon_threadsafe(loop.stop)
        if thread is not threading.current_thread():
            thread.join()
