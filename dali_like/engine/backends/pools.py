"""Make the worker pool for a start method: the one place that chooses a backend. Runs in the main process."""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence

from dali_like.engine.backends.main_import import refuse_while_importing
from dali_like.engine.memory.slot_layout import OutputSchema
from dali_like.engine.memory.space import SharedSpace
from dali_like.engine.memory.system_calls import check_platform
from dali_like.engine.pool.pool import WorkerPool
from dali_like.engine.pool.tuner import Tuner
from dali_like.engine.pool.workers import WorkerOptions
from dali_like.engine.worker.source import Source

if sys.platform == "linux":
    from dali_like.engine.backends.processes import ProcessWorkers
    from dali_like.engine.backends.required_calls import (
        check_namespace,
        check_patches,
        check_process_calls,
        check_waiting_calls,
    )

#: Tasks of a batch for each Ray actor. A call of an actor costs a millisecond of CPU time on both sides, a task of a process
#: some microseconds.
_TASKS_PER_ACTOR = 1

#: Start methods whose workers are processes that map the shared space.
_PROCESSES = ("fork", "spawn")


def make_space(start_method: str | None, limit_bytes: int | None) -> SharedSpace:
    """Create the shared space for a pool, or with None for sources without workers. See `SharedSpace.create`.

    Raises:
        UnsupportedSystemError: the system cannot run such workers.
    """
    if start_method is None:
        return SharedSpace.create_in_common(limit_bytes)
    check_platform(start_method)
    return SharedSpace.create(limit_bytes, for_processes=start_method in _PROCESSES)


def make_pool(
    sources: Sequence[tuple[Source, Sequence[OutputSchema]]],
    capacity: int,
    space: SharedSpace,
    options: WorkerOptions,
    *,
    start_message: bytes = b"",
    tuner: Tuner | None = None,
) -> WorkerPool:
    """Start a pool with the backend for ``options.start_method``. Takes the arguments of `WorkerPool`.

    Raises:
        PicklingError: a source cannot be pickled.
        OutOfMemoryError: there is no address space for the slots.
        UnsupportedSystemError: the system refuses a call that the workers need.
        PipelineStateError: this process imports the main module for workers.
        MissingExtraError, ArgumentError, WorkerStartError: Ray is not installed, or its cluster has no room.
    """
    refuse_while_importing()
    if sys.platform == "linux":
        check_patches(options.start_method)
        check_namespace()
        check_waiting_calls()
        if options.start_method in _PROCESSES:
            check_process_calls()
    make = functools.partial(WorkerPool, sources, capacity, space, options, start_message=start_message, tuner=tuner)
    if options.start_method == "ray":
        return _make_ray_pool(make, options)
    if options.start_method == "thread":
        from dali_like.engine.backends.threads import ThreadWorkers  # noqa: PLC0415

        return make(start_workers=ThreadWorkers)
    return make(start_workers=ProcessWorkers)


def _make_ray_pool(make: functools.partial[WorkerPool], options: WorkerOptions) -> WorkerPool:
    from dali_like.engine.backends.ray_cluster import Cluster  # noqa: PLC0415
    from dali_like.engine.backends.ray_workers import RayWorkers  # noqa: PLC0415

    cluster = Cluster(options.num_workers, options.resources)
    try:
        return make(start_workers=functools.partial(RayWorkers, cluster=cluster), tasks_per_worker=_TASKS_PER_ACTOR)
    except BaseException:
        cluster.leave()
        raise
