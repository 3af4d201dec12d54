"""What holds a loop up, and what to change: a function of its statistics.

Everything is reckoned for one batch. The loop takes as long as it works and waits. What holds it up is what most of the
waiting is for: callbacks or operators in its own process, the GPU's copies, putting batches together, or the workers. Where
these are busy nearly all the time, there have to be more of them, if there are CPUs; if not, their work has to take less.
Where they are idle while the loop waits, single samples take long, or too few batches are on their way. Where numbers are
chosen ("auto"), it is said what has been chosen and what keeps it from more.

What a change brings is reckoned as if nothing else got in the way: the loop cannot be faster than its own work, nor than the
work of all workers divided by their number, nor than the CPUs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum

from dali_like.engine.pool.settings import MOST_WORKERS
from dali_like.monitor.per_batch import ROOM, PerBatch, busy_s_of, part_of
from dali_like.monitor.statistics import SourceStatistics, Statistics
from dali_like.monitor.text import seconds_text

__all__ = ["Bottleneck", "Diagnosis", "diagnose"]

#: Fewer batches say nothing.
_LEAST_BATCHES = 10
#: A loop that waits for less than this share of its time is held up by its own work, though callbacks may be all the rest.
_LITTLE_WAITING = 0.1
#: Workers that are busy for this share of the time are as busy as can be: between tasks and batches there are gaps.
_BUSY = 0.7
#: Where batches come faster than this, handing them over counts.
_LITTLE_TIME_S = 0.001

_HALF = "if that takes half as long"
_LESS_TO_DO = (
    "Do less for each sample: decode at the size that is needed, crop before resizing, convert to floating point on the GPU."
)


class Bottleneck(StrEnum):
    """What holds a loop up."""

    #: Too few batches have been made to tell.
    UNKNOWN = "unknown"
    #: Its own work, training say. Data is there when it is asked for.
    LOOP = "loop"
    #: Callbacks, or the dataset.
    CALLBACK = "callback"
    #: Workers, of whom there are too few.
    WORKERS = "workers"
    #: Writing samples into batches, or putting batches together.
    TRANSPORT = "transport"
    #: Copies to the GPU.
    GPU_COPY = "gpu copy"
    #: Operators, such as decoding and resizing.
    OPERATORS = "operators"


@dataclass(frozen=True)
class Diagnosis:
    """What holds a loop up, and what to do about it.

    Attributes:
        bottleneck: what it is.
        sentence: the same, with figures.
        advice: what to change.
        speedup: how many times as many batches a second to expect of that, at most; 1 where nothing is to be gained.
        changes: the arguments to change, and to what, where it is a matter of arguments; those that are "auto" are none.
        provided: what the advice must have achieved for that, if it is no matter of arguments.
    """

    bottleneck: Bottleneck
    sentence: str
    advice: str
    speedup: float = 1.0
    changes: dict[str, int] = field(default_factory=dict)
    provided: str = ""


def diagnose(statistics: Statistics) -> Diagnosis:
    """Say what holds a loop up."""
    per_batch = PerBatch(statistics)
    if statistics.loop.epochs and not statistics.loop.batches:
        return _of_nothing(statistics)
    if statistics.loop.wait.count < _LEAST_BATCHES:
        return Diagnosis(
            Bottleneck.UNKNOWN,
            f"Too few batches have been made to tell: {statistics.loop.batches}.",
            f"Ask again after {_LEAST_BATCHES + 1} or more.",
        )
    if statistics.loop.wait_share < _LITTLE_WAITING:
        return _of_loop(per_batch)
    causes = {
        _of_serial_callbacks: per_batch.serial_s,
        _of_operators: per_batch.waited_for_operators_s,
        _of_copies: per_batch.waited_for_copies_s,
        _of_workers: per_batch.waited_for_workers_s,
        _of_putting_together: per_batch.unexplained_s,
    }
    return max(causes, key=lambda cause: causes[cause])(per_batch)


def _of_nothing(statistics: Statistics) -> Diagnosis:
    empty = [source.name for source in statistics.sources if not source.batches]
    times = "once" if statistics.loop.epochs == 1 else f"{statistics.loop.epochs} times"
    return Diagnosis(
        Bottleneck.UNKNOWN,
        f"The loop has come to the end of an epoch {times} and got no batch at all; {' and '.join(empty) or 'nobody'} made "
        "none.",
        "Look at its length, or at why it ends: a callable that raises StopIteration at once, an iterator that is used "
        "up, a folder in which no file was found, fewer samples than a batch where the last one is dropped.",
    )


def _of_loop(batch: PerBatch) -> Diagnosis:
    share = batch.statistics.loop.wait_share
    return Diagnosis(
        Bottleneck.LOOP,
        f"The loop itself: it works {seconds_text(batch.work_s)} on each batch and waits {seconds_text(batch.wait_s)}, "
        f"{share:.1%} of the time.",
        f"Loading that takes no time would gain {share:.1%} at most. Make the loop's own work faster"
        f"{', or give CPUs back by fewer workers' if batch.settings.num_workers > 1 else ''}.",
        batch.speedup(0),
        provided="if loading takes no time",
    )


def _of_serial_callbacks(batch: PerBatch) -> Diagnosis:
    slowest = max((source for source in batch.statistics.sources if source.place != "workers"), key=busy_s_of)
    wanted = _wanted_workers(batch, batch.serial_s, most=_most_workers(batch, slowest))
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
    sentence = f"{batch.waiting_text()} for operators, which take {seconds_text(took_s)} in {threads}."
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
        f"All CPUs have a thread. {_LESS_TO_DO}",
        batch.speedup(batch.loop_s - batch.waited_for_operators_s / 2),
        provided=_HALF,
    )


def _of_copies(batch: PerBatch) -> Diagnosis:
    copies = batch.statistics.copies
    nbytes = copies.copied_bytes / max(copies.batches, 1)
    return Diagnosis(
        Bottleneck.GPU_COPY,
        f"{batch.waiting_text()} for copies to the GPU, {nbytes / 1e6:.1f} MB a batch.",
        "Copy less: bytes in place of floating point, converted on the GPU; smaller images; labels on the CPU.",
        batch.speedup(batch.wait_s - batch.waited_for_copies_s),
    )


def _of_putting_together(batch: PerBatch) -> Diagnosis:
    how = (
        "Return arrays of one shape and dtype, and numbers, and leave the collation to the loader, so that workers write "
        "the batch; or let collate_fn do less."
        if batch.settings.kind == "loader"
        else "Return arrays of one shape and dtype, so that workers write the batch; have fewer outputs, and no objects."
    )
    return Diagnosis(
        Bottleneck.TRANSPORT,
        f"{batch.waiting_text()}, of which the main process needs {seconds_text(batch.unexplained_s)} to put it together.",
        how,
        batch.speedup(batch.wait_s - batch.unexplained_s),
    )


def _of_workers(batch: PerBatch) -> Diagnosis:
    bound = max((source for source in batch.in_workers if source.is_bound), key=busy_s_of, default=None)
    if bound is not None and busy_s_of(bound) >= _BUSY * batch.loop_s and batch.num_workers > 1:
        return _of_bound_source(batch, bound)
    if batch.busy_s < _BUSY * batch.num_workers * batch.loop_s:
        return _of_idle_workers(batch)
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
        f"{batch.waiting_text()}: one worker walks through {source.name}, which takes it {seconds_text(took_s)} a batch.",
        "Give a callable that is told which sample to make, or let each worker walk through a part of it: sharded=True.",
        batch.speedup(took_s / batch.num_workers),
    )


def _of_idle_workers(batch: PerBatch) -> Diagnosis:
    callback = max(batch.in_workers, key=busy_s_of).callback
    busy = batch.busy_s / batch.num_workers / batch.loop_s
    if batch.loop_s < _LITTLE_TIME_S:
        return Diagnosis(
            Bottleneck.TRANSPORT,
            f"{batch.waiting_text()}, though workers are busy only {busy:.0%} of it: handing a batch over takes longer than "
            "making it.",
            "Make batches larger, or let the main process call the source: it has little to do.",
            batch.speedup(batch.busy_s / batch.num_workers),
        )
    deeper = max(2 * batch.settings.prefetch, batch.settings.num_workers)
    value = math.ceil(deeper / batch.num_workers) if batch.settings.kind == "loader" else deeper
    return Diagnosis(
        Bottleneck.CALLBACK,
        f"{batch.waiting_text()}, though workers are busy only {busy:.0%} of it: the loop takes batches in bursts, or some "
        f"calls take long, half of them {seconds_text(callback.median_s)}, one in a hundred {seconds_text(callback.p99_s)}.",
        f"More batches ahead, so that a slow one does not matter: {batch.chosen_depth or f'{batch.prefetch_name}={value}'}.",
        batch.speedup(batch.busy_s / batch.num_workers),
        {} if batch.chosen_depth else {batch.prefetch_name: value},
    )


def _of_busy_callbacks(batch: PerBatch, took_s: float) -> Diagnosis:
    source = max(batch.in_workers, key=busy_s_of)
    if batch.most_workers < batch.num_workers * ROOM:
        return Diagnosis(
            Bottleneck.CALLBACK,
            f"{batch.waiting_text()}: {source.name} takes {seconds_text(took_s)} a batch, and {_workers_text(batch)} "
            f"{batch.cpus_text()}.",
            "Make the callback cheaper, or add CPUs. docs/statistics.md says how to find what it does.",
            batch.speedup((batch.busy_s - took_s / 2) / batch.num_workers),
            provided=_HALF,
        )
    wanted = _wanted_workers(batch, batch.busy_s, batch.most_workers)
    return Diagnosis(
        Bottleneck.WORKERS,
        f"{batch.waiting_text()}: {_workers_text(batch)}, busy all the time, are too few for {source.name}, which takes "
        f"{seconds_text(took_s)} a batch and {_cpu_text(source)}.",
        f"More workers: {batch.chosen_workers or f'{batch.workers_name}={wanted}'}{_async_text(source)}.",
        batch.speedup(batch.busy_s / wanted),
        *_more_workers(batch, wanted),
    )


def _of_operators_in_workers(batch: PerBatch, took_s: float) -> Diagnosis:
    share = took_s / batch.busy_s
    sentence = (
        f"{batch.waiting_text()} for workers, which spend {share:.0%} of their time on operators, {seconds_text(took_s)} a "
        "batch."
    )
    if batch.most_workers >= batch.num_workers * ROOM:
        wanted = _wanted_workers(batch, batch.busy_s, batch.most_workers)
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


def _of_writing(batch: PerBatch, took_s: float) -> Diagnosis:
    nbytes = sum(source.made_bytes / max(source.batches, 1) for source in batch.in_workers)
    how = (
        "Return arrays of one shape and dtype that are contiguous; smaller ones: bytes in place of floating point."
        if batch.settings.kind == "loader"
        else "Make samples where they are to lie, in what SampleInfo.empty gives, and return that; or smaller ones: bytes "
        "in place of floating point."
    )
    return Diagnosis(
        Bottleneck.TRANSPORT,
        f"{batch.waiting_text()} for workers, which spend {took_s / batch.busy_s:.0%} of their time writing samples into "
        f"batches, {nbytes / 1e6:.1f} MB each.",
        how,
        batch.speedup((batch.busy_s - took_s) / batch.num_workers),
    )


def _wanted_workers(batch: PerBatch, busy_s: float, most: int) -> int:
    """As many workers as keep up with the loop's work, if `most` do not stand in the way."""
    return max(1, min(most, math.ceil(busy_s / max(batch.work_s, 1e-9))))


