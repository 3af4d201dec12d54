"""Pipelines: what users define, build and run. The methods follow ``nvidia.dali.Pipeline`` 1.53."""

from __future__ import annotations

import contextlib
import errno
import functools
import itertools
import operator
import os
import sys
import warnings
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from dali_like import pickling
from dali_like.device.driver import cuda_is_initialized
from dali_like.errors import (
    ArgumentClashError,
    ArgumentError,
    ArgumentTypeError,
    ClosedError,
    CudaForkError,
    DefinitionError,
    DescriptorLimitError,
    ForkedError,
    PipelineStateError,
)
from dali_like.graph.buffers import BufferPool
from dali_like.graph.executor import Executor
from dali_like.graph.inputs import InputPool
from dali_like.graph.lockstep import Feed, Lockstep
from dali_like.graph.nodes import DataNode, Graph, SourceNode, make_graph
from dali_like.graph.shards import ShardsPool
from dali_like.hazards import fork_hazards
from dali_like.interrupts import InterruptSafeLock
from dali_like.tensors import TensorListCPU
from dali_like.workers.base import InlinePool, Pool
from dali_like.workers.batch import ANY_WORKER
from dali_like.workers.memory import SharedSpace
from dali_like.workers.pool import ProcessPool
from dali_like.workers.samples import Source
from dali_like.workers.starting import START_METHODS, WorkerOptions

__all__ = ["Pipeline", "PipelineStatistics"]


@dataclass(frozen=True)
class PipelineStatistics:
    """What has happened in a pipeline.

    Attributes:
        worker_restarts: how often a worker that had died was replaced.
        replaced_samples: how many samples were replaced as a source's ``on_error`` says.
        held_bytes: memory behind the batches, being made, ready or held by the user, and kept for the next.
    """

    worker_restarts: int
    replaced_samples: int
    held_bytes: int


