"""Runs of a composed dataset on ranks and workers that change, each compared with a plain iteration.

Ranks take turns in one process. A rank is a simulation, in which workers are objects that each have a copy of the dataset;
or it is a `DataLoader` with workers of its own. At each change, the states of all ranks pass through JSON.
"""

from __future__ import annotations

import abc
import contextlib
import copy
import json
import pickle
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from dali_like.common.pickling_by_value import dumps_by_value
from dali_like.data.batch_sizes import SizeFrom, SizeSchedule
from dali_like.data.loader import DataLoader
from dali_like.data.weight_changes import first_position, replayed_ends, with_change
from dali_like.sources.composed.dataset import ComposedDataset
from dali_like.sources.composed.draws import DrawnMixture, Reach, listed_changes
from dali_like.sources.composed.positions import owned_shards
from dali_like.sources.composed.stage import WeightChange
from dali_like.sources.composed.states import make_state, merge_states, shard_states
from dali_like.sources.composed.stream import Elements, ShardEndedError, outputs_ahead
from dali_like.sources.sharding import Shard
from dali_like.sources.state_format import ENDED, ShardState
from dali_like.testing.differences import first_difference

if TYPE_CHECKING:
    from dali_like.data.position_sampler import PositionSampler

__all__ = ["LoaderRank", "Mismatch", "Part", "Reference", "SimulatedRank", "first_mismatch"]


@dataclass(frozen=True)
class Part:
    """Steps with the same ranks and workers; a part of a run.

    Attributes:
        num_workers: of each rank; 0: the rank computes the elements itself.
        kill_before: the step before which each rank loses a worker; None: no one dies.
        resizes: steps before which all ranks set another batch size, with the size.
        reweighs: steps before which all ranks set the weights of a mixture, with a number that decides about them.
        keeps_sizes: whether sizes that were set before count, if the ranks can share them out; else they are left out.
    """

    num_steps: int
    batch_size: int = 1
    num_ranks: int = 1
    num_workers: int = 0
    kill_before: int | None = None
    resizes: tuple[tuple[int, int], ...] = ()
    reweighs: tuple[tuple[int, int], ...] = ()
    keeps_sizes: bool = False

    def sizes(self, saved: Sequence[Sequence[int]]) -> SizeSchedule:
        """Return the batch sizes, given those that a state has."""
        sizes = SizeSchedule.fixed(self.batch_size)
        if self.keeps_sizes and not any(step % self.num_ranks for _, _, step in saved):
            sizes = sizes.with_changes(saved, self.num_ranks)
        return sizes


class Mismatch(NamedTuple):
    """The first element that differs from that of a plain iteration.

    Attributes:
        part, step, rank: where it was delivered; `step` counts from the beginning of the part.
        position: in the epoch.
        text: the difference.
    """

    part: int
    step: int
    rank: int
    position: int
    text: str


class Reference:
    """The elements of an epoch by position, from one plain iteration. It reads as far as it is asked for.

    It goes through a pickled copy: so a dataset that keeps something between calls fails in the same way each time.

    Args:
        keep_errors: whether an exception is the element at its position. Otherwise, it is raised.
    """

    def __init__(self, dataset: ComposedDataset, epoch: int = 0, keep_errors: bool = False) -> None:
        self._dataset = dataset.as_rows() if dataset.is_columnar else dataset
        self._epoch, self._keep_errors = epoch, keep_errors
        self._elements: dict[int, Any] = {}
        self._begin(())

    def _begin(self, changes: Sequence[WeightChange]) -> None:
        self._iterator = iter(pickle.loads(dumps_by_value(self._dataset)))
        if self._epoch or changes:
            state = _initial_state(self._dataset, self._epoch)
            self._iterator.load_state_dict({**state, "changes": listed_changes(changes)})
        self._has_ended = False

    def change_weights(self, changes: Sequence[WeightChange]) -> Reference:
        """Return the reference of a stream whose weights have been known from the beginning."""
        changed = copy.copy(self)
        changed._elements = {}
        changed._begin(changes)
        return changed

    def at(self, positions: range) -> dict[int, Any]:
        """Return the elements at some positions, without empty ones."""
        while not self._has_ended and positions and self._iterator.position <= positions[-1]:
            try:
                element = next(self._iterator)
            except StopIteration:
                self._has_ended = True
                break
            except Exception as error:
                if not self._keep_errors:
                    raise
                element = error
            # A copy: a function may change its input later.
            self._elements[self._iterator.position - 1] = copy.deepcopy(element)
        return {position: self._elements[position] for position in positions if position in self._elements}


