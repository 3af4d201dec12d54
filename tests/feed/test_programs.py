"""Random programs over a lockstep have the same results as a model without pools, depths and times."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest

from dali_like.engine.memory.batch_key import BatchKey, Sizes
from dali_like.engine.pool.batch import Batch, result_of
from dali_like.errors import CheckpointError, NoInputError, WorkerDiedError
from dali_like.feed.composed_feeds import PositionPlan, PositionState
from dali_like.feed.feed import Feed, SourcePlan, TurnsFeed
from dali_like.feed.lockstep import Lockstep, PipelinePosition
from dali_like.sources.composed.dataset import ComposedDataset
from dali_like.sources.sharding import ALONE, Division, Rest, Shard

BATCH_SIZE = 4
NUM_WORKERS = 3
DATASET = ComposedDataset.source(range(100)).with_options(seed=1)
#: Exceptions after which the iteration is still to come.
INTERRUPTIONS = (KeyboardInterrupt, WorkerDiedError, NoInputError)


class Kind(NamedTuple):
    """A source of a random program.

    Attributes:
        way: "serial", "parallel", "shards", "positions", or "fed" by the user.
        lengths: batches of an epoch; of each worker for shards; the first one is that of all epochs if the source persists.
        errors: numbers of the batches that fail.
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
    steps: Division

    @property
    def parallel(self) -> bool:
        return self.way not in ("serial", "fed")

    def length(self, epoch: int) -> int:
        """The number of batches of an epoch."""
        if self.way == "shards":
            return sum(self.lengths)
        if self.way == "positions":
            return 1 << 30 if self.steps.length is None else self.steps.sizes().num_batches
        return 1 << 30 if self.way == "fed" else self.lengths[0 if self.persists else epoch % 3]

    def has_last(self, number: int, length: int) -> bool:
        """Whether a batch says that the epoch ends behind it."""
        return self.is_partial and number == length - 1 and self.way in ("serial", "parallel")


def random_kind(chance: random.Random) -> Kind:
    way = chance.choice(["serial", "serial", "parallel", "parallel", "parallel", "shards", "positions", "fed"])
    persists = way == "fed" or (way in ("serial", "parallel") and chance.random() < 0.4)
    length = chance.choice([0, 1, 1, 2, 3, 4, 6, 9])
    lengths = tuple(max(0, length + chance.choice([0, 0, 0, -1, 1])) for _ in range(3))
    knows = way in ("serial", "parallel") and not persists and chance.random() < 0.3
    rank = chance.choice([ALONE, ALONE, Shard(1, 2)])
    length_of_stream = chance.choice([None, 0, 3, 8, 9, 17, 30])
    steps = Division(length_of_stream, BATCH_SIZE, rank, chance.choice(list(Rest)), is_striped=True)
    return Kind(
        way,
        chance.choice([1, 1, 2, 3, 5]),
        persists,
        (lengths[0],) * 3 if knows else lengths,
        is_partial=chance.random() < 0.4,
        sizes=Sizes(lengths[0], chance.choice([BATCH_SIZE, 2])) if knows else None,
        shard=ALONE if way == "positions" else rank,
        batch=chance.random() < 0.4 and way in ("serial", "parallel"),
        errors=frozenset(chance.sample(range(12), chance.choice([0, 0, 1, 3])))
        if way in ("serial", "parallel")
        else frozenset(),
        steps=steps,
    )


class Clock:
    """Time passes with the steps of a program, and in waits."""

    def __init__(self) -> None:
        self.now = 0
        self.num_fed = 0


