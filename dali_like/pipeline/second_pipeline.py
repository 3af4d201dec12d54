"""One batch of a pipeline again: `Pipeline.batch_at`. A second pipeline without workers resumes before it.

It resumes from a checkpoint of that epoch. Callables need none, because their samples depend on their positions alone.
Its graph is a copy, with sources that the main process calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dali_like.engine.worker.streams import StatefulCallable, Stream
from dali_like.errors import CheckpointError, NotRepeatableError
from dali_like.graph.language.nodes import ConstantNode, DataNode, Graph, OperatorNode, Producer, SourceNode, make_graph
from dali_like.pipeline.checkpoints import Checkpoint
from dali_like.pipeline.preflight import common_shard
from dali_like.sources.external_source import Called, Composed, ExternalSource, Iterated
from dali_like.sources.state_format import SourceProgress


def depends_on_position(external: ExternalSource) -> bool:
    """Return whether the batches of a source depend on their positions alone."""
    return isinstance(external, Called) and not isinstance(external.callback, StatefulCallable)


def check_repeatable(externals: Sequence[ExternalSource]) -> None:
    """Refuse sources whose batches cannot be computed again.

    Raises:
        NotRepeatableError: there is such a source.
    """
    for external in externals:
        why = ""
        if external.is_fed:
            why = "the program feeds it"
        elif external.sharded:
            why = "each worker iterates its own part (sharded=True)"
        elif isinstance(external, Iterated) and external.persists:
            why = "it is an iterator, which cannot be iterated again"
        if why:
            raise NotRepeatableError(f"a batch of {external.name} cannot be computed again: {why}")


def checkpoint_at(graph: Graph, batch_size: int, epoch: int, iteration: int, seed: int) -> Checkpoint:
    """Return the checkpoint before a batch whose sources all depend on the position alone."""
    num_shards = common_shard(graph).count
    return Checkpoint(batch_size, num_shards, epoch, iteration, False, seed, tuple(SourceProgress() for _ in graph.sources))


def checkpoint_before(checkpoint: Checkpoint, externals: Sequence[ExternalSource], epoch: int, iteration: int) -> Checkpoint:
    """Return the checkpoint from which a batch is to be computed: the given one, or the beginning of the epoch.

    Raises:
        CheckpointError: the checkpoint is of another epoch.
    """
    if checkpoint.epoch != epoch:
        raise CheckpointError(f"the state is of epoch {checkpoint.epoch}; pass one that was saved in epoch {epoch}")
    if checkpoint.iteration <= iteration and not checkpoint.ended:
        return checkpoint
    sources = tuple(
        _at_beginning(progress, external, checkpoint.iteration)
        for progress, external in zip(checkpoint.sources, externals, strict=True)
    )
    return checkpoint._replace(iteration=0, ended=False, sources=sources)


def _at_beginning(progress: SourceProgress, external: ExternalSource, iteration: int) -> SourceProgress:
    """Return where a source was at the beginning of the epoch."""
    if isinstance(external, Composed) and progress.dataset is not None:
        states = {shard: [0, None] for shard in progress.dataset["states"]}
        return SourceProgress(dataset={**progress.dataset, "position": 0, "states": states})
    callback = getattr(external, "callback", None)
    is_stateful = isinstance(callback, StatefulCallable) or (isinstance(callback, Stream) and callback.owner is not None)
    if is_stateful or (external.reader is not None and progress.states):
        raise NotRepeatableError(f"{external.name} has a state, which cannot go back: pass a state from before the batch")
    # The position of a reader counts the batches of all epochs.
    return SourceProgress(progress.position - iteration if external.reader is not None else 0)


def _in_main_process(external: ExternalSource) -> ExternalSource:
    """Return a source that the main process calls. Objects with a state, which may be in use, are copied.

    Raises:
        NotRepeatableError: such an object cannot be copied.
    """
    callback = getattr(external, "callback", None)
    if not isinstance(callback, Stream | StatefulCallable):
        return external.replaced(parallel=False)
    try:
        return external.replaced(parallel=False, callback=callback.anew())
    except Exception as error:
        raise NotRepeatableError(
            f"{external.name} has a state, and cannot be copied: {type(error).__name__}: {error}"
        ) from error


def without_workers(graph: Graph) -> Graph:
    """Return a copy of a graph whose sources are called in the main process, with the same random numbers."""
    copies: dict[Producer, Producer] = {
        node: SourceNode(_in_main_process(node.external), number if node.number is None else node.number)
        for number, node in enumerate(graph.sources)
    }

    copied_data: dict[DataNode, DataNode] = {}  # one copy of each: conditions are compared by identity

    def copied(data: DataNode) -> DataNode:
        if data not in copied_data:
            copied_data[data] = replace(data, producer=producer_of(data.producer))
        return copied_data[data]

    def producer_of(node: Producer) -> Producer:
        if isinstance(node, ConstantNode):
            return node
        if node not in copies:
            assert isinstance(node, OperatorNode)
            arguments: Mapping[str, DataNode] = {name: copied(data) for name, data in node.argument_inputs.items()}
            copies[node] = replace(
                node,
                inputs=tuple(map(copied, node.inputs)),
                argument_inputs=arguments,
                scope=tuple((copied(condition), branch) for condition, branch in node.scope),
            )
        return copies[node]

    return make_graph([copied(node) for node in graph.outputs], [copied(node) for node in graph.sinks])
