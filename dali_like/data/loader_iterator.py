"""The iterators of a loader. They run in the main process.

`LoaderIterator` is the base class. `WorkerIterator` yields batches of workers. The iterator of a
loader without workers is in `dali_like.data.local_iterator`.

1. `_fill` asks the plan (`dali_like.data.plans`) for the next batch, and posts its request to the workers. It keeps as many
   batches in flight as PyTorch's loader does.
2. Workers compute samples into the rows of a slot, or a whole batch; see `dali_like.data.fetcher`.
3. `_take` waits for the next batch: in the order of the requests, or the first that is ready with ``in_order=False`` or a
   ``reorder_window``.
4. `_batch_of` turns the answers into the batch for the program.

With a device, `_send` does step 4 before step 3: for the next batches, as soon as they are ready. So they are copied while
the program works on this one. Their outcome then is a `SentBatch`.
"""

from __future__ import annotations

import abc
import functools
import itertools
import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Self, cast

from dali_like.common.foreign_errors import add_note, is_a
from dali_like.common.notices import warn
from dali_like.common.tracebacks import collapse
from dali_like.data.counters import LoaderCounters
from dali_like.data.device_senders import SentBatch
from dali_like.data.messages import BatchAnswer, SamplesAnswer
from dali_like.data.options import LoaderOptions, why_empty
from dali_like.data.plans import IteratorState, LoaderPlan, SamplesPlan, num_samples_of
from dali_like.engine.memory.batch_key import BatchKey
from dali_like.engine.pool.batch import Batch, Response
from dali_like.engine.worker.exceptions import with_traceback_as_text
from dali_like.errors import (
    BuffersInUseError,
    ClosedError,
    IteratorPicklingError,
    LoaderTimeoutError,
    OutOfMemoryError,
    SampleTypeError,
)
from dali_like.feed.shards import PositionsAnswer

if TYPE_CHECKING:
    from dali_like.data.device_senders import DeviceSender
    from dali_like.data.loader_workers import LoaderWorkers, WorkerHandle
    from dali_like.data.position_sampler import PositionIterator
    from dali_like.feed.first_batches import FirstBatches
    from dali_like.sources.state_format import ShardState


#: In place of a batch that is left out, because its positions are empty.
_EMPTY = object()

#: Message of the error of an iterator that another thread has ended.
ENDED = "the workers of this iterator have been ended; begin another iterator"


