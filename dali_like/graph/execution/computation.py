"""Compute the outputs of a pipeline's graph from the batches of the sources.

Runs in the main process. Operators that do not run in the workers (see `dali_like.graph.execution.placement`) run in
threads, sample by sample. A thread that has finished a sample takes the next one of the batch. Results lie in buffers of
the shared space; outputs for a GPU are copied there.
"""

from __future__ import annotations

import functools
import itertools
import os
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from operator import call
from time import monotonic_ns
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dali_like.common.foreign_errors import add_note
from dali_like.common.hooks import GraphHooks
from dali_like.common.interrupts import interruptible
from dali_like.common.work_sharing import Brevity, Pace, for_each, one_by_one
from dali_like.engine.memory.ring import SampleList
from dali_like.engine.pool.batch import Output, describe_info
from dali_like.engine.worker.out_of_band import LEAST_BUFFER_BYTES
from dali_like.engine.worker.source import kind_of_samples, load_objects
from dali_like.errors import ArgumentClashError, BatchSizeError
from dali_like.graph.execution.batch_runs import BatchId, run_program
from dali_like.graph.execution.buffers import BatchMemory, BufferPool, PreviousSamples
from dali_like.graph.execution.placement import Placement, ThreadStage
from dali_like.graph.execution.program import Key, key, note_origins
from dali_like.graph.language.conditions import label_of
from dali_like.graph.language.nodes import DataNode, Graph, OperatorNode, SourceNode, origin_of
from dali_like.graph.language.operator_interface import OperatorCall, OrderedOperator, SampleShape, choose_layout
from dali_like.tensors import TensorListCPU
from dali_like.types import SampleInfo

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from dali_like.device.copier import Copier, DeviceSamples
    from dali_like.tensors.gpu_tensor_lists import TensorListGPU

TensorList: TypeAlias = "TensorListCPU | TensorListGPU"

#: One output of a batch: one array, or a sequence of arrays; on the GPU if it was computed there.
_Samples: TypeAlias = "Output | Sequence[NDArray[Any]] | DeviceSamples"


