"""The tasks that actors of Ray are to do, as the dispatcher takes them: from the pool's pipes, or back from lost actors."""

from __future__ import annotations

import os
import select
from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dali_like.engine.memory.batch_key import ANY_WORKER
from dali_like.engine.memory.descriptors import Descriptor
from dali_like.engine.memory.protocol import NO_TICKET, TASK

#: So many are taken at a time.
_MOST_RECORDS = 256


class RayTask(NamedTuple):
    """A task that has been taken.

    Attributes:
        ticket, page, task: its record.
        worker: who must do it, or ANY_WORKER.
    """

    ticket: int
    page: int
    task: int
    worker: int


class RayTaskQueue:
    """What is to be done.

    Args:
        pipes: the workers' ends: that of all, and those of each, if there are such.

    Attributes:
        posted: those that any worker can do, as far as `take_posted` has found them.
    """

    def __init__(self, pipes: Sequence[Descriptor]) -> None:
        self.posted: deque[RayTask] = deque()
        self._shared, self._own = pipes[0], pipes[1:]
        for pipe in pipes:
            os.set_blocking(pipe.fileno(), False)
        self._returned: deque[RayTask] = deque()

    @property
    def has_waiting(self) -> bool:
        """Whether there are some that have been taken from the pipes, and that nobody has."""
        return bool(self._returned or self.posted)

    def any_waits(self, last_ticket: int) -> bool:
        """Whether a task waits, and has been taken from the pipes, of a batch up to that with this ticket."""
        return any(NO_TICKET < order.ticket <= last_ticket for orders in (self._returned, self.posted) for order in orders)

    def watch(self, poll: select.poll, workers: Iterable[int]) -> None:
        """Let a poll wait for tasks that any worker can do, and for those of some."""
        poll.register(self._shared, select.POLLIN)
        for worker in workers if self._own else ():
            poll.register(self._own[worker], select.POLLIN)

    def take_posted(self) -> None:
        """Take what has been posted for any worker."""
        self.posted.extend(_read(self._shared, ANY_WORKER, _MOST_RECORDS))

    def give_back(self, orders: Iterable[RayTask]) -> None:
        """They come first, in this order."""
        self._returned.extend(orders)

    def next_for(self, worker: int, is_bound: bool) -> RayTask | None:
        """The next that a worker can do.

        Args:
            worker: its number.
            is_bound: whether it has a task already that only it can do. Two would be out of order if it were lost.
        """
        for order in self._returned:
            if order.worker == ANY_WORKER or (order.worker == worker and not is_bound):
                self._returned.remove(order)
                return order
        own = _read(self._own[worker], worker, 1) if self._own and not is_bound else ()
        if own:
            return own[0]
        return self.posted.popleft() if self.posted else None


def _read(pipe: Descriptor, worker: int, most: int) -> list[RayTask]:
    """The next tasks in a pipe."""
    try:
        records = os.read(pipe.fileno(), TASK.size * most)
    except BlockingIOError:
        return []
    return [RayTask(ticket, page, task, worker) for ticket, page, task in TASK.iter_unpack(records)]
