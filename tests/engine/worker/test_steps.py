"""The steps that a sample takes between its callback and the batch, in Python calls: a bound for each way of samples.

Sources that are not parallel run the code of workers in this process.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from benchmarks.adapters import is_installed
from dali_like import Pipeline, fn

IMAGES = np.zeros((8, 28, 28), np.uint8)
LABELS = np.arange(8, dtype=np.int32)[:, np.newaxis]


def alike(info: Any) -> Any:
    return IMAGES[info.idx_in_epoch % 8], LABELS[info.idx_in_epoch % 8]


def ragged(info: Any) -> Any:
    return IMAGES[0, : 1 + info.idx_in_epoch % 8], LABELS[info.idx_in_epoch % 8]


def random(info: Any) -> Any:
    info.rng()
    return IMAGES[0], LABELS[0]


async def later(info: Any) -> Any:
    return alike(info)


def tensors(info: Any) -> Any:
    import torch  # type: ignore[import-not-found, unused-ignore]  # an optional library

    return torch.zeros(3), torch.zeros(1)


def calls_of_a_batch(source: Callable[[Any], Any], batch_size: int) -> int:
    """Return the Python calls of a batch, in a pipeline that has settled."""
    with Pipeline(batch_size) as pipe:
        pipe.set_outputs(*fn.external_source(source, num_outputs=2, batch=False))
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    try:
        for _ in range(5):
            pipe.run()
        least = sys.maxsize
        for _ in range(3):  # some batches are measured call by call
            calls = 0
            sys.setprofile(count)
            try:
                pipe.run()
            finally:
                sys.setprofile(None)
            least = min(least, calls)
        return least
    finally:
        pipe.close()


@pytest.mark.parametrize(
    ("source", "most"),
    [
        pytest.param(alike, 1, id="the callback alone"),
        pytest.param(ragged, 2, id="of several shapes: the callback, and the copy"),
        pytest.param(later, 7, id="a coroutine: the callback, the copy, and the bookkeeping of its task"),
        pytest.param(random, 7, id="with a random generator"),
        pytest.param(
            tensors,
            2,
            id="tensors: the callback, and the view of their memory",
            marks=pytest.mark.skipif(not is_installed("torch"), reason="needs torch"),
        ),
    ],
)
def test_a_sample_takes_few_python_calls(source: Callable[[Any], Any], most: int) -> None:
    calls = calls_of_a_batch(source, 192) - calls_of_a_batch(source, 64)

    assert calls <= most * 128 + 16
