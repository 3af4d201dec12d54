"""Passes over a loader, the iterators that deliver its batches: what they have in common, whoever makes the batches."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator
from typing import Any, Self

from dali_like.common.notices import warn
from dali_like.data.counters import LoaderCounters
from dali_like.data.iterator_state import IteratorState, Plan
from dali_like.data.messages import Keys, Step
from dali_like.data.sampler_iterators import SamplerIterator
from dali_like.errors import CheckpointError, IteratorPicklingError


class LoaderIterator(Iterator[Any]):
    """One pass over a loader.

    Attributes:
        progress: how far it has come.
        on_next: what calls the function that makes the next batch, while the loader is traced.
    """

    on_next: Callable[[Callable[[], Any]], Any] | None = None

    def __init__(self, plan: Plan, progress: IteratorState, indices: SamplerIterator[Any], counters: LoaderCounters) -> None:
        self.progress = progress
        self._plan = plan
        self._counters = counters
        self._loop = counters.loop
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
            with self._plan.array_backend.recording(self._recorded_as):
                batch = self._next() if self.on_next is None else self.on_next(self._next)
            self._num_yielded += 1
            self._warn_of_length()
            if self._plan.pins:
                batch = self._plan.array_backend.pin(batch)
        except BaseException as error:
            self._loop.fail(error)
            raise
        self._loop.end()
        return batch

    def __len__(self) -> int:
        return len(self._plan.index_sampler)  # type: ignore[arg-type]

    def __getstate__(self) -> Any:
        raise IteratorPicklingError("{} cannot be pickled", type(self).__name__)

    @abc.abstractmethod
    def _next(self) -> Any:
        """The next batch."""

    def _count(self, asked: Keys | Step) -> None:
        """Take note of the samples of a batch that is begun."""
        if isinstance(asked, Step):
            self._counters.samples += asked.size or 1
        else:
            self._counters.samples += len(asked.keys) if self._plan.batched else 1

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
