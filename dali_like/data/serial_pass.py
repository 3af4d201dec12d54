"""Passes that make their batches themselves, in the calling process, when they are asked for."""

from __future__ import annotations

from typing import Any

from dali_like.data.iteration import SamplerIterator
from dali_like.data.making import BatchMaker, LocalRequest, as_sequence
from dali_like.data.messages import Keys, Step
from dali_like.data.passes import Pass
from dali_like.data.progress import Plan, Progress
from dali_like.data.tallies import Tally
from dali_like.workers.meters import Span
from dali_like.workers.transport import add_note


class SerialPass(Pass):
    """A pass that makes one batch after the other."""

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
        maker, asked, request = self._maker, self._ask(number), LocalRequest()
        self._count(asked)
        meter = self._tally.meter
        request.watch = watch = meter.begin()
        try:
            batch = self._step(asked, request) if isinstance(asked, Step) else maker.fetch(asked, request)
        except StopIteration:
            raise
        except Exception as error:
            where = maker.describe_keys(asked, request.cell[0]) if isinstance(asked, Keys) else f"batch {number}"
            add_note(error, f"raised by {maker.name} for {where}")
            raise
        else:
            self._tally.batches += 1
            return batch
        finally:
            meter.end(watch, lambda: Span(self.progress.number, number, -1, 1))
            meter.note()
            self._tally.replaced += request.cell[1]

    def _step(self, asked: Step, request: LocalRequest) -> Any:
        made = self._maker.step(asked, request)
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
