"""The plans of a loader's iterators: which batches there are, and the state from which a loader resumes.

A plan draws the indices of a batch from the sampler, or gives the next worker its turn, and describes the batch as a request
to the workers (`dali_like.data.messages`). It runs in the main process and knows no pool; see `dali_like.feed`.

- `SamplesPlan`: the samples of a map-style dataset, or of a composed one with random access.
- `ItemsPlan`: an iterable dataset. Each worker has its own iterator.
- `PositionsPlan`: a composed dataset in logical shards.

Random numbers are drawn in PyTorch's order: the samplers' iterators begin before the seeds of the epoch are drawn, and items
of a sampler are drawn when their batch begins.
"""

from __future__ import annotations

import abc
import copy
import pickle
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from dali_like.common.interrupts import interruptible
from dali_like.common.notices import warn
from dali_like.data.array_backends import mixed_seed
from dali_like.data.counters import LoaderCounters
from dali_like.data.fetcher import as_sequence
from dali_like.data.generators import SavedState
from dali_like.data.messages import NUMBERS, ItemsRequest, SamplesRequest, unpack_request
from dali_like.data.sampler_iterators import SamplerIterator, invalid_state
from dali_like.engine.memory.batch_key import ANY_WORKER, BatchKey
from dali_like.engine.pool.batch import Batch
from dali_like.errors import CheckpointError, LostItemError
from dali_like.feed.shards import PositionsRequest, ShardProgress
from dali_like.feed.turns import Turns
from dali_like.sources.state_format import (
    ENDED,
    LOADER,
    ShardState,
    listed,
    read_state,
    state_of_walk,
    unlisted,
    walk_of_state,
)

if TYPE_CHECKING:
    from dali_like.data.loader_workers import LoaderWorkers
    from dali_like.data.options import LoaderOptions
    from dali_like.data.position_sampler import PositionIterator, PositionSampler


@dataclass(eq=False, repr=False)
class IteratorState:
    """The position of a loader's iterator: everything that is needed to resume it.

    Attributes:
        base_seed: seeds the random numbers of the samples, together with `number`.
        number: number of earlier iterators with the same base seed.
        generator: state of the loader's generator at the beginning, or a function that returns it; None without one.
        sampler: the same of the sampler's iterator; None for an iterable dataset.
        shared_seed: see `ArrayBackend.draw_shared_seed`.
        position: number of yielded batches without a gap.
        ahead: numbers of the batches behind a gap that were yielded out of order.
        turn: for an iterable dataset, the worker of the next batch.
        states: for an iterable dataset, the state of each worker, whose items are batches.
        is_over: whether the iterator is at its end.
    """

    base_seed: int
    number: int
    generator: dict[str, Any] | SavedState | None = None
    sampler: dict[str, Any] | SavedState | None = None
    shared_seed: int | None = None
    position: int = 0
    ahead: list[int] = field(default_factory=list)
    turn: int = 0
    states: dict[int, ShardState] = field(default_factory=dict)
    is_over: bool = False

    @property
    def seed(self) -> int:
        """The seed of this epoch."""
        return mixed_seed(self.base_seed, self.number)

    def to_dict(self) -> dict[str, Any]:
        """Return a copy that JSON can hold; see `dali_like.sources.state_format`."""
        self.generator, self.sampler = resolved(self.generator), resolved(self.sampler)  # once: some programs ask often
        copied: dict[str, Any] = _copied({**vars(self), "states": listed(self.states)})
        return copied

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> IteratorState:
        """Return the result of `to_dict`, which has been checked."""
        return cls(**{**saved, "states": unlisted(saved["states"])})

    def deliver(self, number: int) -> None:
        """Record that a batch has been yielded."""
        if number == self.position and not self.ahead:
            self.position += 1
            return
        self.ahead.append(number)
        while self.position in self.ahead:
            self.ahead.remove(self.position)
            self.position += 1

    def passed(self, worker: int) -> int:
        """Return how many batches of a worker have been taken."""
        known = self.states.get(worker, _BEGINNING)
        return max(known.taken, known.passed)

    def note_walk(self, worker: int, saved: dict[str, Any] | None) -> None:
        """Record the state that a worker has reported, if there is one."""
        if saved is not None:
            self.states[worker] = state_of_walk(saved, self.passed(worker))

    def walk_of(self, worker: int) -> dict[str, Any] | None:
        """Return the last state that a worker has reported; None without, and at its end."""
        known = self.states.get(worker, _BEGINNING)
        return None if known.state is None or known.state == ENDED else walk_of_state(known)


