"""Decide whether workers share the batches of a source, or one worker computes each batch.

Sharing brings the first batch sooner, and a slow sample delays only its own task. But where neighbors are cheap to read
together, such as samples of one chunk, each worker would read each chunk. The results are the same either way.

1. Workers share batches, and count which samples of their tasks are slow (`dali_like.engine.worker.neighbors`).
2. If the first samples are, one worker computes each batch for a while, as a trial.
3. If a sample then takes notably less time, that remains so until first samples are no longer slow: the program may read in
   another order by then. Otherwise workers share batches again, and the next trial comes after many more tasks.

Tasks of a single sample show no neighbors. If samples are slow, tasks have two samples for a while to find out.

Runs in the main process.
"""

from __future__ import annotations

import enum
import math

from dali_like.engine.worker.neighbors import NeighborCounts

#: Tasks before the first decision, and the growth of this number with each trial that brings nothing.
_FIRST_TASKS, _GROWTH = 8, 8
#: Tasks after which counting starts over.
_MOST_TASKS = 32
#: Tasks of a trial, at least, and of a look at whether it is still right.
_TRIAL_TASKS, _LATER_TASKS = 4, 32
#: There are neighbors if the first sample is slow in this share of the tasks; below the second share, not any more.
_MANY, _FEW = 0.3, 0.1
#: Samples with random times have as many slow first ones only once in 160 times: this many standard deviations.
_DEVIATIONS = 2.5
#: Shorter tasks are left alone: each change costs new slots.
_LEAST_TASK_NS = 500_000
#: One worker keeps a batch if a sample takes at most this share of the time.
_GAIN = 0.8
#: Batches with fewer samples are always shared.
LEAST_SAMPLES = 4


class Size(enum.Enum):
    """The size of tasks."""

    USUAL = "usual"  #: a part of a batch
    PAIRS = "pairs"  #: at least two samples
    WHOLE = "whole"  #: a batch


class Sharing:
    """The decision for one source.

    Args:
        is_whole: whether one worker computes each batch at first: an earlier decision.

    Attributes:
        size: of tasks from now on.
        is_settled: whether the size is more than a trial.
    """

    def __init__(self, *, is_whole: bool = False) -> None:
        self.size = Size.WHOLE if is_whole else Size.USUAL
        self.is_settled = True
        self._wanted_tasks = _FIRST_TASKS
        self._since = NeighborCounts(), NeighborCounts()
        self._shared_ns = 0.0

    def look(
        self, parts: NeighborCounts, wholes: NeighborCounts, *, are_single: bool, num_workers: int, num_ahead: int
    ) -> bool:
        """Decide by the counts of all workers so far. Return whether the size changed.

        Args:
            parts, wholes: the counts of tasks that are parts of batches, and whole batches.
            are_single: whether tasks of the usual size have one sample.
            num_workers: number of workers.
            num_ahead: number of batches in flight.
        """
        part, whole = parts.since(self._since[0]), wholes.since(self._since[1])
        before = self.size
        if before is Size.WHOLE:
            is_done = self._look_at_wholes(whole, min(num_workers, num_ahead) / num_workers)
        elif are_single and before is Size.USUAL:
            is_done = self._look_at_single(part)
        else:
            is_done = self._look_at_parts(part)
        if is_done:
            self._since = parts, wholes
        return self.size is not before

    def _look_at_single(self, part: NeighborCounts) -> bool:
        """Return whether the counts have been used, as all of these methods."""
        if part.samples < self._wanted_tasks:
            return False
        if part.ns >= _LEAST_TASK_NS * part.samples:
            self._change(Size.PAIRS, is_settled=False)
        return True

    def _look_at_parts(self, part: NeighborCounts) -> bool:
        if part.tasks < self._wanted_tasks:
            return False
        if _has_neighbors(part) and part.ns >= _LEAST_TASK_NS * part.tasks:
            self._shared_ns = part.ns / part.samples
            self._change(Size.WHOLE, is_settled=False)
        elif part.tasks < _MOST_TASKS:
            return False
        elif self.size is Size.PAIRS:
            self._give_up()
        return True

    def _look_at_wholes(self, whole: NeighborCounts, busy_share: float) -> bool:
        if whole.tasks < (_LATER_TASKS if self.is_settled else _TRIAL_TASKS):
            return False
        if self.is_settled:
            if whole.first_slow - whole.last_slow < _FEW * whole.tasks:
                self._change(Size.USUAL)
        elif whole.ns / whole.samples <= _GAIN * self._shared_ns * busy_share:
            self.is_settled = True
        else:
            self._give_up()
        return True

    def _give_up(self) -> None:
        self._change(Size.USUAL)
        self._wanted_tasks *= _GROWTH

    def _change(self, size: Size, *, is_settled: bool = True) -> None:
        self.size, self.is_settled = size, is_settled


def _has_neighbors(part: NeighborCounts) -> bool:
    more = part.first_slow - part.last_slow
    return more >= max(_MANY * part.tasks, _DEVIATIONS * math.sqrt(part.first_slow + part.last_slow))
