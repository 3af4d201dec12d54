"""Runs a pipeline: takes batches from the sources and applies the operators to them, ahead of the user.

Operators that do not run in the workers (see `dali_like.graph.placement`) run in threads, sample by sample; a thread that
has finished a sample takes the next one of the batch. While the user works on a batch, the operators work on the next ones,
as many as the pipeline's prefetch_queue_depth says and as their source data is there; on one at a time if there are
operators that must see the batches in order, as functions of the user's. Without operators in threads there are no threads,
and batches go from the sources to the user as they are.

Where outputs are wanted on a GPU, their copies are begun in the same way, ahead of the user.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections import deque
from collections.abc import Callable, Container, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from time import monotonic_ns
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dali_like.device.arrays import DeviceArray, arrays_to_host
from dali_like.device.copier import Copier, DeviceSamples
from dali_like.errors import BatchSizeError, OutOfMemoryError
from dali_like.gpu_tensor_lists import TensorListGPU
from dali_like.graph.buffers import BatchMemory, BufferPool, Habits
from dali_like.graph.gpu_sources import kind_of_samples
from dali_like.graph.inputs import InputPool
from dali_like.graph.lockstep import Lockstep, Position
from dali_like.graph.nodes import DataNode, Graph, OperatorNode, SourceNode
from dali_like.graph.operators import Call, OrderedOperator, choose_layout
from dali_like.graph.placement import BatchStage, Placement, ProgramStage, Stage
from dali_like.graph.program import Key, Program, key
from dali_like.interrupts import PATIENCE_S, check_interrupts, interruptible
from dali_like.sharding import ALONE, Shard
from dali_like.tensors import TensorListCPU
from dali_like.types import SampleInfo
from dali_like.workers.batch import Batch, Output
from dali_like.workers.meters import Recorder
from dali_like.workers.samples import load_objects

TensorList = TensorListCPU | TensorListGPU

#: The samples of one output of a batch: one array, or a sequence of arrays; on the GPU, if they have been made there.
_Samples = Output | Sequence[NDArray[Any]] | DeviceSamples


class _Place(NamedTuple):
    """Which batch it is."""

    epoch: int
    iteration: int
    first: int  # the position of its first sample


class _Work:
    """An iteration that operators work on, with what the sources have given for it."""

    def __init__(self, outputs: list[Sequence[Output]], place: _Place) -> None:
        self.outputs = outputs
        self.place = place
        self.operators_ns = 0  # how long these have taken
        self.future: Future[tuple[TensorList, ...]] = Future()


class Executor:
    """Delivers the outputs of a pipeline's graph.

    Args:
        graph: what to compute.
        place: decides where its operators run, given the layouts of inputs that what was fed says.
        lockstep: of the graph's sources, in their order.
        buffers: for the results of operators.
        num_threads: for operators.
        depth: how many batches operators work, or copies to a GPU are begun, ahead.
        capacity: the largest batch; that of a graph without sources.
        shard: which of the batches of an epoch are this process's.
        inputs: those of the sources that are fed.
        copier: copies outputs to the GPU; None: all are on the CPU.
        ended: whether the end of that epoch has been seen.
        cpus: what the threads are bound to; None: they are not.

    Attributes:
        operator_times: told how long the operators have taken that run in threads, for each batch.
        waited_ns: how long `run` has waited for them.
    """

    def __init__(
        self,
        graph: Graph,
        place: Callable[[Mapping[SourceNode, str]], Placement],
        lockstep: Lockstep,
        buffers: BufferPool,
        num_threads: int,
        depth: int,
        capacity: int,
        inputs: Mapping[SourceNode, InputPool],
        copier: Copier | None = None,
        *,
        shard: Shard = ALONE,
        ended: bool = False,
        cpus: set[int] | None = None,
    ) -> None:
        self._graph = graph
        self._place = place
        self._fed: dict[SourceNode, str] = {}
        self._placement = placement = place(self._fed)
        self._inputs = inputs
        self._copier = copier
        self._deliveries = [(key(node), node.device, self._delivery(node)) for node in graph.outputs]
        self._copied = list(dict.fromkeys(output for output, device, _ in self._deliveries if device == "gpu"))
        self._habits = {output: Habits() for stage in placement.stages for output in stage.outputs}
        self._lockstep = lockstep
        self._buffers = buffers
        self._num_threads = num_threads
        self._in_order = any(map(_is_in_order, placement.stages))
        self._depth = 1 if self._in_order else depth
        self._capacity = capacity
        self._shard = shard
        bind = None if cpus is None else functools.partial(os.sched_setaffinity, 0, cpus)
        self._threads = ThreadPoolExecutor(num_threads, "dali_like", bind) if placement.stages else None
        self._queue: deque[_Work] = deque()
        self._ended = ended
        self.operator_times = Recorder()
        self.waited_ns = 0

    @property
    def position(self) -> Position:
        """How far the user has come."""
        taken = self._lockstep.iteration
        iteration = self._queue[0].place.iteration if self._queue else taken
        return Position(self._lockstep.epoch, iteration, self._lockstep.passed(taken - iteration))

    @property
    def has_threads(self) -> bool:
        """Whether there are operators that run in threads."""
        return self._threads is not None

    @property
    def ended(self) -> bool:
        """Whether the user has seen the end of the epoch."""
        return self._ended

    def number(self, source: int, position: Position) -> tuple[int, int]:
        """See `Lockstep.number`."""
        return self._lockstep.number(source, position)

    def upcoming(self, source: int) -> Batch | None:
        """See `Lockstep.upcoming`."""
        return self._lockstep.upcoming(source)

    def run(self) -> tuple[TensorList, ...]:
        """The next batch.

        Raises:
            StopIteration: the epoch has ended.
            Exception: what a callback or an operator raised. The next call goes on with the next batch.
        """
        if self._ended:
            raise StopIteration
        try:
            if self._threads is None and self._copier is None:
                return self._wrap(self._by_node(self._lockstep.next()))
            return self._next_computed()
        except StopIteration:
            self._ended = True
            raise

    def reset(self) -> None:
        """Begin the next epoch, unless nothing has been taken from this one yet."""
        if self.position.iteration or self._ended:
            self._put_back()
            self._lockstep.reset()
            self._ended = False

    def go_to(self, position: Position, restored: Container[int], *, ended: bool) -> None:
        """Go on from anywhere; see `Lockstep.go_to`."""
        self._put_back()
        self._lockstep.go_to(position, restored)
        self._ended = ended

    def _put_back(self) -> None:
        """Drop what has been computed ahead, but for what cannot be had again."""
        for work in reversed(self._queue):
            if not work.future.cancel() and self._in_order:
                self._wait_for(work)
            self._lockstep.put_back(work.outputs)
        self._queue.clear()

    def end_epoch(self) -> None:
        """Let the epoch end here, whatever the sources still have."""
        self._ended = True

    def close(self) -> None:
        """End the threads, and wait for the copies."""
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)
        self._queue.clear()
        if self._copier is not None:
            self._copier.close()

    def _next_computed(self) -> tuple[TensorList, ...]:
        if self._copier is not None:
            self._copier.settle()
        if not self._queue:
            place = self._next_place()
            self._begin(_Work(self._lockstep.next(), place))
        self._work_ahead()
        work = self._queue[0]
        if self._threads is None and not work.future.done():  # it was interrupted
            self._start(work)
        self._wait_for(work)
        if isinstance(work.future.exception(), OutOfMemoryError):
            # What has been released meanwhile may do. If not, the batch waits for the next call.
            self._buffers.make_room()
            self._start(work)
            self._wait_for(work)
            if isinstance(error := work.future.exception(), OutOfMemoryError):
                raise error
        self._queue.popleft()
        if work.operators_ns:
            self.operator_times.add(work.operators_ns)
        try:
            self._work_ahead()
        except BaseException:  # an interrupt
            self._queue.appendleft(work)
            raise
        return work.future.result()

    def _wait_for(self, work: _Work) -> None:
        begin_ns = monotonic_ns()
        while not wait((work.future,), PATIENCE_S).done:
            check_interrupts()
        self.waited_ns += monotonic_ns() - begin_ns

    def _work_ahead(self) -> None:
        """Start the operators on batches that the sources have finished."""
        while len(self._queue) < self._depth and not self._lockstep.finished:
            place = self._next_place()
            try:
                outputs = self._lockstep.next_if_ready()
            except Exception as error:
                # To be raised when it is its turn; StopIteration cannot travel in a future and is raised again then.
                if isinstance(error, StopIteration):
                    return
                work = _Work([], place)
                work.future.set_exception(error)
                self._queue.append(work)
                continue
            if outputs is None:
                return
            self._begin(_Work(outputs, place))

    def _next_place(self) -> _Place:
        iteration = self._lockstep.iteration
        return _Place(self._lockstep.epoch, iteration, self._shard.first(iteration, self._capacity))

    def _begin(self, work: _Work) -> None:
        self._heed_layouts()
        self._queue.append(work)
        self._start(work)

    def _heed_layouts(self) -> None:
        """Place the operators anew where an input has been fed data of a layout that was not declared."""
        pairs = ((node, pool.layout) for node, pool in self._inputs.items())
        fed = {node: layout for node, layout in pairs if layout != node.external.layouts[0]}
        if fed != self._fed:
            self._placement, self._fed = self._place(fed), fed

    def _start(self, work: _Work) -> None:
        if self._threads is not None:
            work.future = self._threads.submit(self._compute, work)
            return
        future: Future[tuple[TensorList, ...]] = Future() if work.future.done() else work.future
        try:
            future.set_result(self._compute(work))
        except Exception as error:
            traceback = error.__traceback__  # without this frame, which has the future that is to keep the error
            future.set_exception(error.with_traceback(traceback and traceback.tb_next))
        work.future = future

    def _by_node(self, outputs: list[Sequence[Output]]) -> dict[Key, _Samples]:
        data: dict[Key, _Samples] = {
            output: samples
            for source, batch in zip(self._graph.sources, outputs, strict=True)
            for output, samples in zip(self._placement.outputs_of(source), batch, strict=True)
        }
        if len(outputs) > 1 and len(set(sizes := [_length(batch[0]) for batch in outputs])) > 1:
            pairs = zip((source.external.name for source in self._graph.sources), sizes, strict=True)
            raise BatchSizeError("Batch size clash! " + ", ".join(f"{name} returned {size} samples" for name, size in pairs))
        for node in self._graph.constants:
            data[node, 0] = np.repeat(node.constant.array[np.newaxis], self._size(outputs), axis=0)
        return data

    def _size(self, outputs: list[Sequence[Output]]) -> int:
        return _length(outputs[0][0]) if outputs else self._capacity

    def _compute(self, work: _Work) -> tuple[TensorList, ...]:
        """Run the operators over a batch, and begin the copies of what comes out; in a thread, if there are any."""
        data = self._by_node(work.outputs)
        size = self._size(work.outputs)
        begin_ns = monotonic_ns()
        for stage in self._placement.stages:
            self._run(stage, data, size, work.place)
        if self._placement.stages:
            work.operators_ns = monotonic_ns() - begin_ns
        batch = self._wrap(data)
        if not self._lockstep.any_goes_on:
            work.outputs = []  # nobody will want them back, and a slot is free when its copy has ended
        return batch

    def _run(self, stage: Stage, data: dict[Key, _Samples], size: int, place: _Place) -> None:
        if not size:
            data |= {output: [] for output in stage.outputs}
            return
        inputs: list[Any] = [_on_host(data[given]) for given in stage.inputs]
        if isinstance(stage, BatchStage) and hasattr(stage.step.operator, "compute_on_gpu"):
            data[stage.outputs[0]] = self._run_on_gpu(stage, inputs[stage.step.inputs[0]], place)
            return
        memory = [BatchMemory(self._buffers, size, self._habits[output]) for output in stage.outputs]
        if isinstance(stage, ProgramStage):
            self._run_program(stage.program, inputs, memory, size, place)
        else:
            self._run_on_batch(stage, inputs, memory, size, place)
        for (producer, i), batch in zip(stage.outputs, memory, strict=True):
            assert isinstance(producer, OperatorNode)
            data[producer, i] = batch.finish(producer.operator.name)

    def _run_program(
        self, program: Program, inputs: Sequence[Any], memory: Sequence[BatchMemory], size: int, place: _Place
    ) -> None:
        def make(i: int) -> None:
            info = SampleInfo(place.first + i, i, place.iteration, place.epoch)
            samples = [_sample(samples, i) for samples in inputs]
            results = program.run(samples, info, lambda output, shape, dtype: memory[output].empty(i, shape, dtype))
            for output, result in zip(memory, results, strict=True):
                output.put(i, result)

        self._for_each(size, make)

    def _run_on_batch(
        self, stage: BatchStage, inputs: Sequence[Any], memory: Sequence[BatchMemory], size: int, place: _Place
    ) -> None:
        registers: list[Any] = [[_sample(samples, i) for i in range(len(samples))] for samples in inputs]
        registers += [None] * len(stage.outputs)
        info = SampleInfo(place.first, 0, place.iteration, place.epoch)
        stage.step.run(registers, info, count=size)
        for output, results in zip(memory, registers[len(inputs) :], strict=True):
            for i, result in enumerate(results):
                output.put(i, result)

    def _run_on_gpu(self, stage: BatchStage, samples: Any, place: _Place) -> DeviceSamples:
        operator: Any = stage.step.operator
        assert self._copier is not None

        def for_each(count: int, function: Callable[[int], None]) -> None:
            def call(i: int) -> None:
                try:
                    function(i)
                except Exception as error:
                    error.add_note(f"raised by {operator.name} for sample {i} of iteration {place.iteration}")
                    raise

            self._for_each(count, call)

        call = Call(SampleInfo(place.first, 0, place.iteration, place.epoch))
        made: DeviceSamples = operator.compute_on_gpu(call, [*samples], self._copier, for_each)
        return made

    def _for_each(self, count: int, function: Callable[[int], None]) -> None:
        """Call `function` for each index, in this thread and all others that are free.

        The error of the lowest index is raised, whichever came first.
        """
        assert self._threads is not None
        indices = itertools.count()
        errors: dict[int, Exception] = {}

        def work() -> None:
            while (i := next(indices)) < count:
                try:
                    function(i)
                except Exception as error:
                    errors[i] = error

        helpers = [self._threads.submit(work) for _ in range(min(self._num_threads, count) - 1)]
        work()
        for helper in helpers:
            if not helper.cancel():
                helper.result()
        if errors:
            raise errors[min(errors)]

    def _wrap(self, data: dict[Key, _Samples]) -> tuple[TensorList, ...]:
        if self._copier is None:
            return tuple([deliver(data[output]) for output, _, deliver in self._deliveries])
        sent = dict(zip(self._copied, self._copier.send([data[output] for output in self._copied]), strict=True))
        return tuple(
            [
                deliver(sent[output] if device == "gpu" else _on_host(data[output]))
                for output, device, deliver in self._deliveries
            ]
        )

    def _delivery(self, node: DataNode) -> Callable[[_Samples], Any]:
        """What makes an output of its samples."""
        producer, output = node.producer, node.output
        kind: Any = TensorListGPU if node.device == "gpu" else TensorListCPU
        if isinstance(producer, SourceNode):
            if producer.external.is_object(output):
                return functools.partial(_load_objects, name=producer.external.name, output=output)
            if (pool := self._inputs.get(producer)) is not None:
                return lambda samples: kind.of_arrays(samples, pool.layout)
        if isinstance(producer, OperatorNode):  # which may make several numbers of dimensions
            return lambda samples: kind.of_arrays(
                samples, choose_layout(self._placement.operators[producer].layouts[output], _ndim(samples))
            )
        return functools.partial(kind.of_arrays, layout=producer.layouts[output])


def _is_in_order(stage: Stage) -> bool:
    operator = stage.step.operator if isinstance(stage, BatchStage) else None
    return isinstance(operator, OrderedOperator) and operator.in_order


def _ndim(samples: _Samples) -> int:
    return kind_of_samples(samples)[1] if _length(samples) else 0


def _length(samples: _Samples) -> int:
    return samples.shape[0] if isinstance(samples, DeviceArray) else len(samples)


def _on_host(samples: _Samples) -> Any:
    """The samples in host memory."""
    if isinstance(samples, DeviceArray):
        return samples.to_host()
    if isinstance(samples, list) and samples and isinstance(samples[0], DeviceArray):
        return arrays_to_host(samples)
    return samples


def _load_objects(samples: Any, name: str, output: int) -> list[Any]:
    with interruptible():  # unpickling may call the user's code
        return load_objects(samples, name, output)


def _sample(samples: Sequence[Any] | NDArray[Any], i: int) -> Any:
    """One sample, as an array even if it has no dimensions."""
    return samples[i, ...] if isinstance(samples, np.ndarray) else samples[i]
