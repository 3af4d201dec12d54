"""Operators that subtract means and divide by standard deviations, as in ``nvidia.dali.fn``."""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dali_like.common.kernel_library import ELEMENTS, address_of, kernels
from dali_like.common.saved_arguments import SavedText
from dali_like.errors import ArgumentClashError, ArgumentError, SampleError
from dali_like.graph.language.operator_interface import Array, OperatorCall
from dali_like.operators.geometry._windows import Filling, Policy, Position, Rounding, Side, Sides, overlap
from dali_like.operators.geometry.geometry import check_crop, crop_places
from dali_like.operators.machinery._pixels import check_result, fill_numbers, look_up, merge, mirrored, planes
from dali_like.operators.machinery.axes import axes_of, layout_with_axes
from dali_like.operators.machinery.conversion import convert
from dali_like.operators.machinery.description import IMAGES, VOLUMES, operator
from dali_like.operators.parameters import SOME, FloatArray, Floats, Ints, PerSample

_FLOAT = np.dtype(np.float32)
#: Dtypes of images that the compiled loop normalizes to FLOAT.
COMPILED_PIXELS = frozenset(map(np.dtype, ("uint8", "int16", "uint16", "float32")))
#: Images of at most so many elements are normalized as a whole, larger ones plane by plane.
_FEW_ELEMENTS = 4096
#: NumPy converts and sums this many elements at a time.
_BLOCK = 8192

# crop_mirror_normalize


def _check_crop_mirror_normalize(given: Mapping[str, Any]) -> None:
    check_crop(given)
    check_result(given.get("dtype", _FLOAT))
    sizes = {len(given[name]) for name in ("mean", "std") if isinstance(given.get(name), tuple)} - {1}
    if len(sizes) > 1:
        raise ArgumentError(
            "mean and std must either be of the same size, be scalars, or one of them can be a vector and the other a scalar"
        )


def _permuted_layout(layout: str, given: Mapping[str, Any]) -> str:
    wanted: str = given["output_layout"] or layout
    if sorted(wanted) != sorted(layout):
        raise ArgumentError(f"output_layout={wanted!r} is not a permutation of the layout of the input, {layout!r}")
    return wanted


@operator(
    layouts=f"{IMAGES} {VOLUMES}",
    check=_check_crop_mirror_normalize,
    output_layout=_permuted_layout,
    strided=True,
    stacks=("mirror",),
    kernel="photometry.pixel_kernels.crop_mirror_normalize",
    kernel_for_one=False,
    kernel_for_large=True,
    ignored={"image_type": None},
)
def crop_mirror_normalize(
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
    out_of_bounds_policy: Policy = "error",
    fill_values: Filling = (0.0,),
    mirror: PerSample[int] = 0,
    mean: PerSample[Annotated[Floats, SOME]] = (0.0,),
    std: PerSample[Annotated[Floats, SOME]] = (1.0,),
    scale: float = 1.0,
    shift: float = 0.0,
    pad_output: bool = False,
    output_layout: SavedText = "CHW",
    dtype: np.dtype[Any] = _FLOAT,
) -> Array:
    """Crop, mirror and normalize images, and change their layout and dtype, in one step.

    ``out = scale * (in - mean) / std + shift``

    Args:
        image: any dtype.
        crop: size of the window, as (height, width) or (depth, height, width); 0 for the whole axis. The depth applies to
            volumes, or to the frames of sequences of images. Default: the whole image.
        crop_w: width of the window, if `crop` is not given.
        crop_h: height of the window.
        crop_d: depth of the window.
        crop_pos_x: position of the window, from 0 (left edge) to 1 (right edge).
        crop_pos_y: the same, from top to bottom.
        crop_pos_z: the same, from front to back.
        rounding: how positions between pixels are rounded: "round" or "truncate".
        out_of_bounds_policy: treatment of a window larger than the image: "error", "pad" with `fill_values`, or
            "trim_to_shape".
        fill_values: one for all channels of the result, or one for each. They are not normalized.
        mirror: whether to exchange left and right.
        mean: mean to subtract; one for all channels, or one for each.
        std: standard deviation to divide by; one for all channels, or one for each.
        scale: factor.
        shift: summand, added last.
        pad_output: add channels, filled with `fill_values`, until their number is a power of two.
        output_layout: order of the axes of the result; "": that of the image.
        dtype: data type of the result. Default: FLOAT.
    """
    order = ordered_axes(call.layout, "N" * call.lead + output_layout if output_layout else "")
    backwards: list[int] = []  # the mirrored samples of a stack
    if isinstance(mirror, list):
        backwards, mirror = [i for i, mirrors in enumerate(mirror) if mirrors], 0
    sizes, positions = (crop_w, crop_h, crop_d), (crop_pos_x, crop_pos_y, crop_pos_z)
    if crop is None and not any(sizes):
        source, extent, place = image, image.shape, (slice(None),) * image.ndim
    else:
        start, size = crop_places(call.layout, image.shape, crop, sizes, positions, rounding)
        source, extent, place = overlap(image, start, size, out_of_bounds_policy)

    channels = extent[order.of_image[-1]]
    padded = 1 << (channels - 1).bit_length() if pad_output and channels else channels
    scaling = channel_scaling(tuple(mean), tuple(std), scale, shift, channels)

    shape = [*(extent[axis] for axis in order.of_image[:-1]), padded]
    out = call.empty(tuple([shape[i] for i in order.from_ordered]), dtype)
    pixels = source.transpose(order.of_image)
    target = out.transpose(order.of_result)
    fill = None
    if padded != channels or source.shape != extent:
        fill = channel_fill(fill_values if out_of_bounds_policy in ("pad", "constant") else (0.0,), padded, dtype)
    if source.shape != extent:
        target[...] = fill
        target = _part(target, [place[axis] for axis in order.of_image], mirror=bool(mirror))
    with np.errstate(over="ignore", invalid="ignore"):
        few = math.prod(pixels.shape[call.lead :]) <= _FEW_ELEMENTS
        if dtype == np.float32 and few and padded == channels:
            np.subtract(pixels[..., ::-1, :] if mirror else pixels, scaling.subtrahends, out=target, dtype=np.float32)
            np.multiply(target, scaling.factors, out=target)
        else:
            for frame in np.ndindex(pixels.shape[:-3]) if pixels.ndim > 3 else ((),):
                _normalize(pixels[frame], target[frame], scaling, fill, mirror=bool(mirror))
    if backwards:
        whole = out.transpose(order.of_result)
        whole[backwards] = whole[backwards][..., ::-1, :]
    return out


