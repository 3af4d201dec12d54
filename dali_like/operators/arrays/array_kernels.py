"""Kernels of operators on arrays; see `dali_like.graph.language.batch_calls`."""

from __future__ import annotations

import builtins
import math
from typing import Any

import numpy as np

from dali_like.common.kernel_library import ELEMENTS, address_of, kernels
from dali_like.errors import DaliLikeError
from dali_like.graph.language.batch_calls import BatchCall, Samples, Table
from dali_like.operators.arrays._boxes import parse_layout
from dali_like.operators.arrays.arrays import cut_value, table_of
from dali_like.operators.arrays.box_kernels import fit_labels
from dali_like.operators.arrays.boxes import frames_of
from dali_like.operators.arrays.reductions import default_dtype, reduced_axes
from dali_like.operators.machinery.axes import for_each_axis

_BYTE, _FLOAT = np.dtype(np.uint8), np.dtype(np.float32)
_MOST_PIXELS = (1 << 31) - 1
#: Random integers are below 2**32 - 1.
_MOST_CHOICES = (1 << 32) - 2
#: Codes of reductions, as in kernels/src/sums.c.
_SUM, _SQUARES, _DISTANCES = range(3)
_TOTAL, _MEAN, _MEAN_SQUARE, _ROOT_MEAN_SQUARE = range(4)


def transpose(
    call: BatchCall, input: Samples, *, perm: Any = None, transpose_layout: bool = True, output_layout: str = ""
) -> Any:
    """Serve ``fn.transpose``."""
    ndim = input.shapes.shape[1]
    order = list(perm or range(ndim)[::-1])
    if len(order) != ndim or (output_layout and len(output_layout) != ndim):
        return None
    shape = input.shape
    out = call.place(np.take(input.shapes, order, 1) if shape is None else tuple(shape[i] for i in order), input.dtype)
    axes = np.array(order, np.int64)
    kernels().transpose(
        call.count,
        ndim,
        input.dtype.itemsize,
        address_of(input.addresses),
        address_of(input.shapes),
        input.row,
        address_of(axes),
        address_of(out.addresses),
    )
    return out.data


def stack(call: BatchCall, *inputs: Samples, axis: int = 0, axis_name: str | None = None) -> Any:
    """Serve ``fn.stack``."""
    ndim = inputs[0].shapes.shape[1]
    if axis_name is not None or not -ndim - 1 < axis <= ndim:
        return None
    return _joined(call, inputs, axis % (ndim + 1), is_new=True)


def cat(call: BatchCall, *inputs: Samples, axis: int = 0, axis_name: str | None = None) -> Any:
    """Serve ``fn.cat``."""
    ndim = inputs[0].shapes.shape[1]
    if axis_name is not None:
        if axis_name not in call.layout:
            return None
        axis = call.layout.index(axis_name)
    return _joined(call, inputs, axis % ndim, is_new=False) if -ndim <= axis < ndim else None


def _joined(call: BatchCall, inputs: tuple[Samples, ...], axis: int, *, is_new: bool) -> Any:
    """Join the inputs along an axis."""
    first = inputs[0]
    count, ndim = first.shapes.shape
    if any(each.dtype != first.dtype or each.shapes.shape != (count, ndim) for each in inputs):
        return None
    places = np.array(
        [[address_of(each.addresses), address_of(each.shapes), each.row] for each in inputs], np.int64
    ).T.copy()
    sources = address_of(places)
    tables, rows = sources + places.strides[0], sources + 2 * places.strides[0]
    sizes = np.empty((count, ndim + is_new), np.int64)
    to_sizes = address_of(sizes)
    if kernels().joined_shapes(count, ndim, len(inputs), tables, rows, axis, is_new, to_sizes):
        return None
    out = call.place(sizes, first.dtype)
    to = address_of(out.addresses)
    kernels().join(count, ndim, first.dtype.itemsize, len(inputs), sources, tables, rows, axis, is_new, to_sizes, to)
    return out.data


