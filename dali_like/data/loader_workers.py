"""The workers of a loader, seen from the main process.

Workers have a copy of the dataset, or as threads share it, and compute the requests of the loader's iterators. All methods
run in the main process, in any of its threads. The workers own nothing there: batches lie in the shared space of the pool.
"""

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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dali_like.common.foreign_errors import with_traceback
from dali_like.common.interrupts import POLL_INTERVAL_S, InterruptSafeLock
from dali_like.common.notices import warn
from dali_like.data.counters import Counts, LoaderCounters
from dali_like.data.fetcher import Fetcher, seed_every
from dali_like.data.loader_iterator import ENDED
from dali_like.engine.backends.pools import make_pool, make_space
from dali_like.engine.memory.batch_key import BatchKey
from dali_like.engine.memory.descriptors import enough_descriptors
from dali_like.engine.memory.limits import read_file
from dali_like.engine.memory.slot_layout import TASKS_PER_WORKER
from dali_like.engine.pool.batch import Batch
from dali_like.engine.pool.pool import WorkerPool
from dali_like.engine.pool.request_assembler import RequestAssembler
from dali_like.engine.pool.tuner import Tuner
from dali_like.engine.pool.workers import WorkerOptions
from dali_like.engine.worker.meters import first_made_ns, seconds_since
from dali_like.engine.worker.source import PickledSource, Source, SourceType
from dali_like.errors import ForkedError, WorkerDiedError, WorkerStartError
from dali_like.sources.hazards import announce_local_classes_of

if TYPE_CHECKING:
    from dali_like.data.options import LoaderOptions

_REMEDY = (
    "Make it in the worker instead (in worker_init_fn, in __setstate__ or when it is first used)",
    'multiprocessing_context="fork"',
)

#: How often `WorkerHandle.join` checks whether a worker has ended.
_JOIN_INTERVAL_S = 0.002


