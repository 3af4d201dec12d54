"""Passes that make their batches themselves, in the calling process, when they are asked for."""

from __future__ import annotations

from typing import Any

from dali_like.data.counters import LoaderCounters
from dali_like.data.fetcher import Fetcher, LocalRequest, as_sequence
from dali_like.data.iterator_state import IteratorState, Plan
from dali_like.data.loader_iterator import LoaderIterator
from dali_like.data.messages import Keys, Step
from dali_like.data.sampler_iterators import SamplerIterator
from dali_like.engine.worker.exceptions import add_note
from dali_like.engine.worker.meters import Interval


class SerialIterator(LoaderIterator):
    """A pass that makes one batch after the other."""

    def __init__(
        self, plan: Plan, progress: IteratorState, indices: SamplerIterator[Any], fetcher: Fetcher, counters: LoaderCounters
    ) -> None:
        super().__init__(plan, progress, indices, counters)
        self._fetcher = fetcher
        if plan.is_iterable:
            self._fetcher.open_walk(0, progress.shared_seed, progress.told_by(0))
            progress.tell(fetcher.told(0))
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
                self.progress.tell(self._fetcher.told(0))
            raise
        finally:
            if not self.progress.is_over:
                self._note(number)

    def _make(self, number: int) -> Any:
        fetcher, asked, request = self._fetcher, self._ask(number), LocalRequest()
        self._count(asked)
        meter = self._counters.meter
        request.watch = watch = meter.begin()
        try:
            batch = self._step(asked, request) if isinstance(asked, Step) else fetcher.fetch(asked, request)
        except StopIteration:
            raise
        except Exception as error:
            where = fetcher.describe_keys(asked, request.cell[0]) if isinstance(asked, Keys) else f"batch {number}"
            add_note(error, f"raised by {fetcher.name} for {where}")
            raise
        else:
            self._counters.batches += 1
            return batch
        finally:
            meter.end(watch, Interval(self.progress.number, number, -1, 1))
            meter.note()
            self._counters.replaced += request.cell[1]

    def _step(self, asked: Step, request: LocalRequest) -> Any:
        made = self._fetcher.step(asked, request)
        self.progress.tell(made.told)
        return made.batch

    def _ask(self, number: int) -> Keys | Step:
        plan, progress = self._plan, self.progress
        if plan.is_iterable:
            told = progress.told_by(0)
            return Step(None, 0, 0, number, plan.batch_size, plan.drop_last, progress.shared_seed, told)
        keys = next(self._indices)
        if plan.batched and self._fetcher.getitems is None:
            keys = as_sequence(keys)
        return Keys(None, number, keys, True)

    def _note(self, number: int) -> None:
        """Take note of a batch that has been delivered, and go past those behind it that had been before."""
        self.progress.deliver(number)
        if not self._plan.is_iterable:
            for _ in range(number + 1, self.progress.yielded):
                next(self._indices, None)
