"""Ray actors and their tasks as the dispatcher sees them. Runs in the dispatcher's thread of the main process."""

from __future__ import annotations

import os
import select
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from dali_like.engine.memory.batch_key import ANY_WORKER
from dali_like.engine.memory.descriptors import Descriptor
from dali_like.engine.memory.protocol import NO_TICKET, TASK

#: Records to read from a pipe at a time.
_MOST_RECORDS = 256
#: Calls that an actor has at a time.
_MOST_CALLS = 2


class RayTask(NamedTuple):
    """A task that has been read from a pipe.

    Attributes:
        ticket, page, task: its record.
        worker: the only worker that can compute it, or ANY_WORKER.
    """

    ticket: int
    page: int
    task: int
    worker: int


class RayTaskQueue:
    """The tasks that no actor has: in the pool's pipes, read from them, or returned by lost actors.

    Args:
        pipes: the workers' ends of the task pipes: the shared one, then that of each worker, if there are any.

    Attributes:
        posted: tasks for any worker that `take_posted` has read.
    """

    def __init__(self, pipes: Sequence[Descriptor]) -> None:
        self.posted: deque[RayTask] = deque()
        self._shared, self._own = pipes[0], pipes[1:]
        for pipe in pipes:
            os.set_blocking(pipe.fileno(), False)
        self._returned: deque[RayTask] = deque()

    @property
    def has_waiting(self) -> bool:
        """Whether tasks have been read from the pipes that no actor has."""
        return bool(self._returned or self.posted)

    def any_waits(self, last_ticket: int) -> bool:
        """Return whether a task has been read and waits whose ticket is at most `last_ticket`."""
        return any(NO_TICKET < task.ticket <= last_ticket for tasks in (self._returned, self.posted) for task in tasks)

    def watch(self, poll: select.poll, workers: Iterable[int]) -> None:
        """Register the shared pipe, and the pipes of some workers, with a poll object."""
        poll.register(self._shared, select.POLLIN)
        for worker in workers if self._own else ():
            poll.register(self._own[worker], select.POLLIN)

    def take_posted(self) -> None:
        """Read tasks from the shared pipe."""
        self.posted.extend(_read(self._shared, ANY_WORKER, _MOST_RECORDS))

    def give_back(self, tasks: Iterable[RayTask]) -> None:
        """Return tasks of a lost actor. They come before all posted ones, in this order."""
        self._returned.extend(tasks)

    def next_for(self, worker: int, is_bound: bool) -> RayTask | None:
        """Return the next task that a worker can compute, or None.

        Args:
            worker: its number.
            is_bound: whether it has a task that only it can compute. If it had two and were lost, they could get out of
                order.
        """
        for task in self._returned:
            if task.worker == ANY_WORKER or (task.worker == worker and not is_bound):
                self._returned.remove(task)
                return task
        own = _read(self._own[worker], worker, 1) if self._own and not is_bound else ()
        if own:
            return own[0]
        return self.posted.popleft() if self.posted else None


class Actor:
    """An actor.

    Attributes:
        handle: Ray's handle.
        index: the number of its worker.
        pid: its process id; 0 before its start.
        is_ready: whether it has started, and has not been asked to stop.
        is_stopping: whether it has been asked to stop.
        tasks: its tasks, in the order of the calls.
        begin_ns: the time when the first of `tasks` became the first.
        num_calls: calls without an answer.
        end: exit code and reason, as soon as it is known that it does no more work; else None.
    """

    def __init__(self, handle: Any, index: int) -> None:
        self.handle = handle
        self.index = index
        self.pid = 0
        self.is_ready = False
        self.is_stopping = False
        self.tasks: deque[RayTask] = deque()
        self.begin_ns = 0
        self.num_calls = 0
        self.end: tuple[int, str] | None = None

    @property
    def has_room(self) -> bool:
        """Whether it can get another call."""
        return self.is_ready and self.end is None and self.num_calls < _MOST_CALLS

    def is_watched(self, last_ticket: int) -> bool:
        """Return whether it has a task whose ticket is at most `last_ticket`."""
        return any(task.ticket <= last_ticket for task in self.tasks)

    @property
    def is_bound(self) -> bool:
        """Whether it has a task that only it can compute."""
        return any(task.worker != ANY_WORKER for task in self.tasks)


def _read(pipe: Descriptor, worker: int, most: int) -> list[RayTask]:
    """Read the next tasks from a pipe, without waiting."""
    try:
        records = os.read(pipe.fileno(), TASK.size * most)
    except BlockingIOError:
        return []
    return [RayTask(ticket, page, task, worker) for ticket, page, task in TASK.iter_unpack(records)]
