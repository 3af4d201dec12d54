"""Batches of a composed dataset in logical shards: which worker computes which positions, and the state behind them.

A batch consists of positions of several logical shards. Each shard has one worker, so its walk stays open there. A request
has a part, and the batch a task, for each worker that has some of the positions::

    positions of the batch   0  2  4  6  8        rank 0 of 2, two workers
    logical shards           0  2  4  6  8
    workers                  0  1  0  1  0        parts: worker 0 for 0, 4, 8; worker 1 for 2, 6

If a rank has fewer shards than workers, and the last stage is a map, several workers share a shard. Each has a walk through
it, calls the function of the map for its own positions, and skips the others.

The rows of a stream in columns are named by ranges of places, one for each shard: `dali_like.sources.composed.row_pieces`.

A part carries the latest known states of its shards, and the answer the states behind it. So a new worker continues where a
dead one was, and the state of a rank consists of the states that came with the batches taken so far.

The messages travel in both directions. `ShardProgress` is in the main process; `take_part` evaluates a part.
"""

from __future__ import annotations

import functools
import itertools
import math
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

if TYPE_CHECKING:
    from dali_like.sources.composed.part_walk import PartWalk
    from dali_like.sources.composed.row_pieces import RowPieces, Runs
    from dali_like.sources.composed.stage import WeightChanges
    from dali_like.sources.composed.stream import Elements
    from dali_like.sources.state_format import ShardState


class PositionsRequest(NamedTuple):
    """Requests a batch of a composed dataset that runs in logical shards, from the workers of these shards.

    Attributes:
        seed: of the epoch; None: leave the global generators alone.
        number: of the batch in the epoch.
        epoch: of the dataset.
        positions: in the epoch; the row of each is its place in this list.
        fills_rows: whether elements of the expected schema go to rows.
        parts: for each task a pickled `PositionsPart`.
        changes: of the weights of mixtures; None: there have never been any.
    """

    seed: int | None
    number: int
    epoch: int
    positions: Sequence[int]
    fills_rows: bool = False
    parts: tuple[bytes, ...] = ()
    changes: WeightChanges | None = None


class PositionsPart(NamedTuple):
    """The part of a `PositionsRequest` for one worker.

    Attributes:
        places: of its positions in the request, ascending; of rows in columns, `dali_like.sources.composed.row_pieces.Runs`.
        states: the latest known states of their shards.
        ahead: for a stream whose outputs are chosen by their costs: for each shard of the worker the first output whose cost
            is wanted, and the end of those to be read; see `dali_like.data.shard_balance`. None: outputs come in order.
    """

    places: Sequence[int]
    states: Mapping[int, ShardState]
    ahead: Mapping[int, tuple[int, int]] | None = None


class _WorkerPlaces(NamedTuple):
    """The places of a batch that belong to a worker, also pickled, and their logical shards."""

    places: Sequence[int]
    shards: set[int]
    packed: bytes

    @classmethod
    def of(cls, places: Sequence[int], shards: set[int]) -> _WorkerPlaces:
        return cls(places, shards, pickle.dumps(places, pickle.HIGHEST_PROTOCOL))


class PositionsAnswer(NamedTuple):
    """The elements of a `PositionsPart`.

    Attributes:
        found: the places of the positions that are not empty: ascending, or the runs of rows in columns.
        texts: the texts of the elements in rows, as `found` has them: one list for each text of the schema.
        others: all elements from the first one on that is not in its row, unless they are collated. Of rows in columns, all
            of the part: `dali_like.sources.composed.row_pieces.RowPieces`.
        states: of the shards behind these positions.
        ended: the shards at their end.
        collated: the batch, if the worker has collated it.
        drawn: how far mixtures have been drawn; see `dali_like.sources.composed.draws.Watch.ends`.
        costs: for shards that are read ahead, the first output with a new cost, and the costs from there on.
    """

    found: Sequence[int]
    texts: list[list[Any]]
    others: Sequence[Any]
    states: dict[int, ShardState]
    ended: list[int]
    collated: tuple[Any, ...] = ()
    drawn: tuple[int, ...] = ()
    costs: Mapping[int, tuple[int, list[float]]] = {}

    def __reduce__(self) -> Any:
        """Pickle the states as plain tuples: a named tuple takes several times as long."""
        states = {shard: tuple(state) for shard, state in self.states.items()}
        return _answer_of, (self.found, self.texts, self.others, states, self.ended, self.collated, self.drawn, self.costs)

    @property
    def in_rows(self) -> Sequence[int]:
        """The places of the elements in rows."""
        return self.found[: len(self.found) - len(self.others)] if self.others else self.found


