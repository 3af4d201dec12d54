"""The worker pool, as the main process sees it. The main process creates all slots and frees them.

::

    main process                                              workers
    ------------                                              -------
    1. begin a batch: take a slot, write its header
    2. post task records       --- pipe, read by all --->     3. splice: move one record into the worker's cell
                                                              4. call the source, write into the slot
    6. read reports, many at a time  <-- pipe ----------      5. write a report
    7. after the last task of a batch: make arrays over the slot, under a lease
    8. the user drops the last array: the slot returns to the ring

1, 7: `dali_like.engine.pool.assembler`, with the slots of `dali_like.engine.memory.ring`.
2, 6: `dali_like.engine.pool.dispatch`. A task takes one record, so it goes to one worker, without a lock.
3 to 5: `dali_like.engine.worker.worker`. A worker that dies in 4 leaves its task in its cell;
`dali_like.engine.pool.recovery` posts the task again.

There is no lock that a dying worker could hold, and no thread: the main process works inside `submit`, `poll` and `wait`
only. One ``poll`` call waits for reports and for ends of workers alike. While the main process is busy elsewhere, workers
continue with the tasks in the pipe. Only that one call waits, and only it can be interrupted by Ctrl-C, see
`dali_like.common.interrupts`.

`dali_like.engine.pool.scaling` decides how many workers there are, and how large tasks are.
"""

from __future__ import annotations

import math
import os
import select
import threading
import time
from collections.abc import Sequence
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from dali_like.common.foreign_errors import add_note
from dali_like.common.hooks import PoolHooks
from dali_like.common.interrupts import POLL_INTERVAL_S, interruptible
from dali_like.engine.memory.batch_key import BatchKey
from dali_like.engine.memory.protocol import START_MESSAGE_BYTES, WORD_BYTES, control_bytes, start_message_offset
from dali_like.engine.memory.slot_layout import OutputSchema
from dali_like.engine.memory.space import SharedSpace
from dali_like.engine.pool.assembler import Assembler, RequestAssembler, assembler_type
from dali_like.engine.pool.batch import Batch, Output, result_of
from dali_like.engine.pool.cells import pid_in_cell
from dali_like.engine.pool.dispatch import Dispatcher
from dali_like.engine.pool.recovery import Recovery
from dali_like.engine.pool.scaling import Scale
from dali_like.engine.pool.shortage import explain_shortage
from dali_like.engine.pool.workers import StartWorkers, WorkerOptions, Workers
from dali_like.engine.worker.meters import Reading, TaskLogs, read_meters
from dali_like.engine.worker.source import PickledSource, Source, SourceType
from dali_like.errors import ClosedError, ForkedError

if TYPE_CHECKING:
    from dali_like.engine.pool.tuner import Tuner
    from dali_like.engine.worker.profiles import WorkerProfiles


