"""Packers: they distribute elements of known costs to packs within a budget.

`PACKERS` has the packers of the library, and `OwnPacker` calls a user's function. A packer may leave elements out;
they come again with the next block, as its first ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dali_like.errors import SampleError, SampleTypeError
from dali_like.sources.composed.costs import by_name
from dali_like.sources.composed.elementwise import name_of

__all__ = ["PACKERS", "OwnPacker", "Packer", "Task", "fit"]

#: A pack that is emptier than this is left for the next block, as long as few of the elements are left.
_FULL = 0.995
_MOST_LEFT = 1 / 4

Groups = list[list[int]]


class Task(NamedTuple):
    """Elements to distribute.

    Attributes:
        costs: of shape ``(elements, costs)``.
        limits: of a pack, one for each cost; None: there is no budget.
        most: limit of elements in a pack; None: no limit.
        num_left: the first elements were left out of the block before.
        is_last: whether these are the last elements of the shard.
        names: of the costs; None: there is one, without a name.
    """

    costs: NDArray[np.float64]
    limits: tuple[float, ...] | None
    most: int | None
    num_left: int
    is_last: bool
    names: tuple[str, ...] | None


@dataclass(frozen=True)
class Packer:
    """A packer of the library.

    Attributes:
        text: its name in descriptions.
        function: returns the elements of each pack, ascending. Elements in none of them are left out.
        leaves: whether it may leave elements out.
    """

    text: str
    function: Callable[[Task], Groups]
    leaves: bool = False
    #: Whether the packs of a block come in random order.
    is_random = True

    def groups(self, task: Task, generator: np.random.Generator) -> Groups:
        """Return the elements of each pack, the least filled one last."""
        return self.function(task)


@dataclass(frozen=True)
class OwnPacker:
    """A function of the user's. Its packs stay in its order."""

    function: Callable[[Any, np.random.Generator], Any]
    leaves = True
    is_random = False

    @property
    def text(self) -> str:
        return name_of(self.function)

    def groups(self, task: Task, generator: np.random.Generator) -> Groups:
        """Return the checked elements of each pack.

        Raises:
            SampleTypeError: they are not lists of indices.
            SampleError: an index is wrong, comes twice, or a pack is empty, too large or above the budget.
        """
        found = self.function(by_name(task.names, task.costs.copy()), generator)
        try:
            groups = [np.asarray(group).reshape(-1) for group in found]
        except (TypeError, ValueError) as error:
            raise SampleTypeError(f"{self.text} should return lists of indices, but returned {found!r:.200}") from error
        for number, group in enumerate(groups):
            if group.size and group.dtype.kind not in "iu":
                raise SampleTypeError(
                    f"{self.text} should return lists of indices, but group {number} is {found[number]!r:.200}"
                )
        self._check([group.astype(np.int64) for group in groups], task)
        return [group.tolist() for group in groups]

    def _check(self, groups: Sequence[NDArray[np.int64]], task: Task) -> None:
        count = len(task.costs)
        seen = np.zeros(count, bool)
        for number, group in enumerate(groups):
            if not group.size:
                raise SampleError(f"{self.text} has returned an empty group, number {number}")
            if group.min() < 0 or group.max() >= count:
                raise SampleError(f"{self.text} has returned the indices {group.tolist()} for {count} elements")
            if seen[group].any() or len(np.unique(group)) < group.size:
                raise SampleError(f"{self.text} has returned an element twice; group {number} has {group.tolist()}")
            seen[group] = True
            if task.most is not None and group.size > task.most:
                raise SampleError(
                    f"group {number} of {self.text} has {group.size} elements, and at most {task.most} may be in one"
                )
            total = task.costs[group].sum(axis=0)
            if task.limits is not None and (total > task.limits).any():
                raise SampleError(
                    f"group {number} of {self.text} costs {_shown(total)}, and the budget of a pack is {_shown(task.limits)}"
                )


def _shown(numbers: Sequence[float] | NDArray[np.float64]) -> str:
    return ", ".join(f"{number:.15g}" for number in numbers)


# First fit and best fit


def fit(sizes: NDArray[Any], capacities: Sequence[float], most: int | None = None, best: bool = False) -> Groups:
    """Distribute items to bins, the largest first. An item that fits into no bin opens another one.

    Args:
        sizes: of shape ``(items, dimensions)``, none larger than the capacities.
        capacities: of a bin in each dimension.
        most: limit of items in a bin.
        best: take the bin with the least free space, in all dimensions together, not the first one.

    Returns:
        The items of each bin, ascending.

    >>> fit(np.array([[3], [6], [5], [4], [2]]), [10])
    [[1, 3], [0, 2, 4]]
    """
    bins: Groups = []
    rooms = [np.full(len(sizes), capacity, float) for capacity in capacities]
    order = np.argsort(-(sizes / capacities).sum(axis=1), kind="stable")
    for item, size in zip(order.tolist(), sizes[order].tolist(), strict=True):
        number = _bin_for(size, [room[: len(bins) + 1] for room in rooms], best)
        if number == len(bins):
            bins.append([])
        bins[number].append(item)
        for room, needed in zip(rooms, size, strict=True):
            room[number] -= needed
        if len(bins[number]) == most:
            rooms[0][number] = -1
    return [sorted(items) for items in bins]


def _bin_for(size: list[float], rooms: list[NDArray[Any]], best: bool) -> int:
    """Return the bin for an item. `rooms` is the free space of the bins by dimension; the last bin is empty."""
    fits = rooms[0] >= size[0]
    for room, needed in zip(rooms[1:], size[1:], strict=True):
        fits &= room >= needed
    return int((np.where(fits, -sum(rooms), -np.inf) if best else fits).argmax())


