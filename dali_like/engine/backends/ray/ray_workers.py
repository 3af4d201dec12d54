"""Worker backend of Ray actors, on any nodes of a cluster. Runs in the main process.

To the pool, actors look like processes: a `dali_like.engine.backends.ray.ray_dispatcher.RayDispatcher` reads tasks from the
pipes, writes reports, and names the task of each worker in its cell.
"""

from __future__ import annotations

import atexit
import signal
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from dali_like.common.interrupts import deferred_interrupts
from dali_like.engine.backends.ray.ray_cluster import Cluster
from dali_like.engine.backends.ray.ray_dispatcher import RayDispatcher
from dali_like.engine.backends.ray.ray_worker import RaySource
from dali_like.engine.backends.source_bundle import pickle_sources
from dali_like.engine.memory.descriptors import Descriptor
from dali_like.engine.memory.space import SharedSpace
from dali_like.engine.pool.workers import End, EndQueue, WorkerOptions
from dali_like.engine.worker.source import PickledSource, Source


def start_actors(sources: Sequence[Source], options: WorkerOptions, space: SharedSpace, **pipes: Any) -> RayWorkers:
    """Enter a cluster, and start the actors of a pool there: the `dali_like.engine.pool.workers.StartWorkers` of Ray.

    Raises:
        MissingExtraError, ArgumentError, WorkerStartError: Ray is not installed, or its cluster has no room.
        PicklingError: a source cannot be pickled, or holds something that cannot leave this machine.
    """
    cluster = Cluster(options.num_workers, options.resources)
    try:
        return RayWorkers(sources, options, space, cluster=cluster, **pipes)
    except BaseException:
        cluster.leave()
        raise


class RayWorkers:
    """The actors of a pool. Implements `dali_like.engine.pool.workers.Workers`.

    They end with `stop`, when this object is garbage, or at the exit of the program.

    Args:
        sources, options, space, tasks, done, send_stop: as for `dali_like.engine.pool.workers.StartWorkers`.
        cluster: the cluster for the actors. The backend leaves it when they have ended.

    Raises:
        PicklingError: a source cannot be pickled, or holds something that cannot leave this machine.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        options: WorkerOptions,
        space: SharedSpace,
        *,
        tasks: Sequence[Descriptor],
        done: Descriptor,
        send_stop: Callable[[], None],
        cluster: Cluster,
    ) -> None:
        self.exitcodes: dict[int, int] = {}
        self._options = options
        ends = EndQueue()
        self.control, self.read_news, self.wait_for_news = ends.control, ends.read_news, ends.wait_for_news
        self.take_end = ends.take_end
        self._dispatcher = RayDispatcher(
            options, space, tasks=tasks, done=done, cluster=cluster, ends=ends, send_stop=send_stop
        )
        self._dispatcher.bundle = self._put(sources, None)
        self._finalizer = weakref.finalize(self, self._dispatcher.stop)
        for worker in range(options.num_workers):
            self.start(worker)
        self._dispatcher.thread.start()
        atexit.register(self._dispatcher.finish)  # runs before the handler of Ray, which was registered earlier

    @property
    def pids(self) -> list[int]:
        """The process id of each worker on its node; 0 before its start."""
        return self._dispatcher.pids

    @property
    def has_waiting_tasks(self) -> bool:
        """Whether tasks have been taken from the pipes that no actor has begun."""
        return self._dispatcher.has_waiting_tasks

    def start(self, worker: int) -> None:
        """Start a worker that is not running."""
        self._dispatcher.start(worker)

    def signal(self, worker: int, number: int) -> None:
        """Kill a worker on SIGKILL. Ignore other signals, which cannot reach it."""
        if number == signal.SIGKILL:
            self._dispatcher.kill(worker)

    def renew(self, sources: Sequence[Source], pickled: Sequence[PickledSource] | None = None) -> None:
        """Replace the sources of actors that start from now on."""
        self._dispatcher.bundle = self._put(sources, pickled)

    def describe_exit(self, end: End) -> str:
        """Describe the end of a worker, with Ray's reason."""
        return f"was lost ({self._dispatcher.reasons.get(end.worker, '')})"

    def stop(self) -> None:
        """Stop all actors, and wait for the end of the dispatcher's thread."""
        with deferred_interrupts():  # the finalizer runs only once, so it must not be interrupted
            self._finalizer()
            self._dispatcher.finish()

    def _put(self, sources: Sequence[Source], pickled: Sequence[PickledSource] | None) -> Any:
        """Put the sources into Ray's object store, once for all actors, and return the reference."""
        self._dispatcher.cluster.check()
        pickled = pickled or pickle_sources(sources, self._options.pickle_source)
        return self._dispatcher.cluster.ray.put([RaySource.of(*parts) for parts in zip(sources, pickled, strict=True)])
