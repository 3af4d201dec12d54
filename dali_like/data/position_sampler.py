"""The batches of a composed dataset on one rank, as positions: a loader's batch sampler.

Runs in the main process. The arithmetic is that of `dali_like.sources.composed.positions`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dali_like.common.checks import not_negative
from dali_like.data.sampler_iterators import SamplerIterator, count_in
from dali_like.data.samplers import Sampler
from dali_like.errors import ArgumentClashError, ArgumentError, CheckpointError
from dali_like.sources.composed.dataset import ComposedDataset
from dali_like.sources.composed.positions import check_ranks, owned_shards
from dali_like.sources.composed.states import make_state, shard_states
from dali_like.sources.ranks import choose_shard
from dali_like.sources.sharding import Division, Rest, Shard
from dali_like.sources.state_format import ShardState

__all__ = ["PositionIterator", "PositionSampler"]

#: Treatments of the end of an epoch on several ranks.
_RESTS = ("drop", "pad", "uneven", "count")


class PositionSampler(Sampler[Any]):
    """Yields the positions of the batches of one rank; without batches, single positions.

    Each iterator is one epoch, and the next one is the next epoch.

    Args:
        dataset: composed.
        batch_size: positions in a batch of one rank; None: no batches.
        drop_last: whether to drop batches with fewer elements.
        shard_id, num_shards: number of this rank, and number of ranks. None: see `dali_like.sources.ranks.detect_shard`.
        shard_rest, mesh, mesh_dims: see `dali_like.data.DataLoader`.

    Raises:
        ArgumentError, ArgumentClashError: an argument has a wrong value; the number of ranks does not divide the logical
            shards; or `shard_rest` is missing.
    """

    def __init__(
        self,
        dataset: ComposedDataset,
        batch_size: int | None,
        drop_last: bool = False,
        shard_id: int | None = None,
        num_shards: int | None = None,
        shard_rest: str | None = None,
        mesh: Any = None,
        mesh_dims: str | int | Sequence[str | int] | None = None,
    ) -> None:
        auto = "auto" if shard_id is None and num_shards is None and mesh is None else None
        rank, _ = choose_shard(auto, shard_id, num_shards, None, mesh, mesh_dims)
        assert rank is not None
        if shard_rest not in (None, *_RESTS):
            raise ArgumentError(f"shard_rest must be one of {', '.join(map(repr, _RESTS))}, not {shard_rest!r}")
        self.dataset = dataset
        self.length = dataset.length  # read here: stages keep it, and a later change would look like another dataset
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.rank = rank
        self.rest = _rest_for(dataset, rank, shard_rest)
        self.epoch = 0
        self._start: dict[str, Any] | None = None
        #: The numbers of outputs of all logical shards, in the epoch that was counted last.
        self._counted: tuple[int, list[int]] | None = None

    @property
    def step(self) -> int:
        """Positions in a step of all ranks together."""
        return (self.batch_size or 1) * self.rank.count

    @property
    def owned(self) -> range:
        """The logical shards of this rank; empty for a stream with random access."""
        return range(0) if self.dataset.shards is None else owned_shards(self.dataset.shards, self.rank)

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iterator. A position that was loaded for another epoch is dropped."""
        self.epoch = not_negative("epoch", epoch)
        if self._start is not None and self._start["epoch"] != self.epoch:
            self._start = None

    def __iter__(self) -> PositionIterator:
        start, self._start = self._start, None
        if start is None:
            begun = PositionIterator(self, self.epoch, 0, {}, None)
        else:
            begun = PositionIterator(
                self, start["epoch"], start["position"], shard_states(start, self.owned), start.get("counts")
            )
        self.epoch = begun.epoch + 1
        return begun

    def counts(self, epoch: int, known: list[int] | None) -> list[int]:
        """Return the numbers of outputs of all logical shards in an epoch. They are counted if they are not known yet.

        Args:
            known: the numbers in a state of this epoch.
        """
        if known is None:
            counted = self._counted
            is_kept = counted is not None and (counted[0] == epoch or not self.dataset.count_varies)
            known = counted[1] if counted is not None and is_kept else self.dataset.count_outputs(epoch)
        self._counted = epoch, known
        return known

    def __len__(self) -> int:
        """Return the number of batches of this rank in an epoch.

        Raises:
            TypeError: the stream is endless, or its length is unknown.
        """
        sizes = self.division(len(self.dataset)).sizes()
        return sizes.num_batches - (self.drop_last and sizes.last < (self.batch_size or 1))

    def division(self, length: int | None) -> Division:
        """Return the part of this rank of an epoch with so many positions; None: it is endless."""
        # With "count", the epoch ends with the first shard that does.
        rest = Rest.DROP if self.rest == "count" else Rest(self.rest)
        return Division(length, self.batch_size or 1, self.rank, rest, is_striped=True)

    def start_from(self, state: Mapping[str, Any]) -> None:
        """Let the next iterator continue from a checked state.

        Raises:
            CheckpointError: a logical shard of this rank is missing.
        """
        shard_states(state, self.owned)
        self._start = dict(state)
        self.epoch = state["epoch"]

    def state(
        self, begun: PositionIterator | None, num_batches: int, is_over: bool, states: Mapping[int, ShardState]
    ) -> dict[str, Any]:
        """Return the state behind so many batches of an iterator. Behind its end, that of the next epoch.

        Args:
            states: the latest known states of the logical shards of this rank.
        """
        dataset, start = self.dataset, self._start
        if begun is not None and not is_over:
            epoch, position, counts = begun.epoch, begun.begin + num_batches * self.step, begun.counts
        elif start is not None:
            epoch, position, counts = start["epoch"], start["position"], start.get("counts")
            states = shard_states(start, self.owned)
        else:
            epoch, position, counts, states = self.epoch, 0, None, {}
        known = {shard: states.get(shard, ShardState(0, None)) for shard in self.owned}
        state = make_state(dataset.description, dataset.seed, dataset.shards, epoch, position, known, self.rank)
        return state if counts is None else {**state, "counts": counts}


