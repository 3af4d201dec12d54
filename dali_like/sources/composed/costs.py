"""Costs of elements, such as tokens and pixels: numbers that a user's function returns, one or several with names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dali_like.common.articles import kind_of
from dali_like.errors import ArgumentError, ArgumentTypeError, SampleError, SampleTypeError
from dali_like.sources.composed.elementwise import name_of

__all__ = ["Budget", "Cost", "Measured", "WithinBudget", "budget_of", "by_name"]

#: The costs of an element, one for each name.
Numbers = tuple[float, ...]

#: An element and its costs. Each is measured once.
Measured = tuple[Any, Numbers | dict[Any, float]]

#: The name of the cost of a function that returns a number.
_PLAIN = ("cost",)


@dataclass(frozen=True)
class Cost:
    """Measures elements.

    Attributes:
        function: returns a number, or a mapping from name to number.
        names: of the costs in a mapping; others are ignored. None: the function returns a number.
    """

    function: Callable[[Any], Any]
    names: tuple[Any, ...] | None = None

    @property
    def text(self) -> str:
        """The name of the function."""
        return name_of(self.function)

    def numbers(self, element: Any) -> Numbers:
        """Return the costs of an element.

        Raises:
            SampleError: one is negative, not a number, or missing.
            SampleTypeError: one is of another type.
        """
        value = self.function(element)
        if self.names is None:
            return (self._checked(value, ""),)
        if not isinstance(value, Mapping):
            raise SampleTypeError(
                f"{self.text} should return a mapping with {', '.join(self.names)}, but it returned {kind_of(value)}"
            )
        for name in self.names:
            if name not in value:
                raise SampleError(
                    f"{self.text} should return a mapping with {name!r}, but it has {', '.join(map(str, value))}"
                )
        return tuple(self._checked(value[name], f" as {name!r}") for name in self.names)

    def any_numbers(self, element: Any) -> Numbers | dict[Any, float]:
        """Return the cost of an element, or its costs by any names.

        Raises:
            SampleError, SampleTypeError: see `numbers`.
        """
        value = self.function(element)
        if isinstance(value, Mapping):
            return {name: self._checked(number, f" as {name!r}") for name, number in value.items()}
        return (self._checked(value, ""),)

    def number(self, element: Any) -> float:
        """Return the cost of an element that has one.

        Raises:
            SampleError, SampleTypeError: see `numbers`.
        """
        return self.numbers(element)[0]

    def measured(self, element: Any) -> Measured:
        """Return an element with its costs."""
        return element, self.numbers(element)

    def _checked(self, value: Any, place: str) -> float:
        if not isinstance(value, (int, float, np.integer, np.floating)):
            hint = ", which needs key=" if self.names is None and isinstance(value, Mapping) else ""
            raise SampleTypeError(f"{self.text} should return a number{place}, but it returned {kind_of(value)}{hint}")
        if not value >= 0:
            raise SampleError(f"{self.text} should return a number from 0 on{place}, but it returned {value}")
        return float(value)


@dataclass(frozen=True)
class Budget:
    """Limits of the summed costs of a batch or a pack.

    Attributes:
        limits: one for each cost.
    """

    cost: Cost
    limits: Numbers

    @property
    def text(self) -> str:
        """The limits, as the user has them."""
        if self.cost.names is None:
            return str(self.limits[0])
        return "{" + ", ".join(f"{name}: {limit}" for name, limit in zip(self.names, self.limits, strict=True)) + "}"

    @property
    def names(self) -> tuple[Any, ...]:
        """A name for each cost."""
        return self.cost.names or _PLAIN

    def exceeded(self, numbers: Sequence[float]) -> int | None:
        """Return the number of the first cost that is above its limit; None if all are within."""
        return next((i for i, (number, limit) in enumerate(zip(numbers, self.limits, strict=True)) if number > limit), None)

    def admitted(self, element: Any, whole: str, way_out: str) -> Measured:
        """Return an element with its costs.

        Args:
            whole: the owner of the budget, such as "a batch".
            way_out: arguments that allow such elements.

        Raises:
            SampleError: it costs more than the budget; or see `Cost.numbers`.
            SampleTypeError: see `Cost.numbers`.
        """
        numbers = self.cost.numbers(element)
        above = self.exceeded(numbers)
        if above is not None:
            name = "cost" if self.cost.names is None else f"cost {self.names[above]!r}"
            raise SampleError(
                f"an element has the {name} {numbers[above]:.15g}, and {whole} the budget {self.limits[above]}. Pass "
                f"{way_out}, or a larger budget"
            )
        return element, numbers


@dataclass(frozen=True)
class WithinBudget:
    """Measures an element, unless it costs more than a budget: a function for `Admission`."""

    budget: Budget

    def __call__(self, element: Any) -> Measured | None:
        numbers = self.budget.cost.numbers(element)
        return (element, numbers) if self.budget.exceeded(numbers) is None else None


def budget_of(budget: float | Mapping[str, float], cost: Callable[[Any], Any]) -> Budget:
    """Return the budget for the arguments of a stage.

    Raises:
        ArgumentError: a limit is not positive, or the mapping is empty.
        ArgumentTypeError: a limit is not a number.
    """
    limits = budget if isinstance(budget, Mapping) else {None: budget}
    if not limits:
        raise ArgumentError('budget has no limits: pass a mapping from name to limit, such as {"tokens": 8192}')
    for name, limit in limits.items():
        shown = "budget" if name is None else f"budget[{name!r}]"
        if not isinstance(limit, (int, float, np.integer, np.floating)):
            raise ArgumentTypeError(f"{shown} should be a number, but got {limit!r:.100}")
        if not limit > 0:
            raise ArgumentError(f"{shown} should be positive, but got {limit!r}")
    names = tuple(limits) if isinstance(budget, Mapping) else None
    return Budget(Cost(cost, names), tuple(limits.values()))


def by_name(names: tuple[Any, ...] | None, costs: NDArray[np.float64]) -> Any:
    """Return costs of shape ``(elements, costs)`` as users see them: an array, or a mapping of arrays."""
    if names is None:
        return costs[:, 0]
    return {name: costs[:, i] for i, name in enumerate(names)}
