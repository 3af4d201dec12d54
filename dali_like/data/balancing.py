"""Equal cost on all ranks: deals the elements of a step to the ranks. Runs in the main process of each rank.

All ranks compute the same deal from the same costs, in the same order, so nothing is exchanged. The largest elements go
first, each to the rank with the least cost that has room. Then elements of the dearest rank are exchanged for cheaper ones
of others, as long as that helps.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import NamedTuple

__all__ = ["Balance", "BalanceFigures", "dealt", "lower_bound"]

#: Exchanges end when the dearest rank is within this factor of the lower bound, or after so many of them for each rank.
_GOOD_ENOUGH = 1.001
_MOST_EXCHANGES = 8


def dealt(costs: Sequence[float], counts: Sequence[int]) -> list[list[int]]:
    """Return the indices of the elements of each rank, ascending.

    Args:
        costs: of the elements.
        counts: the number of elements of each rank; together, all elements.

    >>> dealt([9.0, 1.0, 5.0, 4.0, 2.0, 3.0], [3, 3])
    [[0, 1, 4], [2, 3, 5]]
    """
    order = sorted(range(len(costs)), key=lambda i: (-costs[i], i))
    groups: list[list[int]] = [[] for _ in counts]
    sums = [0.0] * len(counts)
    room = [(0.0, rank) for rank, count in enumerate(counts) if count]
    for i in order:
        _, rank = room[0]
        groups[rank].append(i)
        sums[rank] += costs[i]
        if len(groups[rank]) < counts[rank]:
            heapq.heapreplace(room, (sums[rank], rank))
        else:
            heapq.heappop(room)
    _exchange(costs, groups, sums, lower_bound(costs, counts) * _GOOD_ENOUGH)
    return [sorted(group) for group in groups]


def lower_bound(costs: Sequence[float], counts: Sequence[int]) -> float:
    """Return a cost that the dearest rank has at least.

    It is the mean, or more: of R ranks, one has at least k + 1 of the k R + 1 largest elements.
    """
    ordered = sorted(costs)
    ranks = [count for count in counts if count]
    if not ordered:
        return 0.0
    fewest, bound = min(ranks), sum(ordered) / len(counts)
    for k in range(fewest):
        end = len(ordered) - k * len(ranks)  # behind the smallest of the k R + 1 largest elements
        bound = max(bound, sum(ordered[end - 1 : end + k]) + sum(ordered[: fewest - k - 1]))
    return bound


def _exchange(costs: Sequence[float], groups: list[list[int]], sums: list[float], enough: float) -> None:
    """Exchange elements between the dearest group and others. Groups are in descending order of costs, and stay so."""
    for _ in range(_MOST_EXCHANGES * len(groups)):
        dearest = max(range(len(groups)), key=lambda rank: (sums[rank], -rank))
        if sums[dearest] <= enough:
            return
        found = _best_exchange(costs, groups, sums, dearest)
        if found is None:
            return
        other, mine, theirs = found
        first, second = groups[dearest][mine], groups[other][theirs]
        groups[dearest][mine], groups[other][theirs] = second, first
        for rank in (dearest, other):
            groups[rank].sort(key=lambda i: (-costs[i], i))
            sums[rank] = sum(costs[i] for i in groups[rank])


def _best_exchange(
    costs: Sequence[float], groups: Sequence[Sequence[int]], sums: Sequence[float], dearest: int
) -> tuple[int, int, int] | None:
    """Return the exchange after which the dearer one of two groups is cheapest: the other group, and the two places."""
    best: tuple[float, int, int, int] | None = None
    for other in sorted(range(len(groups)), key=lambda rank: (sums[rank], rank)):
        gap = sums[dearest] - sums[other]
        if other == dearest or gap <= 0:
            continue
        theirs = [-costs[i] for i in groups[other]]  # ascending
        for mine, i in enumerate(groups[dearest]):
            place = bisect_left(theirs, -(costs[i] - gap / 2))
            for near in (place - 1, place):
                if 0 <= near < len(theirs):
                    moved = costs[i] + theirs[near]
                    after = max(sums[dearest] - moved, sums[other] + moved)
                    if after < sums[dearest] and (best is None or after < best[0]):
                        best = after, other, mine, near
        if best is not None and best[0] <= (sums[dearest] + sums[other]) / 2 * _GOOD_ENOUGH:
            break  # as good as equal
    return None if best is None else best[1:]


class BalanceFigures(NamedTuple):
    """Sums over steps.

    Attributes:
        steps: how many have been dealt.
        dearest: the cost of the dearest rank.
        in_order: the same without balance: the positions of each rank in order.
        mean: the mean cost of the ranks.
        bound: the lower bound of the cost of the dearest rank.
    """

    steps: int = 0
    dearest: float = 0.0
    in_order: float = 0.0
    mean: float = 0.0
    bound: float = 0.0


class Balance:
    """Deals the steps of a composed dataset with random access.

    Args:
        cost_of: returns the cost of the element at a position over all epochs.

    Attributes:
        figures: of the steps so far.
    """

    def __init__(self, cost_of: Callable[[int], float]) -> None:
        self._cost_of = cost_of
        self.figures = BalanceFigures()

    def deal(self, stripes: Sequence[Sequence[int]], rank: int) -> list[int]:
        """Return the positions of a rank in a step, ascending.

        Args:
            stripes: the positions of each rank without balance.
        """
        cost_of = self._cost_of
        positions = sorted(position for stripe in stripes for position in stripe)
        costs = list(map(cost_of, positions))
        counts = list(map(len, stripes))
        groups = dealt(costs, counts)
        before = self.figures
        self.figures = BalanceFigures(
            before.steps + 1,
            before.dearest + max(sum(costs[i] for i in group) for group in groups),
            before.in_order + max(sum(map(cost_of, stripe)) for stripe in stripes),
            before.mean + sum(costs) / len(counts),
            before.bound + lower_bound(costs, counts),
        )
        return [positions[i] for i in groups[rank]]
