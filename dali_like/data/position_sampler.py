"""The batches of a composed dataset on one rank, as positions: a loader's batch sampler.

Runs in the main process. The arithmetic is that of `dali_like.sources.composed.positions`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dali_like.common.checks import not_negative, positive
from dali_like.data.batch_sizes import SizeFrom, SizeSchedule, Steps
from dali_like.data.sampler_iterators import SamplerIterator, count_in
from dali_like.data.samplers import Sampler
from dali_like.errors import ArgumentClashError, ArgumentError, ArgumentTypeError, CheckpointError
from dali_like.sources.composed.dataset import ComposedDataset
from dali_like.sources.composed.draws import listed_changes
from dali_like.sources.composed.positions import check_ranks, owned_shards
from dali_like.sources.composed.stage import WeightChange, WeightChanges
from dali_like.sources.composed.states import make_state, shard_states
from dali_like.sources.ranks import choose_shard
from dali_like.sources.sharding import Division, Rest, Shard
from dali_like.sources.state_format import ShardState

if TYPE_CHECKING:
    from dali_like.data.balancing import Balance
    from dali_like.data.shard_balance import ShardBalance

__all__ = ["PositionIterator", "PositionSampler"]

#: Treatments of the end of an epoch on several ranks.
_RESTS = ("drop", "pad", "uneven", "count")


class PositionSampler(Sampler[Any]):
    """Yields the positions of the batches of one rank, mostly as ranges; without batches, single positions.

    Each iterator is one epoch, and the next one is the next epoch.

    Args:
        dataset: composed.
        batch_size: positions in a batch of one rank; None: no batches.
        drop_last: whether to drop batches with fewer elements.
        shard_id, num_shards: number of this rank, and number of ranks. None: see `dali_like.sources.ranks.detect_shard`.
        shard_rest, balance, costs, balance_window, weights_file, mesh, mesh_dims: see `dali_like.data.DataLoader`.
        sizes: batch sizes by position, in place of `batch_size`.

    Attributes:
        sizes: batch sizes by position. It is replaced when they change.
        changes: of the weights of mixtures. They are replaced when weights are set.
        balance: deals the elements of a step to the ranks; None: each has its stripe.

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
        balance: str | None = None,
        costs: Any = None,
        balance_window: int | None = None,
        weights_file: Any = None,
        mesh: Any = None,
        mesh_dims: str | int | Sequence[str | int] | None = None,
        *,
        sizes: SizeSchedule | None = None,
    ) -> None:
        auto = "auto" if shard_id is None and num_shards is None and mesh is None else None
        rank, _ = choose_shard(auto, shard_id, num_shards, None, mesh, mesh_dims)
        assert rank is not None
        if shard_rest not in (None, *_RESTS):
            raise ArgumentError(f"shard_rest must be one of {', '.join(map(repr, _RESTS))}, not {shard_rest!r}")
        self.dataset = dataset
        self.length = dataset.length  # read here: stages keep it, and a later change would look like another dataset
        self.is_batched = batch_size is not None
        self.sizes = SizeSchedule.fixed(batch_size or 1) if sizes is None else sizes
        self.drop_last = drop_last
        self.rank = rank
        self.has_mesh = mesh is not None
        self.rest = _rest_for(dataset, rank, shard_rest)
        if self.rest == "drop" and shard_rest is None and sizes is None:
            _say_left_out(self.length, rank.count, batch_size or 1)
        self.changes = WeightChanges()
        if weights_file is not None:
            from dali_like.data.weights_file import check_weights_file  # few programs need it

            check_weights_file(weights_file, dataset, rank.count, self.rest)
        self.balance = _balance_for(dataset, balance, costs, balance_window, self.rest)
        self.epoch = 0
        self._start: dict[str, Any] | None = None
        #: The numbers of outputs of all logical shards, in the epoch that was counted last.
        self._counted: tuple[int, list[int]] | None = None

    @property
    def batch_size(self) -> int | None:
        """The largest batch size; None without batches. Programs may set the size of the next iterators."""
        return self.sizes.largest if self.is_batched else None

    @batch_size.setter
    def batch_size(self, batch_size: int) -> None:
        self.sizes = SizeSchedule.fixed(positive("batch_size", batch_size))

    def steps(self, epoch: int) -> Steps:
        """Return the steps of an epoch."""
        return self.sizes.steps(epoch, self.rank.count)

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
            begun = PositionIterator(self, self.epoch, 0, {}, None, ())
        else:
            begun = PositionIterator(
                self,
                start["epoch"],
                start["position"],
                shard_states(start, self.owned),
                start.get("counts"),
                start.get("drawn"),
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
        """Return the number of batches of this rank in the epoch that begins next.

        Raises:
            TypeError: the stream is endless, or its length is unknown.
        """
        length, steps = len(self.dataset), self.steps(self.epoch)
        count = steps.between(0, length)
        if not count:
            return 0
        last = steps.after(0, count - 1)
        return count - (not self.fills(self.division(length, steps.sizes[steps.piece(last)]), last))

    def division(self, length: int | None, size: int) -> Division:
        """Return the part of this rank of an epoch with so many positions, in batches of a size; None: it is endless."""
        # With "count", the epoch ends with the first shard that does.
        rest = Rest.DROP if self.rest == "count" else Rest(self.rest)
        return Division(length, size, self.rank, rest, is_striped=True)

    def fills(self, division: Division, begin: int) -> int:
        """Return the size of the batch of this rank in the step that begins at a position; 0 without a batch."""
        count = division.count(begin)
        return 0 if self.drop_last and count < division.size else count

    def start_from(self, state: Mapping[str, Any]) -> None:
        """Let the next iterator continue from a checked state.

        Raises:
            CheckpointError: a logical shard of this rank is missing.
        """
        shard_states(state, self.owned)
        self.sizes = self.sizes.with_changes(state.get("batch_sizes", ()), self.rank.count)
        self.set_changes(self.dataset.changes_in(state))
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
            epoch, counts, drawn = begun.epoch, begun.counts, begun.drawn
            position = self.steps(epoch).after(begun.begin, num_batches)
        elif start is not None:
            epoch, position, counts = start["epoch"], start["position"], start.get("counts")
            drawn = start.get("drawn")
            states = shard_states(start, self.owned)
        else:
            epoch, position, counts, states, drawn = self.epoch, 0, None, {}, ()
        known = {shard: states.get(shard, ShardState(0, None)) for shard in self.owned}
        state = make_state(dataset.description, dataset.seed, dataset.shards, epoch, position, known, self.rank)
        if counts is not None:
            state["counts"] = counts
        # Even if it is empty: torch.distributed.checkpoint loads the keys that a new loader has.
        state["batch_sizes"] = self.sizes.listed(epoch, position, self.rank.count)
        state["changes"] = listed_changes(self.changes.items)
        if drawn is not None:
            state["drawn"] = list(drawn)
        return state

    def set_changes(self, items: Sequence[WeightChange]) -> None:
        """Replace the changes of weights."""
        if items or self.changes.items:
            self.changes = WeightChanges(self.changes.version + 1, tuple(items))

    @property
    def start(self) -> Mapping[str, Any] | None:
        """The state from which the next iterator continues; None: it is at the beginning of an epoch."""
        return self._start

    def set_batch_size(self, change: SizeFrom) -> None:
        """Let batches have another size from a step on, and forget sizes that should have begun later."""
        self.sizes = self.sizes.changed(change)

    def next_step(self, begun: PositionIterator | None) -> tuple[int, int]:
        """Return epoch and position of the first step that has not been drawn.

        Args:
            begun: the iterator of the epoch in progress; None: the next epoch has not begun.
        """
        if begun is not None:
            return (begun.epoch + 1, 0) if begun.has_ended else (begun.epoch, begun.reached)
        return (self.epoch, 0) if self._start is None else (self._start["epoch"], self._start["position"])


class PositionIterator(SamplerIterator[Any]):
    """Yields the batches of positions in one epoch: absolute ones for a stream with random access, else those in the epoch.

    Attributes:
        epoch: its number.
        begin: the position of its first step.
        states: states of logical shards at its beginning.
        counts: the numbers of outputs of all logical shards in the epoch; None if they were not counted.
        reached: the position of the next step in the epoch.
        drawn: how far mixtures in logical shards have been drawn for the batches taken so far; see
            `dali_like.sources.composed.draws.Watch.ends`. None: unknown, behind a state that does not tell it.
    """

    yields_positions = True

    def __init__(
        self,
        sampler: PositionSampler,
        epoch: int,
        begin: int,
        states: Mapping[int, ShardState],
        counts: list[int] | None,
        drawn: Sequence[int] | None = None,
    ) -> None:
        self.drawn = drawn
        self.epoch = epoch
        self.begin = begin
        self.states = states
        self.counts = counts
        self._sampler = sampler
        self._taken = 0
        self.reached = begin
        dataset = sampler.dataset
        self._length = sampler.length
        if dataset.shards is not None and sampler.rest in ("count", "pad") and not dataset.is_endless:
            self.counts = sampler.counts(epoch, counts)
            self._length = _end_of(self.counts, sampler.rest)
        #: With "pad", positions from here on may repeat others.
        self._first_empty = (self._length or 0) if self.counts is None else _end_of(self.counts, "count")
        self._follow()

    def _follow(self) -> None:
        """Follow the batch sizes of the sampler from the next step on."""
        sampler = self._sampler
        self._sizes = sampler.sizes
        self._steps = steps = sampler.steps(self.epoch)
        piece = steps.piece(self.reached)
        self._division = sampler.division(self._length, steps.sizes[piece])
        self._end_of_size = steps.end_of(piece)

    @property
    def changes(self) -> WeightChanges | None:
        """The changes of the weights of mixtures; None if there have never been any."""
        changes = self._sampler.changes
        return changes if changes.version else None

    @property
    def has_ended(self) -> bool:
        """Whether there are no more steps."""
        return not self._next_count()

    def _next_count(self) -> int:
        """Return the size of the next batch; 0 at the end."""
        if self._sampler.sizes is not self._sizes or (self._end_of_size is not None and self.reached >= self._end_of_size):
            self._follow()
        return self._sampler.fills(self._division, self.reached)

    def __next__(self) -> Any:
        count = self._next_count()
        if not count:
            raise StopIteration
        sampler, division = self._sampler, self._division
        if sampler.balance is None or sampler.dataset.shards is not None:
            positions = self._stripe(division, count)
        else:
            balance: Balance = sampler.balance  # type: ignore[assignment]
            ranks = [division._replace(shard=Shard(rank, sampler.rank.count)) for rank in range(sampler.rank.count)]
            stripes = [self._stripe(each, each.count(self.reached)) for each in ranks]
            positions = balance.deal(stripes, sampler.rank.id)
        self._taken += 1
        self.reached += division.step
        return positions if sampler.is_batched else positions[0]

    def next_step(self) -> tuple[int, int] | None:
        """Return the position of the next step, and its positions of all ranks; None at the end."""
        return (self.reached, self._division.step) if self._next_count() else None

    def _stripe(self, division: Division, count: int) -> Sequence[int]:
        """Return the positions of a rank in the next step, if it has its stripe."""
        sampler = self._sampler
        positions: Sequence[int] = division.shard.stripe(self.reached, division.size)[:count]
        if self._length is not None and sampler.rest == "pad" and positions[-1] >= self._first_empty:
            positions = [self._padded(position) for position in positions]
        if sampler.dataset.shards is None and self.epoch:
            first = self.epoch * (sampler.dataset.length or 0)
            if type(positions) is range:
                return range(first + positions.start, first + positions.stop, positions.step)
            positions = [first + position for position in positions]
        return positions

    def skip(self, count: int) -> None:
        self._taken += count
        self.reached = self._steps.after(self.reached, count)

    def finish(self) -> None:
        """The end of the epoch leaves nothing in the sampler."""

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "begin": self.begin, "taken": self._taken}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self._taken = count_in(state_dict, "taken")
        self.reached = self._steps.after(self.begin, self._taken)

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


