"""The operator behind ``fn.cache``: stores results of other operators, and returns them without computing them again.

A sample has the same key in each epoch: for readers the number of the sample in the dataset, otherwise its position. So
everything before a cache must be a function of the sample alone. `cached` checks that when the pipeline is defined, and
`bind_caches` makes the caches when it is built, when the number of samples is known.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dali_like.errors import ArgumentError
from dali_like.graph.language.nodes import (
    ConstantNode,
    DataNode,
    Graph,
    OperatorNode,
    Producer,
    SourceNode,
    device_of_result,
)
from dali_like.graph.language.operator_interface import Operator, OperatorCall
from dali_like.sources.caching.cache_options import MISSING, CacheOptions, DeferredCache, is_of_user
from dali_like.sources.caching.cached_callback import KeyOf
from dali_like.types import SampleInfo

if TYPE_CHECKING:
    from dali_like.sources.caching.element_cache import SampleCache

NAME = "fn.cache"


class CacheOperator(NamedTuple):
    """Returns its inputs and stores them; a `dali_like.graph.language.operator_interface.Operator`.

    Attributes:
        layouts: of the inputs.
        deferred: makes the cache.
        cache: the cache; None before the pipeline is built.
        key_of: returns the key of a sample.
    """

    layouts: Sequence[str]
    deferred: DeferredCache
    cache: SampleCache | None = None
    key_of: KeyOf | None = None
    name: str = NAME
    seed: int | None = None
    per_sample: bool = True

    @property
    def arguments(self) -> Mapping[str, Any]:
        return {}

    def with_layouts(self, layouts: Sequence[str]) -> CacheOperator:
        """Return the operator for inputs with other layouts."""
        return self._replace(layouts=tuple(layouts))

    def recall(self, info: SampleInfo) -> Sequence[Any] | None:
        """Return the outputs for a sample from the cache; None without an entry."""
        if self.cache is None or self.key_of is None:
            return None
        found = self.cache.load(*self.key_of(info))
        return None if found is MISSING else found

    def stacks(self, num_inputs: int, arguments: Collection[str]) -> bool:
        return False

    def compute(self, call: OperatorCall, inputs: Sequence[Any], arguments: Mapping[str, Any]) -> Sequence[Any]:
        if self.cache is not None and self.key_of is not None:
            self.cache.store(*self.key_of(call.info), [np.asarray(array) for array in inputs])
        return [call.part(inputs[0])] if len(inputs) == 1 else inputs


def cached(inputs: Sequence[DataNode], options: CacheOptions) -> list[DataNode]:
    """Add a cache to the graph. Return one node for each input.

    Raises:
        ArgumentError: the inputs do not depend on one sample of one source alone; the message names the reason.
    """
    source = _only_source(inputs)
    for node in _operators_before(inputs):
        _check_before(node.operator)
    source.external.check_cacheable(NAME)
    deferred = DeferredCache(options, " and ".join(node.name for node in inputs))
    operator = CacheOperator(tuple(node.producer.layouts[node.output] for node in inputs), deferred)
    device = device_of_result(inputs)
    made = OperatorNode(operator, tuple(inputs), adapt=operator.with_layouts, device=device)
    return [DataNode(f"{NAME}({node.name})", node.device, made, i) for i, node in enumerate(inputs)]


def is_cache(node: OperatorNode) -> bool:
    """Whether an operator is a cache."""
    return isinstance(node.operator, CacheOperator)


def without_cache(data: DataNode) -> DataNode:
    """Return a node with the same data that is not the result of a cache."""
    producer = data.producer
    if isinstance(producer, OperatorNode) and is_cache(producer):
        return replace(without_cache(producer.inputs[data.output]), device=data.device)
    return data


def bind_caches(
    graph: Graph, operators: Mapping[OperatorNode, Operator], batch_size: int, entropy: int
) -> Mapping[OperatorNode, Operator]:
    """Return the operators of a graph with their caches.

    Args:
        graph: the graph.
        operators: of its nodes.
        batch_size: samples in a batch.
        entropy: the seed of the pipeline.

    Raises:
        ArgumentError: see `CacheOptions.folder`.
    """
    bound = dict(operators)
    for node, operator in operators.items():
        if isinstance(operator, CacheOperator):
            source = _only_source(node.inputs)
            external = source.external
            reader = external.reader
            cache = operator.deferred.make(
                external.cacheable_length,
                _outline(node, batch_size),
                tuple if reader is None else reader.reader.input_paths,
                _function_before(node, source),
            )
            key_of = external.key_of(batch_size, (entropy, graph.sources.index(source)))
            bound[node] = operator._replace(cache=cache, key_of=key_of)
    return bound


def check_positions(graph: Graph, nodes: Sequence[OperatorNode]) -> None:
    """Check that threads, which run some operators, know the positions of samples in their source.

    Raises:
        ArgumentError: they do not, because another source may end epochs.
    """
    kinds = {(node.external.reader is not None, node.external.composed is not None) for node in graph.sources}
    for node in nodes:
        if isinstance(node.operator, CacheOperator) and len(kinds) > 1:
            raise ArgumentError(
                f"{NAME}: operators behind {_only_source(node.inputs).external.name} run in threads, and the pipeline has "
                "sources of other kinds with positions of their own. Run them in workers: pass py_num_workers= at least as "
                "large as num_threads="
            )


def caches_of(graph: Graph, operators: Mapping[OperatorNode, Operator], source: SourceNode) -> list[SampleCache]:
    """Return the caches of a source, and of the operators behind it."""
    behind = [
        operator.cache
        for node, operator in operators.items()
        if isinstance(operator, CacheOperator) and operator.cache is not None and _only_source(node.inputs) is source
    ]
    return [*source.external.caches(), *behind]


def _producers_before(inputs: Sequence[DataNode]) -> list[Producer]:
    """Return everything that some data depend on, but for the conditions of their branch, in an order of execution."""
    found: dict[Producer, None] = {}

    def visit(producer: Producer) -> None:
        if producer not in found:
            if isinstance(producer, OperatorNode):
                for data in (*producer.inputs, *producer.argument_inputs.values()):
                    visit(data.producer)
            found[producer] = None

    for data in inputs:
        visit(data.producer)
    return list(found)


def _operators_before(inputs: Sequence[DataNode]) -> list[OperatorNode]:
    return [producer for producer in _producers_before(inputs) if isinstance(producer, OperatorNode)]


def _only_source(inputs: Sequence[DataNode]) -> SourceNode:
    sources = [producer for producer in _producers_before(inputs) if isinstance(producer, SourceNode)]
    if not sources:
        raise ArgumentError(
            f"{NAME}: {inputs[0].name} depends on no source: it has no samples to identify. Remove the cache"
        )
    if len(sources) > 1:
        names = " and ".join(source.external.name for source in sources)
        raise ArgumentError(
            f"{NAME}: its inputs depend on {names}, with positions of their own: cache each of them by itself"
        )
    return sources[0]


def _check_before(operator: Operator) -> None:
    if operator.seed is not None:
        raise ArgumentError(
            f"{NAME} is behind the random operator {operator.name}: its results would be the same in each epoch. Call "
            f"{NAME} before that operator"
        )
    if not operator.per_sample or getattr(operator, "in_order", False):
        raise ArgumentError(
            f"{NAME} is behind {operator.name}, whose results depend on the whole batch, and not on a sample alone. Call "
            f"{NAME} before that operator"
        )


def _function_before(node: OperatorNode, source: SourceNode) -> str:
    """Return the name of a function of the user's before a cache, or an empty text."""
    external = source.external
    for before in _operators_before(node.inputs):
        description = getattr(before.operator, "description", None)
        values = getattr(before.operator, "values", {})
        if getattr(description, "travels", None) is not None or any(map(_is_function_of_user, values.values())):
            return before.operator.name
    is_of_library = external.reader is not None and not is_of_user(type(external.reader.reader))
    return "" if is_of_library else external.name


def _is_function_of_user(value: Any) -> bool:
    return callable(value) and not isinstance(value, type) and is_of_user(value)


def _outline(node: OperatorNode, batch_size: int) -> list[str]:
    """Return a description of everything that a cache depends on, but for functions and files."""
    import hashlib  # few pipelines have caches
    import json

    producers = _producers_before(node.inputs)
    numbers = {producer: i for i, producer in enumerate(producers)}
    lines = []
    for producer in (*producers, node):
        if isinstance(producer, SourceNode):
            lines += producer.external.outline(batch_size)
        elif isinstance(producer, ConstantNode):
            array = producer.constant.array
            lines.append(f"{array.dtype.str} {array.shape} {hashlib.blake2b(array.tobytes(), digest_size=16).hexdigest()}")
        else:
            needs = [(numbers[data.producer], data.output) for data in producer.inputs]
            named = [(name, numbers[data.producer], data.output) for name, data in producer.argument_inputs.items()]
            arguments = json.dumps(producer.operator.arguments, default=_without_address, sort_keys=True)
            lines.append(f"{producer.operator.name} {needs} {named} {arguments}")
    return lines


def _without_address(value: Any) -> str:
    return getattr(value, "__qualname__", type(value).__qualname__)
