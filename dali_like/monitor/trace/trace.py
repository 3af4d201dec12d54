"""Common parts of traces: a context that records the main process and its workers, and writes a file at its end.

While a trace lasts, the objects in which the main process runs, waits, assembles and computes have its hooks
(`dali_like.common.hooks`). Workers note their tasks in shared memory (`dali_like.engine.worker.meters`), and the main
process reads these notes at each batch. Pipelines and loaders derive their own traces from `Trace`.
"""

from __future__ import annotations

import abc
import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from dali_like.common.hooks import PoolHooks
from dali_like.engine.memory.batch_key import BatchKey
from dali_like.engine.pool.pool import WorkerPool
from dali_like.errors import OutOfMemoryError
from dali_like.monitor.measure.diagnosis import diagnose
from dali_like.monitor.measure.gathering import ring_statistics
from dali_like.monitor.monitoring import Monitored
from dali_like.monitor.trace import chrome
from dali_like.monitor.trace.trace_records import ASSEMBLE, RUN, STEP, WAIT, Records, Track
from dali_like.monitor.trace.tracer import TracedSource, Tracer, track_of_thread


class Trace(abc.ABC):
    """A context in which events are recorded.

    Args:
        path: the file to write when the context is left; it is overwritten. None: no file.
        nvtx: whether to show the events of the main process as NVTX ranges, too.

    Attributes:
        tracer: hooks into objects and records events.
        calls: records the calls of the program for batches.

    Raises:
        MissingExtraError: `nvtx` is set, and the package is not installed.
    """

    def __init__(self, path: str | os.PathLike[str] | None, *, nvtx: bool = False) -> None:
        self._path = None if path is None else Path(path)
        self.tracer = Tracer(nvtx=nvtx)
        self.calls = BatchCalls(self.tracer)

    @property
    def records(self) -> Records:
        """The events recorded so far."""
        return self.tracer.records

    def __enter__(self) -> Self:
        self.tracer.records.begin_ns = time.monotonic_ns()
        self._before = self.owner.statistics()
        try:
            self.begin()
        except BaseException:
            self.tracer.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        self.calls.finish()
        part = self.owner.statistics().since(self._before)
        self.tracer.records.diagnosis = diagnose(part).texts(part.loop.batches_per_s)
        self.end()
        records = self.tracer.close()
        if self._path is not None:
            chrome.write(records, self._path)

    @property
    @abc.abstractmethod
    def owner(self) -> Monitored:
        """The pipeline or loader."""

    @abc.abstractmethod
    def begin(self) -> None:
        """Begin to record."""

    @abc.abstractmethod
    def end(self) -> None:
        """End the recording. The file is written afterwards."""

    def follow_pool(self, pool: WorkerPool) -> Callable[[], None]:
        """Record a pool and its workers until the pool is closed. Return a function that counts batches and bytes."""
        tracer, logs = self.tracer, pool.log_tasks()

        def forget() -> None:
            tracer.leave(logs)  # otherwise each iterator of a loader would leave the address space of its workers behind
            tracer.forget(pool)

        def grow(num_workers: int) -> None:
            with contextlib.suppress(OutOfMemoryError):  # without memory for their logs, the trace lacks the new workers
                logs.want(num_workers)

        hooks = PoolHooks(
            wait=tracer.span(WAIT),
            assemble=tracer.span(ASSEMBLE, lambda batch, *_: details_of_key(batch.key)),
            grow=grow,
            close=forget,
        )
        tracer.hook(pool, hooks)
        sources = [assembler.source for assembler in pool.assemblers]
        tracer.follow(logs, [TracedSource(source.name, source.operators) for source in sources])

        def count() -> None:
            if not pool.is_closed:
                rings = [ring_statistics(assembler, pool, number) for number, assembler in enumerate(pool.assemblers)]
                ready, in_use = sum(ring.ready for ring in rings), sum(ring.slots - ring.free for ring in rings)
                tracer.count("batches", ready=ready, slots_in_use=in_use)
                tracer.count("shared memory", bytes=pool.used_bytes)

        return count


class BatchCalls:
    """Records the calls of the program for batches, and its own work between two calls."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._number = 0
        #: The program's work in progress: its track and its beginning.
        self._step: tuple[Track, int] | None = None

    def call(self, count: Callable[[], None], take: Callable[[], Any]) -> Any:
        """Take a batch, record it, and count."""
        self.finish()
        tracer, begin_ns = self._tracer, self._tracer.begin(RUN)
        try:
            return take()
        finally:
            tracer.end(RUN, begin_ns, {"number": self._number})
            self._number += 1
            count()
            tracer.read()
            self._step = track_of_thread(), tracer.begin(STEP)

    def finish(self) -> None:
        """End the program's work in progress."""
        step, self._step = self._step, None
        if step is not None and step[0] == track_of_thread():  # the work of another thread has no known end
            self._tracer.end(STEP, step[1], {})


def count_nothing() -> None:
    """Count nothing: without workers there are neither slots nor shared memory of theirs."""


def details_of_key(key: BatchKey, *_: Any) -> dict[str, Any]:
    """Return the details of a span of one batch."""
    return {"epoch": key.epoch, "iteration": key.iteration}
