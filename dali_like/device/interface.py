"""The contract between batches in host memory and the GPU that they are copied to.

Two classes implement `Device`: `dali_like.device.cuda.CudaDevice`, and
`dali_like.testing.simulated_device.SimulatedDevice` for machines without a GPU. A device is one GPU as one pipeline
uses it, with a stream of its own. Only the main process uses devices.

`CopyDevice` is the part that loaders need, which copy batches of host memory. It has a third class,
`dali_like.plugin.pytorch.torch_device.TorchDevice`, with memory of PyTorch.

Rules for all methods:

- Methods may be called from any thread. Copies, fences and `hold` never wait for the GPU, unless they say so.
- A copy is only queued on the device's stream. The caller keeps both memories alive and unchanged until a fence
  recorded after the copy has passed.
- `Pinning.fence` and `Pinning.unregister` are called by finalizers: at any instruction, in any thread, even at
  interpreter exit. They never raise.
- A stream that captures a graph (a CUDA graph) only notes its work, for later. Fences leave such streams out: an event
  there would never pass. The device's own stream never waits for them, because it would become part of the graph.
  `hold` cannot make them wait, so it waits in this process. No call invalidates a capture, not even one of another
  thread.

`Pinning` is the part that page-locked batches of a loader need, without copies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from dali_like.common.hooks import DeviceHooks
from dali_like.engine.memory.space import Fence
from dali_like.errors import DeviceError

#: Stands for the device's own stream.
OWN_STREAM = -2


class DeviceFence(Fence, Protocol):
    """A point on one or more streams. It has passed when all work queued there before it has ended."""

    @property
    def error(self) -> DeviceError | None:
        """The failure of work before the fence; None if none is known. Valid once the fence has passed."""


class Stamp(Protocol):
    """A point on a device's stream that records the time when the stream reaches it."""

    def time_ns(self) -> int | None:
        """Return the time in nanoseconds of CLOCK_MONOTONIC; None while the stream has not reached the point."""

    def wait(self) -> None:
        """Block until the stream has reached the point. Never raises."""


class Pinning(Protocol):
    """Locks pages in memory, so that a GPU can read and write them directly. Thread-safe."""

    def register(self, address: int, nbytes: int) -> None:
        """Lock pages. Called once for each extent of memory, by the thread that allocates it, before any copy from it.

        Raises:
            DeviceError: the system refuses.
        """

    def unregister(self, address: int) -> bool:
        """Unlock the pages locked at this address, and return whether that worked. Never raises.

        Called after all copies from them have ended. Otherwise the GPU still reads the old pages at this address, even if
        the address refers to others later. So the caller must keep the pages, and may try again.
        """

    def fence(self) -> Fence | None:
        """Return a fence behind all work queued on the streams in use.

        These are the GPU's default stream, the current streams of PyTorch and CuPy in the calling thread, and the
        device's own stream. Called when a user drops memory, so that it is not reused before kernels that read it have
        ended. Never raises.
        """


class Block(Protocol):
    """Memory of a GPU. Dropping the object frees it; the caller makes sure that no queued work uses it."""

    @property
    def address(self) -> int:
        """The address of the first byte."""


class GpuArray(NamedTuple):
    """An array in a GPU's memory.

    Attributes:
        address: of the first element.
        shape, dtype: as NumPy's.
        owner: keeps the memory alive.
        strides: as NumPy's, in bytes; None for a C-contiguous array.
    """

    address: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    owner: Any
    strides: tuple[int, ...] | None = None

    @property
    def nbytes(self) -> int:
        """The size of all elements, in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


class CopyDevice(Pinning, Protocol):
    """A GPU as far as batches of host memory are copied there. Thread-safe.

    Attributes:
        hooks: of a trace; none by default.
    """

    hooks: DeviceHooks

    @property
    def device_id(self) -> int:
        """The number of the GPU among the GPUs that CUDA shows to this process."""

    @property
    def stream(self) -> int:
        """The handle of its stream."""

    def allocate(self, nbytes: int) -> Block:
        """Return memory of the GPU. Work on the device's stream may use it at once; other streams must wait for that
        stream.

        Raises:
            OutOfMemoryError: the GPU has too little free memory.
        """

    def upload(self, target: int, source: int, nbytes: int) -> None:
        """Queue a copy from host memory to the GPU.

        Memory that is not page-locked may be read before the call returns, which then blocks.

        Raises:
            DeviceError: the copy could not be queued.
        """

    def download(self, target: int, source: int, nbytes: int) -> None:
        """Queue a copy from the GPU to host memory; see `upload`."""

    def record(self) -> DeviceFence:
        """Return a fence behind all work queued on the device's stream."""

    def stamp(self) -> Stamp:
        """Return a stamp behind all work queued on the device's stream."""

    def fence(self) -> DeviceFence:
        """See `Pinning.fence`."""

    def hold(self, fence: Any, stream: int | None = OWN_STREAM) -> None:
        """Make a stream wait for a fence. The caller waits only in place of a stream that captures a graph.

        Args:
            fence: of this class of device.
            stream: the handle; OWN_STREAM for the device's own stream; None for all streams in use, see
                `Pinning.fence`.
        """

    @property
    def dlpack_device(self) -> tuple[int, int]:
        """The device in DLPack's terms: a type and a number."""

    def close(self) -> None:
        """Wait for all work queued on the device's stream. Never raises."""


class Device(CopyDevice, Protocol):
    """A GPU as one pipeline uses it, which also takes arrays that are there already."""

    def move(self, target: int, source: int, nbytes: int, *, by_kernel: bool = False) -> None:
        """Queue a copy within the GPU's memory, by the copy engine or by a kernel; see `upload`."""

    def gather(self, target: int, array: GpuArray) -> None:
        """Queue a copy of an array with strides to contiguous memory; see `upload`."""

    def fence_of(self, stream: int | None) -> DeviceFence:
        """Return a fence behind all work queued on a stream; None: on all streams in use.

        Raises:
            DeviceError: the stream captures a graph, so that its work is not queued.
        """

    def adopt(self, value: Any) -> GpuArray:
        """Return an array of the user's on this GPU, given ``__cuda_array_interface__`` or DLPack. Never copies.

        The device's stream waits for the stream that the array names, if any.

        Raises:
            ArgumentTypeError: the value has neither interface, or is on another device.
            DeviceError: the named stream captures a graph, or the GPU has failed.
        """

    def export(self, array: GpuArray, **options: Any) -> Any:
        """Return a contiguous array as a DLPack capsule, without synchronization."""

    def decode_images(self, encoded: Sequence[bytes], *, is_gray: bool, is_upright: bool) -> Sequence[Any]:
        """Decode image files on the GPU, in the order of the device's stream.

        Args:
            encoded: the files.
            is_gray: whether to return one channel instead of three (RGB).
            is_upright: whether to apply the EXIF orientation.

        Returns:
            For each file an array (height, width, channels) of uint8 for `adopt`; None if the GPU cannot decode the
                file.
        """