class LoaderWorkers:
    """Workers and their pool. They serve a loader iterator from `begin_iterator` to `end_iterator`.

    Args:
        options: of the loader when the workers start.
        fetcher: computes the requests in the workers.
        base_seed: the global generators of the workers depend on it.
        counters: of the loader; the counts are added to them at the end.
        tuner: chooses the number of workers and of batches ahead; None: both are fixed.

    Attributes:
        fetcher: the copy of the main process.
        start_method: the name of their backend.
        is_bound: whether each batch must come from one particular worker.
        is_resting: whether the workers have ended while their forkserver still runs.
        capacity: samples in the largest batch that is made sample by sample.
        tuner: as given.
        failure: the error that has ended the workers; every batch that they still owe raises it.
    """

    def __init__(
        self,
        options: LoaderOptions,
        fetcher: Fetcher,
        base_seed: int,
        counters: LoaderCounters,
        tuner: Tuner | None = None,
    ) -> None:
        self.fetcher = fetcher
        self.base_seed = base_seed
        self.counters = counters
        self.num_workers = options.num_workers
        self.start_method = options.start_method
        self.is_bound = options.binds_batches
        self.capacity = _capacity(options, fetcher)
        self.is_resting = False
        self.failure: BaseException | None = None
        self._is_sharded = options.is_sharded
        self._size_of_tasks = _task_size if options.share_batches else _whole_batch
        self._is_kept = options.keeps_workers
        self._can_rest = options.backend.can_rest
        self._has_pids = options.backend.has_pids
        self._has_new_fetcher = False
        self._is_counted = False
        self._has_warned = False
        #: Workers compute batches in the order of their requests.
        self.turns = itertools.count()
        self._iterators = _ActiveIterators()
        self._starts = _Starts()
        self._lock = InterruptSafeLock()
        self._pid = os.getpid()
        self.tuner = tuner
        pins = options.pins_memory and options.pin_memory != "copy"
        pinning = fetcher.array_backend.pinning() if pins else None
        with self._lock, enough_descriptors("a loader"):
            if options.backend.forks:
                is_default = fetcher.array_backend.is_default(fetcher.collate_fn)
                announce_local_classes_of(fetcher.dataset if is_default else (fetcher.dataset, fetcher.collate_fn))
            self._space = make_space(options.start_method, options.max_held_bytes)
            self._pool = make_pool(
                [(self._source(fetcher), ())],
                self.capacity,
                self._space,
                _worker_options(options, tuner),
                start_message=str(base_seed).encode(),
                tuner=tuner,
            )
            self._pool.closed_text = ENDED
            self._expect_starts()
            if pinning is not None:
                from dali_like.device.pinned import PinnedMemory

                self._space.observer = PinnedMemory(pinning, fenced=True)

    @property
    def handles(self) -> list[WorkerHandle]:
        """The worker processes, as PyTorch's iterators have them. Threads have no handles."""
        if self._pid != os.getpid() or not self._has_pids:
            return []
        pids = self._pool.worker_pids
        if len(pids) < self._pool.num_workers:
            with self._lock:
                pids = self._pool.wait_for_pids()
        return [WorkerHandle(pid, f"dali_like:{number}", self._pool.exitcodes) for number, pid in enumerate(pids)]

    @property
    def pool(self) -> WorkerPool:
        """The pool of the workers."""
        return self._pool

    @property
    def has_failed(self) -> bool:
        """Whether the workers cannot serve this process anymore."""
        return self._pool.has_failed or self._pid != os.getpid()

    @property
    def counts(self) -> Counts:
        """The counts so far; zero once they have been added to the counters of the loader."""
        if self._is_counted:
            return Counts()
        pool, assembler = self._pool, self._pool.assemblers[0]
        readings = pool.readings
        return Counts(
            restarts=pool.num_restarts,
            oom_kills=pool.num_oom_kills,
            replaced=pool.num_replaced,
            batches=assembler.num_batches,
            made_bytes=assembler.made_bytes,
            waited_ns=pool.waited_ns,
            alive_s=seconds_since(first_made_ns(readings)),
            readings=tuple(readings[0]),
        )

    @property
    def pids(self) -> Sequence[int]:
        """The process of each worker; 0 for a worker that has not started, or has ended."""
        return self._pool.pid_of_each

    @property
    def held_bytes(self) -> int:
        """Memory of their batches."""
        return self._space.used_bytes

    @property
    def num_ahead(self) -> int:
        """Number of batches to compute ahead, if a tuner chooses it; else 0."""
        return 0 if self.tuner is None else self.tuner.settings.prefetch_depth

    @property
    def is_in_use(self) -> bool:
        """Whether they serve an iterator."""
        return self._iterators.are_active

    def can_serve_another(self, is_kept: bool) -> bool:
        """Return whether they can serve another iterator: they are kept or at rest, and have not failed."""
        return not (self.has_failed or self._pool.is_closed) and (self.is_resting or (is_kept and self._is_kept))

    # Batches

    def __enter__(self) -> None:
        """Exclude other threads from the workers, and defer Ctrl-C to the end or to an interruptible point.

        Raises:
            ForkedError: the workers belong to the parent of this process.
        """
        if self._pid != os.getpid():
            raise ForkedError(
                f"the workers of this iterator belong to process {self._pid}, from which this process was forked; "
                "begin another iterator here"
            )
        self._lock.__enter__()
        if self._iterators.ended:
            self._cancel_abandoned()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: Any) -> None:
        self._lock.__exit__(kind)

    def report(self) -> dict[str, Any] | None:
        """Return None: states come with answers."""
        return None

    def wait_for(self, batches: Sequence[Batch], timeout_s: float) -> Batch | None:
        """Wait until one of several batches is ready; return None after a timeout (0: no timeout).

        The caller holds the lock, and waiting can be interrupted.

        Raises:
            Exception: the error of the user's code that runs when workers start.
            WorkerError: workers have died, or cannot start.
        """
        deadline_s = time.monotonic() + timeout_s if timeout_s > 0 else math.inf
        try:
            self._pool.poll()  # a batch that is ready counts, however short the timeout
            batch = self._pool.wait_for(batches, deadline_s)
            if batch is None or not self._starts.unseen:
                return batch
            return batch if self._starts.wait_for_one(self._pool, deadline_s) else None
        except WorkerStartError as error:
            self.failure = error if error.__cause__ is None else error.__cause__
        except WorkerDiedError as error:
            self.failure = _with_torch_text(error)
        self.close()  # now: a program that keeps the error would keep the workers by its traceback
        raise self.failure

    def take(self, batch: Batch) -> Any:
        """Return the outcome of a batch that is ready: a response, or an exception. The caller holds the lock."""
        try:
            return self._pool.take(batch)
        except Exception as error:
            if error is not batch.outcome:
                raise
            with_traceback(error, None)  # its frames would keep the iterator
            return _with_torch_text(error) if type(error) is WorkerDiedError else error

    def note_fit(self) -> None:
        """Record that the samples of a batch had the expected schema."""
        assembler = self._pool.assemblers[0]
        assert isinstance(assembler, RequestAssembler)
        assembler.note_fit()

    def note_different(self, schema: Any, messages: Mapping[int, Any]) -> None:
        """Record that the samples of a batch had another schema than the expected one."""
        assembler = self._pool.assemblers[0]
        assert isinstance(assembler, RequestAssembler)
        with self:
            assembler.note_different(schema, next(message for message in messages.values() if message.others))

    def describe_workers_on(self, batch: Batch) -> list[str]:
        """Describe the workers that compute a batch, or else all busy ones: their samples and their Python stacks."""
        with self:
            started = f"{len(self._pool.worker_pids)} of {self._pool.num_workers}"
            idle = [f"no worker is busy; {started} have started, and the timeout includes their start"]
            return self._pool.describe_workers_on(batch) or idle

    def warn_about_restarts(self) -> None:
        """Warn once if a worker has been replaced, with random numbers that depend on the worker."""
        if self._pool.num_restarts and not self._has_warned:
            self._has_warned = True
            warn(
                'A worker has died and been replaced. With worker_seeding="torch", the random generators of the new worker '
                "start again, so this epoch has other random numbers than a run without the death. To make them independent "
                'of workers, use worker_seeding="tasks".',
                UserWarning,
            )

    # Iterators, and the end

    def begin_iterator(self) -> int:
        """Serve another iterator until `end_iterator`. Return its number."""
        return self._iterators.begin()

    def end_iterator(self, pending: Iterable[Batch]) -> None:
        """End the service of an iterator, which does not need its pending batches. Workers end too, unless they are kept.

        Finalizers call this at any instruction and in any thread. If another thread is using the workers, it cancels the
        batches the next time that it takes the lock.
        """
        if self._pid != os.getpid():
            return
        self._iterators.end(pending)
        if self._is_kept or self.is_in_use:
            return
        # A thread that holds the lock may wait for a batch that nobody computes anymore: closing wakes it.
        can_rest = self._can_rest and not (self.has_failed or self._pool.is_closed)
        if not (can_rest and self._lock.take_unless(lambda: True)):
            self.close()
            return
        try:
            self._cancel_abandoned()
            self.rest()
        finally:
            self._lock.__exit__(*sys.exc_info())

    def release(self) -> None:
        """End the workers as soon as they serve no iterator."""
        self._is_kept = self._can_rest = False
        if not self.is_in_use:
            self.close()

    def rest(self, fetcher: Fetcher | None = None) -> None:
        """End the workers, but not their forkserver.

        Args:
            fetcher: replaces the fetcher of workers that start later.
        """
        if fetcher is not None:
            self.fetcher, self._has_new_fetcher = fetcher, True
        with self._lock:
            self._pool.rest()
            self.is_resting = True

    def wake(self, base_seed: int) -> None:
        """Start workers after a rest."""
        self.base_seed = base_seed
        sources = [self._source(self.fetcher)] if self._has_new_fetcher else None
        with self._lock:
            self._pool.wake(str(base_seed).encode(), sources)
            self._expect_starts()
            self.is_resting = self._has_new_fetcher = False

    def close(self) -> None:
        """End the workers. A thread that waits for one of their batches gets a ClosedError."""
        if self._pid != os.getpid():
            return
        self._pool.stop_waiting()
        with self._lock:
            self._pool.close()
            counts, self._is_counted = self.counts, True
            self.counters.add(counts)

    def _cancel_abandoned(self) -> None:
        for batch in self._iterators.abandoned():
            if not self._pool.is_closed:
                self._pool.cancel(batch)

    def _expect_starts(self) -> None:
        if self.fetcher.worker_init_fn is not None:
            self._starts.expect(self._pool.num_workers)

    def _source(self, fetcher: Fetcher) -> Source:
        return Source(
            fetcher.name,
            fetcher,  # type: ignore[arg-type]
            type=SourceType.REQUEST,
            task_size=functools.partial(_part_size if self._is_sharded else self._size_of_tasks, self.capacity),
            in_order=self.is_bound,
            caches=fetcher.dataset.cache_memories() if hasattr(type(fetcher.dataset), "cache_memories") else (),
        )


