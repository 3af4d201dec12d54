"""Random numbers, as in ``nvidia.dali.fn.random``. The distributions are DALI's; the numbers are not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dali_like.errors import ArgumentClashError, ArgumentError
from dali_like.graph.operators import Array, Call
from dali_like.operators.description import operator
from dali_like.operators.parameters import Floats, Ints, PerSample


def _check_uniform(given: Mapping[str, Any]) -> None:
    if "range" in given and "values" in given:
        raise ArgumentClashError("range and values exclude each other")


@operator(module="random", random=True, check=_check_uniform)
def uniform(
    call: Call,
    shape_like: Array | None = None,
    *,
    range: PerSample[Floats] = (-1.0, 1.0),
    values: PerSample[Floats] | None = None,
    shape: PerSample[Ints] | None = None,
    dtype: np.dtype[Any] | None = None,
) -> Array:
    """Numbers that are equally likely everywhere in a range, or among some values.

    Args:
        shape_like: the result has the shape of this; its values do not matter.
        range: the least number, and the one that all are below.
        values: the numbers that there are, instead of a range.
        shape: of the result. Default: a single number.
        dtype: of the result. Default: FLOAT.
    """
    extents = _shape(shape_like, shape)
    rng = call.rng()
    if values is not None:
        numbers = np.asarray(values)[rng.integers(0, len(values), extents)]
    else:
        if len(range) != 2 or not range[0] <= range[1]:
            raise ArgumentError(f"fn.random.uniform: range must be two numbers, the lower one first, not {range}")
        numbers = rng.uniform(range[0], range[1], extents)
    result = np.asarray(numbers).astype(np.float32 if dtype is None else dtype)
    if values is None and result.dtype.kind == "f":
        # Rounded to a shorter type, a number may have become the upper bound.
        result = np.minimum(result, np.nextafter(result.dtype.type(range[1]), result.dtype.type(range[0])))
    return result


@operator(module="random", random=True)
def coin_flip(
    call: Call,
    shape_like: Array | None = None,
    *,
    probability: PerSample[float] = 0.5,
    shape: PerSample[Ints] | None = None,
    dtype: np.dtype[Any] | None = None,
) -> Array:
    """1 with a probability, otherwise 0.

    Args:
        shape_like: the result has the shape of this; its values do not matter.
        probability: of 1.
        shape: of the result. Default: a single number.
        dtype: of the result. Default: INT32.
    """
    if not 0 <= probability <= 1:
        raise ArgumentError(f"fn.random.coin_flip: probability must be between 0 and 1, not {probability}")
    flips = call.rng().random(_shape(shape_like, shape)) < probability
    return np.asarray(flips).astype(np.int32 if dtype is None else dtype)


def _shape(shape_like: Array | None, shape: Ints | None) -> tuple[int, ...]:
    if shape_like is not None:
        if shape is not None:
            raise ArgumentClashError("shape and the input shape_like exclude each other")
        return shape_like.shape
    return () if shape is None else shape
