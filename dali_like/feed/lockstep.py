"""Advance all sources of a pipeline together.

Runs in the main process. Every iteration takes one batch of each source, through its feed
(`dali_like.feed.feed`). Batches are begun ahead, up to the depth of each source, and delivered in order. The epoch
ends for all sources at the first StopIteration of any source, or at the shortest known length.

When the end of an epoch shows among the batches computed ahead, the batches beyond it are dropped. If all sources are
parallel, batches of the next epoch are begun in their place, long before the user calls `reset`. A source in the main
process is never called for an epoch before `reset` has asked for it.

Most sources start every epoch afresh. A source that cannot, such as an iterator, persists: its batches beyond the end of an
epoch are kept, and the next epoch begins with them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Sequence
from typing import NamedTuple

from dali_like.engine.pool.batch import Batch, Output
from dali_like.errors import CheckpointError
from dali_like.feed.feed import Feed, MergingFeed
from dali_like.sources.state_format import SourceProgress


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
    """An iteration that has not been delivered, with the batches begun for it.

    Attributes:
        epoch, number: its place.
        turn: serial number; batches of lower turns are needed earlier.
        batches: one for each source; None where none has been begun.
        is_beyond: whether it lies beyond an end that is known without its batches.
        is_begun: whether no batch is left to begin.
    """

    def __init__(self, epoch: int, number: int, turn: int, num_sources: int, *, is_beyond: bool) -> None:
        self.epoch = epoch
        self.number = number
        self.turn = turn
        self.batches: list[Batch | None] = [None] * num_sources
        self.is_beyond = is_beyond
        self.is_begun = is_beyond

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

    def mark_beyond(self) -> None:
        """Forget the batches: the epoch has ended before this iteration."""
        self.batches = [None] * len(self.batches)
        self.is_beyond = self.is_begun = True


class Lockstep:
    """Delivers the batches of several sources, iteration by iteration.

    Args:
        feeds: one for each source.
        position: where to begin; default: at the beginning.
        on_end: called when an epoch ends: with its numbers of epoch and batches, the source that ended it, and how many
            samples that has made beyond the last batch.
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
    # The order of submission
    # - Batches are begun iteration by iteration, and within an iteration in the order of the sources. Each source has begun
    #   the iterations of the window up to its depth, and none behind one that it has not begun.
    # - Turns grow with the window, also across epochs, and an iteration keeps its turn. Pools queue batches again by it.
    # - Epochs overlap only if all sources are parallel. Otherwise no batch is begun behind the first end in the window.
    #
    # Ends
    # - A known length marks the iterations beyond it when they are made, so no batch is begun for them.
    # - An unknown end shows in a batch: StopIteration means before it, `is_last` behind it. Then the iterations of the epoch
    #   behind the end are dropped, with the batches begun for them, but for one that shows the end.
    #
    # Sources that persist
    # - A batch begun and not delivered is in the window or kept by its feed, never in both. Only two kinds are dropped: a
    #   StopIteration that the user has met, and in `go_to` the ends, and the batches before the new position.
    # - `put_back` undoes deliveries, the last one first, and only before `reset` or `go_to`: the window does not go back.
    #
    # Outcomes
    # - Pools set `Batch.outcome`, and only within `submit`, `poll`, `wait` and `cancel`. Ends therefore appear only there.
    # - So `_poll` comes first, and `_fill` calls `_drop_beyond_ends` before it adds iterations: otherwise it would begin
    #   batches beyond an end just reported. Sources in the main process complete while `_fill` begins them; it stops at an
    #   end and drops again. So no source in the main process is called for an iteration beyond a known end.
    # - A batch in the window is never a cancelled one: `_drop` cancels only iterations that leave the window or are marked
    #   as beyond the end. It takes the batches to keep out of the iteration first.
    #
    # Failures
    # - The exception of a callback is the outcome of its batch: its iteration counts as delivered, and the batches of the
    #   other sources in it are cancelled. An end in the same iteration comes before the exception.
    # - Any other exception, such as Ctrl-C while waiting or calling a source, or the death of workers, changes nothing: the
    #   iteration is still to come, with the batches begun so far.

    def __init__(
        self,
        feeds: Sequence[Feed],
        position: PipelinePosition | None = None,
        on_end: Callable[[int, int, int, int], None] | None = None,
    ) -> None:
        self._feeds = feeds
        self._on_end = on_end
        self._polls = [pool.poll for pool in dict.fromkeys(feed.pool for feed in feeds)]
        self._polls += [feed.poll for feed in feeds if isinstance(feed, MergingFeed)]
        self._ahead = max((feed.ahead for feed in feeds), default=1)
        self._overlaps_epochs = all(feed.parallel for feed in feeds)
        lengths = (feed.plan.sizes.num_batches for feed in feeds if feed.plan.sizes is not None)
        self._num_iterations = min(lengths, default=None)
        self._epoch, self._iteration, delivered = position or PipelinePosition(0, 0, (0,) * len(feeds))
        for feed, count in zip(feeds, delivered, strict=True):
            feed.num_begun = feed.num_delivered = count
        self._persisting = [feed for feed in feeds if feed.plan.persists]
        self._finished = False
        self._window: deque[Iteration] = deque()
        self._turn = 0

    def deepen(self, num_batches: int) -> None:
        """Compute parallel sources this many batches further ahead from now on; a negative number reduces the depth."""
        for feed in self._feeds:
            if feed.parallel:
                feed.ahead += num_batches
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
    def any_persists(self) -> bool:
        """Whether `put_back` keeps batches of any source."""
        return bool(self._persisting)

    def delivered(self, num_ahead: int) -> tuple[int, ...]:
        """Return how many batches of each source that persists have been delivered, without the last `num_ahead`."""
        return tuple(feed.num_delivered - num_ahead if feed.plan.persists else 0 for feed in self._feeds)

    def state(self, index: int, position: PipelinePosition, *, ended: bool) -> SourceProgress:
        """Return where a source continues at a position, with its state before its next batch, for a checkpoint.

        Args:
            ended: whether the user has seen the end of that epoch. Then a source that starts again is asked for the state
                before its next epoch.

        Raises:
            CheckpointError: JSON cannot hold the state.
            Exception: the batch could not be waited for.
        """
        feed = self._feeds[index]
        plan, state = feed.plan, feed.plan.state
        if state is None:
            return SourceProgress(position.delivered[index] if plan.persists else 0)
        number = None
        if plan.persists:
            number = 0, plan.number(position.delivered[index])
        elif not ended:
            number = position.epoch, plan.number(position.iteration)
        for _ in range(2):  # the upcoming batch may turn out to be the end of the epoch: then the next one
            if not state.knows(number) and (batch := self._upcoming(index)) is not None:
                feed.compute(batch)
                number = batch.key.epoch, batch.key.iteration
        progress = state.before(number)
        return progress._replace(position=position.delivered[index]) if plan.persists else progress

    def _upcoming(self, index: int) -> Batch | None:
        """Return the next batch of a parallel source, beginning it if necessary; beyond an end, that of the next epoch.

        None: the epoch ends for a reason other than this source.
        """
        self._poll()
        self._fill(serial=False)
        upcoming = next((iteration for iteration in self._window if iteration.end != ENDS_BEFORE), None)
        if upcoming is None:
            upcoming = self._new_iteration(self._epoch + 1, 0)
            self._window.append(upcoming)
        if upcoming.batches[index] is None and not upcoming.is_beyond:
            upcoming.batches[index] = self._feeds[index].begin(upcoming.epoch, upcoming.number, upcoming.turn)
        return upcoming.batches[index]

    def begin_ahead(self) -> None:
        """Begin the batches of parallel sources that are due, without a `next`."""
        if not self._finished:
            self._poll()
            self._fill(serial=False)

    def next(self) -> list[Sequence[Output]]:
        """Return the outputs of each source in the next iteration.

        Raises:
            StopIteration: the epoch has ended.
            Exception: the exception of a callback. The next call continues with the following iteration.
        """
        if self._finished:
            raise StopIteration
        for poll in self._polls:
            poll()
        if not (self._overlaps_epochs and self._window):
            self._fill(serial=True)
        iteration = self._window[0]
        if self._overlaps_epochs and not iteration.complete:
            self._fill(serial=False, more=1)  # due once this iteration is delivered; beginning it now uses the wait
        outputs = []
        failure: Exception | None = None
        end = iteration.end
        batches = iteration.batches if end != ENDS_BEFORE else []
        for feed, batch in zip(self._feeds, batches):  # noqa: B905  # there may be none
            assert batch is not None
            try:
                outputs.append(feed.take(batch))
            except StopIteration:
                end = iteration.end
                break
            except Exception as error:
                if batch.outcome is not error:
                    raise  # not the outcome of a batch, but for example a worker's death: the iteration is still to come
                failure = error if failure is None else failure  # its class may define `__bool__`
            if batch.is_last:
                end = ENDS_WITHIN
        if end == ENDS_BEFORE:  # errors of other sources in this iteration lie beyond the end
            self._finished = True
            ended_by = self._ended_by(iteration)
            self._poll()
            self._fill(serial=False)
            if self._on_end is not None:
                self._on_end(self._epoch, self._iteration, *ended_by)
            raise StopIteration
        self._iteration += 1
        for feed in self._persisting:
            feed.num_delivered += 1
        if end == ENDS_WITHIN:
            self._end_epoch_behind(iteration)
        self._window.popleft()
        if failure is not None:
            for feed, batch in zip(self._feeds, iteration.batches, strict=True):
                if batch is not None:
                    feed.cancel(batch)
            try:
                raise failure
            finally:
                del failure  # its traceback keeps this frame, and with it the other sources' batches
        self._fill(serial=False)
        return outputs

    def _ended_by(self, iteration: Iteration) -> tuple[int, int]:
        """Return the source that ends the epoch before an iteration, and how many samples it has made there."""
        for i, batch in enumerate(iteration.batches):
            if batch is not None and type(batch.outcome) is StopIteration:
                return i, batch.failed_sample if batch.failed_sample < batch.key.size else 0
        lengths = (feed.plan.sizes and feed.plan.sizes.num_batches for feed in self._feeds)
        return next((i for i, length in enumerate(lengths) if length == 0), 0), 0

    def next_if_ready(self) -> list[Sequence[Output]] | None:
        """Do as `next` if no worker has to be waited for; otherwise return None."""
        if not self._finished:
            self._poll()
            self._fill(serial=True)
            iteration = self._window[0]
            if not iteration.complete and iteration.end != ENDS_BEFORE:
                return None
        return self.next()

    def put_back(self, outputs: Sequence[Sequence[Output]]) -> None:
        """Undo a `next` whose outputs have not been used; the last one first. Outputs of persisting sources are kept."""
        for feed, output in zip(self._feeds, outputs, strict=False):
            feed.put_back(output)

    def check_reachable(self, position: PipelinePosition, restored: Container[int], num_ahead: int) -> None:
        """Check that `go_to` can continue from a position. Call it before `put_back`, which cannot be undone.

        Args:
            restored: see `go_to`.
            num_ahead: iterations taken that the user has not seen.

        Raises:
            CheckpointError: a source that cannot go back is already beyond the position.
        """
        for i, count in enumerate(self.delivered(num_ahead)):
            if position.delivered[i] < count and i not in restored:
                raise CheckpointError(
                    f"source {i} is an iterator and has delivered {count} batches; it cannot go back to "
                    f"{position.delivered[i]}. Load the state into another pipeline"
                )

    def go_to(self, position: PipelinePosition, restored: Container[int]) -> None:
        """Continue from another position, which `check_reachable` has accepted.

        Args:
            restored: the sources that have restored their own state to that position.
        """
        while self._window:
            self._drop(self._window.popleft())
        for i, (feed, delivered) in enumerate(zip(self._feeds, position.delivered, strict=True)):
            feed.go_to(delivered, is_restored=i in restored)
        self._epoch, self._iteration = position.epoch, position.iteration
        self._finished = False

    def reset(self) -> None:
        """Leave the epoch, ended or not, and begin the next one."""
        met_end = self._finished
        while self._window and self._window[0].epoch == self._epoch:
            self._drop(self._window.popleft(), keeps_ends=not met_end)
            met_end = False
        for iteration in self._window:
            # The batches kept now precede the batches begun for this epoch: take those out too, so that order is restored.
            self._keep_persisting(iteration, keeps_ends=True)
        self._drop_premature_epochs()
        self._epoch += 1
        self._iteration = 0
        self._finished = False

    def _poll(self) -> None:
        """Let the pools process completed batches."""
        for poll in self._polls:
            poll()

    def _fill(self, *, serial: bool, more: int = 0) -> None:
        """Drop iterations beyond an end, extend the window, and begin the batches that are due.

        Args:
            serial: whether to begin batches of sources that compute at once, too.
            more: how many iterations further ahead than usual.
        """
        window = self._window
        if shows_end := self._shows_end():
            self._drop_beyond_ends()
        while len(window) < self._ahead + more:
            last = window[-1] if window else None
            if last is None:
                window.append(self._new_iteration(self._epoch, self._iteration))
            elif not (shows_end or last.is_beyond) or last.end != ENDS_BEFORE:
                window.append(self._new_iteration(last.epoch, last.number + 1))
            elif self._overlaps_epochs:
                window.append(self._new_iteration(last.epoch + 1, 0))
            else:
                break
        has_begun = False
        for index, iteration in enumerate(window):
            if not iteration.is_begun:
                has_begun |= self._begin(iteration, index - more, serial)
                if not self._overlaps_epochs and iteration.end != END_UNKNOWN:
                    break
        if has_begun and not self._overlaps_epochs and self._shows_end():
            self._drop_beyond_ends()

    def _new_iteration(self, epoch: int, number: int) -> Iteration:
        self._turn += 1
        is_beyond = self._num_iterations is not None and number >= self._num_iterations
        return Iteration(epoch, number, self._turn, len(self._feeds), is_beyond=is_beyond)

    def _begin(self, iteration: Iteration, distance: int, serial: bool) -> bool:
        """Begin the due batches of an iteration, `distance` ahead of the next one; return whether there were any."""
        has_begun = False
        batches = iteration.batches
        for i, feed in enumerate(self._feeds):
            if batches[i] is None and distance < feed.ahead and (serial or feed.parallel):
                batches[i] = feed.begin(iteration.epoch, iteration.number, iteration.turn)
                has_begun = True
        iteration.is_begun = None not in batches
        return has_begun

    def _end_epoch_behind(self, iteration: Iteration) -> None:
        """Let the epoch end behind the first iteration of the window; the end needs an iteration of its own."""
        if len(self._window) == 1:
            self._window.append(self._new_iteration(iteration.epoch, iteration.number + 1))
        self._drop_beyond_ends()

    def _shows_end(self) -> bool:
        """Return whether the end of any iteration is known; cheaper than computing it."""
        for iteration in self._window:
            if iteration.is_beyond:
                return True
            for batch in iteration.batches:
                if batch is not None and (batch.is_last or type(batch.outcome) is StopIteration):
                    return True
        return False

    def _drop_beyond_ends(self) -> None:
        """Drop the iterations beyond the end of their epoch, but for the first, which is marked and shows the end."""
        ended, ends_here = -1, False
        beyond = []
        for iteration in self._window:
            if iteration.epoch == ended:
                beyond.append(iteration)
                continue
            if ends_here and not iteration.is_beyond:
                self._drop(iteration)
                iteration.mark_beyond()
            end = iteration.end
            ends_here = end == ENDS_WITHIN
            if end == ENDS_BEFORE:
                ended = iteration.epoch
        for iteration in beyond:
            self._drop(iteration, keeps_ends=True)
            self._window.remove(iteration)

    def _drop_premature_epochs(self) -> None:
        """Drop epochs begun ahead if the end that they follow has been taken out of the window."""
        kept: deque[Iteration] = deque()
        while self._window and not (kept and kept[-1].epoch != self._window[0].epoch and kept[-1].end != ENDS_BEFORE):
            kept.append(self._window.popleft())
        for iteration in self._window:
            self._drop(iteration)
        self._window = kept

    def _drop(self, iteration: Iteration, *, keeps_ends: bool = False) -> None:
        """Keep the batches of persisting sources and cancel the others."""
        self._keep_persisting(iteration, keeps_ends=keeps_ends)
        for feed, batch in zip(self._feeds, iteration.batches, strict=True):
            if batch is not None:
                feed.cancel(batch)

    def _keep_persisting(self, iteration: Iteration, *, keeps_ends: bool) -> None:
        """Move the batches of persisting sources from an iteration to their feeds; a StopIteration only if `keeps_ends`."""
        batches = iteration.batches
        for i, feed in enumerate(self._feeds):
            batch = batches[i]
            if feed.plan.persists and batch is not None:
                if keeps_ends or type(batch.outcome) is not StopIteration:
                    feed.keep(batch)
                batches[i] = None
                iteration.is_begun = False