class LoaderIterator(Iterator[Any]):
    """Yields the batches of one epoch.

    Args:
        options: of the loader.
        plan: says which batches there are.
        counters: of the loader.
        sender: copies the batches to a device; None: they stay in host memory.

    Attributes:
        state: the position of the iterator, from which a loader can resume.
        before_next: called before each batch; None without.
        on_next: calls the function that returns the next batch, while the loader is traced.
        keeps_sent: whether to keep the latest batch that was sent to a device; see `dali_like.data.peers`.
        latest_sent: that batch, in host memory.
    """

    before_next: Callable[[], None] | None = None
    on_next: Callable[[Callable[[], Any]], Any] | None = None
    keeps_sent = False
    latest_sent: Any = None
    _may_be_empty = True

    def __init__(
        self, options: LoaderOptions, plan: LoaderPlan, counters: LoaderCounters, sender: DeviceSender | None = None
    ) -> None:
        self._plan = plan
        self.state: IteratorState = plan.state
        self._options = options
        self._counters = counters
        self._sender = sender
        self._loop = counters.loop
        self._pins_memory = bool(options.pin_memory) and options.pins_memory
        self._announced = options.announced_length if options.is_iterable else None
        self._is_profiled = options.array_backend.is_profiled
        self._recent = counters.recent
        #: The key of the last batch; see `LoaderCounters.recent`.
        self._key: Any = None
        self._add_column: Callable[[Any, Any], Any] | None = None
        if options.own["origins"]:
            from dali_like.data.loader_origins import column_for  # few programs ask for origins

            self._add_column = column_for(options)
        self._num_yielded = self.state.position + len(self.state.ahead)
        if (positions := plan.positions) is not None:
            self._num_yielded += positions.begin  # of a resumed epoch

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        try:
            if self.before_next is not None:
                self.before_next()
            self._loop.begin()
            try:
                if self.on_next is None and (self._is_profiled is None or not self._is_profiled()):
                    batch = self._next()
                else:
                    batch = self._next_recorded()
                self._num_yielded += 1
                if self._announced is not None and self._num_yielded > self._announced:
                    self._warn_about_length()
                if self._pins_memory:
                    batch = self._options.array_backend.pin(batch)
                if self._add_column is not None:
                    batch = self._add_column(batch, self._key)
                self._recent.append((id(batch), self._key))
            except StopIteration as end:
                self._loop.fail(end)
                self._warn_of_empty_epoch()
                raise
            except BaseException as error:
                self._may_be_empty = False  # there was a batch, or a sampler that could not say whether there is one
                self._loop.fail(error)
                raise
            self._loop.end()
        except StopIteration:  # loops do not show it
            raise
        except (Exception, KeyboardInterrupt) as error:  # as `user_frames_first`, without a call
            collapse(error)
            raise
        return batch

    def __len__(self) -> int:
        return len(self._options.index_sampler)  # type: ignore[arg-type]

    def __getstate__(self) -> Any:
        raise IteratorPicklingError("{} cannot be pickled", type(self).__name__)

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if not is_finalizing():  # at exit, the workers have been ended before
            self._leave()

    @property
    def positions(self) -> PositionIterator | None:
        """The iterator over positions, of a composed dataset."""
        return self._plan.positions

    @property
    def shard_states(self) -> Mapping[int, ShardState]:
        """The latest known states of the logical shards of this rank; empty without."""
        return self._plan.shard_states

    def _next_recorded(self) -> Any:
        """Return the next batch, recorded by a trace or the profiler of the library of arrays."""
        take = self._next if self.on_next is None else functools.partial(self.on_next, self._next)
        if self._is_profiled is None or not self._is_profiled():
            return take()
        with self._options.array_backend.recorded(self._profile_name):
            return take()

    @property
    def _profile_name(self) -> str:
        return f"enumerate(DataLoader)#{type(self).__name__}.__next__"

    @property
    def _workers(self) -> list[WorkerHandle]:
        """The worker processes, also after the end: PyTorch's iterators have such a list."""
        return []

    def _shutdown_workers(self) -> None:
        """End the iterator and its workers, even kept ones. Some programs call this method of PyTorch's iterators."""
        self.end()

    def settle(self) -> None:
        """Bring the state up to date, for a program that asks for it."""
        self._plan.start()

    def in_flight(self) -> Iterator[tuple[BatchKey, Mapping[int, Any] | None]]:
        """Wait for the batches that have been requested and not taken, and yield their answers; None: a batch has failed."""
        return iter(())

    @property
    def plan(self) -> LoaderPlan:
        """Says which batches there are."""
        return self._plan

    def end(self) -> None:
        """End the iterator, and its workers unless the loader keeps them."""
        self._leave()

    def _leave(self) -> None:
        """End the iterator, which may not have been made completely."""

    @abc.abstractmethod
    def _next(self) -> Any:
        """Return the next batch."""

    # Warnings

    def _warn_of_empty_epoch(self) -> None:
        """Warn, once, if the iterator ends without a batch: a ``for`` loop would only do nothing."""
        if not self._num_yielded and self._may_be_empty:
            self._may_be_empty = False
            warn(f"this epoch is empty: {why_empty(self._options)}", UserWarning)

    def _warn_about_length(self) -> None:
        options = self._options
        message = (
            f"Length of IterableDataset {options.dataset} was reported to be {self._announced}(when accessing "
            f"len(dataloader)), but {self._num_yielded} samples have been fetched. "
        )
        if options.num_workers:
            message += (
                "For multiprocessing data-loading, this could be caused by not properly configuring the IterableDataset "
                "replica at each worker. Please see https://pytorch.org/docs/stable/data.html#torch.utils.data.IterableDataset"
                " for examples."
            )
        warn(message, UserWarning)


