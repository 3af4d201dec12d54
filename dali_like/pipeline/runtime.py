"""The runtime of a pipeline: shared memory, workers, the pools of its sources, and the executor.

It lives in the main process and owns the shared memory. It is made in two steps: workers may have to start long before the
rest. `dali_like.pipeline.pipeline` decides which calls are allowed when.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from dali_like.common.notices import warn
from dali_like.device.accelerator import accelerator_is_available
from dali_like.device.driver import cuda_is_initialized
from dali_like.device.nvml import bound_to, cpus_near
from dali_like.engine.backends.owned_pool import OwnedPool, Terms
from dali_like.engine.backends.pools import make_space
from dali_like.engine.memory.batch_key import ANY_WORKER
from dali_like.engine.memory.descriptors import enough_descriptors
from dali_like.engine.memory.limits import allowed_cpus, available_cpus
from dali_like.engine.memory.slot_layout import OutputSchema
from dali_like.engine.pool.base import InlinePool, Pool
from dali_like.engine.pool.pool import WorkerPool
from dali_like.engine.pool.settings import AUTO
from dali_like.engine.pool.workers import WorkerOptions
from dali_like.engine.worker.source import Source
from dali_like.engine.worker.streams import StatefulCallable, Stream
from dali_like.errors import ArgumentClashError, ArgumentTypeError, CheckpointError, CudaForkError, InputNameError
from dali_like.feed.feed import Feed, MergingFeed, SourcePlan, TurnsFeed
from dali_like.feed.lockstep import Lockstep, PipelinePosition
from dali_like.feed.source_states import LocalState, ReportedState, SourceState
from dali_like.graph.execution.buffers import BufferPool
from dali_like.graph.execution.computation import Computation
from dali_like.graph.execution.executor import Executor
from dali_like.graph.execution.pipeline_arguments import Arguments
from dali_like.graph.execution.placement import place, source_with_operators
from dali_like.graph.language.nodes import DataNode, Graph, SourceNode
from dali_like.pipeline.preflight import (
    EndOfEpoch,
    announce_moves,
    check_runnable,
    check_shared_iterators,
    common_shard,
)
from dali_like.sources.external_source import Fed
from dali_like.sources.sharding import ALONE
from dali_like.sources.travel.hazards import announce_local_classes, warn_of_hazards
from dali_like.sources.travel.main_module import main_for

if TYPE_CHECKING:
    from dali_like.device.copier import Copier
    from dali_like.device.interface import Device
    from dali_like.engine.pool.tuner import Tuner
    from dali_like.engine.worker.source import PickledSource
    from dali_like.graph.execution.gpu_sources import GpuSourcePool
    from dali_like.graph.execution.inputs import InputPool
    from dali_like.pipeline.checkpoints import Checkpoint


class Runtime:
    """Runs a graph. The constructor starts the workers; see `Pipeline.start_py_workers` for its exceptions.

    Args:
        graph: the graph to compute.
        arguments: the arguments of the pipeline.
        entropy: seed of `SampleInfo.rng` and of the random numbers of operators.
        checkpoint: the checkpoint to resume from, if any.

    Attributes:
        graph, arguments: as given.
        placement: the places where the operators run.
        pid: the process that owns the runtime.
        space: the shared memory.
        serving: the pool that serves each source, and the number of the source there.
        workers: owns the pool that computes the batches of parallel sources; None without parallel sources.
        inline_pool: computes batches in the main process; None before `build`.
        inputs: the queues of the sources that the user feeds; empty before `build`.
        gpu_pool: computes batches that may lie on the GPU; None without a GPU, and before `build`.
        executor: delivers the outputs; None before `build`.
        device: the GPU of the outputs, if any; None before `build`.
        copier: copies outputs to the GPU; None without a GPU.
        tuner: chooses the settings of the workers; None if they are given.
    """

    def __init__(self, graph: Graph, arguments: Arguments, entropy: int, checkpoint: Checkpoint | None = None) -> None:
        check_runnable(graph, arguments)
        arguments = arguments.for_sources((node.external for node in graph.sources), cuda_in_use=cuda_is_initialized)
        self.graph = graph
        self.arguments = arguments
        self.serving = assign_pools(graph)
        self._resumed = checkpoint
        self._entropy = entropy
        self._batch_size = arguments.batch_size or 0
        self._num_workers = arguments.num_workers
        self.copier: Copier | None = None
        self._depth = arguments.queue_sizes[0]
        self.placement = place(graph, arguments, entropy)
        if graph.wants_gpu:
            announce_moves(self.placement)
        self.pid = os.getpid()
        self.workers: OwnedPool | None = None
        self.inline_pool: InlinePool | None = None
        self.inputs: dict[SourceNode, InputPool] = {}
        self.executor: Executor | None = None
        self.gpu_pool: GpuSourcePool | None = None
        self.device: Device | None = None
        self._buffers: BufferPool | None = None
        self._cpus = _cpus_for(arguments)
        self.tuner: Tuner | None = None
        self._shard = common_shard(graph)
        self._merging_feeds: list[MergingFeed] = []
        self._plans: dict[SourceNode, SourcePlan] = {}
        #: Returns where the batches of composed datasets begin, if there are any.
        self._first: Callable[[int, int], int] | None = None
        if checkpoint is not None:
            self._check(checkpoint)
        self._make_plans()
        parallel = self._served_by(PoolKind.WORKERS)
        with enough_descriptors("a pipeline"):
            self.space = make_space(arguments.py_start_method if parallel else None, arguments.max_held_bytes)
            self.space.serves_operators = bool(self.placement.stages)
            if parallel:
                self.workers = self._start_workers(parallel)

    @property
    def process_pool(self) -> WorkerPool | None:
        """The pool of `workers`."""
        return None if self.workers is None else self.workers.pool

    @property
    def is_endless(self) -> bool:
        """Whether all sources are readers, which go on behind an epoch."""
        return bool(self.graph.sources) and all(node.external.reader is not None for node in self.graph.sources)

    @property
    def _most_ahead(self) -> int:
        """An upper bound of the batches begun and not yet taken."""
        most = max((node.external.prefetch_queue_depth for node in self.graph.sources), default=0)
        return 2 * (most + self._depth + sum(self.arguments.queue_sizes)) + 2

    def build(self) -> Executor:
        """Make the pools of the main process and the executor, unless that has been done.

        Raises:
            CheckpointError: the checkpoint belongs to another pipeline.
        """
        if self.executor is None:
            position, ended = self._first_position()
            inputs, on_gpu, serial = map(self._served_by, (PoolKind.INPUT, PoolKind.GPU, PoolKind.MAIN))
            self._buffers = BufferPool(self.space)
            copier = self.copier = self._open_gpu(self._buffers) if self.graph.wants_gpu else None
            if inputs:
                from dali_like.graph.execution.inputs import InputPool

                self.inputs = {
                    node: InputPool(node.external, self._batch_size, copier)
                    for node in inputs
                    if isinstance(node.external, Fed)
                }
            made = {node: self._source_of(node) for node in (*serial, *on_gpu)}
            self.inline_pool = InlinePool([made[node] for node in serial], self._batch_size, self.space)
            if copier is not None:
                from dali_like.graph.execution.gpu_sources import GpuSourcePool

                externals = [(node.external, made[node][0]) for node in on_gpu]
                self.gpu_pool = GpuSourcePool(externals, self._batch_size, self.space, copier)
            # Without a reference to the runtime: a cycle would keep the memory of a closed pipeline.
            on_end = EndOfEpoch([node.external for node in self.serving], self._batch_size)
            lockstep = Lockstep(self._feeds(self.inline_pool), position, on_end)
            if self.tuner is not None:
                self.tuner.on_deeper = lockstep.deepen
            computation = Computation(
                graph=self.graph,
                place=functools.partial(place, self.graph, self.arguments, self._entropy),
                buffers=self._buffers,
                num_threads=self.arguments.num_threads or allowed_cpus(),
                capacity=self._batch_size,
                layouts=_layouts_seen({node: source for node, (source, _) in made.items()}, self.inputs),
                copier=copier,
                cpus=self._cpus,
                origins=self._origins(),
            )
            depth = self._depth if copier is None else self.arguments.queue_sizes[1]
            self.executor = Executor(
                computation, lockstep, depth, self._batch_size, shard=self._shard, first=self._first, ended=ended
            )
        return self.executor

    def _origins(self) -> dict[SourceNode, Callable[..., str]]:
        """Return the functions that name the file of a sample, for each reader."""
        return {
            node: node.external.reader.origin_of(self._batch_size, self.seeds_of(node))
            for node in self.graph.sources
            if node.external.reader is not None
        }

    def _open_gpu(self, buffers: BufferPool) -> Copier:
        """Open the GPU, which page-locks the memory of batches from now on."""
        from dali_like.device.copier import Copier  # lazy: most graphs are on the CPU
        from dali_like.device.opening import open_device
        from dali_like.device.pinned import PinnedMemory

        assert self.arguments.device_id is not None
        self.device = open_device(self.arguments.device_id)
        users_see_host = any(self.graph.device_of(node) == "cpu" for node in self.graph.outputs)
        self.space.observer = PinnedMemory(self.device, fenced=users_see_host)
        copier = Copier(self.device, buffers.bytes)
        self.space.register(copier)
        return copier

    def _served_by(self, kind: PoolKind) -> list[SourceNode]:
        return [node for node, serving in self.serving.items() if serving.kind is kind]

    @property
    def calls_sources(self) -> bool:
        """Whether the main process calls a source."""
        return bool(self._served_by(PoolKind.MAIN) or self._served_by(PoolKind.GPU))

    def input_pool(self, data_node: DataNode | str) -> InputPool:
        """Return the queue of an input, given its node or its name.

        Raises:
            InputNameError: there is no such input in this graph.
            ArgumentTypeError, ArgumentClashError: it is not an input.
        """
        node = _find_source(self.graph, data_node) if isinstance(data_node, str) else data_node.producer
        if not isinstance(node, SourceNode):
            raise ArgumentTypeError(f"{data_node!r} is not an input")
        if not node.external.is_fed:
            raise ArgumentClashError(
                f"{node.external.name} has a `source`, which feeds it; feed_input is for inputs without"
            )
        if node not in self.inputs:
            raise InputNameError(f"{node.external.name} does not belong to this pipeline, or none of its outputs needs it")
        return self.inputs[node]

    def checkpoint(self, num_scheduled: int) -> Checkpoint:
        """Return the position of the user, without the last `num_scheduled` batches, which are scheduled only."""
        from dali_like.pipeline.checkpoints import Checkpoint  # lazy: few programs take checkpoints

        executor = self.build()
        epoch, iteration, passed = executor.position
        persists = [node.external.persists for node in self.graph.sources]
        passed = tuple(count - num_scheduled if goes else 0 for count, goes in zip(passed, persists, strict=True))
        position = PipelinePosition(epoch, iteration - num_scheduled, passed)
        ended = executor.ended and not num_scheduled
        states = tuple(executor.state(i, position, ended=ended) for i in range(len(persists)))
        return Checkpoint(self._batch_size, self._shard.count, *position[:2], ended, self._entropy, states)

    def can_go_to(self, checkpoint: Checkpoint) -> bool:
        """Return whether the running workers can resume from a checkpoint, if it belongs to this pipeline."""
        return checkpoint.seed == self._entropy

    def go_to(self, checkpoint: Checkpoint) -> None:
        """Resume from a checkpoint, for which `can_go_to` is true.

        Raises:
            CheckpointError: it belongs to another pipeline; or an iterator would have to go back.
        """
        self._check(checkpoint)
        if any(feed.has_begun for feed in self._merging_feeds) and any(
            node.external.sharded and node.external.persists for node in self.graph.sources
        ):
            raise CheckpointError("iterators that run in every worker cannot go back; load the state into another pipeline")
        self._resumed = checkpoint
        if self.executor is None:
            self._restore_states(checkpoint)
            return
        passed = [
            now if node.external.is_fed else then
            for node, now, then in zip(
                self.graph.sources, self.executor.position.delivered, checkpoint.delivered, strict=True
            )
        ]
        position = PipelinePosition(checkpoint.epoch, checkpoint.iteration, tuple(passed))
        states = zip(self.graph.sources, checkpoint.sources, strict=True)
        restored = {
            i
            for i, (node, state) in enumerate(states)
            if (state.has_state and self._plans[node].state is not None) or node.external.reader is not None
        }
        self.executor.go_to(position, restored, ended=checkpoint.ended)
        for feed in self._merging_feeds:
            feed.forget()
        self._restore_states(checkpoint)

    def stop_waiting(self) -> None:
        """Make calls that wait for a batch raise ClosedError. May be called in any thread."""
        if self.process_pool is not None:
            self.process_pool.stop_waiting()
        for pool in list(self.inputs.values()):
            pool.stop_waiting()

    def close(self) -> None:
        """End the workers and threads, and release all memory except batches that the program holds."""
        with contextlib.ExitStack() as stack:
            # Callbacks run in reverse order, and all of them run, even if a source's worker_teardown raises. The workers are
            # closed a second time, in case a signal handler has raised during the first.
            workers = self.workers
            pools = (*self.inputs.values(), self._buffers, workers, self.inline_pool, self.gpu_pool, workers)
            for part in (self.device, *pools, self.executor):
                if part is not None:
                    stack.callback(part.close)

    def _start_workers(self, parallel: list[SourceNode]) -> OwnedPool:
        given = self.arguments
        if self._num_workers < 1:
            raise ArgumentClashError(
                "The pipeline contains `fn.external_source` with `parallel` argument specified to True, which needs worker "
                f"processes: `py_num_workers` must be a positive integer, not {given.py_num_workers!r}"
            )
        if given.backend.forks:
            if cuda_is_initialized():
                raise CudaForkError(
                    "cannot fork worker processes: CUDA is initialized in this process, and does not work in a fork. "
                    "Call start_py_workers() on each pipeline before anything uses CUDA, or use py_start_method='spawn'"
                )
            announce_local_classes([node.external for node in parallel])
        warn_of_hazards([node.external for node in parallel], given.py_start_method, self._num_workers)
        if given.backend.shares_objects:
            check_shared_iterators([node.external for node in parallel])
        self.tuner = tuner = self._make_tuner(parallel)
        options = WorkerOptions(
            num_workers=self._num_workers,
            start_method=given.py_start_method,
            threads=given.py_worker_threads,
            timeout_s=given.py_timeout_s,
            restarts=given.py_worker_restarts,
            pickle_source=functools.partial(_pickled, given),
            resources=given.py_worker_options or {},
        )
        terms = Terms(self._num_workers, given.py_start_method, keeps=True)
        sources = [self._source_of(node) for node in parallel]
        with bound_to(self._cpus):
            return OwnedPool(sources, self._batch_size, self.space, options, terms, tuner=tuner)

    def _make_tuner(self, parallel: Sequence[SourceNode]) -> Tuner | None:
        """Return a tuner for settings that are "auto". Workers that divide iterables among them keep their number."""
        given = self.arguments
        if AUTO not in (given.py_num_workers, given.prefetch_queue_depth):
            return None
        from dali_like.engine.pool.tuner import Tuner  # most numbers are given

        divides = any(node.external.in_order for node in parallel)
        return Tuner(
            available_cpus(),
            num_workers=None if given.py_num_workers == AUTO and not divides else self._num_workers,
            depth=None if given.prefetch_queue_depth == AUTO else self._depth,
            are_threads=given.backend.are_threads,
            shares_cpus=not given.backend.is_remote,
        )

    def _source_of(self, node: SourceNode) -> tuple[Source, Sequence[OutputSchema]]:
        """Return a source as the engine sees it, with the declared schemas of its outputs."""
        source = node.external.source(self._batch_size, self.seeds_of(node))
        source = source._replace(takes_gpu=self.serving[node].kind is PoolKind.GPU)
        if node.external.in_shards and self.arguments.backend.is_remote:
            source = source._replace(task_size=lambda _: self._batch_size)
        if (fusion := self.placement.fusions.get(node)) is not None:
            return source_with_operators(source, node, fusion)
        state = self._plans[node].state
        takes_state = state is not None and state.travels
        return (source._replace(takes_state=True) if takes_state else source), node.external.declared

    def seeds_of(self, node: SourceNode) -> tuple[int, int]:
        """Return the seed of the pipeline, and the number of a source there."""
        return self._entropy, self.graph.sources.index(node) if node.number is None else node.number

    @property
    def batch_size(self) -> int:
        """The largest number of samples in a batch."""
        return self._batch_size

    def state_of(self, node: SourceNode) -> Any:
        """Return the state of a source's plan."""
        return self._plans[node].state

    def _make_plans(self) -> None:
        """Make the plan of each source, and restore the states if there is a checkpoint."""
        homes = itertools.count()
        for node, (kind, number) in self.serving.items():
            external = node.external
            if external.composed is not None and not external.in_shards:
                from dali_like.feed.composed_feeds import PositionPlan, PositionState  # few have such sources

                steps = external.division(self._batch_size)
                assert steps is not None
                positions = PositionState(external.composed, steps)
                self._plans[node] = PositionPlan(number, positions)
                self._first = positions.first
                continue
            worker = ANY_WORKER
            is_alone = external.in_order and not (external.sharded or external.in_shards)
            if kind is PoolKind.WORKERS and is_alone:
                worker = next(homes) % self._num_workers
            self._plans[node] = SourcePlan(
                number,
                self._batch_size,
                worker=worker,
                persists=external.persists,
                sizes=None if external.composed is not None else external.sizes(self._batch_size),
                shard=external.shard or ALONE,
                batch=external.batch,
                state=self._state_of(node),
            )
        if self._resumed is not None:
            self._restore_states(self._resumed)

    def _state_of(self, node: SourceNode) -> SourceState | None:
        """Return the state of a source, if it is stateful."""
        external, checkpoint = node.external, self._resumed
        callback = external.callback
        limit = self._most_ahead if self.arguments.enable_checkpointing else 0
        if external.in_shards and external.composed is not None:
            from dali_like.feed.composed_feeds import ShardsState  # few pipelines have such sources

            rank, drops = external.shard or ALONE, external.drops_small_batches
            return ShardsState(external.composed, rank, self._batch_size, drops=drops, limit=limit)
        if not isinstance(callback, (Stream, StatefulCallable)):
            return None
        if not external.parallel:
            return LocalState(external.name, callback, limit)
        has_state = checkpoint is not None and checkpoint.sources[self.graph.sources.index(node)].has_state
        if not isinstance(callback, Stream) or external.sharded or not (has_state or callback.owner is not None):
            return None
        reports = limit > 0 and callback.owner is not None and external.options["on_error"] == "raise"
        return ReportedState(external.name, callback, limit, reports=reports)

    def _restore_states(self, checkpoint: Checkpoint) -> None:
        for node, state in zip(self.graph.sources, checkpoint.sources, strict=True):
            if (own := self._plans[node].state) is not None:
                own.restore(state)

    def ahead_of(self, node: SourceNode) -> int:
        """Return how many batches of a source are computed ahead."""
        external = node.external
        # Operators have their own queue of the pipeline's depth.
        depth = 0 if self.placement.stages else self._depth
        # Each worker with its own shard computes ahead; otherwise workers would wait for the turns of others.
        depth += external.prefetch_queue_depth * (self._num_workers if external.sharded else 1)
        grown = self.tuner.settings.prefetch_depth - self._depth if self.tuner is not None and external.parallel else 0
        return max(depth, 1) + grown

    def _first_position(self) -> tuple[PipelinePosition | None, bool]:
        """Return the first position, and whether the user has seen the end of that epoch."""
        checkpoint = self._resumed
        if checkpoint is None:
            return None, False
        for i, node in enumerate(self.graph.sources):
            external = node.external
            if external.ignores_info and not checkpoint.sources[i].has_state:
                warn(
                    f"{external.name} takes no argument and has no state, so it cannot resume from the checkpoint; it "
                    "starts at its beginning",
                    UserWarning,
                )
        return PipelinePosition(checkpoint.epoch, checkpoint.iteration, checkpoint.delivered), checkpoint.ended

    def _check(self, checkpoint: Checkpoint) -> None:
        externals = [node.external for node in self.graph.sources]
        divides_batches = any(external.batch and external.shard is not None for external in externals)
        persists = [external.persists for external in externals]
        if any(external.composed is None for external in externals):
            checkpoint.check_steps(self._batch_size, self._shard.count, divides_batches=divides_batches)
        checkpoint.check(persists)

    def _feeds(self, inline_pool: InlinePool) -> list[Feed]:
        """Return a feed for each source, in the order of the graph."""
        feeds = []
        pools: dict[PoolKind, Pool | None] = {
            PoolKind.WORKERS: self.process_pool,
            PoolKind.GPU: self.gpu_pool,
            PoolKind.MAIN: inline_pool,
        }
        for node, plan in self._plans.items():
            kind = self.serving[node].kind
            pool = self.inputs[node] if kind is PoolKind.INPUT else pools[kind]
            assert pool is not None
            if node.external.in_shards:
                from dali_like.feed.composed_feeds import ShardsFeed, ShardsState  # few pipelines have such sources

                assert isinstance(plan.state, ShardsState)
                # Workers on other machines return their part of a slot as a range of samples.
                num_workers = 1 if self.arguments.backend.is_remote else self._num_workers
                workers = range(num_workers if node.external.parallel else 0)
                feed: Feed = ShardsFeed(plan, pool, self.ahead_of(node), state=plan.state, workers=workers)
            elif node.external.sharded:
                feed = TurnsFeed(plan, pool, self.ahead_of(node), num_workers=self._num_workers, name=node.external.name)
            else:
                feed = Feed(plan, pool, self.ahead_of(node), parallel=node.external.parallel)
            feeds.append(feed)
        self._merging_feeds = [feed for feed in feeds if isinstance(feed, MergingFeed)]
        return feeds


