"""The pool whose workers are actors of Ray. It differs from that of processes in its crew alone."""

from __future__ import annotations

from collections.abc import Sequence

from dali_like.workers.geometry import OutputLayout
from dali_like.workers.memory import SharedSpace
from dali_like.workers.pool import ProcessPool
from dali_like.workers.ray_cluster import Cluster
from dali_like.workers.ray_crew import RayCrew
from dali_like.workers.samples import Source
from dali_like.workers.starting import WorkerOptions
from dali_like.workers.tuner import Tuner


class RayPool(ProcessPool):
    """Computes batches in actors of Ray; see `dali_like.workers.ray_crew`. The arguments are those of `ProcessPool`.

    Raises:
        MissingExtraError, ArgumentError, WorkerStartError: see `dali_like.workers.ray_cluster.Cluster`.
        PicklingError: a source cannot travel.
    """

    #: A call of an actor costs a millisecond of CPU time, here and there, where a task of a process costs some microseconds.
    _tasks_per_worker = 1

    def __init__(
        self,
        sources: Sequence[tuple[Source, Sequence[OutputLayout]]],
        capacity: int,
        space: SharedSpace,
        options: WorkerOptions,
        tuner: Tuner | None = None,
    ) -> None:
        self._cluster = Cluster(options.num_workers, options.resources)
        try:
            super().__init__(sources, capacity, space, options, tuner=tuner)
        except BaseException:
            self._cluster.leave()
            raise

    def _start_crew(self, sources: Sequence[Source]) -> RayCrew:
        tasks, done = self._work.pipes.worker_ends
        return RayCrew(sources, self._options, self._space, tasks, done, self._work.farewell, self._cluster)
