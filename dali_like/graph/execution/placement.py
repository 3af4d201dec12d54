"""Decide where the operators of a graph run: in the workers, right behind a source, or in threads of the main process.

An operator may run behind a source under three conditions. It needs only that source's data, constants and random
numbers. It works sample by sample. The source is a function of the sample's index that workers call; iterables and
sources of batches are not. The worker then has the sample in its cache, writes the result straight into the batch, and
the main process does nothing.

Operators that may run in the workers do so where there are enough workers: see `workers_are_enough`. Results are the
same either way, because operators are functions of their samples, and random numbers depend only on the sample's index.
The `on_error` of a source applies to these operators in both places: in workers because they are part of the callback, and
in threads because they have a program stage of their own.
There is one exception: if samples are repeated to fill a batch, workers would repeat the random results, too. Random
operators then stay in threads.

Where the program wants a result ("cpu" or "gpu") is another question. Operators that have no implementation for a GPU run
in workers or threads in any case, and only the outputs of the pipeline are copied to the GPU. A decoder that has one (see
`GpuOperator`) runs on the CPU, too, if operators need its images there, or if the GPU cannot decode.

All other operators run in threads, in stages. The program of a stage has as many operators as possible, or one that needs a
whole batch.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from dali_like.engine.memory.limits import LEAST_IMAGE_LIMIT_BYTES, allowed_cpus, available_bytes
from dali_like.engine.memory.protocol import UNKNOWN
from dali_like.engine.memory.ring import SampleList
from dali_like.engine.memory.slot_layout import OutputSchema
from dali_like.engine.worker.source import LastBatch, Source, as_array, check_array, split_outputs
from dali_like.errors import DefinitionError
from dali_like.graph.execution.batch_runs import BatchId, Results, run_together, works_together
from dali_like.graph.execution.cache_operator import bind_caches, check_positions
from dali_like.graph.execution.opened_files import files_read_by
from dali_like.graph.execution.pipeline_arguments import Arguments
from dali_like.graph.execution.program import (
    NOT_RECALLED,
    Empty,
    Key,
    Program,
    ProgramContext,
    Recalled,
    key,
    make_program,
    memories_of,
    note_files,
    note_origins,
)
from dali_like.graph.language.nodes import (
    ConstantNode,
    DataNode,
    Graph,
    OperatorNode,
    Producer,
    SourceNode,
    adapted_operators,
    producer_names,
)
from dali_like.graph.language.operator_interface import Array, Operator
from dali_like.graph.language.operator_random import RandomKey, key_of, key_of_seed
from dali_like.sources.external_source import ExternalSource
from dali_like.types import CallContext, SampleInfo, current_call


class ThreadStage(NamedTuple):
    """A program that runs over a batch in threads, with its inputs and outputs.

    Attributes:
        behind: the source whose `on_error` replaces samples for which the program fails. Its inputs are from this source
            only. None: errors are raised.
        uncovered: names of sources whose `on_error` does not cover the program, although it depends on them.
    """

    inputs: tuple[Key, ...]
    program: Program
    outputs: tuple[Key, ...]
    behind: SourceNode | None = None
    uncovered: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the operators."""
        return self.program.names

    @property
    def batch_operator(self) -> Operator | None:
        """The operator on batches; None for operators on samples."""
        return None if self.program.per_sample else self.program.steps[0].operator


class Fusion(NamedTuple):
    """The operators that run behind a source.

    Attributes:
        operators: the operators.
        program: computes them; its inputs are the outputs of the source.
        outputs: the data that the workers return.
    """

    operators: tuple[OperatorNode, ...]
    program: Program
    outputs: tuple[Key, ...]


class Placement(NamedTuple):
    """Where the operators of a graph run.

    Attributes:
        fusions: the operators behind each source that has any.
        stages: the stages that run in threads.
        operators: the operators of the nodes.
    """

    fusions: Mapping[SourceNode, Fusion]
    stages: tuple[ThreadStage, ...]
    operators: Mapping[OperatorNode, Operator]

    @property
    def places(self) -> dict[OperatorNode, str]:
        """Where each operator runs: in the "workers", in "threads", or on the "gpu"."""
        fused = {node for fusion in self.fusions.values() for node in fusion.operators}
        return {
            node: "workers" if node in fused else "gpu" if _is_on_gpu(operator) else "threads"
            for node, operator in self.operators.items()
        }

    def outputs_of(self, source: SourceNode) -> Sequence[Key]:
        """Return the keys of the data in a source's batches."""
        fusion = self.fusions.get(source)
        return _source_outputs(source) if fusion is None else fusion.outputs


