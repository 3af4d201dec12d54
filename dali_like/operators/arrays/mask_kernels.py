"""Kernels of operators on masks and sequences; see `dali_like.graph.language.batch_calls`."""

from __future__ import annotations

from typing import Any

import numpy as np

from dali_like.common.kernel_library import ELEMENTS, address_of, kernels
from dali_like.errors import DaliLikeError
from dali_like.graph.language.batch_calls import BatchCall, Samples
from dali_like.operators.machinery.axes import for_each_axis

_BYTE, _INT32 = np.dtype(np.uint8), np.dtype(np.int32)
#: As in kernels/src/masks.c.
_NONE, _ABOVE, _EQUAL = range(3)
#: Random integers are below 2**32 - 1.
_MOST_PIXELS = (1 << 32) - 2
_MOST_AXES = 16


def random_mask_pixel(
    call: BatchCall, mask: Samples, *, foreground: Any = 0, threshold: Any = 0.0, value: Any = None
) -> Any:
    """Serve ``fn.segmentation.random_mask_pixel`` for UINT8 and INT32."""
    if mask.dtype not in (_BYTE, _INT32) or not kernels().draws_agree:
        return None
    count, ndim = mask.shapes.shape
    sizes = mask.sizes
    if not ((sizes > 0) & (sizes <= _MOST_PIXELS)).all():
        return None
    kinds, values, thresholds = np.empty(count, np.int64), np.zeros(count, np.int64), np.zeros(count)
    kinds[:] = np.where(np.asarray(foreground) != 0, _ABOVE if value is None else _EQUAL, _NONE)
    if value is None:
        thresholds[:] = threshold
    else:
        values[:] = value
    out, draws, to = call.place((ndim,), np.int64), call.draws(), np.empty((count, ndim), np.int64)
    from_, shapes, row_bytes = address_of(mask.addresses), address_of(mask.shapes), mask.shapes.strides[0]
    tables = [*map(address_of, (kinds, thresholds, values))]
    key, positions, places, compiled = address_of(draws.key), address_of(draws.positions), address_of(to), kernels()

    def work(begin: int, stop: int) -> None:
        compiled.mask_pixels(
            stop - begin,
            ndim,
            ELEMENTS[mask.dtype],
            from_ + 8 * begin,
            shapes + row_bytes * begin,
            mask.row,
            *[table + 8 * begin for table in tables],
            key,
            draws.epoch,
            positions + 8 * begin,
            places + 8 * ndim * begin,
        )

    call.share(work)
    out.data.reshape(count, ndim)[:] = to
    return out.data


def random_object_bbox(
    call: BatchCall,
    mask: Samples,
    *,
    background: Any = None,
    class_weights: Any = None,
    classes: Any = None,
    foreground_prob: Any = 1.0,
    format: str = "anchor_shape",
    ignore_class: bool = False,
    k_largest: int | None = None,
    output_class: bool = False,
    threshold: Any = None,
) -> Any:
    """Serve ``fn.segmentation.random_object_bbox`` with constant arguments, for classes of the same weight."""
    count, ndim = mask.shapes.shape
    given = (background, classes, foreground_prob, threshold)
    dtype = _BYTE if mask.dtype == np.bool_ else mask.dtype
    if any(isinstance(value, list) for value in given) or class_weights is not None or not 0 < ndim <= _MOST_AXES:
        return None
    if dtype.kind not in "iu" or dtype == np.uint64 or not kernels().draws_agree:
        return None
    if background is None:
        background = min(classes) - 1 if classes and 0 in classes else 0
    if classes and background in classes:
        return None
    try:
        sides = np.array(for_each_axis("threshold", threshold or (0,), ndim), np.int64)
    except DaliLikeError:
        return None
    draws, found, labels = call.draws(), np.empty((count, 2 * ndim + 1), np.int64), np.array(classes or (0,), np.int64)
    addresses, shapes, row_bytes = address_of(mask.addresses), address_of(mask.shapes), mask.shapes.strides[0]
    key, positions, to, row = address_of(draws.key), address_of(draws.positions), address_of(found), found.strides[0]
    compiled, least, names = kernels(), address_of(sides), address_of(labels)

    def work(begin: int, stop: int) -> Any:
        return compiled.draw_objects(
            stop - begin,
            ELEMENTS[dtype],
            dtype.itemsize,
            ndim,
            addresses + 8 * begin,
            shapes + row_bytes * begin,
            mask.row,
            key,
            draws.epoch,
            positions + 8 * begin,
            foreground_prob,
            background,
            len(classes or ()),
            names,
            least,
            k_largest or 0,
            ignore_class,
            to + row * begin,
        )

    if call.share(work):
        return None
    start, end = found[:, :ndim], found[:, ndim:-1]
    results = [found[:, :-1]] if format == "box" else [start, end - start if format == "anchor_shape" else end]
    made = []
    for result in (*results, *([found[:, -1]] if output_class else [])):
        out = call.place(result.shape[1:], np.int32)
        out.data.reshape(count, -1)[:] = result
        made.append(out.data)
    return made[0] if len(made) == 1 else tuple(made)


