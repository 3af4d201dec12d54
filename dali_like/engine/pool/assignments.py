"""Account of the tasks in the pipes of single workers, where workers read tasks instead of splicing them.

Runs in the main process. A worker that reads a task may die before it writes the task into its cell. But each worker reads
its pipe in order. So of the open tasks that a worker was given, all but those still in its pipe have been taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

#: Ticket of a batch, and number of a task in the batch.
TaskNumber = tuple[int, int]


class Assignments:
    """The open tasks of each worker, in the order in which they were posted.

    Args:
        num_workers: the maximum number of workers.
        num_waiting: returns the number of tasks in the pipe of a worker.
        is_open: returns whether a task has not been reported.
        takes_several: whether workers take further tasks while they read.

    Attributes:
        running: the workers that take tasks.
    """

    def __init__(
        self,
        num_workers: int,
        num_waiting: Callable[[int], int],
        is_open: Callable[[int, int], bool],
        *,
        takes_several: bool = False,
    ) -> None:
        self.running: set[int] = set()
        self._given: list[list[TaskNumber]] = [[] for _ in range(num_workers)]
        self._num_waiting = num_waiting
        self._is_open = is_open
        self._takes_several = takes_several

    def add(self, worker: int, ticket: int, task: int) -> None:
        """Note that a task is about to be written into the pipe of a worker."""
        self._given[worker].append((ticket, task))

    def forget(self, worker: int) -> None:
        """Note that a worker has ended, and that the tasks in its pipe have been read back."""
        self._given[worker].clear()

    def move(self, number: TaskNumber, donor: int, worker: int) -> None:
        """Note that a task has been read back from the pipe of one worker, and is about to be written into another's."""
        self._given[donor].remove(number)
        self._given[worker].append(number)

    def idle(self) -> list[int]:
        """Return the running workers without an open task."""
        return [worker for worker in sorted(self.running) if not self._num_open(worker)]

    def choose(self) -> int:
        """Return the running worker with the fewest open tasks; the first worker if none is running."""
        return min(self.running, key=lambda worker: (self._num_open(worker), worker), default=0)

    def taken_by(self, worker: int) -> Sequence[TaskNumber]:
        """Return the tasks that a worker has taken and not reported, in order.

        Race: a running worker may have reported some. If it takes one at a time, this is the last one.
        """
        taken = self._taken(worker)
        return taken if self._takes_several else taken[-1:]

    def _num_open(self, worker: int) -> int:
        self._taken(worker)
        return len(self._given[worker])

    def _taken(self, worker: int) -> list[TaskNumber]:
        """Return the tasks that a worker has taken, and forget those of them that have been reported."""
        given = self._given[worker]
        end = len(given) - self._num_waiting(worker)
        taken = [number for number in given[:end] if self._is_open(*number)]
        given[:end] = taken
        return taken