def _answer_of(
    found: Sequence[int],
    texts: list[list[Any]],
    others: Sequence[Any],
    states: dict[int, tuple[Any, ...]],
    ended: list[int],
    collated: tuple[Any, ...],
    drawn: tuple[int, ...],
    costs: Mapping[int, tuple[int, list[float]]],
) -> PositionsAnswer:
    from dali_like.sources.state_format import ShardState  # few programs need it

    known = {shard: ShardState(*state) for shard, state in states.items()}
    return PositionsAnswer(found, texts, others, known, ended, collated, drawn, costs)


class _PackedStates(Mapping[int, "ShardState"]):
    """States in a part, which are unpickled when one is needed: mostly, the worker's walk stands there already."""

    def __init__(self, text: bytes) -> None:
        self._text = text

    @functools.cached_property
    def _states(self) -> dict[int, ShardState]:
        from dali_like.sources.state_format import ShardState  # few programs need it

        return {shard: ShardState(*state) for shard, state in pickle.loads(self._text).items()}

    def __getitem__(self, shard: int) -> ShardState:
        return self._states[shard]

    def __iter__(self) -> Iterator[int]:
        return iter(self._states)

    def __len__(self) -> int:
        return len(self._states)


#: Limit of different first positions of a batch for which the places of workers are kept.
_MOST_PATTERNS = 1024
#: Limit of different places that a worker keeps.
_MOST_UNPACKED = 128


