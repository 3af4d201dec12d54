"""Tell a loader's user when PyTorch's loader would be as fast: a pure function of the statistics.

This library saves the costs between the dataset and the loop: pickles, copies, collation. Where these are small beside the
time of the dataset, or nobody waits for them, another loader is as fast.
"""

from __future__ import annotations

from dali_like.monitor.measure.statistics import Statistics

__all__ = ["why_as_fast_as_torch"]

#: Fewer batches tell nothing.
_LEAST_BATCHES = 10
#: From this share of the time inside the dataset on, loaders hardly differ.
_MOSTLY = 0.9
#: Workers that are busy for less than this share have time for higher costs, if the loop waits for less than that share.
_OFTEN_IDLE, _HARDLY = 0.4, 0.05


def why_as_fast_as_torch(statistics: Statistics) -> str:
    """Return a sentence that says why PyTorch's loader would be about as fast; "" if it would not be."""
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
