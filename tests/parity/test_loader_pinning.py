"""PyTorch's tensors in page-locked slots, which the stand-in for a GPU locks and reads."""

from __future__ import annotations

import ctypes
import functools
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from dali_like.plugin.pytorch import DataLoader
from dali_like.plugin.pytorch.tensor_backend import TorchBackend
from dali_like.testing.simulated_device import DEFAULT_STREAM, SimulatedDevice

pytestmark = pytest.mark.peers

SIDE = 256  # so that tensors are large enough to lie in slots


class Numbers(torch.utils.data.Dataset[Any]):
    """Samples that are full of their number, and a label."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        return np.full((SIDE, SIDE), index, np.uint8), index


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimulatedDevice]:
    """A machine with a GPU, as far as loaders look."""
    device = SimulatedDevice()
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(TorchBackend, "pinning", lambda self: device)
    monkeypatch.setattr(TorchBackend, "pin", lambda self, batch: batch)
    yield device
    assert not device.faults
    assert not device.registered


def load(pin_memory: Any = True, **options: Any) -> DataLoader[Any]:
    return DataLoader(Numbers(), batch_size=2, num_workers=1, prefetch_factor=2, pin_memory=pin_memory, **options)


def is_locked(tensor: torch.Tensor, device: SimulatedDevice) -> bool:
    begin = tensor.data_ptr()
    return any(start <= begin < start + nbytes for start, nbytes in device.registered.items())


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_tensors_lie_in_locked_slots(method: str, gpu: SimulatedDevice) -> None:
    seen = [is_locked(images, gpu) for images, _ in load(multiprocessing_context=method)]

    assert len(seen) == 32
    assert sum(seen) >= 24  # but the first ones, before the shapes of samples are known
    assert gpu.num_registrations <= 16


def test_a_held_tensor_stays_locked_after_the_pass(gpu: SimulatedDevice) -> None:
    *_, (images, labels) = load()

    assert is_locked(images, gpu)
    assert labels.tolist() == [62, 63]


@pytest.mark.parametrize("options", [{"pin_memory": "copy"}, {"pin_memory": False}])
def test_slots_are_locked_only_where_that_is_asked_for(options: dict[str, Any], gpu: SimulatedDevice) -> None:
    assert len(list(load(**options))) == 32
    assert not gpu.num_registrations


def test_pin_memory_copy_uses_pytorchs_copy(gpu: SimulatedDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(TorchBackend, "pin", lambda self, batch: seen.append(batch) or batch)

    batches = list(load("copy"))

    assert [images.data_ptr() for images, _ in seen] == [images.data_ptr() for images, _ in batches]


def copies_of_dropped_tensors(gpu: SimulatedDevice, stream: int) -> tuple[list[int], list[int]]:
    """Run a loop that copies each tensor on a stream, behind a long kernel, and drops it; return tensors and copies."""
    were: list[int] = []
    copied: list[int] = []

    def copy(address: int) -> None:
        copied.append(ctypes.string_at(address, 1)[0])

    batches = iter(load())
    for images, labels in itertools.islice(batches, 31):
        gpu.current_stream = stream  # as in `with torch.cuda.stream(...)`
        gpu.launch(lambda: None, stream)
        if is_locked(images, gpu):  # else PyTorch would have a copy of its own
            gpu.launch(functools.partial(copy, images.data_ptr()), stream)
            were.append(int(labels[0]))
        del images
        gpu.current_stream = DEFAULT_STREAM
    gpu.run(stream)
    assert len(list(batches)) == 1
    return were, copied


@pytest.mark.parametrize("other", [False, True], ids=["default stream", "other stream"])
def test_a_tensor_dropped_behind_a_long_kernel_is_copied_as_it_was(other: bool, gpu: SimulatedDevice) -> None:
    were, copied = copies_of_dropped_tensors(gpu, gpu.make_stream() if other else DEFAULT_STREAM)

    assert copied == were
    assert len(were) >= 24


def test_slots_are_used_again_when_the_gpu_keeps_up(gpu: SimulatedDevice) -> None:
    for images, _ in load():
        gpu.launch(lambda: None)
        del images
        gpu.run(0)

    assert gpu.num_registrations <= 8


def test_without_cuda_nothing_is_locked() -> None:
    assert torch.cuda.is_available() or TorchBackend().pinning() is None
