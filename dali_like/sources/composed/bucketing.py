"""Batches of elements of similar length, and batches within a budget, made of blocks of inputs."""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dali_like.sources.composed.blocks import RegroupingStage, in_random_order
from dali_like.sources.composed.costs import Budget, Cost, Measured
from dali_like.sources.composed.packers import fit
from dali_like.sources.composed.stage import Place

__all__ = ["Bucket", "BudgetBatches"]


@dataclass(frozen=True)
class Bucket(RegroupingStage):
    """Batches of elements of similar length.

    Attributes:
        length: of an element.
        boundaries: ascending; bucket i has the elements with ``boundaries[i - 1] <= length < boundaries[i]``.
        batch_sizes: one more than boundaries.
        drop_rest: whether to drop the smaller batches at the end of a block.
    """

    length_of: Cost
    boundaries: tuple[float, ...]
    batch_sizes: tuple[int, ...]
    drop_rest: bool

    @property
    def text(self) -> str:
        rest = "drop" if self.drop_rest else "keep"
        key = "" if self.length_of.names is None else f"[{self.length_of.names[0]!r}]"
        return (
            f"bucket({self.length_of.text}{key}, {list(self.boundaries)}, {list(self.batch_sizes)}, block={self.block}, "
            f"rest={rest})"
        )

    def admitted(self, element: Any) -> Measured:
        return self.length_of.measured(element)

    def drafts(self, elements: list[Measured], place: Place, numbers: tuple[int, ...]) -> list[Any]:
        buckets: list[list[Any]] = [[] for _ in self.batch_sizes]
        for element, (length,) in elements:
            buckets[bisect.bisect_right(self.boundaries, length)].append(element)
        batches = [
            bucket[begin : begin + size]
            for bucket, size in zip(buckets, self.batch_sizes, strict=True)
            for begin in range(0, len(bucket), size)
            if begin + size <= len(bucket) or not self.drop_rest
        ]
        return in_random_order(batches, place, numbers)


@dataclass(frozen=True)
class BudgetBatches(RegroupingStage):
    """Batches whose costs stay within a budget.

    Attributes:
        padded: whether a batch costs the maximum of its elements times its size, not the sum; for each cost.
        most: limit of elements in a batch; None: no limit.
        is_measured: whether the input has the costs of elements already, see `WithinBudget`.
    """

    budget: Budget
    padded: bool
    most: int | None
    is_measured: bool = False

    @property
    def text(self) -> str:
        padded = ", padded=True" if self.padded else ""
        return f"batch_by_budget({self.budget.text}, {self.budget.cost.text}, block={self.block}{padded}, most={self.most})"

    def admitted(self, element: Any) -> Measured:
        if self.is_measured:
            measured: Measured = element
            return measured
        return self.budget.admitted(element, "a batch", 'too_large="drop"')

    def drafts(self, elements: list[Measured], place: Place, numbers: tuple[int, ...]) -> list[Any]:
        costs = np.array([costs for _, costs in elements])
        groups = self._padded(costs) if self.padded else fit(costs, self.budget.limits, self.most)
        return in_random_order([[elements[item][0] for item in group] for group in groups], place, numbers)

    def _padded(self, costs: NDArray[np.float64]) -> list[list[int]]:
        """Return groups of items of similar costs."""
        limits = self.budget.limits
        order = np.argsort(costs[:, 0] if len(limits) == 1 else (costs / limits).sum(axis=1), kind="stable")
        groups: list[list[int]] = []
        largest = costs[0]
        for item in order.tolist():
            size = len(groups[-1]) + 1 if groups else 0
            largest = np.maximum(largest, costs[item])
            if not size or (size * largest > limits).any() or (self.most is not None and size > self.most):
                groups.append([])
                largest = costs[item]
            groups[-1].append(item)
        return groups
