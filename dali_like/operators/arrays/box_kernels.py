"""Kernels of operators on boxes, which compute the boxes of a batch as one array. They need no compiled loops.

See `dali_like.graph.language.batch_calls`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dali_like.engine.memory.ring import SampleList
from dali_like.errors import DaliLikeError
from dali_like.graph.language.batch_calls import BatchCall, Samples, Table
from dali_like.graph.language.operator_interface import Array
from dali_like.operators.arrays.boxes import Turn, rotated_boxes, turn_of

_FLOAT = np.dtype(np.float32)


def bbox_rotate(
    call: BatchCall,
    boxes: Samples,
    labels: Samples | None = None,
    *,
    angle: Any,
    input_shape: Any,
    bbox_layout: str = "xyXY",
    bbox_normalized: bool = True,
    keep_size: bool = False,
    mode: Any = "expand",
    remove_threshold: float = 0.1,
    shape_layout: str = "HW",
    size: Any = None,
) -> Any:
    """Serve ``fn.bbox_rotate``."""
    if boxes.dtype != _FLOAT or boxes.shapes.shape[1] != 2 or (boxes.shapes[:, 1] != 4).any():
        return None
    counts = boxes.shapes[:, 0]
    if not fit_labels(labels, counts):
        return None
    try:
        if isinstance(angle, list) or isinstance(input_shape, list) or isinstance(size, list):
            each = [value if isinstance(value, list) else [value] * call.count for value in (angle, input_shape, size)]
            turns = [turn_of(a, shape, shape_layout, s, keep_size=keep_size) for a, shape, s in zip(*each, strict=True)]
            numbers = np.repeat(np.arange(call.count), counts)
            turn = Turn(*[np.array(parts)[numbers] for parts in zip(*turns, strict=True)])
        else:
            turn = turn_of(angle, input_shape, shape_layout, size, keep_size=keep_size)
    except DaliLikeError:
        return None
    rows = _rows_of(boxes)
    rotated, kept = rotated_boxes(rows, turn, bbox_layout, mode, remove_threshold, are_normalized=bbox_normalized)
    if kept.all():
        left: Table = counts
        columns = [rotated] if labels is None else [rotated, _rows_of(labels)]
    else:
        ends = np.add.accumulate(counts)
        before = np.append(0, np.add.accumulate(kept))
        left = before[ends] - before[ends - counts]
        columns = [rotated[kept]] if labels is None else [rotated[kept], _rows_of(labels)[kept]]
    results = []
    for column in columns:
        memory, batch = call.place_rows(left, column.shape[1:], column.dtype)
        memory[...] = column
        results.append(batch)
    return results[0] if labels is None else tuple(results)


def _rows_of(samples: Samples) -> Array:
    """Return the rows of all samples, one behind the other."""
    if isinstance(samples.data, np.ndarray):
        return samples.data.reshape(-1, *samples.data.shape[2:])
    data = samples.data
    rows: NDArray[Any] = np.concatenate(data.arrays() if isinstance(data, SampleList) else data)
    return rows


def fit_labels(labels: Samples | None, counts: Table) -> bool:
    """Whether labels are integers, one for each box."""
    if labels is None:
        return True
    shapes = labels.shapes
    return (
        labels.dtype.kind in "iu"
        and shapes.shape[1] in (1, 2)
        and bool((shapes[:, 0] == counts).all())
        and (shapes.shape[1] == 1 or bool((shapes[:, 1] == 1).all()))
    )
