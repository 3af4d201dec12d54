"""Measure the callbacks of a pipeline alone: a bare loop in several processes, without any hand-over.

This is the upper limit of every hand-over with as many processes.
"""

from __future__ import annotations

import itertools
import os
import struct
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from dali_like.engine.memory.batch_key import Sizes
from dali_like.engine.worker.coroutines import EventLoop
from dali_like.engine.worker.source import Source, SourceType
from dali_like.engine.worker.thread_limits import limit_threads
from dali_like.errors import ArgumentError
from dali_like.graph.placement import place, source_with_operators
from dali_like.pipeline.pipeline import Pipeline
from dali_like.types import BatchInfo, CallContext, SampleInfo, current_call

_RESULT = struct.Struct("=qd")
#: Share of the time before counting starts.
_WARM_UP = 0.25


def bare_rate(pipe: Pipeline, num_processes: int, seconds: float) -> float:
    """Return the samples per second of the parallel sources with their fused operators.

    Each sample calls all sources. If one of them is an iterable, which has a single worker in a pipeline, a single process
    calls all of them. Without parallel sources, one process calls the others.

    Raises:
        ArgumentError: the pipeline has no source to call, or no process produced a sample.
    """
    sources, is_parallel, length = _sources(pipe)
    if not sources:
        raise ArgumentError("the pipeline has no source that can be called")
    bound = any(source.type is SourceType.STREAM for source in sources)
    workers = range(num_processes if is_parallel and not bound else 1)
    ends = [_start(partial(_count, sources, length, pipe, worker, len(workers), seconds)) for worker in workers]
    counted = [_finish(pid, read) for pid, read in ends]
    rate = sum(count / elapsed_s for count, elapsed_s in counted if elapsed_s)
    if not rate:
        raise ArgumentError("the callbacks produced no sample in a bare loop; see their errors above")
    return rate


def _sources(pipe: Pipeline) -> tuple[list[Source], bool, Sizes | None]:
    """Return the sources to call, whether they are parallel, and the length of an epoch if one of them has a length."""
    graph, arguments = pipe._make_graph(), pipe._arguments
    placement = place(graph, arguments, 0)
    nodes = [node for node in graph.sources if node.external.kind is not None]
    parallel = [node for node in nodes if node.external.parallel]
    sources = []
    for node in parallel or nodes:
        source = node.external.source(arguments.batch_size or 1, (0, graph.sources.index(node)))
        fusion = placement.fusions.get(node)
        sources.append(source if fusion is None else source_with_operators(source, node, fusion)[0])
    lengths = [node.external.sizes(arguments.batch_size or 1) for node in parallel or nodes]
    return sources, bool(parallel), min((length for length in lengths if length is not None), default=None)


def _start(work: Callable[[], tuple[int, float]]) -> tuple[int, int]:
    """Start work in a forked child. Return its process id and the pipe of its result."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.write(write, _RESULT.pack(*work()))
            status = 0
        finally:
            if status:
                traceback.print_exc()
            os._exit(status)
    os.close(write)
    return pid, read


def _finish(pid: int, read: int) -> tuple[int, float]:
    try:
        result = os.read(read, _RESULT.size)
    finally:
        os.close(read)
        os.waitpid(pid, 0)
    return _RESULT.unpack(result) if result else (0, 0.0)


def _count(
    sources: list[Source], length: Sizes | None, pipe: Pipeline, worker: int, num_workers: int, seconds: float
) -> tuple[int, float]:
    """Return the number of samples, and the seconds they took."""
    arguments = pipe._arguments
    limit_threads(arguments.py_worker_threads)
    loop = EventLoop()
    for source in sources:
        if source.worker_setup is not None:
            loop.finish(source.worker_setup())
    batch_size = arguments.batch_size or 1
    made = [_calls(source, batch_size, worker, num_workers, loop, length) for source in sources]
    calls = [_batchwise(counts, batch_size) for counts in made]
    warm_s = time.monotonic() + _WARM_UP * seconds
    count, begin_s, elapsed_s = 0, time.monotonic(), 0.0
    for _ in zip(*calls, strict=True):
        now_s = time.monotonic()
        if now_s < warm_s:
            begin_s = now_s
            continue
        count, elapsed_s = count + batch_size, now_s - begin_s
        if elapsed_s >= seconds:
            break
    return count, elapsed_s


def _batchwise(made: Iterable[int], batch_size: int) -> Iterator[int]:
    """Yield the batch size whenever a batch of samples is complete."""
    left = 0
    for count in made:
        left += count
        while left >= batch_size:
            left -= batch_size
            yield batch_size


def _calls(
    source: Source, batch_size: int, worker: int, num_workers: int, loop: EventLoop, length: Sizes | None = None
) -> Iterator[int]:
    """Call a source epoch after epoch, and yield the numbers of samples.

    A worker takes every ``num_workers``-th sample or batch. It ends if an epoch has nothing for this worker.
    """
    make = _of_batches if source.batch else _of_samples if source.concurrency is None else _of_coroutines
    current_call.set(CallContext(source.seeds))
    for epoch in itertools.count():
        any_made = 0
        for made in make(source, batch_size, _indices(source, batch_size, worker, num_workers, length), epoch, loop):
            any_made += made
            yield made
            current_call.set(CallContext(source.seeds))  # another source may have been called in between
        if not any_made:
            return


def _indices(source: Source, batch_size: int, worker: int, num_workers: int, length: Sizes | None) -> Iterator[int]:
    """Return the samples or batches of a worker in an epoch. Iterables end by themselves."""
    if length is None or source.type is SourceType.STREAM:
        return itertools.count(worker, num_workers)
    end = length.num_batches if source.batch else (length.num_batches - 1) * batch_size + length.last
    return iter(range(worker, end, num_workers))


def _callback(source: Source) -> Callable[[Any], Any]:
    """Return the callback; with ``on_error`` it ignores errors, as the pipeline would replace the sample."""
    if source.on_error == "raise":
        return source.callback

    def call(info: Any) -> Any:
        try:
            return source.callback(info)
        except StopIteration:
            raise
        except Exception:
            return None

    return call


def _of_batches(source: Source, batch_size: int, iterations: Iterator[int], epoch: int, loop: EventLoop) -> Iterator[int]:
    callback = _callback(source)
    for iteration in iterations:
        try:
            loop.finish(callback(BatchInfo(iteration, epoch)))
        except StopIteration:
            return
        yield batch_size


def _of_samples(source: Source, batch_size: int, indices: Iterator[int], epoch: int, loop: EventLoop) -> Iterator[int]:
    callback, made = _callback(source), batch_size
    try:
        while made == batch_size:
            made = 0
            for i in itertools.islice(indices, batch_size):
                callback(SampleInfo(i, i % batch_size, i // batch_size, epoch))
                made += 1
            yield made
    except StopIteration:
        yield made


def _of_coroutines(source: Source, batch_size: int, indices: Iterator[int], epoch: int, loop: EventLoop) -> Iterator[int]:
    async def make(i: int) -> None:
        await source.callback(SampleInfo(i, i % batch_size, i // batch_size, epoch))

    assert source.concurrency is not None
    while True:
        some = list(itertools.islice(indices, batch_size))
        if not some:
            return
        step = some[1] - some[0] if len(some) > 1 else 1
        chunk = range(some[0], some[-1] + 1, step)
        errors = loop.make_concurrently(make, chunk, source.concurrency, lambda error: True, lambda index: None)
        yield len(chunk) - len(errors)
        if errors:
            if not any(isinstance(error, StopIteration) for error in errors.values()):
                raise next(iter(errors.values()))
            return
