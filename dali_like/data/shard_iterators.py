"""Iterators over composed datasets that run in logical shards. They run in the main process.

A batch consists of positions of several logical shards. Each shard has one worker, so its walk stays open there. For each
batch, `ShardWorkerIterator` sends one request to each worker that has some of its positions::

    positions of the batch   0  2  4  6  8        rank 0 of 2, two workers
    logical shards           0  2  4  6  8
    workers                  0  1  0  1  0        requests: worker 0 for 0, 4, 8; worker 1 for 2, 6

A request carries the latest known states of its shards, and the answer the states behind it. So a new worker continues
where a dead one was, and a state of the loader consists of the states that came with the batches returned so far. If one
worker has all positions of a batch, it collates them; otherwise, this process does.
"""

from __future__ import annotations

import math
import pickle
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dali_like.common.notices import warn
from dali_like.data.counters import LoaderCounters
from dali_like.data.fetcher import Fetcher, LocalRequest
from dali_like.data.iterator_state import IteratorState
from dali_like.data.loader_workers import LoaderWorkers
from dali_like.data.messages import PositionsAnswer, PositionsRequest
from dali_like.data.options import LoaderOptions
from dali_like.data.position_sampler import PositionIterator, PositionSampler
from dali_like.data.sampler_iterators import SamplerIterator
from dali_like.data.serial_iterator import SerialIterator
from dali_like.data.worker_iterator import WorkerIterator
from dali_like.engine.memory.batch_key import BatchKey
from dali_like.engine.pool.batch import Batch
from dali_like.engine.worker.exceptions import add_note
from dali_like.engine.worker.meters import Interval
from dali_like.errors import LoaderTimeoutError
from dali_like.sources.composed.stream import ShardState

#: In place of an empty position.
_EMPTY = object()


class ShardProgress:
    """Which logical shards of this rank have ended, and the states of all of them behind the returned batches.

    Attributes:
        states: the latest known state of each shard.
        ended: the shards at their end.
    """

    def __init__(self, options: LoaderOptions, begun: PositionIterator) -> None:
        sampler = options.index_sampler
        assert isinstance(sampler, PositionSampler)
        self.sampler = sampler
        self.begun = begun
        self.num_shards: int = sampler.dataset.shards or 0
        self.states: dict[int, ShardState] = dict(begun.states)
        self.ended: set[int] = set()
        self._is_padded = sampler.rest == "pad" and begun.counts is not None

    @property
    def is_at_end(self) -> bool:
        """Whether all shards of this rank have ended. Padded positions are never empty."""
        return not self._is_padded and len(self.ended) == len(self.sampler.owned)

    def remaining(self, positions: Sequence[int]) -> list[int]:
        """Return the positions that may have an element."""
        return [position for position in positions if position % self.num_shards not in self.ended or self._is_padded]

    def request(self, positions: Sequence[int], seed: int | None, number: int, *, collates: bool) -> PositionsRequest:
        """Return the request for some positions of a batch."""
        shards = {position % self.num_shards for position in positions}
        states = {shard: self.states[shard] for shard in shards if shard in self.states}
        return PositionsRequest(seed, number, self.begun.epoch, list(positions), states, collates)

    def note(self, answer: PositionsAnswer) -> None:
        """Record the states of an answer that belongs to a returned batch."""
        self.states.update(answer.states)
        self.ended.update(answer.ended)

    def is_dropped(self, answers: Sequence[PositionsAnswer]) -> bool:
        """Whether a batch is left out."""
        num_elements = sum(len(answer.found) for answer in answers)
        is_smaller = num_elements < (self.sampler.batch_size or 1)
        return not num_elements or (self.sampler.drop_last and is_smaller)