class Rank(abc.ABC):
    """A rank during a part of a run. It leaves out steps in which none of its positions has an element."""

    @abc.abstractmethod
    def next_batch(self) -> list[Any]:
        """Return the next batch; the list is empty behind the end of the epoch."""

    @abc.abstractmethod
    def state(self) -> Any:
        """Return the state behind the latest batch, for JSON."""

    @abc.abstractmethod
    def next_step(self) -> tuple[int, int]:
        """Return epoch and position of the first step that has not been requested."""

    @abc.abstractmethod
    def set_batch_size(self, change: SizeFrom) -> None:
        """Change the batch size from a step on."""

    @abc.abstractmethod
    def first_position(self, mixture: DrawnMixture) -> Reach:
        """Return the first position of a mixture that has not been drawn."""

    @abc.abstractmethod
    def set_weights(self, change: WeightChange) -> list[WeightChange]:
        """Change the weights of a mixture, and return all changes."""

    @abc.abstractmethod
    def kill_worker(self) -> None:
        """Kill a worker, if there is one."""

    @abc.abstractmethod
    def close(self) -> None:
        """End the workers."""


#: Returns a rank that begins an epoch, or continues from the states of all ranks.
MakeRank = Callable[[ComposedDataset, Part, Shard, int, list[Any]], Rank]


