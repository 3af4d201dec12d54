"""The iterator of a loader with workers. It runs in the main process, and the workers compute its batches.

1. `_fill` draws the indices of a batch from the sampler and posts a request. It keeps as many batches on their way as
   PyTorch's loader does.
2. Workers compute samples into the rows of a slot, or a whole batch; see `dali_like.data.fetcher`.
3. `_take_next` waits for the next batch: in the order of the requests, or the first that is ready with ``in_order=False``.
4. `_batch_of` turns the answers into the batch for the program.
"""

from __future__ import annotations

import pickle
import sys
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from numpy.typing import NDArray

from dali_like.common.foreign_errors import add_note, is_a
from dali_like.common.interrupts import interruptible
from dali_like.data.fetcher import as_sequence
from dali_like.data.iterator_state import IteratorState
from dali_like.data.loader_iterator import LoaderIterator
from dali_like.data.messages import BatchAnswer, ItemsRequest, SamplesAnswer, SamplesRequest
from dali_like.data.options import LoaderOptions
from dali_like.data.sampler_iterators import SamplerIterator
from dali_like.engine.memory.batch_key import ANY_WORKER, BatchKey
from dali_like.engine.pool.batch import Batch
from dali_like.engine.pool.request_assembler import Response
from dali_like.engine.worker.exceptions import with_traceback_as_text
from dali_like.engine.worker.out_of_band import LEAST_BUFFER_BYTES
from dali_like.errors import ClosedError, LoaderTimeoutError, LostItemError, SampleTypeError
from dali_like.feed.turns import Turns

if TYPE_CHECKING:
    from dali_like.data.loader_workers import LoaderWorkers, WorkerHandle