class _Order(NamedTuple):
    """Axes in the order (..., height, width, channels).

    Attributes:
        of_image: of the image, in this order.
        of_result: of the result.
        from_ordered: for each axis of the result, its number in this order.
    """

    of_image: tuple[int, ...]
    of_result: tuple[int, ...]
    from_ordered: tuple[int, ...]


@functools.cache
def ordered_axes(layout: str, output_layout: str) -> _Order:
    permuted = _permuted_layout(layout, {"output_layout": output_layout})
    letters = [*(letter for letter in layout if letter not in "HWC"), *"HWC"]
    of_image, of_result = tuple(map(layout.index, letters)), tuple(map(permuted.index, letters))
    return _Order(of_image, of_result, tuple(map(letters.index, permuted)))


def _part(pixels: Array, place: Sequence[slice], *, mirror: bool) -> Array:
    """Return the part of a window (..., height, width, channels), possibly mirrored, that the image covers."""
    *others, columns, _ = place
    width = pixels.shape[-2]
    return pixels[(*others, slice(width - columns.stop, width - columns.start) if mirror else columns)]


class _Scaling(NamedTuple):
    """Number to subtract from each channel, and factor."""

    subtrahends: NDArray[np.float32]
    factors: NDArray[np.float32]


@functools.lru_cache(64)
def channel_scaling(mean: Floats, std: Floats, scale: float, shift: float, channels: int) -> _Scaling:
    means, deviations = (np.array(_of_channels(*pair, channels), np.float32) for pair in (("mean", mean), ("std", std)))
    with np.errstate(divide="ignore", invalid="ignore"):
        shifts = np.float32(shift) * deviations.astype(np.float64) / np.float32(scale)
        return _Scaling((means - shifts).astype(np.float32), np.float32(scale) / deviations)


@functools.lru_cache(64)
def channel_fill(values: Floats, channels: int, dtype: np.dtype[Any]) -> Array:
    """Return the fill value of each channel outside the image."""
    return fill_numbers(_of_channels("fill_values", values, channels), dtype)


def _of_channels(name: str, values: Sequence[float], channels: int) -> Sequence[float]:
    if len(values) not in (1, channels):
        raise ArgumentError(
            f"{name} has {len(values)} elements; it must have one, or one for each of the {channels} channels"
        )
    return values if len(values) == channels else tuple(values) * channels