class Pipeline:
    """Feeds a training loop with batches.

    A pipeline is made by a function under `pipeline_def`, or by hand: ``Pipeline(...)`` and `set_outputs`. Then `run`
    delivers batch after batch until StopIteration ends the epoch, and `reset` begins the next. In a ``for`` loop the
    pipeline does that by itself: ``iter(pipe)`` resets it when the epoch has ended, and otherwise goes on with it.

    Batches that somebody holds are never overwritten; the pipeline takes more memory instead.

    Args:
        batch_size: samples in a batch.
        num_threads: threads that operators run in. Default: the number of CPUs that this process may use.
        device_id: which GPU; None, or ignored as long as nothing asks for one.
        seed: for `SampleInfo.rng`. None, or a negative number: another one for each pipeline.
        prefetch_queue_depth: batches that are computed ahead, at least 1. Parallel sources add their own depth.
        py_num_workers: worker processes, shared by all sources with ``parallel=True``.
        py_start_method: "fork" copies this process as it is when the workers are started, sources included, at once and
            without pickling; but locks and connections are copied as they are, and it must come before CUDA is used.
            "spawn" starts fresh interpreters; sources travel by value.
        py_callback_pickler: how sources travel to spawned workers: a module or object with ``dumps`` and ``loads``, such as
            dill, or a tuple of one, keyword arguments for dumps and, if need be, for loads: ``(dill, {"recurse": True})``.
            None: with cloudpickle, by value where workers could not import them; see `dali_like.pickling`.
        py_worker_threads: threads of OpenCV, OpenMP, BLAS and PyTorch in each worker. Default 1; None leaves them alone.
        py_worker_restarts: how often in a minute a worker that has died is replaced and its samples are computed
            again, so that the batches are what they would have been. Past it, `run` raises. 0: never; None: always.
        py_timeout_s: how long a worker may be on one sample. Then its Python stack is taken, and it is replaced; when the
            sample hangs again, or no worker may be replaced, `run` raises. None: for ever.
        max_held_bytes: how much memory batches may take, those included that somebody holds. Default: half of what the
            machine and the control groups of this process have left when the workers are started.

    Raises:
        ArgumentError: an argument has a value that is not allowed.
    """

    def __init__(
        self,
        batch_size: int,
        num_threads: int | None = None,
        device_id: int | None = None,
        seed: int | None = None,
        *,
        prefetch_queue_depth: int = 2,
        py_num_workers: int = 1,
        py_start_method: str = "fork",
        py_callback_pickler: Any = None,
        py_worker_threads: int | None = 1,
        py_worker_restarts: int | None = 3,
        py_timeout_s: float | None = None,
        max_held_bytes: int | None = None,
    ) -> None:
        if num_threads is None:
            num_threads = len(os.sched_getaffinity(0))
        batch_size = _positive("batch_size", batch_size)
        num_threads = _positive("num_threads", num_threads)
        prefetch_queue_depth = _positive("prefetch_queue_depth", prefetch_queue_depth)
        if py_worker_threads is not None:
            py_worker_threads = _positive("py_worker_threads", py_worker_threads)
        if py_worker_restarts is not None and (not _is_int(py_worker_restarts) or py_worker_restarts < 0):
            raise ArgumentError(f"py_worker_restarts must be an integer from 0 on, or None, not {py_worker_restarts!r}")
        if py_start_method not in START_METHODS:
            raise ArgumentError(f"py_start_method must be one of {', '.join(START_METHODS)}, not {py_start_method!r}")
        if py_callback_pickler is not None and py_start_method == "fork":
            raise ArgumentClashError(
                "py_callback_pickler should not be set when the 'fork' start method is used: forked workers have the "
                "sources already, and nothing is pickled"
            )
        if py_timeout_s is not None and not (_is_number(py_timeout_s) and py_timeout_s > 0):
            raise ArgumentError(f"py_timeout_s must be a positive number of seconds or None, not {py_timeout_s!r}")
        if seed is not None and not _is_int(seed):
            raise ArgumentTypeError(f"seed must be an integer or None, not {seed!r}")
        if max_held_bytes is not None:
            max_held_bytes = _positive("max_held_bytes", max_held_bytes)
        self._batch_size = batch_size
        self._num_threads = num_threads
        self._device_id = device_id
        self._seed = seed
        self._entropy = int.from_bytes(os.urandom(16), "little") if seed is None or seed < 0 else int(seed)
        self._prefetch_queue_depth = prefetch_queue_depth
        self._py_num_workers = py_num_workers
        self._py_start_method = py_start_method
        self._callback_pickler = None
        if py_callback_pickler is not None:
            self._callback_pickler = pickling.make_callback_pickler(py_callback_pickler)
        self._py_worker_threads = py_worker_threads
        self._py_worker_restarts = py_worker_restarts
        self._py_timeout_s = py_timeout_s
        self._max_held_bytes = max_held_bytes
        self._lock = InterruptSafeLock()
        self._call = _Call(self)
        self._pid = 0  # of the process that started the workers
        self._graph: Graph | None = None
        self._space: SharedSpace | None = None
        self._buffers: BufferPool | None = None
        self._process_pool: ProcessPool | None = None
        self._inline_pool: InlinePool | None = None
        self._executor: Executor | None = None
        self._inputs: dict[SourceNode, InputPool] = {}
        self._final_statistics: PipelineStatistics | None = None
        self._closed = False

    @property
    def max_batch_size(self) -> int:
        """Samples in a batch."""
        return self._batch_size

    batch_size = max_batch_size

    @property
    def num_threads(self) -> int:
        """Threads that operators run in."""
        return self._num_threads

    @property
    def device_id(self) -> int | None:
        """Which GPU."""
        return self._device_id

    @property
    def seed(self) -> int | None:
        """The seed given."""
        return self._seed

    @property
    def prefetch_queue_depth(self) -> int:
        """Batches that are computed ahead."""
        return self._prefetch_queue_depth

    @property
    def py_num_workers(self) -> int:
        """Worker processes."""
        return self._py_num_workers

    @property
    def py_start_method(self) -> str:
        """How worker processes are started."""
        return self._py_start_method

    @property
    def py_worker_pids(self) -> list[int]:
        """The process ids of the workers; empty before they have started."""
        pool = self._process_pool  # another thread may be closing the pipeline
        return pool.worker_pids if pool is not None else []

    def statistics(self) -> PipelineStatistics:
        """What has happened so far."""
        process_pool, inline_pool, space = self._process_pool, self._inline_pool, self._space
        if self._final_statistics is not None:  # looked at last, since another thread may be closing the pipeline
            return self._final_statistics
        return PipelineStatistics(
            worker_restarts=process_pool.num_restarts if process_pool is not None else 0,
            replaced_samples=sum(pool.num_replaced for pool in (process_pool, inline_pool) if pool is not None),
            held_bytes=space.used_bytes if space is not None else 0,
        )

    def set_outputs(self, *outputs: DataNode) -> None:
        """Say which nodes `run` delivers.

        Raises:
            DefinitionError: something is not a node, or the pipeline has been built.
        """
        if self._space is not None:
            raise DefinitionError("set_outputs() comes before build()")
        self._graph = make_graph(outputs)

    def start_py_workers(self) -> None:
        """Start the worker processes, and nothing else. `build` and `run` do so where it has not been done.

        With ``py_start_method="fork"`` and several pipelines, or CUDA in this process, call it on each pipeline first.

        Raises:
            ArgumentError: ``py_num_workers`` is not positive, although a source is parallel.
            CudaForkError: workers are to be forked, and CUDA is in use in this process already.
            PicklingError: a source cannot travel to spawned workers.
            DescriptorLimitError: the process may not open more files.
        """
        with self._call:
            self._start_py_workers()

    def _start_py_workers(self) -> None:
        self._check_open()
        if self._space is not None:
            return
        sources = self._make_graph().sources
        parallel = [node for node in sources if node.external.parallel]
        if parallel:
            self._check_workers()
            self._check_fork()
            self._warn_of_hazards(parallel)
        try:
            space = SharedSpace.create(self._max_held_bytes)
            if parallel:
                self._process_pool = self._start_pool(parallel, space)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            raise DescriptorLimitError(
                error.errno,
                "no file descriptors are left for a pipeline, which needs 8 and up to three for each worker; close some, or "
                "raise `ulimit -n`",
            ) from error
        self._space = space
        self._pid = os.getpid()

    def _start_pool(self, parallel: list[SourceNode], space: SharedSpace) -> ProcessPool:
        options = WorkerOptions(
            self._py_num_workers,
            self._py_start_method,
            self._py_worker_threads,
            self._py_timeout_s,
            self._py_worker_restarts,
            functools.partial(pickling.dumps, pickler=self._callback_pickler),
        )
        sources = [(self._source_of(node), node.external.declared) for node in parallel]
        return ProcessPool(sources, self._batch_size, space, options)

    def _source_of(self, node: SourceNode) -> Source:
        return node.external.source(self._batch_size, (self._entropy, self._make_graph().sources.index(node)))

    def build(self) -> None:
        """Define the graph, start the workers and prepare to run. `run` does so where it has not been done.

        It does not wait for the workers: what they meet when they start is raised by the first `run`.

        Raises:
            DefinitionError: the pipeline has no outputs, or illegal ones.
            ArgumentError, CudaForkError, PicklingError: see `start_py_workers`.
        """
        with self._call:
            self._build()

    def _build(self) -> None:
        self._check_open()
        if self._executor is not None:
            return
        self._start_py_workers()
        assert self._space is not None
        graph = self._make_graph()
        serial = [node for node in graph.sources if node.external.kind is not None and not node.external.parallel]
        self._inputs = {
            node: InputPool(node.external, self._batch_size) for node in graph.sources if node.external.kind is None
        }
        self._inline_pool = InlinePool(
            [(self._source_of(node), node.external.declared) for node in serial], self._batch_size, self._space
        )
        self._buffers = BufferPool(self._space)
        self._executor = Executor(
            graph,
            Lockstep(self._feeds(graph), self._batch_size),
            self._buffers,
            self._num_threads,
            self._prefetch_queue_depth,
            self._inputs,
        )

    def run(self) -> tuple[TensorListCPU, ...]:
        """The next batch: one `TensorListCPU` for each output.

        Raises:
            StopIteration: the epoch has ended; so does every call until `reset`.
            Exception: what a callback raised, of its own type, with a note that says for which sample. The batches before it
                have been delivered, and the next call goes on with the next batch.
            WorkerDiedError, WorkerTimeoutError: a worker has ended, or has been on one sample for too long, and not for the
                first time; see ``py_worker_restarts`` and ``py_timeout_s``.
            WorkerStartError: a worker could not start; the cause is what the unpickling of a source, or its worker_setup,
                raised there.
            OutOfMemoryError: there is no memory for the batch. It is not lost: a later call may find some.
            ClosedError, ForkedError: the pipeline has been closed; it belongs to the process that this one was forked from.
        """
        with self._call:
            self._build()
            assert self._executor is not None
            return self._executor.run()

    def reset(self) -> None:
        """Begin the next epoch, whether or not this one has ended. Without effect if nothing has been taken from it yet."""
        with self._call:
            self._check_open()
            if self._executor is not None:
                self._executor.reset()

    def close(self) -> None:
        """End the workers and give back all memory but that of batches which somebody still holds. May be called twice.

        A pipeline that is dropped, or left behind at the end of the program, closes itself.
        """
        if self._is_inherited():
            return  # workers, threads and memory are the parent's
        self._closed = True
        if (pool := self._process_pool) is not None:
            pool.stop_waiting()  # which ends a run() that another thread may be in
        for entry in list(self._inputs.values()):
            entry.stop_waiting()
        with self._lock:
            if not self._lock.is_nested:  # else the call that this one interrupts does it when it ends
                self._close()

    def _close(self) -> None:
        if self._final_statistics is not None:
            return
        with contextlib.ExitStack() as stack:
            # All of it happens, even if a source's worker_teardown raises.
            stack.callback(self._forget)
            for part in (*self._inputs.values(), self._buffers, self._inline_pool, self._process_pool, self._executor):
                if part is not None:
                    stack.callback(part.close)

    def _forget(self) -> None:
        self._final_statistics = self.statistics()
        # Whoever still holds a batch keeps the mapping; nobody else does.
        self._executor = self._process_pool = self._inline_pool = self._buffers = self._space = None
        self._graph = None  # with the sources, and whatever they hold

    def __iter__(self) -> Iterator[tuple[TensorListCPU, ...]]:
        self._check_open()
        if self._executor is not None and self._executor.ended:
            self.reset()
        return self

    def __next__(self) -> tuple[TensorListCPU, ...]:
        return self.run()

    def __repr__(self) -> str:
        state = "closed" if self._closed else "built" if self._executor is not None else "not built"
        return f"<{type(self).__qualname__} of batches of {self._batch_size}, {state}>"

    def _make_graph(self) -> Graph:
        if self._graph is None:
            self._graph = make_graph(None)
        return self._graph

    def _feeds(self, graph: Graph) -> list[Feed]:
        """For each source, in the order of the graph: which pool computes it, its number there, and how far ahead."""
        feeds = []
        serial, parallel, homes = itertools.count(), itertools.count(), itertools.count()
        for node in graph.sources:
            external = node.external
            ahead = self._prefetch_queue_depth + external.prefetch_queue_depth
            sizes, goes_on = external.sizes(self._batch_size), external.kind is None or external.kind.goes_on
            pool: Pool | None = self._process_pool if external.parallel else self._inline_pool
            assert pool is not None
            index, worker = next(parallel if external.parallel else serial), ANY_WORKER
            if external.kind is None:
                pool, index = self._inputs[node], 0
            elif external.sharded:
                pool = ShardsPool(pool, self._py_num_workers)
            elif external.parallel and external.kind.in_order:
                worker = next(homes) % self._py_num_workers
            feeds.append(Feed(pool, index, ahead, external.parallel, worker, goes_on, sizes))
        return feeds

    def _check_workers(self) -> None:
        workers = self._py_num_workers
        if not _is_int(workers) or workers < 1:
            raise ArgumentClashError(
                "The pipeline contains `fn.external_source` with `parallel` argument specified to True, which needs worker "
                f"processes: `py_num_workers` must be a positive integer, not {workers!r}"
            )

    def _check_fork(self) -> None:
        if self._py_start_method == "fork" and cuda_is_initialized():
            raise CudaForkError(
                "cannot fork worker processes: CUDA has been initialized in this process, and would not work in a fork. "
                "Call start_py_workers() on each pipeline before anything uses CUDA, or use py_start_method='spawn'"
            )

    def _warn_of_hazards(self, parallel: list[SourceNode]) -> None:
        if self._py_start_method != "fork":
            return
        for node in parallel:
            assert node.external.kind is not None
            for hazard in fork_hazards(node.external.kind.callback):
                warnings.warn(
                    f"{node.external.name} does not fork well: {hazard}. Make it in the worker, at the first call, "
                    "or use py_start_method='spawn'",
                    RuntimeWarning,
                    stacklevel=_level_of_caller(),
                )

    def _is_inherited(self) -> bool:
        """Whether the pipeline was started by the process that this one was forked from."""
        return self._space is not None and self._pid != os.getpid()

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the pipeline has been closed")
        if self._is_inherited():
            raise ForkedError(
                f"this pipeline belongs to process {self._pid}, which this one was forked from; make another one here"
            )


