"""Page-locking for PyTorch's loader, with stand-ins for PyTorch's CUDA and CUDA's driver."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from dali_like.device.pinned import PinnedMemory
from dali_like.errors import DeviceError
from dali_like.plugin.pytorch import pinning
from dali_like.plugin.pytorch.pinning import TorchPinning
from dali_like.testing.simulated_device import SimulatedStream
from tests.cupy_stand_in import DriverStandIn, driver_of

pytestmark = pytest.mark.peers

SIDE_STREAM = 3


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> DriverStandIn:
    """CUDA on a machine with two GPUs; the process uses the second. There, PyTorch works on a side stream."""
    driver = DriverStandIn()
    driver.contexts.add(1)
    driver.streams[SIDE_STREAM] = SimulatedStream(driver.lock)
    monkeypatch.setattr(pinning, "driver", lambda: driver_of(driver))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: SimpleNamespace(cuda_stream=SIDE_STREAM))
    return driver


def test_pages_are_locked_without_a_context_on_another_gpu(cuda: DriverStandIn) -> None:
    locking = TorchPinning()
    locking.register(4096, 8192)
    assert cuda.registered == {4096: 8192}

    assert locking.unregister(4096)
    assert not cuda.registered
    assert cuda.contexts == {1}


def test_pages_are_locked_on_the_current_gpu_without_a_context_in_use(cuda: DriverStandIn) -> None:
    cuda.contexts.clear()
    TorchPinning().register(4096, 8192)

    assert cuda.contexts == {0}


def test_a_refusal_is_said_and_not_raised(cuda: DriverStandIn) -> None:
    cuda.refuses = 2
    with pytest.raises(DeviceError, match=r"CUDA_ERROR_OUT_OF_MEMORY \(2\)"):
        TorchPinning().register(4096, 8192)
    with pytest.warns(UserWarning, match="not page-locked"):
        PinnedMemory(TorchPinning(), fenced=True).made(4096, 8192)


@pytest.mark.parametrize(("status", "is_unlocked"), [(0, True), (713, True), (700, True), (1, False), (900, False)])
def test_pages_that_cuda_keeps_are_not_unlocked(status: int, is_unlocked: bool, cuda: DriverStandIn) -> None:
    locking = TorchPinning()
    locking.register(4096, 8192)
    cuda.refuses_to_unlock = status

    assert locking.unregister(4096) is is_unlocked


@pytest.mark.parametrize("stream", [0, SIDE_STREAM])
def test_a_fence_is_behind_each_stream_in_use(stream: int, cuda: DriverStandIn) -> None:
    done: list[bool] = []
    cuda.streams[stream].put(lambda: done.append(True))
    fence = TorchPinning().fence()

    assert not fence.passed()
    fence.wait()
    assert fence.passed()
    assert done
    assert cuda.contexts == {1}


def test_a_stream_that_captures_a_graph_is_left_alone(cuda: DriverStandIn) -> None:
    cuda.streams[0].put(lambda: None)
    cuda.capturing.add(SIDE_STREAM)
    fence = TorchPinning().fence()

    assert not fence.passed()
    cuda.streams[0].run_to(None)
    assert fence.passed()
    TorchPinning().register(4096, 8192)
    assert not cuda.is_invalid
    assert cuda.capturing == {SIDE_STREAM}


def test_a_fence_that_cannot_be_made_waits_for_everything(cuda: DriverStandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[bool] = []
    cuda.streams[SIDE_STREAM].put(lambda: done.append(True))
    monkeypatch.setattr(cuda, "cuEventRecord", lambda event, stream: 2)

    assert TorchPinning().fence().passed()
    assert done


def test_a_gpu_that_has_failed_ends_all_fences(cuda: DriverStandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    fence: Any = TorchPinning().fence()
    monkeypatch.setattr(cuda, "cuEventQuery", lambda event: 719)

    assert fence.passed()
    assert isinstance(fence.error, DeviceError)