class _ActiveIterators:
    """Counts the iterators that workers serve, and collects the pending batches of ended iterators.

    Finalizers call `end` at any instruction: it is one append to a deque. `abandoned` requires the lock of the workers.
    """

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._num_begun = 0
        self.ended: deque[list[Batch]] = deque()

    @property
    def are_active(self) -> bool:
        return self._num_begun > len(self.ended)

    def begin(self) -> int:
        self._num_begun += 1
        return next(self._numbers)

    def end(self, pending: Iterable[Batch]) -> None:
        self.ended.append(list(pending))

    def abandoned(self) -> Iterator[Batch]:
        """Yield the pending batches of ended iterators, once."""
        while self.ended:
            pending = self.ended.popleft()
            self._num_begun -= 1
            yield from pending


#: Dummy batch, never completed. Waiting for it processes worker events.
_NEVER = Batch(BatchKey(0, 0, 0, 0, 1))


class _Starts:
    """Waits for the starts of workers whose ``worker_init_fn`` may raise. Requires the lock of the workers.

    PyTorch's workers compute one batch each in turn, so the batch of a worker that cannot start is missed. Here, any free
    worker computes a batch, and the first to start may compute all of a short epoch. So with each batch, the iterator also
    waits for the start of one more worker.
    """

    def __init__(self) -> None:
        self.unseen: deque[int] = deque()

    def expect(self, num_workers: int) -> None:
        """Wait for the starts of all workers from now on."""
        self.unseen = deque(range(num_workers))

    def wait_for_one(self, pool: WorkerPool, deadline_s: float) -> bool:
        """Wait for the start of one more worker, if any has not been seen. Return False at the deadline.

        Raises:
            WorkerStartError: a worker cannot start.
        """
        interval_s = 0.001
        while self.unseen and not pool.pid_of_each[self.unseen[0]]:
            if (now_s := time.monotonic()) >= deadline_s:
                return False
            pool.wait_for((_NEVER,), min(deadline_s, now_s + interval_s))  # a failure wakes it, a start does not
            interval_s = min(2 * interval_s, POLL_INTERVAL_S)
        if self.unseen:
            self.unseen.popleft()
        return True


