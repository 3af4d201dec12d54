"""A backend for tests: each worker is a direct fork of the program, and a thread waits for its end.

It shows how little a backend needs: this module, and a row in `dali_like.engine.pool.backend_traits.BACKENDS`. Unlike the
backend for "fork", it copies the program as it is when a worker starts, and its workers survive the program.
"""

from __future__ import annotations

import os
import signal
import threading
import weakref
from collections.abc import Callable, Sequence

from dali_like.engine.memory.descriptors import Descriptor
from dali_like.engine.memory.space import SharedSpace
from dali_like.engine.pool.backend_traits import BackendTraits
from dali_like.engine.pool.workers import End, EndQueue, WorkerOptions
from dali_like.engine.worker.source import PickledSource, Source
from dali_like.engine.worker.worker import Channels, run_worker

TRAITS = BackendTraits(
    name="bare fork",
    start=f"{__name__}:BareForks",
    aliases=("bare",),
    has_processes=True,
    forks=True,
    starter="the program",
)


class BareForks:
    """Implements `dali_like.engine.pool.workers.Workers`."""

    def __init__(
        self,
        sources: Sequence[Source],
        options: WorkerOptions,
        space: SharedSpace,
        *,
        tasks: Sequence[Descriptor],
        done: Descriptor,
        send_stop: Callable[[], None],
    ) -> None:
        self.exitcodes: dict[int, int] = {}
        self.pids = [0] * options.num_workers
        self.has_waiting_tasks = False
        self._sources = sources
        self._channels = Channels(tasks[0], tuple(tasks[1:]), done, space, options.num_workers, options.measures)
        self._ends = EndQueue()
        self.control, self.read_news, self.wait_for_news = self._ends.control, self._ends.read_news, self._ends.wait_for_news
        self.take_end = self._ends.take_end
        self._waiting: dict[int, threading.Thread] = {}
        self._finalizer = weakref.finalize(self, _stop, send_stop, self._waiting)
        for worker in range(options.num_first):
            self.start(worker)

    def start(self, worker: int) -> None:
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                signal.signal(signal.SIGINT, signal.SIG_IGN)
                status = run_worker(worker, self._channels, lambda: self._sources)
            finally:
                os._exit(status)
        self.pids[worker] = pid
        self._waiting[pid] = threading.Thread(target=_wait, args=(worker, pid, self.exitcodes, self._ends))
        self._waiting[pid].start()

    def signal(self, worker: int, number: int) -> None:
        if self.pids[worker] not in self.exitcodes:
            os.kill(self.pids[worker], number)

    def renew(self, sources: Sequence[Source], pickled: Sequence[PickledSource] | None = None) -> None:
        self._sources = sources

    def describe_exit(self, end: End) -> str:
        return f"ended with exit code {end.exitcode}"

    def stop(self) -> None:
        self._finalizer()


def _wait(worker: int, pid: int, exitcodes: dict[int, int], ends: EndQueue) -> None:
    _, status = os.waitpid(pid, 0)
    exitcodes[pid] = os.waitstatus_to_exitcode(status)
    ends.add(End(worker, pid, exitcodes[pid]))


def _stop(send_stop: Callable[[], None], waiting: dict[int, threading.Thread]) -> None:
    send_stop()
    for thread in waiting.values():
        thread.join()
