"""The workers of a loader: they have a copy of its dataset, or share it, and make what passes over it ask for."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from dali_like.common.interrupts import InterruptSafeLock
from dali_like.common.notices import warn
from dali_like.data.counters import Counts, LoaderCounters
from dali_like.data.fetcher import Fetcher, seed_every
from dali_like.data.starts import Starts
from dali_like.data.worker_handles import WorkerHandle
from dali_like.engine.backends.pools import make_pool
from dali_like.engine.memory.batch_key import BatchKey
from dali_like.engine.memory.descriptors import enough_descriptors
from dali_like.engine.memory.slot_layout import TASKS_PER_WORKER
from dali_like.engine.memory.space import SharedSpace
from dali_like.engine.pool.batch import Batch
from dali_like.engine.pool.pool import WorkerPool
from dali_like.engine.pool.request_assembler import RequestAssembler
from dali_like.engine.pool.tuner import Tuner
from dali_like.engine.pool.workers import WorkerOptions
from dali_like.engine.worker.meters import first_made_ns, seconds_since
from dali_like.engine.worker.source import PickledSource, Source, SourceType
from dali_like.errors import ClosedError, ForkedError, WorkerDiedError, WorkerStartError
from dali_like.sources.fork_hazards import announce_local_classes_of

if TYPE_CHECKING:
    from dali_like.device.interface import Pinning

_REMEDY = (
    "Make it in the worker instead (in worker_init_fn, in __setstate__ or when it is first used), or use "
    'multiprocessing_context="fork"'
)


class LoaderWorkers:
    """Workers, and the pool that they belong to; passes over the loader are worked for from `begin_pass` to `end_pass`.

    Args:
        fetcher: what they do.
        base_seed: what their global generators depend on.
        batch_size: samples in the largest batch; None where batches are made as wholes.
        is_bound: whether each batch is to be made by one certain worker.
        is_kept: whether they go on when a pass ends.
        counters: of the loader; what has happened is added to it in the end.
        pinning: page-locks what they write batches to; None: nothing does.
        tuner: chooses how many there are, and how many batches ahead they work; None: nothing does.

    Attributes:
        fetcher: the main process's.
        start_method: how the workers have been started.
        is_resting: whether the workers have ended, but not what starts them.
        capacity: samples in the largest batch that can be made sample by sample.
        counters: as given.
        failure: what has ended the workers for good, and is to be raised for each batch that they owe; None: nothing.
    """

    def __init__(
        self,
        fetcher: Fetcher,
        base_seed: int,
        *,
        num_workers: int,
        batch_size: int | None,
        is_bound: bool,
        is_kept: bool,
        start_method: str,
        threads: int | None,
        restarts: int | None,
        max_held_bytes: int | None,
        counters: LoaderCounters,
        pinning: Pinning | None = None,
        tuner: Tuner | None = None,
    ) -> None:
        self.fetcher = fetcher
        self.capacity = batch_size or 1
        self.num_workers = num_workers
        self.is_bound = is_bound
        self.base_seed = base_seed
        self._is_kept = is_kept
        self.start_method = start_method
        self._can_rest = start_method == "spawn"
        self.is_resting = False
        self._is_changed = False
        self.counters = counters
        self._is_counted = False
        self._has_warned = False
        self._num_passes = 0
        self.failure: BaseException | None = None
        self._turns = itertools.count()
        self._walks = itertools.count()
        self._lock = InterruptSafeLock()
        self._ended_passes: deque[list[Batch]] = deque()
        self._starts = Starts()
        self._pid = os.getpid()
        self._tuner = tuner
        most, first = (num_workers, None) if tuner is None else (tuner.most_workers, tuner.settings.num_workers)
        options = WorkerOptions(
            most, start_method, threads, None, restarts, _pickled, first_workers=first, measures=tuner is not None
        )
        with self._lock, enough_descriptors("a loader"):
            if start_method == "fork":
                is_default = fetcher.array_backend.is_default(fetcher.collate_fn)
                announce_local_classes_of(fetcher.dataset if is_default else (fetcher.dataset, fetcher.collate_fn))
            space = self._space = SharedSpace.create(max_held_bytes)
            notice = str(base_seed).encode()
            self._pool = make_pool([(self._source(fetcher), ())], self.capacity, space, options, notice, tuner)
            self._expect_starts()
            if pinning is not None:
                from dali_like.device.pinned import PinnedMemory  # noqa: PLC0415

                space.observer = PinnedMemory(pinning, fenced=True)

    @property
    def workers(self) -> list[WorkerHandle]:
        """As PyTorch's iterators have them; threads are not shown, whose ids are no process's."""
        if self._pid != os.getpid() or self.start_method == "thread":
            return []
        pids = self._pool.worker_pids
        if len(pids) < self._pool.num_workers:
            with self._lock:
                pids = self._pool.wait_for_pids()
        return [WorkerHandle(pid, f"dali_like:{number}", self._pool.exitcodes) for number, pid in enumerate(pids)]

    @property
    def pool(self) -> WorkerPool:
        """What they belong to."""
        return self._pool

    @property
    def has_failed(self) -> bool:
        """Whether it cannot make batches any more, in this process at least."""
        return self._pool.has_failed or self._pid != os.getpid()

    @property
    def counts(self) -> Counts:
        """What has happened; nothing once it has been added to the counters."""
        if self._is_counted:
            return Counts()
        pool, assembler = self._pool, self._pool.assemblers[0]
        readings = pool.readings
        return Counts(
            pool.num_restarts,
            pool.num_replaced,
            assembler.num_batches,
            assembler.made_bytes,
            pool.waited_ns,
            seconds_since(first_made_ns(readings)),
            tuple(readings[0]),
        )

    @property
    def pids(self) -> Sequence[int]:
        """Of each worker; 0 for those that have not started, or have ended."""
        return self._pool.pid_of_each

    @property
    def held_bytes(self) -> int:
        """Memory behind their batches."""
        return self._space.used_bytes

    def warn_of_restarts(self) -> None:
        """Warn, once, if a worker has been replaced, where random numbers depend on what the same worker has made before."""
        if self._pool.num_restarts and not self._has_warned:
            self._has_warned = True
            warn(
                'A worker has died and been replaced. With worker_seeding="torch", random generators of the new one begin '
                "anew, so that the random numbers of this epoch are not those of a run in which no worker dies. With "
                'worker_seeding="tasks" they would be.',
                UserWarning,
            )

    @property
    def num_ahead(self) -> int | None:
        """How many batches are to be on their way; None: as many as the loader says."""
        return None if self._tuner is None else self._tuner.settings.prefetch_depth

    def next_turn(self) -> int:
        """The turn of the next batch: those that are asked for first are made first."""
        return next(self._turns)

    def begin_pass(self) -> int:
        """Another pass is to be worked for, until `end_pass`; a number for it."""
        self._num_passes += 1
        return next(self._walks)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Nobody else may use the workers in such a context, and Ctrl-C waits for its end, or for where it may come.

        Raises:
            ClosedError: the workers have been ended.
            ForkedError: this process has been forked from the one that the workers belong to.
        """
        if self._pid != os.getpid():
            raise ForkedError(
                f"the workers of this iterator belong to process {self._pid}, which this one was forked from; "
                "begin another iterator here"
            )
        with self._lock:
            self._settle()
            try:
                yield
            except ClosedError:
                raise ClosedError("the workers of this iterator have been ended; begin another iterator") from None

    def submit(self, key: BatchKey, pending: Any) -> None:
        """Begin a batch, and add it to those of a pass."""
        with self.lock():
            pending.append(self._pool.submit(key))

    def wait_for(self, batches: Sequence[Batch], timeout_s: float) -> Batch | None:
        """Wait until one of several batches is there; None if that takes too long (0: nothing does).

        Raises:
            Exception: what the user's code has raised where workers start.
            WorkerError: workers have died, or cannot start.
        """
        deadline_s = time.monotonic() + timeout_s if timeout_s > 0 else math.inf
        try:
            with self.lock():
                self._pool.poll()  # what is there counts, however short the time, and however many are ready besides
                batch = self._pool.wait_for(batches, deadline_s)
                return batch if batch is None or self._starts.see_one(self._pool, deadline_s) else None
        except WorkerStartError as error:
            self.failure = error if error.__cause__ is None else error.__cause__
        except WorkerDiedError as error:
            self.failure = _in_words_of_torch(error)
        self.close()  # now: its traceback keeps the workers for as long as somebody keeps the error
        raise self.failure

    def take(self, batch: Batch) -> Any:
        """What has become of a batch that is there: a response, or an exception."""
        with self.lock():
            try:
                return self._pool.take(batch)
            except Exception as error:
                if error is not batch.outcome:
                    raise
                error.__traceback__ = None  # whoever raises it decides what its frames hold
                return _in_words_of_torch(error) if isinstance(error, WorkerDiedError) else error

    def note_schema(self, is_different: bool, messages: dict[int, Any]) -> None:
        """Take note of whether the samples of a batch were of the form that was expected."""
        assembler = self._pool.assemblers[0]
        assert isinstance(assembler, RequestAssembler)
        with self.lock():
            assembler.note_schema(is_different, next((message for message in messages.values() if message.others), None))

    def describe_workers_on(self, batch: Batch) -> list[str]:
        """For each worker that is on a batch, or else on others: which, what it is making, and its Python stack."""
        with self.lock():
            started = f"{len(self._pool.worker_pids)} of {self._pool.num_workers}"
            nobody = [f"no worker is on anything; {started} have started, which the timeout includes"]
            return self._pool.describe_workers_on(batch) or nobody

    def end_pass(self, pending: Iterable[Batch]) -> None:
        """A pass has ended, and will not ask for what is still pending. The workers end, unless they are kept.

        Finalizers call this, at any instruction and in any thread: workers that others may be using at this moment hear of
        it when they are used next.
        """
        if self._pid != os.getpid():
            return
        self._ended_passes.append(list(pending))
        if self._is_kept or self.is_in_use:
            return
        # If somebody has the lock, it is to wait for what nobody will make.
        can_rest = self._can_rest and not (self.has_failed or self._pool.is_closed)
        if not (can_rest and self._lock.take_unless(lambda: True)):
            self.close()
            return
        try:
            self._settle()
            self.rest()
        finally:
            self._lock.__exit__(*sys.exc_info())

    def _settle(self) -> None:
        """Cancel what passes that have ended had begun."""
        while self._ended_passes:
            pending = self._ended_passes.popleft()
            self._num_passes -= 1
            for batch in pending:
                if not self._pool.is_closed:
                    self._pool.cancel(batch)

    def let_go(self) -> None:
        """The loader will not need it any more. It is closed when no pass does."""
        self._is_kept = self._can_rest = False
        if not self.is_in_use:
            self.close()

    @property
    def is_in_use(self) -> bool:
        """Whether there are passes that it works for."""
        return self._num_passes > len(self._ended_passes)

    def can_go_on(self, is_kept: bool) -> bool:
        """Whether it can work for another pass: it has not failed, and is at rest or kept."""
        return not (self.has_failed or self._pool.is_closed) and (self.is_resting or (is_kept and self._is_kept))

    def rest(self, fetcher: Fetcher | None = None) -> None:
        """End the workers, but not what starts them.

        Args:
            fetcher: what they do from now on, if that has changed.
        """
        if fetcher is not None:
            self.fetcher, self._is_changed = fetcher, True
        with self._lock:
            self._pool.rest()
            self.is_resting = True

    def wake(self, base_seed: int) -> None:
        """Start workers after a rest."""
        self.base_seed = base_seed
        sources = [self._source(self.fetcher)] if self._is_changed else None
        with self._lock:
            self._pool.wake(str(base_seed).encode(), sources)
            self._expect_starts()
            self.is_resting = self._is_changed = False

    def close(self) -> None:
        """End the workers. Whoever waits for a batch of theirs raises ClosedError."""
        if self._pid != os.getpid():
            return
        self._pool.stop_waiting()
        with self._lock:
            self._pool.close()
            counts, self._is_counted = self.counts, True
            self.counters.add(counts)

    def _expect_starts(self) -> None:
        if self.fetcher.worker_init_fn is not None:
            self._starts.expect(self._pool.num_workers)

    def _source(self, fetcher: Fetcher) -> Source:
        return Source(
            fetcher.name,
            fetcher,  # type: ignore[arg-type]
            type=SourceType.REQUEST,
            task_size=functools.partial(_task_size, self.capacity),
            in_order=self.is_bound,
        )


