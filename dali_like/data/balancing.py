"""Equal cost on all ranks: deals the elements of a step to the ranks. Runs in the main process of each rank.

All ranks compute the same deal from the same costs, in the same order, so nothing is exchanged. The largest elements go
first, each to the rank with the least cost that has room. Then elements of the dearest rank are exchanged for cheaper ones
of others, as long as that helps.
"""

from __future__ import annotations

import heapq
import operator
from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from typing import NamedTuple

__all__ = ["Balance", "BalanceFigures", "Candidate", "chosen", "dealt", "lower_bound"]

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


#: An output that may be chosen: its cost and its number.
Candidate = tuple[float, int]

#: An element with more than this part of the cost of a batch leaves no room for others.
_HEAVY = 0.9
#: A sum is near enough to its target within this part of it.
_CLOSE = 0.001


def chosen(
    candidates: Sequence[Sequence[Candidate]], counts: Sequence[int], target: float, due: Sequence[int], has_heavy: bool
) -> list[list[Candidate]]:
    """Choose a number of candidates from each group, so that the sum of all costs is near a target.

    The oldest ones are the first choice. Then one after the other is replaced, each time by the candidate that brings the
    sum nearest to the target. A heavy one takes a batch for itself. It is chosen in a step for heavy ones, or when it is
    due: if all ranks have theirs in the same steps, fewer steps are dear.

    Args:
        candidates: of each group, with ascending costs.
        counts: how many to choose from each; there are as many candidates.
        target: of the sum.
        due: numbers below these ones, for each group, are chosen first.
        has_heavy: whether this is a step for a heavy candidate.

    >>> chosen([[(1.0, 3), (2.0, 1), (7.0, 0)], [(4.0, 2), (5.0, 4)]], [1, 1], 6.0, [0, 0], False)
    [[(2.0, 1)], [(4.0, 2)]]
    """
    place_of_heavy, heavy = _heavy_candidate(candidates, target * _HEAVY, due, has_heavy)
    groups: list[list[Candidate]] = []
    others: list[list[Candidate]] = []
    for place, (group, count) in enumerate(zip(candidates, counts, strict=True)):
        mine = [heavy] if heavy is not None and place == place_of_heavy else []
        light = [each for each in group if each[0] <= target * _HEAVY]
        if len(light) + len(mine) < count:
            light = [each for each in group if each not in mine]
        light.sort(key=operator.itemgetter(1))
        missing = count - len(mine)
        groups.append(mine + light[:missing])
        others.append(sorted(light[missing:]))
    _replace_some(groups, others, due, max(target, heavy[0]) if heavy is not None else target, heavy)
    return groups


def _heavy_candidate(
    candidates: Sequence[Sequence[Candidate]], limit: float, due: Sequence[int], has_heavy: bool
) -> tuple[int, Candidate | None]:
    """Return the heavy candidate that should be chosen, with the number of its group."""
    heavy = [(each, place) for place, group in enumerate(candidates) for each in group if each[0] > limit]
    overdue = [(each, place) for each, place in heavy if each[1] < due[place]]
    if overdue:
        each, place = min(overdue, key=lambda found: (found[0][1], found[1]))
        return place, each
    if not (has_heavy and heavy):
        return 0, None
    each, place = max(heavy)
    return place, each


def _replace_some(
    groups: Sequence[list[Candidate]],
    others: Sequence[list[Candidate]],
    due: Sequence[int],
    target: float,
    heavy: Candidate | None,
) -> None:
    """Replace candidates in groups by others, as long as the sum of all costs comes nearer to a target."""
    gap = target - sum(cost for group in groups for cost, _ in group)
    for _ in range(sum(map(len, groups))):
        best = abs(gap)
        if best <= _CLOSE * target:
            return
        found: tuple[int, int, int] | None = None
        for place, (group, rest) in enumerate(zip(groups, others, strict=True)):
            for i, (cost, number) in enumerate(group):
                if number < due[place] or group[i] == heavy:
                    continue
                near = bisect_left(rest, (cost + gap, -1))
                for j in (near - 1, near):
                    if 0 <= j < len(rest) and abs(gap + cost - rest[j][0]) < best:
                        best, found = abs(gap + cost - rest[j][0]), (place, i, j)
        if found is None:
            return
        place, i, j = found
        one, other = groups[place][i], others[place].pop(j)
        groups[place][i] = other
        insort(others[place], one)
        gap += one[0] - other[0]


class BalanceFigures(NamedTuple):
    """Sums over steps.

    Attributes:
        steps: how many have been dealt.
        dearest: the cost of the dearest rank.
        in_order: the same without balance: the positions of each rank in order.
        mean: the mean cost of the ranks.
        bound: the lower bound of the cost of the dearest rank.
        batches: of this rank, whose elements have been chosen in logical shards.
        deviations: absolute deviations of their costs from the mean cost so far, as parts of it.
        deviations_in_order: the same without balance.
    """

    steps: int = 0
    dearest: float = 0.0
    in_order: float = 0.0
    mean: float = 0.0
    bound: float = 0.0
    batches: int = 0
    deviations: float = 0.0
    deviations_in_order: float = 0.0


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
