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

from dali_like.data.deliveries import batch_of_delivery
from dali_like.data.iteration import SamplerIterator
from dali_like.data.making import as_sequence
from dali_like.data.messages import Keys, Step
from dali_like.data.passes import Pass
from dali_like.data.progress import Plan, Progress
from dali_like.errors import LoaderTimeoutError, LostItemError, SampleTypeError
from dali_like.interrupts import interruptible
from dali_like.workers.batch import ANY_WORKER, Batch, BatchKey
from dali_like.workers.requests import Delivery
from dali_like.workers.transport import add_note

if TYPE_CHECKING:
    from dali_like.data.crew import LoaderCrew
    from dali_like.data.worker_handles import WorkerHandle


class WorkerPass(Pass):
    """A pass that has its batches made by the workers of a crew."""

    def __init__(self, plan: Plan, progress: Progress, indices: SamplerIterator[Any], crew: LoaderCrew) -> None:
        self._pending: deque[Batch] = deque()
        self._walk = crew.begin_pass()
        self._crew: LoaderCrew | None = crew
        self._last_crew = weakref.ref(crew)
        self._handles: list[WorkerHandle] = []
        super().__init__(plan, progress, indices, crew.tally)
        self._seed = progress.seed if plan.seeded_by_task else None
        self._on_last_batch: Callable[[], None] | None = None
        self._begun = progress.yielded
        self._exhausted = False
        self._sampler_error: Exception | None = None
        self._sampler_was_interrupted = False
        progress.steps = progress.steps or [0] * plan.num_workers
        self._steps = list(progress.steps)
        self._turn = progress.turn
        self.begin()
        with crew.lock():
            self._fill(crew, crew.num_ahead or plan.num_ahead)

    @property
    def _workers(self) -> list[WorkerHandle]:
        """The workers, also when the pass has ended: PyTorch's iterators have such a list."""
        return self._handles if self._crew is None else self._crew.workers

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
        crew = self._last_crew()
        if crew is not None:
            crew.close()

    def end(self) -> None:
        if self._crew is not None:
            self._handles = self._crew.workers
        self._leave()

    def _leave(self) -> None:
        crew, self._crew = getattr(self, "_crew", None), None
        if crew is not None:
            crew.end_pass(self._pending)
            self._pending.clear()

    def _next(self) -> Any:
        while True:
            crew = self._crew
            if crew is None or not self._pending:
                self._raise_end()
            key, outcome = self._take_next(crew)
            if isinstance(outcome, Delivery):
                try:
                    return batch_of_delivery(outcome, crew, self.progress)
                except Exception as error:
                    add_note(
                        error, f"raised by the main process for {crew.maker.describe_batch(key)}, which workers have made"
                    )
                    raise
            if not isinstance(outcome, StopIteration):
                try:
                    raise outcome
                finally:  # what its traceback holds must not hold it: the pass would not end when it is dropped
                    del outcome
            if not self._plan.is_iterable:
                self._raise_end()

    def _take_next(self, crew: LoaderCrew) -> tuple[BatchKey, Any]:
        """The next batch and what has become of it. Where that is interrupted, the next call goes on with it."""
        with crew.lock():
            while True:
                batch = self._wait(crew)
                if self._plan.is_iterable:
                    self._note_step(batch)
                self._fill(crew, (crew.num_ahead or self._plan.num_ahead) + 1)
                place = self._pending.index(batch)
                del self._pending[place]
                outcome = crew.take(batch)
                if not (isinstance(outcome, SampleTypeError) and self._begin_as_one(batch, place, crew)):
                    break
            if not self._plan.is_iterable:
                self.progress.deliver(batch.key.iteration)
            return batch.key, outcome

    def _begin_as_one(self, batch: Batch, place: int, crew: LoaderCrew) -> bool:
        """Begin a batch again whose samples cannot be pickled, to be collated where they are; False if it has been.

        A ``sqlite3.Row`` cannot, say, and the batch of many is a list of tensors, which can.
        """
        asked = pickle.loads(batch.key.request)
        if not isinstance(asked, Keys) or asked.whole:
            return False
        crew.maker.whole = True  # and so are those to come
        text = pickle.dumps(asked._replace(whole=True), pickle.HIGHEST_PROTOCOL)
        begun: list[Batch] = []
        crew.submit(batch.key._replace(size=1, parts=len(asked.keys) + 1, request=text), begun)
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

    def _wait(self, crew: LoaderCrew) -> Batch:
        """Wait for the next batch, or for any.

        Raises:
            LoaderTimeoutError: that takes too long. The next call goes on waiting.
        """
        plan = self._plan
        if crew.failure is not None:  # for who goes on after errors: all that were on their way fail, and the pass ends
            self._pending.popleft()
            raise crew.failure
        candidates = (self._pending[0],) if plan.in_order else tuple(self._pending)
        batch = crew.wait_for(candidates, plan.timeout_s)
        if batch is None:
            raise LoaderTimeoutError(
                "\n".join([f"DataLoader timed out after {plan.timeout_s} seconds", *crew.describe_workers_on(candidates[0])])
            )
        if not plan.seeded_by_task:
            crew.warn_of_restarts()
        return batch

    def _note_step(self, batch: Batch) -> None:
        """Take note of a worker's step through an iterable dataset."""
        progress, worker = self.progress, batch.key.worker
        progress.steps[worker] += 1
        progress.turn = (worker + 1) % self._plan.num_workers
        if not isinstance(batch.outcome, StopIteration):
            progress.yielded += 1
        elif worker not in progress.ended:
            progress.ended.append(worker)

    def _fill(self, crew: LoaderCrew, most: int) -> None:
        """Begin batches until so many are on their way. An error of the sampler is kept until its turn comes."""
        while len(self._pending) < most and not self._exhausted:
            try:
                asked = self._next_step() if self._plan.is_iterable else self._next_keys(crew)
                text = pickle.dumps(asked, pickle.HIGHEST_PROTOCOL)
            except Exception as error:
                self._exhausted = True
                if not isinstance(error, StopIteration):
                    self._sampler_error = _for_later(error)
                if self._on_last_batch is not None:
                    self._on_last_batch()
                return
            if self._begun not in self.progress.ahead:
                crew.submit(self._key_of(asked, text, crew), self._pending)
                self._count(asked)
            self._begun += 1

    def _key_of(self, asked: Keys | Step, text: bytes, crew: LoaderCrew) -> BatchKey:
        """The batch that is asked for, as the pool sees it."""
        size = parts = 1
        worker = ANY_WORKER
        if isinstance(asked, Step):
            worker = asked.worker
        else:
            if crew.is_bound:
                worker = asked.number % self._plan.num_workers
            if not asked.whole:
                size = len(asked.keys)
            elif self._plan.batched and crew.maker.getitems is None:
                parts = len(asked.keys) + 1  # the last is their collation
        return BatchKey(0, self._walk, self._begun, 0, size, worker, crew.next_turn(), text, parts)

    def _next_keys(self, crew: LoaderCrew) -> Keys:
        """What the next batch is made of."""
        keys = self._draw_keys(crew)
        if not self._plan.batched or crew.maker.getitems is not None:
            return Keys(self._seed, self._begun, keys, True)
        return Keys(self._seed, self._begun, keys, crew.maker.whole or not 0 < len(keys) <= crew.capacity)

    def _draw_keys(self, crew: LoaderCrew) -> Any:
        """What the sampler gives next. Its code can be interrupted, which a generator does not survive.

        Raises:
            LostItemError: it ends where it has been interrupted.
        """
        try:
            with interruptible():
                keys = next(self._indices)
                if self._plan.batched and crew.maker.getitems is None:
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
        """The next worker's step: each takes one in turn, and those that have ended are left out.

        Out of order, it is one of those that have fewest to take: a slow one would have all, and the others nothing to do.

        Raises:
            StopIteration: all have ended.
        """
        plan, progress = self._plan, self.progress
        turns = (place % plan.num_workers for place in range(self._turn, self._turn + plan.num_workers))
        going = [worker for worker in turns if worker not in progress.ended]
        if not going:
            raise StopIteration
        worker = going[0] if plan.in_order else min(going, key=lambda worker: self._steps[worker] - progress.steps[worker])
        self._turn = (worker + 1) % plan.num_workers
        number = self._steps[worker]
        self._steps[worker] += 1
        told = progress.told_by(worker)
        return Step(self._seed, self._walk, worker, number, plan.batch_size, plan.drop_last, progress.shared_seed, told)


def _for_later(error: Exception) -> Exception:
    """An error that a pass keeps for a while. Its traceback, which would keep the pass, becomes a note."""
    add_note(error, f"raised by the sampler:\n{''.join(traceback.format_tb(error.__traceback__))}")
    return error.with_traceback(None)
