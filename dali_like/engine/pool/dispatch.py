"""Tasks on their way: posted through pipes, reported by workers, until the batches that they make are complete.

A `Dispatcher` knows which batches wait for their turn, which are under way, and which are complete and have not been asked
for. It never waits and never blocks, so that Ctrl-C cannot interrupt it; who waits is `dali_like.engine.pool.pool`.
"""

from __future__ import annotations

import itertools
import os
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from dali_like.engine.memory.batch_key import ANY_WORKER
from dali_like.engine.memory.protocol import DONE, NO_TICKET, TASK, Header, Status
from dali_like.engine.memory.ring import Lease, Slot
from dali_like.engine.memory.space import SharedSpace
from dali_like.engine.pool.assembler import Assembler
from dali_like.engine.pool.batch import Batch
from dali_like.engine.pool.pipes import Pipes
from dali_like.engine.pool.reports import NO_WORKER, failure_of, is_plausible, note_report
from dali_like.engine.pool.work import UnfinishedTask
from dali_like.engine.pool.workers import WorkerOptions
from dali_like.engine.worker.exceptions import without_frames
from dali_like.engine.worker.source import Source
from dali_like.errors import CorruptionError, DaliLikeError, OutOfMemoryError, WorkerError

#: As many reports as fit into a page of a pipe are read at a time.
_REPORT_BYTES = 4096 // DONE.size * DONE.size
_NO_LIMIT = 1 << 64


