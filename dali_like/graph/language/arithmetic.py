"""Elementwise operations on data nodes, as ``a + b`` and `dali_like.math` compute them; the same as in DALI.

Source: https://docs.nvidia.com/deeplearning/dali/user-guide/docs/math.html, and DALI 1.53 itself, tested with all pairs
of types.

- Operands are converted to one type first: see `promoted`. Sums and products of integers wrap around.
- ``/`` and most functions return FLOAT for integers. ``//`` of integers rounds towards zero; of floating-point numbers
  it equals ``/``.
- Comparisons return BOOL. Integers are compared by value, regardless of their signs; next to floating-point numbers, as
  floating-point numbers.
- Shapes broadcast as in NumPy. The layouts of the operands are equal, or one is the end of the other.
- Two Booleans support only the product, ``&``, ``|``, ``^`` and shifts. Floating-point numbers support none of the last
  four, nor ``~``.
- ``%``, ``<<``, ``>>``, ``~`` and ``abs()`` are of DALI 2. ``%`` has the sign of the left operand, as in C. Shifts use as
  many bits of the count as the common type has bits, at least 32, as processors do.

Each operation is an operator of its own, and runs where the placement decides.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dali_like.common.articles import kind_of
from dali_like.errors import (
    ArgumentClashError,
    ArgumentTypeError,
    DaliLikeError,
    DefinitionError,
    SampleError,
    SampleTypeError,
)
from dali_like.graph.language.constants import Constant
from dali_like.graph.language.expressions import Expression
from dali_like.graph.language.nodes import DataNode, OperatorNode, constant_node, contains_node, device_of_result
from dali_like.graph.language.operator_interface import Array, OperatorCall
from dali_like.types import to_dali_type

_FLOAT, _BOOL = np.dtype(np.float32), np.dtype(np.bool_)


@functools.cache
def promoted(*dtypes: np.dtype[Any]) -> np.dtype[Any]:
    """Return the common type of several operands.

    The widest floating-point type, if there is one; otherwise the widest integer type. A signed type and an unsigned
    one at least as wide become a signed type of twice the unsigned width, but at most INT64. Booleans do not affect the
    result.
    """
    first, *others = dtypes
    return functools.reduce(_promoted, others, first)


def _promoted(a: np.dtype[Any], b: np.dtype[Any]) -> np.dtype[Any]:
    ranks = {"b": 0, "i": 1, "u": 1, "f": 2}
    if ranks[a.kind] != ranks[b.kind]:
        return a if ranks[a.kind] > ranks[b.kind] else b
    if a.kind == b.kind:
        return a if a.itemsize >= b.itemsize else b
    signed, unsigned = (a, b) if a.kind == "i" else (b, a)
    return signed if signed.itemsize > unsigned.itemsize else np.dtype(f"i{min(2 * unsigned.itemsize, 8)}")


def _floating(*dtypes: np.dtype[Any]) -> np.dtype[Any]:
    dtype = promoted(*dtypes)
    return dtype if dtype.kind == "f" else _FLOAT


def _boolean(*_: np.dtype[Any]) -> np.dtype[Any]:
    return _BOOL


#: With more channels than this, rows are long enough for NumPy.
_FEW_CHANNELS = 16

#: Takes memory for the result, the dtype to compute in, and the operands; fills the memory.
_Function = Callable[..., object]


@dataclass(frozen=True)
class Operation:
    """An elementwise operation.

    Attributes:
        symbol: its name in messages.
        function: computes it.
        result: returns the dtype of the result for the dtypes of the operands.
        kinds: kinds of dtypes, as in NumPy's ``dtype.kind``: "biu" requires all operands to be of these kinds, "iuf" at
            least one; "" allows all.
    """

    symbol: str
    function: _Function
    result: Callable[..., np.dtype[Any]] = promoted
    kinds: str = "iuf"

    def check(self, dtypes: Sequence[np.dtype[Any]]) -> None:
        """Raise SampleTypeError for dtypes that the operation does not support."""
        if self.kinds == "biu" and any(dtype.kind == "f" for dtype in dtypes):
            raise SampleTypeError(
                f"Inputs to bitwise operator `{self.symbol}` must be of integral type, not {_names(dtypes)}"
            )
        if self.kinds == "iuf" and all(dtype.kind == "b" for dtype in dtypes):
            raise SampleTypeError(
                f"Inputs to arithmetic operator `{self.symbol}` cannot be booleans. Use the bitwise operators &, |, ^, the "
                "product, or fn.cast"
            )


def _names(dtypes: Sequence[np.dtype[Any]]) -> str:
    return " and ".join(to_dali_type(dtype).name for dtype in dtypes)


def _by(ufunc: np.ufunc) -> _Function:
    def compute(out: Array, dtype: np.dtype[Any], *operands: Array) -> None:
        ufunc(*operands, out=out, dtype=dtype, casting="unsafe")

    return compute


def _compare(ufunc: np.ufunc) -> _Function:
    def compute(out: Array, _: np.dtype[Any], *operands: Array) -> None:
        common = promoted(*[operand.dtype for operand in operands])
        if common.kind == "f":
            operands = _converted(common, operands)
        ufunc(*operands, out=out)  # NumPy compares integers by value

    return compute


def _converted(dtype: np.dtype[Any], operands: Sequence[Array]) -> tuple[Array, ...]:
    return tuple(operand.astype(dtype, copy=False) for operand in operands)


def _divide(out: Array, dtype: np.dtype[Any], *operands: Array) -> None:
    left, right = _converted(dtype, operands)
    if dtype.kind == "f":
        np.true_divide(left, right, out=out)
        return
    if not right.all():
        raise SampleError("integer division by zero")
    if dtype.kind == "i" and ((left < 0).any() or (right < 0).any()):
        left = left - np.fmod(left, right)  # makes the division exact, so that floor_divide does not round down
    np.floor_divide(left, right, out=out)


def _remainder(out: Array, dtype: np.dtype[Any], *operands: Array) -> None:
    left, right = _converted(dtype, operands)
    if dtype.kind != "f" and not right.all():
        raise SampleError("integer division by zero")
    np.fmod(left, right, out=out)


def _shift(ufunc: np.ufunc) -> _Function:
    def compute(out: Array, dtype: np.dtype[Any], *operands: Array) -> None:
        wide = dtype if dtype.itemsize >= 4 else np.dtype(np.int32)
        value, count = _converted(wide, operands)
        ufunc(value, count & wide.type(8 * wide.itemsize - 1), out=out, casting="unsafe")

    return compute


def _power(out: Array, dtype: np.dtype[Any], *operands: Array) -> None:
    base, exponent = _converted(dtype, operands)
    negative = exponent < 0 if dtype.kind == "i" else np.False_
    # With a plain 0, NumPy 1 would take numbers without dimensions for wider ones.
    np.power(base, np.where(negative, exponent.dtype.type(0), exponent) if negative.any() else exponent, out=out)
    np.copyto(out, 0, where=negative)


def _lesser(out: Array, dtype: np.dtype[Any], *operands: Array) -> None:
    """Compute the lesser operand; the right one if either is NaN."""
    left, right = _converted(dtype, operands)
    np.fmin(left, right, out=out)
    _keep_nan(right, out)


def _greater(out: Array, dtype: np.dtype[Any], *operands: Array) -> None:
    left, right = _converted(dtype, operands)
    np.fmax(left, right, out=out)
    _keep_nan(right, out)


def _clamp(out: Array, dtype: np.dtype[Any], *operands: Array) -> None:
    """Limit a value to bounds; a bound that is NaN has no effect."""
    value, low, high = _converted(dtype, operands)
    if dtype.kind == "f":
        low, high = np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high)
    np.minimum(np.maximum(value, low), high, out=out, dtype=dtype, casting="unsafe")


def _keep_nan(array: Array, out: Array) -> None:
    if array.dtype.kind == "f":
        np.copyto(out, array, where=np.isnan(array))


def _reciprocal_root(out: Array, dtype: np.dtype[Any], operand: Array) -> None:
    np.sqrt(operand, out=out, dtype=dtype, casting="unsafe")
    np.true_divide(1, out, out=out)


def _functions(**ufuncs: np.ufunc) -> dict[str, Operation]:
    return {name: Operation(name, _by(ufunc), _floating) for name, ufunc in ufuncs.items()}


def _comparison(symbol: str, ufunc: np.ufunc) -> Operation:
    return Operation(symbol, _compare(ufunc), _boolean, "")


OPERATIONS: Mapping[str, Operation] = {
    "add": Operation("+", _by(np.add)),
    "sub": Operation("-", _by(np.subtract)),
    "mul": Operation("*", _by(np.multiply), kinds=""),
    "fdiv": Operation("/", _by(np.true_divide), _floating),
    "div": Operation("//", _divide),
    "mod": Operation("%", _remainder),
    "pow": Operation("**", _power),
    "minus": Operation("-", _by(np.negative)),
    "bitand": Operation("&", _by(np.bitwise_and), kinds="biu"),
    "bitor": Operation("|", _by(np.bitwise_or), kinds="biu"),
    "bitxor": Operation("^", _by(np.bitwise_xor), kinds="biu"),
    "shl": Operation("<<", _shift(np.left_shift), kinds="biu"),
    "shr": Operation(">>", _shift(np.right_shift), kinds="biu"),
    "bitnot": Operation("~", _by(np.invert), kinds="biu"),
    "eq": _comparison("==", np.equal),
    "neq": _comparison("!=", np.not_equal),
    "lt": _comparison("<", np.less),
    "leq": _comparison("<=", np.less_equal),
    "gt": _comparison(">", np.greater),
    "geq": _comparison(">=", np.greater_equal),
    "abs": Operation("abs", _by(np.absolute)),
    "min": Operation("min", _lesser),
    "max": Operation("max", _greater),
    "clamp": Operation("clamp", _clamp),
    "rsqrt": Operation("rsqrt", _reciprocal_root, _floating),
    **_functions(
        sqrt=np.sqrt,
        cbrt=np.cbrt,
        exp=np.exp,
        log=np.log,
        log2=np.log2,
        log10=np.log10,
        fabs=np.fabs,
        floor=np.floor,
        ceil=np.ceil,
        fpow=np.power,
        atan2=np.arctan2,
        sin=np.sin,
        cos=np.cos,
        tan=np.tan,
        asin=np.arcsin,
        acos=np.arccos,
        atan=np.arctan,
        sinh=np.sinh,
        cosh=np.cosh,
        tanh=np.tanh,
        asinh=np.arcsinh,
        acosh=np.arccosh,
        atanh=np.arctanh,
    ),
}


#: Operations without stacks: for some exponents that all elements share, NumPy computes roots or squares instead.
_POWERS = ("pow", "fpow")


@dataclass(frozen=True)
class Elementwise:
    """An elementwise operation; a `dali_like.graph.language.operator_interface.Operator`.

    Attributes:
        operation: its name in `OPERATIONS`.
        layouts: of the result.
    """

    operation: str
    layouts: tuple[str]
    seed: int | None = None
    per_sample: bool = True
    elementwise: bool = True

    @property
    def name(self) -> str:
        return f"math.{self.operation}"

    @property
    def arguments(self) -> Mapping[str, Any]:
        return {}

    def stacks(self, num_inputs: int, arguments: Collection[str]) -> bool:
        return self.operation not in _POWERS

    def compute(self, call: OperatorCall, inputs: Sequence[Array], arguments: Mapping[str, Any]) -> Sequence[Array]:
        dtype = _result_type(self.operation, *[data.dtype for data in inputs])
        if call.lead:
            inputs = _aligned(inputs)
        out = call.empty(_broadcast_shape(inputs), dtype)
        with np.errstate(all="ignore"):
            if call.lead and dtype == np.float16:
                self._compute_halves(out, inputs)
            else:
                OPERATIONS[self.operation].function(*_in_long_rows(out, inputs, dtype))
        return (out,)

    def _compute_halves(self, out: Array, stacks: Sequence[Array]) -> None:
        """Compute the samples of a stack one by one: for FLOAT16, signs of NaN depend on the number of elements."""
        for i in range(len(out)):
            samples = [stack[i, ...] if stack.ndim == out.ndim else stack for stack in stacks]
            OPERATIONS[self.operation].function(*_in_long_rows(out[i, ...], samples, out.dtype))


@functools.cache
def _result_type(operation: str, *dtypes: np.dtype[Any]) -> np.dtype[Any]:
    OPERATIONS[operation].check(dtypes)
    return OPERATIONS[operation].result(*dtypes)


def _aligned(stacks: Sequence[Array]) -> list[Array]:
    """Return stacks such that they broadcast sample by sample. Constants become one sample, unless all are constants."""
    ndim = max(stack.ndim for stack in stacks)
    varies = [stack.strides[0] != 0 for stack in stacks]
    return [
        stack[0, ...]
        if any(varies) and not varies[i]
        else stack.reshape(len(stack), *[1] * (ndim - stack.ndim), *stack.shape[1:])
        for i, stack in enumerate(stacks)
    ]


def _broadcast_shape(inputs: Sequence[Array]) -> tuple[int, ...]:
    extended = {data.shape for data in inputs} - {()}
    if len(extended) < 2:
        return extended.pop() if extended else ()
    try:
        return np.broadcast_shapes(*extended)
    except ValueError:
        shown = ", ".join(str(data.shape) for data in inputs)
        raise SampleError(
            f"Can't broadcast shapes: {shown}. Counted from the last dimension, extents must be equal, or one of them 1"
        ) from None


def _in_long_rows(out: Array, operands: Sequence[Array], dtype: np.dtype[Any]) -> tuple[Any, ...]:
    """Return an operation's arguments with per-channel operands repeated to rows: NumPy is slow for short rows."""
    channels = out.shape[-1] if out.ndim > 1 else 0
    if not 1 < channels <= _FEW_CHANNELS or all(operand.shape in (out.shape, ()) for operand in operands):
        return out, dtype, *operands
    shape = (*out.shape[:-2], out.shape[-2] * channels)
    rows = []
    for operand in operands:
        if operand.shape == out.shape and operand.flags.c_contiguous:
            rows.append(operand.reshape(shape))
        elif operand.size == channels and operand.shape[-1] == channels:
            rows.append(np.tile(operand.reshape(-1), out.shape[-2]))
        elif operand.size == 1:
            rows.append(operand.reshape(()))
        else:
            return out, dtype, *operands
    return out.reshape(shape), dtype, *rows