_S = TypeVar("_S", dict[str, Any], dict[str, Any] | None)


def resolved(saved: _S | SavedState) -> _S | dict[str, Any]:
    """Return a state that a function may stand for."""
    return saved() if callable(saved) else saved


#: Types without parts, whose objects cannot change.
_ATOMS = frozenset({int, float, str, bytes, bool, type(None)})

#: The state of a worker that has not answered yet.
_BEGINNING = ShardState(0, None)


class LoaderPlan(abc.ABC):
    """The batches of one iterator; see `dali_like.feed.feed.Plan`.

    Args:
        options: of the loader.
        state: the position of the iterator, which the plan advances.
        indices: the iterator over the sampler.
        counters: of the loader.
        workers: answer the requests; None: the batches are computed where they are taken.

    Attributes:
        state: as given.
        number: of the iterator, in requests.
        indices: as given.
        positions: the same, of a composed dataset; otherwise None.
        num_begun: number of the next batch.
        has_started: whether the sampler stands at the first batch.
        has_ended: whether all later batches are empty, although the sampler goes on.
        is_ready: whether the next batch can begin; otherwise once a batch in flight has been taken.
        needs_sequences: whether keys must be sequences: the sampler may yield other iterables.
        wants_states: whether answers must bring the state of an iterable dataset: the program asks for it.
    """

    number = 0
    wants_states = False
    has_started = False
    has_ended = False
    is_ready = True
    needs_sequences = False
    _was_interrupted = False

    def __init__(
        self,
        options: LoaderOptions,
        state: IteratorState,
        indices: SamplerIterator[Any],
        counters: LoaderCounters,
        workers: LoaderWorkers | None = None,
    ) -> None:
        self.state = state
        self._options = options
        self.indices = indices
        self._counters = counters
        self.num_begun = state.position
        self.positions: PositionIterator | None = indices if indices.yields_positions else None  # type: ignore[assignment]
        if workers is not None:
            self._seed = state.seed if options.seeds_by_task else None
            self._fetcher = workers.fetcher
            self._capacity = workers.capacity
            self._prepare_requests(workers)

    def _prepare_requests(self, workers: LoaderWorkers) -> None:  # noqa: B027  # most plans need nothing
        """Read further options for requests to workers."""

    @abc.abstractmethod
    def begin(self, turn: int) -> BatchKey:
        """Return the key of the next batch, with the request.

        Raises:
            StopIteration: there are no more batches.
            Exception: the error of the sampler.
        """

    def note(self, batch: Batch) -> None:  # noqa: B027  # most plans learn nothing from it
        """Record the outcome of a batch, before later ones begin."""

    def deliver(self, batch: Batch) -> None:
        """Record that the program gets a batch, or the exception in its place."""
        state, number = self.state, batch.key.iteration
        if number == state.position and not state.ahead:
            state.position += 1
        else:
            state.deliver(number)

    def is_batch(self, answers: Mapping[int, Any], size: int) -> bool:
        """Return whether some answers are a batch for the program, given the number of positions in the request."""
        return True

    def read(self, key: BatchKey, answers: Mapping[int, Any]) -> bool:
        """Record the states that come with the answers of a batch. Return whether it is a batch for the program."""
        return True

    @property
    def shard_states(self) -> Mapping[int, ShardState]:
        """The latest known states of the logical shards of this rank; empty without."""
        return {}

    def start(self) -> None:
        """Move the sampler to the first batch, once. From then on, the state determines the indices."""
        if self.has_started:
            return
        self.has_started = True
        if (saved := self.state.sampler) is None:
            self.state.sampler = self.indices.snapshot()
            return
        self.indices.load_state_dict(resolved(saved))
        try:
            self.indices.skip(self.state.position)
        except StopIteration:
            raise CheckpointError(
                f"Invalid state_dict: {self.state.position} batches had been delivered, and the sampler of this loader has "
                "fewer; load the state into a loader with the same dataset and sampler"
            ) from None

    def _draw(self) -> Any:
        """Return the next item of the sampler. Ctrl-C may interrupt the sampler, which ends a generator.

        Raises:
            LostItemError: the sampler ends after an interrupt.
        """
        try:
            with interruptible():
                keys = next(self.indices)
                if self.needs_sequences and type(keys) is not list:
                    keys = as_sequence(keys)
        except StopIteration:
            if not self._was_interrupted:
                raise
            raise LostItemError(
                "the sampler was interrupted, and ended as generators do: the rest of this epoch is lost. An iterator class "
                "with a __next__ method would continue after an interrupt"
            ) from None
        except KeyboardInterrupt:
            self._was_interrupted = True
            raise
        self._was_interrupted = False
        return keys

    def check(self) -> None:  # noqa: B027  # most plans are fine
        """Warn if some workers have nothing to do."""


