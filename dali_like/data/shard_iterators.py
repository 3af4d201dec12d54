"""Iterators over composed datasets that run in logical shards. They run in the main process.

A batch consists of positions of several logical shards. Each shard has one worker, so its walk stays open there. A request
has a part, and the batch a task, for each worker that has some of the positions::

    positions of the batch   0  2  4  6  8        rank 0 of 2, two workers
    logical shards           0  2  4  6  8
    workers                  0  1  0  1  0        parts: worker 0 for 0, 4, 8; worker 1 for 2, 6

If a rank has fewer shards than workers, and the last stage is a map, several workers share a shard. Each has a walk through
it, calls the function of the map for its own positions, and skips the others.

With the default collation, each worker writes its elements into the rows of the batch. Otherwise, the worker that has all
positions of a batch collates it, or else this process does.

A part carries the latest known states of its shards, and the answer the states behind it. So a new worker continues where a
dead one was, and a state of the loader consists of the states that came with the batches returned so far.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dali_like.common.foreign_errors import add_note
from dali_like.common.notices import warn
from dali_like.data.counters import LoaderCounters
from dali_like.data.fetcher import Fetcher, LocalRequest
from dali_like.data.iterator_state import IteratorState
from dali_like.data.loader_workers import LoaderWorkers
from dali_like.data.messages import PositionsAnswer, PositionsPart, PositionsRequest
from dali_like.data.options import LoaderOptions
from dali_like.data.position_sampler import PositionIterator, PositionSampler
from dali_like.data.sampler_iterators import SamplerIterator
from dali_like.data.serial_iterator import SerialIterator
from dali_like.data.worker_iterator import WorkerIterator, batch_rows
from dali_like.engine.memory.batch_key import BatchKey
from dali_like.engine.pool.request_assembler import Response
from dali_like.engine.worker.meters import Interval
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
        """Return the places of the positions that may have an element; all, if none of them may."""
        if self._is_padded or not self.ended:
            return list(range(len(positions)))
        places = [place for place, position in enumerate(positions) if position % self.num_shards not in self.ended]
        return places or list(range(len(positions)))

    def part(self, positions: Sequence[int], places: list[int]) -> PositionsPart:
        """Return the request for the positions at some places of a batch."""
        shards = {positions[place] % self.num_shards for place in places}
        return PositionsPart(places, {shard: self.states[shard] for shard in shards if shard in self.states})

    def note(self, answers: Iterable[PositionsAnswer]) -> None:
        """Record the states of the answers that belong to a returned batch."""
        last: dict[int, ShardState] = {}
        for answer in answers:
            self.ended.update(answer.ended)
            for shard, state in answer.states.items():
                if shard not in last or last[shard].taken < state.taken:  # several workers may share the shard
                    last[shard] = state
        self.states.update(last)

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
                batch = self._make_batch(self.state.yielded, positions)
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
        request = PositionsRequest(None, number, self.progress.begun.epoch, list(positions))
        part = self.progress.part(positions, self.progress.remaining(positions))
        local.watch = watch = meter.begin()
        try:
            answer = self._fetcher.take_positions(request, part, local, None)
            self.progress.note([answer])
            if self.progress.is_dropped([answer]):
                return _EMPTY
            self._counters.samples += len(answer.found)
            self._counters.batches += 1
            return self._fetcher.finish_elements(answer.others)
        except Exception as error:
            add_note(error, f"raised by {self._fetcher.name} for {self._fetcher.describe_position(request, local.cell[0])}")
            raise
        finally:
            meter.end(watch, Interval(self.state.number, number, -1, 1))
            meter.note()
            self._counters.replaced += local.cell[1]


class ShardWorkerIterator(WorkerIterator):
    """Requests its batches from the workers of their shards."""

    def __init__(
        self, options: LoaderOptions, state: IteratorState, indices: SamplerIterator[Any], workers: LoaderWorkers
    ) -> None:
        assert isinstance(indices, PositionIterator)
        self.progress = ShardProgress(options, indices)
        sampler, num_workers = self.progress.sampler, options.num_workers
        step = len(sampler.owned) if sampler.dataset.ends_in_map else num_workers
        self._workers_of = {
            shard: range(place % num_workers, num_workers, step) for place, shard in enumerate(sampler.owned)
        }
        super().__init__(options, state, indices, workers)
        if len(sampler.owned) < num_workers and not sampler.dataset.ends_in_map:
            warn(
                f"this rank has fewer logical shards ({len(sampler.owned)}) than workers ({num_workers}), so some "
                "workers are idle. Use fewer workers, or describe the dataset with more shards: with_options(shards=...)",
                UserWarning,
            )

    @property
    def shard_states(self) -> Mapping[int, ShardState]:
        return self.progress.states

    def _next(self) -> Any:
        batch = _EMPTY
        while batch is _EMPTY:
            if self.progress.is_at_end:
                self._raise_end()
            batch = super()._next()
        return batch

    def _begin_batch(self, workers: LoaderWorkers) -> BatchKey:
        drawn = self._draw_keys(workers)
        positions: list[int] = drawn if self._options.batched else [drawn]
        progress = self.progress
        places: dict[int, list[int]] = {}
        for place in progress.remaining(positions):
            number, shard = divmod(positions[place], progress.num_shards)
            among = self._workers_of[shard]
            places.setdefault(among[number % len(among)], []).append(place)
        request = PositionsRequest(
            self._seed,
            self._num_begun,
            progress.begun.epoch,
            positions,
            not workers.fetcher.takes_whole(len(positions), workers.capacity),
            tuple(pickle.dumps(progress.part(positions, mine), pickle.HIGHEST_PROTOCOL) for mine in places.values()),
        )
        return BatchKey(
            0,
            self._number,
            self._num_begun,
            0,
            min(len(positions), workers.capacity),
            turn=workers.next_turn(),
            request=pickle.dumps(request, pickle.HIGHEST_PROTOCOL),
            parts=len(positions) + 1,  # the last part is the collation
            owners=tuple(places),
        )

    def _batch_of(self, response: Response, workers: LoaderWorkers) -> Any:
        """Return the batch of a response, or `_EMPTY`. Record the schema of its elements, and the states of shards."""
        answers: dict[int, PositionsAnswer] = response.messages()
        self.progress.note(answers.values())
        for answer in answers.values():
            self._counters.samples += len(answer.found)
        if self.progress.is_dropped(list(answers.values())):
            return _EMPTY
        self._counters.batches += 1
        if len(answers) == 1 and answers[0].collated:
            return answers[0].collated[0]
        has_others = any(answer.others for answer in answers.values())
        schema: Any = response.schema
        if has_others:
            workers.note_different(schema, answers)
        else:
            workers.note_fit()
        texts = _texts_by_place(answers.values(), response, schema)
        if not has_others and sum(len(answer.found) for answer in answers.values()) == response.size:
            return schema.root.batch(batch_rows(response), texts, False)
        elements: dict[int, Any] = {}
        for answer in answers.values():
            in_rows = answer.in_rows
            elements.update((place, schema.root.sample(response.rows, texts, place)) for place in in_rows)
            elements.update(zip(answer.found[len(in_rows) :], answer.others, strict=True))
        return workers.fetcher.finish_elements([elements[place] for place in sorted(elements)])


def _texts_by_place(answers: Iterable[PositionsAnswer], response: Response, schema: Any) -> list[list[Any]]:
    """Return the texts of the elements in rows, by their place in the batch: a list for each text of the schema."""
    columns: list[list[Any]] = [[None] * response.size for _ in range(0 if schema is None else schema.num_texts)]
    for answer in answers:
        for column, texts in zip(columns, answer.texts, strict=False):
            for place, text in zip(answer.in_rows, texts, strict=True):
                column[place] = text
    return columns
