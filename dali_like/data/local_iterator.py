"""The iterator of a loader without workers: it computes each batch in the thread that takes it.

Nothing is computed ahead, so there are no requests, no queue and no pool, and nothing is pickled or copied. A `BatchMaker`
makes the batches of one kind of plan (`dali_like.data.plans`) with a `dali_like.data.fetcher.Fetcher`.
"""

from __future__ import annotations

import abc
import contextlib
import operator
from _thread import RLock  # `threading.RLock` is a function around it
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dali_like.common.foreign_errors import add_note
from dali_like.data.counters import LoaderCounters
from dali_like.data.fetcher import Fetcher, LocalRequest
from dali_like.data.loader_iterator import ENDED as ENDED_BY_ANOTHER
from dali_like.data.loader_iterator import LoaderIterator
from dali_like.data.messages import ItemsRequest, SamplesRequest
from dali_like.data.options import LoaderOptions
from dali_like.data.plans import ItemsPlan, LoaderPlan, PositionsPlan, SamplesPlan
from dali_like.engine.worker.meters import Interval, Stopwatch
from dali_like.errors import BuffersInUseError, ClosedError, OutOfMemoryError
from dali_like.feed.shards import PositionsRequest

if TYPE_CHECKING:
    from dali_like.data.device_senders import DeviceSender

#: There is no item, or no batch.
_NOTHING: Any = object()


class BatchMaker(LocalRequest, abc.ABC):
    """Makes the batches of a plan, one after the other. For the fetcher, it stands in for the request.

    An interrupt leaves a batch to be made by the next call. Only the items of an iterable are lost.

    Args:
        options: of the loader.
        plan: says which batches there are.
        fetcher: computes them.
        counters: of the loader.
    """

    #: The item of a batch after an interrupt, and a batch that could not be sent to the device.
    _item = _made = _NOTHING
    #: The item of the last batch.
    made_of: Any = None

    def __init__(self, options: LoaderOptions, plan: Any, fetcher: Fetcher, counters: LoaderCounters) -> None:
        self.cell = [0, 0]
        self._plan = plan
        self._state = plan.state
        self._fetcher = fetcher
        self._counters = counters
        self._meter = counters.meter

    @abc.abstractmethod
    def _make(self, item: Any, watch: Stopwatch | None) -> Any:
        """Return a batch, or `_NOTHING` for an empty one."""

    @abc.abstractmethod
    def _describe(self, item: Any) -> str:
        """Describe the sample at which making a batch has failed."""

    def take(self, send: Callable[[Any], Any] | None) -> Any:
        """Return the next batch, and count it.

        Args:
            send: brings the batch to a device. If it raises OutOfMemoryError or BuffersInUseError, the next call repeats it.

        Raises:
            StopIteration: there are no more batches.
            Exception: that of the sampler, of `send`, or of the dataset, in the place of its batch.
        """
        meter, cell = self._meter, self.cell
        batch = self._made
        while batch is _NOTHING:
            item = self._item
            if item is _NOTHING:
                item = self._item = self._plan.draw()
            cell[0] = cell[1] = 0
            watch = meter.begin()
            try:
                batch = self._make(item, watch)
            except StopIteration:  # also one that a map-style dataset raises: it ends the loop, as in PyTorch
                self._item = _NOTHING
                raise
            except Exception as error:
                self._item = _NOTHING
                self._note_failure(item)
                self._count()
                add_note(error, f"raised by {self._fetcher.name} for {self._describe(item)}")
                raise
            except BaseException:
                self._note_interrupt()
                raise
            finally:
                if meter.end(watch, self):
                    meter.note()
                self._counters.replaced += cell[1]
            self.made_of, self._item = item, _NOTHING
            if batch is _NOTHING:
                self._count()
        if send is not None:
            batch = self._sent(batch, send)
        state, number = self._state, self._plan.num_begun - 1  # `_count`, without a call
        if number == state.position and not state.ahead:
            state.position += 1
        else:
            state.deliver(number)
        return batch

    def _sent(self, batch: Any, send: Callable[[Any], Any]) -> Any:
        self._made = batch
        try:
            sent = send(batch)
        except (OutOfMemoryError, BuffersInUseError):
            raise
        except Exception:
            self._made = _NOTHING
            self._count()
            raise
        self._made = _NOTHING
        return sent

    def _count(self) -> None:
        """Record that the program gets a batch, or the exception in its place."""
        state, number = self._state, self._plan.num_begun - 1
        if number == state.position and not state.ahead:
            state.position += 1
        else:
            state.deliver(number)

    def _note_failure(self, item: Any) -> None:  # most plans need nothing
        """Record that the program gets an exception in the place of a batch."""

    def _note_interrupt(self) -> None:  # most batches are made again
        """Record that a batch is lost."""

    def note_progress(self) -> None:  # most states are up to date
        """Bring the state up to date: the program asks for it, or drops the iterator."""

    def note_end(self) -> None:  # most states are up to date
        """Bring the state up to date at the end of the epoch."""

    def span(self) -> Interval:
        """Describe the batch to its meter."""
        return Interval(self._plan.number, self._plan.num_begun - 1, -1, 1)