class WorkerHandle:
    """A worker process, with some attributes of `multiprocessing.Process`, for programs that inspect PyTorch's workers."""

    def __init__(self, pid: int, name: str, exitcodes: Mapping[int, int]) -> None:
        self.pid = pid
        self.name = name
        self._exitcodes = exitcodes

    @property
    def exitcode(self) -> int | None:
        """The exit status, or minus the number of the signal that ended it; None while it runs."""
        return self._exitcodes.get(self.pid)

    def is_alive(self) -> bool:
        """Return whether it runs."""
        if self.pid in self._exitcodes:
            return False
        return read_file(f"/proc/{self.pid}/stat").rpartition(") ")[2][:1] not in ("", "Z", "X")

    def terminate(self) -> None:
        """Send SIGTERM, if it runs."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL, if it runs."""
        self._signal(signal.SIGKILL)

    def join(self, timeout: float | None = None) -> None:
        """Wait until it has ended."""
        deadline_s = math.inf if timeout is None else time.monotonic() + timeout
        while self.is_alive() and time.monotonic() < deadline_s:
            time.sleep(_JOIN_INTERVAL_S)  # this process is not its parent, and cannot wait for it

    def _signal(self, number: int) -> None:
        if self.is_alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


def _worker_options(options: LoaderOptions, tuner: Tuner | None) -> WorkerOptions:
    return WorkerOptions(
        num_workers=options.num_workers if tuner is None else tuner.most_workers,
        start_method=options.start_method,
        threads=options.worker_threads,
        timeout_s=None,
        restarts=options.worker_restarts,
        pickle_source=functools.partial(_pickle_source, options),
        first_workers=None if tuner is None else tuner.settings.num_workers,
        measures=tuner is not None,
    )


