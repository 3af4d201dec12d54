"""Ctrl-C, or another signal, at each point in turn at which the interpreter looks for signals."""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

from tests.conftest import children, renew_time_limit, wait_until
from tests.faults.programs import GONE_S


class Interrupter:
    """Sends a signal at one of the points in the library where the interpreter looks for signals.

    These are the beginnings of Python functions and the returns of C functions (whose results are lost if the signal raises
    an exception). Finalizers are left out, since exceptions do not pass through them.

    Args:
        at: which point, from 0 on.
        number: which signal.
        modules: only points in modules whose names begin like that.
    """

    def __init__(self, at: int, number: signal.Signals = signal.SIGINT, modules: str = "dali_like.") -> None:
        self._left = at
        self._number = number
        self._modules = modules
        self._pid = os.getpid()
        self.has_come = False

    def __enter__(self) -> None:
        self._outside: FrameType | None = sys._getframe(1)
        renew_time_limit()  # there are hundreds of points, and each may take the time limit of a test
        sys.setprofile(self._look)

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        self._outside = None

    def _look(self, frame: FrameType, event: str, _: Any) -> None:
        if os.getpid() != self._pid:
            sys.setprofile(None)
        elif event in ("call", "c_return") and self._concerns(frame) and not self._is_in_finalizer(frame):
            self._left -= 1
            if self._left < 0:
                sys.setprofile(None)
                self.has_come = True
                signal.raise_signal(self._number)

    def _concerns(self, frame: FrameType) -> bool:
        return str(frame.f_globals.get("__name__")).startswith(self._modules)

    def _is_in_finalizer(self, frame: FrameType | None) -> bool:
        # Each event asks, and below the test are all the frames of pytest: the walk ends before these.
        while frame is not None and frame is not self._outside:
            if frame.f_code.co_name == "__del__":
                return True
            frame = frame.f_back
        return False


def interrupt_at(point: int, function: Callable[[], Any]) -> tuple[bool, Any]:
    """Call a function and interrupt it there. Return whether that point has come, and the result if there is one."""
    value = None
    interrupter = Interrupter(point)
    with warnings.catch_warnings():
        # A file whose opening is interrupted on its return is closed by its finalizer, which warns of that.
        warnings.filterwarnings("ignore", "unclosed file <_io.FileIO name='/(proc|sys)/", ResourceWarning)
        with suppress(KeyboardInterrupt), interrupter:
            value = function()
    return interrupter.has_come, value


def wait_until_no_child_is_left() -> None:
    wait_until(lambda: not children(), "the end of all processes", GONE_S)


#: Where every point needs workers of its own, only every so many are tried. A prime number meets all parts of loops.
STRIDE = 37 if os.environ.get("PARITY") == "full" else 61