class SamplesMaker(BatchMaker):
    """Makes batches of the samples of a map-style dataset; without batches, single samples. An item is their keys."""

    def __init__(self, options: LoaderOptions, plan: Any, fetcher: Fetcher, counters: LoaderCounters) -> None:
        super().__init__(options, plan, fetcher, counters)
        plan.needs_sequences = fetcher.needs_sequences

    def _make(self, keys: Any, watch: Stopwatch | None) -> Any:
        fetcher, positions = self._fetcher, self._plan.positions
        if positions is not None and (changes := positions.changes) is not None:
            fetcher.follow(changes)
        if watch is not None or not fetcher.only_gets_samples:
            self.watch = watch
            batch = fetcher.fetch_here(self._request(keys), self)
        elif not fetcher.batched:
            batch = fetcher.collate_fn(fetcher.dataset[keys])
        else:
            dataset, left = fetcher.dataset, iter(keys)
            try:
                samples = [dataset[key] for key in left]
            except BaseException:  # nobody else wants to know which sample is being computed
                self.cell[0] = len(keys) - operator.length_hint(left) - 1
                raise
            self.cell[0] = len(keys)
            batch = fetcher.collate(samples) if fetcher.collates_by_default else fetcher.collate_fn(samples)
        self._counters.batches += 1
        return batch

    def _describe(self, keys: Any) -> str:
        return self._fetcher.describe_keys(self._request(keys), self.cell[0])

    def _request(self, keys: Any) -> SamplesRequest:
        return SamplesRequest(None, self._plan.num_begun - 1, keys, True)


class ItemsMaker(BatchMaker):
    """Makes batches of the items of an iterable dataset. There is nothing to draw."""

    def __init__(self, options: LoaderOptions, plan: Any, fetcher: Fetcher, counters: LoaderCounters) -> None:
        super().__init__(options, plan, fetcher, counters)
        state = self._state
        self._begin, self._passed = state.position, state.passed(0)
        self._wanted = ItemsRequest(None, 0, 0, 0, options.samples_per_batch, options.drop_last, None, None, False)
        self._walk = self._fetcher.open_walk(state.shared_seed, state.walk_of(0))

    def _make(self, item: Any, watch: Stopwatch | None) -> Any:
        fetcher, walk, wanted = self._fetcher, self._walk, self._wanted
        self.watch = watch
        while walk.position < self._passed:  # a resumed epoch
            with contextlib.suppress(Exception):  # it has been raised before
                fetcher.take_items(walk, wanted, self)
        samples = fetcher.take_items(walk, wanted, self)
        self._counters.samples += len(samples)
        batch = fetcher.batch_of_items(walk, wanted, samples)
        self._counters.batches += 1
        return batch

    def _describe(self, item: Any) -> str:
        return f"batch {self._plan.num_begun - 1}"

    def _note_interrupt(self) -> None:
        if self._walk.position > self._passed:
            self._item = _NOTHING
            self._count()

    def note_progress(self) -> None:
        self._plan.note_steps(self._num_steps, self._walk.report(self._fetcher.dataset))

    def note_end(self) -> None:
        self._plan.note_steps(self._num_steps, self._walk.report_of_dataset(self._fetcher.dataset), is_over=True)

    @property
    def _num_steps(self) -> int:
        """The number of steps since the beginning of the epoch."""
        num_steps: int = self._passed + self._state.position - self._begin
        return num_steps