class PoolKind(enum.Enum):
    """Pools that serve sources."""

    WORKERS = "workers"
    GPU = "the main process, on the GPU"
    MAIN = "the main process"
    INPUT = "the user, by feed_input"


class Serving(NamedTuple):
    """The pool that serves a source.

    Attributes:
        kind: the pool; each input has its own.
        number: the number of the source there.
    """

    kind: PoolKind
    number: int


def assign_pools(graph: Graph) -> dict[SourceNode, Serving]:
    """Return the pool that serves each source. Pools number their sources in the order of the graph."""
    counters = {kind: itertools.count() for kind in PoolKind}
    serving = {}
    for node in graph.sources:
        external = node.external
        if external.is_fed:
            serving[node] = Serving(PoolKind.INPUT, 0)
            continue
        in_main = PoolKind.GPU if external.may_be_on_gpu and not graph.cpu_only else PoolKind.MAIN
        kind = PoolKind.WORKERS if external.parallel else in_main
        serving[node] = Serving(kind, next(counters[kind]))
    return serving


def _find_source(graph: Graph, name: str) -> SourceNode:
    for node in graph.sources:
        if node.external.key == name:
            return node
    names = ", ".join(repr(node.external.key) for node in graph.sources if node.external.key) or "none"
    raise InputNameError(f'Could not find an input operator with name "{name}"; the pipeline has: {names}')


