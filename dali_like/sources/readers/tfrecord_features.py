"""Features of TFRecord files: their dtypes and shapes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dali_like.common.checks import is_int
from dali_like.errors import ArgumentError, ArgumentTypeError

__all__ = ["Feature", "FixedLenFeature", "VarLenFeature", "float32", "int64", "string"]

#: Types of features. The numbers are as in ``nvidia.dali.tfrecord``.
int64 = 0
string = 1
float32 = 2

_NAMES = {int64: "int64", string: "string", float32: "float32"}
_DEFAULTS: dict[int, tuple[Any, ...]] = {int64: (int, np.integer), string: (str, bytes), float32: (float, np.floating)}


class Feature(NamedTuple):
    """A feature of an example. `FixedLenFeature` and `VarLenFeature` make it. In JSON it is a list of its attributes.

    Attributes:
        dtype: `int64`, `string` or `float32`.
        default: value of elements that an example lacks.
        shape: of the output; None if the example determines it.
        partial_shape: of the output, without its first extent, which the example determines.
    """

    dtype: int
    default: Any
    shape: tuple[int, ...] | None = None
    partial_shape: tuple[int, ...] = ()

    @property
    def numpy_dtype(self) -> np.dtype[Any]:
        """Dtype of the output. A string is an array of its bytes."""
        return np.dtype("uint8" if self.dtype == string else _NAMES[self.dtype])

    @property
    def missing(self) -> NDArray[Any]:
        """Empty output, with as many dimensions as other outputs, for an example that lacks the feature."""
        if self.dtype == string or self.shape is None:
            return np.empty((0, *self.partial_shape), self.numpy_dtype)
        if not self.shape:
            return np.array(self.default, self.numpy_dtype)
        return np.empty((0, *self.shape[1:]), self.numpy_dtype)


def FixedLenFeature(shape: Sequence[int], dtype: int, default_value: Any) -> Feature:  # noqa: N802  # a name of DALI
    """Describe a feature of fixed shape.

    Args:
        shape: of the output; for a string, () or (1,).
        dtype: `int64`, `float32` or `string`. Strings become arrays of their bytes.
        default_value: value of elements that an example lacks.

    Raises:
        ArgumentTypeError: an argument is of another type.
        ArgumentError: a value is out of range.
    """
    shape = _checked_shape(shape)
    default_value = _checked_default(dtype, default_value)
    if dtype == string and math.prod(shape) > 1:
        raise ArgumentError(f"Tensors of strings are not supported: give a string the shape (), not {shape}")
    return Feature(dtype, default_value, shape)


def VarLenFeature(*arguments: Any) -> Feature:  # noqa: N802  # a name of DALI
    """Describe a feature with any number of elements.

    The signatures are ``VarLenFeature(dtype, default_value)`` and ``VarLenFeature(partial_shape, dtype, default_value)``.
    The output has the shape (number of elements,), or (number of rows, \\*partial_shape).

    Args:
        arguments: `partial_shape` is the shape without its first extent, `dtype` is `int64` or `float32`, and
            `default_value` has this type.

    Raises:
        ArgumentTypeError: an argument is of another type.
        ArgumentError: a value is out of range.
    """
    if len(arguments) not in (2, 3):
        raise ArgumentTypeError("VarLenFeature takes (dtype, default_value) or (partial_shape, dtype, default_value)")
    *partial_shape, dtype, default_value = arguments
    checked = _checked_shape(partial_shape[0]) if partial_shape else ()
    default_value = _checked_default(dtype, default_value)
    if dtype == string:
        raise ArgumentError('Tensors of strings are not supported: use FixedLenFeature((), tfrecord.string, "")')
    if 0 in checked:
        raise ArgumentError(f"partial_shape must be positive, not {checked}")
    return Feature(dtype, default_value, partial_shape=checked)


def feature_from(value: Any) -> Feature:
    """Return a feature, or the feature that JSON has as a list.

    Raises:
        ArgumentTypeError: this is neither.
        ArgumentError: a value is out of range.
    """
    if isinstance(value, Feature):
        return value
    if not isinstance(value, list) or len(value) != len(Feature._fields):
        raise ArgumentTypeError(
            f"Expected `dali_like.tfrecord.Feature`, but got {type(value)}. Use `dali_like.tfrecord.FixedLenFeature` "
            "or `dali_like.tfrecord.VarLenFeature`"
        )
    dtype, default, shape, partial_shape = value
    return FixedLenFeature(shape, dtype, default) if shape is not None else VarLenFeature(partial_shape, dtype, default)


def _checked_shape(shape: Any) -> tuple[int, ...]:
    if isinstance(shape, str) or not isinstance(shape, (Sequence, np.ndarray)) or not all(map(is_int, shape)):
        raise ArgumentTypeError(f"the shape of a feature must be a list of integers, not {shape!r}")
    if any(extent < 0 for extent in shape):
        raise ArgumentError(f"the shape of a feature must not be negative: {tuple(shape)}")
    return tuple(map(int, shape))


def _checked_default(dtype: Any, default: Any) -> Any:
    if not is_int(dtype):
        raise ArgumentTypeError(f"the type of a feature must be tfrecord.int64, .float32 or .string, not {dtype!r}")
    if dtype not in _NAMES:
        raise ArgumentError(f"the type of a feature must be tfrecord.int64, .float32 or .string, not {dtype}")
    if not isinstance(default, _DEFAULTS[dtype]):
        kind = {int64: "int", string: "string", float32: "float"}[dtype]
        raise ArgumentError(f"Invalid type for default value {default!r}, expected {kind}")
    if isinstance(default, bytes):
        return default.decode("utf-8", "backslashreplace")
    return default.item() if isinstance(default, np.generic) else default
