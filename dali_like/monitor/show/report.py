"""One screen of text about a pipeline or loader: its bottleneck, a proposal, and the figures."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from dali_like.monitor.measure.diagnosis import Diagnosis, diagnose
from dali_like.monitor.measure.disturbances import call_text
from dali_like.monitor.measure.durations import EDGES_S, Durations
from dali_like.monitor.measure.stages import waiting_by_stage
from dali_like.monitor.measure.statistics import OperatorTime, SourceStatistics, Statistics
from dali_like.monitor.measure.text import bytes_text, seconds_text, sparkline
from dali_like.monitor.profile.advice import advice_for
from dali_like.monitor.profile.profile import Profile

__all__ = ["Report"]

_WIDTH = 100
_NAME_WIDTH = 38
#: Limits of the listed calls of each source, and of the listed workers.
_MOST_SLOW = 3
_MOST_WORKERS = 16
#: Limits of the listed operators, and of the listed stages that the loop waits for.
_MOST_OPERATORS = 5
_MOST_STAGES = 3
_BAR_CELLS = 40
#: Lines that are listed of a profile.
_MOST_LINES = 3
#: A cache is worthwhile if the callback takes this share of the workers' time, and waiting this share of the loop's.
_MOST_OF_TIME = 0.5
_MUCH_WAITING = 0.1
#: Fewer batches do not tell whether PyTorch's loader would be as fast.
_LEAST_BATCHES = 10
#: From this share of the time inside the dataset on, loaders hardly differ.
_MOSTLY = 0.9
#: Workers that are busy for less than this share have time for higher costs, if the loop waits for less than that share.
_OFTEN_IDLE, _HARDLY = 0.4, 0.05


@dataclass(frozen=True)
class Report:
    """Result of `Pipeline.report`; ``print`` shows it.

    Attributes:
        statistics: the figures behind the report.
        profile: the last profile of the workers, if there is one; see `Pipeline.profile`.
    """

    statistics: Statistics
    profile: Profile | None = None

    @cached_property
    def diagnosis(self) -> Diagnosis:
        """The bottleneck, and a proposal."""
        return diagnose(self.statistics)

    def __str__(self) -> str:
        return "\n".join([*self._head(), "", *self._verdict(), "", *self._table(), "", *self._profile(), *self._tail()])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Show the report in a notebook."""
        from dali_like.showing.notebook import text_html  # only notebooks ask

        return text_html(str(self))

    def _head(self) -> Iterator[str]:
        now = self.statistics
        made_bytes = sum(source.made_bytes for source in now.sources) / max(sum(s.batches for s in now.sources), 1)
        per_s = f"{now.loop.batches_per_s:,.1f} batches/s"
        if now.settings.batch_size:
            per_s += f", {now.samples_per_s:,.0f} samples/s"
        if made_bytes:
            per_s += f", {bytes_text(made_bytes * len(now.sources) * now.loop.batches_per_s)}/s"
        size = f" of {now.settings.batch_size}" if now.settings.batch_size else ""
        first = f"; the first after {seconds_text(now.loop.first_batch_s)}" if now.loop.first_batch_s else ""
        yield f"{now.settings.kind.capitalize()}: {now.loop.batches:,} batches{size}: {per_s}{first}"
        if now.settings.foreign:
            yield from _paragraph(f"PyTorch's iterator: {now.settings.foreign}")

    def _verdict(self) -> Iterator[str]:
        found = self.diagnosis
        yield from textwrap.wrap(found.load, _WIDTH)
        yield f"Bottleneck: {found.name}"
        yield from _paragraph(found.sentence)
        yield from _paragraph(found.outliers)
        yield from _paragraph(found.advice)
        yield from _paragraph(found.expected_text(self.statistics.loop.batches_per_s))
        yield from _paragraph(_why_as_fast_as_torch(self.statistics))

    def _table(self) -> Iterator[str]:
        now = self.statistics
        yield f"{'':{_NAME_WIDTH}}{'total':>9}{'share':>8}{'median':>10}{'90 %':>10}{'99 %':>10}"
        seconds = now.loop.seconds
        yield _row("the loop waits", now.loop.wait, seconds)
        if waiting := waiting_by_stage(now):
            yield f"  for {', '.join(f'{_shortened(stage.name)} {stage.share:.0%}' for stage in waiting[:_MOST_STAGES])}"
        yield _row("the loop works", now.loop.work, seconds)
        if now.operators.batches.count:
            yield _row("operators in threads, a batch", now.operators.batches, seconds)
            yield from _operators(now.operators.operator_times, sum(each.seconds for each in now.operators.operator_times))
        for source in now.sources:
            yield _row(f"{_shortened(source.name)}, a {source.unit}", source.callback)
            yield _parts(source)
            if source.callback.count > 1:
                yield f"  calls by time: {_histogram(source.callback)}"
            yield from _operators(source.operator_times, source.busy_s)
        if now.copies.batches:
            copies = now.copies
            yield (
                f"copies to the GPU: {bytes_text(copies.copied_bytes)} in {copies.batches:,} batches; "
                f"{seconds_text(copies.host_s)} of the main process, {seconds_text(copies.waited_s)} of it waiting"
            )

    def _profile(self) -> Iterator[str]:
        if self.profile is None or not self.profile.total.samples:
            return
        yield "hottest lines of the program:"
        for line in self.profile.lines(_MOST_LINES):
            yield f"  {line}"
        for text in advice_for(self.profile):
            yield from _paragraph(text)
        yield ""

    def _tail(self) -> Iterator[str]:
        now = self.statistics
        if now.workers:
            busy = " ".join(f"{worker.busy_share:.0%}" for worker in now.workers[:_MOST_WORKERS])
            more = " ..." if len(now.workers) > _MOST_WORKERS else ""
            of = now.settings
            yield f"workers: {len(now.workers)} ({of.start_method}) on {of.num_cpus} CPUs; busy {busy}{more}{self._idle()}"
        if (chosen := now.settings.chosen) is not None:
            why = chosen.num_workers_reason or chosen.prefetch_depth_reason
            yield f"chosen: {chosen.num_workers} workers, {chosen.prefetch_depth} batches ahead: {why}"
        for source in now.sources:
            if (ring := source.ring).slots and source.place == "workers":
                yield (
                    f"slots of {_shortened(source.name)}: {ring.slots}; {ring.making} being made, {ring.ready} ready, "
                    f"{ring.held} held, {ring.free} free; {ring.mean_ready:.1f} ready on the average"
                )
        yield from _balance_lines(now)
        for source in now.sources:
            if source.slowest:
                slow = ", ".join(map(call_text, source.slowest[:_MOST_SLOW]))
                yield f"slowest calls of {_shortened(source.name)}: {slow}"
        for container in (container for source in now.sources for container in source.large_containers):
            kind = "SharedDict" if ", a dict of" in container else "SharedList"
            yield f"copied by each worker: {container}; share it: dali_like.data.{kind}(...)"
        for source in now.sources:
            yield from _cache_lines(source, now.loop.wait_share, now.settings.kind)
        memory = f"; all processes {bytes_text(now.memory.total_bytes)}" if now.memory is not None else ""
        killed = f"killed by the kernel, out of memory: {now.oom_kills}; " if now.oom_kills else ""
        yield (
            f"memory behind batches: {bytes_text(now.held_bytes)}{memory}; workers restarted: {now.worker_restarts}; "
            f"{killed}samples replaced: {now.replaced_samples}; errors: {now.loop.errors}"
        )

    def _idle(self) -> str:
        """Tell how many workers have no logical shard."""
        of = self.statistics
        shards = min((source.logical_shards for source in of.sources if source.logical_shards), default=len(of.workers))
        idle = len(of.workers) - shards
        return f"; {idle} without a logical shard, so idle" if idle > 0 else ""


