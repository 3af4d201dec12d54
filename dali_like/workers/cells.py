"""What workers leave in shared memory besides batches, as the main process reads it.

In its cell a worker names the task that it has taken last and the sample that it is on; there it counts what it has
replaced and skipped. In its message area it says why it could not start. All of that stays when the worker dies.
"""

from __future__ import annotations

from typing import Literal

from dali_like.workers.memory import SharedSpace
from dali_like.workers.protocol import (
    CELL_BUSY,
    CELL_PID,
    CELL_REPLACED,
    CELL_SAMPLE,
    CELL_SKIPPED,
    MESSAGE_BYTES,
    TASK,
    WORD_BYTES,
    cell_offset,
    message_offset,
)
from dali_like.workers.transport import read_message

_LITTLE: Literal["little"] = "little"


class Cells:
    """The cells and message areas of a pool's workers."""

    def __init__(self, space: SharedSpace, num_workers: int) -> None:
        self._space = space
        self._num_workers = num_workers
        self._replaced_before = 0

    def task_of(self, worker: int) -> tuple[int, int]:
        """The ticket and the number of the task that a worker has taken last."""
        ticket, _, task = TASK.unpack_from(self._space.map, cell_offset(worker))
        return ticket, task

    def sample_of(self, worker: int) -> int:
        """The sample of the batch that it is on; of one that has only just taken its task, that of the one before."""
        return self._word(worker, CELL_SAMPLE)

    def num_skipped(self, worker: int) -> int:
        """How many items of iterables it has passed on its way to those that it was asked for."""
        return self._word(worker, CELL_SKIPPED)

    def has_started(self, worker: int) -> bool:
        """Whether it has come to where it takes tasks."""
        return self._word(worker, CELL_PID) != 0

    def last_words(self, worker: int) -> bytes:
        """What it has left that could not start; empty for one that ended otherwise."""
        start = message_offset(worker, self._num_workers)
        return read_message(self._space, start, MESSAGE_BYTES - WORD_BYTES)

    @property
    def num_replaced(self) -> int:
        """How many samples have been replaced by what a source's ``on_error`` says; those of dead workers included."""
        return self._replaced_before + sum(self._word(worker, CELL_REPLACED) for worker in range(self._num_workers))

    def clear(self, worker: int) -> None:
        """Another one may take the place of a dead worker, whose cell must not name a task that somebody else may have."""
        self._replaced_before += self._word(worker, CELL_REPLACED)
        cell = cell_offset(worker)
        self._space.map[cell : cell + CELL_BUSY] = bytes(CELL_BUSY)  # what it has measured stays
        self._space.discard(message_offset(worker, self._num_workers), MESSAGE_BYTES)

    def _word(self, worker: int, place: int) -> int:
        begin = cell_offset(worker) + place
        return int.from_bytes(self._space.map[begin : begin + WORD_BYTES], _LITTLE)