class SamplesPlan(LoaderPlan):
    """Batches of the samples of a map-style dataset; without batches, single samples."""

    def _prepare_requests(self, workers: LoaderWorkers) -> None:
        options = self._options
        self._passes_keys = self._fetcher.passes_keys
        self._is_batched = options.batched
        self.needs_sequences = options.batched and not self._passes_keys
        #: Batch n belongs to worker n modulo this number; 0: to any worker.
        self._num_bound = options.num_workers if workers.is_bound else 0

    def draw(self) -> Any:
        """Return the keys of the next batch, which this process computes; of a batch, as a sequence.

        Nothing defers Ctrl-C. A generator that it ends then ends the epoch, as in PyTorch.

        Raises:
            StopIteration: there are no more batches.
            Exception: the error of the sampler.
        """
        if not self.has_started:
            self.start()
        state, number = self.state, self.num_begun
        keys = next(self.indices)
        while number < state.position or number in state.ahead:  # delivered before, out of order
            number = self.num_begun = number + 1  # in case the sampler is interrupted
            keys = next(self.indices)
        if self.needs_sequences and type(keys) is not list:
            keys = as_sequence(keys)
        self.num_begun = number + 1
        self._counters.samples += len(keys) if self._options.batched else 1
        return keys

    def begin(self, turn: int) -> BatchKey:
        state, number = self.state, self.num_begun
        keys = self._draw()
        while number < state.position or number in state.ahead:  # delivered before, out of order
            number = self.num_begun = number + 1  # in case the sampler is interrupted
            keys = self._draw()
        self.num_begun = number + 1
        num_samples = len(keys) if self._is_batched else 1
        self._counters.samples += num_samples
        worker = number % self._num_bound if self._num_bound else ANY_WORKER
        is_whole = not self._is_batched or self._passes_keys
        parts, fetcher = 1, self._fetcher
        if not is_whole and (  # `Fetcher.takes_whole`, mostly without a call
            fetcher.as_batches or fetcher.num_whole or not 0 < num_samples <= self._capacity
        ):
            is_whole = fetcher.takes_whole(num_samples, self._capacity)
            parts = num_samples + 1  # the last part is the collation
        changes = None if self.positions is None else self.positions.changes
        request = pack_request(SamplesRequest(self._seed, number, keys, is_whole, changes))
        return BatchKey(0, self.number, number, 0, 1 if is_whole else num_samples, worker, turn, request, parts)

    def whole(self, key: BatchKey) -> BatchKey | None:
        """Return the key with which one worker makes a batch that was requested as samples, or None if it was not."""
        request = unpack_request(key.request)
        assert isinstance(request, SamplesRequest)
        if request.as_batch:
            return None
        text = pack_request(request._replace(as_batch=True))
        return key._replace(size=1, parts=len(request.keys) + 1, request=text)


