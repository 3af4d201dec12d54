"""Operators that move pixels without changing them: flip, crop, slice, pad and paste, as in ``nvidia.dali.fn``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import numpy as np

from dali_like.common.extras import installed
from dali_like.engine.memory.ring import PackedSamples, SampleList
from dali_like.errors import ArgumentClashError
from dali_like.graph.language.operator_interface import Array, OperatorCall
from dali_like.operators.geometry._windows import (
    ENDS,
    STARTS,
    Axes,
    AxisNames,
    BorderPolicy,
    Extents,
    Filling,
    Parts,
    Position,
    RelativeExtents,
    Rounding,
    Side,
    Sides,
    check_slice,
    cut,
    fill,
    in_single,
    slice_window,
)
from dali_like.operators.machinery.axes import axes_of, for_each_axis
from dali_like.operators.machinery.description import IMAGES, VOLUMES, operator
from dali_like.operators.parameters import SOME, Floats, Ints, PerSample, at_least

#: Longer rows are copied one by one.
_FEW_ELEMENTS = 2048
_ALL, _REVERSED = slice(None), slice(None, None, -1)
#: Channel counts for which OpenCV's functions keep the number of dimensions.
_PIXELS = (3, 4)


@operator(
    layouts="HWC CHW FHWC FCHW DHWC CDHW FDHWC FCDHW",
    strided=True,
    stacks=(),
    kernel="geometry.window_kernels.flip",
    kernel_for_stacks=False,
)
def flip(
    call: OperatorCall,
    image: Array,
    *,
    horizontal: PerSample[int] = 1,
    vertical: PerSample[int] = 0,
    depthwise: PerSample[int] = 0,
) -> Array:
    """Mirror images and volumes.

    Args:
        image: any dtype.
        horizontal: whether to exchange left and right.
        vertical: whether to exchange top and bottom.
        depthwise: whether to exchange front and back.
    """
    out = call.empty(image.shape, image.dtype)
    is_image = call.layout == "HWC" or (call.layout == "NHWC" and not vertical and image.flags.c_contiguous)
    backwards = is_image and horizontal and image.shape[-1] in _PIXELS and image.dtype == np.uint8 and image.size
    if backwards and (cv2 := installed("cv2")) is not None:  # 30 times as fast as NumPy
        if call.lead:
            rows = (-1, *image.shape[-2:])  # of all images of a stack
            cv2.flip(image.reshape(rows), 1, dst=out.reshape(rows))
        else:
            cv2.flip(image, -1 if vertical else 1, dst=out)
    else:
        wanted = {"W": horizontal, "H": vertical, "D": depthwise}
        out[...] = image[tuple([_REVERSED if wanted.get(letter) else _ALL for letter in call.layout])]
    return out


# Crop


def check_crop(given: Mapping[str, Any]) -> None:
    """Check that the arguments for the size of the window do not contradict each other.

    Raises:
        ArgumentError: they do.
    """
    sides = {"crop_w", "crop_h"} & set(given)
    if "crop" in given and (sides or "crop_d" in given):
        raise ArgumentClashError("crop excludes crop_w, crop_h and crop_d")
    if len(sides) == 1 or ("crop_d" in given and not sides):
        raise ArgumentClashError("crop_w and crop_h must be given together")


@functools.lru_cache(256)
def crop_places(
    layout: str,
    shape: tuple[int, ...],
    crop: Floats | None,
    sizes: tuple[float, float, float],
    positions: tuple[float, float, float],
    rounding: Rounding,
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return start and size of the window in each axis; see `crop_window`. Sizes and positions are for x, y and z."""
    by_letter = [dict(zip("WHD", values, strict=True)) for values in (sizes, positions)]
    window = crop_window(layout, shape, crop, by_letter[0], by_letter[1], rounding)
    places = [window.get(letter, (0, extent)) for letter, extent in zip(layout, shape, strict=True)]
    start, size = zip(*places, strict=True)
    return start, size


def crop_window(
    layout: str,
    shape: Sequence[int],
    crop: Floats | None,
    sizes: Mapping[str, float],
    positions: Mapping[str, float],
    rounding: Rounding,
) -> dict[str, tuple[int, int]]:
    """Return start and size of the window in each spatial axis. In sequences of images, the frames are the depth.

    Args:
        layout: layout of the image.
        shape: shape of the image.
        crop: size of the window, as (height, width) or (depth, height, width); 0 for the whole axis.
        sizes: the same by letters.
        positions: position of the window, from 0 (first) to 1 (last).
    """
    if crop is not None:
        sizes = dict(zip("DHW"[-len(crop) :], crop, strict=True))
    depth = "D" if "D" in layout else "F"
    window = {}
    for letter, extent in zip(layout, shape, strict=True):
        if letter in (depth, "H", "W"):
            name = "D" if letter == depth else letter
            size = int(sizes.get(name, 0)) or extent
            window[letter] = (in_single(positions[name], extent - size, rounding), size)
    return window


