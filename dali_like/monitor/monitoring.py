"""Monitoring of one pipeline or loader: reports, callbacks, publication and traces. Its pipeline or loader owns it.

Modules that these need are imported when they are called.
"""

from __future__ import annotations

import math
import os
import time
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from dali_like.common.checks import positive
from dali_like.common.hooks import LoopHooks
from dali_like.errors import ArgumentClashError, ArgumentError, PipelineStateError
from dali_like.monitor.measure.loops import LoopMeter

if TYPE_CHECKING:
    from dali_like.monitor.measure.statistics import Statistics
    from dali_like.monitor.profile.profile import Profile
    from dali_like.monitor.profile.profiling import Profiling
    from dali_like.monitor.show.live import Publication
    from dali_like.monitor.show.report import Report
    from dali_like.monitor.trace.trace_records import Records


#: Calls a function with the next batch, once, before the program gets it.
Peek = Callable[[Callable[[Any], None]], None]

#: Returns the steps of a sample of the next batch, by its number in the batch; see `dali_like.Pipeline.steps_at`.
StepsOfNext = Callable[[int], Sequence[Any]]


class Monitored(Protocol):
    """A pipeline or a loader. Monitoring refers to it weakly."""

    def statistics(self) -> Statistics:
        """Return its statistics. Called in any thread."""


class Monitor:
    """The monitoring of one pipeline or loader.

    Args:
        meter: measures the loop that asks for batches, and calls hooks in it.

    Attributes:
        meter: as given.
        trace: the trace in progress, if any.
        records: the records of the last trace.
        profiling: the profile in progress, if any.
        profile: the last profile.
        hooks: of the trace in progress, in the loop of a pipeline.
    """

    def __init__(self, meter: LoopMeter) -> None:
        self.meter = meter
        self.trace: Any = None
        self.records: Records | None = None
        self.profiling: Profiling | None = None
        self.profile: Profile | None = None
        self.hooks = LoopHooks()
        self._publication: Publication | None = None

    def report(self, now: Statistics, since: Statistics | None) -> Report:
        """Return a report of the time between two readings of the statistics; see `dali_like.Pipeline.report`."""
        from dali_like.monitor.show.report import Report  # lazy: few programs ask for a report

        profile = self.profile if self.profiling is None else self.profiling.profile
        return Report(now if since is None else now.since(since), profile)

    def call_regularly(
        self, owner: Monitored, function: Callable[[Statistics], Any], batches: int | None, seconds: float | None
    ) -> None:
        """Call a function from time to time in the loop; see `dali_like.Pipeline.on_statistics`."""
        if (batches is None) == (seconds is None):
            raise ArgumentClashError("on_statistics needs either batches= or seconds=: how often to call the function")
        if batches is not None:
            positive("batches", batches)
        elif not (isinstance(seconds, (int, float)) and seconds > 0):
            raise ArgumentError(f"seconds must be a positive number, not {seconds!r}")
        self.meter.hooks.append(_StatisticsHook(owner, function, batches or math.inf, seconds or math.inf))

    def plot(self, path: str | os.PathLike[str]) -> None:
        """Draw the last trace; see `dali_like.Pipeline.plot`."""
        if self.records is None:
            raise PipelineStateError("there is no trace to plot: run some batches within `with ....trace():` first")
        from dali_like.monitor.trace.picture import draw

        draw(self.records, path)

    def publish(self, owner: Monitored, name: str = "", peek: Peek | None = None, steps: StepsOfNext | None = None) -> None:
        """Show the statistics to other programs, and with `peek` pictures of batches; see `dali_like.Pipeline.publish`."""
        from dali_like.monitor.show.live import Publication

        if self._publication is None:
            self._publication = Publication(owner, name, peek, steps)
            self.meter.hooks.append(self._publication)

    def publish_if_requested(self, owner: Monitored) -> None:
        """Publish if the environment variable ``DALI_LIKE_PUBLISH`` requests it."""
        if os.environ.get("DALI_LIKE_PUBLISH", "0") not in ("", "0"):
            self.publish(owner)

    def unpublish(self) -> None:
        """End the publication, if any."""
        publication, self._publication = self._publication, None
        if publication is not None:
            publication.close()

    def begin_trace(self, trace: Any, kind: str) -> None:
        """Remember the trace in progress.

        Args:
            trace: the trace.
            kind: "pipeline" or "loader", for the message.

        Raises:
            PipelineStateError: another trace is in progress.
        """
        if self.trace is not None:
            raise PipelineStateError(f"the {kind} is being traced already; end that trace first")
        self.trace = trace

    def end_trace(self, records: Records) -> None:
        """Forget the trace in progress, and keep its records for `plot`."""
        self.trace = None
        self.records = records


class _StatisticsHook:
    """Calls a function with statistics after enough batches or enough time; see `LoopMeter.hooks`."""

    def __init__(self, owner: Monitored, function: Callable[[Statistics], Any], batches: float, seconds: float) -> None:
        self._owner = weakref.ref(owner)  # the owner keeps this hook alive
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
