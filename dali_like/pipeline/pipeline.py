"""Pipelines: what users define, build and run. The methods follow ``nvidia.dali.Pipeline`` 1.53."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dali_like.engine.memory.descriptors import enough_descriptors
from dali_like.errors import ClosedError, DefinitionError, ForkedError
from dali_like.graph.defining import Definable
from dali_like.graph.expectations import Expectation, check_outputs, make_expectations
from dali_like.graph.pipeline_arguments import Arguments, OperatorConcurrency, StreamPolicy, warn_of_deprecated
from dali_like.monitor.loops import LoopMeter
from dali_like.monitor.traceable import TraceablePipeline
from dali_like.pipeline.calls import OneCall
from dali_like.pipeline.feeding import Feedable
from dali_like.pipeline.reporting import Reporting
from dali_like.pipeline.resuming import Resumable
from dali_like.pipeline.saving import Serializable
from dali_like.pipeline.scheduling import Schedulable, let_wait
from dali_like.types import PipelineAPIType

if TYPE_CHECKING:
    from dali_like.graph.computation import TensorList
    from dali_like.graph.executor import Executor
    from dali_like.monitor.statistics import Statistics
    from dali_like.pipeline.checkpoints import Checkpoint
    from dali_like.pipeline.runtime import Runtime


class Pipeline(Feedable, Schedulable, Serializable, Resumable, Reporting, TraceablePipeline):
    """Feeds a training loop with batches.

    A pipeline is made by a function under `pipeline_def`, or by hand: ``Pipeline(...)`` and `set_outputs`. Then `run`
    delivers batch after batch until StopIteration ends the epoch, and `reset` begins the next. In a ``for`` loop the
    pipeline does that by itself: ``iter(pipe)`` resets it when the epoch has ended, and otherwise goes on with it.

    Batches that somebody holds are never overwritten; the pipeline takes more memory instead.

    Args:
        batch_size: samples in a batch. Only a pipeline that is loaded from a file can do without.
        num_threads: threads that operators run in, unless as many workers or more can do it: see `operator_places`. Default:
            the number of CPUs that this process may use.
        device_id: which GPU outputs are copied to that are wanted there; its number among those that CUDA shows to this
            process. None, or ignored, as long as none is.
        seed: for `SampleInfo.rng` and random operators. None, or a negative number: another one for each pipeline.
        prefetch_queue_depth: batches that are computed ahead, at least 1. Parallel sources add their own depth. Of a dict
            ``{"cpu_size": ..., "gpu_size": ...}`` the first counts, and the second for copies to a GPU. "auto": as many as
            the workers and the longest samples want; see docs/performance.md.
        py_num_workers: worker processes, shared by all sources with ``parallel=True``. What they print, log and warn comes
            in whole lines, marked with the worker. "auto": a few, and more as soon as the time that callbacks and the loop
            take says so; ``statistics().settings.chosen`` tells. See docs/performance.md.
        py_start_method: "fork" copies this process as it is when the workers are started, sources included, at once and
            without pickling; but locks and connections are copied as they are, and it must come before CUDA is used.
            "spawn" starts fresh interpreters; sources travel by value. "thread" starts threads of this process, which share
            the sources: for callbacks that release the GIL, or a Python without one; see docs/performance.md. "ray" (extra
            ``dali_like[ray]``) makes them actors of Ray: on the cluster that the program has connected to by ``ray.init``,
            or on a local one that the pipeline starts, and ends when it is closed. See docs/scaling.md.
        py_callback_pickler: how sources travel to spawned workers: a module or object with ``dumps`` and ``loads``, such as
            dill, or a tuple of one, keyword arguments for dumps and, if need be, for loads: ``(dill, {"recurse": True})``.
            None: with cloudpickle, by value where workers could not import them; see `dali_like.sources.callback_pickler`.
        py_worker_options: what Ray is to find a place for each worker by, as for ``ray.remote``: ``{"num_cpus": 1,
            "resources": {...}}`` and the like. Default: one CPU.
        enable_checkpointing: whether `state_dict` and `checkpoint` may be called.
        checkpoint: what `checkpoint` or `state_dict` has returned; the pipeline goes on from there.
        output_dtype, output_ndim, output_layout: what `run` holds the outputs against, each batch: one value for all, or a
            list with one for each, of which None and an empty layout allow anything. Dtypes may be NumPy's, too.
        exec_pipelined: False: the first `schedule_run` schedules one batch, not as many as are computed ahead.
        set_affinity: True: workers and threads are bound to the CPUs near the GPU of that `device_id`, if there is one.
        exec_async, exec_dynamic, bytes_per_sample, enable_memory_stats, stream_policy, concurrency: without effect, since
            they choose among executors that DALI has; they are checked, and shown by the properties.
        max_streams, default_cuda_stream_priority, experimental_exec_dynamic: without effect, and deprecated.
        py_worker_threads: threads of OpenCV, OpenMP, BLAS and PyTorch in each worker. Default 1; None leaves them alone.
            With "thread" they are the program's own, and are left alone.
        py_worker_restarts: how often in a minute a worker that has died is replaced and its samples are computed
            again, so that the batches are what they would have been. Past it, `run` raises. 0: never; None: always.
        py_timeout_s: how long a worker may be on one sample. Then its Python stack is taken, and it is replaced; when the
            sample hangs again, or no worker may be replaced, `run` raises; and at once where a worker takes longer to
            start, for which it has ten seconds at least: worker_setup, and unpickling the sources. None: for ever. Not
            with "ray". With "thread" `run` raises the first time: a thread cannot be ended from outside. It goes on beside
            the one that takes its place, until its callback returns.
        max_held_bytes: how much memory batches may take, those included that somebody holds. Default: half of what the
            machine and the control groups of this process have left when the workers are started.

    Raises:
        ArgumentError: an argument has a value that is not allowed.
    """

    def __init__(
        self,
        batch_size: int | None = None,
        num_threads: int | None = None,
        device_id: int | None = None,
        seed: int | None = None,
        exec_pipelined: bool = True,
        prefetch_queue_depth: int | dict[str, int] | str = 2,
        exec_async: bool = True,
        bytes_per_sample: int = 0,
        set_affinity: bool = False,
        max_streams: int | None = None,
        default_cuda_stream_priority: int | None = None,
        *,
        enable_memory_stats: bool = False,
        enable_checkpointing: bool = False,
        checkpoint: bytes | str | Mapping[str, Any] | None = None,
        py_num_workers: int | str | None = 1,
        py_start_method: str = "fork",
        py_callback_pickler: Any = None,
        py_worker_options: dict[str, Any] | None = None,
        output_dtype: Any = None,
        output_ndim: int | Sequence[int | None] | None = None,
        output_layout: str | Sequence[str | None] | None = None,
        exec_dynamic: bool | None = None,
        experimental_exec_dynamic: bool | None = None,
        stream_policy: StreamPolicy | None = None,
        concurrency: OperatorConcurrency | None = None,
        py_worker_threads: int | None = 1,
        py_worker_restarts: int | None = 3,
        py_timeout_s: float | None = None,
        max_held_bytes: int | None = None,
    ) -> None:
        super().__init__()
        warn_of_deprecated(
            max_streams=max_streams,
            default_cuda_stream_priority=default_cuda_stream_priority,
            experimental_exec_dynamic=experimental_exec_dynamic,
        )
        arguments = Arguments(
            batch_size=batch_size,
            num_threads=num_threads,
            device_id=device_id,
            seed=seed,
            exec_pipelined=exec_pipelined,
            prefetch_queue_depth=prefetch_queue_depth,
            exec_async=exec_async,
            bytes_per_sample=bytes_per_sample,
            set_affinity=set_affinity,
            enable_memory_stats=enable_memory_stats,
            py_num_workers=py_num_workers,
            py_start_method=py_start_method,
            py_callback_pickler=py_callback_pickler,
            py_worker_options=py_worker_options,
            enable_checkpointing=enable_checkpointing,
            checkpoint=None if checkpoint is None else _checkpoint_of(checkpoint),
            output_dtype=output_dtype,
            output_ndim=output_ndim,
            output_layout=output_layout,
            exec_dynamic=exec_dynamic if experimental_exec_dynamic is None else experimental_exec_dynamic,
            stream_policy=stream_policy,
            concurrency=concurrency,
            py_worker_threads=py_worker_threads,
            py_worker_restarts=py_worker_restarts,
            py_timeout_s=py_timeout_s,
            max_held_bytes=max_held_bytes,
        )
        self._adopt(arguments)
        self._call: OneCall = OneCall(self)
        self._runtime: Runtime | None = None
        self._expectations: tuple[Expectation, ...] = ()
        self._meter = LoopMeter()
        self._final_statistics: Statistics | None = None
        self._closed = False

    def _adopt(self, arguments: Arguments) -> None:
        self._arguments = arguments
        self._batch_size = arguments.batch_size or 0
        self._entropy = int.from_bytes(os.urandom(16), "little") if arguments.seed is None else arguments.seed
        if arguments.checkpoint is not None:
            self._entropy = arguments.checkpoint.seed

    def start_py_workers(self) -> None:
        """Start the worker processes, and nothing else. `build` and `run` do so where it has not been done.

        With ``py_start_method="fork"`` and several pipelines, or CUDA in this process, call it on each pipeline first.

        Raises:
            ArgumentError: ``py_num_workers`` is not positive, although a source is parallel.
            CudaForkError: workers are to be forked, and CUDA is in use in this process already.
            PicklingError: a source cannot travel to spawned workers.
            DeviceError, MissingExtraError: an output is wanted on a GPU, and there is none, or no CuPy to use it by.
            DescriptorLimitError: the process may not open more files.
            ProcessLimitError: no process may be started that starts the workers; where these cannot be, `run` raises a
                WorkerStartError.
        """
        with self._call:
            self._start()

    def _start(self) -> Runtime:
        self._check_open()
        if self._runtime is None:
            with enough_descriptors("a pipeline"):
                from dali_like.pipeline.runtime import Runtime  # noqa: PLC0415  # workers, rings, devices: not before they are needed

            graph, given = self._make_graph(), self._arguments
            self._expectations = make_expectations(
                len(graph.outputs), given.output_dtype, given.output_ndim, given.output_layout
            )
            self._runtime = Runtime(graph, given, self._entropy)
            self._publish_if_told()
        return self._runtime

    def build(self) -> None:
        """Define the graph, start the workers and prepare to run. `run` does so where it has not been done.

        It does not wait for the workers: what they meet when they start is raised by the first `run`.

        Raises:
            DefinitionError: the pipeline has no outputs, or illegal ones.
            ArgumentError, CudaForkError, DeviceError, MissingExtraError, PicklingError: see `start_py_workers`.
        """
        with self._call:
            self._build()

    def _build(self) -> Executor:
        return self._start().build()

    def run(self, cuda_stream: Any = None, /, **inputs: Any) -> tuple[TensorList, ...]:
        """The next batch: one `TensorListCPU` or `TensorListGPU` for each output, or a list for those of Python objects.

        Args:
            cuda_stream: the stream that works on outputs on the GPU: it is told to wait for them, and this process does not
                wait. None: the GPU's default stream, and the current ones of PyTorch and CuPy in this thread.
            inputs: batches to feed before, by the names of the inputs; see `feed_input`.

        Raises:
            StopIteration: the epoch has ended; so does every call until `reset`.
            Exception: what a callback raised, of its own type, with a note that says for which sample. The batches before it
                have been delivered, and the next call goes on with the next batch.
            WorkerDiedError, WorkerTimeoutError: a worker has ended, or has been on one sample for too long, and not for the
                first time, or hangs when it starts; see ``py_worker_restarts`` and ``py_timeout_s``.
            WorkerStartError: a worker could not start; the cause is what the unpickling of a source, or its worker_setup,
                raised there.
            DtypeMismatchError, NdimMismatchError, LayoutMismatchError: an output is not what ``output_dtype``,
                ``output_ndim`` or ``output_layout`` says. The batch is dropped.
            DeviceError: a copy to the GPU has failed; where it was begun, that of a batch before.
            OutOfMemoryError: there is no memory for the batch, here or on the GPU. It is not lost: a later call may find it.
            PipelineStateError: the pipeline is run by `schedule_run`.
            ClosedError, ForkedError: the pipeline has been closed; it belongs to the process that this one was forked from.
        """
        self._use_api(PipelineAPIType.BASIC)
        if inputs:
            self._feed_all(inputs)
        outputs = self._scheduled.popleft() if self._scheduled else self._take()
        let_wait(outputs, cuda_stream)
        return outputs

    def _take(self) -> tuple[TensorList, ...]:
        if getattr(self.iter_setup, "__func__", None) is not Definable.iter_setup:
            self._set_up_iteration()
        self._meter.begin()
        try:
            with self._call:
                batch = (self._executor or self._build()).run()
        except BaseException as error:
            self._meter.fail(error)
            raise
        self._meter.end()
        if self._expectations:
            check_outputs(self._expectations, batch)
        return batch

    def _set_up_iteration(self) -> None:
        """Call `iter_setup`, outside of the lock: it may use the pipeline."""
        self._build_once()
        executor = self._executor  # another thread may be closing the pipeline
        if executor is None or executor.ended:
            return
        try:
            self.iter_setup()
        except StopIteration:
            executor.end_epoch()
            raise

    def reset(self) -> None:
        """Begin the next epoch, whether or not this one has ended. Without effect if nothing has been taken from it yet."""
        with self._call:
            self._check_open()
            self._meter.pause()
            if (executor := self._executor) is not None:
                executor.reset()
                self._forget_schedule()

    def close(self) -> None:
        """End the workers and give back all memory but that of batches which somebody still holds. May be called twice.

        A pipeline that is dropped, or left behind at the end of the program, closes itself.
        """
        if self._is_inherited():
            return  # workers, threads and memory are the parent's
        self._closed = True
        if (runtime := self._runtime) is not None:
            runtime.stop_waiting()  # which ends a run() that another thread may be in
        self._call.close()

    def _close(self) -> None:
        if self._final_statistics is not None:
            return
        try:
            if self._runtime is not None:
                self._runtime.close()
        finally:
            self._unpublish()
            self._forget_schedule()
            self._final_statistics = self.statistics()
            self._runtime = None  # whoever still holds a batch keeps the mapping; nobody else does
            self._forget_graph()

    def __len__(self) -> int:
        """The number of batches in an epoch.

        Raises:
            DefinitionError: no source says how long it is, by ``__len__`` or ``size``.
        """
        with self._call:
            sizes = [node.external.sizes(self._batch_size) for node in self._make_graph().sources]
        lengths = [size.num_batches for size in sizes if size is not None]
        if not lengths:
            raise DefinitionError("the length of an epoch is unknown: give a source that has __len__, or say size=")
        return min(lengths)

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[tuple[TensorList, ...]]:
        self._check_open()
        if (executor := self._executor) is not None and executor.ended:
            self.reset()
        return self

    def __next__(self) -> tuple[TensorList, ...]:
        return self.run()

    def __repr__(self) -> str:
        state = "closed" if self._closed else "built" if self._executor is not None else "not built"
        return f"<{type(self).__qualname__} of batches of {self._batch_size}, {state}>"

    def _build_once(self) -> None:
        # A thread that has built it meanwhile may keep the lock for as long as it waits for what is to be fed.
        if self._executor is None and self._call.begin_unless(self._is_built):
            with contextlib.ExitStack() as stack:
                stack.push(self._call)
                self._build()

    def _is_built(self) -> bool:
        return self._executor is not None

    @property
    def _executor(self) -> Executor | None:
        runtime = self._runtime  # another thread may be closing the pipeline
        return None if runtime is None else runtime.executor

    def _first_batches(self) -> int:
        return self.cpu_queue_size if self.exec_pipelined else 1

    def _is_inherited(self) -> bool:
        """Whether the pipeline was started by the process that this one was forked from."""
        return self._runtime is not None and self._runtime.pid != os.getpid()

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the pipeline has been closed")
        if self._runtime is not None and self._is_inherited():
            raise ForkedError(
                f"this pipeline belongs to process {self._runtime.pid}, the parent of this fork; make another one here"
            )


def _checkpoint_of(state: bytes | str | Mapping[str, Any]) -> Checkpoint:
    from dali_like.pipeline.checkpoints import Checkpoint  # noqa: PLC0415  # needed only with `checkpoint=`

    return Checkpoint.of(state)
