"""Operators that map images by formulas, by maps and by perspective transforms, as in ``nvidia.dali.fn``."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dali_like.common.kept_results import kept_within
from dali_like.errors import ArgumentClashError, ArgumentError, SampleError
from dali_like.graph.language.operator_interface import Array, OperatorCall
from dali_like.operators.geometry._windows import round_half_up
from dali_like.operators.machinery._pixels import opencv
from dali_like.operators.machinery.conversion import convert
from dali_like.operators.machinery.description import operator
from dali_like.operators.parameters import FINITE, Floats, PerFrame, PerSample, at_least, count
from dali_like.types import INTERP_CUBIC, INTERP_LANCZOS3, INTERP_LINEAR, INTERP_NN, DALIInterpType

Origin: TypeAlias = Literal["corner", "center"]
_Border: TypeAlias = Literal["constant", "replicate", "reflect", "reflect_101", "wrap"]
_Matrix: TypeAlias = Annotated[Floats, count(9), FINITE]
#: Bytes of maps that are kept: 4 for each pixel, or 24 with interpolation.
_KEPT_BYTES = 1 << 25

_Positions: TypeAlias = tuple[NDArray[np.float32], NDArray[np.float32]]


def _check_filter(given: Mapping[str, Any]) -> None:
    if given.get("interp_type", INTERP_NN) not in (INTERP_NN, INTERP_LINEAR):
        raise ArgumentError("interp_type must be INTERP_NN or INTERP_LINEAR")


@operator(layouts="HWC", check=_check_filter, stacks=(), kernel="geometry.displacing_kernels.sphere", kernel_for_large=True)
def sphere(
    call: OperatorCall,
    image: Array,
    *,
    mask: PerSample[int] = 1,
    interp_type: DALIInterpType = INTERP_NN,
    fill_value: float = 0.0,
) -> Array:
    """Make images look like a sphere: magnify their center.

    Args:
        image: UINT8 or FLOAT.
        mask: 0 leaves the image unchanged.
        interp_type: INTERP_NN or INTERP_LINEAR.
        fill_value: value outside the image.
    """
    return _displaced(call, image, mask, fill_value, lambda: _taken_from(_Sphere(), image.shape[-3:-1], interp_type))


@operator(layouts="HWC", check=_check_filter, stacks=(), kernel="geometry.displacing_kernels.water", kernel_for_large=True)
def water(
    call: OperatorCall,
    image: Array,
    *,
    mask: PerSample[int] = 1,
    ampl_x: Annotated[float, FINITE] = 10.0,
    ampl_y: Annotated[float, FINITE] = 10.0,
    freq_x: Annotated[float, FINITE] = math.pi / 64,
    freq_y: Annotated[float, FINITE] = math.pi / 64,
    phase_x: Annotated[float, FINITE] = 0.0,
    phase_y: Annotated[float, FINITE] = 0.0,
    interp_type: DALIInterpType = INTERP_NN,
    fill_value: float = 0.0,
) -> Array:
    """Make images look as if they were under water: shift rows and columns along waves.

    Args:
        image: UINT8 or FLOAT.
        mask: 0 leaves the image unchanged.
        ampl_x, ampl_y: amplitudes of the waves, in pixels.
        freq_x, freq_y: frequencies, in radians per pixel.
        phase_x, phase_y: phases, in radians.
        interp_type: INTERP_NN or INTERP_LINEAR.
        fill_value: value outside the image.
    """
    waves = Waves(ampl_x, ampl_y, freq_x, freq_y, phase_x, phase_y)
    return _displaced(call, image, mask, fill_value, lambda: _taken_from(waves, image.shape[-3:-1], interp_type))


@operator(layouts="HWC", random=True, check=_check_filter)
def jitter(
    call: OperatorCall,
    image: Array,
    *,
    mask: PerSample[int] = 1,
    nDegree: Annotated[int, at_least(1)] = 2,  # noqa: N803
    interp_type: DALIInterpType = INTERP_NN,
    fill_value: float = 0.0,
) -> Array:
    """Move each pixel by random amounts in both directions.

    Args:
        image: UINT8 or FLOAT.
        mask: 0 leaves the image unchanged.
        nDegree: the pixels move by whole numbers from ``-nDegree / 2`` to ``nDegree / 2``, all with the same probability.
        interp_type: INTERP_NN or INTERP_LINEAR; both give the same result.
        fill_value: value outside the image.
    """
    most = nDegree // 2

    def taken() -> _Taken:
        height, width = image.shape[:2]
        down, across = call.rng().integers(-most, most + 1, (2, height, width))
        row, column = np.ogrid[:height, :width]
        return _Taken([_numbers(row + down, column + across, (height, width))])

    return _displaced(call, image, mask, fill_value, taken)


class _Sphere(NamedTuple):
    """Positions for `sphere`, given the centers of the pixels."""

    def __call__(self, y: NDArray[np.float32], x: NDArray[np.float32], height: int, width: int) -> _Positions:
        down, across = y - np.float32(height / 2), x - np.float32(width / 2)
        distance = np.sqrt(down * down + across * across) / np.float32(max(height // 2, width // 2, 1))
        return down * distance + np.float32(height / 2), across * distance + np.float32(width / 2)


class Waves(NamedTuple):
    """Positions for `water`, given the centers of the pixels."""

    ampl_x: float
    ampl_y: float
    freq_x: float
    freq_y: float
    phase_x: float
    phase_y: float

    def __call__(self, y: NDArray[np.float32], x: NDArray[np.float32], height: int, width: int) -> _Positions:
        y, x = y - np.float32(0.5), x - np.float32(0.5)  # DALI's waves begin at the first pixel, not at its center
        along, down = self.shifts(y.reshape(-1), x.reshape(-1))
        return y + down, x + along[:, np.newaxis]

    def shifts(self, rows: NDArray[np.float32], columns: NDArray[np.float32]) -> _Positions:
        """Return how far rows are shifted to the right, and columns downwards."""
        one = np.float32
        along = one(self.ampl_x) * np.sin(one(self.freq_x) * rows + one(self.phase_x))
        return along, one(self.ampl_y) * np.cos(one(self.freq_y) * columns + one(self.phase_y))


class _Taken(NamedTuple):
    """The pixels that make up a result.

    Attributes:
        numbers: of pixels of the image, one behind the last for those outside of it: those of the result, or the four
            around each position: upper left and right, lower left and right.
        right, below: the distances from the upper left ones; None for a single pixel.
    """

    numbers: Sequence[NDArray[np.int32]]
    right: NDArray[np.float32] | None = None
    below: NDArray[np.float32] | None = None


def _bytes_of(taken: _Taken) -> int:
    others = (taken.right, taken.below)
    return sum(array.nbytes for array in (*taken.numbers, *others) if array is not None)


@kept_within(_KEPT_BYTES, _bytes_of)
def _taken_from(positions: _Sphere | Waves, size: tuple[int, int], kind: DALIInterpType) -> _Taken:
    """Return the pixels for a map from centers of pixels in the result to positions in the image."""
    y, x = (axis.astype(np.float32) + np.float32(0.5) for axis in np.ogrid[: size[0], : size[1]])
    rows, columns = positions(y, x, *size)
    if kind == INTERP_NN:
        return _Taken([_numbers(np.floor(rows), np.floor(columns), size)])
    top, left = np.floor(rows - np.float32(0.5)), np.floor(columns - np.float32(0.5))
    below, right = rows - np.float32(0.5) - top, columns - np.float32(0.5) - left
    corners = [_numbers(top + down, left + across, size) for down in (0, 1) for across in (0, 1)]
    return _Taken(corners, right[..., np.newaxis], below[..., np.newaxis])


def _numbers(row: Array, column: Array, size: tuple[int, int]) -> NDArray[np.int32]:
    height, width = size
    inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
    row, column = (np.where(inside, axis, 0).astype(np.int32) for axis in (row, column))
    return np.where(inside, row * width + column, np.int32(height * width))


def _displaced(call: OperatorCall, image: Array, mask: int, fill_value: float, taken: Callable[[], _Taken]) -> Array:
    """Put an image together from its pixels."""
    if image.dtype not in (np.uint8, np.float32):
        raise SampleError(f"an image must be of dtype uint8 or float32, not {image.dtype}")
    if not mask or not image.size:
        return call.part(image)
    numbers, right, below = taken()
    height, width, channels = image.shape[-3:]
    elements = np.empty((*image.shape[:-3], height * width + 1, channels), image.dtype)
    elements[..., :-1, :] = image.reshape(*image.shape[:-3], height * width, channels)
    elements[..., -1, :] = np.asarray(fill_value).astype(image.dtype)
    out = call.empty(image.shape, image.dtype)
    if right is None or below is None:
        # With mode="clip", NumPy writes directly to `out`.
        elements.take(numbers[0], axis=-2, out=out, mode="clip")
        return out
    corners = [elements.take(number, axis=-2) for number in numbers]
    upper, lower = (left * (1 - right) + other * right for left, other in (corners[:2], corners[2:]))
    return convert(upper * (1 - below) + lower * below, out.dtype, out)


# Maps of OpenCV

_IMAGES = "HWC FHWC CHW FCHW HW"
#: OpenCV maps so many channels together, and takes as many fill values.
_MOST_CHANNELS = 4
#: DALI's OpenCV rounds positions to these fractions of a pixel; `cv2.warpPerspective` of OpenCV 5 does not.
_STEPS = 32
_FILTERS = {INTERP_NN: "INTER_NEAREST", INTERP_LINEAR: "INTER_LINEAR", INTERP_CUBIC: "INTER_CUBIC"}
_BORDERS = {
    "constant": "BORDER_CONSTANT",
    "replicate": "BORDER_REPLICATE",
    "reflect": "BORDER_REFLECT",
    "reflect_101": "BORDER_REFLECT_101",
    "wrap": "BORDER_WRAP",
}


def _check_perspective(given: Mapping[str, Any]) -> None:
    if ("matrix" in given) == ("matrix_input" in given):
        raise ArgumentClashError("the transform is missing; pass matrix= or a second input, not both")
    if given.get("interp_type", INTERP_LINEAR) not in _FILTERS:
        raise ArgumentError("interp_type must be INTERP_NN, INTERP_LINEAR or INTERP_CUBIC")


@operator(
    module="experimental",
    layouts=_IMAGES,
    check=_check_perspective,
    kernel="geometry.displacing_kernels.warp_perspective",
    kernel_for_large=True,
)
def warp_perspective(
    call: OperatorCall,
    image: Array,
    matrix_input: Array | None = None,
    /,
    *,
    matrix: PerFrame[_Matrix] | None = None,
    inverse_map: bool = True,
    size: PerSample[Annotated[Floats, count(2), at_least(1)]] | None = None,
    pixel_origin: Origin = "corner",
    border_mode: _Border = "constant",
    fill_value: Annotated[Floats, FINITE] = (0.0,),
    interp_type: DALIInterpType = INTERP_LINEAR,
) -> Array:
    """Apply perspective transforms to images.

    Args:
        image: UINT8, UINT16, INT16 or FLOAT.
        matrix_input: the transform as a 3x3 matrix of floats, instead of `matrix`.
        matrix: rows of the transform of (x, y, 1), in pixels.
        inverse_map: whether the transform maps the result to the image; otherwise it is inverted.
        size: size of the result, as (height, width). Default: that of the image.
        pixel_origin: position of the first pixel's center: (0.5, 0.5) for "corner", (0, 0) for "center".
        border_mode: values outside the image: `fill_value`, or the image's own, continued in this way.
        fill_value: value outside the image for all channels, or one for each.
        interp_type: INTERP_NN, INTERP_LINEAR or INTERP_CUBIC.
    """
    transform = map_to_opencv(matrix if matrix_input is None else matrix_input, pixel_origin, inverse_map=inverse_map)
    extents = [image.shape[call.layout.index(letter)] for letter in "HW"]
    result = (extents[0], extents[1]) if size is None else (round_half_up(size[0]), round_half_up(size[1]))

    def warp(plane: Array, filling: Floats) -> Array:
        return map_plane(plane, transform, result, interp_type, border_mode, filling)

    return _each_plane(call, image, result, warp, fill_value)


def map_to_opencv(matrix: Any, pixel_origin: Origin, *, inverse_map: bool) -> Array:
    """Return the transform from the result to the image, whose first pixels have their centers at (0, 0) for OpenCV.

    Raises:
        SampleError: the transform has another number of elements.
    """
    given = np.asarray(matrix, np.float32).astype(np.float64)
    if given.size != 9:
        raise SampleError(f"the transform must have the shape (3, 3), not {given.shape}")
    return _map_to_opencv(tuple(given.ravel().tolist()), pixel_origin, inverse_map)


@functools.lru_cache(64)
def _map_to_opencv(elements: Sequence[float], pixel_origin: Origin, inverse_map: bool) -> Array:
    transform: Array = np.reshape(elements, (3, 3))
    if pixel_origin == "corner":
        transform = _FROM_CORNER @ transform @ _TO_CORNER
    return transform if inverse_map else opencv().invert(transform)[1]  # zeros for a singular matrix, as in DALI


_TO_CORNER = np.array([[1, 0, 0.5], [0, 1, 0.5], [0, 0, 1]])
_FROM_CORNER = np.linalg.inv(_TO_CORNER)


def map_plane(
    image: Array, transform: Array, size: tuple[int, int], kind: DALIInterpType, border_mode: str, fill_value: Floats
) -> Array:
    """Map an image of up to four channels by a perspective transform of OpenCV."""
    cv2 = opencv()
    x, y = _seen(tuple(transform.ravel().tolist()), *size, 1 if kind == INTERP_NN else _STEPS)
    border = getattr(cv2, _BORDERS[border_mode])
    mapped: Array = cv2.remap(image, x, y, getattr(cv2, _FILTERS[kind]), borderMode=border, borderValue=fill_value)
    return mapped


def _bytes_of_positions(positions: _Positions) -> int:
    return positions[0].nbytes + positions[1].nbytes


@kept_within(_KEPT_BYTES, _bytes_of_positions)
def _seen(transform: Sequence[float], height: int, width: int, steps: int) -> _Positions:
    """Return the positions (x, y) in the image of the result's pixels, rounded to a fraction of a pixel."""
    row, column = np.ogrid[:height, :width]
    x, y, depth = (
        across * column + (down * row + offset) for across, down, offset in np.reshape(transform, (3, 3)).tolist()
    )
    scale: Array = np.divide(steps, depth, out=np.zeros_like(depth), where=depth != 0)
    limit = float(1 << 20)  # any position outside of the image
    rounded: list[Array] = [np.rint(np.clip(axis * scale, -limit, limit)) / steps for axis in (x, y)]
    return rounded[0].astype(np.float32), rounded[1].astype(np.float32)