class Workers:
    """A pool: the batches complete as time passes, or at once. With a risk, a wait or a source is interrupted."""

    def __init__(self, kinds: Sequence[Kind], chance: random.Random, clock: Clock, *, is_serial: bool, risk: float) -> None:
        self._kinds = kinds
        self._chance = chance
        self._clock = clock
        self._is_serial = is_serial
        self._risk = risk
        self._open: list[tuple[int, Batch]] = []
        self.cancelled: set[int] = set()

    def _fail_perhaps(self) -> None:
        if self._chance.random() < self._risk:
            raise self._chance.choice([KeyboardInterrupt(), WorkerDiedError("the worker has died")])

    def submit(self, key: BatchKey) -> Batch:
        assert key.size
        batch = Batch(key)
        if self._is_serial:
            self._fail_perhaps()
            batch.outcome = self._outcome(batch)
        else:
            self._open.append((self._clock.now + self._chance.randrange(4), batch))
        return batch

    def poll(self) -> None:
        for due, batch in list(self._open):
            if due <= self._clock.now:
                batch.outcome = self._outcome(batch)
                self._open.remove((due, batch))

    def wait(self, batch: Batch) -> Any:
        assert not batch.cancelled
        self.poll()
        while batch.outcome is None:
            self._fail_perhaps()
            self._clock.now += 1
            self.poll()
        return result_of(batch)

    def cancel(self, batch: Batch) -> None:
        self._open = [pair for pair in self._open if pair[1] is not batch]
        batch.outcome = None
        batch.cancelled = True

    def close(self) -> None:
        """Nothing is open."""

    def _outcome(self, batch: Batch) -> Any:
        key = batch.key
        kind = self._kinds[key.source]
        number = (key.iteration - kind.shard.id) // kind.shard.count if kind.batch else key.iteration
        if kind.way == "shards":
            return [(key.epoch, key.worker, number)] if number < kind.lengths[key.worker] else StopIteration()
        if kind.sizes is not None:
            assert number < kind.sizes.num_batches
            assert key.size == (kind.sizes.last if number == kind.sizes.num_batches - 1 else BATCH_SIZE)
        length = kind.length(key.epoch)
        if number >= length:
            return StopIteration()
        batch.is_last = kind.has_last(number, length)
        return LookupError(f"{key.source} {number}") if number in kind.errors else [(key.epoch, number)]


class Fed:
    """A pool of batches that the user feeds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._num_taken = 0
        self._waiting: list[Batch] = []

    def submit(self, key: BatchKey) -> Batch:
        batch = Batch(key)
        self._waiting.append(batch)
        self.poll()
        return batch

    def poll(self) -> None:
        while self._waiting and self._num_taken < self._clock.num_fed:
            self._waiting.pop(0).outcome = [(0, self._num_taken)]
            self._num_taken += 1

    def wait(self, batch: Batch) -> Any:
        self.poll()
        if batch.outcome is None:
            raise NoInputError
        return batch.outcome

    def cancel(self, batch: Batch) -> None:
        assert batch not in self._waiting, "a fed batch would be lost"

    def close(self) -> None:
        """Nothing is open."""


def merged(lengths: Sequence[int]) -> list[tuple[int, int]]:
    """Return worker and number of each batch of an epoch in shards, in order."""
    return [(worker, number) for number in range(max(lengths)) for worker, length in enumerate(lengths) if number < length]


class Model:
    """The user's view: no batch is computed ahead, and none takes any time."""

    def __init__(self, kinds: Sequence[Kind]) -> None:
        self._kinds = kinds
        self.epoch = self.iteration = 0
        self.delivered = [0] * len(kinds)
        self.finished = self._ends_here = False

    @property
    def position(self) -> PipelinePosition:
        return PipelinePosition(self.epoch, self.iteration, tuple(self.delivered))

    def next(self) -> list[Any]:
        """Return the outputs of the next iteration; raise StopIteration or LookupError instead."""
        numbers = [
            count if kind.persists else self.iteration for kind, count in zip(self._kinds, self.delivered, strict=True)
        ]
        lengths = [kind.length(self.epoch) for kind in self._kinds]
        if self.finished or self._ends_here or any(n >= m for n, m in zip(numbers, lengths, strict=True)):
            self.finished = True
            raise StopIteration
        self.iteration += 1
        self.delivered = [count + kind.persists for kind, count in zip(self._kinds, self.delivered, strict=True)]
        self._ends_here = any(kind.has_last(n, m) for kind, n, m in zip(self._kinds, numbers, lengths, strict=True))
        outputs = []
        for i, (kind, number) in enumerate(zip(self._kinds, numbers, strict=True)):
            if number in kind.errors:
                raise LookupError(f"{i} {number}")
            epoch = 0 if kind.persists else self.epoch
            outputs.append([(epoch, *merged(kind.lengths)[number]) if kind.way == "shards" else (epoch, number)])
        return outputs

    def put_back(self) -> None:
        """Undo a delivery."""
        self.delivered = [count - kind.persists for kind, count in zip(self._kinds, self.delivered, strict=True)]

    def reset(self) -> None:
        """Begin the next epoch."""
        self.go_to(PipelinePosition(self.epoch + 1, 0, tuple(self.delivered)))

    def go_to(self, position: PipelinePosition) -> None:
        """Continue from a position."""
        self.epoch, self.iteration, delivered = position
        self.delivered = list(delivered)
        self.finished = self._ends_here = False


