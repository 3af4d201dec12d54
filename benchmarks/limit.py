"""The hardware limit of a workload: the same work without handing over batches.

As many processes as a loader has workers each run a loop with only the necessary work for a sample: make the sample's
description, call the callback, and copy the result into shared memory. There are no notifications and no waiting. Each
process has rows for one batch, so two processes use as much memory as two batches in flight.

Limitations: a loader with a deeper queue uses more memory, which may exceed the caches, and in which a worker often
overwrites data of another one. Without a spare core for the consumer, no loader comes near the limit. Each array is dropped
before the next is made, so the allocator reuses the same warm pages. A worker that keeps the arrays of a batch until its end
does not have this advantage.

Therefore the loop can also run like a ring: through several batches, each divided anew among the processes.
"""

from __future__ import annotations

import mmap
import multiprocessing
import time
from multiprocessing.synchronize import Barrier
from typing import NamedTuple

import numpy as np

from benchmarks.measurement import Measurement
from benchmarks.workloads import WORKERS, Array, Workload

__all__ = ["measure_limit"]


class SampleInfo(NamedTuple):
    """Information that DALI and dali_like pass to a callback about its sample."""

    idx_in_epoch: int
    idx_in_batch: int
    iteration: int
    epoch_idx: int


def measure_limit(workload: Workload, *, seconds: float, repeat: int, ring_batches: int = 0) -> Measurement:
    """Run the loop in `workloads.WORKERS` processes at once for about ``seconds`` and add up their rates.

    Args:
        ring_batches: number of batches that they fill together; 0: each process has its own batch.
    """
    context = multiprocessing.get_context("fork")
    together = context.Barrier(WORKERS)
    ring = _shared_rows(workload, ring_batches) if ring_batches else None
    results = np.frombuffer(mmap.mmap(-1, WORKERS * 24), np.float64).reshape(WORKERS, 3)
    processes = [
        context.Process(target=_fill, args=(workload, seconds, worker, together, results[worker], ring))
        for worker in range(WORKERS)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    if any(process.exitcode for process in processes):
        raise RuntimeError(f"a process of the limit ended with {[process.exitcode for process in processes]}")

    samples, wall_s, cpu_s = results.T
    samples_per_s = float((samples / wall_s).sum())
    return Measurement(
        workload=workload.name,
        system="limit",
        repeat=repeat,
        batch_size=workload.batch_size,
        batches=int(samples.sum()) // workload.batch_size,
        wall_s=float(wall_s.max()),
        samples_per_s=samples_per_s,
        bytes_per_s=samples_per_s * workload.mean_sample_bytes,
        all_cpu_us_per_batch=1e6 * float(cpu_s.sum()) / float(samples.sum()) * workload.batch_size,
    )


def _fill(
    workload: Workload, seconds: float, worker: int, together: Barrier, result: Array, ring: list[Array] | None
) -> None:
    """Fill rows for ``seconds``, after a fifth of that for warm-up; leave (samples, wall_s, cpu_s) in ``result``."""
    rows = _shared_rows(workload, 1) if ring is None else _turns(ring, workload.batch_size, worker)
    labels = np.frombuffer(mmap.mmap(-1, 4 * len(rows)), np.int32).reshape(len(rows), 1)
    together.wait()
    index = _fill_until(workload, rows, labels, worker, time.perf_counter() + seconds / 5)
    together.wait()
    began, cpu_began = time.perf_counter(), time.process_time()
    samples = _fill_until(workload, rows, labels, index, began + seconds) - index
    result[:] = samples, time.perf_counter() - began, time.process_time() - cpu_began


def _fill_until(workload: Workload, rows: list[Array], labels: Array, first: int, deadline: float) -> int:
    """Fill the rows repeatedly, a batch's share at a time, until ``deadline``; return the next index."""
    share = workload.batch_size // WORKERS
    make, fill, ragged = workload.make, workload.fill, workload.ragged
    index = first
    while time.perf_counter() < deadline:
        offset = index // share * share % len(rows)
        for position in range(offset, offset + share):
            info = SampleInfo(index, position, 0, 0)
            row = rows[position]
            if fill is not None:
                fill(info.idx_in_epoch, row)
                labels[position] = np.array([index], np.int32)
            else:
                array, label = make(info.idx_in_epoch)
                if ragged:
                    row = row[: array.size]
                row[...] = array
                labels[position] = label
            index += 1
    return index


def _turns(ring: list[Array], batch_size: int, worker: int) -> list[Array]:
    """Return the rows that a process fills, in order: a part of each batch, and another part in the next round."""
    share, num_batches = batch_size // WORKERS, len(ring) // batch_size
    parts = [
        batch * batch_size + (worker + batch + turn) % WORKERS * share
        for turn in range(WORKERS)
        for batch in range(num_batches)
    ]
    return [row for part in parts for row in ring[part : part + share]]


def _shared_rows(workload: Workload, batches: int) -> list[Array]:
    """Return rows for some batches in anonymous shared memory, with all pages touched."""
    row_bytes = -(-workload.max_sample_bytes // 64) * 64
    num_rows = batches * workload.batch_size
    memory = np.frombuffer(mmap.mmap(-1, num_rows * row_bytes), np.uint8)
    memory.fill(1)
    rows = memory.reshape(num_rows, row_bytes)[:, : workload.max_sample_bytes]
    return list(rows if workload.ragged else rows.reshape(num_rows, *workload.expected(0)[0].shape))
