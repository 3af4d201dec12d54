"""The cost of calls on one small sample, in function calls instead of seconds: those do not depend on the machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dali_like.experimental.dynamic as ndd

IMAGE = ndd.as_tensor(np.arange(8 * 8 * 3, dtype=np.uint8).reshape(8, 8, 3), layout="HWC")
RNG = ndd.random.RNG(seed=1)

#: At most so many function calls, of Python and of C, about a tenth more than now. A microsecond has about ten.
CALLS: dict[str, tuple[Callable[[], Any], int]] = {
    "flip": (lambda: ndd.flip(IMAGE), 80),
    "crop": (lambda: ndd.crop(IMAGE, crop=(4, 4)), 80),
    "brightness": (lambda: ndd.brightness(IMAGE, brightness=1.5), 90),
    "crop_mirror_normalize": (lambda: ndd.crop_mirror_normalize(IMAGE, crop=(4, 4), mean=[1.0, 2.0, 3.0]), 101),
    "resize": (lambda: ndd.resize(IMAGE, size=(4, 4)), 125),
    "cast": (lambda: ndd.cast(IMAGE, dtype=ndd.float32), 80),
    "transpose": (lambda: ndd.transpose(IMAGE, perm=[2, 0, 1]), 78),
    "cat": (lambda: ndd.cat(IMAGE, IMAGE, axis=0), 91),
    "coin_flip": (lambda: ndd.random.coin_flip(rng=RNG), 72),
    "uniform": (lambda: ndd.random.uniform(range=[0, 1], rng=RNG), 92),
    "mean": (lambda: ndd.reductions.mean(IMAGE), 84),
    "addition": (lambda: IMAGE + 1, 68),
    "index": (lambda: IMAGE[0], 77),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls(name: str) -> None:
    call, most = CALLS[name]
    call()  # fills caches
    count = 0

    def profile(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(before)
    assert count <= most
