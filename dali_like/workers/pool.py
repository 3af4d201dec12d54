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

Ctrl-C may interrupt the main process between any two instructions, and it must be able to go on afterwards: reports are
read into a buffer that is cleared after they have been noted, and noting one twice does nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import select
import signal
import socket
import time
import weakref
from collections import deque
from collections.abc import Sequence
from typing import Literal

import numpy as np

from dali_like.errors import (
    ClosedError,
    DaliLikeError,
    ForkedError,
    WorkerDiedError,
    WorkerError,
    WorkerStartError,
)
from dali_like.workers.base import Stage, position_note, result_of
from dali_like.workers.batch import Batch, BatchKey, Output
from dali_like.workers.descriptors import Descriptor
from dali_like.workers.geometry import OutputLayout
from dali_like.workers.memory import SharedSpace
from dali_like.workers.protocol import (
    CELL_SAMPLE,
    DONE,
    MESSAGE_BYTES,
    NO_TICKET,
    TASK,
    WORD_BYTES,
    Header,
    Status,
    cell_offset,
    control_bytes,
    message_offset,
)
from dali_like.workers.ring import Slot
from dali_like.workers.samples import Source
from dali_like.workers.starting import TemplateEnds, WorkerOptions, start_template
from dali_like.workers.template import MESSAGE, Message
from dali_like.workers.transport import unpack_exception
from dali_like.workers.worker import START_FAILED

#: How long workers have to finish their sample when the pool is closed; then they are killed.
_GRACE_S = 0.5
#: How long the template has for the rest.
_TEMPLATE_GRACE_S = 2.0

_TASK_RECORD = np.dtype([("ticket", "<u8"), ("page", "<u4"), ("task", "<u4")])
_REPORTS = 170  # that fit into a page of a pipe
_LITTLE: Literal["little"] = "little"
#: In the place of the task that failed: the batch ended by StopIteration.
_STOPPED = -2


