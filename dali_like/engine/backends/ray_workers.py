"""Workers as actors of Ray, on whatever nodes its cluster has.

To the pool they look like processes: tasks are read from its pipes, reports written to its pipe, and the cell of a worker
names what it is on. Who does that for them is a `dali_like.engine.backends.ray_dispatcher.RayDispatcher`.
"""

from __future__ import annotations

import atexit
import signal
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from dali_like.common.interrupts import deferred_interrupts
from dali_like.engine.backends.exit_events import Ends
from dali_like.engine.backends.ray_cluster import Cluster
from dali_like.engine.backends.ray_dispatcher import RayDispatcher
from dali_like.engine.backends.ray_worker import RaySource
from dali_like.engine.backends.source_bundle import pickle_sources
from dali_like.engine.memory.descriptors import Descriptor
from dali_like.engine.memory.space import SharedSpace
from dali_like.engine.pool.workers import End, WorkerOptions
from dali_like.engine.worker.source import PickledSource, Source


class RayWorkers:
    """The actors of a pool; see `dali_like.engine.pool.workers.Workers`.

    They are ended by `stop`, or when the workers is dropped, or at the end of the program.

    Args:
        tasks, done, farewell: as of `dali_like.engine.backends.processes.ProcessWorkers`.
        cluster: where they are; it is left when they have ended.

    Raises:
        PicklingError: a source cannot be pickled, or has what cannot leave this machine.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        options: WorkerOptions,
        space: SharedSpace,
        tasks: Sequence[Descriptor],
        done: Descriptor,
        farewell: Callable[[], None],
        cluster: Cluster,
    ) -> None:
        self.exitcodes: dict[int, int] = {}
        self._options = options
        ends = Ends()
        self.control, self.read_news, self.wait_for_news = ends.control, ends.read_news, ends.wait_for_news
        self.take_end = ends.take_end
        self._dispatcher = RayDispatcher(options, space, tasks, done, cluster, ends, farewell)
        self._dispatcher.bundle = self._ship(sources, None)
        self._finalizer = weakref.finalize(self, self._dispatcher.stop)
        for worker in range(options.num_workers):
            self.start(worker)
        self._dispatcher.thread.start()
        atexit.register(self._dispatcher.finish)  # before Ray's own, which was registered earlier

    @property
    def pids(self) -> list[int]:
        """The process id of each worker on its node; 0 before it has started."""
        return self._dispatcher.pids

    @property
    def has_waiting_tasks(self) -> bool:
        """Whether there are tasks that have been taken, and that nobody is on."""
        return self._dispatcher.has_waiting_tasks

    def start(self, worker: int) -> None:
        """Start a worker that is not running."""
        self._dispatcher.hire(worker)

    def signal(self, worker: int, number: int) -> None:
        """Kill a worker; other signals do not reach it."""
        if number == signal.SIGKILL:
            self._dispatcher.kill(worker)

    def renew(self, sources: Sequence[Source], pickled: Sequence[PickledSource] | None = None) -> None:
        """See `dali_like.engine.backends.processes.ProcessWorkers.renew`."""
        self._dispatcher.bundle = self._ship(sources, pickled)

    def describe_exit(self, end: End) -> str:
        """How a worker ended, in Ray's words."""
        return f"was lost ({self._dispatcher.reasons.get(end.worker, '')})"

    def stop(self) -> None:
        """End all workers, and wait until that has been seen to."""
        with deferred_interrupts():  # a finalizer is called once
            self._finalizer()
            self._dispatcher.finish()

    def _ship(self, sources: Sequence[Source], pickled: Sequence[PickledSource] | None) -> Any:
        """Put sources into the object store, once for all actors."""
        pickled = pickled or pickle_sources(sources, self._options.pickle_source)
        return self._dispatcher.cluster.ray.put([RaySource.of(*parts) for parts in zip(sources, pickled, strict=True)])
