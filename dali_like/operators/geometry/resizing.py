"""Operators that scale images, as in ``nvidia.dali.fn``."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from dali_like.errors import ArgumentClashError, SampleError
from dali_like.graph.language.operator_interface import Array, OperatorCall
from dali_like.operators.geometry._resampling import Axis, Filters, resample
from dali_like.operators.geometry._windows import (
    Attempts,
    Axes,
    AxisNames,
    Position,
    Range,
    Rounding,
    Side,
    Sides,
    random_window,
)
from dali_like.operators.geometry.geometry import check_crop, crop_window
from dali_like.operators.machinery.axes import axes_of, for_each_axis
from dali_like.operators.machinery.description import IMAGES, VOLUMES, operator
from dali_like.operators.parameters import FINITE, SOME, Floats, Ints, PerSample, at_least, count
from dali_like.types import INTERP_LINEAR, INTERP_NN, INTERP_TRIANGULAR, DALIInterpType

_Numbers: TypeAlias = Annotated[Floats, SOME, FINITE]
#: In pixels, negative to mirror; one for all axes, or one for each.
_Side: TypeAlias = Annotated[float, FINITE]
_Sides: TypeAlias = Annotated[Floats, count(1, 2, 3), FINITE]
Mode: TypeAlias = Literal["default", "stretch", "not_larger", "not_smaller"]

#: As in DALI. A smaller side would extend the region of one pixel further beyond the image, and need more weights.
_LEAST_SIDE = 0.1

_IGNORED = {"minibatch_size": 32, "temp_buffer_hint": 0}
_SIZES = ("resize_x", "resize_y", "resize_z")


def check_size(given: Mapping[str, Any]) -> None:
    """Check that exactly one way to give the size of the result is used.

    Raises:
        ArgumentError: the arguments contradict each other.
    """
    ways = [name for name in ("size", "resize_shorter", "resize_longer") if name in given]
    ways += [", ".join(sides)] if (sides := [name for name in _SIZES if name in given]) else []
    if len(ways) != 1:
        raise ArgumentClashError(
            "pass exactly one of size, resize_shorter, resize_longer, or some of resize_x, resize_y and resize_z"
            + (f", not {' and '.join(ways)}" if ways else "")
        )
    if "mode" in given and {"resize_shorter", "resize_longer"} & set(given):
        raise ArgumentClashError("resize_shorter and resize_longer exclude mode")
    if ("roi_start" in given) != ("roi_end" in given):
        raise ArgumentClashError("roi_start and roi_end must be given together")


def _is_compiled(given: Mapping[str, Any]) -> bool:
    """Whether there are compiled loops for the filters: all nearest neighbors, or all without negative weights."""
    kinds = {_or(given.get(name), given.get("interp_type", INTERP_LINEAR)) for name in ("min_filter", "mag_filter")}
    return kinds == {INTERP_NN} or kinds <= {INTERP_LINEAR, INTERP_TRIANGULAR}


def _sized_layout(layout: str, given: Mapping[str, Any]) -> str:
    count = sum(letter in "DHW" for letter in layout)
    for name in ("size", "max_size", "roi_start", "roi_end"):
        for_each_axis(name, given[name] or (0.0,), count)
    return layout


@operator(
    layouts=f"{IMAGES} {VOLUMES}",
    check=check_size,
    output_layout=_sized_layout,
    num_outputs=lambda given: 1 + given["save_attrs"],
    strided=True,
    stacks=(),
    kernel="geometry.resize_kernels.resize",
    kernel_for_large=True,
    kernel_serves=_is_compiled,
    ignored={**_IGNORED, "image_type": None},
)
def resize(
    call: OperatorCall,
    image: Array,
    *,
    size: PerSample[_Sides] | None = None,
    resize_x: PerSample[_Side] = 0.0,
    resize_y: PerSample[_Side] = 0.0,
    resize_z: PerSample[_Side] = 0.0,
    resize_shorter: PerSample[_Side] = 0.0,
    resize_longer: PerSample[_Side] = 0.0,
    mode: Mode = "default",
    max_size: Annotated[Floats, count(1, 2, 3)] | None = None,
    subpixel_scale: bool = True,
    roi_start: PerSample[_Sides] | None = None,
    roi_end: PerSample[_Sides] | None = None,
    roi_relative: bool = False,
    interp_type: PerSample[DALIInterpType] = INTERP_LINEAR,
    min_filter: PerSample[DALIInterpType] | None = None,
    mag_filter: PerSample[DALIInterpType] | None = None,
    antialias: bool = True,
    dtype: np.dtype[Any] | None = None,
    save_attrs: bool = False,
) -> Array | tuple[Array, Array]:
    """Scale images and volumes.

    Args:
        image: any dtype. Empty images stay empty.
        size: size of the result, as (height, width) or (depth, height, width), or one number for all axes; 0: follows from
            the others and `mode`; negative: mirrored.
        resize_x: width of the result.
        resize_y: height of the result.
        resize_z: depth of the result.
        resize_shorter: length of the shorter side; keeps proportions.
        resize_longer: length of the longer side; keeps proportions.
        mode: "default": sides without a size are scaled like the others. "stretch": they are not scaled. "not_larger",
            "not_smaller": proportions are kept, and no side is larger, or smaller, than given.
        max_size: maximum length of the sides; one for all axes, or one for each.
        subpixel_scale: where a side of the result is not an integer, use slightly more or less of the image, to keep
            proportions exactly. False: use the whole image.
        roi_start: start of the region to scale, in pixels, in the order of `size`. Default: the whole image.
        roi_end: end of the region; an end before the start mirrors the image.
        roi_relative: whether the region is given in fractions of the image's extents.
        interp_type: interpolation between pixels.
        min_filter: interpolation where the image shrinks.
        mag_filter: interpolation where the image grows.
        antialias: whether to filter where the image shrinks, so that no pixel is skipped.
        dtype: FLOAT, or the type of the input, which is the default.
        save_attrs: whether to return the original size as a second result, as (height, width) or (depth, height, width),
            INT32.
    """
    extents = _spatial_extents(call.layout, image.shape)
    given = GivenSize(size, (resize_z, resize_y, resize_x), resize_shorter, resize_longer, mode, max_size)
    axes = scaled_axes(extents, given, regions_of(extents, roi_start, roi_end, relative=roi_relative), subpixel_scale)
    filters = Filters(_or(min_filter, interp_type), _or(mag_filter, interp_type), antialias)
    scaled = _scaled(call, image, axes, filters, dtype)
    if not save_attrs:
        return scaled
    return scaled, np.broadcast_to(np.array(extents, np.int32), (*image.shape[: call.lead], len(extents)))


# In DALI, CV-CUDA computes it on the GPU.
operator(
    module="experimental",
    layouts=f"{IMAGES} {VOLUMES}",
    check=check_size,
    output_layout=_sized_layout,
    num_outputs=lambda given: 1 + given["save_attrs"],
    strided=True,
    stacks=(),
    ignored={**_IGNORED, "image_type": None},
)(resize.function)


class GivenSize(NamedTuple):
    """Arguments of `resize` that give the size of the result; `sides` are those for depth, height and width."""

    size: Floats | None
    sides: tuple[float, float, float]
    shorter: float
    longer: float
    mode: Mode
    max_size: Floats | None


@functools.lru_cache(512)
def scaled_axes(
    extents: tuple[int, ...], given: GivenSize, regions: tuple[tuple[float, float], ...], subpixel_scale: bool
) -> tuple[Axis, ...]:
    """Return the scaling of each spatial axis of an image."""
    mode = given.mode
    if given.shorter or given.longer:
        mode = "not_smaller" if given.shorter else "not_larger"
        wanted: Sequence[float] = [given.shorter or given.longer] * len(extents)
    elif given.size is not None:
        wanted = for_each_axis("size", given.size, len(extents))
    else:
        wanted = given.sides[-len(extents) :]
    sides = [abs(end - start) for start, end in regions]
    limits = None if given.max_size is None else for_each_axis("max_size", given.max_size, len(extents))
    return tuple(
        _axis(side, *region, subpixel_scale) if extent else Axis(0, 0.0, 0.0)
        for extent, side, region in zip(extents, _target(wanted, sides, mode, limits), regions, strict=True)
    )


def _or(kind: DALIInterpType | None, default: DALIInterpType) -> DALIInterpType:
    return default if kind is None else kind


def _spatial_extents(layout: str, shape: Sequence[int]) -> tuple[int, ...]:
    return tuple([extent for letter, extent in zip(layout, shape, strict=True) if letter in "DHW"])


def regions_of(
    extents: Sequence[int], starts: Floats | None, ends: Floats | None, *, relative: bool
) -> tuple[tuple[float, float], ...]:
    if starts is None or ends is None:
        return tuple([(0.0, float(extent)) for extent in extents])
    pairs = zip(for_each_axis("roi_start", starts, len(extents)), for_each_axis("roi_end", ends, len(extents)), strict=True)
    factors = extents if relative else [1] * len(extents)
    return tuple([(start * factor, end * factor) for (start, end), factor in zip(pairs, factors, strict=True)])


def _target(wanted: Sequence[float], sides: Sequence[float], mode: Mode, limits: Sequence[float] | None) -> list[float]:
    """Return the sides of the result, not yet rounded, negative where mirrored.

    As in DALI, quotients and products are rounded to single precision, which decides where a side is halfway between two
    integers.
    """
    if limits is None and mode in ("default", "stretch") and all(wanted):
        return list(wanted)
    scales = [_single(size / side) if size and side else None for size, side in zip(wanted, sides, strict=True)]
    known = [abs(scale) for scale in scales if scale is not None]
    if not known:
        return [size or side for size, side in zip(wanted, sides, strict=True)]
    if mode in ("not_larger", "not_smaller"):
        factor = min(known) if mode == "not_larger" else max(known)
        for limit, side in zip(limits or (), sides, strict=False):
            if limit > 0 and side:
                factor = min(factor, limit / side)
        return [
            math.copysign(_single(side * factor), size) if scale is None or abs(scale) != factor else size
            for size, side, scale in zip(wanted, sides, scales, strict=True)
        ]
    rest = math.prod(known) ** (1 / len(known)) if mode == "default" else 1.0
    target = [
        size if scale is not None or not side else _single(side * rest)
        for size, side, scale in zip(wanted, sides, scales, strict=True)
    ]
    if limits is not None:
        target = [
            math.copysign(min(abs(size), limit), size) if limit > 0 else size
            for size, limit in zip(target, limits, strict=True)
        ]
    return target


def _single(number: float) -> float:
    return float(np.float32(number))


def _nearest(side: float) -> int:
    return int(side + 0.5)


def _axis(
    side: float,
    start: float,
    end: float,
    subpixel_scale: bool,
    rounded: Callable[[float], int] = _nearest,
    alignment: float = 0.5,
) -> Axis:
    """Return the scaling of an axis to a side that may not be an integer.

    Args:
        rounded: rounds sides.
        alignment: point of the region that keeps its place when the region is adjusted to the rounded side: 0 for the start
            of the result, 1 for its end.
    """
    size = max(rounded(abs(side)), 1)
    side = math.copysign(max(abs(side), _LEAST_SIDE), side) if side else side
    if subpixel_scale and side and size != abs(side):
        alignment = alignment if side > 0 else 1 - alignment
        fixed, extent = start + (end - start) * alignment, (end - start) * size / abs(side)
        start, end = fixed - extent * alignment, fixed + extent * (1 - alignment)
    return Axis(size, end, start) if side < 0 else Axis(size, start, end)


def _scaled(
    call: OperatorCall, image: Array, axes: tuple[Axis, ...], filters: Filters, dtype: np.dtype[Any] | None
) -> Array:
    """Scale the spatial axes of an image."""
    return _scaled_from(call, image, _first_spatial(call.layout), axes, filters, dtype)


@functools.cache
def _first_spatial(layout: str) -> int:
    return min(i for i, letter in enumerate(layout) if letter in "DHW")


def _scaled_from(
    call: OperatorCall, image: Array, first: int, axes: tuple[Axis, ...], filters: Filters, dtype: np.dtype[Any] | None
) -> Array:
    """Scale some axes of an array. Axes before the first one count pictures; the axes after them are channels."""
    if dtype not in (None, image.dtype, np.float32):
        raise SampleError(f"dtype must be FLOAT or that of the input, {image.dtype}, not {dtype}")
    pictures, channels = image.shape[:first], image.shape[first + len(axes) :]
    sizes = tuple(axis.size for axis in axes)
    out = call.empty((*pictures, *sizes, *channels), image.dtype if dtype is None else dtype)
    if not out.size:
        return out
    if not image.size:
        raise SampleError(f"an image of shape {image.shape} cannot be scaled")
    if not first and len(channels) == 1:
        resample(image, axes, filters, out)
        return out
    flat = image.reshape(-1, *image.shape[first : first + len(axes)], math.prod(channels))
    for picture, place in zip(flat, out.reshape(-1, *sizes, math.prod(channels)), strict=True):
        resample(picture, axes, filters, place)
    return out


# Fused with cropping and mirroring


def _check_resize_crop_mirror(given: Mapping[str, Any]) -> None:
    check_size(given)
    check_crop(given)


_FUSED: dict[str, Any] = {
    "layouts": f"{IMAGES} {VOLUMES}",
    "check": _check_resize_crop_mirror,
    "output_layout": _sized_layout,
    "strided": True,
    "stacks": (),
    "kernel_for_large": True,
    "kernel_serves": _is_compiled,
    "ignored": _IGNORED,
}


@operator(**_FUSED, kernel="geometry.resize_kernels.resize_crop_mirror")
def resize_crop_mirror(
    call: OperatorCall,
    image: Array,
    *,
    size: PerSample[_Sides] | None = None,
    resize_x: PerSample[_Side] = 0.0,
    resize_y: PerSample[_Side] = 0.0,
    resize_z: PerSample[_Side] = 0.0,
    resize_shorter: PerSample[_Side] = 0.0,
    resize_longer: PerSample[_Side] = 0.0,
    mode: Mode = "default",
    max_size: Annotated[Floats, count(1, 2, 3)] | None = None,
    subpixel_scale: bool = True,
    roi_start: PerSample[_Sides] | None = None,
    roi_end: PerSample[_Sides] | None = None,
    roi_relative: bool = False,
    crop: PerSample[Sides] | None = None,
    crop_w: PerSample[Side] = 0.0,
    crop_h: PerSample[Side] = 0.0,
    crop_d: PerSample[Side] = 0.0,
    crop_pos_x: PerSample[Position] = 0.5,
    crop_pos_y: PerSample[Position] = 0.5,
    crop_pos_z: PerSample[Position] = 0.5,
    rounding: Rounding = "round",
    mirror: PerSample[int] = 0,
    interp_type: PerSample[DALIInterpType] = INTERP_LINEAR,
    min_filter: PerSample[DALIInterpType] | None = None,
    mag_filter: PerSample[DALIInterpType] | None = None,
    antialias: bool = True,
    dtype: np.dtype[Any] | None = None,
) -> Array:
    """Scale, crop and mirror images and volumes in one step.

    The result is that of `resize`, `crop` and `flip`, but only the pixels of the window are computed.

    Args:
        image: any dtype.
        size, resize_x, resize_y, resize_z, resize_shorter, resize_longer: size of the scaled image, see `resize`.
        mode, max_size, subpixel_scale, roi_start, roi_end, roi_relative: see `resize`.
        crop, crop_w, crop_h, crop_d: size of the window in the scaled image, see `crop`; the depth applies to volumes. A
            window larger than the image repeats the pixels at its edges.
        crop_pos_x, crop_pos_y, crop_pos_z, rounding: position of the window, see `crop`.
        mirror: sum of 1 to exchange left and right, 2 to exchange top and bottom, 4 to exchange front and back.
        interp_type, min_filter, mag_filter, antialias, dtype: see `resize`.
    """
    extents = _spatial_extents(call.layout, image.shape)
    given = GivenSize(size, (resize_z, resize_y, resize_x), resize_shorter, resize_longer, mode, max_size)
    window = GivenWindow(
        crop, (crop_d, crop_h, crop_w), (crop_pos_z, crop_pos_y, crop_pos_x), rounding, mirror, roi_start, roi_end
    )
    parts = window_axes(extents, given, window, relative=roi_relative, subpixel_scale=subpixel_scale)
    filters = Filters(_or(min_filter, interp_type), _or(mag_filter, interp_type), antialias)
    return _scaled(call, image, parts, filters, dtype)


class GivenWindow(NamedTuple):
    """Arguments of `resize_crop_mirror` that give its window; `sides` and `positions` are those for z, y and x."""

    crop: Floats | None
    sides: tuple[float, float, float]
    positions: tuple[float, float, float]
    rounding: Rounding
    mirror: int
    roi_start: Floats | None
    roi_end: Floats | None


@functools.lru_cache(512)
def window_axes(
    extents: tuple[int, ...], given: GivenSize, window: GivenWindow, *, relative: bool, subpixel_scale: bool
) -> tuple[Axis, ...]:
    """Return the scaling of each spatial axis that makes only a window of the scaled image."""
    axes = scaled_axes(
        extents, given, regions_of(extents, window.roi_start, window.roi_end, relative=relative), subpixel_scale
    )
    letters = "DHW"[-len(axes) :]
    places = crop_window(
        letters,
        [axis.size for axis in axes],
        window.crop,
        dict(zip("DHW", window.sides, strict=True)),
        dict(zip("DHW", window.positions, strict=True)),
        window.rounding,
    )
    mirrored = {"W": window.mirror & 1, "H": window.mirror & 2, "D": window.mirror & 4}
    return tuple(
        _part(axis, *places[letter], mirror=bool(mirrored[letter])) for letter, axis in zip(letters, axes, strict=True)
    )


def _part(axis: Axis, begin: int, size: int, *, mirror: bool) -> Axis:
    """Return the scaling that makes a window of the scaled axis only."""
    if not axis.size:
        return axis
    step = (axis.end - axis.start) / axis.size
    whole = (begin, size) == (0, axis.size)  # leaves the numbers as they are
    start, end = (axis.start, axis.end) if whole else (axis.start + begin * step, axis.start + (begin + size) * step)
    return Axis(size, end, start) if mirror else Axis(size, start, end)


def _with_default(function: Callable[..., Any], name: str, summary: str, **defaults: Any) -> Callable[..., Any]:
    """Return an operator's function with another name, another first line of its docstring, and other defaults."""

    @functools.wraps(function)
    def changed(call: OperatorCall, *inputs: Array, **arguments: Any) -> Any:
        return function(call, *inputs, **{**defaults, **arguments})

    signature = inspect.signature(function)
    parameters = [
        parameter.replace(default=defaults.get(parameter.name, parameter.default))
        for parameter in signature.parameters.values()
    ]
    changed.__name__ = name
    changed.__doc__ = "\n".join([summary, *(inspect.getdoc(function) or "").splitlines()[1:]])
    vars(changed)["__signature__"] = signature.replace(parameters=parameters)
    return changed