def one_hot(
    call: BatchCall,
    input: Samples,
    *,
    num_classes: int = 0,
    axis: int | None = None,
    axis_name: str | None = None,
    dtype: np.dtype[Any] = _FLOAT,
    on_value: float = 1.0,
    off_value: float = 0.0,
) -> Any:
    """Serve ``fn.one_hot`` for integers, with vectors along the last axis."""
    ndim = input.shapes.shape[1]
    if input.dtype.kind not in "iu" or (axis is not None and axis not in (-1, ndim)):
        return None
    if axis_name is not None and ndim and not call.layout:
        return None
    sizes = input.sizes
    is_scalar = axis is None and bool((sizes == 1).all())
    if not is_scalar and axis is None and (sizes == 1).any():
        return None  # the number of dimensions differs
    shapes = np.full((call.count, 1 if is_scalar else ndim + 1), num_classes, np.int64)
    if not is_scalar:
        shapes[:, :-1] = input.shapes
    out = call.place(shapes, dtype)
    on, off = cut_value(on_value, dtype), cut_value(off_value, dtype)
    jobs = np.empty((call.count, 3), np.int64)
    jobs[:, 0], jobs[:, 1], jobs[:, 2] = input.addresses, out.addresses, sizes
    kernels().one_hot(
        call.count, ELEMENTS[input.dtype], num_classes, dtype.itemsize, address_of(on), address_of(off), address_of(jobs)
    )
    return out.data


def lookup_table(
    call: BatchCall, input: Samples, *, keys: Any = (), values: Any = (), default_value: float = 0.0, dtype: Any = _FLOAT
) -> Any:
    """Serve ``fn.lookup_table`` for integers."""
    if input.dtype.kind not in "iu":
        return None
    table = table_of(keys, values, default_value, dtype, input.dtype)
    out = call.place(input.shapes, dtype)
    jobs = np.empty((call.count, 3), np.int64)
    jobs[:, 0], jobs[:, 1], jobs[:, 2] = input.addresses, out.addresses, input.sizes
    compiled, first, entries, row_bytes = kernels(), address_of(jobs), address_of(table), jobs.strides[0]
    from_bytes, to_bytes, size = input.dtype.itemsize, table.itemsize, len(table)
    call.share(
        lambda begin, stop: compiled.look_up(stop - begin, from_bytes, to_bytes, first + row_bytes * begin, entries, size)
    )
    return out.data


# Reductions


def _jobs(call: BatchCall, data: Samples, axes: Any, axis_names: str | None) -> Table | None:
    """Return the jobs of a reduction of all elements; None if some axes stay, or a sample has no element."""
    ndim = data.shapes.shape[1]
    try:
        if len({*reduced_axes(call.layout, ndim, axes, axis_names)}) != ndim:
            return None
    except DaliLikeError:
        return None
    jobs = np.empty((call.count, 2), np.int64)
    jobs[:, 0], jobs[:, 1] = data.addresses, data.sizes
    return jobs if jobs[:, 1].all() else None


def _of_axes(
    call: BatchCall, data: Samples, axes: Any, axis_names: str | None, keep_dims: bool, dtype: Any, reduction: int
) -> Any:
    """Reduce adjacent axes of bytes, whose sums are exact; None for others."""
    of_result = np.dtype(np.uint64) if reduction == _TOTAL else _FLOAT
    if data.dtype != _BYTE or dtype not in (None, of_result):
        return None
    count, ndim = data.shapes.shape
    try:
        gone = sorted(reduced_axes(call.layout, ndim, axes, axis_names))
    except DaliLikeError:
        return None
    if not gone or gone != [*range(gone[0], gone[-1] + 1)]:
        return None
    shapes = data.shapes.copy()
    jobs = np.empty((count, 5), np.int64)
    first, last = gone[0], gone[-1] + 1
    for column, part in enumerate((shapes[:, :first], shapes[:, first:last], shapes[:, last:]), 2):
        np.multiply.reduce(part, axis=1, out=jobs[:, column])
    if not jobs[:, 3].all():
        return None
    if keep_dims:
        shapes[:, first:last] = 1
    out = call.place(shapes if keep_dims else np.delete(shapes, gone, 1), of_result)
    jobs[:, 0], jobs[:, 1] = data.addresses, out.addresses
    compiled, places, row_bytes = kernels(), address_of(jobs), jobs.strides[0]
    failed = call.share(lambda begin, stop: compiled.reduce_axes(stop - begin, reduction, places + row_bytes * begin))
    return None if failed else out.data


