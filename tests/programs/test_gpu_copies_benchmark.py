"""The benchmark of copies to a GPU, as far as it needs none."""

from __future__ import annotations

import pytest

from benchmarks.gpu.cases import locked_images
from dali_like.device.pinned import PinnedMemory
from dali_like.engine.memory.space import SharedSpace
from dali_like.testing.simulated_device import SimulatedDevice


def test_copies_are_measured_from_locked_memory_only() -> None:
    device = SimulatedDevice()
    space = SharedSpace.create(1 << 24)
    space.observer = PinnedMemory(device, fenced=False)

    _, images = locked_images(space, 2)
    assert images.__array_interface__["data"][0] in device.registered

    device.refuses_to_lock = True
    with pytest.warns(UserWarning, match="not page-locked"), pytest.raises(RuntimeError, match="pageable"):
        locked_images(space, 2)