def _level_of_caller() -> int:
    """The ``stacklevel`` by which the function that calls this warns of the line outside of this package."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals["__name__"].partition(".")[0] == __package__:
        level, frame = level + 1, frame.f_back
    return level


class _Call:
    """The context of a call that uses or changes what a pipeline consists of: one at a time, from whatever thread.

    A callback or a signal handler may interrupt such a call by another one. Only `close` makes sense there, and takes
    effect when the interrupted call ends.
    """

    def __init__(self, pipe: Pipeline) -> None:
        self._pipe = weakref.proxy(pipe)

    def __enter__(self) -> None:
        pipe = self._pipe
        pipe._check_open()  # before the lock, which a thread may have held when this process was forked
        pipe._lock.__enter__()
        if pipe._lock.is_nested:
            pipe._lock.__exit__(None)
            raise PipelineStateError(
                "a pipeline can be used neither by its own callbacks nor by signal handlers during a call"
            )

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        pipe = self._pipe
        try:
            if pipe._closed:
                pipe._close()
        finally:
            pipe._lock.__exit__(kind)


def _positive(name: str, value: Any) -> int:
    if not _is_int(value):
        raise ArgumentTypeError(f"{name} must be a positive integer, not {value!r}")
    if value < 1:
        raise ArgumentError(f"{name} must be a positive integer, not {value!r}")
    return operator.index(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_int(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)