@operator(
    layouts=f"{IMAGES} {VOLUMES}",
    check=check_crop,
    strided=True,
    stacks=(),
    kernel="geometry.window_kernels.crop",
    kernel_for_large=True,
    kernel_for_stacks=False,
    ignored={"image_type": None},
)
def crop(
    call: OperatorCall,
    image: Array,
    *,
    crop: PerSample[Sides] | None = None,
    crop_w: PerSample[Side] = 0.0,
    crop_h: PerSample[Side] = 0.0,
    crop_d: PerSample[Side] = 0.0,
    crop_pos_x: PerSample[Position] = 0.5,
    crop_pos_y: PerSample[Position] = 0.5,
    crop_pos_z: PerSample[Position] = 0.5,
    rounding: Rounding = "round",
    out_of_bounds_policy: BorderPolicy = "error",
    fill_values: Filling = (0.0,),
    dtype: np.dtype[Any] | None = None,
) -> Array:
    """Cut windows out of images and volumes.

    Args:
        image: any dtype.
        crop: size of the window, as (height, width) or (depth, height, width); 0 for the whole axis. The depth applies to
            volumes, or to the frames of sequences of images. Without it, the window has all of them.
        crop_w: width of the window, if `crop` is not given.
        crop_h: height of the window.
        crop_d: depth of the window.
        crop_pos_x: position of the window, from 0 (left edge) to 1 (right edge).
        crop_pos_y: the same, from top to bottom.
        crop_pos_z: the same, from front to back.
        rounding: how positions between pixels are rounded: "round" or "truncate".
        out_of_bounds_policy: treatment of a window larger than the image: see `slice`.
        fill_values: one for all channels, or one for each. Beyond the range of integers, they wrap around.
        dtype: UINT8, FLOAT16, FLOAT or another data type of the result. Numbers beyond its range saturate, and fractions of
            integers are cut off. Default: that of the input.
    """
    sizes, positions = (crop_w, crop_h, crop_d), (crop_pos_x, crop_pos_y, crop_pos_z)
    window = None if crop is None else tuple(crop)
    start, shape = crop_places(call.layout, image.shape, window, sizes, positions, rounding)
    return cut(call, image, start, shape, out_of_bounds_policy, fill_values, dtype)


# Slice


def _sliced_layout(layout: str, given: Mapping[str, Any]) -> str:
    if layout and (given["axes"] is not None or given["axis_names"] is not None):  # otherwise they may be nodes
        count = len(axes_of(layout, given["axes"], given["axis_names"], len(layout)))
        for name in (*STARTS, *ENDS):
            for_each_axis(name, given[name] or (), count)
    return layout


@operator(
    check=check_slice,
    output_layout=_sliced_layout,
    strided=True,
    stacks=(),
    kernel="geometry.window_kernels.slice",
    kernel_for_large=True,
    kernel_for_stacks=False,
    ignored={"image_type": None},
)
def slice(
    call: OperatorCall,
    data: Array,
    anchor: Array | None = None,
    shape_input: Array | None = None,
    /,
    *,
    axes: PerSample[Axes] | None = None,
    axis_names: AxisNames | None = None,
    start: PerSample[Ints] | None = None,
    rel_start: PerSample[Parts] | None = None,
    end: PerSample[Ints] | None = None,
    rel_end: PerSample[Parts] | None = None,
    shape: PerSample[Extents] | None = None,
    rel_shape: PerSample[RelativeExtents] | None = None,
    normalized_anchor: bool = True,
    normalized_shape: bool = True,
    out_of_bounds_policy: BorderPolicy = "error",
    fill_values: Filling = (0.0,),
    dtype: np.dtype[Any] | None = None,
) -> Array:
    """Cut windows out of arrays, given by start and end.

    The inputs `anchor` and `shape_input` give the window, or arguments do: its start, and its end or size. Arguments are in
    elements, or with ``rel_`` in fractions of the extent. Each has one number for all axes, or one for each.

    Args:
        data: any number of dimensions.
        anchor: start of the window in each of the axes.
        shape_input: size of the window.
        axes: axes to cut. Default: 1 and 0, for data without a layout.
        axis_names: the same as letters of the layout. Default: "WH".
        start, rel_start: start of the window. Default: the beginning.
        end, rel_end: end of the window. Default: the end.
        shape, rel_shape: size of the window, instead of its end.
        normalized_anchor: whether a floating-point `anchor` is a fraction of the extent.
        normalized_shape: the same for `shape_input`.
        out_of_bounds_policy: treatment of a window that lies partly outside: "error", "pad" or "constant" (`fill_values`),
            "trim_to_shape", or continue the array. For the elements 1 2 3: "reflect_101" is 3 2 | 1 2 3 | 2 1, "reflect" and
            "reflect_1001" are 2 1 | 1 2 3 | 3 2, "wrap" is 2 3 | 1 2 3 | 1 2, "clamp" and "edge" are 1 1 | 1 2 3 | 3 3.
        fill_values: one for all channels, or one for each. Beyond the range of integers, they wrap around.
        dtype: UINT8, FLOAT16, FLOAT or another data type of the result. Numbers beyond its range saturate, and fractions of
            integers are cut off. Default: that of the input.
    """
    if axes is None and axis_names is None:
        axes, axis_names = (None, "WH") if call.layout else ((1, 0), None)
    own = axes_of(call.layout[call.lead :], axes, axis_names, data.ndim - call.lead)
    cut_axes = [axis + call.lead for axis in own]
    named = {
        "start": start,
        "rel_start": rel_start,
        "end": end,
        "rel_end": rel_end,
        "shape": shape,
        "rel_shape": rel_shape,
    }
    extents = [data.shape[axis] for axis in cut_axes]
    spans = slice_window(extents, anchor, shape_input, (normalized_anchor, normalized_shape), named)
    begins, shapes = [0] * data.ndim, list(data.shape)
    for axis, (begin, last) in zip(cut_axes, spans, strict=True):
        begins[axis], shapes[axis] = begin, last - begin
    return cut(call, data, begins, shapes, out_of_bounds_policy, fill_values, dtype)


