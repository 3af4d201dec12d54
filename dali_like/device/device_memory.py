"""Memory of a GPU for batches: kept for reuse, and used again when nothing on the GPU can still be using it.

Whoever drops a batch may have put work on the GPU that reads it, and that the GPU has not come to. So a buffer comes back
with a fence behind everything that is on the streams in use at that moment. It is used again when the fence has passed; if
too many wait for theirs, since the GPU is behind, the next copy waits for the oldest, on the GPU and not in this process.

CuPy's own pool does not do that: a block that is dropped can be had again at once by the stream that it was made on, which
is the one that copies, while the user's kernels are on another.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict, deque
from typing import NamedTuple

from dali_like.device.interface import Block, Device, DeviceFence
from dali_like.engine.memory.protocol import align
from dali_like.engine.memory.ring import Lease
from dali_like.errors import DeviceError, OutOfMemoryError

#: Buffers are so many bytes, or a multiple of an eighth of their size.
_LEAST_BYTES = 512
#: So many buffers of a size may wait for their fences before the next copy has to.
_MOST_WAITING = 4
#: Buffers of a size that has not been asked for in so many requests are given back.
_IDLE_REQUESTS = 64


class Buffer(NamedTuple):
    """Memory of a GPU."""

    block: Block
    nbytes: int

    @property
    def address(self) -> int:
        """Where it begins."""
        return self.block.address


class _Free(NamedTuple):
    buffer: Buffer
    request: int
    fence: DeviceFence


class Dropped:
    """Takes back memory of the GPU that comes from no pool: the device's stream waits for whoever may still be using it."""

    def __init__(self, device: Device) -> None:
        self._device = device

    def release(self, block: Block) -> None:
        """See `dali_like.engine.memory.ring.Lessor`."""
        with contextlib.suppress(DeviceError):  # the GPU has failed, and nobody uses it any more
            self._device.hold(self._device.fence())


class DeviceMemory:
    """Buffers of a device. Thread-safe."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._free: defaultdict[int, deque[_Free]] = defaultdict(deque)
        #: What is leased. When a batch is garbage with others, its memory must not be: its lease brings it back.
        self._leased: dict[int, Buffer] = {}
        self._requests = 0
        self._closed = False

    def take(self, nbytes: int) -> tuple[int, Lease[Buffer]]:
        """Memory for `nbytes`: its address, and a lease that keeps it. It may be used on the device's own stream at once.

        Raises:
            OutOfMemoryError: the GPU does not have so much.
        """
        self._requests += 1
        nbytes = align(max(nbytes, 1), max(1 << max(nbytes.bit_length() - 4, 0), _LEAST_BYTES))
        buffer = self._take_free(self._free[nbytes])
        if buffer is None:
            buffer = Buffer(self._allocate(nbytes), nbytes)
        self._leased[buffer.address] = buffer
        return buffer.address, Lease(self, buffer)

    def release(self, buffer: Buffer) -> None:
        """Take a buffer back; called by its lease, in any thread."""
        fence = self._device.fence()
        del self._leased[buffer.address]
        if self._closed:
            fence.wait()
        else:
            self._free[buffer.nbytes].append(_Free(buffer, self._requests, fence))

    def drop_free(self) -> None:
        """Give back what nobody holds."""
        self._trim(self._requests)

    def close(self) -> None:
        """Give back everything, now or when its leases end."""
        self._closed = True
        self.drop_free()

    def _take_free(self, free: deque[_Free]) -> Buffer | None:
        """A buffer that is free, or whose fence the device's stream is told to wait for."""
        for _ in range(len(free)):
            try:
                candidate = free.popleft()
            except IndexError:  # another thread took it
                return None
            if candidate.fence.passed():
                return candidate.buffer
            if len(free) >= _MOST_WAITING - 1:
                self._device.hold(candidate.fence)
                return candidate.buffer
            free.append(candidate)
        return None

    def _allocate(self, nbytes: int) -> Block:
        self._trim(self._requests - _IDLE_REQUESTS)
        try:
            return self._device.allocate(nbytes)
        except OutOfMemoryError:
            self.drop_free()
        return self._device.allocate(nbytes)

    def _trim(self, last_request: int) -> None:
        """Give back the buffers that came back at `last_request` or before."""
        for free in list(self._free.values()):
            while free and free[0].request <= last_request:
                try:
                    idle = free.popleft()
                except IndexError:  # another thread took it
                    break
                idle.fence.wait()  # the block goes with `idle`, and not before
