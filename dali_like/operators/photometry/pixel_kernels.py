"""Kernels of operators that normalize and erase pixels; see `dali_like.graph.language.batch_calls`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dali_like.common.kernel_library import ELEMENTS, address_of, kernels
from dali_like.errors import DaliLikeError
from dali_like.graph.language.batch_calls import BatchCall, Samples
from dali_like.operators.geometry.window_kernels import crop_windows, each
from dali_like.operators.machinery._pixels import fill_numbers
from dali_like.operators.machinery.axes import axes_of
from dali_like.operators.photometry.normalizing import (
    COMPILED_PIXELS,
    channel_fill,
    channel_scaling,
    channel_table,
    ordered_axes,
)

_FLOAT = np.dtype(np.float32)
_BYTE = np.dtype(np.uint8)


def crop_mirror_normalize(
    call: BatchCall,
    image: Samples,
    *,
    crop: Any = None,
    crop_w: Any = 0.0,
    crop_h: Any = 0.0,
    crop_d: Any = 0.0,
    crop_pos_x: Any = 0.5,
    crop_pos_y: Any = 0.5,
    crop_pos_z: Any = 0.5,
    rounding: str = "round",
    out_of_bounds_policy: str = "error",
    fill_values: Sequence[float] = (0.0,),
    mirror: Any = 0,
    mean: Any = (0.0,),
    std: Any = (1.0,),
    scale: float = 1.0,
    shift: float = 0.0,
    pad_output: bool = False,
    output_layout: str = "CHW",
    dtype: np.dtype[Any] = _FLOAT,
) -> Any:
    """Serve ``fn.crop_mirror_normalize`` for images without frames: of some dtypes to FLOAT, of bytes to any."""
    is_served = image.dtype == _BYTE or (image.dtype in COMPILED_PIXELS and dtype == _FLOAT)
    if not is_served or isinstance(mean, list) or isinstance(std, list) or len(call.layout) != 3:
        return None
    order = ordered_axes(call.layout, output_layout)
    sizes, positions = (crop_w, crop_h, crop_d), (crop_pos_x, crop_pos_y, crop_pos_z)
    of_channels = order.of_image[2]
    channels = image.shapes[0, of_channels].item()
    windows = crop_windows(call.layout, image, crop, sizes, positions, rounding, out_of_bounds_policy)
    if windows is None or not channels or (windows.leave and out_of_bounds_policy == "error"):
        return None
    if image.shape is None and (image.shapes[:, of_channels] != channels).any():
        return None
    padded = 1 << (channels - 1).bit_length() if pad_output else channels
    scaling = channel_scaling(tuple(mean), tuple(std), scale, shift, channels)
    made = np.take(windows.sizes, order.of_image, 1)
    made[:, 2] = padded
    made = np.take(made, order.from_ordered, 1)
    out = call.place(made, dtype)
    fills_all, pattern = padded != channels, None
    if fills_all or (windows.leave and out_of_bounds_policy != "trim_to_shape"):
        values = fill_values if out_of_bounds_policy in ("pad", "constant") else (0.0,)
        fill = channel_fill(tuple(values), padded, dtype)
        is_last = order.of_result[2] == 2
        if fill.size > 1 and not is_last and (fill != fill[0]).any():
            return None
        pattern = fill if is_last else fill[:1]
    mirrored, jobs = each(mirror, call.count, np.int64), np.empty((call.count, 11), np.int64)
    axes = np.array([order.of_image, order.of_result], np.int64)
    of_image, (starts, sizes_) = address_of(axes), windows.addresses
    kernels().window_jobs(
        call.count,
        image.dtype.itemsize,
        dtype.itemsize,
        address_of(image.addresses),
        address_of(image.shapes),
        image.row,
        starts,
        sizes_,
        address_of(mirrored),
        of_image,
        address_of(made),
        of_image + axes.strides[0],
        address_of(out.addresses),
        None if pattern is None else address_of(pattern),
        0 if pattern is None else pattern.nbytes,
        fills_all,
        address_of(jobs),
    )
    first, row_bytes, compiled = address_of(jobs), jobs.strides[0], kernels()
    if dtype == _FLOAT:
        element, places = ELEMENTS[image.dtype], [*map(address_of, scaling)]
        failed = call.share(
            lambda begin, stop: compiled.normalize_pixels(stop - begin, element, first + row_bytes * begin, *places)
        )
        return None if failed else out.data
    tables = np.stack([channel_table(*pair, dtype) for pair in zip(*scaling, strict=True)])
    entries = address_of(tables)
    call.share(lambda begin, stop: compiled.look_up_pixels(stop - begin, dtype.itemsize, first + row_bytes * begin, entries))
    return out.data


def normalize(
    call: BatchCall,
    data: Samples,
    *,
    axes: Any = None,
    axis_names: str | None = None,
    mean: Any = None,
    stddev: Any = None,
    batch: bool = False,
    ddof: int = 0,
    epsilon: float = 0.0,
    scale: float = 1.0,
    shift: float = 0.0,
    dtype: np.dtype[Any] = _FLOAT,
) -> Any:
    """Serve ``fn.normalize`` with computed statistics: of a whole sample, or of each channel of the last axis."""
    ndim = data.shapes.shape[1]
    if mean is not None or stddev is not None or dtype != _FLOAT or data.dtype not in (_BYTE, _FLOAT):
        return None
    if not kernels().sums_agree or not ndim:
        return None
    try:
        reduced = {*axes_of(call.layout, axes, axis_names, ndim)}
    except DaliLikeError:
        return None
    sizes = data.sizes
    if reduced == {*range(ndim)}:
        channels = np.ones_like(sizes)
    elif reduced == {*range(ndim - 1)}:
        channels = data.shapes[:, -1]
    else:
        return None
    if not sizes.all():
        return None
    out = call.place(data.shapes, dtype)
    jobs = np.empty((call.count, 4), np.int64)
    jobs[:, 0], jobs[:, 1], jobs[:, 2], jobs[:, 3] = data.addresses, out.addresses, sizes // channels, channels
    given = np.zeros(1, _STATISTICS)
    given["ddof"], given["epsilon"], given["scale"], given["shift"] = ddof, epsilon, scale, shift
    first, row_bytes, element, compiled = address_of(jobs), jobs.strides[0], ELEMENTS[data.dtype], kernels()
    statistics = address_of(given)
    failed = call.share(lambda begin, stop: compiled.normalize(stop - begin, element, first + row_bytes * begin, statistics))
    return None if failed else out.data


#: The struct Statistics of kernels/src/sums.c.
_STATISTICS = np.dtype(
    [
        ("ddof", "f8"),
        ("epsilon", "f8"),
        ("scale", "f8"),
        ("shift", "f4"),
        ("has_mean", "i8"),
        ("has_factor", "i8"),
        ("mean", "f4"),
        ("factor", "f4"),
    ],
    align=True,
)


def grid_mask(
    call: BatchCall,
    image: Samples,
    *,
    angle: Any = 0.0,
    ratio: Any = 0.5,
    shift_x: Any = 0.0,
    shift_y: Any = 0.0,
    tile: Any = 100,
) -> Any:
    """Serve ``fn.grid_mask`` where a pixel lies in one piece."""
    layout, shapes = call.layout, image.shapes
    count = call.count
    turn = each(angle, count, np.float32)
    grids = np.stack(
        [
            np.cos(turn),
            np.sin(turn),
            each(shift_x, count, np.float32),
            each(shift_y, count, np.float32),
            np.float32(1) / each(tile, count, np.float32),
            each(ratio, count, np.float32),
        ],
        axis=1,
    )
    row = layout.index("H")
    if layout[row : row + 2] != "HW" or layout[row + 2 :] not in ("", "C"):
        return None
    out = call.place(shapes, image.dtype)
    jobs = np.empty((count, 6), np.int64)
    jobs[:, 0], jobs[:, 1] = image.addresses, out.addresses
    jobs[:, 2] = np.multiply.reduce(shapes[:, :row], axis=1)
    jobs[:, 3], jobs[:, 4] = shapes[:, row], shapes[:, row + 1]
    jobs[:, 5] = np.multiply.reduce(shapes[:, row + 2 :], axis=1) * image.dtype.itemsize
    first, second, compiled = address_of(jobs), address_of(grids), kernels()
    failed = call.share(
        lambda begin, stop: compiled.grid_mask(
            stop - begin, first + jobs.strides[0] * begin, second + grids.strides[0] * begin
        )
    )
    return None if failed else out.data


def erase(
    call: BatchCall,
    data: Samples,
    *,
    anchor: Any = (),
    shape: Any = (),
    fill_value: Any = (0.0,),
    axes: Any = None,
    axis_names: str | None = None,
    normalized: bool = False,
    normalized_anchor: bool = False,
    normalized_shape: bool = False,
    centered_anchor: bool = False,
) -> Any:
    """Serve ``fn.erase`` for one region of a constant place, filled with one value."""
    if any(isinstance(value, list) for value in (anchor, shape, fill_value)) or len(fill_value or (0.0,)) != 1:
        return None
    ndim = data.shapes.shape[1]
    numbers = [axis for axis in range(ndim) if call.layout[axis : axis + 1] != "C"]
    try:
        if axes is not None or axis_names is not None:
            numbers = axes_of(call.layout, axes, axis_names, ndim)
    except DaliLikeError:
        return None
    if len(shape) != len(numbers) or (anchor and len(anchor) != len(shape)):
        return None
    places, region = np.array(numbers, np.int64), np.array([anchor or (0.0,) * len(shape), shape], np.float32)
    pattern = fill_numbers(fill_value or (0.0,), data.dtype)
    out = call.place(data.shapes, data.dtype)
    compiled, row_bytes = kernels(), data.shapes.strides[0]
    from_, shapes, to, values = map(address_of, (data.addresses, data.shapes, out.addresses, pattern))
    begins = address_of(region)

    def work(begin: int, stop: int) -> None:
        compiled.erase(
            stop - begin,
            ndim,
            data.dtype.itemsize,
            from_ + 8 * begin,
            shapes + row_bytes * begin,
            data.row,
            len(numbers),
            address_of(places),
            begins,
            begins + region.strides[0],
            normalized or normalized_anchor,
            normalized or normalized_shape,
            centered_anchor,
            values,
            to + 8 * begin,
        )

    call.share(work)
    return out.data
