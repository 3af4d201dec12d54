"""The statistics of a pipeline, gathered from the measurements of its pools, executor and copier."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dali_like.engine.pool.settings import AUTO, NOT_MEASURED, ChosenSettings
from dali_like.engine.worker.meters import first_made_ns, seconds_since
from dali_like.graph.execution.cache_operator import caches_of
from dali_like.monitor.measure.durations import Durations
from dali_like.monitor.measure.gathering import (
    cacheable_bytes,
    copy_statistics,
    load_average,
    loop_statistics,
    measured,
    num_cpus,
    source_statistics,
    worker_statistics,
)
from dali_like.monitor.measure.loops import LoopMeter
from dali_like.monitor.measure.process_memory import memory_of
from dali_like.monitor.measure.statistics import (
    OperatorStatistics,
    OperatorTime,
    Settings,
    SourceStatistics,
    Statistics,
)
from dali_like.pipeline.runtime import PoolKind
from dali_like.sources.travel.introspection import large_containers

if TYPE_CHECKING:
    from dali_like.graph.execution.executor import Executor
    from dali_like.graph.language.nodes import SourceNode
    from dali_like.pipeline.runtime import Runtime


def statistics_of(runtime: Runtime | None, meter: LoopMeter, batch_size: int, *, memory: bool) -> Statistics:
    """Return the statistics so far. Any thread may call it.

    Args:
        runtime: the runtime of the pipeline; None before the workers are started.
        meter: the meter of the loop.
        batch_size: the batch size of the pipeline.
        memory: whether to read the memory use of the processes.
    """
    if runtime is None:
        return Statistics(settings=Settings("pipeline", batch_size, num_cpus=num_cpus()))
    statistics = _measured(runtime, meter)
    if not memory:
        return statistics
    pool = None if runtime.arguments.backend.is_remote else runtime.process_pool  # its workers run on other nodes
    return replace(statistics, memory=memory_of(pool.worker_pids if pool is not None else ()))


def _measured(runtime: Runtime, meter: LoopMeter) -> Statistics:
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
        operators=OperatorStatistics() if executor is None else _operators(executor),
        copies=copy_statistics(None if copier is None else copier.totals),
        worker_restarts=pool.num_restarts if pool is not None else 0,
        oom_kills=pool.num_oom_kills if pool is not None else 0,
        replaced_samples=sum(pool.num_replaced for pool in pools if pool is not None)
        + (0 if executor is None else executor.computation.num_replaced),
        held_bytes=runtime.space.used_bytes,
        cpu_s=meter.cpu_s,
        load_average=load_average(),
    )


def _operators(executor: Executor) -> OperatorStatistics:
    times = tuple(OperatorTime(name, ns / 1e9) for name, ns in executor.computation.times_ns.copy().items())
    return OperatorStatistics(Durations.recorded(executor.operator_times), times)


def _settings(runtime: Runtime) -> Settings:
    given, pool, tuner = runtime.arguments, runtime.process_pool, runtime.tuner
    return Settings(
        kind="pipeline",
        batch_size=given.batch_size or 0,
        num_workers=pool.num_workers if pool is not None else 0,
        start_method=given.py_start_method if pool is not None else "",
        num_threads=(given.num_threads or num_cpus()) if runtime.placement.stages else 0,
        prefetch=max(map(runtime.ahead_of, runtime.graph.sources), default=0),
        num_cpus=num_cpus(),
        chosen=_not_chosen_yet(runtime) if tuner is None else tuner.settings,
    )


def _not_chosen_yet(runtime: Runtime) -> ChosenSettings | None:
    """Return the settings that a tuner will choose once there are workers; None if all are given."""
    given = runtime.arguments
    reasons = [NOT_MEASURED if value == AUTO else "" for value in (given.py_num_workers, given.prefetch_queue_depth)]
    return ChosenSettings(0, given.queue_sizes[0], *reasons) if any(reasons) else None


def _sources(runtime: Runtime) -> tuple[SourceStatistics, ...]:
    """Return the statistics of each source except inputs, in the order of the graph. Before the build, of workers only."""
    sources = []
    for node, (kind, index) in runtime.serving.items():
        external = node.external
        if kind is PoolKind.WORKERS and (pool := runtime.process_pool) is not None:
            is_bound = external.in_order and not external.sharded
            bare = source_statistics(pool.assemblers[index], "workers", pool, index)
            found = large_containers(external.callback, "source") if runtime.arguments.backend.copies_objects else ()
            known = replace(bare, is_bound=is_bound, large_containers=tuple(container.text for container in found))
            known = measured(known, pool.readings[index], pool.assemblers[index].source.operators)
            sources.append(_with_caches(known, runtime, node))
        elif kind is PoolKind.GPU and (gpu := runtime.gpu_pool) is not None:
            bare = SourceStatistics(external.name, "main process", "batch" if external.batch else "sample")
            sources.append(measured(bare, [gpu.readings[index]]))
        elif kind is PoolKind.MAIN and (inline := runtime.inline_pool) is not None:
            bare = source_statistics(inline.assemblers[index], "main process")
            sources.append(_with_caches(measured(bare, [inline.readings[index]]), runtime, node))
    return tuple(sources)


def _with_caches(statistics: SourceStatistics, runtime: Runtime, node: SourceNode) -> SourceStatistics:
    """Add the caches of a source and behind it, or the size of one."""
    external = node.external
    caches = tuple(cache.statistics() for cache in caches_of(runtime.graph, runtime.placement.operators, node))
    # Behind operators in threads, the outputs have another size than the samples of the source.
    may_recommend = external.is_cacheable and not caches and not runtime.placement.stages
    could = external.cacheable_length if may_recommend else None
    nbytes = cacheable_bytes(could, statistics.made_bytes, statistics.samples)
    return replace(statistics, caches=caches, cacheable_bytes=nbytes)
