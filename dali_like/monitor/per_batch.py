"""What a batch costs a loop, on the average: what `dali_like.monitor.diagnosis` reckons with."""

from __future__ import annotations

import math
from functools import cached_property

from dali_like.engine.pool.settings import MOST_WORKERS
from dali_like.monitor.statistics import SourceStatistics, Statistics
from dali_like.monitor.text import seconds_text

#: More CPUs, by this factor, than workers use now are worth more workers.
ROOM = 1.15


class PerBatch:
    """What a batch costs, on the average, in seconds.

    Attributes:
        work_s, wait_s, loop_s: of the loop: its work, its waiting, both.
        in_workers: the sources that workers make.
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
        """What is called in the main process, where no operators run ahead."""
        return min(self.wait_s, sum(busy_s_of(source) for source in self.statistics.sources if source.place != "workers"))

    @property
    def waited_for_operators_s(self) -> float:
        return min(self.wait_s, self.statistics.loop.waited_for_operators_s / self._count)

    @property
    def waited_for_copies_s(self) -> float:
        return min(self.wait_s, self.statistics.copies.waited_s / max(self.statistics.copies.batches, 1))

    @property
    def waited_for_workers_s(self) -> float:
        """Without the first batch, for which workers are started."""
        loop = self.statistics.loop
        return min(self.wait_s, max(0.0, loop.waited_for_workers_s - loop.first_batch_s) / self._count)

    @property
    def unexplained_s(self) -> float:
        """What the main process does when it does not wait: it puts batches together."""
        explained = self.serial_s + self.waited_for_operators_s + self.waited_for_copies_s + self.waited_for_workers_s
        return max(0.0, self.wait_s - explained)

    @property
    def busy_s(self) -> float:
        """What all workers do for a batch."""
        return sum(map(busy_s_of, self.in_workers))

    @property
    def cpus_used(self) -> float:
        """How many CPUs the workers use, on the average."""
        return sum(part_of(source, source.cpu_s) for source in self.in_workers) / self.loop_s

    @property
    def num_workers(self) -> int:
        return max(self.settings.num_workers, 1)

    @property
    def most_workers(self) -> int:
        """As many workers as the CPUs can keep as busy as those that there are."""
        return min(MOST_WORKERS, math.floor(self.num_workers * self.settings.num_cpus / max(self.cpus_wanted, 1e-9)))

    @property
    def cpus_wanted(self) -> float:
        """How many they would use if other processes did not."""
        return self.cpus_used + sum(part_of(source, source.delayed_s) for source in self.in_workers) / self.loop_s

    def cpus_text(self) -> str:
        """How many CPUs the workers use."""
        text = f"use {self.cpus_used:.1f} of {self.settings.num_cpus} CPUs"
        if self.cpus_wanted > ROOM * self.cpus_used:
            return f"{text}, and would use {self.cpus_wanted:.1f} if they got them"
        return text

    @property
    def chosen_workers(self) -> str:
        """What is to be said of the number of workers, where the pipeline or loader chooses it; else ""."""
        chosen = self.settings.chosen
        if chosen is None or not chosen.num_workers_reason:
            return ""
        return f'{self.workers_name}="auto" has chosen {chosen.num_workers} so far: {chosen.num_workers_reason}'

    @property
    def chosen_depth(self) -> str:
        """The same of the batches ahead."""
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
        """How many times as fast the loop would be if making a batch took so long."""
        return max(1.0, self.loop_s / max(self.work_s, loading_s, 1e-9))

    def waiting_text(self) -> str:
        """How much the loop waits."""
        share = self.statistics.loop.wait_share
        return f"The loop waits {share:.0%} of the time, {seconds_text(self.wait_s)} of {seconds_text(self.loop_s)} a batch"


def busy_s_of(source: SourceStatistics) -> float:
    """What a batch of a source takes those who make it."""
    return part_of(source, source.busy_s)


def part_of(source: SourceStatistics, seconds: float) -> float:
    return seconds / max(source.batches, 1)
