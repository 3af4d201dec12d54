"""Operators that rotate and warp images and volumes, as in ``nvidia.dali.fn``."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dali_like.common.extras import optional
from dali_like.errors import ArgumentClashError, ArgumentError, SampleError
from dali_like.graph.language.operator_interface import Array, OperatorCall
from dali_like.operators.geometry._windows import round_half_up
from dali_like.operators.machinery.conversion import convert
from dali_like.operators.machinery.description import operator
from dali_like.operators.parameters import FINITE, Floats, PerFrame, PerSample, at_least, count
from dali_like.types import INTERP_LINEAR, INTERP_NN, DALIInterpType

_LAYOUTS = "HWC FHWC DHWC FDHWC"
#: Number of channels to warp next, by the number that remain. OpenCV takes up to four, but interpolates two less exactly.
_CHANNELS_AT_ONCE = {2: 1, 6: 3}
#: Numbers of channels that are warped together, in the order of memory.
_TOGETHER = (1, 3, 4)
_RESULTS_OF_FLOAT = frozenset(map(np.dtype, ("uint8", "int16", "int32")))
#: Gray levels to add before OpenCV rounds, so that halves are rounded up.
_HALVES_UP = 1e-4
#: Elements of a volume to interpolate at once.
_VOXELS_AT_ONCE = 1 << 14

_Matrix: TypeAlias = Annotated[Floats, count(6, 12), FINITE]
_Size: TypeAlias = Annotated[Floats, count(2, 3), at_least(1)]
_Axis: TypeAlias = Annotated[Floats, count(3), FINITE]


def _check_filter(given: Mapping[str, Any]) -> None:
    if given.get("interp_type", INTERP_LINEAR) not in (INTERP_NN, INTERP_LINEAR):
        raise ArgumentError("interp_type must be INTERP_NN or INTERP_LINEAR")


def _check_matrix(given: Mapping[str, Any]) -> None:
    _check_filter(given)
    if ("matrix" in given) == ("matrix_input" in given):
        raise ArgumentClashError("the transform is missing; pass matrix= or a second input")


def _check_axis(given: Mapping[str, Any]) -> None:
    _check_filter(given)
    axis = given.get("axis")
    if isinstance(axis, tuple) and not any(axis):
        raise ArgumentError("axis must not be zero")


def _rank(layout: str) -> int:
    """Return the number of spatial axes of a layout."""
    return 3 if "D" in layout else 2


def _mapped_layout(layout: str, given: Mapping[str, Any]) -> str:
    rank = _rank(layout)
    _check_elements("matrix", given.get("matrix"), rank * (rank + 1))
    _check_elements("size", given["size"], rank)
    return layout


def _check_elements(name: str, values: Sequence[float] | None, count: int) -> None:
    if values is not None and len(values) != count:
        raise ArgumentError(f"{name} must have {count} elements, not {len(values)}")


@operator(layouts=_LAYOUTS, check=_check_matrix, output_layout=_mapped_layout, stacks=())
def warp_affine(
    call: OperatorCall,
    image: Array,
    matrix_input: Array | None = None,
    /,
    *,
    matrix: PerFrame[_Matrix] | None = None,
    inverse_map: bool = True,
    size: PerSample[_Size] | None = None,
    fill_value: float | None = None,
    interp_type: DALIInterpType = INTERP_LINEAR,
    dtype: np.dtype[Any] | None = None,
) -> Array:
    """Apply affine transforms to images and volumes.

    Args:
        image: any dtype.
        matrix_input: the transform as a 2x3 matrix of floats, or 3x4 for volumes, instead of `matrix`.
        matrix: rows of the transform of (x, y), or (x, y, z), in pixels; the center of the first pixel is (0.5, 0.5).
        inverse_map: whether the transform maps the result to the image; otherwise it is inverted.
        size: size of the result, as (height, width) or (depth, height, width). Default: that of the image.
        fill_value: value outside the image, rounded to the dtypes of image and result, or for INTERP_NN to that of the
            result only. Default: the nearest edge pixel.
        interp_type: INTERP_NN or INTERP_LINEAR.
        dtype: FLOAT, or the type of the input, which is the default. Images of FLOAT may become UINT8, INT16 or INT32, too.
            Integers are rounded and saturate.
    """
    rank = _rank(call.layout)
    numbers = tuple(matrix_input.ravel().tolist()) if matrix is None and matrix_input is not None else matrix
    assert numbers is not None  # see `_check_matrix`
    extents = image.shape[-rank - 1 : -1] if size is None else _whole(size, rank)
    return _warp(call, image, _map_of_matrix(numbers, rank, inverse_map), extents, fill_value, interp_type, dtype)


class _AffineMap(NamedTuple):
    """An affine map from the result to the image.

    Attributes:
        transform: a matrix, of which the last row is that of the identity.
        shifted: for images, the first rows for OpenCV, whose first pixel has its center at (0, 0).
        offset: for images, how far rows and columns are shifted, if the map does nothing else, and leaves one of them; else
            None.
    """

    transform: NDArray[np.float64]
    shifted: NDArray[np.float64]
    offset: tuple[float, float] | None


def _map_of(transform: NDArray[np.float64]) -> _AffineMap:
    shifted = transform[:2].copy()
    offset = None
    if len(transform) == 3:
        shifted[:, 2] += transform[:2, :2] @ [0.5, 0.5] - 0.5
        (a, b, across), (c, d, down) = shifted.tolist()
        if (a, b, c, d) == (1, 0, 0, 1) and (not across or not down):
            offset = down, across
    return _AffineMap(transform, shifted, offset)


@functools.lru_cache(256)
def _map_of_matrix(numbers: Floats, rank: int, inverse_map: bool) -> _AffineMap:
    _check_elements("matrix", numbers, rank * (rank + 1))
    transform = np.vstack([np.array(numbers, np.float64).reshape(rank, rank + 1), [0] * rank + [1]])
    return _map_of(transform if inverse_map else np.linalg.inv(transform))


def _size_of_all(layout: str, shape: tuple[int, ...], given: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the common size that shows all of each frame."""
    if given[0].get("keep_size") or given[0].get("size") is not None:
        return {}
    rank = _rank(layout)
    turns = [_turned(rank, values["angle"], values.get("axis")) for values in given]
    return {"size": _canvas(shape[-rank - 1 : -1], *map(np.abs, turns))}


