"""Random programs over a lockstep: feeds and plans against the implementation before them, which this commit still has."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import pytest

from dali_like.engine.memory.batch_key import ANY_WORKER, BatchKey, Sizes
from dali_like.engine.pool.base import result_of
from dali_like.engine.pool.batch import Batch
from dali_like.engine.worker.streams import Stream
from dali_like.errors import NoInputError, WorkerDiedError
from dali_like.feed import lockstep as new
from dali_like.feed.position_plan import PositionPlan, PositionState
from dali_like.feed.source_feed import SourceFeed, SourcePlan, TurnsFeed
from dali_like.feed.source_states import ReportedState
from dali_like.sources.composed.dataset import ComposedDataset
from dali_like.sources.composed.positions import Steps
from dali_like.sources.sharding import ALONE, Rest, Shard
from tests.feed.previous import composed_state, source_states, worker_shards
from tests.feed.previous import lockstep as old

NUM_PROGRAMS = int(os.environ.get("PROGRAMS", "300"))
FIRST = int(os.environ.get("FIRST", "0"))
BATCH_SIZE = 4


class Kind(NamedTuple):
    """A source of a random program.

    Attributes:
        way: "serial", "parallel", "reporting", "shards", "positions" or "fed".
        length: batches of an epoch, or of all epochs if it persists; of each worker for shards.
    """

    way: str
    ahead: int
    persists: bool
    lengths: tuple[int, ...]
    is_partial: bool
    sizes: Sizes | None
    shard: Shard
    batch: bool
    errors: frozenset[int]
    steps: Any

    @property
    def parallel(self) -> bool:
        return self.way not in ("serial", "fed")


def random_kind(chance: random.Random) -> Kind:
    way = chance.choice(["serial", "serial", "parallel", "parallel", "parallel", "reporting", "shards", "positions", "fed"])
    persists = way == "fed" or (way != "positions" and chance.random() < 0.3)
    length = chance.choice([0, 1, 1, 2, 3, 4, 6, 9])
    lengths = tuple(max(0, length + chance.choice([0, 0, 0, -1, 1])) for _ in range(3))
    knows = way in ("serial", "parallel") and not persists and chance.random() < 0.3
    rank = chance.choice([ALONE, ALONE, Shard(1, 2)])
    elements = chance.choice([None, 0, 3, 8, 9, 17, 30])
    steps = Steps(elements, BATCH_SIZE, rank, chance.choice(list(Rest)))
    return Kind(
        way,
        chance.choice([1, 1, 2, 3, 5]),
        persists,
        lengths,
        is_partial=chance.random() < 0.4,
        sizes=Sizes(lengths[0], chance.choice([BATCH_SIZE, 2])) if knows else None,
        shard=ALONE if way == "positions" else rank,
        batch=chance.random() < 0.4 and way != "positions",
        errors=frozenset(chance.sample(range(12), chance.choice([0, 0, 1, 3]))),
        steps=steps,
    )


class Clock:
    """Time for both sides: it passes with the steps of the program, and in waits."""

    def __init__(self) -> None:
        self.now = 0
        self.num_events = 0
        self.num_fed = 0


class Workers:
    """A pool: the batches complete as time passes, or at once."""

    def __init__(self, kinds: Sequence[Kind], seed: int, clock: Clock, *, is_serial: bool, risk: float) -> None:
        self._kinds = kinds
        self._seed = seed
        self._clock = clock
        self._is_serial = is_serial
        self._risk = risk
        self._open: list[tuple[int, Batch]] = []
        self.log: list[Any] = []

    def _chance(self, *of: Any) -> random.Random:
        return random.Random(repr((self._seed, of)))

    def _fail_perhaps(self) -> None:
        self._clock.num_events += 1
        chance = self._chance("event", self._clock.num_events)
        if chance.random() < self._risk:
            raise chance.choice([KeyboardInterrupt, WorkerDiedError])

    def submit(self, key: BatchKey) -> Batch:
        self._fail_perhaps()
        batch = Batch(key)
        self.log.append(("submit", key))
        if self._is_serial:
            batch.outcome = self._outcome(batch)
        else:
            self._open.append((self._clock.now + self._chance(key).randrange(1, 4), batch))
        return batch

    def poll(self) -> None:
        for due, batch in list(self._open):
            if due <= self._clock.now:
                batch.outcome = self._outcome(batch)
                self._open.remove((due, batch))

    def wait(self, batch: Batch) -> Any:
        self.poll()
        while batch.outcome is None:
            self._fail_perhaps()
            self._clock.now += 1
            self.poll()
        return result_of(batch)

    def cancel(self, batch: Batch) -> None:
        self.log.append(("cancel", batch.key))
        self._open = [pair for pair in self._open if pair[1] is not batch]
        batch.outcome = None
        batch.cancelled = True

    def close(self) -> None:
        pass

    def _outcome(self, batch: Batch) -> Any:
        key = batch.key
        kind = self._kinds[key.source]
        number = kind.shard.batch(0)
        number = (key.iteration - number) // kind.shard.count if kind.batch else key.iteration
        length = kind.lengths[max(key.worker, 0) % 3 if kind.way == "shards" else key.epoch % 3]
        if kind.way == "reporting":
            batch.state = json.dumps({"state": [key.epoch, key.iteration], "epoch": key.epoch}).encode()
        if kind.way != "positions":
            if kind.sizes is not None and number >= kind.sizes.num_batches:
                raise AssertionError("a batch beyond the known end")
            if number >= length and not (kind.persists and number % 7 == 6 and number > length):
                batch.failed_sample = self._chance("sample", key).randrange(key.size + 1)
                return StopIteration()
            batch.is_last = kind.is_partial and number == length - 1
        if number in kind.errors:
            return LookupError(f"{key.source} {number}")
        return [(key.source, key.epoch, key.iteration, key.first_sample, key.size, key.worker, key.turn)]


class Fed:
    """A pool of batches that the user feeds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._num_taken = 0
        self._waiting: list[Batch] = []

    def submit(self, key: BatchKey) -> Batch:
        self._waiting.append(Batch(key))
        batch = self._waiting[-1]
        self.poll()
        return batch

    def poll(self) -> None:
        while self._waiting and self._num_taken < self._clock.num_fed:
            self._waiting.pop(0).outcome = [self._num_taken]
            self._num_taken += 1

    def wait(self, batch: Batch) -> Any:
        self.poll()
        if batch.outcome is None:
            raise NoInputError
        return batch.outcome

    def cancel(self, batch: Batch) -> None:
        if batch in self._waiting:
            self._waiting.remove(batch)
        batch.outcome = None

    def close(self) -> None:
        pass