def _layouts_seen(
    made: Mapping[SourceNode, Source], inputs: Mapping[SourceNode, InputPool]
) -> dict[SourceNode, Sequence[str]]:
    """Return the layouts of the data of sources in this process, as far as they are known."""
    fed = {node: pool.layouts for node, pool in inputs.items()}
    return {**fed, **{node: layouts for node, source in made.items() if (layouts := source.seen_layouts) is not None}}


def _pickled(given: Arguments, parts: dict[str, Any], name: str) -> PickledSource:
    from dali_like.sources.travel import callback_pickler as pickling  # lazy: forked sources are not pickled

    main = main_for(given.backend, given.py_import_main)
    inherits = not given.backend.is_remote
    remedy = pickling.REMEDY_OF_THREADS if given.backend.are_threads else pickling.REMEDY
    return pickling.dumps(parts, name, pickler=given.py_callback_pickler, remedy=remedy, inherits=inherits, main=main)


def _cpus_for(arguments: Arguments) -> set[int] | None:
    """Return the CPUs to bind workers and threads to; None: do not bind them."""
    if not arguments.set_affinity or arguments.device_id is None or not accelerator_is_available():
        return None
    from dali_like.device.opening import check_number

    check_number(arguments.device_id, "set_affinity=True")
    return cpus_near(arguments.device_id)