class PositionsMaker(BatchMaker):
    """Makes batches of a composed dataset in logical shards. An item is the request for their positions."""

    def _make(self, item: PositionsRequest, watch: Stopwatch | None) -> Any:
        self.watch = watch
        answer = self._fetcher.answer_locally(item, self)
        return answer.collated[0] if self._plan.note_answers({0: answer}, len(item.positions)) else _NOTHING

    def _describe(self, item: PositionsRequest) -> str:
        return self._fetcher.describe_position(item, self.cell[0])


class BalancedMaker(PositionsMaker):
    """Makes batches whose elements are chosen by their costs; see `dali_like.data.shard_balance`."""

    def __init__(self, options: LoaderOptions, plan: Any, fetcher: Fetcher, counters: LoaderCounters) -> None:
        super().__init__(options, plan, fetcher, counters)
        plan.answer = lambda request: fetcher.answer_locally(request, self)

    def _make(self, item: PositionsRequest, watch: Stopwatch | None) -> Any:
        batch = super()._make(item, watch)
        self._plan.note_delivered(item.number)
        return batch

    def _note_failure(self, item: PositionsRequest) -> None:
        self._plan.note_delivered(item.number)


#: The makers for the kinds of plans; for another kind, `BalancedMaker`.
_MAKERS: dict[type[LoaderPlan], type[BatchMaker]] = {
    SamplesPlan: SamplesMaker,
    ItemsPlan: ItemsMaker,
    PositionsPlan: PositionsMaker,
}


class LocalIterator(LoaderIterator):
    """Yields the batches of one epoch, which this process computes.

    Args:
        options, plan, counters, sender: see `LoaderIterator`.
        fetcher: computes the batches.
    """

    def __init__(
        self,
        options: LoaderOptions,
        plan: LoaderPlan,
        fetcher: Fetcher,
        counters: LoaderCounters,
        sender: DeviceSender | None = None,
    ) -> None:
        self._maker: BatchMaker | None = None  # `__del__` needs it even if the constructor fails below
        #: Excludes other threads. A lock in C: one in Python would cost as much as a small batch.
        self._guard = RLock()
        super().__init__(options, plan, counters, sender)
        plan.number = self.state.number
        if self.state.sampler is not None:  # a resumed epoch
            plan.start()
        self._maker = _MAKERS.get(type(plan), BalancedMaker)(options, plan, fetcher, counters)

    def settle(self) -> None:
        super().settle()
        if (maker := self._maker) is not None:
            maker.note_progress()

    def _leave(self) -> None:
        maker, self._maker = self._maker, None
        if maker is not None:
            maker.note_progress()
            maker.close()

    def _send(self, batch: Any) -> Any:
        """Bring a batch to the device."""
        sender = self._sender
        assert sender is not None
        sent = sender.send(batch, sender.num_delivered)
        if self.keeps_sent:
            self.latest_sent = batch
        return sender.deliver(sent)

    def _next(self) -> Any:
        with self._guard:
            maker = self._maker
            if maker is None:
                self.state.is_over = True
                raise StopIteration
            try:
                batch = maker.take(None if self._sender is None else self._send)
            except StopIteration:
                self._maker = None
                self.state.is_over = True
                maker.note_end()
                maker.close()
                raise
            self._key = maker.made_of
            if self._maker is not maker:
                raise ClosedError(ENDED_BY_ANOTHER)
            return batch
