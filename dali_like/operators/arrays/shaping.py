"""Operators that change the shape of arrays but not their elements, as in ``nvidia.dali.fn``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeAlias

import numpy as np

from dali_like.common.saved_arguments import SavedText
from dali_like.engine.memory.protocol import MAX_NDIM
from dali_like.errors import ArgumentClashError, ArgumentError, SampleError, SampleTypeError
from dali_like.graph.language.operator_interface import Array, OperatorCall
from dali_like.operators.machinery.axes import axis_of, check_below, check_different
from dali_like.operators.machinery.description import operator, view_kernel
from dali_like.operators.parameters import DISTINCT, FINITE, SOME, Floats, Ints, PerSample, at_least

_Names: TypeAlias = Annotated[SavedText, DISTINCT]


def _check_reshape(given: Mapping[str, Any]) -> None:
    if sum(name in given for name in ("shape_input", "shape", "rel_shape")) > 1:
        raise ArgumentClashError("the input shape_input, shape and rel_shape exclude each other")
    for name in ("shape", "rel_shape"):
        if isinstance(extents := given.get(name), tuple) and sum(extent < 0 for extent in extents) > 1:
            raise ArgumentClashError(f"only one extent of {name} may be negative, not several as of {list(extents)}")
    if not set(given) & {"shape_input", "shape", "rel_shape", "src_dims", "layout", "dtype"}:
        raise ArgumentClashError("nothing would change; pass shape, rel_shape, src_dims, layout or dtype")


def _reshaped_layout(layout: str, given: Mapping[str, Any]) -> str:
    shape = next((given[name] for name in ("shape", "rel_shape", "src_dims") if given[name] is not None), None)
    if given["layout"] is not None:
        if given["layout"] and shape is not None and len(shape) != len(given["layout"]):
            raise ArgumentClashError(f"the layout {given['layout']!r} must have {len(shape)} letters")
        return str(given["layout"])
    return layout if shape is None or len(shape) == len(layout) else ""


def _framed_layout(layout: str, given: Mapping[str, Any]) -> str:
    if not layout:
        return " ".join("F".ljust(ndim, "*") for ndim in range(1, MAX_NDIM))
    if layout[0] != "F" and not given["replace"]:
        raise ArgumentError(f"the layout {layout!r} does not begin with F; pass replace=True to replace its first letter")
    return f"F{layout[1:]}"


@operator(output_layout=_framed_layout, strided=True, views=True, **view_kernel("per_frame"))
def per_frame(call: OperatorCall, input: Array, *, replace: bool = False) -> Array:
    """Mark the first dimension of arguments as the frames of sequences, by a layout that begins with F.

    `rotate`, `warp_affine`, `gaussian_blur` and the color operators accept such arguments for sequences: each frame gets its
    own value. A single value applies to all frames.

    Args:
        input: as many values as the sequence of the same sample has frames.
        replace: whether to replace another first letter of the layout. Default: it is an error.
    """
    if not input.ndim:
        raise SampleError("a single number has no dimension that could count frames")
    return call.part(input)


@operator(
    output_layout=_reshaped_layout, check=_check_reshape, strided=True, views=True, stacks=(), **view_kernel("reshape")
)
def reshape(
    call: OperatorCall,
    data: Array,
    shape_input: Array | None = None,
    *,
    shape: PerSample[Ints] | None = None,
    rel_shape: PerSample[Annotated[Floats, SOME, FINITE]] | None = None,
    src_dims: Annotated[Ints, at_least(-1)] | None = None,
    layout: SavedText | None = None,
) -> Array:
    """Give arrays another shape or layout; the elements stay.

    Args:
        data: any dtype.
        shape_input: the same as `shape`.
        shape: shape of the result. One extent may be negative: it is computed from the number of elements.
        rel_shape: extents of the result divided by those of the input. One may be negative: it is computed. If that is the
            last one, there may be one more than the input has dimensions.
        src_dims: dimensions of the input to which `rel_shape` refers, or the dimensions of the result without it; -1: a new
            one.
        layout: layout of the result. Default: that of the input, if it has as many dimensions.
    """
    own = data.shape[call.lead :]
    wanted = _wanted_shape(own, shape_input, shape, rel_shape, src_dims)
    return call.part(_reshaped(data, own if wanted is None else wanted, layout, call.lead))


@operator(output_layout=_reshaped_layout, check=_check_reshape, strided=True, views=True, **view_kernel("reinterpret"))
def reinterpret(
    call: OperatorCall,
    data: Array,
    shape_input: Array | None = None,
    *,
    shape: PerSample[Ints] | None = None,
    rel_shape: PerSample[Annotated[Floats, SOME, FINITE]] | None = None,
    src_dims: Annotated[Ints, at_least(-1)] | None = None,
    layout: SavedText | None = None,
    dtype: np.dtype[Any] | None = None,
) -> Array:
    """Give arrays another type, shape or layout; the bytes stay.

    Args:
        data: any dtype.
        shape_input: the same as `shape`.
        shape: see `reshape`; in elements of the new type. Default: that of the input, with an adjusted last extent.
        rel_shape: see `reshape`.
        src_dims: see `reshape`.
        layout: see `reshape`.
        dtype: data type of the result. Default: that of the input.
    """
    dtype = data.dtype if dtype is None else dtype
    wanted = _wanted_shape(data.shape, shape_input, shape, rel_shape, src_dims)
    if wanted is None or (shape_input is None and shape is None and rel_shape is None):
        wanted = _resized(data.shape if wanted is None else wanted, data.dtype, dtype)
    if data.nbytes % dtype.itemsize:
        raise SampleError(f"fn.reinterpret: {data.nbytes} bytes are not a multiple of the size of {dtype}")
    elements = np.ascontiguousarray(data).reshape(-1)
    # NumPy assumes that the bytes of Booleans are 0 or 1.
    elements = elements.view(np.uint8) != 0 if dtype.kind == "b" else elements.view(dtype)
    return call.part(_reshaped(elements, wanted, layout))


def _wanted_shape(
    given: Sequence[int],
    shape_input: Array | None,
    shape: Ints | None,
    rel_shape: Floats | None,
    src_dims: Annotated[Ints, at_least(-1)] | None,
) -> Sequence[int] | None:
    """Return the shape that the arguments of `reshape` request, with -1 for a computed extent; None: that of the input."""
    if shape_input is not None:
        if shape_input.dtype.kind not in "iu":
            raise SampleTypeError(f"Shape input must have integral type; got: {shape_input.dtype}")
        return shape_input.reshape(-1).tolist()
    if shape is not None:
        return shape
    if src_dims is not None:
        if wrong := [dim for dim in src_dims if not -1 <= dim < len(given)]:
            raise SampleError(f"src_dims has {wrong[0]}, but the input has {len(given)} dimensions; -1 is a new one")
        given = [1 if dim == -1 else given[dim] for dim in src_dims]
    if rel_shape is None:
        return None if src_dims is None else given
    return _relative_shape(given, rel_shape, may_grow=src_dims is None)


def _relative_shape(given: Sequence[int], rel_shape: Floats, *, may_grow: bool) -> Sequence[int]:
    one_more = may_grow and len(rel_shape) == len(given) + 1 and rel_shape[-1] < 0
    if len(rel_shape) > len(given) + one_more or not (may_grow or len(rel_shape) == len(given)):
        raise SampleError(f"rel_shape has {len(rel_shape)} elements for {len(given)} dimensions; src_dims=-1 adds a new one")
    extents = [*given, 1] if one_more else given
    return [-1 if rel < 0 else math.floor(extent * rel + 0.5) for extent, rel in zip(extents, rel_shape, strict=False)]


def _resized(shape: Sequence[int], old: np.dtype[Any], new: np.dtype[Any]) -> Sequence[int]:
    if old.itemsize == new.itemsize:
        return shape
    if not shape or shape[-1] * old.itemsize % new.itemsize:
        raise SampleError(f"the last extent of the shape {tuple(shape)} of {old} is not a multiple of the size of {new}")
    return [*shape[:-1], shape[-1] * old.itemsize // new.itemsize]


def _reshaped(data: Array, shape: Sequence[int], layout: str | None, lead: int = 0) -> Array:
    extents = [max(extent, -1) for extent in shape]
    if layout and len(layout) != len(extents):
        raise SampleError(f"the layout {layout!r} must have {len(extents)} letters")
    try:
        return data.reshape((*data.shape[:lead], *extents))
    except ValueError:
        raise SampleError(
            f"the {data.size} elements of an input do not fit the shape {tuple(shape)}; one extent may be -1"
        ) from None


def _axes_of(call: OperatorCall, axes: Ints | None, axis_names: _Names | None) -> Ints:
    if axis_names is None:
        return axes or ()
    return tuple([axis_of(name, call.layout) - call.lead for name in axis_names])


def _check_squeeze(given: Mapping[str, Any]) -> None:
    if ("axes" in given) == ("axis_names" in given):
        raise ArgumentClashError("pass either axes or axis_names, but not both")
    check_different(given.get("axes", ()), "axes")


def _squeezed_layout(layout: str, given: Mapping[str, Any]) -> str:
    axes, names = given["axes"] or (), given["axis_names"] or ""
    if layout:
        axes = (*axes, *[axis_of(name, layout) for name in names])
        check_below("axes", axes, len(layout))
    return "".join(letter for i, letter in enumerate(layout) if i not in axes)


@operator(
    output_layout=_squeezed_layout, check=_check_squeeze, strided=True, views=True, stacks=(), **view_kernel("squeeze")
)
def squeeze(call: OperatorCall, data: Array, *, axes: Ints | None = None, axis_names: _Names | None = None) -> Array:
    """Remove dimensions of extent 1.

    Args:
        data: any dtype.
        axes: dimensions to remove. Other extents are allowed if the array is empty and stays empty.
        axis_names: the same as letters of the layout.
    """
    gone = _axes_of(call, axes, axis_names)
    lead, own = data.shape[: call.lead], data.shape[call.lead :]
    check_below("axes", gone, len(own))
    shape = (*lead, *[extent for i, extent in enumerate(own) if i not in gone])
    if math.prod(shape) != data.size:
        raise SampleError(f"fn.squeeze: the dimensions {gone} of an input of shape {own} do not all have the extent 1")
    return call.part(data.reshape(shape))


def _check_expand_dims(given: Mapping[str, Any]) -> None:
    axes, names = given["axes"], given.get("new_axis_names")
    check_different(axes, "axes")
    if names and len(names) != len(axes):
        raise ArgumentClashError(f"axes and new_axis_names must have the same length, not {len(axes)} and {len(names)}")


def _expanded_layout(layout: str, given: Mapping[str, Any]) -> str:
    names, axes = given["new_axis_names"], given["axes"]
    if layout:
        check_below("axes", axes, len(layout) + len(axes))
    if not names:
        return "" if axes else layout
    letters = list(layout)
    for axis, name in sorted(zip(axes, names, strict=True)):
        letters.insert(axis, name)
    return "".join(letters)


@operator(
    output_layout=_expanded_layout,
    check=_check_expand_dims,
    strided=True,
    views=True,
    stacks=(),
    **view_kernel("expand_dims"),
)
def expand_dims(call: OperatorCall, data: Array, *, axes: Ints, new_axis_names: _Names = "") -> Array:
    """Insert dimensions of extent 1.

    Args:
        data: any dtype.
        axes: positions of the new dimensions in the result.
        new_axis_names: their letters in the layout. Default: the result has no layout.
    """
    ndim = data.ndim - call.lead
    if new_axis_names and ndim and not call.layout:
        raise SampleError("fn.expand_dims: new_axis_names needs an input with a layout, but this one has none")
    check_below("axes", axes, ndim + len(axes))
    return call.part(np.expand_dims(data, tuple([axis + call.lead for axis in axes])))


def _check_transpose(given: Mapping[str, Any]) -> None:
    perm = given.get("perm", ())
    if sorted(perm) != list(range(len(perm))):
        raise ArgumentClashError(f"perm must have each of the numbers from 0 to {len(perm) - 1} once, not {list(perm)}")


def _transposed_layout(layout: str, given: Mapping[str, Any]) -> str:
    perm, result = given["perm"], given["output_layout"]
    if layout and len(perm or layout) != len(layout):
        raise ArgumentClashError(f"perm has {len(perm)} dimensions; the layout {layout!r} of the input has {len(layout)}")
    if result and len(perm or layout or result) != len(result):
        raise ArgumentClashError(f"output_layout={result!r} has another number of dimensions than the input")
    if result or not given["transpose_layout"]:
        return result or layout
    if not perm:
        return layout[::-1]
    return "".join(layout[axis] for axis in perm) if layout else ""


@operator(
    output_layout=_transposed_layout,
    check=_check_transpose,
    strided=True,
    stacks=(),
    kernel="arrays.array_kernels.transpose",
    kernel_for_stacks=False,
)
def transpose(
    call: OperatorCall,
    input: Array,
    *,
    perm: Ints | None = None,
    transpose_layout: bool = True,
    output_layout: SavedText = "",
) -> Array:
    """Reorder the dimensions of arrays.

    Args:
        input: any dtype.
        perm: for each dimension of the result, the dimension of the input. Default: reversed order.
        transpose_layout: whether the letters of the layout move with their dimensions; otherwise the layout stays.
        output_layout: layout of the result, instead.
    """
    lead, ndim = call.lead, input.ndim - call.lead
    if perm and len(perm) != ndim:
        raise SampleError(f"fn.transpose: perm has {len(perm)} dimensions, but the input has {ndim}")
    if output_layout and len(output_layout) != ndim:
        raise SampleError(f"fn.transpose: output_layout={output_layout!r} must have {ndim} letters")
    order = perm or range(ndim)[::-1]
    return call.part(input.transpose(*range(lead), *[axis + lead for axis in order]))
