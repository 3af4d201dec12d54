"""Passes over a loader: the iterators that deliver its batches.

`SerialPass` makes them in the calling process. `WorkerPass` has them made by workers: it keeps as many on their way as
PyTorch's loader does, draws the indices of each from the sampler when it begins it, and delivers them in that order, unless
it is told otherwise.
"""

from __future__ import annotations

import abc
import pickle
import sys
import traceback
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn, Self

from dali_like.data.deliveries import batch_of_delivery
from dali_like.data.iteration import SamplerIterator
from dali_like.data.making import BatchMaker, Desk, as_sequence
from dali_like.data.messages import Keys, Step
from dali_like.data.progress import Plan, Progress
from dali_like.data.tallies import Tally
from dali_like.errors import CheckpointError, LoaderTimeoutError, LostItemError, PassPicklingError
from dali_like.interrupts import interruptible
from dali_like.notices import warn
from dali_like.workers.batch import ANY_WORKER, Batch, BatchKey
from dali_like.workers.meters import Span
from dali_like.workers.requests import Delivery
from dali_like.workers.transport import add_note

if TYPE_CHECKING:
    from dali_like.data.crew import LoaderCrew
    from dali_like.data.worker_handles import WorkerHandle


class Pass(Iterator[Any]):
    """One pass over a loader.

    Attributes:
        progress: how far it has come.
        on_next: what calls the function that makes the next batch, while the loader is traced.
    """

    on_next: Callable[[Callable[[], Any]], Any] | None = None

    def __init__(self, plan: Plan, progress: Progress, indices: SamplerIterator[Any], tally: Tally) -> None:
        self.progress = progress
        self._plan = plan
        self._tally = tally
        self._loop = tally.loop
        self._indices = indices
        self._has_begun = plan.is_iterable
        self._recorded_as = f"enumerate(DataLoader)#{type(self).__name__}.__next__"
        #: PyTorch's iterators have it, and some programs look at it.
        self._num_yielded = progress.yielded + len(progress.ahead)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        self._loop.begin()
        try:
            with self._plan.flavour.recording(self._recorded_as):
                batch = self._next() if self.on_next is None else self.on_next(self._next)
            self._num_yielded += 1
            self._warn_of_length()
            if self._plan.pins:
                batch = self._plan.flavour.pin(batch)
        except BaseException as error:
            self._loop.fail(error)
            raise
        self._loop.end()
        return batch

    def __len__(self) -> int:
        return len(self._plan.index_sampler)  # type: ignore[arg-type]

    def __getstate__(self) -> Any:
        raise PassPicklingError("{} cannot be pickled", type(self).__name__)

    @abc.abstractmethod
    def _next(self) -> Any:
        """The next batch."""

    def _count(self, asked: Keys | Step) -> None:
        """Take note of the samples of a batch that is begun."""
        if isinstance(asked, Step):
            self._tally.samples += asked.size or 1
        else:
            self._tally.samples += len(asked.keys) if self._plan.batched else 1

    def _shutdown_workers(self) -> None:
        """End the pass, and its workers even if the loader keeps them: some programs do that with PyTorch's iterators."""
        self.end()

    def end(self) -> None:
        """End the pass. Workers end with it, unless the loader keeps them."""

    def begin(self) -> None:
        """Go to where the pass is to begin, unless it is there. From then on its progress says which samples will come."""
        if self._has_begun:
            return
        self._has_begun = True
        if self.progress.sampler is None:
            self.progress.sampler = self._indices.state_dict()
            return
        self._indices.load_state_dict(self.progress.sampler)
        try:
            self._indices.skip(self.progress.yielded)
        except StopIteration:
            raise CheckpointError(
                f"Invalid state_dict: {self.progress.yielded} batches had been delivered, and the sampler has fewer"
            ) from None

    def _warn_of_length(self) -> None:
        plan = self._plan
        if not plan.is_iterable or plan.announced_length is None or self._num_yielded <= plan.announced_length:
            return
        message = (
            f"Length of IterableDataset {plan.dataset} was reported to be {plan.announced_length}(when accessing "
            f"len(dataloader)), but {self._num_yielded} samples have been fetched. "
        )
        if plan.num_workers:
            message += (
                "For multiprocessing data-loading, this could be caused by not properly configuring the IterableDataset "
                "replica at each worker. Please see https://pytorch.org/docs/stable/data.html#torch.utils.data.IterableDataset"
                " for examples."
            )
        warn(message, UserWarning)


