"""Conditions on samples: the operators behind ``if``, ``and``, ``or`` and ``not``, and the scope of the current branch.

A *scope* lists the conditions of nested branches. Each operator that is applied in a branch carries the scope, and is
computed only for the samples that meet it; for other samples it has no result. A merge takes the result of the branch
that its sample took. See `dali_like.graph.language.branches`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from dali_like.errors import LayoutMismatchError, NdimMismatchError, SampleTypeError
from dali_like.graph.language.operator_interface import Array, Operator, OperatorCall, choose_layout

if TYPE_CHECKING:
    from dali_like.graph.language.nodes import DataNode

#: The conditions of nested branches, outermost first, with the value that each must have. Conditions are Boolean scalars.
Scope: TypeAlias = "tuple[tuple[DataNode, bool], ...]"

_scope: ContextVar[Scope] = ContextVar("scope", default=())


def current_scope() -> Scope:
    """Return the conditions of the branch being defined in this thread."""
    return _scope.get()


@contextlib.contextmanager
def in_scope(scope: Scope) -> Iterator[None]:
    """Let new operators carry a scope."""
    token = _scope.set(scope)
    try:
        yield
    finally:
        _scope.reset(token)


def is_visible(data: Scope, scope: Scope) -> bool:
    """Whether data of one scope exists for all samples of another. Nodes are compared by identity."""
    pairs = zip(data, scope, strict=False)
    return len(data) <= len(scope) and all(one[0] is other[0] and one[1] is other[1] for one, other in pairs)


def label_of(operator: Operator) -> str:
    """Return the name of an operator for messages about its results."""
    return operator.variable if isinstance(operator, Merge) else operator.name


class Condition(NamedTuple):
    """Checks a condition and converts it to a Boolean; a `dali_like.graph.language.operator_interface.Operator`.

    Attributes:
        expression: "if", "not", "and" or "or". The last two allow only Booleans, as in DALI.
        where: the file and line of the expression, for messages.
    """

    expression: str
    where: str
    name: str = "conditional.condition"
    layouts: Sequence[str] = ("",)
    seed: int | None = None
    per_sample: bool = True

    @property
    def arguments(self) -> Mapping[str, Any]:
        return {"expression": self.expression, "where": self.where}

    def stacks(self, num_inputs: int, arguments: Collection[str]) -> bool:
        return True

    def compute(self, call: OperatorCall, inputs: Sequence[Array], arguments: Mapping[str, Any]) -> Sequence[Array]:
        (value,) = inputs
        place = f"`{self.expression}` in {self.where}"
        if value.ndim > call.lead:
            raise NdimMismatchError(
                f"{place}: a condition must be a scalar (0-d), not an array of the shape {value.shape}. Use a reduction, "
                "such as fn.reductions.max, or an index"
            )
        if self.expression in ("and", "or") and value.dtype != np.bool_:
            raise SampleTypeError(
                f"{place}: operands must be Booleans, not {value.dtype}. Compare the value (`x != 0`), or use fn.cast with "
                "dtype=types.BOOL"
            )
        return (np.asarray(value.astype(bool) != (self.expression == "not")),)


class Merge(NamedTuple):
    """Takes the result of the branch that the sample took; a `dali_like.graph.language.operator_interface.Operator`.

    Inputs are the condition, and the results of both branches.

    Attributes:
        variable: the variable with the result, and its place in the program, for messages.
        layouts: of the result: those that both branches may have.
        refused: layouts that only one branch may have. They are errors of the samples that have them.
    """

    variable: str
    layouts: Sequence[str] = ("",)
    refused: str = ""
    name: str = "conditional.merge"
    seed: int | None = None
    per_sample: bool = True

    @property
    def arguments(self) -> Mapping[str, Any]:
        return {"variable": self.variable}

    def stacks(self, num_inputs: int, arguments: Collection[str]) -> bool:
        return True

    def check(self, ndim: int, taken: bool) -> None:
        """Check the result of a branch.

        Args:
            ndim: number of its dimensions, from which its layout follows.
            taken: the condition.

        Raises:
            LayoutMismatchError: only this branch may have its layout.
        """
        if (layout := choose_layout(self.refused, ndim)) and not choose_layout(self.layouts[0], ndim):
            raise LayoutMismatchError(
                f"{self.variable}: the branch for a condition that is {taken} has the layout {layout!r}, which the other "
                f"branch cannot have. Both may have {self.layouts[0].replace(' ', ' or ')}"
            )

    def compute(self, call: OperatorCall, inputs: Sequence[Array], arguments: Mapping[str, Any]) -> Sequence[Array]:
        condition, if_true, if_false = inputs  # of one sample; programs merge stacks themselves
        result = if_true if condition else if_false
        self.check(np.ndim(result), bool(condition))
        return (call.part(result),)