def _task_size(capacity: int, num_workers: int) -> int:
    """Return the number of samples per task: a multiple of the samples between two seeds of the generators."""
    chunk = seed_every(capacity)
    num_chunks = -(-capacity // chunk)
    return chunk * -(-num_chunks // (TASKS_PER_WORKER * num_workers))


def _whole_batch(capacity: int, num_workers: int) -> int:
    """Return the number of samples per task if one worker computes a batch."""
    return capacity


def _part_size(capacity: int, num_workers: int) -> int:
    """Return the number of samples per task of a stream in logical shards: a batch has room for a task of each worker."""
    return capacity // num_workers


def _capacity(options: LoaderOptions, fetcher: Fetcher) -> int:
    """Return the number of rows of a batch. Logical shards need at least a task for each worker."""
    if options.is_sharded:
        return max(options.batch_size or 1, options.num_workers)
    return 1 if fetcher.as_batches else options.batch_size or 1


def _pickle_source(options: LoaderOptions, parts: dict[str, Any], name: str) -> PickledSource:
    """Pickle a fetcher for spawned workers. Error messages name the arguments of the loader."""
    from dali_like.sources import callback_pickler as pickling  # forked workers need no pickle
    from dali_like.sources.main_module import find_main

    fetcher: Fetcher = parts["source"]
    innards = {
        "dataset": fetcher.dataset,
        "collate_fn": fetcher.collate_fn,
        "worker_init_fn": fetcher.worker_init_fn,
        "on_error": fetcher.on_error,
    }
    main = find_main(options.import_main) if options.backend.imports_main else None
    return pickling.dumps(parts, f"the loader of {name}", innards=innards, remedy=_REMEDY, main=main)


def _with_torch_text(error: WorkerDiedError) -> WorkerDiedError:
    """Return the error with PyTorch's text in front, by which programs recognize it."""
    if error.exitcode is None:
        how = "exited unexpectedly, with an unknown exit code."
    elif error.exitcode < 0:
        how = f"is killed by signal: {signal.strsignal(-error.exitcode)}."
    else:
        how = f"exited unexpectedly with exit code {error.exitcode}."
    text = f"DataLoader worker (pid {error.pid}) {how} {error}"
    renamed = WorkerDiedError(text, error.pid, error.exitcode, out_of_memory=error.out_of_memory)
    for note in getattr(error, "__notes__", ()):
        renamed.add_note(note)
    renamed.__cause__ = error.__cause__
    return renamed
