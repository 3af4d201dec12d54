"""What happens when workers end without being told to.

A dead worker owes what its cell names, unless that has been reported. After the process has been collected, the task is
posted again and another worker started in its place, as often as the options allow. What that worker alone can do is
posted again in order, together with what it had not taken: an iterable only goes forward.

A sample that has ended two workers is under suspicion. No new batches are begun until all other tasks are done; then the
workers retire, and the task runs alone in a fresh worker, so that nobody else can be to blame. If that one dies of it too,
the sample is given up, and its batch fails. A sample that hangs is tried once more, then given up.
"""

from __future__ import annotations

import math
import signal
import time
from collections import defaultdict, deque
from collections.abc import Hashable

from dali_like.common.interrupts import POLL_INTERVAL_S
from dali_like.engine.memory.batch_key import ANY_WORKER, BatchKey
from dali_like.engine.memory.space import SharedSpace
from dali_like.engine.pool.batch import Batch
from dali_like.engine.pool.cells import Cells
from dali_like.engine.pool.hangs import HangWatch
from dali_like.engine.pool.restart_policy import FailureCount, RestartPolicy
from dali_like.engine.pool.work import UnfinishedTask, Work
from dali_like.engine.pool.workers import FORKSERVER, End, WorkerOptions, Workers
from dali_like.engine.worker.exceptions import unpack_exception
from dali_like.engine.worker.worker import START_FAILED
from dali_like.errors import (
    CorruptionError,
    WorkerDiedError,
    WorkerError,
    WorkerStartError,
    WorkerTimeoutError,
)

#: How long workers have to finish their sample when they are to rest; then they are killed.
_REST_GRACE_S = 0.5

#: The state of a worker that has not come to its first task, and what is said of one that stays in it.
_STARTS = "starts"
_START_TEXT = "since it was started: it is in a worker_setup, or its sources are being unpickled"

#: What is said of one that is a thread.
_STAYS_TEXT = (
    ". Python cannot end a thread from outside: it goes on until its callback returns or next runs Python code, and another "
    "one has taken its place"
)

#: Somebody may want to close the pipeline meanwhile.
_POLL_MS = POLL_INTERVAL_S * 1000


