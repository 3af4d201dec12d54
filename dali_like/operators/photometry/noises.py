"""Operators that add noise, as in ``nvidia.dali.fn.noise``. The distributions are DALI's; the numbers differ."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from dali_like.errors import SampleError
from dali_like.graph.language.operator_interface import Array, OperatorCall
from dali_like.operators.machinery._pixels import fill_numbers
from dali_like.operators.machinery.conversion import convert
from dali_like.operators.machinery.description import operator
from dali_like.operators.parameters import FINITE, PerSample, between

#: Larger expected counts vary by less than single precision shows, and NumPy cannot draw them.
_MOST_EVENTS = 1e18


@operator(module="noise", random=True, strided=True)
def gaussian(call: OperatorCall, data: Array, *, mean: PerSample[float] = 0.0, stddev: PerSample[float] = 1.0) -> Array:
    """Add normally distributed noise.

    Args:
        data: any dtype; integers are rounded and saturate.
        mean: mean of the noise.
        stddev: standard deviation of the noise.
    """
    _check_numbers(data)
    precision = np.float64 if data.dtype.itemsize >= 4 and data.dtype != np.float32 else np.float32
    noise: Array = np.asarray(call.rng().standard_normal(data.shape, precision))
    noise *= precision(stddev)
    noise += precision(mean)
    noise += data
    return convert(noise, data.dtype, call.empty(data.shape, data.dtype))


@operator(
    module="noise",
    random=True,
    strided=True,
    kernel="photometry.noise_kernels.salt_and_pepper",
    kernel_for_large=True,
)
def salt_and_pepper(
    call: OperatorCall,
    data: Array,
    *,
    pepper_val: PerSample[float] | None = None,
    per_channel: bool = False,
    prob: PerSample[Annotated[float, between(0, 1)]] = 0.05,
    salt_val: PerSample[float] | None = None,
    salt_vs_pepper: PerSample[Annotated[float, between(0, 1)]] = 0.5,
) -> Array:
    """Replace some pixels by two values, "salt" and "pepper".

    Args:
        data: any dtype. Without a layout, the channels are the last dimension.
        pepper_val: value of pepper. Default: the smallest number of the dtype, or -1 for floats.
        per_channel: whether to replace single elements; otherwise all channels of a pixel are replaced together.
        prob: probability of a replacement.
        salt_val: value of salt. Default: the largest number of the dtype, or 1 for floats.
        salt_vs_pepper: probability that a replacement is salt.
    """
    _check_numbers(data)
    least, most = limits_of(data.dtype)
    pepper = least if pepper_val is None else fill_numbers([pepper_val], data.dtype)[0]
    salt = most if salt_val is None else fill_numbers([salt_val], data.dtype)[0]
    numbers = np.asarray(call.rng().random(data.shape if per_channel else _shape_of_pixels(call.layout, data.shape)))
    out = call.empty(data.shape, data.dtype)
    np.copyto(out, data)
    np.copyto(out, pepper, where=numbers < prob)
    np.copyto(out, salt, where=numbers < prob * salt_vs_pepper)
    return out


def limits_of(dtype: np.dtype[Any]) -> tuple[int, int]:
    """Return the default values of pepper and salt."""
    return (-1, 1) if dtype.kind == "f" else (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))


def _shape_of_pixels(layout: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape with a single channel."""
    if layout and "C" not in layout:
        raise SampleError(f"the layout {layout!r} has no channels; pass per_channel=True to replace single elements")
    channels = layout.index("C") if layout else len(shape) - 1
    return tuple(1 if axis == channels else extent for axis, extent in enumerate(shape))


@operator(module="noise", random=True, strided=True)
def shot(call: OperatorCall, data: Array, *, factor: PerSample[Annotated[float, FINITE]] = 12.0) -> Array:
    """Replace elements by Poisson-distributed multiples of a factor, as an image sensor that counts photons.

    The mean of the distribution is the element, and its variance is the element times the factor. Negative elements become
    zero.

    Args:
        data: any dtype; integers are rounded and saturate.
        factor: value of a single event; 0: no noise. The default is the one that DALI uses, not that of its documentation.
    """
    _check_numbers(data)
    out = call.empty(data.shape, data.dtype)
    if factor == 0:
        np.copyto(out, data)
        return out
    expected = np.asarray(np.maximum(data.astype(np.float64) / factor, 0))
    is_countable = expected <= _MOST_EVENTS
    counts = call.rng().poisson(np.where(is_countable, expected, 0))
    return convert(np.asarray(np.where(is_countable, counts, expected) * factor), data.dtype, out)


def _check_numbers(data: Array) -> None:
    if data.dtype.kind == "b":
        raise SampleError("noise can be added to numbers, not to data of dtype bool; convert it with fn.cast")
