"""The sources of a pipeline, advancing together.

Every iteration takes one batch of each source. Batches are submitted ahead, as many as the depths of the sources say, and
delivered in order. The epoch ends for all sources with the first StopIteration of any, or where the length of one says.

When the end of an epoch is seen among the batches computed ahead, those behind it are dropped and, if all sources are
parallel, the batches of the next epoch are submitted in their place: the workers are on it long before the user has called
`reset`. A source in the main process is not called for an epoch before `reset` has asked for it.

Most sources begin every epoch anew. What comes from one that cannot, such as an iterator, is not dropped at the end of an
epoch: the next one goes on with it.
"""

from __future__ import annotations

import sys
from bisect import insort
from collections import deque
from collections.abc import Container, Sequence
from typing import Any

from dali_like.engine.memory.batch_key import BatchKey
from dali_like.engine.pool.batch import Batch, Output
from dali_like.errors import CheckpointError
from dali_like.graph.steps import BEFORE, UNKNOWN, WITHIN, Feed, Iteration, Position


class Lockstep:
    """Delivers the batches of several sources, iteration by iteration.

    Args:
        feeds: the sources.
        batch_size: samples in a full batch.
        position: where to begin; default: at the beginning.
    """

    def __init__(self, feeds: Sequence[Feed], batch_size: int, position: Position | None = None) -> None:
        self._feeds: Sequence[Feed] = feeds
        self._pools = list(dict.fromkeys(feed.pool for feed in feeds))
        self._batch_size = batch_size
        self._ahead = max((feed.ahead for feed in feeds), default=1)
        self._overlaps_epochs = all(feed.parallel for feed in feeds)
        self._num_iterations = min((feed.sizes.num_batches for feed in feeds if feed.sizes is not None), default=None)
        self._epoch, self._iteration, passed = position or Position(0, 0, (0,) * len(feeds))
        self._any_goes_on = any(feed.persists for feed in feeds)
        self._finished = False
        self._window: deque[Iteration] = deque()
        self._turn = 0
        #: Of each source that goes on: how many batches have been delivered, how many submitted, and those that an epoch has
        #: left over.
        self._passed = list(passed)
        self._submitted = list(passed)
        self._left_over: list[list[Batch]] = [[] for _ in feeds]

    def deepen(self, num_batches: int) -> None:
        """Compute parallel sources so many batches further ahead from now on; a negative number: less far."""
        self._feeds = [feed._replace(ahead=feed.ahead + num_batches) if feed.parallel else feed for feed in self._feeds]
        self._ahead = max(feed.ahead for feed in self._feeds)

    @property
    def finished(self) -> bool:
        """Whether the epoch has ended, and `reset` has not been called since."""
        return self._finished

    @property
    def epoch(self) -> int:
        """The number of the epoch."""
        return self._epoch

    @property
    def iteration(self) -> int:
        """How many batches of the epoch have been delivered."""
        return self._iteration

    @property
    def any_goes_on(self) -> bool:
        """Whether there is a source that `put_back` gives something back to."""
        return self._any_goes_on

    def number(self, source: int, position: Position) -> tuple[int, int]:
        """How a source calls the batch that comes next at a position: by what epoch and number."""
        feed = self._feeds[source]
        if feed.persists:
            return 0, feed.number(position.passed[source])
        return position.epoch, feed.number(position.iteration)

    def upcoming(self, source: int) -> Batch | None:
        """The batch of a parallel source that comes next, which is begun if need be: beyond an end, of the next epoch.

        None: the epoch ends for another reason than that this source does.
        """
        self._poll()
        self._fill(serial=False)
        step = next((step for step in self._window if step.end != BEFORE), None)
        if step is None:
            step = self._make_step(self._epoch + 1, 0)
            self._window.append(step)
        if step.batches[source] is None and not step.is_beyond:
            step.batches[source] = self._begin(step, source)
        return step.batches[source]

    def passed(self, steps_ahead: int) -> tuple[int, ...]:
        """How many batches have been delivered of each source that goes on; `steps_ahead` of them do not count."""
        return tuple(
            count - steps_ahead if feed.persists else 0 for feed, count in zip(self._feeds, self._passed, strict=True)
        )

    def next(self) -> list[Sequence[Output]]:
        """The outputs of each source in the next iteration.

        Raises:
            StopIteration: the epoch has ended.
            Exception: what a callback raised. The next call goes on with the next iteration.
        """
        if self._finished:
            raise StopIteration
        self._poll()
        if not (self._overlaps_epochs and self._window):
            self._fill(serial=True)
        step = self._window[0]
        if self._overlaps_epochs and not step.complete:
            self._fill(serial=False, more=1)  # what will be due when this one is here: there is time for that now
        outputs = []
        failure: Exception | None = None
        batches = step.batches if step.end != BEFORE else []
        for feed, batch in zip(self._feeds, batches):  # noqa: B905  # there may be none
            assert batch is not None
            try:
                outputs.append(feed.pool.wait(batch))
            except StopIteration:
                break
            except Exception as error:
                if batch.outcome is not error:
                    raise  # of no batch, such as the death of a worker: the iteration is still to come
                failure = failure or error
        end = step.end
        if end == BEFORE:  # whatever another source has met here is beyond the end
            self._finished = True
            self._poll()
            self._fill(serial=False)
            raise StopIteration
        self._iteration += 1
        if self._any_goes_on:
            self._passed = [count + feed.persists for count, feed in zip(self._passed, self._feeds, strict=True)]
        if end == WITHIN:
            self._end_behind(step)
        self._window.popleft()
        if failure is not None:
            for feed, batch in zip(self._feeds, step.batches, strict=True):
                if batch is not None:
                    feed.pool.cancel(batch)
            try:
                raise failure
            finally:
                del failure  # its traceback keeps this frame, and with it the other sources' batches
        self._fill(serial=False)
        return outputs

    def next_if_ready(self) -> list[Sequence[Output]] | None:
        """As `next`, if that would not have to wait for a worker; otherwise None."""
        if not self._finished:
            self._poll()
            self._fill(serial=True)
            step = self._window[0]
            if not step.complete and step.end != BEFORE:
                return None
        return self.next()

    def put_back(self, outputs: Sequence[Sequence[Output]]) -> None:
        """Undo a `next` whose outputs have not been used, the last one first: what cannot be had again is given again."""
        for i, (feed, output) in enumerate(zip(self._feeds, outputs, strict=False)):
            if feed.persists:
                self._passed[i] -= 1
                batch = Batch(BatchKey(feed.source, 0, feed.number(self._passed[i]), 0, self._batch_size))
                batch.outcome = output
                self._left_over[i].insert(0, batch)

    def go_to(self, position: Position, restored: Container[int]) -> None:
        """Go on from anywhere.

        Args:
            restored: the sources that have been brought there by what they know of their state.

        Raises:
            CheckpointError: one that cannot go back has been further.
        """
        for i, feed in enumerate(self._feeds):
            if feed.persists and position.passed[i] < self._passed[i] and i not in restored:
                raise CheckpointError(
                    f"source {i} is an iterator of which {self._passed[i]} batches have been taken; it cannot go back to "
                    f"{position.passed[i]}. Load the state into another pipeline"
                )
        while self._window:
            self._drop(self._window.popleft())
        for i, (feed, passed) in enumerate(zip(self._feeds, position.passed, strict=True)):
            if feed.persists:
                first = feed.number(passed) if i not in restored else sys.maxsize
                self._left_over[i] = [batch for batch in self._left_over[i] if batch.key.iteration >= first]
                self._submitted[i] = passed if i in restored else max(self._submitted[i], passed)
        self._epoch, self._iteration = position.epoch, position.iteration
        self._passed = list(position.passed)
        self._finished = False

    def reset(self) -> None:
        """Leave the epoch, ended or not, and begin the next one."""
        met_end = self._finished
        while self._window and self._window[0].epoch == self._epoch:
            self._drop(self._window.popleft(), keeps_ends=not met_end)
            met_end = False
        for step in self._window:
            # Those that were left over now come before those that had been begun for this epoch.
            self._leave_over(step, keeps_ends=True)
        self._drop_behind_no_end()
        self._epoch += 1
        self._iteration = 0
        self._finished = False

    def _poll(self) -> None:
        """Take note of what has been completed."""
        for pool in self._pools:
            pool.poll()

    def _fill(self, *, serial: bool, more: int = 0) -> None:
        """Submit what is due.

        Args:
            serial: whether sources that compute at once are among it.
            more: how many iterations further ahead than usual.
        """
        self._truncate()
        while len(self._window) < self._ahead + more:
            last = self._window[-1] if self._window else None
            if last is None:
                self._window.append(self._make_step(self._epoch, self._iteration))
            elif last.end != BEFORE:
                self._window.append(self._make_step(last.epoch, last.iteration + 1))
            elif self._overlaps_epochs:
                self._window.append(self._make_step(last.epoch + 1, 0))
            else:
                break
        submitted = False
        for position, step in enumerate(self._window):
            if not step.is_submitted:
                submitted |= self._submit(step, position - more, serial)
                if not self._overlaps_epochs and step.end != UNKNOWN:
                    break
        if submitted and not self._overlaps_epochs:
            self._truncate()

    def _make_step(self, epoch: int, iteration: int) -> Iteration:
        self._turn += 1
        is_beyond = self._num_iterations is not None and iteration >= self._num_iterations
        return Iteration(epoch, iteration, self._turn, len(self._feeds), is_beyond=is_beyond)

    def _submit(self, step: Iteration, position: int, serial: bool) -> bool:
        """Submit the batches of a step that are due; whether there were any."""
        submitted = False
        for i, feed in enumerate(self._feeds):
            if step.batches[i] is None and position < feed.ahead and (serial or feed.parallel):
                step.batches[i] = self._begin(step, i)
                submitted = True
        step.is_submitted = None not in step.batches
        return submitted

    def _begin(self, step: Iteration, i: int) -> Batch:
        feed = self._feeds[i]
        if self._left_over[i]:
            return self._left_over[i].pop(0)
        batch = feed.pool.submit(self._key(step, i))
        self._submitted[i] += feed.persists
        return batch

    def _key(self, step: Iteration, i: int) -> BatchKey:
        feed = self._feeds[i]
        epoch, iteration = (0, self._submitted[i]) if feed.persists else (step.epoch, step.iteration)
        size = self._batch_size
        if feed.sizes is not None and iteration == feed.sizes.num_batches - 1:
            size = feed.sizes.last
        first = feed.shard.first(iteration, self._batch_size)
        return BatchKey(feed.source, epoch, feed.number(iteration), first, size, feed.worker, step.turn)

    def _end_behind(self, step: Iteration) -> None:
        """Let the epoch end behind the first step."""
        if len(self._window) == 1:
            self._window.append(self._make_step(step.epoch, step.iteration + 1))
        self._truncate()

    def _truncate(self) -> None:
        """Drop what was submitted behind the end of an epoch."""
        if not any(map(Iteration.may_end, self._window)):
            return
        ended, ends_here = -1, False
        behind = []
        for step in self._window:
            if step.epoch == ended:
                behind.append(step)
                continue
            if ends_here and not step.is_beyond:
                self._drop(step)
                step.empty()
            end = step.end
            ends_here = end == WITHIN
            if end == BEFORE:
                ended = step.epoch
        for step in behind:
            self._drop(step, keeps_ends=True)
            self._window.remove(step)

    def _drop_behind_no_end(self) -> None:
        """Drop the epochs that were begun because the one before was over, where it no longer is."""
        kept: deque[Iteration] = deque()
        while self._window and not (kept and kept[-1].epoch != self._window[0].epoch and kept[-1].end != BEFORE):
            kept.append(self._window.popleft())
        for step in self._window:
            self._drop(step)
        self._window = kept

    def _drop(self, step: Iteration, *, keeps_ends: bool = False) -> None:
        self._leave_over(step, keeps_ends=keeps_ends)
        for feed, batch in zip(self._feeds, step.batches, strict=True):
            if batch is not None:
                feed.pool.cancel(batch)

    def _leave_over(self, step: Iteration, *, keeps_ends: bool) -> None:
        """Keep those batches of a step for later that cannot be had again; and ends, if they are of later epochs."""
        for i, (feed, batch) in enumerate(zip(self._feeds, step.batches, strict=True)):
            if feed.persists and batch is not None:
                if keeps_ends or batch.outcome.__class__ is not StopIteration:
                    insort(self._left_over[i], batch, key=_iteration_of)
                step.batches[i] = None
                step.is_submitted = False


def _iteration_of(batch: Batch) -> Any:
    return batch.key.iteration
