"""Iterators over composed datasets that run in logical shards. They run in the main process.

`dali_like.feed.shards` says which worker computes which elements of a batch. With the default collation, each worker writes
its elements into the rows of the batch. Otherwise, the worker that has all positions of a batch collates it, or else this
process does.
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
from dali_like.data.options import LoaderOptions
from dali_like.data.position_sampler import PositionIterator, PositionSampler
from dali_like.data.sampler_iterators import SamplerIterator
from dali_like.data.serial_iterator import SerialIterator
from dali_like.data.worker_iterator import WorkerIterator, batch_rows
from dali_like.engine.memory.batch_key import BatchKey
from dali_like.engine.pool.request_assembler import Response
from dali_like.engine.worker.meters import Interval
from dali_like.feed.shards import PositionsAnswer, PositionsRequest, ShardProgress, packed
from dali_like.sources.composed.stream import ShardState

#: In place of an empty position.
_EMPTY = object()


def progress_of(options: LoaderOptions, begun: PositionIterator) -> ShardProgress:
    """Return the progress of an epoch that begins."""
    sampler = options.index_sampler
    assert isinstance(sampler, PositionSampler)
    return ShardProgress(
        sampler.dataset.shards or 0,
        sampler.owned,
        begun.begin,
        begun.states,
        options.num_workers,
        is_shared=sampler.dataset.ends_in_map,
        is_padded=sampler.rest == "pad" and begun.counts is not None,
    )


def is_dropped(options: LoaderOptions, answers: Iterable[PositionsAnswer]) -> bool:
    """Return whether a batch is left out."""
    num_elements = sum(len(answer.found) for answer in answers)
    sampler = options.index_sampler
    assert isinstance(sampler, PositionSampler)
    return not num_elements or (sampler.drop_last and num_elements < (sampler.batch_size or 1))


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
        self.progress = progress_of(options, indices)
        self._epoch = indices.epoch
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
        request = PositionsRequest(None, number, self._epoch, list(positions))
        part = self.progress.part(positions, self.progress.remaining(positions))
        local.watch = watch = meter.begin()
        try:
            answer = self._fetcher.take_positions(request, part, local, None)
            self.progress.note([answer])
            if is_dropped(self._options, [answer]):
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
        self.progress = progress_of(options, indices)
        self._epoch = indices.epoch
        super().__init__(options, state, indices, workers)
        sampler, num_workers = options.index_sampler, options.num_workers
        assert isinstance(sampler, PositionSampler)
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
        parts = self.progress.by_worker(positions)
        request = PositionsRequest(
            self._seed,
            self._num_begun,
            self._epoch,
            positions,
            not workers.fetcher.takes_whole(len(positions), workers.capacity),
            packed(parts.values()),
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
            owners=tuple(parts),
        )

    def _batch_of(self, response: Response, workers: LoaderWorkers) -> Any:
        """Return the batch of a response, or `_EMPTY`. Record the schema of its elements, and the states of shards."""
        answers: dict[int, PositionsAnswer] = response.messages()
        self.progress.note(answers.values())
        for answer in answers.values():
            self._counters.samples += len(answer.found)
        if is_dropped(self._options, answers.values()):
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