@operator(layouts=_LAYOUTS, check=_check_axis, output_layout=_mapped_layout, for_frames=_size_of_all, stacks=())
def rotate(
    call: OperatorCall,
    image: Array,
    *,
    angle: PerFrame[Annotated[float, FINITE]],
    axis: PerFrame[_Axis] | None = None,
    size: PerSample[_Size] | None = None,
    keep_size: bool = False,
    fill_value: float | None = None,
    interp_type: DALIInterpType = INTERP_LINEAR,
    dtype: np.dtype[Any] | None = None,
) -> Array:
    """Rotate images and volumes about their center.

    Args:
        image: any dtype.
        angle: in degrees, counter-clockwise.
        axis: axis of rotation (x, y, z), for volumes.
        size: size of the result, as (height, width) or (depth, height, width). Default: large enough for the whole image.
        keep_size: whether to keep the size of the image, if `size` is not given.
        fill_value: value outside the image, rounded to the dtypes of image and result, or for INTERP_NN to that of the
            result only. Default: the nearest edge pixel.
        interp_type: INTERP_NN or INTERP_LINEAR.
        dtype: FLOAT, or the type of the input, which is the default. Images of FLOAT may become UINT8, INT16 or INT32, too.
            Integers are rounded and saturate.
    """
    extents = image.shape[-_rank(call.layout) - 1 : -1]
    return _warp(call, image, *_rotation(extents, angle, axis, size, keep_size), fill_value, interp_type, dtype)


@functools.lru_cache(256)
def _rotation(
    extents: tuple[int, ...], angle: float, axis: Floats | None, size: Floats | None, keep_size: bool
) -> tuple[_AffineMap, tuple[int, ...]]:
    """Return the map that rotates an image about its center, and the size of the result."""
    rank = len(extents)
    turn = _turned(rank, angle, axis)
    canvas = extents if keep_size else _canvas(extents, np.abs(turn))
    result = canvas if size is None else _whole(size, rank)
    transform = np.eye(rank + 1)
    transform[:rank, :rank] = turn
    transform[:rank, rank] = np.array(extents[::-1]) / 2 - turn @ (np.array(result[::-1]) / 2)
    return _map_of(transform), result


def _whole(size: Floats, rank: int) -> tuple[int, ...]:
    _check_elements("size", size, rank)
    return tuple(map(round_half_up, size))


def _turned(rank: int, angle: float, axis: Floats | None) -> NDArray[np.float64]:
    radians = float(np.float32(math.radians(angle)))
    return _turn(radians) if rank == 2 else _turn_about(axis, radians)


def _turn(radians: float) -> NDArray[np.float64]:
    """Return the map of (x, y) from the result to the image, with y pointing down."""
    cosine, sine = math.cos(radians), math.sin(radians)
    return np.array([[cosine, -sine], [sine, cosine]])


def _turn_about(axis: Floats | None, radians: float) -> NDArray[np.float64]:
    """Return the map of (x, y, z) for a rotation about an axis, by Rodrigues' formula."""
    if axis is None or not any(axis):
        raise ArgumentError("fn.rotate: volumes need a nonzero axis; pass axis=(x, y, z)")
    unit = np.array(axis) / np.linalg.norm(axis)
    x, y, z = unit
    across = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    cosine, sine = math.cos(radians), math.sin(radians)
    turned: NDArray[np.float64] = cosine * np.eye(3) - sine * across + (1 - cosine) * np.outer(unit, unit)
    return turned


