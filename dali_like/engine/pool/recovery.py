"""Replace workers that die or hang, and post their unfinished tasks again. Runs in the main process; owns no memory.

1. A worker ends. The cell of the worker still names its last task. The task is unfinished unless it has been reported.
2. The task is posted again, and another worker starts in the same place, as often as `RestartPolicy` allows. Tasks that only
   this worker can do (iterables advance in order) are posted again in order.
3. A sample that has ended two workers becomes a suspect. The pool then isolates it, see `Phase`: the task runs alone in a
   fresh worker, so that no other sample can be the cause. If that worker dies too, the batch fails.
4. A sample that hangs is tried once more. After the second time, the batch fails.
5. If the forkserver ends, its workers end with it, and none of their samples is a cause. When all of them are gone, another
   forkserver starts them again, as often as `RestartPolicy` allows.
"""

from __future__ import annotations

import enum
import itertools
import math
import signal
import time
from collections import defaultdict, deque
from collections.abc import Hashable

from dali_like.common.foreign_errors import repr_of
from dali_like.common.interrupts import POLL_INTERVAL_S
from dali_like.engine.memory.batch_key import ANY_WORKER, BatchKey
from dali_like.engine.memory.protocol import FORKSERVER
from dali_like.engine.memory.space import SharedSpace
from dali_like.engine.pool.batch import Batch
from dali_like.engine.pool.cells import Cells
from dali_like.engine.pool.dispatch import Dispatcher, UnfinishedTask
from dali_like.engine.pool.hangs import HangWatch, SilenceWatch
from dali_like.engine.pool.out_of_memory import OutOfMemoryWatch, describe_memory
from dali_like.engine.pool.workers import End, WorkerOptions, Workers
from dali_like.engine.worker.exceptions import unpack_exception
from dali_like.engine.worker.patched_names import advice
from dali_like.engine.worker.worker import START_FAILED
from dali_like.errors import (
    CorruptionError,
    WorkerDiedError,
    WorkerError,
    WorkerStartError,
    WorkerTimeoutError,
)

#: Restarts of a worker count against its limit for this long.
_RESTART_PERIOD_S = 60.0
#: A sample is isolated after this many deaths, and given up after that many.
_DEATHS_TO_SUSPECT = 2
_DEATHS_TO_GIVE_UP = 3
#: A worker is not replaced after so many in its place, in a row, that never became ready for tasks; nor is a forkserver
#: after so many without any ready worker. The next would fail as well.
_MOST_FAILED_STARTS = 10
#: A hanging sample is retried once.
_HANGS_TO_GIVE_UP = 2

#: `Recovery.rest` gives workers this long to finish their sample, then kills them.
_REST_GRACE_S = 0.5

#: The activity of a worker that has not reached its first task, for `HangWatch`, and its description in messages.
_STARTS = "starts"
_START_TEXT = "since it was started: it is in a worker_setup, or its sources are being unpickled"

#: Workers that a message about waiting describes.
_MOST_DESCRIBED = 8

#: Added to messages about a hanging thread.
_STAYS_TEXT = (
    ". Python cannot end a thread from outside: it goes on until its callback returns or next runs Python code, and another "
    "thread has taken its place"
)

#: Bounds each wait, so that another thread can close the pipeline.
_POLL_MS = POLL_INTERVAL_S * 1000


class WorkerState(enum.Enum):
    """State of one worker, that is of one number: a replacement has the number of the dead worker."""

    NOT_STARTED = enum.auto()  #: the pool has not grown so far
    RUNNING = enum.auto()  #: started; its end has not been handled
    HUNG = enum.auto()  #: killed, because it showed no progress; its end has not been handled
    HUNG_AT_START = enum.auto()  #: as HUNG, and it had not reached its first task
    STOPPED = enum.auto()  #: ended on request, without an unfinished task; `Recovery` starts it again
    ABANDONED = enum.auto()  #: ended, and never replaced; the pool has failed


