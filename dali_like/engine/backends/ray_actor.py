"""One Ray actor as the dispatcher sees it: the tasks it has, and how it exited."""

from __future__ import annotations

from collections import deque
from typing import Any

from dali_like.engine.backends.ray_tasks import RayTask
from dali_like.engine.memory.batch_key import ANY_WORKER

#: The calls that an actor has at a time.
_MOST_CALLS = 2


class Actor:
    """An actor, by its handle and the number of its worker.

    Attributes:
        pid: of its process; 0 before it has started.
        is_ready: it has started, and has not been told to end.
        is_ending: it has been told to.
        orders: the tasks that it has, in that order.
        begin_ns: when the first of them became the first.
        num_calls: how many calls of it have not been answered.
        end: how it has ended, and why, as soon as it is known that it will not do any more.
    """

    def __init__(self, handle: Any, index: int) -> None:
        self.handle = handle
        self.index = index
        self.pid = 0
        self.is_ready = False
        self.is_ending = False
        self.orders: deque[RayTask] = deque()
        self.begin_ns = 0
        self.num_calls = 0
        self.end: tuple[int, str] | None = None

    @property
    def has_room(self) -> bool:
        """Whether it can be given another call."""
        return self.is_ready and self.end is None and self.num_calls < _MOST_CALLS

    def is_watched(self, last_ticket: int) -> bool:
        """Whether it has a task of a batch up to that with this ticket."""
        return any(order.ticket <= last_ticket for order in self.orders)

    @property
    def is_bound(self) -> bool:
        """Whether it has a task already that only it can do."""
        return any(order.worker != ANY_WORKER for order in self.orders)
