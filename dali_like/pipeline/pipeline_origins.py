"""Where the samples of a pipeline's batch come from: `Pipeline.origins_of`. Runs in the main process, on request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from dali_like.errors import OriginError
from dali_like.graph.language.nodes import origin_of
from dali_like.sources.origins import UNKNOWN, Origin, Origins

if TYPE_CHECKING:
    from dali_like.feed.composed_feeds import ShardsState
    from dali_like.graph.execution.batch_runs import BatchId
    from dali_like.graph.language.nodes import SourceNode
    from dali_like.pipeline.runtime import Runtime
    from dali_like.sources.composed.dataset import ComposedDataset


def origins_in(runtime: Runtime, batch_id: BatchId, count: int) -> list[Origins]:
    """Return where the samples of a batch come from.

    Args:
        count: number of samples.

    Raises:
        OriginError: the program has fed them, or they come from constants.
    """
    node = _source_of(runtime)
    external = node.external
    infos = [batch_id.info(i) for i in range(count)]
    if (reader := external.reader) is not None:
        size, seeds = runtime.batch_size, runtime.seeds_of(node)
        order, file = reader.order(size, seeds), reader.origin_of(size, seeds)
        return [Origin(order.index(info.idx_in_epoch), file(info)) for info in infos]
    if (dataset := external.composed) is None:
        return [Origin(info.idx_in_epoch) for info in infos]
    from dali_like.sources.composed.traced import traced_dataset  # few pipelines have composed datasets

    if dataset.shards is not None:
        state: Any = runtime.state_of(node)
        has_replacements = external.options["on_error"] != "raise"
        return list(_in_shards(traced_dataset(dataset), state, batch_id.epoch, batch_id.iteration, has_replacements))
    elements, length = traced_dataset(dataset, values=False).elements(), dataset.length
    positions = [info.idx_in_epoch if length is None else info.idx_in_epoch % length for info in infos]
    return [elements.at(batch_id.epoch, position).origins for position in positions]


def _source_of(runtime: Runtime) -> SourceNode:
    """Return the source of the first output that has one."""
    for output in runtime.graph.outputs:
        node, _ = origin_of(output)
        if node is not None and not node.external.is_fed:
            return node
    raise OriginError("the program feeds the samples of this pipeline, or they are constants: only it knows their origin")


def _in_shards(
    traced: ComposedDataset, state: ShardsState, epoch: int, wanted: int, has_replacements: bool
) -> Iterator[Origins]:
    """Yield the origins of the elements of an iteration: walk there from the nearest known point.

    Args:
        has_replacements: whether `on_error` has replaced elements that fail.
    """
    from dali_like.feed.shards import ShardProgress
    from dali_like.sources.composed.stream import ShardEndedError

    iteration, point = state.nearest(epoch, wanted)
    elements, position = traced.elements(), point.position
    progress = ShardProgress(state.num_shards, state.owned, position, point.states)
    while iteration <= wanted and not progress.is_at_end:
        positions = state.rank.stripe(position, state.batch_size)
        rows: list[Origins] = []
        for place in progress.remaining(positions):
            try:
                rows.append(elements.at(point.epoch, positions[place], point.states).origins)
            except ShardEndedError:
                progress.ended.add(positions[place] % state.num_shards)
            except Exception:
                if iteration == wanted and not has_replacements:  # earlier batches have raised it in `run`
                    raise
                rows.append(UNKNOWN)
        position += state.batch_size * state.rank.count
        if not rows or (state.drops and len(rows) < state.batch_size):
            continue  # such steps have no batch
        if iteration == wanted:
            yield from rows
        iteration += 1