def _balance_for(
    dataset: ComposedDataset, balance: str | None, costs: Any, window: int | None, rest: str
) -> Balance | ShardBalance | None:
    """Return the dealer of elements to ranks, if there is one.

    Raises:
        ArgumentError, ArgumentTypeError: the costs do not fit, or `balance` has a wrong value.
        ArgumentClashError: elements have no random access, or their costs are unknown; or there are costs without balance.
    """
    if balance is None:
        for name, value in (("costs", costs), ("balance_window", window)):
            if value is not None:
                raise ArgumentClashError(f'{name} is for balance="cost": pass it, too')
        return None
    if balance != "cost":
        raise ArgumentError(f'balance must be "cost" or None, not {balance!r}')
    if dataset.shards is not None:
        return _shard_balance_for(dataset, costs, window, rest)
    if window is not None:
        raise ArgumentClashError(
            "balance_window is for streams in logical shards: with random access, nothing is read ahead"
        )
    from dali_like.data.balancing import Balance  # few programs need it

    return Balance(dataset.costs_by_position(costs))


def _shard_balance_for(dataset: ComposedDataset, costs: Any, window: int | None, rest: str) -> ShardBalance:
    """Return how the elements of logical shards are chosen by their costs.

    Raises:
        ArgumentTypeError, ArgumentError, ArgumentClashError: see `_balance_for`.
    """
    from dali_like.data.shard_balance import DEFAULT_WINDOW, ShardBalance  # few programs need it
    from dali_like.sources.composed.costs import Cost

    if not callable(costs):
        raise ArgumentTypeError(
            'balance="cost" needs costs=, a function that returns the cost of an element, for a stream in logical shards: '
            f"which elements it has is not known before. Got {costs!r:.200}"
        )
    if dataset.is_columnar:
        raise ArgumentClashError('balance="cost" needs single elements, and those of this stream are rows of record batches')
    if rest == "pad":
        raise ArgumentClashError('balance="cost" cannot repeat elements at the end: pass shard_rest="count" or "uneven"')
    return ShardBalance(Cost(costs), DEFAULT_WINDOW if window is None else positive("balance_window", window))


def _say_left_out(length: int | None, num_ranks: int, batch_size: int) -> None:
    """Say in the log how many elements each epoch leaves out by default."""
    if length is None or not (left_out := length % (num_ranks * batch_size)):
        return
    import logging  # rarely needed, and slow to import

    logging.getLogger("dali_like").warning(
        "each epoch leaves out %d of %d elements: they do not fill a batch of %d on each of %d ranks. To get them, pass "
        'shard_rest="pad" or "uneven"; to silence this line, "drop"',
        left_out,
        length,
        batch_size,
        num_ranks,
    )


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