operator(**_FUSED, kernel="geometry.resize_kernels.fast_resize_crop_mirror")(
    _with_default(
        resize_crop_mirror.function,
        "fast_resize_crop_mirror",
        "Scale, crop and mirror images and volumes in one step, by default without antialiasing.",
        antialias=False,
    )
)


# Arrays

#: Rounding of sides that are not integers.
_ROUNDINGS: dict[str, Callable[[float], int]] = {"round": _nearest, "truncate": int, "ceil": math.ceil}


def _check_tensor_resize(given: Mapping[str, Any]) -> None:
    if ("sizes" in given) == ("scales" in given):
        raise ArgumentClashError("pass either sizes or scales")
    if "axes" in given and "axis_names" in given:
        raise ArgumentClashError("axes and axis_names exclude each other")
    if ("roi_start" in given) != ("roi_end" in given):
        raise ArgumentClashError("roi_start and roi_end must be given together")
    if "scales" in given and given.get("mode") in ("not_larger", "not_smaller"):
        raise ArgumentClashError(f"mode={given['mode']!r} needs sizes, not scales")


def _tensor_layout(layout: str, given: Mapping[str, Any]) -> str:
    if layout:
        count = len(axes_of(layout, given["axes"], given["axis_names"], len(layout)))
        for name in ("sizes", "scales", "max_size", "roi_start", "roi_end", "alignment"):
            for_each_axis(name, given[name] or (0.0,), count)
    return layout


