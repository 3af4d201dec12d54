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
    "flip": (lambda: ndd.flip(IMAGE), 34),
    "crop": (lambda: ndd.crop(IMAGE, crop=(4, 4)), 35),
    "brightness": (lambda: ndd.brightness(IMAGE, brightness=1.5), 45),
    "crop_mirror_normalize": (lambda: ndd.crop_mirror_normalize(IMAGE, crop=(4, 4), mean=[1.0, 2.0, 3.0]), 52),
    "resize": (lambda: ndd.resize(IMAGE, size=(4, 4)), 130),
    "cast": (lambda: ndd.cast(IMAGE, dtype=ndd.float32), 30),
    "transpose": (lambda: ndd.transpose(IMAGE, perm=[2, 0, 1]), 33),
    "cat": (lambda: ndd.cat(IMAGE, IMAGE, axis=0), 41),
    "coin_flip": (lambda: ndd.random.coin_flip(rng=RNG), 71),
    "uniform": (lambda: ndd.random.uniform(range=[0, 1], rng=RNG), 88),
    "mean": (lambda: ndd.reductions.mean(IMAGE), 50),
    "addition": (lambda: IMAGE + 1, 54),
    "index": (lambda: IMAGE[0], 45),
}


def count_of(call: Callable[[], Any]) -> int:
    """Return the number of function calls in this thread, after one call that fills caches."""
    call()
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
    return count


@pytest.mark.parametrize("name", CALLS)
def test_calls(name: str) -> None:
    call, most = CALLS[name]

    assert count_of(call) <= most


def images(size: int) -> ndd.Batch:
    return ndd.as_batch(np.zeros((size, 8, 8, 3), np.uint8), layout="HWC")


@pytest.mark.parametrize(
    "compute",
    [
        lambda batch: ndd.cast(batch, dtype=ndd.float32),
        ndd.flip,
        lambda batch: ndd.crop_mirror_normalize(batch, mean=[1.0], std=[2.0]),
        lambda batch: batch * 2.5 + 1,
        lambda batch: batch[2:5, 0],
    ],
    ids=["cast", "flip", "crop_mirror_normalize", "arithmetic", "index"],
)
def test_a_batch_of_alike_samples_takes_few_calls_at_any_size(compute: Callable[[ndd.Batch], Any]) -> None:
    few, many = images(8), images(256)
    with ndd.EvalContext(num_threads=1):
        least = count_of(lambda: compute(few))

        assert count_of(lambda: compute(many)) < 2 * least


def test_results_that_are_in_use_are_never_overwritten() -> None:
    batch = ndd.as_batch(np.zeros((64, 40, 40), np.float32))
    kept = [batch + i for i in range(20)]
    views = [np.asarray(made)[3] for made in kept[:10]]
    del kept[:10]
    others = [batch + 100 for _ in range(20)]

    assert [float(view[0, 0]) for view in views] == [*range(10)]
    assert all((np.asarray(made) == i).all() for i, made in enumerate(kept, 10))
    assert all((np.asarray(made) == 100).all() for made in others)
