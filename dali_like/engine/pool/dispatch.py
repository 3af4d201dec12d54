"""Post tasks to the workers, read their reports, and complete batches. Runs in the main process.

A `Dispatcher` knows the waiting batches (the backlog), the batches in flight, and the complete ones not delivered yet.
It never waits or blocks, so Ctrl-C cannot interrupt it. Only `dali_like.engine.pool.pool` waits.
"""

from __future__ import annotations

import itertools
import os
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import repeat
from typing import NamedTuple

from dali_like.common.foreign_errors import is_a
from dali_like.common.hooks import PoolHooks
from dali_like.engine.memory.batch_key import ANY_WORKER
from dali_like.engine.memory.protocol import DONE, NO_TICKET, TASK, UNLIMITED, Header, Status
from dali_like.engine.memory.ring import Lease, Slot
from dali_like.engine.memory.space import SharedSpace
from dali_like.engine.memory.system_calls import can_splice
from dali_like.engine.pool.assembler import Assembler
from dali_like.engine.pool.assignments import Assignments
from dali_like.engine.pool.batch import RESULTS, Batch, Failure, Outcome
from dali_like.engine.pool.cells import limit_worker, pid_in_cell
from dali_like.engine.pool.pipes import Pipes
from dali_like.engine.pool.workers import WorkerOptions
from dali_like.engine.worker.exceptions import read_message, without_frames
from dali_like.engine.worker.patched_names import advice
from dali_like.engine.worker.source import Source
from dali_like.errors import CorruptionError, DaliLikeError, OutOfMemoryError, WorkerError

#: Reports are read by the page.
_REPORT_BYTES = 4096 // DONE.size * DONE.size
_NO_LIMIT = 1 << 64

#: In place of a worker, in a report that the main process makes up itself.
NO_WORKER = -1
#: In place of the task that failed: the source has raised StopIteration.
_STOPPED = -2


class UnfinishedTask(NamedTuple):
    """A task that a worker has taken and not reported.

    Attributes:
        sample: index in the batch of the sample that the worker was computing.
    """

    batch: Batch
    task: int
    sample: int

    @property
    def is_open(self) -> bool:
        """Whether the task is still not reported."""
        return self.batch.slot is not None and bool(self.batch.open_tasks >> self.task & 1)


