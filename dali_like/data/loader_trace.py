"""Traces of loaders: the main process, and the workers of each loader iterator."""

from __future__ import annotations

import functools
import os
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dali_like.monitor.trace.trace import Trace, count_nothing

if TYPE_CHECKING:
    from dali_like.data.base_loader import BaseDataLoader
    from dali_like.data.loader_iterator import LoaderIterator
    from dali_like.data.loader_workers import LoaderWorkers


class LoaderTrace(Trace):
    """A trace of a loader: of its iterators and their workers, whenever they begin; see `dali_like.monitor.trace.trace`."""

    def __init__(self, loader: BaseDataLoader[Any], path: str | os.PathLike[str] | None, *, nvtx: bool = False) -> None:
        super().__init__(path, nvtx=nvtx)
        self._loader = loader
        self._iterators: weakref.WeakSet[LoaderIterator] = weakref.WeakSet()
        self._counts: weakref.WeakKeyDictionary[LoaderWorkers, Callable[[], None]] = weakref.WeakKeyDictionary()

    @property
    def owner(self) -> BaseDataLoader[Any]:
        return self._loader

    def begin(self) -> None:
        loader = self._loader
        loader._dali_like_monitor.begin_trace(self, "loader")
        if (latest := loader._dali_like_factory.latest) is not None:
            self.follow(latest)

    def end(self) -> None:
        self._loader._dali_like_monitor.end_trace(self.records)
        for iterator in self._iterators:
            iterator.on_next = None

    def follow(self, iterator: LoaderIterator) -> None:
        """Record a loader iterator and its workers."""
        from dali_like.data.loader_workers import LoaderWorkers  # not without workers

        workers = getattr(iterator, "_loader_workers", None)
        # The callback must not refer to the iterator: workers end when their iterator is dropped.
        count = count_nothing
        if isinstance(workers, LoaderWorkers):
            self.follow_workers(workers)
            count = self._counts[workers]
        iterator.on_next = functools.partial(self.calls.call, count)
        self._iterators.add(iterator)

    def follow_workers(self, workers: LoaderWorkers) -> None:
        """Record some workers until they are closed."""
        if workers in self._counts:
            return
        self._counts[workers] = self.follow_pool(workers.pool)
