"""What is checked of a graph before anything is started that runs it, and warned of: how its sources go together."""

from __future__ import annotations

from collections.abc import Sequence

from dali_like.common.notices import warn
from dali_like.errors import ArgumentClashError, ArgumentError
from dali_like.graph.nodes import Graph, unused_outputs
from dali_like.graph.pipeline_arguments import Arguments
from dali_like.sources.external_source import ExternalSource
from dali_like.sources.sharding import ALONE, Shard


def check_runnable(graph: Graph, arguments: Arguments) -> None:
    """Refuse what cannot be run, and warn of what its sources would make in vain.

    Raises:
        ArgumentError: there is no batch size.
        DeviceError, MissingExtraError: an output is wanted on a GPU, and there is none, or no CuPy to use it by.
    """
    if not arguments.batch_size:
        raise ArgumentError("The batch size must be set: give Pipeline a batch_size")
    if graph.wants_gpu:
        from dali_like.device.opening import check_device  # noqa: PLC0415  # most graphs are on the CPU

        codecs = ["nvidia.nvimgcodec"] if any(node.is_on_gpu for node in graph.operators) else []
        check_device(arguments.device_id, graph.wants_gpu, *codecs)
    for source in graph.sources:
        _warn_of_lost_samples(source.external, arguments.batch_size)
    for source, outputs in unused_outputs(graph).items():
        external = source.external
        warn(
            f"{external.name} makes {len(external.declared)} outputs, of which nobody needs {outputs} (counted from 0); "
            "it would be faster to make only those that are needed",
            UserWarning,
        )


def _warn_of_lost_samples(external: ExternalSource, batch_size: int) -> None:
    """Nobody has said what becomes of the last samples, or even, in so many words, how many there are."""
    given = external.options
    if external.shard is not None:
        _warn_of_lost_rest(external, external.shard, batch_size)
        return
    if external.batch or external.length is None or given["size"] is not None or given["last_batch_policy"] is not None:
        return
    if rest := external.length % batch_size:
        warn(
            f"{external.name} has a len() of {external.length}, which does not fill batches of {batch_size}: the last "
            f'{rest} samples of each epoch are left out. Say last_batch_policy="partial" or "fill" to have them, or "drop"',
            UserWarning,
        )


def _warn_of_lost_rest(external: ExternalSource, shard: Shard, batch_size: int) -> None:
    if external.length is None or external.options["shard_rest"] is not None:
        return
    global_batch = shard.count if external.batch else shard.count * batch_size
    if rest := external.length % global_batch:
        warn(
            f"{external.name} has a length of {external.length}, of which {shard.count} ranks take {global_batch} at once: "
            f'the last {rest} of each epoch are left out. Say shard_rest="pad" or "uneven" to have them, or "drop"',
            UserWarning,
        )


def common_shard(graph: Graph) -> Shard:
    """Which part of an epoch all sources that are told positions are to give; all of it where there are no shards.

    Raises:
        ArgumentClashError: they do not agree.
    """
    externals = [node.external for node in graph.sources]
    shards: dict[Shard | None, str] = {external.shard: external.name for external in externals if external.shard is not None}
    for external in externals:
        if shards and external.shard is None and external.kind is not None and not external.kind.in_order:
            shards[None] = external.name
    if len(shards) > 1:
        told = "; ".join(f"{name}: {shard or 'none'}" for shard, name in shards.items())
        raise ArgumentClashError(
            f"all callables of a pipeline must be told of the same shard, since their samples belong together: {told}"
        )
    return next(iter(shards), None) or ALONE


def check_shared_iterators(externals: Sequence[ExternalSource]) -> None:
    """Refuse iterators that several threads would walk through. Each process has a copy, and walks through all of it.

    Raises:
        ArgumentClashError: there is one.
    """
    for external in externals:
        if external.sharded and external.persists:
            raise ArgumentClashError(
                f"{external.name} is an iterator, which several threads cannot walk through: with sharded=True and "
                "py_start_method='thread', pass what begins anew for each of them, such as a generator function"
            )
