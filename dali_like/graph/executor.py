"""Runs a pipeline: takes batches from the sources and applies the operators to them, ahead of the user.

Operators run in threads, sample by sample; a thread that has finished a sample takes the next one of the batch. While the
user works on a batch, the operators work on the next ones, as many as the pipeline's prefetch_queue_depth says and as their
source data is there. Without operators there are no threads, and batches go from the sources to the user as they are.
"""

from __future__ import annotations

import functools
import itertools
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dali_like.errors import BatchSizeError, OutOfMemoryError
from dali_like.graph.buffers import BufferPool
from dali_like.graph.inputs import InputPool
from dali_like.graph.lockstep import Lockstep, Position
from dali_like.graph.nodes import DataNode, Graph, OperatorNode, SourceNode
from dali_like.graph.operators import SampleShape
from dali_like.interrupts import PATIENCE_S, check_interrupts, interruptible
from dali_like.tensors import TensorListCPU
from dali_like.workers.batch import Output
from dali_like.workers.samples import load_objects

#: The samples of one output of a batch: one array, or a sequence of arrays.
_Samples = Output | Sequence[NDArray[Any]]


class _Work:
    """An iteration that operators work on, with what the sources have given for it."""

    def __init__(self, outputs: list[Sequence[Output]], iteration: int) -> None:
        self.outputs = outputs
        self.iteration = iteration
        self.future: Future[tuple[TensorListCPU, ...]] = Future()


class Executor:
    """Delivers the outputs of a pipeline's graph.

    Args:
        graph: what to compute.
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
        self._inputs = inputs
        self._deliveries = [((node.producer, node.output), self._delivery(node)) for node in graph.outputs]
        self._lockstep = lockstep
        self._buffers = buffers
        self._num_threads = num_threads
        self._depth = depth
        self._capacity = capacity
        self._threads = ThreadPoolExecutor(num_threads, "dali_like") if graph.operators else None
        self._queue: deque[_Work] = deque()
        self._ended = ended

    @property
    def position(self) -> Position:
        """How far the user has come."""
        taken = self._lockstep.iteration
        iteration = self._queue[0].iteration if self._queue else taken
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
            iteration = self._lockstep.iteration
            self._begin(threads, _Work(self._lockstep.next(), iteration))
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
            iteration = self._lockstep.iteration
            try:
                outputs = self._lockstep.next_if_ready()
            except Exception as error:
                # To be raised when it is its turn; StopIteration cannot travel in a future and is raised again then.
                if isinstance(error, StopIteration):
                    return
                work = _Work([], iteration)
                work.future.set_exception(error)
                self._queue.append(work)
                continue
            if outputs is None:
                return
            self._begin(threads, _Work(outputs, iteration))

    def _begin(self, threads: ThreadPoolExecutor, work: _Work) -> None:
        self._queue.append(work)
        self._start(threads, work)

    def _start(self, threads: ThreadPoolExecutor, work: _Work) -> None:
        work.future = threads.submit(self._compute, work.outputs, work.iteration)

    def _by_node(self, outputs: list[Sequence[Output]]) -> dict[tuple[Any, int], _Samples]:
        data: dict[tuple[Any, int], _Samples] = {
            (source, i): samples
            for source, batch in zip(self._graph.sources, outputs, strict=True)
            for i, samples in enumerate(batch)
        }
        if len(outputs) > 1 and len(set(sizes := [len(batch[0]) for batch in outputs])) > 1:
            pairs = zip((source.external.name for source in self._graph.sources), sizes, strict=True)
            raise BatchSizeError("Batch size clash! " + ", ".join(f"{name} returned {size} samples" for name, size in pairs))
        if self._graph.constants:
            size = len(outputs[0][0]) if outputs else self._capacity
            for node in self._graph.constants:
                data[node, 0] = np.repeat(node.constant.array[np.newaxis], size, axis=0)
        return data

    def _compute(self, outputs: list[Sequence[Output]], iteration: int) -> tuple[TensorListCPU, ...]:
        """Run the operators over a batch; in one of the threads."""
        data = self._by_node(outputs)
        for node in self._graph.operators:
            inputs = [data[data_node.producer, data_node.output] for data_node in node.inputs]
            data[node, 0] = self._apply(node, inputs, iteration)
        return self._wrap(data)

    def _apply(self, node: OperatorNode, inputs: Sequence[_Samples], iteration: int) -> _Samples:
        operator = node.operator
        size = len(inputs[0])
        if not size:
            return []
        shapes: list[SampleShape | None] = [None] * size

        def infer(i: int) -> None:
            shapes[i] = operator.infer([_sample(samples, i) for samples in inputs])

        self._for_each(size, _with_position(infer, operator.name, iteration))
        known = [shape for shape in shapes if shape is not None]
        results: NDArray[Any] | list[Any] = self._buffers.arrays(known) if len(known) == size else [None] * size

        def compute(i: int) -> None:
            result = operator.compute([_sample(samples, i) for samples in inputs], _sample(results, i))
            if isinstance(results, list):
                results[i] = result

        self._for_each(size, _with_position(compute, operator.name, iteration))
        return results

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
        return functools.partial(TensorListCPU.of_arrays, layout=producer.layouts[output])


def _load_objects(samples: _Samples, name: str, output: int) -> list[Any]:
    with interruptible():  # unpickling may call the user's code
        return load_objects(samples, name, output)


def _sample(samples: Sequence[Any] | NDArray[Any], i: int) -> Any:
    """One sample, as an array even if it has no dimensions."""
    return samples[i, ...] if isinstance(samples, np.ndarray) else samples[i]


def _with_position(function: Callable[[int], None], name: str, iteration: int) -> Callable[[int], None]:
    def call(i: int) -> None:
        try:
            function(i)
        except Exception as error:
            error.add_note(f"raised by {name} for sample {i} of iteration {iteration}")
            raise

    return call