def _numbers(call: BatchCall, data: Samples, values: Any, dtype: np.dtype[Any], keep_dims: bool) -> Any:
    out = call.place((1,) * data.shapes.shape[1] if keep_dims else (), dtype)
    with np.errstate(all="ignore"):
        out.data.reshape(-1)[:] = values.astype(dtype)
    return out.data


def _totals(call: BatchCall, data: Samples, jobs: Table, reduction: int, means: Any = None) -> Any:
    totals = np.empty(call.count)
    given = None if means is None else address_of(means)
    compiled, element, first, to = kernels(), ELEMENTS[data.dtype], address_of(jobs), address_of(totals)

    def work(begin: int, stop: int) -> None:
        of_means = None if given is None else given + 8 * begin
        compiled.reduce(stop - begin, element, reduction, first + 16 * begin, of_means, to + 8 * begin)

    call.share(work)
    return totals


def _serves(data: Samples) -> bool:
    return data.dtype in (_BYTE, _FLOAT) and kernels().sums_agree


def sum_(
    call: BatchCall,
    input: Samples,
    *,
    axes: Any = None,
    axis_names: str | None = None,
    keep_dims: bool = False,
    dtype: Any = None,
) -> Any:
    """Serve ``fn.reductions.sum`` of all elements."""
    if not _serves(input):
        return None
    if (jobs := _jobs(call, input, axes, axis_names)) is None:
        return _of_axes(call, input, axes, axis_names, keep_dims, dtype, _TOTAL)
    wanted = default_dtype(input.dtype, of_integers=True) if dtype is None else dtype
    totals = _totals(call, input, jobs, _SUM)
    if input.dtype == _BYTE and wanted.kind in "iu":
        totals = totals.astype(np.int64)  # exact; wraps around like a sum in the dtype of the result
    return _numbers(call, input, totals, wanted, keep_dims)


def _average(reduction: int, of: Any, of_axes: int) -> Any:
    def average(
        call: BatchCall,
        input: Samples,
        *,
        axes: Any = None,
        axis_names: str | None = None,
        keep_dims: bool = False,
        dtype: Any = None,
    ) -> Any:
        if not _serves(input):
            return None
        if (jobs := _jobs(call, input, axes, axis_names)) is None:
            return _of_axes(call, input, axes, axis_names, keep_dims, dtype, of_axes)
        wanted = default_dtype(input.dtype, of_integers=False) if dtype is None else dtype
        return _numbers(call, input, of(_totals(call, input, jobs, reduction) / jobs[:, 1]), wanted, keep_dims)

    return average


mean = _average(_SUM, lambda means: means, _MEAN)
mean_square = _average(_SQUARES, lambda means: means, _MEAN_SQUARE)
rms = _average(_SQUARES, np.sqrt, _ROOT_MEAN_SQUARE)


def _extreme(column: int) -> Any:
    def extreme(
        call: BatchCall, input: Samples, *, axes: Any = None, axis_names: str | None = None, keep_dims: bool = False
    ) -> Any:
        if input.dtype not in (_BYTE, np.int32) or (jobs := _jobs(call, input, axes, axis_names)) is None:
            return None
        found = np.empty((call.count, 2), input.dtype)
        compiled, element, first, to = kernels(), ELEMENTS[input.dtype], address_of(jobs), address_of(found)
        call.share(
            lambda begin, stop: compiled.extremes(stop - begin, element, first + 16 * begin, to + found.strides[0] * begin)
        )
        return _numbers(call, input, found[:, column], input.dtype, keep_dims)

    return extreme


min_ = _extreme(0)
max_ = _extreme(1)


