"""The pipes that records go through, as the main process has them: tasks to the workers, and their reports.

Nobody blocks on one: there are never more tasks on their way than each of the pipes has room for.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import termios
from array import array
from collections.abc import Iterable, Iterator

from dali_like.engine.memory.batch_key import ANY_WORKER
from dali_like.engine.memory.descriptors import Descriptor
from dali_like.engine.memory.protocol import DONE, NO_TICKET, TASK

#: The fields of `dali_like.engine.memory.protocol.TASK`.
TaskRecord = tuple[int, int, int]


def pipe_bytes(pipe: Descriptor) -> int:
    """How much a pipe takes."""
    return fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ)


def waiting_bytes(pipe: Descriptor) -> int:
    """How much lies in a pipe; either end may be given."""
    waiting = array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, waiting)
    return waiting[0]


class Pipes:
    """All pipes of a pool.

    Args:
        num_workers: how many there may be.
        own: whether each of them has a pipe for the tasks that it alone can do, too.

    Attributes:
        done: where reports are read from; it does not block.
        worker_ends: what workers need: the ends where tasks come from, the shared one first, and that where reports go.
        most_open_tasks: how many tasks may be on their way.
    """

    def __init__(self, num_workers: int, *, own: bool) -> None:
        tasks_read, self._tasks = map(Descriptor, os.pipe())
        self.done, done_write = map(Descriptor, os.pipe())
        os.set_blocking(self.done.fileno(), False)
        # The main process keeps both ends, so that it can take back what a worker that has died has not taken.
        pipes = [tuple(map(Descriptor, os.pipe())) for _ in range(num_workers if own else 0)]
        self._own_reads = tuple(read for read, _ in pipes)
        self._own_writes = tuple(write for _, write in pipes)
        self.worker_ends = (tasks_read, *self._own_reads), done_write
        # Pipes are small, the more so once a user has many of them. Half of each is used.
        most = [pipe_bytes(self.done) // DONE.size]
        most += [pipe_bytes(pipe) // TASK.size for pipe in (self._tasks, *self._own_writes)]
        self.most_open_tasks = min(most) // 2

    @property
    def is_closed(self) -> bool:
        """Whether workers have been dismissed, or the main process has closed its ends."""
        return self._tasks.fileno() < 0

    def post(self, worker: int, records: bytes) -> None:
        """Let a worker have tasks, or whoever is free where it is ANY_WORKER; without effect where nobody is left."""
        pipe = self._tasks if worker == ANY_WORKER else self._own_writes[worker]
        try:
            os.write(pipe.fileno(), records)
        except BrokenPipeError:
            pass  # the forkserver is gone, and the workers with it: who waits will hear of it
        except OSError:
            if not self.is_closed:
                raise  # else the program ends, and this is a thread that it has not waited for

    def has_waiting_tasks(self) -> bool:
        """Whether there are tasks that no worker has taken yet."""
        return any(map(waiting_bytes, (self._tasks, *self._own_writes)))

    def take_back(self, worker: int) -> Iterable[TaskRecord]:
        """The tasks that a worker alone could have done, and has not taken. It must have ended."""
        if not self._own_reads:
            return ()
        waiting = waiting_bytes(self._own_reads[worker])
        return TASK.iter_unpack(os.read(self._own_reads[worker].fileno(), waiting)) if waiting else ()

    def take_back_all(self) -> Iterator[TaskRecord]:
        """The tasks that no worker has taken; all workers must have ended."""
        for worker in range(len(self._own_reads)):
            yield from self.take_back(worker)
        # The main process has only the end that is written to.
        fd = os.open(f"/proc/self/fd/{self._tasks.fileno()}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            while records := os.read(fd, TASK.size * 256):
                yield from TASK.iter_unpack(records)
        except BlockingIOError:
            pass  # that was all
        finally:
            os.close(fd)

    def retire(self, num_workers: int) -> None:
        """Let so many workers end when they next look for a task."""
        self.post(ANY_WORKER, TASK.pack(NO_TICKET, 0, 0) * num_workers)

    def send_stop(self, num_workers: int) -> None:
        """Let all workers end, and post nothing any more."""
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            # Closing would do, if nobody else could have inherited the pipe.
            os.set_blocking(self._tasks.fileno(), False)
            os.write(self._tasks.fileno(), TASK.pack(NO_TICKET, 0, 0) * num_workers)
        self._tasks.close()

    def close(self) -> None:
        """Close the main process's ends."""
        for end in (self._tasks, self.done, *self._own_reads, *self._own_writes):
            end.close()
