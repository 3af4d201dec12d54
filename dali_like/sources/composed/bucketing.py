"""Batches of elements of similar length, and batches within a budget, made of blocks of inputs."""

from __future__ import annotations

import bisect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dali_like.errors import SampleError, SampleTypeError
from dali_like.sources.composed.blocks import RegroupingStage, in_random_order
from dali_like.sources.composed.elementwise import name_of
from dali_like.sources.composed.packing import fit
from dali_like.sources.composed.stage import Place

__all__ = ["Bucket", "Budget", "WithinBudget"]

#: An element, and its length or cost.
Measured = tuple[Any, float]


@dataclass(frozen=True)
class Bucket(RegroupingStage):
    """Batches of elements of similar length.

    Attributes:
        length: of an element.
        boundaries: ascending; bucket i has the elements with ``boundaries[i - 1] <= length < boundaries[i]``.
        batch_sizes: one more than boundaries.
        drop_rest: whether to drop the smaller batches at the end of a block.
    """

    length_of: Callable[[Any], float]
    boundaries: tuple[float, ...]
    batch_sizes: tuple[int, ...]
    drop_rest: bool

    @property
    def text(self) -> str:
        rest = "drop" if self.drop_rest else "keep"
        return (
            f"bucket({name_of(self.length_of)}, {list(self.boundaries)}, {list(self.batch_sizes)}, block={self.block}, "
            f"rest={rest})"
        )

    def admitted(self, element: Any) -> Measured:
        return element, _measured(self.length_of, element)

    def drafts(self, elements: list[Measured], place: Place, numbers: tuple[int, ...]) -> list[Any]:
        buckets: list[list[Any]] = [[] for _ in self.batch_sizes]
        for element, length in elements:
            buckets[bisect.bisect_right(self.boundaries, length)].append(element)
        batches = [
            bucket[begin : begin + size]
            for bucket, size in zip(buckets, self.batch_sizes, strict=True)
            for begin in range(0, len(bucket), size)
            if begin + size <= len(bucket) or not self.drop_rest
        ]
        return in_random_order(batches, place, numbers)


@dataclass(frozen=True)
class Budget(RegroupingStage):
    """Batches whose cost stays within a budget.

    Attributes:
        budget: limit of the cost of a batch.
        cost: of an element.
        padded: whether a batch costs its largest element times its size, not the sum.
        most: limit of elements in a batch; None: no limit.
    """

    budget: float
    cost: Callable[[Any], float]
    padded: bool
    most: int | None

    @property
    def text(self) -> str:
        padded = ", padded=True" if self.padded else ""
        return f"batch_by_budget({self.budget}, {name_of(self.cost)}, block={self.block}{padded}, most={self.most})"

    def admitted(self, element: Any) -> Measured:
        cost = _measured(self.cost, element)
        if cost > self.budget:
            raise SampleError(
                f'an element has the cost {cost:.15g}, and a batch the budget {self.budget}. Pass too_large="drop", or '
                "a larger budget"
            )
        return element, cost

    def drafts(self, elements: list[Measured], place: Place, numbers: tuple[int, ...]) -> list[Any]:
        costs = [cost for _, cost in elements]
        groups = self._padded(costs) if self.padded else fit(np.array(costs)[:, None], [self.budget], self.most)
        return in_random_order([[elements[item][0] for item in group] for group in groups], place, numbers)

    def _padded(self, costs: list[float]) -> list[list[int]]:
        """Return groups of items of similar cost."""
        groups: list[list[int]] = []
        for item in sorted(range(len(costs)), key=costs.__getitem__):
            size = len(groups[-1]) + 1 if groups else 0
            if not size or size * costs[item] > self.budget or (self.most is not None and size > self.most):
                groups.append([])
            groups[-1].append(item)
        return groups


@dataclass(frozen=True)
class WithinBudget:
    """Whether an element fits into a batch: a function for `filter`."""

    budget: float
    cost: Callable[[Any], float]

    def __call__(self, element: Any) -> bool:
        return _measured(self.cost, element) <= self.budget


def _measured(function: Callable[[Any], float], element: Any) -> float:
    """Return the length or cost of an element.

    Raises:
        SampleError: it is negative, or not a number.
        SampleTypeError: it is of another type.
    """
    value = function(element)
    if not isinstance(value, (int, float, np.integer, np.floating)):
        raise SampleTypeError(f"{name_of(function)} should return a number, but it returned a {type(value).__qualname__}")
    if not value >= 0:
        raise SampleError(f"{name_of(function)} should return a number from 0 on, but it returned {value}")
    return float(value)
