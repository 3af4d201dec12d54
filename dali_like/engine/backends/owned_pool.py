"""The worker pool of a pipeline or loader, from its start to its end. Runs in the main process, in any thread.

::

    start --> RUNNING --rest--> RESTING --wake--> RUNNING
                 |                 |
                 +----- close -----+--> closed

An owner has at most one pool for its next user, and asks it in two steps whether it can serve that user: `adapt`, before
the user's seed is drawn, and `run_with`. If it cannot, the owner releases it and starts another. Users are the iterators of
a loader. A pipeline is the only user of its pool, and closes it; its sources contain its seed, so another seed requires
another pool.

A pool at rest has its shared space, pipes and forkserver, and under fork the forkserver's reserve, but no workers. Waking it
costs forks of a small process, without imports and without pickles, unless the objects that workers copy have been renewed.

Invariants
- **Who ends a pool.** The end of its last user, unless the owner keeps it. Then it rests if the backend can renew copies;
  otherwise it is closed. After `release` the owner keeps it no longer. `close` ends it at once, and so does a failure of the
  workers. The finalizer of its backend ends a pool that nobody refers to, and each pool at the exit of the interpreter.
- **Users are counted by their numbers.** Finalizers end users at any instruction and in any thread, which is one append to
  a deque and one removal from a set. The next thread that takes the lock cancels the batches of ended users.
- **Order of forks.** Under fork, the constructor forks the forkserver, which holds the sources as they are then. It forks
  all workers, and 0.2 s later its reserve. The program is not forked again: waking a pool forks the forkserver. So copies
  are renewed only if `BackendTraits.can_rest`.
- **A fork of the program.** Everything belongs to the process that made it. In a child, `close` and the ends of users do
  nothing, `adapt` refuses, and entering raises a ForkedError before it takes the lock, which the parent may have held.
- **Ctrl-C** is deferred while the lock is held, except in waits for batches. So no call leaves the pool half started, half
  resting or half awake.
- **Killed processes.** Nobody looks at a pool at rest. The next `rest`, wait or `take` finds a dead forkserver, reserve or
  worker, and replaces it as during an epoch.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from dali_like.common.foreign_errors import with_traceback
from dali_like.common.interrupts import POLL_INTERVAL_S, InterruptSafeLock
from dali_like.engine.backends.pools import make_pool
from dali_like.engine.memory.batch_key import BatchKey
from dali_like.engine.memory.slot_layout import OutputSchema
from dali_like.engine.memory.space import SharedSpace
from dali_like.engine.pool.batch import Batch
from dali_like.engine.pool.workers import WorkerOptions
from dali_like.engine.worker.source import Source
from dali_like.errors import ForkedError, WorkerDiedError, WorkerError, WorkerStartError

if TYPE_CHECKING:
    from dali_like.engine.pool.tuner import Tuner

#: A batch that is never submitted. Waiting for it processes events of workers.
_NEVER = Batch(BatchKey(0, 0, 0, 0, 1))


class Terms(NamedTuple):
    """What a user expects of a pool.

    Attributes:
        num_workers, start_method: as the owner gives them.
        keeps: whether workers outlive their users.
        copies: equal values mean that the objects that workers copy have not changed. None: they may have.
    """

    num_workers: int
    start_method: str
    keeps: bool = False
    copies: Any = None


class OwnedPool:
    """A worker pool with its shared space, and its users.

    Args:
        sources, capacity, start_message: see `dali_like.engine.pool.pool.WorkerPool`.
        space: the shared space.
        options: the options of the workers, for a fixed number of workers.
        terms: of the first user.
        tuner: chooses the number of workers and of batches ahead; None: both are fixed.

    Attributes:
        space, tuner: as given.
        pool: the pool.
        pid: the process that owns it.
        terms: of the latest user.
        is_resting: whether the workers have ended, but not their forkserver.
        lock: held by the thread that uses the pool.
        unseen_starts: workers whose starts must be seen, so that their errors are.
        failure: the error that has ended the workers; every batch that they still owe raises it.

    Raises:
        Exception: see `dali_like.engine.backends.pools.make_pool`.
    """

    def __init__(
        self,
        sources: Sequence[tuple[Source, Sequence[OutputSchema]]],
        capacity: int,
        space: SharedSpace,
        options: WorkerOptions,
        terms: Terms,
        *,
        start_message: bytes = b"",
        tuner: Tuner | None = None,
    ) -> None:
        self.space = space
        self.tuner = tuner
        self.terms = terms
        self.pid = os.getpid()
        self.is_resting = False
        self.lock = InterruptSafeLock()
        self.unseen_starts: deque[int] = deque()
        self.failure: BaseException | None = None
        self._can_rest = options.backend.can_rest
        self._start_message = start_message
        self._renewed: Sequence[Source] | None = None
        self._num_users = 0
        self._users: set[int] = set()
        #: The batches of ended users.
        self._abandoned: deque[list[Batch]] = deque()
        if tuner is not None:
            options = options._replace(
                num_workers=tuner.most_workers, first_workers=tuner.settings.num_workers, measures=True
            )
        with self.lock:
            self.pool = make_pool(sources, capacity, space, options, start_message=start_message, tuner=tuner)
            self._note_starts()

    def _note_starts(self) -> None:
        """Called when all workers are about to start."""

    def explain(self, error: WorkerError) -> BaseException:
        """Return the error to raise in place of an error of the workers."""
        return error

    @property
    def is_in_use(self) -> bool:
        """Whether it has users."""
        return bool(self._users)

    @property
    def has_ended(self) -> bool:
        """Whether it cannot serve this process any more."""
        return self.pool.has_failed or self.pool.is_closed or self.pid != os.getpid()

    def __enter__(self) -> None:
        """Exclude other threads, and defer Ctrl-C to the end or to an interruptible point.

        Raises:
            ForkedError: the pool belongs to the parent of this process.
        """
        if self.pid != os.getpid():
            raise ForkedError(
                f"the workers of this iterator belong to process {self.pid}, from which this process was forked; "
                "begin another iterator here"
            )
        self.lock.__enter__()
        if self._abandoned:
            self._cancel_abandoned()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: Any) -> None:
        self.lock.__exit__(kind)

    # Batches. The caller holds the lock

    def wait_for(self, batches: Sequence[Batch], timeout_s: float) -> Batch | None:
        """Wait until one of several batches is ready; return None after a timeout (0: no timeout). It can be interrupted.

        With each batch, it also waits for the start of one more worker of `unseen_starts`.

        Raises:
            BaseException: workers have died or cannot start; see `explain`.
        """
        deadline_s = time.monotonic() + timeout_s if timeout_s > 0 else math.inf
        try:
            # A batch that is ready counts, however short the timeout. Where none is, waiting reads the reports.
            if batches[0].outcome is not None or timeout_s > 0 or len(batches) > 1:
                self.pool.poll()
            batch = self.pool.wait_for(batches, deadline_s)
            if batch is None or not self.unseen_starts:
                return batch
            return batch if self._see_start(deadline_s) else None
        except (WorkerStartError, WorkerDiedError) as error:
            self.failure = self.explain(error)
        self.close()  # now: a program that keeps the error would keep the workers by its traceback
        raise self.failure

    def _see_start(self, deadline_s: float) -> bool:
        """Wait for the start of one more worker, if any has not been seen. Return False at the deadline."""
        unseen, interval_s = self.unseen_starts, 0.001
        while unseen and not self.pool.pid_of_each[unseen[0]]:
            if (now_s := time.monotonic()) >= deadline_s:
                return False
            self.pool.wait_for((_NEVER,), min(deadline_s, now_s + interval_s))  # a failure wakes it, a start does not
            interval_s = min(2 * interval_s, POLL_INTERVAL_S)
        if unseen:
            unseen.popleft()
        return True

    def take(self, batch: Batch) -> Any:
        """Return the outcome of a batch that is ready: a response, or an exception."""
        try:
            return self.pool.take(batch)
        except Exception as error:
            if error is not batch.outcome:
                raise
            with_traceback(error, None)  # its frames would keep the user
            return self.explain(error) if type(error) is WorkerDiedError else error

    # The next user

    def adapt(self, terms: Terms, renewed: Callable[[], Sequence[Source]]) -> bool:
        """Make the pool fit the terms of the next user. Return False if it cannot serve it.

        Args:
            renewed: makes the sources anew, from the objects of the program as they are.
        """
        now, is_kept = self.terms, terms.keeps and self.terms.keeps
        are_alike = (now.num_workers, now.start_method) == (terms.num_workers, terms.start_method)
        if not are_alike or self.has_ended or not (self.is_resting or is_kept):
            return False
        if terms.copies is None or terms.copies != now.copies:
            if self.is_in_use or not self._can_rest:
                return False
            self._renewed = renewed()
            self.rest()
        self.terms = terms
        return True

    def run_with(self, start_message: bytes) -> bool:
        """Let the workers run, started with a message. Return False if they serve users with another one.

        Raises:
            PicklingError, OutOfMemoryError: renewed sources cannot travel to workers.
        """
        if self._start_message != start_message:
            if self.is_in_use:
                return False
            self.rest()
        if self.is_resting:
            with self.lock:
                self.pool.wake(start_message, self._renewed)
                self._start_message, self._renewed, self.is_resting = start_message, None, False
                self.unseen_starts.clear()
                self._note_starts()
        return True

    def rest(self) -> None:
        """End the workers, but not their forkserver."""
        with self.lock:
            self.pool.rest()
            self.is_resting = True

    # Users, and the end

    def begin_use(self) -> int:
        """Serve another user until `end_use`. Return its number. One thread at a time may call this."""
        number = self._num_users
        self._num_users += 1
        self._users.add(number)
        return number

    def end_use(self, number: int, pending: Iterable[Batch]) -> None:
        """End the service of a user, which does not need its pending batches. Finalizers call this.

        Without other users, a pool that the owner does not keep rests or ends.
        """
        if self.pid != os.getpid():
            return
        self._abandoned.append(list(pending))
        self._users.discard(number)
        if self.terms.keeps or self._users:
            return
        # A thread that holds the lock may wait for a batch that nobody computes any more: closing wakes it.
        if not (self._can_rest and not self.has_ended and self.lock.take_unless(lambda: True)):
            self.close()
            return
        try:
            self._cancel_abandoned()
            self.rest()
        finally:
            self.lock.__exit__(*sys.exc_info())

    def release(self) -> None:
        """End the pool as soon as it has no user."""
        self.terms, self._can_rest = self.terms._replace(keeps=False), False
        if not self._users:
            self.close()

    def close(self) -> None:
        """End the workers. A thread that waits for one of their batches gets a ClosedError."""
        if self.pid == os.getpid():
            self.pool.stop_waiting()
            with self.lock:
                self.pool.close()

    def _cancel_abandoned(self) -> None:
        while self._abandoned:
            for batch in self._abandoned.popleft():
                if not self.pool.is_closed:
                    self.pool.cancel(batch)
