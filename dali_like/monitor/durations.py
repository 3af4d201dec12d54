"""How long something takes, each time: counted in bins, so that any number of times takes the same room."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Self

from dali_like.engine.worker.meters import NUM_BINS, Recorder, edges_ns

#: Where the bins begin, in seconds; one more than there are, since the last ends, too.
EDGES_S: tuple[float, ...] = tuple((edges_ns() / 1e9).tolist())


@dataclass(frozen=True)
class Durations:
    """How long something has taken, each time.

    The quantiles are those of bins, four to each doubling: they are right to about a tenth. Times below 256 ns are not told
    apart.

    Attributes:
        total_s: all together, in seconds. Exact, where each time was measured.
        counts: how often it took how long, by bin; see `EDGES_S`.
    """

    total_s: float = 0.0
    counts: tuple[int, ...] = (0,) * NUM_BINS

    @cached_property
    def count(self) -> int:
        """How often it has happened."""
        return sum(self.counts)

    @property
    def mean_s(self) -> float:
        """The average; 0 if there is none."""
        return self.total_s / self.count if self.count else 0.0

    @property
    def median_s(self) -> float:
        """Half of the times are below."""
        return self.quantile_s(0.5)

    @property
    def p90_s(self) -> float:
        """Nine of ten times are below."""
        return self.quantile_s(0.9)

    @property
    def p99_s(self) -> float:
        """All but one of a hundred times are below."""
        return self.quantile_s(0.99)

    def quantile_s(self, share: float) -> float:
        """The time that such a share of all times is below; 0 if there is none."""
        wanted = share * self.count
        if not wanted:
            return 0.0
        for i, (count, below) in enumerate(zip(self.counts, itertools.accumulate(self.counts), strict=True)):
            if count and below >= wanted:
                within = (wanted - below + count) / count
                return EDGES_S[i] + within * (EDGES_S[i + 1] - EDGES_S[i])
        return EDGES_S[-1]

    def since(self, earlier: Self) -> Durations:
        """Those that have come since an earlier moment."""
        counts = tuple(max(0, now - before) for now, before in zip(self.counts, earlier.counts, strict=True))
        return Durations(max(0.0, self.total_s - earlier.total_s), counts)

    @classmethod
    def recorded(cls, recorder: Recorder) -> Durations:
        """What has been counted so far."""
        return cls(recorder.total_ns / 1e9, tuple(recorder.counts))

    @classmethod
    def of(cls, seconds: Iterable[float]) -> Durations:
        """Of single times, in seconds."""
        recorder = Recorder()
        for each in seconds:
            recorder.add(round(each * 1e9))
        return cls.recorded(recorder)