def _row(name: str, durations: Durations, of_s: float = 0.0) -> str:
    share = f"{durations.total_s / of_s:.0%}" if of_s else ""
    values = (durations.median_s, durations.p90_s, durations.p99_s)
    texts = "".join(f"{seconds_text(value):>10}" for value in values)
    return f"{name:{_NAME_WIDTH}}{seconds_text(durations.total_s):>9}{share:>8}{texts}"


def _histogram(durations: Durations) -> str:
    """Draw the histogram between the fastest and the slowest event."""
    bins = [i for i, count in enumerate(durations.counts) if count]
    counts = durations.counts[bins[0] : bins[-1] + 1]
    bars = sparkline(counts, _BAR_CELLS)
    return f"{seconds_text(EDGES_S[bins[0]])} {bars} {seconds_text(EDGES_S[bins[-1] + 1])}"


def _cache_lines(source: SourceStatistics, wait_share: float, kind: str) -> Iterator[str]:
    """Yield the hits of caches in their last epoch. Recommend a cache if computing samples again costs most of the time."""
    for cache in source.caches:
        if cache.epochs:
            epoch, counts = max(cache.epochs.items())
            yield (
                f"cache of {_shortened(source.name)}: {cache.stored:,} elements, {bytes_text(cache.used_bytes)} of "
                f"{bytes_text(cache.budget_bytes)}; epoch {epoch}: {counts.hits:,} hits ({bytes_text(counts.hit_bytes)}), "
                f"{counts.misses:,} misses"
            )
    computing_s = source.callback_s + source.operators_s
    if source.cacheable_bytes and computing_s > _MOST_OF_TIME * source.busy_s and wait_share > _MUCH_WAITING:
        nbytes = bytes_text(source.cacheable_bytes)
        yield (
            f"computed again in each epoch: {_shortened(source.name)}; all samples take {nbytes}, which fits into memory;"
        )
        ways = "fn.cache(...)" if kind == "pipeline" else "dali_like.data.CachedDataset(...), or ComposedDataset.cache(...)"
        yield f"  cache the deterministic part: {ways}"


