"""Operators that return arrays with the same value everywhere, as in ``nvidia.dali.fn``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

import numpy as np

from dali_like.common.saved_arguments import SavedText
from dali_like.errors import ArgumentClashError, SampleError
from dali_like.graph.language.operator_interface import Array, OperatorCall
from dali_like.operators.machinery.conversion import convert
from dali_like.operators.machinery.description import operator
from dali_like.operators.parameters import Ints, PerSample, at_least

_Shape: TypeAlias = Annotated[Ints, at_least(0)]
_INT32 = np.dtype(np.int32)


def _check_layout(given: Mapping[str, Any]) -> None:
    layout, shape = given.get("layout"), given.get("shape", ())
    if layout and isinstance(shape, tuple) and len(layout) != len(shape):
        raise ArgumentClashError(f"the layout {layout!r} must have as many letters as the shape {list(shape)} has numbers")


def _given_layout(_: str, given: Mapping[str, Any]) -> str:
    return given["layout"] or ""


@operator(output_layout=_given_layout, check=_check_layout, stacks=())
def zeros(
    call: OperatorCall,
    *,
    shape: PerSample[_Shape] | None = None,
    dtype: np.dtype[Any] = _INT32,
    layout: SavedText | None = None,
) -> Array:
    """Return an array of zeros.

    Args:
        shape: shape of the result. Default: a single number.
        dtype: data type of the result.
        layout: layout of the result, one letter for each dimension. Of DALI 2.
    """
    return _filled(call, 0, _stacked(call, shape, layout), dtype)


@operator(output_layout=_given_layout, check=_check_layout, stacks=())
def ones(
    call: OperatorCall,
    *,
    shape: PerSample[_Shape] | None = None,
    dtype: np.dtype[Any] = _INT32,
    layout: SavedText | None = None,
) -> Array:
    """Return an array of ones.

    Args:
        shape: shape of the result. Default: a single number.
        dtype: data type of the result.
        layout: layout of the result, one letter for each dimension. Of DALI 2.
    """
    return _filled(call, 1, _stacked(call, shape, layout), dtype)


@operator(output_layout="", strided=True, stacks=(), elementwise=True)
def zeros_like(call: OperatorCall, data_like: Array, /, *, dtype: np.dtype[Any] | None = None) -> Array:
    """Return an array of zeros with the shape of another array.

    Args:
        data_like: array whose shape the result has; its values are ignored.
        dtype: data type of the result. Default: that of `data_like`.
    """
    return _filled(call, 0, data_like.shape, dtype or data_like.dtype)


@operator(output_layout="", strided=True, stacks=(), elementwise=True)
def ones_like(call: OperatorCall, data_like: Array, /, *, dtype: np.dtype[Any] | None = None) -> Array:
    """Return an array of ones with the shape of another array.

    Args:
        data_like: array whose shape the result has; its values are ignored.
        dtype: data type of the result. Default: that of `data_like`.
    """
    return _filled(call, 1, data_like.shape, dtype or data_like.dtype)


@operator(output_layout=_given_layout, check=_check_layout, strided=True, stacks=())
def full(
    call: OperatorCall,
    fill_value: Array,
    /,
    *,
    shape: PerSample[_Shape] | None = None,
    layout: SavedText | None = None,
) -> Array:
    """Repeat a value, or an array, to a shape.

    Args:
        fill_value: a number, or an array that is broadcast to the shape as in NumPy. The result has its dtype.
        shape: shape of the result. Default: a single number.
        layout: layout of the result, one letter for each dimension. Of DALI 2.
    """
    return _filled(call, fill_value, _stacked(call, shape, layout), fill_value.dtype)


@operator(output_layout="", strided=True, stacks=("fill_value",), elementwise=True)
def full_like(call: OperatorCall, data_like: Array, fill_value: Array, /) -> Array:
    """Repeat a value, or an array, to the shape of another array.

    Args:
        data_like: array whose shape and dtype the result has; its values are ignored.
        fill_value: a number, or an array that is broadcast to the shape as in NumPy. It is rounded and saturates if the
            result has integers.
    """
    return _filled(call, convert(fill_value, data_like.dtype), data_like.shape, data_like.dtype)


def _stacked(call: OperatorCall, shape: Ints | None, layout: str | None) -> Ints:
    """Return the shape of the result, given that of a sample."""
    if layout and len(layout) != len(shape or ()):
        raise SampleError(f"the layout {layout!r} must have as many letters as the shape {list(shape or ())} has numbers")
    return (*(call.count,) * call.lead, *(shape or ()))


def _filled(call: OperatorCall, value: Any, shape: Ints, dtype: np.dtype[Any]) -> Array:
    out = call.empty(shape, dtype)
    given = value
    if call.lead and np.ndim(value):  # the values of samples line up from the last axis on
        given = value.reshape(len(value), *(1,) * (out.ndim - value.ndim), *value.shape[1:])
        extra = given.ndim - out.ndim
        if extra > 0 and set(given.shape[1 : 1 + extra]) == {1}:
            given = given.reshape(len(given), *given.shape[1 + extra :])
    try:
        out[...] = given  # drops leading axes of length one
    except ValueError:
        sample = np.shape(value)[call.lead :], shape[call.lead :]
        raise SampleError(f"fill_value of shape {sample[0]} cannot be broadcast to the shape {sample[1]}") from None
    return out
