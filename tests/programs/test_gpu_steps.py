"""The tests and steps for a real GPU, with a stand-in for CuPy: they run without errors of their own, and find defects."""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks.gpu import cases, memory_steps
from benchmarks.gpu.access import Gpu
from dali_like.device.cuda import CudaDevice
from dali_like.device.opening import substitute
from tests.cupy_arrays import CupyWithArrays
from tests.gpu import gates

NAME = "tests.gpu.test_pipelines"


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Iterator[CupyWithArrays]:
    module = CupyWithArrays()
    monkeypatch.setitem(sys.modules, "cupy", module)
    monkeypatch.setattr("dali_like.device.cuda.driver", lambda: module.driver)
    monkeypatch.setattr(gates, "accelerator_is_available", lambda: True)
    with substitute(CudaDevice):
        yield module
    gc.collect()
    assert not module.libcuda.registered
    assert not module.num_overrun


@pytest.fixture
def tests_of_pipelines(cupy: CupyWithArrays, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.delitem(sys.modules, NAME, raising=False)
    module = importlib.import_module(NAME)
    monkeypatch.setitem(sys.modules, NAME, module)  # removed again after the test
    return module


@pytest.mark.parametrize(
    "name",
    [
        "test_memory_is_not_used_again_while_a_kernel_that_reads_it_waits",
        "test_a_stream_of_the_users_waits_for_the_batch",
        "test_scheduled_batches_are_waited_for",
        "test_copies_to_an_address_and_scattered_samples",
        "test_arrays_on_the_gpu_are_taken_in",
    ],
)
def test_tests_of_pipelines(name: str, tests_of_pipelines: Any) -> None:
    getattr(tests_of_pipelines, name)()


def test_step_arrays(cupy: CupyWithArrays) -> None:
    assert memory_steps.arrays(Gpu(), 1.0) == {"kinds of arrays": 5}


def test_step_shut_gate(cupy: CupyWithArrays) -> None:
    gpu = Gpu()
    gpu.most_copy_us = 1e7
    assert memory_steps.shut_gate(gpu, 1.0)["median us"] > 0


def test_step_registration(cupy: CupyWithArrays, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_steps, "REGISTERED_MIB", (1,))
    monkeypatch.setattr(memory_steps.resource, "setrlimit", lambda *_: None)

    assert "1 MiB behind a kernel, lock ms" in memory_steps.registration(Gpu(), 1.0)
    cupy.num_overrun = 0  # the delays are gates that open by themselves


def test_step_copy(cupy: CupyWithArrays, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cases, "COPY_SIZES", (1,))
    assert cases.copy(1e-6)["1 images, ratio"] > 0