class WorkerIterator(LoaderIterator):
    """Requests its batches from workers."""

    def __init__(
        self, options: LoaderOptions, state: IteratorState, indices: SamplerIterator[Any], workers: LoaderWorkers
    ) -> None:
        # `__del__` needs these attributes even if the constructor fails below.
        self._pending: deque[Batch] = deque()
        self._number = workers.begin_iterator()
        self._loader_workers: LoaderWorkers | None = workers
        self._last_workers = weakref.ref(workers)
        self._handles: list[WorkerHandle] = []
        super().__init__(options, state, indices, workers.counters)
        self._seed = state.seed if options.seeds_by_task else None
        self._on_last_batch: Callable[[], None] | None = None
        self._num_begun = state.yielded
        self._is_exhausted = False
        self._sampler_error: Exception | None = None
        self._sampler_was_interrupted = False
        self._wants_states = False
        self._packed_states: dict[int, tuple[dict[str, Any], bytes]] = {}
        state.steps = state.steps or [0] * options.num_workers
        self._turns = Turns(state.steps, state.turn, state.ended)
        self.begin()
        with workers.lock():
            self._fill(workers, workers.num_ahead or options.num_ahead)

    @property
    def _workers(self) -> list[WorkerHandle]:
        """The worker processes, also after the end: PyTorch's iterators have such a list."""
        return self._handles if self._loader_workers is None else self._loader_workers.handles

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if not is_finalizing():  # at exit, the workers have been ended before
            self._leave()

    def settle(self) -> None:
        super().settle()
        self._wants_states = True  # from the next request on: those on their way have older states, or none

    def call_on_last_batch(self, callback: Callable[[], None]) -> None:
        """Call a function when the last batch has begun; at once, if it has."""
        self._on_last_batch = callback
        if self._is_exhausted:
            callback()

    def _shutdown_workers(self) -> None:
        self.end()
        workers = self._last_workers()
        if workers is not None:
            workers.close()

    def end(self) -> None:
        if self._loader_workers is not None:
            self._handles = self._loader_workers.handles
        self._leave()

    def _leave(self) -> None:
        workers, self._loader_workers = getattr(self, "_loader_workers", None), None
        if workers is not None:
            workers.end_iterator(self._pending)
            self._pending.clear()

    def _next(self) -> Any:
        while True:
            workers = self._loader_workers
            if workers is None or not self._pending or (taken := self._take_next(workers)) is None:
                self._raise_end()
            key, outcome = taken
            if type(outcome) is Response:  # an exception's class may define `__class__`
                try:
                    return self._batch_of(outcome, workers)
                except Exception as error:
                    add_note(
                        error,
                        f"raised in the main process, for {workers.fetcher.describe_batch(key)} from the workers",
                    )
                    raise
            if type(outcome) is not StopIteration:
                try:
                    raise outcome
                finally:  # break the cycle through the traceback, which would keep a dropped iterator
                    del outcome
            if not self._options.is_iterable:
                self._raise_end()

    def _take_next(self, workers: LoaderWorkers) -> tuple[BatchKey, Any] | None:
        """Return the next batch and its outcome. After an interrupt, the next call returns the same batch.

        Return None if another thread has taken the last batch while this one waited for the lock.

        Raises:
            ClosedError: another thread has ended the iterator while this one waited for the batch.
        """
        with workers.lock():
            while self._pending:
                batch = self._wait(workers)
                if batch not in self._pending:
                    raise ClosedError("the iterator has been ended")
                if self._options.is_iterable:
                    self._note_items(batch)
                self._fill(workers, (workers.num_ahead or self._options.num_ahead) + 1)
                if batch not in self._pending:  # ended while the sampler drew
                    raise ClosedError("the iterator has been ended")
                place = self._pending.index(batch)
                del self._pending[place]
                outcome = workers.take(batch)
                if is_a(outcome, SampleTypeError) and self._request_as_batch(batch, place, workers):
                    continue
                if not self._options.is_iterable:
                    self.state.deliver(batch.key.iteration)
                return batch.key, outcome
        return None

    def _request_as_batch(self, batch: Batch, place: int, workers: LoaderWorkers) -> bool:
        """Let the worker collate a batch whose samples cannot be pickled, and all later ones. Return False if it did.

        For example, a ``sqlite3.Row`` cannot be pickled; a batch of many is a list of tensors, which can.
        """
        request = pickle.loads(batch.key.request)
        if not isinstance(request, SamplesRequest) or request.as_batch:
            return False
        workers.fetcher.as_batches = True
        text = pickle.dumps(request._replace(as_batch=True), pickle.HIGHEST_PROTOCOL)
        submitted: list[Batch] = []
        workers.submit(batch.key._replace(size=1, parts=len(request.keys) + 1, request=text), submitted)
        self._pending.insert(place, *submitted)
        return True

    def _raise_end(self) -> NoReturn:
        """End the iterator.

        Raises:
            Exception: the error of the sampler.
            StopIteration: there is none.
        """
        error, self._sampler_error = self._sampler_error, None
        self.state.is_over = True
        self.end()
        try:
            raise StopIteration if error is None else error  # its class may define `__bool__`
        finally:
            del error

    def _wait(self, workers: LoaderWorkers) -> Batch:
        """Wait for the next batch, or for any with ``in_order=False``.

        Raises:
            LoaderTimeoutError: the timeout is over. The next call waits again.
        """
        options = self._options
        if workers.failure is not None:  # each call raises it for one pending batch; then the iterator ends
            self._pending.popleft()
            raise workers.failure
        candidates = (self._pending[0],) if options.in_order else tuple(self._pending)
        batch = workers.wait_for(candidates, options.timeout_s)
        if batch is None:
            raise LoaderTimeoutError(
                "\n".join(
                    [f"DataLoader timed out after {options.timeout_s} seconds", *workers.describe_workers_on(candidates[0])]
                )
            )
        if not options.seeds_by_task:
            workers.warn_about_restarts()
        return batch

    def _note_items(self, batch: Batch) -> None:
        """Record that a worker has answered a request for items."""
        state, worker = self.state, batch.key.worker
        state.steps[worker] += 1
        state.turn = (worker + 1) % self._options.num_workers
        if type(batch.outcome) is not StopIteration:
            state.yielded += 1
        elif worker not in state.ended:
            state.ended.append(worker)

    def _fill(self, workers: LoaderWorkers, most: int) -> None:
        """Begin batches until enough are on their way. An error of the sampler is raised after the batches before it."""
        while len(self._pending) < most and not self._is_exhausted:
            try:
                key = self._begin_batch(workers)
            except Exception as error:
                self._is_exhausted = True
                if not is_a(error, StopIteration):
                    add_note(error, "raised by the sampler")
                    self._sampler_error = with_traceback_as_text(error, "the sampler")
                if self._on_last_batch is not None:
                    self._on_last_batch()
                return
            if self._num_begun not in self.state.ahead:
                workers.submit(key, self._pending)
            self._num_begun += 1

    def _begin_batch(self, workers: LoaderWorkers) -> BatchKey:
        """Return the key of the next batch for the pool, with its request.

        Raises:
            StopIteration: there is none.
        """
        request = self._items_request() if self._options.is_iterable else self._samples_request(workers)
        text = pickle.dumps(request, pickle.HIGHEST_PROTOCOL)
        if self._num_begun not in self.state.ahead:
            self._count(request)
        size = parts = 1
        worker = ANY_WORKER
        if isinstance(request, ItemsRequest):
            worker = request.worker
        else:
            if workers.is_bound:
                worker = request.number % self._options.num_workers
            if not request.as_batch:
                size = len(request.keys)
            elif self._options.batched and not workers.fetcher.passes_keys:
                parts = len(request.keys) + 1  # the last part is the collation
        return BatchKey(0, self._number, self._num_begun, 0, size, worker, workers.next_turn(), text, parts)

    def _samples_request(self, workers: LoaderWorkers) -> SamplesRequest:
        """Return the request for the next batch of a map-style dataset."""
        keys, fetcher = self._draw_keys(workers), workers.fetcher
        if not self._options.batched or fetcher.passes_keys:
            return SamplesRequest(self._seed, self._num_begun, keys, True)
        return SamplesRequest(self._seed, self._num_begun, keys, fetcher.takes_whole(len(keys), workers.capacity))

    def _draw_keys(self, workers: LoaderWorkers) -> Any:
        """Return the next item of the sampler. Ctrl-C may interrupt the sampler, which ends a generator.

        Raises:
            LostItemError: the sampler ends after an interrupt.
        """
        try:
            with interruptible():
                keys = next(self._indices)
                if self._options.batched and not workers.fetcher.passes_keys:
                    keys = as_sequence(keys)
        except StopIteration:
            if not self._sampler_was_interrupted:
                raise
            raise LostItemError(
                "the sampler was interrupted, and ended as generators do: the rest of this epoch is lost. An iterator class "
                "with a __next__ method would continue after an interrupt"
            ) from None
        except KeyboardInterrupt:
            self._sampler_was_interrupted = True
            raise
        self._sampler_was_interrupted = False
        return keys

    def _items_request(self) -> ItemsRequest:
        """Return the next request for items of an iterable dataset.

        The workers take turns; those at their end are left out. With ``in_order=False``, the next is one with the fewest
        pending requests: otherwise all requests would wait at a slow worker.

        Raises:
            StopIteration: all workers are at the end.
        """
        options, state = self._options, self.state
        turns = self._turns
        waiting = turns.waiting()
        if not waiting:
            raise StopIteration
        worker = waiting[0] if options.in_order else min(waiting, key=lambda w: turns.steps(w) - state.steps[w])
        number = turns.take(worker)
        return ItemsRequest(
            seed=self._seed,
            iterator=self._number,
            worker=worker,
            number=number,
            size=options.samples_per_batch,
            drop_last=options.drop_last,
            shared_seed=state.shared_seed,
            state=self._packed_state(worker),
            wants_state=self._wants_states,
        )

    def _packed_state(self, worker: int) -> bytes | None:
        """Return the last reported state of a worker, pickled once for all requests."""
        reported = self.state.reported_by(worker)
        if reported is None:
            return None
        packed = self._packed_states.get(worker)
        if packed is None or packed[0] is not reported:
            packed = self._packed_states[worker] = reported, pickle.dumps(reported, pickle.HIGHEST_PROTOCOL)
        return packed[1]

    def _batch_of(self, response: Response, workers: LoaderWorkers) -> Any:
        """Return the batch of a response. Record the schema of its samples, and the reported state."""
        answers = response.messages()
        first = answers.get(0)
        if isinstance(first, BatchAnswer):
            self.state.note_reported(first.state)
            return first.batch
        schema: Any = response.schema
        if any(answer.others for answer in answers.values()):
            workers.note_different(schema, answers)
            return workers.fetcher.collate(_samples_of(response, answers))
        workers.note_fit()
        return schema.root.batch(batch_rows(response), _joined_texts(answers, schema), False)


