"""Page-locking through PyTorch, with a stand-in for its CUDA."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from dali_like.device.pinned import PinnedMemory
from dali_like.errors import DeviceError
from dali_like.plugin.pytorch.pinning import TorchPinning

pytestmark = pytest.mark.peers


class Stream:
    def __init__(self, device: int, handle: int) -> None:
        self.device_index = device
        self.cuda_stream = handle
        self.is_done = False
        self.num_events = 0

    def record_event(self) -> Any:
        self.num_events += 1
        return SimpleNamespace(query=lambda: self.is_done, synchronize=lambda: setattr(self, "is_done", True))


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """PyTorch's CUDA, of two GPUs; the status of each call to the runtime, and what was called."""
    state = SimpleNamespace(status=0, calls=[], default=[Stream(0, 0), Stream(1, 0)], current=[Stream(0, 3), Stream(1, 0)])

    def call(name: str) -> Any:
        return lambda *args: state.calls.append((name, *args)) or state.status

    runtime = SimpleNamespace(cudaHostRegister=call("register"), cudaHostUnregister=call("unregister"))
    monkeypatch.setattr(torch.cuda, "cudart", lambda: runtime)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch._C, "_cuda_hasPrimaryContext", lambda device: True, raising=False)
    monkeypatch.setattr(torch.cuda, "default_stream", lambda device: state.default[device])
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: state.current[device])
    return state


def test_pages_are_locked_for_all_gpus(cuda: SimpleNamespace) -> None:
    pinning = TorchPinning()
    pinning.register(4096, 8192)
    pinning.unregister(4096)

    assert cuda.calls == [("register", 4096, 8192, 1), ("unregister", 4096)]


def test_a_refusal_is_said_and_not_raised(cuda: SimpleNamespace) -> None:
    cuda.status = 2
    with pytest.raises(DeviceError, match="CUDA error 2"):
        TorchPinning().register(4096, 8192)
    with pytest.warns(UserWarning, match="not page-locked"):
        PinnedMemory(TorchPinning(), fenced=True).made(4096, 8192)


def test_a_fence_is_behind_each_stream_in_use_once(cuda: SimpleNamespace) -> None:
    fence = TorchPinning().fence()

    assert fence is not None
    assert [stream.num_events for stream in cuda.default] == [1, 0]
    assert [stream.num_events for stream in cuda.current] == [1, 1]  # the second is the default one of that GPU
    cuda.default[0].is_done = cuda.current[1].is_done = True
    assert not fence.passed()
    fence.wait()
    assert fence.passed()


def test_a_fence_that_cannot_be_made_waits_for_everything(cuda: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[bool] = []
    monkeypatch.setattr(torch.cuda, "default_stream", lambda device: 1 / 0)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: waited.append(True))

    assert TorchPinning().fence() is None
    assert waited