class ItemsPlan(LoaderPlan):
    """Items of an iterable dataset, in batches. The workers take turns; those at their end are left out."""

    has_started = True  # there are no indices

    def _prepare_requests(self, workers: LoaderWorkers) -> None:
        options, state = self._options, self.state
        self._packed_states: dict[int, tuple[dict[str, Any], bytes]] = {}
        workers_at_end = [worker for worker, known in state.states.items() if known.state == ENDED]
        passed = [state.passed(worker) for worker in range(options.num_workers)]
        self._ended = workers_at_end
        self._turns = Turns(passed, state.turn, workers_at_end)

    def begin(self, turn: int) -> BatchKey:
        options, turns = self._options, self._turns
        waiting = turns.waiting()
        if not waiting:
            raise StopIteration
        worker = waiting[0]
        if not options.in_order:
            # The worker with the fewest pending requests: otherwise all of them would wait for a slow worker.
            worker = min(waiting, key=lambda w: turns.steps(w) - self.state.passed(w))
        request = ItemsRequest(
            seed=self._seed,
            iterator=self.number,
            worker=worker,
            number=turns.take(worker),
            size=options.samples_per_batch,
            drop_last=options.drop_last,
            shared_seed=self.state.shared_seed,
            state=self._packed_state(worker),
            wants_state=self.wants_states,
        )
        number = self.num_begun
        self.num_begun += 1
        self._counters.samples += request.size or 1
        return BatchKey(0, self.number, number, 0, 1, worker, turn, pack_request(request))

    def note(self, batch: Batch) -> None:
        state, worker = self.state, batch.key.worker
        known = state.states.get(worker, _BEGINNING)
        passed = max(known.taken, known.passed)
        if type(batch.outcome) is StopIteration:
            state.states[worker] = ShardState(passed, ENDED)
            if worker not in self._ended:
                self._ended.append(worker)
        else:
            state.position += 1
            state.states[worker] = ShardState(known.taken, known.state, passed + 1)
        state.turn = (worker + 1) % self._options.num_workers

    def draw(self) -> None:
        """Begin the next batch, which this process takes from the dataset.

        Raises:
            StopIteration: there are no more batches.
        """
        if self.state.states.get(0, _BEGINNING).state == ENDED:
            raise StopIteration
        self.num_begun += 1

    def note_steps(self, passed: int, reported: dict[str, Any] | None, *, is_over: bool = False) -> None:
        """Record how many steps this process has taken, and the state of the dataset, if there is one."""
        states = self.state.states
        if is_over:
            states[0] = ShardState(passed, ENDED)
        elif passed:
            states[0] = states.get(0, _BEGINNING)._replace(passed=passed)
        self.state.note_walk(0, reported)

    def deliver(self, batch: Batch) -> None:
        """The batch has been counted by `note`."""

    def read(self, key: BatchKey, answers: Mapping[int, Any]) -> bool:
        self.state.note_walk(key.worker, answers[0].state)
        return True

    def _packed_state(self, worker: int) -> bytes | None:
        """Return the last reported state of a worker, pickled once for all requests."""
        known = self.state.states.get(worker, _BEGINNING)
        if known.state is None or known.state == ENDED:
            return None
        packed = self._packed_states.get(worker)
        if packed is None or packed[0] is not known.state:
            text = pickle.dumps(walk_of_state(known), pickle.HIGHEST_PROTOCOL)
            packed = self._packed_states[worker] = known.state, text
        return packed[1]


class PositionsPlan(LoaderPlan):
    """Positions of a composed dataset in logical shards; see `dali_like.feed.shards`."""

    def __init__(
        self,
        options: LoaderOptions,
        state: IteratorState,
        indices: SamplerIterator[Any],
        counters: LoaderCounters,
        workers: LoaderWorkers | None = None,
    ) -> None:
        super().__init__(options, state, indices, counters, workers)
        begun = self.positions
        assert begun is not None
        self._sampler: PositionSampler = options.index_sampler  # type: ignore[assignment]
        self._epoch = begun.epoch
        self._progress = self._new_progress(begun)
        self.has_ended = self._progress.is_at_end

    def _new_progress(self, begun: PositionIterator) -> ShardProgress:
        sampler = self._sampler
        return ShardProgress(
            sampler.dataset.shards or 0,
            sampler.owned,
            begun.begin,
            begun.states,
            self._options.num_workers,
            is_shared=sampler.dataset.ends_in_map,
            is_padded=sampler.rest == "pad" and begun.counts is not None,
            in_columns=sampler.dataset.is_columnar,
            drawn=begun.drawn,
        )

    def check(self) -> None:
        sampler, num_workers = self._sampler, self._options.num_workers
        if len(sampler.owned) < num_workers and not (sampler.dataset.ends_in_map and sampler.balance is None):
            warn(
                f"this rank has fewer logical shards ({len(sampler.owned)}) than workers ({num_workers}), so some "
                "workers are idle. Use fewer workers, or describe the dataset with more shards: with_options(shards=...)",
                UserWarning,
            )

    @property
    def shard_states(self) -> Mapping[int, ShardState]:
        return self._progress.states

    def shards_of(self, key: BatchKey) -> set[int]:
        """Return the logical shards of a requested batch."""
        request = unpack_request(key.request)
        assert isinstance(request, PositionsRequest)
        return {position % self._progress.num_shards for position in request.positions}

    @property
    def progress(self) -> ShardProgress:
        """The logical shards of this rank."""
        return self._progress

    def draw(self) -> PositionsRequest:
        """Return the request for the next batch, which this process computes.

        Raises:
            StopIteration: there are no more batches.
        """
        self.start()
        if self.has_ended:
            raise StopIteration
        request, _ = self._draw_request(None)
        return request

    def begin(self, turn: int) -> BatchKey:
        request, owners = self._draw_request(self._seed)
        positions = request.positions
        request = request._replace(fills_rows=not self._fetcher.takes_whole(len(positions), self._capacity))
        return BatchKey(
            0,
            self.number,
            request.number,
            0,
            min(len(positions), self._capacity),
            turn=turn,
            request=pack_request(request),
            parts=len(positions) + 1,  # the last part is the collation
            owners=owners,
        )

    def _draw_request(self, seed: int | None) -> tuple[PositionsRequest, tuple[int, ...]]:
        """Return the request for the next batch, and the worker of each part."""
        drawn = self._draw()
        positions: Sequence[int] = drawn if self._options.batched else range(drawn, drawn + 1)
        parts = self._progress.by_worker(positions)
        number = self.num_begun
        self.num_begun += 1
        return self._request(seed, number, positions, parts.values()), tuple(parts)

    def _request(self, seed: int | None, number: int, positions: Sequence[int], parts: Iterable[bytes]) -> PositionsRequest:
        changes = None if self.positions is None else self.positions.changes
        return PositionsRequest(seed, number, self._epoch, positions, parts=tuple(parts), changes=changes)

    def is_batch(self, answers: Mapping[int, Any], size: int) -> bool:
        num_elements = sum(len(answer.found) for answer in answers.values())
        return num_elements >= (size if self._sampler.drop_last else 1)

    def read(self, key: BatchKey, answers: Mapping[int, Any]) -> bool:
        return self.note_answers(answers, num_samples_of(key))

    def note_answers(self, answers: Mapping[int, Any], size: int) -> bool:
        """Record the states in the answers of a batch. Return whether it is a batch for the program."""
        self._progress.note(answers.values())
        progress = self._progress
        progress.note_drawn(answers.values())
        if self.positions is not None and progress.has_reported:
            self.positions.drawn = progress.drawn
        self.has_ended = self._progress.is_at_end
        self._counters.samples += sum(len(answer.found) for answer in answers.values())
        if not self.is_batch(answers, size):
            return False
        self._counters.batches += 1
        return True