class ShardSerialIterator(SerialIterator):
    """Computes its batches itself."""

    def __init__(
        self,
        options: LoaderOptions,
        state: IteratorState,
        indices: SamplerIterator[Any],
        fetcher: Fetcher,
        counters: LoaderCounters,
    ) -> None:
        assert isinstance(indices, PositionIterator)
        self.progress = ShardProgress(options, indices)
        self._drawn: Any = None
        super().__init__(options, state, indices, fetcher, counters)

    @property
    def shard_states(self) -> Mapping[int, ShardState]:
        return self.progress.states

    def _next(self) -> Any:
        """Return the next batch, or raise the exception in its place. After an interrupt, the next call makes it again."""
        if self.state.is_over:
            raise StopIteration
        while not self.progress.is_at_end:
            if self._drawn is None:
                self._drawn = next(self._indices, None)
            if self._drawn is None:
                break
            positions = self._drawn if self._options.batched else [self._drawn]
            try:
                batch = self._make_batch(self.state.yielded, self.progress.remaining(positions))
            except Exception:
                self._pass_batch()
                raise
            self._pass_batch()
            if batch is not _EMPTY:
                return batch
        self.state.is_over = True
        raise StopIteration

    def _pass_batch(self) -> None:
        self._drawn = None
        self.state.deliver(self.state.yielded)

    def _make_batch(self, number: int, positions: Sequence[int]) -> Any:
        local, meter = LocalRequest(), self._counters.meter
        request = self.progress.request(positions, None, number, collates=False)
        local.watch = watch = meter.begin()
        try:
            answer = self._fetcher.take_positions(request, local)
            self.progress.note(answer)
            if self.progress.is_dropped([answer]):
                return _EMPTY
            self._counters.samples += len(answer.elements)
            self._counters.batches += 1
            return self._fetcher.finish_elements(answer.elements)
        except Exception as error:
            add_note(error, f"raised by {self._fetcher.name} for {self._fetcher.describe_position(request, local.cell[0])}")
            raise
        finally:
            meter.end(watch, Interval(self.state.number, number, -1, 1))
            meter.note()
            self._counters.replaced += local.cell[1]


class _Part(NamedTuple):
    """The part of a batch that one worker computes.

    Attributes:
        batch: as the engine knows it.
        places: the places of its positions in the batch of the loader.
    """

    batch: Batch
    places: list[int]


class _Group(NamedTuple):
    """The parts of a batch of the loader, and the number of its positions."""

    parts: list[_Part]
    size: int


