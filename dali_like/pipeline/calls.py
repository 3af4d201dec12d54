"""One call of a pipeline's methods at a time, from any thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from dali_like.common.interrupts import InterruptSafeLock
from dali_like.errors import PipelineStateError


class Closable(Protocol):
    """The pipeline, as its calls see it."""

    _closed: bool

    def _check_open(self) -> None:
        """Raise if the pipeline is closed, or belongs to another process."""

    def _close(self) -> None:
        """Release all resources. `_closed` is set before; later calls have no effect."""


class ExclusiveCall:
    """The context of a call that uses or changes the parts of a pipeline. Calls of other threads wait for its end.

    A callback or a signal handler may interrupt such a call and make another one in the same thread. Only `close` is allowed
    there; it takes effect when the interrupted call ends.

    Args:
        pipe: the pipeline.
        lock: of the pipeline. The pipeline keeps the lock, and not this object: they would be a cycle, and the collector
            clears weak references before it calls a ``__del__`` that closes the pipeline.
    """

    __slots__ = ("_lock", "_pipe")

    def __init__(self, pipe: Closable, lock: InterruptSafeLock) -> None:
        self._pipe = pipe
        self._lock = lock

    def __enter__(self) -> None:
        self.begin_unless()

    def begin_unless(self, is_needless: Callable[[], bool] = lambda: False) -> bool:
        """Begin the call and return True; return False if it becomes needless while another call is in progress."""
        self._pipe._check_open()  # before the lock: a thread may have held it when this process was forked
        if not self._lock.take_unless(is_needless):
            return False
        if len(self._lock.deferrals) > 1:  # nested
            self._lock.__exit__(None)
            raise PipelineStateError(
                "a pipeline cannot be used by its own callbacks, or by signal handlers during a call of its methods"
            )
        return True

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if self._pipe._closed:
                self._pipe._close()
        finally:
            self._lock.__exit__(kind)

    def close(self) -> None:
        """Close the pipeline: now, or at the end of the call that this one interrupts."""
        with self._lock:
            if len(self._lock.deferrals) == 1:
                self._pipe._close()
