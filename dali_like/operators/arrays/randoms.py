"""Random number operators, as in ``nvidia.dali.fn.random``. The distributions are DALI's; the numbers differ."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
import numpy.random  # in the forkserver: NumPy imports it on first use, in each worker

from dali_like.errors import ArgumentClashError, ArgumentError
from dali_like.graph.language.operator_interface import Array, OperatorCall
from dali_like.operators.machinery.conversion import convert
from dali_like.operators.machinery.description import operator
from dali_like.operators.parameters import (
    ASCENDING,
    FINITE,
    SOME,
    Floats,
    Ints,
    PerSample,
    above,
    at_least,
    between,
    count,
    one_of_types,
)


def _check(given: Mapping[str, Any]) -> None:
    """Check the constant arguments."""
    if "range" in given and "values" in given:
        raise ArgumentClashError("range and values exclude each other")
    if isinstance(given.get("p"), tuple):
        _check_probabilities(given["p"])


def _check_probabilities(values: Floats) -> None:
    if abs(sum(values) - 1) > 1e-4:
        raise ArgumentError(f"p must be probabilities, from 0 to 1, whose sum is 1, not {list(values)}")


@operator(
    module="random",
    random=True,
    output_layout="",
    check=_check,
    stacks=("shape_like",),
    kernel="arrays.array_kernels.uniform",
    kernel_for_large=True,
)
def uniform(
    call: OperatorCall,
    shape_like: Array | None = None,
    *,
    range: PerSample[Annotated[Floats, count(2), FINITE, ASCENDING]] = (-1.0, 1.0),
    values: PerSample[Annotated[Floats, SOME]] | None = None,
    shape: PerSample[Annotated[Ints, at_least(0)]] | None = None,
    dtype: np.dtype[Any] | None = None,
) -> Array:
    """Draw numbers uniformly from a range, or from a set of values.

    Args:
        shape_like: the result has the shape of this input; its values are ignored.
        range: lower bound, and upper bound (exclusive).
        values: numbers to draw from, instead of a range.
        shape: shape of the result. Default: a single number.
        dtype: data type of the result; integers are rounded and saturate. Default: FLOAT.
    """
    extents = _shape(call, shape_like, shape)
    if values is not None:
        convert_all = _as_dtype_once if isinstance(values, tuple) else _as_dtype
        count = len(values)
        return np.asarray(convert_all(values, dtype)[call.draw(lambda rng: rng.integers(0, count, extents))])
    if (
        extents == ()
        and not call.lead
        and (dtype is None or dtype == np.float32)
        and (limit := _limit_of(*range)) is not None
    ):
        return np.array(min(_from_range(call.rng().random(), *range), limit), np.float32)
    result = _as_dtype(_from_range(call.random(extents), *range), dtype)
    if result.dtype.kind == "f":
        # Rounding to a shorter dtype may yield the upper bound.
        result = np.minimum(result, np.nextafter(result.dtype.type(range[1]), result.dtype.type(range[0])))
    return result


@functools.lru_cache(64)
def _limit_of(least: float, most: float) -> float | None:
    """Return the largest float32 below a bound; None if a bound is not near one."""
    if max(abs(least), abs(most)) >= float(np.finfo(np.float32).max):
        return None
    return float(np.nextafter(np.float32(most), np.float32(least)))


def _from_range(numbers: Any, least: float, most: float) -> Any:
    """Move numbers from [0, 1) to another range, as `numpy.random.Generator.uniform` does."""
    extent = most - least
    if not math.isfinite(extent):
        raise ArgumentError(f"range={[least, most]} is too wide: the difference of its bounds must be a finite number")
    return least + extent * numbers


@operator(
    module="random",
    random=True,
    output_layout="",
    check=_check,
    stacks=("shape_like",),
    kernel="arrays.array_kernels.coin_flip",
    kernel_for_large=True,
)
def coin_flip(
    call: OperatorCall,
    shape_like: Array | None = None,
    *,
    probability: PerSample[Annotated[float, between(0, 1)]] = 0.5,
    shape: PerSample[Annotated[Ints, at_least(0)]] | None = None,
    dtype: np.dtype[Any] | None = None,
) -> Array:
    """Draw 1 with a given probability, otherwise 0.

    Args:
        shape_like: the result has the shape of this input; its values are ignored.
        probability: probability of 1.
        shape: shape of the result. Default: a single number.
        dtype: data type of the result. Default: INT32.
    """
    extents = _shape(call, shape_like, shape)
    flips = call.random(extents) < probability
    return np.asarray(flips).astype(np.int32 if dtype is None else dtype)


@operator(module="random", random=True, output_layout="", check=_check, stacks=("shape_like",))
def normal(
    call: OperatorCall,
    shape_like: Array | None = None,
    *,
    mean: PerSample[float] = 0.0,
    stddev: PerSample[float] = 1.0,
    shape: PerSample[Annotated[Ints, at_least(0)]] | None = None,
    dtype: np.dtype[Any] | None = None,
) -> Array:
    """Draw normally distributed numbers.

    Args:
        shape_like: the result has the shape of this input; its values are ignored.
        mean: mean of the distribution.
        stddev: standard deviation of the distribution.
        shape: shape of the result. Default: a single number.
        dtype: data type of the result; integers are rounded and saturate. Default: FLOAT.
    """
    extents = _shape(call, shape_like, shape)
    return _as_dtype(mean + stddev * call.draw(lambda rng: rng.standard_normal(extents)), dtype)


@operator(module="random", random=True, output_layout="", stacks=("shape_like",))
def beta(
    call: OperatorCall,
    shape_like: Array | None = None,
    *,
    alpha: PerSample[Annotated[float, above(0)]] = 1.0,
    beta: PerSample[Annotated[float, above(0)]] = 1.0,
    shape: PerSample[Annotated[Ints, at_least(0)]] | None = None,
    dtype: Annotated[np.dtype[Any], one_of_types("float32 float64")] | None = None,
) -> Array:
    """Draw numbers from 0 to 1 that follow a beta distribution.

    Args:
        shape_like: the result has the shape of this input; its values are ignored.
        alpha, beta: parameters of the distribution.
        shape: shape of the result. Default: a single number.
        dtype: data type of the result: FLOAT, the default, or FLOAT64.
    """
    extents = _shape(call, shape_like, shape)
    return _as_dtype(call.draw(lambda rng: rng.beta(alpha, beta, extents)), dtype)


def _drawn_layout(layout: str, _: Mapping[str, Any]) -> str:
    """Return the layouts of one element and of a row of elements; the number of dimensions decides between them."""
    return f"{layout[1:]} {layout}".strip()


@operator(
    module="random",
    random=True,
    output_layout=_drawn_layout,
    check=_check,
    stacks=("shape_like",),
    kernel="arrays.array_kernels.choice",
    kernel_for_large=True,
)
def choice(
    call: OperatorCall,
    a: Array,
    shape_like: Array | None = None,
    *,
    p: PerSample[Annotated[Floats, between(0, 1)]] | None = None,
    shape: PerSample[Annotated[Ints, at_least(0)]] | None = None,
) -> Array:
    """Draw elements of an array, with replacement.

    Args:
        a: an array, whose elements along the first axis are drawn, or an integer n, to draw from 0 to n - 1.
        shape_like: the number and arrangement of drawn elements are those of this input; its values are ignored.
        p: probability of each element. Default: all equal.
        shape: number and arrangement of drawn elements. Default: one element, with the shape of an element of `a`.
    """
    lead, are_numbers = call.lead, a.ndim == call.lead
    if are_numbers and a.dtype.kind not in "iu":
        raise ArgumentError(f"a must be an integer or an array, not a number of dtype {a.dtype}")
    counts = a.reshape(-1).tolist() if are_numbers else [a.shape[lead]] * (call.count if lead else 1)
    if min(counts) <= 0:
        raise ArgumentError(f"a must have at least one element, not {min(counts)}")
    extents = _shape(call, shape_like, shape)
    left = iter(counts)  # of each sample of a stack
    if p is None:
        indices = call.draw(lambda rng: rng.integers(0, next(left), extents))
    else:
        _check_probabilities(p)
        if wrong := [count for count in counts if count != len(p)]:
            raise ArgumentError(f"p must have one probability for each of the {wrong[0]} elements, not {len(p)}")
        parts = np.array(p) / sum(p)
        indices = call.draw(lambda rng: rng.choice(next(left), extents, p=parts))
    if are_numbers:
        return np.asarray(indices, a.dtype)
    if not lead:
        return np.asarray(a[indices])
    samples = np.arange(len(a)).reshape(-1, *[1] * len(extents))
    return np.asarray(a[samples, indices])


def _as_dtype(numbers: Any, dtype: np.dtype[Any] | None) -> Array:
    """Convert float64 numbers to a dtype, FLOAT by default; integers are rounded and saturate."""
    return convert(np.asarray(numbers, np.float64), np.dtype(np.float32) if dtype is None else dtype)


_as_dtype_once = functools.lru_cache(maxsize=64)(_as_dtype)


def _shape(call: OperatorCall, shape_like: Array | None, shape: Ints | None) -> tuple[int, ...]:
    if shape_like is not None:
        if shape is not None:
            raise ArgumentClashError("shape and the input shape_like exclude each other")
        return shape_like.shape[call.lead :]
    if shape is None:
        return ()
    return shape
