"""The workloads: samples as functions of their index, shared by all systems.

A sample is an array of uint8, and the index itself as a label of one int32. The array is created for every sample and filled
with a value that depends on the index. Its pages are really written, and `check_batch` can verify that the consumer got the
right samples.

Limitation: a label of one element favors torch, whose ``default_collate`` is slower with arrays of no dimension. A label
that is a Python int would be even faster, but then the systems would not do the same work.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["WORKERS", "WORKLOADS", "Array", "Sample", "WrongBatchError", "Workload", "check_batch"]

Array: TypeAlias = NDArray[Any]
Sample: TypeAlias = tuple[Array, Array]

WORKERS = 2
SLEEP_S = 0.010
ENCODED_MIN_BYTES = 20_000
ENCODED_MAX_BYTES = 200_000
LARGE_BYTES = 64_000_000
LABEL_BYTES = 4


class WrongBatchError(Exception):
    """A system returned something else than the samples in their order."""


def tiny(index: int) -> Sample:
    """28 x 28 uint8: the cost per sample dominates."""
    return np.full((28, 28), index % 251, np.uint8), np.array([index], np.int32)


def image(index: int) -> Sample:
    """224 x 224 x 3 uint8: the cost per byte dominates."""
    return np.full((224, 224, 3), index % 251, np.uint8), np.array([index], np.int32)


def encoded(index: int) -> Sample:
    """20 to 200 KB, like encoded images: samples of different sizes."""
    hashed = index * 2_654_435_761 % 2**32  # Knuth's multiplicative hash: evenly distributed, the same everywhere
    size = ENCODED_MIN_BYTES + (hashed * (ENCODED_MAX_BYTES - ENCODED_MIN_BYTES) >> 32)
    return np.full(size, index % 251, np.uint8), np.array([index], np.int32)


def fill_image(index: int, row: Array) -> None:
    """Fill existing memory with the array of `image`."""
    row.fill(index % 251)


def large(index: int) -> Sample:
    """64 MB: a copy costs as much as creating the array."""
    return np.full(LARGE_BYTES, index % 251, np.uint8), np.array([index], np.int32)


def slow(index: int) -> Sample:
    """A tiny sample after a wait of 10 ms: shows how a batch is split between the workers."""
    time.sleep(SLEEP_S)
    return tiny(index)


@dataclass(frozen=True, kw_only=True)
class Workload:
    """One workload.

    ``make`` is the callback. ``expected`` gives the same sample without waiting. ``fill``, if given, creates the array in
    the batch's memory, for systems that pass it to the callback. ``part`` is the measured part of a loader's life: "steady"
    after warm-up, "cold" from the first batch on, "startup" up to the first batch.
    """

    name: str
    batch_size: int
    make: Callable[[int], Sample]
    expected: Callable[[int], Sample]
    mean_sample_bytes: int
    max_sample_bytes: int
    part: Literal["steady", "cold", "startup"] = "steady"
    start_method: Literal["fork", "spawn"] = "fork"
    ragged: bool = False
    fill: Callable[[int, Array], None] | None = None


_TINY_BYTES = 28 * 28
_IMAGE_BYTES = 224 * 224 * 3

WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload(
            name="tiny",
            batch_size=256,
            make=tiny,
            expected=tiny,
            mean_sample_bytes=_TINY_BYTES + LABEL_BYTES,
            max_sample_bytes=_TINY_BYTES,
        ),
        Workload(
            name="image",
            batch_size=64,
            make=image,
            expected=image,
            mean_sample_bytes=_IMAGE_BYTES + LABEL_BYTES,
            max_sample_bytes=_IMAGE_BYTES,
        ),
        Workload(
            name="in_place",
            batch_size=64,
            make=image,
            expected=image,
            mean_sample_bytes=_IMAGE_BYTES + LABEL_BYTES,
            max_sample_bytes=_IMAGE_BYTES,
            fill=fill_image,
        ),
        Workload(
            name="large",
            batch_size=4,
            make=large,
            expected=large,
            mean_sample_bytes=LARGE_BYTES + LABEL_BYTES,
            max_sample_bytes=LARGE_BYTES,
        ),
        Workload(
            name="encoded",
            batch_size=64,
            make=encoded,
            expected=encoded,
            mean_sample_bytes=(ENCODED_MIN_BYTES + ENCODED_MAX_BYTES) // 2 + LABEL_BYTES,
            max_sample_bytes=ENCODED_MAX_BYTES,
            ragged=True,
        ),
        Workload(
            name="slow",
            batch_size=64,
            make=slow,
            expected=tiny,
            mean_sample_bytes=_TINY_BYTES + LABEL_BYTES,
            max_sample_bytes=_TINY_BYTES,
            part="cold",
        ),
        Workload(
            name="startup",
            batch_size=256,
            make=tiny,
            expected=tiny,
            mean_sample_bytes=_TINY_BYTES + LABEL_BYTES,
            max_sample_bytes=_TINY_BYTES,
            part="startup",
            start_method="spawn",
        ),
    )
}


def check_batch(workload: Workload, batch: Sequence[Sample], first_index: int) -> None:
    """Compare every byte of a batch with the callback's result; `WrongBatchError` names the wrong sample."""
    if len(batch) != workload.batch_size:
        raise WrongBatchError(f"{workload.name}: a batch has {len(batch)} samples, expected {workload.batch_size}")
    for index, (array, label) in enumerate(batch, start=first_index):
        expected_array, expected_label = workload.expected(index)
        if int(label.item()) != int(expected_label.item()):
            raise WrongBatchError(f"{workload.name}: sample {index} has the label {label.item()}")
        if not np.array_equal(array, expected_array):
            raise WrongBatchError(f"{workload.name}: sample {index} differs from the callback's result")
