"""Numbers of one type as numbers of another one, as `fn.cast` and all operators with a ``dtype`` do it in DALI.

Numbers that are too large or too small become the largest or least of the type. Fractions are rounded to the nearest
integer, halves away from zero. Of NaN, integers become 0. True is whatever is not 0, after rounding.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dali_like.graph.operators import Array


def convert(array: Array, dtype: np.dtype[Any], out: Array | None = None) -> Array:
    """The array with another type.

    Args:
        out: memory for the result. Without it, the array itself if it is of that type.
    """
    if array.dtype == dtype and out is None:
        return array
    if out is None:
        out = np.empty(array.shape, dtype)
    with np.errstate(invalid="ignore", over="ignore"):
        if array.dtype.kind == "f" and dtype.kind != "f":
            _convert_to_integers(array, out)
        elif array.dtype.kind in "iu" and dtype.kind in "iu":
            np.copyto(out, _limited(array, dtype), casting="unsafe")
        else:
            np.copyto(out, array, casting="unsafe")
    return out


def _convert_to_integers(array: Array, out: Array) -> None:
    array = array.astype(np.float32) if array.dtype == np.float16 else array
    # What remains of this without the fraction is the nearest integer, whatever the sum is rounded to.
    near = np.copysign(np.nextafter(array.dtype.type(0.5), array.dtype.type(0)), array)
    near += array
    if out.dtype.kind == "b":
        np.not_equal(np.trunc(near, out=near), 0, out=out)
    elif np.iinfo(out.dtype).bits <= np.finfo(array.dtype).nmant:
        _convert_limited(near, out)
    else:
        _convert_to_wide_integers(np.trunc(near, out=near), out)


def _convert_limited(near: Array, out: Array) -> None:
    """To integers that all are floating-point numbers of the array's type."""
    limits, dtype = np.iinfo(out.dtype), near.dtype.type
    unknown = np.isnan(near) if limits.min else np.False_
    np.fmax(near, dtype(limits.min), out=near)  # which makes that of NaN
    np.copyto(out, np.fmin(near, dtype(limits.max), out=near), casting="unsafe")
    np.copyto(out, 0, where=unknown)


def _convert_to_wide_integers(rounded: Array, out: Array) -> None:
    limits = np.iinfo(out.dtype)
    least, beyond = float(limits.min), float(limits.max) + 1  # both are floating-point numbers of any type
    np.copyto(out, np.where((rounded > least) & (rounded < beyond), rounded, 0), casting="unsafe")
    np.copyto(out, limits.min, where=rounded <= least)
    np.copyto(out, limits.max, where=rounded >= beyond)


def _limited(array: Array, dtype: np.dtype[Any]) -> Array:
    ours, theirs = np.iinfo(array.dtype), np.iinfo(dtype)
    least, most = max(ours.min, theirs.min), min(ours.max, theirs.max)
    return array if (least, most) == (ours.min, ours.max) else np.clip(array, least, most)