@operator(module="experimental", check=_check_tensor_resize, output_layout=_tensor_layout, strided=True, ignored=_IGNORED)
def tensor_resize(
    call: OperatorCall,
    data: Array,
    *,
    sizes: PerSample[_Numbers] | None = None,
    scales: PerSample[_Numbers] | None = None,
    axes: Axes | None = None,
    axis_names: AxisNames | None = None,
    mode: Mode = "default",
    max_size: Floats | None = None,
    size_rounding: Literal["round", "truncate", "ceil"] = "round",
    subpixel_scale: bool = True,
    alignment: PerSample[_Numbers] = (0.5,),
    roi_start: PerSample[_Numbers] | None = None,
    roi_end: PerSample[_Numbers] | None = None,
    roi_relative: bool = False,
    interp_type: PerSample[DALIInterpType] = INTERP_LINEAR,
    min_filter: PerSample[DALIInterpType] | None = None,
    mag_filter: PerSample[DALIInterpType] | None = None,
    antialias: bool = True,
    dtype: np.dtype[Any] | None = None,
) -> Array:
    """Scale arrays along any axes.

    Arguments for several axes have one number for all `axes`, or one for each.

    Args:
        data: any dtype, at least one dimension. Empty arrays stay empty.
        sizes: extents of the result; 0: follows from the others and `mode`; negative: mirrored.
        scales: ratios of the extents of the result to those of the input, instead.
        axes: axes to scale. Default: all.
        axis_names: the same as letters of the layout.
        mode: see `resize`. With "not_larger" and "not_smaller", the other axes are scaled too.
        max_size: maximum extents of the result.
        size_rounding: rounding of extents that are not integers: "round", "truncate" or "ceil".
        subpixel_scale: where an extent of the result is not an integer, use slightly more or less of the input, to keep the
            scale exactly. False: use the whole input.
        alignment: point of the input that keeps its place then, from 0 (start of the result) to 1 (its end).
        roi_start, roi_end: region to scale, in elements. An end before the start mirrors it. Default: all.
        roi_relative: whether the region is given in fractions of the extents.
        interp_type, min_filter, mag_filter, antialias, dtype: see `resize`.
    """
    if not data.ndim:
        raise SampleError("the input must have at least one dimension, but it is a single number")
    numbers = axes_of(call.layout, axes, axis_names, data.ndim)
    extents = [data.shape[axis] for axis in numbers]
    regions: list[tuple[float, float]] = [(0.0, float(extent)) for extent in data.shape]
    for axis, region in zip(numbers, regions_of(extents, roi_start, roi_end, relative=roi_relative), strict=True):
        regions[axis] = region
    wanted, limits, points = [float(extent) for extent in data.shape], [0.0] * data.ndim, [0.5] * data.ndim
    given = for_each_axis("sizes" if sizes else "scales", sizes or scales or (), len(numbers))
    for axis, number in zip(numbers, given, strict=True):
        wanted[axis] = number if sizes else float(np.float32(number) * np.float32(data.shape[axis]))
    for name, values, place in (("max_size", max_size or (0.0,), limits), ("alignment", alignment, points)):
        for axis, number in zip(numbers, for_each_axis(name, values, len(numbers)), strict=True):
            place[axis] = number
    target = _target(wanted, [abs(end - start) for start, end in regions], mode, limits)
    scaled = [
        _axis(side, *region, subpixel_scale, _ROUNDINGS[size_rounding], point) if extent else Axis(0, 0.0, 0.0)
        for extent, side, region, point in zip(data.shape, target, regions, points, strict=True)
    ]
    changed = [i for i, axis in enumerate(scaled) if not axis.is_whole(data.shape[i])] or [0]
    filters = Filters(_or(min_filter, interp_type), _or(mag_filter, interp_type), antialias)
    return _scaled_from(call, data, changed[0], tuple(scaled[changed[0] : changed[-1] + 1]), filters, dtype)


