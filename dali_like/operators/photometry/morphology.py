"""Operators that grow and shrink bright parts of images, as in ``nvidia.dali.fn.experimental``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np

from dali_like.errors import SampleError
from dali_like.graph.language.operator_interface import Array, OperatorCall
from dali_like.operators.machinery._pixels import opencv
from dali_like.operators.machinery.axes import for_each_axis
from dali_like.operators.machinery.description import operator
from dali_like.operators.parameters import Ints, PerFrame, at_least, count
from dali_like.operators.photometry._convolving import stacked_shape

_LAYOUTS = "HW HWC FHWC CHW FCHW"
_DTYPES = ("uint8", "uint16", "int16", "float32", "float64")
_Border: TypeAlias = Literal["constant", "replicate", "reflect", "reflect_101", "wrap"]
_Sizes: TypeAlias = Annotated[Ints, count(1, 2), at_least(1)]
_Anchor: TypeAlias = Annotated[Ints, count(1, 2), at_least(-1)]


@operator(module="experimental", layouts=_LAYOUTS, strided=True, stacks=())
def dilate(
    call: OperatorCall,
    input: Array,
    *,
    anchor: PerFrame[_Anchor] = (-1, -1),
    border_mode: _Border = "constant",
    iterations: Annotated[int, at_least(1)] = 1,
    mask_size: PerFrame[_Sizes] = (3, 3),
) -> Array:
    """Replace each element by the maximum of its surroundings, in each channel.

    Args:
        input: images of uint8, uint16, int16, float32 or float64.
        anchor: (x, y) of the element in the rectangle of its surroundings; one number for both; -1: the middle.
        border_mode: values outside the image: "constant" (none), "replicate" (the nearest element), "reflect" (mirrored),
            "reflect_101" (mirrored, without the outermost elements) or "wrap" (periodic).
        iterations: number of repetitions.
        mask_size: width and height of the surroundings; one number for both.
    """
    return _morphed(call, input, opencv().dilate, anchor, border_mode, iterations, mask_size)


@operator(module="experimental", layouts=_LAYOUTS, strided=True, stacks=())
def erode(
    call: OperatorCall,
    input: Array,
    *,
    anchor: PerFrame[_Anchor] = (-1, -1),
    border_mode: _Border = "constant",
    iterations: Annotated[int, at_least(1)] = 1,
    mask_size: PerFrame[_Sizes] = (3, 3),
) -> Array:
    """Replace each element by the minimum of its surroundings, in each channel.

    Args:
        input: images of uint8, uint16, int16, float32 or float64.
        anchor: (x, y) of the element in the rectangle of its surroundings; one number for both; -1: the middle.
        border_mode: values outside the image: "constant" (none), "replicate" (the nearest element), "reflect" (mirrored),
            "reflect_101" (mirrored, without the outermost elements) or "wrap" (periodic).
        iterations: number of repetitions.
        mask_size: width and height of the surroundings; one number for both.
    """
    return _morphed(call, input, opencv().erode, anchor, border_mode, iterations, mask_size)


def _morphed(
    call: OperatorCall,
    image: Array,
    morph: Callable[..., Array],
    anchor: Ints,
    border_mode: _Border,
    iterations: int,
    mask_size: Ints,
) -> Array:
    if image.dtype.name not in _DTYPES:
        raise SampleError(f"images must be of dtype {', '.join(_DTYPES)}, not {image.dtype}; convert them with fn.cast")
    once = for_each_axis("mask_size", mask_size, 2)
    first = [size // 2 if at == -1 else at for at, size in zip(for_each_axis("anchor", anchor, 2), once, strict=True)]
    if any(at >= size for at, size in zip(first, once, strict=True)):
        raise SampleError(f"anchor must lie within the mask of size {list(once)}, not at {list(anchor)}")
    before = [at * iterations for at in first]
    size = [(extent - 1) * iterations + 1 for extent in once]  # of the surroundings of all repetitions together
    (left, top), (right, bottom) = before, [extent - at - 1 for extent, at in zip(size, before, strict=True)]
    out = call.empty(image.shape, image.dtype)
    if not image.size:
        return out
    cv2 = opencv()
    mask = cv2.getStructuringElement(cv2.MORPH_RECT, size)
    is_periodic = border_mode == "wrap"  # unknown to OpenCV's function
    options: dict[str, Any] = {} if is_periodic else {"borderType": getattr(cv2, f"BORDER_{border_mode.upper()}")}
    shape = stacked_shape(call.layout, image.shape)
    for pixels, target in zip(image.reshape(shape), out.reshape(shape), strict=True):
        source = pixels
        if is_periodic:
            source = np.pad(pixels, [(top, bottom), (left, right), *[(0, 0)] * (pixels.ndim - 2)], "wrap")
        result = morph(source, mask, anchor=before, **options).reshape(source.shape)
        target[...] = result[top : top + len(target), left : left + target.shape[1]] if is_periodic else result
    return out