def _balance_lines(now: Statistics) -> Iterator[str]:
    """Yield how equal the costs of the ranks are."""
    for balance in (source.balance for source in now.sources if source.balance.mean):
        yield (
            f"costs of the ranks: the dearest is {balance.dearest / balance.mean:.3f} of the mean, and "
            f"{balance.dearest / balance.bound:.3f} of the lower bound, in {balance.steps:,} steps; in order of positions, "
            f"it would be {balance.in_order / balance.mean:.2f} of the mean"
        )
    for balance in (source.balance for source in now.sources if source.balance.batches):
        spread, in_order = (deviations / balance.batches for deviations in (balance.deviations, balance.deviations_in_order))
        yield (
            f"costs of this rank: its batches deviate by {spread:.1%} from the mean, in {balance.batches:,} batches; in "
            f"order of positions, it would be {in_order:.0%}"
        )


def _parts(source: SourceStatistics) -> str:
    """Return the shares of callback, operators and writing in the time of a source."""
    if not source.busy_s:
        return "  not called yet"
    parts = {"callback": source.callback_s, "operators": source.operators_s, "writing": source.writing_s}
    cpu = f"{source.cpu_s / source.busy_s:.0%}"
    if (share := source.delayed_s / source.busy_s) >= 0.01:
        cpu += f", waiting for it {share:.0%}"
    shares = ", ".join(f"{name} {seconds / source.busy_s:.0%}" for name, seconds in parts.items() if seconds)
    return f"  in {source.place}: {seconds_text(source.busy_s)} in all ({shares}); CPU {cpu}"


def _operators(times: Sequence[OperatorTime], whole_s: float) -> Iterator[str]:
    """Yield the operators that take longest, with their shares of some time."""
    for each in sorted(times, key=lambda each: -each.seconds)[:_MOST_OPERATORS]:
        if each.seconds:
            share = each.seconds / whole_s
            yield f"    {_shortened(each.name):{_NAME_WIDTH - 4}}{seconds_text(each.seconds):>9}{share:>8.0%}"


def _shortened(name: str) -> str:
    name = name.removeprefix("external_source of ")
    most = _NAME_WIDTH - 12
    return name if len(name) <= most else f"{name[: most - 3]}..."


def _why_as_fast_as_torch(statistics: Statistics) -> str:
    """Return a sentence that says why PyTorch's loader would be about as fast; "" if it would not be.

    This library saves the costs between the dataset and the loop: pickles, copies, collation. Where these are small beside
    the time of the dataset, or nobody waits for them, another loader is as fast.
    """
    loop, sources = statistics.loop, statistics.sources
    if statistics.settings.kind != "loader" or loop.wait.count < _LEAST_BATCHES:
        return ""
    busy_s, inside_s = sum(source.busy_s for source in sources), sum(source.callback_s for source in sources)
    busy_share = max((worker.busy_share for worker in statistics.workers), default=1.0)
    if busy_s and inside_s >= _MOSTLY * busy_s:
        where = "of the workers' time" if statistics.workers else "of the time for batches"
        why = f"{inside_s / busy_s:.0%} {where} is spent in the dataset, which takes as long in any loader"
    elif loop.wait_share < _HARDLY and busy_share < _OFTEN_IDLE:
        why = f"the loop waits {loop.wait_share:.0%} of the time, and the workers are busy {busy_share:.0%} of it at most"
    else:
        return ""
    return f"PyTorch's loader would be about as fast: {why}."


def _paragraph(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent="  ", subsequent_indent="  ")
