"""Equal cost on all ranks for streams in logical shards: `DataLoader` with ``balance="cost"``.

Costs are known only when elements have been computed, and each rank has the elements of its shards. So a rank reads steps
ahead, and chooses the elements of its next batch among those: for each position of a shard one of the outputs of this shard,
so that the sum of the costs is near a target. All ranks have nearly the same target, the mean cost of a batch so far.

    outputs of a shard   0  1  2  3  4  5  6  7        "x" is delivered, the next position is 4
                         x  x     x     x  .  .        chosen among 2, 4, and those read ahead: 6 and 7

Positions keep their shards, so states stay exact on any number of ranks: for each shard a state says which outputs have been
delivered. The choice is a function of the step and of the costs, never of the time at which they arrive.

Runs in the main process. Workers hold the elements; see `dali_like.sources.composed.held_outputs`. `ShardLedger`
knows the outputs of a shard, `BalancedPlan` makes requests of the choice, and asks for missing costs.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from dali_like.data.balancing import BalanceFigures, Candidate, chosen
from dali_like.data.plans import PositionsPlan, num_samples_of, pack_request
from dali_like.engine.memory.batch_key import BatchKey
from dali_like.engine.pool.batch import Batch
from dali_like.feed.shards import PositionsPart, PositionsRequest, ShardProgress, packed
from dali_like.sources.composed.held_outputs import HeldState, held_state
from dali_like.sources.composed.positions import num_delivered
from dali_like.sources.state_format import ENDED, ShardState

if TYPE_CHECKING:
    from dali_like.data.counters import LoaderCounters
    from dali_like.data.loader_workers import LoaderWorkers
    from dali_like.data.options import LoaderOptions
    from dali_like.data.plans import IteratorState
    from dali_like.data.position_sampler import PositionIterator
    from dali_like.data.sampler_iterators import SamplerIterator
    from dali_like.feed.shards import PositionsAnswer
    from dali_like.sources.composed.costs import Cost

__all__ = ["DEFAULT_WINDOW", "BalancedPlan", "ShardBalance"]

#: Steps that may be read ahead.
DEFAULT_WINDOW = 32


#: A heavy element is chosen in one step of so many windows, or once it is late by so many.
_WINDOWS_TO_HEAVY = 2
_MOST_WINDOWS = 4
#: The part of a difference between the candidates of a rank and the mean that a step makes up for, times their number. With
#: a standard deviation near the mean, the costs of all candidates then stay between the half and the double.
_DRIFT = 16


class ShardBalance:
    """How a loader balances the costs of ranks, and how well it does.

    Args:
        cost: measures elements.
        window: steps that may be read ahead, the next one included.

    Attributes:
        cost, window: as given.
        figures: of the steps so far.
    """

    def __init__(self, cost: Cost, window: int) -> None:
        self.cost = cost
        self.window = window
        self.figures = BalanceFigures()

    def note(self, cost: float, in_order: float, mean: float) -> None:
        """Count the costs of a batch: as it is, if its elements came in order, and the mean."""
        if mean:
            before = self.figures
            self.figures = before._replace(
                batches=before.batches + 1,
                deviations=before.deviations + abs(cost / mean - 1),
                deviations_in_order=before.deviations_in_order + abs(in_order / mean - 1),
            )


class ShardLedger:
    """The outputs of a logical shard in an epoch: which are known, which have been chosen, and which delivered.

    Args:
        saved: the state at the beginning.
        passed: outputs of the shard before the first step.

    Attributes:
        num_chosen: how many outputs have been chosen.
        known: all outputs before this number have been read, and their costs are known.
        requested: all outputs before this number have been requested.
        end: the number of outputs; None: unknown.
        open: candidates: the outputs before `until` that have not been chosen, in ascending order.
        cost, measured: the sum of the costs of the outputs before `until`, and how many are known.
    """

    def __init__(self, saved: ShardState, passed: int) -> None:
        held = held_state(saved.state) or HeldState(saved.state, saved.taken)
        passed = max(passed, saved.taken, saved.passed)
        self.end: int | None = None
        number = held.number
        if saved.state == ENDED:
            number = self.end = passed
            held = HeldState(ENDED, number)
        self._snapshots: deque[tuple[int, Any]] = deque([(number, held.state)])
        self._costs: dict[int, float] = {}
        self._gone = set(held.delivered)
        oldest = number
        while number + len(self._gone) < passed:  # delivered without a state, by a process that goes on in order
            if oldest not in self._gone:
                self._gone.add(oldest)
            oldest += 1
        self._chosen = set(self._gone)
        self.num_chosen = self._num_delivered = number + len(self._gone)
        self.known = self.requested = number
        self._later: dict[int, float] = {}
        self.until = number
        self.open: list[Candidate] = []
        self.cost, self.measured = held.cost, held.measured
        self._begin_cost, self._begin_measured = held.cost, held.measured

    @property
    def is_over(self) -> bool:
        """Whether all outputs have been delivered."""
        return self._num_delivered == self.end

    @property
    def begin(self) -> ShardState:
        """The state before the oldest output that may be wanted."""
        return ShardState(*self._snapshots[0])

    def knows(self, end: int) -> bool:
        """Return whether the costs of all outputs before a number are known."""
        return self.known >= (end if self.end is None else min(end, self.end))

    def note(self, first: int, costs: Iterable[float], state: ShardState, has_ended: bool) -> None:
        """Record the costs of outputs from the first one on, and the state behind all that has been read."""
        for number, cost in enumerate(costs, first):
            if number >= self.known:
                self._later[number] = cost
        while self.known in self._later:
            self._costs[self.known] = self._later.pop(self.known)
            self.known += 1
        if has_ended:
            self.end = state.taken
        if state.taken > self._snapshots[-1][0]:
            self._snapshots.append((state.taken, state.state))

    def extend(self, until: int) -> None:
        """Let outputs before a number be candidates, whose costs are known."""
        if self.end is not None:
            until = min(until, self.end)
        for number in range(self.until, until):
            cost = self._costs[number]
            self.cost += cost
            self.measured += 1
            if number not in self._chosen:
                insort(self.open, (cost, number))
        self.until = max(until, self.until)

    @property
    def open_cost(self) -> float:
        """The sum of the costs of the candidates."""
        return sum(cost for cost, _ in self.open)

    def choose(self, candidates: Sequence[Candidate]) -> None:
        """Note that candidates have been chosen."""
        for candidate in candidates:
            del self.open[bisect_left(self.open, candidate)]
            self._chosen.add(candidate[1])
        self.num_chosen += len(candidates)

    def in_order(self, count: int) -> float:
        """Return the cost of the next outputs, if they came in order."""
        return sum(self._costs[number] for number in range(self.num_chosen, self.num_chosen + count))

    def deliver(self, number: int) -> None:
        """Note that the program has got an output, or an exception in the place of its batch."""
        self._gone.add(number)
        self._num_delivered += 1

    def settle(self) -> None:
        """Forget the outputs before a later state, if all of them have been delivered."""
        snapshots, gone = self._snapshots, self._gone
        number = snapshots[0][0]
        while len(snapshots) > 1:
            following = snapshots[1][0]
            while number < following and number in gone:
                number += 1
            if number < following or following > self.until:
                return
            for old in range(snapshots.popleft()[0], following):
                self._begin_cost += self._costs.pop(old)
                self._begin_measured += 1
                gone.discard(old)
                self._chosen.discard(old)

    def state(self, until: int) -> ShardState:
        """Return the state behind the outputs that have been delivered.

        Args:
            until: see `HeldState`.
        """
        number, inner = self._snapshots[0]
        if self.is_over:
            return ShardState(self._num_delivered, ENDED)
        if not self._num_delivered and inner is None:
            return ShardState(0, None)
        held = HeldState(inner, number, sorted(self._gone), until, self._begin_cost, self._begin_measured)
        return ShardState(self._num_delivered, held.plain())


class _Choice(NamedTuple):
    """The outputs of a batch.

    Attributes:
        outputs: pairs of a shard and the number of an output.
        until: all positions before it were candidates.
    """

    outputs: list[tuple[int, int]]
    until: int


class LedgerProgress(ShardProgress):
    """The logical shards of a rank whose outputs are chosen by their costs.

    Args:
        num_shards, owned, begin, states, num_workers, drawn: see `ShardProgress`.
        balance: of the loader.

    Attributes:
        ledgers: by shard.
        until: all positions before it were candidates in the latest step that was delivered.
    """

    def __init__(
        self,
        num_shards: int,
        owned: Sequence[int],
        begin: int,
        states: Mapping[int, ShardState],
        num_workers: int,
        balance: ShardBalance,
        drawn: Sequence[int] | None,
    ) -> None:
        super().__init__(num_shards, owned, begin, states, num_workers, drawn=drawn)
        self._balance = balance
        self.ledgers = {
            shard: ShardLedger(states.get(shard, ShardState(0, None)), num_delivered(begin, shard, num_shards))
            for shard in owned
        }
        self._window = balance.window
        self.until = max([0, *[held.until for state in states.values() if (held := held_state(state.state)) is not None]])
        self._until = self.until
        self.states = _LedgerStates(self)  # type: ignore[assignment]

    @property
    def read_until(self) -> int:  # type: ignore[override]
        return max((ledger.requested for ledger in self.ledgers.values()), default=0) * self.num_shards

    def note(self, answers: Iterable[PositionsAnswer]) -> None:
        for answer in answers:
            for shard, state in answer.states.items():
                first, costs = answer.costs[shard]
                self.ledgers[shard].note(first, costs, state, shard in answer.ended)
        self._note_ends()

    def deliver(self, choice: _Choice) -> None:
        """Record that the program has got the outputs of a batch, or an exception in their place."""
        for shard, number in choice.outputs:
            self.ledgers[shard].deliver(number)
        for shard in {shard for shard, _ in choice.outputs}:
            self.ledgers[shard].settle()
        self.until = choice.until
        self._note_ends()

    def _note_ends(self) -> None:
        self.ended = {shard for shard, ledger in self.ledgers.items() if ledger.is_over}

    def horizon(self, begin: int, step: int) -> int:
        """Return the end of the positions that may be chosen for a step."""
        return max(self._until, begin + self._window * step)

    def lacks_costs(self, begin: int, step: int) -> bool:
        """Return whether the costs of some candidates for a step are unknown.

        Args:
            begin, step: the position of the step, and its positions of all ranks.
        """
        until, num_shards = self.horizon(begin, step), self.num_shards
        return not all(ledger.knows(num_delivered(until, shard, num_shards)) for shard, ledger in self.ledgers.items())

    def choose(self, positions: Sequence[int], begin: int, step: int) -> tuple[list[int], list[int], _Choice]:
        """Choose the outputs of a batch.

        Args:
            positions: of this rank in the step.
            begin, step: see `lacks_costs`.

        Returns:
            For each position the position of the output in its place; the places that have an output; and the choice.
        """
        num_shards, until = self.num_shards, self.horizon(begin, step)
        self._until = until
        for shard, ledger in self.ledgers.items():
            ledger.extend(num_delivered(until, shard, num_shards))
        places: dict[int, list[int]] = {}
        for place, position in enumerate(positions):
            number, shard = divmod(position, num_shards)
            ledger = self.ledgers[shard]
            if ledger.num_chosen <= number and (ledger.end is None or number < ledger.end):
                places.setdefault(shard, []).append(place)
        ledgers = [self.ledgers[shard] for shard in places]
        counts = list(map(len, places.values()))
        mean = self._mean_cost()
        target = sum(counts) * self._wanted_cost(mean)
        due = [ledger.num_chosen - _MOST_WINDOWS * (ledger.until - ledger.num_chosen) for ledger in ledgers]
        has_heavy = begin // step % (_WINDOWS_TO_HEAVY * self._balance.window) == 0
        found = chosen([ledger.open for ledger in ledgers], counts, target, due, has_heavy)
        in_order = sum(ledger.in_order(count) for ledger, count in zip(ledgers, counts, strict=True))
        self._balance.note(sum(cost for group in found for cost, _ in group), in_order, sum(counts) * mean)
        chosen_positions, outputs = list(positions), []
        for (shard, of_shard), candidates in zip(places.items(), found, strict=True):
            numbers = sorted(number for _, number in candidates)
            self.ledgers[shard].choose(candidates)
            for place, number in zip(of_shard, numbers, strict=True):
                chosen_positions[place] = number * num_shards + shard
                outputs.append((shard, number))
        return chosen_positions, sorted(place for mine in places.values() for place in mine), _Choice(outputs, until)

    def _mean_cost(self) -> float:
        """Return the mean cost of all elements so far, which is nearly the same on all ranks."""
        ledgers = self.ledgers.values()
        return sum(ledger.cost for ledger in ledgers) / max(sum(ledger.measured for ledger in ledgers), 1)

    def _wanted_cost(self, mean: float) -> float:
        """Return the mean cost of the elements of the next batch: that of all elements, and a little nearer to the mean of
        the candidates. Otherwise, their costs would drift away.
        """
        ledgers = self.ledgers.values()
        count = sum(len(ledger.open) for ledger in ledgers)
        if not count:
            return mean
        return mean + min(_DRIFT / count, 1.0) * (sum(ledger.open_cost for ledger in ledgers) / count - mean)

    def parts(self, positions: Sequence[int], places: Sequence[int], until: int) -> dict[int, PositionsPart]:
        """Return the part of each worker: its outputs of a batch, and those to be read ahead.

        Args:
            positions, places: as of `choose`.
            until: positions before it are read.
        """
        num_shards = self.num_shards
        mine: dict[int, list[int]] = {}
        for place in places:
            mine.setdefault(self._worker_of(positions[place] % num_shards), []).append(place)
        ahead: dict[int, dict[int, tuple[int, int]]] = {}
        for shard, ledger in self.ledgers.items():
            end = num_delivered(until, shard, num_shards)
            if ledger.end is not None:
                end = min(end, ledger.end)
            if end > ledger.requested:
                ahead.setdefault(self._worker_of(shard), {})[shard] = ledger.requested, end
                ledger.requested = end
        found = {}
        for worker in sorted(mine.keys() | ahead.keys()) or [0]:
            own, reads = mine.get(worker, []), ahead.get(worker, {})
            shards = {positions[place] % num_shards for place in own} | reads.keys()
            found[worker] = PositionsPart(own, {shard: self.ledgers[shard].begin for shard in shards}, reads)
        return found

    def _worker_of(self, shard: int) -> int:
        return self._workers_of[shard][0]

    def forget_requests(self) -> None:
        """Request all costs again that are unknown: a batch has failed, with the costs that it should have brought."""
        for ledger in self.ledgers.values():
            ledger.requested = ledger.known


class _LedgerStates(Mapping[int, ShardState]):
    """The states of the logical shards behind the latest batch, made when they are asked for."""

    def __init__(self, progress: LedgerProgress) -> None:
        self._progress = progress

    def __getitem__(self, shard: int) -> ShardState:
        return self._progress.ledgers[shard].state(self._progress.until)

    def __iter__(self) -> Iterator[int]:
        return iter(self._progress.ledgers)

    def __len__(self) -> int:
        return len(self._progress.ledgers)


class BalancedPlan(PositionsPlan):
    """Positions of a composed dataset in logical shards, in an order that makes the costs of the ranks nearly equal.

    A request for costs alone has no positions. It counts as no batch.
    """

    _progress: LedgerProgress

    #: Steps that are read before they are needed: the number of batches that may be in flight.
    _margin = 1
    _num_scouts = 0
    #: Answers a request in this process; None: workers do.
    answer: Callable[[PositionsRequest], PositionsAnswer] | None = None

    def __init__(
        self,
        options: LoaderOptions,
        state: IteratorState,
        indices: SamplerIterator[Any],
        counters: LoaderCounters,
        workers: LoaderWorkers | None = None,
    ) -> None:
        #: The choices of the batches in flight, by their numbers.
        self._choices: dict[int, _Choice] = {}
        super().__init__(options, state, indices, counters, workers)

    @property
    def _balance(self) -> ShardBalance:
        balance = self._sampler.balance
        assert isinstance(balance, ShardBalance)
        return balance

    def _new_progress(self, begun: PositionIterator) -> ShardProgress:
        sampler, balance = self._sampler, self._balance
        assert sampler.dataset.shards is not None
        return LedgerProgress(
            sampler.dataset.shards, sampler.owned, begun.begin, begun.states, self._options.num_workers, balance, begun.drawn
        )

    def _prepare_requests(self, workers: LoaderWorkers) -> None:
        super()._prepare_requests(workers)
        self._margin = max(workers.num_ahead or 0, self._options.num_ahead) + 2

    @property
    def is_ready(self) -> bool:  # type: ignore[override]
        step = self._next_step()
        return step is None or not self._progress.lacks_costs(*step) or not self._is_waiting

    def _next_step(self) -> tuple[int, int] | None:
        """Return the position of the next step, and its positions of all ranks; None at the end."""
        assert self.positions is not None
        return self.positions.next_step()

    @property
    def _is_waiting(self) -> bool:
        """Whether costs are on their way."""
        return bool(self._choices or self._num_scouts)

    def draw(self) -> PositionsRequest:
        self.start()
        assert self.answer is not None
        while not self.has_ended and (step := self._next_step()) is not None and self._progress.lacks_costs(*step):
            self._progress.forget_requests()
            request, _ = self._scout(None, *step)
            self.note_answers({0: self.answer(request)}, 0)
        return super().draw()

    def begin(self, turn: int) -> BatchKey:
        step = self._next_step()
        if step is None or not self._progress.lacks_costs(*step):
            return super().begin(turn)
        self._progress.forget_requests()  # nothing is on its way
        request, owners = self._scout(self._seed, *step)
        self._num_scouts += 1
        return BatchKey(
            0, self.number, request.number, 0, 1, turn=turn, request=pack_request(request), parts=1, owners=owners
        )

    def _scout(self, seed: int | None, begin: int, step: int) -> tuple[PositionsRequest, tuple[int, ...]]:
        """Return a request for costs alone, and the worker of each part."""
        parts = self._progress.parts([], [], self._read_until(begin, step))
        return self._request(seed, self.num_begun, [], packed(parts.values())), tuple(parts)

    def _draw_request(self, seed: int | None) -> tuple[PositionsRequest, tuple[int, ...]]:
        step = self._next_step()
        drawn = self._draw()
        assert step is not None
        positions, places, choice = self._progress.choose(drawn if self._options.batched else [drawn], *step)
        parts = self._progress.parts(positions, places, self._read_until(*step))
        number = self.num_begun
        self.num_begun += 1
        self._choices[number] = choice
        return self._request(seed, number, positions, packed(parts.values())), tuple(parts)

    def _read_until(self, begin: int, step: int) -> int:
        """Return the end of the positions to be read with a step."""
        # Larger batches before this one may have read further.
        return max(self._progress.horizon(begin, step), begin + (self._balance.window + self._margin) * step)

    def deliver(self, batch: Batch) -> None:
        if num_samples_of(batch.key):
            super().deliver(batch)
            self.note_delivered(batch.key.iteration)
        else:
            self._num_scouts -= 1

    def note_delivered(self, number: int) -> None:
        """Record that the program has got a batch, or an exception in its place."""
        self._progress.deliver(self._choices.pop(number))
        self.has_ended = self._progress.is_at_end

    def note_answers(self, answers: Mapping[int, Any], size: int) -> bool:
        is_batch = super().note_answers(answers, size)
        return bool(size) and is_batch
