"""Operators that make and combine matrices of affine transforms, as in ``nvidia.dali.fn.transforms``.

A transform of n dimensions is a matrix of n rows and n + 1 columns. Each argument may have a value for each frame of a
sequence. All functions compute with a leading axis for the frames, if there are any.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from dali_like.errors import ArgumentClashError, ArgumentError, SampleError
from dali_like.graph.language.operator_interface import Array, OperatorCall
from dali_like.operators.machinery.description import operator
from dali_like.operators.parameters import FloatArray, PerFrame, at_least

#: Of one matrix, and of one for each frame; the number of dimensions decides between them.
_LAYOUT = "F**"
_MOST_DIMENSIONS = 6

_Numbers = NDArray[np.float64]


@operator(module="transforms", output_layout=_LAYOUT, stacks=())
def translation(
    call: OperatorCall, matrix: Array | None = None, *, offset: PerFrame[FloatArray], reverse_order: bool = False
) -> Array:
    """Make the matrix of a translation.

    Args:
        matrix: a transform, FLOAT, to combine with the translation.
        offset: the translation, with one number for each dimension, or for each dimension of each frame.
        reverse_order: whether the translation comes before the transform of the input.
    """
    return _combined(call, _once(_translation, call, offset), matrix, reverse_order)


def _translation(call: OperatorCall, offset: FloatArray) -> _Numbers:
    vector = _vectors(call, "offset", offset)
    return _moved(np.eye(_rank_of(vector)), vector)


@operator(module="transforms", output_layout=_LAYOUT, stacks=())
def scale(
    call: OperatorCall,
    matrix: Array | None = None,
    *,
    scale: PerFrame[FloatArray],
    center: PerFrame[FloatArray] | None = None,
    ndim: Annotated[int, at_least(0)] | None = None,
    reverse_order: bool = False,
) -> Array:
    """Make the matrix of a scaling.

    Args:
        matrix: a transform, FLOAT, to combine with the scaling.
        scale: factor for each dimension, or for each dimension of each frame. One number applies to all dimensions.
        center: point that stays in place. Default: the origin.
        ndim: number of dimensions, if `scale` is one number and there is no input. Default: 1.
        reverse_order: whether the scaling comes before the transform of the input.
    """
    rank = ndim or 1 if matrix is None else _rank_of_matrix(call, matrix)
    return _combined(call, _once(_scale, call, scale, center, rank), matrix, reverse_order)


def _scale(call: OperatorCall, scale: FloatArray, center: FloatArray | None, rank: int) -> _Numbers:
    """Return scalings.

    Args:
        rank: the number of dimensions if `scale` is one number.
    """
    factors = _vectors(call, "scale", scale)
    rank = rank if (own_rank := _rank_of(factors)) == 1 else own_rank
    own = factors[..., np.newaxis] * np.eye(rank)
    return _about(own, _spread(call, "center", center, rank))


def _check_axis(given: Mapping[str, Any]) -> None:
    axis = given.get("axis")
    if isinstance(axis, np.ndarray) and not (axis.size == 3 and np.any(axis)):
        raise ArgumentError(f"axis must have 3 elements, not all of them zero, not {axis.tolist()}")


@operator(module="transforms", output_layout=_LAYOUT, check=_check_axis, stacks=())
def rotation(
    call: OperatorCall,
    matrix: Array | None = None,
    *,
    angle: PerFrame[FloatArray],
    axis: PerFrame[FloatArray] | None = None,
    center: PerFrame[FloatArray] | None = None,
    reverse_order: bool = False,
) -> Array:
    """Make the matrix of a rotation, in two dimensions, or in three if there is an axis.

    Args:
        matrix: a transform, FLOAT, to combine with the rotation.
        angle: in degrees, for the sample or for each frame. From the first axis toward the second one.
        axis: axis of rotation (x, y, z), of any length but zero.
        center: point that stays in place. Default: the origin.
        reverse_order: whether the rotation comes before the transform of the input.
    """
    if angle.size != 1 and "angle" not in call.framed:
        raise SampleError(f"the argument angle must be a single number, not of shape {angle.shape}")
    return _combined(call, _once(_rotation, call, angle, axis, center), matrix, reverse_order)


def _rotation(call: OperatorCall, angle: FloatArray, axis: FloatArray | None, center: FloatArray | None) -> _Numbers:
    radians = np.radians(angle.astype(np.float64)).reshape(-1 if "angle" in call.framed else ())[..., np.newaxis, np.newaxis]
    cosine, sine = np.cos(radians), np.sin(radians)
    if axis is None:
        own = cosine * np.eye(2) + sine * np.array([[0, -1], [1, 0]])
    else:
        unit = _vectors(call, "axis", axis)
        if unit.shape[-1] != 3 or not np.all(length := np.linalg.norm(unit, axis=-1, keepdims=True)):
            raise SampleError(f"the argument axis must have 3 elements, not all of them zero, not {axis.tolist()}")
        unit = unit / length
        own = cosine * np.eye(3) + sine * _cross(unit) + (1 - cosine) * unit[..., np.newaxis] * unit[..., np.newaxis, :]
    return _about(own, _spread(call, "center", center, own.shape[-1]))


def _cross(vector: _Numbers) -> _Numbers:
    """Return the matrix of the cross product with a vector."""
    x, y, z = np.moveaxis(vector, -1, 0)
    zero = np.zeros_like(x)
    rows = [np.stack(row, -1) for row in ((zero, -z, y), (z, zero, -x), (-y, x, zero))]
    return np.stack(rows, -2)


def _check_shear(given: Mapping[str, Any]) -> None:
    if ("shear" in given) == ("angles" in given):
        raise ArgumentClashError("pass either shear or angles")


@operator(module="transforms", output_layout=_LAYOUT, check=_check_shear, stacks=())
def shear(
    call: OperatorCall,
    matrix: Array | None = None,
    *,
    shear: PerFrame[FloatArray] | None = None,
    angles: PerFrame[FloatArray] | None = None,
    center: PerFrame[FloatArray] | None = None,
    reverse_order: bool = False,
) -> Array:
    """Make the matrix of a shear mapping.

    Args:
        matrix: a transform, FLOAT, to combine with the shear mapping.
        shear: factors (x, y), or (xy, xz, yx, yz, zx, zy) for three dimensions: the shift along the first axis for each
            step along the second one.
        angles: the arc tangents of `shear`, in degrees from -90 to 90.
        center: point that stays in place. Default: the origin.
        reverse_order: whether the shear mapping comes before the transform of the input.
    """
    return _combined(call, _once(_shear, call, shear, angles, center), matrix, reverse_order)


def _shear(call: OperatorCall, shear: FloatArray | None, angles: FloatArray | None, center: FloatArray | None) -> _Numbers:
    name, given = ("shear", shear) if shear is not None else ("angles", angles)
    assert given is not None
    factors = _vectors(call, name, given)
    if name == "angles":
        if np.any(np.abs(factors) > 90):
            raise SampleError(f"the argument angles must be from -90 to 90, not {given.tolist()}")
        factors = np.tan(np.radians(given)).astype(np.float64).reshape(factors.shape)
    if factors.shape[-1] not in (2, 6):
        raise SampleError(f"the argument {name} must have 2 elements, or 6 for three dimensions, not {factors.shape[-1]}")
    rank = 2 if factors.shape[-1] == 2 else 3
    own = np.broadcast_to(np.eye(rank), (*factors.shape[:-1], rank, rank)).copy()
    own[..., ~np.eye(rank, dtype=bool)] = factors
    return _about(own, _spread(call, "center", center, rank))


@operator(module="transforms", output_layout=_LAYOUT, stacks=())
def crop(
    call: OperatorCall,
    matrix: Array | None = None,
    *,
    from_start: PerFrame[FloatArray] | None = None,
    from_end: PerFrame[FloatArray] | None = None,
    to_start: PerFrame[FloatArray] | None = None,
    to_end: PerFrame[FloatArray] | None = None,
    absolute: bool = False,
    reverse_order: bool = False,
) -> Array:
    """Make the matrix that maps one range of coordinates to another one.

    It adjusts coordinates to a crop: `from_start` is mapped to `to_start`, and `from_end` to `to_end`. Each of them has one
    number for each dimension, or one number for all.

    Args:
        matrix: a transform, FLOAT, to combine with the mapping.
        from_start: lower bound of the original range. Default: 0.
        from_end: upper bound of the original range. Default: 1.
        to_start: lower bound of the new range. Default: 0.
        to_end: upper bound of the new range. Default: 1.
        absolute: whether to exchange bounds where the lower one is greater.
        reverse_order: whether the mapping comes before the transform of the input.
    """
    own = _once(_crop, call, from_start, from_end, to_start, to_end, absolute)
    with np.errstate(invalid="ignore"):
        return _combined(call, own, matrix, reverse_order)


def _crop(
    call: OperatorCall,
    from_start: FloatArray | None,
    from_end: FloatArray | None,
    to_start: FloatArray | None,
    to_end: FloatArray | None,
    absolute: bool,
) -> _Numbers:
    given = {"from_start": (from_start, 0), "from_end": (from_end, 1), "to_start": (to_start, 0), "to_end": (to_end, 1)}
    named = {name: np.full(1, other, np.float32) if value is None else value for name, (value, other) in given.items()}
    rank = max(_rank_of(_vectors(call, name, value)) for name, value in named.items())
    starts, ends, to_starts, to_ends = (_spread(call, name, value, rank) for name, value in named.items())
    if absolute:
        starts, ends = np.minimum(starts, ends), np.maximum(starts, ends)
        to_starts, to_ends = np.minimum(to_starts, to_ends), np.maximum(to_starts, to_ends)
    with np.errstate(divide="ignore", invalid="ignore"):
        factors = (to_ends - to_starts) / (ends - starts)
        own = np.where(np.eye(rank, dtype=bool), factors[..., np.newaxis], 0.0)
        return _moved(own, to_starts - factors * starts)


@operator(module="transforms", output_layout=_LAYOUT, min_inputs=2, stacks=())
def combine(call: OperatorCall, *matrices: Array, reverse_order: bool = False) -> Array:
    """Combine transforms.

    Args:
        matrices: transforms of the same number of dimensions, FLOAT, in the order of application.
        reverse_order: whether the last transform applies first.
    """
    if call.lead:  # samples line up from the first axis on, whether or not they have frames
        most = max([matrix.ndim for matrix in matrices])
        matrices = tuple(
            [matrix.reshape(len(matrix), *(1,) * (most - matrix.ndim), *matrix.shape[1:]) for matrix in matrices]
        )
    first, *others = matrices
    combined = _checked_matrix(call, first)
    for matrix in others:
        combined = _combined(call, _checked_matrix(call, matrix).astype(np.float64), combined, reverse_order)
    return combined


# Matrices

#: Transforms that have been made of constants, by the function that makes them and its arguments.
_made: dict[Any, _Numbers] = {}
_MOST_MADE = 256


def _once(make: Callable[..., _Numbers], call: OperatorCall, *given: Any) -> _Numbers:
    """Return a transform that depends on arguments alone. Those of stacks are constants: they are computed once."""
    if not call.lead:
        return make(call, *given)
    key = (make, *[(value.shape, value.tobytes()) if isinstance(value, np.ndarray) else value for value in given])
    found = _made.get(key)
    if found is None:
        if len(_made) >= _MOST_MADE:
            _made.clear()
        found = _made[key] = make(call, *given)
    return found


def _rank_of(vector: _Numbers) -> int:
    rank: int = vector.shape[-1]
    if not 1 <= rank <= _MOST_DIMENSIONS:
        raise SampleError(f"a transform has 1 to {_MOST_DIMENSIONS} dimensions, not {rank}")
    return rank


def _checked_matrix(call: OperatorCall, matrix: Array) -> Array:
    if matrix.dtype != np.float32:
        raise SampleError(f"a transform must be of dtype float32, not {matrix.dtype}; use fn.cast(..., dtype=types.FLOAT)")
    if matrix.ndim - call.lead not in (2, 3) or matrix.shape[-1] != matrix.shape[-2] + 1:
        raise SampleError(f"a transform must have the shape (n, n + 1), not {matrix.shape[call.lead :]}")
    return matrix


def _rank_of_matrix(call: OperatorCall, matrix: Array) -> int:
    rank: int = _checked_matrix(call, matrix).shape[-2]
    return rank


def _vectors(call: OperatorCall, name: str, values: FloatArray) -> _Numbers:
    """Return an argument as a vector, or as a vector for each frame."""
    framed = name in call.framed
    return values.astype(np.float64).reshape((len(values), -1) if framed else -1)


def _spread(call: OperatorCall, name: str, values: FloatArray | None, rank: int) -> _Numbers:
    """Return an argument with one number for all dimensions, or one for each, as vectors."""
    if values is None:
        return np.zeros(rank)
    vectors = _vectors(call, name, values)
    if vectors.shape[-1] not in (1, rank):
        raise SampleError(
            f"the argument {name} must have one element, or {rank}, one for each dimension, not {vectors.shape[-1]}"
        )
    return np.broadcast_to(vectors, (*vectors.shape[:-1], rank))


def _moved(own: _Numbers, vector: _Numbers) -> _Numbers:
    """Append the translation to linear transforms."""
    frames = _frames(own.shape[:-2], vector.shape[:-1])
    linear = np.broadcast_to(own, (*frames, *own.shape[-2:]))
    offset = np.broadcast_to(vector[..., np.newaxis], (*frames, vector.shape[-1], 1))
    return np.concatenate([linear, offset], -1)


def _about(own: _Numbers, center: _Numbers) -> _Numbers:
    """Return affine transforms that apply linear ones around a center."""
    return _moved(own, center - (own @ center[..., np.newaxis])[..., 0])


def _combined(call: OperatorCall, own: _Numbers, matrix: Array | None, reverse_order: bool) -> Array:
    """Apply the transform after that of the input, or before."""
    if matrix is None:
        alone = own.astype(np.float32)
        return np.broadcast_to(alone, (call.count, *alone.shape)) if call.lead else alone
    given = _checked_matrix(call, matrix).astype(np.float64)
    if own.shape[-1] != given.shape[-1]:
        raise SampleError(
            f"transforms of {own.shape[-2]} and {given.shape[-2]} dimensions do not combine; the input must have the shape "
            f"{own.shape[-2:]}, not {given.shape[-2:]}"
        )
    if not call.lead:
        _frames(own.shape[:-2], given.shape[:-2])
    first, last = (own, given) if reverse_order else (given, own)
    result = last[..., :-1] @ first
    result[..., -1] += last[..., -1]
    return result.astype(np.float32)


def _frames(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    """Return the common number of frames: () without frames.

    Raises:
        SampleError: the numbers differ, and neither is one.
    """
    try:
        return np.broadcast_shapes(one, other)
    except ValueError:
        raise SampleError(f"the sequences have {one[0]} and {other[0]} frames; they must have as many") from None
