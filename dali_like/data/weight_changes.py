"""Weights of mixtures that change while a loader runs: `DataLoader.set_weights`.

The new weights hold from a position of the mixture on that no rank has drawn yet. Runs in the main process.

With random access, the position follows from the next step. In logical shards, workers report with each batch how far
mixtures have been drawn, so this process waits for the batches in flight. For shards without a report, behind a resume or an
error, it goes through one more output itself.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from dali_like.data.plans import PositionsPlan
from dali_like.errors import ArgumentError, ArgumentTypeError, CheckpointError
from dali_like.sources.composed.draws import DrawnMixture, Reach
from dali_like.sources.composed.mixing import checked_schedule, quotas
from dali_like.sources.composed.stage import WeightChange
from dali_like.sources.composed.states import shard_states
from dali_like.sources.state_format import ENDED, ShardState

if TYPE_CHECKING:
    from dali_like.data.iterator_factory import IteratorFactory
    from dali_like.data.loader_iterator import LoaderIterator
    from dali_like.data.position_sampler import PositionSampler
    from dali_like.sources.composed.dataset import ComposedDataset

__all__ = ["checked_weights", "first_position", "mixture_of", "replayed_ends", "with_change"]


def mixture_of(dataset: ComposedDataset, weights: Any, mix: str | None) -> DrawnMixture:
    """Return the mixture whose weights are to change.

    Args:
        weights: by the names of its datasets.
        mix: its name; None: the only one, or the only one with these datasets.

    Raises:
        ArgumentError: there is no such mixture, or several; or its weights are fixed.
        ArgumentTypeError: weights are not a mapping.
    """
    if not isinstance(weights, Mapping):
        raise ArgumentTypeError(
            f'set_weights needs a mapping from the names of datasets to weights, such as {{"web": 2, "code": 1}}, not '
            f"{weights!r:.200}"
        )
    found = mixtures = dataset.mixtures
    if not mixtures:
        raise ArgumentError("this dataset has no mixture: set_weights changes the weights of ComposedDataset.mix")
    if mix is not None:
        found = [each for each in mixtures if mix in (each.stage.title, each.stage.name)]
    elif len(mixtures) > 1:
        found = [each for each in mixtures if weights.keys() == set(each.stage.names)]
    if len(found) != 1:
        known = "; ".join(each.stage.title or each.stage.name for each in mixtures)
        problem = "several mixtures fit" if found else "there is no such mixture"
        raise ArgumentError(f"{problem}: pass mix=, the name of one. Those of this dataset: {known}")
    (mixture,) = found
    if mixture.why_fixed is not None:
        raise ArgumentError(f"the weights of {mixture.stage.name} cannot change while a job runs: {mixture.why_fixed}")
    return mixture


def checked_weights(mixture: DrawnMixture, weights: Mapping[str, Any]) -> tuple[float, ...]:
    """Return the weights of the datasets of a mixture, in its order.

    Raises:
        ArgumentError: a name is unknown or missing, or a weight does not fit.
        ArgumentTypeError: a weight is not a number.
    """
    stage = mixture.stage
    for name in weights:
        if name not in stage.names:
            raise ArgumentError(
                f"{stage.name} has no dataset {name!r}. It has {', '.join(stage.names)}; names= of mix names them"
            )
    if missing := [name for name in stage.names if name not in weights]:
        raise ArgumentError(f"the weight of {missing[0]!r} in {stage.name} is missing: pass those of all its datasets")
    ((_, numbers),) = checked_schedule(len(stage.names), [weights[name] for name in stage.names], None)
    quotas(numbers, stage.block, stage.names)
    if stage.stop == "all" and not all(numbers):
        raise ArgumentError(f'{stage.name} waits for the ends of all datasets, with stop="all", so no weight may be 0')
    return numbers


def with_change(changes: Collection[WeightChange], change: WeightChange) -> list[WeightChange]:
    """Return the changes with another one, without later changes of the same mixture."""
    kept = [each for each in changes if each.path != change.path or each[1:3] < change[1:3]]
    return [*kept, change]


def first_position(factory: IteratorFactory, sampler: PositionSampler, mixture: DrawnMixture) -> Reach:
    """Return the first position of a mixture that this rank has not drawn.

    Raises:
        ArgumentError: it is unknown.
    """
    try:
        return _first_position(factory, sampler, mixture)
    except CheckpointError as error:
        raise ArgumentError(
            f"the weights of {mixture.stage.name} cannot change here: a stage behind it hides its position, such as another "
            "mixture that begins it again"
        ) from error


def _first_position(factory: IteratorFactory, sampler: PositionSampler, mixture: DrawnMixture) -> Reach:
    dataset, items = sampler.dataset, sampler.changes.items
    begun, latest = factory.positions_in_progress, factory.latest
    epoch, position = sampler.next_step(begun)
    if dataset.shards is None:
        return dataset.drawn(mixture.path, epoch, [position], items)
    if begun is None:
        if (start := sampler.start) is None:
            return dataset.drawn(mixture.path, epoch, replayed_ends(dataset, items, epoch, 0, {}, ()), items)
        states = shard_states(start, sampler.owned)
        ends = start.get("drawn") or replayed_ends(
            dataset, items, epoch, position, states, () if "drawn" in start else states
        )
        return dataset.drawn(mixture.path, epoch, ends, items)
    if epoch != begun.epoch or latest is None or not isinstance(latest.plan, PositionsPlan):
        epoch = begun.epoch + 1  # the program has left the epoch, or all of it has been requested
        return dataset.drawn(mixture.path, epoch, replayed_ends(dataset, items, epoch, 0, {}, ()), items)
    return dataset.drawn(mixture.path, epoch, _ends(latest, latest.plan, sampler, epoch, position), items)


def _ends(latest: LoaderIterator, plan: PositionsPlan, sampler: PositionSampler, epoch: int, position: int) -> list[int]:
    """Return how far mixtures have been drawn for all requested batches of an iterator."""
    progress, failed, items = plan.progress, set(), sampler.changes.items
    for key, answers in latest.in_flight():
        if answers is None:
            failed.update(plan.shards_of(key))
        else:
            progress.note_drawn(answers.values())
    unknown = (failed | (progress.states.keys() - progress.reported)) - progress.ended
    ends = progress.drawn
    if unknown:
        until = max(position, progress.read_until)
        others = replayed_ends(sampler.dataset, items, epoch, until, progress.states, unknown)
        ends = tuple(map(max, ends, others)) if ends else tuple(others)
    return list(ends) or replayed_ends(sampler.dataset, items, epoch, position, {}, ())


def replayed_ends(
    dataset: ComposedDataset,
    changes: Collection[WeightChange],
    epoch: int,
    position: int,
    states: Mapping[int, ShardState],
    shards: Collection[int],
) -> list[int]:
    """Go through shards from their states to a position, and through one more output, which may be in an open block.

    Returns:
        How far mixtures have been drawn; see `dali_like.sources.composed.draws.Watch.ends`.
    """
    elements = dataset.elements(tuple(changes))
    num_shards = dataset.shards
    assert num_shards is not None
    assert elements.watch is not None
    for shard in shards:
        known = states.get(shard, ShardState(0, None))
        if known.state != ENDED and (known.state is not None or position):
            elements.state(epoch, shard, position + num_shards, states)
    ends = list(elements.watch.ends(epoch))
    elements.close()
    return ends