class Recovery:
    """Deals with the ends of the workers of a workers.

    Attributes:
        num_restarts: how often a worker has been started in the place of one that had died.
        num_workers: how many have been started, those included that others have taken the place of.
    """

    def __init__(self, workers: Workers, space: SharedSpace, options: WorkerOptions) -> None:
        self._workers = workers
        self._space = space
        self._cells = Cells(space, options.num_workers)
        self._options = options
        self._unit = options.unit
        self._restart_policy = RestartPolicy(options.restarts, options.num_workers)
        self._failures: defaultdict[tuple[BatchKey, int], FailureCount] = defaultdict(FailureCount)
        self._hung: dict[int, WorkerTimeoutError] = {}
        self._hung_at_start: set[int] = set()
        self._suspects: deque[UnfinishedTask] = deque()
        self._absent: set[int] = set()
        self._lost: set[int] = set()
        self._retiring = False
        self._resting = False
        self._isolated = False
        self.num_restarts = 0
        self.num_workers = options.num_first
        self._watch: HangWatch | None = None
        if options.timeout_s is not None:
            self._watch = HangWatch(workers, space, options.num_workers, options.timeout_s)

    @property
    def holds_back(self) -> bool:
        """Whether no new batches may be begun, since a sample is under suspicion."""
        return bool(self._suspects)

    @property
    def poll_ms(self) -> float:
        """How long to wait for news before calling `look` again."""
        return _POLL_MS if self._watch is None else min(_POLL_MS, self._watch.poll_ms)

    @property
    def num_replaced(self) -> int:
        """How many samples workers have replaced by what a source's ``on_error`` says."""
        return self._cells.num_replaced

    def grow(self, num_workers: int) -> None:
        """Start workers until there are so many; not while those that there are come to an end."""
        if self._suspects or self._retiring or self._resting:
            return
        for worker in range(self.num_workers, num_workers):
            self._workers.start(worker)
        self.num_workers = max(self.num_workers, num_workers)

    def look(self, work: Work) -> None:
        """Handle the ends that have become known, and look for hangs where it is time to."""
        while (end := self._workers.take_end()) is not None:
            self._handle(end, work)
        if self._suspects and not self._resting:
            self._isolate(work)
        if self._watch is not None and self._watch.due():
            self._look_for_hangs(work, self._watch)

    def look_for_losses(self, work: Work) -> None:
        """Give up if a task is nowhere: somebody has written into the cell that named it. To be called when all is quiet."""
        if self._has_waiting_tasks(work):
            return
        # A task that is not waiting is in a cell until another one takes its place there, and from now on none does; or it
        # is kept back, under suspicion.
        work.read_reports()
        known = {
            (unfinished.batch.ticket, unfinished.task)
            for unfinished in self._unfinished_tasks(work)
            if unfinished is not None
        }
        known |= {(unfinished.batch.ticket, unfinished.task) for unfinished in self._suspects}
        if len(known) < work.num_open_tasks:
            work.fail_at_once(
                CorruptionError("a task has been lost; a callback has written into memory that is not its own, and died")
            )

    def rest(self, work: Work) -> None:
        """Let all workers end, or end those that do not within a grace period."""
        num_workers = self.num_workers
        self._resting = True
        work.retire(num_workers - len(self._absent))
        deadline_s = time.monotonic() + _REST_GRACE_S
        while len(self._absent) < num_workers and not work.has_failed:
            self._workers.wait_for_news(max(0.0, min(POLL_INTERVAL_S, deadline_s - time.monotonic())))
            self.look(work)
            if time.monotonic() >= deadline_s:
                for worker in set(range(num_workers)) - self._absent:
                    self._workers.signal(worker, signal.SIGKILL)
                deadline_s = math.inf
        work.clear_tasks()
        while self._suspects:
            work.give_up(self._suspects.popleft(), WorkerError("a rest has come before it could be tried again"))
        self._isolated = False

    def wake(self) -> None:
        """Start all workers after a rest."""
        self._resting = self._retiring = False
        self._start_absent()

    def describe_workers_on(self, batch: Batch, work: Work) -> list[str]:
        """For each worker that is on a batch, or if none is, on others: which, what it is making, and its Python stack."""
        watch = self._watch or HangWatch(self._workers, self._space, self._options.num_workers, math.inf)
        unfinished_tasks = {
            worker: unfinished for worker, unfinished in enumerate(self._unfinished_tasks(work)) if unfinished is not None
        }
        on_batch = {worker: unfinished for worker, unfinished in unfinished_tasks.items() if unfinished.batch is batch}
        return [
            f"worker {worker} ({self._unit} {self._workers.pids[worker]}): {work.describe(task)}:\n{watch.stack_of(worker)}"
            for worker, task in (on_batch or unfinished_tasks).items()
        ]

    def _handle(self, end: End, work: Work) -> None:
        """Deal with the end of a worker, or of the forkserver."""
        # What it has completed before counts.
        work.read_reports()
        if end.worker == FORKSERVER:
            work.fail_at_once(WorkerError("the process that starts the workers has ended, and the workers with it"))
            return
        if end.exitcode == START_FAILED and not self._resting and (message := self._cells.last_words(end.worker)):
            work.fail_at_once(_start_error(f"worker {end.worker} ({self._unit} {end.pid})", message))
            return
        unfinished = self._unfinished_of(end.worker, work)
        if unfinished is not None and end.keep is not None:
            end.keep(work.hold(unfinished))
        if self._resting and unfinished is not None:
            work.give_up(unfinished, WorkerDiedError("ended in the middle of what nobody wanted", end.pid, end.exitcode))
            unfinished = None
        if (self._retiring or self._resting) and unfinished is None:
            self._forget(end.worker)
            self._absent.add(end.worker)
            return
        error: WorkerError | None = self._hung.pop(end.worker, None)
        if error is not None and end.worker in self._hung_at_start:
            work.fail_at_once(error)  # as where the start raises: another worker would come no further
            return
        if error is None:
            doing = "while it was idle" if unfinished is None else f"while {work.describe(unfinished)}"
            what = f"worker {end.worker} ({self._unit} {end.pid}) {self._workers.describe_exit(end)} {doing}"
            if crash := self._cells.crash_of(end.worker, end.exitcode):
                what += f":\n{crash}"
            error = WorkerDiedError(what, end.pid, end.exitcode)
        if self._restart_policy.take(end.worker):
            self._replace(end, unfinished, error, work)
        else:
            self._lose(end.worker, unfinished, error, work)

    def _replace(self, end: End, unfinished: UnfinishedTask | None, error: WorkerError, work: Work) -> None:
        """Start another worker in the place of one that has ended, and see to what that one owes."""
        self.num_restarts += 1
        self._forget(end.worker)
        work.take_back(end.worker)
        if unfinished is not None and end.keep is not None:
            if not work.can_repeat(unfinished):
                work.fail_at_once(error)
                return
            work.give_up(unfinished, error)  # nobody else may write to where that thread will go on writing
        elif unfinished is not None:
            self._settle(unfinished, error, work)
        self._workers.start(end.worker)

    def _lose(self, worker: int, unfinished: UnfinishedTask | None, error: WorkerError, work: Work) -> None:
        """Go without a worker that may not be replaced any more, up to what it owes."""
        self._lost.add(worker)
        error.add_note(self._restart_policy.refusal)
        # Where others go on they complete what comes before. Not so while a suspect keeps everybody back.
        others = len(self._lost) < self.num_workers
        if others and not self._suspects and not work.depends_on(worker):
            work.fail(error, unfinished.batch if unfinished is not None else None)
        else:
            work.fail_at_once(error)

    def _settle(self, unfinished: UnfinishedTask, error: WorkerError, work: Work) -> None:
        """Decide about the task of a dead worker."""
        failures = self._failures[unfinished.batch.key, unfinished.sample]
        if isinstance(error, WorkerTimeoutError):
            failures.hangs += 1
        else:
            failures.deaths += 1
        if unfinished.batch.cancelled or failures.is_hopeless:
            error.add_note(f"workers that this sample has ended: {failures.hangs + failures.deaths}; it is given up")
            work.give_up(unfinished, error)
        elif failures.is_suspicious and not (self._isolated or self._lost):
            self._suspects.append(unfinished)
        else:
            work.post_in_turn(unfinished)

    def _isolate(self, work: Work) -> None:
        """Bring it about that the first suspect runs alone in a fresh worker, or go on when it has."""
        num_workers = self.num_workers
        if self._isolated and not self._suspects[0].is_open:
            self._suspects.popleft()
            self._isolated = False
            if not self._suspects:
                self._start_absent()
                return
        if self._isolated:
            return
        if not self._retiring and not self._has_waiting_tasks(work) and not any(self._unfinished_tasks(work)):
            self._retiring = True
            work.retire(num_workers - len(self._absent))
        if self._retiring and len(self._absent) == num_workers:
            work.clear_tasks()  # one that has been killed meanwhile has left what tells it to end to the fresh one
            self._retiring = False
            self._isolated = True
            bound = self._suspects[0].batch.key.worker
            # Any will do, unless only one can: the one that may be replaced most often.
            self._start(min(self._absent, key=self._restart_policy.num_taken) if bound == ANY_WORKER else bound)
            work.post_again(self._suspects[0])

    def _has_waiting_tasks(self, work: Work) -> bool:
        # In this order: tasks are taken from those that wait, and wait for the one who has taken them.
        return work.has_waiting_tasks() or self._workers.has_waiting_tasks

    def _start_absent(self) -> None:
        for worker in sorted(self._absent):
            self._start(worker)

    def _start(self, worker: int) -> None:
        self._absent.discard(worker)
        self._workers.start(worker)

    def _look_for_hangs(self, work: Work, watch: HangWatch) -> None:
        """Kill the workers that have been on one sample for too long; `_handle` then does the rest."""
        waiting = work.has_waiting_tasks()
        for worker, unfinished in enumerate(self._unfinished_tasks(work)):
            if worker in self._hung or worker in self._absent or not self._workers.pids[worker]:
                continue
            state = self._state_of(worker, unfinished, waiting, watch)
            if watch.is_overdue(worker, state, starting=state is _STARTS):
                doing = _START_TEXT if state is _STARTS else "although there was work"
                if unfinished is not None:
                    doing = f"while {work.describe(unfinished)}"
                stays = "" if self._unit == "pid" else _STAYS_TEXT
                self._hung[worker] = WorkerTimeoutError(
                    f"worker {worker} ({self._unit} {self._workers.pids[worker]}) has shown no progress for "
                    f"{watch.limit_s(starting=state is _STARTS)} s {doing}{stays}:\n{watch.stack_of(worker)}"
                )
                if state is _STARTS:
                    self._hung_at_start.add(worker)
                self._workers.signal(worker, signal.SIGKILL)

    def _state_of(self, worker: int, unfinished: UnfinishedTask | None, waiting: bool, watch: HangWatch) -> Hashable:
        """What a worker must not stay in for too long; None where it may."""
        if unfinished is not None:
            # On its way to an item of an iterable, it passes those before.
            return unfinished.batch.ticket, unfinished.task, unfinished.sample, self._cells.num_skipped(worker)
        if waiting and watch.is_stopped(worker):
            return "stopped"  # it leaves tasks lying
        return None if self._cells.has_started(worker) else _STARTS

    def _unfinished_tasks(self, work: Work) -> list[UnfinishedTask | None]:
        return [self._unfinished_of(worker, work) for worker in range(self._options.num_workers)]

    def _unfinished_of(self, worker: int, work: Work) -> UnfinishedTask | None:
        """What a worker owes: the task that its cell names, if that is still open."""
        ticket, task = self._cells.task_of(worker)
        batch = work.batch_of(ticket, task)
        if batch is None or batch.slot is None:
            return None
        task_size = batch.slot.slot_layout.task_size
        # A worker that has only just taken the task may not have said yet which sample it begins with.
        key = batch.key
        stop = key.parts if key.parts > 1 else min((task + 1) * task_size, key.size)
        sample = min(max(self._cells.sample_of(worker), task * task_size), stop - 1)
        return UnfinishedTask(batch, task, sample)

    def _forget(self, worker: int) -> None:
        """Another one may come in the place of a worker that has ended."""
        self._cells.clear(worker)
        self._hung.pop(worker, None)
        self._hung_at_start.discard(worker)
        if self._watch is not None:
            self._watch.forget(worker)


def _start_error(worker: str, message: bytes) -> WorkerStartError:
    cause = unpack_exception(message)
    error = WorkerStartError(f"{worker} could not start: {cause!r}")
    error.__cause__ = cause
    return error
