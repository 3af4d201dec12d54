"""What runs a pipeline: shared memory, workers, the pools of its sources, and the executor.

It is made in two steps, since workers may have to be started long before anything else. What can be done with it then, and
when, is `dali_like.pipeline.pipeline`'s affair.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dali_like.common.notices import warn
from dali_like.device.accelerator import accelerator_is_available
from dali_like.device.driver import cuda_is_initialized
from dali_like.device.nvml import bound_to, cpus_near
from dali_like.engine.backends.pools import make_pool
from dali_like.engine.memory.batch_key import ANY_WORKER
from dali_like.engine.memory.descriptors import enough_descriptors
from dali_like.engine.memory.limits import available_cpus
from dali_like.engine.memory.slot_layout import OutputSchema
from dali_like.engine.memory.space import SharedSpace
from dali_like.engine.pool.base import InlinePool, Pool
from dali_like.engine.pool.pool import WorkerPool
from dali_like.engine.pool.settings import AUTO
from dali_like.engine.pool.tuner import Tuner
from dali_like.engine.pool.workers import WorkerOptions
from dali_like.engine.worker.source import Source
from dali_like.errors import ArgumentClashError, CheckpointError, CudaForkError
from dali_like.graph.buffers import BufferPool
from dali_like.graph.computation import Computation
from dali_like.graph.executor import Executor
from dali_like.graph.lockstep import Lockstep, PipelinePosition, PooledSource
from dali_like.graph.nodes import Graph, SourceNode
from dali_like.graph.pipeline_arguments import Arguments
from dali_like.graph.placement import place, source_with_operators
from dali_like.graph.worker_shards import ShardsPool
from dali_like.pipeline.preflight import check_runnable, check_shared_iterators, common_shard
from dali_like.pipeline.source_states import SourceStates, state_before
from dali_like.sources.fork_hazards import announce_local_classes, warn_of_fork_hazards
from dali_like.sources.sharding import ALONE

if TYPE_CHECKING:
    from dali_like.device.copier import Copier
    from dali_like.device.interface import Device
    from dali_like.engine.worker.source import PickledSource
    from dali_like.graph.gpu_sources import GpuSourcePool
    from dali_like.graph.inputs import InputPool
    from dali_like.graph.state_pool import SentStatesPool
    from dali_like.pipeline.checkpoints import Checkpoint


class Runtime:
    """Runs a graph. Making it starts the workers; see `Pipeline.start_py_workers` for what that raises.

    Args:
        graph: what to compute.
        arguments: of the pipeline.
        entropy: what `SampleInfo.rng` and the random numbers of operators depend on.

    Attributes:
        graph, arguments: as given.
        placement: where the operators run.
        pid: the process that it belongs to.
        space: the shared memory.
        process_pool: makes the batches of parallel sources; None if there are none.
        inline_pool: makes those of the others; None before `build`.
        inputs: the sources that are fed.
        gpu_pool: makes those that are wanted on the GPU, and may be there; None if there is none.
        executor: delivers the outputs; None before `build`.
        device: the GPU that outputs are copied to, if any are; None before `build`.
        copier: what copies them there; None if there is none.
        tuner: chooses the settings of the workers; None where they are given.
    """

    def __init__(self, graph: Graph, arguments: Arguments, entropy: int) -> None:
        check_runnable(graph, arguments)
        self.graph = graph
        self.arguments = arguments
        self._entropy = entropy
        self._batch_size = arguments.batch_size or 0
        self._num_workers = arguments.num_workers
        self.copier: Copier | None = None
        self._depth = arguments.queue_sizes[0]
        self.placement = place(graph, arguments, entropy)
        self.pid = os.getpid()
        self.process_pool: WorkerPool | None = None
        self.inline_pool: InlinePool | None = None
        self.inputs: dict[SourceNode, InputPool] = {}
        self.executor: Executor | None = None
        self.gpu_pool: GpuSourcePool | None = None
        self.device: Device | None = None
        self._buffers: BufferPool | None = None
        self._cpus = _cpus_for(arguments)
        self.tuner: Tuner | None = None
        self._shard = common_shard(graph)
        self._shards_pools: list[ShardsPool] = []
        self._sent_states: dict[int, SentStatesPool] = {}
        self._states = SourceStates([node.external for node in graph.sources])
        if arguments.checkpoint is not None:
            self._check(arguments.checkpoint)
            self._states.restore(arguments.checkpoint.sources)
        if arguments.enable_checkpointing:
            self._states.remember(self._most_ahead)
        parallel = [node for node in graph.sources if node.external.parallel]
        with enough_descriptors("a pipeline"):
            self.space = SharedSpace.create(arguments.max_held_bytes)
            if parallel:
                self.process_pool = self._start_pool(parallel)

    @property
    def _most_ahead(self) -> int:
        """How many batches may have been begun that nobody has taken, and some more."""
        most = max((node.external.prefetch_queue_depth for node in self.graph.sources), default=0)
        return 2 * (most + self._depth + sum(self.arguments.queue_sizes)) + 2

    def build(self) -> Executor:
        """Make all the rest, unless that has been done.

        Raises:
            CheckpointError: the checkpoint is of another pipeline.
        """
        if self.executor is None:
            position, ended = self._first_position()
            sources = [node for node in self.graph.sources if not node.external.parallel]
            inputs = [node for node in sources if node.external.kind is None]
            on_gpu = [node for node in sources if node.external.kind is not None and node.external.may_be_on_gpu]
            serial = [node for node in sources if node.external.kind is not None and not node.external.may_be_on_gpu]
            self._buffers = BufferPool(self.space)
            copier = self.copier = self._open_gpu(self._buffers) if self.graph.wants_gpu else None
            if inputs:
                from dali_like.graph.inputs import InputPool  # noqa: PLC0415

                self.inputs = {node: InputPool(node.external, self._batch_size, copier) for node in inputs}
            made = {node: self._source_of(node) for node in (*serial, *on_gpu)}
            self.inline_pool = InlinePool([made[node] for node in serial], self._batch_size, self.space)
            if copier is not None:
                from dali_like.graph.gpu_sources import GpuSourcePool  # noqa: PLC0415

                externals = [(node.external, made[node][0]) for node in on_gpu]
                self.gpu_pool = GpuSourcePool(externals, self._batch_size, self.space, copier)
            lockstep = Lockstep(self._feeds(self.inline_pool), self._batch_size, position)
            if self.tuner is not None:
                self.tuner.on_deeper = lockstep.deepen
            computation = Computation(
                self.graph,
                place=functools.partial(place, self.graph, self.arguments, self._entropy),
                buffers=self._buffers,
                num_threads=self.arguments.num_threads or len(os.sched_getaffinity(0)),
                capacity=self._batch_size,
                layouts=_layouts_seen({node: source for node, (source, _) in made.items()}, self.inputs),
                copier=copier,
                cpus=self._cpus,
            )
            depth = self._depth if copier is None else self.arguments.queue_sizes[1]
            self.executor = Executor(computation, lockstep, depth, self._batch_size, shard=self._shard, ended=ended)
        return self.executor

    def _open_gpu(self, buffers: BufferPool) -> Copier:
        """The GPU, which page-locks what batches lie in from now on."""
        from dali_like.device.copier import Copier  # noqa: PLC0415  # most graphs are on the CPU
        from dali_like.device.opening import open_device  # noqa: PLC0415
        from dali_like.device.pinned import PinnedMemory  # noqa: PLC0415

        assert self.arguments.device_id is not None
        self.device = open_device(self.arguments.device_id)
        users_see_host = any(node.device == "cpu" for node in self.graph.outputs)
        self.space.observer = PinnedMemory(self.device, fenced=users_see_host)
        copier = Copier(self.device, buffers.bytes)
        self.space.register(copier)
        return copier

    def checkpoint(self, num_scheduled: int) -> Checkpoint:
        """How far the user has come, to whom the last `num_scheduled` batches have not been given yet."""
        from dali_like.pipeline.checkpoints import Checkpoint  # noqa: PLC0415  # few programs have any

        executor = self.build()
        epoch, iteration, passed = executor.position
        persists = [node.external.persists for node in self.graph.sources]
        passed = tuple(count - num_scheduled if goes else 0 for count, goes in zip(passed, persists, strict=True))
        position = PipelinePosition(epoch, iteration - num_scheduled, passed)
        ended = executor.ended and not num_scheduled
        # Behind the end of an epoch, what begins anew is asked for what it is now.
        batches = [executor.number(i, position) if goes or not ended else None for i, goes in enumerate(persists)]
        states = [*self._states.before(batches)]
        for i, pool in self._sent_states.items():
            states[i] = state_before(executor, pool, i, batches[i])
        return Checkpoint(self._batch_size, self._shard.count, *position[:2], ended, self._entropy, passed, tuple(states))

    def can_go_to(self, checkpoint: Checkpoint) -> bool:
        """Whether the workers that run can go on from a checkpoint, if it is of this pipeline."""
        there = enumerate(checkpoint.sources[: len(self.graph.sources)])
        concerns_workers = any(state is not None and self._states.are_sent(i) for i, state in there)
        return checkpoint.seed == self._entropy and not (concerns_workers and self.process_pool is not None)

    def go_to(self, checkpoint: Checkpoint) -> None:
        """Go on from a checkpoint, for which `can_go_to` is true.

        Raises:
            CheckpointError: it is of another pipeline; or an iterator would have to go back.
        """
        self._check(checkpoint)
        if any(pool.has_begun for pool in self._shards_pools) and any(
            node.external.sharded and node.external.persists for node in self.graph.sources
        ):
            raise CheckpointError("iterators that run in every worker cannot go back; load the state into another pipeline")
        self.arguments = replace(self.arguments, checkpoint=checkpoint)
        if self.executor is None:
            self._states.restore(checkpoint.sources, started=self.process_pool is not None)
            return
        passed = [
            now if node.external.kind is None else then
            for node, now, then in zip(self.graph.sources, self.executor.position.delivered, checkpoint.passed, strict=True)
        ]
        position = PipelinePosition(checkpoint.epoch, checkpoint.iteration, tuple(passed))
        restored = self._states.restorable(checkpoint.sources, started=True)
        self.executor.go_to(position, restored, ended=checkpoint.ended)
        for pool in self._shards_pools:
            pool.forget()
        self._states.restore(checkpoint.sources, started=True)

    def stop_waiting(self) -> None:
        """Let whoever waits for a batch raise ClosedError. May be called in any thread."""
        if self.process_pool is not None:
            self.process_pool.stop_waiting()
        for pool in list(self.inputs.values()):
            pool.stop_waiting()

    def close(self) -> None:
        """End the workers and threads, and give back all memory that nobody holds."""
        with contextlib.ExitStack() as stack:
            # All of it happens, even if a source's worker_teardown raises; the last one first.
            # Workers are ended once more, where the handler of some signal has raised while they were.
            workers = self.process_pool
            pools = (*self.inputs.values(), self._buffers, workers, self.inline_pool, self.gpu_pool, workers)
            for part in (self.device, *pools, self.executor):
                if part is not None:
                    stack.callback(part.close)

    def _start_pool(self, parallel: list[SourceNode]) -> WorkerPool:
        given = self.arguments
        if self._num_workers < 1:
            raise ArgumentClashError(
                "The pipeline contains `fn.external_source` with `parallel` argument specified to True, which needs worker "
                f"processes: `py_num_workers` must be a positive integer, not {given.py_num_workers!r}"
            )
        if given.py_start_method == "fork":
            if cuda_is_initialized():
                raise CudaForkError(
                    "cannot fork worker processes: CUDA has been initialized in this process, and would not work in a fork. "
                    "Call start_py_workers() on each pipeline before anything uses CUDA, or use py_start_method='spawn'"
                )
            warn_of_fork_hazards([node.external for node in parallel])
            announce_local_classes([node.external for node in parallel])
        if given.py_start_method == "thread":
            check_shared_iterators([node.external for node in parallel])
        self.tuner = tuner = self._make_tuner(parallel)
        options = WorkerOptions(
            num_workers=self._num_workers if tuner is None else tuner.most_workers,
            start_method=given.py_start_method,
            threads=given.py_worker_threads,
            timeout_s=given.py_timeout_s,
            restarts=given.py_worker_restarts,
            pickle_source=functools.partial(_pickled, given),
            resources=given.py_worker_options or {},
            first_workers=None if tuner is None else tuner.settings.num_workers,
            measures=tuner is not None,
        )
        with bound_to(self._cpus):
            return make_pool(
                [self._source_of(node) for node in parallel], self._batch_size, self.space, options, tuner=tuner
            )

    def _make_tuner(self, parallel: Sequence[SourceNode]) -> Tuner | None:
        """What chooses the settings that are to be chosen; those of iterables, which workers divide, stay as they are."""
        given = self.arguments
        if AUTO not in (given.py_num_workers, given.prefetch_queue_depth):
            return None
        divides = any(node.external.kind is not None and node.external.kind.in_order for node in parallel)
        return Tuner(
            available_cpus(),
            num_workers=None if given.py_num_workers == AUTO and not divides else self._num_workers,
            depth=None if given.prefetch_queue_depth == AUTO else self._depth,
            are_threads=given.py_start_method == "thread",
        )

    def _source_of(self, node: SourceNode) -> tuple[Source, Sequence[OutputSchema]]:
        """What makes the samples of a source, and what has been declared of them."""
        source = node.external.source(self._batch_size, (self._entropy, self.graph.sources.index(node)))
        if (fusion := self.placement.fusions.get(node)) is not None:
            return source_with_operators(source, node, fusion)
        if self._sends_states(node):
            from dali_like.engine.worker.state_sender import sending_states  # noqa: PLC0415  # for iterables that know their state

            return sending_states(source, node.external.declared, self._batch_size)
        return source, node.external.declared

    def _sends_states(self, node: SourceNode) -> bool:
        return self.arguments.enable_checkpointing and self._states.are_sent(self.graph.sources.index(node))

    def ahead_of(self, node: SourceNode) -> int:
        """How many batches of a source are made ahead."""
        external = node.external
        # Operators have a queue of their own, as deep as the pipeline says.
        depth = 0 if self.placement.stages else self._depth
        # Each shard is a batch ahead, or as many as the source says: else workers would wait for each other's turn.
        depth += external.prefetch_queue_depth * (self._num_workers if external.sharded else 1)
        grown = self.tuner.settings.prefetch_depth - self._depth if self.tuner is not None and external.parallel else 0
        return max(depth, 1) + grown

    def _first_position(self) -> tuple[PipelinePosition | None, bool]:
        """Where to begin, and whether the end of that epoch has been seen."""
        checkpoint: Checkpoint | None = self.arguments.checkpoint
        if checkpoint is None:
            return None, False
        for i, node in enumerate(self.graph.sources):
            external = node.external
            if external.kind is not None and external.kind.ignores_info and checkpoint.sources[i] is None:
                warn(
                    f"{external.name} takes no argument, so that it cannot be told where to go on from the checkpoint; "
                    "it begins at its beginning",
                    UserWarning,
                )
        return PipelinePosition(checkpoint.epoch, checkpoint.iteration, checkpoint.passed), checkpoint.ended

    def _check(self, checkpoint: Checkpoint) -> None:
        externals = [node.external for node in self.graph.sources]
        divides_batches = any(external.batch and external.shard is not None for external in externals)
        go_on = [external.persists for external in externals]
        checkpoint.check(self._batch_size, self._shard.count, go_on, divides_batches=divides_batches)

    def _feeds(self, inline_pool: InlinePool) -> list[PooledSource]:
        """For each source, in the order of the graph: which pool computes it, its number there, and how far ahead."""
        feeds = []
        serial, on_gpu, parallel, homes = (itertools.count() for _ in range(4))
        for node in self.graph.sources:
            external = node.external
            index, worker = 0, ANY_WORKER
            pool: Pool
            if external.kind is None:
                pool = self.inputs[node]
            elif self.gpu_pool is not None and external.may_be_on_gpu:
                pool, index = self.gpu_pool, next(on_gpu)
            elif self.process_pool is None or not external.parallel:
                pool, index = inline_pool, next(serial)
            else:
                pool, index = self.process_pool, next(parallel)
                if external.sharded:
                    pool = ShardsPool(pool, self._num_workers)
                    self._shards_pools.append(pool)
                elif external.kind.in_order:
                    worker = next(homes) % self._num_workers
                if self._sends_states(node):
                    from dali_like.graph.state_pool import SentStatesPool  # noqa: PLC0415

                    pool = SentStatesPool(pool, len(external.declared), self._most_ahead)
                    self._sent_states[self.graph.sources.index(node)] = pool
            ahead = self.ahead_of(node)
            sizes = external.sizes(self._batch_size)
            shard = external.shard or ALONE
            feed = PooledSource(
                pool,
                index,
                ahead,
                external.parallel,
                worker=worker,
                persists=external.persists,
                sizes=sizes,
                shard=shard,
                batch=external.batch,
            )
            feeds.append(feed)
        return feeds


def _layouts_seen(
    made: Mapping[SourceNode, Source], inputs: Mapping[SourceNode, InputPool]
) -> dict[SourceNode, Sequence[str]]:
    """The layouts of what the sources in this process give, as far as that has been seen."""
    fed = {node: pool.layouts for node, pool in inputs.items()}
    return {**fed, **{node: layouts for node, source in made.items() if (layouts := source.seen_layouts) is not None}}


def _pickled(given: Arguments, parts: dict[str, Any], name: str) -> PickledSource:
    from dali_like.sources import callback_pickler as pickling  # noqa: PLC0415  # what is forked is not pickled

    return pickling.dumps(parts, name, pickler=given.py_callback_pickler, inherits=given.py_start_method != "ray")


def _cpus_for(arguments: Arguments) -> set[int] | None:
    """The CPUs that workers and threads are bound to; None: they are not."""
    if not arguments.set_affinity or arguments.device_id is None or not accelerator_is_available():
        return None
    from dali_like.device.opening import check_number  # noqa: PLC0415

    check_number(arguments.device_id, "set_affinity=True")
    return cpus_near(arguments.device_id)