class Computation:
    """Computes a batch of outputs from the batches of the sources.

    Args:
        graph: the graph.
        place: returns the placement of its operators, given the observed layouts of source data.
        buffers: memory for results.
        num_threads: threads for operators.
        capacity: the size of the batches of a graph without sources.
        layouts: observed layouts of sources whose data may carry one; sources and inputs update them.
        copier: copies outputs to the GPU; None if all outputs are on the CPU.
        cpus: CPUs to bind the threads to; None: any.

    Attributes:
        threads: the pool of threads for operators; None without such operators.
        in_order: whether an operator must see the batches in order and one at a time.
        is_trivial: whether batches go from the sources to the user unchanged.
        names_files: whether `name_files` has something to do.
        times_ns: nanoseconds of each operator so far, in all threads together.
        num_replaced: samples that `on_error` of their sources has replaced, because operators failed.
        hooks: of a trace; none by default.
    """

    def __init__(
        self,
        graph: Graph,
        *,
        place: Callable[[Mapping[SourceNode, Sequence[str]]], Placement],
        buffers: BufferPool,
        num_threads: int,
        capacity: int,
        layouts: Mapping[SourceNode, Sequence[str]],
        copier: Copier | None = None,
        cpus: set[int] | None = None,
        origins: Mapping[SourceNode, Callable[..., str]] = MappingProxyType({}),
    ) -> None:
        self._graph = graph
        self._origins = tuple(origins.values())
        self._origins_of_outputs = [
            (i, functools.partial(origins[source], output=output))
            for i, (source, output) in enumerate(map(origin_of, graph.outputs))
            if source is not None and source in origins
        ]
        self._place = place
        self._seen: dict[SourceNode, tuple[str, ...]] = {}
        self._placement = placement = place(self._seen)
        self._source_keys = self._keys_of_sources()
        self._layouts = layouts
        self._copier = copier
        self._deliveries = [(key(node), graph.device_of(node), self._delivery(node)) for node in graph.outputs]
        self._copied = list(dict.fromkeys(output for output, device, _ in self._deliveries if device == "gpu"))
        arrays = [
            node
            for node in graph.outputs
            if not (isinstance(node.producer, SourceNode) and node.producer.external.is_object(node.output))
        ]
        self._on_cpu = {key(node) for node in arrays if graph.device_of(node) == "cpu"}
        self._for_operators = _wanted_by_operators(graph)
        self._previous = {output: PreviousSamples() for stage in placement.stages for output in stage.outputs}
        self._buffers = buffers
        self._num_threads = num_threads
        self._capacity = capacity
        self.threads = _make_threads(num_threads, cpus) if placement.stages else None
        operators = [stage.batch_operator for stage in placement.stages]
        self.in_order = any(isinstance(operator, OrderedOperator) and operator.in_order for operator in operators)
        self.is_trivial = self.threads is None and copier is None
        self.names_files = bool(self._origins_of_outputs)
        self.times_ns = self._no_times()
        self.num_replaced = 0
        self.hooks = GraphHooks()
        self._adding = threading.Lock()
        self._paces: defaultdict[tuple[Key, ...], Pace] = defaultdict(Pace)
        self._brevity = Brevity()

    def heed_layouts(self) -> None:
        """Place the operators again if a source has returned another layout than it declared."""
        pairs = ((node, tuple(layouts)) for node, layouts in self._layouts.items())
        seen = {node: layouts for node, layouts in pairs if layouts != node.external.layouts}
        if seen != self._seen:
            self._placement, self._seen = self._place(seen), seen
            self._source_keys = self._keys_of_sources()
            self.times_ns = self._no_times() | self.times_ns

    @property
    def is_short(self) -> bool:
        """Whether batches have lately taken so little time that the calling thread had better compute them, alone."""
        return self.threads is None or (self._brevity.is_short and not self.in_order)

    def settle(self) -> None:
        """Release batches whose copies to the GPU have ended."""
        if self._copier is not None:
            self._copier.settle()

    def free_unused(self, *, collect_garbage: bool) -> None:
        """Free unused buffers; with `collect_garbage`, run the collector first."""
        self._buffers.free_unused(collect_garbage=collect_garbage)

    def end_threads(self) -> None:
        """Cancel pending work, and wait for running work."""
        if self.threads is not None:
            self.threads.shutdown(cancel_futures=True)

    def close(self) -> None:
        """Wait for the copies."""
        if self._copier is not None:
            self._copier.close()

    def deliver(self, outputs: list[Sequence[Output]]) -> tuple[TensorList, ...]:
        """Return the batch of a graph that `is_trivial`."""
        return self._wrap(self._by_node(outputs), outputs)

    def name_files(self, batch: tuple[TensorList, ...], batch_id: BatchId) -> None:
        """Let the tensors of a batch know the files that readers have read them from."""
        for i, origin in self._origins_of_outputs:
            if not isinstance(batch[i], list):  # Python objects
                batch[i].set_origin(functools.partial(_origin_in_batch, origin, batch_id))

    def compute(self, outputs: list[Sequence[Output]], batch_id: BatchId) -> tuple[tuple[TensorList, ...], int]:
        """Run the operators over a batch and begin the copies of its outputs; in one of the threads, if there are any.

        Returns:
            The batch, and the duration of the operators in nanoseconds.

        Raises:
            BatchSizeError: the sources have returned different numbers of samples.
            ArgumentClashError: an operator would have to copy the arrays of a source from the GPU.
            OutOfMemoryError: memory for results is short.
            Exception: the exception of an operator.
        """
        data = self._by_node(outputs)
        if not self._placement.stages:
            return self._wrap(data, outputs), 0
        self._refuse_gpu_arrays(data)
        size = self._size(outputs)
        begin_ns = monotonic_ns()
        for stage in self._placement.stages:
            self._run(stage, data, size, batch_id)
        operators_ns = monotonic_ns() - begin_ns
        self._brevity.note(operators_ns)
        return self._wrap(data, outputs), operators_ns

    def _no_times(self) -> dict[str, int]:
        return {name: 0 for stage in self._placement.stages for name in stage.names}

    def _keys_of_sources(self) -> list[Key]:
        """Return the keys of all data in the batches of the sources, in order."""
        return [output for source in self._graph.sources for output in self._placement.outputs_of(source)]

    def _by_node(self, outputs: list[Sequence[Output]]) -> dict[Key, _Samples]:
        data: dict[Key, _Samples] = dict(zip(self._source_keys, itertools.chain.from_iterable(outputs), strict=True))
        if len(outputs) > 1 and len(set(sizes := [_length(batch[0]) for batch in outputs])) > 1:
            pairs = zip((source.external.name for source in self._graph.sources), sizes, strict=True)
            raise BatchSizeError("Batch size clash! " + ", ".join(f"{name} returned {size} samples" for name, size in pairs))
        for node in self._graph.constants:
            data[node, 0] = np.repeat(node.constant.array[np.newaxis], self._size(outputs), axis=0)
        return data

    def _refuse_gpu_arrays(self, data: Mapping[Key, _Samples]) -> None:
        if not self._for_operators:
            return
        from dali_like.device.device_array import lies_on_gpu  # most graphs are on the CPU

        for output, (operator, name) in self._for_operators.items():
            if lies_on_gpu(data[output]):
                raise ArgumentClashError(f"{operator} works on the CPU; {name} is on the GPU: pass its .cpu()")

    def _size(self, outputs: list[Sequence[Output]]) -> int:
        return _length(outputs[0][0]) if outputs else self._capacity

    def _run(self, stage: ThreadStage, data: dict[Key, _Samples], size: int, batch_id: BatchId) -> None:
        try:
            self._run_stage(stage, data, size, batch_id)
        except Exception as error:
            if stage.uncovered:
                add_note(error, _uncovered(stage))
            raise

    def _run_stage(self, stage: ThreadStage, data: dict[Key, _Samples], size: int, batch_id: BatchId) -> None:
        if not size:
            data |= {output: [] for output in stage.outputs}
            return
        inputs: list[Any] = [_on_host(data[given]) for given in stage.inputs]
        if hasattr(stage.batch_operator, "compute_on_gpu"):
            begin_ns = monotonic_ns()
            data[stage.outputs[0]] = self._run_on_gpu(stage, inputs[stage.program.steps[0].inputs[0]], batch_id)
            self._note_times(stage.names, [monotonic_ns() - begin_ns], begin_ns, batch_id)
            return
        views = stage.program.views
        memory = [BatchMemory(self._buffers, size, self._previous[output], views=views) for output in stage.outputs]
        errors: dict[int, Exception] = {}

        def fail(i: int, error: Exception) -> None:
            note_origins(error, self._origins, batch_id.info(i))
            if stage.behind is None:
                raise error
            errors[i] = error

        run_program(
            stage.program,
            inputs,
            size,
            batch_id,
            memory,
            for_each=functools.partial(self._for_each, pace=self._paces[stage.outputs]),
            fail=fail,
            note_times=lambda times_ns, begin_ns: self._note_times(stage.names, times_ns, begin_ns, batch_id),
        )
        if errors:
            self._replace_rows(stage, data, memory, size, batch_id, errors)
        for (producer, i), batch in zip(stage.outputs, memory, strict=True):
            assert isinstance(producer, OperatorNode)
            data[producer, i] = batch.finish(label_of(producer.operator))

    def _replace_rows(
        self,
        stage: ThreadStage,
        data: dict[Key, _Samples],
        memory: Sequence[BatchMemory],
        size: int,
        batch_id: BatchId,
        errors: Mapping[int, Exception],
    ) -> None:
        """Replace the failed rows of a stage behind a source."""
        from dali_like.graph.execution.failed_rows import FailedRows  # rarely needed

        def compute(row: int, values: Mapping[Key, Any], info: SampleInfo) -> None:
            results = stage.program.run(
                [values[given] for given in stage.inputs],
                info,
                lambda output, shape, dtype: memory[output].empty(row, shape, dtype),
            )
            for output, result in zip(memory, results, strict=True):
                if result is not None:
                    output.put(row, result)

        source = stage.behind
        assert source is not None
        rows = FailedRows(source, self._placement.fusions.get(source), self._capacity, data, errors, batch_id.info, compute)
        num_replaced = rows.replace(size)
        with self._adding:
            self.num_replaced += num_replaced

    def _run_on_gpu(self, stage: ThreadStage, samples: Any, batch_id: BatchId) -> DeviceSamples:
        operator: Any = stage.batch_operator
        assert self._copier is not None

        def work(count: int, function: Callable[[int], None]) -> None:
            def call(i: int) -> None:
                try:
                    function(i)
                except Exception as error:
                    add_note(error, f"raised by {operator.name} for {describe_info(batch_id.info(i))}")
                    raise

            self._for_each(count, call, pace=Pace())

        call = OperatorCall(batch_id.info(0), image_limit_bytes=stage.program.steps[0].image_limit_bytes)
        made: DeviceSamples = operator.compute_on_gpu(call, [*samples], self._copier, work)
        return made

    def _note_times(self, names: Sequence[str], times_ns: Sequence[int], begin_ns: int, batch_id: BatchId) -> None:
        """Add the times that this thread has spent on operators since `begin_ns`."""
        if self.hooks.times is not None:
            self.hooks.times(names, times_ns, begin_ns, batch_id)
        with self._adding:
            for name, ns in zip(names, times_ns, strict=True):
                self.times_ns[name] += ns

    def _for_each(
        self,
        count: int,
        function: Callable[[int], None],
        around: Callable[[Callable[[], None]], None] = call,
        *,
        pace: Pace,
    ) -> None:
        """Call `function` for each index, in this thread, and in all free threads if that is faster; see `for_each`."""
        assert self.threads is not None
        if self._num_threads == 1 or count == 1 or self.is_short:
            one_by_one(count, function, around)
            return
        shared, begin_ns = pace.shares(count), monotonic_ns()
        for_each(count, function, self.threads, self._num_threads - 1 if shared else 0, around)
        pace.note(count, monotonic_ns() - begin_ns, shared=shared)

    def _wrap(self, data: dict[Key, _Samples], outputs: list[Sequence[Output]]) -> tuple[TensorList, ...]:
        if self._copier is None:
            self._leave_slots(data, outputs)
            return tuple([deliver(data[output]) for output, _, deliver in self._deliveries])
        sent = dict(zip(self._copied, self._copier.send([data[output] for output in self._copied]), strict=True))
        self._leave_slots(data, outputs)
        return tuple(
            [
                deliver(sent[output] if device == "gpu" else _on_host(data[output]))
                for output, device, deliver in self._deliveries
            ]
        )

    def _leave_slots(self, data: dict[Key, _Samples], outputs: list[Sequence[Output]]) -> None:
        """Copy small outputs that lie in a slot with large ones. A program that keeps labels must not keep the images.

        Beside outputs on a GPU, copies are page-locked as the slot is.
        """
        first = 0
        for batch in outputs:
            if len(batch) > 1:
                # Other kinds have left the slot, or lie on the GPU.
                sizes = [output.nbytes if isinstance(output, (np.ndarray, SampleList)) else -1 for output in batch]
                if max(sizes) >= LEAST_BUFFER_BYTES:
                    for output, samples, nbytes in zip(self._source_keys[first:], batch, sizes):  # noqa: B905
                        if 0 <= nbytes < LEAST_BUFFER_BYTES and output in self._on_cpu:
                            data[output] = self._copy(samples)
            first += len(batch)

    def _copy(self, samples: Any) -> _Samples:
        if isinstance(samples, SampleList):
            nbytes = samples.nbytes
            return samples.copy(np.empty(nbytes, np.uint8) if self._copier is None else self._buffers.bytes(nbytes))
        if self._copier is None:
            copied: NDArray[Any] = samples.copy()
            return copied
        place = self._buffers.rows(SampleShape(samples.shape[1:], samples.dtype), len(samples))
        place[...] = samples
        return place

    def _delivery(self, node: DataNode) -> Callable[[_Samples], Any]:
        """Return the function that creates an output from its samples."""
        producer, output = node.producer, node.output
        kind: Any = TensorListCPU
        if self._graph.device_of(node) == "gpu":
            from dali_like.tensors.gpu_tensor_lists import TensorListGPU  # most graphs are on the CPU

            kind = TensorListGPU
        if isinstance(producer, SourceNode):
            if producer.external.is_object(output):
                return functools.partial(_load_objects, name=producer.external.name, output=output)
            if (layouts := self._layouts.get(producer)) is not None:
                return lambda samples: kind.of_arrays(samples, layouts[output])
        if isinstance(producer, OperatorNode):  # the layout may depend on the number of dimensions
            return lambda samples: kind.of_arrays(
                samples, choose_layout(self._placement.operators[producer].layouts[output], _ndim(samples))
            )
        return functools.partial(kind.of_arrays, layout=producer.layouts[output])


