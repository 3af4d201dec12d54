"""Make the worker pool for a start method: the one place that chooses a backend."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from dali_like.engine.memory.slot_layout import OutputSchema
from dali_like.engine.memory.space import SharedSpace
from dali_like.engine.pool.pool import WorkerPool
from dali_like.engine.pool.tuner import Tuner
from dali_like.engine.pool.workers import WorkerOptions
from dali_like.engine.worker.source import Source

#: A Ray actor call costs a millisecond of CPU time on both sides, a task of a process some microseconds.
_TASKS_PER_ACTOR = 1


def make_pool(
    sources: Sequence[tuple[Source, Sequence[OutputSchema]]],
    capacity: int,
    space: SharedSpace,
    options: WorkerOptions,
    notice: bytes = b"",
    tuner: Tuner | None = None,
) -> WorkerPool:
    """Start a pool whose workers are those of ``options.start_method``. The arguments are those of `WorkerPool`.

    Raises:
        PicklingError: a source cannot be pickled.
        OutOfMemoryError: there is no address space for the slots.
        MissingExtraError, ArgumentError, WorkerStartError: Ray is not installed, or its cluster has no room.
    """
    if options.start_method == "ray":
        return _make_ray_pool(sources, capacity, space, options, notice, tuner)
    if options.start_method == "thread":
        from dali_like.engine.backends.threads import ThreadWorkers  # noqa: PLC0415

        return WorkerPool(sources, capacity, space, options, ThreadWorkers, notice, tuner)
    from dali_like.engine.backends.processes import ProcessWorkers  # noqa: PLC0415

    return WorkerPool(sources, capacity, space, options, ProcessWorkers, notice, tuner)


def _make_ray_pool(
    sources: Sequence[tuple[Source, Sequence[OutputSchema]]],
    capacity: int,
    space: SharedSpace,
    options: WorkerOptions,
    notice: bytes,
    tuner: Tuner | None,
) -> WorkerPool:
    from dali_like.engine.backends.ray_cluster import Cluster  # noqa: PLC0415
    from dali_like.engine.backends.ray_workers import RayWorkers  # noqa: PLC0415

    cluster = Cluster(options.num_workers, options.resources)
    try:
        start = functools.partial(RayWorkers, cluster=cluster)
        return WorkerPool(sources, capacity, space, options, start, notice, tuner, _TASKS_PER_ACTOR)
    except BaseException:
        cluster.leave()
        raise
