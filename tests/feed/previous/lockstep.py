"""Advance all sources of a pipeline together.

Runs in the main process. Every iteration takes one batch of each source. Batches are submitted ahead, up to the depth of
each source, and delivered in order. The epoch ends for all sources at the first StopIteration of any source, or at the
shortest known length.

When the end of an epoch shows among the batches computed ahead, the batches beyond it are dropped. If all sources are
parallel, batches of the next epoch are submitted in their place, long before the user calls `reset`. A source in the main
process is never called for an epoch before `reset` has asked for it.

Most sources start every epoch afresh. A source that cannot, such as an iterator, persists: its batches beyond the end of an
epoch are kept, and the next epoch begins with them.
"""

from __future__ import annotations

import sys
from bisect import insort
from collections import deque
from collections.abc import Callable, Container, Sequence
from typing import Any, NamedTuple

from dali_like.engine.memory.batch_key import ANY_WORKER, BatchKey, Sizes
from dali_like.engine.pool.base import Pool
from dali_like.engine.pool.batch import Batch, Output
from dali_like.errors import CheckpointError
from dali_like.sources.sharding import ALONE, Shard


class PooledSource(NamedTuple):
    """One source: the pool that computes it, its number there, and how far ahead.

    Attributes:
        ahead: batches in progress while the user has one.
        parallel: whether submitting a batch costs the main process next to nothing. If all sources are parallel, one more
            batch is submitted while the user waits.
        worker: the only worker that can compute it, or ANY_WORKER.
        persists: whether an epoch begins where the previous one stopped.
        sizes: the batches of an epoch of known length; None: full batches until StopIteration.
        shard: this process's share of the batches.
        batch: whether the source returns whole batches. Those are numbered across all shards.
    """

    pool: Pool
    source: int
    ahead: int
    parallel: bool
    worker: int = ANY_WORKER
    persists: bool = False
    sizes: Sizes | None = None
    shard: Shard = ALONE
    batch: bool = False

    def number(self, iteration: int) -> int:
        """Return the source's own number for the batch of an iteration."""
        return int(self.shard.batch(iteration)) if self.batch else iteration


class PipelinePosition(NamedTuple):
    """How far a pipeline has come.

    Attributes:
        epoch, iteration: of the batch to deliver next.
        delivered: number of batches delivered of each source that persists; 0 for other sources.
    """

    epoch: int
    iteration: int
    delivered: tuple[int, ...]


#: The end of an epoch, relative to an iteration. Plain integers, because enumeration members compare more slowly.
ENDS_BEFORE, ENDS_WITHIN, END_UNKNOWN = range(3)


class Iteration:
    """An iteration that has not been delivered, with the batches submitted for it.

    Attributes:
        turn: serial number; batches of lower turns are needed earlier.
        batches: one for each source; None where none has been submitted.
        is_beyond: whether it lies beyond an end that is known without its batches.
        is_submitted: whether no batch is left to submit.
    """

    def __init__(self, epoch: int, iteration: int, turn: int, num_sources: int, *, is_beyond: bool) -> None:
        self.epoch = epoch
        self.iteration = iteration
        self.turn = turn
        self.batches: list[Batch | None] = [None] * num_sources
        self.is_beyond = is_beyond
        self.is_submitted = is_beyond

    @property
    def complete(self) -> bool:
        """Whether the outcomes of all batches are known."""
        for batch in self.batches:  # noqa: SIM110  # a generator would take three times as long, here and below
            if batch is None or batch.outcome is None:
                return False
        return True

    @property
    def end(self) -> int:
        """Where the epoch ends, as far as the batches show: ENDS_BEFORE, ENDS_WITHIN or END_UNKNOWN."""
        end = ENDS_BEFORE if self.is_beyond else END_UNKNOWN
        for batch in self.batches:
            if batch is not None:
                if type(batch.outcome) is StopIteration:
                    return ENDS_BEFORE
                if batch.is_last and end == END_UNKNOWN:
                    end = ENDS_WITHIN
        return end

    def may_end(self) -> bool:
        """Whether `end` is known; cheaper than computing it."""
        if self.is_beyond:
            return True
        for batch in self.batches:  # noqa: SIM110  # a generator takes twice as long
            if batch is not None and (batch.is_last or type(batch.outcome) is StopIteration):
                return True
        return False

    def mark_beyond(self) -> None:
        """Forget the batches: the epoch has ended before this iteration."""
        self.batches = [None] * len(self.batches)
        self.is_beyond = self.is_submitted = True


