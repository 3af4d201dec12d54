"""Is a sample cheaper right after its neighbor? Workers count it in their meters; the main process reads the sums.

Samples of one chunk of a store, or of one file, are: the first of them reads the chunk. If several workers share a batch,
the first sample of each task then takes long, and the others do not. If samples just differ, the last sample of a task
takes longest as often as the first. So the difference of both counts shows neighbors, whatever the distribution of the
times is.

`dali_like.engine.pool.sharing` decides by these counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

#: One sample is slow if it takes this many times as long as the mean of the others.
_SLOW = 4

#: Words of a meter for the counts: first those of parts of batches, then those of whole batches.
NUM_WORDS = 10


class NeighborCounts(NamedTuple):
    """Counts of tasks whose samples were measured one by one.

    Attributes:
        tasks: number of tasks with several samples.
        first_slow, last_slow: of these, tasks whose first or last sample was slow.
        samples, ns: samples of all tasks, and their time.
    """

    tasks: int = 0
    first_slow: int = 0
    last_slow: int = 0
    samples: int = 0
    ns: int = 0

    def since(self, before: NeighborCounts) -> NeighborCounts:
        """Return the counts since earlier ones."""
        return NeighborCounts(*(now - then for now, then in zip(self, before, strict=True)))


def count_neighbors(words: memoryview[int], begin: int, times_ns: Sequence[int], *, is_whole: bool) -> None:
    """Count a task.

    Args:
        words: of the meter.
        begin: of the counts in these words.
        times_ns: the time of each sample, in order.
        is_whole: whether the task is a whole batch.
    """
    begin += is_whole * len(NeighborCounts._fields)
    total_ns, others = sum(times_ns), len(times_ns) - 1
    if others:
        words[begin] += 1
        for place, ns in ((1, times_ns[0]), (2, times_ns[-1])):
            words[begin + place] += ns * others > _SLOW * (total_ns - ns)
    words[begin + 3] += len(times_ns)
    words[begin + 4] += total_ns


def counts_of(words: Sequence[int]) -> tuple[NeighborCounts, NeighborCounts]:
    """Return the counts of parts of batches, and those of whole batches, from their words."""
    half = len(NeighborCounts._fields)
    return NeighborCounts(*words[:half]), NeighborCounts(*words[half:])