def batch_rows(response: Response) -> list[NDArray[Any]]:
    """Return the rows of a batch for the program. Small ones are copied, so that keeping them does not keep the slot."""
    return [row if row.nbytes >= LEAST_BUFFER_BYTES else row.copy() for row in response.rows]


def _joined_texts(answers: Mapping[int, SamplesAnswer], schema: Any) -> list[list[Any]]:
    """Return the texts of all samples of a batch, for each text of the schema."""
    columns: list[list[Any]] = [[] for _ in range(schema.num_texts)]
    for _, answer in sorted(answers.items()):
        for column, texts in zip(columns, answer.texts, strict=True):
            column.extend(texts)
    return columns


def _samples_of(response: Response, answers: Mapping[int, SamplesAnswer]) -> list[Any]:
    """Return the samples of a batch as the dataset returned them."""
    schema: Any = response.schema
    samples: list[Any] = []
    for task, begin in enumerate(range(0, response.size, response.task_size)):
        end = min(begin + response.task_size, response.size)
        answer = answers.get(task, SamplesAnswer([], []))
        in_rows = range(begin, end - len(answer.others))
        if in_rows:
            texts = [[None] * begin + column for column in answer.texts]
            samples += [schema.root.sample(response.rows, texts, i) for i in in_rows]
        samples += answer.others
    return samples
