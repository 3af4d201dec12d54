"""Statistics as named scalars, for TensorBoard or Weights & Biases."""

from __future__ import annotations

from dali_like.monitor.measure.statistics import Statistics

__all__ = ["scalars"]


def scalars(statistics: Statistics, prefix: str = "data/") -> dict[str, float]:
    """Return the figures worth a curve: rates, waiting, callbacks, workers, ready batches, and errors.

    Pass the argument of a `Pipeline.on_statistics` callback; the curves then show the time between two calls.

    >>> from dali_like.monitor.measure.statistics import Statistics
    >>> list(scalars(Statistics()))[:3]
    ['data/batches_per_s', 'data/samples_per_s', 'data/wait_share']
    """
    loop = statistics.loop
    values = {
        "batches_per_s": loop.batches_per_s,
        "samples_per_s": statistics.samples_per_s,
        "wait_share": loop.wait_share,
        "wait_p99_s": loop.wait.p99_s,
        "work_median_s": loop.work.median_s,
        "worker_restarts": statistics.worker_restarts,
        "worker_oom_kills": statistics.oom_kills,
        "replaced_samples": statistics.replaced_samples,
        "errors": loop.errors,
        "held_bytes": statistics.held_bytes,
    }
    if statistics.workers:
        values["workers_busy_share"] = sum(worker.busy_share for worker in statistics.workers) / len(statistics.workers)
    for i, source in enumerate(statistics.sources):
        name = f"source_{i}" if len(statistics.sources) > 1 else "source"
        values[f"{name}/callback_median_s"] = source.callback.median_s
        values[f"{name}/callback_p99_s"] = source.callback.p99_s
        values[f"{name}/mean_ready"] = source.ring.mean_ready
    return {f"{prefix}{name}": float(value) for name, value in values.items()}