def _make_threads(num_threads: int, cpus: set[int] | None) -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor  # many graphs have no operators

    bind = None if cpus is None else functools.partial(os.sched_setaffinity, 0, cpus)
    return ThreadPoolExecutor(num_threads, "dali_like", bind)


def _origin_in_batch(origin: Callable[..., str], batch_id: BatchId, i: int) -> str:
    return origin(batch_id.info(i))


def _ndim(samples: _Samples) -> int:
    if samples.__class__ is SampleList:  # without making an array
        return samples.ndim
    if samples.__class__ is np.ndarray:
        return samples.ndim - 1 if len(samples) else 0
    return kind_of_samples(samples)[1] if _length(samples) else 0


def _length(samples: Any) -> int:
    is_plain = samples.__class__ is np.ndarray  # decided in a tenth of the time
    return len(samples) if is_plain or isinstance(samples, Sequence) else int(samples.shape[0])


def _on_host(samples: _Samples) -> Any:
    """Return samples in host memory, after copying them from the GPU if necessary."""
    if samples.__class__ is np.ndarray or samples.__class__ is SampleList:
        return samples
    from dali_like.device.device_array import DeviceArray, arrays_to_host

    if isinstance(samples, DeviceArray):
        return samples.to_host()
    if isinstance(samples, list) and samples and isinstance(samples[0], DeviceArray):
        return arrays_to_host(samples)
    return samples


def _wanted_by_operators(graph: Graph) -> dict[Key, tuple[str, str]]:
    """Return the data of sources that may be on the GPU, and that operators take from there.

    Returns:
        For each, the names of the operator and of the data.
    """
    return {
        key(data): (node.operator.name, data.name)
        for node in graph.operators
        for data in node.needs
        if data.device == "gpu" and isinstance(data.producer, SourceNode) and data.producer.external.may_be_on_gpu
    }


def _load_objects(samples: Any, name: str, output: int) -> list[Any]:
    with interruptible():  # unpickling may call the user's code
        return load_objects(samples, name, output)


def _uncovered(stage: ThreadStage) -> str:
    """Return why an error of a stage is raised although sources have an `on_error`."""
    names = ", ".join(dict.fromkeys(stage.names))
    if hasattr(stage.batch_operator, "compute_on_gpu"):
        reason = f"{names} computes on the GPU"
    elif stage.batch_operator is not None:
        reason = f"{names} computes whole batches"
    else:
        reason = f"{names} depends on several sources or on whole batches"
    return (
        f"on_error of {', '.join(stage.uncovered)} does not cover this error: {reason}, and it covers operators on single "
        "samples of one source on the CPU. Check the samples in the source, or return them from one source with num_outputs="
    )