class WorkerIterator(LoaderIterator):
    """Yields the batches of one epoch, which workers compute.

    Args:
        options, plan, counters, sender: see `LoaderIterator`.
        workers: compute the batches.
    """

    # Invariants between calls
    # - Each batch that the plan has begun is in `_pending` exactly once, until it is taken or cancelled.
    # - The plan is asked for a batch only if that batch is submitted next: a batch drawn from a sampler and not submitted
    #   would be lost. So `_fill` appends it before anything else can raise. The lock of the workers defers Ctrl-C, except
    #   while the plan draws from the user's sampler, which then has not yielded.

    def __init__(
        self,
        options: LoaderOptions,
        plan: LoaderPlan,
        workers: LoaderWorkers,
        counters: LoaderCounters,
        sender: DeviceSender | None = None,
    ) -> None:
        # `__del__` needs these attributes even if the constructor fails below.
        #: The batches that have been begun and not taken, in the order of the plan.
        self._pending: deque[Batch] = deque()
        plan.number = workers.begin_use()
        self._loader_workers: LoaderWorkers | None = workers
        self._last_workers = weakref.ref(workers)
        self._handles: list[WorkerHandle] = []
        super().__init__(options, plan, counters, sender)
        self._noted = -1
        self._has_begun_all = False
        self._is_held = False  # the next batch cannot begin before one in flight has been read
        self._on_last_batch: Callable[[], None] | None = None
        self._sampler_error: Exception | None = None
        self._num_ahead = options.num_ahead
        #: A batch may be taken before the oldest pending one if its number is less than this above that one's.
        self._window = options.own["reorder_window"] or (1 if options.in_order else sys.maxsize)
        self._watches_restarts = not options.seeds_by_task
        self._first_batches: FirstBatches | None = None
        if options.is_iterable and not counters.loop.batches and not plan.num_begun:
            from dali_like.feed.first_batches import FirstBatches  # it takes hashlib, and with it OpenSSL

            name = f"dataset {type(options.dataset).__name__}"
            self._first_batches = FirstBatches(options.num_workers, name)
        plan.check()
        plan.start()
        with workers:
            self._fill(workers, workers.num_ahead or self._num_ahead)

    @property
    def _workers(self) -> list[WorkerHandle]:
        return self._handles if self._loader_workers is None else list(self._loader_workers.handles)

    def _shutdown_workers(self) -> None:
        self.end()
        workers = self._last_workers()
        if workers is not None:
            workers.close()

    def call_on_last_batch(self, callback: Callable[[], None]) -> None:
        """Call a function when the last batch has begun; at once, if it has."""
        self._on_last_batch = callback
        if self._has_begun_all:
            callback()

    def settle(self) -> None:
        super().settle()
        self._plan.wants_states = True  # from the next request on: those in flight have older states, or none

    def in_flight(self) -> Iterator[tuple[BatchKey, Mapping[int, Any] | None]]:
        workers = self._loader_workers
        if workers is None:
            return
        with workers:
            for batch in tuple(self._pending):
                if batch.outcome is None and workers.wait_for([batch], self._options.timeout_s) is None:
                    raise LoaderTimeoutError(
                        f"DataLoader timed out after {self._options.timeout_s} seconds, waiting for requested batches"
                    )
                outcome = batch.outcome
                if type(outcome) is SentBatch:
                    yield batch.key, outcome.answers
                else:
                    yield batch.key, outcome.messages() if type(outcome) is Response else None

    def end(self) -> None:
        if self._loader_workers is not None:
            self._handles = list(self._loader_workers.handles)
        self._leave()

    def _leave(self) -> None:
        workers = getattr(self, "_loader_workers", None)
        if workers is not None:
            self._loader_workers = None
            workers.end_use(self._plan.number, self._pending)
            self._pending.clear()

    # The next batch

    def _next(self) -> Any:
        plan = self._plan
        if self._sender is not None:
            self._send_ahead(self._sender)
        while not plan.has_ended:
            workers = self._loader_workers
            if workers is None or (taken := self._take(workers)) is None:
                break
            key, outcome = taken
            self._key = key
            if self._sender is not None:
                if isinstance(outcome, Batch):
                    self._send(outcome, workers, self._sender)
                    continue
                if type(outcome) is SentBatch:
                    if (batch := self._delivered(key, outcome, self._sender)) is not _EMPTY:
                        return batch
                    continue
            if type(outcome) is Response:  # an exception's class may define `__class__`
                batch = self._batch_of(key, outcome, workers)
                if batch is not _EMPTY:
                    return batch
            elif type(outcome) is not StopIteration:
                try:
                    raise outcome
                finally:  # break the cycle through the traceback, which would keep a dropped iterator
                    del outcome
            elif not self._options.is_iterable:
                break
        return self._raise_end()

    def _take(self, workers: LoaderWorkers) -> tuple[BatchKey, Any] | None:
        """Return the next batch and its outcome. After an interrupt, the next call returns the same batch.

        Return None at the end, or if another thread has taken the last batch while this one waited for the lock.

        Raises:
            ClosedError: another thread has ended the iterator while this one waited for the batch.
        """
        plan, pending = self._plan, self._pending
        with workers:
            if self._is_held and not pending:
                self._fill(workers, self._num_ahead)
            while pending:
                batch = self._wait(workers)
                if batch not in pending:
                    raise ClosedError(ENDED)
                if self._sender is not None and type(batch.outcome) is Response:
                    return batch.key, batch  # to be sent first: if memory is short, it stays pending
                if self._noted != batch.key.iteration:  # once, although the sampler may be interrupted below
                    plan.note(batch)
                    self._noted = batch.key.iteration
                most = (self._num_ahead if workers.tuner is None else workers.num_ahead) + 1
                self._fill(workers, most if self._sender is None else most + self._num_sent())
                if batch not in pending:  # ended while the sampler drew
                    raise ClosedError(ENDED)
                place = pending.index(batch)
                del pending[place]
                outcome = workers.take(batch)
                if (
                    type(outcome) is not Response
                    and is_a(outcome, SampleTypeError)
                    and self._request_as_batch(batch, place, workers)
                ):
                    continue
                plan.deliver(batch)
                return batch.key, outcome
        return None

    def _send_ahead(self, sender: DeviceSender) -> None:
        """Begin the copies of the next batches that are ready."""
        workers = self._loader_workers
        if workers is None or not sender.num_ahead:
            return
        with workers:
            following = [batch for _, batch in zip(range(sender.num_ahead + 1), self._pending, strict=False)]
            if any(batch.outcome is None for batch in following) and not workers.pool.is_closed:
                workers.pool.poll()
        for batch in following:
            if type(batch.outcome) is SentBatch:
                continue
            if type(batch.outcome) is not Response or not sender.can_send(sender.num_delivered + self._num_sent()):
                return
            try:
                self._send(batch, workers, sender)
            except (OutOfMemoryError, BuffersInUseError):
                return  # tried again when the program needs the batch

    def _send(self, batch: Batch, workers: LoaderWorkers, sender: DeviceSender) -> None:
        """Make a batch of its answers, and begin its copy. Its outcome becomes what `_delivered` takes.

        Raises:
            OutOfMemoryError, BuffersInUseError: memory of the device is short. The call can be repeated.
        """
        outcome, sent = batch.outcome, SentBatch()
        if type(outcome) is not Response:  # another thread takes the batch, or memory of its workers is short
            return
        try:
            sent.answers = outcome.messages()
            sent.is_empty = not self._plan.is_batch(sent.answers, num_samples_of(batch.key))
            made = None if sent.is_empty else _batch_of(outcome, sent.answers, workers)
            if self._first_batches is not None and made is not None:
                self._compare_first(batch.key.worker, made)
        except Exception as error:
            sent.error = self._with_note(error, batch.key, workers)
        else:
            try:
                if not sent.is_empty:
                    sent.batch = sender.send(made, sender.num_delivered + self._num_sent())
                    if self.keeps_sent:
                        sent.in_host = made
            except (OutOfMemoryError, BuffersInUseError):
                raise
            except Exception as error:
                sent.error = error
        batch.outcome = sent

    def _num_sent(self) -> int:
        """Return the number of batches that are on the device, or on their way, before the program takes them."""
        return sum(type(batch.outcome) is SentBatch and batch.outcome.batch is not None for batch in self._pending)

    def _delivered(self, key: BatchKey, sent: SentBatch, sender: DeviceSender) -> Any:
        """Return a batch that has been sent, or `_EMPTY`; or raise the error in its place. Record the states in it."""
        if sent.answers is not None and not self._plan.read(key, sent.answers):
            return _EMPTY
        if sent.error is not None:
            try:
                raise sent.error
            finally:
                sent.error = None  # the traceback refers to this frame
        if self.keeps_sent:
            self.latest_sent = sent.in_host
        return sender.deliver(sent.batch)

    def _wait(self, workers: LoaderWorkers) -> Batch:
        """Wait for the next batch, or for one that may overtake it.

        Raises:
            LoaderTimeoutError: the timeout is over. The next call waits again.
        """
        options, pending = self._options, self._pending
        if workers.failure is not None:  # each call raises it for one pending batch; then the iterator ends
            pending.popleft()
            raise workers.failure
        first = pending[0]
        candidates: Sequence[Batch] = (first,)
        if self._window > 1:
            end = first.key.iteration + self._window
            candidates = [batch for batch in pending if batch.key.iteration < end]
        batch = workers.wait_for(candidates, options.timeout_s)
        if batch is None:
            raise LoaderTimeoutError(
                "\n".join([f"DataLoader timed out after {options.timeout_s} seconds", *workers.describe_workers_on(first)])
            )
        if self._watches_restarts:
            workers.warn_about_restarts()
        return batch

    def _request_as_batch(self, batch: Batch, place: int, workers: LoaderWorkers) -> bool:
        """Let the worker collate a batch whose samples cannot be pickled, and all later ones. Return False if it did.

        For example, a ``sqlite3.Row`` cannot be pickled; a batch of many is a list of tensors, which can.
        """
        plan = self._plan
        if not isinstance(plan, SamplesPlan) or (key := plan.whole(batch.key)) is None:
            return False
        workers.fetcher.as_batches = True
        self._pending.insert(place, workers.pool.submit(key))
        return True

    def _raise_end(self) -> NoReturn:
        """End the iterator.

        Raises:
            Exception: the error of the sampler.
            StopIteration: the sampler has ended without an error.
        """
        error, self._sampler_error = self._sampler_error, None
        self.end()
        self.state.is_over = True
        try:
            raise StopIteration if error is None else error  # its class may define `__bool__`
        finally:
            del error

    def _fill(self, workers: LoaderWorkers, most: int) -> None:
        """Begin batches until enough are in flight. An error of the sampler is raised after the batches before it."""
        plan, pool, pending = self._plan, workers.pool, self._pending
        while len(pending) < most and not self._has_begun_all and plan.is_ready:
            try:
                key = plan.begin(next(workers.turns))
            except Exception as error:
                if not is_a(error, StopIteration):
                    add_note(error, "raised by the sampler")
                    self._sampler_error = with_traceback_as_text(error, "the sampler")
                self._has_begun_all = True
                if self._on_last_batch is not None:
                    self._on_last_batch()
            else:
                pending.append(pool.submit(key))
            if self._loader_workers is None:  # ended meanwhile, by another thread or by the sampler
                while pending:
                    pool.cancel(pending.pop())
                return
        self._is_held = not (self._has_begun_all or plan.is_ready)

    def _batch_of(self, key: BatchKey, response: Any, workers: LoaderWorkers) -> Any:
        """Return the batch of a response, or `_EMPTY`. Record the states in it."""
        try:
            answers = response.messages()
            if not self._plan.read(key, answers):
                return _EMPTY
            batch = _batch_of(response, answers, workers)
        except Exception as error:
            self._with_note(error, key, workers)
            raise
        if self._first_batches is not None:
            self._compare_first(key.worker, batch)
        return batch

    def _compare_first(self, worker: int, batch: Any) -> None:
        """Compare the first batches of all workers."""
        first_batches = self._first_batches
        assert first_batches is not None
        first_batches.note(worker, batch)
        if first_batches.is_done:
            self._first_batches = None

    def _with_note(self, error: Exception, key: BatchKey, workers: LoaderWorkers) -> Exception:
        """Return an error of a batch whose samples came from the workers, with a note."""
        add_note(error, f"raised in the main process, for {workers.fetcher.describe_batch(key)} from the workers")
        return error


