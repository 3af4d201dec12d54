"""The statistics of a pipeline, made of what the parts of its engine have measured."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

from dali_like.engine.pool.settings import AUTO, NOT_MEASURED, ChosenSettings
from dali_like.engine.worker.meters import first_made_ns, seconds_since
from dali_like.monitor.durations import Durations
from dali_like.monitor.gathering import loop_statistics, measured, num_cpus, source_statistics, worker_statistics
from dali_like.monitor.loops import LoopMeter
from dali_like.monitor.statistics import CopyStatistics, OperatorStatistics, Settings, SourceStatistics, Statistics

if TYPE_CHECKING:
    from dali_like.graph.nodes import SourceNode
    from dali_like.pipeline.runtime import Runtime


def statistics_of(runtime: Runtime, meter: LoopMeter) -> Statistics:
    """What has happened so far. Any thread may ask."""
    pool, executor, copier = runtime.process_pool, runtime.executor, runtime.copier
    pools = (pool, runtime.inline_pool, runtime.gpu_pool)
    readings = pool.readings if pool is not None else []
    alive_s = seconds_since(first_made_ns(readings))
    return Statistics(
        seconds=seconds_since(meter.begin_ns),
        settings=_settings(runtime),
        loop=loop_statistics(
            meter, pool.waited_ns if pool is not None else 0, executor.waited_ns if executor is not None else 0
        ),
        sources=_sources(runtime),
        workers=worker_statistics(readings, pool.pid_of_each, alive_s) if pool is not None else (),
        operators=OperatorStatistics(Durations.recorded(executor.operator_times) if executor is not None else Durations()),
        copies=CopyStatistics(
            copier.totals.batches,
            copier.totals.copied_bytes,
            copier.totals.host_ns / 1e9,
            copier.totals.waited_ns / 1e9,
        )
        if copier is not None
        else CopyStatistics(),
        worker_restarts=pool.num_restarts if pool is not None else 0,
        replaced_samples=sum(pool.num_replaced for pool in pools if pool is not None),
        held_bytes=runtime.space.used_bytes,
    )


def _settings(runtime: Runtime) -> Settings:
    given, pool, tuner = runtime.arguments, runtime.process_pool, runtime.tuner
    return Settings(
        "pipeline",
        given.batch_size or 0,
        pool.num_workers if pool is not None else 0,
        given.py_start_method if pool is not None else "",
        (given.num_threads or num_cpus()) if runtime.placement.stages else 0,
        max(map(runtime.ahead_of, runtime.graph.sources), default=0),
        num_cpus(),
        _not_chosen_yet(runtime) if tuner is None else tuner.settings,
    )


def _not_chosen_yet(runtime: Runtime) -> ChosenSettings | None:
    """What is to be chosen as soon as there are workers, if anything is."""
    given = runtime.arguments
    reasons = [NOT_MEASURED if value == AUTO else "" for value in (given.py_num_workers, given.prefetch_queue_depth)]
    return ChosenSettings(0, given.queue_sizes[0], *reasons) if any(reasons) else None


def _sources(runtime: Runtime) -> tuple[SourceStatistics, ...]:
    """Of each source that is not fed, in the order of the graph."""
    pool, inline, gpu = runtime.process_pool, runtime.inline_pool, runtime.gpu_pool
    parallel, serial, on_gpu = (itertools.count() for _ in range(3))

    def of(node: SourceNode) -> SourceStatistics | None:
        external = node.external
        if external.parallel and pool is not None:
            i = next(parallel)
            is_bound = external.kind is not None and external.kind.in_order and not external.sharded
            bare = replace(source_statistics(pool.assemblers[i], "workers", pool, i), is_bound=is_bound)
            return measured(bare, pool.readings[i])
        if external.kind is None:
            return None
        if gpu is not None and external.may_be_on_gpu:
            unit = "batch" if external.batch else "sample"
            bare = SourceStatistics(external.name, "main process", unit)
            return measured(bare, [gpu.readings[next(on_gpu)]])
        if inline is None:
            return None
        i = next(serial)
        return measured(source_statistics(inline.assemblers[i], "main process"), [inline.readings[i]])

    return tuple(found for node in runtime.graph.sources if (found := of(node)) is not None)