def canvas_of(extents: Sequence[int], radians: float) -> tuple[int, ...]:
    """Return the size of a rotated image, (height, width), that shows all of it."""
    return _canvas(extents, np.abs(_turn(float(np.float32(radians)))))


def _canvas(extents: Sequence[int], *turns: NDArray[np.float64]) -> tuple[int, ...]:
    """Return the size that shows all of a rotated image, or of all frames of a sequence.

    To keep the center on a pixel, each side of the result is odd or even like the image side it mostly comes from. The
    majority of the frames decides; a tie means even.
    """
    sides = np.array(extents[::-1])
    seen = np.max([np.ceil(turn.T @ sides - 0.01).astype(int) for turn in turns], axis=0)
    ties = 1e-6 if len(sides) == 3 else 0.0  # at 45 degrees, volumes prefer the same side, images the other
    like = [sides[np.argmax(turn.T + ties * np.eye(len(sides)), axis=1)] for turn in turns]
    canvas = seen + (seen - (np.mean(np.array(like) % 2, axis=0) > 0.5)) % 2
    return tuple(canvas[::-1].tolist())


def _warp(
    call: OperatorCall,
    image: Array,
    given: _AffineMap,
    size: tuple[int, ...],
    fill_value: float | None,
    kind: DALIInterpType,
    dtype: np.dtype[Any] | None,
) -> Array:
    """Map an image, or each of several images."""
    result = image.dtype if dtype is None else dtype
    if result not in (image.dtype, np.float32) and (image.dtype != np.float32 or result not in _RESULTS_OF_FLOAT):
        raise SampleError(
            f"dtype must be FLOAT or that of the input, {image.dtype}, or for FLOAT also UINT8, INT16 or INT32, not {result}"
        )
    if not image.size:
        raise SampleError(f"an image of shape {image.shape} cannot be mapped")
    first = image.ndim - len(size) - 1
    out = call.empty((*image.shape[:first], *size, image.shape[-1]), result)
    if kind == INTERP_NN:
        image = convert(image, result)
    if fill_value is not None:
        fill_value = convert(convert(np.array(fill_value, np.float32), result), image.dtype).item()
    warp = _nearest if kind == INTERP_NN else _linear if len(size) == 2 else _linear_volume
    for picture, place in zip(image.reshape(-1, *image.shape[first:]), out.reshape(-1, *out.shape[first:]), strict=True):
        warp(picture, given, fill_value, place)
    return out


def _positions(transform: NDArray[np.float64], grid: Sequence[Array]) -> list[Array]:
    """Return the positions in the image, for each axis, of the result's elements, given their own positions."""
    positions = []
    for *factors, position in transform[: len(grid)][::-1]:
        for factor, coordinates in zip(reversed(factors), grid, strict=True):
            position = factor * coordinates + position  # noqa: PLW2901
        positions.append(np.asarray(position))
    return positions


def _grid(shape: Sequence[int]) -> list[Array]:
    return [coordinates + 0.5 for coordinates in np.ogrid[tuple(map(slice, shape))]]


def _elements(image: Array, fill_value: Any) -> Array:
    """Return the elements of an image as a flat array, followed by `fill_value` if given."""
    elements = image.reshape(-1, image.shape[-1])
    return elements if fill_value is None else np.vstack([elements, np.full_like(elements[:1], fill_value)])


def _gather(elements: Array, extents: Sequence[int], places: Sequence[Array]) -> Array:
    """Return the elements at integer positions. Outside the image, return the fill value, or the nearest edge."""
    numbers, outside = np.zeros((), np.int64), np.zeros((), np.bool_)
    for place, extent in zip(places, extents, strict=True):
        numbers = numbers * extent + place.clip(0, extent - 1)
        outside = outside | (place < 0) | (place >= extent)
    if len(elements) > math.prod(extents):
        np.copyto(numbers, len(elements) - 1, where=outside)
    return elements.take(numbers, axis=0)


def _nearest(image: Array, given: _AffineMap, fill_value: float | None, out: Array) -> None:
    positions = _positions(given.transform, _grid(out.shape[:-1]))
    places = [np.floor(position, out=position).astype(np.int64) for position in positions]
    np.copyto(out, _gather(_elements(image, fill_value), image.shape[:-1], places))