class PositionIterator(SamplerIterator[Any]):
    """Yields the batches of positions in one epoch: absolute ones for a stream with random access, else those in the epoch.

    Attributes:
        epoch: its number.
        begin: the position of its first step.
        states: states of logical shards at its beginning.
        counts: the numbers of outputs of all logical shards in the epoch; None if they were not counted.
    """

    yields_positions = True

    def __init__(
        self,
        sampler: PositionSampler,
        epoch: int,
        begin: int,
        states: Mapping[int, ShardState],
        counts: list[int] | None,
    ) -> None:
        self.epoch = epoch
        self.begin = begin
        self.states = states
        self.counts = counts
        self._sampler = sampler
        self._taken = 0
        dataset = sampler.dataset
        self._length = sampler.length
        if dataset.shards is not None and sampler.rest in ("count", "pad") and not dataset.is_endless:
            self.counts = sampler.counts(epoch, counts)
            self._length = _end_of(self.counts, sampler.rest)
        self._division = sampler.division(self._length)

    def __next__(self) -> Any:
        sampler, division = self._sampler, self._division
        begin = self.reached
        count = division.count(begin)
        if not count or (sampler.drop_last and count < division.size):
            raise StopIteration
        positions: Any = sampler.rank.stripe(begin, division.size)[:count]
        if self._length is not None and sampler.rest == "pad":
            positions = [self._padded(position) for position in positions]
        self._taken += 1
        if sampler.dataset.shards is None and self.epoch:
            first = self.epoch * (sampler.dataset.length or 0)
            positions = [first + position for position in positions]
        return positions[0] if sampler.batch_size is None else list(positions)

    @property
    def reached(self) -> int:
        """The position of the next step in the epoch."""
        return self.begin + self._taken * self._sampler.step

    def skip(self, count: int) -> None:
        self._taken += count

    def finish(self) -> None:
        """The end of the epoch leaves nothing in the sampler."""

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "begin": self.begin, "taken": self._taken}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self._taken = count_in(state_dict, "taken")

    def _padded(self, position: int) -> int:
        """Return the position whose element fills a position: itself, unless it is empty."""
        length = self._length
        assert length is not None
        if self.counts is None:
            return position % length
        num_shards = len(self.counts)
        number, shard = divmod(position, num_shards)
        if number < self.counts[shard]:
            return position
        for other in (shard, *self._sampler.owned):
            if self.counts[other]:
                return int(number % self.counts[other] * num_shards + other)
        raise CheckpointError("no logical shard of this rank has an element; use fewer ranks, or fewer logical shards")


def _end_of(counts: list[int], rest: str) -> int:
    """Return the first empty position; with "pad", the position behind the last element."""
    num_shards = len(counts)
    if rest == "count":
        return min(count * num_shards + shard for shard, count in enumerate(counts))
    return max(((count - 1) * num_shards + shard + 1 for shard, count in enumerate(counts) if count), default=0)


def _rest_for(dataset: ComposedDataset, rank: Shard, rest: str | None) -> str:
    """Return the treatment of the end of an epoch.

    Raises:
        ArgumentError: the number of ranks does not divide the logical shards; or the treatment is unknown.
        ArgumentClashError: the treatment must be named, or does not fit.
    """
    if dataset.shards is None:
        if rest == "count":
            raise ArgumentClashError('shard_rest="count" is for streams of unknown length; the length of this one is known')
        return rest or ("uneven" if rank.count == 1 else "drop")
    check_ranks(dataset.shards, rank.count)
    if rank.count > 1 and not dataset.is_endless and rest in (None, "drop"):
        raise ArgumentClashError(
            f"the number of elements of this stream is unknown, and {rank.count} ranks share it. Pass "
            'shard_rest="count" (all ranks have equally many batches; counts the elements first), "pad" (the same, filled '
            'up with repeated elements), or "uneven" (some ranks end earlier); or describe an endless stream with repeat()'
        )
    return rest or "uneven"