class ShardProgress:
    """The logical shards of a rank in one epoch: their workers, their ends, and their states behind the batches taken.

    Args:
        num_shards: logical shards of the dataset.
        owned: those of this rank.
        begin: the position of the first step.
        states: the known states of the shards there.
        num_workers: workers of this rank; 0: this process computes the elements.
        is_shared: whether several workers may share a shard: the last stage is a map.
        is_padded: whether no position is empty.
        in_columns: whether the elements are rows that are taken in columns.
        drawn: how far mixtures have been drawn; None: unknown.

    Attributes:
        states: the latest known state of each shard.
        ended: the shards at their end.
        drawn: how far mixtures have been drawn, as far as it is known.
        reported: the shards of which it is known.
        read_until: positions below it may have been read ahead.
    """

    read_until = 0

    def __init__(
        self,
        num_shards: int,
        owned: Sequence[int],
        begin: int,
        states: Mapping[int, ShardState],
        num_workers: int = 0,
        *,
        is_shared: bool = False,
        is_padded: bool = False,
        in_columns: bool = False,
        drawn: Sequence[int] | None = None,
    ) -> None:
        from dali_like.sources.composed.stream import outputs_ahead  # few programs need it
        from dali_like.sources.state_format import ENDED

        self.num_shards = num_shards
        self.states: dict[int, ShardState] = dict(states)
        self.ended = {shard for shard, state in states.items() if state.state == ENDED}
        self.drawn: tuple[int, ...] = tuple(drawn or ())
        self._has_reported = False
        self.reported = {shard for shard, state in states.items() if drawn is not None or state.state in (None, ENDED)}
        self._ahead = outputs_ahead(states, begin, num_shards)
        self._ahead_before = max((count * num_shards + shard for shard, count in self._ahead.items()), default=0)
        self._num_owned = len(owned)
        self._is_padded, self._in_columns = is_padded, in_columns
        #: Increases with each change of the states.
        self.version = 0
        count = max(num_workers, 1)
        step = len(owned) if is_shared else count
        self._workers_of = {shard: range(place % count, count, step) for place, shard in enumerate(owned)}
        #: By the remainder of the first position, and the number of positions: the places of each worker.
        self._patterns: dict[tuple[int, int], dict[int, _WorkerPlaces]] = {}
        self._num_ended = 0

    @property
    def has_reported(self) -> bool:
        """Whether it is known of all shards how far mixtures have been drawn. That stays so."""
        if not self._has_reported:
            self._has_reported = self.states.keys() <= self.reported | self.ended
        return self._has_reported

    @property
    def is_at_end(self) -> bool:
        """Whether all shards of this rank have ended. Padded positions are never empty."""
        return not self._is_padded and len(self.ended) == self._num_owned

    def remaining(self, positions: Sequence[int]) -> list[int]:
        """Return the places of the positions that may have an element."""
        self._forget_ahead(positions)
        if self._is_padded or not (self.ended or self._ahead):
            return list(range(len(positions)))
        num_shards, ended, ahead = self.num_shards, self.ended, self._ahead
        return [
            place
            for place, position in enumerate(positions)
            if position % num_shards not in ended and position // num_shards >= ahead.get(position % num_shards, 0)
        ]

    def _forget_ahead(self, positions: Sequence[int]) -> None:
        if self._ahead and positions[0] >= self._ahead_before:
            self._ahead.clear()

    @property
    def is_ahead(self) -> bool:
        """Whether positions of shards that have not ended may be empty."""
        return bool(self._ahead)

    @functools.cached_property
    def period(self) -> int:
        """The number of positions after which their workers repeat, if no shard is ahead and no further one ends."""
        return self.num_shards * math.lcm(*(len(among) for among in self._workers_of.values()))

    def shards_of(self, worker: int) -> list[int]:
        """Return the logical shards of a worker."""
        return [shard for shard, among in self._workers_of.items() if worker in among]

    def by_worker(self, positions: Sequence[int]) -> dict[int, bytes]:
        """Return the part of each worker that has some of the positions of a batch; an empty part if no worker has any.

        `unpacked` returns the `PositionsPart`.
        """
        states = self.states
        return {
            worker: _packed(mine.packed, {shard: states[shard] for shard in mine.shards if shard in states}, None)
            for worker, mine in self._pattern(positions).items()
        }

    def places_by_worker(self, positions: Sequence[int]) -> dict[int, Sequence[int]]:
        """Return the places in a batch that belong to each worker which has any; no places of some worker if none has."""
        return {worker: mine.places for worker, mine in self._pattern(positions).items()}

    def _pattern(self, positions: Sequence[int]) -> dict[int, _WorkerPlaces]:
        """Return what `places_by_worker` does, with shards. It repeats, as long as no shard ends."""
        key = positions[0] % self.period, len(positions)
        repeats = type(positions) is range  # others are at the end of an epoch
        if len(self.ended) != self._num_ended:
            self._num_ended = len(self.ended)
            self._patterns.clear()
        elif repeats and (known := self._patterns.get(key)) is not None:
            return known
        pattern = self._runs(positions) if self._in_columns else self._places(positions)
        if repeats and not self.is_ahead and len(self._patterns) < _MOST_PATTERNS:
            self._patterns[key] = pattern
        return pattern

    def _places(self, positions: Sequence[int]) -> dict[int, _WorkerPlaces]:
        places: dict[int, list[int]] = {}
        for place in self.remaining(positions):
            number, shard = divmod(positions[place], self.num_shards)
            among = self._workers_of[shard]
            places.setdefault(among[number % len(among)], []).append(place)
        return {
            worker: _WorkerPlaces.of(mine, {positions[place] % self.num_shards for place in mine})
            for worker, mine in (places or {0: []}).items()
        }

    def _runs(self, positions: Sequence[int]) -> dict[int, _WorkerPlaces]:
        from dali_like.sources.composed.row_pieces import Runs, runs_of

        self._forget_ahead(positions)
        by_worker: dict[int, list[range]] = {}
        empty = ((), {}) if self._is_padded else (self.ended, self._ahead)
        for run in runs_of(positions, self.num_shards, *empty).ranges:
            by_worker.setdefault(self._workers_of[positions[run.start] % self.num_shards][0], []).append(run)
        return {
            worker: _WorkerPlaces.of(Runs(mine), {positions[run.start] % self.num_shards for run in mine})
            for worker, mine in (by_worker or {0: []}).items()
        }

    def note(self, answers: Iterable[PositionsAnswer]) -> None:
        """Record the states of the answers that belong to a batch that has been taken."""
        last: dict[int, ShardState] = {}
        for answer in answers:
            self.ended.update(answer.ended)
            for shard, state in answer.states.items():
                if shard not in last or last[shard].taken < state.taken:  # several workers may share the shard
                    last[shard] = state
        self.states.update(last)
        self.version += bool(last)

    def note_drawn(self, answers: Iterable[PositionsAnswer]) -> None:
        """Record how far mixtures have been drawn for answers, also of batches that have not been taken."""
        for answer in answers:
            if answer.drawn:
                self.drawn = tuple(map(max, answer.drawn, self.drawn)) if self.drawn else answer.drawn
            self.reported.update(answer.states)