class Lockstep:
    """Delivers the batches of several sources, iteration by iteration.

    Args:
        sources: the sources.
        batch_size: samples in a full batch.
        position: where to begin; default: at the beginning.
        on_empty: called when an epoch ends before its first batch: with the number of the epoch, the source that ended it,
            and how many samples that has made.
    """

    # Invariants between calls.
    #
    # The window
    # - `_window` holds the iterations that have not been delivered, in the order of delivery. The first one is
    #   (`_epoch`, `_iteration`), or the window is empty.
    # - Within an epoch, iterations are consecutive. The next epoch begins behind an iteration with ENDS_BEFORE, and at its
    #   iteration 0. Once `_drop_beyond_ends` has run, each epoch has at most one iteration with ENDS_BEFORE, its last.
    # - `_finished` is True from the StopIteration of `next` until `reset` or `go_to`. The window then still begins with the
    #   end of that epoch.
    #
    # Sources that persist
    # - `_num_begun[i]` counts the batches submitted to source i, `_num_delivered[i]` those delivered to the user.
    # - A batch begun and not delivered is in the window or in `_kept[i]`, never in both. Only two kinds are dropped: a
    #   StopIteration that the user has met, and in `go_to` the ends, and the batches before the new position.
    # - `_kept[i]` is sorted, and used up before another batch is submitted. So the user gets each batch once, and in order.
    # - For other sources both counts stay 0, and `_kept[i]` stays empty.
    #
    # Outcomes
    # - Pools set `Batch.outcome`, and only within `submit`, `poll`, `wait` and `cancel`. Ends therefore appear only there.
    # - So `_poll` comes first, and `_fill` calls `_drop_beyond_ends` before it adds iterations: otherwise it would submit
    #   batches beyond an end just reported. Sources in the main process complete while `_fill` submits; it stops at an
    #   end and drops again. So no source in the main process is called for an iteration beyond a known end.
    # - A batch in the window is never a cancelled one: `_drop` cancels only iterations that leave the window or are marked
    #   as beyond the end. It takes the batches to keep out of the iteration first.

    def __init__(
        self,
        sources: Sequence[PooledSource],
        batch_size: int,
        position: PipelinePosition | None = None,
        on_empty: Callable[[int, int, int], None] | None = None,
    ) -> None:
        self._sources: Sequence[PooledSource] = sources
        self._on_empty = on_empty
        self._pools = list(dict.fromkeys(source.pool for source in sources))
        self._batch_size = batch_size
        self._ahead = max((source.ahead for source in sources), default=1)
        self._overlaps_epochs = all(source.parallel for source in sources)
        self._num_iterations = min(
            (source.sizes.num_batches for source in sources if source.sizes is not None), default=None
        )
        self._epoch, self._iteration, delivered = position or PipelinePosition(0, 0, (0,) * len(sources))
        self._any_persists = any(source.persists for source in sources)
        self._finished = False
        self._window: deque[Iteration] = deque()
        self._turn = 0
        self._num_delivered = list(delivered)
        self._num_begun = list(delivered)
        self._kept: list[list[Batch]] = [[] for _ in sources]

    def deepen(self, num_batches: int) -> None:
        """Compute parallel sources this many batches further ahead from now on; a negative number reduces the depth."""
        self._sources = [
            source._replace(ahead=source.ahead + num_batches) if source.parallel else source for source in self._sources
        ]
        self._ahead = max(source.ahead for source in self._sources)

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
    def any_persists(self) -> bool:
        """Whether `put_back` keeps batches of any source."""
        return self._any_persists

    def number(self, index: int, position: PipelinePosition) -> tuple[int, int]:
        """Return epoch and number of a source's next batch at a position, as the source counts them."""
        source = self._sources[index]
        if source.persists:
            return 0, source.number(position.delivered[index])
        return position.epoch, source.number(position.iteration)

    def upcoming(self, index: int) -> Batch | None:
        """Return the next batch of a parallel source, beginning it if necessary; beyond an end, that of the next epoch.

        None: the epoch ends for a reason other than this source.
        """
        self._poll()
        self._fill(serial=False)
        step = next((step for step in self._window if step.end != ENDS_BEFORE), None)
        if step is None:
            step = self._new_iteration(self._epoch + 1, 0)
            self._window.append(step)
        if step.batches[index] is None and not step.is_beyond:
            step.batches[index] = self._begin(step, index)
        return step.batches[index]

    def delivered(self, num_ahead: int) -> tuple[int, ...]:
        """Return how many batches of each source that persists have been delivered, without the last `num_ahead`."""
        return tuple(
            count - num_ahead if source.persists else 0
            for source, count in zip(self._sources, self._num_delivered, strict=True)
        )

    def next(self) -> list[Sequence[Output]]:
        """Return the outputs of each source in the next iteration.

        Raises:
            StopIteration: the epoch has ended.
            Exception: the exception of a callback. The next call continues with the following iteration.
        """
        if self._finished:
            raise StopIteration
        self._poll()
        if not (self._overlaps_epochs and self._window):
            self._fill(serial=True)
        step = self._window[0]
        if self._overlaps_epochs and not step.complete:
            self._fill(serial=False, more=1)  # due once this iteration is delivered; submitting it now uses the wait
        outputs = []
        failure: Exception | None = None
        batches = step.batches if step.end != ENDS_BEFORE else []
        for source, batch in zip(self._sources, batches):  # noqa: B905  # there may be none
            assert batch is not None
            try:
                outputs.append(source.pool.wait(batch))
            except StopIteration:
                break
            except Exception as error:
                if batch.outcome is not error:
                    raise  # not the outcome of a batch, but for example a worker's death: the iteration is still to come
                failure = error if failure is None else failure  # its class may define `__bool__`
        end = step.end
        if end == ENDS_BEFORE:  # errors of other sources in this iteration lie beyond the end
            self._finished = True
            ended_by = self._ended_by(step)
            self._poll()
            self._fill(serial=False)
            if not self._iteration and self._on_empty is not None:
                self._on_empty(self._epoch, *ended_by)
            raise StopIteration
        self._iteration += 1
        if self._any_persists:
            self._num_delivered = [
                count + source.persists for count, source in zip(self._num_delivered, self._sources, strict=True)
            ]
        if end == ENDS_WITHIN:
            self._end_epoch_behind(step)
        self._window.popleft()
        if failure is not None:
            for source, batch in zip(self._sources, step.batches, strict=True):
                if batch is not None:
                    source.pool.cancel(batch)
            try:
                raise failure
            finally:
                del failure  # its traceback keeps this frame, and with it the other sources' batches
        self._fill(serial=False)
        return outputs

    def _ended_by(self, step: Iteration) -> tuple[int, int]:
        """Return the source that ends the epoch before an iteration, and how many samples it has made there."""
        for i, batch in enumerate(step.batches):
            if batch is not None and type(batch.outcome) is StopIteration:
                return i, batch.failed_sample if batch.failed_sample < batch.key.size else 0
        ends = (i for i, source in enumerate(self._sources) if source.sizes is not None and not source.sizes.num_batches)
        return next(ends, 0), 0

    def next_if_ready(self) -> list[Sequence[Output]] | None:
        """Do as `next` if no worker has to be waited for; otherwise return None."""
        if not self._finished:
            self._poll()
            self._fill(serial=True)
            step = self._window[0]
            if not step.complete and step.end != ENDS_BEFORE:
                return None
        return self.next()

    def put_back(self, outputs: Sequence[Sequence[Output]]) -> None:
        """Undo a `next` whose outputs have not been used; the last one first. Outputs of persisting sources are kept."""
        for i, (source, output) in enumerate(zip(self._sources, outputs, strict=False)):
            if source.persists:
                self._num_delivered[i] -= 1
                batch = Batch(BatchKey(source.source, 0, source.number(self._num_delivered[i]), 0, self._batch_size))
                batch.outcome = output
                self._kept[i].insert(0, batch)

    def go_to(self, position: PipelinePosition, restored: Container[int]) -> None:
        """Continue from another position.

        Args:
            restored: the sources that have restored their own state to that position.

        Raises:
            CheckpointError: a source that cannot go back is already beyond the position.
        """
        for i, source in enumerate(self._sources):
            if source.persists and position.delivered[i] < self._num_delivered[i] and i not in restored:
                raise CheckpointError(
                    f"source {i} is an iterator and has delivered {self._num_delivered[i]} batches; it cannot go back to "
                    f"{position.delivered[i]}. Load the state into another pipeline"
                )
        while self._window:
            self._drop(self._window.popleft())
        for i, (source, delivered) in enumerate(zip(self._sources, position.delivered, strict=True)):
            if source.persists:
                first = source.number(delivered) if i not in restored else sys.maxsize
                self._kept[i] = [batch for batch in self._kept[i] if batch.key.iteration >= first]
                self._num_begun[i] = delivered if i in restored else max(self._num_begun[i], delivered)
        self._epoch, self._iteration = position.epoch, position.iteration
        self._num_delivered = list(position.delivered)
        self._finished = False

    def reset(self) -> None:
        """Leave the epoch, ended or not, and begin the next one."""
        met_end = self._finished
        while self._window and self._window[0].epoch == self._epoch:
            self._drop(self._window.popleft(), keeps_ends=not met_end)
            met_end = False
        for step in self._window:
            # The batches kept now precede the batches begun for this epoch: take those out too, so that order is restored.
            self._keep_persisting(step, keeps_ends=True)
        self._drop_premature_epochs()
        self._epoch += 1
        self._iteration = 0
        self._finished = False

    def _poll(self) -> None:
        """Let the pools process completed batches."""
        for pool in self._pools:
            pool.poll()

    def _fill(self, *, serial: bool, more: int = 0) -> None:
        """Drop iterations beyond an end, extend the window, and submit the batches that are due.

        Args:
            serial: whether to submit to sources that compute at once, too.
            more: how many iterations further ahead than usual.
        """
        self._drop_beyond_ends()
        while len(self._window) < self._ahead + more:
            last = self._window[-1] if self._window else None
            if last is None:
                self._window.append(self._new_iteration(self._epoch, self._iteration))
            elif last.end != ENDS_BEFORE:
                self._window.append(self._new_iteration(last.epoch, last.iteration + 1))
            elif self._overlaps_epochs:
                self._window.append(self._new_iteration(last.epoch + 1, 0))
            else:
                break
        submitted = False
        for index, step in enumerate(self._window):
            if not step.is_submitted:
                submitted |= self._submit(step, index - more, serial)
                if not self._overlaps_epochs and step.end != END_UNKNOWN:
                    break
        if submitted and not self._overlaps_epochs:
            self._drop_beyond_ends()

    def _new_iteration(self, epoch: int, iteration: int) -> Iteration:
        self._turn += 1
        is_beyond = self._num_iterations is not None and iteration >= self._num_iterations
        return Iteration(epoch, iteration, self._turn, len(self._sources), is_beyond=is_beyond)

    def _submit(self, step: Iteration, distance: int, serial: bool) -> bool:
        """Submit the due batches of an iteration, `distance` ahead of the next one; return whether there were any."""
        submitted = False
        for i, source in enumerate(self._sources):
            if step.batches[i] is None and distance < source.ahead and (serial or source.parallel):
                step.batches[i] = self._begin(step, i)
                submitted = True
        step.is_submitted = None not in step.batches
        return submitted

    def _begin(self, step: Iteration, i: int) -> Batch:
        source = self._sources[i]
        if self._kept[i]:
            return self._kept[i].pop(0)
        batch = source.pool.submit(self._key(step, i))
        self._num_begun[i] += source.persists
        return batch

    def _key(self, step: Iteration, i: int) -> BatchKey:
        source = self._sources[i]
        epoch, iteration = (0, self._num_begun[i]) if source.persists else (step.epoch, step.iteration)
        size = self._batch_size
        if source.sizes is not None and iteration == source.sizes.num_batches - 1:
            size = source.sizes.last
        first = source.shard.first(iteration, self._batch_size)
        return BatchKey(source.source, epoch, source.number(iteration), first, size, source.worker, step.turn)

    def _end_epoch_behind(self, step: Iteration) -> None:
        """Let the epoch end behind `step`, the first of the window; the end needs an iteration of its own."""
        if len(self._window) == 1:
            self._window.append(self._new_iteration(step.epoch, step.iteration + 1))
        self._drop_beyond_ends()

    def _drop_beyond_ends(self) -> None:
        """Drop the iterations beyond the end of their epoch, but for the first, which is marked and shows the end."""
        if not any(map(Iteration.may_end, self._window)):
            return
        ended, ends_here = -1, False
        beyond = []
        for step in self._window:
            if step.epoch == ended:
                beyond.append(step)
                continue
            if ends_here and not step.is_beyond:
                self._drop(step)
                step.mark_beyond()
            end = step.end
            ends_here = end == ENDS_WITHIN
            if end == ENDS_BEFORE:
                ended = step.epoch
        for step in beyond:
            self._drop(step, keeps_ends=True)
            self._window.remove(step)

    def _drop_premature_epochs(self) -> None:
        """Drop epochs begun ahead if the end that they follow has been taken out of the window."""
        kept: deque[Iteration] = deque()
        while self._window and not (kept and kept[-1].epoch != self._window[0].epoch and kept[-1].end != ENDS_BEFORE):
            kept.append(self._window.popleft())
        for step in self._window:
            self._drop(step)
        self._window = kept

    def _drop(self, step: Iteration, *, keeps_ends: bool = False) -> None:
        """Keep the batches of persisting sources and cancel the others."""
        self._keep_persisting(step, keeps_ends=keeps_ends)
        for source, batch in zip(self._sources, step.batches, strict=True):
            if batch is not None:
                source.pool.cancel(batch)

    def _keep_persisting(self, step: Iteration, *, keeps_ends: bool) -> None:
        """Move the batches of persisting sources from an iteration to `_kept`; a StopIteration only if `keeps_ends`."""
        for i, (source, batch) in enumerate(zip(self._sources, step.batches, strict=True)):
            if source.persists and batch is not None:
                if keeps_ends or type(batch.outcome) is not StopIteration:
                    insort(self._kept[i], batch, key=_iteration_of)
                step.batches[i] = None
                step.is_submitted = False


def _iteration_of(batch: Batch) -> Any:
    return batch.key.iteration