def place(
    graph: Graph, arguments: Arguments, entropy: int, seen: Mapping[SourceNode, Sequence[str]] = MappingProxyType({})
) -> Placement:
    """Decide where the operators of a graph run.

    Args:
        graph: the graph.
        arguments: of the pipeline.
        entropy: the seed of the pipeline.
        seen: observed layouts of sources where they differ from the declared ones.

    Raises:
        ArgumentError: an operator does not support the layout of its input.
    """
    limit_bytes = image_limit_bytes(arguments) if graph.operators else 0
    operators = _implementations(graph, adapted_operators(graph, seen))
    operators = bind_caches(graph, operators, arguments.batch_size or 0, entropy)
    context = ProgramContext(operators, seen, _random_keys(graph.operators, entropy), limit_bytes, producer_names(graph))
    fusions: dict[SourceNode, Fusion] = {}
    if graph.operators and workers_are_enough(arguments):
        needed = _sources_needed(operators)
        for source in graph.sources:
            own = [node for node in graph.operators if needed[node] == {source} and not _draws_apart(graph, source, node)]
            if _may_be_fused(source.external) and (nodes := _without_partial_results(graph, own)):
                fusions[source] = _fuse(graph, source, nodes, context)
    inside = {node for fusion in fusions.values() for node in fusion.operators}
    check_positions(graph, [node for node in graph.operators if node not in inside])
    return Placement(fusions, tuple(_stages(graph, fusions, context)), context.operators)


def _is_on_gpu(operator: Operator) -> bool:
    return hasattr(operator, "compute_on_gpu")


def _implementations(graph: Graph, operators: Mapping[OperatorNode, Operator]) -> Mapping[OperatorNode, Operator]:
    """Return the operators with their implementation for the CPU or the GPU."""
    if not any(map(_is_on_gpu, operators.values())):
        return operators
    from dali_like.device.opening import can_decode_images  # lazy: most graphs are on the CPU

    # Programs ask for the data of a GPU by `.cpu()` if they want them copied back.
    needed = {data.producer for node in graph.operators for data in node.needs if data.device == "gpu"}
    stays = not graph.cpu_only and can_decode_images()
    chosen = dict(operators)
    for node, operator in operators.items():
        on_cpu: Operator | None = getattr(operator, "on_cpu", None)
        if on_cpu is not None and (node in needed or node.scope or not stays):
            chosen[node] = on_cpu
    return chosen


def workers_are_enough(arguments: Arguments) -> bool:
    """Whether operators that may run in the workers do: if there are at least as many workers as operator threads.

    Without `num_threads`, two workers suffice, or one on a single core. A user's pickler is for callbacks only, so with
    one, no operators are sent to workers.
    """
    workers, threads = arguments.num_workers, arguments.num_threads
    if arguments.py_callback_pickler is not None:
        return False
    if threads is None:
        return workers >= min(2, allowed_cpus())
    return workers >= threads