class WorkerPool:
    """Compute batches in workers. Implements `dali_like.engine.pool.base.Pool`.

    Args:
        sources: each source, with the declared schemas of its outputs.
        capacity: samples of the largest batch.
        space: the shared space; the pool must be the first to allocate from it.
        options: the options of the workers.
        start_workers: starts the workers of the backend.
        start_message: bytes that workers can read when they start; request sources get their seed this way.
        tuner: chooses the number of workers. Then `options` has the first number, and turns on measurements.

    Attributes:
        scale: the number of workers and the sizes of tasks.
        closed_text: message of the ClosedError of a closed pool; None: that of a pipeline.

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
        *,
        start_workers: StartWorkers,
        start_message: bytes = b"",
        tuner: Tuner | None = None,
    ) -> None:
        self._options = options
        self._tuner = tuner
        self._space = space
        self._pid = os.getpid()
        if space.allocate(control_bytes(options.num_workers, len(sources))) != 0:
            raise RuntimeError("the cells of workers lie at the start of the space, so a space can have one pool only")
        self._write_start_message(start_message)
        self._assemblers: list[Assembler] = [
            RequestAssembler(space, source, capacity, options.num_workers)
            if source.type is SourceType.REQUEST
            else assembler_type(source)(
                space,
                source,
                capacity,
                declared=declared,
                num_workers=options.num_workers,
                tasks_per_worker=options.backend.tasks_per_worker,
            )
            for source, declared in sources
        ]
        self._overdue = np.zeros((len(sources), options.num_workers), np.int64)
        self._dispatcher = Dispatcher(self._assemblers, space, options)
        tasks, done = self._dispatcher.pipes.worker_ends
        self._workers: Workers = start_workers(
            [source for source, _ in sources],
            options,
            space,
            tasks=tasks,
            done=done,
            send_stop=self._dispatcher.send_stop,
        )
        self._recovery = Recovery(self._workers, space, options, self._dispatcher)
        self._poll = select.poll()
        self._poll.register(self._dispatcher.pipes.done, select.POLLIN)
        self._poll.register(self._workers.control, select.POLLIN)
        self._closed = False
        self.closed_text: str | None = None
        self._waited_ns = 0
        self.scale = Scale(
            self._assemblers,
            dispatcher=self._dispatcher,
            workers=self._workers,
            recovery=self._recovery,
            space=space,
            options=options,
        )
        self._until_adapt = self.scale.interval

    @property
    def hooks(self) -> PoolHooks:
        """The hooks of a trace; none by default."""
        return self._dispatcher.hooks

    @hooks.setter
    def hooks(self, hooks: PoolHooks) -> None:
        self._dispatcher.hooks = hooks

    @property
    def assemblers(self) -> Sequence[Assembler]:
        """The assembler of each source."""
        return self._assemblers

    @property
    def is_closed(self) -> bool:
        """Whether the pool has been closed or is being closed, or the garbage collector has ended its workers."""
        return self._closed or self._workers.control.fileno() < 0

    @property
    def has_failed(self) -> bool:
        """Whether no more batches are begun, for example because workers have died too often."""
        return self._dispatcher.has_failed

    @property
    def worker_pids(self) -> list[int]:
        """The process ids of the workers that are known to have started; empty for threads."""
        return [pid for pid in self.pid_of_each if pid] if self._options.backend.has_pids else []

    @property
    def slot_bytes(self) -> list[int]:
        """The usual memory of each slot of each source, in bytes."""
        sizes = []
        for assembler in self._assemblers:
            slot_layout = assembler.ring.slot_layout
            regions = 0 if slot_layout.all_dense else assembler.usual_region_bytes
            sizes += [slot_layout.resident_bytes + regions] * assembler.ring.num_slots
        return sizes

    @property
    def num_workers(self) -> int:
        """The number of workers that have been started; a replacement does not count."""
        return self._recovery.num_workers

    @property
    def num_replaced(self) -> int:
        """The number of samples that ``on_error`` of a source has replaced."""
        return self._recovery.num_replaced

    @property
    def num_restarts(self) -> int:
        """The number of replacements of dead workers."""
        return self._recovery.num_restarts

    @property
    def num_oom_kills(self) -> int:
        """The number of workers that the kernel has killed for lack of memory."""
        return self._recovery.num_oom_kills

    @property
    def pid_of_each(self) -> list[int]:
        """The process id of each worker; 0 for a worker that has not started or has ended."""
        # From the cells: another thread that read events could take them away from `wait`.
        workers = range(self.num_workers)
        return [0 if self._closed else pid_in_cell(self._space, worker) for worker in workers]

    @property
    def readings(self) -> list[list[Reading]]:
        """The measurements of workers: for each source, a reading of each worker."""
        return read_meters(self._space, self._overdue, self.num_workers)

    @property
    def waited_ns(self) -> int:
        """The total time that the main process has waited for workers."""
        return self._waited_ns

    @property
    def mean_ready(self) -> float:
        """See `dali_like.engine.pool.dispatch.Dispatcher`."""
        return self._dispatcher.mean_ready

    def occupancy(self, source: int) -> tuple[int, int]:
        """Return how many batches of a source are in flight, and how many are ready."""
        return self._dispatcher.occupancy(source)

    @property
    def used_bytes(self) -> int:
        """The memory behind the shared space, in bytes."""
        return self._space.used_bytes

    def log_tasks(self) -> TaskLogs:
        """Turn on the task logs of the running workers, and return them."""
        logs = TaskLogs(self._space, self._options.num_workers)
        logs.want(self.num_workers)
        return logs

    def profile_tasks(self, number: int) -> WorkerProfiles:
        """Turn on profiles of the workers, also of later ones, and return them.

        Args:
            number: of the profile, from 1 on.
        """
        from dali_like.engine.worker.profiles import WorkerProfiles  # few programs want profiles

        return WorkerProfiles(self._space, self._options.num_workers, number)

    def renew(self, sources: Sequence[Source], pickled: Sequence[PickledSource] | None = None) -> None:
        """Replace the sources of workers that start from now on; see `Workers.renew`."""
        self._check()
        self._workers.renew(sources, pickled)
        for assembler, source in zip(self._assemblers, sources, strict=True):
            assembler.use(source)

    @property
    def has_backlog(self) -> bool:
        """Whether submitted batches have not begun. They may begin as soon as reports are read."""
        return bool(self._dispatcher.backlog)

    def submit(self, key: BatchKey) -> Batch:
        self._check()
        batch = Batch(key)
        self._dispatcher.add(batch)
        self._post()
        return batch

    def poll(self) -> None:
        self._check()
        dispatcher = self._dispatcher
        dispatcher.read_reports()
        if dispatcher.backlog:
            self._post()

    def wait(self, batch: Batch) -> Sequence[Output]:
        # Nothing else is due for a complete batch: `take` looks for ends of workers now and then.
        if batch.outcome is None or self._tuner is not None:
            self.wait_for((batch,))
        outputs: Sequence[Output] = self.take(batch)
        return outputs

    def wait_for(self, batches: Sequence[Batch], deadline_s: float = math.inf) -> Batch | None:
        """Wait until one of several batches has an outcome, and return the first one that has.

        Args:
            deadline_s: the end of the wait on the clock of `time.monotonic`. Then None is returned.
        """
        if self._tuner is None:
            for batch in batches:  # nothing else is due then, as in `wait`
                if batch.outcome is not None:
                    return batch
            return self._wait_for(batches, deadline_s)
        self._check()
        self._tuner.begin_wait(self.scale, batches[0].key.source)
        try:
            return self._wait_for(batches, deadline_s)
        finally:
            self._tuner.end_wait()

    def _wait_for(self, batches: Sequence[Batch], deadline_s: float) -> Batch | None:
        self._check()
        dispatcher = self._dispatcher
        has_reclaimed = False
        while True:
            self._recovery.look()
            for batch in batches:
                if batch.outcome is not None:
                    return batch
            self._post()
            if dispatcher.failure is not None and all(map(dispatcher.is_lost, batches)):
                self._check()  # after a request to stop, the ends of workers are not failures
                raise dispatcher.failure
            if dispatcher.no_memory is not None and dispatcher.is_stuck(batches[0]):
                if not has_reclaimed:
                    has_reclaimed = True
                    self._space.reclaim()
                elif not dispatcher.retract(batches[0]):
                    raise explain_shortage(dispatcher.no_memory, self._space, self._assemblers, dispatcher.num_begun)
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
            hook = dispatcher.hooks.wait
            try:
                ready = self._wait_for_news(wait_ms) if hook is None else hook(self._wait_for_news, wait_ms)
            except KeyboardInterrupt as error:
                add_note(error, f"while the program waited for a batch: {self._recovery.describe_wait(batches[0])}")
                raise
            self._waited_ns += monotonic_ns() - begin_ns
            self._check()  # another thread may be waiting to close the pipeline
            if not ready:
                self._recovery.check_for_lost_tasks()
                self._recovery.look_for_silence(batches[0])
            for fd, _ in ready:
                if fd == dispatcher.pipes.done.fileno():
                    dispatcher.read_reports()
                else:
                    self._workers.read_news()

    def _wait_for_news(self, wait_ms: float | None) -> list[tuple[int, int]]:
        with interruptible():
            return self._poll.poll(wait_ms)

    def take(self, batch: Batch) -> Any:
        """Return the outcome of a completed batch, or raise its exception."""
        self._dispatcher.deliver(batch)
        self._assemblers[batch.key.source].check(batch)
        self._until_adapt -= 1
        if not self._until_adapt:
            self._workers.read_news()  # a loop that never waits would miss the ends of workers
            self._recovery.look()
            self._until_adapt = self.scale.adapt()
        if self._dispatcher.backlog:
            self._post()
        return result_of(batch)

    def describe_workers_on(self, batch: Batch) -> list[str]:
        """Describe each worker with a task of a batch: its number, task and Python stack."""
        return self._recovery.describe_workers_on(batch)

    def _write_start_message(self, text: bytes) -> None:
        offset = start_message_offset(self._options.num_workers)
        room = START_MESSAGE_BYTES - WORD_BYTES
        if len(text) > room:
            raise ValueError(f"the start message has {len(text)} bytes, more than the maximum of {room}")
        self._space.map[offset : offset + WORD_BYTES] = len(text).to_bytes(WORD_BYTES, "little")
        self._space.map[offset + WORD_BYTES : offset + WORD_BYTES + len(text)] = text

    def cancel(self, batch: Batch) -> None:
        self._dispatcher.cancel(batch)

    def rest(self) -> None:
        """Cancel all batches and stop the workers, but not the forkserver. `wake` starts workers again."""
        self._dispatcher.cancel_all()
        self._recovery.rest()

    def wake(self, start_message: bytes, sources: Sequence[Source] | None = None) -> None:
        """Start workers after `rest`.

        Args:
            start_message: as for the constructor.
            sources: replacements of the sources, as many as before and of the same kinds. None: the sources are unchanged.

        Raises:
            PicklingError, OutOfMemoryError: as the constructor.
        """
        self._write_start_message(start_message)
        if sources is not None:
            self._workers.renew(sources)
            for assembler, source in zip(self._assemblers, sources, strict=True):
                assembler.renew(source)
        self._recovery.wake()

    @property
    def exitcodes(self) -> dict[int, int]:
        """The exit codes of ended workers, by process id."""
        return self._workers.exitcodes

    def wait_for_pids(self) -> list[int]:
        """Wait until all workers have been forked, and return their process ids."""
        while not all(self._workers.pids[: self.num_workers]) and not (self._closed or self.has_failed):
            self._workers.wait_for_news(POLL_INTERVAL_S)
            self._recovery.look()
        return self._workers.pids[: self.num_workers]

    def stop_waiting(self) -> None:
        """Make the current `wait`, and all later ones, raise ClosedError. Any thread may call it."""
        self._closed = True

    def close(self) -> None:
        self._closed = True
        self._workers.stop()
        if self._pid == os.getpid():
            self._dispatcher.release()
            for assembler in self._assemblers:
                assembler.ring.close()
        self._dispatcher.close()
        if (announce := self.hooks.close) is not None:
            announce()

    def _check(self) -> None:
        if self._closed or self._dispatcher.pipes.is_closed or self._pid != os.getpid():
            self._refuse()

    def _refuse(self) -> NoReturn:
        if self._pid != os.getpid():
            raise ForkedError(
                f"this pipeline belongs to the parent process {self._pid}; build another pipeline in this process"
            )
        if self._closed:
            raise ClosedError(self.closed_text or "the pipeline has been closed")
        while threading.current_thread().daemon:
            time.sleep(POLL_INTERVAL_S)  # a daemon thread ends with the program, which has already ended the workers
        raise ClosedError(self.closed_text or "the pipeline has been closed, because the program is exiting")

    def _post(self) -> None:
        if self._dispatcher.backlog and not self._recovery.is_isolating:
            self._dispatcher.post()