def _more_workers(batch: PerBatch, wanted: int) -> tuple[dict[str, int], str]:
    """The arguments to change for more workers, and what else more than that takes."""
    return ({}, f"with {wanted} workers") if batch.chosen_workers else ({batch.workers_name: wanted}, "")


def _most_workers(batch: PerBatch, source: SourceStatistics) -> int:
    """As many workers as the CPUs can keep busy with a source."""
    cpu_share = (source.cpu_s + source.delayed_s) / source.busy_s if source.busy_s else 1.0
    return max(1, min(MOST_WORKERS, math.floor(batch.settings.num_cpus / max(cpu_share, 1e-3))))


def _workers_text(batch: PerBatch) -> str:
    return f"{batch.num_workers} worker{'s' * (batch.num_workers != 1)}"


def _cpu_text(source: SourceStatistics) -> str:
    return f"uses the CPU for {source.cpu_s / max(source.busy_s, 1e-9):.0%} of that"


def _async_text(source: SourceStatistics) -> str:
    """A hint where callbacks mostly wait."""
    waits = (
        source.cpu_s + source.delayed_s < source.busy_s / 4
        and not source.concurrency
        and source.name.startswith("external_source")
    )
    return "; or a coroutine function with concurrency=, since it mostly waits" if waits else ""
