"""Record spans of objects by their hooks (`dali_like.common.hooks`)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from dali_like.common.extras import optional
from dali_like.common.hooks import Around, DeviceHooks, Hooked
from dali_like.device.interface import Device, Stamp
from dali_like.engine.memory.protocol import Status
from dali_like.engine.worker.meters import CALLBACK_PART, FIRST_OPERATOR_PART, WHOLE_TASK, TaskLogs
from dali_like.monitor.trace.trace_records import (
    CALLBACK,
    GPU,
    MAIN,
    OPERATORS,
    PART_OF,
    WORKERS,
    Count,
    Records,
    Span,
    Track,
)

#: Limit of spans and counts; more would take some hundred megabytes.
MOST_RECORDS = 1_000_000

#: Returns the details of a call, given its arguments.
Describe = Callable[..., dict[str, Any]]


class _Copy(NamedTuple):
    """A GPU copy that may be pending."""

    track: Track
    name: str
    begin: Stamp
    end: Stamp
    nbytes: int


class TracedSource(NamedTuple):
    """The names of a source, and of the operators behind its callback."""

    name: str
    operators: Sequence[str] = ()

    def name_of(self, part: int) -> str:
        """Return the name of a task, or of a part of it; see `TaskRecord.part`."""
        if part == WHOLE_TASK:
            return self.name
        return CALLBACK if part == CALLBACK_PART else self.operators[part - FIRST_OPERATOR_PART]


class _Logs(NamedTuple):
    """Logs of the workers of a pool, with its sources."""

    logs: TaskLogs
    sources: list[TracedSource]


class Tracer:
    """Records events of this process, its workers and its GPU.

    Args:
        nvtx: whether to mark the spans of this process as NVTX ranges, too.
        most: limit of records.

    Attributes:
        records: the records so far.

    Raises:
        MissingExtraError: ``nvtx`` is set, and the package nvtx is not installed.
    """

    def __init__(self, *, nvtx: bool = False, most: int = MOST_RECORDS) -> None:
        self._nvtx = optional("nvtx", "nvtx=True", "nvtx") if nvtx else None
        self._most = most
        self._hooked: list[Hooked] = []
        self._logs: list[_Logs] = []
        self._copies: list[_Copy] = []
        self._reading = threading.Lock()
        self.records = Records(time.monotonic_ns())

    # Records

    def add(self, track: Track, name: str, begin_ns: int, end_ns: int, details: dict[str, Any]) -> None:
        """Record a span."""
        if len(self.records.spans) + len(self.records.counts) < self._most:
            self.records.spans.append(Span(track, name, begin_ns, end_ns, details))
        else:
            self.records.dropped += 1

    def count(self, name: str, **values: int) -> None:
        """Record current numbers."""
        if len(self.records.spans) + len(self.records.counts) < self._most:
            self.records.counts.append(Count(name, time.monotonic_ns(), values))
        else:
            self.records.dropped += 1

    def begin(self, name: str) -> int:
        """Begin a span in this thread, and return the time."""
        if self._nvtx is not None:
            self._nvtx.push_range(name, domain="dali_like")
        return time.monotonic_ns()

    def end(self, name: str, begin_ns: int, details: dict[str, Any]) -> None:
        """End the span, and record it."""
        self.add(track_of_thread(), name, begin_ns, time.monotonic_ns(), details)
        if self._nvtx is not None:
            self._nvtx.pop_range(domain="dali_like")

    # Hooks

    def hook(self, owner: Hooked, hooks: Any) -> None:
        """Give hooks to an object, until `forget` or `close`."""
        owner.hooks = hooks
        self._hooked.append(owner)

    def forget(self, owner: Hooked) -> None:
        """Take the hooks of an object away."""
        owner.hooks = type(owner.hooks)()
        self._hooked = [hooked for hooked in self._hooked if hooked is not owner]

    def span(self, name: str, describe: Describe | None = None) -> Around:
        """Return a hook that records each call as a span of the thread that calls."""

        def record(call: Callable[..., Any], *args: Any) -> Any:
            begin_ns = self.begin(name)
            try:
                return call(*args)
            finally:
                self.end(name, begin_ns, describe(*args) if describe else {})

        return record

    # Workers

    def follow(self, logs: TaskLogs, sources: list[TracedSource]) -> None:
        """Follow the logs of workers."""
        self._logs.append(_Logs(logs, sources))

    def read(self) -> None:
        """Read new records of workers, and finished copies."""
        # A finalizer may interrupt another call, even in this thread; that call does the work.
        if not self._reading.acquire(blocking=False):
            return
        try:
            for logs, sources in self._logs:
                for worker, record in logs.read():
                    source = sources[record.source]
                    details = {
                        "epoch": record.epoch,
                        "iteration": record.iteration,
                        "samples": f"{record.first_sample} to {record.first_sample + record.num_samples - 1}",
                        "pid": record.pid,
                    }
                    if record.status not in (Status.DENSE, Status.DESCRIBED):
                        details["ended"] = Status(record.status).name
                    if record.part != WHOLE_TASK:
                        details[PART_OF] = source.name
                    track, name = Track(WORKERS, f"worker {worker}"), source.name_of(record.part)
                    self.add(track, name, record.begin_ns, record.end_ns, details)
            waiting, self._copies = self._copies, []
            self._copies = [copy for copy in waiting if not self._add_copy(copy)] + self._copies
        finally:
            self._reading.release()

    def leave(self, logs: TaskLogs) -> None:
        """Read the logs of workers for the last time, and stop following them."""
        self.read()
        logs.close()
        self.records.lost += logs.num_lost
        self._logs = [followed for followed in self._logs if followed.logs is not logs]

    # Operators in threads

    def add_operators(
        self, details_of: Describe, names: Sequence[str], times_ns: Sequence[int], begin_ns: int, batch_id: Any
    ) -> None:
        """Record the work of this thread on the operators of a batch, put together by operator.

        Args:
            details_of: returns the details of a span, given the id of the batch.
            names, times_ns, begin_ns, batch_id: see `GraphHooks.times`.
        """
        details = {**details_of(batch_id), PART_OF: OPERATORS}
        for name, took_ns in zip(names, times_ns, strict=True):
            if took_ns:
                self.add(track_of_thread(), name, begin_ns, begin_ns + took_ns, details)
                begin_ns += took_ns

    # GPU

    def watch_copies(self, device: Device) -> None:
        """Record the copies of a device, timed by its own clock."""
        track = Track(GPU, f"GPU {device.device_id}")

        def record(direction: str, copy: Callable[..., None], target: int, source: int, nbytes: int, *more: Any) -> None:
            begin = device.stamp()
            copy(target, source, nbytes, *more)
            self._copies.append(_Copy(track, direction, begin, device.stamp(), nbytes))

        self.hook(device, DeviceHooks(copy=record))

    def _add_copy(self, copy: _Copy) -> bool:
        """Record a copy if it is finished, and return whether it is."""
        end_ns = copy.end.time_ns()
        if end_ns is None:
            return False
        self.add(copy.track, copy.name, copy.begin.time_ns() or end_ns, end_ns, {"bytes": copy.nbytes})
        return True

    def close(self) -> Records:
        """End the recording, and return the records."""
        for owner in self._hooked:
            self.forget(owner)
        for copy in self._copies:
            copy.end.wait()
        self.records.end_ns = time.monotonic_ns()
        for logs, _ in list(self._logs):
            self.leave(logs)
        self.read()
        return self.records


def track_of_thread() -> Track:
    """Return the track of the calling thread."""
    thread = threading.current_thread()
    return Track(MAIN, "main thread" if thread is threading.main_thread() else thread.name)
