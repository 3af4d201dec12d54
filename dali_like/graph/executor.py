"""Runs a pipeline: takes batches from the sources and applies the operators to them, ahead of the user.

Operators that do not run in the workers (see `dali_like.graph.placement`) run in threads, sample by sample; a thread that
has finished a sample takes the next one of the batch. While the user works on a batch, the operators work on the next ones,
as many as the pipeline's prefetch_queue_depth says and as their source data is there. Without such operators there are no
threads, and batches go from the sources to the user as they are.
"""

from __future__ import annotations

import functools
import itertools
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dali_like.errors import BatchSizeError, OutOfMemoryError
from dali_like.graph.buffers import BatchMemory, BufferPool, Habits
from dali_like.graph.inputs import InputPool
from dali_like.graph.lockstep import Lockstep, Position
from dali_like.graph.nodes import DataNode, Graph, OperatorNode, SourceNode
from dali_like.graph.operators import choose_layout
from dali_like.graph.placement import BatchStage, Placement, ProgramStage, Stage
from dali_like.graph.program import Key, Program, key
from dali_like.interrupts import PATIENCE_S, check_interrupts, interruptible
from dali_like.tensors import TensorListCPU
from dali_like.types import SampleInfo
from dali_like.workers.batch import Output
from dali_like.workers.samples import load_objects

#: The samples of one output of a batch: one array, or a sequence of arrays.
_Samples = Output | Sequence[NDArray[Any]]


class _Place(NamedTuple):
    """Which batch it is."""

    epoch: int
    iteration: int


class _Work:
    """An iteration that operators work on, with what the sources have given for it."""

    def __init__(self, outputs: list[Sequence[Output]], place: _Place) -> None:
        self.outputs = outputs
        self.place = place
        self.future: Future[tuple[TensorListCPU, ...]] = Future()


