"""Compare the published loops of several ranks: which one makes the others wait, and for which of its stages.

In a job with several ranks, each step ends when the slowest rank has its batch: the others wait in the collective operations
of their own step. So they seem to work longer, and only the slowest rank waits for data. The loops are snapshots of
`dali_like.monitor.show.live`, of one machine.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from typing import Any

from dali_like.monitor.measure.text import seconds_text

__all__ = ["slowest_rank_text"]

#: Below this share of waiting, loading holds nobody up.
_LITTLE_WAITING = 0.1
#: A rank that waits this many times as long as the others holds the job up.
_FACTOR = 1.5


def slowest_rank_text(snapshots: Iterable[Mapping[str, Any]]) -> str:
    """Tell which rank holds the job up, and for which stage it waits; "" with fewer than two ranks.

    Args:
        snapshots: see `dali_like.monitor.show.live.snapshot`; those without ranks or batches do not count.
    """
    of_ranks = [shown for shown in snapshots if shown["num_ranks"] > 1 and shown["recent"]["batches"]]
    by_rank: dict[int, Mapping[str, Any]] = {}
    for shown in of_ranks:  # of several loops of a rank, such as training and validation, the one that has waited longest
        rank = shown["rank"]
        if rank not in by_rank or _wait_s(shown) > _wait_s(by_rank[rank]):
            by_rank[rank] = shown
    if len(by_rank) < 2:
        return ""
    slowest = max(by_rank, key=lambda rank: _wait_s(by_rank[rank]))
    waits_s = _wait_s(by_rank[slowest])
    others_s = statistics.median(_wait_s(shown) for rank, shown in by_rank.items() if rank != slowest)
    share = by_rank[slowest]["recent"]["wait_share"]
    if share < _LITTLE_WAITING:
        return f"No rank waits for data: rank {slowest} waits longest, {share:.0%} of its time."
    stages = by_rank[slowest]["recent"]["stages"]
    stage = f", stage {stages[0]['name']}," if stages else ""
    waiting = f"it waits {seconds_text(waits_s)} a batch for data, {share:.0%} of its time"
    if waits_s < _FACTOR * others_s:
        return f"All ranks wait for data alike; rank {slowest}{stage} the longest: {waiting}."
    return f"Rank {slowest}{stage or ','} holds the job up: {waiting}; the other ranks {seconds_text(others_s)}."


def _wait_s(shown: Mapping[str, Any]) -> float:
    return float(shown["recent"]["wait_s"])