def _batch_of(response: Any, answers: Mapping[int, Any], workers: LoaderWorkers) -> Any:
    """Return the batch of a response, and record whether its samples had the expected schema."""
    first = answers.get(0)
    if type(first) is BatchAnswer:
        return first.batch
    if type(first) is PositionsAnswer:
        return _batch_of_positions(response, answers, workers)
    schema: Any = response.schema
    for answer in answers.values():
        if answer.others:
            workers.note_different(schema, answers)
            return workers.fetcher.collate(_samples_of(response, answers))
    workers.note_fit()
    texts = _joined_texts(answers, schema) if schema.num_texts else []
    return schema.root.batch(response.rows, texts, False)


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


def _batch_of_positions(response: Response, answers: Mapping[int, PositionsAnswer], workers: LoaderWorkers) -> Any:
    """Return the batch of a composed dataset. Empty positions have no row."""
    if len(answers) == 1 and answers[0].collated:
        return answers[0].collated[0]
    if any(answer.others for answer in answers.values()):
        workers.note_different(response.schema, answers)
        return workers.fetcher.finish_elements(_elements_of(response, answers.values()))
    workers.note_fit()
    schema: Any = response.schema
    rows, texts = response.rows, _texts_by_place(answers.values(), response, schema)
    if sum(len(answer.found) for answer in answers.values()) != response.size:
        places = sorted(itertools.chain.from_iterable(answer.found for answer in answers.values()))
        rows = [row[places] for row in rows]
        texts = [[column[place] for place in places] for column in texts]
    return schema.root.batch(rows, texts, False)


