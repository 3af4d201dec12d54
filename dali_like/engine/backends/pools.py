"""Make the worker pool for a start method: the one place that chooses a backend. Runs in the main process."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dali_like.engine.backends.main_import import refuse_while_importing
from dali_like.engine.memory.slot_layout import OutputSchema
from dali_like.engine.memory.space import SharedSpace
from dali_like.engine.memory.system_calls import check_platform
from dali_like.engine.pool.backend_traits import BACKENDS
from dali_like.engine.pool.pool import WorkerPool
from dali_like.engine.pool.workers import StartWorkers, WorkerOptions
from dali_like.engine.worker.source import Source

if TYPE_CHECKING:
    from dali_like.engine.pool.tuner import Tuner

if sys.platform == "linux":
    from dali_like.engine.backends.required_calls import (
        check_namespace,
        check_patches,
        check_process_calls,
        check_waiting_calls,
    )


def make_space(start_method: str | None, limit_bytes: int | None) -> SharedSpace:
    """Create the shared space for a pool, or with None for sources without workers. See `SharedSpace.create`.

    Raises:
        UnsupportedSystemError: the system cannot run such workers.
    """
    if start_method is None:
        return SharedSpace.create_in_common(limit_bytes)
    backend = BACKENDS[start_method]
    check_platform(start_method, needs_linux=backend.needs_linux)
    return SharedSpace.create(limit_bytes, for_processes=backend.has_processes)


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
    backend = options.backend
    if sys.platform == "linux":
        check_patches(has_threads=backend.are_threads)
        check_namespace()
        check_waiting_calls()
        if backend.has_processes:
            check_process_calls()
    module, _, name = backend.start.partition(":")
    start_workers: StartWorkers = getattr(importlib.import_module(module), name)
    return WorkerPool(
        sources, capacity, space, options, start_workers=start_workers, start_message=start_message, tuner=tuner
    )
