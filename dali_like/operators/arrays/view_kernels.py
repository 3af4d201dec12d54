"""Kernels of operators whose results are new shapes of the memory of their inputs, or follow from shapes and layouts.

They need no compiled loops; see `dali_like.graph.language.batch_calls`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dali_like.engine.memory.ring import SampleList
from dali_like.errors import DaliLikeError
from dali_like.graph.language.batch_calls import BatchCall, Samples, Table
from dali_like.operators.machinery.axes import axis_of

_INT64 = np.dtype(np.int64)


def _viewed(call: BatchCall, data: Samples, shapes: Table, dtype: Any = None, skipped: Any = 0) -> Any:
    """Return samples of other shapes; None for samples apart from each other, or if only some have a shape."""
    if isinstance(data.data, SampleList):
        return call.part(data.data.viewed(shapes, dtype, skipped))
    if not isinstance(data.data, np.ndarray) or np.any(skipped) or (shapes != shapes[0]).any():
        return None
    elements = data.data.reshape(call.count, -1)
    return elements.view(data.dtype if dtype is None else dtype).reshape(call.count, *shapes[0].tolist())


def get_property(call: BatchCall, input: Samples, *, key: str) -> Any:
    """Serve ``fn.get_property`` of layouts."""
    if key != "layout":
        return None
    letters = np.frombuffer(call.layout.encode(), np.uint8)
    out = call.place(letters.shape, letters.dtype)
    out.data[...] = letters
    return out.data


def shapes(call: BatchCall, input: Samples, *, dtype: np.dtype[Any] = _INT64) -> Any:
    """Serve ``fn.shapes``."""
    ndim = input.shapes.shape[1]
    out = call.place((ndim,), dtype)
    out.data.reshape(call.count, ndim)[:] = input.shapes
    return out.data


def per_frame(call: BatchCall, input: Samples, *, replace: bool = False) -> Any:
    """Serve ``fn.per_frame``."""
    return _viewed(call, input, input.shapes) if input.shapes.shape[1] else None


def expand_dims(call: BatchCall, data: Samples, *, axes: Any, new_axis_names: str = "") -> Any:
    """Serve ``fn.expand_dims``."""
    ndim = data.shapes.shape[1]
    if (new_axis_names and not call.layout) or any(axis >= ndim + len(axes) for axis in axes):
        return None
    extents = np.ones((call.count, ndim + len(axes)), np.int64)
    extents[:, [axis for axis in range(extents.shape[1]) if axis not in axes]] = data.shapes
    return _viewed(call, data, extents)


def squeeze(call: BatchCall, data: Samples, *, axes: Any = None, axis_names: str | None = None) -> Any:
    """Serve ``fn.squeeze``."""
    ndim = data.shapes.shape[1]
    try:
        gone = axes or () if axis_names is None else [axis_of(name, call.layout) for name in axis_names]
    except DaliLikeError:
        return None
    if any(axis >= ndim for axis in gone):
        return None
    extents = data.shapes[:, [axis for axis in range(ndim) if axis not in gone]]
    if (np.multiply.reduce(extents, axis=1) != data.sizes).any():
        return None
    return _viewed(call, data, extents)


def reshape(
    call: BatchCall,
    data: Samples,
    shape_input: Samples | None = None,
    *,
    shape: Any = None,
    rel_shape: Any = None,
    src_dims: Any = None,
    layout: str | None = None,
) -> Any:
    """Serve ``fn.reshape`` with a constant shape, or a new layout."""
    return reinterpret(
        call, data, shape_input, shape=shape, rel_shape=rel_shape, src_dims=src_dims, layout=layout, dtype=None
    )


def reinterpret(
    call: BatchCall,
    data: Samples,
    shape_input: Samples | None = None,
    *,
    shape: Any = None,
    rel_shape: Any = None,
    src_dims: Any = None,
    layout: str | None = None,
    dtype: np.dtype[Any] | None = None,
) -> Any:
    """Serve ``fn.reinterpret`` with a constant shape, or another dtype, or a new layout."""
    if shape_input is not None or isinstance(shape, list) or rel_shape is not None or src_dims is not None:
        return None
    dtype = data.dtype if dtype is None else dtype
    if dtype.kind == "b" and data.dtype.kind != "b":
        return None
    extents = _with_other_elements(data, dtype) if shape is None else _of_shape(data, shape, dtype)
    if (layout and len(layout) != extents.shape[1]) or not _fit(data, extents, dtype):
        return None
    return _viewed(call, data, extents, dtype)


def _with_other_elements(data: Samples, dtype: np.dtype[Any]) -> Table:
    """Return the shapes of the same bytes as elements of another dtype."""
    extents = data.shapes.copy()
    if data.dtype.itemsize != dtype.itemsize:
        extents[:, -1:] = extents[:, -1:] * data.dtype.itemsize // dtype.itemsize
    return extents


def _of_shape(data: Samples, shape: Sequence[int], dtype: np.dtype[Any]) -> Table:
    """Return shapes in which one extent may be negative: it is computed."""
    extents = np.empty((len(data.shapes), len(shape)), np.int64)
    extents[:] = shape
    is_open = np.array(shape) < 0
    if is_open.any():
        others = np.multiply.reduce(extents[:, ~is_open], axis=1)
        sizes = data.sizes * data.dtype.itemsize // dtype.itemsize
        extents[:, is_open] = (sizes // np.maximum(others, 1))[:, np.newaxis]
    return extents


def _fit(data: Samples, extents: Table, dtype: np.dtype[Any]) -> bool:
    """Whether samples of these shapes have the same bytes. Without any, one of several shapes may be meant."""
    nbytes = data.sizes * data.dtype.itemsize
    return bool(nbytes.all() and (np.multiply.reduce(extents, axis=1) * dtype.itemsize == nbytes).all())


def element_extract(call: BatchCall, input: Samples, *, element_map: Any) -> Any:
    """Serve ``fn.element_extract`` for one element."""
    shapes = input.shapes
    if len(element_map) != 1 or shapes.shape[1] < 2 or (call.layout and not call.layout.startswith("F")):
        return None
    (number,) = element_map
    if (shapes[:, 0] <= number).any():
        return None
    extents = shapes[:, 1:]
    skipped = np.multiply.reduce(extents, axis=1) * (number * input.dtype.itemsize)
    return _viewed(call, input, extents, skipped=skipped)