def select_masks(
    call: BatchCall, mask_ids: Samples, polygons: Samples, vertices: Samples, *, reindex_masks: bool = False
) -> Any:
    """Serve ``fn.segmentation.select_masks`` for INT32."""
    if mask_ids.dtype != _INT32 or polygons.dtype != _INT32:
        return None
    if polygons.shapes.shape[1] != 2 or vertices.shapes.shape[1] != 2 or (polygons.shapes[:, 1] != 3).any():
        return None
    extent = vertices.shapes[0, 1].item()
    if (vertices.shapes[:, 1] != extent).any():
        return None
    count, compiled = call.count, kernels()
    jobs = np.empty((count, 5), np.int64)
    jobs[:, 0], jobs[:, 1] = mask_ids.addresses, mask_ids.sizes
    jobs[:, 2], jobs[:, 3], jobs[:, 4] = polygons.addresses, polygons.shapes[:, 0], vertices.shapes[:, 0]
    sizes, order = np.empty((count, 2), np.int64), np.empty(max(int(jobs[:, 3].sum()), 1), np.int64)
    if compiled.select_masks(count, address_of(jobs), address_of(sizes), address_of(order)):
        return None
    shapes = np.empty((2, count, 2), np.int64)
    shapes[0, :, 0], shapes[1, :, 0] = sizes.T
    shapes[0, :, 1], shapes[1, :, 1] = 3, extent
    chosen, corners = call.place(shapes[0], _INT32), call.place(shapes[1], vertices.dtype)
    moves = np.empty((count, 4), np.int64)
    moves[:, 0], moves[:, 1] = polygons.addresses, vertices.addresses
    moves[:, 2], moves[:, 3] = chosen.addresses, corners.addresses
    vertex = extent * vertices.dtype.itemsize
    compiled.take_masks(count, address_of(moves), address_of(sizes), address_of(order), vertex, reindex_masks)
    return chosen.data, corners.data


def sequence_rearrange(call: BatchCall, input: Samples, *, new_order: Any) -> Any:
    """Serve ``fn.sequence_rearrange`` with one order for all samples."""
    shapes = input.shapes
    if isinstance(new_order, list) or shapes.shape[1] < 2 or (call.layout and not call.layout.startswith("F")):
        return None
    if min(new_order) < 0 or (shapes[:, 0] <= max(new_order)).any():
        return None
    extents = shapes.copy()
    extents[:, 0] = len(new_order)
    out = call.place(extents, input.dtype)
    jobs, numbers, compiled = np.empty((call.count, 3), np.int64), np.array(new_order, np.int64), kernels()
    jobs[:, 0], jobs[:, 1] = input.addresses, out.addresses
    jobs[:, 2] = np.multiply.reduce(shapes[:, 1:], axis=1) * input.dtype.itemsize
    first, places, size = address_of(jobs), address_of(numbers), len(new_order)
    call.share(lambda begin, stop: compiled.take_rows(stop - begin, first + 24 * begin, places, size))
    return out.data