# Pad and paste


def _check_pad(given: Mapping[str, Any]) -> None:
    if "axes" in given and "axis_names" in given:
        raise ArgumentClashError("axes and axis_names exclude each other")
    axes = given.get("axis_names") or given.get("axes")
    if isinstance(axes, (str, tuple)):
        _check_lengths(given, len(axes))


def _check_lengths(given: Mapping[str, Any], axes: int) -> None:
    for name in ("shape", "align"):
        if axes and isinstance(given.get(name), tuple):
            for_each_axis(name, given[name], axes)


def _padded_layout(layout: str, given: Mapping[str, Any]) -> str:
    if layout and (given["axes"] is not None or given["axis_names"] is not None):  # otherwise they may be nodes
        _check_lengths(given, len(axes_of(layout, given["axes"], given["axis_names"], len(layout))))
    return layout


def _has_whole_shape(given: Mapping[str, Any]) -> bool:
    """Return whether the result is independent of the largest sample in the batch."""
    shape = given.get("shape", ())
    return len(shape) > 0 and min(shape) > 0


@operator(
    check=_check_pad,
    output_layout=_padded_layout,
    per_sample=_has_whole_shape,
    strided=True,
    stacks=(),
    kernel="geometry.window_kernels.pad",
    kernel_for_stacks=False,
)
def pad(
    call: OperatorCall,
    data: Any,
    *,
    axes: PerSample[Axes] | None = None,
    axis_names: AxisNames | None = None,
    shape: PerSample[Ints] | None = None,
    align: PerSample[Annotated[Ints, at_least(1)]] | None = None,
    fill_value: PerSample[float] = 0.0,
) -> Any:
    """Append elements so that all samples of a batch reach the size of the largest one, or a given size.

    Args:
        data: any number of dimensions.
        axes: axes to pad. Default: all axes.
        axis_names: the same as letters of the layout.
        shape: minimum extents, one for all axes or one for each. Larger samples stay as they are. -1 or 0: the largest
            extent in the batch.
        align: round extents up to multiples of this; one for all axes, or one for each.
        fill_value: value of the appended elements.
    """
    if isinstance(data, np.ndarray):
        return _padded(call.empty, call.layout, data, data.shape, axes, axis_names, shape, align, fill_value, call.lead)
    given = (axes, shape, align, fill_value)
    if (
        not any(isinstance(value, list) for value in given)
        and (rows := _padded_rows(call, data, axis_names, *given)) is not None
    ):
        return rows
    largest = [max(array.shape[axis] for array in data) for axis in range(data[0].ndim)]
    arguments = [_for_each_sample(value, data) for value in (axes, shape, align, fill_value)]
    return [
        _padded(np.empty, call.layout, array, largest, numbers, axis_names, *others)
        for array, numbers, *others in zip(data, *arguments, strict=True)
    ]


