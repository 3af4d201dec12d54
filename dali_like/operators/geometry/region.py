"""The region that ``fn.readers.numpy`` cuts out of its arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np

from dali_like.errors import ArgumentClashError
from dali_like.graph.language.operator_interface import Array, OperatorCall
from dali_like.operators.geometry._windows import Policy, cut, slice_window
from dali_like.operators.machinery.axes import checked_axes
from dali_like.operators.machinery.conversion import convert
from dali_like.operators.machinery.description import operator
from dali_like.operators.parameters import FINITE, Floats, Ints, PerSample, at_least

_STARTS = ("roi_start", "rel_roi_start")
_ENDS = ("roi_end", "rel_roi_end", "roi_shape", "rel_roi_shape")


def _check_region(given: Mapping[str, Any]) -> None:
    for names in (_STARTS, _ENDS):
        if len(both := [name for name in names if name in given]) > 1:
            raise ArgumentClashError(f"{' and '.join(both)} are mutually exclusive: pass one of them")


@operator(module="readers.numpy", internal=True, check=_check_region, strided=True)
def region(
    call: OperatorCall,
    data: Array,
    *,
    roi_start: PerSample[Ints] | None = None,
    rel_roi_start: PerSample[Annotated[Floats, FINITE]] | None = None,
    roi_end: PerSample[Ints] | None = None,
    rel_roi_end: PerSample[Annotated[Floats, FINITE]] | None = None,
    roi_shape: PerSample[Annotated[Ints, at_least(0)]] | None = None,
    rel_roi_shape: PerSample[Annotated[Floats, at_least(0)]] | None = None,
    roi_axes: Ints = (),
    out_of_bounds_policy: Policy = "error",
    fill_value: float = 0.0,
) -> Array:
    """Cut a region out of an array.

    Args:
        data: the array.
        roi_start, rel_roi_start: start of the region, in elements or as a fraction of the extent: one number for all axes,
            or one for each of them. Default: the beginning.
        roi_end, rel_roi_end: end of the region, likewise. Default: the end of the array.
        roi_shape, rel_roi_shape: size of the region, instead of its end.
        roi_axes: axes that the numbers are for. Default: all axes, in their order.
        out_of_bounds_policy: treatment of a region that lies partly outside of the array: "error", "pad" with `fill_value`,
            or "trim_to_shape".
        fill_value: element outside of the array, with "pad".
    """
    axes = checked_axes(roi_axes or range(data.ndim), data.ndim)
    named = {"start": roi_start, "rel_start": rel_roi_start, "end": roi_end, "rel_end": rel_roi_end}
    named |= {"shape": roi_shape, "rel_shape": rel_roi_shape}
    spans = slice_window([data.shape[axis] for axis in axes], None, None, (False, False), named)
    begins, shapes = [0] * data.ndim, list(data.shape)
    for axis, (begin, end) in zip(axes, spans, strict=True):
        begins[axis], shapes[axis] = begin, end - begin
    filling = convert(np.full(1, fill_value, np.float32), data.dtype).tolist()
    return cut(call, data, begins, shapes, out_of_bounds_policy, filling)
