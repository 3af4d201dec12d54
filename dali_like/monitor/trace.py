"""Traces: what a pipeline or a loader, its workers and its GPU have done, and when.

A trace wraps the methods where the main process runs, waits, assembles and computes, for as long as it lasts
(`dali_like.monitor.tracer`), and lets workers note their tasks in shared memory (`dali_like.engine.worker.task_log`). Their
notes are read at each batch. When the trace ends, all is written into a file.
"""

from __future__ import annotations

import contextlib
import functools
import os
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from dali_like.engine.memory.batch_key import BatchKey
from dali_like.engine.pool.assembler import Assembler
from dali_like.engine.pool.batch import Batch
from dali_like.engine.pool.pool import WorkerPool
from dali_like.engine.worker.task_log import TaskLogs
from dali_like.errors import OutOfMemoryError, PipelineStateError
from dali_like.monitor import chrome
from dali_like.monitor.gathering import ring_statistics
from dali_like.monitor.trace_records import ASSEMBLE, BUILD, RUN, STEP, WAIT, Records, Track
from dali_like.monitor.tracer import Tracer, track_of_thread

if TYPE_CHECKING:
    from dali_like.data.base_loader import BaseDataLoader
    from dali_like.data.loader_iterator import LoaderIterator
    from dali_like.data.loader_workers import LoaderWorkers
    from dali_like.pipeline.pipeline import Pipeline
    from dali_like.pipeline.runtime import Runtime


class Trace:
    """A context in which something is recorded.

    Args:
        path: the file to write when the context is left; it is overwritten. None: nothing is written.
        nvtx: whether what the main process does is shown as NVTX ranges, too.

    Attributes:
        records: what has been recorded.

    Raises:
        MissingExtraError: NVTX ranges are wanted, and the package is not installed.
    """

    def __init__(self, path: str | os.PathLike[str] | None, *, nvtx: bool = False) -> None:
        self._path = None if path is None else Path(path)
        self._tracer = Tracer(nvtx=nvtx)
        self._steps = _Steps(self._tracer)

    @property
    def records(self) -> Records:
        """What has been recorded so far."""
        return self._tracer.records

    def __enter__(self) -> Self:
        self._tracer.records.begin_ns = time.monotonic_ns()
        try:
            self._begin()
        except BaseException:
            self._tracer.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        self._steps.finish()
        self._end()
        records = self._tracer.close()
        if self._path is not None:
            chrome.write(records, self._path)

    def _begin(self) -> None:
        raise NotImplementedError

    def _end(self) -> None:
        raise NotImplementedError

    def _follow_pool(self, pool: WorkerPool) -> tuple[TaskLogs, Callable[[], None]]:
        """Record what a pool and its workers do: the workers' logs, and what takes a count of batches."""
        tracer = self._tracer
        tracer.watch(pool, "_wait_for_news", WAIT)
        for assembler in pool.assemblers:
            tracer.watch(assembler, "finish", ASSEMBLE, _of_batch)
        logs = pool.log_tasks()
        tracer.replace(pool.scale, "grow", lambda grow: functools.partial(_grow, grow, logs))
        tracer.follow(logs, [assembler.source.name for assembler in pool.assemblers])

        def count() -> None:
            if not pool.is_closed:
                rings = [ring_statistics(assembler, pool, number) for number, assembler in enumerate(pool.assemblers)]
                ready, in_use = sum(ring.ready for ring in rings), sum(ring.slots - ring.free for ring in rings)
                tracer.count("batches", ready=ready, slots_in_use=in_use)
                tracer.count("shared memory", bytes=pool.used_bytes)

        return logs, count