def _each_plane(
    call: OperatorCall,
    image: Array,
    size: tuple[int, int],
    warp: Callable[[Array, Floats], Array],
    fill_value: Floats,
) -> Array:
    """Apply a function to each frame: to up to four channels that lie side by side together, to others one by one."""
    if image.dtype not in (np.uint8, np.uint16, np.int16, np.float32):
        raise SampleError(f"an image must be of dtype uint8, uint16, int16 or float32, not {image.dtype}")
    layout = call.layout
    channels = image.shape[layout.index("C")] if "C" in layout else 1
    if len(fill_value) not in (0, 1, channels):
        raise SampleError(f"fill_value must have one element, or one for each of the {channels} channels")
    filling = fill_value if len(fill_value) == channels else (fill_value or (0.0,)) * channels
    resized = dict(zip("HW", size, strict=True))
    shape = tuple([resized.get(letter, extent) for letter, extent in zip(layout, image.shape, strict=True)])
    out = call.empty(shape, image.dtype)
    if not out.size:
        return out
    if not image.size:
        raise SampleError(f"an image of shape {image.shape} cannot be mapped")
    if layout.endswith("HWC") and channels <= _MOST_CHANNELS:
        flat = image.reshape(-1, *image.shape[-3:])
        for picture, place in zip(flat, out.reshape(-1, *shape[-3:]), strict=True):
            place[...] = warp(picture, filling + filling[-1:] * (_MOST_CHANNELS - channels)).reshape(place.shape)
        return out
    order = [layout.index(letter) for letter in "FCHW" if letter in layout]
    planes, places = image.transpose(order), out.transpose(order)
    for place in np.ndindex(planes.shape[:-2]):
        channel = place[-1] if "C" in layout else 0
        places[place] = warp(np.ascontiguousarray(planes[place]), filling[channel : channel + 1] * _MOST_CHANNELS)
    return out


