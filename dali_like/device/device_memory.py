"""GPU memory for batches, reused only when no work on the GPU can still read it.

A user may drop a batch although the GPU has not started queued work that reads it. So a released buffer gets
a fence behind all work on the streams in use, and is reused when the fence has passed. If too many buffers wait,
because the GPU is behind, the next copy waits for the oldest fence: on the GPU, not in this process.

CuPy's own pool does not do that. It returns a dropped block at once to the stream that allocated it. Here that is the
stream for copies, while the user's kernels run on another.
"""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any, NamedTuple

from dali_like.device.interface import Block, CopyDevice, DeviceFence
from dali_like.engine.memory.idle_buffers import take_idle
from dali_like.engine.memory.protocol import align
from dali_like.engine.memory.ring import Lease
from dali_like.errors import DeviceError, OutOfMemoryError

#: Minimum size of buffers. Larger ones are rounded up to a multiple of at most an eighth of their size.
_MIN_BYTES = 512
#: Number of buffers of one size that may wait for their fences before the next copy waits for one.
_MAX_WAITING = 4
#: Buffers of a size without use for this many requests are freed.
_IDLE_REQUESTS = 64


class Buffer(NamedTuple):
    """Memory of a GPU."""

    block: Block
    nbytes: int

    @property
    def address(self) -> int:
        """The address of the first byte."""
        return self.block.address


class _FreeMemory(NamedTuple):
    buffer: Buffer
    request: int
    fence: DeviceFence


class UnpooledMemory:
    """Lessor of GPU memory outside of the pool: on release, the device's stream waits for all work that may use the
    memory.
    """

    def __init__(self, device: CopyDevice) -> None:
        self._device = device

    def release(self, memory: object) -> None:
        """See `dali_like.engine.memory.ring.Lessor`."""
        with contextlib.suppress(DeviceError):  # the GPU has failed, so no work uses the memory
            self._device.hold(self._device.fence())


def unpooled(device: CopyDevice, nbytes: int, source: Any = None) -> tuple[int, Lease[Any]]:
    """Return the address of `nbytes` of memory, and a lease on it. The device's own stream may use it at once.

    Args:
        source: an object that lives as long as the lease, such as the owner of memory that is copied there.

    Raises:
        OutOfMemoryError: the GPU has too little free memory.
    """
    block = device.allocate(max(nbytes, 1))
    return block.address, Lease(UnpooledMemory(device), (block, source))


class DeviceMemory:
    """Pool of buffers of a device. Thread-safe."""

    def __init__(self, device: CopyDevice) -> None:
        self._device = device
        self._free: defaultdict[int, deque[_FreeMemory]] = defaultdict(deque)
        #: Leased buffers. This reference keeps the memory when a batch is collected in a cycle, until its lease ends.
        self._leased: dict[int, Buffer] = {}
        self._requests = 0
        self._closed = False

    def take(self, nbytes: int) -> tuple[int, Lease[Buffer]]:
        """Return the address of `nbytes` of memory, and a lease on it. The device's own stream may use it at once.

        Raises:
            OutOfMemoryError: the GPU has too little free memory.
        """
        self._requests += 1
        nbytes = align(max(nbytes, 1), max(1 << max(nbytes.bit_length() - 4, 0), _MIN_BYTES))
        buffer = self._take_free(self._free[nbytes])
        if buffer is None:
            buffer = Buffer(self._allocate(nbytes), nbytes)
        self._leased[buffer.address] = buffer
        return buffer.address, Lease(self, buffer)

    def release(self, buffer: Buffer) -> None:
        """Take a buffer back. Its lease calls this, in any thread."""
        fence = self._device.fence()
        del self._leased[buffer.address]
        if self._closed:
            fence.wait()
        else:
            self._free[buffer.nbytes].append(_FreeMemory(buffer, self._requests, fence))

    def drop_free(self) -> None:
        """Free all buffers without a lease."""
        self._trim(self._requests)

    def close(self) -> None:
        """Free all memory, now or when its leases end."""
        self._closed = True
        self.drop_free()

    def _take_free(self, free: deque[_FreeMemory]) -> Buffer | None:
        """Return a free buffer, waiting for its fence on the device's stream if necessary, or None."""
        for _ in range(len(free)):
            try:
                candidate = free.popleft()
            except IndexError:  # another thread took it
                return None
            if candidate.fence.passed():
                return candidate.buffer
            if len(free) >= _MAX_WAITING - 1:
                self._device.hold(candidate.fence)
                return candidate.buffer
            free.append(candidate)
        return None

    def _allocate(self, nbytes: int) -> Block:
        self._trim(self._requests - _IDLE_REQUESTS)
        try:
            return self._device.allocate(nbytes)
        except OutOfMemoryError:
            self.drop_free()  # buffers of other sizes may be in the way
        return self._device.allocate(nbytes)

    def _trim(self, last_request: int) -> None:
        """Free the buffers released at `last_request` or before."""
        for idle in take_idle(self._free, last_request):
            idle.fence.wait()  # before `idle` is dropped, which frees the block


class StaticMemory:
    """Memory at the same addresses in each round of turns, for CUDA graphs. Not thread-safe, except for `release`.

    A turn is the memory of one batch: one buffer for each of its arrays. Turn k + n has the buffers of turn k. All arrays
    of a turn share a lease.

    Args:
        device: the GPU.
        num_turns: the number n of turns in a round.
    """

    def __init__(self, device: CopyDevice, num_turns: int) -> None:
        self._device = device
        self.num_turns = num_turns
        self._buffers: list[list[Buffer]] = [[] for _ in range(num_turns)]
        self._fences: dict[int, DeviceFence] = {}
        self._alive: set[int] = set()
        self._lease: Lease[int] | None = None
        self._place = 0
        self._taken = 0
        self._pid = os.getpid()

    def __del__(self, getpid: Callable[[], int] = os.getpid) -> None:
        # The allocator gives the memory to the next user of the device's stream.
        if self._pid == getpid():
            for fence in self._fences.values():
                with contextlib.suppress(DeviceError):
                    self._device.hold(fence)

    def is_free(self, turn: int) -> bool:
        """Whether no array of the turn before, at the same addresses, is alive."""
        return turn % self.num_turns not in self._alive

    def begin(self, turn: int) -> None:
        """Begin a turn whose addresses are free: `take` returns its buffers from now on.

        Work of this device that follows waits for all work that was on the streams in use when the last array there was
        dropped.
        """
        self._place, self._taken = turn % self.num_turns, 0
        if (fence := self._fences.pop(self._place, None)) is not None:
            self._device.hold(fence)
        self._alive.add(self._place)
        self._lease = Lease(self, self._place)

    def end(self) -> None:
        """End the turn: only its arrays keep its lease."""
        self._lease = None

    def take(self, nbytes: int) -> tuple[int, Lease[Any]]:
        """Return the address of the next buffer of the turn, and the lease. See `DeviceMemory.take`."""
        assert self._lease is not None
        buffers = self._buffers[self._place]
        if self._taken == len(buffers):
            buffers.append(Buffer(self._device.allocate(max(nbytes, 1)), nbytes))
        buffer = buffers[self._taken]
        assert nbytes == buffer.nbytes
        self._taken += 1
        return buffer.address, self._lease

    def release(self, place: int) -> None:
        """Note that no array of a turn is alive. Its lease calls this, in any thread."""
        self._fences[place] = self._device.fence()
        self._alive.discard(place)

    def drop_free(self) -> None:
        """Do nothing: addresses stay as they are."""

    def close(self) -> None:
        """Free the memory when its leases end: they refer to this object."""
