"""Checks of a graph and of its combination of sources, before workers are started."""

from __future__ import annotations

from collections.abc import Sequence

from dali_like.common.notices import warn
from dali_like.errors import ArgumentClashError, ArgumentError
from dali_like.graph.execution.pipeline_arguments import Arguments
from dali_like.graph.execution.placement import Placement
from dali_like.graph.language.nodes import Graph, unused_outputs
from dali_like.sources.external_source import ExternalSource
from dali_like.sources.sharding import ALONE, Rest, Shard


def check_runnable(graph: Graph, arguments: Arguments) -> None:
    """Refuse a graph that cannot run, and warn of outputs and samples that are computed in vain.

    Raises:
        ArgumentError: there is no batch size.
        DeviceError, MissingExtraError: an output is wanted on a GPU, and there is no GPU, or no CuPy.
    """
    if not arguments.batch_size:
        raise ArgumentError("The batch size must be set: give Pipeline a batch_size")
    if graph.wants_gpu:
        from dali_like.device.opening import check_device  # lazy: most graphs are on the CPU

        check_device(arguments.device_id, graph.wants_gpu)
    for source in graph.sources:
        if source.external.shard is not None:
            _warn_of_lost_rest(source.external, source.external.shard, arguments.batch_size)
        _warn_of_length(source.external)
    for source, outputs in unused_outputs(graph).items():
        external = source.external
        if external.reader is not None:
            continue
        warn(
            f"{external.name} returns {len(external.declared)} outputs, and the outputs {outputs} (counted from 0) are not "
            "used: leave them out of the source to save time",
            UserWarning,
        )


def announce_moves(placement: Placement) -> None:
    """Warn, once, of operators that the program wants on a GPU, and that run on the CPU."""
    places = placement.places
    moved = dict.fromkeys(node.operator.name for node in places if node.device == "gpu" and places[node] != "gpu")
    if moved:
        warn(
            f"these operators run on the CPU, and the GPU gets only the outputs of the pipeline: {', '.join(moved)}. "
            "Pipeline.operator_places shows where each runs. To silence this, leave out their device=, and return "
            "output.gpu()",
            UserWarning,
        )


def _warn_of_length(external: ExternalSource) -> None:
    """Warn if the length of a callable does not end the epoch: perhaps nothing does."""
    length = external.known_length
    if external.length is not None or external.sharded or external.in_order or length is None:
        return
    policy = "" if external.batch else 'last_batch_policy="drop", "partial" or "fill", or '
    warn(
        f"{external.name} has a len() of {length}, which does not end the epoch, as in DALI: it ends where the source "
        f"raises StopIteration. To end it at the length, pass {policy}size={length}",
        UserWarning,
    )


class EndOfEpoch:
    """Warns, once, that `run` ends an epoch without a batch, and says, once, how many samples an epoch leaves out.

    The first is a mistake: a ``for`` loop would only do nothing. The second is DALI's default, so it is a line in the log.

    Args:
        externals: the sources of the pipeline.
        batch_size: samples in a batch.
    """

    def __init__(self, externals: Sequence[ExternalSource], batch_size: int) -> None:
        self._externals = externals
        self._batch_size = batch_size
        self._has_warned = self._has_counted = False

    def __call__(self, epoch: int, num_batches: int, source: int, num_samples: int) -> None:
        external = self._externals[source]
        if num_batches:
            if not self._has_counted:
                self._has_counted = True
                if text := _left_out_text(external, num_samples, self._batch_size):
                    import logging  # rarely needed, and slow to import

                    logging.getLogger("dali_like").warning(text)
        elif not self._has_warned and external.rest is not Rest.UNEVEN:
            self._has_warned = True
            warn(_empty_epoch_text(external, epoch, num_samples, self._batch_size), UserWarning)


