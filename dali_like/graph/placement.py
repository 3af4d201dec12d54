"""Where the operators of a graph run: in the workers, right behind a source, or in threads of the main process.

Operators may run behind a source if they need nothing but what it makes, constants, and random numbers, if they work sample
by sample, and if the source is a function of the sample's index that workers call (an iterable, or a source of batches, is
not). Then the worker has the sample in its cache, its result goes straight into the batch, and the main process does
nothing. Whether they do depends on where there are more hands: see `workers_are_enough`. The results are the same either
way, since operators are functions of their samples, and random numbers depend on the sample's index alone. (So operators
with random numbers are left to threads where samples are repeated to fill a batch: workers would repeat their results.)

All else runs in threads, in stages: as many operators as possible for one sample, before the next sample; and between such
programs the operators that need a whole batch.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from dali_like.engine.memory.limits import LEAST_IMAGE_LIMIT_BYTES, available_bytes
from dali_like.engine.memory.protocol import UNKNOWN
from dali_like.engine.memory.slot_layout import OutputSchema
from dali_like.engine.worker.source import LastBatch, Source, as_array, check_array, split_outputs
from dali_like.graph.nodes import ConstantNode, DataNode, Graph, OperatorNode, Producer, SourceNode, adapted_operators
from dali_like.graph.operator_interface import Operator
from dali_like.graph.operator_random import RandomKey, key_of, key_of_seed
from dali_like.graph.pipeline_arguments import Arguments
from dali_like.graph.program import Facts, Key, Program, ProgramStep, key, make_program, make_step
from dali_like.sources.external_source import ExternalSource
from dali_like.types import SampleInfo, current_call


class ProgramStage(NamedTuple):
    """A program that threads run sample by sample, what it is given and what it makes."""

    inputs: tuple[Key, ...]
    program: Program
    outputs: tuple[Key, ...]


class BatchStage(NamedTuple):
    """An operator that needs a whole batch."""

    inputs: tuple[Key, ...]
    step: ProgramStep
    outputs: tuple[Key, ...]


Stage: TypeAlias = ProgramStage | BatchStage


class Fusion(NamedTuple):
    """The operators that run behind a source.

    Attributes:
        operators: those.
        program: what they do; it is given the outputs of the source.
        outputs: what comes back from the workers.
    """

    operators: tuple[OperatorNode, ...]
    program: Program
    outputs: tuple[Key, ...]


class Placement(NamedTuple):
    """Where the operators of a graph run.

    Attributes:
        fusions: for some of the sources, what runs behind them.
        stages: what runs in threads.
        operators: of the nodes.
    """

    fusions: Mapping[SourceNode, Fusion]
    stages: tuple[Stage, ...]
    operators: Mapping[OperatorNode, Operator]

    def outputs_of(self, source: SourceNode) -> Sequence[Key]:
        """What the batches of a source consist of."""
        fusion = self.fusions.get(source)
        return _source_outputs(source) if fusion is None else fusion.outputs


def place(
    graph: Graph, arguments: Arguments, entropy: int, seen: Mapping[SourceNode, Sequence[str]] = MappingProxyType({})
) -> Placement:
    """Decide where the operators of a graph run.

    Args:
        entropy: the seed of the pipeline.
        seen: the layouts of the data of sources, where they are not those that were declared.

    Raises:
        ArgumentError: an operator does not work on data of the layout that it would get.
    """
    limit_bytes = _image_limit_bytes(arguments) if graph.operators else 0
    facts = Facts(adapted_operators(graph, seen), seen, _random_keys(graph.operators, entropy), limit_bytes)
    fusions: dict[SourceNode, Fusion] = {}
    if graph.operators and workers_are_enough(arguments):
        homes = _homes(graph.operators)
        for source in graph.sources:
            nodes = [node for node in graph.operators if homes[node] == {source} and not _is_noisy_fill(source, node)]
            if nodes and _may_be_fused(source.external):
                fusions[source] = _fuse(graph, source, nodes, facts)
    return Placement(fusions, tuple(_stages(graph, fusions, facts)), facts.operators)


def fused_operators(placement: Placement) -> set[OperatorNode]:
    """The operators that run in the workers."""
    return {node for fusion in placement.fusions.values() for node in fusion.operators}


def workers_are_enough(arguments: Arguments) -> bool:
    """Whether operators run in the workers, if they can: where there are as many of them as threads for operators.

    Without a word about threads: where there are two or more, or only one core. A pickler of the user's is for callbacks,
    and is given nothing else.
    """
    workers, threads = arguments.num_workers, arguments.num_threads
    if arguments.py_callback_pickler is not None:
        return False
    if threads is None:
        return workers >= min(2, len(os.sched_getaffinity(0)))
    return workers >= threads


def _image_limit_bytes(arguments: Arguments) -> int:
    """What an image may take that is decoded: if each worker and thread is on one, they take as much as batches may."""
    threads = arguments.num_threads or len(os.sched_getaffinity(0))
    all_bytes = arguments.max_held_bytes or available_bytes() // 2
    return max(LEAST_IMAGE_LIMIT_BYTES, all_bytes // (arguments.num_workers + threads))


def _may_be_fused(external: ExternalSource) -> bool:
    kind, given = external.kind, external.options
    return (
        kind is not None
        and external.parallel
        and not (external.batch or external.sharded or kind.in_order or kind.is_async or kind.persists)
        and given["on_error"] == "raise"  # else it would also say what becomes of what operators raise
    )


def _is_noisy_fill(source: SourceNode, node: OperatorNode) -> bool:
    """Whether samples that are repeated to fill a batch have other random numbers here than those that they repeat."""
    noisy = (each.operator.seed is not None for each in (node, *_with_what_they_need(node.needs)))
    return source.external.last_batch is LastBatch.FILL and any(noisy)


def _homes(operators: Sequence[OperatorNode]) -> dict[OperatorNode, set[SourceNode | None]]:
    """For each operator, the sources whose data it needs, directly or not; None for a whole batch."""
    homes: dict[OperatorNode, set[SourceNode | None]] = {}
    for node in operators:
        home: set[SourceNode | None] = set() if node.operator.per_sample else {None}
        for data in node.needs:
            if isinstance(data.producer, SourceNode):
                home.add(data.producer)
            elif isinstance(data.producer, OperatorNode):
                home |= homes[data.producer]
        homes[node] = home
    return homes


def _fuse(graph: Graph, source: SourceNode, nodes: Sequence[OperatorNode], facts: Facts) -> Fusion:
    needs = [data for node in nodes for data in node.needs]
    inside = sorted({*nodes, *_with_what_they_need(needs)}, key=lambda node: node.number)
    made = {*_source_outputs(source), *(output for node in inside for output in _outputs(node))}
    outside = [data for node in graph.operators if node not in inside for data in node.needs]
    wanted = dict.fromkeys(map(key, (*graph.outputs, *graph.sinks, *outside)))
    outputs = [data for data in wanted if data in made]
    return Fusion(tuple(inside), make_program(_source_outputs(source), inside, outputs, facts), tuple(outputs))


def _with_what_they_need(data: Iterable[DataNode], there: Container[Key] = ()) -> list[OperatorNode]:
    """The operators that make some data, and what they need for that and is not there."""
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


def _stages(graph: Graph, fusions: Mapping[SourceNode, Fusion], facts: Facts) -> Iterable[Stage]:
    there: set[Key] = {output for fusion in fusions.values() for output in fusion.outputs}
    wanted = set(map(key, (*graph.outputs, *graph.sinks)))
    missing = [node for node in (*graph.outputs, *graph.sinks) if key(node) not in there]
    pending = sorted(_with_what_they_need(missing, there), key=lambda node: node.number)
    while pending:
        behind = _behind_batches(pending)
        now = [node for node in pending if node not in behind]
        pending = [node for node in pending if node in behind]
        if now:
            yield _program_stage(now, pending, wanted, facts)
        if pending:  # the first needs nothing of the others
            yield _batch_stage(pending.pop(0), facts)


def _source_outputs(source: SourceNode) -> list[Key]:
    return [(source, i) for i in range(len(source.layouts))]


def _outputs(node: OperatorNode) -> list[Key]:
    return [(node, i) for i in range(len(node.layouts))]


def _behind_batches(nodes: Sequence[OperatorNode]) -> set[OperatorNode]:
    """Of some operators, those that need a batch, or what such an operator makes."""
    behind: set[Producer] = set()
    for node in nodes:
        if not node.operator.per_sample or any(data.producer in behind for data in node.needs):
            behind.add(node)
    return {node for node in nodes if node in behind}


def _program_stage(
    nodes: Sequence[OperatorNode],
    later: Sequence[OperatorNode],
    wanted: set[Key],
    facts: Facts,
) -> ProgramStage:
    made = dict.fromkeys(output for node in nodes for output in _outputs(node))
    given = dict.fromkeys(
        key(data)
        for node in nodes
        for data in node.needs
        if key(data) not in made and not isinstance(data.producer, ConstantNode)
    )
    needed = wanted | {key(data) for node in later for data in node.needs}
    outputs = [data for data in made if data in needed]
    return ProgramStage(tuple(given), make_program([*given], nodes, outputs, facts), tuple(outputs))


def _batch_stage(node: OperatorNode, facts: Facts) -> BatchStage:
    inputs = tuple(dict.fromkeys(map(key, node.needs)))
    registers = {data: i for i, data in enumerate(inputs)}
    outputs = tuple(_outputs(node))
    registers |= {output: len(inputs) + i for i, output in enumerate(outputs)}
    return BatchStage(inputs, make_step(node, registers, (), facts), outputs)


def _random_keys(operators: Iterable[OperatorNode], entropy: int) -> dict[OperatorNode, RandomKey]:
    """Of the operators that have random numbers: what these depend on, besides the sample."""
    random = [node for node in operators if node.operator.seed is not None]
    numbers = {number: i for i, number in enumerate(sorted({node.number for node in random}))}
    keys = {}
    for node in random:
        seed = node.operator.seed
        assert seed is not None
        keys[node] = key_of_seed(seed) if seed >= 0 else key_of(entropy, numbers[node.number])
    return keys


# In the workers


class _Behind:
    """A callback with operators behind it."""

    def __init__(self, source: Source, declared: Sequence[OutputSchema], program: Program) -> None:
        self._source = source
        self._declared = declared
        self._program = program

    def __call__(self, info: SampleInfo) -> tuple[Any, ...]:
        call = current_call.get()
        # The memory is for what the operators make of the sample, and not for the sample.
        current_call.set(call._replace(empty=None))
        callback = self._source.callback
        try:
            sample = callback(info) if call.timed is None else call.timed(callback)(info)
        finally:
            current_call.set(call)
        source = self._source
        samples = [self._checked(i, value) for i, value in enumerate(split_outputs(sample, source))]
        empty = call.empty
        place = None if empty is None else lambda export, shape, dtype: empty(info, export, shape, dtype)
        return self._program.run(samples, info, place)

    def _checked(self, output: int, value: Any) -> Any:
        source, declared = self._source, self._declared[output]
        if source.is_object(output):
            return value
        array = as_array(value, source, output)
        check_array(array.dtype, array.ndim, declared.dtype, declared.ndim, source, output)
        return array


def source_with_operators(source: Source, node: SourceNode, fusion: Fusion) -> tuple[Source, tuple[OutputSchema, ...]]:
    """A source whose samples are what the operators behind it make; and what is known of its outputs."""
    declared = node.external.declared
    bare = source._replace(on_error="raise", worker_setup=None, worker_teardown=None)
    outputs = [declared[i] if producer is node else OutputSchema(UNKNOWN, UNKNOWN) for producer, i in fusion.outputs]
    objects = tuple(producer is node and source.is_object(i) for producer, i in fusion.outputs)
    fused = source._replace(
        callback=_Behind(bare, declared, fusion.program),
        num_outputs=len(outputs),
        objects=objects if any(objects) else (),
    )
    return fused, tuple(outputs)
