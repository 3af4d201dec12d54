"""The sources of a pipeline, advancing together.

Every iteration takes one batch of each source. Batches are submitted ahead, as many as the depths of the sources say, and
delivered in order. The epoch ends for all sources with the first StopIteration of any.

When the end of an epoch is seen among the batches computed ahead, those behind it are dropped and, if all sources are
parallel, the batches of the next epoch are submitted in their place: the workers are on it long before the user has called
`reset`. A source in the main process is not called for an epoch before `reset` has asked for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from dali_like.workers.base import Pool
from dali_like.workers.batch import Batch, BatchKey, Output


@dataclass(frozen=True)
class Feed:
    """One source: the pool that computes it, its number there, and how far ahead.

    Attributes:
        ahead: batches that are submitted before the first is waited for, that one included.
        parallel: whether submitting costs the main process next to nothing.
    """

    pool: Pool
    index: int
    ahead: int
    parallel: bool


class _Step:
    """One iteration."""

    def __init__(self, epoch: int, iteration: int, num_sources: int) -> None:
        self.epoch = epoch
        self.iteration = iteration
        self.batches: list[Batch | None] = [None] * num_sources
        self.is_submitted = False

    @property
    def complete(self) -> bool:
        for batch in self.batches:  # noqa: SIM110  # a generator would take three times as long, here and below
            if batch is None or batch.outcome is None:
                return False
        return True

    @property
    def is_end(self) -> bool:
        """Whether a source is known to have ended before this iteration."""
        for batch in self.batches:  # noqa: SIM110
            if batch is not None and batch.outcome.__class__ is StopIteration:
                return True
        return False


class Lockstep:
    """Delivers the batches of several sources, iteration by iteration."""

    def __init__(self, feeds: Sequence[Feed], batch_size: int) -> None:
        self._feeds = feeds
        self._pools = list(dict.fromkeys(feed.pool for feed in feeds))
        self._batch_size = batch_size
        self._ahead = max((feed.ahead for feed in feeds), default=1)
        self._overlaps_epochs = all(feed.parallel for feed in feeds)
        self._epoch = 0
        self._iteration = 0
        self._finished = False
        self._window: deque[_Step] = deque()

    @property
    def finished(self) -> bool:
        """Whether the epoch has ended, and `reset` has not been called since."""
        return self._finished

    def next(self) -> list[Sequence[Output]]:
        """The outputs of each source in the next iteration.

        Raises:
            StopIteration: the epoch has ended.
            Exception: what a callback raised. The next call goes on with the next iteration.
        """
        if self._finished:
            raise StopIteration
        self._fill(serial=True)
        step = self._window[0]
        outputs = []
        failure: Exception | None = None
        for feed, batch in zip(self._feeds, step.batches, strict=True):
            assert batch is not None
            try:
                outputs.append(feed.pool.wait(batch))
            except StopIteration:
                # Whatever another source has met here is beyond the end.
                self._finished = True
                self._fill(serial=False)
                raise
            except Exception as error:
                if batch.outcome is not error:
                    raise  # of no batch, such as the death of a worker: the iteration is still to come
                failure = failure or error
        if failure is not None:
            self._iteration += 1
            self._cancel(self._window.popleft())
            raise failure
        self._iteration += 1
        self._window.popleft()
        self._fill(serial=False)
        return outputs

    def next_if_ready(self) -> list[Sequence[Output]] | None:
        """As `next`, if that would not have to wait for a worker; otherwise None."""
        if not self._finished:
            self._fill(serial=True)
            if not self._window[0].complete:
                return None
        return self.next()

    def reset(self) -> None:
        """Leave the epoch, ended or not, and begin the next one."""
        while self._window and self._window[0].epoch == self._epoch:
            self._cancel(self._window.popleft())
        self._epoch += 1
        self._iteration = 0
        self._finished = False

    def _fill(self, *, serial: bool) -> None:
        """Submit what is due; `serial` says whether sources that compute at once are among it."""
        for pool in self._pools:
            pool.poll()
        self._truncate()
        while len(self._window) < self._ahead:
            last = self._window[-1] if self._window else None
            if last is None:
                step = _Step(self._epoch, self._iteration, len(self._feeds))
            elif not last.is_end:
                step = _Step(last.epoch, last.iteration + 1, len(self._feeds))
            elif self._overlaps_epochs:
                step = _Step(last.epoch + 1, 0, len(self._feeds))
            else:
                break
            self._window.append(step)
        submitted = False
        for position, step in enumerate(self._window):
            if not step.is_submitted:
                submitted |= self._submit(step, position, serial)
                if step.is_end and not self._overlaps_epochs:
                    break
        if submitted:
            self._truncate()

    def _submit(self, step: _Step, position: int, serial: bool) -> bool:
        """Submit the batches of a step that are due; whether there were any."""
        submitted = False
        for i, feed in enumerate(self._feeds):
            if step.batches[i] is None and position < feed.ahead and (serial or feed.parallel):
                first = step.iteration * self._batch_size
                step.batches[i] = feed.pool.submit(BatchKey(feed.index, step.epoch, step.iteration, first, self._batch_size))
                submitted = True
        step.is_submitted = None not in step.batches
        return submitted

    def _truncate(self) -> None:
        """Drop what was submitted behind the end of an epoch."""
        ended = -1
        behind = []
        for step in self._window:
            if step.epoch == ended:
                behind.append(step)
            elif step.is_end:
                ended = step.epoch
        for step in behind:
            self._cancel(step)
            self._window.remove(step)

    def _cancel(self, step: _Step) -> None:
        for feed, batch in zip(self._feeds, step.batches, strict=True):
            if batch is not None:
                feed.pool.cancel(batch)