class OldSide:
    def __init__(self, kinds: Sequence[Kind], seed: int, risk: float) -> None:
        self.kinds, self.clock = kinds, Clock()
        self.pools = {serial: Workers(kinds, seed, self.clock, is_serial=serial, risk=risk) for serial in (False, True)}
        self.states: dict[int, Any] = {}
        self.shards: list[Any] = []
        sources = []
        for i, kind in enumerate(kinds):
            pool: Any = Fed(self.clock) if kind.way == "fed" else self.pools[not kind.parallel]
            if kind.way == "reporting":
                self.states[i] = source_states.WorkerSourceState(
                    str(i), Stream(lambda: iter(()), owner=Owner()), 50, reports=True
                )
            elif kind.way == "positions":
                self.states[i] = composed_state.ComposedState(str(i), DATASET, kind.steps)
            elif kind.way == "shards":
                pool = worker_shards.ShardsPool(pool, 3)
                self.shards.append(pool)
            if i in self.states:
                pool = self.states[i].over(pool)
            worker = 1 if kind.way == "reporting" else ANY_WORKER
            sources.append(
                old.PooledSource(
                    pool, i, kind.ahead, kind.parallel, worker, kind.persists, kind.sizes, kind.shard, kind.batch
                )
            )
        self.lockstep: Any = old.Lockstep(sources, BATCH_SIZE, None, self.on_empty)
        self.num_empty: list[Any] = []

    def on_empty(self, *of: int) -> None:
        self.num_empty.append(of)

    def state(self, i: int, position: Any, *, ended: bool) -> Any:
        if i not in self.states:
            return None
        number = self.lockstep.number(i, old.PipelinePosition(*position)) if self.kinds[i].persists or not ended else None
        return self.states[i].before(number, partial(self.lockstep.upcoming, i))

    def restore(self, i: int, state: Any) -> None:
        if i in self.states:
            self.states[i].restore(state)

    def forget(self) -> None:
        for pool in self.shards:
            pool.forget()

    def has_begun(self) -> bool:
        return any(pool.has_begun for pool in self.shards)


class NewSide(OldSide):
    def __init__(self, kinds: Sequence[Kind], seed: int, risk: float) -> None:
        self.kinds, self.clock = kinds, Clock()
        self.pools = {serial: Workers(kinds, seed, self.clock, is_serial=serial, risk=risk) for serial in (False, True)}
        self.feeds: list[SourceFeed] = []
        for i, kind in enumerate(kinds):
            pool: Any = Fed(self.clock) if kind.way == "fed" else self.pools[not kind.parallel]
            state: Any = None
            if kind.way == "reporting":
                state = ReportedState(str(i), Stream(lambda: iter(()), owner=Owner()), 50, reports=True)
            plan = SourcePlan(
                i,
                BATCH_SIZE,
                worker=1 if kind.way == "reporting" else ANY_WORKER,
                persists=kind.persists,
                sizes=kind.sizes,
                shard=kind.shard,
                batch=kind.batch,
                state=state,
            )
            if kind.way == "positions":
                plan = PositionPlan(i, PositionState(DATASET, kind.steps))
            if kind.way == "shards":
                self.feeds.append(TurnsFeed(plan, pool, kind.ahead, num_workers=3))
            else:
                self.feeds.append(SourceFeed(plan, pool, kind.ahead, parallel=kind.parallel))
        self.lockstep = new.Lockstep(self.feeds, None, self.on_empty)
        self.num_empty = []

    def state(self, i: int, position: Any, *, ended: bool) -> Any:
        return self.lockstep.state(i, new.PipelinePosition(*position), ended=ended)

    def restore(self, i: int, state: Any) -> None:
        own = self.feeds[i].plan.state
        if own is not None:
            own.restore(state)

    @property
    def turns(self) -> list[TurnsFeed]:
        return [feed for feed in self.feeds if isinstance(feed, TurnsFeed)]

    def forget(self) -> None:
        for feed in self.turns:
            feed.forget()

    def has_begun(self) -> bool:
        return any(feed.has_begun for feed in self.turns)