# Random windows


@operator(
    layouts=IMAGES,
    random=True,
    strided=True,
    ignored=_IGNORED,
    kernel="geometry.resize_kernels.random_resized_crop",
    kernel_for_large=True,
    kernel_serves=_is_compiled,
)
def random_resized_crop(
    call: OperatorCall,
    image: Array,
    *,
    size: Annotated[Ints, count(1, 2), at_least(1)],
    random_area: Range = (0.08, 1.0),
    random_aspect_ratio: Range = (3 / 4, 4 / 3),
    num_attempts: Attempts = 10,
    interp_type: PerSample[DALIInterpType] = INTERP_LINEAR,
    min_filter: PerSample[DALIInterpType] | None = None,
    mag_filter: PerSample[DALIInterpType] | None = None,
    antialias: bool = True,
    dtype: np.dtype[Any] | None = None,
) -> Array:
    """Cut random windows out of images, and scale them to one size.

    Args:
        image: any dtype.
        size: size of the result, as (height, width), or one number for both.
        random_area: minimum and maximum area of a window, as fractions of the image.
        random_aspect_ratio: minimum and maximum of width / height.
        num_attempts: number of draws. If no window fits, the largest one of the nearest aspect ratio is used.
        interp_type, min_filter, mag_filter, antialias, dtype: see `resize`.
    """
    height, width = _spatial_extents(call.layout, image.shape)
    if not height or not width:
        raise SampleError(f"an image of shape {image.shape} has no window to scale")
    top, left, rows, columns = random_window(call.rng(), height, width, random_area, random_aspect_ratio, num_attempts)
    down, across = (int(side) for side in for_each_axis("size", size, 2))
    filters = Filters(_or(min_filter, interp_type), _or(mag_filter, interp_type), antialias)
    axes = (Axis(down, float(top), float(top + rows)), Axis(across, float(left), float(left + columns)))
    return _scaled(call, image, axes, filters, dtype)


