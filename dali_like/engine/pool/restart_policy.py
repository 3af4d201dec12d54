"""How often is too often: what is counted before a worker is not replaced any more, or a sample is given up."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass

#: The time over which restarts of a worker are counted against its allowance.
_RESTART_PERIOD_S = 60.0
#: So many workers may die of the same sample before it runs alone, and in all.
_DEATHS_TO_SUSPECT = 2
_DEATHS_TO_GIVE_UP = 3
#: One that hangs is tried once more.
_HANGS_TO_GIVE_UP = 2


class RestartPolicy:
    """How often workers may be replaced.

    Args:
        most: how often each may be within a minute; None: always.
    """

    def __init__(self, most: int | None, num_workers: int) -> None:
        self._most = most
        self._recent: list[deque[float]] = [deque() for _ in range(num_workers)]

    @property
    def refusal(self) -> str:
        """What to say where a worker is not replaced."""
        return (
            f"it is not replaced: each worker may be {self._most} times a minute, see py_worker_restarts (worker_restarts "
            "of a DataLoader)"
        )

    def num_taken(self, worker: int) -> int:
        """How often a worker has been replaced that may count."""
        return len(self._recent[worker])

    def take(self, worker: int) -> bool:
        """Whether a worker may be replaced now; if so, that counts."""
        if self._most is None:
            return True
        recent = self._recent[worker]
        now = time.monotonic()
        while recent and recent[0] < now - _RESTART_PERIOD_S:
            recent.popleft()
        if len(recent) >= self._most:
            return False
        recent.append(now)
        return True


@dataclass
class FailureCount:
    """How many workers have come to their end on one sample.

    Attributes:
        deaths: how many have died.
        hangs: how many have hung, and were ended.
    """

    deaths: int = 0
    hangs: int = 0

    @property
    def is_suspicious(self) -> bool:
        """Whether the sample is to run alone, so that no other can be to blame."""
        return self.deaths >= _DEATHS_TO_SUSPECT

    @property
    def is_hopeless(self) -> bool:
        """Whether it is to be given up."""
        return self.hangs >= _HANGS_TO_GIVE_UP or self.deaths >= _DEATHS_TO_GIVE_UP
