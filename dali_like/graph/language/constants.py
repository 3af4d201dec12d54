"""Constants: values that are the same for every sample, with dtype, shape and layout.

They follow ``nvidia.dali.types`` 1.53; `dali_like.types` exports them.
"""

from __future__ import annotations

import builtins
import enum
import reprlib
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dali_like.errors import ArgumentError, ArgumentTypeError, DeviceError
from dali_like.graph.language.expressions import Expression, Operand
from dali_like.tensors.tensor_arguments import checked_layout
from dali_like.types import (
    BOOL,
    FLOAT,
    FLOAT16,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
    DALIDataType,
    numpy_dtype,
    to_dali_type,
)

__all__ = ["Constant", "ScalarConstant"]


def _caster(dtype: DALIDataType) -> Callable[[Constant], Constant]:
    def cast(self: Constant) -> Constant:
        return self.cast(dtype)

    cast.__doc__ = f"Return the same value as {dtype.name}."
    return cast


class Constant(Expression):
    """A value that is the same for every sample of every batch: an output of a pipeline, or an operand.

    Numbers, lists of numbers and arrays become constants when used as outputs or operands. Use this class to choose
    dtype, shape or layout. Python's operators on constants create data nodes.

    Args:
        value: a number, a one-dimensional list or tuple of numbers, or an array.
        dtype: of the samples. By default Python's numbers become INT32, FLOAT or BOOL. As in DALI, NumPy's 64-bit types
            become 32-bit, unless the value is a single number without shape, layout and device. Arrays whose numbers do
            not fit into 32 bits keep their type; DALI changes the numbers. If an integer `dtype` is given, such single
            numbers are truncated, and others rounded.
        shape: of each sample. A number fills it; other values must have as many elements.
        layout: a letter for each dimension.
        device: where the data is wanted: "cpu" (the default) or "gpu".
        name: of the node, for messages.

    Attributes:
        array: one sample.
        layout: its layout; "" if none was given.
        device: where the data is wanted.
        name: of the node.

    Raises:
        ArgumentTypeError: the value is not numeric.
        ArgumentError: a number does not fit into the dtype (DALI changes it silently), or the value does not match
            shape or layout.
        DeviceError: `device` is neither "cpu" nor "gpu".

    >>> Constant([1, 2, 3, 4], dtype=UINT8, shape=(2, 2), layout="HW").array
    array([[1, 2],
           [3, 4]], dtype=uint8)
    """

    def __init__(
        self,
        value: Any,
        dtype: Any = None,
        shape: Any = None,
        layout: str | None = None,
        device: str | None = None,
        *,
        name: str | None = None,
    ) -> None:
        if device not in (None, "cpu", "gpu"):
            raise DeviceError(f'device={device!r} is not a device; pass "cpu" or "gpu"')
        array = _array_of_numbers(value)
        is_single = not array.ndim and shape is layout is device is None  # for DALI another class of constants
        is_own = isinstance(value, (np.generic, np.ndarray))  # the type is a choice, and not that of all Python's numbers
        if dtype is not None:
            array = _convert(array, numpy_dtype(to_dali_type(dtype)), "pass a wider dtype=", truncate=is_single)
        elif isinstance(value, _PLAIN) and not (is_own and is_single):
            short = _SHORT_TYPES.get(array.dtype, array.dtype)
            if not is_own or _fits(array, short):
                wide = to_dali_type(array.dtype).name
                array = _convert(
                    array, short, f"pass a wider dtype=, as in types.Constant({reprlib.repr(value)}, types.{wide})"
                )
        if shape is not None:
            array = _reshape(array, shape)
        self.array = np.array(array, order="C")
        self.layout = checked_layout(layout, array.ndim)
        self.device = device or "cpu"
        self.name = name or "constant"

    @property
    def dtype(self) -> DALIDataType:
        """The element type."""
        return to_dali_type(self.array.dtype)

    @property
    def value(self) -> Any:
        """The number, or nested lists of numbers, as Python objects."""
        return self.array.tolist()

    @property
    def shape(self) -> list[int]:
        """The extents of a sample."""
        return list(self.array.shape)

    def __eq__(self, other: Operand) -> Any:  # type: ignore[override]
        """Compare value and dtype of two single numbers; for other operands, return a node."""
        if isinstance(other, Constant) and not self.array.ndim and not other.array.ndim:
            return self.dtype is other.dtype and bool(self.array == other.array)
        return super().__eq__(other)

    def __ne__(self, other: Operand) -> Any:  # type: ignore[override]
        equal = self == other
        return not equal if isinstance(equal, bool) else super().__ne__(other)

    __hash__ = Expression.__hash__

    def __bool__(self) -> builtins.bool:
        return bool(self._number("biu", "a truth value"))

    def __int__(self) -> int:
        return int(self._number("biu", "an integer"))

    def __float__(self) -> float:
        return float(self._number("f", "a floating-point number"))

    def _number(self, kinds: str, kind: str) -> float:
        if self.array.ndim or self.array.dtype.kind not in kinds:
            raise ArgumentTypeError(
                f"{self!r} cannot be read as {kind}: cast a single number first, for example by .int32() or .float32()"
            )
        number: float = self.array.item()
        return number

    def cast(self, dtype: Any) -> Constant:
        """Return the same value with another dtype."""
        return Constant(self.array, dtype, layout=self.layout or None)

    # Each returns the same value with another dtype.
    bool = _caster(BOOL)
    uint8 = _caster(UINT8)
    uint16 = _caster(UINT16)
    uint32 = _caster(UINT32)
    uint64 = _caster(UINT64)
    int8 = _caster(INT8)
    int16 = _caster(INT16)
    int32 = _caster(INT32)
    int64 = _caster(INT64)
    float16 = _caster(FLOAT16)
    float32 = _caster(FLOAT)
    float64 = _caster(FLOAT64)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.array!r}, layout={self.layout!r})"


