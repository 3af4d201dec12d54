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
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy.random  # noqa: F401  # before workers are forked: each of them seeds NumPy's generator

from dali_like.common.notices import warn
from dali_like.data.counters import Counts, LoaderCounters
from dali_like.data.fetcher import Fetcher, seed_every
from dali_like.data.loader_iterator import ENDED
from dali_like.engine.backends.owned_pool import OwnedPool, Terms
from dali_like.engine.backends.pools import make_space
from dali_like.engine.memory.descriptors import enough_descriptors
from dali_like.engine.memory.limits import read_file
from dali_like.engine.memory.slot_layout import TASKS_PER_WORKER
from dali_like.engine.pool.assembler import RequestAssembler
from dali_like.engine.pool.batch import Batch
from dali_like.engine.pool.settings import AUTO
from dali_like.engine.pool.workers import WorkerOptions
from dali_like.engine.worker.meters import first_made_ns, seconds_since
from dali_like.engine.worker.source import PickledSource, Source, SourceType
from dali_like.errors import WorkerDiedError, WorkerError, WorkerStartError
from dali_like.sources.travel.hazards import announce_local_classes_of

if TYPE_CHECKING:
    from dali_like.data.options import LoaderOptions
    from dali_like.engine.pool.tuner import Tuner

_REMEDY = (
    "Make it in the worker instead (in worker_init_fn, in __setstate__ or when it is first used)",
    'multiprocessing_context="fork"',
)
#: Threads can share what cannot be copied.
_REMEDY_OF_THREADS = _REMEDY[0], 'multiprocessing_context="thread", whose threads share one dataset'

#: How often `WorkerHandle.join` checks whether a worker has ended.
_JOIN_INTERVAL_S = 0.002