def _padded_rows(
    call: OperatorCall,
    data: Sequence[Array],
    axis_names: str | None,
    axes: Ints | None,
    shape: Ints | None,
    align: Ints | None,
    value: float,
) -> Array | None:
    """Return a batch as one array, if only the first axis is padded, to the extent of the largest sample."""
    packed = data.packed if isinstance(data, SampleList) else _packed(data)
    shapes, ndim = packed.shapes, packed.shapes.shape[1]
    numbers = axes_of(call.layout, axes, axis_names, ndim)
    steps = for_each_axis("align", align or (1,), len(numbers))
    sizes = for_each_axis("shape", shape or (0,), len(numbers))
    extents = shapes.max(axis=0, initial=0).tolist()
    for axis, size, step in zip(numbers, sizes, steps, strict=True):
        if size > 0:
            return None  # larger samples stay as they are
        extents[axis] = -(-extents[axis] // step) * step
    if 0 not in numbers or not (shapes[:, 1:] == extents[1:]).all():
        return None
    out = call.empty((len(shapes), *extents), packed.elements.dtype)
    rows, lengths = out.reshape(len(out), -1), shapes.prod(axis=1)
    if rows.shape[1] > _FEW_ELEMENTS:
        fill(out, (value,), "")
        for row, begin, length in zip(rows, packed.begins.tolist(), lengths.tolist(), strict=True):
            row[:length] = packed.elements[begin : begin + length]
        return out
    places = np.arange(rows.shape[1])
    if packed.elements.size:
        np.take(packed.elements, packed.begins[:, np.newaxis] + places, mode="clip", out=rows)
    filling = np.empty(1, out.dtype)
    fill(filling, (value,), "")
    np.copyto(rows, filling, where=places >= lengths[:, np.newaxis])
    return out


def _packed(samples: Sequence[Array]) -> PackedSamples:
    shapes = np.array([array.shape for array in samples], np.int64).reshape(len(samples), -1)
    ends = shapes.prod(axis=1).cumsum()
    elements = np.concatenate([array.reshape(-1) for array in samples])
    return PackedSamples(elements, np.concatenate(([0], ends[:-1])), shapes)


def _for_each_sample(value: Any, samples: Sequence[Array]) -> list[Any]:
    """Return an argument as a list with a value for each sample of a batch."""
    return value if isinstance(value, list) else [value] * len(samples)


def _padded(
    empty: Callable[[tuple[int, ...], Any], Array],
    layout: str,
    array: Array,
    largest: Sequence[int],
    axes: Ints | None,
    axis_names: str | None,
    shape: Ints | None,
    align: Ints | None,
    value: float,
    lead: int = 0,
) -> Array:
    numbers = [axis + lead for axis in axes_of(layout[lead:], axes, axis_names, array.ndim - lead)]
    sizes = for_each_axis("shape", shape or (0,), len(numbers))
    steps = for_each_axis("align", align or (1,), len(numbers))
    extents = list(array.shape)
    for axis, size, step in zip(numbers, sizes, steps, strict=True):
        least = max(extents[axis], size if size > 0 else largest[axis])
        extents[axis] = -(-least // step) * step
    out = empty(tuple(extents), array.dtype)
    if out.shape != array.shape:
        fill(out, (value,), "")
    out[tuple(np.s_[:extent] for extent in array.shape)] = array
    return out


def _check_paste(given: Mapping[str, Any]) -> None:
    channels, values = given.get("n_channels", 3), given["fill_value"]
    if len(values) not in (1, channels):
        raise ArgumentClashError(f"fill_value has {len(values)} elements; it must have one, or n_channels={channels}")


@operator(layouts="HWC", check=_check_paste, strided=True, stacks=(), kernel="geometry.window_kernels.paste")
def paste(
    call: OperatorCall,
    image: Array,
    *,
    ratio: PerSample[Annotated[float, at_least(1)]],
    fill_value: Annotated[Ints, SOME],
    paste_x: PerSample[Position] = 0.5,
    paste_y: PerSample[Position] = 0.5,
    min_canvas_size: PerSample[Side] = 0.0,
    n_channels: Annotated[int, at_least(1)] = 3,
) -> Array:
    """Paste images onto larger canvases.

    Args:
        image: any dtype.
        ratio: size of the canvas relative to the image, at least 1.
        fill_value: color of the canvas: one value for all channels, or one for each.
        paste_x: position of the image, from 0 (left) to 1 (right).
        paste_y: the same, from top to bottom.
        min_canvas_size: minimum extent of the canvas, in pixels.
        n_channels: number of channels of the images, if `fill_value` has one value for each.
    """
    height, width, channels = image.shape[call.lead :]
    shape = [max(in_single(ratio, extent, "truncate"), int(min_canvas_size)) for extent in (height, width)]
    top, left = (
        in_single(place, canvas - extent, "truncate")
        for place, canvas, extent in zip((paste_y, paste_x), shape, (height, width), strict=True)
    )
    out = call.empty((*image.shape[: call.lead], *shape, channels), image.dtype)
    fill(out, fill_value, call.layout)
    out[..., top : top + height, left : left + width, :] = image
    return out