def _first_fit(task: Task) -> Groups:
    assert task.limits is not None
    return fit(task.costs, task.limits, task.most)


def _best_fit(task: Task) -> Groups:
    assert task.limits is not None
    return fit(task.costs, task.limits, task.most, best=True)


# Knapsack


def _knapsack(task: Task) -> Groups:
    """Fill one pack after another: its first element, and then elements that leave the least of the scarcest cost unused.

    The elements that were left out before begin packs first, the largest one of them first. Then the largest of the others
    do. Packs that are not full are left for the next block, unless they have an element that was left out before.
    """
    assert task.limits is not None
    relative = task.costs / task.limits
    relative = relative[:, np.argsort(-relative.sum(axis=0), kind="stable")]  # the scarcest one first
    order = np.argsort(-relative.max(axis=1), kind="stable")
    is_free = np.ones(len(relative), bool)
    by_fill = np.lexsort((-relative[:, 1:].sum(axis=1), relative[:, 0]))  # of equal ones, the cheapest otherwise last
    groups: Groups = []
    for first in [*order[order < task.num_left].tolist(), *order[order >= task.num_left].tolist()]:
        if not is_free[first]:
            continue
        is_free[first] = False
        group, room = [first], 1 - relative[first] + _ROUNDING
        while chosen := _fillers(relative, by_fill[is_free[by_fill]], room, _most_more(task.most, group)):
            group += chosen
            is_free[chosen] = False
            room = room - relative[chosen].sum(axis=0)
        groups.append(sorted(group))
    return groups if task.is_last else _without_emptiest(groups, relative, task.num_left)


#: Of a budget: sums of costs may be rounded.
_ROUNDING = 1e-12


def _most_more(most: int | None, group: list[int]) -> int:
    return 2 if most is None else min(most - len(group), 2)


def _fillers(
    relative: NDArray[np.float64], candidates: NDArray[np.int64], room: NDArray[np.float64], most: int
) -> list[int]:
    """Return one or two elements that fit into a room and use most of its first cost; none if none fits.

    Args:
        candidates: elements, ascending by their first cost.
    """
    if most < 1:
        return []
    candidates = candidates[(relative[candidates] <= room).all(axis=1)]
    if not len(candidates):
        return []
    single = int(candidates[-1])
    if most < 2 or len(candidates) < 2:
        return [single]
    pair = _best_pair(relative[candidates], room)
    if pair is None:
        return [single]
    chosen = [int(candidates[pair[0]]), int(candidates[pair[1]])]
    return chosen if relative[chosen, 0].sum() >= relative[single, 0] else [single]


def _best_pair(sizes: NDArray[np.float64], room: NDArray[np.float64]) -> tuple[int, int] | None:
    """Return the numbers of two elements within a room with the largest sum of the first cost.

    Of several costs, only the best partner of each element by the first cost is tried.

    Args:
        sizes: ascending by the first cost.
    """
    first = sizes[:, 0]
    numbers = np.arange(len(sizes))
    partners = np.minimum(np.searchsorted(first, room[0] - first, side="right") - 1, numbers - 1)
    fits = partners >= 0
    fits &= (sizes + sizes[partners] <= room).all(axis=1)
    sums = np.where(fits, first + first[partners], -1)
    best = int(sums.argmax())
    return (int(partners[best]), best) if sums[best] >= 0 else None


def _without_emptiest(groups: Groups, relative: NDArray[np.float64], num_left: int) -> Groups:
    """Return the packs without the emptiest ones, unless these are full or have an element that was left out before."""
    fills = [float(relative[group].sum(axis=0).max()) for group in groups]
    rest = int(len(relative) * _MOST_LEFT)
    dropped = set()
    for number in sorted(range(len(groups)), key=fills.__getitem__):
        if fills[number] >= _FULL:
            break
        if groups[number][0] < num_left:
            continue
        rest -= len(groups[number])
        if rest < 0:
            break
        dropped.add(number)
    return [group for number, group in enumerate(groups) if number not in dropped]


# Balanced packs


def _balanced(task: Task) -> Groups:
    """Return as few packs as possible, with nearly equal costs: the largest elements first, to the least filled pack."""
    assert task.limits is not None
    relative = task.costs / task.limits
    order = np.argsort(-relative.max(axis=1), kind="stable").tolist()
    fewest = max(1, int(np.ceil(relative.sum(axis=0).max() - _ROUNDING)), -(-len(relative) // (task.most or len(relative))))
    count = fewest
    while (groups := _spread(relative, order, count, task.most)) is None:
        count += 1 + count // 64  # at most 2 % more than needed, and few attempts
    return groups


def _spread(relative: NDArray[np.float64], order: list[int], count: int, most: int | None) -> Groups | None:
    """Return up to `count` packs; None if the elements do not fit."""
    groups: Groups = [[] for _ in range(count)]
    loads = np.zeros((count, relative.shape[1]))
    is_closed = np.zeros(count, bool)
    for item in order:
        filled = (loads + relative[item]).max(axis=1)
        filled[is_closed] = np.inf
        number = int(filled.argmin())
        if filled[number] > 1 + _ROUNDING:
            return None
        loads[number] += relative[item]
        groups[number].append(item)
        is_closed[number] = len(groups[number]) == most
    return [sorted(group) for group in groups if group]


#: The packers of the library, by name.
PACKERS: Mapping[str, Packer] = MappingProxyType(
    {
        "first_fit": Packer("first_fit", _first_fit),
        "best_fit": Packer("best_fit", _best_fit),
        "knapsack": Packer("knapsack", _knapsack, leaves=True),
        "balanced": Packer("balanced", _balanced),
    }
)