def _deviation(of: Any) -> Any:
    def deviation(
        call: BatchCall,
        data: Samples,
        mean: Samples,
        *,
        axes: Any = None,
        axis_names: str | None = None,
        keep_dims: bool = False,
        ddof: int = 0,
    ) -> Any:
        if not _serves(data) or (jobs := _jobs(call, data, axes, axis_names)) is None:
            return None
        if mean.shape is None or math.prod(mean.shape) != 1 or not isinstance(mean.data, np.ndarray):
            return None
        means = np.broadcast_to(mean.data.reshape(-1), call.count).astype(np.float64)
        with np.errstate(all="ignore"):
            variance = _totals(call, data, jobs, _DISTANCES, means) / (jobs[:, 1] - ddof)
            return _numbers(call, data, of(variance), default_dtype(data.dtype, of_integers=False), keep_dims)

    return deviation


variance = _deviation(lambda variance: variance)
std_dev = _deviation(np.sqrt)


# Random numbers


def uniform(
    call: BatchCall,
    shape_like: Samples | None = None,
    *,
    range: Any = (-1.0, 1.0),
    values: Any = None,
    shape: Any = None,
    dtype: Any = None,
) -> Any:
    """Serve ``fn.random.uniform`` for one FLOAT number for each sample."""
    if shape_like is not None or values is not None or shape is not None or isinstance(range, list):
        return None
    if dtype not in (None, _FLOAT) or not kernels().draws_agree:
        return None
    low, high = range
    out = call.place((), _FLOAT)
    drawn = (low + (high - low) * _units(call)).astype(np.float32)
    np.minimum(drawn, np.nextafter(_FLOAT.type(high), _FLOAT.type(low)), out=out.data.reshape(-1))
    return out.data


def coin_flip(
    call: BatchCall, shape_like: Samples | None = None, *, probability: Any = 0.5, shape: Any = None, dtype: Any = None
) -> Any:
    """Serve ``fn.random.coin_flip`` for one number for each sample."""
    if shape_like is not None or shape is not None or isinstance(probability, list) or not kernels().draws_agree:
        return None
    out = call.place((), np.int32 if dtype is None else dtype)
    out.data.reshape(-1)[:] = _units(call) < probability
    return out.data


def _units(call: BatchCall) -> Any:
    draws, units = call.draws(), np.empty(call.count)
    kernels().units(call.count, address_of(draws.key), draws.epoch, address_of(draws.positions), 1, address_of(units))
    return units


def choice(call: BatchCall, a: Samples, shape_like: Samples | None = None, *, p: Any = None, shape: Any = None) -> Any:
    """Serve ``fn.random.choice`` of equally probable elements of arrays."""
    ndim = a.shapes.shape[1]
    if p is not None or isinstance(shape, list) or not ndim or not kernels().draws_agree:
        return None
    if shape_like is not None and (shape is not None or shape_like.shape is None):
        return None
    counts = a.shapes[:, 0]
    if (counts <= 0).any() or (counts > _MOST_CHOICES).any():
        return None
    extents = tuple(shape or ()) if shape_like is None else shape_like.shape or ()
    shapes = np.empty((call.count, len(extents) + ndim - 1), np.int64)
    shapes[:, : len(extents)], shapes[:, len(extents) :] = extents, a.shapes[:, 1:]
    out, draws = call.place(shapes, a.dtype), call.draws()
    jobs = np.empty((call.count, 4), np.int64)
    jobs[:, 0], jobs[:, 1], jobs[:, 2] = a.addresses, out.addresses, counts
    jobs[:, 3] = np.multiply.reduce(a.shapes[:, 1:], axis=1) * a.dtype.itemsize
    kernels().choose(
        call.count,
        address_of(jobs),
        address_of(draws.key),
        draws.epoch,
        address_of(draws.positions),
        math.prod(extents),
    )
    return out.data