TRANSITIONS: dict[WorkerState, frozenset[WorkerState]] = {
    WorkerState.NOT_STARTED: frozenset({WorkerState.RUNNING}),
    WorkerState.RUNNING: frozenset(
        {
            WorkerState.RUNNING,  # died, and was replaced
            WorkerState.HUNG,
            WorkerState.HUNG_AT_START,
            WorkerState.STOPPED,
            WorkerState.ABANDONED,
        }
    ),
    WorkerState.HUNG: frozenset({WorkerState.RUNNING, WorkerState.STOPPED, WorkerState.ABANDONED}),
    # A replacement would hang as well.
    WorkerState.HUNG_AT_START: frozenset({WorkerState.STOPPED, WorkerState.ABANDONED}),
    WorkerState.STOPPED: frozenset({WorkerState.RUNNING}),
    WorkerState.ABANDONED: frozenset(),
}

#: States of workers whose end has not been handled.
_ALIVE = frozenset({WorkerState.RUNNING, WorkerState.HUNG, WorkerState.HUNG_AT_START})


class Phase(enum.Enum):
    """Phase of the pool. The isolation of a suspect goes through DRAINING, RETIRING and ISOLATED, once for each suspect."""

    NORMAL = enum.auto()  #: batches are begun, and workers replaced
    DRAINING = enum.auto()  #: there is a suspect: no batch is begun until all other tasks are done
    RETIRING = enum.auto()  #: all tasks but the suspects are done: the workers have been asked to stop
    ISOLATED = enum.auto()  #: the first suspect runs alone in the only worker
    RESTING = enum.auto()  #: `Recovery.rest` has stopped, or is stopping, the workers


PHASES: dict[Phase, frozenset[Phase]] = {
    Phase.NORMAL: frozenset({Phase.DRAINING, Phase.RESTING}),
    Phase.DRAINING: frozenset({Phase.RETIRING, Phase.RESTING}),
    Phase.RETIRING: frozenset({Phase.ISOLATED, Phase.RESTING}),
    Phase.ISOLATED: frozenset({Phase.NORMAL, Phase.DRAINING, Phase.RESTING}),
    Phase.RESTING: frozenset({Phase.NORMAL, Phase.DRAINING}),  # DRAINING: an exception has interrupted `Recovery.rest`
}
_ISOLATING = frozenset({Phase.DRAINING, Phase.RETIRING, Phase.ISOLATED})


class RestartPolicy:
    """Limit how often workers, and the forkserver, are replaced.

    Args:
        most: replacements of each worker, and of the forkserver (`FORKSERVER`), within a minute; None: no limit.
    """

    def __init__(self, most: int | None, num_workers: int) -> None:
        self._most = most
        self._recent_s: dict[int, deque[float]] = {worker: deque() for worker in (*range(num_workers), FORKSERVER)}
        self._failed_starts = dict.fromkeys(self._recent_s, 0)

    def note_start(self, worker: int, *, succeeded: bool) -> None:
        """Take note whether a worker that has ended had become ready; or any worker of a forkserver that has ended."""
        self._failed_starts[worker] = 0 if succeeded else self._failed_starts[worker] + 1

    def refusal(self, worker: int) -> str:
        """The reason why a worker or the forkserver is not replaced, for messages."""
        if self._failed_starts[worker] >= _MOST_FAILED_STARTS:
            return (
                f"it is not replaced: {self._failed_starts[worker]} starts in a row have failed before the first task; "
                "check worker_setup, the modules that sources import, and the limits of this process"
            )
        of = "" if worker == FORKSERVER else " of each worker"
        return (
            f"it is not replaced: the limit is {self._most} restarts{of} within a minute; raise "
            "py_worker_restarts (worker_restarts of a DataLoader)"
        )

    def num_taken(self, worker: int) -> int:
        """Return the number of replacements of a worker that may still count."""
        return len(self._recent_s[worker])

    def take(self, worker: int) -> bool:
        """Count a replacement of a worker, and return True, or return False if a limit has been reached."""
        if self._failed_starts[worker] >= _MOST_FAILED_STARTS:
            return False
        if self._most is None:
            return True
        recent_s = self._recent_s[worker]
        now_s = time.monotonic()
        while recent_s and recent_s[0] < now_s - _RESTART_PERIOD_S:
            recent_s.popleft()
        if len(recent_s) >= self._most:
            return False
        recent_s.append(now_s)
        return True