class LoaderWorkers(OwnedPool):
    """The pool of a loader; its users are loader iterators.

    Args:
        options: of the loader when the workers start.
        copies: see `dali_like.engine.backends.owned_pool.Terms`.
        base_seed: the global generators of the workers depend on it.
        counters: of the loader; the counts are added to them at the end.
        tuner: chooses the number of workers and of batches ahead; None: both are fixed.

    Attributes:
        fetcher: computes the requests; the copy of the main process.
        is_bound: whether each batch must come from one particular worker.
        turns: workers compute batches in the order of their requests.
        capacity: samples in the largest batch that is made sample by sample.
    """

    def __init__(
        self, options: LoaderOptions, copies: Any, base_seed: int, counters: LoaderCounters, tuner: Tuner | None = None
    ) -> None:
        self.fetcher = fetcher = Fetcher.of(options)
        self.counters = counters
        self.is_bound = options.binds_batches
        self.turns = itertools.count()
        self.capacity = _capacity(options, fetcher)
        self._is_sharded = options.is_sharded
        self._size_of_tasks = _task_size if options.own["share_batches"] else _whole_batch
        can_share = not (self.is_bound or fetcher.is_columnar or fetcher.num_reads > 1)
        self._measures_sharing = options.own["share_batches"] == AUTO and can_share
        self._max_read_bytes = options.own["max_read_bytes"]
        self._has_pids = options.backend.has_pids
        self._is_counted = False
        self._has_warned = False
        pins = options.pins_memory and options.pin_memory != "copy"
        pinning = fetcher.array_backend.pinning() if pins else None
        with enough_descriptors("a loader"):
            if options.backend.forks:
                is_default = fetcher.array_backend.is_default(fetcher.collate_fn)
                announce_local_classes_of(fetcher.dataset if is_default else (fetcher.dataset, fetcher.collate_fn))
            super().__init__(
                [(self._source(fetcher), ())],
                self.capacity,
                make_space(options.start_method, options.own["max_held_bytes"]),
                _worker_options(options),
                _terms_of(options, copies),
                start_message=start_message(base_seed),
                tuner=tuner,
            )
            self.pool.closed_text = ENDED
            assembler = self.pool.assemblers[0]
            assert isinstance(assembler, RequestAssembler)
            self._assembler = assembler
            #: Records that the samples of a batch had the expected schema.
            self.note_fit = assembler.note_fit
            if pinning is not None:
                from dali_like.device.pinned import PinnedMemory

                self.space.observer = PinnedMemory(pinning, fenced=True)

    # For the next iterator

    def fit(self, options: LoaderOptions, copies: Any) -> bool:
        """Make the workers fit the options of the next iterator. Return False if they cannot serve it."""

        def renewed() -> list[Source]:
            self.fetcher = Fetcher.of(options)
            return [self._source(self.fetcher)]

        if _capacity(options, self.fetcher) > self.capacity:
            return False
        return self.adapt(_terms_of(options, copies), renewed)

    @property
    def handles(self) -> list[WorkerHandle]:
        """The worker processes, as PyTorch's iterators have them. Threads have no handles."""
        if self.pid != os.getpid() or not self._has_pids:
            return []
        pids = self.pool.worker_pids
        if len(pids) < self.pool.num_workers:
            with self.lock:
                pids = self.pool.wait_for_pids()
        return [WorkerHandle(pid, f"dali_like:{number}", self.pool.exitcodes) for number, pid in enumerate(pids)]

    @property
    def counts(self) -> Counts:
        """The counts so far; zero once they have been added to the counters of the loader."""
        if self._is_counted:
            return Counts()
        pool, assembler = self.pool, self.pool.assemblers[0]
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
        return self.pool.pid_of_each

    @property
    def held_bytes(self) -> int:
        """Memory of their batches."""
        return self.space.used_bytes

    @property
    def num_ahead(self) -> int:
        """Number of batches to compute ahead, if a tuner chooses it; else 0."""
        return 0 if self.tuner is None else self.tuner.settings.prefetch_depth

    # Batches

    def note_different(self, schema: Any, messages: Mapping[int, Any]) -> None:
        """Record that the samples of a batch had another schema than the expected one."""
        with self:
            self._assembler.note_different(schema, next(message for message in messages.values() if message.others))

    def describe_workers_on(self, batch: Batch) -> list[str]:
        """Describe the workers that compute a batch, or else all busy ones: their samples and their Python stacks."""
        with self:
            started = f"{len(self.pool.worker_pids)} of {self.pool.num_workers}"
            idle = [f"no worker is busy; {started} have started, and the timeout includes their start"]
            return self.pool.describe_workers_on(batch) or idle

    def warn_about_restarts(self) -> None:
        """Warn once if a worker has been replaced, with random numbers that depend on the worker."""
        if self.pool.num_restarts and not self._has_warned:
            self._has_warned = True
            warn(
                'A worker has died and been replaced. With worker_seeding="torch", the random generators of the new worker '
                "start again, so this epoch has other random numbers than a run without the death. To make them independent "
                'of workers, use worker_seeding="tasks".',
                UserWarning,
            )

    # The end

    def close(self) -> None:
        if self.pid != os.getpid():
            return
        self.pool.stop_waiting()
        with self.lock:
            super().close()
            counts, self._is_counted = self.counts, True
            self.counters.add(counts)

    def _note_starts(self) -> None:
        # PyTorch's workers compute one batch each in turn, so the batch of a worker that cannot start is missed. Here, the
        # first workers to start may compute all of a short epoch, and the error of a `worker_init_fn` would not be seen.
        if self.fetcher.worker_init_fn is not None:
            self.unseen_starts.extend(range(self.pool.num_workers))

    def explain(self, error: WorkerError) -> BaseException:
        if isinstance(error, WorkerStartError):
            return error if error.__cause__ is None else error.__cause__
        return _with_torch_text(error) if isinstance(error, WorkerDiedError) else error

    def _source(self, fetcher: Fetcher) -> Source:
        return Source(
            fetcher.name,
            fetcher,
            type=SourceType.REQUEST,
            task_size=functools.partial(_part_size if self._is_sharded else self._size_of_tasks, self.capacity),
            measures_sharing=self._measures_sharing,
            in_order=self.is_bound,
            concurrency=fetcher.num_reads if fetcher.num_reads > 1 else None,
            reads_in_threads=fetcher.reads_in_threads,
            max_read_bytes=self._max_read_bytes,
            caches=fetcher.dataset.cache_memories() if hasattr(type(fetcher.dataset), "cache_memories") else (),
        )


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


def _terms_of(options: LoaderOptions, copies: Any) -> Terms:
    """Return the terms of an iterator with some options."""
    return Terms(options.num_workers, options.start_method, options.keeps_workers, copies)


def start_message(base_seed: int) -> bytes:
    """Return the message from which workers read the seed; see `dali_like.data.fetcher.Fetcher.begin`."""
    return str(base_seed).encode()


def _worker_options(options: LoaderOptions) -> WorkerOptions:
    return WorkerOptions(
        num_workers=options.num_workers,
        start_method=options.start_method,
        threads=options.own["worker_threads"],
        timeout_s=None,
        restarts=options.own["worker_restarts"],
        pickle_source=functools.partial(_pickle_source, options),
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
    from dali_like.sources.travel import callback_pickler as pickling  # forked workers need no pickle
    from dali_like.sources.travel.main_module import main_for

    fetcher: Fetcher = parts["source"]
    innards = {
        "dataset": fetcher.dataset,
        "collate_fn": fetcher.collate_fn,
        "worker_init_fn": fetcher.worker_init_fn,
        "on_error": fetcher.on_error,
    }
    main = main_for(options.backend, options.own["import_main"])
    remedy = _REMEDY_OF_THREADS if options.backend.are_threads else _REMEDY
    return pickling.dumps(parts, f"the loader of {name}", innards=innards, remedy=remedy, main=main)


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