class PipelineTrace(Trace):
    """A trace of a pipeline. Entering it builds the pipeline, and records that; see `Trace`."""

    def __init__(self, pipe: Pipeline, path: str | os.PathLike[str] | None, *, nvtx: bool = False) -> None:
        super().__init__(path, nvtx=nvtx)
        self._pipe = pipe

    def _begin(self) -> None:
        pipe, begin_ns = self._pipe, time.monotonic_ns()
        pipe.build()
        self._tracer.add(track_of_thread(), BUILD, begin_ns, time.monotonic_ns(), {})
        if "_trace" in vars(pipe):
            raise PipelineStateError("the pipeline is being traced already; end that trace first")
        runtime = pipe._runtime
        assert runtime is not None
        vars(pipe)["_trace"] = self
        count = self._follow(runtime)
        self._tracer.replace(pipe, "_take", lambda take: functools.partial(self._steps.call, count, take))
        vars(pipe)["_trace"] = self

    def _end(self) -> None:
        del vars(self._pipe)["_trace"]
        self._pipe._last_records = self.records

    def _follow(self, runtime: Runtime) -> Callable[[], None]:
        """Record what an engine does; what takes a count of it."""
        tracer, executor = self._tracer, runtime.executor
        assert executor is not None
        assert runtime.inline_pool is not None
        tracer.watch(executor, "_wait_for", WAIT)
        tracer.watch(executor, "_compute", "operators" if executor.has_threads else "begin copies", _of_work)
        tracer.watch(runtime.inline_pool, "_compute", "serial source", _of_source)
        if runtime.gpu_pool is not None:
            tracer.watch(runtime.gpu_pool, "submit", "GPU source", _of_key)
        if runtime.device is not None:
            tracer.watch_copies(runtime.device)
        if runtime.process_pool is None:
            return _nothing
        return self._follow_pool(runtime.process_pool)[1]


class LoaderTrace(Trace):
    """A trace of a loader: of its passes and of their workers, whenever they begin; see `Trace`."""

    def __init__(self, loader: BaseDataLoader, path: str | os.PathLike[str] | None, *, nvtx: bool = False) -> None:
        super().__init__(path, nvtx=nvtx)
        self._loader = loader
        self._passes: weakref.WeakSet[LoaderIterator] = weakref.WeakSet()
        self._counts: weakref.WeakKeyDictionary[LoaderWorkers, Callable[[], None]] = weakref.WeakKeyDictionary()

    def _begin(self) -> None:
        loader = self._loader
        if loader._trace is not None:
            raise PipelineStateError("the loader is being traced already; end that trace first")
        loader._trace = self
        if (latest := loader._factory.latest) is not None:
            self.follow(latest)

    def _end(self) -> None:
        self._loader._trace = None
        self._loader._last_records = self.records
        for made in self._passes:
            made.on_next = None

    def follow(self, made: LoaderIterator) -> None:
        """Record what a pass does, and its workers."""
        workers: LoaderWorkers | None = getattr(made, "_loader_workers", None)
        if workers is not None:
            self.follow_workers(workers)
        # Neither may the trace keep the pass, nor the pass itself: workers end with a pass that is dropped.
        count = self._counts[workers] if workers is not None else _nothing
        made.on_next = functools.partial(self._steps.call, count)
        self._passes.add(made)

    def follow_workers(self, workers: LoaderWorkers) -> None:
        """Record what some workers do, until they are ended."""
        if workers in self._counts:
            return
        pool = workers.pool
        logs, self._counts[workers] = self._follow_pool(pool)

        def closing(close: Callable[[], None]) -> Callable[[], None]:
            def close_and_forget() -> None:
                close()
                self._tracer.leave(logs)  # else each pass would leave the address space of its workers behind
                for owner in (workers, pool, pool.scale, *pool.assemblers):
                    self._tracer.forget(owner)

            return close_and_forget

        self._tracer.replace(workers, "close", closing)


class _Steps:
    """The calls by which a program asks for batches, and what it does between two of them."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._number = 0
        #: The step that is under way: on which track, and since when.
        self._step: tuple[Track, int] | None = None

    def call(self, count: Callable[[], None], take: Callable[[], Any]) -> Any:
        """Ask for a batch."""
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
        """The program's step has ended."""
        step, self._step = self._step, None
        if step is not None and step[0] == track_of_thread():  # what threads do besides is their affair
            self._tracer.end(STEP, step[1], {})


def _nothing() -> None:
    pass


def _of_batch(batch: Batch, *_: Any) -> dict[str, Any]:
    return _of_key(batch.key)


def _of_key(key: BatchKey, *_: Any) -> dict[str, Any]:
    return {"epoch": key.epoch, "iteration": key.iteration}


def _of_source(batch: Batch, assembler: Assembler, *_: Any) -> dict[str, Any]:
    return {"source": assembler.source.name, **_of_key(batch.key)}


def _of_work(work: Any, *_: Any) -> dict[str, Any]:
    return work.batch_id._asdict()  # type: ignore[no-any-return]


def _grow(grow: Callable[[int], None], logs: TaskLogs, num_workers: int) -> None:
    """Let a pool grow. What new workers do is left out if there is no memory for it."""
    with contextlib.suppress(OutOfMemoryError):
        logs.want(num_workers)
    grow(num_workers)