def _normalize(image: Array, out: Array, scaling: _Scaling, fill: Array | None, *, mirror: bool) -> None:
    """Normalize an image of shape (height, width, channels), with any strides.

    Args:
        out: memory for the result. Additional channels are filled.
        fill: the value of each channel outside the image; None if there are no additional channels.
    """
    if fill is None and _normalize_compiled(image, out, scaling, mirror=mirror):
        return
    sources = planes(image) if image.strides[2] == image.itemsize else [image[..., i] for i in range(image.shape[2])]
    side_by_side = out.shape[2] > 1 and out.strides[2] == out.itemsize
    targets = [*(np.empty((out.shape[2], *out.shape[:2]), out.dtype) if side_by_side else out.transpose(2, 0, 1))]
    for plane, target, subtrahend, factor in zip(sources, targets, *scaling, strict=False):
        _normalize_plane(mirrored(plane) if mirror else plane, target, subtrahend, factor)
    if fill is not None:
        for target, value in zip(targets[len(sources) :], fill[len(sources) :], strict=True):
            target[...] = value
    if side_by_side:
        merge(targets, out)


#: Numbers of a job of dlk_normalize_pixels in kernels/src/pixels.c.
_Job: Any = ctypes.c_int64 * 11


def _normalize_compiled(image: Array, out: Array, scaling: _Scaling, *, mirror: bool) -> bool:
    """Normalize an image by dali-like-kernels; return whether it is installed and serves the dtypes."""
    if out.dtype != _FLOAT or image.dtype not in COMPILED_PIXELS or not out.size or (compiled := kernels()) is None:
        return False
    place, (down, across, channel) = address_of(image), image.strides
    if mirror:
        place, across = place + (image.shape[1] - 1) * across, -across
    job = _Job(place, address_of(out), *image.shape, down, across, channel, *out.strides)
    return not compiled.normalize_pixels(1, ELEMENTS[image.dtype], ctypes.addressof(job), *map(address_of, scaling))


def _normalize_plane(plane: Array, out: Array, subtrahend: np.float32, factor: np.float32) -> None:
    if plane.dtype == np.uint8 and plane.size > 256:
        look_up(plane, channel_table(subtrahend, factor, out.dtype), out)
    elif out.dtype == np.float32:
        np.subtract(plane, subtrahend, dtype=np.float32, out=out)
        np.multiply(out, factor, out=out)
    else:
        values = np.subtract(plane, subtrahend, dtype=np.float32)
        out[...] = convert(np.multiply(values, factor, out=values), out.dtype)


@functools.lru_cache(64)
def channel_table(subtrahend: np.float32, factor: np.float32, dtype: np.dtype[Any]) -> Array:
    """Return the result for each byte value."""
    return convert((np.arange(256, dtype=np.float32) - subtrahend) * factor, dtype)


# normalize


def _check_normalize(given: Mapping[str, Any]) -> None:
    check_result(given.get("dtype", _FLOAT))
    if "axes" in given and "axis_names" in given:
        raise ArgumentClashError("axes and axis_names are mutually exclusive")
    if given.get("axes") == ():
        raise ArgumentError("axes must specify at least one reduction axis")
    parameters = [given[name] for name in ("mean", "stddev") if name in given]
    arrays = [value for value in parameters if not isinstance(value, np.ndarray) or value.ndim]
    if len(parameters) == 2 and not arrays and {"axes", "axis_names"} & set(given):
        raise ArgumentClashError("axes must not be specified when both mean and standard deviation are scalars")
    if len({np.ndim(array) for array in arrays if isinstance(array, np.ndarray)}) > 1:
        raise ArgumentClashError("mean and stddev must be numbers, or have the same number of dimensions")
    if arrays and given.get("batch"):
        raise ArgumentClashError("batch normalization cannot be used with a mean or stddev that is not a scalar")


def _normalized_layout(layout: str, given: Mapping[str, Any]) -> str:
    if layout:
        for name in ("mean", "stddev"):
            _check_ndim(given[name], len(layout))
    return layout_with_axes(layout, given)


