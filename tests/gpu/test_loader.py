"""PyTorch's loader with page-locked slots."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.gpu import gates

cupy: Any = gates.cuda()
torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")
if not torch.cuda.is_available():
    pytest.skip("this PyTorch has no CUDA", allow_module_level=True)

from dali_like.plugin.pytorch import DataLoader  # noqa: E402

SIDE = 512


class Numbers(torch.utils.data.Dataset):  # type: ignore[misc]
    def __len__(self) -> int:
        return 128

    def __getitem__(self, index: int) -> Any:
        return np.full((SIDE, SIDE), index, np.uint8), index


def load(pin_memory: Any = True, **options: Any) -> Any:
    return DataLoader(Numbers(), batch_size=4, num_workers=2, pin_memory=pin_memory, **options)


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("pin_memory", [True, "copy"])
def test_all_tensors_are_pinned(pin_memory: Any, method: str) -> None:
    for images, labels in load(pin_memory, multiprocessing_context=method):
        assert images.is_pinned()
        assert labels.is_pinned()


def test_tensors_lie_in_the_slots_and_are_not_copied() -> None:
    addresses = [images.data_ptr() for images, _ in load()]

    assert len(set(addresses[4:])) < 20


@pytest.mark.parametrize("other_stream", [False, True])
def test_a_tensor_dropped_behind_a_long_kernel_is_copied_as_it_was(other_stream: bool) -> None:
    stream = torch.cuda.Stream() if other_stream else torch.cuda.default_stream()
    batches = iter(load(prefetch_factor=4))
    for _ in range(6):
        next(batches)
    copies = []
    with torch.cuda.stream(stream):
        torch.cuda.synchronize()
        gate = gates.Gate(cupy, gates.stream_of(cupy, stream.cuda_stream))
        for _ in range(20):
            images, labels = next(batches)
            copies.append((images.to("cuda", non_blocking=True), labels.tolist()))
            del images
        assert gate.is_shut
        gate.open()

        for copy, numbers in copies:
            assert copy[:, 0, 0].tolist() == copy[:, -1, -1].tolist() == numbers
    assert len(list(batches)) == 6
