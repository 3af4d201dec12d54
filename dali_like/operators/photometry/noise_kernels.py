"""Kernels of operators that add noise; see `dali_like.graph.language.batch_calls`."""

from __future__ import annotations

from typing import Any

import numpy as np

from dali_like.common.kernel_library import address_of, kernels
from dali_like.graph.language.batch_calls import BatchCall, Samples
from dali_like.operators.geometry.window_kernels import each
from dali_like.operators.machinery._pixels import fill_numbers
from dali_like.operators.photometry.noises import limits_of


def salt_and_pepper(
    call: BatchCall,
    data: Samples,
    *,
    pepper_val: Any = None,
    per_channel: bool = False,
    prob: Any = 0.05,
    salt_val: Any = None,
    salt_vs_pepper: Any = 0.5,
) -> Any:
    """Serve ``fn.noise.salt_and_pepper`` where a pixel lies in one piece."""
    dtype, count = data.dtype, call.count
    if dtype.kind == "b" or not kernels().draws_agree:
        return None
    channels = 1
    if not per_channel:
        if not data.shapes.shape[1] or (call.layout and not call.layout.endswith("C")):
            return None
        channels = data.shapes[0, -1].item()
        if not channels or (data.shapes[:, -1] != channels).any():
            return None
    values = np.empty((count, 2, channels), dtype)
    for place, given, limit in zip((0, 1), (pepper_val, salt_val), limits_of(dtype), strict=True):
        if isinstance(given, list):
            values[:, place] = np.array([fill_numbers([value], dtype)[0] for value in given], dtype)[:, np.newaxis]
        else:
            values[:, place] = limit if given is None else fill_numbers([given], dtype)[0]
    parts = np.empty((count, 2))
    parts[:, 0] = each(prob, count)
    np.multiply(parts[:, 0], each(salt_vs_pepper, count), out=parts[:, 1])
    out, draws, jobs = call.place(data.shapes, dtype), call.draws(), np.empty((count, 4), np.int64)
    jobs[:, 0], jobs[:, 1], jobs[:, 2], jobs[:, 3] = (
        data.addresses,
        out.addresses,
        data.sizes // channels,
        channels * dtype.itemsize,
    )
    first, key, positions, compiled = address_of(jobs), address_of(draws.key), address_of(draws.positions), kernels()
    of_parts, of_values, step = address_of(parts), address_of(values), values.strides[0]

    def work(begin: int, stop: int) -> None:
        compiled.salt_and_pepper(
            stop - begin,
            first + 32 * begin,
            key,
            draws.epoch,
            positions + 8 * begin,
            of_parts + 16 * begin,
            of_values + step * begin,
        )

    call.share(work)
    return out.data
