"""The pool of worker processes, as the main process sees it.

::

    main process                                              workers
    ------------                                              -------
    1. slot from the ring, header written
    2. task records            --- pipe, read by all --->     3. splice: take a record into one's own cell
                                                              4. call the source, write rows of the slot
    6. read reports, many at a time  <-- pipe ----------      5. report
    7. all tasks of a batch reported: arrays over the slot, under a lease
    8. the last array is dropped: the slot returns to the ring

There is no lock that a dying worker could hold, and no thread: the main process works inside `submit`, `poll` and `wait`
only, and one ``poll`` call waits for reports and for the death of workers alike. While it is busy elsewhere, workers go on
with the tasks that lie in the pipe.

Steps 1, 2, 6 and 7 are those of a `dali_like.engine.pool.dispatch.Dispatcher`; what a dead worker owes is posted again by
`dali_like.engine.pool.recovery`; how many workers there are, and how large tasks, is the matter of
`dali_like.engine.pool.scaling`. The pool brings them together, and waits.

Only one call waits, and only that one can be interrupted by Ctrl-C: see `dali_like.common.interrupts`.
"""

from __future__ import annotations

import math
import os
import select
import threading
import time
from collections.abc import Sequence
from time import monotonic_ns
from typing import Any, NoReturn

import numpy as np

from dali_like.common.interrupts import POLL_INTERVAL_S, interruptible
from dali_like.engine.memory.batch_key import BatchKey
from dali_like.engine.memory.protocol import NOTICE_BYTES, WORD_BYTES, control_bytes, notice_offset
from dali_like.engine.memory.slot_layout import TASKS_PER_WORKER, OutputSchema
from dali_like.engine.memory.space import SharedSpace
from dali_like.engine.pool.assembler import ArrayAssembler, Assembler
from dali_like.engine.pool.base import result_of
from dali_like.engine.pool.batch import Batch, Output
from dali_like.engine.pool.cells import pid_in_cell
from dali_like.engine.pool.dispatch import Dispatcher
from dali_like.engine.pool.recovery import Recovery
from dali_like.engine.pool.request_assembler import RequestAssembler
from dali_like.engine.pool.scaling import Scale
from dali_like.engine.pool.tuner import Tuner
from dali_like.engine.pool.workers import StartWorkers, WorkerOptions, Workers
from dali_like.engine.worker.meters import Reading, TaskLogs, read_meters
from dali_like.engine.worker.source import PickledSource, Source, SourceType
from dali_like.errors import ClosedError, ForkedError