@operator(
    num_outputs=2,
    output_layout=lambda _, __: ("", ""),
    random=True,
    kernel="arrays.array_kernels.random_crop_generator",
)
def random_crop_generator(
    call: OperatorCall,
    shape: Array,
    *,
    random_area: Range = (0.08, 1.0),
    random_aspect_ratio: Range = (3 / 4, 4 / 3),
    num_attempts: Attempts = 10,
) -> tuple[Array, Array]:
    """Draw windows of random area and aspect ratio, for example for `slice`.

    Args:
        shape: shapes of images, as (height, width) or (height, width, channels); integers.
        random_area: minimum and maximum area of a window, as fractions of the image.
        random_aspect_ratio: minimum and maximum of width / height.
        num_attempts: number of draws. If no window fits, the largest one of the nearest aspect ratio is used.

    Returns:
        Position and size of the window, as (top, left) and (height, width); INT32.
    """
    if shape.ndim != 1 or len(shape) not in (2, 3) or shape.dtype.kind not in "iu":
        raise SampleError(
            "the input must be the shape of an image, 2 or 3 integers for height, width and channels, not an array of "
            f"{shape.dtype} and shape {shape.shape}"
        )
    height, width = shape[:2].tolist()
    window = (0, 0, 0, 0)
    if min(height, width) > 0:
        window = random_window(call.rng(), height, width, random_area, random_aspect_ratio, num_attempts)
    return np.array(window[:2], np.int32), np.array(window[2:], np.int32)
