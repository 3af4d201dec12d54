"""Python's operators for data nodes and constants. Each operator adds a node to the graph.

The semantics follow DALI's mathematical expressions, not NumPy's. See `dali_like.graph.arithmetic` for the
operations and `dali_like.graph.subscripts` for indices.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import EllipsisType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dali_like.errors import ArgumentError, ArgumentTypeError

if TYPE_CHECKING:
    from dali_like.graph.nodes import DataNode

#: The other side of an operator.
Operand: TypeAlias = "Expression | float | Sequence[float] | NDArray[Any] | np.generic"
#: One index in brackets; each dimension has one.
Subscript: TypeAlias = "int | slice | Expression | NewAxis | EllipsisType"


class Expression:
    """Base class of data nodes and constants: defines the operators."""

    __slots__ = ()

    #: With an expression on the right, NumPy's arrays leave the operation to the methods below.
    __array_ufunc__ = None

    def __add__(self, other: Operand) -> DataNode:
        return _apply("add", self, other)

    def __radd__(self, other: Operand) -> DataNode:
        return _apply("add", other, self)

    def __sub__(self, other: Operand) -> DataNode:
        return _apply("sub", self, other)

    def __rsub__(self, other: Operand) -> DataNode:
        return _apply("sub", other, self)

    def __mul__(self, other: Operand) -> DataNode:
        return _apply("mul", self, other)

    def __rmul__(self, other: Operand) -> DataNode:
        return _apply("mul", other, self)

    def __truediv__(self, other: Operand) -> DataNode:
        return _apply("fdiv", self, other)

    def __rtruediv__(self, other: Operand) -> DataNode:
        return _apply("fdiv", other, self)

    def __floordiv__(self, other: Operand) -> DataNode:
        return _apply("div", self, other)

    def __rfloordiv__(self, other: Operand) -> DataNode:
        return _apply("div", other, self)

    def __pow__(self, other: Operand) -> DataNode:
        return _apply("pow", self, other)

    def __rpow__(self, other: Operand) -> DataNode:
        return _apply("pow", other, self)

    def __neg__(self) -> DataNode:
        return _apply("minus", self)

    def __pos__(self) -> DataNode:
        return _node_of(self)

    def __and__(self, other: Operand) -> DataNode:
        return _apply("bitand", self, other)

    def __rand__(self, other: Operand) -> DataNode:
        return _apply("bitand", other, self)

    def __or__(self, other: Operand) -> DataNode:
        return _apply("bitor", self, other)

    def __ror__(self, other: Operand) -> DataNode:
        return _apply("bitor", other, self)

    def __xor__(self, other: Operand) -> DataNode:
        return _apply("bitxor", self, other)

    def __rxor__(self, other: Operand) -> DataNode:
        return _apply("bitxor", other, self)

    def __eq__(self, other: Operand) -> DataNode:  # type: ignore[override]
        return _apply("eq", self, other)

    def __ne__(self, other: Operand) -> DataNode:  # type: ignore[override]
        return _apply("neq", self, other)

    def __lt__(self, other: Operand) -> DataNode:
        return _apply("lt", self, other)

    def __le__(self, other: Operand) -> DataNode:
        return _apply("leq", self, other)

    def __gt__(self, other: Operand) -> DataNode:
        return _apply("gt", self, other)

    def __ge__(self, other: Operand) -> DataNode:
        return _apply("geq", self, other)

    __hash__ = object.__hash__

    def __getitem__(self, subscripts: Subscript | tuple[Subscript, ...]) -> DataNode:
        from dali_like.graph.subscripts import subscribe  # noqa: PLC0415  # it imports this module

        return subscribe(_node_of(self), subscripts if isinstance(subscripts, tuple) else (subscripts,))


def _apply(operation: str, *operands: Any) -> DataNode:
    from dali_like.graph.arithmetic import apply_elementwise  # noqa: PLC0415  # it imports this module

    return apply_elementwise(operation, *operands)


def _node_of(expression: Expression) -> DataNode:
    from dali_like.graph.nodes import output_nodes  # noqa: PLC0415  # it imports this module

    return output_nodes([expression])[0]


class NewAxis:
    """Index that inserts a dimension of extent 1. ``newaxis("C")`` gives it a name in the layout.

    Raises:
        ArgumentTypeError: the name is not a string.
        ArgumentError: the name is not a single letter.
    """

    def __init__(self, name: str | None = None) -> None:
        if name is not None and not isinstance(name, str):
            raise ArgumentTypeError(f"the name of a new axis is a single letter, not {name!r}")
        if name is not None and len(name) != 1:
            raise ArgumentError(f"the name of a new axis is a single letter, not {name!r}")
        self.name = name

    def __call__(self, name: str | None = None) -> NewAxis:
        """Return a new axis with a name."""
        return NewAxis(name)

    def __repr__(self) -> str:
        return "newaxis" if self.name is None else f"newaxis({self.name!r})"


#: As in DALI: ``node[newaxis]``, or ``node[newaxis("C")]``.
newaxis = NewAxis()