class ProcessPool:
    """Computes batches in worker processes; see the module's text and `dali_like.workers.base.Pool`.

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
    ) -> None:
        self._options = options
        self._space = space
        self._control_offset = space.allocate(control_bytes(options.num_workers))
        assert self._control_offset == 0, "workers expect their cells at the start of the space"
        self._stages = [Stage(space, source, capacity, declared, options.num_workers) for source, declared in sources]
        self._tickets = itertools.count(NO_TICKET + 1)
        self._in_flight: dict[int, Batch] = {}
        self._backlog: deque[Batch] = deque()
        self._open_tasks = 0
        self._failure: Exception | None = None
        self._pids = [0] * options.num_workers
        self._ended: list[tuple[int, int] | None] = []  # worker and exit code; None for the template
        self._pid = os.getpid()

        tasks_read, self._tasks = map(Descriptor, os.pipe())
        self._done, done_write = map(Descriptor, os.pipe())
        self._control, template_control = (
            Descriptor(end.detach()) for end in socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        )
        ends = TemplateEnds(template_control, tasks_read, done_write)
        os.set_blocking(self._done.fileno(), False)
        os.set_blocking(self._control.fileno(), False)
        # Pipes are small, the more so once a user has many of them. Half of each is used, so that nobody ever blocks on one.
        self._max_open_tasks = min(_pipe_bytes(self._tasks) // TASK.size, _pipe_bytes(self._done) // DONE.size) // 2
        self._reports = bytearray(_REPORTS * DONE.size)
        self._no_reports = bytes(len(self._reports))
        self._records = np.zeros(self._stages[0].ring.geometry.num_tasks(capacity), _TASK_RECORD)
        self._records["task"] = np.arange(len(self._records))
        self._poll = select.poll()
        self._poll.register(self._done, select.POLLIN)
        self._poll.register(self._control, select.POLLIN)
        template_pid = start_template([source for source, _ in sources], options, space, ends)
        ends.close()
        # Everything that ends the workers, without a reference to the pool.
        self._finalizer = weakref.finalize(
            self,
            _end_workers,
            self._pid,
            template_pid,
            self._control,
            self._tasks,
            self._done,
            self._in_flight,
            options.num_workers,
        )
        for worker in range(options.num_workers):
            os.write(self._control.fileno(), MESSAGE.pack(Message.START, worker, 0))

    @property
    def worker_pids(self) -> list[int]:
        """The process ids of the workers that are known to have started."""
        self._read_messages()
        return [pid for pid in self._pids if pid]

    def submit(self, key: BatchKey) -> Batch:
        self._check()
        batch = Batch(key)
        self._backlog.append(batch)
        self._post()
        return batch

    def poll(self) -> None:
        self._check()
        self._read_reports()
        self._post()

    def wait(self, batch: Batch) -> Sequence[Output]:
        self._check()
        self._read_reports()
        while batch.outcome is None:
            self._post()
            if self._failure is not None:
                raise self._failure
            for fd, _ in self._poll.poll():
                if fd == self._done.fileno():
                    self._read_reports()
                else:
                    self._read_messages()
            if self._ended and self._failure is None:
                self._handle_ends()
        self._post()
        return result_of(batch)

    def cancel(self, batch: Batch) -> None:
        batch.cancelled = True
        batch.outcome = None
        if batch.slot is not None:
            batch.slot.header[Header.CANCELLED] = 1
        elif batch in self._backlog:
            self._backlog.remove(batch)

    def close(self) -> None:
        self._finalizer()
        self._failure = ClosedError("the pipeline has been closed")
        if self._pid == os.getpid():
            for batch in self._in_flight.values():
                if batch.slot is not None:
                    self._stages[batch.key.source].ring.release(batch.slot)
            self._in_flight.clear()
            for stage in self._stages:
                stage.ring.close()

    def _check(self) -> None:
        if self._pid != os.getpid():
            raise ForkedError(
                f"this pipeline belongs to process {self._pid}, which this one was forked from; build another one here"
            )
        if not self._finalizer.alive:
            raise ClosedError("the pipeline has been closed")

    # Posting tasks

    def _post(self) -> None:
        """Send out the tasks of the batches that wait, as far as the pipes have room for all their records."""
        while self._backlog and self._failure is None:
            batch = self._backlog[0]
            stage = self._stages[batch.key.source]
            # The first batch of a source shows what its samples look like; the others would only have to guess.
            if not stage.known and any(other.key.source == batch.key.source for other in self._in_flight.values()):
                return
            num_tasks = stage.ring.geometry.num_tasks(batch.key.size)
            if self._open_tasks and self._open_tasks + num_tasks > self._max_open_tasks:
                return
            ticket = next(self._tickets)
            slot = stage.begin(batch, ticket)
            try:
                self._in_flight[ticket] = batch
                self._open_tasks += num_tasks
                self._backlog.popleft()
                records = self._records[:num_tasks]
                records["ticket"] = ticket
                records["page"] = slot.page
                os.write(self._tasks.fileno(), records.data)
            except BaseException:
                self._post_again(batch, slot, num_tasks)
                raise

    def _post_again(self, batch: Batch, slot: Slot, num_tasks: int) -> None:
        """Ctrl-C came while tasks were sent, and nobody knows whether they were: leave the slot to them, take another."""
        stale = Batch(batch.key)
        stale.begin(batch.ticket, slot, num_tasks)
        self._in_flight[batch.ticket] = stale
        self.cancel(stale)
        batch.slot = None
        if batch not in self._backlog:
            self._backlog.appendleft(batch)

    # Reading reports

    def _read_reports(self) -> None:
        """Note all reports that lie in the pipe."""
        reports = self._reports
        while True:
            # Ctrl-C may have left reports in the buffer.
            if reports[:WORD_BYTES] == self._no_reports[:WORD_BYTES]:
                try:
                    if not os.readv(self._done.fileno(), [reports]):
                        return  # no worker is left
                except BlockingIOError:
                    return
            for report in DONE.iter_unpack(reports):
                if report[0] == NO_TICKET:
                    break
                self._note(*report)
            reports[:] = self._no_reports

    def _note(self, ticket: int, task: int, worker: int, status: int, value: int) -> None:
        batch = self._in_flight.get(ticket)
        if batch is None or not batch.open_tasks >> task & 1:
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
            batch.needed_bytes = max(batch.needed_bytes, value)
        batch.open_tasks &= ~(1 << task)
        self._open_tasks -= 1
        if not batch.open_tasks:
            self._complete(batch)
        elif task == 0 and status == Status.DESCRIBED and not self._stages[batch.key.source].known:
            assert batch.slot is not None
            self._stages[batch.key.source].learn_early(batch, batch.slot)

    def _complete(self, batch: Batch) -> None:
        """All tasks of a batch have been reported: what has become of it?"""
        stage = self._stages[batch.key.source]
        slot = batch.slot
        assert slot is not None
        batch.slot = None
        del self._in_flight[batch.ticket]
        if batch.cancelled:
            stage.ring.release(slot)
        elif batch.failed_sample < batch.key.size:
            batch.outcome = self._read_failure(batch, slot, stage)
            stage.ring.release(slot)
        else:
            batch.outcome = self._finish(batch, slot, stage)

    def _finish(self, batch: Batch, slot: Slot, stage: Stage) -> Sequence[Output] | Exception | None:
        try:
            if not batch.needed_bytes:
                return stage.finish(batch, slot)
            stage.ring.release(slot)
            stage.enlarge(batch.needed_bytes)
        except DaliLikeError as error:
            return error
        self._backlog.appendleft(batch)
        return None

    def _read_failure(self, batch: Batch, slot: Slot, stage: Stage) -> Exception:
        if batch.failed_task == _STOPPED:
            return StopIteration()
        self._read_messages()
        start = slot.offset + slot.geometry.region_offset(batch.failed_task)
        error = unpack_exception(_read_message(self._space, start, slot.geometry.region_bytes))
        worker = batch.failed_worker
        where = f", in worker {worker} (pid {self._pids[worker]})"
        error.add_note(position_note(batch, stage.source, batch.failed_sample, where))
        return error

    # The lives of the workers

    def _read_messages(self) -> None:
        """Take what the template has said: who has started, who has ended."""
        while True:
            try:
                message = os.read(self._control.fileno(), MESSAGE.size)
            except BlockingIOError:
                return
            except ConnectionResetError:
                message = b""
            if not message:
                self._ended.append(None)
                return
            kind, worker, value = MESSAGE.unpack(message)
            if kind == Message.STARTED:
                self._pids[worker] = value
            elif kind == Message.ENDED:
                self._ended.append((worker, os.waitstatus_to_exitcode(value)))

    def _handle_ends(self) -> None:
        """Draw the consequences when workers have ended."""
        # What they have completed before counts.
        self._read_reports()
        end = self._ended[0]
        if end is None:
            self._failure = WorkerError("the process that starts the workers has ended, and the workers with it")
        else:
            self._failure = self._explain_end(*end)

    def _explain_end(self, worker: int, exitcode: int) -> Exception:
        pid = self._pids[worker]
        if exitcode == START_FAILED:
            start = message_offset(worker, self._options.num_workers)
            cause = unpack_exception(_read_message(self._space, start, MESSAGE_BYTES))
            error = WorkerStartError(f"worker {worker} (pid {pid}) could not start: {cause!r}")
            error.__cause__ = cause
            return error
        what = f"worker {worker} (pid {pid}) {_describe_exit(exitcode)} {self._describe_work(worker)}"
        return WorkerDiedError(what, pid, exitcode)

    def _describe_work(self, worker: int) -> str:
        """What a dead worker was doing: its cell names its last task; if that is still open, it was on it."""
        cell = cell_offset(worker)
        ticket, _, task = TASK.unpack_from(self._space.map, cell)
        batch = self._in_flight.get(ticket)
        if batch is None or not batch.open_tasks >> task & 1:
            return "while it was idle"
        where = cell + CELL_SAMPLE
        sample = int.from_bytes(self._space.map[where : where + WORD_BYTES], _LITTLE)
        key = batch.key
        return (
            f"while {self._stages[key.source].source.name} was making sample {sample} of iteration {key.iteration} in "
            f"epoch {key.epoch} (idx_in_epoch {key.first_sample + sample})"
        )


def _pipe_bytes(pipe: Descriptor) -> int:
    return fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ)


def _read_message(space: SharedSpace, start: int, limit: int) -> bytes:
    length = min(int.from_bytes(space.map[start : start + WORD_BYTES], _LITTLE), limit)
    return bytes(space.map[start + WORD_BYTES : start + WORD_BYTES + length])


def _describe_exit(exitcode: int) -> str:
    if exitcode >= 0:
        return f"ended with exit code {exitcode}"
    try:
        name = signal.Signals(-exitcode).name
    except ValueError:
        name = f"signal {-exitcode}"
    hint = " (by the system for want of memory?)" if -exitcode == signal.SIGKILL else ""
    return f"was killed by {name}{hint}"


def _end_workers(
    pid: int,
    template_pid: int,
    control: Descriptor,
    tasks: Descriptor,
    done: Descriptor,
    in_flight: dict[int, Batch],
    num_workers: int,
) -> None:
    """Let workers finish their sample, kill those that do not, and wait for all of them to be gone."""
    if os.getpid() == pid:
        for batch in in_flight.values():
            if batch.slot is not None:
                batch.slot.header[Header.CANCELLED] = 1
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            # Workers read the end of the pipe when nobody else has inherited its other end; these records do without.
            os.set_blocking(tasks.fileno(), False)
            os.write(tasks.fileno(), TASK.pack(NO_TICKET, 0, 0) * num_workers)
        with contextlib.suppress(OSError):
            os.write(control.fileno(), MESSAGE.pack(Message.STOP, 0, int(_GRACE_S * 1000)))
        tasks.close()
        _reap(template_pid, control, time.monotonic() + _GRACE_S + _TEMPLATE_GRACE_S)
    for descriptor in (control, tasks, done):
        descriptor.close()


def _reap(template_pid: int, control: Descriptor, deadline: float) -> None:
    """Wait for the template to end, or end it."""
    poll = select.poll()
    poll.register(control, select.POLLIN)
    while poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
        try:
            if not os.read(control.fileno(), MESSAGE.size):
                break
        except ConnectionResetError:
            break
    else:
        with contextlib.suppress(ProcessLookupError):
            os.kill(template_pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):  # somebody else has waited for all children
        os.waitpid(template_pid, 0)
