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

What a dead worker owes is posted again: `dali_like.workers.recovery`.

Only one call waits, and only that one can be interrupted by Ctrl-C: see `dali_like.interrupts`.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import select
import time
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import numpy as np

from dali_like.errors import (
    ClosedError,
    CorruptionError,
    DaliLikeError,
    ForkedError,
    OutOfMemoryError,
    WorkerError,
)
from dali_like.interrupts import PATIENCE_S, interruptible
from dali_like.workers.base import result_of
from dali_like.workers.batch import ANY_WORKER, Batch, BatchKey, Output
from dali_like.workers.crew import Crew
from dali_like.workers.descriptors import Descriptor
from dali_like.workers.geometry import OutputLayout
from dali_like.workers.memory import SharedSpace
from dali_like.workers.pipes import OwnPipes, pipe_bytes, waiting_bytes
from dali_like.workers.protocol import (
    CELL_PID,
    DONE,
    NO_TICKET,
    NOTICE_BYTES,
    TASK,
    WORD_BYTES,
    Header,
    Status,
    cell_offset,
    control_bytes,
    notice_offset,
)
from dali_like.workers.recovery import Debt, Recovery
from dali_like.workers.requests import RequestStage
from dali_like.workers.ring import Slot
from dali_like.workers.samples import Source
from dali_like.workers.shipment import PickledSource
from dali_like.workers.stages import ArrayStage, Stage
from dali_like.workers.starting import WorkerOptions
from dali_like.workers.transport import add_note, read_message, unpack_exception

_TASK_RECORD = np.dtype([("ticket", "<u8"), ("page", "<u4"), ("task", "<u4")])
#: As many reports as fit into a page of a pipe are read at a time.
_REPORT_BYTES = 4096 // DONE.size * DONE.size
_LITTLE: Literal["little"] = "little"
#: In the place of the task that failed: the batch ended by StopIteration.
_STOPPED = -2


