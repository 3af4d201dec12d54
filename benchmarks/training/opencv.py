"""The work of the example pipelines in OpenCV and NumPy, for a torch dataset and as reference for the pixels.

The code is optimized: windows are views, bytes go through lookup tables, and colors are split once. Random numbers are those
of dali_like's operators for the same seed and sample, so the pixels can be equal. Drawing them costs the same in both.
"""

from __future__ import annotations

import math
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from dali_like.graph.language.operator_random import generator_at, key_of
from dali_like.operators.geometry._windows import random_window
from examples import resnet_pipeline, ssd_pipeline

__all__ = ["SEED", "crop_and_scale", "detect", "normalize", "recognize"]

SEED = 11
_WINDOW, _MIRROR = key_of(SEED, 0), key_of(SEED, 1)
_HUE, _SATURATION, _BRIGHTNESS, _CONTRAST = (key_of(SEED, i) for i in range(4))
#: Result of each byte value, for each channel.
_NORMALISED = (
    (np.arange(256, dtype=np.float32) - np.array(resnet_pipeline.MEAN, np.float32)[:, np.newaxis])
    * (np.float32(1) / np.array(resnet_pipeline.STD, np.float32))[:, np.newaxis]
)  # fmt: skip
_TO_YIQ = np.array([[0.299, 0.587, 0.114], [0.596, -0.274, -0.321], [0.211, -0.523, 0.311]])


def recognize(index: int, file: NDArray[np.uint8], label: NDArray[np.int32]) -> tuple[NDArray[Any], ...]:
    """Compute a sample of `examples.resnet_pipeline`, without antialiasing."""
    return normalize(*crop_and_scale(index, file)), label


def crop_and_scale(index: int, file: NDArray[np.uint8]) -> tuple[NDArray[Any], bool]:
    """Return a random part of the image as BGR, scaled, and whether to mirror it."""
    image = _decode(file)
    height, width = image.shape[:2]
    window = random_window(generator_at(_WINDOW, 0, index), height, width, (0.08, 1.0), (3 / 4, 4 / 3), 10)
    image = image[window.top : window.top + window.height, window.left : window.left + window.width]
    side = resnet_pipeline.SIDE
    image = cv2.resize(image, (side, side), interpolation=cv2.INTER_LINEAR)
    return image, bool(generator_at(_MIRROR, 0, index).random() < 0.5)


def detect(
    index: int,
    file: NDArray[np.uint8],
    boxes: NDArray[np.float32],
    labels: NDArray[np.int32],
    anchor: NDArray[np.float32],
    shape: NDArray[np.float32],
    mirrored: NDArray[np.int32],
) -> tuple[NDArray[Any], ...]:
    """Compute a sample of `examples.ssd_pipeline`, without antialiasing."""
    image = _decode(file)
    extents = np.array(image.shape[1::-1])
    (left, top), (right, bottom) = (np.floor(edge * extents + 0.5).astype(int) for edge in (anchor, anchor + shape))
    side = ssd_pipeline.SIDE
    image = cv2.resize(image[top:bottom, left:right], (side, side), interpolation=cv2.INTER_LINEAR)
    hue, saturation = _uniform(_HUE, index, -18, 18), _uniform(_SATURATION, index, 0.5, 1.5)
    image = cv2.transform(image, _colors(hue, saturation)[::-1, ::-1])
    brightness, contrast = _uniform(_BRIGHTNESS, index, 0.875, 1.125), _uniform(_CONTRAST, index, 0.5, 1.5)
    table = np.arange(256, dtype=np.float32) * (brightness * contrast) + brightness * (1 - contrast) * 128
    image = cv2.LUT(image, np.rint(table).clip(0, 255).astype(np.uint8))
    return normalize(image, bool(mirrored)), boxes, labels


def _decode(file: NDArray[np.uint8]) -> NDArray[Any]:
    image = cv2.imdecode(file, cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION)
    assert image is not None
    return image


def normalize(bgr: NDArray[Any], mirrored: bool) -> NDArray[np.float32]:
    """Return normalized planes of R, G and B."""
    if mirrored:
        bgr = cv2.flip(bgr, 1)
    out = np.empty((3, *bgr.shape[:2]), np.float32)
    for plane, table, target in zip(cv2.split(bgr)[::-1], _NORMALISED, out, strict=True):
        cv2.LUT(plane, table, target)
    return out


def _colors(hue: float, saturation: float) -> NDArray[np.float64]:
    """Return the matrix that rotates and scales the colors of R, G and B."""
    angle = math.radians(hue)
    turned = np.eye(3)
    turned[1:, 1:] = [[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]]
    matrix: NDArray[np.float64] = np.linalg.inv(_TO_YIQ) @ turned @ np.diag([1, saturation, saturation]) @ _TO_YIQ
    return matrix


def _uniform(key: tuple[int, int], index: int, low: float, high: float) -> float:
    return float(generator_at(key, 0, index).uniform(low, high))
