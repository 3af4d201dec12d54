"""Noise: the same in threads and in workers, different for each sample and epoch. tests/parity has the distributions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dali_like import fn
from dali_like.errors import SampleError
from tests.operators.running import run

DATA = [np.full((20, 30, 3), 100, np.uint8)] * 3


def noisy(data: Any) -> Any:
    return fn.noise.gaussian(data, stddev=20.0), fn.noise.salt_and_pepper(data, prob=0.5), fn.noise.shot(data, factor=2.0)


def test_noise_depends_on_the_sample_alone() -> None:
    threads, workers = (run(noisy, DATA, layouts=["HWC"], way=way, iterations=2) for way in ("threads", "workers"))

    for ours, theirs in zip(threads, workers, strict=True):
        for one, other in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(one, other)
    for kind in range(3):
        samples = [sample.tobytes() for batch in threads for sample in batch[kind]]
        assert len(set(samples)) == len(samples)


def test_pixels_need_channels() -> None:
    with pytest.raises(SampleError, match="the layout 'HW' has no channels; pass per_channel=True"):
        run(fn.noise.salt_and_pepper, [np.zeros((4, 5), np.uint8)], layouts=["HW"])