@operator(
    check=_check_normalize,
    output_layout=_normalized_layout,
    per_sample=lambda given: not given.get("batch"),
    strided=True,
    stacks=(),
    kernel="photometry.pixel_kernels.normalize",
    kernel_for_large=True,
)
def normalize(
    call: OperatorCall,
    data: Any,
    *,
    axes: Ints | None = None,
    axis_names: SavedText | None = None,
    mean: PerSample[FloatArray] | None = None,
    stddev: PerSample[FloatArray] | None = None,
    batch: bool = False,
    ddof: int = 0,
    epsilon: float = 0.0,
    scale: float = 1.0,
    shift: float = 0.0,
    dtype: np.dtype[Any] = _FLOAT,
) -> Any:
    """Subtract the mean and divide by the standard deviation, both computed or given.

    ``out = scale * (in - mean) / stddev + shift``

    Args:
        data: any dtype and layout.
        axes: axes over which mean and standard deviation are computed. Default: all, or the axes in which `mean` and
            `stddev` have one element.
        axis_names: the same as letters of the layout.
        mean: a number, or an array with as many dimensions as the data and one element in the `axes`. Default: the mean of
            the data.
        stddev: the same for the standard deviation. Default: that of the data.
        batch: whether mean and standard deviation are computed over all samples of the batch together.
        ddof: number subtracted from the element count in the divisor of the variance.
        epsilon: summand for the variance.
        scale: factor.
        shift: summand, added last.
        dtype: data type of the result. Default: FLOAT.

    Data with zero variance becomes `shift`.
    """
    if call.lead:
        statistics = _NormalizeArguments(ddof, epsilon, scale, shift)
        return _normalized_stack(call, data, statistics, axes, axis_names, mean, stddev, dtype)
    samples = data if batch else [data]
    given = (mean, stddev) if batch else ([mean], [stddev])
    means, deviations = (_parameter(values, samples[0].ndim) for values in given)
    reduced = _reduced_axes(call.layout, samples[0].ndim, axes, axis_names, [means, deviations])
    _check_shapes(samples, reduced, [means, deviations])
    statistics = _NormalizeArguments(ddof, epsilon, scale, shift)
    if not batch and not data.size:
        return call.empty(data.shape, dtype)
    if samples[0].ndim > 1 and reduced == tuple(range(samples[0].ndim - 1)):  # planes are faster here
        means, deviations = (None if array is None else array.reshape(-1, 1, 1) for array in (means, deviations))
        results = _normalized([np.stack(planes(sample)) for sample in samples], (1, 2), means, deviations, statistics)
        joined = []
        for sample, result in zip(samples, results, strict=True):
            joined.append(np.empty(sample.shape, dtype) if batch else call.empty(sample.shape, dtype))
            merge([*convert(result, dtype)], joined[-1])
        return joined if batch else joined[0]
    results = [convert(result, dtype) for result in _normalized(samples, reduced, means, deviations, statistics)]
    return results if batch else results[0]


def _normalized_stack(
    call: OperatorCall,
    data: Array,
    statistics: _NormalizeArguments,
    axes: Ints | None,
    axis_names: str | None,
    mean: FloatArray | None,
    stddev: FloatArray | None,
    dtype: np.dtype[Any],
) -> Array:
    """Normalize the samples of a stack: those planes at once that have a mean and a deviation of their own."""
    count, ndim, out = len(data), data.ndim - 1, call.empty(data.shape, dtype)
    for array in (mean, stddev):
        _check_ndim(array, ndim)
    reduced = _reduced_axes(call.layout[1:], ndim, axes, axis_names, [mean, stddev])
    _check_shapes([data[0, ...]], reduced, [mean, stddev])
    if not data.size:
        return out
    if ndim > 1 and reduced == tuple(range(ndim - 1)):
        channels = data.shape[-1]
        means, deviations = (
            array if array is None or not array.ndim else np.repeat(array.reshape(-1, 1, 1), count, axis=0)
            for array in (mean, stddev)
        )
        split = np.stack(planes(data)).reshape(channels * count, -1, data.shape[-2])
        (result,) = _normalized([split], (1, 2), means, deviations, statistics)
        merge([*convert(result, dtype).reshape(channels, -1, data.shape[-2])], out)
    elif reduced == tuple(range(ndim)):
        (result,) = _normalized([data.reshape(count, 1, -1)], (1, 2), mean, stddev, statistics)
        out[...] = convert(result, dtype).reshape(data.shape)
    else:
        for sample, target in zip(data, out, strict=True):
            (result,) = _normalized([sample], reduced, mean, stddev, statistics)
            target[...] = convert(result, dtype)
    return out


class _NormalizeArguments(NamedTuple):
    """Numeric arguments of `normalize`."""

    ddof: int
    epsilon: float
    scale: float
    shift: float