def num_samples_of(key: BatchKey) -> int:
    """Return the number of samples, or positions, in the request for a batch; the last part is the collation."""
    return key.parts - 1


def checked_state(state: Any, is_iterable: bool, num_workers: int, batch_size: int | None) -> dict[str, Any]:
    """Return a copy of a loader's state.

    Raises:
        CheckpointError: it is not a state of such a loader.
    """
    state = read_state(state, LOADER, "the state", invalid_state)
    if state["iterable"] != is_iterable:
        kinds = ("a map-style", "an iterable")
        raise invalid_state(f"it is of {kinds[not is_iterable]} dataset, and this is {kinds[is_iterable]} one")
    if is_iterable and state["num_workers"] != num_workers:
        raise invalid_state(
            f"{state['num_workers']} workers had divided the iterable dataset among themselves, "
            f"and this loader has {num_workers}: pass num_workers={state['num_workers']}"
        )
    if state["batch_size"] != batch_size:
        raise invalid_state(f"it counts batches of {state['batch_size']} samples, and this loader's have {batch_size}")
    workers = range(max(num_workers, 1) if is_iterable else 0)
    for worker in (state["iterator"] or {"states": ()})["states"]:
        if int(worker) not in workers:
            raise invalid_state(f"it has a state of worker {worker}, and only {len(workers)} had divided the dataset")
    return copy.deepcopy(state)


def _copied(value: Any) -> Any:
    """Return a deep copy. For the usual states of numbers and texts, this takes a tenth of the time of `copy.deepcopy`."""
    kind = type(value)
    if kind is dict:
        return {key: part if type(part) in _ATOMS else _copied(part) for key, part in value.items()}
    if kind is list:
        return value.copy() if _ATOMS.issuperset(map(type, value)) else [_copied(part) for part in value]
    return value if kind in _ATOMS else copy.deepcopy(value)


def plan_for(options: LoaderOptions) -> type[LoaderPlan]:
    """Return the class of the plans of a loader."""
    if options.is_iterable:
        return ItemsPlan
    if options.reads_ahead:
        from dali_like.data.shard_balance import BalancedPlan  # few programs need it

        return BalancedPlan
    return PositionsPlan if options.is_sharded else SamplesPlan


def pack_request(request: SamplesRequest | ItemsRequest | PositionsRequest) -> bytes:
    """Pickle a request as a plain tuple; see `dali_like.data.messages.unpack_request`."""
    return pickle.dumps((NUMBERS[type(request)], *request), pickle.HIGHEST_PROTOCOL)
