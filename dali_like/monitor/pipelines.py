"""The statistics of a pipeline, made of what the parts of its engine have measured."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

from dali_like.monitor.durations import Durations
from dali_like.monitor.gathering import loop_statistics, measured, num_cpus, source_statistics, worker_statistics
from dali_like.monitor.loops import LoopMeter
from dali_like.monitor.statistics import CopyStatistics, OperatorStatistics, Settings, SourceStatistics, Statistics
from dali_like.workers.meters import first_made_ns, seconds_since
from dali_like.workers.settings import AUTO, NOT_MEASURED, ChosenSettings

if TYPE_CHECKING:
    from dali_like.engine import Engine
    from dali_like.graph.nodes import SourceNode


def statistics_of(engine: Engine, meter: LoopMeter) -> Statistics:
    """What has happened so far. Any thread may ask."""
    pool, executor, copier = engine.process_pool, engine.executor, engine.copier
    pools = (pool, engine.inline_pool, engine.gpu_pool)
    readings = pool.readings if pool is not None else []
    alive_s = seconds_since(first_made_ns(readings))
    return Statistics(
        seconds=seconds_since(meter.begin_ns),
        settings=_settings(engine),
        loop=loop_statistics(
            meter, pool.waited_ns if pool is not None else 0, executor.waited_ns if executor is not None else 0
        ),
        sources=_sources(engine),
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
        held_bytes=engine.space.used_bytes,
    )


def _settings(engine: Engine) -> Settings:
    given, pool, tuner = engine.arguments, engine.process_pool, engine.tuner
    return Settings(
        "pipeline",
        given.batch_size or 0,
        pool.num_workers if pool is not None else 0,
        given.py_start_method if pool is not None else "",
        (given.num_threads or num_cpus()) if engine.placement.stages else 0,
        max(map(engine.ahead_of, engine.graph.sources), default=0),
        num_cpus(),
        _not_chosen_yet(engine) if tuner is None else tuner.settings,
    )


def _not_chosen_yet(engine: Engine) -> ChosenSettings | None:
    """What is to be chosen as soon as there are workers, if anything is."""
    given = engine.arguments
    reasons = [NOT_MEASURED if value == AUTO else "" for value in (given.py_num_workers, given.prefetch_queue_depth)]
    return ChosenSettings(0, given.queue_sizes[0], *reasons) if any(reasons) else None


def _sources(engine: Engine) -> tuple[SourceStatistics, ...]:
    """Of each source that is not fed, in the order of the graph."""
    pool, inline, gpu = engine.process_pool, engine.inline_pool, engine.gpu_pool
    parallel, serial, on_gpu = (itertools.count() for _ in range(3))

    def of(node: SourceNode) -> SourceStatistics | None:
        external = node.external
        if external.parallel and pool is not None:
            i = next(parallel)
            is_bound = external.kind is not None and external.kind.in_order and not external.sharded
            bare = replace(source_statistics(pool.stages[i], "workers", pool, i), is_bound=is_bound)
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
        return measured(source_statistics(inline.stages[i], "main process"), [inline.readings[i]])

    return tuple(found for node in engine.graph.sources if (found := of(node)) is not None)
