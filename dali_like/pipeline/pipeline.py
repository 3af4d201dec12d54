"""`Pipeline`: definition, running, checkpoints, serialization and statistics, as in ``nvidia.dali.Pipeline`` 1.53.

A pipeline owns its parts, and its methods delegate to them. The parts are the definition
(`dali_like.graph.language.defining`), the runtime with workers, shared memory and executor
(`dali_like.pipeline.runtime`), the schedule (`dali_like.pipeline.scheduling`) and the monitor
(`dali_like.monitor.monitoring`). All of them belong to the process that made the pipeline.
"""

from __future__ import annotations

import contextlib
import functools
import os
import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast, overload

from dali_like.common.articles import kind_of
from dali_like.common.checks import not_negative
from dali_like.common.collector import paused_collector
from dali_like.common.hooks import LoopHooks
from dali_like.common.interrupts import InterruptSafeLock, interruptible
from dali_like.common.stability import unstable, warn_deprecated
from dali_like.common.suggestions import list_unknown, suggest_arguments
from dali_like.common.tracebacks import collapse, user_frames_first
from dali_like.engine.memory.descriptors import enough_descriptors
from dali_like.engine.memory.limits import allowed_cpus
from dali_like.errors import (
    ArgumentClashError,
    ArgumentError,
    ArgumentTypeError,
    ClosedError,
    DefinitionError,
    ForkedError,
    NoOutputsError,
    OriginError,
    PipelineStateError,
    SampleIndexError,
)
from dali_like.graph.execution.pipeline_arguments import (
    DEFAULT_START_METHOD,
    DEFAULT_WORKERS,
    Arguments,
    OperatorConcurrency,
    StreamPolicy,
    make_arguments,
)
from dali_like.graph.language.defining import NO_OUTPUTS, Definition, current_pipeline, pop_pipeline, push_pipeline
from dali_like.graph.language.nodes import DataNode, Graph, OperatorNode, producer_names
from dali_like.monitor.measure.loops import LoopMeter
from dali_like.monitor.monitoring import Monitor
from dali_like.pipeline.calls import ExclusiveCall
from dali_like.pipeline.expectations import Expectation, check_outputs, make_expectations, per_output
from dali_like.pipeline.scheduling import Schedule, wait_on_stream
from dali_like.types import DALIDataType, PipelineAPIType

if TYPE_CHECKING:
    from dali_like.engine.pool.pool import WorkerPool
    from dali_like.graph.execution.computation import TensorList
    from dali_like.graph.execution.executor import Executor
    from dali_like.graph.execution.inputs import InputPool
    from dali_like.monitor.measure.statistics import Statistics
    from dali_like.monitor.profile.profiling import Profiling
    from dali_like.monitor.show.report import Report
    from dali_like.pipeline.checkpoints import Checkpoint
    from dali_like.pipeline.operator_steps import OperatorStep
    from dali_like.pipeline.pipeline_trace import PipelineTrace
    from dali_like.pipeline.runtime import Runtime
    from dali_like.serving.batch_server import Policy, Server
    from dali_like.sources.origins import Origins

_T = TypeVar("_T")

#: Batches whose origins the program can ask for.
_NUM_RECENT = 8


def _shown(read: Callable[[Arguments], _T], doc: str) -> _T:
    """Make a read-only property of a pipeline that shows an argument."""
    shown: Any = property(lambda pipe: read(pipe._arguments), doc=doc)
    return cast(_T, shown)