def packed(parts: Iterable[PositionsPart]) -> tuple[bytes, ...]:
    """Return parts as a request has them."""
    return tuple(_packed(pickle.dumps(places, pickle.HIGHEST_PROTOCOL), states, ahead) for places, states, ahead in parts)


def _packed(places: bytes, states: Mapping[int, ShardState], ahead: Mapping[int, tuple[int, int]] | None) -> bytes:
    dumps, protocol = pickle.dumps, pickle.HIGHEST_PROTOCOL
    known = {shard: tuple(state) for shard, state in states.items()}
    return dumps((places, dumps(known, protocol), ahead), protocol)


def unpacked(text: bytes) -> PositionsPart:
    """Return a part of a request."""
    places, states, ahead = pickle.loads(text)
    return PositionsPart(_unpacked_places(places), _PackedStates(states), ahead)


@functools.lru_cache(maxsize=_MOST_UNPACKED)
def _unpacked_places(text: bytes) -> Sequence[int]:
    """Return places, which nobody changes: they repeat."""
    places: Sequence[int] = pickle.loads(text)
    return places


# The evaluation of a part, in a worker, or in the main process without workers

#: Limit of other elements that may replace a failed one.
_MOST_OTHERS = 100


class Conduct(NamedTuple):
    """How to treat the elements of a part.

    Attributes:
        cell: gets the place of each element before it.
        seed: called with the position of an element before it: of the first one, and of every `seed_every`-th.
        seed_every: None: only of the first one.
        timed: returns a function with a time measurement.
        replace: returns the replacement of a failed element, given its position, the error, and other elements: each is a
            name, and a function that computes it. None: errors are raised.
        put: writes elements into the rows at ascending places, up to the first that does not fit. Returns how many it has
            written. None: no element goes to a row.
        together: the number of elements to `put` at once; None: all.
        put_rows: writes rows in columns. Returns whether they fit. None: elements come one by one.
        cost: returns the cost of an element, if outputs are chosen by their costs.
    """

    cell: Any
    seed: Callable[[int], Any]
    seed_every: int | None
    timed: Callable[[Callable[[int], Any]], Callable[[int], Any]]
    replace: Callable[[int, Exception, Iterable[tuple[str, Callable[[], Any]]]], Any] | None = None
    put: Callable[[list[int], list[Any]], int] | None = None
    together: int | None = None
    put_rows: Callable[[RowPieces], bool] | None = None
    cost: Callable[[Any], float] | None = None


