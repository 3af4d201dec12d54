"""Measure a training loop: waiting and working time, at the cost of two clock readings per batch.

The loop waits during a call for a batch, and works from the end of one call to the start of the next. Time between epochs
counts as neither.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from time import monotonic_ns, process_time_ns
from typing import NamedTuple

from dali_like.common.foreign_errors import is_a
from dali_like.engine.worker.meters import BEGINS_NS, Recorder

#: Number of recent batches that are kept one by one.
NUM_RECENT = 256


class BatchTimes(NamedTuple):
    """Times of one batch.

    Attributes:
        wait_ns: waiting time for this batch.
        work_ns: working time since the previous batch; 0 for the first batch of an epoch.
        end_ns: time of delivery, as in `time.monotonic_ns`.
    """

    wait_ns: int
    work_ns: int
    end_ns: int


class LoopMeter:
    """Measures a loop. One thread at a time writes; any thread may read.

    Attributes:
        batches, errors, epochs: number of calls that returned a batch, raised an error, or ended an epoch.
        begin_ns: start of the first call; 0 before.
        begin_cpu_ns: CPU time of this process at the end of that call.
        first_ns: duration of the first call, which no other number includes.
        wait, work: durations of all batches.
        left_ns: delivery time of the current batch; 0 between epochs.
        recent: `BatchTimes` of the last batches, as plain tuples.
        hooks: called before each batch with the number of batches so far.
    """

    def __init__(self) -> None:
        self.batches = self.errors = self.epochs = 0
        self.begin_ns = self.begin_cpu_ns = self.first_ns = 0
        self.wait = Recorder()
        self.work = Recorder()
        self.recent: deque[tuple[int, int, int]] = deque(maxlen=NUM_RECENT)
        self.hooks: list[Callable[[int], None]] = []
        self._called_ns = 0
        self.left_ns = 0

    def begin(self) -> None:
        """Note that the loop requests a batch."""
        for hook in self.hooks:
            hook(self.batches)
        self._called_ns = monotonic_ns()

    def end(self) -> None:
        """Note that the loop gets the batch."""
        now, called, left = monotonic_ns(), self._called_ns, self.left_ns
        self.left_ns = now
        self.batches += 1
        wait_ns = now - called
        if self.first_ns:
            wait = self.wait  # `Recorder.add`, without a call
            wait.counts[bisect_right(BEGINS_NS, wait_ns)] += 1
            wait.total_ns += wait_ns
        else:
            self.begin_ns, self.first_ns, self.begin_cpu_ns = called, wait_ns, process_time_ns()
        work_ns = 0
        if left:
            work_ns = called - left
            work = self.work
            work.counts[bisect_right(BEGINS_NS, work_ns)] += 1
            work.total_ns += work_ns
        self.recent.append((wait_ns, work_ns, now))

    def pause(self) -> None:
        """End an epoch: the time until the next request is not work."""
        self.left_ns = 0

    @property
    def cpu_s(self) -> float:
        """CPU time of this process since the first batch, in seconds; 0 before."""
        return (process_time_ns() - self.begin_cpu_ns) / 1e9 if self.begin_ns else 0.0

    def fail(self, error: BaseException) -> None:
        """Note that the call raised an error, or ended the epoch."""
        self.pause()
        if is_a(error, StopIteration):
            self.epochs += 1
        elif is_a(error, Exception):
            self.errors += 1
