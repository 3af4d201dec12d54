"""Statistics in the text format of Prometheus, for the node exporter's textfile collector or your own endpoint.

The format: https://prometheus.io/docs/instrumenting/exposition_formats/. Pass the result of `statistics`, which counts since
the start: Prometheus itself computes rates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dali_like.monitor.measure.durations import EDGES_S, Durations
from dali_like.monitor.measure.statistics import Statistics

__all__ = ["text"]

_PREFIX = "dali_like"
#: Durations have four bins per doubling; a bucket spans two doublings.
_BINS_A_BUCKET = 8

#: The values of one metric, each with its labels.
_Values = list[tuple[dict[str, object], float]]


def text(statistics: Statistics, labels: Mapping[str, str] | None = None) -> str:
    """Format the metrics of a pipeline or loader.

    Args:
        labels: labels of every metric, such as ``{"job": "train"}``.

    >>> from dali_like.monitor.measure.statistics import Statistics
    >>> print(text(Statistics(worker_restarts=2), {"job": "train"}).splitlines()[-1])
    dali_like_held_bytes{job="train"} 0
    """
    common = dict(labels or {})
    lines: list[str] = []
    for name, kind, purpose, values in _metrics(statistics):
        lines += [f"# HELP {_PREFIX}_{name} {purpose}", f"# TYPE {_PREFIX}_{name} {kind}"]
        lines += [f"{_PREFIX}_{name}{_labelled({**common, **own})} {value:.12g}" for own, value in values]
    callbacks = [(_source_labels(statistics, i), source.callback) for i, source in enumerate(statistics.sources)]
    histograms: list[tuple[str, str, list[tuple[dict[str, object], Durations]]]] = [
        ("wait_seconds", "Waiting time of the loop per batch.", [({}, statistics.loop.wait)]),
        ("work_seconds", "Working time of the loop per batch.", [({}, statistics.loop.work)]),
        ("callback_seconds", "Duration of callback calls.", callbacks),
    ]
    for name, purpose, series in histograms:
        lines += [f"# HELP {_PREFIX}_{name} {purpose}", f"# TYPE {_PREFIX}_{name} histogram"]
        for own, durations in series:
            lines += _histogram(f"{_PREFIX}_{name}", {**common, **own}, durations)
    # End with a gauge, so that the text does not end within a histogram.
    lines += [
        f"# HELP {_PREFIX}_held_bytes Memory of all slots.",
        f"# TYPE {_PREFIX}_held_bytes gauge",
        f"{_PREFIX}_held_bytes{_labelled(common)} {statistics.held_bytes}",
    ]
    return "\n".join(lines) + "\n"


def _metrics(now: Statistics) -> Iterator[tuple[str, str, str, _Values]]:
    """Yield name, kind, help text and values of the metrics that are single numbers."""
    loop = now.loop
    yield "batches_total", "counter", "Delivered batches.", [({}, loop.batches)]
    yield "epochs_total", "counter", "Finished epochs.", [({}, loop.epochs)]
    yield "errors_total", "counter", "Calls for a batch that raised an error.", [({}, loop.errors)]
    yield "worker_restarts_total", "counter", "Replaced workers.", [({}, now.worker_restarts)]
    yield "worker_oom_kills_total", "counter", "Workers killed by the kernel: out of memory.", [({}, now.oom_kills)]
    yield "replaced_samples_total", "counter", "Samples that on_error replaced or skipped.", [({}, now.replaced_samples)]
    yield "copied_bytes_total", "counter", "Bytes copied to the GPU.", [({}, now.copies.copied_bytes)]
    yield "workers", "gauge", "Worker processes.", [({}, now.settings.num_workers)]
    busy: _Values = [({"worker": worker.number}, worker.busy_s) for worker in now.workers]
    yield "worker_busy_seconds_total", "counter", "Working time of a worker.", busy
    sources = [(_source_labels(now, i), source) for i, source in enumerate(now.sources)]
    made: dict[str, _Values] = {
        "batches": [(own, source.batches) for own, source in sources],
        "samples": [(own, source.samples) for own, source in sources],
        "bytes": [(own, source.made_bytes) for own, source in sources],
    }
    for what, values in made.items():
        yield f"made_{what}_total", "counter", f"Computed {what} of a source.", values
    ready: _Values = [(own, source.ring.ready) for own, source in sources]
    yield "ready_batches", "gauge", "Finished batches that the loop has not taken.", ready


def _source_labels(now: Statistics, number: int) -> dict[str, object]:
    """Return the labels of a source. Sources may share a name, so there is a number."""
    return {"source": now.sources[number].name, "number": number}


def _histogram(name: str, labels: Mapping[str, object], durations: Durations) -> Iterator[str]:
    count = 0
    for first in range(0, len(durations.counts) - 1, _BINS_A_BUCKET):
        bins = slice(max(first - _BINS_A_BUCKET + 1, 0), first + 1)
        count += sum(durations.counts[bins])
        yield f"{name}_bucket{_labelled({**labels, 'le': f'{EDGES_S[first + 1]:.6g}'})} {count}"
    yield f"{name}_bucket{_labelled({**labels, 'le': '+Inf'})} {durations.count}"
    yield f"{name}_sum{_labelled(labels)} {durations.total_s:.12g}"
    yield f"{name}_count{_labelled(labels)} {durations.count}"


def _labelled(labels: Mapping[str, object]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(str(value))}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
