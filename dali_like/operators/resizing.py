"""Operators that scale images, as in ``nvidia.dali.fn``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np

from dali_like.errors import ArgumentClashError, SampleError
from dali_like.graph.operator_interface import Array, OperatorCall
from dali_like.operators._resampling import Axis, Filters, resample
from dali_like.operators._windows import Attempts, Range, random_window
from dali_like.operators.axes import for_each_axis
from dali_like.operators.description import IMAGES, VOLUMES, operator
from dali_like.operators.parameters import FINITE, Floats, Ints, PerSample, at_least, count
from dali_like.types import INTERP_LINEAR, DALIInterpType

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
    if resize_shorter or resize_longer:
        mode = "not_smaller" if resize_shorter else "not_larger"
        wanted: Sequence[float] = [resize_shorter or resize_longer] * len(extents)
    elif size is not None:
        wanted = for_each_axis("size", size, len(extents))
    else:
        wanted = [resize_z, resize_y, resize_x][-len(extents) :]
    regions = _regions(extents, roi_start, roi_end, relative=roi_relative)
    sides = [abs(end - start) for start, end in regions]
    limits = None if max_size is None else for_each_axis("max_size", max_size, len(extents))
    target = _target(wanted, sides, mode, limits)
    axes = tuple(
        _axis(side, *region, subpixel_scale) if extent else Axis(0, 0.0, 0.0)
        for extent, side, region in zip(extents, target, regions, strict=True)
    )
    filters = Filters(_or(min_filter, interp_type), _or(mag_filter, interp_type), antialias)
    scaled = _scaled(call, image, axes, filters, dtype)
    return (scaled, np.array(extents, np.int32)) if save_attrs else scaled


def _or(kind: DALIInterpType | None, default: DALIInterpType) -> DALIInterpType:
    return default if kind is None else kind


def _spatial_extents(layout: str, shape: Sequence[int]) -> list[int]:
    return [extent for letter, extent in zip(layout, shape, strict=True) if letter in "DHW"]


def _regions(
    extents: Sequence[int], starts: Floats | None, ends: Floats | None, *, relative: bool
) -> list[tuple[float, float]]:
    if starts is None or ends is None:
        return [(0.0, float(extent)) for extent in extents]
    pairs = zip(for_each_axis("roi_start", starts, len(extents)), for_each_axis("roi_end", ends, len(extents)), strict=True)
    factors = extents if relative else [1] * len(extents)
    return [(start * factor, end * factor) for (start, end), factor in zip(pairs, factors, strict=True)]


def _target(wanted: Sequence[float], sides: Sequence[float], mode: Mode, limits: Sequence[float] | None) -> list[float]:
    """Return the sides of the result, not yet rounded, negative where mirrored."""
    scales = [size / side if size and side else None for size, side in zip(wanted, sides, strict=True)]
    known = [abs(scale) for scale in scales if scale is not None]
    if not known:
        return [size or side for size, side in zip(wanted, sides, strict=True)]
    if mode in ("not_larger", "not_smaller"):
        factor = min(known) if mode == "not_larger" else max(known)
        for limit, side in zip(limits or (), sides, strict=False):
            if limit > 0 and side:
                factor = min(factor, limit / side)
        return [
            math.copysign(side * factor, size) if scale is None or abs(scale) != factor else size
            for size, side, scale in zip(wanted, sides, scales, strict=True)
        ]
    rest = math.prod(known) ** (1 / len(known)) if mode == "default" else 1.0
    target = [
        size if scale is not None or not side else side * rest
        for size, side, scale in zip(wanted, sides, scales, strict=True)
    ]
    if limits is not None:
        target = [
            math.copysign(min(abs(size), limit), size) if limit > 0 else size
            for size, limit in zip(target, limits, strict=True)
        ]
    return target


def _axis(side: float, start: float, end: float, subpixel_scale: bool) -> Axis:
    """Return the scaling of an axis to a side that may not be an integer."""
    size = max(int(abs(side) + 0.5), 1)
    side = math.copysign(max(abs(side), _LEAST_SIDE), side) if side else side
    if subpixel_scale and side and size != abs(side):
        center, half = (start + end) / 2, (end - start) / 2 * size / abs(side)
        start, end = center - half, center + half
    return Axis(size, end, start) if side < 0 else Axis(size, start, end)


def _scaled(
    call: OperatorCall, image: Array, axes: tuple[Axis, ...], filters: Filters, dtype: np.dtype[Any] | None
) -> Array:
    """Scale the spatial axes of an image. Axes before them count pictures; the axis after them has the channels."""
    if dtype not in (None, image.dtype, np.float32):
        raise SampleError(f"dtype must be FLOAT or that of the input, {image.dtype}, not {dtype}")
    first = min(i for i, letter in enumerate(call.layout) if letter in "DHW")
    pictures, channels = image.shape[:first], image.shape[first + len(axes) :]
    sizes = tuple(axis.size for axis in axes)
    out = call.empty((*pictures, *sizes, *channels), image.dtype if dtype is None else dtype)
    if not out.size:
        return out
    if not image.size:
        raise SampleError(f"an image of shape {image.shape} cannot be scaled")
    flat = image.reshape(-1, *image.shape[first : first + len(axes)], math.prod(channels))
    for picture, place in zip(flat, out.reshape(-1, *sizes, math.prod(channels)), strict=True):
        resample(picture, axes, filters, place)
    return out


@operator(layouts=IMAGES, random=True, strided=True, ignored=_IGNORED)
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
    top, left, rows, columns = random_window(call.rng(), height, width, random_area, random_aspect_ratio, num_attempts)
    down, across = (int(side) for side in for_each_axis("size", size, 2))
    filters = Filters(_or(min_filter, interp_type), _or(mag_filter, interp_type), antialias)
    axes = (Axis(down, float(top), float(top + rows)), Axis(across, float(left), float(left + columns)))
    return _scaled(call, image, axes, filters, dtype)
