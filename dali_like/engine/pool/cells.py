"""Cells and message areas of workers, as the main process reads them. Both outlive the worker.

A worker writes its cell: its last task and current sample, and counts of replaced and skipped samples. Its message area has
the error of its start, or Python stacks: `faulthandler` writes one on request, and when the process crashes.
"""

from __future__ import annotations

import signal
from typing import Literal

from dali_like.engine.memory.protocol import (
    CELL_BUSY,
    CELL_PEAK,
    CELL_PID,
    CELL_REPLACED,
    CELL_SAMPLE,
    CELL_SHARE,
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

#: First words of `faulthandler` after a crash.
_CRASH = "Fatal Python error"
_CRASH_SIGNALS = [getattr(signal, name, None) for name in ("SIGSEGV", "SIGFPE", "SIGABRT", "SIGBUS", "SIGILL")]


def pid_in_cell(space: SharedSpace, worker: int) -> int:
    """Return the process id, or native thread id, of a worker that is ready for tasks; 0 before."""
    return _word(space, worker, CELL_PID)


def limit_worker(space: SharedSpace, worker: int, share: int) -> None:
    """Set the CPU time of a worker; see `dali_like.engine.memory.protocol.CELL_SHARE`."""
    word = cell_offset(worker) + CELL_SHARE
    space.map[word : word + WORD_BYTES] = share.to_bytes(WORD_BYTES, _LITTLE, signed=True)


class Cells:
    """The cells and message areas of a pool's workers."""

    def __init__(self, space: SharedSpace, num_workers: int) -> None:
        self._space = space
        self._num_workers = num_workers
        self._replaced_before = 0

    def task_of(self, worker: int) -> tuple[int, int]:
        """Return the ticket and the number of the last task that a worker has taken."""
        ticket, _, task = TASK.unpack_from(self._space.map, cell_offset(worker))
        return ticket, task

    def sample_of(self, worker: int) -> int:
        """Return the current sample of a worker. Race: right after it takes a task, this is a sample of the task before."""
        return self._word(worker, CELL_SAMPLE)

    def num_skipped(self, worker: int) -> int:
        """Return how many items of iterables a worker has skipped."""
        return self._word(worker, CELL_SKIPPED)

    def has_started(self, worker: int) -> bool:
        """Return whether a worker is ready for tasks."""
        return pid_in_cell(self._space, worker) != 0

    def start_error_of(self, worker: int) -> bytes:
        """Return the packed exception of a worker that could not start; empty otherwise."""
        start = message_offset(worker, self._num_workers)
        return read_message(self._space, start, MESSAGE_BYTES - WORD_BYTES)

    def stack_of(self, worker: int) -> str:
        """Return the last Python stack of a worker, or ""."""
        return _trim(self._text(worker).decode(errors="replace"))

    def crash_of(self, worker: int, exitcode: int | None) -> str:
        """Return the Python stack of a crash; "" after another end, or if the program uses `faulthandler` itself."""
        if exitcode is None or -exitcode not in _CRASH_SIGNALS:
            return ""  # any text is of a process that the worker has forked
        _, begin, stack = self.stack_of(worker).rpartition(_CRASH)
        return begin + stack

    def peak_bytes_of(self, worker: int) -> int:
        """Return the largest resident memory that a dead worker has had; 0 if it is unknown."""
        return self._word(worker, CELL_PEAK) << 10

    def forget_stack(self, worker: int) -> bool:
        """Make room for another stack. Return False if none is left: each stack goes behind the one before."""
        if self._end_of_text(worker) > MESSAGE_BYTES // 2:
            return False
        if self.has_started(worker):  # else the area may have the error of its start
            self._space.clear(message_offset(worker, self._num_workers), MESSAGE_BYTES)
        return True

    @property
    def num_replaced(self) -> int:
        """The number of samples that ``on_error`` of a source has replaced, in dead workers as well."""
        return self._replaced_before + sum(self._word(worker, CELL_REPLACED) for worker in range(self._num_workers))

    def clear(self, worker: int) -> None:
        """Clear the cell and the message area of a dead worker, for its replacement.

        The cell must not name a task that another worker may have.
        """
        self._replaced_before += self._word(worker, CELL_REPLACED)
        cell = cell_offset(worker)
        self._space.map[cell : cell + CELL_BUSY] = bytes(CELL_BUSY)  # its measurements stay
        self._space.map[cell + CELL_PEAK : cell + CELL_PEAK + WORD_BYTES] = bytes(WORD_BYTES)
        self._space.clear(message_offset(worker, self._num_workers), MESSAGE_BYTES)

    def _text(self, worker: int) -> bytes:
        """Return the text in the message area, without the first word, the length of the start error."""
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
    """Remove lists of modules, and the frames below the worker's loop, which belong to the forkserver."""
    kept, below = [], False
    for line in stack.splitlines():
        below = below and line.startswith("  File")
        if not below and line and not line.startswith("Extension modules"):
            kept.append(line)
        below = below or line.endswith("in run_worker")
    return "\n".join(kept)
