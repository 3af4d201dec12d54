"""The iterator of a loader without workers: the main process computes each batch when the program asks for it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from dali_like.common.foreign_errors import add_note
from dali_like.data.counters import LoaderCounters
from dali_like.data.fetcher import Fetcher, LocalRequest, as_sequence
from dali_like.data.iterable_walk import DatasetWalk
from dali_like.data.iterator_state import IteratorState
from dali_like.data.loader_iterator import LoaderIterator
from dali_like.data.messages import ItemsRequest, SamplesRequest
from dali_like.data.options import LoaderOptions
from dali_like.data.sampler_iterators import SamplerIterator
from dali_like.engine.worker.meters import Interval


class SerialIterator(LoaderIterator):
    """Computes its batches itself, one after the other."""

    _walk: DatasetWalk | None = None

    def __init__(
        self,
        options: LoaderOptions,
        state: IteratorState,
        indices: SamplerIterator[Any],
        fetcher: Fetcher,
        counters: LoaderCounters,
    ) -> None:
        super().__init__(options, state, indices, counters)
        self._fetcher = fetcher
        self._interrupted: SamplesRequest | None = None
        if options.is_iterable:
            self._walk = fetcher.open_walk(0, state.shared_seed, state.reported_by(0))
            self._note_state()
        elif state.sampler is not None:
            self.begin()

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if not is_finalizing():
            self._note_state()  # the loader can be asked for it later

    def settle(self) -> None:
        super().settle()
        self._note_state()

    def _note_state(self) -> None:
        """Record the state of an iterable dataset behind the last batch."""
        if self._walk is not None and not self.state.is_over:
            self.state.note_reported(self._walk.report(0, self._fetcher.dataset))

    def _next(self) -> Any:
        if self.state.is_over:
            raise StopIteration
        self.begin()
        number = self.state.yielded
        try:
            return self._make(number)
        except StopIteration:
            self._note_state()
            self.state.is_over = True
            raise
        finally:
            if not self.state.is_over and self._interrupted is None:
                self._note_delivered(number)

    def _make(self, number: int) -> Any:
        fetcher, local = self._fetcher, LocalRequest()
        request, self._interrupted = self._interrupted or self._request_for(number), None
        self._count(request)
        meter = self._counters.meter
        local.watch = watch = meter.begin()
        try:
            if isinstance(request, ItemsRequest):
                assert self._walk is not None
                batch = fetcher.step(self._walk, request, local)
            else:
                batch = fetcher.fetch(request, local)
        except StopIteration:
            raise
        except Exception as error:
            if isinstance(request, SamplesRequest):
                where = fetcher.describe_keys(request, local.cell[0])
            else:
                where = f"batch {number}"
            add_note(error, f"raised by {fetcher.name} for {where}")
            raise
        except BaseException:  # an interrupt: the next call makes the same batch
            self._interrupted = request if isinstance(request, SamplesRequest) else None
            raise
        else:
            self._counters.batches += 1
            return batch
        finally:
            meter.end(watch, Interval(self.state.number, number, -1, 1))
            meter.note()
            self._counters.replaced += local.cell[1]

    def _request_for(self, number: int) -> SamplesRequest | ItemsRequest:
        options, state = self._options, self.state
        if options.is_iterable:
            return ItemsRequest(
                seed=None,
                iterator=0,
                worker=0,
                number=number,
                size=options.samples_per_batch,
                drop_last=options.drop_last,
                shared_seed=state.shared_seed,
                state=None,
                wants_state=False,
            )
        keys = next(self._indices)
        if options.batched and type(keys) is not list and not self._fetcher.passes_keys:
            keys = as_sequence(keys)
        return SamplesRequest(None, number, keys, True)

    def _note_delivered(self, number: int) -> None:
        """Record a delivered batch, and skip later batches that were delivered out of order before."""
        self.state.deliver(number)
        if not self._options.is_iterable:
            for _ in range(number + 1, self.state.yielded):
                next(self._indices, None)
