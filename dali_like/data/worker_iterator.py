"""Passes whose batches are made by workers.

As many batches are kept on their way as PyTorch's loader keeps. The indices of each are drawn from the sampler when it is
begun, and they are delivered in that order, unless the loader has been told otherwise.
"""

from __future__ import annotations

import pickle
import sys
import traceback
import weakref
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from dali_like.common.interrupts import interruptible
from dali_like.data.fetcher import as_sequence
from dali_like.data.iterator_state import IteratorState, Plan
from dali_like.data.loader_iterator import LoaderIterator
from dali_like.data.messages import Keys, Step
from dali_like.data.responses import batch_of_response
from dali_like.data.sampler_iterators import SamplerIterator
from dali_like.engine.memory.batch_key import ANY_WORKER, BatchKey
from dali_like.engine.pool.batch import Batch
from dali_like.engine.pool.request_assembler import Response
from dali_like.engine.pool.turns import Turns
from dali_like.engine.worker.exceptions import add_note
from dali_like.errors import LoaderTimeoutError, LostItemError, SampleTypeError

if TYPE_CHECKING:
    from dali_like.data.loader_workers import LoaderWorkers
    from dali_like.data.worker_handles import WorkerHandle


class WorkerIterator(LoaderIterator):
    """A pass that has its batches made by workers."""

    def __init__(self, plan: Plan, progress: IteratorState, indices: SamplerIterator[Any], workers: LoaderWorkers) -> None:
        self._pending: deque[Batch] = deque()
        self._walk = workers.begin_pass()
        self._loader_workers: LoaderWorkers | None = workers
        self._last_workers = weakref.ref(workers)
        self._handles: list[WorkerHandle] = []
        super().__init__(plan, progress, indices, workers.counters)
        self._seed = progress.seed if plan.seeded_by_task else None
        self._on_last_batch: Callable[[], None] | None = None
        self._begun = progress.yielded
        self._exhausted = False
        self._sampler_error: Exception | None = None
        self._sampler_was_interrupted = False
        progress.steps = progress.steps or [0] * plan.num_workers
        self._turns = Turns(progress.steps, progress.turn, progress.ended)
        self.begin()
        with workers.lock():
            self._fill(workers, workers.num_ahead or plan.num_ahead)

    @property
    def _workers(self) -> list[WorkerHandle]:
        """The workers, also when the pass has ended: PyTorch's iterators have such a list."""
        return self._handles if self._loader_workers is None else self._loader_workers.workers

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if not is_finalizing():  # then the workers have been ended already
            self._leave()

    def call_on_last_batch(self, callback: Callable[[], None]) -> None:
        """Call this when the last batch has been begun; now, if it has been."""
        self._on_last_batch = callback
        if self._exhausted:
            callback()

    def _shutdown_workers(self) -> None:
        self.end()
        workers = self._last_workers()
        if workers is not None:
            workers.close()

    def end(self) -> None:
        if self._loader_workers is not None:
            self._handles = self._loader_workers.workers
        self._leave()

    def _leave(self) -> None:
        workers, self._loader_workers = getattr(self, "_loader_workers", None), None
        if workers is not None:
            workers.end_pass(self._pending)
            self._pending.clear()

    def _next(self) -> Any:
        while True:
            workers = self._loader_workers
            if workers is None or not self._pending:
                self._raise_end()
            key, outcome = self._take_next(workers)
            if isinstance(outcome, Response):
                try:
                    return batch_of_response(outcome, workers, self.progress)
                except Exception as error:
                    add_note(
                        error,
                        f"raised by the main process for {workers.fetcher.describe_batch(key)}, which workers have made",
                    )
                    raise
            if not isinstance(outcome, StopIteration):
                try:
                    raise outcome
                finally:  # what its traceback holds must not hold it: the pass would not end when it is dropped
                    del outcome
            if not self._plan.is_iterable:
                self._raise_end()

    def _take_next(self, workers: LoaderWorkers) -> tuple[BatchKey, Any]:
        """The next batch and what has become of it. Where that is interrupted, the next call goes on with it."""
        with workers.lock():
            while True:
                batch = self._wait(workers)
                if self._plan.is_iterable:
                    self._note_step(batch)
                self._fill(workers, (workers.num_ahead or self._plan.num_ahead) + 1)
                place = self._pending.index(batch)
                del self._pending[place]
                outcome = workers.take(batch)
                if not (isinstance(outcome, SampleTypeError) and self._begin_as_one(batch, place, workers)):
                    break
            if not self._plan.is_iterable:
                self.progress.deliver(batch.key.iteration)
            return batch.key, outcome

    def _begin_as_one(self, batch: Batch, place: int, workers: LoaderWorkers) -> bool:
        """Begin a batch again whose samples cannot be pickled, to be collated where they are; False if it has been.

        A ``sqlite3.Row`` cannot, say, and the batch of many is a list of tensors, which can.
        """
        asked = pickle.loads(batch.key.request)
        if not isinstance(asked, Keys) or asked.whole:
            return False
        workers.fetcher.whole = True  # and so are those to come
        text = pickle.dumps(asked._replace(whole=True), pickle.HIGHEST_PROTOCOL)
        begun: list[Batch] = []
        workers.submit(batch.key._replace(size=1, parts=len(asked.keys) + 1, request=text), begun)
        self._pending.insert(place, *begun)
        return True

    def _raise_end(self) -> NoReturn:
        """End the pass.

        Raises:
            Exception: what the sampler has raised.
            StopIteration: nothing.
        """
        error, self._sampler_error = self._sampler_error, None
        self.progress.is_over = True
        self.end()
        try:
            raise error or StopIteration
        finally:
            del error

    def _wait(self, workers: LoaderWorkers) -> Batch:
        """Wait for the next batch, or for any.

        Raises:
            LoaderTimeoutError: that takes too long. The next call goes on waiting.
        """
        plan = self._plan
        if workers.failure is not None:  # for who goes on after errors: all that were on their way fail, and the pass ends
            self._pending.popleft()
            raise workers.failure
        candidates = (self._pending[0],) if plan.in_order else tuple(self._pending)
        batch = workers.wait_for(candidates, plan.timeout_s)
        if batch is None:
            raise LoaderTimeoutError(
                "\n".join(
                    [f"DataLoader timed out after {plan.timeout_s} seconds", *workers.describe_workers_on(candidates[0])]
                )
            )
        if not plan.seeded_by_task:
            workers.warn_of_restarts()
        return batch

    def _note_step(self, batch: Batch) -> None:
        """Record that a worker has carried out a step through an iterable dataset."""
        progress, worker = self.progress, batch.key.worker
        progress.steps[worker] += 1
        progress.turn = (worker + 1) % self._plan.num_workers
        if not isinstance(batch.outcome, StopIteration):
            progress.yielded += 1
        elif worker not in progress.ended:
            progress.ended.append(worker)

    def _fill(self, workers: LoaderWorkers, most: int) -> None:
        """Begin batches until so many are on their way. An error of the sampler is kept until its turn comes."""
        while len(self._pending) < most and not self._exhausted:
            try:
                asked = self._next_step() if self._plan.is_iterable else self._next_keys(workers)
                text = pickle.dumps(asked, pickle.HIGHEST_PROTOCOL)
            except Exception as error:
                self._exhausted = True
                if not isinstance(error, StopIteration):
                    self._sampler_error = _for_later(error)
                if self._on_last_batch is not None:
                    self._on_last_batch()
                return
            if self._begun not in self.progress.ahead:
                workers.submit(self._key_of(asked, text, workers), self._pending)
                self._count(asked)
            self._begun += 1

    def _key_of(self, asked: Keys | Step, text: bytes, workers: LoaderWorkers) -> BatchKey:
        """The batch that is asked for, as the pool sees it."""
        size = parts = 1
        worker = ANY_WORKER
        if isinstance(asked, Step):
            worker = asked.worker
        else:
            if workers.is_bound:
                worker = asked.number % self._plan.num_workers
            if not asked.whole:
                size = len(asked.keys)
            elif self._plan.batched and workers.fetcher.getitems is None:
                parts = len(asked.keys) + 1  # the last is their collation
        return BatchKey(0, self._walk, self._begun, 0, size, worker, workers.next_turn(), text, parts)

    def _next_keys(self, workers: LoaderWorkers) -> Keys:
        """What the next batch is made of."""
        keys = self._draw_keys(workers)
        if not self._plan.batched or workers.fetcher.getitems is not None:
            return Keys(self._seed, self._begun, keys, True)
        return Keys(self._seed, self._begun, keys, workers.fetcher.whole or not 0 < len(keys) <= workers.capacity)

    def _draw_keys(self, workers: LoaderWorkers) -> Any:
        """What the sampler gives next. Its code can be interrupted, which a generator does not survive.

        Raises:
            LostItemError: it ends where it has been interrupted.
        """
        try:
            with interruptible():
                keys = next(self._indices)
                if self._plan.batched and workers.fetcher.getitems is None:
                    keys = as_sequence(keys)
        except StopIteration:
            if not self._sampler_was_interrupted:
                raise
            raise LostItemError(
                "the sampler was interrupted and has ended, as generators do, so that the rest of this epoch is lost; an "
                "iterator with a __next__ of its own would go on"
            ) from None
        except KeyboardInterrupt:
            self._sampler_was_interrupted = True
            raise
        self._sampler_was_interrupted = False
        return keys

    def _next_step(self) -> Step:
        """Return the next step, for the worker whose turn it is.

        Out of order, the worker with the fewest unfinished steps comes next. Otherwise all steps on their way could be those
        of one slow worker, and the others would idle.

        Raises:
            StopIteration: all workers have ended.
        """
        plan, progress, turns = self._plan, self.progress, self._turns
        waiting = turns.waiting()
        if not waiting:
            raise StopIteration
        worker = waiting[0] if plan.in_order else min(waiting, key=lambda w: turns.steps(w) - progress.steps[w])
        number = turns.take(worker)
        told = progress.told_by(worker)
        return Step(self._seed, self._walk, worker, number, plan.batch_size, plan.drop_last, progress.shared_seed, told)


def _for_later(error: Exception) -> Exception:
    """An error that a pass keeps for a while. Its traceback, which would keep the pass, becomes a note."""
    add_note(error, f"raised by the sampler:\n{''.join(traceback.format_tb(error.__traceback__))}")
    return error.with_traceback(None)