class Owner:
    def state_dict(self) -> Any:
        return None

    def load_state_dict(self, state: Any) -> None:
        pass


DATASET = ComposedDataset.source(range(100)).with_options(seed=1)


def play(side: OldSide, kinds: Sequence[Kind], seed: int) -> list[Any]:  # noqa: PLR0915
    """Return what a random program sees."""
    chance = random.Random(seed)
    lockstep, clock = side.lockstep, side.clock
    log: list[Any] = []
    undelivered: list[Any] = []
    saved: list[Any] = []

    def attempt(name: str, function: Any) -> Any:
        try:
            result = function()
        except BaseException as error:
            result = None
            log.append((name, type(error).__name__, str(error)))
        else:
            log.append((name, result))
        log.append((lockstep.epoch, lockstep.iteration, lockstep.finished, lockstep.delivered(0)))
        return result

    def put_back() -> None:
        for outputs in reversed(undelivered):
            lockstep.put_back(outputs)
        undelivered.clear()

    for _ in range(chance.randrange(5, 50)):
        clock.now += chance.choice([0, 0, 1, 5])
        clock.num_fed += chance.choice([0, 1, 1, 2])
        op = chance.choice(["next"] * 6 + ["ready"] * 3 + ["reset", "state", "go_to", "deepen", "end"])
        if op == "next":
            outputs = attempt(op, lockstep.next)
        elif op == "ready":
            outputs = attempt(op, lockstep.next_if_ready)
        if op in ("next", "ready"):
            if outputs is not None and chance.random() < 0.6:
                undelivered.append(outputs)
                del undelivered[: chance.choice([0, 0, 1])]
            else:
                undelivered.clear()
        elif op == "reset" or (op == "end" and lockstep.finished):
            put_back()
            attempt(op, lockstep.reset)
        elif op == "state":
            position = (lockstep.epoch, lockstep.iteration, lockstep.delivered(0))
            ended = lockstep.finished and not undelivered
            states = [attempt("state", partial(side.state, i, position, ended=ended)) for i in range(len(kinds))]
            saved.append((position, states))
        elif op == "deepen":
            by = chance.choice([1, 2])
            attempt(op, partial(lockstep.deepen, by))
            if chance.random() < 0.5:
                attempt(op, partial(lockstep.deepen, -by))
        elif op == "go_to" and saved:
            position, states = chance.choice(saved)
            if side.has_begun() and any(kind.way == "shards" and kind.persists for kind in kinds):
                continue
            restored = {i for i, state in enumerate(states) if state is not None and i % 2 == 0}
            put_back()
            kind_of = new.PipelinePosition if isinstance(side, NewSide) else old.PipelinePosition
            count = len(log)
            attempt(op, partial(lockstep.go_to, kind_of(*position), restored))
            if log[count][1] == "CheckpointError":
                continue
            side.forget()
            for i, state in enumerate(states):
                if kinds[i].way == "positions":
                    side.restore(i, state)
        log.append(list(side.num_empty))
    return log


@pytest.mark.parametrize("block", range(NUM_PROGRAMS // 100))
def test_random_programs_see_the_same_and_begin_the_same_batches(block: int) -> None:
    for seed in range(FIRST + 100 * block, FIRST + 100 * (block + 1)):
        chance = random.Random(~seed)
        kinds = [random_kind(chance) for _ in range(chance.choice([1, 1, 2, 2, 3]))]
        risk = chance.choice([0, 0, 0.02, 0.1])
        sides = [make(kinds, seed, risk) for make in (OldSide, NewSide)]
        seen = [play(side, kinds, seed) for side in sides]
        for i, (before, now) in enumerate(zip(*seen, strict=False)):
            assert before == now, (seed, i, kinds, seen[0][:i])
        assert len(seen[0]) == len(seen[1])
        for serial in (False, True):
            logs = [side.pools[serial].log for side in sides]
            for i, (before, now) in enumerate(zip(*logs, strict=False)):
                assert before == now, (seed, i, kinds)
            assert len(logs[0]) == len(logs[1])