class FailureCount:
    """The workers that one sample has ended.

    Attributes:
        deaths: workers that died on it.
        hangs: workers that hung on it and were killed.
    """

    deaths: int = 0
    hangs: int = 0

    @property
    def is_suspicious(self) -> bool:
        """Whether to isolate the sample."""
        return self.deaths >= _DEATHS_TO_SUSPECT

    @property
    def is_hopeless(self) -> bool:
        """Whether to give up the sample."""
        return self.hangs >= _HANGS_TO_GIVE_UP or self.deaths >= _DEATHS_TO_GIVE_UP


class Recovery:
    """Handle the ends of the workers of a pool.

    Invariants, outside of the methods:

    - `_states` has one state for each worker that may exist. It changes in `_move` alone, along `TRANSITIONS`. The first
      `num_workers` workers are not in NOT_STARTED; all others are.
    - `_phase` changes in `_enter` alone, along `PHASES`.
    - `_hang_errors` has an error for each worker in HUNG or HUNG_AT_START, and no other.
    - `_suspects` has open tasks that no worker has, in the phases DRAINING and RETIRING. In ISOLATED, the first suspect has
      been posted, or is being computed by the one RUNNING worker. It is closed by a report, or by `Dispatcher.give_up`.
      In NORMAL there is no suspect, and no worker is STOPPED.
    - Each open task is in exactly one place: in a pipe, in the cell of a worker that has started, or in `_suspects`. Only
      the task of an isolated suspect is in two. Where workers read tasks, a worker may have one that is not in its cell yet.
    - A worker is STOPPED only if its cell names no open task, and its cell is clear.
    - A worker that is ABANDONED implies that the dispatcher has failed.

    Attributes:
        num_restarts: replacements of dead workers so far.
        num_oom_kills: workers that the kernel has killed for lack of memory.
        num_workers: workers that have been started; a replacement does not count.
        is_isolating: whether no batch may be begun, because a suspect is being isolated.
    """

    def __init__(self, workers: Workers, space: SharedSpace, options: WorkerOptions, dispatcher: Dispatcher) -> None:
        self._workers = workers
        self._space = space
        self._dispatcher = dispatcher
        self._cells = Cells(space, options.num_workers)
        self._options = options
        self._unit = options.backend.unit
        self._can_kill = not options.backend.are_threads
        self._restart_policy = RestartPolicy(options.restarts, options.num_workers)
        self._failures: defaultdict[tuple[BatchKey, int], FailureCount] = defaultdict(FailureCount)
        self._states = [
            WorkerState.RUNNING if worker < options.num_first else WorkerState.NOT_STARTED
            for worker in range(options.num_workers)
        ]
        for worker in range(options.num_first):
            dispatcher.note_running(worker, running=True)
        self._phase = Phase.NORMAL
        self.is_isolating = False
        self._hang_errors: dict[int, WorkerTimeoutError] = {}
        self._suspects: deque[UnfinishedTask] = deque()
        self.num_restarts = self.num_oom_kills = 0
        self._memory_watch = OutOfMemoryWatch() if options.backend.has_processes else None
        self.num_workers = options.num_first
        self._silence = SilenceWatch()
        self._watch: HangWatch | None = None
        if options.timeout_s is not None:
            self._watch = HangWatch(workers, space, options.num_workers, options.timeout_s)

    @property
    def phase(self) -> Phase:
        """The phase of the pool."""
        return self._phase

    @property
    def poll_ms(self) -> float:
        """The longest time to wait before the next call of `look`."""
        return _POLL_MS if self._watch is None else min(_POLL_MS, self._watch.poll_ms)

    @property
    def num_replaced(self) -> int:
        """The number of samples that ``on_error`` of a source has replaced in workers."""
        return self._cells.num_replaced

    def grow(self, num_workers: int) -> None:
        """Start workers until there are `num_workers`. Does nothing unless the phase is NORMAL."""
        if self._phase is not Phase.NORMAL:
            return
        for worker in range(self.num_workers, num_workers):
            self._start(worker)
            self.num_workers = worker + 1

    def look(self) -> None:
        """Handle the ends of workers that have become known, continue an isolation, and look for hangs when that is due."""
        while (end := self._workers.take_end()) is not None:
            self._handle(end)
        if self.is_isolating:
            self._isolate()
        self._dispatcher.share_out()
        if self._watch is not None and self._watch.due():
            watch = self._watch
            waiting = self._dispatcher.has_waiting_tasks()
            for worker, unfinished in enumerate(self._unfinished_tasks()):
                if self._states[worker] is not WorkerState.RUNNING or not self._workers.pids[worker]:
                    continue
                activity = self._activity_of(worker, unfinished, waiting, watch)
                starting = activity is _STARTS
                if watch.is_overdue(worker, activity, starting=starting):
                    doing = _START_TEXT if starting else "although there was work"
                    if unfinished is not None:
                        doing = f"while {self._dispatcher.describe(unfinished)}"
                    stays = "" if self._can_kill else _STAYS_TEXT
                    self._hang_errors[worker] = WorkerTimeoutError(
                        f"worker {worker} ({self._unit} {self._workers.pids[worker]}) has shown no progress for "
                        f"{watch.limit_s(starting=starting)} s {doing}{stays}:\n{watch.stack_of(worker)}"
                    )
                    self._move(worker, WorkerState.HUNG_AT_START if starting else WorkerState.HUNG)
                    self._workers.signal(worker, signal.SIGKILL)

    def check_for_lost_tasks(self) -> None:
        """Fail if an open task is nowhere, because something has overwritten the cell that named it.

        Call it only after a wait without any event.
        """
        if self._has_waiting_tasks():
            return
        # No task waits in a pipe. So every open task is in a cell, until its worker takes the next one, or is a suspect.
        dispatcher = self._dispatcher
        dispatcher.read_reports()
        known = {
            (unfinished.batch.ticket, unfinished.task)
            for unfinished in (*itertools.chain(*map(self._taken_by, range(self._options.num_workers))), *self._suspects)
        }
        if len(known) < dispatcher.num_open_tasks:
            dispatcher.fail_at_once(
                CorruptionError(
                    "a task has been lost: a callback has written outside of its own memory, and its process died; check "
                    "the native code that callbacks use"
                )
            )

    def rest(self) -> None:
        """Stop all workers. Kill workers that do not finish within a grace period. All batches must have been cancelled."""
        dispatcher = self._dispatcher
        self._enter(Phase.RESTING)
        dispatcher.retire(self.num_workers - self._num_stopped)
        deadline_s = time.monotonic() + _REST_GRACE_S
        while self._num_stopped < self.num_workers and not dispatcher.has_failed:
            self._workers.wait_for_news(max(0.0, min(POLL_INTERVAL_S, deadline_s - time.monotonic())))
            self.look()
            if time.monotonic() >= deadline_s:
                for worker in range(self.num_workers):
                    if self._states[worker] is not WorkerState.STOPPED:
                        self._workers.signal(worker, signal.SIGKILL)
                deadline_s = math.inf
        dispatcher.clear_tasks()
        while self._suspects:
            dispatcher.give_up(self._suspects.popleft(), WorkerError("not retried: the workers have been stopped"))

    def wake(self) -> None:
        """Start the workers again after `rest`."""
        self._enter(Phase.DRAINING if self._suspects else Phase.NORMAL)
        self._start_stopped()

    def look_for_silence(self, batch: Batch) -> None:
        """Say in the log, once, that no sample is finished for long while the program waits for a batch.

        Call it only after a wait without any event.
        """
        if self._silence.due() and self._silence.lasts_too_long(self._progress()):
            import logging  # rarely needed, and slow to import

            logging.getLogger("dali_like").warning(
                "the program waits for a batch, and no sample has been finished for %.0f s: %s. To end such waits with an "
                "error, pass py_timeout_s= (timeout= to a DataLoader)",
                self._silence.silent_s,
                self.describe_wait(batch),
            )

    def _progress(self) -> Hashable:
        """Return a value that changes with each sample, start and end of a worker, and with each delivered batch."""
        steps = [
            None if unfinished is None else (unfinished.batch.ticket, unfinished.task, unfinished.sample)
            for unfinished in self._unfinished_tasks()
        ]
        workers = range(self.num_workers)
        started = [(self._cells.has_started(worker), self._cells.num_skipped(worker)) for worker in workers]
        return self._dispatcher.num_delivered, self._dispatcher.num_made, self.num_restarts, *steps, *started

    def describe_wait(self, batch: Batch) -> str:
        """Describe, in a line, the workers that a batch waits for: their samples, or that they have not started."""
        texts = [self._describe_worker(worker, unfinished) for worker, unfinished in self._busy_on(batch).items()]
        if not texts:
            texts = [
                f"worker {worker} has taken no task {_START_TEXT}"
                for worker, state in enumerate(self._states)
                if state is WorkerState.RUNNING and not self._cells.has_started(worker)
            ]
        shown = texts[:_MOST_DESCRIBED] or ["no worker has a task"]
        more = len(texts) - len(shown)
        return "; ".join([*shown, f"and {more} more workers"] if more > 0 else shown)

    def describe_workers_on(self, batch: Batch) -> list[str]:
        """Describe each worker with a task of a batch, or else each busy worker: its task and Python stack."""
        watch = self._watch or HangWatch(self._workers, self._space, self._options.num_workers, math.inf)
        return [
            f"{self._describe_worker(worker, unfinished)}:\n{watch.stack_of(worker)}"
            for worker, unfinished in self._busy_on(batch).items()
        ]

    def _busy_on(self, batch: Batch) -> dict[int, UnfinishedTask]:
        """Return the unfinished task of each worker with a task of a batch, or else of each busy worker."""
        unfinished_tasks = {
            worker: unfinished for worker, unfinished in enumerate(self._unfinished_tasks()) if unfinished is not None
        }
        on_batch = {worker: unfinished for worker, unfinished in unfinished_tasks.items() if unfinished.batch is batch}
        return on_batch or unfinished_tasks

    def _describe_worker(self, worker: int, unfinished: UnfinishedTask) -> str:
        pid = self._workers.pids[worker]
        return f"worker {worker} ({self._unit} {pid}): {self._dispatcher.describe(unfinished)}"

    # States

    def _move(self, worker: int, state: WorkerState) -> None:
        before = self._states[worker]
        if state not in TRANSITIONS[before]:
            raise RuntimeError(f"worker {worker}: no transition from {before.name} to {state.name}")
        self._states[worker] = state
        self._dispatcher.note_running(worker, running=state is WorkerState.RUNNING)

    def _enter(self, phase: Phase) -> None:
        if phase is self._phase:
            return
        if phase not in PHASES[self._phase]:
            raise RuntimeError(f"no transition from {self._phase.name} to {phase.name}")
        self._phase = phase
        self.is_isolating = phase in _ISOLATING

    @property
    def _num_stopped(self) -> int:
        return self._states.count(WorkerState.STOPPED)

    def _start(self, worker: int) -> None:
        self._move(worker, WorkerState.RUNNING)
        self._workers.start(worker)

    def _start_stopped(self) -> None:
        for worker, state in enumerate(self._states):
            if state is WorkerState.STOPPED:
                self._start(worker)

    # Ends of workers

    def _handle(self, end: End) -> None:
        """Handle the end of a worker, or of the forkserver."""
        self._dispatcher.read_reports()  # so that tasks reported before the end are not computed again
        if end.worker == FORKSERVER:
            self._replace_forkserver(end)
        else:
            self._handle_worker(end)

    def _replace_forkserver(self, end: End) -> None:
        """Handle the end of the forkserver and of its workers: start all of them again."""
        lost = [worker for worker, state in enumerate(self._states) if state in _ALIVE]
        name = self._options.backend.starter + (f" (pid {end.pid})" if end.pid else "")
        error = self._death_by(end, name, "; its workers ended with it")
        self._restart_policy.note_start(FORKSERVER, succeeded=any(map(self._cells.has_started, lost)))
        if not self._restart_policy.take(FORKSERVER):
            error.add_note(self._restart_policy.refusal(FORKSERVER))
        elif self._restart_forkserver(end, error):
            for worker in lost:
                self._handle_worker(End(worker, self._workers.pids[worker], None), is_cause=False)
            return
        for worker in lost:
            self._abandon(worker, error)
        self._dispatcher.fail_at_once(error)

    def _restart_forkserver(self, end: End, error: WorkerDiedError) -> bool:
        """Start another forkserver. If that is not possible, add the reason to the error, and return False."""
        assert end.restart is not None
        try:
            end.restart()
        except WorkerStartError as reason:
            error.__cause__ = reason.__cause__
            error.add_note(str(reason))
            return False
        return True

    def _handle_worker(self, end: End, *, is_cause: bool = True) -> None:
        """Handle the end of a worker.

        Args:
            is_cause: whether the worker or its sample may be the cause, and not the end of the forkserver.
        """
        dispatcher, worker = self._dispatcher, end.worker
        if self._states[worker] is WorkerState.ABANDONED:
            return  # it was given up with its forkserver, whose end has been reported first
        is_resting = self._phase is Phase.RESTING
        if end.exitcode == START_FAILED and not is_resting and (message := self._cells.start_error_of(worker)):
            self._abandon(worker, _start_error(f"worker {worker} ({self._unit} {end.pid})", message))
            return
        taken = self._taken_by(worker)
        if taken and end.keep is not None:
            end.keep([dispatcher.hold(unfinished) for unfinished in taken])
        if is_resting:
            for task in taken:
                dispatcher.give_up(task, WorkerDiedError("stopped while computing a cancelled batch", end.pid, end.exitcode))
            taken = []
        unfinished = taken[0] if taken else None
        if unfinished is None and (is_resting or self._phase is Phase.RETIRING):
            self._forget(worker)
            self._move(worker, WorkerState.STOPPED)
            return
        error: WorkerError | None = self._hang_errors.pop(worker, None)
        if error is not None and self._states[worker] is WorkerState.HUNG_AT_START:
            self._abandon(worker, error)  # another worker would get no further
            return
        if error is None and not is_cause:
            self._replace(end, unfinished, None)
            return
        if error is None:
            error = self._death_of(end, unfinished)
        self._restart_policy.note_start(worker, succeeded=self._cells.has_started(worker))
        if self._restart_policy.take(worker):
            self._replace(end, unfinished, error)
        else:
            self._refuse(worker, unfinished, error)

    def _death_of(self, end: End, unfinished: UnfinishedTask | None) -> WorkerDiedError:
        doing = "while it was idle" if unfinished is None else f"while {self._dispatcher.describe(unfinished)}"
        return self._death_by(end, f"worker {end.worker} ({self._unit} {end.pid})", f" {doing}")

    def _death_by(self, end: End, name: str, circumstances: str) -> WorkerDiedError:
        """Return the error for the death of a worker or of the forkserver."""
        shortage = self._memory_watch.explain(end.exitcode) if self._memory_watch is not None else None
        how = self._workers.describe_exit(end) if shortage is None else shortage.how
        text = f"{name} {how}{circumstances}"
        if shortage is not None:
            text += f".\n{self._describe_memory(end.worker)}"
        if end.worker != FORKSERVER and (crash := self._cells.crash_of(end.worker, end.exitcode)):
            text += f":\n{crash}"
        is_known = shortage is not None and shortage.is_certain
        self.num_oom_kills += is_known
        return WorkerDiedError(text, end.pid, end.exitcode, out_of_memory=is_known)

    def _describe_memory(self, dead: int) -> str:
        others = {worker: pid for worker, pid in enumerate(self._workers.pids) if pid and worker != dead}
        peak_bytes = 0 if dead == FORKSERVER else self._cells.peak_bytes_of(dead)
        return describe_memory(f"worker {dead}", peak_bytes, others, self._space.used_bytes)

    def _abandon(self, worker: int, error: WorkerError) -> None:
        """Fail because of a worker that cannot be replaced."""
        self._hang_errors.pop(worker, None)
        self._move(worker, WorkerState.ABANDONED)
        self._dispatcher.fail_at_once(error)

    def _replace(self, end: End, unfinished: UnfinishedTask | None, error: WorkerError | None) -> None:
        """Start another worker in the place of one that has ended, and post its tasks again.

        Args:
            error: the reason of the end; None: the end of the forkserver, with which the sample has nothing to do.
        """
        dispatcher = self._dispatcher
        self.num_restarts += 1
        if isinstance(error, WorkerDiedError) and error.out_of_memory:
            import logging  # rarely needed, and slow to import

            logging.getLogger("dali_like").warning("%s. Another worker takes its place", error)
        self._forget(end.worker)
        dispatcher.take_back(end.worker)
        if unfinished is None:
            pass
        elif error is None:
            dispatcher.post_in_turn(unfinished)
        elif end.keep is not None:
            if not dispatcher.can_repeat(unfinished):
                self._abandon(end.worker, error)
                return
            dispatcher.give_up(unfinished, error)  # the thread may still write to this slot, so no other worker may
        else:
            self._retry(unfinished, error)
        self._start(end.worker)

    def _refuse(self, worker: int, unfinished: UnfinishedTask | None, error: WorkerError) -> None:
        """Continue without a worker that may not be replaced, up to its unfinished task."""
        self._move(worker, WorkerState.ABANDONED)
        self._dispatcher.take_back(worker)  # where tasks are posted to single workers, others compute them
        error.add_note(self._restart_policy.refusal(worker))
        # The other workers complete earlier batches. Not during an isolation, which needs all workers to stop.
        others = self._states.count(WorkerState.ABANDONED) < self.num_workers
        if others and not self._suspects and not self._dispatcher.depends_on(worker):
            self._dispatcher.fail(error, unfinished.batch if unfinished is not None else None)
        else:
            self._dispatcher.fail_at_once(error)

    def _retry(self, unfinished: UnfinishedTask, error: WorkerError) -> None:
        """Post the unfinished task of a dead worker again, make it a suspect, or give it up."""
        failures = self._failures[unfinished.batch.key, unfinished.sample]
        if isinstance(error, WorkerTimeoutError):
            failures.hangs += 1
        else:
            failures.deaths += 1
        if unfinished.batch.cancelled or failures.is_hopeless:
            error.add_note(f"this sample has ended {failures.hangs + failures.deaths} workers; it is given up")
            self._dispatcher.give_up(unfinished, error)
        elif failures.is_suspicious and self._phase is not Phase.ISOLATED and WorkerState.ABANDONED not in self._states:
            self._suspects.append(unfinished)
            if self._phase is Phase.NORMAL:
                self._enter(Phase.DRAINING)
        else:
            self._dispatcher.post_in_turn(unfinished)

    # Isolation of suspects

    def _isolate(self) -> None:
        """Advance the isolation of the first suspect by as many phases as possible."""
        if self._phase is Phase.ISOLATED and not self._suspects[0].is_open:
            self._suspects.popleft()
            if not self._suspects:
                self._enter(Phase.NORMAL)
                self._start_stopped()
                return
            self._enter(Phase.DRAINING)
        if self._phase is Phase.DRAINING and not self._has_waiting_tasks() and not any(self._unfinished_tasks()):
            self._enter(Phase.RETIRING)
            self._dispatcher.retire(self.num_workers - self._num_stopped)
        if self._phase is Phase.RETIRING and self._num_stopped == self.num_workers:
            # A worker that was killed before it read its stop record has left that for the fresh worker.
            self._dispatcher.clear_tasks()
            self._enter(Phase.ISOLATED)
            suspect = self._suspects[0]
            bound = suspect.batch.key.worker_of(suspect.task)
            # Any worker will do, unless only one can. Choose one that may be replaced most often.
            fresh = min(range(self.num_workers), key=self._restart_policy.num_taken) if bound == ANY_WORKER else bound
            self._start(fresh)
            self._dispatcher.post_again(suspect)

    def _has_waiting_tasks(self) -> bool:
        # In this order: a backend takes tasks from the pipes, then keeps them until a worker is free.
        return self._dispatcher.has_waiting_tasks() or self._workers.has_waiting_tasks

    # Hangs

    def _activity_of(self, worker: int, unfinished: UnfinishedTask | None, waiting: bool, watch: HangWatch) -> Hashable:
        """Return a value that changes as the worker makes progress; None if it may be idle."""
        if unfinished is not None:
            # The last number changes while the worker skips items of an iterable.
            return unfinished.batch.ticket, unfinished.task, unfinished.sample, self._cells.num_skipped(worker)
        if waiting and watch.is_stopped(worker):
            return "stopped"  # by a signal, and takes no task
        return None if self._cells.has_started(worker) else _STARTS

    # Cells

    def _unfinished_tasks(self) -> list[UnfinishedTask | None]:
        return [self._unfinished_of(worker) for worker in range(self._options.num_workers)]

    def _unfinished_of(self, worker: int) -> UnfinishedTask | None:
        """Return the first unfinished task of a worker."""
        taken = self._taken_by(worker)
        return taken[0] if taken else None

    def _taken_by(self, worker: int) -> list[UnfinishedTask]:
        """Return the tasks that a worker has taken, if they are still open: mostly one, which its cell names."""
        numbers = self._dispatcher.taken_by(worker) or [self._cells.task_of(worker)]
        return [unfinished for number in numbers if (unfinished := self._open_task(worker, *number)) is not None]

    def _open_task(self, worker: int, ticket: int, task: int) -> UnfinishedTask | None:
        batch = self._dispatcher.batch_of(ticket, task)
        if batch is None or batch.slot is None:
            return None
        task_size = batch.slot.slot_layout.task_size
        # Race: a worker that has just taken the task may not have written its first sample yet.
        key = batch.key
        begin, stop = task * task_size, min((task + 1) * task_size, key.size)
        if key.parts > 1:
            begin, stop = 0, key.parts
        sample = min(max(self._cells.sample_of(worker), begin), stop - 1)
        return UnfinishedTask(batch, task, sample)

    def _forget(self, worker: int) -> None:
        """Make room for another worker in the place of one that has ended."""
        self._cells.clear(worker)
        self._hang_errors.pop(worker, None)
        if self._watch is not None:
            self._watch.forget(worker)


def _start_error(worker: str, message: bytes) -> WorkerStartError:
    cause = unpack_exception(message)
    error = WorkerStartError(f"{worker} could not start: {repr_of(cause)}")
    error.__cause__ = cause
    if (note := advice(cause)) is not None:
        error.add_note(note)
    return error