def _left_out_text(external: ExternalSource, num_samples: int, batch_size: int) -> str:
    """Return the line about left-out samples; "" without any, or if the program asks for that.

    Args:
        external: the source that ended the epoch.
        num_samples: the samples that it has made beyond the last batch.
        batch_size: samples in a batch.
    """
    if external.batch or external.sharded or external.shard is not None or external.reader is not None:
        return ""
    if external.options["last_batch_policy"] is not None or external.composed is not None:
        return ""
    length = external.length
    left_out = num_samples if length is None else length % batch_size
    if not left_out:
        return ""
    of = "" if length is None else f" of {length:,}"
    return (
        f"{external.name}: each epoch leaves out {left_out}{of} samples, which do not fill a batch of {batch_size}. To get "
        'them, pass last_batch_policy="partial" (a smaller batch) or "fill" (repeated samples); to silence this line, "drop"'
    )


def _empty_epoch_text(external: ExternalSource, epoch: int, num_samples: int, batch_size: int) -> str:
    """Return the warning about an epoch without batches.

    Args:
        external: the source that ended the epoch.
        epoch: the number of the epoch.
        num_samples: the samples that it has made in the epoch.
        batch_size: samples in a batch.
    """
    unit = "batch" if external.batch else "sample"
    num_samples = num_samples if external.length is None else external.length
    if num_samples and not external.batch:
        reason = f"has {num_samples} samples, which do not fill a batch of {batch_size}. Lower batch_size, or pass "
        reason += 'last_batch_policy="partial" to get them as a smaller batch'
    elif external.persists and epoch:
        reason = "is an iterator, which has ended and cannot restart. Pass the iterable itself, for example a list, or a "
        reason += "generator function without its parentheses"
    elif external.length == 0 or external.in_order:
        reason = f"has no {'batches' if external.batch else 'samples'}. Check what it reads"
    else:
        reason = f"raised StopIteration for its first {unit}. Check what it reads, and when it ends"
    return f"epoch {epoch} is empty: {external.name} {reason}"


def _warn_of_lost_rest(external: ExternalSource, shard: Shard, batch_size: int) -> None:
    if external.length is None or external.options["shard_rest"] is not None:
        return
    global_batch = shard.count if external.batch else shard.count * batch_size
    if rest := external.length % global_batch:
        warn(
            f"{external.name} has a length of {external.length}, and {shard.count} ranks take {global_batch} at once: the "
            f'last {rest} of each epoch are dropped. Pass shard_rest="pad" or "uneven" to keep them, or "drop"',
            UserWarning,
        )


def common_shard(graph: Graph) -> Shard:
    """Return the shard of all callables of a graph; the whole epoch without shards.

    Raises:
        ArgumentClashError: the callables have different shards, or composed datasets stand beside other sources.
    """
    externals = [node.external for node in graph.sources]
    shards: dict[Shard | None, str] = {external.shard: external.name for external in externals if external.shard is not None}
    for external in externals:
        if shards and external.shard is None and not (external.is_fed or external.in_order):
            shards[None] = external.name
    if len(shards) > 1:
        given = "; ".join(f"{name}: {shard or 'none'}" for shard, name in shards.items())
        raise ArgumentClashError(
            f"all callables of a pipeline must have the same shard, because their samples belong together: {given}"
        )
    composed, others = (
        [external.name for external in externals if external.shard is not None and (external.composed is not None) is wanted]
        for wanted in (True, False)
    )
    if composed and others and next(iter(shards)) not in (None, Shard()):
        raise ArgumentClashError(
            f"the positions of ranks interleave in {composed[0]}, and those of {others[0]} are blocks: their samples would "
            "not belong together. Make one composed dataset of both: ComposedDataset.zip([a, ComposedDataset.source(b)])"
        )
    return next(iter(shards), None) or ALONE


def check_shared_iterators(externals: Sequence[ExternalSource]) -> None:
    """Refuse iterators shared by several threads. Processes have copies of their own.

    Raises:
        ArgumentClashError: a source is such an iterator.
    """
    for external in externals:
        if external.sharded and external.persists:
            raise ArgumentClashError(
                f"{external.name} is an iterator, which several threads cannot share: with sharded=True and "
                "py_start_method='thread', pass an iterable that each thread can start, such as a generator function"
            )
