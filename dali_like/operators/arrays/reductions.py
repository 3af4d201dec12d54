"""Reductions: sums, means, extremes and deviations, as in ``nvidia.dali.fn.reductions``.

Floating-point numbers are summed as FLOAT64 and the result is rounded once; DALI sums as FLOAT.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeAlias

import numpy as np

from dali_like.common.saved_arguments import SavedText
from dali_like.errors import ArgumentClashError, SampleError
from dali_like.graph.language.operator_interface import Array, OperatorCall
from dali_like.operators.machinery.axes import axis_of, checked_axes
from dali_like.operators.machinery.description import Description, operator
from dali_like.operators.parameters import DISTINCT, Ints

_Axes: TypeAlias = Annotated[Ints, DISTINCT]
_AxisNames: TypeAlias = Annotated[SavedText, DISTINCT]
#: NumPy is slow on a last dimension this short or shorter.
_FEW_CHANNELS = 16
#: NumPy converts and sums this many elements at a time.
_BLOCK = 8192


def _check(given: Mapping[str, Any]) -> None:
    if "axes" in given and "axis_names" in given:
        raise ArgumentClashError("axes and axis_names exclude each other")


def _layout(layout: str, given: Mapping[str, Any]) -> str:
    if not layout:
        return ""
    gone = reduced_axes(layout, len(layout), given["axes"], given["axis_names"])
    return layout if given["keep_dims"] else "".join(letter for i, letter in enumerate(layout) if i not in gone)


def reduced_axes(layout: str, ndim: int, axes: Ints | None, axis_names: str | None, lead: int = 0) -> Ints:
    """Return the dimensions to reduce, as non-negative numbers. Only `ndim` and `layout` count those of a stack."""
    if axis_names is not None:
        return tuple([axis_of(name, layout) for name in axis_names])
    chosen = range(ndim - lead) if axes is None else checked_axes(axes, ndim - lead)
    return tuple([axis + lead for axis in chosen])


def default_dtype(dtype: np.dtype[Any], *, of_integers: bool) -> np.dtype[Any]:
    """Return the dtype of a result; for integers FLOAT, or the widest integers."""
    if dtype.kind == "f":
        return np.dtype(np.float64 if dtype == np.float64 else np.float32)
    return np.dtype(f"{'i' if dtype.kind == 'i' else 'u'}8") if of_integers else np.dtype(np.float32)


def _as_type(numbers: Any, dtype: np.dtype[Any]) -> Array:
    """Convert exact results to a dtype; integers are truncated."""
    return np.asarray(numbers).astype(dtype)


def _reduction(name: str) -> Callable[[Callable[..., Array]], Description]:
    return operator(
        module="reductions",
        name=name,
        output_layout=_layout,
        check=_check,
        strided=True,
        stacks=("mean",),
        kernel_for_large=True,
        kernel=f"arrays.array_kernels.{name}_" if name in ("sum", "min", "max") else f"arrays.array_kernels.{name}",
    )


@_reduction("sum")
def sum_(
    call: OperatorCall,
    input: Array,
    *,
    axes: _Axes | None = None,
    axis_names: _AxisNames | None = None,
    keep_dims: bool = False,
    dtype: np.dtype[Any] | None = None,
) -> Array:
    """Sum elements.

    Args:
        input: any dtype.
        axes: dimensions to reduce; negative values count from the end. Default: all.
        axis_names: the same as letters of the layout.
        keep_dims: whether to keep these dimensions, with extent 1.
        dtype: data type of the result. Default: INT64 for signed integers, UINT64 for others, FLOAT for floating-point
            numbers, FLOAT64 for FLOAT64. Integer sums wrap around on overflow.
    """
    where = reduced_axes(call.layout, input.ndim, axes, axis_names, call.lead)
    wanted = default_dtype(input.dtype, of_integers=True) if dtype is None else dtype
    precise = wanted if wanted.kind in "iu" and input.dtype.kind != "f" else np.dtype(np.float64)
    with np.errstate(all="ignore"):
        return _as_type(_reduced(np.add, input, where, keep_dims, call.lead, dtype=precise), wanted)


def _average(name: str, purpose: str, of: Callable[[Array, Ints, bool, int], Any]) -> Description:
    """Describe a reduction to a mean."""

    def average(
        call: OperatorCall,
        input: Array,
        *,
        axes: _Axes | None = None,
        axis_names: _AxisNames | None = None,
        keep_dims: bool = False,
        dtype: np.dtype[Any] | None = None,
    ) -> Array:
        where = reduced_axes(call.layout, input.ndim, axes, axis_names, call.lead)
        with np.errstate(all="ignore"):
            result = of(input, where, keep_dims, call.lead)
            return _as_type(result, default_dtype(input.dtype, of_integers=False) if dtype is None else dtype)

    average.__doc__ = f"""{purpose}

    Args:
        input: any dtype.
        axes: dimensions to reduce; negative values count from the end. Default: all.
        axis_names: the same as letters of the layout.
        keep_dims: whether to keep these dimensions, with extent 1.
        dtype: data type of the result; integers are truncated. Default: FLOAT, or FLOAT64 for FLOAT64 input.
    """
    return _reduction(name)(average)


def _extreme(name: str, purpose: str, ufunc: np.ufunc, limit: str) -> Description:
    """Describe a reduction to an extreme. Without elements, it is the `limit` of the dtype, "min" or "max"."""

    def extreme(
        call: OperatorCall,
        input: Array,
        *,
        axes: _Axes | None = None,
        axis_names: _AxisNames | None = None,
        keep_dims: bool = False,
    ) -> Array:
        where = reduced_axes(call.layout, input.ndim, axes, axis_names, call.lead)
        if _count(input.shape, where):
            return _reduced(ufunc, input, where, keep_dims, call.lead)
        limits = np.finfo(input.dtype) if input.dtype.kind == "f" else np.iinfo(input.dtype)
        return _reduced(ufunc, input, where, keep_dims, call.lead, initial=input.dtype.type(getattr(limits, limit)))

    extreme.__doc__ = f"""{purpose}

    Args:
        input: any dtype.
        axes: dimensions to reduce; negative values count from the end. Default: all.
        axis_names: the same as letters of the layout.
        keep_dims: whether to keep these dimensions, with extent 1.
    """
    return _reduction(name)(extreme)


def _deviation(name: str, purpose: str, of_variance: Callable[[Any], Any]) -> Description:
    """Describe a reduction to a function of the variance."""

    def deviation(
        call: OperatorCall,
        data: Array,
        mean: Array,
        *,
        axes: _Axes | None = None,
        axis_names: _AxisNames | None = None,
        keep_dims: bool = False,
        ddof: int = 0,
    ) -> Array:
        where = reduced_axes(call.layout, data.ndim, axes, axis_names, call.lead)
        with np.errstate(all="ignore"):
            result = of_variance(_variance(data, mean, where, keep_dims, ddof, call.lead))
        return _as_type(result, default_dtype(data.dtype, of_integers=False))

    deviation.__doc__ = f"""{purpose}

    Args:
        data: any dtype.
        mean: a number, or the result of `mean` over the same dimensions, with or without `keep_dims`.
        axes: dimensions to reduce; negative values count from the end. Default: all.
        axis_names: the same as letters of the layout.
        keep_dims: whether to keep these dimensions, with extent 1.
        ddof: number subtracted from the element count in the divisor.
    """
    return _reduction(name)(deviation)


def _count(shape: tuple[int, ...], axes: Ints) -> int:
    return math.prod(shape[axis] for axis in axes)


def _reduced(
    ufunc: np.ufunc,
    data: Array,
    axes: Ints,
    keep_dims: bool,
    lead: int,
    dtype: np.dtype[Any] | None = None,
    **initial: Any,
) -> Array:
    """Reduce like ``ufunc.reduce``, but one dimension at a time if some stay, first one first: many times faster.

    The last dimension is converted before it is summed. NumPy would convert blocks of `_BLOCK` elements, and sum each block
    by itself; so sums would depend on where a sample lies in a stack.
    """
    if len(axes) == data.ndim - lead:
        return _reduced_to_scalars(ufunc, data, axes, keep_dims, lead, dtype, **initial)
    result = data
    for axis in sorted(axes):
        if axis == data.ndim - 1 and 0 < data.shape[-1] <= _FEW_CHANNELS:
            result = _of_channels(ufunc, result, dtype)
        else:
            if axis == data.ndim - 1 and dtype is not None:
                result = result.astype(dtype, copy=False)
            result = ufunc.reduce(result, axis, dtype, keepdims=True, **initial)
    return np.asarray(result if keep_dims else np.squeeze(result, axes))


def _reduced_to_scalars(
    ufunc: np.ufunc,
    data: Array,
    axes: Ints,
    keep_dims: bool,
    lead: int,
    dtype: np.dtype[Any] | None,
    **initial: Any,
) -> Array:
    """Reduce samples to scalars."""
    if not lead:
        return np.asarray(ufunc.reduce(data, axes, dtype, keepdims=keep_dims, **initial))
    count = math.prod(data.shape[1:])
    shape = (len(data), *[1] * (data.ndim - 1)) if keep_dims else (len(data),)
    if data.flags.c_contiguous and count <= _BLOCK:
        rows = data.reshape(len(data), count).astype(data.dtype if dtype is None else dtype, copy=False)
        return np.asarray(ufunc.reduce(rows, 1, dtype, **initial)).reshape(shape)
    own = tuple([axis - 1 for axis in axes])
    return np.array([ufunc.reduce(sample, own, dtype, **initial) for sample in data]).reshape(shape)


def _of_channels(ufunc: np.ufunc, data: Array, dtype: np.dtype[Any] | None) -> Array:
    """Reduce the last dimension like ``ufunc.reduce``, which is slow on a short one."""
    result = data[..., :1].astype(data.dtype if dtype is None else dtype)
    for i in range(1, data.shape[-1]):
        ufunc(result, data[..., i : i + 1], out=result, dtype=result.dtype, casting="unsafe")
    return result


def _mean(data: Array, axes: Ints, keep_dims: bool, lead: int) -> Any:
    return np.divide(_reduced(np.add, data, axes, keep_dims, lead, np.dtype(np.float64)), _count(data.shape, axes))


def _mean_square(data: Array, axes: Ints, keep_dims: bool, lead: int) -> Any:
    return _mean(np.square(data, dtype=np.float64), axes, keep_dims, lead)


def _rms(data: Array, axes: Ints, keep_dims: bool, lead: int) -> Any:
    return np.sqrt(_mean_square(data, axes, keep_dims, lead))


def _distances(data: Array, mean: Array) -> Array:
    """Return the distances of the elements from a broadcast mean. For one mean per channel, use long rows, which are
    faster.
    """
    channels = data.shape[-1] if data.ndim > 1 else 0
    if mean.size != channels or mean.shape[-1:] != (channels,) or channels > _FEW_CHANNELS or not data.flags.c_contiguous:
        return np.asarray(np.subtract(data, mean, dtype=np.float64))
    rows = data.reshape(-1, data.shape[-2] * channels)
    means = np.tile(mean.reshape(-1), data.shape[-2])
    distances: Array = np.subtract(rows, means, dtype=np.float64).reshape(data.shape)
    return distances


def _variance(data: Array, mean: Array, axes: Ints, keep_dims: bool, ddof: int, lead: int) -> Any:
    kept = tuple([1 if i in axes else extent for i, extent in enumerate(data.shape)])
    left = tuple([extent for i, extent in enumerate(data.shape) if i not in axes])
    is_number = math.prod(mean.shape[lead:]) == 1
    if mean.shape not in (kept, left) and not is_number:
        raise SampleError(f"the mean must be a number or have the shape {left} or {kept}, not {mean.shape}")
    one = (*data.shape[:lead], *[1] * (data.ndim - lead)) if lead else ()
    distances = _distances(data, mean.reshape(one if is_number else kept)) if data.size else np.zeros(data.shape)
    with np.errstate(all="ignore"):
        total = _reduced(np.add, np.square(distances, out=distances), axes, keep_dims, lead)
        return np.divide(total, _count(data.shape, axes) - ddof)


_average("mean", "Average elements.", _mean)
_average("mean_square", "Average the squares of elements.", _mean_square)
_average("rms", "Compute the root mean square of elements.", _rms)
_extreme("min", "Find the minimum; NaN is ignored.", np.fmin, "max")
_extreme("max", "Find the maximum; NaN is ignored.", np.fmax, "min")
_deviation("variance", "Compute the variance: the mean squared distance from a given mean.", lambda variance: variance)
_deviation("std_dev", "Compute the standard deviation: the square root of `variance`.", np.sqrt)
