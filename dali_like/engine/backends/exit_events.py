"""Which workers have ended, where no forkserver says so: threads of the main process do, of threads and of actors."""

from __future__ import annotations

from collections import deque

from dali_like.engine.memory.descriptors import Alarm
from dali_like.engine.pool.workers import End


class Ends:
    """Ends of workers, added in any thread and taken by the main one: for the methods of `Workers` that are named alike.

    Attributes:
        control: becomes readable when there is news.
    """

    def __init__(self) -> None:
        self.control = Alarm()
        self._ends: deque[End] = deque()

    def add(self, end: End) -> None:
        """A worker has ended."""
        self._ends.append(end)
        self.control.ring()

    def read_news(self) -> None:
        """Take note that there has been news."""
        self.control.clear()

    def wait_for_news(self, timeout_s: float) -> None:
        """Wait until there is news."""
        self.control.wait(timeout_s)
        self.read_news()

    def take_end(self) -> End | None:
        """The next end that has not been taken, if there is one."""
        return self._ends.popleft() if self._ends else None