class SerialPass(Pass):
    """A pass that makes its batches itself, when they are asked for."""

    def __init__(
        self, plan: Plan, progress: Progress, indices: SamplerIterator[Any], maker: BatchMaker, tally: Tally
    ) -> None:
        super().__init__(plan, progress, indices, tally)
        self._maker = maker
        if plan.is_iterable:
            self._maker.open_walk(0, progress.shared_seed, progress.told_by(0))
            progress.tell(maker.told(0))
        elif progress.sampler is not None:
            self.begin()

    def _next(self) -> Any:
        if self.progress.is_over:
            raise StopIteration
        self.begin()
        number = self.progress.yielded
        try:
            return self._make(number)
        except StopIteration:
            self.progress.is_over = True
            if self._plan.is_iterable:
                self.progress.tell(self._maker.told(0))
            raise
        finally:
            if not self.progress.is_over:
                self._note(number)

    def _make(self, number: int) -> Any:
        maker, asked, desk = self._maker, self._ask(number), Desk()
        self._count(asked)
        meter = self._tally.meter
        desk.watch = watch = meter.begin()
        try:
            batch = self._step(asked, desk) if isinstance(asked, Step) else maker.fetch(asked, desk)
        except StopIteration:
            raise
        except Exception as error:
            where = maker.describe_keys(asked, desk.cell[0]) if isinstance(asked, Keys) else f"batch {number}"
            add_note(error, f"raised by {maker.name} for {where}")
            raise
        else:
            self._tally.batches += 1
            return batch
        finally:
            meter.end(watch, lambda: Span(self.progress.number, number, -1, 1))
            self._tally.replaced += desk.cell[1]

    def _step(self, asked: Step, desk: Desk) -> Any:
        made = self._maker.step(asked, desk)
        self.progress.tell(made.told)
        return made.batch

    def _ask(self, number: int) -> Keys | Step:
        plan, progress = self._plan, self.progress
        if plan.is_iterable:
            told = progress.told_by(0)
            return Step(None, 0, 0, number, plan.batch_size, plan.drop_last, progress.shared_seed, told)
        keys = next(self._indices)
        if plan.batched and self._maker.getitems is None:
            keys = as_sequence(keys)
        return Keys(None, number, keys, True)

    def _note(self, number: int) -> None:
        """Take note of a batch that has been delivered, and go past those behind it that had been before."""
        self.progress.deliver(number)
        if not self._plan.is_iterable:
            for _ in range(number + 1, self.progress.yielded):
                next(self._indices, None)


class WorkerPass(Pass):
    """A pass whose batches are made by workers."""

    def __init__(self, plan: Plan, progress: Progress, indices: SamplerIterator[Any], crew: LoaderCrew) -> None:
        self._pending: deque[Batch] = deque()
        self._walk = crew.join()
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
            crew.leave(self._pending)
            self._pending.clear()

    def _next(self) -> Any:
        while True:
            crew = self._crew
            if crew is None or not self._pending:
                self._raise_end()
            number, outcome = self._take_next(crew)
            if isinstance(outcome, Delivery):
                try:
                    return batch_of_delivery(outcome, crew, self.progress)
                except Exception as error:
                    add_note(error, f"raised by the main process for batch {number}, which workers have made")
                    raise
            if not isinstance(outcome, StopIteration):
                try:
                    raise outcome
                finally:  # what its traceback holds must not hold it: the pass would not end when it is dropped
                    del outcome
            if not self._plan.is_iterable:
                self._raise_end()

    def _take_next(self, crew: LoaderCrew) -> tuple[int, Any]:
        """The next batch's number and what has become of it. Where that is interrupted, the next call goes on with it."""
        with crew.lock():
            batch = self._wait(crew)
            if self._plan.is_iterable:
                self._note_step(batch)
            self._fill(crew, (crew.num_ahead or self._plan.num_ahead) + 1)
            self._pending.remove(batch)
            if not self._plan.is_iterable:
                self.progress.deliver(batch.key.iteration)
            return batch.key.iteration, crew.take(batch)

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

        Raises:
            StopIteration: all have ended.
        """
        plan, progress = self._plan, self.progress
        ended = progress.ended
        if len(ended) == plan.num_workers:
            raise StopIteration
        while self._turn in ended:
            self._turn = (self._turn + 1) % plan.num_workers
        worker, self._turn = self._turn, (self._turn + 1) % plan.num_workers
        number = self._steps[worker]
        self._steps[worker] += 1
        told = progress.told_by(worker)
        return Step(self._seed, self._walk, worker, number, plan.batch_size, plan.drop_last, progress.shared_seed, told)


def _for_later(error: Exception) -> Exception:
    """An error that a pass keeps for a while. Its traceback, which would keep the pass, becomes a note."""
    add_note(error, f"raised by the sampler:\n{''.join(traceback.format_tb(error.__traceback__))}")
    return error.with_traceback(None)
