"""Kernels of operators that take pixels from other places; see `dali_like.graph.language.batch_calls`."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dali_like.common.kernel_library import address_of, kernels
from dali_like.errors import DaliLikeError
from dali_like.graph.language.batch_calls import BatchCall, Samples
from dali_like.operators.geometry._windows import round_half_up
from dali_like.operators.geometry.displacing import Origin, Waves, map_plane, map_to_opencv
from dali_like.types import INTERP_LINEAR, INTERP_NN

_BYTE, _FLOAT = np.dtype(np.uint8), np.dtype(np.float32)
#: Codes of kernels/src/displace.c.
_AS_SPHERE, _NOT_AT_ALL = 0, -1
_INTERPOLATIONS = {INTERP_NN: 0, INTERP_LINEAR: 1}
_BORDERS = {"constant": 0, "replicate": 1}
_ROUNDINGS = (0, 1)
#: Positions are computed in single precision, which has all integers below this.
_MOST_PIXELS = 1 << 23


def sphere(call: BatchCall, image: Samples, *, mask: Any = 1, interp_type: Any = INTERP_NN, fill_value: float = 0.0) -> Any:
    """Serve ``fn.sphere``."""
    return _displaced(call, image, mask, interp_type, fill_value, None)


def water(
    call: BatchCall,
    image: Samples,
    *,
    mask: Any = 1,
    ampl_x: float = 10.0,
    ampl_y: float = 10.0,
    freq_x: float = math.pi / 64,
    freq_y: float = math.pi / 64,
    phase_x: float = 0.0,
    phase_y: float = 0.0,
    interp_type: Any = INTERP_NN,
    fill_value: float = 0.0,
) -> Any:
    """Serve ``fn.water``."""
    waves = Waves(ampl_x, ampl_y, freq_x, freq_y, phase_x, phase_y)
    return _displaced(call, image, mask, interp_type, fill_value, waves)


def _displaced(call: BatchCall, image: Samples, mask: Any, interp_type: Any, fill_value: float, waves: Waves | None) -> Any:
    if image.dtype not in (_BYTE, _FLOAT) or not _are_images(image):
        return None
    channels = image.shapes[0, 2].item()
    out = call.place(image.shapes if image.shape is None else image.shape, image.dtype)
    jobs = np.empty((call.count, 6), np.int64)
    jobs[:, 0], jobs[:, 1], jobs[:, 2:4], jobs[:, 4] = image.addresses, out.addresses, image.shapes[:, :2], _AS_SPHERE
    if waves is not None:
        # Sines of NumPy, which has its own. Each is the same wherever it stands in an array.
        height, width = image.shapes[:, :2].max(0).tolist()
        along, down = waves.shifts(*(np.arange(extent, dtype=np.float32) for extent in (height, width)))
        jobs[:, 4], jobs[:, 5] = address_of(along), address_of(down)
    jobs[np.asarray(mask if isinstance(mask, list) else [mask] * call.count) == 0, 4] = _NOT_AT_ALL
    fill = np.full(channels, np.asarray(fill_value).astype(image.dtype))
    compiled, first, filling, item = kernels(), address_of(jobs), address_of(fill), image.dtype.itemsize
    kind = _INTERPOLATIONS[interp_type]
    failed = call.share(
        lambda begin, stop: compiled.displace(stop - begin, item, channels, kind, filling, first + 48 * begin)
    )
    return None if failed else out.data


def warp_perspective(
    call: BatchCall,
    image: Samples,
    matrix_input: Samples | None = None,
    *,
    matrix: Any = None,
    inverse_map: bool = True,
    size: Any = None,
    pixel_origin: Origin = "corner",
    border_mode: str = "constant",
    fill_value: Sequence[float] = (0.0,),
    interp_type: Any = INTERP_LINEAR,
) -> Any:
    """Serve ``fn.experimental.warp_perspective`` for images of bytes, where OpenCV's results are exact ones, rounded."""
    if matrix_input is not None or isinstance(size, list) or call.layout != "HWC" or image.dtype != _BYTE:
        return None
    if border_mode not in _BORDERS or interp_type not in _INTERPOLATIONS or not _are_images(image):
        return None
    channels = image.shapes[0, 2].item()
    rounding = rounding_of_opencv()
    if rounding is None or len(fill_value) not in (0, 1, channels):
        return None
    matrices = np.empty((call.count, 9))
    try:
        if isinstance(matrix, list):
            for place, each in zip(matrices, matrix, strict=True):
                place[:] = map_to_opencv(each, pixel_origin, inverse_map=inverse_map).ravel()
        else:
            matrices[:] = map_to_opencv(matrix, pixel_origin, inverse_map=inverse_map).ravel()
    except DaliLikeError:
        return None
    fill = np.clip(np.rint(np.resize(np.array(fill_value or (0.0,), np.float64), channels)), 0, 255).astype(np.uint8)
    shapes = image.shapes
    if size is not None:
        shapes = image.shapes.copy()
        shapes[:, :2] = [*map(round_half_up, size)]
    out = call.place(shapes if image.shape is None else tuple(shapes[0].tolist()), _BYTE)
    jobs = np.empty((call.count, 6), np.int64)
    jobs[:, 0], jobs[:, 1], jobs[:, 2:4], jobs[:, 4:] = image.addresses, out.addresses, image.shapes[:, :2], shapes[:, :2]
    compiled, first, filling, places = kernels(), address_of(jobs), address_of(fill), address_of(matrices)
    kind, border = _INTERPOLATIONS[interp_type], _BORDERS[border_mode]

    def work(begin: int, stop: int) -> Any:
        of_jobs, of_matrices = first + 48 * begin, places + 72 * begin
        return compiled.map_perspective(stop - begin, channels, kind, border, rounding, filling, of_jobs, of_matrices)

    return None if call.share(work) else out.data


@functools.cache
def rounding_of_opencv() -> int | None:
    """Return how the installed OpenCV rounds interpolated bytes; None if its results are not exact ones, rounded."""
    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, (40, 50, 1), np.uint8)
    matrix = np.array([1, 0.13, -2.3, 0.07, 1.21, 3.1, 0.001, -0.002, 1])
    fill = np.array([77], np.uint8)
    for rounding in _ROUNDINGS:
        made = np.empty_like(image)
        agree = True
        for border, code in _BORDERS.items():
            jobs = np.array([address_of(image), address_of(made), 40, 50, 40, 50], np.int64)
            kernels().map_perspective(1, 1, 1, code, rounding, address_of(fill), address_of(jobs), address_of(matrix))
            expected = map_plane(image, matrix.reshape(3, 3), (40, 50), INTERP_LINEAR, border, (77.0,))
            agree &= np.array_equal(made, expected.reshape(made.shape))
        if agree:
            return rounding
    return None


def _are_images(image: Samples) -> bool:
    """Whether the samples have the same number of channels, and extents of a usual size."""
    shapes = image.shapes
    return bool(
        shapes.shape[1] == 3 and ((shapes > 0) & (shapes < _MOST_PIXELS)).all() and (shapes[:, 2] == shapes[0, 2]).all()
    )