class ProcessPool:
    """Computes batches in worker processes; see the module's text and `dali_like.workers.base.Pool`.

    Args:
        sources: with what is declared about the outputs of each.
        capacity: the largest batch.
        notice: what workers are told when they start, for sources that want to know.

    Raises:
        PicklingError: a source cannot be pickled for spawn.
        OutOfMemoryError: there is no address space for the slots.
    """

    def __init__(
        self,
        sources: Sequence[tuple[Source, Sequence[OutputLayout]]],
        capacity: int,
        space: SharedSpace,
        options: WorkerOptions,
        notice: bytes = b"",
    ) -> None:
        self._options = options
        self._space = space
        self._pid = os.getpid()
        if space.allocate(control_bytes(options.num_workers)) != 0:
            raise RuntimeError("workers expect their cells at the start of the space, so a space has one pool")
        self._write_notice(notice)
        self._stages: list[Stage] = [
            RequestStage(space, source, capacity)
            if source.requests
            else ArrayStage(space, source, capacity, declared, options.num_workers)
            for source, declared in sources
        ]
        self._tickets = itertools.count(NO_TICKET + 1)
        self._in_flight: dict[int, Batch] = {}
        self._backlog: deque[Batch] = deque()
        #: A batch that there was no memory for has it to itself while it is made again.
        self._scarce: Batch | None = None
        #: The workers that alone can make some batches.
        self._bound: set[int] = set()
        #: Complete, and not asked for yet.
        self._ready: set[Batch] = set()
        self._open_tasks = 0
        self._failure: Exception | None = None
        #: The ticket of the first batch that will not be completed because of the failure.
        self._first_lost = _NO_LIMIT
        self._no_memory: OutOfMemoryError | None = None

        tasks_read, self._tasks = map(Descriptor, os.pipe())
        self._done, done_write = map(Descriptor, os.pipe())
        # Tasks that only one of the workers can do go to it through a pipe of its own.
        self._own_tasks = OwnPipes(options.num_workers if any(source.in_order for source, _ in sources) else 0)
        os.set_blocking(self._done.fileno(), False)
        # Pipes are small, the more so once a user has many of them. Half of each is used, so that nobody ever blocks on one.
        most = [pipe_bytes(self._done) // DONE.size]
        most += [pipe_bytes(pipe) // TASK.size for pipe in (self._tasks, *self._own_tasks.write_ends)]
        self._max_open_tasks = min(most) // 2
        most_tasks = max(stage.ring.geometry.num_tasks(capacity) for stage in self._stages)
        self._records = np.zeros(most_tasks, _TASK_RECORD)
        self._records["task"] = np.arange(len(self._records))
        farewell = partial(_wake_all, self._in_flight, self._tasks, options.num_workers)
        read_ends = (tasks_read, *self._own_tasks.read_ends)
        self._crew = Crew([source for source, _ in sources], options, space, read_ends, done_write, farewell)
        self._recovery = Recovery(self._crew, space, options)
        self._poll = select.poll()
        self._poll.register(self._done, select.POLLIN)
        self._poll.register(self._crew.control, select.POLLIN)
        self._closed = False

    @property
    def stages(self) -> Sequence[Stage]:
        """What is known of each source."""
        return self._stages

    @property
    def is_closed(self) -> bool:
        """Whether it has been closed, or is going to be."""
        return self._closed

    @property
    def has_failed(self) -> bool:
        """Whether it begins no more batches: its workers have died too often, say."""
        return self._failure is not None

    @property
    def worker_pids(self) -> list[int]:
        """The process ids of the workers that are known to have started."""
        # From their cells: reading the news in another thread could take them away from `wait`.
        cells = [] if self._closed else map(cell_offset, range(self._options.num_workers))
        pids = [self._space.map[cell + CELL_PID : cell + CELL_PID + WORD_BYTES] for cell in cells]
        return [int.from_bytes(pid, "little") for pid in pids if any(pid)]

    @property
    def slot_bytes(self) -> list[int]:
        """How much memory each slot of each source usually takes."""
        sizes = []
        for stage in self._stages:
            geometry = stage.ring.geometry
            regions = 0 if geometry.all_dense else stage.usual_region_bytes
            sizes += [geometry.resident_bytes + regions] * stage.ring.num_slots
        return sizes

    @property
    def num_replaced(self) -> int:
        """How many samples were replaced by what a source's ``on_error`` says."""
        return self._recovery.num_replaced

    @property
    def num_restarts(self) -> int:
        """How often a worker has been started in the place of one that had died."""
        return self._recovery.num_restarts

    def renew(self, sources: Sequence[Source], pickled: Sequence[PickledSource] | None = None) -> None:
        """Give workers that are started from now on other sources; see `dali_like.workers.crew.Crew.renew`."""
        self._check()
        self._crew.renew(sources, pickled)
        for stage, source in zip(self._stages, sources, strict=True):
            stage.source = source

    def submit(self, key: BatchKey) -> Batch:
        self._check()
        batch = Batch(key)
        self._bound.add(key.worker)
        self._backlog.append(batch)
        self._post()
        return batch

    def poll(self) -> None:
        self._check()
        self.read_reports()
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
        self._check()
        self.read_reports()
        while True:
            self._recovery.look(self)
            for batch in batches:
                if batch.outcome is not None:
                    return batch
            self._post()
            if self._failure is not None and all(map(self._is_lost, batches)):
                raise self._failure
            if self._no_memory is not None and batches[0] in self._backlog and not self._in_flight:
                if not self._retract(batches[0]):
                    raise self._no_memory
                continue
            wait_ms = self._recovery.poll_ms
            if deadline_s < math.inf:
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    return None
                wait_ms = min(wait_ms, left_s * 1000)
            with interruptible():
                ready = self._poll.poll(wait_ms)
            self._check()  # another thread may be waiting to close the pipeline
            if not ready:
                self._recovery.look_for_losses(self)
            for fd, _ in ready:
                if fd == self._done.fileno():
                    self.read_reports()
                else:
                    self._crew.read_news()

    def take(self, batch: Batch) -> Any:
        """The outcome of a batch that is known, or its exception is raised."""
        self._ready.discard(batch)
        self._stages[batch.key.source].check(batch)
        self._post()
        return result_of(batch)

    def describe_workers_on(self, batch: Batch) -> list[str]:
        """For each worker that is on a batch: which, what it is making, and its Python stack."""
        return self._recovery.describe_workers_on(batch, self)

    def _is_lost(self, batch: Batch) -> bool:
        """Whether a batch will not be completed because of the failure."""
        return batch.slot is None or batch.ticket >= self._first_lost

    def _write_notice(self, notice: bytes) -> None:
        offset = notice_offset(self._options.num_workers)
        room = NOTICE_BYTES - WORD_BYTES
        if len(notice) > room:
            raise ValueError(f"a notice of {len(notice)} bytes, for which there is room of {room}")
        self._space.map[offset : offset + WORD_BYTES] = len(notice).to_bytes(WORD_BYTES, _LITTLE)
        self._space.map[offset + WORD_BYTES : offset + WORD_BYTES + len(notice)] = notice

    def _retract(self, batch: Batch) -> bool:
        """Take its memory from the last of the batches that are ready and come after this one; whether there is one."""
        later = [other for other in self._ready if other.key.turn > batch.key.turn and self._source_of(other).makes_again]
        if not later:
            return False
        last = max(later, key=lambda other: other.key.turn)
        self._ready.discard(last)
        last.outcome = None
        self._queue_again(last)
        self._space.drop_free()
        return True

    def cancel(self, batch: Batch) -> None:
        self._ready.discard(batch)
        batch.cancelled = True
        batch.outcome = None
        if batch.slot is not None:
            batch.slot.header[Header.CANCELLED] = 1
        elif batch in self._backlog:
            self._backlog.remove(batch)

    def rest(self) -> None:
        """End the workers, but not what starts them. Nobody may want a batch any more; `wake` starts other workers."""
        for batch in [*self._in_flight.values(), *self._backlog, *self._ready]:
            self.cancel(batch)
        self._recovery.rest(self)

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
            self._crew.renew(sources)
            for stage, source in zip(self._stages, sources, strict=True):
                stage.renew(source)
        self._recovery.wake()

    @property
    def exitcodes(self) -> dict[int, int]:
        """How those workers have ended that have, by process id."""
        return self._crew.exitcodes

    @property
    def forked_pids(self) -> list[int]:
        """The process ids of the workers that are known to have been forked; nobody waits for the others."""
        return [pid for pid in self._crew.pids if pid]

    def wait_for_pids(self) -> list[int]:
        """The process ids of the workers, once all have been forked."""
        while not all(self._crew.pids) and not self._closed and self._failure is None:
            self._crew.wait_for_news(PATIENCE_S)
            self._recovery.look(self)
        return list(self._crew.pids)

    def stop_waiting(self) -> None:
        """Let a `wait` that is under way raise ClosedError, and every one after it. May be called in any thread."""
        self._closed = True

    def close(self) -> None:
        self._closed = True
        self._crew.stop()
        if self._pid == os.getpid():
            for batch in self._in_flight.values():
                if batch.slot is not None:
                    self._stages[batch.key.source].ring.release(batch.slot)
            self._in_flight.clear()
            self._ready.clear()
            for stage in self._stages:
                stage.ring.close()
        for pipe in (self._tasks, self._done, self._own_tasks):
            pipe.close()

    def _check(self) -> None:
        if self._pid != os.getpid():
            raise ForkedError(
                f"this pipeline belongs to process {self._pid}, which this one was forked from; build another one here"
            )
        if self._closed:
            raise ClosedError("the pipeline has been closed")

    # Posting tasks

    def _post(self) -> None:
        """Send out the tasks of the batches that wait, as far as the pipes have room for all their records."""
        self._no_memory = None
        while self._backlog and self._failure is None and not self._recovery.holds_back:
            if self._scarce is not None:
                return
            batch = self._backlog[0]
            stage = self._stages[batch.key.source]
            # The first batch of a source shows what its samples look like; the others would only have to guess.
            if stage.holds_back and any(other.key.source == batch.key.source for other in self._in_flight.values()):
                return
            num_tasks = stage.ring.geometry.num_tasks(batch.key.size)
            if self._open_tasks and self._open_tasks + num_tasks > self._max_open_tasks:
                return
            ticket = next(self._tickets)
            try:
                slot = stage.begin(batch, ticket)
            except OutOfMemoryError as error:
                self._no_memory = error  # to be raised when the batch is asked for, if there is still none then
                return
            self._scarce = batch if batch.missing_bytes else None
            self._in_flight[ticket] = batch
            self._open_tasks += num_tasks
            self._backlog.popleft()
            records = self._records[:num_tasks]
            records["ticket"] = ticket
            records["page"] = slot.page
            try:
                os.write(self._pipe_of(batch).fileno(), records.data)
            except BrokenPipeError:
                return  # the template is gone, and the workers with it: `wait` will hear of it

    def _source_of(self, batch: Batch) -> Source:
        return self._stages[batch.key.source].source

    def _pipe_of(self, batch: Batch) -> Descriptor:
        return self._tasks if batch.key.worker == ANY_WORKER else self._own_tasks.write_ends[batch.key.worker]

    # Reading reports

    def read_reports(self) -> None:
        """Note all reports that lie in the pipe."""
        reports = b""
        while len(reports) in (0, _REPORT_BYTES):
            try:
                reports = os.read(self._done.fileno(), _REPORT_BYTES)
            except BlockingIOError:
                return
            if not reports:
                return  # no worker is left
            whole = len(reports) // DONE.size * DONE.size
            for report in DONE.iter_unpack(reports[:whole]):
                self._note(*report)
            if whole < len(reports):
                self._report_corruption("is not whole")

    def _note(self, ticket: int, task: int, worker: int, status: int, value: int) -> None:
        batch = self._in_flight.get(ticket)
        if batch is None or not batch.open_tasks >> task & 1:
            return
        if not self._is_plausible(batch, worker, status, value):
            self._report_corruption(
                f"says what no worker says (task {task}, worker {worker}, status {status}, value {value})"
            )
            return
        if status == Status.DENSE:
            pass
        elif status == Status.DESCRIBED:
            batch.described |= 1 << task
            batch.region_bytes += value
            batch.largest_region_bytes = max(batch.largest_region_bytes, value)
        elif status == Status.STOPPED:
            batch.fail(value, _STOPPED, worker)
        elif status == Status.FAILED:
            batch.fail(value, task, worker)
        elif status == Status.TOO_LARGE:
            batch.grow(value, task)
        elif status == Status.NO_MEMORY:
            batch.lack(value, task)
        batch.open_tasks &= ~(1 << task)
        self._open_tasks -= 1
        if not batch.open_tasks:
            self._complete(batch)
        elif task == 0 and status == Status.DESCRIBED and not self._stages[batch.key.source].known:
            assert batch.slot is not None
            self._stages[batch.key.source].learn_early(batch, batch.slot)

    def _report_corruption(self, what: str) -> None:
        self.fail_at_once(
            CorruptionError(
                f"a report {what}; a callback has written where it must not, into memory or into a file descriptor that is "
                "not its own"
            )
        )

    def _is_plausible(self, batch: Batch, worker: int, status: int, value: int) -> bool:
        if (worker >= self._options.num_workers and worker != _NO_WORKER) or value < 0:
            return False
        assert batch.slot is not None
        geometry = batch.slot.geometry
        return (
            (status == Status.DENSE and geometry.all_dense)
            or (status == Status.DESCRIBED and value <= geometry.region_bytes)
            or (status in (Status.STOPPED, Status.FAILED) and value < batch.key.stop)
            or (status == Status.TOO_LARGE and value > geometry.region_bytes)
            or (status == Status.SKIPPED and batch.cancelled)
            or (status == Status.NO_MEMORY and value > 0)
        )

    def _complete(self, batch: Batch) -> None:
        """All tasks of a batch have been reported: what has become of it?"""
        stage = self._stages[batch.key.source]
        slot = batch.slot
        assert slot is not None
        batch.slot = None
        del self._in_flight[batch.ticket]
        if batch is self._scarce:
            self._scarce = None
        if batch.cancelled:
            stage.ring.release(slot)
            return
        try:
            batch.size = stage.end_of(batch, slot)
            if batch.failed_sample < min(batch.first_unmade, batch.size):
                batch.outcome = self._read_failure(batch, slot, stage)
        except CorruptionError as error:
            batch.outcome = error
        if batch.outcome is not None:
            stage.ring.release(slot)
        elif batch.first_unmade < batch.size:
            batch.outcome = self._make_again(batch, slot, stage)
        else:
            batch.outcome = stage.finish(batch, slot)
            if not isinstance(batch.outcome, Exception):
                self._ready.add(batch)

    def _make_again(self, batch: Batch, slot: Slot, stage: Stage) -> DaliLikeError | None:
        """Queue a batch again whose samples found no room, or no memory; or why that would not help."""
        try:
            if batch.needed_bytes:
                stage.ring.release(slot)
                stage.enlarge(batch.needed_bytes)
            else:
                stage.give_up_memory(batch, slot)
        except DaliLikeError as error:
            return error
        self._queue_again(batch)
        return None

    def _queue_again(self, batch: Batch) -> None:
        # Sources are not equally far ahead, so that the backlog as it is need not be in order.
        self._backlog = deque(sorted((*self._backlog, batch), key=_order_of))

    def _read_failure(self, batch: Batch, slot: Slot, stage: Stage) -> Exception:
        if batch.failed_task == _STOPPED:
            return StopIteration()
        if batch.fatal is not None and batch.failed_worker < 0:
            return batch.fatal
        self._crew.read_news()
        start = slot.offset + slot.geometry.region_offset(batch.failed_task)
        error = unpack_exception(read_message(self._space, start, int(slot.marks[batch.failed_task])))
        worker = batch.failed_worker
        where = f", in worker {worker} (pid {self._crew.pids[worker]})"
        add_note(error, f"raised by {stage.source.name} for {stage.describe(batch.key, batch.failed_sample)}{where}")
        return error

    # For the recovery from the ends of workers, see `dali_like.workers.recovery.Work`

    def has_waiting_tasks(self) -> bool:
        return any(map(waiting_bytes, (self._tasks, *self._own_tasks.write_ends)))

    @property
    def num_open_tasks(self) -> int:
        return self._open_tasks

    def batch_of(self, ticket: int, task: int) -> Batch | None:
        batch = self._in_flight.get(ticket)
        return batch if batch is not None and batch.open_tasks >> task & 1 else None

    def post_again(self, debt: Debt) -> None:
        slot = debt.batch.slot
        assert slot is not None
        os.write(self._pipe_of(debt.batch).fileno(), TASK.pack(debt.batch.ticket, slot.page, debt.task))

    def post_in_turn(self, debt: Debt) -> None:
        if debt.batch.key.worker == ANY_WORKER:
            self.post_again(debt)
        else:
            self._take_back(debt.batch)

    def take_back(self, worker: int) -> None:
        for ticket, _, task in self._own_tasks.take_back(worker):
            batch = self.batch_of(ticket, task)
            if batch is not None:
                self._take_back(batch)

    def _take_back(self, batch: Batch) -> None:
        """Queue a batch again whose only task nobody works on."""
        slot, batch.slot = batch.slot, None
        assert slot is not None
        del self._in_flight[batch.ticket]
        self._open_tasks -= 1
        if batch is self._scarce:
            self._scarce = None
        self._stages[batch.key.source].ring.release(slot)
        if not batch.cancelled:
            self._queue_again(batch)

    def give_up(self, debt: Debt, error: WorkerError) -> None:
        if debt.sample < debt.batch.failed_sample:
            debt.batch.fatal = error
        self._note(debt.batch.ticket, debt.task, _NO_WORKER, Status.FAILED, debt.sample)

    def fail(self, error: WorkerError, first_lost: Batch | None) -> None:
        self._failure = self._failure or error
        ticket = first_lost.ticket if first_lost is not None else next(self._tickets)
        self._first_lost = min(self._first_lost, ticket)

    def fail_at_once(self, error: DaliLikeError) -> None:
        self._failure = self._failure or error
        self._first_lost = NO_TICKET

    def depends_on(self, worker: int) -> bool:
        return worker in self._bound

    def retire(self, num_workers: int) -> None:
        with contextlib.suppress(BrokenPipeError):  # the template is gone
            os.write(self._tasks.fileno(), TASK.pack(NO_TICKET, 0, 0) * num_workers)

    def clear_tasks(self) -> None:
        """Take the tasks back that no worker has taken; all are of batches that nobody wants."""
        for worker in range(self._options.num_workers):
            for ticket, _, task in self._own_tasks.take_back(worker):
                self._note(ticket, task, _NO_WORKER, Status.SKIPPED, 0)
        # The main process has only the end that is written to.
        fd = os.open(f"/proc/self/fd/{self._tasks.fileno()}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            while records := os.read(fd, TASK.size * 256):
                for ticket, _, task in TASK.iter_unpack(records):
                    self._note(ticket, task, _NO_WORKER, Status.SKIPPED, 0)
        except BlockingIOError:
            pass  # that was all
        finally:
            os.close(fd)

    def describe(self, debt: Debt) -> str:
        stage = self._stages[debt.batch.key.source]
        return f"{stage.source.name} was making {stage.describe_debt(debt.batch.key, debt.sample)}"


def _order_of(batch: Batch) -> tuple[int, int]:
    return batch.key.turn, batch.key.iteration


_NO_LIMIT = 1 << 64
#: In the place of the worker that reported a failure: nobody did.
_NO_WORKER = -1


def _wake_all(in_flight: dict[int, Batch], tasks: Descriptor, num_workers: int) -> None:
    """Let workers find the end of their work: nothing is left to be done, and nothing more will come."""
    for batch in in_flight.values():
        if batch.slot is not None:
            batch.slot.header[Header.CANCELLED] = 1
    with contextlib.suppress(BlockingIOError, BrokenPipeError):
        # Closing would do, if nobody else could have inherited the pipe.
        os.set_blocking(tasks.fileno(), False)
        os.write(tasks.fileno(), TASK.pack(NO_TICKET, 0, 0) * num_workers)
    tasks.close()
