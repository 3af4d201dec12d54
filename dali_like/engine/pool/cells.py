"""What workers leave in shared memory besides batches, as the main process reads it.

In its cell a worker names the task that it has taken last and the sample that it is on; there it counts what it has
replaced and skipped. In its message area it says why it could not start, and `faulthandler` writes its Python stack there,
when it is asked for it and when it crashes. All of that stays when the worker dies.
"""

from __future__ import annotations

import signal
from typing import Literal

from dali_like.engine.memory.protocol import (
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
from dali_like.engine.memory.space import SharedSpace
from dali_like.engine.worker.exceptions import read_message

_LITTLE: Literal["little"] = "little"

#: How `faulthandler` begins when the process crashes.
_CRASH = "Fatal Python error"
_CRASH_SIGNALS = (signal.SIGSEGV, signal.SIGFPE, signal.SIGABRT, signal.SIGBUS, signal.SIGILL)


def pid_in_cell(space: SharedSpace, worker: int) -> int:
    """The process id of a worker that has come to where it takes tasks, or its thread's; 0 if none has."""
    return _word(space, worker, CELL_PID)


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
        return pid_in_cell(self._space, worker) != 0

    def start_error_of(self, worker: int) -> bytes:
        """What it has left that could not start; empty for one that ended otherwise."""
        start = message_offset(worker, self._num_workers)
        return read_message(self._space, start, MESSAGE_BYTES - WORD_BYTES)

    def stack_of(self, worker: int) -> str:
        """The Python stack that it has shown last; "" if it has not."""
        return _trim(self._text(worker).decode(errors="replace"))

    def crash_of(self, worker: int, exitcode: int) -> str:
        """With which stack it has crashed; "" if it has ended otherwise, or if the program has its own `faulthandler`."""
        if -exitcode not in _CRASH_SIGNALS:
            return ""  # what there may be is of a process that it has forked
        _, begin, stack = self.stack_of(worker).rpartition(_CRASH)
        return begin + stack

    def forget_stack(self, worker: int) -> bool:
        """Make room for another stack, which its process writes behind the one before; whether there is room left."""
        if self._end_of_text(worker) > MESSAGE_BYTES // 2:
            return False
        if self.has_started(worker):  # else there may be what it has left that could not start
            self._space.discard(message_offset(worker, self._num_workers), MESSAGE_BYTES)
        return True

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

    def _text(self, worker: int) -> bytes:
        """What lies in its message area behind the length of its last words."""
        start = message_offset(worker, self._num_workers)
        return self._space.map[start + WORD_BYTES : start + MESSAGE_BYTES].strip(b"\0")

    def _end_of_text(self, worker: int) -> int:
        start = message_offset(worker, self._num_workers)
        return len(self._space.map[start : start + MESSAGE_BYTES].rstrip(b"\0"))

    def _word(self, worker: int, place: int) -> int:
        return _word(self._space, worker, place)


def _word(space: SharedSpace, worker: int, place: int) -> int:
    begin = cell_offset(worker) + place
    return int.from_bytes(space.map[begin : begin + WORD_BYTES], _LITTLE)


def _trim(stack: str) -> str:
    """Leave out the frames below the worker's loop, which are those of the process that it was forked from; and modules."""
    kept, below = [], False
    for line in stack.splitlines():
        below = below and line.startswith("  File")
        if not below and line and not line.startswith("Extension modules"):
            kept.append(line)
        below = below or line.endswith("in run_worker")
    return "\n".join(kept)
