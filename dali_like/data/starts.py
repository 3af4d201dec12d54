"""Waiting for the starts of a loader's workers, where ``worker_init_fn`` may raise in any of them.

PyTorch's workers make one batch each in turn, so that nobody gets the batch of one that cannot start. Here whoever is free
makes a batch, and in a short epoch the first to start may make all. So with each batch the start of one worker more is
waited for.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

from dali_like.common.interrupts import POLL_INTERVAL_S
from dali_like.engine.memory.batch_key import BatchKey
from dali_like.engine.pool.batch import Batch

if TYPE_CHECKING:
    from dali_like.engine.pool.pool import WorkerPool

#: A batch that nobody makes: who waits for it waits for news.
_NEVER = Batch(BatchKey(0, 0, 0, 0, 1))


class Starts:
    """The workers of a pool whose start nobody has waited for. Used by who may use the pool."""

    def __init__(self) -> None:
        self._unseen: deque[int] = deque()

    def expect(self, num_workers: int) -> None:
        """So many workers have been told to start."""
        self._unseen = deque(range(num_workers))

    def see_one(self, pool: WorkerPool, deadline_s: float) -> bool:
        """Wait for the start of another one, unless all have been seen; whether that has been in time.

        Raises:
            WorkerStartError: a worker cannot start.
        """
        patience_s = 0.001
        while self._unseen and not pool.pid_of_each[self._unseen[0]]:
            if (now_s := time.monotonic()) >= deadline_s:
                return False
            pool.wait_for((_NEVER,), min(deadline_s, now_s + patience_s))  # a start is no news, a failure is
            patience_s = min(2 * patience_s, POLL_INTERVAL_S)
        if self._unseen:
            self._unseen.popleft()
        return True
