"""Mean costs of a batch, in seconds: the input of `dali_like.monitor.measure.diagnosis`."""

from __future__ import annotations

from functools import cached_property

from dali_like.engine.pool.settings import MOST_WORKERS, Measurement, enough_workers
from dali_like.monitor.measure.statistics import SourceStatistics, Statistics
from dali_like.monitor.measure.text import seconds_text

#: More workers are proposed only if the CPUs have room for at least this factor.
ROOM = 1.15


class PerBatch:
    """Mean costs of a batch, in seconds.

    Attributes:
        work_s, wait_s, loop_s: working time of the loop, its waiting time, and their sum.
        in_workers: sources that workers call.
    """

    def __init__(self, statistics: Statistics) -> None:
        loop = statistics.loop
        self.statistics = statistics
        self.settings = statistics.settings
        self._count = max(loop.wait.count, 1)
        self.work_s = loop.work.total_s / self._count
        self.wait_s = loop.wait.total_s / self._count
        self.loop_s = self.work_s + self.wait_s
        self.in_workers = [source for source in statistics.sources if source.place == "workers"]

    @cached_property
    def serial_s(self) -> float:
        """Time of sources that the main process calls while the loop waits."""
        return min(self.wait_s, sum(busy_s_of(source) for source in self.statistics.sources if source.place != "workers"))

    @property
    def waited_for_operators_s(self) -> float:
        return min(self.wait_s, self.statistics.loop.waited_for_operators_s / self._count)

    @property
    def waited_for_copies_s(self) -> float:
        return min(self.wait_s, self.statistics.copies.waited_s / max(self.statistics.copies.batches, 1))

    @property
    def waited_for_workers_s(self) -> float:
        """Waiting for workers, without the first batch, which includes their start."""
        loop = self.statistics.loop
        return min(self.wait_s, max(0.0, loop.waited_for_workers_s - loop.first_batch_s) / self._count)

    @property
    def unexplained_s(self) -> float:
        """The rest of the waiting: the main process assembles batches."""
        explained = self.serial_s + self.waited_for_operators_s + self.waited_for_copies_s + self.waited_for_workers_s
        return max(0.0, self.wait_s - explained)

    @property
    def busy_s(self) -> float:
        """Working time of all workers for one batch."""
        return sum(map(busy_s_of, self.in_workers))

    @property
    def cpus_used(self) -> float:
        """Mean number of CPUs that the workers use."""
        return sum(part_of(source, source.cpu_s) for source in self.in_workers) / self.loop_s

    @property
    def num_workers(self) -> int:
        """Number of workers that may be busy."""
        return max(min(self.settings.num_workers, self._most_by_shards), 1)

    def enough_workers(self, busy_s: float, waiting: float) -> int:
        """Return the number of workers that suffices for the loop, as those that are chosen with "auto".

        Args:
            busy_s: time that workers take for a batch, all together.
            waiting: share of that time in which they wait for anything but a CPU.
        """
        seen = Measurement(busy_s, max(waiting, 0.0), 0.0, self.work_s)
        return max(1, enough_workers(seen, self.settings.num_cpus, min(MOST_WORKERS, self._most_by_shards))[0])

    @property
    def enough_busy_workers(self) -> int:
        """The number of workers that suffices if they work as the current ones, which are busy all the time."""
        return self.enough_workers(self.busy_s, 1 - self.cpus_wanted / self.num_workers)

    @property
    def _most_by_shards(self) -> int:
        return min((source.logical_shards for source in self.in_workers if source.logical_shards), default=MOST_WORKERS)

    @property
    def cpus_wanted(self) -> float:
        """Mean number of CPUs that the workers would use without competing processes."""
        return self.cpus_used + sum(part_of(source, source.delayed_s) for source in self.in_workers) / self.loop_s

    def cpus_text(self) -> str:
        """Describe how many CPUs the workers use."""
        text = f"use {self.cpus_used:.1f} of {self.settings.num_cpus} CPUs"
        if self.cpus_wanted > ROOM * self.cpus_used:
            return f"{text}, and would use {self.cpus_wanted:.1f} if they got them"
        return text

    @property
    def chosen_workers(self) -> str:
        """Describe the automatic choice of the number of workers; "" if the user sets it."""
        chosen = self.settings.chosen
        if chosen is None or not chosen.num_workers_reason:
            return ""
        return f'{self.workers_name}="auto" has chosen {chosen.num_workers} so far: {chosen.num_workers_reason}'

    @property
    def chosen_depth(self) -> str:
        """Describe the automatic choice of the prefetch depth; "" if the user sets it."""
        chosen = self.settings.chosen
        if chosen is None or not chosen.prefetch_depth_reason:
            return ""
        return f'{self.prefetch_name}="auto" has chosen {chosen.prefetch_depth} so far: {chosen.prefetch_depth_reason}'

    @property
    def workers_name(self) -> str:
        return "num_workers" if self.settings.kind == "loader" else "py_num_workers"

    @property
    def prefetch_name(self) -> str:
        return "prefetch_factor" if self.settings.kind == "loader" else "prefetch_queue_depth"

    def speedup(self, loading_s: float) -> float:
        """Return by which factor the loop would be faster if loading a batch took ``loading_s``."""
        return max(1.0, self.loop_s / max(self.work_s, loading_s, 1e-9))

    def waiting_text(self) -> str:
        """Describe how much the loop waits."""
        share = self.statistics.loop.wait_share
        return f"The loop waits {share:.0%} of the time, {seconds_text(self.wait_s)} of {seconds_text(self.loop_s)} a batch"


def busy_s_of(source: SourceStatistics) -> float:
    """Return the working time for one batch of a source."""
    return part_of(source, source.busy_s)


def part_of(source: SourceStatistics, seconds: float) -> float:
    """Return a total of a source per batch."""
    return seconds / max(source.batches, 1)
