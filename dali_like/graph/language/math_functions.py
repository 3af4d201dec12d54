"""Elementwise mathematical functions of data nodes, as in ``nvidia.dali.math``.

At least one operand is a node; others may be constants, numbers, lists of numbers or arrays. For integers, all functions
but `abs`, `min`, `max`, `pow` and `clamp` return FLOAT. `dali_like.graph.language.arithmetic` describes how operands of
different types combine.
"""

from __future__ import annotations

from collections.abc import Callable

from dali_like.graph.language.arithmetic import apply_elementwise
from dali_like.graph.language.expressions import Operand
from dali_like.graph.language.nodes import DataNode

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


abs = _unary("abs", "Return the absolute value. The minimum of a signed integer type stays as it is.")
fabs = _unary("fabs", "Return the absolute value as a floating-point number.")
sqrt = _unary("sqrt", "Return the square root.")
rsqrt = _unary("rsqrt", "Return 1 divided by the square root.")
cbrt = _unary("cbrt", "Return the cube root.")
exp = _unary("exp", "Return e raised to the power of each element.")
log = _unary("log", "Return the natural logarithm.")
log2 = _unary("log2", "Return the logarithm to base 2.")
log10 = _unary("log10", "Return the logarithm to base 10.")
floor = _unary("floor", "Return the largest integer that is not greater.")
ceil = _unary("ceil", "Return the smallest integer that is not less.")
sin = _unary("sin", "Return the sine of angles in radians.")
cos = _unary("cos", "Return the cosine of angles in radians.")
tan = _unary("tan", "Return the tangent of angles in radians.")
asin = _unary("asin", "Return the arc sine in radians.")
acos = _unary("acos", "Return the arc cosine in radians.")
atan = _unary("atan", "Return the arc tangent in radians.")
sinh = _unary("sinh", "Return the hyperbolic sine.")
cosh = _unary("cosh", "Return the hyperbolic cosine.")
tanh = _unary("tanh", "Return the hyperbolic tangent.")
asinh = _unary("asinh", "Return the inverse hyperbolic sine.")
acosh = _unary("acosh", "Return the inverse hyperbolic cosine.")
atanh = _unary("atanh", "Return the inverse hyperbolic tangent.")


def min(left: Operand, right: Operand) -> DataNode:
    """Return the lesser of two elements; if they cannot be compared, the right one."""
    return apply_elementwise("min", left, right)


def max(left: Operand, right: Operand) -> DataNode:
    """Return the greater of two elements; if they cannot be compared, the right one."""
    return apply_elementwise("max", left, right)


def pow(base: Operand, exponent: Operand) -> DataNode:
    """Return ``base ** exponent``. A negative power of an integer is 0, as in DALI."""
    return apply_elementwise("pow", base, exponent)


def fpow(base: Operand, exponent: Operand) -> DataNode:
    """Return ``base ** exponent`` in floating-point arithmetic; integers are converted first."""
    return apply_elementwise("fpow", base, exponent)


def atan2(x: Operand, y: Operand) -> DataNode:
    """Return the arc tangent of ``x / y`` in radians, from -pi to pi."""
    return apply_elementwise("atan2", x, y)


def clamp(value: Operand, lo: Operand, hi: Operand) -> DataNode:
    """Return the elements of `value`, limited to the range from `lo` to `hi`."""
    return apply_elementwise("clamp", value, lo, hi)