def roi_random_crop(
    call: BatchCall,
    data: Samples | None = None,
    *,
    crop_shape: Any,
    roi_start: Any,
    roi_end: Any = None,
    roi_shape: Any = None,
    in_shape: Any = None,
) -> Any:
    """Serve ``fn.roi_random_crop`` with constant arguments."""
    given = (crop_shape, roi_start, roi_end, roi_shape, in_shape)
    if any(isinstance(value, list) for value in given) or not kernels().draws_agree:
        return None
    rank = len(crop_shape)
    if data is not None and data.shapes.shape[1] != rank:
        return None
    try:
        start = np.array(for_each_axis("roi_start", roi_start, rank), np.int64)
        if roi_end is not None:
            end = np.array(for_each_axis("roi_end", roi_end, rank), np.int64)
        else:
            end = start + np.array(for_each_axis("roi_shape", roi_shape or (), rank), np.int64)
        bounds = for_each_axis("in_shape", in_shape, rank) if data is None and in_shape is not None else None
    except DaliLikeError:
        return None
    extents = np.array(crop_shape, np.int64)
    limits = data.shapes if data is not None else bounds
    least = np.broadcast_to(np.minimum(start, end - extents), (call.count, rank))
    most = np.broadcast_to(np.maximum(start, end - extents), (call.count, rank))
    if limits is not None:
        if (extents > limits).any() or (start < 0).any() or (end > limits).any():
            return None
        least, most = np.maximum(least, 0), np.minimum(most, np.asarray(limits) - extents)
    if (most < least).any() or (most - least >= 1 << 31).any():
        return None
    out, draws = call.place((rank,), np.int64), call.draws()
    least, most = np.ascontiguousarray(least), np.ascontiguousarray(most)
    kernels().integers(
        call.count,
        address_of(draws.key),
        draws.epoch,
        address_of(draws.positions),
        rank,
        address_of(least),
        address_of(most),
        address_of(out.data),
    )
    return out.data


def random_crop_generator(
    call: BatchCall,
    shape: Samples,
    *,
    random_area: Any = (0.08, 1.0),
    random_aspect_ratio: Any = (3 / 4, 4 / 3),
    num_attempts: int = 10,
) -> Any:
    """Serve ``fn.random_crop_generator`` for images of less than 2**31 pixels in each direction."""
    if shape.dtype.kind not in "iu" or shape.shape not in ((2,), (3,)) or not kernels().draws_agree:
        return None
    given = np.asarray(shape.data).reshape(call.count, -1)[:, :2]
    if (given > _MOST_PIXELS).any():
        return None
    sides, windows = given.astype(np.int64), np.empty((call.count, 4), np.int64)
    limits = np.array([random_area[0], random_area[-1], random_aspect_ratio[0], random_aspect_ratio[-1]], np.float64)
    draws = call.draws()
    kernels().windows(
        call.count,
        address_of(draws.key),
        draws.epoch,
        address_of(draws.positions),
        address_of(sides),
        address_of(limits),
        num_attempts,
        address_of(windows),
    )
    results = [call.place((2,), np.int32), call.place((2,), np.int32)]
    for result, part in zip(results, (windows[:, :2], windows[:, 2:]), strict=True):
        result.data.reshape(call.count, 2)[:] = part
    return tuple([result.data for result in results])


# Boxes