def image_limit_bytes(arguments: Arguments) -> int:
    """Return the largest decoded image: if every worker and thread decodes one, they take as much memory as batches may."""
    threads = arguments.num_threads or allowed_cpus()
    all_bytes = arguments.max_held_bytes or available_bytes() // 2
    return max(LEAST_IMAGE_LIMIT_BYTES, all_bytes // (arguments.num_workers + threads))


def _may_be_fused(external: ExternalSource) -> bool:
    return (
        external.parallel
        and not (external.batch or external.sharded or external.in_order)
        and (external.reader is not None or not (external.is_async or external.persists))
    )


def _draws_apart(graph: Graph, source: SourceNode, node: OperatorNode) -> bool:
    """Whether workers would draw other random numbers than threads.

    Workers would repeat those of the samples that fill up a batch. A reader counts its own batches, and not those of an
    epoch that another source ends.
    """
    external = source.external
    if external.reader is not None:
        differs = any(other.external.reader is None for other in graph.sources)
    else:
        differs = external.last_batch is LastBatch.FILL
    return differs and any(each.operator.seed is not None for each in (node, *_with_dependencies(node.needs)))


def _sources_needed(operators: Mapping[OperatorNode, Operator]) -> dict[OperatorNode, set[SourceNode | None]]:
    """Return for each operator the sources that it depends on, directly or not; None among them stands for a whole batch."""
    needed: dict[OperatorNode, set[SourceNode | None]] = {}
    for node, operator in operators.items():
        sources: set[SourceNode | None] = set() if operator.per_sample else {None}
        for data in node.needs:
            if isinstance(data.producer, SourceNode):
                sources.add(data.producer)
            elif isinstance(data.producer, OperatorNode):
                sources |= needed[data.producer]
        needed[node] = sources
    return needed


def _fuse(graph: Graph, source: SourceNode, nodes: Sequence[OperatorNode], context: ProgramContext) -> Fusion:
    inside = _with_inputs(nodes)
    made = {*_source_outputs(source), *(output for node in inside for output in _outputs(node))}
    outputs = [data for data in _wanted_outside(graph, inside) if data in made]
    return Fusion(tuple(inside), make_program(_source_outputs(source), inside, outputs, context), tuple(outputs))


def _with_inputs(nodes: Sequence[OperatorNode]) -> list[OperatorNode]:
    """Return operators and the operators they depend on, in an order of execution."""
    needs = [data for node in nodes for data in node.needs]
    return sorted({*nodes, *_with_dependencies(needs)}, key=lambda node: node.number)


def _wanted_outside(graph: Graph, inside: Sequence[OperatorNode]) -> Iterable[Key]:
    outside = [data for node in graph.operators if node not in inside for data in node.needs]
    return dict.fromkeys(map(key, (*graph.outputs, *graph.sinks, *outside)))


def _without_partial_results(graph: Graph, nodes: Sequence[OperatorNode]) -> Sequence[OperatorNode]:
    """Leave out operators, so that no result of a branch is returned by workers: batches have a result for each sample."""
    if not any(node.scope for node in graph.operators):
        return nodes
    inside = _with_inputs(nodes)
    while partial := {producer for producer, _ in _wanted_outside(graph, inside) if producer in inside and producer.scope}:
        nodes = [node for node in nodes if not partial & {node, *_with_dependencies(node.needs)}]
        inside = _with_inputs(nodes)
    return nodes


def _with_dependencies(data: Iterable[DataNode], there: Container[Key] = ()) -> list[OperatorNode]:
    """Return the operators that produce some data, and their dependencies, except for data already there."""
    found: dict[OperatorNode, None] = {}

    def visit(data: DataNode) -> None:
        node = data.producer
        if isinstance(node, OperatorNode) and node not in found and key(data) not in there:
            for need in node.needs:
                visit(need)
            found[node] = None

    for node in data:
        visit(node)
    return list(found)


def _stages(graph: Graph, fusions: Mapping[SourceNode, Fusion], context: ProgramContext) -> Iterable[ThreadStage]:
    there: set[Key] = {output for fusion in fusions.values() for output in fusion.outputs}
    wanted = set(map(key, (*graph.outputs, *graph.sinks)))
    missing = [node for node in (*graph.outputs, *graph.sinks) if key(node) not in there]
    pending = sorted(_with_dependencies(missing, there), key=lambda node: node.number)
    needed = _sources_needed(context.operators)
    while pending:
        later: set[Producer] = set()  # operators that need a whole batch, or depend on one that does
        for node in pending:  # in an order of execution
            if not context.operators[node].per_sample or any(data.producer in later for data in node.needs):
                later.add(node)
        now = [node for node in pending if node not in later]
        pending = [node for node in pending if node in later]
        for behind, group in _by_policy(now, needed):
            rest = [node for node in now if node not in group]
            now = rest
            uncovered = _with_policy(group, needed) if behind is None else ()
            yield _stage(group, [*rest, *pending], wanted, context, behind, uncovered)
        if pending:  # the first does not depend on the others
            group = [pending.pop(0)]
            yield _stage(group, pending, wanted, context, None, _with_policy(group, needed))


def _with_policy(nodes: Sequence[OperatorNode], needed: Mapping[OperatorNode, set[SourceNode | None]]) -> tuple[str, ...]:
    """Return the names of the sources of some operators that have an `on_error`."""
    sources = {source for node in nodes for source in needed[node]}
    return tuple(
        sorted(source.external.name for source in sources if source and source.external.options["on_error"] != "raise")
    )


def _by_policy(
    nodes: Sequence[OperatorNode], needed: Mapping[OperatorNode, set[SourceNode | None]]
) -> list[tuple[SourceNode | None, list[OperatorNode]]]:
    """Divide operators that run sample by sample: those behind each source with an `on_error`, and the others, which may
    depend on them.
    """
    groups: dict[SourceNode | None, list[OperatorNode]] = {}
    for node in nodes:
        only, *others = needed[node] or {None}
        raises = others or only is None or only.external.options["on_error"] == "raise"
        groups.setdefault(None if raises else only, []).append(node)
    return sorted(groups.items(), key=lambda group: group[0] is None)


def _source_outputs(source: SourceNode) -> list[Key]:
    return [(source, i) for i in range(len(source.layouts))]


def _outputs(node: OperatorNode) -> list[Key]:
    return [(node, i) for i in range(len(node.layouts))]


def _stage(
    nodes: Sequence[OperatorNode],
    later: Sequence[OperatorNode],
    wanted: set[Key],
    context: ProgramContext,
    behind: SourceNode | None = None,
    uncovered: tuple[str, ...] = (),
) -> ThreadStage:
    made = dict.fromkeys(output for node in nodes for output in _outputs(node))
    given = dict.fromkeys(
        key(data)
        for node in nodes
        for data in node.needs
        if key(data) not in made and not isinstance(data.producer, ConstantNode)
    )
    needed = wanted | {key(data) for node in later for data in node.needs}
    outputs = [data for data in made if data in needed]
    return ThreadStage(tuple(given), make_program([*given], nodes, outputs, context), tuple(outputs), behind, uncovered)


def sample_program(graph: Graph, entropy: int) -> tuple[Program, tuple[str, ...]]:
    """Return the program that computes all outputs of one sample, and the names of its inputs, in order.

    Args:
        graph: its sources are inputs without data of their own.
        entropy: the seed of random operators.

    Raises:
        DefinitionError: the graph has a source, or an operator on batches.
    """
    operators = _implementations(graph, adapted_operators(graph, {}))
    for operator in operators.values():
        if not operator.per_sample:
            raise DefinitionError(f"{operator.name} works on batches, and a proxy on samples: leave it out")
    for source in graph.sources:
        if not source.external.is_fed:
            raise DefinitionError(f"{source.external.name} has a source: give it a name only, as an input of the proxy")
    random_keys = _random_keys(graph.operators, entropy)
    context = ProgramContext(operators, {}, random_keys, LEAST_IMAGE_LIMIT_BYTES, producer_names(graph))
    inputs = [(source, 0) for source in graph.sources]
    program = make_program(inputs, graph.operators, [key(output) for output in graph.outputs], context)
    return program, tuple([str(source.external.options["name"]) for source in graph.sources])


def _random_keys(operators: Iterable[OperatorNode], entropy: int) -> dict[OperatorNode, RandomKey]:
    """Return the keys of the operators with random numbers."""
    random = [node for node in operators if node.operator.seed is not None]
    numbers = {number: i for i, number in enumerate(sorted({node.number for node in random}))}
    keys = {}
    for node in random:
        seed = node.operator.seed
        assert seed is not None
        keys[node] = key_of_seed(seed) if seed >= 0 else key_of(entropy, numbers[node.number])
    return keys


class _FusedCallback:
    """A source's callback followed by operators; workers call it."""

    def __init__(self, source: Source, declared: Sequence[OutputSchema], program: Program) -> None:
        self.source = source
        self._declared = declared
        self._program = program

    def __call__(self, info: SampleInfo) -> tuple[Any, ...]:
        call = current_call.get()
        recalled = self._program.recall(info) if self._program.caches else NOT_RECALLED
        if recalled.is_complete:
            return self._run([None] * len(self._declared), call, info, recalled)
        # The memory in the batch is for the results of the operators, not for the sample itself.
        current_call.set(call._replace(empty=None))
        callback = self.source.callback
        try:
            sample = callback(info) if call.watch is None else call.watch.timed_within(callback)(info)
        finally:
            current_call.set(call)
        return self.compute(split_outputs(sample, self.source), call, info, recalled)

    def compute(
        self, outputs: Sequence[Any], call: CallContext, info: SampleInfo, recalled: Recalled = NOT_RECALLED
    ) -> tuple[Any, ...]:
        """Return the results for the outputs of the source for one sample."""
        samples = [self._checked(i, value) for i, value in enumerate(outputs)]
        return self._run(samples, call, info, recalled)

    def compute_stack(
        self, stacks: Sequence[Array], call: CallContext, info: SampleInfo, *, count: int, stride: int, empty: Empty
    ) -> tuple[Array, ...]:
        """Return the results for several samples; see `dali_like.engine.worker.staging.StackOperators`."""
        times_ns = None if call.watch is None else call.watch.operator_times(len(self._program.steps))
        return self._program.run_stack(stacks, info, count=count, stride=stride, empty=empty, times_ns=times_ns)

    @property
    def works_together(self) -> bool:
        return works_together(self._program)

    def compute_together(
        self, inputs: Sequence[SampleList], call: CallContext, info: SampleInfo, *, stride: int, results: Sequence[Results]
    ) -> bool:
        """Compute the results for samples of any shapes; see `dali_like.engine.worker.staging.StackOperators`."""
        for output, samples in enumerate(inputs):
            self._checked(output, samples[0])  # the others are alike
        times_ns = None if call.watch is None else call.watch.operator_times(len(self._program.steps))
        batch_id = BatchId(info.epoch_idx, info.iteration, info.idx_in_epoch, stride, info.idx_in_batch)
        return run_together(self._program, inputs, len(inputs[0]), batch_id, results, times_ns)

    def follow(self, sample: Any, info: SampleInfo) -> tuple[Any, ...]:
        """Return the results for a sample that replaces one of the source."""
        return self.compute(split_outputs(sample, self.source), current_call.get(), info)

    def _run(self, samples: Sequence[Any], call: CallContext, info: SampleInfo, recalled: Recalled) -> tuple[Any, ...]:
        empty = call.empty
        place = None if empty is None else lambda export, shape, dtype: empty(info, export, shape, dtype)
        times_ns = None if call.watch is None else call.watch.operator_times(len(self._program.steps))
        try:
            return self._program.run(samples, info, place, recalled.results, times_ns)
        except Exception as error:
            callback = self.source.callback
            if (origin := getattr(callback, "origin", None)) is not None:
                note_origins(error, [origin], info)
            elif self.source.concurrency is None:
                note_files(error, files_read_by(callback, info))
            raise

    def _checked(self, output: int, value: Any) -> Any:
        source, declared = self.source, self._declared[output]
        if source.is_object(output):
            return value
        array = as_array(value, source, output)
        check_array(array.dtype, array.ndim, declared.dtype, declared.ndim, source, output)
        return array


class _AsyncFusedCallback(_FusedCallback):
    """A coroutine function as callback, followed by operators, which other samples have to wait for."""

    async def __call__(self, info: SampleInfo) -> tuple[Any, ...]:  # type: ignore[override]
        call = current_call.get()
        recalled = self._program.recall(info) if self._program.caches else NOT_RECALLED
        if recalled.is_complete:
            return self._run([None] * len(self._declared), call, info, recalled)
        current_call.set(call._replace(empty=None))
        try:
            sample = await self.source.callback(info)
        finally:
            current_call.set(call)
        return self.compute(split_outputs(sample, self.source), call, info, recalled)


class _FusedOnError:
    """A source's `on_error`, followed by the operators behind the source."""

    def __init__(self, on_error: Callable[[SampleInfo, Exception], Any], operators: _FusedCallback) -> None:
        self._on_error = on_error
        self._operators = operators

    def __call__(self, info: SampleInfo, error: Exception) -> Any:
        sample = self._on_error(info, error)
        return self._operate_later(sample, info) if inspect.isawaitable(sample) else self._operators.follow(sample, info)

    async def _operate_later(self, sample: Any, info: SampleInfo) -> tuple[Any, ...]:
        return self._operators.follow(await sample, info)


def source_with_operators(source: Source, node: SourceNode, fusion: Fusion) -> tuple[Source, tuple[OutputSchema, ...]]:
    """Return a source whose samples are the results of the operators behind it, and the schema of its outputs."""
    declared = node.external.declared
    bare = source._replace(on_error="raise", worker_setup=None, worker_teardown=None)
    outputs = [declared[i] if producer is node else OutputSchema(UNKNOWN, UNKNOWN) for producer, i in fusion.outputs]
    objects = tuple(producer is node and source.is_object(i) for producer, i in fusion.outputs)
    kind = _FusedCallback if source.concurrency is None or source.reads_in_threads else _AsyncFusedCallback
    on_error = source.on_error
    if callable(on_error):
        on_error = _FusedOnError(
            on_error, _FusedCallback(bare._replace(name=f"on_error of {source.name}"), declared, fusion.program)
        )
    fused = source._replace(
        on_error=on_error,
        callback=kind(bare, declared, fusion.program),
        num_outputs=len(outputs),
        objects=objects if any(objects) else (),
        layouts=tuple(source.layouts[i] if producer is node else "" for producer, i in fusion.outputs),
        declared=tuple(outputs),
        operators=fusion.program.names,
        stacks=fusion.program.stacks and source.concurrency is None and not any(source.objects),
        caches=(*source.caches, *memories_of(fusion.program)),
    )
    return fused, tuple(outputs)
