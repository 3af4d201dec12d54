"""The benchmarks of DataLoaders measure the real torch."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

pytest.importorskip("torch")

from benchmarks.loader.datasets import Large, OneSlow, Slow
from benchmarks.loader.run_one import measure
from benchmarks.loader.workloads import WORKLOADS

SLOW_S = 0.5


STEADY = ["tiny", "image", "tiny_tensors", "dict", "dict_tensors", "collate", "augment"]


@pytest.mark.parametrize("name", [*STEADY, "restart_fork", "restart_fork_persistent"])
def test_batches_of_torch_pass_the_checks(name: str) -> None:
    measurement = measure("torch", WORKLOADS[name], seconds=0.01, repeat=0)

    assert measurement.first_batch_s


def test_a_batch_takes_torch_as_long_as_all_its_samples() -> None:
    workload = replace(WORKLOADS["slow"], make_dataset=partial(Slow, sample_s=0.002))

    measurement = measure("torch", workload, seconds=0.01, repeat=0)

    assert measurement.first_batch_s is not None
    assert measurement.first_batch_s >= 64 * 0.002


def test_torch_leaves_a_batch_behind_the_slow_sample() -> None:
    slow = partial(OneSlow, 80, slow_index=9, slow_s=SLOW_S)
    workload = replace(WORKLOADS["slow_sample"], make_dataset=slow)

    measurement = measure("torch", workload, seconds=0.01, repeat=0)

    assert measurement.longest_wait_s is not None
    assert measurement.longest_wait_s > SLOW_S / 2


def test_the_copies_of_spawned_workers_are_counted() -> None:
    large_bytes = 200_000_000
    workload = replace(WORKLOADS["large"], workers=1, make_dataset=partial(Large, 10_000, large_bytes // 10_000))

    measurement = measure("torch", workload, seconds=0.01, repeat=0)

    assert measurement.added_bytes is not None
    assert measurement.added_bytes > large_bytes