def _elements_of(response: Response, answers: Iterable[PositionsAnswer]) -> Sequence[Any]:
    """Return the elements of a batch, in rows and others, in order. If all of them are rows in columns, they stay so."""
    answers = [answer for answer in answers if answer.found]
    if all(answer.others and type(answer.others) is not list for answer in answers):
        from dali_like.sources.composed.row_pieces import RowPieces  # few programs need it

        pieces = (cast("RowPieces", answer.others).pieces for answer in answers)
        return RowPieces(itertools.chain.from_iterable(pieces))
    schema: Any = response.schema
    texts = _texts_by_place(answers, response, schema)
    elements: dict[int, Any] = {}
    for answer in answers:
        in_rows = answer.in_rows
        elements.update((place, schema.root.sample(response.rows, texts, place)) for place in in_rows)
        elements.update(zip(answer.found[len(in_rows) :], answer.others, strict=True))
    return [elements[place] for place in sorted(elements)]


def _texts_by_place(answers: Iterable[PositionsAnswer], response: Response, schema: Any) -> list[list[Any]]:
    """Return the texts of the elements in rows, by their place in the batch: a list for each text of the schema."""
    columns: list[list[Any]] = [[None] * response.size for _ in range(0 if schema is None else schema.num_texts)]
    for answer in answers:
        for column, texts in zip(columns, answer.texts, strict=False):
            for place, text in zip(answer.in_rows, texts, strict=True):
                column[place] = text
    return columns