def _check_remap(given: Mapping[str, Any]) -> None:
    if given.get("interp", INTERP_LINEAR) not in (*_FILTERS, INTERP_LANCZOS3):
        raise ArgumentError("interp must be INTERP_NN, INTERP_LINEAR, INTERP_CUBIC or INTERP_LANCZOS3")


@operator(module="experimental", layouts="HWC FHWC", check=_check_remap)
def remap(
    call: OperatorCall,
    image: Array,
    mapx: Array,
    mapy: Array,
    *,
    interp: DALIInterpType = INTERP_LINEAR,
    pixel_origin: Origin = "corner",
) -> Array:
    """Take each pixel of the result from a position in the image; 0 outside of it.

    Args:
        image: UINT8, UINT16, INT16 or FLOAT, with 1 or 3 channels.
        mapx, mapy: positions for each pixel of the result, FLOAT, in the layout HW, or FHW for one of each frame.
        interp: INTERP_NN, INTERP_LINEAR, INTERP_CUBIC or INTERP_LANCZOS3, which is OpenCV's with 8 pixels.
        pixel_origin: position of the first pixel's center: (0.5, 0.5) for "corner", (0, 0) for "center".
    """
    cv2 = opencv()
    if image.shape[-1] not in (1, 3):
        raise SampleError(f"an image must have 1 or 3 channels, not {image.shape[-1]}")
    shift = np.float32(0.5 if pixel_origin == "corner" else 0)
    frames = math.prod(image.shape[:-3])
    x, y = (_map(name, given, frames, "F" in call.layout) - shift for name, given in (("mapx", mapx), ("mapy", mapy)))
    if x.shape[1:] != y.shape[1:]:
        raise SampleError(f"mapx and mapy must have the same shape, not {mapx.shape} and {mapy.shape}")
    kind = getattr(cv2, _FILTERS.get(interp, "INTER_LANCZOS4"))
    numbers = iter(range(frames))

    def warp(plane: Array, filling: Floats) -> Array:
        i = next(numbers)
        mapped: Array = cv2.remap(
            plane, x[i % len(x)], y[i % len(y)], kind, borderMode=cv2.BORDER_CONSTANT, borderValue=filling
        )
        return mapped

    return _each_plane(call, image, (x.shape[1], x.shape[2]), warp, (0.0,))


def _map(name: str, given: Array, frames: int, is_sequence: bool) -> NDArray[np.float32]:
    """Return a map for each frame, or one for all."""
    if given.dtype != np.float32:
        raise SampleError(f"{name} must be of dtype float32, not {given.dtype}")
    maps = given[..., 0] if given.shape[-1:] == (1,) and given.ndim == (4 if is_sequence else 3) else given
    maps = maps if maps.ndim == 3 else maps[np.newaxis]
    if maps.ndim != 3 or len(maps) not in (1, frames):
        raise SampleError(f"{name} must have the layout HW, or FHW for a sequence of {frames} frames, not {given.shape}")
    return maps