def _linear(image: Array, given: _AffineMap, fill_value: float | None, out: Array) -> None:
    cv2: Any = optional("cv2", "turning images", "images")
    are_bytes = image.dtype == out.dtype == np.uint8
    if given.offset and are_bytes and image.shape == out.shape and _translate(image, given.offset, fill_value, out):
        return
    if not are_bytes:  # OpenCV interpolates other dtypes less exactly
        image = image.astype(np.float32, copy=False)
    mode = cv2.BORDER_REPLICATE if fill_value is None else cv2.BORDER_CONSTANT
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    border = (0.0 if fill_value is None else fill_value,) * 4
    channels = image.shape[2]

    def warp(some: Array, **target: Any) -> Any:
        return cv2.warpAffine(
            some, given.shifted, out.shape[1::-1], flags=flags, borderMode=mode, borderValue=border, **target
        )

    if channels in _TOGETHER and image.dtype == out.dtype and image.flags.c_contiguous and out.flags.c_contiguous:
        warp(image, dst=out if channels > 1 else out.reshape(out.shape[:2]))
        return
    first = 0
    while left := channels - first:
        last = first + _CHANNELS_AT_ONCE.get(left, min(left, 4))
        mapped = warp(np.ascontiguousarray(image[:, :, first:last]))
        convert(mapped.reshape(*out.shape[:2], -1), out.dtype, out[:, :, first:last])
        first = last


def _translate(image: Array, offset: tuple[float, float], fill_value: float | None, out: Array) -> bool:
    """Shift an image of bytes along one axis, as a sum of two views; takes a fifth of the time of a general transform.

    Args:
        offset: of the rows and of the columns, of which one is 0.

    Returns:
        Whether some of the image stays.
    """
    axis = int(offset[0] == 0)
    if abs(offset[axis]) >= image.shape[axis]:
        return False
    cv2: Any = optional("cv2", "turning images", "images")
    whole = math.floor(offset[axis])
    part = offset[axis] - whole
    extent = image.shape[axis]
    begin, end = max(whole, 0), min(whole + extent + 1, extent)
    margins = [0, 0, 0, 0]
    margins[2 * axis : 2 * axis + 2] = begin - whole, whole + extent + 1 - end
    mode = cv2.BORDER_REPLICATE if fill_value is None else cv2.BORDER_CONSTANT
    border = (0.0 if fill_value is None else fill_value,) * 4
    inside = image[begin:end] if axis == 0 else image[:, begin:end]
    wider = cv2.copyMakeBorder(inside, *margins, mode, value=border)
    low, high = (wider[:-1], wider[1:]) if axis == 0 else (wider[:, :-1], wider[:, 1:])
    # OpenCV rounds halves to even. The summand is less than the smallest difference to a half that is not one.
    total = cv2.addWeighted(low, 1 - part, high, part, _HALVES_UP)
    np.copyto(out, total.reshape(out.shape))
    return True


def _linear_volume(image: Array, given: _AffineMap, fill_value: float | None, out: Array) -> None:
    """Interpolate some slices of the result after the other, so that their positions stay in the cache of the CPU.

    The volume gets margins with what lies outside, so positions are limited once, and all neighbors of a position exist.
    """
    if fill_value is None:
        wider = np.pad(image.astype(np.float32), ((0, 1), (0, 1), (0, 1), (0, 0)), "edge")
        shift, limits = 0.0, [(0.0, extent - 1.0) for extent in image.shape[:3]]
    else:
        wider = np.pad(image.astype(np.float32), ((1, 2), (1, 2), (1, 2), (0, 0)), constant_values=fill_value)
        shift, limits = 1.0, [(0.0, extent + 1.0) for extent in image.shape[:3]]
    elements = wider.reshape(-1, wider.shape[-1])
    steps = [math.prod(wider.shape[axis + 1 : 3]) for axis in range(3)]
    depths, *others = _grid(out.shape[:-1])
    together = max(_VOXELS_AT_ONCE // max(math.prod(out.shape[1:3]), 1), 1)
    for begin in range(0, len(out), together):
        numbers = np.zeros((), np.intp)
        parts = []
        grid = [depths[begin : begin + together], *others]
        for position, limit, step in zip(_positions(given.transform, grid), limits, steps, strict=True):
            position += shift - 0.5  # noqa: PLW2901
            np.clip(position, *limit, out=position)
            low = np.floor(position)
            parts.append((position - low).astype(np.float32)[..., np.newaxis])
            numbers = numbers + low.astype(np.intp) * step
        convert(_between(elements, numbers, steps, parts), out.dtype, out[begin : begin + together])


def _between(elements: Array, numbers: Array, steps: Sequence[int], parts: Sequence[Array]) -> Array:
    """Return values between elements and the next ones along each axis, linearly interpolated."""
    if not steps:
        return elements.take(numbers, axis=0)
    low = _between(elements, numbers, steps[1:], parts[1:])
    high = _between(elements, numbers + steps[0], steps[1:], parts[1:])
    high -= low
    high *= parts[0]
    low += high
    return low