class SimulatedRank(Rank):
    """A rank whose workers are objects in this process.

    Any worker answers the requests of a shard, with one of the latest states of the shard. So a worker often continues its
    own walk, and often begins from a state of another one.

    Args:
        seed: decides which worker answers.
    """

    def __init__(
        self, dataset: ComposedDataset, part: Part, rank: Shard, epoch: int, states: list[Any], seed: int = 0
    ) -> None:
        merged = dataset.checked_state(states) if states else _initial_state(dataset, epoch)
        self._dataset, self._rank = dataset, rank
        self._sizes = part.sizes(merged.get("batch_sizes", ()))
        self._changes = list(dataset.changes_in(merged))
        self._drawn: list[int] = []
        self._epoch, self._position = merged["epoch"], merged["position"]
        self._num_shards = dataset.shards
        owned = [] if self._num_shards is None else owned_shards(self._num_shards, rank)
        self._states = shard_states(merged, owned)
        self._older = dict(self._states)
        self._ahead = outputs_ahead(self._states, self._position, self._num_shards or 0)
        self._ended = {shard for shard, state in self._states.items() if state.state == ENDED}
        self._is_over = False
        self._random = random.Random(f"{seed} {rank.id} {self._position}")
        self._description = dumps_by_value(dataset)
        self._workers: list[Elements | None] = [None] * max(part.num_workers, 1)

    def next_batch(self) -> list[Any]:
        if self._num_shards is None:
            positions = self._next_positions()
            length = self._dataset.length
            inside = [position for position in positions if length is None or position < length]
            self._is_over = not inside
            return [_element(self._worker(), self._epoch, position, None) for position in inside]
        batch: list[Any] = []
        while not batch and not self._is_over:
            batch = self._batch_at(self._next_positions(), self._num_shards)
            self._is_over = not batch and len(self._ended) == len(self._states)
        return batch

    def _next_positions(self) -> range:
        steps = self._sizes.steps(self._epoch, self._rank.count)
        positions = self._rank.stripe(self._position, steps.sizes[steps.piece(self._position)])
        self._position = steps.after(self._position, 1)
        return positions

    def next_step(self) -> tuple[int, int]:
        return (self._epoch + 1, 0) if self._is_over else (self._epoch, self._position)

    def set_batch_size(self, change: SizeFrom) -> None:
        self._sizes = self._sizes.changed(change)

    def first_position(self, mixture: DrawnMixture) -> Reach:
        dataset, (epoch, position) = self._dataset, self.next_step()
        if self._num_shards is None:
            return dataset.drawn(mixture.path, epoch, [position], self._changes)
        if self._is_over:
            ends = replayed_ends(dataset, self._changes, epoch, 0, {}, ())
            return dataset.drawn(mixture.path, epoch, ends, self._changes)
        states = self._states
        ends = replayed_ends(dataset, self._changes, epoch, position, states, states)
        ends = list(map(max, ends, self._drawn or ends))
        return dataset.drawn(mixture.path, epoch, ends, self._changes)

    def set_weights(self, change: WeightChange) -> list[WeightChange]:
        self._changes = with_change(self._changes, change)
        self._workers = [None] * len(self._workers)
        return self._changes

    def _batch_at(self, positions: range, num_shards: int) -> list[Any]:
        needed = [position for position in positions if position // num_shards >= self._ahead.get(position % num_shards, 0)]
        batch: dict[int, Any] = {}
        for shard in sorted({position % num_shards for position in needed}):
            worker = self._worker()
            carried = {shard: self._random.choice((self._states, self._older))[shard]}
            of_shard = [position for position in needed if position % num_shards == shard]
            # Sometimes twice, as if the first answer had been lost.
            for position in of_shard * self._random.choice((1, 1, 1, 2)):
                try:
                    batch[position] = _element(worker, self._epoch, position, carried)
                except ShardEndedError:
                    self._ended.add(shard)
            if worker.watch is not None:
                ends = worker.watch.ends(self._epoch)
                self._drawn = list(map(max, ends, self._drawn or ends))
            self._older[shard] = self._states[shard]
            self._states[shard] = worker.state(self._epoch, shard, self._position, carried)
        return [batch[position] for position in sorted(batch)]

    def state(self) -> dict[str, Any]:
        dataset, epoch, position, states = self._dataset, self._epoch, self._position, self._states
        if self._is_over:
            epoch, position, states = epoch + 1, 0, dict.fromkeys(states, ShardState(0, None))
        state = make_state(dataset.description, dataset.seed, self._num_shards, epoch, position, states, self._rank)
        sizes = self._sizes.listed(epoch, position, self._rank.count)
        return {**state, "batch_sizes": sizes, "changes": listed_changes(self._changes)}

    def kill_worker(self) -> None:
        self._workers[self._random.randrange(len(self._workers))] = None

    def close(self) -> None:
        for worker in filter(None, self._workers):
            worker.close()

    def _worker(self) -> Elements:
        number = self._random.randrange(len(self._workers))
        worker = self._workers[number]
        if worker is None:
            worker = self._workers[number] = pickle.loads(self._description).elements(self._changes)
        return worker


class LoaderRank(Rank):
    """A rank with a loader and, if the part has any, worker processes.

    Args:
        options: further arguments of the loader.

    Attributes:
        collate_fn: of the loader, whose batches are lists.
    """

    collate_fn: Callable[[Any], Any] | None = list

    def __init__(
        self,
        dataset: ComposedDataset,
        part: Part,
        rank: Shard,
        epoch: int,
        states: list[Any],
        start_method: str = "fork",
        **options: Any,
    ) -> None:
        options = {"collate_fn": self.collate_fn, **options}
        self._loader = _loader(dataset, part, rank, start_method, options)
        if states:
            saved = merge_states(states).get("batch_sizes", ())
            allowed = () if part.sizes(saved).changes else ("batch_size",)
            self._loader.load_state_dict(states, allow_change=allowed)
        else:
            self._loader.set_epoch(epoch)
        self._iterator = iter(self._loader)

    def next_batch(self) -> list[Any]:
        return next(self._iterator, [])

    def state(self) -> Any:
        return self._loader.state_dict()

    def next_step(self) -> tuple[int, int]:
        return self._positions.next_step(self._loader._dali_like_factory.positions_in_progress)

    def set_batch_size(self, change: SizeFrom) -> None:
        self._positions.set_batch_size(change)

    def first_position(self, mixture: DrawnMixture) -> Reach:
        return first_position(self._loader._dali_like_factory, self._positions, mixture)

    def set_weights(self, change: WeightChange) -> list[WeightChange]:
        changes = with_change(self._positions.changes.items, change)
        self._positions.set_changes(changes)
        return changes

    @property
    def _positions(self) -> PositionSampler:
        positions: PositionSampler = self._loader._dali_like_positions
        return positions

    def kill_worker(self) -> None:
        for worker in getattr(self._iterator, "_workers", [])[:1]:
            worker.kill()  # unless it has ended

    def close(self) -> None:
        self._iterator._shutdown_workers()


def first_mismatch(
    dataset: ComposedDataset,
    parts: Sequence[Part],
    reference: Reference,
    make_rank: MakeRank = SimulatedRank,
    epoch: int = 0,
) -> Mismatch | None:
    """Run the parts one after another and return the first difference from the reference, or None."""
    states: list[Any] = []
    known = _Known(reference, dataset.shards, epoch)
    for number_of_part, part in enumerate(parts):
        with contextlib.ExitStack() as stack:
            ranks = []
            for each in range(part.num_ranks):
                ranks.append(make_rank(dataset, part, Shard(each, part.num_ranks), epoch, states))
                stack.callback(ranks[-1].close)
            sizes = part.sizes(known.sizes)
            progress = [_RankProgress(known, sizes, Shard(each, part.num_ranks)) for each in range(part.num_ranks)]
            for step in range(part.num_steps):
                if step == part.kill_before:
                    for rank in ranks:
                        rank.kill_worker()
                for size in (size for before, size in part.resizes if before == step):
                    change = SizeFrom(*max(rank.next_step() for rank in ranks), size)
                    for rank, own in zip(ranks, progress, strict=True):
                        rank.set_batch_size(change)
                        own.sizes = own.sizes.changed(change)
                for number in (number for before, number in part.reweighs if before == step):
                    _reweigh(dataset, ranks, known, number)
                for each, rank in enumerate(ranks):
                    expected = progress[each].next_elements()
                    difference = _batch_difference(expected, progress[each].positions, rank.next_batch())
                    if difference is not None:
                        return Mismatch(number_of_part, step, each, *difference)
            if all(each.is_over for each in progress):
                return None
            states = json.loads(json.dumps([rank.state() for rank in ranks]))
            known.move_on(progress)
    return None


def _reweigh(dataset: ComposedDataset, ranks: Sequence[Rank], known: _Known, number: int) -> None:
    """Change the weights of a mixture on all ranks, if there is one whose weights can change."""
    mixtures = [mixture for mixture in dataset.mixtures if mixture.why_fixed is None]
    if not mixtures:
        return
    rng = random.Random(number)
    mixture = rng.choice(mixtures)
    weights = tuple(rng.randint(1, 3) for _ in mixture.stage.names)
    change = WeightChange(mixture.path, *max(rank.first_position(mixture) for rank in ranks), weights)
    for rank in ranks:
        changes = rank.set_weights(change)
    known.reference = known.reference.change_weights(changes)


class _Known:
    """The state between two parts: the position of all ranks together, and the elements that are delivered behind it.

    Attributes:
        begin: the position.
        delivered: positions from there on.
        ended: logical shards at their end.
        sizes: batch sizes that have been set, as states have them.
    """

    def __init__(self, reference: Reference, num_shards: int | None, epoch: int) -> None:
        self.reference = reference
        self.num_shards = num_shards
        self.epoch = epoch
        self.sizes: list[list[int]] = []
        self.begin = 0
        self.delivered: set[int] = set()
        self.ended: set[int] = set()

    def move_on(self, progress: Sequence[_RankProgress]) -> None:
        """Go to the smallest position of the ranks that have not finished the epoch."""
        self.begin = min(each.end for each in progress if not each.is_over)
        self.sizes = progress[0].sizes.listed(self.epoch, self.begin, len(progress))
        for each in progress:
            self.delivered.update(each.delivered)
            if each.is_over:
                self.ended.update(each.owned)
        self.delivered = {position for position in self.delivered if position >= self.begin}


class _RankProgress:
    """The elements that a rank should deliver in a part.

    Attributes:
        sizes: of batches.
        positions: of the latest batch.
        end: the position behind the latest step.
        delivered: the positions of all batches.
        owned: the logical shards of the rank.
        is_over: whether the rank has finished the epoch.
    """

    def __init__(self, known: _Known, sizes: SizeSchedule, rank: Shard) -> None:
        self._known = known
        self.sizes = sizes
        self._rank = rank
        self.positions = range(0)
        self.end = known.begin
        self.delivered: set[int] = set()
        self.owned = set() if known.num_shards is None else set(owned_shards(known.num_shards, rank))
        self._ended = self.owned & known.ended
        self.is_over = False

    def next_elements(self) -> dict[int, Any]:
        """Return the elements of the next batch by position; without elements behind the end of the epoch."""
        known, num_shards = self._known, self._known.num_shards
        while not self.is_over:
            steps = self.sizes.steps(known.epoch, self._rank.count)
            self.positions = self._rank.stripe(self.end, steps.sizes[steps.piece(self.end)])
            self.end = steps.after(self.end, 1)
            due = [position for position in self.positions if position not in known.delivered]
            if num_shards is not None:
                due = [position for position in due if position % num_shards not in self._ended]
            found = known.reference.at(self.positions)
            elements = {position: found[position] for position in due if position in found}
            if num_shards is not None:
                self._ended.update(position % num_shards for position in due if position not in found)
            if elements:
                self.delivered.update(elements)
                return elements
            self.is_over = self._ended == self.owned
        return {}


def _initial_state(dataset: ComposedDataset, epoch: int) -> dict[str, Any]:
    """Return the state at the beginning of an epoch."""
    states = dict.fromkeys(range(dataset.shards or 0), ShardState(0, None))
    return make_state(dataset.description, dataset.seed, dataset.shards, epoch, 0, states)


def _loader(dataset: ComposedDataset, part: Part, rank: Shard, start_method: str, others: Mapping[str, Any]) -> Any:
    options: dict[str, Any] = {"shard_id": rank.id, "num_shards": rank.count, "shard_rest": "uneven", **others}
    if part.num_workers:
        options["multiprocessing_context"] = start_method
    return DataLoader(
        dataset,
        batch_size=part.batch_size,
        num_workers=part.num_workers,
        worker_restarts=100,
        **options,
    )


def _element(worker: Elements, epoch: int, position: int, carried: dict[int, ShardState] | None) -> Any:
    """Return an element, or the exception that it raises."""
    try:
        return worker.at(epoch, position, carried)
    except ShardEndedError:
        raise
    except Exception as error:  # a user's function may raise anything
        return error


def _batch_difference(expected: dict[int, Any], positions: range, got: list[Any]) -> tuple[int, str] | None:
    """Return the first position where a batch differs, and the difference."""
    for (position, element), other in zip(expected.items(), got, strict=False):
        difference = first_difference(element, other)
        if difference is not None:
            return position, difference
    if len(expected) == len(got):
        return None
    surplus = len(got) - len(expected)
    if surplus < 0:
        position = list(expected)[len(got)]
        return position, f"expected {expected[position]!r:.200}, got no element: the batch has {len(got)} of {len(expected)}"
    return positions[-1], f"expected a batch of {len(expected)} elements, got {len(got)}: the last is {got[-1]!r:.200}"