class Played(NamedTuple):
    """A lockstep beside its model."""

    kinds: Sequence[Kind]
    lockstep: Lockstep
    feeds: Sequence[Feed]
    model: Model

    def check(self, name: str) -> list[Any] | None:
        """Do as the lockstep does, and return the outputs."""
        try:
            seen: Any = getattr(self.lockstep, name)()
        except INTERRUPTIONS:
            seen = None
        except (StopIteration, LookupError) as error:
            with pytest.raises(type(error), match=f"^{error}$"):
                self.model.next()
            seen = None
        else:
            assert seen is None or seen == self.model.next()
        self.check_position()
        return seen  # type: ignore[no-any-return]

    def check_position(self) -> None:
        now = PipelinePosition(self.lockstep.epoch, self.lockstep.iteration, self.lockstep.delivered(0))
        assert (now, self.lockstep.finished) == (self.model.position, self.model.finished)

    def put_back(self, undelivered: list[Any]) -> None:
        for outputs in reversed(undelivered):
            self.lockstep.put_back(outputs)
            self.model.put_back()
        undelivered.clear()

    def go_to(self, position: PipelinePosition, restored: set[int], undelivered: list[Any]) -> None:
        num_ahead = len(undelivered)
        pairs = zip(self.kinds, position.delivered, self.model.delivered, strict=True)
        if any(k.persists and i not in restored and to < now - num_ahead for i, (k, to, now) in enumerate(pairs)):
            with pytest.raises(CheckpointError, match="cannot go back"):
                self.lockstep.check_reachable(position, restored, num_ahead)
            return
        self.lockstep.check_reachable(position, restored, num_ahead)
        self.put_back(undelivered)
        self.lockstep.go_to(position, restored)
        for feed in self.feeds:
            if isinstance(feed, TurnsFeed):
                feed.forget()
        self.model.go_to(position)


def played(kinds: Sequence[Kind], chance: random.Random, clock: Clock, risk: float) -> Played:
    pools = {serial: Workers(kinds, chance, clock, is_serial=serial, risk=risk) for serial in (False, True)}
    feeds: list[Feed] = []
    for i, kind in enumerate(kinds):
        pool = Fed(clock) if kind.way == "fed" else pools[not kind.parallel]
        plan = SourcePlan(i, BATCH_SIZE, persists=kind.persists, sizes=kind.sizes, shard=kind.shard, batch=kind.batch)
        if kind.way == "positions":
            plan = PositionPlan(i, PositionState(DATASET, kind.steps))
        if kind.way == "shards":
            feeds.append(TurnsFeed(plan, pool, kind.ahead, num_workers=NUM_WORKERS))
        else:
            feeds.append(Feed(plan, pool, kind.ahead, parallel=kind.parallel))
    return Played(kinds, Lockstep(feeds), feeds, Model(kinds))


def play(seed: int) -> None:
    chance = random.Random(seed)
    kinds = [random_kind(chance) for _ in range(chance.choice([1, 1, 2, 2, 3]))]
    clock = Clock()
    side = played(kinds, chance, clock, risk=chance.choice([0, 0, 0.02, 0.1]))
    undelivered: list[Any] = []
    positions = [side.model.position]

    def take() -> None:
        outputs = side.check(chance.choice(["next", "next", "next_if_ready"]))
        undelivered.append(outputs)
        if outputs is None or chance.random() < 0.4:
            undelivered.clear()

    def reset() -> None:
        side.put_back(undelivered)
        side.lockstep.reset()
        side.model.reset()

    def note() -> None:
        positions.append(side.model.position)

    def go_to() -> None:
        # An input has no state to restore.
        restored = {i for i, kind in enumerate(kinds) if kind.way != "fed" and chance.random() < 0.7}
        position = chance.choice(positions)
        passed = zip(kinds, position.delivered, side.model.delivered, strict=True)
        delivered = tuple(now - len(undelivered) if kind.way == "fed" else to for kind, to, now in passed)
        side.go_to(position._replace(delivered=delivered), restored, undelivered)

    def deepen() -> None:
        by = chance.choice([1, 2])
        side.lockstep.deepen(by)
        if chance.random() < 0.5:
            side.lockstep.deepen(-by)

    steps: list[Callable[[], None]] = [take] * 9 + [reset, note, go_to, deepen]
    for _ in range(chance.randrange(5, 50)):
        clock.now += chance.choice([0, 0, 1, 5])
        clock.num_fed += chance.choice([0, 1, 1, 2])
        chance.choice(steps)()
        side.check_position()


@pytest.mark.parametrize("block", range(10))
def test_random_programs_equal_the_model(block: int) -> None:
    for seed in range(100 * block, 100 * (block + 1)):
        try:
            play(seed)
        except BaseException as error:
            error.add_note(f"the seed is {seed}")
            raise
