"""Deferred Ctrl-C: KeyboardInterrupt only where no state is half changed.

Python raises KeyboardInterrupt between any two instructions of the main thread. Bookkeeping code cannot survive that
everywhere: the interrupt may hit the very assignment that records it. So the methods of a pipeline run under
`deferred_interrupts`, and are `interruptible` where they wait or call the user's code.

Only SIGINT is deferred. Handlers of other signals run at once; after one that raises an exception within a method, a
pipeline can only be closed.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

# The functions of the same names in `signal` convert numbers to enums, which takes thirty times as long as the rest.
from _signal import getsignal as _get_handler
from _signal import signal as _set_handler
from collections.abc import Callable
from threading import get_ident
from types import FrameType
from typing import Any

__all__ = ["InterruptSafeLock", "check_interrupts", "deferred_interrupts", "interruptible"]

_SIGINT = int(signal.SIGINT)
_DEFAULT = int(signal.SIG_DFL)

#: Longest uninterruptible wait; between two waits, Ctrl-C is checked.
POLL_INTERVAL_S = 0.1

#: Whether a program that embeds this interpreter has set the handler, which Python could not restore.
_IS_FOREIGN = _get_handler(_SIGINT) is None


class _Deferral:
    """Replacement for the program's SIGINT handler; there is one per process."""

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
        """Run a handler if an interrupt is pending."""
        if self.due:
            self.due = False
            handler(_SIGINT, sys._getframe(1))

    def forget(self) -> None:
        """Reset in a forked child, where this thread becomes the main thread and the parent's contexts never end."""
        self.active = self.due = False
        self.main_thread = threading.get_ident()


_deferral = _Deferral()
_receive = _deferral.receive
if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_deferral.forget)


class deferred_interrupts:  # noqa: N801  # it is used like those of contextlib
    """A context that defers Ctrl-C: the program's handler runs at its end. Contexts may be nested.

    Has no effect outside the main thread, because only that thread receives KeyboardInterrupt.
    """

    __slots__ = ("_handler", "_is_nested", "_was_active")

    def __enter__(self) -> None:
        self._handler: Any = None
        self._is_nested = False
        if _IS_FOREIGN or get_ident() != _deferral.main_thread:
            return
        # Set `active` first: the handler may be called as soon as it is installed.
        self._was_active, _deferral.active = _deferral.active, True
        handler = _set_handler(_SIGINT, _receive)
        if handler is _receive:
            self._is_nested = True
        elif callable(handler):
            self._handler = _deferral.handler = handler
        else:  # SIG_IGN or SIG_DFL: Ctrl-C is ignored or ends the process. None: Python is exiting, and has dropped its own
            _set_handler(_SIGINT, _DEFAULT if handler is None else handler)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._is_nested:
            _deferral.active = self._was_active
        elif self._handler is not None:
            handler = _set_handler(_SIGINT, self._handler)
            if handler is not _receive:  # the user's code has installed another handler in the meantime
                _set_handler(_SIGINT, handler)
            _deferral.active = False
        else:
            return
        if not _deferral.active:
            if kind is KeyboardInterrupt:
                _deferral.due = False  # one KeyboardInterrupt is already on its way
            if _deferral.due:
                _deferral.replay(_receive if self._is_nested else self._handler)


class interruptible:  # noqa: N801
    """A context within `deferred_interrupts` that allows Ctrl-C at any instruction."""

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
    """Within `deferred_interrupts`: run the program's handler now if Ctrl-C has been pressed."""
    with interruptible():
        pass


class InterruptSafeLock:
    """A reentrant lock that defers Ctrl-C while it is held. Waiting for it can be interrupted.

    Attributes:
        deferrals: one for each time that the thread that holds the lock has acquired it.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self.deferrals: list[deferred_interrupts] = []

    def __enter__(self) -> None:
        deferral = deferred_interrupts()
        deferral.__enter__()
        if self._lock.acquire(blocking=False):  # so it is nearly always
            self.deferrals.append(deferral)
            return
        deferral.__exit__(None)
        self.take_unless()

    def take_unless(self, is_needless: Callable[[], bool] = lambda: False) -> bool:
        """Acquire the lock, unless that becomes needless while another thread holds it; return whether it was acquired."""
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
            self.deferrals.append(deferral)
        return taken

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        deferral = self.deferrals.pop()
        self._lock.release()
        deferral.__exit__(kind)