class WorkerPool:
    """Computes batches in worker processes; see the module's text and `dali_like.engine.pool.base.Pool`.

    Args:
        sources: with what is declared about the outputs of each.
        capacity: the largest batch.
        start_workers: starts the workers of the backend.
        notice: what workers are told when they start, for sources that want to know.
        tasks_per_worker: how many tasks of a batch there are for each worker.
        tuner: lets it grow; then the options say how many workers there are at first, and that they are measured.

    Attributes:
        scale: how large it is.

    Raises:
        PicklingError: a source cannot be pickled for spawn.
        OutOfMemoryError: there is no address space for the slots.
    """

    def __init__(
        self,
        sources: Sequence[tuple[Source, Sequence[OutputSchema]]],
        capacity: int,
        space: SharedSpace,
        options: WorkerOptions,
        start_workers: StartWorkers,
        notice: bytes = b"",
        tuner: Tuner | None = None,
        tasks_per_worker: int = TASKS_PER_WORKER,
    ) -> None:
        self._options = options
        self._tuner = tuner
        self._space = space
        self._pid = os.getpid()
        if space.allocate(control_bytes(options.num_workers, len(sources))) != 0:
            raise RuntimeError("workers expect their cells at the start of the space, so a space has one pool")
        self._write_notice(notice)
        self._assemblers: list[Assembler] = [
            RequestAssembler(space, source, capacity, options.num_workers)
            if source.type is SourceType.REQUEST
            else ArrayAssembler(space, source, capacity, declared, options.num_workers, tasks_per_worker)
            for source, declared in sources
        ]
        self._overdue = np.zeros((len(sources), options.num_workers), np.int64)
        self._work = Dispatcher(self._assemblers, space, options)
        self._workers: Workers = start_workers(
            [source for source, _ in sources], options, space, *self._work.pipes.worker_ends, self._work.farewell
        )
        self._recovery = Recovery(self._workers, space, options)
        self._poll = select.poll()
        self._poll.register(self._work.pipes.done, select.POLLIN)
        self._poll.register(self._workers.control, select.POLLIN)
        self._closed = False
        self._waited_ns = 0
        self.scale = Scale(self._assemblers, self._work, self._workers, self._recovery, space, options)
        self._until_fit = self.scale.fit_every

    @property
    def assemblers(self) -> Sequence[Assembler]:
        """What is known of each source."""
        return self._assemblers

    @property
    def is_closed(self) -> bool:
        """Whether it has been closed, or is going to be; or its workers have ended, as garbage that it belongs to does."""
        return self._closed or self._workers.control.fileno() < 0

    @property
    def has_failed(self) -> bool:
        """Whether it begins no more batches: its workers have died too often, say."""
        return self._work.has_failed

    @property
    def worker_pids(self) -> list[int]:
        """The process ids of the workers that are known to have started; none of threads."""
        return [] if self._options.start_method == "thread" else [pid for pid in self.pid_of_each if pid]

    @property
    def slot_bytes(self) -> list[int]:
        """How much memory each slot of each source usually takes."""
        sizes = []
        for assembler in self._assemblers:
            slot_layout = assembler.ring.slot_layout
            regions = 0 if slot_layout.all_dense else assembler.usual_region_bytes
            sizes += [slot_layout.resident_bytes + regions] * assembler.ring.num_slots
        return sizes

    @property
    def num_workers(self) -> int:
        """How many workers have been started, those included that others have taken the place of."""
        return self._recovery.num_workers

    @property
    def num_replaced(self) -> int:
        """How many samples were replaced by what a source's ``on_error`` says."""
        return self._recovery.num_replaced

    @property
    def num_restarts(self) -> int:
        """How often a worker has been started in the place of one that had died."""
        return self._recovery.num_restarts

    @property
    def pid_of_each(self) -> list[int]:
        """The process id of each worker; 0 for those that have not started, or have ended."""
        # From their cells: reading the news in another thread could take them away from `wait`.
        workers = range(self.num_workers)
        return [0 if self._closed else pid_in_cell(self._space, worker) for worker in workers]

    @property
    def readings(self) -> list[list[Reading]]:
        """What workers have measured: for each source, a reading of each worker."""
        return read_meters(self._space, self._overdue, self.num_workers)

    @property
    def waited_ns(self) -> int:
        """How long the main process has waited for workers altogether."""
        return self._waited_ns

    @property
    def mean_ready(self) -> float:
        """See `dali_like.engine.pool.dispatch.Dispatcher`."""
        return self._work.mean_ready

    def occupancy(self, source: int) -> tuple[int, int]:
        """How many batches of a source are being made now, and how many are ready."""
        return self._work.occupancy(source)

    @property
    def used_bytes(self) -> int:
        """How much memory is behind the shared space."""
        return self._space.used_bytes

    def log_tasks(self) -> TaskLogs:
        """Let the workers that there are note what they compute, and when."""
        logs = TaskLogs(self._space, self._options.num_workers)
        logs.want(self.num_workers)
        return logs

    def renew(self, sources: Sequence[Source], pickled: Sequence[PickledSource] | None = None) -> None:
        """Give workers that start from now on other sources; see `Workers.renew`."""
        self._check()
        self._workers.renew(sources, pickled)
        for assembler, source in zip(self._assemblers, sources, strict=True):
            assembler.source = source

    def submit(self, key: BatchKey) -> Batch:
        self._check()
        batch = Batch(key)
        self._work.add(batch)
        self._post()
        return batch

    def poll(self) -> None:
        self._check()
        self._work.read_reports()
        self._post()

    def wait(self, batch: Batch) -> Sequence[Output]:
        self.wait_for((batch,))
        outputs: Sequence[Output] = self.take(batch)
        return outputs

    def wait_for(self, batches: Sequence[Batch], deadline_s: float = math.inf) -> Batch | None:
        """Wait until the outcome of one of several batches is known, and return the first such.

        Args:
            deadline_s: until when to wait, as `time.monotonic` counts; then None is returned.
        """
        if self._tuner is None:
            return self._wait_for(batches, deadline_s)
        self._check()
        self._tuner.begin_wait(self.scale, batches[0].key.source)
        try:
            return self._wait_for(batches, deadline_s)
        finally:
            self._tuner.end_wait()

    def _wait_for(self, batches: Sequence[Batch], deadline_s: float) -> Batch | None:
        self._check()
        work = self._work
        has_reclaimed = False
        while True:
            self._recovery.look(work)
            for batch in batches:
                if batch.outcome is not None:
                    return batch
            self._post()
            if work.failure is not None and all(map(work.is_lost, batches)):
                self._check()  # where they have been told to end it is no failure
                raise work.failure
            if work.no_memory is not None and work.is_stuck(batches[0]):
                if not has_reclaimed:
                    has_reclaimed = True
                    self._space.reclaim()
                elif not work.retract(batches[0]):
                    raise work.no_memory
                continue
            wait_ms = self._recovery.poll_ms
            if self._tuner is not None:
                self._tuner.look(self.scale)
                wait_ms = min(wait_ms, self._tuner.poll_ms)
            if deadline_s < math.inf:
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    return None
                wait_ms = min(wait_ms, left_s * 1000)
            begin_ns = monotonic_ns()
            ready = self._wait_for_news(wait_ms)
            self._waited_ns += monotonic_ns() - begin_ns
            self._check()  # another thread may be waiting to close the pipeline
            if not ready:
                self._recovery.look_for_losses(work)
            for fd, _ in ready:
                if fd == work.pipes.done.fileno():
                    work.read_reports()
                else:
                    self._workers.read_news()

    def _wait_for_news(self, wait_ms: float | None) -> list[tuple[int, int]]:
        with interruptible():
            return self._poll.poll(wait_ms)

    def take(self, batch: Batch) -> Any:
        """The outcome of a batch that is known, or its exception is raised."""
        self._work.deliver(batch)
        self._assemblers[batch.key.source].check(batch)
        self._until_fit -= 1
        if not self._until_fit:
            self._workers.read_news()  # who never waits would not hear of workers that are missing
            self._until_fit = self.scale.fit()
        self._post()
        return result_of(batch)

    def describe_workers_on(self, batch: Batch) -> list[str]:
        """For each worker that is on a batch: which, what it is making, and its Python stack."""
        return self._recovery.describe_workers_on(batch, self._work)

    def _write_notice(self, notice: bytes) -> None:
        offset = notice_offset(self._options.num_workers)
        room = NOTICE_BYTES - WORD_BYTES
        if len(notice) > room:
            raise ValueError(f"a notice of {len(notice)} bytes, for which there is room of {room}")
        self._space.map[offset : offset + WORD_BYTES] = len(notice).to_bytes(WORD_BYTES, "little")
        self._space.map[offset + WORD_BYTES : offset + WORD_BYTES + len(notice)] = notice

    def cancel(self, batch: Batch) -> None:
        self._work.cancel(batch)

    def rest(self) -> None:
        """End the workers, but not what starts them. Nobody may want a batch any more; `wake` starts other workers."""
        self._work.cancel_all()
        self._recovery.rest(self._work)

    def wake(self, notice: bytes, sources: Sequence[Source] | None = None) -> None:
        """Start workers after a rest.

        Args:
            notice: what they are told.
            sources: as many as before, and of the same kinds, if what they have copies of has changed.

        Raises:
            PicklingError, OutOfMemoryError: as the constructor.
        """
        self._write_notice(notice)
        if sources is not None:
            self._workers.renew(sources)
            for assembler, source in zip(self._assemblers, sources, strict=True):
                assembler.renew(source)
        self._recovery.wake()

    @property
    def exitcodes(self) -> dict[int, int]:
        """How those workers have ended that have, by process id."""
        return self._workers.exitcodes

    def wait_for_pids(self) -> list[int]:
        """The process ids of the workers, once all have been forked."""
        while not all(self._workers.pids[: self.num_workers]) and not (self._closed or self.has_failed):
            self._workers.wait_for_news(POLL_INTERVAL_S)
            self._recovery.look(self._work)
        return self._workers.pids[: self.num_workers]

    def stop_waiting(self) -> None:
        """Let a `wait` that is under way raise ClosedError, and every one after it. May be called in any thread."""
        self._closed = True

    def close(self) -> None:
        self._closed = True
        self._workers.stop()
        if self._pid == os.getpid():
            self._work.release()
            for assembler in self._assemblers:
                assembler.ring.close()
        self._work.close()

    def _check(self) -> None:
        if self._closed or self._work.is_over or self._pid != os.getpid():
            self._refuse()

    def _refuse(self) -> NoReturn:
        if self._pid != os.getpid():
            raise ForkedError(
                f"this pipeline belongs to process {self._pid}, which this one was forked from; build another one here"
            )
        if self._closed:
            raise ClosedError("the pipeline has been closed")
        while threading.current_thread().daemon:
            time.sleep(POLL_INTERVAL_S)  # it ends with the program, which has ended the workers at its own end
        raise ClosedError("the pipeline has been closed, since the program ends")

    def _post(self) -> None:
        if self._work.backlog and not self._recovery.holds_back:
            self._work.post()
