"""Kernels of operators that cut, mirror, pad and paste; see `dali_like.graph.language.batch_calls`.

Windows of all samples are computed at once, as tables; compiled loops copy the elements.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dali_like.common.kernel_library import address_of, kernels
from dali_like.errors import DaliLikeError
from dali_like.graph.language.batch_calls import BatchCall, Samples, Table
from dali_like.graph.language.operator_interface import Array
from dali_like.operators.geometry._windows import fill
from dali_like.operators.machinery.axes import axes_of, for_each_axis


def pattern_of(values: Sequence[float], out: Samples, layout: str) -> Array | None:
    """Return fill values as elements, one or one for each channel; None if that needs another order of the axes."""
    channels = 1
    if len(values) != 1:
        if not layout.endswith("C") or (out.shapes[:, -1] != len(values)).any():
            return None
        channels = len(values)
    pattern = np.empty(channels, out.dtype)
    fill(pattern, values, "C")
    return pattern


def each(value: Any, count: int, dtype: Any = np.float64) -> Array:
    """Return an argument as one number for each sample, or one for all."""
    return np.array(value, dtype) if isinstance(value, list) else np.full(count, value, dtype)


class Windows:
    """Windows of samples.

    Attributes:
        starts, sizes: shape (samples, dimensions).
        leave: whether a window leaves its sample.
        are_wrong: whether a window ends before it begins.
    """

    __slots__ = ("are_wrong", "leave", "sizes", "starts")

    def __init__(self, count: int, ndim: int) -> None:
        block = np.empty((2, count, ndim), np.int64)
        self.starts, self.sizes = block
        self.leave = self.are_wrong = False

    @property
    def addresses(self) -> tuple[int, int]:
        """The addresses of both tables, which are one block."""
        begin = address_of(self.starts)
        return begin, begin + self.starts.nbytes

    def note(self, status: int) -> None:
        """Take over the result of a function of kernels/src/windows.c."""
        self.leave, self.are_wrong = bool(status & 1), bool(status & 2)


def copy_windows(
    call: BatchCall,
    data: Samples,
    starts: int | None,
    sizes: Table,
    out: Samples,
    pattern: Array | None = None,
    mirrored: Table | None = None,
) -> None:
    """Copy a window of each sample.

    Args:
        starts: address of a table; None: windows begin with the samples.
        sizes: of the windows.
        out: where the windows go.
        pattern: fills the parts of a window outside of its sample.
        mirrored: for each sample, bits that are axes to mirror.
    """
    ndim, item, row = sizes.shape[1], data.dtype.itemsize, data.row
    row_bytes, size_bytes = data.shapes.strides[0], sizes.strides[0]
    from_, shapes, wanted, to = map(address_of, (data.addresses, data.shapes, sizes, out.addresses))
    flags = None if mirrored is None else address_of(mirrored)
    filling = (None, 0) if pattern is None else (address_of(pattern), pattern.nbytes)
    compiled = kernels()

    def work(begin: int, stop: int) -> None:
        compiled.cut(
            stop - begin,
            ndim,
            item,
            from_ + 8 * begin,
            shapes + row_bytes * begin,
            row,
            None if starts is None else starts + 8 * ndim * begin,
            wanted + size_bytes * begin,
            size_bytes // 8,
            None if flags is None else flags + 8 * begin,
            to + 8 * begin,
            *filling,
        )

    call.share(work)


def cut(
    call: BatchCall, data: Samples, windows: Windows, policy: str, fill_values: Sequence[float], dtype: Any = None
) -> Any:
    """Cut a window out of each sample; as `dali_like.operators.geometry._windows.cut`."""
    if windows.are_wrong or (dtype is not None and dtype != data.dtype):
        return None
    if windows.leave and policy not in ("pad", "constant", "trim_to_shape"):
        return None
    out = call.place(windows.sizes, data.dtype)
    pattern = None
    if windows.leave and policy != "trim_to_shape" and (pattern := pattern_of(fill_values, out, call.layout)) is None:
        return None
    copy_windows(call, data, windows.addresses[0], windows.sizes, out, pattern)
    return out.data


def crop_windows(
    layout: str,
    data: Samples,
    crop: Any,
    sizes: Sequence[Any],
    positions: Sequence[Any],
    rounding: str,
    policy: str,
) -> Windows | None:
    """Return windows, as `dali_like.operators.geometry.geometry.crop_window` does; None if samples have sizes of their own.

    Args:
        sizes, positions: for x, y and z. Positions may be lists, with one for each sample.
        policy: "trim_to_shape" cuts windows at the sides of the samples.
    """
    if isinstance(crop, list) or any(isinstance(size, list) for size in sizes):
        return None
    extents, names = _extents_of(layout, crop, tuple(sizes))
    places = dict(zip("WHD", positions, strict=True))
    wanted = [places.get(name, 0.0) for name in names]
    count, ndim = data.shapes.shape
    if any(isinstance(place, list) for place in wanted):
        columns = [place if isinstance(place, list) else [place] * count for place in wanted]
        table, step = np.array(columns, np.float64).T.copy(), ndim
    else:
        table, step = np.array(wanted, np.float64), 0
    windows = Windows(count, ndim)
    status = kernels().crop_windows(
        count,
        ndim,
        address_of(data.shapes),
        data.row,
        address_of(extents),
        address_of(table),
        step,
        rounding != "round",
        policy == "trim_to_shape",
        *windows.addresses,
    )
    windows.note(status)
    return windows


@functools.lru_cache(64)
def _extents_of(layout: str, crop: Any, sizes: tuple[float, ...]) -> tuple[Array, Sequence[str]]:
    """Return the extent of a window in each axis, 0 for all of it, and the letters of the axes with a position."""
    by_letter = dict(zip("WHD", sizes, strict=True)) if crop is None else dict(zip("DHW"[-len(crop) :], crop, strict=True))
    depth = "D" if "D" in layout else "F"
    names = ["D" if letter == depth else letter if letter in "HW" else "" for letter in layout]
    return np.array([int(by_letter.get(name, 0)) for name in names], np.int64), names


def crop(
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
    dtype: Any = None,
) -> Any:
    """Serve ``fn.crop``, unless sizes differ from sample to sample."""
    sizes, positions = (crop_w, crop_h, crop_d), (crop_pos_x, crop_pos_y, crop_pos_z)
    windows = crop_windows(call.layout, image, crop, sizes, positions, rounding, out_of_bounds_policy)
    return None if windows is None else cut(call, image, windows, out_of_bounds_policy, fill_values, dtype)


#: Codes of kernels/src/windows.c for the ends of a window.
_NUMBER, _SHARE, _EXTENT, _SHARE_OF_EXTENT = range(1, 5)
_BEGINS = {"start": _NUMBER, "rel_start": _SHARE}
_ENDS = {"end": _NUMBER, "rel_end": _SHARE, "shape": _EXTENT, "rel_shape": _SHARE_OF_EXTENT}


def slice(
    call: BatchCall,
    data: Samples,
    anchor: Samples | None = None,
    shape_input: Samples | None = None,
    /,
    *,
    axes: Any = None,
    axis_names: str | None = None,
    start: Any = None,
    rel_start: Any = None,
    end: Any = None,
    rel_end: Any = None,
    shape: Any = None,
    rel_shape: Any = None,
    normalized_anchor: bool = True,
    normalized_shape: bool = True,
    out_of_bounds_policy: str = "error",
    fill_values: Sequence[float] = (0.0,),
    dtype: Any = None,
) -> Any:
    """Serve ``fn.slice`` with constant arguments, or with the inputs `anchor` and `shape_input`."""
    named = {"start": start, "rel_start": rel_start, "end": end, "rel_end": rel_end, "shape": shape, "rel_shape": rel_shape}
    if any(isinstance(value, list) for value in (axes, *named.values())):
        return None
    if axes is None and axis_names is None:
        axes, axis_names = (None, "WH") if call.layout else ((1, 0), None)
    try:
        numbers = axes_of(call.layout, axes, axis_names, data.shapes.shape[1])
        given: dict[str, Any] = {
            name: np.array(for_each_axis(name, values, len(numbers)), np.float64) for name, values in named.items() if values
        }
    except DaliLikeError:
        return None
    if anchor is not None and shape_input is not None:
        inputs = [_numbers_of(each, len(numbers)) for each in (anchor, shape_input)]
        if anchor.dtype != shape_input.dtype or inputs[0] is None or inputs[1] is None:
            return None
        relative = [flag and anchor.dtype.kind == "f" for flag in (normalized_anchor, normalized_shape)]
        given = {"rel_start" if relative[0] else "start": inputs[0], "rel_shape" if relative[1] else "shape": inputs[1]}
    windows = _sliced(data, numbers, given, trims=out_of_bounds_policy == "trim_to_shape")
    return cut(call, data, windows, out_of_bounds_policy, fill_values, dtype)


def _sliced(data: Samples, axes: Sequence[int], given: Mapping[str, Array], *, trims: bool) -> Windows:
    """Return windows of some axes.

    Args:
        given: the arguments of `slice` for their ends: a number for each axis, or one for each sample and axis.
    """
    count, ndim = data.shapes.shape
    bounds: list[int | None] = []
    for kinds in (_BEGINS, _ENDS):
        name = next((name for name in kinds if name in given), None)
        table = None if name is None else given[name]
        step = 0 if table is None or table.ndim == 1 else len(axes)
        bounds += [0 if name is None else kinds[name], None if table is None else address_of(table), step]
    windows, numbers = Windows(count, ndim), np.array(axes, np.int64)
    status = kernels().slice_windows(
        count,
        ndim,
        address_of(data.shapes),
        data.row,
        len(axes),
        address_of(numbers),
        *bounds,
        trims,
        *windows.addresses,
    )
    windows.note(status)
    return windows


def _numbers_of(given: Samples, count: int) -> Array | None:
    """Return the elements of small samples, a row each; None if they have another number of elements."""
    if given.shape is None or math.prod(given.shape) != count or not isinstance(given.data, np.ndarray):
        return None
    numbers: Array = np.ascontiguousarray(given.data.reshape(-1, count), np.float64)
    return numbers


def flip(call: BatchCall, image: Samples, *, horizontal: Any = 1, vertical: Any = 0, depthwise: Any = 0) -> Any:
    """Serve ``fn.flip``."""
    wanted = {"W": horizontal, "H": vertical, "D": depthwise}
    if image.shape is not None and not any(isinstance(value, list) for value in wanted.values()):
        return None  # OpenCV mirrors stacks
    out = call.place(image.shapes, image.dtype)
    mirrored = np.zeros(call.count, np.int64)
    for axis, letter in enumerate(call.layout):
        value = wanted.get(letter)
        if isinstance(value, list):
            mirrored += (np.array(value) != 0).astype(np.int64) << axis
        elif value:
            mirrored += 1 << axis
    copy_windows(call, image, None, image.shapes, out, mirrored=mirrored)
    return out.data


def pad(
    call: BatchCall,
    data: Samples,
    *,
    axes: Any = None,
    axis_names: str | None = None,
    shape: Any = None,
    align: Any = None,
    fill_value: Any = 0.0,
) -> Any:
    """Serve ``fn.pad`` with constant arguments."""
    if any(isinstance(value, list) for value in (axes, shape, align, fill_value)):
        return None
    count, ndim = data.shapes.shape
    try:
        numbers = axes_of(call.layout, axes, axis_names, ndim)
        sides = for_each_axis("shape", shape or (0,), len(numbers))
        steps = for_each_axis("align", align or (1,), len(numbers))
    except DaliLikeError:
        return None
    wanted, sizes = np.array([numbers, sides, steps], np.int64), np.empty((count, ndim), np.int64)
    begin, row_bytes = address_of(wanted), 8 * len(numbers)
    kernels().padded(
        count,
        ndim,
        address_of(data.shapes),
        data.row,
        len(numbers),
        begin,
        begin + row_bytes,
        begin + 2 * row_bytes,
        address_of(sizes),
    )
    out = call.place(sizes, data.dtype)
    copy_windows(call, data, None, sizes, out, pattern_of((fill_value,), out, ""))
    return out.data


def paste(
    call: BatchCall,
    image: Samples,
    *,
    ratio: Any,
    fill_value: Sequence[int],
    paste_x: Any = 0.5,
    paste_y: Any = 0.5,
    min_canvas_size: Any = 0.0,
    n_channels: int = 3,
) -> Any:
    """Serve ``fn.paste``."""
    count = call.count
    numbers = np.empty((4, count))
    for row, value in zip(numbers, (ratio, min_canvas_size, paste_x, paste_y), strict=True):
        row[:] = value
    begin, row_bytes = address_of(numbers), 8 * count
    windows = Windows(count, 3)
    status = kernels().paste_windows(
        count,
        address_of(image.shapes),
        image.row,
        *[begin + i * row_bytes for i in range(4)],
        *windows.addresses,
    )
    if status:
        return None
    out = call.place(windows.sizes, image.dtype)
    pattern = pattern_of(fill_value, out, "HWC")
    if pattern is None:
        return None
    copy_windows(call, image, windows.addresses[0], windows.sizes, out, pattern)
    return out.data
