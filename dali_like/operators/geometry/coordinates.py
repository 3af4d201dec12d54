"""Operators that transform points, as in ``nvidia.dali.fn``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dali_like.common.saved_arguments import SavedText
from dali_like.errors import ArgumentClashError, ArgumentError, SampleError
from dali_like.graph.language.operator_interface import ANY_LENGTH, Array, OperatorCall
from dali_like.operators.machinery.conversion import convert
from dali_like.operators.machinery.description import operator
from dali_like.operators.parameters import FloatArray, PerFrame, PerSample

_FLOAT = np.dtype(np.float32)


def _check_transform(given: Mapping[str, Any]) -> None:
    if "MT" in given and {"M", "T"} & set(given):
        raise ArgumentClashError("MT excludes M and T; pass either MT or the others")


@operator(check=_check_transform, stacks=())
def coord_transform(
    call: OperatorCall,
    points: Array,
    *,
    M: PerFrame[FloatArray] | None = None,  # noqa: N803
    T: PerFrame[FloatArray] | None = None,  # noqa: N803
    MT: PerFrame[FloatArray] | None = None,  # noqa: N803
    dtype: np.dtype[Any] = _FLOAT,
) -> Array:
    """Apply affine transforms to points or vectors: ``M @ point + T``.

    Each argument may have a value for each frame of a sequence.

    Args:
        points: any number of points in the last dimension, at least 2 dimensions, any dtype.
        M: matrix with a column for each element of a point, and any number of rows, or one factor for all elements.
            Default: 1.
        T: summand for each row of `M`, or one for all. Default: 0.
        MT: matrix with a further column, which is `T`, or one factor for all elements.
        dtype: FLOAT, or the type of the points; integers are rounded and saturate.
    """
    if points.ndim - call.lead < 2:
        raise SampleError(f"points must have at least 2 dimensions, not {points.ndim}; fn.expand_dims adds one")
    if dtype not in (_FLOAT, points.dtype):
        raise SampleError(f"dtype must be FLOAT or that of the points, {points.dtype}, not {dtype}")
    length = points.shape[-1]
    name, given = ("M", M) if MT is None else ("MT", MT)
    matrix = _matrix(call, name, given, length, length + (MT is not None))
    linear, offset = matrix[..., :length], matrix[..., length:].swapaxes(-1, -2)
    if T is not None:
        offset = _of_frames(call, "T", T)[..., np.newaxis, :]
        if offset.shape[-1] not in (1, linear.shape[-2]):
            raise SampleError(f"the argument T must have one element, or {linear.shape[-2]}, not {offset.shape[-1]}")
    # Frames and samples stay apart: rounding in a product of matrices may depend on their size.
    apart = call.lead + call.layout[call.lead :].startswith("F")
    vectors = points.reshape(*points.shape[:apart], -1, length)
    try:
        result = vectors.astype(np.float32) @ linear.swapaxes(-1, -2)
        if offset.shape[-2]:
            result = result + offset
    except ValueError:
        raise SampleError(
            f"the sequence has {len(vectors)} frames, but {'M' if MT is None else 'MT'} or T has another number of values"
        ) from None
    shape = points.shape[:-1] if vectors.ndim == result.ndim else (len(result), *points.shape[:-1])
    return convert(result.reshape(*shape, result.shape[-1]), dtype)


def _of_frames(call: OperatorCall, name: str, values: FloatArray) -> FloatArray:
    """Return an argument in one dimension, or in one for each frame."""
    return values.reshape((len(values), -1) if name in call.framed else -1)


def _matrix(call: OperatorCall, name: str, values: FloatArray | None, length: int, columns: int) -> FloatArray:
    if values is None:
        return np.eye(length, dtype=np.float32)
    elements = _of_frames(call, name, values)
    if elements.shape[-1] == 1:
        return elements[..., np.newaxis] * np.eye(length, dtype=np.float32)
    if not elements.shape[-1] or elements.shape[-1] % columns:
        raise SampleError(
            f"the argument {name} must have rows of {columns} elements for points of {length}, but has "
            f"{elements.shape[-1]} elements"
        )
    return elements.reshape(*elements.shape[:-1], -1, columns)


@operator(stacks=(), rowwise=ANY_LENGTH)
def coord_flip(
    call: OperatorCall,
    points: Array,
    *,
    flip_x: PerSample[int] = 1,
    flip_y: PerSample[int] = 0,
    flip_z: PerSample[int] = 0,
    center_x: PerSample[float] = 0.5,
    center_y: PerSample[float] = 0.5,
    center_z: PerSample[float] = 0.5,
    layout: SavedText = "",
) -> Array:
    """Mirror points.

    Args:
        points: points of 1 to 3 elements in 2 dimensions, FLOAT.
        flip_x, flip_y, flip_z: whether to mirror horizontally, vertically, in depth.
        center_x, center_y, center_z: coordinate that stays in place.
        layout: order of the elements of a point, by the letters x, y and z. Default: "x", "xy" or "xyz".
    """
    if points.ndim != 2 + call.lead or points.shape[-1] not in (1, 2, 3) or points.dtype != np.float32:
        raise SampleError(
            f"points must be of dtype float32 and shape (n, 1), (n, 2) or (n, 3), not {points.dtype} and {points.shape}"
        )
    length = points.shape[-1]
    order = layout or "xyz"[:length]
    if missing := [letter for letter in "xyz"[:length] if letter not in order[:length]]:
        raise ArgumentError(f"layout={layout!r} lacks {missing[0]!r}, for points of {length} elements")
    out = call.empty(points.shape, points.dtype)
    out[...] = points
    mirrored = {"x": (flip_x, center_x), "y": (flip_y, center_y), "z": (flip_z, center_z)}
    for letter, (flip, center) in mirrored.items():
        if flip and letter in order[:length]:
            axis = order.index(letter)
            out[..., axis] = 2 * np.float32(center) - points[..., axis]
    return out
