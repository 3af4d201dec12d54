"""The tasks that actors of Ray are to do, as the foreman takes them: from the pool's pipes, or back from lost actors."""

from __future__ import annotations

import os
import select
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from dali_like.workers.batch import ANY_WORKER
from dali_like.workers.descriptors import Descriptor
from dali_like.workers.protocol import TASK


class Order(NamedTuple):
    """A task that has been taken.

    Attributes:
        ticket, page, task: its record.
        worker: who must do it, or ANY_WORKER.
        is_returned: an actor that had it has been lost.
    """

    ticket: int
    page: int
    task: int
    worker: int
    is_returned: bool = False


class Orders:
    """What is to be done.

    Args:
        pipes: the workers' ends: that of all, and those of each, if there are such.
    """

    def __init__(self, pipes: Sequence[Descriptor]) -> None:
        self._shared, self._own = pipes[0], pipes[1:]
        for pipe in pipes:
            os.set_blocking(pipe.fileno(), False)
        self._returned: deque[Order] = deque()
        #: One that was read to see whether it is of the same batch as those before.
        self._ahead: deque[Order] = deque()

    @property
    def has_waiting(self) -> bool:
        """Whether there are some that have been taken from the pipes, and that nobody has."""
        return bool(self._returned or self._ahead)

    def watch(self, poll: select.poll, workers: Iterable[int]) -> None:
        """Let a poll wait for tasks that any worker can do, and for those of some."""
        poll.register(self._shared, select.POLLIN)
        for worker in workers if self._own else ():
            poll.register(self._own[worker], select.POLLIN)

    def give_back(self, orders: Iterable[Order]) -> None:
        """They come first, in this order."""
        self._returned.extend(order._replace(is_returned=True) for order in orders)

    def next_for(self, worker: int, is_bound: bool) -> Order | None:
        """The next that a worker can do.

        Args:
            worker: its number.
            is_bound: whether it has a task already that only it can do. Two would be out of order if it were lost.
        """
        for order in self._returned:
            if order.worker == ANY_WORKER or (order.worker == worker and not is_bound):
                self._returned.remove(order)
                return order
        own = _read(self._own[worker], worker) if self._own and not is_bound else None
        return own or self._next_of_all()

    def more_like(self, order: Order, most: int) -> Iterator[Order]:
        """Further ones of the same batch that any worker can do, and no actor has been lost with; so many at most."""
        if order.worker != ANY_WORKER or order.is_returned:
            return
        for _ in range(most):
            following = self._next_of_all()
            if following is None:
                return
            if following.ticket != order.ticket:
                self._ahead.append(following)
                return
            yield following

    def _next_of_all(self) -> Order | None:
        return self._ahead.popleft() if self._ahead else _read(self._shared, ANY_WORKER)


def _read(pipe: Descriptor, worker: int) -> Order | None:
    """The next task in a pipe, if there is one."""
    try:
        record = os.read(pipe.fileno(), TASK.size)
    except BlockingIOError:
        return None
    if not record:  # the pool is gone
        return None
    ticket, page, task = TASK.unpack(record)
    return Order(ticket, page, task, worker)
