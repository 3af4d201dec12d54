"""Mathematical functions of data nodes, element by element, as in ``nvidia.dali.math``.

Operands are nodes, one at least, and constants, numbers, lists of numbers or arrays. Of integers, all but `abs`, `min`,
`max`, `pow` and `clamp` make FLOAT. `dali_like.graph.arithmetic` says which types several operands become.
"""

from __future__ import annotations

from collections.abc import Callable

from dali_like.graph.arithmetic import apply_elementwise
from dali_like.graph.expressions import Operand
from dali_like.graph.nodes import DataNode

__all__ = [
    "abs",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "cbrt",
    "ceil",
    "clamp",
    "cos",
    "cosh",
    "exp",
    "fabs",
    "floor",
    "fpow",
    "log",
    "log2",
    "log10",
    "max",
    "min",
    "pow",
    "rsqrt",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
]


def __dir__() -> list[str]:
    return __all__


def _unary(name: str, doc: str) -> Callable[[Operand], DataNode]:
    def function(input: Operand, /) -> DataNode:
        return apply_elementwise(name, input)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


abs = _unary("abs", "The absolute value. Of the least number of a signed type, that number.")
fabs = _unary("fabs", "The absolute value, as a floating-point number.")
sqrt = _unary("sqrt", "The square root.")
rsqrt = _unary("rsqrt", "1 divided by the square root.")
cbrt = _unary("cbrt", "The cube root.")
exp = _unary("exp", "e to that power.")
log = _unary("log", "The natural logarithm.")
log2 = _unary("log2", "The logarithm to base 2.")
log10 = _unary("log10", "The logarithm to base 10.")
floor = _unary("floor", "The next integer that is not greater.")
ceil = _unary("ceil", "The next integer that is not less.")
sin = _unary("sin", "The sine, of radians.")
cos = _unary("cos", "The cosine, of radians.")
tan = _unary("tan", "The tangent, of radians.")
asin = _unary("asin", "The arc sine, in radians.")
acos = _unary("acos", "The arc cosine, in radians.")
atan = _unary("atan", "The arc tangent, in radians.")
sinh = _unary("sinh", "The hyperbolic sine.")
cosh = _unary("cosh", "The hyperbolic cosine.")
tanh = _unary("tanh", "The hyperbolic tangent.")
asinh = _unary("asinh", "The inverse hyperbolic sine.")
acosh = _unary("acosh", "The inverse hyperbolic cosine.")
atanh = _unary("atanh", "The inverse hyperbolic tangent.")


def min(left: Operand, right: Operand) -> DataNode:
    """The lesser of two elements; of two that cannot be compared, the right one."""
    return apply_elementwise("min", left, right)


def max(left: Operand, right: Operand) -> DataNode:
    """The greater of two elements; of two that cannot be compared, the right one."""
    return apply_elementwise("max", left, right)


def pow(base: Operand, exponent: Operand) -> DataNode:
    """``base ** exponent``. A negative power of an integer is 0, as in DALI."""
    return apply_elementwise("pow", base, exponent)


def fpow(base: Operand, exponent: Operand) -> DataNode:
    """``base ** exponent`` of floating-point numbers, which integers become first."""
    return apply_elementwise("fpow", base, exponent)


def atan2(x: Operand, y: Operand) -> DataNode:
    """The arc tangent of ``x / y``, in radians, from -pi to pi."""
    return apply_elementwise("atan2", x, y)


def clamp(value: Operand, lo: Operand, hi: Operand) -> DataNode:
    """The elements of `value`, but none less than `lo`, and none greater than `hi`."""
    return apply_elementwise("clamp", value, lo, hi)
