"""Operators that map images by formulas, by maps and by perspective transforms, as in ``nvidia.dali.fn``."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dali_like.errors import ArgumentClashError, ArgumentError, SampleError
from dali_like.graph.language.operator_interface import Array, OperatorCall
from dali_like.operators.geometry._windows import round_half_up
from dali_like.operators.machinery._pixels import opencv
from dali_like.operators.machinery.conversion import convert
from dali_like.operators.machinery.description import operator
from dali_like.operators.parameters import FINITE, Floats, PerFrame, PerSample, at_least, count
from dali_like.types import INTERP_CUBIC, INTERP_LANCZOS3, INTERP_LINEAR, INTERP_NN, DALIInterpType

_Origin: TypeAlias = Literal["corner", "center"]
_Border: TypeAlias = Literal["constant", "replicate", "reflect", "reflect_101", "wrap"]
_Matrix: TypeAlias = Annotated[Floats, count(9), FINITE]
#: Maps that are kept, of 4 bytes per pixel, or 24 with interpolation.
_KEPT_MAPS = 4

_Positions: TypeAlias = tuple[NDArray[np.float32], NDArray[np.float32]]


def _check_filter(given: Mapping[str, Any]) -> None:
    if given.get("interp_type", INTERP_NN) not in (INTERP_NN, INTERP_LINEAR):
        raise ArgumentError("interp_type must be INTERP_NN or INTERP_LINEAR")


@operator(layouts="HWC", check=_check_filter, stacks=())
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


@operator(layouts="HWC", check=_check_filter, stacks=())
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
    waves = _Water(ampl_x, ampl_y, freq_x, freq_y, phase_x, phase_y)
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


class _Water(NamedTuple):
    """Positions for `water`, given the centers of the pixels."""

    ampl_x: float
    ampl_y: float
    freq_x: float
    freq_y: float
    phase_x: float
    phase_y: float

    def __call__(self, y: NDArray[np.float32], x: NDArray[np.float32], height: int, width: int) -> _Positions:
        one = np.float32
        y, x = y - one(0.5), x - one(0.5)  # DALI's waves begin at the first pixel, not at its center
        along = one(self.ampl_x) * np.sin(one(self.freq_x) * y + one(self.phase_x))
        down = one(self.ampl_y) * np.cos(one(self.freq_y) * x + one(self.phase_y))
        return y + down, x + along


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


@functools.lru_cache(_KEPT_MAPS)
def _taken_from(positions: _Sphere | _Water, size: tuple[int, int], kind: DALIInterpType) -> _Taken:
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


@operator(module="experimental", layouts=_IMAGES, check=_check_perspective)
def warp_perspective(
    call: OperatorCall,
    image: Array,
    matrix_input: Array | None = None,
    /,
    *,
    matrix: PerFrame[_Matrix] | None = None,
    inverse_map: bool = True,
    size: PerSample[Annotated[Floats, count(2), at_least(1)]] | None = None,
    pixel_origin: _Origin = "corner",
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
    cv2 = opencv()
    given = np.asarray(matrix if matrix_input is None else matrix_input, np.float32).astype(np.float64)
    if given.size != 9:
        raise SampleError(f"the transform must have the shape (3, 3), not {given.shape}")
    transform: Array = given.reshape(3, 3)
    if pixel_origin == "corner":  # OpenCV's first pixel has its center at (0, 0)
        shift = np.array([[1, 0, 0.5], [0, 1, 0.5], [0, 0, 1]])
        transform = np.linalg.inv(shift) @ transform @ shift
    if not inverse_map:
        transform = cv2.invert(transform)[1]  # zeros for a singular matrix, as in DALI
    kind, border = getattr(cv2, _FILTERS[interp_type]), getattr(cv2, _BORDERS[border_mode])
    extents = [image.shape[call.layout.index(letter)] for letter in "HW"]
    height, width = extents if size is None else map(round_half_up, size)
    x, y = _seen(tuple(transform.ravel().tolist()), height, width, 1 if interp_type == INTERP_NN else _STEPS)

    def warp(plane: Array, filling: float) -> Array:
        mapped: Array = cv2.remap(plane, x, y, kind, borderMode=border, borderValue=(filling,) * 4)
        return mapped

    return _each_plane(call, image, (height, width), warp, fill_value)


@functools.lru_cache(_KEPT_MAPS)
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
    warp: Callable[[Array, float], Array],
    fill_value: Floats,
) -> Array:
    """Apply a function to each channel of each frame."""
    if image.dtype not in (np.uint8, np.uint16, np.int16, np.float32):
        raise SampleError(f"an image must be of dtype uint8, uint16, int16 or float32, not {image.dtype}")
    layout = call.layout
    order = [layout.index(letter) for letter in "FCHW" if letter in layout]
    channels = image.shape[layout.index("C")] if "C" in layout else 1
    if len(fill_value) not in (0, 1, channels):
        raise SampleError(f"fill_value must have one element, or one for each of the {channels} channels")
    filling = fill_value if len(fill_value) == channels else (fill_value or (0.0,)) * channels
    resized = dict(zip("HW", size, strict=True))
    shape = tuple([resized.get(letter, extent) for letter, extent in zip(layout, image.shape, strict=True)])
    out = call.empty(shape, image.dtype)
    planes, places = image.transpose(order), out.transpose(order)
    for place in np.ndindex(planes.shape[:-2]):
        channel = place[-1] if "C" in layout else 0
        places[place] = warp(np.ascontiguousarray(planes[place]), filling[channel])
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
    pixel_origin: _Origin = "corner",
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
    numbers = iter(np.repeat(np.arange(frames), image.shape[-1]).tolist())

    def warp(plane: Array, filling: float) -> Array:
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