def take_part(
    elements: Elements, num_shards: int, wanted: PositionsRequest, part: PositionsPart, conduct: Conduct
) -> PositionsAnswer:
    """Return the elements of a part that are not in rows, and the states of its logical shards behind them."""
    take = _take_elements if conduct.put_rows is None or part.ahead is not None else _take_rows
    answer = take(elements, num_shards, wanted, part, conduct)
    return answer if elements.watch is None else answer._replace(drawn=elements.watch.ends(wanted.epoch))


def _take_rows(
    elements: Elements, num_shards: int, wanted: PositionsRequest, part: PositionsPart, conduct: Conduct
) -> PositionsAnswer:
    """Take the rows of a part in columns."""
    from dali_like.sources.composed.row_pieces import take_rows  # few programs need it

    assert conduct.put_rows is not None
    positions, runs = wanted.positions, cast("Runs", part.places)
    if elements.reads:
        elements.begin(wanted.epoch, [positions[run.start] for run in runs.ranges], part.states)
    is_seeded = False

    def opening(place: int) -> None:
        nonlocal is_seeded
        conduct.cell[0] = place
        if not is_seeded:
            is_seeded = True
            conduct.seed(positions[min(run.start for run in runs.ranges)])

    rows, ended, states = take_rows(elements, num_shards, wanted.epoch, positions, runs, part.states, opening)
    if conduct.put_rows(rows):
        return PositionsAnswer(runs if len(rows) == len(runs) else rows.places, [], [], states, ended)
    if rows.are_numbers:
        return PositionsAnswer(rows.places, [], rows, states, ended)
    in_order = rows.in_order()
    return PositionsAnswer([place for place, _ in in_order], [], [row for _, row in in_order], states, ended)


def _take_elements(
    elements: Elements, num_shards: int, wanted: PositionsRequest, part: PositionsPart, conduct: Conduct
) -> PositionsAnswer:
    """Take the elements of a part one by one."""
    from dali_like.sources.composed.part_walk import HoldingPartWalk, PartWalk  # few programs need it

    if part.ahead is None:
        walk = PartWalk(elements, num_shards, wanted.epoch, part.states, conduct.timed)
    else:
        assert conduct.cost is not None
        walk = HoldingPartWalk(elements, num_shards, wanted.epoch, part.states, conduct.timed, part.ahead, conduct.cost)
    places = part.places if type(part.places) is list else sorted(part.places)
    if elements.reads and part.ahead is None:
        elements.begin(wanted.epoch, [wanted.positions[place] for place in places], part.states)
    found: list[int] = []
    others: list[Any] = []
    each = _elements_of(walk, elements, wanted, places, conduct, found)
    while some := list(itertools.islice(each, conduct.together)):
        if conduct.put is not None and not others:
            some = some[conduct.put(found[-len(some) :], some) :]
        others.extend(some)
        del some  # the next elements reuse the memory, which is in the CPU cache
    states = walk.states()
    return PositionsAnswer(found, [], others, states, walk.ended, costs=walk.costs())


def _elements_of(
    walk: PartWalk,
    elements: Elements,
    wanted: PositionsRequest,
    places: list[int],
    conduct: Conduct,
    found: list[int],
) -> Iterator[Any]:
    """Yield the elements at some places, and note the places that have one."""
    from dali_like.sources.composed.stream import ShardEndedError  # few programs need it

    positions = [wanted.positions[place] for place in places]
    walk.note(positions)
    cell, note_found, take = conduct.cell, found.append, walk.timed_taker()
    every = conduct.seed_every or len(positions) or 1
    for begin in range(0, len(positions), every):
        conduct.seed(positions[begin])
        # This loop is the overhead per element.
        for place, position in zip(places[begin : begin + every], positions[begin : begin + every], strict=True):
            cell[0] = place
            try:
                element = take(position)
            except ShardEndedError:
                walk.ended.append(position % walk.num_shards)
                continue
            except Exception as error:
                if conduct.replace is None:
                    raise
                walk.keep_state(position)
                element = conduct.replace(position, error, walk.others(position, _MOST_OTHERS))
                take = walk.timed_taker()
            note_found(place)
            yield element