class ScalarConstant(Constant):
    """A single number as an operand, with a chosen dtype.

    Args:
        value: the number.
        dtype: its dtype. By default Python's numbers are INT32, FLOAT or BOOL, and NumPy's keep theirs.

    Raises:
        ArgumentTypeError: the value is not a number.
        ArgumentError: the number does not fit into the dtype.
    """

    def __init__(self, value: Any, dtype: Any = None) -> None:
        if not isinstance(value, _NUMBERS):
            raise ArgumentTypeError(f"Expected scalar value of type 'bool', 'int' or 'float', got {type(value)}.")
        own = value.dtype if isinstance(value, np.generic) else None
        super().__init__(value, own if dtype is None else dtype)


_NUMBERS = (bool, int, float, np.bool_, np.number)
#: Values whose 64-bit types become 32-bit unless a dtype is given.
_PLAIN = (*_NUMBERS, list, tuple, np.ndarray)
_SHORT_TYPES = {
    np.dtype(np.int64): np.dtype(np.int32),
    np.dtype(np.uint64): np.dtype(np.uint32),
    np.dtype(np.float64): np.dtype(np.float32),
}


def _array_of_numbers(value: Any) -> NDArray[Any]:
    numbers = value if isinstance(value, (list, tuple)) else (value,)
    plain = all(isinstance(number, _NUMBERS) and not isinstance(number, enum.Enum) for number in numbers)
    if not plain and not hasattr(value, "__array__"):
        raise ArgumentTypeError(f"a constant is a number, a one-dimensional list of numbers or an array, not {value!r}")
    array = np.asarray(value)
    if plain and array.dtype == object:
        raise ArgumentError(f"{value!r} is too large for a constant: it does not fit into 64 bits")
    return array.astype(numpy_dtype(to_dali_type(array.dtype)), copy=False)


def _convert(array: NDArray[Any], dtype: np.dtype[Any], advice: str, *, truncate: bool = False) -> NDArray[Any]:
    """Return the array with another dtype. Numbers may be rounded, but must not wrap around or become infinite."""
    if array.dtype.kind == "f" and dtype.kind in "iu":  # halves are rounded away from zero
        array = np.trunc(array if truncate else array + np.copysign(np.nextafter(0.5, 0), array))
    if not _fits(array, dtype):
        raise ArgumentError(f"{reprlib.repr(array.tolist())} does not fit into {to_dali_type(dtype).name}; {advice}")
    return array.astype(dtype)


def _fits(array: NDArray[Any], dtype: np.dtype[Any]) -> bool:
    if dtype.kind == "b":
        return True
    limits = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
    numbers = array[np.isfinite(array)] if dtype.kind == "f" else array
    return not numbers.size or bool(limits.min <= numbers.min() and numbers.max() <= limits.max)


def _reshape(array: NDArray[Any], shape: Any) -> NDArray[Any]:
    try:
        return np.full(shape, array) if array.ndim == 0 else array.reshape(shape)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"a constant of {array.size} elements does not have the shape {shape!r}") from error
