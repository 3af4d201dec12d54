"""Ctrl-C, at moments when nothing is half done.

Python raises KeyboardInterrupt between any two instructions of the main thread. Code that keeps the books of a pipeline
cannot be written so that it may end anywhere: the interrupt may hit the very assignment that would note it. So the methods
of a pipeline run under `deferred_interrupts`. Where they wait, or call the user's code, they are `interruptible`.

This is about SIGINT alone. Handlers of other signals run at once; after one that raises an exception within a method, a
pipeline can only be closed.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

# The functions under the same names in `signal` turn numbers into enums, which takes thirty times as long as the rest.
from _signal import getsignal as _get_handler  # type: ignore[import-not-found]
from _signal import signal as _set_handler
from collections.abc import Callable
from threading import get_ident
from types import FrameType
from typing import Any

__all__ = ["InterruptSafeLock", "check_interrupts", "deferred_interrupts", "interruptible"]

_SIGINT = int(signal.SIGINT)

#: How long to wait for something that cannot be interrupted before looking whether Ctrl-C has been pressed.
POLL_INTERVAL_S = 0.1

#: Nobody but the program that embeds this interpreter has a handler that Python could not put back.
_IS_FOREIGN = _get_handler(_SIGINT) is None


class _Deferral:
    """Stands in for the program's handler of SIGINT."""

    def __init__(self) -> None:
        self.handler: Any = None
        self.active = False
        self.due = False
        self.main_thread = threading.main_thread().ident

    def receive(self, number: int, frame: FrameType | None) -> None:
        if self.active:
            self.due = True
        else:
            self.handler(number, frame)

    def replay(self, handler: Any) -> None:
        """Let a handler run, if there is reason to."""
        if self.due:
            self.due = False
            handler(_SIGINT, sys._getframe(1))

    def forget(self) -> None:
        """In a forked child: nobody will come back to what the main process was doing, and this thread is the main one."""
        self.active = self.due = False
        self.main_thread = threading.get_ident()


_deferral = _Deferral()
_receive = _deferral.receive
os.register_at_fork(after_in_child=_deferral.forget)


class deferred_interrupts:  # noqa: N801  # it is used like those of contextlib
    """A context in which Ctrl-C is noted only; the program's handler runs at its end. Contexts may be nested.

    Without effect outside the main thread, which alone sees KeyboardInterrupt.
    """

    __slots__ = ("_handler", "_is_nested", "_was_active")

    def __enter__(self) -> None:
        self._handler: Any = None
        self._is_nested = False
        if _IS_FOREIGN or get_ident() != _deferral.main_thread:
            return
        # The handler may be called as soon as it is there, and whoever installs it may be interrupted just before.
        self._was_active, _deferral.active = _deferral.active, True
        handler = _set_handler(_SIGINT, _receive)
        if handler is _receive:
            self._is_nested = True
        elif callable(handler):
            self._handler = _deferral.handler = handler
        else:  # Ctrl-C is ignored, or the end of the process
            _set_handler(_SIGINT, handler)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._is_nested:
            _deferral.active = self._was_active
        elif self._handler is not None:
            handler = _set_handler(_SIGINT, self._handler)
            if handler is not _receive:  # the user's code has installed another one meanwhile
                _set_handler(_SIGINT, handler)
            _deferral.active = False
        else:
            return
        if not _deferral.active:
            if kind is KeyboardInterrupt:
                _deferral.due = False  # one is enough
            _deferral.replay(_receive if self._is_nested else self._handler)


class interruptible:  # noqa: N801
    """A context within `deferred_interrupts` in which Ctrl-C is not deferred: it may end between any two instructions."""

    __slots__ = ("_was_active",)

    def __enter__(self) -> None:
        self._was_active = _deferral.active and get_ident() == _deferral.main_thread
        if self._was_active:
            _deferral.active = False
            try:
                _deferral.replay(_deferral.handler)
            except BaseException:
                _deferral.active = True
                raise

    def __exit__(self, *_: object) -> None:
        if self._was_active:
            _deferral.active = True


def check_interrupts() -> None:
    """Within `deferred_interrupts`: let the program's handler run now, if Ctrl-C has been pressed."""
    with interruptible():
        pass


class InterruptSafeLock:
    """A re-entrant lock. Ctrl-C is deferred while it is held, but not while somebody waits for it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._deferrals: list[deferred_interrupts] = []

    @property
    def is_nested(self) -> bool:
        """For the thread that holds it: whether it has taken it more than once."""
        return len(self._deferrals) > 1

    def __enter__(self) -> None:
        self.take_unless()

    def take_unless(self, is_needless: Callable[[], bool] = lambda: False) -> bool:
        """Take it, unless that has become needless while another thread has it; whether it has been taken."""
        deferral = deferred_interrupts()
        deferral.__enter__()
        taken = False
        try:
            while not (taken := self._lock.acquire(timeout=POLL_INTERVAL_S)) and not is_needless():
                check_interrupts()
        finally:
            if not taken:
                deferral.__exit__(*sys.exc_info())
        if taken:
            self._deferrals.append(deferral)
        return taken

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        deferral = self._deferrals.pop()
        self._lock.release()
        deferral.__exit__(kind)
