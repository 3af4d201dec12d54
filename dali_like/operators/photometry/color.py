"""Color operators: brightness, contrast, hue, saturation and color models, as in ``nvidia.dali.fn``.

The arithmetic is DALI's, in single precision and in the same order, so results are bit-identical.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np

from dali_like.common.kernel_library import address_of, kernels
from dali_like.errors import ArgumentError, SampleError
from dali_like.graph.language.operator_interface import ANY_LENGTH, Array, OperatorCall, scratch
from dali_like.operators.machinery._pixels import check_result, look_up, merge, opencv, planes
from dali_like.operators.machinery.axes import for_each_axis
from dali_like.operators.machinery.conversion import convert, convert_over, convert_unguarded
from dali_like.operators.machinery.description import operator
from dali_like.operators.parameters import FINITE, Ints, PerFrame, at_least, between, count
from dali_like.types import ANY_DATA, BGR, GRAY, RGB, DALIImageType, YCbCr

_IMAGES = "HWC FHWC DHWC"
#: Single precision; arithmetic on these scalars stays in it.
_float = np.float32
_UINT8 = np.dtype(np.uint8)
#: In degrees.
_Angle: TypeAlias = Annotated[float, FINITE]


def _check_dtype(given: Mapping[str, Any]) -> None:
    if given.get("dtype") is not None:
        check_result(given["dtype"])


# Brightness and contrast


@operator(layouts=_IMAGES, check=_check_dtype, strided=True, stacks=(), elementwise=True)
def brightness_contrast(
    call: OperatorCall,
    image: Array,
    *,
    brightness: PerFrame[float] = 1.0,
    brightness_shift: PerFrame[float] = 0.0,
    contrast: PerFrame[float] = 1.0,
    contrast_center: PerFrame[float] | None = None,
    dtype: np.dtype[Any] | None = None,
) -> Array:
    """Make images brighter or darker, and their contrast higher or lower.

    ``out = brightness_shift * range + brightness * (contrast_center + contrast * (in - contrast_center))``, where the range
    is the largest number of the result's dtype, or 1 for floats.

    Args:
        image: any dtype and number of channels.
        brightness: factor for the brightness.
        brightness_shift: summand; 1 is the whole range.
        contrast: factor for the contrast; 0 makes everything gray.
        contrast_center: value that stays unchanged at any contrast. Default: half of the range of the image's dtype.
        dtype: data type of the result. Default: that of the image.
    """
    return _brightness_contrast(call, image, brightness, brightness_shift, contrast, contrast_center, dtype)


@operator(layouts=_IMAGES, check=_check_dtype, strided=True, stacks=(), elementwise=True)
def brightness(
    call: OperatorCall,
    image: Array,
    *,
    brightness: PerFrame[float] = 1.0,
    brightness_shift: PerFrame[float] = 0.0,
    dtype: np.dtype[Any] | None = None,
) -> Array:
    """Make images brighter or darker: ``out = brightness_shift * range + brightness * in``.

    Args:
        image: any dtype and number of channels.
        brightness: factor for the brightness.
        brightness_shift: summand; 1 is the largest number of the result's dtype, or 1 for floats.
        dtype: data type of the result. Default: that of the image.
    """
    return _brightness_contrast(call, image, brightness, brightness_shift, 1.0, None, dtype)


@operator(layouts=_IMAGES, check=_check_dtype, strided=True, stacks=(), elementwise=True)
def contrast(
    call: OperatorCall,
    image: Array,
    *,
    contrast: PerFrame[float] = 1.0,
    contrast_center: PerFrame[float] | None = None,
    dtype: np.dtype[Any] | None = None,
) -> Array:
    """Make the contrast of images higher or lower: ``out = contrast_center + contrast * (in - contrast_center)``.

    Args:
        image: any dtype and number of channels.
        contrast: factor for the contrast; 0 makes everything gray.
        contrast_center: value that stays unchanged at any contrast. Default: half of the range of the image's dtype.
        dtype: data type of the result. Default: that of the image.
    """
    return _brightness_contrast(call, image, 1.0, 0.0, contrast, contrast_center, dtype)


def _brightness_contrast(
    call: OperatorCall,
    image: Array,
    brightness: float,
    brightness_shift: float,
    contrast: float,
    contrast_center: float | None,
    dtype: np.dtype[Any] | None,
) -> Array:
    result = image.dtype if dtype is None else dtype
    center = _half_range(image.dtype) if contrast_center is None else contrast_center
    return _scale(call, image, *_line(brightness, brightness_shift, contrast, center, result), result)


@functools.lru_cache(256)
def _line(
    brightness: float, brightness_shift: float, contrast: float, contrast_center: float, result: np.dtype[Any]
) -> tuple[np.float32, np.float32]:
    """Return factor and summand."""
    center = _float(contrast_center)
    whole = _float(np.iinfo(result).max if result.kind in "iu" else 1)
    factor, shift = _float(brightness), _float(brightness_shift)
    return factor * _float(contrast), shift * whole + factor * (center - _float(contrast) * center)


def _half_range(dtype: np.dtype[Any]) -> float:
    if dtype.kind not in "iu":
        return 0.5
    return float(2 ** (8 * dtype.itemsize - (dtype.kind == "i") - 1))


@np.errstate(over="ignore", invalid="ignore")
def _scale(call: OperatorCall, image: Array, factor: np.float32, addend: np.float32, dtype: np.dtype[Any]) -> Array:
    """Multiply each element by a factor and add a summand."""
    check_result(dtype)
    if image.dtype == np.uint8 and image.size > 256:
        out = call.empty(image.shape, dtype)
        rows = (-1, math.prod(image.shape[-2:]))
        look_up(image.reshape(rows), _table_of_bytes(factor, addend, dtype), out.reshape(rows))
        return out
    out = call.empty(image.shape, dtype)
    values = np.multiply(image, factor, dtype=np.float32, out=out if dtype == np.float32 else None)
    values += addend
    if values is not out:
        convert_unguarded(values, dtype, out)
    return out


@functools.lru_cache(256)
def _table_of_bytes(factor: np.float32, addend: np.float32, dtype: np.dtype[Any]) -> Array:
    return convert(np.arange(256, dtype=np.float32) * factor + addend, dtype)


# Hue and saturation

#: From RGB to the color model with the hue as angle and the saturation as length, and back, as rounded by DALI.
_TO_YIQ = np.array([[0.299, 0.587, 0.114], [0.596, -0.274, -0.321], [0.211, -0.523, 0.311]], np.float32)
_FROM_YIQ = np.array(
    [
        [0.99966437, 0.9565412, 0.6208617],
        [0.99962485, -0.27227446, -0.6474513],
        [1.0028123, -1.106848, 1.7054056],
    ],
    np.float32,
)


@operator(layouts=_IMAGES, check=_check_dtype, strided=True, stacks=(), rowwise=ANY_LENGTH)
def hsv(
    call: OperatorCall,
    image: Array,
    *,
    hue: PerFrame[_Angle] = 0.0,
    saturation: PerFrame[float] = 1.0,
    value: PerFrame[float] = 1.0,
    dtype: np.dtype[Any] = _UINT8,
) -> Array:
    """Change hue, saturation and value of RGB images, by a linear transformation of colors.

    Args:
        image: any dtype, three channels.
        hue: change of the hue, in degrees.
        saturation: factor for the saturation; 0 makes an image gray.
        value: factor for the brightness.
        dtype: data type of the result. Default: UINT8.
    """
    return _twist(call, image, (), hue, saturation, value, 0.0, dtype)


@operator(layouts=_IMAGES, check=_check_dtype, ignored={"image_type": RGB}, strided=True, stacks=(), rowwise=ANY_LENGTH)
def hue(
    call: OperatorCall,
    image: Array,
    *,
    hue: PerFrame[_Angle] = 0.0,
    dtype: np.dtype[Any] | None = None,
) -> Array:
    """Change the hue of RGB images.

    Args:
        image: any dtype, three channels.
        hue: change of the hue, in degrees.
        dtype: data type of the result. Default: that of the image.
    """
    return _twist(call, image, (), hue, 1.0, 1.0, 0.0, dtype)


@operator(layouts=_IMAGES, check=_check_dtype, ignored={"image_type": RGB}, strided=True, stacks=(), rowwise=ANY_LENGTH)
def saturation(
    call: OperatorCall,
    image: Array,
    *,
    saturation: PerFrame[float] = 1.0,
    dtype: np.dtype[Any] | None = None,
) -> Array:
    """Change the saturation of RGB images.

    Args:
        image: any dtype, three channels.
        saturation: factor for the saturation; 0 makes an image gray.
        dtype: data type of the result. Default: that of the image.
    """
    return _twist(call, image, (), 0.0, saturation, 1.0, 0.0, dtype)


@operator(layouts=_IMAGES, check=_check_dtype, ignored={"image_type": RGB}, strided=True, stacks=(), rowwise=ANY_LENGTH)
def color_twist(
    call: OperatorCall,
    image: Array,
    *,
    brightness: PerFrame[float] = 1.0,
    contrast: PerFrame[float] = 1.0,
    hue: PerFrame[_Angle] = 0.0,
    saturation: PerFrame[float] = 1.0,
    dtype: np.dtype[Any] | None = None,
) -> Array:
    """Change brightness, contrast, hue and saturation of RGB images.

    Args:
        image: any dtype, three channels.
        brightness: factor for the brightness.
        contrast: factor for the contrast, around 128 (0.5 for floats); 0 makes everything gray.
        hue: change of the hue, in degrees.
        saturation: factor for the saturation; 0 makes an image gray.
        dtype: data type of the result. Default: that of the image.
    """
    half = _float(0.5 if image.dtype.kind == "f" else 128)
    offset = float((half - half * _float(contrast)) * _float(brightness))
    return _twist(call, image, (brightness, contrast), hue, saturation, 1.0, offset, dtype)


def _twist(
    call: OperatorCall,
    image: Array,
    factors: Sequence[float],
    hue: float,
    saturation: float,
    value: float,
    offset: float,
    dtype: np.dtype[Any] | None,
) -> Array:
    if image.shape[-1] != 3:
        raise SampleError(f"the image must have the three channels of RGB, not {image.shape[-1]}")
    matrix = _matrix_of(tuple(factors), hue, saturation, value)
    return _transform(call, image, matrix, np.full(3, offset, np.float32), image.dtype if dtype is None else dtype)


@functools.lru_cache(256)
def _matrix_of(factors: tuple[float, ...], hue: float, saturation: float, value: float) -> Array:
    """Return the matrix that changes colors."""
    angle = float(_float(math.radians(_float(hue))))
    turned = np.eye(3, dtype=np.float32)
    turned[1:, 1:] = [[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]]
    matrix = np.eye(3, dtype=np.float32)
    for factor in factors:
        matrix = _scaled_columns(matrix, factor, factor, factor)
    matrix = _product(matrix, _FROM_YIQ) if factors else _FROM_YIQ
    matrix = _scaled_columns(_product(matrix, turned), 1.0, saturation, saturation)
    return _product(_scaled_columns(matrix, value, value, value), _TO_YIQ)


def _scaled_columns(matrix: Array, *factors: float) -> Array:
    """Return the product with a diagonal matrix."""
    if all(map(math.isfinite, factors)):
        return matrix * np.array(factors, np.float32)  # the other terms of each sum are zeros
    return _product(matrix, np.diag(np.array(factors, np.float32)))


def _product(one: Array, other: Array) -> Array:
    """Return the product of two 3 x 3 matrices, summed in single precision from left to right."""
    terms = one[:, :, np.newaxis] * other[np.newaxis]
    product: Array = (terms[:, 0] + terms[:, 1]) + terms[:, 2]
    return product


@np.errstate(over="ignore", invalid="ignore")
def _transform(
    call: OperatorCall, image: Array, matrix: Array, offset: Array, dtype: np.dtype[Any], before: Array | None = None
) -> Array:
    """Add `before` to each pixel, multiply its color by a matrix, and add an offset."""
    check_result(dtype)
    is_simple = image.dtype == dtype == np.uint8 and np.abs(matrix).max() < 1e30  # so no sum is NaN
    if is_simple and before is None and matrix.shape == (3, 3) and image.flags.c_contiguous and kernels() is not None:
        out = call.empty(image.shape, dtype)
        kernels().mix_colors(image.size // 3, *map(address_of, (image, matrix, offset, out)))
        return out
    channels = planes(image)
    *inputs, total, term = scratch("colors", (len(channels) + 2, *channels[0].shape), np.float32)
    for plane, channel in zip(inputs, channels, strict=True):
        np.copyto(plane, channel, casting="unsafe")
    if before is not None:
        for plane, addend in zip(inputs, before, strict=True):
            np.add(plane, addend, out=plane)
    results = [*scratch("changed colors", (len(matrix), *channels[0].shape), dtype)]
    for row, addend, result in zip(matrix, offset, results, strict=True):
        np.multiply(inputs[0], row[0], out=total)
        for plane, factor in zip(inputs[1:], row[1:], strict=True):
            np.add(total, np.multiply(plane, factor, out=term), out=total)
        if addend:
            np.add(total, addend, out=total)
        if is_simple:
            convert_over(total, result)
        else:
            convert(total, dtype, result)
    out = call.empty(image.shape, dtype)
    merge(results, out)
    return out


# Color models

#: ITU-R BT.601, limited range: Y from 16 to 235, Cb and Cr from 16 to 240. The rows are Y, Cb and Cr.
_TO_YCBCR = np.array(
    [
        [0.25678823529, 0.50412941176, 0.09790588235],
        [-0.14822289945, -0.29099278682, 0.43921568627],
        [0.43921568627, -0.36778831435, -0.07142737192],
    ],
    np.float32,
)
_YCBCR_OFFSET = np.array([16, 128, 128], np.float32)
_LUMA = _float(255 / 219)
#: The rows are R, G and B.
_FROM_YCBCR = np.array([[_LUMA, 0, 1.59602679], [_LUMA, -0.39176229, -0.81296765], [_LUMA, 2.01723214, 0]], np.float32)


def _check_models(given: Mapping[str, Any]) -> None:
    for name in ("image_type", "output_type"):
        if given[name] == ANY_DATA:
            raise ArgumentError(f"{name} must be one of RGB, BGR, GRAY, YCbCr, not ANY_DATA")
    if given["image_type"] == given["output_type"]:
        raise ArgumentError("image_type and output_type are the same: conversion not supported")


@operator(layouts="HWC FHWC DHWC FDHWC", check=_check_models, strided=True, stacks=(), rowwise=ANY_LENGTH)
def color_space_conversion(
    call: OperatorCall,
    image: Array,
    *,
    image_type: DALIImageType,
    output_type: DALIImageType,
) -> Array:
    """Convert images from one color model to another.

    Args:
        image: uint8, with one channel for GRAY, otherwise three.
        image_type: color model of the image: RGB, BGR, GRAY or YCbCr.
        output_type: color model of the result, different from `image_type`.
    """
    channels = 1 if image_type == GRAY else 3
    if image.dtype != np.uint8 or image.shape[-1] != channels:
        raise SampleError(
            f"{image_type.name} images must be of dtype uint8 and have {channels} channels, not {image.dtype} and "
            f"{image.shape[-1]}"
        )
    if YCbCr in (image_type, output_type):
        return _convert_ycbcr(call, image, image_type, output_type)
    out = call.empty((*image.shape[:-1], 1 if output_type == GRAY else 3), np.uint8)
    if image.size:
        cv2 = opencv()
        code = getattr(cv2, f"COLOR_{image_type.name}2{output_type.name}")
        cv2.cvtColor(image.reshape(-1, *image.shape[-2:]), code, out.reshape(-1, *out.shape[-2:]))
    return out


def _convert_ycbcr(call: OperatorCall, image: Array, image_type: DALIImageType, output_type: DALIImageType) -> Array:
    if image_type == GRAY:
        out = call.empty((*image.shape[:-1], 3), np.uint8)
        out[..., :1] = convert(np.arange(256, dtype=np.float32) * _float(219 / 255) + _float(16), out.dtype)[image]
        out[..., 1:] = 128
        return out
    if output_type == GRAY:
        out = call.empty((*image.shape[:-1], 1), np.uint8)
        luma = convert((np.arange(256, dtype=np.float32) - _float(16)) * _LUMA, out.dtype)
        out[...] = luma[image[..., :1]]
        return out
    if output_type == YCbCr:
        rgb = image if image_type == RGB else np.ascontiguousarray(image[..., ::-1])
        return _transform(call, rgb, _TO_YCBCR, _YCBCR_OFFSET, image.dtype)
    matrix = _FROM_YCBCR[::-1] if output_type == BGR else _FROM_YCBCR
    return _transform(call, image, matrix, np.zeros(3, np.float32), image.dtype, before=-_YCBCR_OFFSET)


# Histograms


@operator(module="experimental", layouts="HW HWC CHW FHW FHWC FCHW", strided=True, stacks=())
def equalize(call: OperatorCall, image: Array) -> Array:
    """Equalize the histogram of each channel: spread its values over the whole range.

    Args:
        image: uint8.
    """
    if image.dtype != np.uint8:
        raise SampleError(f"images must be of dtype uint8, not {image.dtype}; convert them with fn.cast")
    out = call.empty(image.shape, image.dtype)
    if not image.size:
        return out
    cv2 = opencv()
    is_planar = not call.layout.endswith("C")
    shape = image.shape[-2:] if is_planar else image.shape[-3:]
    for pixels, target in zip(image.reshape(-1, *shape), out.reshape(-1, *shape), strict=True):
        if is_planar:
            cv2.equalizeHist(pixels, dst=target)
        else:
            merge([cv2.equalizeHist(plane) for plane in planes(pixels)], target)
    return out


_Tiles: TypeAlias = Annotated[int, at_least(1)]


@operator(layouts="HWC", ignored={"bins": 256}, strided=True)
def clahe(
    call: OperatorCall,
    image: Array,
    *,
    tiles_x: _Tiles,
    tiles_y: _Tiles,
    clip_limit: float,
    luma_only: bool = True,
) -> Array:
    """Equalize the histogram of each tile of an image, with limited contrast (CLAHE), as ``nvidia.dali.fn`` 2.4.0.

    Results are those of OpenCV's CLAHE. Pixels between the centers of tiles are interpolated.

    Args:
        image: uint8, with one channel, or the three of RGB.
        tiles_x: number of tiles along the width.
        tiles_y: number of tiles along the height.
        clip_limit: limit of each bin of a histogram, as a multiple of their mean; what is above it is spread over all bins.
            0 or less: no limit.
        luma_only: change the lightness of colors only (L of CIE Lab). Otherwise, each channel is equalized by itself.
    """
    channels = image.shape[-1]
    if image.dtype != np.uint8 or channels not in (1, 3):
        raise SampleError(
            f"images must be of dtype uint8 and have 1 or 3 channels, not {image.dtype} and {channels}: use fn.cast, or "
            "fn.color_space_conversion"
        )
    out = call.empty(image.shape, image.dtype)
    if not image.size:
        return out
    cv2 = opencv()
    limited = cv2.createCLAHE(clip_limit, (tiles_x, tiles_y))
    if channels == 3 and luma_only:
        lightness, *colors = planes(cv2.cvtColor(np.ascontiguousarray(image), cv2.COLOR_RGB2Lab))
        cv2.cvtColor(np.dstack([limited.apply(lightness), *colors]), cv2.COLOR_Lab2RGB, out)
    else:
        merge([limited.apply(plane) for plane in planes(image)], out)
    return out


# Color filter arrays

#: OpenCV's names of the arrays, by the position of blue.
_BAYER = {(0, 0): "BG", (0, 1): "GB", (1, 0): "GR", (1, 1): "RG"}
_Algorithm: TypeAlias = Literal["bilinear_ocv", "edgeaware_ocv", "vng_ocv", "gray_ocv"]
_ALGORITHMS: Mapping[_Algorithm, str] = {
    "bilinear_ocv": "RGB",
    "edgeaware_ocv": "RGB_EA",
    "vng_ocv": "RGB_VNG",
    "gray_ocv": "GRAY",
}


def _colored_layout(layout: str, _: Mapping[str, Any]) -> str:
    return layout if layout.endswith("C") else f"{layout}C"


@operator(module="experimental", layouts="HW HWC FHW FHWC", output_layout=_colored_layout, stacks=())
def debayer(
    call: OperatorCall,
    image: Array,
    *,
    algorithm: _Algorithm = "bilinear_ocv",
    blue_position: PerFrame[Annotated[Ints, count(1, 2), between(0, 1)]],
) -> Array:
    """Compute RGB images from the images of a sensor with a color filter array (Bayer pattern).

    Args:
        image: uint8 or uint16, with one channel and an even height and width.
        algorithm: "bilinear_ocv", "edgeaware_ocv", "vng_ocv" (only uint8), or "gray_ocv", which returns gray images with one
            channel.
        blue_position: row and column of blue in the 2x2 tiles that begin in the second row and column of the image, as in
            OpenCV: (0, 0) is BGGR, (0, 1) is GBRG, (1, 0) is GRBG, (1, 1) is RGGB. One number for both.
    """
    if image.dtype != np.uint8 and (image.dtype != np.uint16 or algorithm == "vng_ocv"):
        allowed = "uint8" if algorithm == "vng_ocv" else "uint8 or uint16"
        raise SampleError(f"images must be of dtype {allowed} for algorithm={algorithm!r}, not {image.dtype}")
    if call.layout.endswith("C"):
        if image.shape[-1] != 1:
            raise SampleError(f"images must have one channel, not {image.shape[-1]}")
        image = image[..., 0]
    if image.shape[-2] % 2 or image.shape[-1] % 2:
        raise SampleError(f"height and width must be even, not {image.shape[-2]} and {image.shape[-1]}")
    out = call.empty((*image.shape, 1 if algorithm == "gray_ocv" else 3), image.dtype)
    if not out.size:
        return out
    cv2 = opencv()
    row, column = for_each_axis("blue_position", blue_position, 2)
    code = getattr(cv2, f"COLOR_Bayer{_BAYER[row, column]}2{_ALGORITHMS[algorithm]}")
    for pixels, target in zip(image.reshape(-1, *image.shape[-2:]), out.reshape(-1, *out.shape[-3:]), strict=True):
        cv2.demosaicing(pixels, code, dst=target)
    return out
