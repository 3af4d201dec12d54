"""Notices workers that stay on one sample for too long, and asks them where they are.

The main process looks at the workers' cells while it waits anyway; workers do nothing for it. A worker that shows the same
task and sample for longer than the time-out hangs, and so does one whose start takes longer. Its Python stack comes from
`faulthandler`, which the worker has set up on a real-time signal: it answers in C, whatever the worker is doing, unless the
process is stopped. The text goes to the worker's message area through a descriptor of the shared space that has a position
of its own.
"""

from __future__ import annotations

import time
from collections.abc import Hashable

from dali_like.engine.memory.limits import read_file
from dali_like.engine.memory.space import SharedSpace
from dali_like.engine.pool.cells import Cells
from dali_like.engine.pool.workers import Workers
from dali_like.engine.worker.worker import STACK_SIGNAL

#: How long a worker has to write its stack, and how long the text must have stayed the same to be taken as whole.
_STACK_S = 1.0
_STEADY_S = 0.03
#: How long a worker has at least to start, however short the time-out for samples: there may be much to import.
_LEAST_START_S = 10.0
#: Workers are looked at so often in the time that they have, and at least so often.
_LOOKS = 8
_LONGEST_INTERVAL_S = 10.0


class HangWatch:
    """Watches the workers of a workers.

    Args:
        timeout_s: how long a worker may stay in one state.
    """

    def __init__(self, workers: Workers, space: SharedSpace, num_workers: int, timeout_s: float) -> None:
        self._workers = workers
        self._cells = Cells(space, num_workers)
        self._timeout_s = timeout_s
        self._interval_s = min(timeout_s / _LOOKS, _LONGEST_INTERVAL_S)
        #: For each worker, what it was on when it was looked at last, and for how long it has been seen to be on that.
        self._seen: list[tuple[Hashable, float]] = [(None, 0.0)] * num_workers
        self._last_look_s = time.monotonic()
        self._step_s = 0.0

    @property
    def poll_ms(self) -> float:
        """How long to wait for news before looking at the workers again."""
        return self._interval_s * 1000

    def due(self) -> bool:
        """Whether it is time to look at the workers; if so, it is counted as a look."""
        now = time.monotonic()
        if now - self._last_look_s < self._interval_s:
            return False
        # Where nobody has looked for longer, the loop was busy elsewhere, or the whole program was stopped.
        self._step_s = min(now - self._last_look_s, 2 * self._interval_s)
        self._last_look_s = now
        return True

    def limit_s(self, *, starting: bool) -> float:
        """How long a worker may stay in one state."""
        return max(self._timeout_s, _LEAST_START_S) if starting else self._timeout_s

    def is_overdue(self, worker: int, state: Hashable, *, starting: bool) -> bool:
        """Take note of what a worker is on (None: nothing); whether it has been on it for too long."""
        before, for_s = self._seen[worker]
        for_s = for_s + self._step_s if state is not None and state == before else 0.0
        self._seen[worker] = (state, for_s)
        return for_s > self.limit_s(starting=starting)

    def forget(self, worker: int) -> None:
        """Another process is in the worker's place."""
        self._seen[worker] = (None, 0.0)

    def is_stopped(self, worker: int) -> bool:
        """Whether a signal has stopped the worker."""
        stat = read_file(f"/proc/{self._workers.pids[worker]}/stat")
        return stat.rpartition(") ")[2][:1] in ("T", "t")

    def stack_of(self, worker: int) -> str:
        """The Python stack of a worker, or why there is none."""
        if self.is_stopped(worker):
            return "the process is stopped, so that it cannot show its Python stack"
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
