"""Kernels of operators that scale images; see `dali_like.graph.language.batch_calls`.

Nearest neighbors are served, and bytes by filters without negative weights: their sums are exact. Others are products of
matrices, whose bits depend on the BLAS library.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from dali_like.common.kernel_library import address_of, kernels
from dali_like.errors import DaliLikeError
from dali_like.graph.language.batch_calls import BatchCall, Samples, Table
from dali_like.operators.geometry._resampling import FEW_ELEMENTS, Axis
from dali_like.operators.geometry.resizing import GivenSize, GivenWindow, regions_of, scaled_axes, window_axes
from dali_like.operators.machinery.axes import for_each_axis
from dali_like.types import INTERP_LINEAR, INTERP_NN, INTERP_TRIANGULAR

_BYTE = np.dtype(np.uint8)
#: Positions of nearest neighbors are computed in single precision, which has all integers below this.
_MOST_PIXELS = 1 << 23
_MOST_SIDE = (1 << 31) - 1
_TRIANGLES = (INTERP_LINEAR, INTERP_TRIANGULAR)
#: Channels that OpenCV scales.
_CHANNELS_OF_OPENCV = (1, 3, 4)


def resize(
    call: BatchCall,
    image: Samples,
    *,
    size: Any = None,
    resize_x: Any = 0.0,
    resize_y: Any = 0.0,
    resize_z: Any = 0.0,
    resize_shorter: Any = 0.0,
    resize_longer: Any = 0.0,
    mode: Any = "default",
    max_size: Any = None,
    subpixel_scale: bool = True,
    roi_start: Any = None,
    roi_end: Any = None,
    roi_relative: bool = False,
    interp_type: Any = INTERP_LINEAR,
    min_filter: Any = None,
    mag_filter: Any = None,
    antialias: bool = True,
    dtype: Any = None,
    save_attrs: bool = False,
) -> Any:
    """Serve ``fn.resize``."""
    if save_attrs or not _are_images(call, image):
        return None
    given = _each_of(call, size, resize_x, resize_y, resize_z, resize_shorter, resize_longer, roi_start, roi_end)
    extents = map(tuple, image.shapes[:, :2].tolist())
    try:
        axes = [
            scaled_axes(
                sides,
                GivenSize(all_sides, (z, y, x), shorter, longer, mode, max_size),
                regions_of(sides, start, end, relative=roi_relative),
                subpixel_scale,
            )
            for sides, (all_sides, x, y, z, shorter, longer, start, end) in zip(extents, given, strict=False)
        ]
    except DaliLikeError:
        return None
    return _scaled(call, image, *_tables(axes), (interp_type, min_filter, mag_filter), dtype, antialias=antialias)


def resize_crop_mirror(
    call: BatchCall,
    image: Samples,
    *,
    size: Any = None,
    resize_x: Any = 0.0,
    resize_y: Any = 0.0,
    resize_z: Any = 0.0,
    resize_shorter: Any = 0.0,
    resize_longer: Any = 0.0,
    mode: Any = "default",
    max_size: Any = None,
    subpixel_scale: bool = True,
    roi_start: Any = None,
    roi_end: Any = None,
    roi_relative: bool = False,
    crop: Any = None,
    crop_w: Any = 0.0,
    crop_h: Any = 0.0,
    crop_d: Any = 0.0,
    crop_pos_x: Any = 0.5,
    crop_pos_y: Any = 0.5,
    crop_pos_z: Any = 0.5,
    rounding: Any = "round",
    mirror: Any = 0,
    interp_type: Any = INTERP_LINEAR,
    min_filter: Any = None,
    mag_filter: Any = None,
    antialias: bool = True,
    dtype: Any = None,
) -> Any:
    """Serve ``fn.resize_crop_mirror``."""
    if not _are_images(call, image):
        return None
    sizes = _each_of(call, size, resize_x, resize_y, resize_z, resize_shorter, resize_longer)
    places = _each_of(call, crop_d, crop_h, crop_w, crop_pos_z, crop_pos_y, crop_pos_x, crop, mirror, roi_start, roi_end)
    extents = map(tuple, image.shapes[:, :2].tolist())
    try:
        axes = [
            window_axes(
                sides,
                GivenSize(all_sides, (z, y, x), shorter, longer, mode, max_size),
                GivenWindow(window, (d, h, w), (pos_z, pos_y, pos_x), rounding, flips, start, end),
                relative=roi_relative,
                subpixel_scale=subpixel_scale,
            )
            for (
                sides,
                (all_sides, x, y, z, shorter, longer),
                (d, h, w, pos_z, pos_y, pos_x, window, flips, start, end),
            ) in zip(extents, sizes, places, strict=False)
        ]
    except DaliLikeError:
        return None
    return _scaled(call, image, *_tables(axes), (interp_type, min_filter, mag_filter), dtype, antialias=antialias)


fast_resize_crop_mirror = functools.partial(resize_crop_mirror, antialias=False)


def random_resized_crop(
    call: BatchCall,
    image: Samples,
    *,
    size: Any,
    random_area: Any = (0.08, 1.0),
    random_aspect_ratio: Any = (3 / 4, 4 / 3),
    num_attempts: int = 10,
    interp_type: Any = INTERP_LINEAR,
    min_filter: Any = None,
    mag_filter: Any = None,
    antialias: bool = True,
    dtype: Any = None,
) -> Any:
    """Serve ``fn.random_resized_crop``."""
    if not kernels().draws_agree or not _are_images(call, image):
        return None
    windows = np.empty((call.count, 4), np.int64)
    limits = np.array([random_area[0], random_area[-1], random_aspect_ratio[0], random_aspect_ratio[-1]], np.float64)
    draws, sides = call.draws(), np.ascontiguousarray(image.shapes[:, :2])
    key, positions = address_of(draws.key), address_of(draws.positions)
    kernels().windows(
        call.count, key, draws.epoch, positions, address_of(sides), address_of(limits), num_attempts, address_of(windows)
    )
    regions = np.empty((call.count, 4))
    regions[:, 0::2], regions[:, 1::2] = windows[:, :2], windows[:, :2] + windows[:, 2:]
    sizes = np.empty((call.count, 2), np.int64)
    sizes[:] = [int(side) for side in for_each_axis("size", size, 2)]
    return _scaled(call, image, sizes, regions, (interp_type, min_filter, mag_filter), dtype, antialias=antialias)


def _are_images(call: BatchCall, image: Samples) -> bool:
    """Whether the samples are images with the same number of channels, and none is empty."""
    shapes = image.shapes
    return bool(
        call.layout == "HWC" and ((shapes > 0) & (shapes < _MOST_SIDE)).all() and (shapes[:, 2] == shapes[0, 2]).all()
    )


def _each_of(call: BatchCall, *values: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the values of arguments for each sample."""
    if any(isinstance(value, list) for value in values):
        return zip(*[value if isinstance(value, list) else [value] * call.count for value in values], strict=True)
    return itertools.repeat(values)