def _task_size(capacity: int, num_workers: int) -> int:
    """How many samples make a task: as many as are made between some seeds of the generators."""
    chunk = seed_every(capacity)
    num_chunks = -(-capacity // chunk)
    return chunk * -(-num_chunks // (TASKS_PER_WORKER * num_workers))


def _pickled(parts: dict[str, Any], name: str) -> PickledSource:
    """What `dali_like.sources.callback_pickler` makes of a fetcher, with messages in terms of the loader's arguments."""
    from dali_like.sources import callback_pickler as pickling  # noqa: PLC0415  # what is forked is not pickled

    fetcher: Fetcher = parts["source"]
    innards = {
        "dataset": fetcher.dataset,
        "collate_fn": fetcher.collate_fn,
        "worker_init_fn": fetcher.worker_init_fn,
        "on_error": fetcher.on_error,
    }
    return pickling.dumps(parts, f"the loader of {name}", innards=innards, remedy=_REMEDY)


def _in_words_of_torch(error: WorkerDiedError) -> WorkerDiedError:
    """The error, with the words first by which programs recognise PyTorch's."""
    if error.exitcode < 0:
        how = f"is killed by signal: {signal.strsignal(-error.exitcode)}."
    else:
        how = f"exited unexpectedly with exit code {error.exitcode}."
    told = WorkerDiedError(f"DataLoader worker (pid {error.pid}) {how} {error}", error.pid, error.exitcode)
    for note in getattr(error, "__notes__", ()):
        told.add_note(note)
    told.__cause__ = error.__cause__
    return told
