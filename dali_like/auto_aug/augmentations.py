"""Augmentations of AutoAugment, RandAugment and TrivialAugment for UINT8 images (HWC) and videos (FHWC).

They compute the same as those of ``nvidia.dali.auto_aug.augmentations`` 1.53. Change the range of magnitudes with, for
example, ``shear_x.augmentation(mag_range=(0, 0.5))``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dali_like import fn, types
from dali_like.auto_aug.core._augmentation import augmentation
from dali_like.errors import ArgumentError
from dali_like.graph.language.nodes import DataNode

CONVERT_CONDITIONALS = True

_BLUR = np.array([[1, 1, 1], [1, 5, 1], [1, 1, 1]], np.float32) / 13
_IDENTITY = np.array([[0, 0, 0], [0, 1, 0], [0, 0, 0]], np.float32)
#: Weights of red, green and blue in the brightness, as in Pillow.
_LUMA = np.array([0.299, 0.587, 0.114], np.float32)


# Parameters of magnitudes


def warp_x_param(magnitude: float) -> list[float]:
    """Return a vector along the x axis."""
    return [magnitude, 0]


def warp_y_param(magnitude: float) -> list[float]:
    """Return a vector along the y axis."""
    return [0, magnitude]


def shift_enhance_range(magnitude: float) -> float:
    """Return the factor of an enhancement: 1 changes nothing."""
    return 1 + magnitude


def sharpness_kernel(magnitude: float) -> NDArray[Any]:
    """Return the filter that sharpens (up to 1) or blurs (down to -1); 0 changes nothing."""
    return (1 + magnitude) * _IDENTITY - magnitude * _BLUR


def sharpness_kernel_shifted(magnitude: float) -> NDArray[Any]:
    """Return the filter that sharpens (up to 2) or blurs (down to 0); 1 changes nothing."""
    return sharpness_kernel(magnitude - 1)


def poster_mask_uint8(magnitude: float) -> NDArray[np.uint8]:
    """Return the mask that keeps so many of the highest bits, 1 at least."""
    kept = min(max(round(float(magnitude)), 1), 8)
    return np.array(256 - (1 << (8 - kept)), np.uint8)


def solarize_add_shift(shift: float) -> np.uint8:
    """Return the number that is added to dark pixels.

    Raises:
        ArgumentError: it is 128 or more.
    """
    if shift >= 128:
        raise ArgumentError(f"solarize_add: the magnitude {shift} must be less than 128; pass a smaller mag_range")
    return np.uint8(shift)


# Geometry


def _warp(data: DataNode, matrix: DataNode, fill_value: float | None, interp_type: Any) -> Any:
    return fn.warp_affine(data, matrix=matrix, fill_value=fill_value, interp_type=interp_type, inverse_map=False)


def _shear(data: DataNode, shear: Any, fill_value: float | None = 128, interp_type: Any = None) -> Any:
    return _warp(data, fn.transforms.shear(shear=shear), fill_value, interp_type)


def _translate(data: DataNode, offset: Any, fill_value: float | None = 128, interp_type: Any = None) -> Any:
    return _warp(data, fn.transforms.translation(offset=offset), fill_value, interp_type)


@augmentation(mag_range=(0, 0.3), randomly_negate=True, mag_to_param=warp_x_param)
def shear_x(data: DataNode, shear: Any, fill_value: float | None = 128, interp_type: Any = None) -> Any:
    """Shear along the x axis."""
    return _shear(data, shear, fill_value, interp_type)


@augmentation(mag_range=(0, 0.3), randomly_negate=True, mag_to_param=warp_y_param)
def shear_y(data: DataNode, shear: Any, fill_value: float | None = 128, interp_type: Any = None) -> Any:
    """Shear along the y axis."""
    return _shear(data, shear, fill_value, interp_type)


@augmentation(mag_range=(0.0, 1.0), randomly_negate=True, mag_to_param=warp_x_param)
def translate_x(data: DataNode, rel_offset: Any, shape: Any, fill_value: float | None = 128, interp_type: Any = None) -> Any:
    """Shift along the x axis, by a fraction of the width. `shape` begins with height and width."""
    return _translate(data, rel_offset * shape[1], fill_value, interp_type)


@augmentation(mag_range=(0, 250), randomly_negate=True, mag_to_param=warp_x_param, name="translate_x")
def translate_x_no_shape(data: DataNode, offset: Any, fill_value: float | None = 128, interp_type: Any = None) -> Any:
    """Shift along the x axis, in pixels."""
    return _translate(data, offset, fill_value, interp_type)


@augmentation(mag_range=(0.0, 1.0), randomly_negate=True, mag_to_param=warp_y_param)
def translate_y(data: DataNode, rel_offset: Any, shape: Any, fill_value: float | None = 128, interp_type: Any = None) -> Any:
    """Shift along the y axis, by a fraction of the height. `shape` begins with height and width."""
    return _translate(data, rel_offset * shape[0], fill_value, interp_type)


@augmentation(mag_range=(0, 250), randomly_negate=True, mag_to_param=warp_y_param, name="translate_y")
def translate_y_no_shape(data: DataNode, offset: Any, fill_value: float | None = 128, interp_type: Any = None) -> Any:
    """Shift along the y axis, in pixels."""
    return _translate(data, offset, fill_value, interp_type)


@augmentation(mag_range=(0, 30), randomly_negate=True)
def rotate(
    data: DataNode,
    angle: Any,
    fill_value: float | None = 128,
    interp_type: Any = None,
    rotate_keep_size: bool = True,
) -> Any:
    """Rotate by an angle in degrees."""
    return fn.rotate(data, angle=angle, fill_value=fill_value, interp_type=interp_type, keep_size=rotate_keep_size)


# Colors


@augmentation(mag_range=(0, 0.9), randomly_negate=True, mag_to_param=shift_enhance_range)
def brightness(data: DataNode, parameter: Any) -> Any:
    """Multiply by a factor."""
    return fn.brightness(data, brightness=parameter)


@augmentation(mag_range=(0, 0.9), randomly_negate=True, mag_to_param=shift_enhance_range)
def contrast(data: DataNode, parameter: Any) -> Any:
    """Multiply the difference to the average brightness of the image by a factor."""
    mean = fn.reductions.mean(data, axis_names="HW", keep_dims=True)
    center = fn.reductions.sum(mean * types.Constant(_LUMA), axis_names="C", keep_dims=True)
    return fn.cast_like(center + (data - center) * parameter, data)


@augmentation(mag_range=(0, 0.9), randomly_negate=True, mag_to_param=shift_enhance_range)
def color(data: DataNode, parameter: Any) -> Any:
    """Multiply the saturation by a factor."""
    return fn.saturation(data, saturation=parameter)


@augmentation(mag_range=(0, 0.9), randomly_negate=True, mag_to_param=sharpness_kernel, param_device="auto")
def sharpness(data: DataNode, kernel: Any) -> Any:
    """Sharpen or blur."""
    return fn.experimental.filter(data, kernel)


@augmentation(mag_range=(0, 4), mag_to_param=poster_mask_uint8, param_device="auto")
def posterize(data: DataNode, mask: Any) -> Any:
    """Keep so many of the highest bits."""
    return data & mask


@augmentation(mag_range=(256, 0), param_device="auto")
def solarize(data: DataNode, threshold: Any) -> Any:
    """Invert pixels that are not below a threshold."""
    inverted = types.Constant(255, dtype=types.UINT8) - data
    is_dark = data < threshold
    return is_dark * data + (is_dark ^ True) * inverted


@augmentation(mag_range=(0, 110), param_device="auto", mag_to_param=solarize_add_shift)
def solarize_add(data: DataNode, shift: Any) -> Any:
    """Add a number to pixels below 128."""
    is_dark = data < types.Constant(128, dtype=types.UINT8)
    return is_dark * (data + shift) + (is_dark ^ True) * data


@augmentation
def invert(data: DataNode, _: None) -> Any:
    """Invert."""
    return types.Constant(255, dtype=types.UINT8) - data


@augmentation
def equalize(data: DataNode, _: None) -> Any:
    """Equalize the histogram of each channel, as OpenCV does."""
    return fn.experimental.equalize(data)


@augmentation
def auto_contrast(data: DataNode, _: None) -> Any:
    """Stretch the range of each channel to 0 to 255."""
    low = fn.reductions.min(data, axis_names="HW", keep_dims=True)
    difference = fn.reductions.max(data, axis_names="HW", keep_dims=True) - low
    varies = difference > 0
    divisor = difference * varies + types.Constant(255, dtype=types.UINT8) * (varies ^ True)
    return fn.cast_like((data - low * varies) * (255 / divisor), data)


@augmentation
def identity(data: DataNode, _: None) -> Any:
    """Return the samples as they are."""
    return data