class ShardWorkerIterator(WorkerIterator):
    """Requests the parts of its batches from the workers of their shards."""

    def __init__(
        self, options: LoaderOptions, state: IteratorState, indices: SamplerIterator[Any], workers: LoaderWorkers
    ) -> None:
        assert isinstance(indices, PositionIterator)
        self.progress = ShardProgress(options, indices)
        self._groups: deque[_Group] = deque()
        self._owners = {shard: place % options.num_workers for place, shard in enumerate(self.progress.sampler.owned)}
        super().__init__(options, state, indices, workers)
        if len(self._owners) < options.num_workers:
            warn(
                f"this rank has fewer logical shards ({len(self._owners)}) than workers ({options.num_workers}), so some "
                "workers are idle. Use fewer workers, or describe the dataset with more shards: with_options(shards=...)",
                UserWarning,
            )

    @property
    def shard_states(self) -> Mapping[int, ShardState]:
        return self.progress.states

    def _leave(self) -> None:
        super()._leave()
        if hasattr(self, "_groups"):
            self._groups.clear()

    def _fill(self, workers: LoaderWorkers, most: int) -> None:
        """Begin batches until enough are on their way."""
        while len(self._groups) < most and not self._is_exhausted:
            try:
                drawn = next(self._indices)
            except StopIteration:
                self._is_exhausted = True
                return
            positions = drawn if self._options.batched else [drawn]
            places: dict[int, list[int]] = {}
            wanted = set(self.progress.remaining(positions))
            for place, position in enumerate(positions):
                if position in wanted:
                    places.setdefault(self._owners[position % self.progress.num_shards], []).append(place)
            self._groups.append(self._begin_group(positions, places, workers))
            self._num_begun += 1

    def _begin_group(self, positions: Sequence[int], places: dict[int, list[int]], workers: LoaderWorkers) -> _Group:
        parts = []
        for worker, mine in places.items():
            collates = len(mine) == len(positions)
            request = self.progress.request(
                [positions[place] for place in mine], self._seed, self._num_begun, collates=collates
            )
            text = pickle.dumps(request, pickle.HIGHEST_PROTOCOL)
            key = BatchKey(0, self._number, self._num_begun, 0, 1, worker, workers.next_turn(), text, len(mine) + 1)
            workers.submit(key, self._pending)
            parts.append(_Part(self._pending[-1], mine))
        return _Group(parts, len(positions))

    def _next(self) -> Any:
        while True:
            workers = self._loader_workers
            if workers is None or not self._groups or self.progress.is_at_end:
                self._raise_end()
            outcome = self._take_group(workers)
            if isinstance(outcome, Exception):
                try:
                    raise outcome
                finally:  # break the cycle through the traceback, which would keep a dropped iterator
                    del outcome
            if outcome is not _EMPTY:
                return outcome

    def _take_group(self, workers: LoaderWorkers) -> Any:
        """Return the next batch, or the exception in its place. After an interrupt, the next call returns the same batch."""
        with workers.lock():
            group = self._groups[0]
            self._wait_for_all(group, workers)
            self._fill(workers, (workers.num_ahead or self._options.num_ahead) + 1)
            outcomes = [self._take_part(part, workers) for part in group.parts]
            self._groups.popleft()
            self.state.deliver(self.state.yielded)
        answers = [outcome for outcome in outcomes if isinstance(outcome, PositionsAnswer)]
        for answer in answers:
            self.progress.note(answer)
            self._counters.samples += len(answer.found)
        failure = next((outcome for outcome in outcomes if isinstance(outcome, Exception)), None)
        if failure is not None:
            return failure
        return self._assembled(group, answers, workers)

    def _take_part(self, part: _Part, workers: LoaderWorkers) -> PositionsAnswer | Exception:
        self._pending.remove(part.batch)
        outcome = workers.take(part.batch)
        if isinstance(outcome, Exception):
            return outcome
        answer: PositionsAnswer = outcome.messages()[0]
        return answer

    def _wait_for_all(self, group: _Group, workers: LoaderWorkers) -> None:
        """Wait for all parts of a batch.

        Raises:
            LoaderTimeoutError: the timeout is over. The next call waits again.
        """
        timeout_s = self._options.timeout_s
        deadline_s = time.monotonic() + timeout_s if timeout_s > 0 else math.inf
        for part in group.parts:
            if workers.failure is not None:
                self._groups.popleft()
                for other in group.parts:
                    self._pending.remove(other.batch)
                raise workers.failure
            left_s = 0 if math.isinf(deadline_s) else max(deadline_s - time.monotonic(), 1e-9)
            if workers.wait_for((part.batch,), left_s) is None:
                raise LoaderTimeoutError(
                    "\n".join([f"DataLoader timed out after {timeout_s} seconds", *workers.describe_workers_on(part.batch)])
                )
        if not self._options.seeds_by_task:
            workers.warn_about_restarts()

    def _assembled(self, group: _Group, answers: list[PositionsAnswer], workers: LoaderWorkers) -> Any:
        if self.progress.is_dropped(answers):
            return _EMPTY
        self._counters.batches += 1
        if len(answers) == 1 and answers[0].is_collated:
            return answers[0].elements[0]
        elements = [_EMPTY] * group.size
        for part, answer in zip(group.parts, answers, strict=True):
            for index, element in zip(answer.found, answer.elements, strict=True):
                elements[part.places[index]] = element
        try:
            return workers.fetcher.finish_elements([element for element in elements if element is not _EMPTY])
        except Exception as error:
            add_note(error, f"raised in the main process, for batch {self.state.yielded - 1} from the workers")
            raise
