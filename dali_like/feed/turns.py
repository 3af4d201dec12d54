"""Whose turn it is, where each worker walks through an iterable of its own.

The order is that of PyTorch's DataLoader: one batch of each worker in turn, without workers whose iterable has ended. It
depends on the lengths of the iterables, and not on the speed of the workers.
"""

from __future__ import annotations

from collections.abc import Sequence


class Turns:
    """The next step of each worker, and the order of the workers.

    Args:
        steps: for each worker, how many steps have been taken.
        turn: the worker whose turn it is.
        ended: the workers whose iterables have ended. The list may grow.
    """

    def __init__(self, steps: Sequence[int], turn: int, ended: list[int]) -> None:
        self._steps = list(steps)
        self._turn = turn
        self._ended = ended

    def waiting(self) -> list[int]:
        """Return the workers that have not ended, in the order of their turns."""
        num_workers = len(self._steps)
        turns = (place % num_workers for place in range(self._turn, self._turn + num_workers))
        return [worker for worker in turns if worker not in self._ended]

    def steps(self, worker: int) -> int:
        """Return how many steps a worker has been given."""
        return self._steps[worker]

    def take(self, worker: int) -> int:
        """Give a worker its next step, and return the number of that step. Then it is the next worker's turn."""
        number = self._steps[worker]
        self._steps[worker] += 1
        self._turn = (worker + 1) % len(self._steps)
        return number
