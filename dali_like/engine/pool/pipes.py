"""The pipes for records, in the main process: tasks to the workers, and reports from them.

No write blocks: there are never more open tasks than each of the pipes has room for.

Workers take tasks from one shared pipe by `splice`. Where the system refuses that, each worker has a pipe of its own for all
its tasks, and reads it. A worker that dies then leaves no trace of the task that it has read, so the main process keeps
account: see `dali_like.engine.pool.assignments`.
"""

from __future__ import annotations

import contextlib
import os
import select
from array import array
from collections.abc import Iterable, Iterator

from dali_like.engine.memory.batch_key import ANY_WORKER
from dali_like.engine.memory.descriptors import Descriptor
from dali_like.engine.memory.protocol import DONE, NO_TICKET, TASK
from dali_like.engine.memory.system_calls import is_refusal

#: The fields of `dali_like.engine.memory.protocol.TASK`.
TaskRecord = tuple[int, int, int]


def pipe_bytes(pipe: Descriptor) -> int:
    """Return the capacity of a pipe; where the system does not tell, what every pipe has."""
    import fcntl  # absent on Windows

    try:
        return fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ)
    except (AttributeError, OSError) as error:
        if not is_refusal(error):
            raise
        return select.PIPE_BUF


def waiting_bytes(pipe: Descriptor | int) -> int:
    """Return the number of unread bytes in a pipe, given either end."""
    import fcntl  # absent on Windows
    import termios

    waiting = array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, waiting)
    return waiting[0]


class Pipes:
    """All pipes of a pool.

    Args:
        num_workers: the maximum number of workers.
        own: whether each worker also has a pipe of its own, for tasks that only it can compute.
        are_read: whether workers read the pipes, and do not splice. Then each worker has a pipe of its own.

    Attributes:
        done: the end to read reports from; it does not block.
        worker_ends: the workers' ends: of the task pipes, the shared one first, and of the pipe for reports.
        most_open_tasks: the maximum number of open tasks.
        is_closed: whether workers have been asked to stop, or the main process has closed its ends.
    """

    def __init__(self, num_workers: int, *, own: bool, are_read: bool = False) -> None:
        self.is_closed = False
        self._shared_read, self._tasks = map(Descriptor, os.pipe())
        self.done, done_write = map(Descriptor, os.pipe())
        os.set_blocking(self.done.fileno(), False)
        # The main process keeps both ends, so that it can take back the tasks that a dead worker has not taken.
        pipes = [tuple(map(Descriptor, os.pipe())) for _ in range(num_workers if own or are_read else 0)]
        self._own_reads = tuple(read for read, _ in pipes)
        self._own_writes = tuple(write for _, write in pipes)
        self.worker_ends = (self._shared_read, *self._own_reads), done_write
        if are_read:  # workers see this, see `Channels`
            for pipe in self.worker_ends[0]:
                os.set_blocking(pipe.fileno(), False)
        # The kernel makes pipes smaller for a user with many of them. Half of each is used.
        most = [pipe_bytes(self.done) // DONE.size]
        most += [pipe_bytes(pipe) // TASK.size for pipe in (self._tasks, *self._own_writes)]
        self.most_open_tasks = min(most) // 2

    def post(self, worker: int, records: bytes) -> None:
        """Post tasks for one worker, or for ANY_WORKER. Does nothing if all workers have ended."""
        pipe = self._tasks if worker == ANY_WORKER else self._own_writes[worker]
        try:
            os.write(pipe.number, records)
        except BrokenPipeError:
            pass  # the forkserver has ended, and the workers with it: `Workers.take_end` reports it
        except OSError:
            if not self.is_closed:
                raise  # else the program is exiting, and this is a daemon thread

    def has_waiting_tasks(self) -> bool:
        """Return whether there are tasks that no worker has taken."""
        return any(map(waiting_bytes, (self._tasks, *self._own_writes)))

    def num_waiting(self, worker: int) -> int:
        """Return the number of tasks in a worker's own pipe."""
        return waiting_bytes(self._own_reads[worker]) // TASK.size

    def take_first(self, worker: int) -> bytes | None:
        """Read the first task from the pipe of a worker; None if the pipe is empty. It must not block."""
        try:
            return os.read(self._own_reads[worker].fileno(), TASK.size)
        except BlockingIOError:
            return None

    def take_back(self, worker: int) -> Iterable[TaskRecord]:
        """Read the tasks from the pipe of one worker, which must have ended."""
        if not self._own_reads:
            return ()
        waiting = waiting_bytes(self._own_reads[worker])
        return TASK.iter_unpack(os.read(self._own_reads[worker].fileno(), waiting)) if waiting else ()

    def take_back_all(self) -> Iterator[TaskRecord]:
        """Read all tasks that no worker has taken. All workers must have ended."""
        for worker in range(len(self._own_reads)):
            yield from self.take_back(worker)
        if self._shared_read.fileno() >= 0:  # the workers are threads
            yield from self._read_all(self._shared_read.fileno())
            return
        # Of the shared pipe, the main process has the write end only. /proc opens its read end.
        fd = os.open(f"/proc/self/fd/{self._tasks.fileno()}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            yield from self._read_all(fd)
        finally:
            os.close(fd)

    def _read_all(self, shared: int) -> Iterator[TaskRecord]:
        while waiting := waiting_bytes(shared):
            yield from TASK.iter_unpack(os.read(shared, waiting))

    def retire(self, num_workers: int) -> None:
        """Tell `num_workers` workers to stop when they next take a task."""
        self.post(ANY_WORKER, TASK.pack(NO_TICKET, 0, 0) * num_workers)

    def send_stop(self, num_workers: int) -> None:
        """Tell all workers to stop, and close the shared pipe."""
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            # Closing alone might not end it: a forked process may have inherited the write end.
            os.set_blocking(self._tasks.fileno(), False)
            os.write(self._tasks.fileno(), TASK.pack(NO_TICKET, 0, 0) * num_workers)
        self.is_closed = True
        self._tasks.close()

    def close(self) -> None:
        """Close the main process's ends."""
        self.is_closed = True
        for end in (self._tasks, self.done, *self._own_reads, *self._own_writes):
            end.close()
