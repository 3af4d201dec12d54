"""Python's operators for data nodes and constants. Each operator adds a node to the graph.

The semantics follow DALI's mathematical expressions, not NumPy's. See `dali_like.graph.language.arithmetic` for the
operations and `dali_like.graph.language.subscripts` for indices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import EllipsisType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dali_like.common.articles import kind_of
from dali_like.errors import ArgumentError, ArgumentTypeError

if TYPE_CHECKING:
    from dali_like.graph.language.nodes import DataNode

#: The other side of an operator.
Operand: TypeAlias = "Expression | float | Sequence[float] | NDArray[Any] | np.generic"
#: One index in brackets; each dimension has one.
Subscript: TypeAlias = "int | slice | Expression | NewAxis | EllipsisType"


def _operator(operation: str) -> Callable[[Expression, Operand], DataNode]:
    def apply(self: Expression, other: Operand) -> DataNode:
        return _apply(operation, self, other)

    return apply


def _reflected(operation: str) -> Callable[[Expression, Operand], DataNode]:
    def apply(self: Expression, other: Operand) -> DataNode:
        return _apply(operation, other, self)

    return apply


#: Operations of Python's operators by the names of NumPy's functions.
_OPERATIONS_OF_NUMPY = {
    "add": "add",
    "subtract": "sub",
    "multiply": "mul",
    "divide": "fdiv",
    "true_divide": "fdiv",
    "floor_divide": "div",
    "remainder": "mod",
    "power": "pow",
    "left_shift": "shl",
    "right_shift": "shr",
    "bitwise_and": "bitand",
    "bitwise_or": "bitor",
    "bitwise_xor": "bitxor",
    "less": "lt",
    "less_equal": "leq",
    "greater": "gt",
    "greater_equal": "geq",
    "equal": "eq",
    "not_equal": "neq",
}
#: Functions of `dali_like.math` that NumPy has, too.
_FUNCTIONS = frozenset(
    ["sqrt", "cbrt", "exp", "log", "log2", "log10", "fabs", "floor", "ceil", "sin", "cos", "tan", "sinh", "cosh", "tanh"]
)


class Expression:
    """Base class of data nodes and constants: defines the operators."""

    __slots__ = ()

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> DataNode:
        """Compute an operator of NumPy whose left operand is an array, such as ``array + node``.

        Raises:
            ArgumentTypeError: it is another function of NumPy.
        """
        operation = _OPERATIONS_OF_NUMPY.get(ufunc.__name__)
        if operation is not None and method == "__call__" and not options.keys() - {"out"}:  # `out` is of ``array += node``
            return _apply(operation, *inputs)
        ours = f"use dali_like.math.{ufunc.__name__}, or " if ufunc.__name__ in _FUNCTIONS else "use "
        raise ArgumentTypeError(
            f"np.{ufunc.__name__} computes arrays, but {kind_of(self)} gets its batches when the pipeline runs: "
            f"{ours}fn.python_function(node, function=np.{ufunc.__name__})"
        )

    __add__, __radd__ = _operator("add"), _reflected("add")
    __sub__, __rsub__ = _operator("sub"), _reflected("sub")
    __mul__, __rmul__ = _operator("mul"), _reflected("mul")
    __truediv__, __rtruediv__ = _operator("fdiv"), _reflected("fdiv")
    __floordiv__, __rfloordiv__ = _operator("div"), _reflected("div")
    __mod__, __rmod__ = _operator("mod"), _reflected("mod")
    __pow__, __rpow__ = _operator("pow"), _reflected("pow")
    __lshift__, __rlshift__ = _operator("shl"), _reflected("shl")
    __rshift__, __rrshift__ = _operator("shr"), _reflected("shr")
    __and__, __rand__ = _operator("bitand"), _reflected("bitand")
    __or__, __ror__ = _operator("bitor"), _reflected("bitor")
    __xor__, __rxor__ = _operator("bitxor"), _reflected("bitxor")
    __lt__ = _operator("lt")
    __le__ = _operator("leq")
    __gt__ = _operator("gt")
    __ge__ = _operator("geq")

    # Pyright takes the types of these from `object`, unless they are written out.

    def __eq__(self, other: Operand) -> DataNode:  # type: ignore[override]
        return _apply("eq", self, other)

    def __ne__(self, other: Operand) -> DataNode:  # type: ignore[override]
        return _apply("neq", self, other)

    def __neg__(self) -> DataNode:
        return _apply("minus", self)

    def __invert__(self) -> DataNode:
        return _apply("bitnot", self)

    def __abs__(self) -> DataNode:
        return _apply("abs", self)

    def __pos__(self) -> DataNode:
        return _node_of(self)

    __hash__ = object.__hash__

    def __getitem__(self, subscripts: Subscript | tuple[Subscript, ...]) -> DataNode:
        from dali_like.graph.language.subscripts import subscribe  # it imports this module

        return subscribe(_node_of(self), subscripts if isinstance(subscripts, tuple) else (subscripts,))


def _apply(operation: str, *operands: Any) -> DataNode:
    from dali_like.graph.language.arithmetic import apply_elementwise  # it imports this module

    return apply_elementwise(operation, *operands)


def _node_of(expression: Expression) -> DataNode:
    from dali_like.graph.language.nodes import output_nodes  # it imports this module

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