def _tables(axes: list[tuple[Axis, ...]]) -> tuple[Table, Any]:
    """Return the sizes of results, and starts and ends of regions."""
    return (
        np.array([(down[0], across[0]) for down, across in axes], np.int64),
        np.array([(down[1], down[2], across[1], across[2]) for down, across in axes], np.float64),
    )


def _scaled(
    call: BatchCall, image: Samples, sizes: Table, regions: Any, kinds: tuple[Any, Any, Any], dtype: Any, *, antialias: bool
) -> Any:
    """Scale images.

    Args:
        sizes: height and width of each result.
        regions: start and end of the rows, and of the columns, for each image.
        kinds: ``interp_type``, ``min_filter`` and ``mag_filter``.
    """
    filters = [kinds[0] if kind is None else kind for kind in kinds[1:]]
    if any(isinstance(kind, list) for kind in filters):
        return None
    if filters == [INTERP_NN, INTERP_NN]:
        return _nearest(call, image, sizes, regions) if dtype in (None, image.dtype) else None
    if image.dtype != _BYTE or dtype not in (None, _BYTE) or not all(kind in _TRIANGLES for kind in filters):
        return None
    jobs = np.empty((call.count, 7), np.int64)
    jobs[:, 2:5], jobs[:, 5:] = image.shapes, sizes
    first, places, compiled = address_of(jobs), address_of(regions), kernels()
    if _any_by_opencv(image, sizes, regions, antialias=antialias):
        return None
    if not compiled.sums_agree or not compiled.resample_serves(call.count, first, places, antialias):
        return None
    out = _place(call, image, sizes, _BYTE)
    jobs[:, 0], jobs[:, 1] = image.addresses, out.addresses
    failed = call.share(
        lambda begin, stop: compiled.resample_batch(stop - begin, first + 56 * begin, places + 32 * begin, antialias)
    )
    return None if failed else out.data


def _nearest(call: BatchCall, image: Samples, sizes: Table, regions: Any) -> Any:
    in_single = regions.astype(np.float32)
    if (image.shapes >= _MOST_PIXELS).any() or not (np.abs(in_single) < _MOST_PIXELS).all():
        return None
    out = _place(call, image, sizes, image.dtype)
    jobs = np.empty((call.count, 6), np.int64)
    jobs[:, 0], jobs[:, 1], jobs[:, 2:4], jobs[:, 4:] = image.addresses, out.addresses, image.shapes[:, :2], sizes
    first, places, compiled = address_of(jobs), address_of(in_single), kernels()
    pixel = image.shapes[0, 2].item() * image.dtype.itemsize
    failed = call.share(lambda begin, stop: compiled.nearest(stop - begin, pixel, first + 48 * begin, places + 16 * begin))
    return None if failed else out.data


def _place(call: BatchCall, image: Samples, sizes: Table, dtype: Any) -> Samples:
    shapes = np.empty((call.count, 3), np.int64)
    shapes[:, :2], shapes[:, 2] = sizes, image.shapes[0, 2]
    return call.place(shapes, dtype)


def _any_by_opencv(image: Samples, sizes: Table, regions: Any, *, antialias: bool) -> bool:
    """Whether OpenCV scales any of the images; see `_resampling._is_bilinear`."""
    channels = image.shapes[0, 2].item()
    if channels not in _CHANNELS_OF_OPENCV:
        return False
    sides = image.shapes[:, :2]
    starts, ends = np.minimum(regions[:, 0::2], regions[:, 1::2]), np.maximum(regions[:, 0::2], regions[:, 1::2])
    is_whole = ((starts == 0) & (ends == sides)).all(1)
    changes = (sizes != sides).any(1)
    grows = (sizes >= sides).all(1) if antialias else True
    is_few = np.maximum(image.sizes, np.multiply.reduce(sizes, axis=1) * channels) <= FEW_ELEMENTS
    return bool((is_whole & changes & grows & ~is_few).any())
