"""What a loop does between its batches and how long it waits for them: two readings of the clock a batch.

The loop is whoever calls for batches. From the end of one call to the beginning of the next it works, and during a call it
waits. What lies between epochs is neither.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import monotonic_ns
from typing import NamedTuple

from dali_like.engine.worker.meters import Recorder

#: So many batches are remembered one by one.
NUM_RECENT = 256


class BatchTimes(NamedTuple):
    """One batch, as the loop has met it.

    Attributes:
        wait_ns: how long the loop has waited for it.
        work_ns: how long it had worked before, since it got the batch before; 0 for the first one of an epoch.
        end_ns: when it got it, as `time.monotonic_ns` counts.
    """

    wait_ns: int
    work_ns: int
    end_ns: int


class LoopMeter:
    """Measures a loop. One thread at a time writes; any may read.

    Attributes:
        batches, errors, epochs: how many calls have returned a batch, have raised something else, or ended an epoch.
        begin_ns: when the first call began; 0 before.
        first_ns: how long the first batch of all has taken, which is in no other number.
        wait, work: of all batches.
        recent: the last ones: the numbers of their `BatchTimes`.
        hooks: called with the number of batches so far, whenever the loop asks for one.
    """

    def __init__(self) -> None:
        self.batches = self.errors = self.epochs = 0
        self.begin_ns = self.first_ns = 0
        self.wait = Recorder()
        self.work = Recorder()
        self.recent: deque[tuple[int, int, int]] = deque(maxlen=NUM_RECENT)
        self.hooks: list[Callable[[int], None]] = []
        self._called_ns = 0
        self._left_ns = 0  # when the loop got a batch that it is at work on

    def begin(self) -> None:
        """The loop asks for a batch."""
        for hook in self.hooks:
            hook(self.batches)
        self._called_ns = monotonic_ns()

    def end(self) -> None:
        """It gets it."""
        now, called, left = monotonic_ns(), self._called_ns, self._left_ns
        self._left_ns = now
        self.batches += 1
        wait = now - called
        if self.first_ns:
            self.wait.add(wait)
        else:
            self.begin_ns, self.first_ns = called, wait
        work = 0
        if left:
            work = called - left
            self.work.add(work)
        self.recent.append((wait, work, now))

    def pause(self) -> None:
        """What the loop does until it asks for the next batch is none of its work: an epoch is over."""
        self._left_ns = 0

    def fail(self, error: BaseException) -> None:
        """It gets none."""
        self.pause()
        if isinstance(error, StopIteration):
            self.epochs += 1
        elif isinstance(error, Exception):
            self.errors += 1