class Dispatcher:
    """Post the tasks of batches, and read the workers' reports.

    Args:
        assemblers: one for each source.

    Attributes:
        pipes: the pipes to and from the workers.
        failure: the reason why no more batches are begun; None: they are.
        no_memory: the reason why the first batch of the backlog could not be begun at the last attempt.
        num_completed: batches whose tasks have all been reported, failed and cancelled ones included.
        backlog: batches that have not been begun, in order.
        hooks: of the pool, for traces.
    """

    def __init__(self, assemblers: Sequence[Assembler], space: SharedSpace, options: WorkerOptions) -> None:
        self._assemblers = assemblers
        self._space = space
        self._num_workers = options.num_workers
        backend = options.backend
        self._unit = backend.unit
        self._imports_main = backend.imports_main
        # Threads write into caches themselves, and actors of Ray cannot.
        self._shares_caches = backend.has_processes
        self._tickets = itertools.count(NO_TICKET + 1)
        self._in_flight: dict[int, Batch] = {}
        self.backlog: deque[Batch] = deque()
        #: After an allocation failure, this batch is retried alone.
        self._scarce: Batch | None = None
        #: Workers with batches that only they can compute.
        self._bound: set[int] = set()
        #: Complete, and not delivered yet.
        self._ready: set[Batch] = set()
        self._delivered = self._sum_ready = 0
        self._open_tasks = 0
        #: The failure has ended the batches from this ticket on.
        self._first_lost = _NO_LIMIT
        self.failure: Exception | None = None
        self.no_memory: OutOfMemoryError | None = None
        self.num_completed = 0
        self.hooks = PoolHooks()

        takes_several = any(assembler.source.reads_ahead(in_threads=backend.are_threads) for assembler in assemblers)
        are_read = backend.splices and (takes_several or not (space.has_file and can_splice()))
        own = any(assembler.source.in_order for assembler in assemblers)
        self.pipes = Pipes(options.num_workers, own=own, are_read=are_read)
        self._assignments: Assignments | None = None
        if are_read:
            self._assignments = Assignments(
                options.num_workers, self.pipes.num_waiting, self._is_open, takes_several=takes_several
            )

    @property
    def send_stop(self) -> Callable[[], None]:
        """A function that tells the workers to stop. It keeps no reference to the dispatcher, so finalizers may call it."""
        return partial(_send_stop, self._in_flight, self.pipes, self._space, self._num_workers)

    @property
    def has_failed(self) -> bool:
        """Whether no more batches are begun, for example because workers have died too often."""
        return self.failure is not None

    @property
    def num_delivered(self) -> int:
        """The number of batches that the program has taken."""
        return self._delivered

    @property
    def num_made(self) -> float:
        """The number of completed batches, plus the completed fractions of batches in flight."""
        return self.num_completed + sum(map(_part_done, self._in_flight.values()))

    @property
    def mean_ready(self) -> float:
        """The mean number of complete batches of a source at each delivery, including the delivered one."""
        return self._sum_ready / max(self._delivered, 1) / len(self._assemblers)

    def occupancy(self, source: int) -> tuple[int, int]:
        """Return how many batches of a source are in flight, and how many are ready. Any thread may call it."""
        batches = list(self._in_flight.values()), list(self._ready)
        making, ready = (sum(batch.key.source == source for batch in some) for some in batches)
        return making, ready

    def num_begun(self, source: int) -> int:
        """Return how many batches of a source have been submitted, and neither delivered nor cancelled."""
        batches = (*self._in_flight.values(), *self._ready, *self.backlog)
        return sum(batch.key.source == source and not batch.cancelled for batch in batches)

    def add(self, batch: Batch) -> None:
        """Append a batch to the backlog."""
        self._bound.update(batch.key.owners or (batch.key.worker,))
        self.backlog.append(batch)

    def deliver(self, batch: Batch) -> None:
        """Count a batch as delivered."""
        self._delivered += 1
        self._sum_ready += len(self._ready)
        self._ready.discard(batch)

    def is_stuck(self, batch: Batch) -> bool:
        """Return whether a batch waits for memory, and no batch in flight will return any."""
        return self.no_memory is not None and batch in self.backlog and not self._in_flight

    def is_lost(self, batch: Batch) -> bool:
        """Return whether a batch will never complete, because of the failure."""
        return batch.slot is None or batch.ticket >= self._first_lost

    def retract(self, batch: Batch) -> bool:
        """Put the last ready batch that is needed after `batch` back into the backlog, for its memory.

        Returns:
            Whether there was one that its source can compute again.
        """
        later = [other for other in self._ready if other.key.turn > batch.key.turn and self._source_of(other).makes_again]
        if not later:
            return False
        last = max(later, key=lambda other: other.key.turn)
        self._ready.discard(last)
        last.outcome = None
        self._queue_again(last)
        return True

    def cancel(self, batch: Batch) -> None:
        """Cancel a batch. Its slot returns to the ring once no worker writes to it any more."""
        self._ready.discard(batch)
        batch.cancelled = True
        batch.outcome = None
        if batch.slot is not None:
            batch.slot.header[Header.CANCELLED] = 1
        elif batch in self.backlog:
            self.backlog.remove(batch)

    def cancel_all(self) -> None:
        """Cancel all batches."""
        for batch in [*self._in_flight.values(), *self.backlog, *self._ready]:
            self.cancel(batch)

    def release(self) -> None:
        """Return the slots of all batches in flight. The workers must have ended."""
        for batch in self._in_flight.values():
            batch.end_grants()
            if batch.slot is not None:
                self._assemblers[batch.key.source].ring.release(batch.slot)
        self._in_flight.clear()
        self._ready.clear()

    def close(self) -> None:
        """Close the main process's ends of the pipes."""
        self.pipes.close()

    # Posting tasks

    def post(self) -> None:
        """Begin batches of the backlog and post their tasks, as long as the pipes have room for all records of a batch."""
        self.no_memory = None
        while self.backlog and self.failure is None:
            if self._scarce is not None:
                return
            batch = self.backlog[0]
            assembler = self._assemblers[batch.key.source]
            # The first batch of a source shows the schema of its samples. The others need it for their slots.
            if (
                not assembler.known
                and assembler.needs_first_batch
                and any(other.key.source == batch.key.source for other in self._in_flight.values())
            ):
                return
            num_tasks = len(batch.key.owners) or -(-batch.key.size // assembler.task_size)
            if self._open_tasks and self._open_tasks + num_tasks > self.pipes.most_open_tasks:
                return
            ticket = next(self._tickets)
            try:
                assembler.begin(batch, ticket)
            except OutOfMemoryError as error:
                self.no_memory = without_frames(error)  # raised if there is still none when a caller waits for the batch
                return
            if assembler.source.caches and self._shares_caches:
                self._grant(batch, assembler.source, num_tasks)
            self._scarce = batch if batch.missing_bytes else None
            self._in_flight[ticket] = batch
            self._open_tasks += num_tasks
            self.backlog.popleft()
            self._send(batch, range(num_tasks))

    def _grant(self, batch: Batch, source: Source, num_tasks: int) -> None:
        """Give a batch room in the sample caches of its source."""
        slot = batch.slot
        assert slot is not None
        from dali_like.engine.memory.sample_cache import link_grants  # most sources have no cache

        batch.grants = tuple(cache.grant(num_tasks, slot.slot_layout.task_size) for cache in source.caches)
        slot.header[Header.CACHE : Header.JOURNAL_PAGE + 1] = link_grants(batch.grants)

    def _send(self, batch: Batch, tasks: Sequence[int]) -> None:
        """Write tasks into the pipes of their workers, or for ANY_WORKER into the shared pipe."""
        assert batch.slot is not None
        key, ticket, page = batch.key, batch.ticket, batch.slot.page
        if self._assignments is None and not key.owners:
            self.pipes.post(key.worker, b"".join(map(TASK.pack, repeat(ticket), repeat(page), tasks)))
            return
        for task in tasks:
            chosen = key.worker_of(task)
            if self._assignments is not None:
                if chosen == ANY_WORKER:
                    chosen = self._assignments.choose()
                self._assignments.add(chosen, ticket, task)  # first: the worker may have taken it right after
            self.pipes.post(chosen, TASK.pack(ticket, page, task))

    def _source_of(self, batch: Batch) -> Source:
        return self._assemblers[batch.key.source].source

    # Reading reports

    def read_reports(self) -> None:
        """Read all reports in the pipe."""
        reports = b""
        while len(reports) in (0, _REPORT_BYTES):
            try:
                reports = os.read(self.pipes.done.number, _REPORT_BYTES)
            except BlockingIOError:
                return
            if not reports:
                return  # end of file: no worker is left
            whole = len(reports) // DONE.size * DONE.size
            for report in DONE.iter_unpack(reports[:whole]):
                self._note(*report)
            if whole < len(reports):
                self._report_corruption("is incomplete")

    def _note(self, ticket: int, task: int, worker: int, status: int, value: int) -> None:
        batch = self._in_flight.get(ticket)
        if batch is None or not batch.open_tasks >> task & 1:
            return
        slot = batch.slot
        assert slot is not None
        # Most reports have nothing to note.
        if status != Status.DENSE or not slot.slot_layout.all_dense or not (0 <= worker < self._num_workers and value >= 0):
            if not _is_plausible(batch, worker, status, value, self._num_workers):
                self._report_corruption(f"is invalid (task {task}, worker {worker}, status {status}, value {value})")
                return
            _note_report(batch, task, worker, status, value)
        batch.open_tasks &= ~(1 << task)
        if worker != NO_WORKER and status != Status.SKIPPED:
            batch.reported |= 1 << task
        self._open_tasks -= 1
        if not batch.open_tasks:
            self._complete(batch)
        elif task == 0 and status == Status.DESCRIBED and not self._assemblers[batch.key.source].known:
            self._assemblers[batch.key.source].learn_early(batch, slot)

    def _report_corruption(self, problem: str) -> None:
        self.fail_at_once(
            CorruptionError(
                f"a report of a worker {problem}: a callback has written into memory or a file descriptor of dali_like; "
                "check the native code that callbacks use"
            )
        )

    def _complete(self, batch: Batch) -> None:
        """Decide the outcome of a batch whose tasks have all been reported, or queue it again."""
        assembler = self._assemblers[batch.key.source]
        slot = batch.slot
        assert slot is not None
        batch.slot = None
        if batch.grants:
            batch.end_grants()
        del self._in_flight[batch.ticket]
        self.num_completed += 1
        if batch is self._scarce:
            self._scarce = None
        if batch.cancelled:
            assembler.ring.release(slot)
            return
        try:
            batch.outcome = self._outcome_of(batch, slot, assembler)
        except Exception as error:  # such as MemoryError: it belongs to this batch, and not to the caller's
            batch.outcome = error
        outcome = batch.outcome
        if type(outcome) in RESULTS or not (outcome is None or is_a(outcome, Exception, Failure)):
            self._ready.add(batch)

    def _outcome_of(self, batch: Batch, slot: Slot, assembler: Assembler) -> Outcome:
        """Return the outcome of a batch, which takes or releases its slot; None if the batch is queued again."""
        failure: Exception | Failure | None = None
        try:
            batch.size = assembler.end_of(batch, slot)
            if batch.failed_sample < min(batch.first_unmade, batch.size):
                failure = self._failure_of(batch, slot, assembler)
        except CorruptionError as error:
            failure = error
        if failure is not None:
            assembler.ring.release(slot)
            return failure
        if batch.first_unmade < batch.size:
            return self._recompute(batch, slot, assembler)
        if self.hooks.assemble is None:
            return assembler.finish(batch, slot)
        outcome: Outcome = self.hooks.assemble(assembler.finish, batch, slot)
        return outcome

    def _failure_of(self, batch: Batch, slot: Slot, assembler: Assembler) -> Exception | Failure:
        """Return the failure of a batch: that of its first failed sample."""
        if batch.failed_task == _STOPPED:
            return StopIteration()
        if batch.fatal is not None and batch.failed_worker < 0:
            return batch.fatal
        start = slot.offset + slot.slot_layout.region_offset(batch.failed_task)
        message = read_message(self._space, start, int(slot.marks[batch.failed_task]))
        sample, name = batch.failed_sample, assembler.source.name
        where = f"in worker {batch.failed_worker} ({self._unit} {pid_in_cell(self._space, batch.failed_worker)})"
        return Failure(
            message,
            lambda: f"{name} for {assembler.describe(batch.key, sample)}, {where}",
            advice if self._imports_main else lambda _: None,
        )

    def _recompute(self, batch: Batch, slot: Slot, assembler: Assembler) -> DaliLikeError | None:
        """Queue a batch again whose regions were too small, or lacked memory. Return an error if that is futile."""
        try:
            if batch.needed_bytes:
                assembler.ring.release(slot)
                assembler.enlarge(batch.needed_bytes, slot.slot_layout.task_size)
            else:
                assembler.give_up_memory(batch, slot)
        except DaliLikeError as error:
            return error
        self._queue_again(batch)
        return None

    def _queue_again(self, batch: Batch) -> None:
        # The backlog as it is may be unsorted: some sources are further ahead than others.
        self.backlog = deque(sorted((*self.backlog, batch), key=_order_of))

    # For `dali_like.engine.pool.recovery.Recovery`

    def has_waiting_tasks(self) -> bool:
        """Return whether the pipes have tasks that no worker has taken."""
        return self.pipes.has_waiting_tasks()

    @property
    def num_open_tasks(self) -> int:
        """The number of tasks that have been posted and not been reported."""
        return self._open_tasks

    def note_running(self, worker: int, *, running: bool) -> None:
        """Take note whether a worker takes tasks."""
        if self._assignments is not None:
            (self._assignments.running.add if running else self._assignments.running.discard)(worker)

    def taken_by(self, worker: int) -> Sequence[tuple[int, int]]:
        """Return ticket and number of each unfinished task of a worker, if the account of tasks is kept here."""
        return () if self._assignments is None else self._assignments.taken_by(worker)

    def share_out(self) -> None:
        """Move tasks from the pipes of busy workers to idle workers, where workers do not share a pipe."""
        if self._assignments is None or not self._open_tasks:
            return
        for idle in self._assignments.idle():
            donors = self._assignments.running - self._bound  # tasks that only one worker can compute stay in order
            donor = max(donors, key=self.pipes.num_waiting, default=None)
            record = None if donor is None else self.pipes.take_first(donor)
            if donor is None or record is None:
                return
            ticket, _, task = TASK.unpack(record)
            self._assignments.move((ticket, task), donor, idle)
            self.pipes.post(idle, record)

    def _is_open(self, ticket: int, task: int) -> bool:
        return self.batch_of(ticket, task) is not None

    def batch_of(self, ticket: int, task: int) -> Batch | None:
        """Return the batch with a ticket if this task of it is open, else None."""
        batch = self._in_flight.get(ticket)
        return batch if batch is not None and batch.open_tasks >> task & 1 else None

    def post_again(self, unfinished: UnfinishedTask) -> None:
        """Post a task of a dead worker at once."""
        self._send(unfinished.batch, [unfinished.task])

    def post_in_turn(self, unfinished: UnfinishedTask) -> None:
        """Post a task of a dead worker again; in order, if one worker computes all batches in their order."""
        key = unfinished.batch.key
        if key.owners or key.worker == ANY_WORKER:
            self.post_again(unfinished)
        else:
            # The task is in no worker, so the whole batch goes back.
            batch = unfinished.batch
            slot, batch.slot = batch.slot, None
            assert slot is not None
            batch.end_grants()
            del self._in_flight[batch.ticket]
            self._open_tasks -= 1
            if batch is self._scarce:
                self._scarce = None
            self._assemblers[batch.key.source].ring.release(slot)
            if not batch.cancelled:
                self._queue_again(batch)

    def take_back(self, worker: int) -> None:
        """Post or queue the tasks again that a worker that has ended took behind its first one, or left in its pipe."""
        begun = self.taken_by(worker)[1:]  # before its pipe is read
        untaken = [*begun, *((ticket, task) for ticket, _, task in self.pipes.take_back(worker))]
        if self._assignments is not None:
            self._assignments.forget(worker)
        for ticket, task in untaken:
            batch = self.batch_of(ticket, task)
            if batch is not None:
                self.post_in_turn(UnfinishedTask(batch, task, 0))

    def give_up(self, unfinished: UnfinishedTask, error: WorkerError) -> None:
        """Fail a batch because of a sample that cannot be computed."""
        if unfinished.sample < unfinished.batch.failed_sample:
            unfinished.batch.fatal = error
        self._note(unfinished.batch.ticket, unfinished.task, NO_WORKER, Status.FAILED, unfinished.sample)

    def hold(self, unfinished: UnfinishedTask) -> Lease[Slot]:
        """Keep the slot of a task from being reused."""
        slot = unfinished.batch.slot
        assert slot is not None
        return self._assemblers[unfinished.batch.key.source].ring.hold(slot)

    def can_repeat(self, unfinished: UnfinishedTask) -> bool:
        """Return whether another worker could compute the task while a hanging thread still does."""
        return self._source_of(unfinished.batch).makes_again

    def fail(self, error: WorkerError, first_lost: Batch | None) -> None:
        """Begin no more batches. `first_lost` and the batches after it will not complete; None: those not begun yet."""
        self.failure = self.failure or error
        ticket = first_lost.ticket if first_lost is not None else next(self._tickets)
        self._first_lost = min(self._first_lost, ticket)

    def fail_at_once(self, error: DaliLikeError) -> None:
        """Begin no more batches. No batch that is incomplete now will complete."""
        self.failure = self.failure or error
        self._first_lost = NO_TICKET

    def depends_on(self, worker: int) -> bool:
        """Return whether some batches can be computed by this worker only."""
        return worker in self._bound

    def retire(self, num_workers: int) -> None:
        """Ask idle workers to stop."""
        _lift_limits(self._space, self._num_workers)
        self.pipes.retire(num_workers)

    def clear_tasks(self) -> None:
        """Empty the pipes. All workers must have ended, and the tasks in the pipes must be of cancelled batches."""
        for ticket, _, task in self.pipes.take_back_all():
            self._note(ticket, task, NO_WORKER, Status.SKIPPED, 0)
        if self._assignments is not None:
            for worker in range(self._num_workers):
                self._assignments.forget(worker)

    def describe(self, unfinished: UnfinishedTask) -> str:
        """Describe an unfinished task for messages: the source, and the sample."""
        assembler = self._assemblers[unfinished.batch.key.source]
        return (
            f"{assembler.source.name} was computing {assembler.describe_unfinished(unfinished.batch.key, unfinished.sample)}"
        )


def _order_of(batch: Batch) -> tuple[int, int]:
    return batch.key.turn, batch.key.iteration


def _part_done(batch: Batch) -> float:
    return 1 - batch.open_tasks.bit_count() / batch.num_tasks


def _send_stop(in_flight: dict[int, Batch], pipes: Pipes, space: SharedSpace, num_workers: int) -> None:
    """Cancel all batches in flight, and tell the workers to stop."""
    for batch in in_flight.values():
        if batch.slot is not None:
            batch.slot.header[Header.CANCELLED] = 1
    _lift_limits(space, num_workers)
    pipes.send_stop(num_workers)


def _lift_limits(space: SharedSpace, num_workers: int) -> None:
    """Let resting workers take records again: one of these tells them to stop."""
    for worker in range(num_workers):
        limit_worker(space, worker, UNLIMITED)


def _is_plausible(batch: Batch, worker: int, status: int, value: int, num_workers: int) -> bool:
    """Return whether a worker may report this for a task of a batch. Anything else has been written by other code."""
    if (worker >= num_workers and worker != NO_WORKER) or value < 0:
        return False
    assert batch.slot is not None
    slot_layout = batch.slot.slot_layout
    return (
        (status == Status.DENSE and slot_layout.all_dense)
        or (status == Status.DESCRIBED and value <= slot_layout.region_bytes)
        or (status in (Status.STOPPED, Status.FAILED) and value < batch.key.stop)
        or (status == Status.TOO_LARGE and value > slot_layout.region_bytes)
        or (status == Status.SKIPPED and batch.cancelled)
        or (status == Status.NO_MEMORY and value > 0)
    )


def _note_report(batch: Batch, task: int, worker: int, status: int, value: int) -> None:
    """Record the report of a task on its batch."""
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
