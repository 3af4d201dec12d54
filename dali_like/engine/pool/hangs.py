"""Detect workers that hang, and get their Python stacks; notice that nothing is finished. Runs in the main process.

The main process looks at the workers' cells while it waits anyway; workers do nothing for it. A worker hangs if its cell
shows the same task and sample for longer than the timeout, or if its start takes longer. Its Python stack comes from
`faulthandler`, which the worker has registered for a real-time signal. That answers in C, in any code, unless the process is
stopped. It writes to the worker's message area, through a descriptor of the shared space with a position of its own.
"""

from __future__ import annotations

import time
from collections.abc import Hashable

from dali_like.engine.memory.limits import read_file
from dali_like.engine.memory.space import SharedSpace
from dali_like.engine.pool.cells import Cells
from dali_like.engine.pool.workers import Workers
from dali_like.engine.worker.worker import STACK_SIGNAL

#: Timeout for a stack, and the time without changes after which the text is complete.
_STACK_S = 1.0
_STEADY_S = 0.03
#: Minimum timeout of a start, for any timeout of samples: there may be much to import.
LEAST_START_S = 10.0
#: Looks at the workers within the timeout, and the longest interval between two looks.
_LOOKS = 8
_LONGEST_INTERVAL_S = 10.0


#: After so long without a finished sample, while the program waits for a batch, a line in the log names the samples.
SILENCE_S = 60.0
#: Time between two looks for finished samples.
_SILENCE_INTERVAL_S = 1.0


class HangWatch:
    """Watches the progress of workers.

    Args:
        timeout_s: the longest time for one sample.
    """

    def __init__(self, workers: Workers, space: SharedSpace, num_workers: int, timeout_s: float) -> None:
        self._workers = workers
        self._cells = Cells(space, num_workers)
        self._timeout_s = timeout_s
        self._interval_s = min(timeout_s / _LOOKS, _LONGEST_INTERVAL_S)
        #: For each worker, its activity at the last look, and the time since it was first seen.
        self._seen: list[tuple[Hashable, float]] = [(None, 0.0)] * num_workers
        self._last_look_s = time.monotonic()
        self._step_s = 0.0

    @property
    def poll_ms(self) -> float:
        """The time between two looks."""
        return self._interval_s * 1000

    def due(self) -> bool:
        """Return whether to look at the workers now. If so, this counts as a look."""
        now = time.monotonic()
        if now - self._last_look_s < self._interval_s:
            return False
        # After a longer pause, the loop was busy elsewhere, or the whole program was stopped.
        self._step_s = min(now - self._last_look_s, 2 * self._interval_s)
        self._last_look_s = now
        return True

    def limit_s(self, *, starting: bool) -> float:
        """Return the timeout of a start, or of a sample."""
        return max(self._timeout_s, LEAST_START_S) if starting else self._timeout_s

    def is_overdue(self, worker: int, activity: Hashable, *, starting: bool) -> bool:
        """Record the activity of a worker (None: idle). Return whether it has lasted longer than the timeout."""
        before, for_s = self._seen[worker]
        for_s = for_s + self._step_s if activity is not None and activity == before else 0.0
        self._seen[worker] = (activity, for_s)
        return for_s > self.limit_s(starting=starting)

    def forget(self, worker: int) -> None:
        """Forget the activity of a worker that is being replaced."""
        self._seen[worker] = (None, 0.0)

    def is_stopped(self, worker: int) -> bool:
        """Return whether a signal has stopped the process of a worker."""
        stat = read_file(f"/proc/{self._workers.pids[worker]}/stat")
        return stat.rpartition(") ")[2][:1] in ("T", "t")

    def stack_of(self, worker: int) -> str:
        """Return the Python stack of a worker, or the reason why it is missing."""
        if self.is_stopped(worker):
            return "the process is stopped by a signal, so it cannot show its Python stack"
        if not self._cells.forget_stack(worker):
            return "the process has shown its Python stack too often to show it again"
        self._workers.signal(worker, STACK_SIGNAL)
        deadline = time.monotonic() + _STACK_S
        text, steady_since = "", 0.0
        while (now := time.monotonic()) < deadline:
            before, text = text, self._cells.stack_of(worker)
            if text != before or not text:
                steady_since = now
            elif now - steady_since > _STEADY_S:
                break
            time.sleep(_STEADY_S / 3)
        return text or "the process has not shown its Python stack"


class SilenceWatch:
    """Notices, once, that the program waits for a batch and no sample is finished for `SILENCE_S`. There is no timeout.

    Attributes:
        silent_s: the waiting time since the last sign of progress.
    """

    def __init__(self) -> None:
        self._progress: Hashable = None
        self.silent_s = 0.0
        self._last_look_s = 0.0
        self._has_noticed = False

    def due(self) -> bool:
        """Return whether to look at the workers now."""
        return not self._has_noticed and time.monotonic() - self._last_look_s >= _SILENCE_INTERVAL_S

    def lasts_too_long(self, progress: Hashable) -> bool:
        """Record the state of all work, which changes with each sample. Return whether it has not changed for too long."""
        now = time.monotonic()
        # The program may have been elsewhere since the last look, so only as much counts as between two looks.
        step_s = min(now - self._last_look_s, 2 * _SILENCE_INTERVAL_S)
        self.silent_s = self.silent_s + step_s if progress == self._progress else 0.0
        self._progress, self._last_look_s = progress, now
        self._has_noticed = self.silent_s >= SILENCE_S
        return self._has_noticed