def random_bbox_crop(
    call: BatchCall,
    boxes: Samples,
    labels: Samples | None = None,
    *,
    all_boxes_above_threshold: bool = True,
    allow_no_crop: bool = True,
    aspect_ratio: Any = (1.0, 1.0),
    bbox_layout: str | None = None,
    bbox_prune_threshold: float | None = None,
    crop_shape: Any = None,
    input_shape: Any = None,
    ltrb: bool = True,
    num_attempts: int = 1,
    output_bbox_indices: bool = False,
    scaling: Any = (1.0, 1.0),
    shape_layout: str | None = None,
    threshold_type: str = "iou",
    thresholds: Any = (0.0,),
    total_num_attempts: int = -1,
) -> Any:
    """Serve ``fn.random_bbox_crop`` where neither the shape of the window nor a ratio of its sides is fixed."""
    if crop_shape is not None or input_shape is not None or boxes.dtype != _FLOAT or boxes.shapes.shape[1] != 2:
        return None
    columns = boxes.shapes[0, 1].item()
    if columns not in (4, 6) or (boxes.shapes[:, 1] != columns).any() or not kernels().draws_agree:
        return None
    rank = columns // 2
    counts = boxes.shapes[:, 0]
    bounds = [*zip(aspect_ratio[::2], aspect_ratio[1::2], strict=True)]
    pairs = [bounds[i % len(bounds)] for i in builtins.range(rank * (rank - 1) // 2)]
    if any(least >= most for least, most in pairs) or not fit_labels(labels, counts):
        return None
    try:
        layout = bbox_layout or "xyz"[:rank] + ("XYZ" if ltrb else "WHD")[:rank]
        starts, ends, are_extents = parse_layout(layout, rank)
    except DaliLikeError:
        return None
    limits = [*thresholds, *([-1.0] if allow_no_crop else [])]
    head = [rank, *scaling, threshold_type == "overlap", all_boxes_above_threshold]
    head += [-1.0 if bbox_prune_threshold is None else bbox_prune_threshold, num_attempts, total_num_attempts]
    head += [len(limits), are_extents, 0]
    ratios = [number for pair in pairs for number in pair]
    search = np.array([*head, *ratios, *[0.0] * (6 - len(ratios)), *starts, *ends, *[0.0] * (6 - columns), *limits])
    jobs = np.empty((call.count, 2), np.int64)
    jobs[:, 0], jobs[:, 1] = boxes.addresses, counts
    total, draws = int(counts.sum()), call.draws()
    windows, kept = np.empty((call.count, 2, rank)), np.empty(max(total, 1), np.uint8)
    num_kept, images = np.empty(call.count, np.int64), np.ones((call.count, rank))
    served = kernels().search_windows(
        call.count,
        address_of(jobs),
        address_of(search),
        address_of(images),
        address_of(draws.key),
        draws.epoch,
        address_of(draws.positions),
        address_of(windows),
        address_of(kept),
        address_of(num_kept),
    )
    if served:
        return None
    anchor, size = call.place((rank,), _FLOAT), call.place((rank,), _FLOAT)
    anchor.data.reshape(call.count, rank)[:] = windows[:, 0]
    size.data.reshape(call.count, rank)[:] = windows[:, 1] - windows[:, 0]
    seen = call.place(np.stack([num_kept, np.full_like(num_kept, columns)], axis=1), _FLOAT)
    results, label_bytes = [anchor, size, seen], 0
    out = np.zeros((call.count, 6), np.int64)
    out[:, :2], out[:, 3] = jobs, seen.addresses
    if labels is not None:
        shapes = labels.shapes.copy()
        shapes[:, 0] = num_kept
        chosen = call.place(shapes, labels.dtype)
        out[:, 2], out[:, 4], label_bytes = labels.addresses, chosen.addresses, labels.dtype.itemsize
        results.append(chosen)
    if output_bbox_indices:
        numbers = call.place(num_kept[:, np.newaxis], np.int32)
        out[:, 5] = numbers.addresses
        results.append(numbers)
    kernels().seen_boxes(call.count, address_of(out), address_of(search), address_of(windows), address_of(kept), label_bytes)
    return tuple([result.data for result in results])


def box_encoder(
    call: BatchCall,
    boxes: Samples,
    labels: Samples,
    *,
    anchors: Any,
    criteria: float = 0.5,
    offset: bool = False,
    means: Any = (0.0, 0.0, 0.0, 0.0),
    stds: Any = (1.0, 1.0, 1.0, 1.0),
    scale: float = 1.0,
) -> Any:
    """Serve ``fn.box_encoder`` without offsets, for labels of INT32."""
    if offset or boxes.dtype != _FLOAT or labels.dtype != np.int32 or boxes.shapes.shape[1] != 2:
        return None
    counts = boxes.shapes[:, 0]
    if (boxes.shapes[:, 1] != 4).any() or not fit_labels(labels, counts):
        return None
    frames = frames_of(anchors)
    count = len(frames.boxes)
    out, classes = call.place((count, 4), _FLOAT), call.place((count,), np.int32)
    jobs = np.empty((call.count, 5), np.int64)
    jobs[:, 0], jobs[:, 1], jobs[:, 2] = boxes.addresses, labels.addresses, counts
    jobs[:, 3], jobs[:, 4] = out.addresses, classes.addresses
    served = kernels().encode_boxes(
        call.count,
        address_of(jobs),
        address_of(frames.boxes),
        address_of(frames.centered),
        address_of(frames.sizes),
        count,
        float(np.float32(criteria)),
    )
    return None if served else (out.data, classes.data)
