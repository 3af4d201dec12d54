"""The pipes that records go through: what is in them, and those that only one worker reads."""

from __future__ import annotations

import fcntl
import os
import termios
from array import array
from collections.abc import Iterable

from dali_like.workers.descriptors import Descriptor
from dali_like.workers.protocol import TASK


def pipe_bytes(pipe: Descriptor) -> int:
    """How much a pipe takes."""
    return fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ)


def waiting_bytes(pipe: Descriptor) -> int:
    """How much lies in a pipe; either end may be given."""
    waiting = array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, waiting)
    return waiting[0]


class OwnPipes:
    """For each worker a pipe with the tasks that it alone can do.

    The main process keeps both ends, so that it can take back what a worker that has died has not taken.

    Attributes:
        read_ends, write_ends: by worker.
    """

    def __init__(self, num_workers: int) -> None:
        pipes = [tuple(map(Descriptor, os.pipe())) for _ in range(num_workers)]
        self.read_ends = tuple(read for read, _ in pipes)
        self.write_ends = tuple(write for _, write in pipes)

    def take_back(self, worker: int) -> Iterable[tuple[int, int, int]]:
        """The tasks that lie in the pipe of a worker; none lies there afterwards. The worker must have ended."""
        if not self.read_ends:
            return ()
        waiting = waiting_bytes(self.read_ends[worker])
        return TASK.iter_unpack(os.read(self.read_ends[worker].fileno(), waiting)) if waiting else ()

    def close(self) -> None:
        for end in (*self.read_ends, *self.write_ends):
            end.close()
