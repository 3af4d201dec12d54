"""Calls of a pipeline's methods: one at a time, from whatever thread."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Protocol

from dali_like.common.interrupts import InterruptSafeLock
from dali_like.errors import PipelineStateError


class Closable(Protocol):
    """What such calls use or change: a pipeline."""

    _closed: bool

    def _check_open(self) -> None:
        """Raise where it cannot be used any more, or not here."""

    def _close(self) -> None:
        """Give back what it has. `_closed` has been set before; further calls are without effect."""


class OneCall:
    """The context of a call that uses or changes what a pipeline consists of; others wait for its end.

    A callback or a signal handler may interrupt such a call by another one. Only `close` makes sense there, and takes
    effect when the interrupted call ends.
    """

    def __init__(self, pipe: Closable) -> None:
        self._pipe = weakref.proxy(pipe)
        self._lock = InterruptSafeLock()

    def __enter__(self) -> None:
        self.begin_unless()

    def begin_unless(self, is_needless: Callable[[], bool] = lambda: False) -> bool:
        """Begin the call, unless that has become needless while another one is under way; whether it has begun."""
        self._pipe._check_open()  # before the lock, which a thread may have held when this process was forked
        if not self._lock.take_unless(is_needless):
            return False
        if self._lock.is_nested:
            self._lock.__exit__(None)
            raise PipelineStateError(
                "a pipeline can be used neither by its own callbacks nor by signal handlers during a call"
            )
        return True

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if self._pipe._closed:
                self._pipe._close()
        finally:
            self._lock.__exit__(kind)

    def close(self) -> None:
        """Close the pipeline, now or when the call ends that this one interrupts."""
        with self._lock:
            if not self._lock.is_nested:
                self._pipe._close()