class Pipeline:
    """Feeds a training loop with batches.

    A function under `pipeline_def` defines a pipeline; or ``Pipeline(...)`` and `set_outputs` do. `run` delivers batch after
    batch until StopIteration ends the epoch. `reset` begins the next epoch. A ``for`` loop over the pipeline resets it if
    the epoch has ended, and otherwise continues the epoch.

    Batches that the program still holds are never overwritten; the pipeline takes more memory instead.

    Args:
        batch_size: samples in a batch. Optional only for a pipeline that is loaded from a file.
        num_threads: threads for operators, unless as many workers or more can run them: see `operator_places`. Default: the
            number of CPUs that this process may use.
        device_id: CUDA device index for GPU outputs; ignored without any.
        seed: seed of `SampleInfo.rng` and random operators. None or a negative number: a different seed for each pipeline.
        prefetch_queue_depth: batches computed ahead, at least 1. Parallel sources add their own depth. Of a dict
            ``{"cpu_size": ..., "gpu_size": ...}`` the second counts for copies to a GPU. "auto": chosen from the speed of
            the workers and the longest samples; see docs/performance.md.
        py_num_workers: worker processes, shared by readers and all sources with ``parallel=True``. Default: 1; with readers,
            `num_threads`. 0: readers run in this process. The output, logs and warnings of workers come in whole lines,
            marked with the worker. "auto": a few, and more when the times of callbacks and loop require it;
            ``statistics().settings.chosen`` shows the choice. See docs/performance.md.
        py_start_method: "fork" copies this process, sources included, without pickling; locks and connections are copied as
            they are, and workers must start before CUDA is used. It is the default, unless CUDA is in use and only readers
            are parallel: then "spawn". "spawn" starts fresh interpreters; sources travel by value.
            "thread" starts threads of this process, which share the sources: for callbacks that release the GIL, or a Python
            without one; see docs/performance.md. With "thread_copies", each thread has copies of the sources.
            "ray" (extra ``ray``) starts Ray actors: on the cluster of ``ray.init``, or on a local one that the pipeline
            starts, and stops when it is closed. See docs/ray-cluster.md.
            "forkserver" is the same as "spawn": a forkserver starts the workers in any case.
        py_import_main: whether spawned workers import the program's main module, as those of `multiprocessing` do: once, in
            the process from which they are forked. So they have what it changes in other modules, its functions and classes
            travel by name, and the code that builds pipelines must be under ``if __name__ == "__main__":``. None: if the
            module has such a line at its top level; objects of other main modules travel by value. See
            docs/how-to/fork-or-spawn.md.
        py_callback_pickler: pickler of sources for spawned workers: a module or object with ``dumps`` and ``loads``, such as
            dill, or a tuple of one, keyword arguments for dumps and optionally for loads: ``(dill, {"recurse": True})``.
            None: cloudpickle, by value where workers could not import; see `dali_like.sources.travel.callback_pickler`.
        py_worker_options: resources of each Ray worker, as for ``ray.remote``: ``{"num_cpus": 1, "resources": {...}}``.
            Default: one CPU.
        enable_checkpointing: whether `state_dict` and `checkpoint` may be called.
        checkpoint: a result of `checkpoint` or `state_dict`, from which the pipeline resumes. With composed datasets, also
            a list of those of all ranks, for any other number of ranks.
        output_dtype, output_ndim, output_layout: expected dtype, ndim and layout, checked for every batch: one value for all
            outputs, or a list with one per output. None and an empty layout allow anything. NumPy dtypes are allowed.
        exec_pipelined: False: the first `schedule_run` schedules one batch, instead of as many as are computed ahead.
        set_affinity: True: bind workers and threads to the CPUs near the GPU `device_id`, if there is one.
        exec_async, exec_dynamic, bytes_per_sample, enable_memory_stats, stream_policy, concurrency: without effect: they
            choose among executors of DALI. They are checked, and shown by the properties.
        max_streams, default_cuda_stream_priority, experimental_exec_dynamic: without effect, and deprecated.
        py_worker_threads: threads of OpenCV, OpenMP, BLAS and PyTorch in each worker. Default 1; None leaves them unchanged.
            With threads they belong to the program, and stay unchanged.
        py_worker_restarts: number of times per minute that a dead worker is replaced. Its samples are computed again, with
            the same result. Beyond it, `run` raises. 0: never replace; None: always. The same number applies to the process
            that starts the workers.
        py_timeout_s: time limit of a worker for one sample, in seconds. Beyond it, the Python stack of the worker is taken,
            and the worker is replaced. `run` raises if the sample hangs again, or no worker may be replaced; and at once if
            a worker takes longer to start (unpickling of sources, worker_setup), for which it has at least ten seconds.
            None: no limit. Not with "ray". With threads `run` raises the first time: a thread cannot be ended from outside,
            and runs beside its replacement until its callback returns.
        max_held_bytes: memory limit of batches, including batches that the program holds. Default: half of the memory that
            the machine and the control groups of this process have left when the workers are started.

    Raises:
        ArgumentError: an argument has a value that is not allowed.
    """

    @suggest_arguments
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
        checkpoint: bytes | str | Mapping[str, Any] | Sequence[Any] | None = None,
        py_num_workers: int | str | None = DEFAULT_WORKERS,
        py_start_method: str = DEFAULT_START_METHOD,
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
        py_import_main: bool | None = None,
    ) -> None:
        given = dict(locals())  # before any other local variable: the signature is the list of arguments
        del given["self"], given["checkpoint"]
        self._arguments = make_arguments(**given)
        self._definition = Definition()
        self._call_lock = InterruptSafeLock()
        self._schedule = Schedule()
        self._meter = LoopMeter()
        #: The identities of the latest batches, of consecutive iterations.
        self._recent: deque[int] = deque(maxlen=_NUM_RECENT)
        self._monitor = Monitor(self._meter)
        self._runtime: Runtime | None = None
        self._expectations: tuple[Expectation, ...] = ()
        self._final_statistics: Statistics | None = None
        self._closed = False
        self._restored: Checkpoint | None = None
        self._adopt(self._arguments, None if checkpoint is None else _checkpoint_of(checkpoint))

    def _adopt(self, arguments: Arguments, checkpoint: Checkpoint | None) -> None:
        """Take over arguments and a checkpoint to resume from. The checkpoint also has the seed."""
        self._arguments, self._restored = arguments, checkpoint
        self._batch_size = arguments.batch_size or 0
        if checkpoint is not None:
            self._entropy = checkpoint.seed
        elif arguments.seed is not None:
            self._entropy = arguments.seed
        else:
            self._entropy = int.from_bytes(os.urandom(16), "little")

    # Definition

    @staticmethod
    def current() -> Pipeline | None:
        """Return the pipeline being defined in this thread: the innermost ``with pipe:``, or None."""
        pipeline: Pipeline | None = current_pipeline()
        return pipeline

    @staticmethod
    def push_current(pipeline: Pipeline) -> Pipeline | None:
        """Make a pipeline the current one until `pop_current`. Return the one before it."""
        before: Pipeline | None = push_pipeline(pipeline)
        return before

    @staticmethod
    def pop_current() -> None:
        """Make the pipeline before it the current one again.

        Raises:
            PipelineStateError: there is no current pipeline.
        """
        pop_pipeline()

    def __enter__(self) -> Self:
        """Make this the current pipeline. Leaving the context does not close it."""
        push_pipeline(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.pop_current()

    @user_frames_first
    def set_outputs(self, *outputs: Any) -> None:
        """Set the outputs that `run` delivers.

        Args:
            outputs: nodes; or numbers, one-dimensional lists of numbers and arrays, which are delivered as constants: see
                `dali_like.types.Constant`.

        Raises:
            DefinitionError: an output is neither, or the pipeline has been built.
        """
        self._definition.set_outputs(*outputs)

    @user_frames_first
    def add_sink(self, edge: DataNode) -> None:
        """Compute a node although no output needs it, for the side effects of its callback.

        Raises:
            DefinitionError: `edge` is not a node, or the pipeline has been built.
        """
        self._definition.add_sink(edge)

    def define_graph(self) -> Any:
        """Return the outputs, as a tuple, a list or a single one. A subclass of Pipeline may define this method.

        The build calls it, unless `set_outputs` has been called.
        """
        raise NoOutputsError(NO_OUTPUTS)

    def iter_setup(self) -> None:
        """Prepare the next batch, for example feed inputs. A subclass of Pipeline may define this method.

        Every `run` calls it first. It may raise StopIteration, which ends the epoch.
        """

    def _make_graph(self) -> Graph:
        graph = self._definition.make_graph(self._define)
        if not self._arguments.py_num_workers:
            for node in graph.sources:
                node.read_without_workers()
        return graph

    def _define(self) -> Any:
        with self, interruptible():
            return self.define_graph()

    # Start and build

    @user_frames_first
    def start_py_workers(self) -> None:
        """Start the worker processes, and nothing else. `build` and `run` do so if it has not been done.

        With ``py_start_method="fork"`` and several pipelines, or CUDA in this process, call it on each pipeline first.

        Raises:
            ArgumentError: ``py_num_workers`` is not positive, although a source is parallel.
            CudaForkError: workers would be forked, and this process uses CUDA already.
            PicklingError: a source cannot travel to spawned workers.
            DeviceError, MissingExtraError: an output is wanted on a GPU, and there is no GPU, or no CuPy.
            DescriptorLimitError: the process may not open more files.
            ProcessLimitError: the process that starts the workers cannot be started. If workers cannot be started, `run`
                raises a WorkerStartError.
        """
        with self._call:
            self._start()

    def _start(self) -> Runtime:
        self._check_open()
        if self._runtime is None:
            with enough_descriptors("a pipeline"), paused_collector():
                from dali_like.pipeline.runtime import Runtime  # lazy: workers, rings, devices

            graph, given = self._make_graph(), self._arguments
            self._expectations = make_expectations(
                len(graph.outputs), given.output_dtype, given.output_ndim, given.output_layout
            )
            self._runtime = Runtime(graph, given, self._entropy, self._restored)
            self._monitor.publish_if_requested(self)
        return self._runtime

    @user_frames_first
    def build(self) -> None:
        """Define the graph, start the workers and prepare to run. `run` does so if it has not been done.

        It does not wait for the workers: the first `run` raises the errors of their start. If a reader has
        ``lazy_init=True``, it only defines the graph, and the first `run` does the rest.

        Raises:
            DefinitionError: the pipeline has no outputs, or illegal ones.
            ArgumentError, CudaForkError, DeviceError, MissingExtraError, PicklingError: see `start_py_workers`.
        """
        with self._call:
            self._check_open()
            if self._runtime is not None or not self._has_lazy_readers():
                self._build()

    @user_frames_first
    def start_prefetch(self) -> None:
        """Build the pipeline if necessary, and let the workers begin to compute the first batches.

        Otherwise the first `run` begins them. Call it behind `load_state_dict`, and before the model is loaded: both then
        happen at the same time. Sources and operators in this process compute nothing before `run`.

        Raises:
            Exception: see `build`.
        """
        with self._call:
            self._build().start_prefetch()

    def _has_lazy_readers(self) -> bool:
        readers = (node.external.reader for node in self._make_graph().sources)
        return any(reader is not None and reader.is_lazy for reader in readers)

    def _build(self) -> Executor:
        return self._start().build()

    def _build_once(self) -> None:
        # A thread that has just built the pipeline may hold the lock while it waits for inputs.
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

    # Running

    def run(self, cuda_stream: Any = None, /, **inputs: Any) -> tuple[TensorList, ...]:
        """Return the next batch: a `TensorListCPU` or `TensorListGPU` per output, or a list for one of Python objects.

        Args:
            cuda_stream: the stream that will use outputs on the GPU: it waits for them, and this process does not. None: the
                GPU's default stream, and the current ones of PyTorch and CuPy in this thread.
            inputs: batches to feed before, by the names of the inputs; see `feed_input`.

        Raises:
            StopIteration: the epoch has ended. Every call raises it until `reset`.
            Exception: the exception of a callback, of its own type, with a note that names the sample. The batches before it
                have been delivered, and the next call continues with the next batch.
            WorkerDiedError, WorkerTimeoutError: a worker has died, or has exceeded the time limit for a sample, repeatedly;
                or a worker hangs when it starts. See ``py_worker_restarts`` and ``py_timeout_s``.
            WorkerStartError: a worker could not start. Its cause is the exception of unpickling a source, or of its
                worker_setup.
            DtypeMismatchError, NdimMismatchError, LayoutMismatchError: an output differs from ``output_dtype``,
                ``output_ndim`` or ``output_layout``. The batch is dropped.
            DeviceError: a copy to the GPU has failed. An asynchronous failure may be that of an earlier batch.
            OutOfMemoryError: there is no memory for the batch, here or on the GPU. The batch is kept for a later call.
            PipelineStateError: the pipeline is run by `schedule_run`.
            ClosedError, ForkedError: the pipeline has been closed; it belongs to the parent of this process.
        """
        try:
            schedule = self._schedule
            if schedule.api is not PipelineAPIType.BASIC:
                schedule.use(PipelineAPIType.BASIC)
            if inputs:
                self._feed_all(inputs)
            if schedule.batches:
                outputs = schedule.batches.popleft()
            else:
                hook = self._monitor.hooks.take
                outputs = self._take() if hook is None else hook(self._take)
            runtime = self._runtime
            if runtime is None or runtime.copier is not None:
                wait_on_stream(outputs, cuda_stream)
        except (Exception, KeyboardInterrupt) as error:  # as `user_frames_first`, without a call
            collapse(error)
            raise
        return outputs

    def _take(self) -> tuple[TensorList, ...]:
        """Return the next batch, in either way of running the pipeline."""
        if getattr(self.iter_setup, "__func__", None) is not Pipeline.iter_setup:
            self._set_up_iteration()
        self._meter.begin()
        try:
            with self._call:
                batch = self._next_batch()
        except BaseException as error:
            self._meter.fail(error)
            if type(error) is not StopIteration:
                self._recent.clear()  # the position may have advanced without a batch
            raise
        self._meter.end()
        if self._expectations:
            check_outputs(self._expectations, batch)
        self._recent.append(id(batch))
        return batch

    def _next_batch(self) -> tuple[TensorList, ...]:
        runtime = self._runtime
        executor = None if runtime is None else runtime.executor
        return (executor or self._build()).run()

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

    @user_frames_first
    def schedule_run(self) -> None:
        """Compute the next batch, for `outputs` or `share_outputs`. No effect at the end of the epoch.

        The first call in an epoch schedules ``prefetch_queue_depth`` batches.

        Raises:
            PipelineStateError: the pipeline is run by `run`.
            Exception: see `run`.
        """
        self._schedule.use(PipelineAPIType.SCHEDULED)
        hook = self._monitor.hooks.take
        take = self._take if hook is None else functools.partial(hook, self._take)
        self._schedule.fill(take, self.cpu_queue_size if self.exec_pipelined else 1)

    @user_frames_first
    def share_outputs(self, cuda_stream: Any = None) -> tuple[TensorList, ...]:
        """Return the oldest scheduled batch.

        Args:
            cuda_stream: see `Pipeline.run`.

        Raises:
            StopIteration: none is scheduled.
            PipelineStateError: the pipeline is run by `run`, or has been closed.
        """
        self._check_open()
        self._schedule.use(PipelineAPIType.SCHEDULED)
        if not self._schedule.batches:
            raise StopIteration
        outputs = self._schedule.batches.popleft()
        wait_on_stream(outputs, cuda_stream)
        return outputs

    outputs = share_outputs

    def release_outputs(self) -> None:
        """Release the batch last shared. No effect: batches are not overwritten.

        Raises:
            PipelineStateError: the pipeline is run by `run`.
        """
        self._schedule.use(PipelineAPIType.SCHEDULED)

    def empty(self) -> bool:
        """Return whether no scheduled batch is left for `outputs`."""
        return not self._schedule.batches

    def enable_api_check(self, enable: bool) -> None:
        """Set whether it is an error to run a pipeline both by `run` and by `schedule_run`. Default: it is."""
        self._schedule.checks_api = bool(enable)

    @user_frames_first
    def feed_input(
        self,
        data_node: DataNode | str,
        data: Any,
        layout: str | None = None,
        cuda_stream: Any = None,
        use_copy_kernel: bool = False,
    ) -> None:
        """Feed an input with the data of one iteration. The data is queued; each run takes one batch of the queue.

        Any thread may call it, also while another one is in `run`.

        Args:
            data_node: the node of the input, or its name.
            data: a batch: a list of arrays, an array whose first dimension counts the samples, or a TensorList. It is
                copied, unless the input has ``no_copy=True``. With ``device="gpu"`` the arrays may be on that GPU.
            layout: a letter for each dimension of a sample. Default: the layout of the tensors, if the data has one.
            cuda_stream, use_copy_kernel: for arrays on the GPU, see ``fn.external_source``.

        Raises:
            InputNameError: there is no input of that name.
            ArgumentTypeError, ArgumentClashError: `data_node` is something else; or a source that feeds itself.
            SampleError: the data is not a batch, or differs from the declaration or from data fed before.
        """
        pool = self._input(data_node)
        pool.feed(pool.check(data, layout, cuda_stream, use_copy_kernel or None))

    def _feed_all(self, batches: Mapping[str, Any]) -> None:
        """Feed several inputs, or none of them if one batch is wrong: later batches must not meet the wrong partners."""
        pools = [self._input(name) for name in batches]
        checked = [pool.check(data, None) for pool, data in zip(pools, batches.values(), strict=True)]
        for pool, fed in zip(pools, checked, strict=True):
            pool.feed(fed)

    @user_frames_first
    def input_feed_count(self, input_name: str) -> int:
        """Return how many batches DALI needs to be fed before the first run; here, one per run is enough.

        Raises:
            InputNameError: there is no input of that name.
        """
        self._input(input_name)
        return self.cpu_queue_size

    def _input(self, data_node: DataNode | str) -> InputPool:
        if not isinstance(data_node, (str, DataNode)):
            raise ArgumentTypeError(f"an input is a DataNode or its name, not {kind_of(data_node)}")
        self._build_once()
        runtime = self._runtime  # another thread may be closing the pipeline
        if runtime is None:
            raise ClosedError("the pipeline has been closed")
        return runtime.input_pool(data_node)

    # Epochs

    @user_frames_first
    def reset(self) -> None:
        """Begin the next epoch, whether or not this one has ended. No effect if no batch of this epoch has been taken.

        Readers go on where they are, as in DALI. So there is no effect either if all sources are readers.
        """
        with self._call:
            self._check_open()
            self._meter.pause()
            executor = self._executor
            if executor is not None and (executor.ended or not self._is_endless):
                executor.reset()
                self._schedule.clear()

    @user_frames_first
    def __len__(self) -> int:
        """Return the number of batches in an epoch, as far as the sources know it.

        The length of a source ends the epoch only with `size`, `last_batch_policy` or a shard; see ``fn.external_source``. A
        pipeline with readers only continues with the next epoch.

        Raises:
            DefinitionError: no source has a known length, by ``__len__`` or ``size``.
        """
        with self._call:
            externals = [node.external for node in self._make_graph().sources]
        sizes = [external.expected_sizes(self._batch_size) for external in externals]
        lengths = [size.num_batches for size in sizes if size is not None]
        if not lengths:
            lengths = [
                external.reader.num_batches(self._batch_size) for external in externals if external.reader is not None
            ]
        if not lengths:
            raise DefinitionError("the length of an epoch is unknown: use a source that has __len__, or pass size=")
        return min(lengths)

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[tuple[TensorList, ...]]:
        self._check_open()
        if (executor := self._executor) is not None and executor.ended:
            self.reset()
        return self

    @user_frames_first
    def __next__(self) -> tuple[TensorList, ...]:
        return self.run()

    @unstable("Pipeline.serve()")
    @user_frames_first
    def serve(
        self,
        path: str | os.PathLike[str],
        *,
        policy: Policy = "same",
        consumers: int = 1,
        lead: int = 1,
        consumer_timeout_s: float | None = None,
    ) -> Server:
        """Lend the batches to other processes of this user, which call `dali_like.connect` with the same path.

        Consumers get the tuples that `run` returns, without a copy. All outputs must be on the CPU. The server begins the
        epochs; an epoch of a pipeline with readers only has ``len(pipe)`` batches. The server has states if the pipeline has
        ``enable_checkpointing=True``.

        Args:
            path, policy, consumers, lead, consumer_timeout_s: see ``dali_like.data.DataLoader.serve``.

        Raises:
            ArgumentError: an argument is wrong, or the folder is not private to this user, or another server uses the path.
            UnsupportedSystemError: the system is not Linux, or refuses a call.
            DefinitionError: ``run`` of the server raises it if an output is on a GPU.
        """
        from dali_like.pipeline.lending import served  # few programs need it
        from dali_like.serving.batch_server import Server

        return Server(
            served(self), path, policy=policy, consumers=consumers, lead=lead, consumer_timeout_s=consumer_timeout_s
        )

    # Closing

    @user_frames_first
    def close(self) -> None:
        """End the workers and release all memory except batches that the program holds. May be called repeatedly.

        A pipeline closes itself when it is dropped, and at the end of the program.
        """
        if self._runtime is not None and self._runtime.pid != os.getpid():
            return  # workers, threads and memory belong to the parent process
        self._closed = True
        if (runtime := self._runtime) is not None:
            runtime.stop_waiting()  # ends a run() in another thread
        self._call.close()

    @property
    def _call(self) -> ExclusiveCall:
        """The context of a call that uses or changes the parts of this pipeline."""
        return ExclusiveCall(self, self._call_lock)

    def _close(self) -> None:
        if self._final_statistics is not None:
            return
        try:
            if self._runtime is not None:
                self._runtime.close()
        finally:
            self._monitor.unpublish()
            self._schedule.clear()
            with contextlib.suppress(ImportError):  # the program is exiting, or has changed its root folder
                self._final_statistics = self.statistics()
            self._runtime = None  # batches that the program holds keep the mapping alive; nothing else does
            self._definition.clear()

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the pipeline has been closed")
        runtime = self._runtime
        if runtime is not None and runtime.pid != os.getpid():
            raise ForkedError(
                f"this pipeline belongs to process {runtime.pid}, the parent of this fork; make another one here"
            )

    def __repr__(self) -> str:
        state = "closed" if self._closed else "built" if self._executor is not None else "not built"
        return f"<{type(self).__qualname__} of batches of {self._batch_size}, {state}>"

    # Checkpoints

    @user_frames_first
    def checkpoint(self, filename: str | os.PathLike[str] | None = None) -> bytes:
        """Return `state_dict` as text, for ``Pipeline(checkpoint=...)``: DALI's way to resume.

        Args:
            filename: a file to write the text to, as well.

        Returns:
            JSON. It is safe to load from strangers if sources check the states handed to their ``load_state_dict``.

        Raises:
            PipelineStateError: the pipeline was made without ``enable_checkpointing=True``.
        """
        checkpoint = self._take_checkpoint().dumps()
        if filename is not None:
            with open(filename, "wb") as file:
                file.write(checkpoint)
        return checkpoint

    @user_frames_first
    def state_dict(self) -> dict[str, Any]:
        """Return the position of the pipeline, as values that JSON can hold. Another pipeline like it resumes from there.

        Delivered batches count; batches computed ahead or scheduled do not. The number of workers, their start method and
        the prefetch depths may change. With shards, the number of ranks may change if the product of it and ``batch_size``
        stays the same; the state of any rank serves all ranks.

        Sources, or the iterators of iterables, may have ``state_dict`` and ``load_state_dict``; their states are included.
        In workers this holds for iterables that have both methods themselves and are not in every worker; the call may wait
        for the next batch then. Other iterables are iterated again up to the same position.

        Raises:
            PipelineStateError: the pipeline was made without ``enable_checkpointing=True``.
            CheckpointError: JSON cannot hold the state of a source.
            WorkerDiedError: or any other exception of `run`, if the call waits for a batch.
        """
        return self._take_checkpoint().to_dict()

    @user_frames_first
    def load_state_dict(self, state_dict: Mapping[str, Any] | Sequence[Any], *, allow_change: Collection[str] = ()) -> None:
        """Resume from a result of `state_dict`, in place of ``Pipeline(checkpoint=...)``.

        It may be called at any time. Running workers are started again if the state has another seed than the pipeline, or
        the state of an iterable in the workers; so give pipelines a ``seed``.

        Args:
            state_dict: a result of `state_dict`. With composed datasets, also those of all ranks, in a list.
            allow_change: parts of the descriptions of composed datasets that may have changed since, such as "weights".

        Raises:
            CheckpointError: `state_dict` is invalid or belongs to another pipeline; or an iterator would have to go back.
            ArgumentError, CudaForkError, PicklingError: see `start_py_workers`.
        """
        checkpoint = _checkpoint_of(state_dict)
        with self._call:
            self._check_open()
            if allow_change:
                checkpoint = checkpoint.with_changes([node.external for node in self._make_graph().sources], allow_change)
            runtime, executor = self._runtime, self._executor
            if runtime is not None and runtime.can_go_to(checkpoint):
                runtime.go_to(checkpoint)
            elif runtime is not None:
                self._runtime = None
                runtime.close()
            self._adopt(self._arguments, checkpoint)
            self._schedule.clear()
            if self._runtime is None and runtime is not None:
                self._start()
                if executor is not None:
                    self._build()

    @user_frames_first
    def batch_at(self, epoch: int, iteration: int, state: Any = None) -> tuple[TensorList, ...]:
        """Return the batch of an iteration again, bit for bit, with its random augmentation. For debuggers: a second
        pipeline computes it in this process, without workers, and this one is not disturbed.

        If all sources are callables, only the samples of that batch are computed. Otherwise the pipeline computes all
        iterations from the state to that batch; if the state lies behind the batch, from the beginning of the epoch.

        Args:
            epoch, iteration: numbers of the batch, from 0 on.
            state: a result of `state_dict` or `checkpoint` in that epoch; with composed datasets also the list of those of
                all ranks. None: the current state, which needs ``enable_checkpointing=True`` unless all sources are
                callables. Those need no state of that epoch.

        Raises:
            NotRepeatableError: the program feeds an input; a source is an iterator, or has ``sharded=True``.
            SampleIndexError: the epoch has no such iteration.
            CheckpointError: the state is of another epoch or pipeline.
        """
        return self._repeat(epoch, iteration, state, lambda other, outputs: outputs)

    @user_frames_first
    def steps_at(self, epoch: int, iteration: int, sample: int = 0, state: Any = None) -> list[OperatorStep]:
        """Return the way of one sample through the sources and operators, step by step, with its random augmentation.

        Computed as by `batch_at`, and then by one operator after another, as in debug mode. So the time of the steps says
        nothing about the pipeline.

        Args:
            epoch, iteration, state: as for `batch_at`.
            sample: number of the sample in the batch, from 0 on.

        Returns:
            A `dali_like.pipeline.operator_steps.OperatorStep` for each source and operator: its name, and the sample in each
            of its outputs. Operators in branches of conditionals that the sample does not take are missing.

        Raises:
            SampleIndexError: the epoch has no such iteration, or the batch no such sample.
            Exception: see `batch_at`; and errors of operators.
        """
        from dali_like.pipeline.operator_steps import sources_of, steps_of  # lazy: few programs need it

        sample = not_negative("sample", sample)
        repeated: list[Graph] = []

        def of_sources(graph: Graph) -> Graph:
            repeated.append(graph)
            return sources_of(graph)

        def steps(other: Pipeline, outputs: tuple[TensorList, ...]) -> list[OperatorStep]:
            executor = other._executor
            assert executor is not None
            batch_id = executor.id_of(executor.position.iteration - 1)
            return steps_of(repeated[0], other, outputs, batch_id, sample)

        return self._repeat(epoch, iteration, state, steps, of_sources)

    def _repeat(
        self,
        epoch: int,
        iteration: int,
        state: Any,
        use: Callable[[Pipeline, tuple[TensorList, ...]], _T],
        part: Callable[[Graph], Graph] | None = None,
    ) -> _T:
        """Return the result of a function, called with a second pipeline and its batch of an iteration; see `batch_at`.

        Args:
            part: returns the part of the graph that is to be computed. None: all of it.
        """
        from dali_like.common.global_generators import kept_generators  # lazy: few programs need it
        from dali_like.pipeline import second_pipeline

        epoch, iteration = not_negative("epoch", epoch), not_negative("iteration", iteration)
        graph = self._make_graph()
        externals = [node.external for node in graph.sources]
        second_pipeline.check_repeatable(externals)
        given = None if state is None else _checkpoint_of(state)
        if all(map(second_pipeline.depends_on_position, externals)):
            seed = self._entropy if given is None else given.seed
            begin = second_pipeline.checkpoint_at(graph, self._batch_size, epoch, iteration, seed)
        else:
            begin = second_pipeline.checkpoint_before(given or self._take_checkpoint(), externals, epoch, iteration)
        arguments, repeated = replace(self._arguments, prefetch_queue_depth=1), second_pipeline.without_workers(graph)
        if part is not None:
            arguments = replace(arguments, output_dtype=None, output_ndim=None, output_layout=None)
            repeated = part(repeated)
        other = Pipeline(self._batch_size or None)
        other._adopt(arguments, begin)
        other._definition.graph = repeated
        with contextlib.closing(other), kept_generators():
            try:
                for _ in range(iteration - begin.iteration):
                    other.run()
                return use(other, other.run())
            except StopIteration:
                raise SampleIndexError(f"epoch {epoch} has no iteration {iteration}") from None

    @user_frames_first
    def origins_of(self, outputs: tuple[TensorList, ...]) -> list[Origins]:
        """Return where the samples of one of the latest eight batches of this epoch come from.

        Args:
            outputs: the batch, the tuple itself that `run` or `outputs` has returned.

        Returns:
            For each sample a `dali_like.sources.origins.Origin`, of the source of the first output that has one: of a
            reader, the index and the file; of a composed dataset, those of its inputs; of other sources, the position in
            the epoch (``idx_in_epoch``). For a pack or a window, a tuple of them.

        Raises:
            OriginError: the batch is not one of the latest of the epoch, or no output has a source that computes samples.
        """
        from dali_like.pipeline.pipeline_origins import origins_in  # lazy: few programs need it

        with self._call:
            back = next((i for i, number in enumerate(reversed(self._recent)) if number == id(outputs)), None)
            runtime, executor = self._runtime, self._executor
            iteration = -1 if executor is None or back is None else executor.position.iteration - 1 - back
            if runtime is None or executor is None or iteration < 0:
                raise OriginError(
                    f"this is not one of the last {_NUM_RECENT} batches of the epoch: pass the tuple that run() has returned"
                )
            return origins_in(runtime, executor.id_of(iteration), len(outputs[0]))

    def _take_checkpoint(self) -> Checkpoint:
        if not self.enable_checkpointing:
            raise PipelineStateError(
                "states and checkpoints are disabled: pass enable_checkpointing=True to pipeline_def or Pipeline"
            )
        with self._call:
            return self._start().checkpoint(len(self._schedule.batches))

    # Serialization

    @user_frames_first
    def serialize(
        self, define_graph: Callable[[], Any] | None = None, filename: str | os.PathLike[str] | None = None
    ) -> bytes:
        """Return the pipeline as JSON: arguments, operators and constants, and the names of the sources, without its state.

        Arguments that could do harm in the text of a stranger are left out: ``remote_options`` and
        ``save_preprocessed_annotations`` of readers.

        Args:
            define_graph: called for the outputs if none were set; deprecated in DALI.
            filename: a file to write the text to, too; it is overwritten.

        Raises:
            ArgumentTypeError: `define_graph` is not callable.
            PipelineStateError: there are outputs already.
        """
        if define_graph is not None:
            self._set_outputs_by(define_graph)
        from dali_like.pipeline.serialization import dumps  # lazy: imports all operators

        with self._call:
            text = dumps(self._arguments, self._make_graph())
        if filename is not None:
            with open(filename, "wb") as file:
                file.write(text)
        return text

    def _set_outputs_by(self, define_graph: Callable[[], Any]) -> None:
        if not callable(define_graph):
            raise ArgumentTypeError(
                f"define_graph must be callable, not {define_graph!r}; a file is given as serialize(filename=...)"
            )
        if self._definition.has_outputs:
            raise PipelineStateError("Duplicate graph definition: the outputs have been set, so leave define_graph out")
        with self:
            outputs = define_graph()
        self.set_outputs(*(outputs if isinstance(outputs, (list, tuple)) else [outputs]))

    @classmethod
    @user_frames_first
    def deserialize(
        cls,
        serialized_pipeline: str | bytes | None = None,
        filename: str | os.PathLike[str] | None = None,
        *,
        trusted: bool = False,
        **arguments: Any,
    ) -> Self:
        """Make a pipeline from a result of `serialize`, and build it.

        The text may be a stranger's: neither loading nor running it executes code of the text, unpickles or writes anything.
        It reads the files and URLs that it names.

        Args:
            serialized_pipeline: the text; or
            filename: a file with it.
            trusted: whether the text may also have operators that write (``fn.dump_image``), operators and readers of your
                own, and any of their arguments, and whether readers may store indexes. For texts of your own only.
            arguments: arguments of `Pipeline`, which override the ones in the text unless they are None.

        Raises:
            SerializationError: the text is not a serialized pipeline.
            ArgumentError: there is neither a text nor a file, or both; an argument has a value that is not allowed.
            DefinitionError: an argument is unknown.
        """
        if (serialized_pipeline is None) == (filename is None):
            raise ArgumentError("deserialize() takes either a serialized_pipeline or a filename")
        known = {"checkpoint", *(each.name for each in fields(Arguments))}
        if unknown := sorted(arguments.keys() - known):
            raise DefinitionError(f"deserialize() got arguments that Pipeline does not have: {list_unknown(unknown, known)}")
        if filename is not None:
            with open(filename, "rb") as file:
                serialized_pipeline = file.read()
        pipe = cls()
        if (checkpoint := arguments.pop("checkpoint", None)) is not None:
            pipe._restored = _checkpoint_of(checkpoint)
        pipe._load(serialized_pipeline, arguments, trusted=trusted)
        return pipe

    @user_frames_first
    def deserialize_and_build(self, serialized_pipeline: str | bytes, *, trusted: bool = False) -> None:
        """Become the pipeline of a result of `serialize`, and build it.

        Arguments of this pipeline that are not None override the ones in the text.

        Args:
            serialized_pipeline: the text.
            trusted: see `deserialize`.

        Raises:
            SerializationError: the text is not a serialized pipeline.
            DefinitionError: the pipeline has been built.
        """
        self._load(serialized_pipeline, vars(self._arguments), trusted=trusted)

    def _load(self, text: str | bytes | None, given: Mapping[str, Any], *, trusted: bool) -> None:
        if not isinstance(text, (str, bytes, bytearray)):
            raise ArgumentTypeError(f"a serialized pipeline is bytes or a string, not {text!r}")
        from dali_like.pipeline.serialization import loads  # lazy: imports all operators

        document = loads(text, trusted=trusted)
        self.set_outputs(*document.outputs)
        for node in document.sinks:
            self.add_sink(node)
        overriding = {name: value for name, value in given.items() if value is not None}
        self._adopt(replace(self._arguments, **{**document.arguments, **overriding}), self._restored)
        self.build()

    # Statistics and traces

    def statistics(self, *, memory: bool = False) -> Statistics:
        """Return the counts and times measured so far. Any thread may call it, after `close`, too.

        The measurement is always on, and takes less than a hundredth of the time.

        Args:
            memory: whether to read the memory use of the processes, which takes some milliseconds each.

        >>> import numpy as np
        >>> from dali_like import fn, pipeline_def
        >>> @pipeline_def(batch_size=4)
        ... def pipeline():
        ...     return fn.external_source(source=lambda info: np.array(info.idx_in_epoch), batch=False)
        >>> with pipeline() as pipe:
        ...     for _ in range(10):
        ...         batch = pipe.run()
        >>> pipe.statistics().loop.batches
        10
        """
        from dali_like.pipeline.pipeline_statistics import statistics_of  # lazy: few programs need it

        runtime = self._runtime
        if self._final_statistics is not None:  # read after _runtime: another thread may be closing the pipeline
            return self._final_statistics
        return statistics_of(runtime, self._meter, self._batch_size, memory=memory)

    def report(self, since: Statistics | None = None) -> Report:
        """Return a report of bottlenecks, advice and figures, to ``print``.

        Args:
            since: an earlier result of `statistics`; the report covers the time since then. Default: all of it.
        """
        return self._monitor.report(self.statistics(), since)

    def _repr_html_(self) -> str:
        """Show the pipeline and its report in a notebook."""
        from dali_like.showing.notebook import text_html  # only notebooks ask

        return text_html(f"{self!r}\n\n{self.report()}")

    @user_frames_first
    def on_statistics(
        self, function: Callable[[Statistics], Any], *, batches: int | None = None, seconds: float | None = None
    ) -> None:
        """Call a function regularly with the statistics since its last call, for example to log them.

        It is called in the thread of the loop, when that asks for a batch, and counts as work of the loop. The loop sees its
        exceptions; the batch is not lost.

        Args:
            function: called with a `dali_like.monitor.measure.statistics.Statistics`.
            batches, seconds: the interval: a number of batches, or a time. Exactly one of the two.

        Raises:
            ArgumentClashError: neither is given, or both.
            ArgumentError: the interval is not positive.
        """
        self._monitor.call_regularly(self, function, batches, seconds)

    def trace(self, path: str | os.PathLike[str] | None = None, *, nvtx: bool = False) -> PipelineTrace:
        """Record the activity of each worker, of the main thread and of the GPU for the duration of a context.

        >>> with pipe.trace("run.json"):  # doctest: +SKIP
        ...     for images, labels in pipe:
        ...         train(images, labels)

        The file has the Trace Event Format: https://ui.perfetto.dev opens it, and so does ``dali-like view run.json``. See
        docs/tracing.md. Entering the context builds the pipeline.

        Args:
            path: the file; it is overwritten when the context is left. None: no file; `plot` can still draw the records.
            nvtx: whether to show the activity of the main process as NVTX ranges, too, for Nsight Systems.

        Raises:
            PipelineStateError: the pipeline is being traced already. This, and the exceptions of `build`, on entering.
            MissingExtraError: `nvtx` is set, and the package is not installed.
        """
        from dali_like.pipeline.pipeline_trace import PipelineTrace

        return PipelineTrace(self, path, nvtx=nvtx)

    def profile(self, path: str | os.PathLike[str] | None = None) -> Profiling:
        """Sample the stacks of the workers for the duration of a context, 25 times a second.

        >>> with pipe.profile("profile.json") as profile:  # doctest: +SKIP
        ...     for images, labels in pipe:
        ...         train(images, labels)
        >>> print(profile)  # doctest: +SKIP

        The result names the lines in which your functions spend the time of the workers, and who calls them: CPU time and
        waiting apart, with and without the GIL. `report` then has the three hottest. ``dali-like view profile.json`` draws a
        flame graph. See docs/how-to/profile-the-workers.md. Entering the context builds the pipeline. Sources that this
        process calls are sampled in this thread. Workers in Ray are not sampled.

        Args:
            path: the file, overwritten when the context is left: ``*.speedscope.json``, ``*.collapsed`` (for
                ``flamegraph.pl``), or another name for ``dali-like view``. None: no file.

        Raises:
            PipelineStateError: the pipeline is being profiled already. This, and the exceptions of `build`, on entering.
        """
        from dali_like.monitor.profile.profiling import Profiling  # lazy: few programs want profiles

        return Profiling(
            self._monitor, "pipeline", self._pools, path, lambda: self._runtime is not None and self._runtime.calls_sources
        )

    def _pools(self) -> list[WorkerPool]:
        """Build the pipeline, and return the pool of its workers."""
        self.build()
        runtime = self._runtime
        return [] if runtime is None or runtime.process_pool is None else [runtime.process_pool]

    @user_frames_first
    def plot(self, path: str | os.PathLike[str]) -> None:
        """Draw the last trace: the timeline, the waiting times of the program, and the fill level of the ring.

        Args:
            path: the picture, of any format that Matplotlib writes, by its suffix.

        Raises:
            PipelineStateError: there is no trace.
            MissingExtraError: Matplotlib is not installed.
        """
        self._monitor.plot(path)

    @user_frames_first
    def publish(self, name: str = "", *, pictures: bool = False) -> None:
        """Show the statistics to ``dali-like top`` and ``dali-like view`` until the pipeline is closed or dropped.

        Only programs of the same user, or of root, can see them. They are written into an anonymous file four times a
        second, when a batch is delivered; no thread is started. The environment variable ``DALI_LIKE_PUBLISH=1`` publishes
        each pipeline and loader of a program from its beginning. See docs/tracing.md.

        Args:
            name: the displayed name. Default: "pipeline" and a number, and the name of the program.
            pictures: whether these programs may ask for pictures of batches, which then leave the process. The loop draws
                the next batch when one asks, with Pillow; or one of its samples behind each operator, see `steps_at`.
        """
        reference = weakref.ref(self)
        peek = functools.partial(_peek, reference) if pictures else None
        self._monitor.publish(self, name, peek, functools.partial(_steps_of_next, reference))

    def executor_statistics(self) -> dict[str, Any]:
        """Return an empty dict, as DALI does under its default executor; see `statistics`."""
        return {}

    def external_source_shm_statistics(self) -> dict[str, list[int]]:
        """Return the sizes of the shared memory of parallel sources.

        Returns:
            "capacities": bytes of each slot: of a batch in progress, ready or held by the program, or kept for reuse.
            "per_sample_capacities": the same, divided by ``batch_size``.
        """
        runtime = self._runtime  # another thread may be closing the pipeline
        capacities = runtime.process_pool.slot_bytes if runtime is not None and runtime.process_pool is not None else []
        return {
            "capacities": capacities,
            "per_sample_capacities": [capacity // self._batch_size for capacity in capacities],
        }

    @property
    def py_worker_pids(self) -> list[int]:
        """The process ids of the workers; empty before they are started."""
        runtime = self._runtime  # another thread may be closing the pipeline
        return runtime.process_pool.worker_pids if runtime is not None and runtime.process_pool is not None else []

    # Properties of the graph

    @property
    def num_outputs(self) -> int:
        """The number of outputs."""
        with self._call:
            return len(self._make_graph().outputs)

    def output_dtype(self) -> list[DALIDataType | None]:
        """Return the expected data type of each output; None if any is allowed."""
        return per_output("output_dtype", self._arguments.output_dtype, self.num_outputs)

    def output_ndim(self) -> list[int | None]:
        """Return the expected number of dimensions of each output; None if any is allowed."""
        return per_output("output_ndim", self._arguments.output_ndim, self.num_outputs)

    def output_stream(self) -> None:
        """Return the CUDA stream of the outputs. It is always None: outputs are on the CPU."""

    @overload
    def epoch_size(self, name: str) -> int: ...

    @overload
    def epoch_size(self, name: None = None) -> dict[str, int]: ...

    @user_frames_first
    def epoch_size(self, name: str | None = None) -> int | dict[str, int]:
        """Return the number of samples in an epoch of a reader, of all shards together, with padding.

        Args:
            name: name of a reader, or of an external source of known length. None: a dict of all of these.

        Raises:
            ArgumentClashError: there is no such reader or source.
            Exception: the reader cannot list its files.
        """
        if name is not None:
            size: int = self.reader_meta(name)["epoch_size_padded"]
            return size
        return {each: meta["epoch_size_padded"] for each, meta in self.reader_meta().items()}

    @overload
    def reader_meta(self, name: str) -> dict[str, int]: ...

    @overload
    def reader_meta(self, name: None = None) -> dict[str, dict[str, int]]: ...

    @user_frames_first
    def reader_meta(self, name: str | None = None) -> dict[str, Any]:
        """Return the metadata of a reader, with DALI's keys.

        They are "epoch_size", "epoch_size_padded" (the same, unless pad_last_batch), "number_of_shards", "shard_id",
        "pad_last_batch" and "stick_to_shard".

        Args:
            name: name of a reader, or of an external source of known length. None: a dict of all of these.

        Raises:
            ArgumentClashError: there is no such reader or source.
            Exception: the reader cannot list its files.
        """
        with self._call:
            self._check_open()
            graph = self._make_graph()
        names = producer_names(graph)
        chosen = {
            names[node]: node.external
            for node in graph.sources
            if (name is None or name == names[node]) and (node.external.reader is not None or node.external.key is not None)
        }
        metas = {each: meta for each, external in chosen.items() if (meta := external.meta(self._batch_size)) is not None}
        if name is None:
            return metas
        if name not in metas:
            known = ", ".join(map(repr, self.reader_meta())) or "none"
            raise ArgumentClashError(
                f"Operator {name} not found or does not expose valid metadata. Readers, and named sources of known length: "
                f"{known}"
            )
        return metas[name]

    @property
    def _is_endless(self) -> bool:
        """Whether all sources are readers, which go on behind an epoch."""
        runtime = self._runtime
        return runtime is not None and runtime.is_endless

    def _is_reader(self, name: str) -> bool:
        """Return whether a source of that name is a reader."""
        with self._call:
            graph = self._make_graph()
        names = producer_names(graph)
        return any(names[node] == name and node.external.reader is not None for node in graph.sources)

    @property
    def operator_places(self) -> dict[str, str]:
        """For each operator, "workers" if it runs there, right behind its source; or "threads"; or "gpu".

        That is independent of the operator's argument `device`, which says where its result is wanted. Most operators run on
        the CPU in any case, and their results are copied to the GPU where they leave the pipeline.
        """
        with self._call:
            graph = self._make_graph()
            places = self._places(graph)
        names = producer_names(graph)
        return {names[node]: places[node] for node in graph.operators}

    @user_frames_first
    def save_graph_to_dot_file(
        self,
        filename: str | os.PathLike[str],
        *,
        show_tensors: bool = False,
        show_ids: bool | None = None,
        use_colors: bool = False,
    ) -> None:
        """Write the graph into a file, as a drawing for Graphviz. Operators that run in the workers have a double line.

        Args:
            filename: the file; it is overwritten.
            show_tensors: draw the data between the operators, too.
            show_ids: without effect, and deprecated.
            use_colors: show sources, operators and constants in different colors.
        """
        from dali_like.pipeline.dot import dot_of  # lazy: few programs draw

        if show_ids is not None:
            warn_deprecated("show_ids")
        with self._call:
            graph = self._make_graph()
            fused = {node for node, place in self._places(graph).items() if place == "workers"}
        with open(filename, "w", encoding="utf-8") as file:
            file.write(dot_of(graph, show_tensors, use_colors, fused))

    def _places(self, graph: Graph) -> dict[OperatorNode, str]:
        from dali_like.graph.execution.placement import place  # lazy: the runtime imports it, too

        arguments = self._arguments.for_sources(node.external for node in graph.sources)
        return place(graph, arguments, 0).places

    # Properties that show arguments. Those marked with a star have an effect in DALI only.

    max_batch_size = batch_size = _shown(
        lambda given: given.batch_size, "Samples in a batch; None if none was given. Such a pipeline cannot run."
    )
    num_threads = _shown(lambda given: given.num_threads or allowed_cpus(), "The number of threads for operators.")
    device_id = _shown(lambda given: given.device_id, "The CUDA device index, or None.")
    seed = _shown(lambda given: given.seed, "The seed given; None if each pipeline draws its own.")
    prefetch_queue_depth = _shown(lambda given: given.prefetch_queue_depth, "Batches computed ahead, as given.")
    cpu_queue_size = _shown(lambda given: given.queue_sizes[0], "Batches computed ahead.")
    gpu_queue_size = _shown(lambda given: given.queue_sizes[1], "Prefetch depth of copies to a GPU.")
    py_num_workers: Any = _shown(lambda given: given.py_num_workers, 'The given number of workers, "auto" or None.')
    py_start_method = _shown(lambda given: given.py_start_method, "The start method of the workers.")
    enable_checkpointing = _shown(
        lambda given: given.enable_checkpointing, "Whether `checkpoint` and `state_dict` may be called."
    )
    exec_pipelined = _shown(
        lambda given: given.exec_pipelined, "Whether the first `schedule_run` of an epoch fills the prefetch queue."
    )
    exec_async = _shown(lambda given: given.exec_async, "* Whether batches are computed ahead. Here they always are.")
    exec_separated = _shown(lambda given: given.exec_separated, "* Whether there are two prefetch depths.")
    exec_dynamic = _shown(
        lambda given: given.exec_dynamic_or_default, "* Whether DALI would use its dynamic executor, its default."
    )
    set_affinity = _shown(
        lambda given: given.set_affinity, "Whether workers and threads are bound to the CPUs near the GPU."
    )
    enable_memory_stats = _shown(lambda given: given.enable_memory_stats, "* Whether `executor_statistics` reports memory.")
    stream_policy = _shown(lambda given: given.stream_policy, "* Assignment of operators to CUDA streams.")
    concurrency = _shown(lambda given: given.concurrency, "* Operators that run at the same time.")
    max_streams = _shown(lambda given: -1, "* Always -1.")
    default_cuda_stream_priority = _shown(lambda given: 0, "* Always 0.")

    @property
    def is_restored_from_checkpoint(self) -> bool:
        """Whether the pipeline was resumed from a checkpoint."""
        return self._restored is not None


def _checkpoint_of(state: bytes | str | Mapping[str, Any] | Sequence[Any]) -> Checkpoint:
    from dali_like.pipeline.checkpoints import Checkpoint  # lazy: only needed to resume

    return Checkpoint.of(state)


def _steps_of_next(reference: weakref.ref[Pipeline], sample: int) -> list[OperatorStep]:
    """Return the steps of a sample of the next batch of a pipeline.

    Raises:
        SampleIndexError: the epoch has no further batch, or the batch no such sample.
        Exception: see `Pipeline.steps_at`.
    """
    pipe = reference()
    if pipe is None:
        return []
    executor = pipe._executor
    epoch, iteration = (0, 0) if executor is None else (executor.position.epoch, executor.position.iteration)
    return pipe.steps_at(epoch, iteration, sample)


def _peek(reference: weakref.ref[Pipeline], use: Callable[[Any], None]) -> None:
    """Call a function with the next batch of a pipeline, unless it is being traced."""
    pipe = reference()
    if pipe is None or pipe._monitor.hooks.take is not None:
        return
    monitor = pipe._monitor

    def take_and_use(take: Callable[[], Any]) -> Any:
        monitor.hooks = LoopHooks()
        batch = take()
        use(batch)
        return batch

    monitor.hooks = LoopHooks(take=take_and_use)