def apply_elementwise(operation: str, *operands: Any) -> DataNode:
    """Add an operation to the graph.

    Args:
        operation: a name in `OPERATIONS`.
        operands: nodes, constants, numbers, lists of numbers and arrays; at least one node or constant.

    Raises:
        ArgumentTypeError: an operand has an unsupported type.
        ArgumentClashError: the layouts contradict each other.
        DefinitionError: an operand is a list of nodes.
    """
    name = f"math.{operation}"
    if not any(isinstance(operand, Expression) for operand in operands):
        shown = ", ".join(type(operand).__qualname__ for operand in operands)
        raise ArgumentTypeError(f"{name} needs at least one DataNode or Constant among its operands, not only {shown}")
    nodes = tuple(_node(name, OPERATIONS[operation].symbol, operand) for operand in operands)
    adapt = functools.partial(elementwise, operation)
    operator = adapt([node.producer.layouts[node.output] for node in nodes])
    device = device_of_result(nodes)
    return DataNode(name, device, OperatorNode(operator, nodes, adapt=adapt, device=device))


def elementwise(operation: str, layouts: Sequence[str]) -> Elementwise:
    """Return the operator for operands with these layouts.

    Raises:
        ArgumentClashError: the layouts contradict each other.
    """
    return _elementwise(operation, tuple(layouts))


