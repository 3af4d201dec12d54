"""Find the bottleneck of a training loop and propose a change: a pure function of its statistics.

All figures are per batch. The bottleneck is the cause of most of the waiting: callbacks or operators in the main process,
copies to the GPU, assembly of batches, or the workers. Busy workers need more colleagues if CPUs are free, and cheaper
callbacks otherwise. Idle workers in a waiting loop mean that single samples take long, or that the prefetch depth is too
small. For arguments that are "auto", the diagnosis names the current choice and its reason.

Expected speedups assume no other limit: the loop cannot be faster than its own work, than the work of all workers divided by
their number, or than the CPUs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from dali_like.monitor.measure.disturbances import load_finding, outliers_finding
from dali_like.monitor.measure.per_batch import ROOM, PerBatch, busy_s_of, part_of
from dali_like.monitor.measure.statistics import OperatorTime, SourceStatistics, Statistics
from dali_like.monitor.measure.text import seconds_text

__all__ = ["Bottleneck", "Diagnosis", "diagnose"]

#: Fewer batches give no diagnosis.
_LEAST_BATCHES = 10
#: Below this share of waiting, the loop itself is the bottleneck.
_LITTLE_WAITING = 0.1
#: Workers with this share of busy time count as saturated: there are gaps between tasks and batches.
_BUSY = 0.7
#: Workers with this share of busy time have always something to do.
_NO_GAPS = 0.9
#: Below this time per batch, the hand-over matters.
_LITTLE_TIME_S = 0.001
#: A smaller speedup is not mentioned.
_WORTH_MENTIONING = 1.05

_HALF = "if that takes half as long"
_LESS_TO_DO = (
    "Do less for each sample: decode at the needed size, crop before resizing, convert to floating point on the GPU."
)


class Bottleneck(StrEnum):
    """The kinds of bottlenecks."""

    #: Too few batches so far.
    UNKNOWN = "unknown"
    #: The loop's own work, such as training. Batches are ready in time.
    LOOP = "loop"
    #: The callback, or the dataset.
    CALLBACK = "callback"
    #: Too few workers.
    WORKERS = "workers"
    #: Writing samples into batches, or assembling batches.
    TRANSPORT = "transport"
    #: Copies to the GPU.
    GPU_COPY = "gpu copy"
    #: Operators, such as decoding and resizing.
    OPERATORS = "operators"


@dataclass(frozen=True)
class Diagnosis:
    """The bottleneck of a loop, and a proposal.

    Attributes:
        bottleneck: its kind.
        sentence: an explanation with figures.
        advice: the proposed change.
        speedup: upper limit of the factor in batches per second; 1 if there is nothing to gain.
        changes: new values of arguments, if arguments are to change; never of "auto" arguments.
        provided: the condition of the speedup, if the advice is not about arguments.
        load: a sentence about other programs on the CPUs; "" without any.
        outliers: sentences about sources of which a few calls take a large part of the time; "" without any.
    """

    bottleneck: Bottleneck
    sentence: str
    advice: str
    speedup: float = 1.0
    changes: dict[str, int] = field(default_factory=dict)
    provided: str = ""
    load: str = ""
    outliers: str = ""

    def expected_text(self, batches_per_s: float) -> str:
        """Describe the possible gain, given the present rate; "" if there is little to gain."""
        if self.speedup < _WORTH_MENTIONING:
            return ""
        provided = f", {self.provided}" if self.provided else ""
        return (
            f"Expected{provided}: at most {batches_per_s * self.speedup:,.1f} batches/s instead of {batches_per_s:,.1f}, "
            f"{self.speedup:.1f} times as many."
        )

    def texts(self, batches_per_s: float) -> dict[str, str]:
        """Return the bottleneck, all sentences, advice, and `expected_text`, for pages and traces."""
        return {
            "bottleneck": self.name,
            "sentence": " ".join(filter(None, [self.load, self.sentence, self.outliers])),
            "advice": self.advice,
            "expected": self.expected_text(batches_per_s),
        }

    @property
    def name(self) -> str:
        """Name of the bottleneck for users."""
        return "not known yet" if self.bottleneck is Bottleneck.UNKNOWN else self.bottleneck.value


def diagnose(statistics: Statistics) -> Diagnosis:
    """Find the bottleneck of a loop, and what distorts its figures."""
    found = _bottleneck_of(statistics)
    return replace(found, load=load_finding(statistics), outliers=outliers_finding(statistics))


def _bottleneck_of(statistics: Statistics) -> Diagnosis:
    per_batch = PerBatch(statistics)
    if statistics.loop.epochs and not statistics.loop.batches:
        return _of_nothing(statistics)
    if statistics.loop.wait.count < _LEAST_BATCHES:
        return Diagnosis(
            Bottleneck.UNKNOWN,
            f"Too few batches so far: {statistics.loop.batches}.",
            f"Call report() again after {_LEAST_BATCHES + 1} or more.",
        )
    if statistics.loop.wait_share < _LITTLE_WAITING:
        return _of_loop(per_batch)
    if statistics.settings.foreign:
        return _of_foreign(per_batch)
    causes = {
        _of_serial_callbacks: per_batch.serial_s,
        _of_operators: per_batch.waited_for_operators_s,
        _of_copies: per_batch.waited_for_copies_s,
        _of_workers: per_batch.waited_for_workers_s,
        _of_putting_together: per_batch.unexplained_s,
    }
    cause = max(causes, key=lambda cause: causes[cause])
    if cause is _of_putting_together and _workers_leave_no_cpu(per_batch):
        cause = _of_workers
    return cause(per_batch)


def _workers_leave_no_cpu(batch: PerBatch) -> bool:
    """Whether the main process has to wait for a CPU: the workers are busy all the time, and there is one for each CPU."""
    return batch.num_workers >= batch.settings.num_cpus and batch.busy_s >= _NO_GAPS * batch.num_workers * batch.loop_s


def _of_nothing(statistics: Statistics) -> Diagnosis:
    empty = [source.name for source in statistics.sources if not source.batches]
    times = "once" if statistics.loop.epochs == 1 else f"{statistics.loop.epochs} times"
    return Diagnosis(
        Bottleneck.UNKNOWN,
        f"The loop has finished an epoch {times} without a single batch; empty: {' and '.join(empty) or 'no source'}.",
        "Check the length of the source, or the reason why it ends: a callable that raises StopIteration at once, an "
        "exhausted iterator, an empty folder, or fewer samples than a batch where the last batch is dropped.",
    )


def _of_loop(batch: PerBatch) -> Diagnosis:
    share = batch.statistics.loop.wait_share
    return Diagnosis(
        Bottleneck.LOOP,
        f"The loop itself: it works {seconds_text(batch.work_s)} on each batch and waits {seconds_text(batch.wait_s)}, "
        f"{share:.1%} of the time.",
        f"Faster loading would gain {share:.1%} at most. Make the loop's own work faster"
        f"{', or free CPUs with fewer workers' if batch.settings.num_workers > 1 else ''}.",
        batch.speedup(0),
        provided="if loading takes no time",
    )


def _of_foreign(batch: PerBatch) -> Diagnosis:
    workers = batch.settings.num_workers
    return Diagnosis(
        Bottleneck.WORKERS if workers else Bottleneck.CALLBACK,
        f"{batch.waiting_text()} for PyTorch's iterator, whose parts are not measured.",
        "Try more workers." if workers else f"Let workers load the samples: {batch.workers_name}=2.",
    )


def _of_serial_callbacks(batch: PerBatch) -> Diagnosis:
    slowest = max((source for source in batch.statistics.sources if source.place != "workers"), key=busy_s_of)
    # The share of its time in which it uses a CPU, or waits for one: more workers would overlap the rest.
    cpu_share = (slowest.cpu_s + slowest.delayed_s) / slowest.busy_s if slowest.busy_s else 1.0
    wanted = batch.enough_workers(batch.serial_s, 1 - cpu_share)
    changes = {} if batch.chosen_workers else {batch.workers_name: wanted}
    how = [] if batch.settings.kind == "loader" else ["parallel=True"]
    how += [f"{name}={value}" for name, value in changes.items()]
    return Diagnosis(
        Bottleneck.CALLBACK,
        f"{batch.waiting_text()}: {slowest.name} is called in the main process and takes {seconds_text(batch.serial_s)}.",
        f"Let workers call it: {' and '.join(how)}.",
        batch.speedup(batch.wait_s - batch.serial_s + batch.serial_s / wanted),
        changes,
    )


def _of_operators(batch: PerBatch) -> Diagnosis:
    settings = batch.settings
    took_s = batch.statistics.operators.batches.mean_s
    threads = f"{settings.num_threads} thread{'s' * (settings.num_threads != 1)} of the main process"
    sentence = (
        f"{batch.waiting_text()} for operators, which take {seconds_text(took_s)} in {threads}"
        f"{_slowest_operator(batch.statistics.operators.operator_times)}."
    )
    if settings.num_threads < settings.num_cpus:
        return Diagnosis(
            Bottleneck.OPERATORS,
            sentence,
            f"There are {settings.num_cpus} CPUs: num_threads={settings.num_cpus}.",
            batch.speedup(batch.loop_s * settings.num_threads / settings.num_cpus),
            {"num_threads": settings.num_cpus},
        )
    return Diagnosis(
        Bottleneck.OPERATORS,
        sentence,
        f"Every CPU has a thread already. {_LESS_TO_DO}",
        batch.speedup(batch.loop_s - batch.waited_for_operators_s / 2),
        provided=_HALF,
    )


def _of_copies(batch: PerBatch) -> Diagnosis:
    copies = batch.statistics.copies
    nbytes = copies.copied_bytes / max(copies.batches, 1)
    return Diagnosis(
        Bottleneck.GPU_COPY,
        f"{batch.waiting_text()} for copies to the GPU, {nbytes / 1e6:.1f} MB a batch.",
        "Copy less: uint8 instead of floating point, converted on the GPU; smaller images; labels on the CPU.",
        batch.speedup(batch.wait_s - batch.waited_for_copies_s),
    )


def _of_putting_together(batch: PerBatch) -> Diagnosis:
    how = (
        "Return numbers and arrays of one shape and dtype, and use the default collation, so that workers write the batch; "
        "or make collate_fn cheaper."
        if batch.settings.kind == "loader"
        else "Return arrays of one shape and dtype, so that workers write the batch; use fewer outputs, and no objects."
    )
    return Diagnosis(
        Bottleneck.TRANSPORT,
        f"{batch.waiting_text()}; the main process needs {seconds_text(batch.unexplained_s)} of it to assemble the batch.",
        how,
        batch.speedup(batch.wait_s - batch.unexplained_s),
    )


def _of_workers(batch: PerBatch) -> Diagnosis:
    bound = max((source for source in batch.in_workers if source.is_bound), key=busy_s_of, default=None)
    if bound is not None and busy_s_of(bound) >= _BUSY * batch.loop_s and batch.num_workers > 1:
        return _of_bound_source(batch, bound)
    if batch.busy_s < _BUSY * batch.num_workers * batch.loop_s:
        return _of_idle_workers(batch)
    few = next((source for source in batch.in_workers if source.logical_shards == batch.num_workers), None)
    if few is not None and batch.settings.num_cpus >= ROOM * batch.cpus_wanted:
        return _of_few_shards(batch, few)
    parts = {
        _of_busy_callbacks: sum(part_of(source, source.callback_s) for source in batch.in_workers),
        _of_operators_in_workers: sum(part_of(source, source.operators_s) for source in batch.in_workers),
        _of_writing: sum(part_of(source, source.writing_s) for source in batch.in_workers),
    }
    return max(parts, key=lambda part: parts[part])(batch, max(parts.values()))


def _of_bound_source(batch: PerBatch, source: SourceStatistics) -> Diagnosis:
    took_s = busy_s_of(source)
    return Diagnosis(
        Bottleneck.CALLBACK,
        f"{batch.waiting_text()}: a single worker iterates over {source.name}, {seconds_text(took_s)} a batch.",
        "Use a callable with SampleInfo, or give each worker a part of the iterable: sharded=True.",
        batch.speedup(took_s / batch.num_workers),
    )


def _of_few_shards(batch: PerBatch, source: SourceStatistics) -> Diagnosis:
    shards = source.logical_shards
    idle = batch.settings.num_workers - batch.num_workers
    others = f" {idle} of {batch.settings.num_workers} workers are idle." if idle > 0 else ""
    return Diagnosis(
        Bottleneck.WORKERS,
        f"{batch.waiting_text()}: this rank has {shards} logical shard{'s' * (shards != 1)} of {source.name}, each of one "
        f"worker, and these workers are busy all the time.{others}",
        "More logical shards let more workers share the work: with_options(shards=...), a multiple of the ranks times the "
        "workers. That is another stream, so a saved state does not fit it.",
        batch.speedup(batch.busy_s / (2 * batch.num_workers)),
        provided="with twice as many shards and workers",
    )


def _of_idle_workers(batch: PerBatch) -> Diagnosis:
    callback = max(batch.in_workers, key=busy_s_of).callback
    busy = batch.busy_s / batch.num_workers / batch.loop_s
    if batch.loop_s < _LITTLE_TIME_S:
        return Diagnosis(
            Bottleneck.TRANSPORT,
            f"{batch.waiting_text()}, although workers are busy only {busy:.0%} of it: the hand-over of a batch takes "
            "longer than its computation.",
            "Use larger batches, or call the source in the main process: it has little to do.",
            batch.speedup(batch.busy_s / batch.num_workers),
        )
    deeper = max(2 * batch.settings.prefetch, batch.settings.num_workers)
    value = math.ceil(deeper / batch.num_workers) if batch.settings.kind == "loader" else deeper
    return Diagnosis(
        Bottleneck.CALLBACK,
        f"{batch.waiting_text()}, although workers are busy only {busy:.0%} of it: the loop takes batches in bursts, or "
        f"some calls take long (median {seconds_text(callback.median_s)}, 99th percentile {seconds_text(callback.p99_s)}).",
        f"Prefetch more, so that a slow batch does not matter: {batch.chosen_depth or f'{batch.prefetch_name}={value}'}.",
        batch.speedup(batch.busy_s / batch.num_workers),
        {} if batch.chosen_depth else {batch.prefetch_name: value},
    )


def _of_busy_callbacks(batch: PerBatch, took_s: float) -> Diagnosis:
    source = max(batch.in_workers, key=busy_s_of)
    wanted = batch.enough_busy_workers
    if wanted < batch.num_workers * ROOM:
        return Diagnosis(
            Bottleneck.CALLBACK,
            f"{batch.waiting_text()}: {source.name} takes {seconds_text(took_s)} a batch, and {_workers_text(batch)} "
            f"{batch.cpus_text()}.",
            "Make the callback cheaper, or add CPUs. docs/statistics.md shows how to profile it.",
            batch.speedup((batch.busy_s - took_s / 2) / batch.num_workers),
            provided=_HALF,
        )
    return Diagnosis(
        Bottleneck.WORKERS,
        f"{batch.waiting_text()}: {_workers_text(batch)}, busy all the time, are too few for {source.name}. It takes "
        f"{seconds_text(took_s)} a batch and uses the CPU for {source.cpu_s / max(source.busy_s, 1e-9):.0%} of that.",
        f"More workers: {batch.chosen_workers or f'{batch.workers_name}={wanted}'}{_async_text(source)}.",
        batch.speedup(batch.busy_s / wanted),
        *_more_workers(batch, wanted),
    )


def _of_operators_in_workers(batch: PerBatch, took_s: float) -> Diagnosis:
    share = took_s / batch.busy_s
    sentence = (
        f"{batch.waiting_text()} for workers. They spend {share:.0%} of their time on operators, {seconds_text(took_s)} a "
        f"batch{_slowest_operator([time for source in batch.in_workers for time in source.operator_times])}."
    )
    wanted = batch.enough_busy_workers
    if wanted >= batch.num_workers * ROOM:
        return Diagnosis(
            Bottleneck.OPERATORS,
            sentence,
            f"More workers: {batch.chosen_workers or f'{batch.workers_name}={wanted}'}; or do less for each sample.",
            batch.speedup(batch.busy_s / wanted),
            *_more_workers(batch, wanted),
        )
    return Diagnosis(
        Bottleneck.OPERATORS,
        sentence,
        f"{_workers_text(batch).capitalize()} {batch.cpus_text()}. {_LESS_TO_DO}",
        batch.speedup((batch.busy_s - took_s / 2) / batch.num_workers),
        provided=_HALF,
    )


def _slowest_operator(times: Sequence[OperatorTime]) -> str:
    """Name the slowest of several operators."""
    whole_s = sum(time.seconds for time in times)
    if not whole_s:
        return ""
    slowest = max(times, key=lambda time: time.seconds)
    return f"; {slowest.seconds / whole_s:.0%} of that is {slowest.name}"


def _of_writing(batch: PerBatch, took_s: float) -> Diagnosis:
    nbytes = sum(source.made_bytes / max(source.batches, 1) for source in batch.in_workers)
    how = (
        "Return contiguous arrays of one shape and dtype, and smaller ones: uint8 instead of floating point."
        if batch.settings.kind == "loader"
        else "Fill the array from SampleInfo.empty and return it, or return smaller arrays: uint8 instead of floating point."
    )
    return Diagnosis(
        Bottleneck.TRANSPORT,
        f"{batch.waiting_text()} for workers. They spend {took_s / batch.busy_s:.0%} of their time writing samples into "
        f"batches of {nbytes / 1e6:.1f} MB.",
        how,
        batch.speedup((batch.busy_s - took_s) / batch.num_workers),
    )


def _more_workers(batch: PerBatch, wanted: int) -> tuple[dict[str, int], str]:
    """Return the arguments to change for more workers, and the condition if they are "auto"."""
    return ({}, f"with {wanted} workers") if batch.chosen_workers else ({batch.workers_name: wanted}, "")


def _workers_text(batch: PerBatch) -> str:
    return f"{batch.num_workers} worker{'s' * (batch.num_workers != 1)}"


def _async_text(source: SourceStatistics) -> str:
    """Return a hint at coroutines for callbacks that mostly wait."""
    waits = (
        source.cpu_s + source.delayed_s < source.busy_s / 4
        and not source.concurrency
        and source.name.startswith("external_source")
    )
    return "; or a coroutine function with concurrency=, since it mostly waits" if waits else ""
