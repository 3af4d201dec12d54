"""Reuse of page-locked memory that users see, and of memory of a simulated GPU."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from dali_like.device.device_memory import DeviceMemory
from dali_like.device.pinned import PinnedMemory
from dali_like.engine.memory.protocol import DTYPE_CODES
from dali_like.engine.memory.ring import Lease, Ring
from dali_like.engine.memory.slot_layout import OutputSchema, SlotLayout
from dali_like.engine.memory.space import SharedSpace
from dali_like.graph.execution.buffers import BufferPool
from dali_like.testing.simulated_device import SimulatedDevice, SimulatedFence
from tests.internals import kept_files


def ring_of(space: SharedSpace) -> Ring:
    layout = OutputSchema(DTYPE_CODES[np.dtype(np.uint8)], 1, (16,))
    return Ring(space, SlotLayout(2, 2, 4096, (layout,)))


def test_slot_is_not_reused_while_a_copy_from_it_is_running() -> None:
    device, space = SimulatedDevice(), SharedSpace.create(1 << 24)
    space.observer = PinnedMemory(device, fenced=True)
    ring = ring_of(space)
    slot = ring.acquire(0)
    device.launch(lambda: None)  # stands for a long kernel of the user's; a copy waits behind it

    del_lease(Lease(ring, slot))
    assert ring.acquire(0) is not slot
    device.run(0)
    device.run()

    assert ring.acquire(0) is slot
    ring.close()


def del_lease(lease: Lease[Any]) -> None:
    """Drop the only reference when the call ends."""


def test_slots_that_wait_for_the_gpu_are_there_where_memory_is_short() -> None:
    device, space = SimulatedDevice(), SharedSpace.create(1 << 24)
    space.observer = PinnedMemory(device, fenced=True)
    ring = ring_of(space)
    device.launch(lambda: None)
    del_lease(Lease(ring, ring.acquire(0)))
    assert space.used_bytes

    space.drop_free()

    assert not space.used_bytes
    assert not device.registered


def test_a_slot_that_comes_back_to_a_closed_ring_is_unlocked_behind_its_copies() -> None:
    device, space = SimulatedDevice(), SharedSpace.create(1 << 24)
    space.observer = PinnedMemory(device, fenced=True)
    ring = ring_of(space)
    lease = Lease(ring, ring.acquire(0))
    ring.close()
    done: list[bool] = []
    device.launch(lambda: done.append(True))
    assert device.registered

    del lease

    assert done
    assert not device.registered


def test_slots_that_only_copies_use_come_back_without_waiting_for_users() -> None:
    device, space = SimulatedDevice(), SharedSpace.create(1 << 24)
    space.observer = PinnedMemory(device, fenced=False)
    ring = ring_of(space)
    slot = ring.acquire(0)
    device.launch(lambda: None)

    del_lease(Lease(ring, slot))

    assert ring.acquire(0) is slot
    ring.close()


def test_results_of_operators_are_not_overwritten_before_a_users_copy_of_them() -> None:
    device, space = SimulatedDevice(), SharedSpace.create(1 << 24)
    space.observer = PinnedMemory(device, fenced=True)
    buffers = BufferPool(space)
    buffer = buffers.bytes(4096)
    address = address_of(buffer)
    device.launch(lambda: None)

    del buffer
    other = buffers.bytes(4096)
    assert address_of(other) != address
    device.run(0)
    device.run()
    assert address_of(buffers.bytes(4096)) == address
    del other
    buffers.close()


def test_buffers_are_unlocked_behind_the_copies_from_them() -> None:
    device, space = SimulatedDevice(), SharedSpace.create(1 << 24)
    space.observer = PinnedMemory(device, fenced=True)
    buffers = BufferPool(space)
    buffer = buffers.bytes(4096)
    were_locked: list[bool] = []
    device.launch(lambda: were_locked.append(bool(device.registered)))

    del buffer
    buffers.drop_free()

    assert were_locked == [True]
    assert not device.registered


def test_memory_that_goes_with_its_space_is_unlocked_before() -> None:
    device, space = SimulatedDevice(), SharedSpace.create(1 << 24)
    space.observer = PinnedMemory(device, fenced=True)
    for _ in range(3):
        space.take(1 << 16, 1 << 13)
    assert sorted(device.registered.values()) == [1 << 13] * 3

    del space

    assert not device.registered
    assert not device.faults


# Refusals


def space_of(device: SimulatedDevice) -> SharedSpace:
    space = SharedSpace.create(1 << 24)
    space.observer = PinnedMemory(device, fenced=False)
    return space


def test_an_extent_after_an_unlocked_one_is_locked() -> None:
    device = SimulatedDevice(refuses_to_lock=True)
    space = space_of(device)
    with pytest.warns(UserWarning, match=r"not page-locked.*vm\.max_map_count"):
        space.take(4096, 4096)
    space.take(4096, 4096)  # without another warning
    device.refuses_to_lock = False
    offset = space.take(4096, 4096)
    assert list(device.registered) == [space.address + offset]


def test_an_extent_that_is_not_unlocked_is_kept_and_tried_again() -> None:
    device = SimulatedDevice()
    space = space_of(device)
    offset = space.take(8192, 8192)
    space.bytes[offset] = 7
    device.refuses_to_unlock = True
    with pytest.warns(UserWarning, match="refused to unlock.*kept"):
        space.free(offset, 8192)
    other = space.take(8192, 8192)

    assert other != offset
    assert space.bytes[offset] == 7  # the page that the GPU still reads
    device.refuses_to_unlock = False
    assert space.take(8192, 8192) == offset
    assert space.bytes[offset] == 0


def test_memory_that_is_not_unlocked_outlives_its_space() -> None:
    device = SimulatedDevice()
    space = space_of(device)
    free, kept = space.take(8192, 8192), space.take(8192, 8192)
    addresses = [space.address + offset for offset in (free, kept)]
    space.bytes[free] = space.bytes[kept] = 7
    space.free(free, 8192)
    device.refuses_to_unlock = True
    with pytest.warns(UserWarning, match="refused to unlock"):
        del space

    assert len(kept_files()) == 1
    assert [ctypes.c_uint8.from_address(address).value for address in addresses] == [0, 7]
    kept_files().clear()


def address_of(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


# Memory of the GPU


@pytest.mark.parametrize("is_closed", [False, True])
def test_memory_is_given_back_behind_the_kernels_that_use_it(is_closed: bool) -> None:
    device = SimulatedDevice()
    memory = DeviceMemory(device)
    address, lease = memory.take(1024)
    if is_closed:
        memory.close()
    was_there: list[bool] = []
    device.launch(lambda: was_there.append(address in device.blocks))

    del lease
    memory.drop_free()

    assert was_there == [True]
    assert not device.blocks


def test_memory_that_only_fences_keep_is_waited_for_where_it_is_short() -> None:
    device = SimulatedDevice(capacity_bytes=2 * 1024)
    memory = DeviceMemory(device)
    address, lease = memory.take(1024)
    device.launch(lambda: None)
    del lease

    other, kept = memory.take(2048)

    assert (other, device.num_waiting(0)) != (address, 1)
    del kept
    memory.close()


def test_many_dropped_buffers_are_waited_for_on_the_gpu_and_not_here() -> None:
    device = SimulatedDevice()
    memory = DeviceMemory(device)
    device.launch(lambda: None)
    addresses = set()
    for _ in range(50):
        address, lease = memory.take(1024)
        addresses.add(address)
        del lease

    assert len(addresses) <= 5
    assert device.num_waiting(0)  # no code here has waited
    memory.close()


def test_fences_of_the_stand_in_pass_only_when_their_streams_move() -> None:
    device = SimulatedDevice()
    device.launch(lambda: None)
    fence = device.fence()

    assert isinstance(fence, SimulatedFence)
    assert not fence.passed()
    device.run(0)
    assert fence.passed()
