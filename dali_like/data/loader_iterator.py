"""The common part of the iterators over a loader, with and without workers. They run in the main process."""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self, cast

from dali_like.common.notices import warn
from dali_like.common.tracebacks import user_frames_first
from dali_like.data.counters import LoaderCounters
from dali_like.data.iterator_state import IteratorState
from dali_like.data.messages import ItemsRequest, SamplesRequest
from dali_like.data.options import LoaderOptions, why_empty
from dali_like.data.sampler_iterators import SamplerIterator
from dali_like.errors import CheckpointError, IteratorPicklingError

if TYPE_CHECKING:
    from dali_like.data.position_sampler import PositionIterator
    from dali_like.sources.composed.stream import ShardState


class LoaderIterator(Iterator[Any]):
    """Yields the batches of one epoch.

    Attributes:
        state: the position of the iterator, from which a loader can resume.
        on_next: calls the function that returns the next batch, while the loader is traced.
    """

    on_next: Callable[[Callable[[], Any]], Any] | None = None

    def __init__(
        self, options: LoaderOptions, state: IteratorState, indices: SamplerIterator[Any], counters: LoaderCounters
    ) -> None:
        self.state = state
        self._options = options
        self._counters = counters
        self._loop = counters.loop
        self._indices = indices
        self._has_begun = options.is_iterable
        self._pins_memory = options.pins_memory
        self._announced = options.announced_length if options.is_iterable else None
        self._recorded_as = f"enumerate(DataLoader)#{type(self).__name__}.__next__"
        #: PyTorch's iterators have this attribute, and some programs read it.
        self._may_be_empty = True
        self._num_yielded = state.yielded + len(state.ahead)
        if (positions := self.positions) is not None:
            self._num_yielded += positions.begin  # of a resumed epoch

    def __iter__(self) -> Self:
        return self

    @user_frames_first
    def __next__(self) -> Any:
        self._loop.begin()
        try:
            take = self._next if self.on_next is None else functools.partial(self.on_next, self._next)
            recording = self._options.array_backend.recording(self._recorded_as)
            if recording is None:
                batch = take()
            else:
                with recording:
                    batch = take()
            self._num_yielded += 1
            if self._announced is not None and self._num_yielded > self._announced:
                self._warn_about_length()
            if self._pins_memory:
                batch = self._options.array_backend.pin(batch)
        except StopIteration as end:
            self._loop.fail(end)
            self._warn_of_empty_epoch()
            raise
        except BaseException as error:
            self._may_be_empty = False  # there was a batch, or a sampler that could not say whether there is one
            self._loop.fail(error)
            raise
        self._loop.end()
        return batch

    @property
    def positions(self) -> PositionIterator | None:
        """The iterator over positions, of a composed dataset."""
        return cast("PositionIterator", self._indices) if self._indices.yields_positions else None

    @property
    def shard_states(self) -> Mapping[int, ShardState]:
        """The latest known states of the logical shards of this rank; empty without."""
        return {}

    def __len__(self) -> int:
        return len(self._options.index_sampler)  # type: ignore[arg-type]

    def __getstate__(self) -> Any:
        raise IteratorPicklingError("{} cannot be pickled", type(self).__name__)

    @abc.abstractmethod
    def _next(self) -> Any:
        """Return the next batch."""

    def _count(self, request: SamplesRequest | ItemsRequest) -> None:
        """Count the samples of a batch that begins."""
        if isinstance(request, ItemsRequest):
            self._counters.samples += request.size or 1
        else:
            self._counters.samples += len(request.keys) if self._options.batched else 1

    def _shutdown_workers(self) -> None:
        """End the iterator and its workers, even kept ones. Some programs call this method of PyTorch's iterators."""
        self.end()

    def end(self) -> None:
        """End the iterator, and its workers unless the loader keeps them."""

    def settle(self) -> None:
        """Bring the state up to date, for a program that asks for it."""
        self.begin()

    def begin(self) -> None:
        """Move the sampler to the first batch, once. From then on, the state determines the indices."""
        if self._has_begun:
            return
        self._has_begun = True
        if self.state.sampler is None:
            self.state.sampler = self._indices.state_dict()
            return
        self._indices.load_state_dict(self.state.sampler)
        try:
            self._indices.skip(self.state.yielded)
        except StopIteration:
            raise CheckpointError(
                f"Invalid state_dict: {self.state.yielded} batches had been delivered, and the sampler of this loader has "
                "fewer; load the state into a loader with the same dataset and sampler"
            ) from None

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