class Dispatcher:
    """Posts the tasks of batches and takes note of what workers report; also `dali_like.engine.pool.work.Work`.

    Args:
        assemblers: of the sources.

    Attributes:
        pipes: to the workers, and from them.
        failure: why no more batches are begun.
        no_memory: why the first of those that wait could not be begun, when that was last tried.
        num_completed: how many batches have been completed, whatever has become of them.
        backlog: the batches that wait for their turn.
    """

    def __init__(self, assemblers: Sequence[Assembler], space: SharedSpace, options: WorkerOptions) -> None:
        self._assemblers = assemblers
        self._space = space
        self._num_workers = options.num_workers
        self._unit = options.unit
        self._tickets = itertools.count(NO_TICKET + 1)
        self._in_flight: dict[int, Batch] = {}
        self.backlog: deque[Batch] = deque()
        #: A batch that there was no memory for has it to itself while it is made again.
        self._scarce: Batch | None = None
        #: The workers that alone can make some batches.
        self._bound: set[int] = set()
        #: Complete, and not asked for yet.
        self._ready: set[Batch] = set()
        self._delivered = self._sum_ready = 0
        self._open_tasks = 0
        #: The ticket of the first batch that will not be completed because of the failure.
        self._first_lost = _NO_LIMIT
        self.failure: Exception | None = None
        self.no_memory: OutOfMemoryError | None = None
        self.num_completed = 0

        self.pipes = Pipes(options.num_workers, own=any(assembler.source.in_order for assembler in assemblers))

    @property
    def farewell(self) -> Callable[[], None]:
        """What lets workers find the end of their work, for who has no dispatcher any more."""
        return partial(_dismiss, self._in_flight, self.pipes, self._num_workers)

    @property
    def is_over(self) -> bool:
        """Whether workers have been told to end: by who closes the pipeline, or since the program ends."""
        return self.pipes.is_closed

    @property
    def has_failed(self) -> bool:
        """Whether it begins no more batches: its workers have died too often, say."""
        return self.failure is not None

    @property
    def num_made(self) -> float:
        """How many batches have been completed, those that are under way in part."""
        return self.num_completed + sum(map(_part_done, self._in_flight.values()))

    @property
    def mean_ready(self) -> float:
        """How many batches of a source were complete, on the average, whenever one was asked for, that one included."""
        return self._sum_ready / max(self._delivered, 1) / len(self._assemblers)

    def occupancy(self, source: int) -> tuple[int, int]:
        """How many batches of a source are under way, and how many ready. May be called in any thread."""
        batches = list(self._in_flight.values()), list(self._ready)
        making, ready = (sum(batch.key.source == source for batch in some) for some in batches)
        return making, ready

    def num_begun(self, source: int) -> int:
        """How many batches of a source have been asked for here, are still wanted, and have not been delivered."""
        batches = (*self._in_flight.values(), *self._ready, *self.backlog)
        return sum(batch.key.source == source and not batch.cancelled for batch in batches)

    def add(self, batch: Batch) -> None:
        """Let a batch wait for its turn."""
        self._bound.add(batch.key.worker)
        self.backlog.append(batch)

    def deliver(self, batch: Batch) -> None:
        """Take note that a batch has been asked for."""
        self._delivered += 1
        self._sum_ready += len(self._ready)
        self._ready.discard(batch)

    def is_stuck(self, batch: Batch) -> bool:
        """Whether a batch waits for memory that nobody is going to give back."""
        return self.no_memory is not None and batch in self.backlog and not self._in_flight

    def is_lost(self, batch: Batch) -> bool:
        """Whether a batch will not be completed because of the failure."""
        return batch.slot is None or batch.ticket >= self._first_lost

    def retract(self, batch: Batch) -> bool:
        """Take its memory from the last of the batches that are ready and come after this one; whether there is one."""
        later = [other for other in self._ready if other.key.turn > batch.key.turn and self._source_of(other).makes_again]
        if not later:
            return False
        last = max(later, key=lambda other: other.key.turn)
        self._ready.discard(last)
        last.outcome = None
        self._queue_again(last)
        return True

    def cancel(self, batch: Batch) -> None:
        """Forget a batch. Its slot is used again when no worker writes to it any more."""
        self._ready.discard(batch)
        batch.cancelled = True
        batch.outcome = None
        if batch.slot is not None:
            batch.slot.header[Header.CANCELLED] = 1
        elif batch in self.backlog:
            self.backlog.remove(batch)

    def cancel_all(self) -> None:
        """Forget all batches."""
        for batch in [*self._in_flight.values(), *self.backlog, *self._ready]:
            self.cancel(batch)

    def release(self) -> None:
        """Give back the slots of what is under way."""
        for batch in self._in_flight.values():
            if batch.slot is not None:
                self._assemblers[batch.key.source].ring.release(batch.slot)
        self._in_flight.clear()
        self._ready.clear()

    def close(self) -> None:
        """Close the main process's ends of the pipes."""
        self.pipes.close()

    # Posting tasks

    def post(self) -> None:
        """Send out the tasks of the batches that wait, as far as the pipes have room for all their records."""
        self.no_memory = None
        while self.backlog and self.failure is None:
            if self._scarce is not None:
                return
            batch = self.backlog[0]
            assembler = self._assemblers[batch.key.source]
            # The first batch of a source shows what its samples look like; the others would only have to guess.
            if assembler.holds_back and any(other.key.source == batch.key.source for other in self._in_flight.values()):
                return
            num_tasks = assembler.ring.slot_layout.num_tasks(batch.key.size)
            if self._open_tasks and self._open_tasks + num_tasks > self.pipes.most_open_tasks:
                return
            ticket = next(self._tickets)
            try:
                slot = assembler.begin(batch, ticket)
            except OutOfMemoryError as error:
                self.no_memory = without_frames(error)  # to be raised when the batch is asked for, if there is none then
                return
            self._scarce = batch if batch.missing_bytes else None
            self._in_flight[ticket] = batch
            self._open_tasks += num_tasks
            self.backlog.popleft()
            self.pipes.post(batch.key.worker, b"".join([TASK.pack(ticket, slot.page, task) for task in range(num_tasks)]))

    def _source_of(self, batch: Batch) -> Source:
        return self._assemblers[batch.key.source].source

    # Reading reports

    def read_reports(self) -> None:
        """Note all reports that lie in the pipe."""
        reports = b""
        while len(reports) in (0, _REPORT_BYTES):
            try:
                reports = os.read(self.pipes.done.fileno(), _REPORT_BYTES)
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
        if not is_plausible(batch, worker, status, value, self._num_workers):
            self._report_corruption(
                f"says what no worker says (task {task}, worker {worker}, status {status}, value {value})"
            )
            return
        note_report(batch, task, worker, status, value)
        self._open_tasks -= 1
        if not batch.open_tasks:
            self._complete(batch)
        elif task == 0 and status == Status.DESCRIBED and not self._assemblers[batch.key.source].known:
            assert batch.slot is not None
            self._assemblers[batch.key.source].learn_early(batch, batch.slot)

    def _report_corruption(self, what: str) -> None:
        self.fail_at_once(
            CorruptionError(
                f"a report {what}; a callback has written where it must not, into memory or into a file descriptor that is "
                "not its own"
            )
        )

    def _complete(self, batch: Batch) -> None:
        """All tasks of a batch have been reported: what has become of it?"""
        assembler = self._assemblers[batch.key.source]
        slot = batch.slot
        assert slot is not None
        batch.slot = None
        del self._in_flight[batch.ticket]
        self.num_completed += 1
        if batch is self._scarce:
            self._scarce = None
        if batch.cancelled:
            assembler.ring.release(slot)
            return
        try:
            batch.size = assembler.end_of(batch, slot)
            if batch.failed_sample < min(batch.first_unmade, batch.size):
                batch.outcome = failure_of(batch, slot, assembler, self._space, self._unit)
        except CorruptionError as error:
            batch.outcome = error
        if batch.outcome is not None:
            assembler.ring.release(slot)
        elif batch.first_unmade < batch.size:
            batch.outcome = self._make_again(batch, slot, assembler)
        else:
            batch.outcome = assembler.finish(batch, slot)
            if not isinstance(batch.outcome, Exception):
                self._ready.add(batch)

    def _make_again(self, batch: Batch, slot: Slot, assembler: Assembler) -> DaliLikeError | None:
        """Queue a batch again whose samples found no room, or no memory; or why that would not help."""
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
        # Sources are not equally far ahead, so that the backlog as it is need not be in order.
        self.backlog = deque(sorted((*self.backlog, batch), key=_order_of))

    # For the recovery from the ends of workers, see `dali_like.engine.pool.work.Work`

    def has_waiting_tasks(self) -> bool:
        return self.pipes.has_waiting_tasks()

    @property
    def num_open_tasks(self) -> int:
        return self._open_tasks

    def batch_of(self, ticket: int, task: int) -> Batch | None:
        batch = self._in_flight.get(ticket)
        return batch if batch is not None and batch.open_tasks >> task & 1 else None

    def post_again(self, unfinished: UnfinishedTask) -> None:
        slot = unfinished.batch.slot
        assert slot is not None
        self.pipes.post(unfinished.batch.key.worker, TASK.pack(unfinished.batch.ticket, slot.page, unfinished.task))

    def post_in_turn(self, unfinished: UnfinishedTask) -> None:
        if unfinished.batch.key.worker == ANY_WORKER:
            self.post_again(unfinished)
        else:
            self._take_back(unfinished.batch)

    def take_back(self, worker: int) -> None:
        for ticket, _, task in self.pipes.take_back(worker):
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
        self._assemblers[batch.key.source].ring.release(slot)
        if not batch.cancelled:
            self._queue_again(batch)

    def give_up(self, unfinished: UnfinishedTask, error: WorkerError) -> None:
        if unfinished.sample < unfinished.batch.failed_sample:
            unfinished.batch.fatal = error
        self._note(unfinished.batch.ticket, unfinished.task, NO_WORKER, Status.FAILED, unfinished.sample)

    def hold(self, unfinished: UnfinishedTask) -> Lease[Slot]:
        slot = unfinished.batch.slot
        assert slot is not None
        return self._assemblers[unfinished.batch.key.source].ring.hold(slot)

    def can_repeat(self, unfinished: UnfinishedTask) -> bool:
        return self._source_of(unfinished.batch).makes_again

    def fail(self, error: WorkerError, first_lost: Batch | None) -> None:
        self.failure = self.failure or error
        ticket = first_lost.ticket if first_lost is not None else next(self._tickets)
        self._first_lost = min(self._first_lost, ticket)

    def fail_at_once(self, error: DaliLikeError) -> None:
        self.failure = self.failure or error
        self._first_lost = NO_TICKET

    def depends_on(self, worker: int) -> bool:
        return worker in self._bound

    def retire(self, num_workers: int) -> None:
        self.pipes.retire(num_workers)

    def clear_tasks(self) -> None:
        for ticket, _, task in self.pipes.take_back_all():
            self._note(ticket, task, NO_WORKER, Status.SKIPPED, 0)

    def describe(self, unfinished: UnfinishedTask) -> str:
        assembler = self._assemblers[unfinished.batch.key.source]
        return f"{assembler.source.name} was making {assembler.describe_unfinished(unfinished.batch.key, unfinished.sample)}"


def _order_of(batch: Batch) -> tuple[int, int]:
    return batch.key.turn, batch.key.iteration


def _part_done(batch: Batch) -> float:
    assert batch.slot is not None
    return 1 - batch.open_tasks.bit_count() / batch.slot.slot_layout.num_tasks(batch.key.size)


def _dismiss(in_flight: dict[int, Batch], pipes: Pipes, num_workers: int) -> None:
    """Let workers find the end of their work: nothing is left to be done, and nothing more will come."""
    for batch in in_flight.values():
        if batch.slot is not None:
            batch.slot.header[Header.CANCELLED] = 1
    pipes.dismiss(num_workers)
