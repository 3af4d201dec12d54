"""Operators that convert, stack, join and look up arrays, as in ``nvidia.dali.fn``."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np

from dali_like.common.saved_arguments import SavedText
from dali_like.errors import ArgumentClashError, SampleError, SampleTypeError
from dali_like.graph.language.operator_interface import Array, OperatorCall
from dali_like.operators.machinery.axes import axis_of
from dali_like.operators.machinery.conversion import convert
from dali_like.operators.machinery.description import operator, view_kernel
from dali_like.operators.parameters import Floats, Ints, at_least, between, one_of_types
from dali_like.types import FLOAT, INT64, numpy_dtype

_FLOAT, _INT64 = numpy_dtype(FLOAT), numpy_dtype(INT64)
#: NumPy is slow on rows that are this short or shorter.
_FEW_CHANNELS = 16
#: The largest key of a `lookup_table`.
_LAST_KEY = 65535
#: Elements that `lookup_table` looks up at once: NumPy makes a temporary array of eight bytes for each.
_LOOKED_UP = 1 << 14


# Types


@operator(strided=True, stacks=(), elementwise=True)
def cast(call: OperatorCall, input: Array, *, dtype: np.dtype[Any]) -> Array:
    """Convert arrays to another type.

    Numbers outside the type's range become its minimum or maximum; fractions are rounded, halves away from zero.

    Args:
        input: any dtype.
        dtype: data type of the result.
    """
    return _cast(call, input, dtype)


@operator(strided=True, stacks=("input_1",))
def cast_like(call: OperatorCall, input_0: Array, input_1: Array) -> Array:
    """Convert arrays to the type of another input.

    Args:
        input_0: any dtype.
        input_1: gives the data type; its values and shape are ignored.
    """
    return _cast(call, input_0, input_1.dtype)


def _cast(call: OperatorCall, array: Array, dtype: np.dtype[Any]) -> Array:
    return call.part(array) if array.dtype == dtype else convert(array, dtype, call.empty(array.shape, dtype))


@operator(strided=True, stacks=(), elementwise=True)
def copy(call: OperatorCall, input: Array) -> Array:
    """Copy the input.

    Args:
        input: any dtype.
    """
    return call.part(input)


@operator(strided=True, stacks=(), needs_shapes_only=True, **view_kernel("shapes"))
def shapes(
    call: OperatorCall,
    input: Array,
    *,
    dtype: Annotated[np.dtype[Any], one_of_types("int32 uint32 int64 uint64 float32 float64")] = _INT64,
) -> Array:
    """Return the shape of each sample as a one-dimensional array; see also `DataNode.shape`.

    Args:
        input: any dtype.
        dtype: data type of the result.
    """
    shape = np.array(input.shape[call.lead :], dtype)
    return np.broadcast_to(shape, (call.count, len(shape))) if call.lead else shape


# Several arrays


def _check_axis_name(given: Mapping[str, Any]) -> None:
    name = given.get("axis_name")
    if name is not None and len(str(name)) != 1:
        raise ArgumentClashError(f"axis_name must be a single letter, not {name!r}")


def _check_cat(given: Mapping[str, Any]) -> None:
    _check_axis_name(given)
    if "axis" in given and "axis_name" in given:
        raise ArgumentClashError("axis and axis_name exclude each other")


def _same_kind(name: str, arrays: Sequence[Array]) -> None:
    for i, array in enumerate(arrays):
        if (array.dtype, array.ndim) != (arrays[0].dtype, arrays[0].ndim):
            raise SampleError(
                f"{name}: the inputs must have the same type and number of dimensions; input 0 has {arrays[0].dtype} and "
                f"{arrays[0].ndim}, input {i} {array.dtype} and {array.ndim}"
            )


def _check_axis(axis: int, least: int, most: int) -> None:
    if not least <= axis <= most:
        raise ArgumentClashError(f"axis must be from {least} to {most} for these inputs, not {axis}")


def _with_axis(layout: str, axis: int, name: str | None) -> str:
    if name is None:
        return ""
    position = axis if axis >= 0 else axis + len(layout) + 1
    return layout[:position] + name + layout[position:]


def _stacked_layout(layout: str, given: Mapping[str, Any]) -> str:
    if layout:
        _check_axis(given["axis"], -len(layout), len(layout))
    return _with_axis(layout, given["axis"], given["axis_name"])


@operator(
    output_layout=_stacked_layout,
    check=_check_axis_name,
    strided=True,
    stacks=(),
    kernel="arrays.array_kernels.stack",
    kernel_for_stacks=False,
)
def stack(call: OperatorCall, *inputs: Array, axis: int = 0, axis_name: SavedText | None = None) -> Array:
    """Stack arrays of the same shape along a new dimension.

    Args:
        inputs: arrays of one type.
        axis: index of the new dimension in the result; negative values count from the end.
        axis_name: its letter in the layout. Default: the result has no layout.
    """
    ndim = inputs[0].ndim - call.lead
    _same_kind("fn.stack", inputs)
    _check_axis(axis, -ndim, ndim)
    if axis_name is not None and ndim and not call.layout:
        raise SampleError("fn.stack: axis_name needs inputs with a layout, but the first one has none")
    if different := [array.shape for array in inputs if array.shape != inputs[0].shape]:
        raise SampleError(f"fn.stack: the inputs must have the same shape, not {inputs[0].shape} and {different[0]}")
    axis = axis % (ndim + 1) + call.lead
    extents = list(inputs[0].shape)
    extents.insert(axis, len(inputs))
    return np.stack(inputs, axis, out=call.empty(tuple(extents), inputs[0].dtype))


def _joined_layout(layout: str, given: Mapping[str, Any]) -> str:
    if layout and given["axis_name"] is not None:
        axis_of(given["axis_name"], layout)
    if layout:
        _check_axis(given["axis"], -len(layout), len(layout) - 1)
    return layout


@operator(
    output_layout=_joined_layout,
    check=_check_cat,
    strided=True,
    stacks=(),
    kernel="arrays.array_kernels.cat",
    kernel_for_stacks=False,
)
def cat(call: OperatorCall, *inputs: Array, axis: int = 0, axis_name: SavedText | None = None) -> Array:
    """Join arrays along an existing dimension.

    Args:
        inputs: arrays of one type, and of the same shape except for that dimension.
        axis: index of the dimension; negative values count from the end.
        axis_name: its letter in the layout of the first input.
    """
    lead, ndim = call.lead, inputs[0].ndim - call.lead
    _same_kind("fn.cat", inputs)
    if axis_name is not None:
        axis = axis_of(axis_name, call.layout) - lead
    _check_axis(axis, -ndim, ndim - 1)
    axis = axis % ndim + lead
    rest = {(*array.shape[:axis], *array.shape[axis + 1 :]) for array in inputs}
    if len(rest) > 1:
        shown = ", ".join(str(array.shape) for array in inputs)
        raise SampleError(f"fn.cat: the inputs must have the same shape except for dimension {axis}, not {shown}")
    extents = list(inputs[0].shape)
    extents[axis] = sum(array.shape[axis] for array in inputs)
    out = call.empty(tuple(extents), inputs[0].dtype)
    if axis != len(extents) - 1 or len(extents) == 1 or extents[-1] > _FEW_CHANNELS:
        return np.concatenate(inputs, axis, out=out)
    channels = (array[..., i] for array in inputs for i in range(array.shape[-1]))
    for i, channel in enumerate(channels):  # NumPy is several times slower with short rows
        out[..., i] = channel
    return out


# Tables


def _one_hot_layout(layout: str, given: Mapping[str, Any]) -> str:
    axis = -1 if given["axis"] is None else given["axis"]
    if layout:
        _check_axis(axis, -1, len(layout))
    result = _with_axis(layout, axis, given["axis_name"])
    if given["axis"] is None and result:  # a one-element array also becomes a vector
        return f"{result} {given['axis_name']}"
    return result


@operator(
    output_layout=_one_hot_layout,
    check=_check_axis_name,
    strided=True,
    stacks=(),
    kernel="arrays.array_kernels.one_hot",
    kernel_for_stacks=False,
)
def one_hot(
    call: OperatorCall,
    input: Array,
    *,
    num_classes: Annotated[int, at_least(0)] = 0,
    axis: Annotated[int, at_least(-1)] | None = None,
    axis_name: SavedText | None = None,
    dtype: np.dtype[Any] = _FLOAT,
    on_value: float = 1.0,
    off_value: float = 0.0,
) -> Array:
    """Convert class indices to one-hot vectors.

    Args:
        input: integers.
        num_classes: length of the vectors.
        axis: dimension of the vectors in the result; -1: the last one. Default: likewise the last one, but a one-element
            array counts as a scalar, so the result is a vector.
        axis_name: its letter in the layout. Default: the result has no layout.
        dtype: data type of the result.
        on_value: value at the index of the class.
        off_value: value elsewhere, and everywhere if the class does not exist.
    """
    if input.dtype.kind == "b":
        raise SampleTypeError("fn.one_hot: the input must contain numbers, not Booleans; convert it with fn.cast")
    is_scalar = axis is None and math.prod(input.shape[call.lead :]) == 1
    classes = input.reshape(input.shape[: call.lead]) if is_scalar else input
    axis, ndim = -1 if axis is None else axis, classes.ndim - call.lead
    _check_axis(axis, -1, ndim)
    if axis_name is not None and ndim and not call.layout:
        raise SampleError("fn.one_hot: axis_name needs an input with a layout, but this one has none")
    numbers = classes if classes.dtype.kind != "f" else np.trunc(classes)
    axis = classes.ndim if axis < 0 else axis + call.lead
    out = call.empty((*classes.shape[:axis], num_classes, *classes.shape[axis:]), dtype)
    out[...] = cut_value(off_value, dtype)
    exists = (numbers >= 0) & (numbers < num_classes)
    others = np.nonzero(exists) if exists.ndim else ()
    np.moveaxis(out, axis, -1)[*others, numbers[exists].astype(np.intp)] = cut_value(on_value, dtype)
    return out


def cut_value(value: float, dtype: np.dtype[Any]) -> Array:
    """Convert a value to a dtype, with truncation and wrap-around."""
    return np.array(value if dtype.kind == "f" else int(value)).astype(dtype)


def _check_table(given: Mapping[str, Any]) -> None:
    keys, values = given.get("keys", ()), given.get("values", ())
    if len(keys) != len(values):
        raise ArgumentClashError(f"keys and values must have the same length, not {len(keys)} and {len(values)}")


@operator(
    check=_check_table,
    strided=True,
    stacks=(),
    elementwise=True,
    kernel="arrays.array_kernels.lookup_table",
    kernel_for_large=True,
)
def lookup_table(
    call: OperatorCall,
    input: Array,
    *,
    keys: Annotated[Ints, between(0, _LAST_KEY)] = (),
    values: Floats = (),
    default_value: float = 0.0,
    dtype: np.dtype[Any] = _FLOAT,
) -> Array:
    """Replace integers by values from a table.

    Args:
        input: integers.
        keys: integers from 0 to 65535 that have a value. The last of repeated keys counts.
        values: value for each key.
        default_value: value for all other integers.
        dtype: data type of the result.
    """
    if input.dtype.kind not in "iu":
        raise SampleTypeError(f"fn.lookup_table: the input must contain integers, not {input.dtype}")
    table = table_of(keys, values, default_value, dtype, input.dtype)
    places = input.view(f"u{input.itemsize}")  # negative numbers become large ones
    if input.itemsize == np.dtype(np.intp).itemsize:  # large values may not fit into an index
        # With a plain number, NumPy 1 would make floating-point numbers of an array without dimensions.
        places = np.minimum(places, places.dtype.type(len(table) - 1)).view(np.intp)
    out = call.empty(input.shape, dtype)
    if places.size <= _LOOKED_UP or not (places.flags.c_contiguous and out.flags.c_contiguous):
        return np.take(table, places, out=out, mode="clip")
    flat, target = places.reshape(-1), out.reshape(-1)
    for begin in range(0, flat.size, _LOOKED_UP):
        part = slice(begin, begin + _LOOKED_UP)
        np.take(table, flat[part], out=target[part], mode="clip")
    return out


@functools.lru_cache(64)
def table_of(keys: Ints, values: Floats, default_value: float, dtype: np.dtype[Any], kind: np.dtype[Any]) -> Array:
    """Return the value of each unsigned integer from 0 on; the last element is the value of all larger integers."""
    size = 2 ** (8 * kind.itemsize) if kind.itemsize <= 2 else max(keys, default=0) + 2
    table = np.full(size, default_value, np.float32)
    for key, value in zip(keys, values, strict=True):
        if key <= np.iinfo(kind).max:
            table[key] = value
    return convert(table, dtype)


# Constants


def _check_constant(given: Mapping[str, Any]) -> None:
    if ("fdata" in given) == ("idata" in given):
        raise ArgumentClashError("pass either fdata or idata, but not both")


def _constant_layout(_: str, given: Mapping[str, Any]) -> str:
    layout, array = str(given["layout"]), _constant(**{name: given[name] for name in ("fdata", "idata", "shape", "dtype")})
    if layout and len(layout) != array.ndim:
        raise ArgumentClashError(f"the layout {layout!r} must have {array.ndim} letters")
    return layout


@operator(output_layout=_constant_layout, check=_check_constant, strided=True, stacks=())
def constant(
    call: OperatorCall,
    *,
    fdata: Floats | None = None,
    idata: Ints | None = None,
    shape: Ints | None = None,
    dtype: np.dtype[Any] | None = None,
    layout: SavedText = "",
) -> Array:
    """Return the same array for every sample; see also `dali_like.types.Constant`.

    Args:
        fdata: the elements, as floating-point numbers.
        idata: the elements, as integers.
        shape: shape of the array; a single element fills it. Default: one dimension.
        dtype: data type of the array. Default: FLOAT or INT32.
        layout: one letter for each dimension.
    """
    array = _constant(fdata, idata, shape, dtype)
    return np.broadcast_to(array, (call.count, *array.shape)) if call.lead else array


@functools.lru_cache(64)
def _constant(fdata: Floats | None, idata: Ints | None, shape: Ints | None, dtype: np.dtype[Any] | None) -> Array:
    given = np.array(fdata, np.float64) if idata is None else np.array(idata, np.int64)
    default = np.dtype(np.float32 if idata is None else np.int32)
    array = convert(given, default if dtype is None else dtype)
    extents = (array.size,) if shape is None else shape
    if min(extents, default=0) < 0 or array.size not in (1, math.prod(extents)):
        raise ArgumentClashError(f"{array.size} elements do not fit the shape {extents}")
    filled = np.array(np.broadcast_to(array[0], extents) if array.size == 1 else array.reshape(extents))
    filled.flags.writeable = False
    return filled
