"""The measurements of actors come with their results."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dali_like import Pipeline

pytestmark = pytest.mark.usefixtures("cluster")


def sleepy(info: Any) -> Any:
    """Sample 5 takes long, the others a little."""
    time.sleep(0.05 if info.idx_in_epoch == 5 else 0.001)
    return np.full((10, 10), info.idx_in_epoch % 251, np.uint8)


def test_callbacks_and_workers_are_measured(make_pipeline: Callable[..., Pipeline]) -> None:
    pipe = make_pipeline(sleepy, "ray", workers=2)
    for _ in range(12):
        pipe.run()
    statistics = pipe.statistics(memory=True)
    [source] = statistics.sources

    assert source.callback.count >= 48
    assert source.callback.median_s >= 0.0009
    assert 5 in [call.sample for call in source.slowest]  # on a busy machine others may be as slow
    assert 0 < source.callback_s <= source.busy_s
    assert source.cpu_s < source.busy_s / 2
    assert sum(worker.tasks for worker in statistics.workers) >= 24
    assert all(0 <= worker.busy_s <= worker.alive_s for worker in statistics.workers)
    assert statistics.memory is not None
    assert statistics.memory.worker_bytes == ()  # they may be anywhere
    assert str(pipe.report()).count("workers: 2 (ray)") == 1