@np.errstate(over="ignore", invalid="ignore")
def _normalized(
    samples: Sequence[Array],
    reduced: tuple[int, ...],
    means: Array | None,
    deviations: Array | None,
    statistics: _NormalizeArguments,
) -> list[Array]:
    """Return the samples as float32, with mean subtracted, divided by the standard deviation, scaled and shifted."""
    if means is None:
        count = sum(_count(sample, reduced) for sample in samples)
        total = sum(_sum(sample, reduced) for sample in samples)
        means = np.asarray(total / max(count, 1), np.float32)
    results = [np.asarray(np.subtract(sample, means, dtype=np.float32)) for sample in samples]  # asarray for scalars
    factor = _inverse(results, reduced, statistics) if deviations is None else _given(deviations, statistics)
    for result in results:
        np.multiply(result, factor, out=result)
        np.add(result, np.float32(statistics.shift), out=result)
    return results


def _parameter(value: Any, ndim: int) -> Array | None:
    """Return mean or standard deviation of a sample; for a batch there is a single number."""
    array: Array | None = value[0] if isinstance(value, list) else value
    _check_ndim(array, ndim)
    return array


def _check_ndim(array: Array | None, ndim: int) -> None:
    if array is not None and array.ndim not in (0, ndim):
        raise ArgumentError(f"mean and stddev must be numbers, or have {ndim} dimensions like the input, not {array.ndim}")


def _reduced_axes(
    layout: str, ndim: int, axes: Sequence[int] | None, names: str | None, parameters: Sequence[Array | None]
) -> tuple[int, ...]:
    arrays = [array for array in parameters if array is not None and array.ndim]
    if axes is None and names is None and arrays:
        return tuple(axis for axis in range(ndim) if arrays[0].shape[axis] == 1)
    return tuple(dict.fromkeys(axes_of(layout, axes, names, ndim)))


def _check_shapes(samples: Sequence[Array], reduced: Sequence[int], parameters: Sequence[Array | None]) -> None:
    shapes = [tuple(1 if i in reduced else extent for i, extent in enumerate(sample.shape)) for sample in samples]
    if other := next((shape for shape in shapes if shape != shapes[0]), None):
        raise SampleError(
            "batch normalization requires that axes that are not reduced have equal extents in all samples of the batch, "
            f"not {shapes[0]} and {other}, with 1 for the reduced ones"
        )
    for array in parameters:
        if array is not None and array.ndim and array.shape != shapes[0]:
            raise ArgumentError(
                f"the shape of mean or stddev is {array.shape}; it should be {shapes[0]}, with 1 for reduced axes"
            )


def _sum(data: Array, reduced: tuple[int, ...]) -> Array:
    """Sum over some axes as float64, and keep them.

    Sums of planes do not depend on the number of planes: NumPy would convert blocks of several planes, and sum these.
    """
    first = reduced[0] if reduced else data.ndim
    if first > 1 or reduced != tuple(range(first, data.ndim)) or not data.flags.c_contiguous:
        return np.asarray(data.sum(axis=reduced, keepdims=True, dtype=np.float64))
    rows = data.reshape(math.prod(data.shape[:first]), -1) if data.size else np.zeros((math.prod(data.shape[:first]), 0))
    if rows.shape[1] <= _BLOCK:
        sums = rows.astype(np.float64).sum(axis=1)
    else:
        sums = np.array([row.sum(dtype=np.float64) for row in rows])
    return np.asarray(sums).reshape((*data.shape[:first], *[1] * (data.ndim - first)))


def _count(sample: Array, reduced: Sequence[int]) -> int:
    return math.prod(sample.shape[axis] for axis in reduced)


def _inverse(centered: Sequence[Array], reduced: tuple[int, ...], statistics: _NormalizeArguments) -> Array:
    """Return the scale divided by the standard deviation of centered data; 0 for zero deviation."""
    total = sum(_sum(np.square(values), reduced) for values in centered)
    count = sum(_count(values, reduced) for values in centered) - statistics.ddof
    variance = np.asarray(total / count if count > 0 else np.zeros_like(total)) + statistics.epsilon
    inverse = np.divide(statistics.scale, np.sqrt(variance), out=np.zeros_like(variance), where=variance > 0)
    return inverse.astype(np.float32)


def _given(stddev: Array, statistics: _NormalizeArguments) -> Array:
    """Return the scale divided by a standard deviation; 0 where an array of deviations is 0."""
    variance = np.square(stddev.astype(np.float64)) + statistics.epsilon
    with np.errstate(divide="ignore", invalid="ignore"):
        inverse = statistics.scale / np.sqrt(variance) if statistics.epsilon else np.float32(statistics.scale) / stddev
    return np.where(variance > 0, inverse, 0 if stddev.ndim else inverse).astype(np.float32)
