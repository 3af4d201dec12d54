"""Which workers have ended, where a thread of the main process notes it, and not a process of its own."""

from __future__ import annotations

import contextlib
import os
import select
from collections import deque

from dali_like.workers.crew import End
from dali_like.workers.descriptors import Descriptor


class Ends:
    """Ends of workers, added in any thread and taken by the main one: for the methods of `Workers` that are named alike.

    Attributes:
        control: becomes readable when there is news.
    """

    def __init__(self) -> None:
        self.control = Descriptor(os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC))
        self._ends: deque[End] = deque()

    def add(self, end: End) -> None:
        """A worker has ended."""
        self._ends.append(end)
        os.eventfd_write(self.control.fileno(), 1)

    def read_news(self) -> None:
        """Take note that there has been news."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.control.fileno())

    def wait_for_news(self, timeout_s: float) -> None:
        """Wait until there is news."""
        poll = select.poll()
        poll.register(self.control, select.POLLIN)
        poll.poll(timeout_s * 1000)
        self.read_news()

    def take_end(self) -> End | None:
        """The next end that has not been taken, if there is one."""
        return self._ends.popleft() if self._ends else None