@functools.lru_cache(1024)
def _elementwise(operation: str, layouts: tuple[str, ...]) -> Elementwise:
    return Elementwise(operation, (_common_layouts(f"math.{operation}", layouts),))


def _node(name: str, symbol: str, operand: Any) -> DataNode:
    if isinstance(operand, DataNode):
        return operand
    if contains_node(operand):
        raise DefinitionError(
            f"an operand of `{symbol}` must be a DataNode or a constant, not {kind_of(operand)} with nested "
            "DataNodes. Pass one DataNode; an operator with several outputs returns a list, so index it first"
        )
    try:
        if isinstance(operand, Constant):
            return constant_node(operand)
        return constant_node(Constant(operand))
    except DaliLikeError as error:
        raise type(error)(f"{name}: {error}") from None


def _common_layouts(name: str, layouts: Sequence[str]) -> str:
    words = list(dict.fromkeys(word for layout in layouts for word in layout.split()))
    if any(" " in layout for layout in layouts) or len(words) < 2:
        return " ".join(words)
    longest = max(words, key=len)
    if wrong := [word for word in words if not longest.endswith(word)]:
        raise ArgumentClashError(
            f"{name}: the operands have the layouts {longest!r} and {wrong[0]!r}. Layouts must be equal, or one the end of "
            "the other"
        )
    return longest