class Executor:
    """Delivers the outputs of a pipeline's graph.

    Args:
        graph: what to compute.
        place: decides where its operators run, given the layouts of inputs that what was fed says.
        lockstep: of the graph's sources, in their order.
        buffers: for the results of operators.
        num_threads: for operators.
        depth: how many batches operators work ahead.
        capacity: the largest batch; that of a graph without sources.
        inputs: those of the sources that are fed.
        ended: whether the end of that epoch has been seen.
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
        *,
        ended: bool = False,
    ) -> None:
        self._graph = graph
        self._place = place
        self._fed: dict[SourceNode, str] = {}
        self._placement = placement = place(self._fed)
        self._inputs = inputs
        self._deliveries = [(key(node), self._delivery(node)) for node in graph.outputs]
        self._habits = {output: Habits() for stage in placement.stages for output in stage.outputs}
        self._lockstep = lockstep
        self._buffers = buffers
        self._num_threads = num_threads
        self._depth = depth
        self._capacity = capacity
        self._threads = ThreadPoolExecutor(num_threads, "dali_like") if placement.stages else None
        self._queue: deque[_Work] = deque()
        self._ended = ended

    @property
    def position(self) -> Position:
        """How far the user has come."""
        taken = self._lockstep.iteration
        iteration = self._queue[0].place.iteration if self._queue else taken
        return Position(self._lockstep.epoch, iteration, self._lockstep.passed(taken - iteration))

    @property
    def ended(self) -> bool:
        """Whether the user has seen the end of the epoch."""
        return self._ended

    def run(self) -> tuple[TensorListCPU, ...]:
        """The next batch.

        Raises:
            StopIteration: the epoch has ended.
            Exception: what a callback or an operator raised. The next call goes on with the next batch.
        """
        if self._ended:
            raise StopIteration
        try:
            if self._threads is None:
                return self._wrap(self._by_node(self._lockstep.next()))
            return self._next_computed(self._threads)
        except StopIteration:
            self._ended = True
            raise

    def reset(self) -> None:
        """Begin the next epoch, unless nothing has been taken from this one yet."""
        if self.position.iteration or self._ended:
            for work in reversed(self._queue):
                work.future.cancel()
                self._lockstep.put_back(work.outputs)
            self._queue.clear()
            self._lockstep.reset()
            self._ended = False

    def end_epoch(self) -> None:
        """Let the epoch end here, whatever the sources still have."""
        self._ended = True

    def close(self) -> None:
        """End the threads."""
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)
        self._queue.clear()

    def _next_computed(self, threads: ThreadPoolExecutor) -> tuple[TensorListCPU, ...]:
        if not self._queue:
            place = self._next_place()
            self._begin(threads, _Work(self._lockstep.next(), place))
        self._work_ahead(threads)
        work = self._queue[0]
        self._wait_for(work)
        if isinstance(work.future.exception(), OutOfMemoryError):
            # What has been released meanwhile may do. If not, the batch waits for the next call.
            self._buffers.make_room()
            self._start(threads, work)
            self._wait_for(work)
            if isinstance(error := work.future.exception(), OutOfMemoryError):
                raise error
        self._queue.popleft()
        self._work_ahead(threads)
        return work.future.result()

    def _wait_for(self, work: _Work) -> None:
        while not wait((work.future,), PATIENCE_S).done:
            check_interrupts()

    def _work_ahead(self, threads: ThreadPoolExecutor) -> None:
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
            self._begin(threads, _Work(outputs, place))

    def _next_place(self) -> _Place:
        return _Place(self._lockstep.epoch, self._lockstep.iteration)

    def _begin(self, threads: ThreadPoolExecutor, work: _Work) -> None:
        self._heed_layouts()
        self._queue.append(work)
        self._start(threads, work)

    def _heed_layouts(self) -> None:
        """Place the operators anew where an input has been fed data of a layout that was not declared."""
        pairs = ((node, pool.layout) for node, pool in self._inputs.items())
        fed = {node: layout for node, layout in pairs if layout != node.external.layouts[0]}
        if fed != self._fed:
            self._placement, self._fed = self._place(fed), fed

    def _start(self, threads: ThreadPoolExecutor, work: _Work) -> None:
        work.future = threads.submit(self._compute, work.outputs, work.place)

    def _by_node(self, outputs: list[Sequence[Output]]) -> dict[Key, _Samples]:
        data: dict[Key, _Samples] = {
            output: samples
            for source, batch in zip(self._graph.sources, outputs, strict=True)
            for output, samples in zip(self._placement.outputs_of(source), batch, strict=True)
        }
        if len(outputs) > 1 and len(set(sizes := [len(batch[0]) for batch in outputs])) > 1:
            pairs = zip((source.external.name for source in self._graph.sources), sizes, strict=True)
            raise BatchSizeError("Batch size clash! " + ", ".join(f"{name} returned {size} samples" for name, size in pairs))
        for node in self._graph.constants:
            data[node, 0] = np.repeat(node.constant.array[np.newaxis], self._size(outputs), axis=0)
        return data

    def _size(self, outputs: list[Sequence[Output]]) -> int:
        return len(outputs[0][0]) if outputs else self._capacity

    def _compute(self, outputs: list[Sequence[Output]], place: _Place) -> tuple[TensorListCPU, ...]:
        """Run the operators over a batch; in one of the threads."""
        data = self._by_node(outputs)
        size = self._size(outputs)
        for stage in self._placement.stages:
            self._run(stage, data, size, place)
        return self._wrap(data)

    def _run(self, stage: Stage, data: dict[Key, _Samples], size: int, place: _Place) -> None:
        if not size:
            data |= {output: [] for output in stage.outputs}
            return
        memory = [BatchMemory(self._buffers, size, self._habits[output]) for output in stage.outputs]
        inputs = [data[given] for given in stage.inputs]
        if isinstance(stage, ProgramStage):
            self._run_program(stage.program, inputs, memory, size, place)
        else:
            self._run_on_batch(stage, inputs, memory, place)
        for (producer, i), batch in zip(stage.outputs, memory, strict=True):
            assert isinstance(producer, OperatorNode)
            data[producer, i] = batch.finish(producer.operator.name)

    def _run_program(
        self, program: Program, inputs: Sequence[_Samples], memory: Sequence[BatchMemory], size: int, place: _Place
    ) -> None:
        def make(i: int) -> None:
            info = SampleInfo(place.iteration * self._capacity + i, i, place.iteration, place.epoch)
            samples = [_sample(samples, i) for samples in inputs]
            results = program.run(samples, info, lambda output, shape, dtype: memory[output].empty(i, shape, dtype))
            for output, result in zip(memory, results, strict=True):
                output.put(i, result)

        self._for_each(size, make)

    def _run_on_batch(
        self, stage: BatchStage, inputs: Sequence[_Samples], memory: Sequence[BatchMemory], place: _Place
    ) -> None:
        registers: list[Any] = [[_sample(samples, i) for i in range(len(samples))] for samples in inputs]
        registers += [None] * len(stage.outputs)
        stage.step.run(registers, SampleInfo(place.iteration * self._capacity, 0, place.iteration, place.epoch))
        for output, results in zip(memory, registers[len(inputs) :], strict=True):
            for i, result in enumerate(results):
                output.put(i, result)

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

    def _wrap(self, data: dict[tuple[Any, int], _Samples]) -> tuple[TensorListCPU, ...]:
        return tuple([deliver(data[key]) for key, deliver in self._deliveries])

    def _delivery(self, node: DataNode) -> Callable[[_Samples], Any]:
        """What makes an output of its samples."""
        producer, output = node.producer, node.output
        if isinstance(producer, SourceNode):
            if producer.external.is_object(output):
                return functools.partial(_load_objects, name=producer.external.name, output=output)
            if (pool := self._inputs.get(producer)) is not None:
                return lambda samples: TensorListCPU.of_arrays(samples, pool.layout)
        if isinstance(producer, OperatorNode):  # which may make several numbers of dimensions
            return lambda samples: TensorListCPU.of_arrays(
                samples, choose_layout(self._placement.operators[producer].layouts[output], _ndim(samples))
            )
        return functools.partial(TensorListCPU.of_arrays, layout=producer.layouts[output])


def _ndim(samples: _Samples) -> int:
    return int(samples.ndim - 1 if isinstance(samples, np.ndarray) else samples[0].ndim if len(samples) else 0)


def _load_objects(samples: _Samples, name: str, output: int) -> list[Any]:
    with interruptible():  # unpickling may call the user's code
        return load_objects(samples, name, output)


def _sample(samples: Sequence[Any] | NDArray[Any], i: int) -> Any:
    """One sample, as an array even if it has no dimensions."""
    return samples[i, ...] if isinstance(samples, np.ndarray) else samples[i]
