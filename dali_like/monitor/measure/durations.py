"""Histogram of durations: any number of them takes constant memory."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Self

from dali_like.engine.worker.meters import NUM_BINS, Recorder, edges_ns

#: Edges of the bins, in seconds: one more than there are bins.
EDGES_S: tuple[float, ...] = tuple((edges_ns() / 1e9).tolist())


@dataclass(frozen=True, repr=False)
class Durations:
    """Durations of one kind of event.

    Quantiles come from bins, four per doubling, and are right to about ten percent. All durations below 256 ns share a bin.

    Attributes:
        total_s: sum in seconds; exact if each event was measured.
        counts: events per bin; see `EDGES_S`.
    """

    total_s: float = 0.0
    counts: tuple[int, ...] = (0,) * NUM_BINS

    def __repr__(self) -> str:
        """Show the main figures rather than all bins, so that statistics can be printed."""
        return f"<Durations count={self.count} mean_s={self.mean_s:.3g} p90_s={self.p90_s:.3g} p99_s={self.p99_s:.3g}>"

    @cached_property
    def count(self) -> int:
        """Number of events."""
        return sum(self.counts)

    @property
    def mean_s(self) -> float:
        """Mean in seconds; 0 without events."""
        return self.total_s / self.count if self.count else 0.0

    @property
    def median_s(self) -> float:
        """Median in seconds."""
        return self.quantile_s(0.5)

    @property
    def p90_s(self) -> float:
        """90th percentile in seconds."""
        return self.quantile_s(0.9)

    @property
    def p99_s(self) -> float:
        """99th percentile in seconds."""
        return self.quantile_s(0.99)

    def quantile_s(self, share: float) -> float:
        """Return a quantile in seconds, ``share`` from 0 to 1; 0 without events."""
        wanted = share * self.count
        if not wanted:
            return 0.0
        for i, (count, below) in enumerate(zip(self.counts, itertools.accumulate(self.counts), strict=True)):
            if count and below >= wanted:
                within = (wanted - below + count) / count
                return EDGES_S[i] + within * (EDGES_S[i + 1] - EDGES_S[i])
        return EDGES_S[-1]

    def share_of_slowest(self, share: float) -> float:
        """Return the part of the total time that the slowest events take, from 0 to 1; ``share`` of all events, 0 to 1.

        >>> round(Durations.of([0.001] * 99 + [0.1]).share_of_slowest(0.01), 1)
        0.5
        """
        means_s = [(begin + end) / 2 for begin, end in itertools.pairwise(EDGES_S)]
        total_s = sum(count * mean_s for count, mean_s in zip(self.counts, means_s, strict=True))
        left, slowest_s = share * self.count, 0.0
        for count, mean_s in zip(reversed(self.counts), reversed(means_s), strict=True):
            taken = min(count, left)
            slowest_s += taken * mean_s
            left -= taken
        return slowest_s / total_s if total_s else 0.0

    def since(self, earlier: Self) -> Durations:
        """Return the durations recorded since an earlier moment."""
        counts = tuple(max(0, now - before) for now, before in zip(self.counts, earlier.counts, strict=True))
        return Durations(max(0.0, self.total_s - earlier.total_s), counts)

    @classmethod
    def recorded(cls, recorder: Recorder) -> Durations:
        """Copy the counts of a recorder."""
        return cls(recorder.total_ns / 1e9, tuple(recorder.counts))

    @classmethod
    def of(cls, seconds: Iterable[float]) -> Durations:
        """Make a histogram of durations in seconds."""
        recorder = Recorder()
        for each in seconds:
            recorder.add(round(each * 1e9))
        return cls.recorded(recorder)
