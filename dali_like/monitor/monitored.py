"""What pipelines and loaders offer besides their statistics: the report, and a call from time to time."""

from __future__ import annotations

import math
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dali_like.common.checks import positive
from dali_like.errors import ArgumentClashError, ArgumentError
from dali_like.monitor.loops import LoopMeter

if TYPE_CHECKING:
    from dali_like.monitor.report import Report
    from dali_like.monitor.statistics import Statistics


class Monitored:
    """Has statistics."""

    def statistics(self, *, memory: bool = False) -> Statistics:
        """What has happened so far."""
        raise NotImplementedError

    @property
    def _loop_meter(self) -> LoopMeter:
        """Measures the loop that asks for batches."""
        raise NotImplementedError

    def report(self, since: Statistics | None = None) -> Report:
        """What holds the loop up, what to change, and the figures: ``print`` it.

        Args:
            since: what `statistics` has returned earlier; the report is about the time since then. Default: all of it.
        """
        from dali_like.monitor.report import Report  # noqa: PLC0415  # not before somebody wants to know

        now = self.statistics()
        return Report(now if since is None else now.since(since))

    def on_statistics(
        self, function: Callable[[Statistics], Any], *, batches: int | None = None, seconds: float | None = None
    ) -> None:
        """Call a function from time to time with what has happened since the last time: to log it, say.

        It is called in the loop's own thread, when that asks for a batch, and counts as the loop's work. What it raises, the
        loop sees; the batch is not lost.

        Args:
            function: called with `dali_like.monitor.statistics.Statistics`.
            batches, seconds: how often: after so many batches, or after so long. One of the two.

        Raises:
            ArgumentClashError: neither is given, or both.
            ArgumentError: it is not positive.
        """
        if (batches is None) == (seconds is None):
            raise ArgumentClashError("on_statistics needs either batches= or seconds=: how often to call the function")
        if batches is not None:
            positive("batches", batches)
        elif not (isinstance(seconds, (int, float)) and seconds > 0):
            raise ArgumentError(f"seconds must be a positive number, not {seconds!r}")
        self._loop_meter.hooks.append(_Hook(self, function, batches or math.inf, seconds or math.inf))


class _Hook:
    """Calls a function with statistics, when enough batches or enough time have gone by; see `LoopMeter.hooks`."""

    def __init__(self, owner: Monitored, function: Callable[[Statistics], Any], batches: float, seconds: float) -> None:
        self._owner = weakref.ref(owner)  # who keeps this
        self._function = function
        self._batches = batches
        self._seconds = seconds
        self._earlier = owner.statistics()
        self._begin_s = time.monotonic()

    def __call__(self, batches: int) -> None:
        now_s = time.monotonic()
        if batches - self._earlier.loop.batches < self._batches and now_s - self._begin_s < self._seconds:
            return
        owner = self._owner()
        if owner is not None:
            now, earlier = owner.statistics(), self._earlier
            self._earlier, self._begin_s = now, now_s
            self._function(now.since(earlier))
