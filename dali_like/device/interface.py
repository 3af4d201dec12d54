"""The seam between those who have batches in host memory and the GPU that these are to go to.

There are two devices: `dali_like.device.cuda.CudaDevice`, and `dali_like.testing.simulated_device.SimulatedDevice`, a
    stand-in for machines without a GPU. A device is a GPU as one pipeline uses it, with a stream of its own. Copies are put
    on that stream and carried out later; memory that they read or write must be left alone until a fence behind them has
    passed.

What locks pages and fences them, and does no more, is a `Pinning`: page-locked batches of a loader need nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from dali_like.engine.memory.space import Fence
from dali_like.errors import DeviceError

#: As a stream: that of the device itself.
OWN_STREAM = -2


class DeviceFence(Fence, Protocol):
    """A place on one or more streams, which passes when all that was put on them before has been carried out."""

    @property
    def error(self) -> DeviceError | None:
        """What went wrong before it, once it has passed; None: nothing that is known."""


class Stamp(Protocol):
    """A place on a device's stream, whose time is taken when the stream comes to it."""

    def time_ns(self) -> int | None:
        """When that was, in nanoseconds of CLOCK_MONOTONIC; None: it has not come to it."""

    def wait(self) -> None:
        """Wait until it has. Raises nothing."""


class Pinning(Protocol):
    """Locks pages in memory, so that a GPU reads and writes them by itself. Thread-safe."""

    def register(self, address: int, nbytes: int) -> None:
        """Lock pages.

        Raises:
            DeviceError: that is refused.
        """

    def unregister(self, address: int) -> None:
        """Unlock the pages that were locked by this address. Finalizers call it; it raises nothing."""

    def fence(self) -> Fence | None:
        """A fence behind all that has been put on the streams in use: the GPU's default stream, those that PyTorch and CuPy
        have as their current ones, and the device's own. Finalizers call it; it raises nothing.
        """


class Block(Protocol):
    """Memory of a GPU, which is given back when this object is dropped."""

    @property
    def address(self) -> int:
        """Where it begins."""


class GpuArray(NamedTuple):
    """An array in a GPU's memory, C-contiguous.

    Attributes:
        owner: keeps the memory.
    """

    address: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    owner: Any


class Device(Pinning, Protocol):
    """A GPU, as one pipeline uses it. Thread-safe."""

    @property
    def device_id(self) -> int:
        """The number of the GPU among those that CUDA shows to this process."""

    @property
    def stream(self) -> int:
        """The handle of its stream."""

    def allocate(self, nbytes: int) -> Block:
        """Memory of the GPU.

        Raises:
            OutOfMemoryError: there is not so much.
        """

    def upload(self, target: int, source: int, nbytes: int) -> None:
        """Copy from host memory to the GPU, on the device's stream.

        Raises:
            DeviceError: the copy could not be begun.
        """

    def download(self, target: int, source: int, nbytes: int) -> None:
        """Copy from the GPU to host memory, on the device's stream; see `upload`."""

    def move(self, target: int, source: int, nbytes: int, *, by_kernel: bool = False) -> None:
        """Copy from the GPU to itself, on the device's stream, with the copy engine or a kernel; see `upload`."""

    def record(self) -> DeviceFence:
        """A fence behind all that has been put on the device's stream."""

    def stamp(self) -> Stamp:
        """Take the time behind all that has been put on the device's stream."""

    def fence(self) -> DeviceFence:
        """See `Pinning.fence`."""

    def hold(self, fence: Any, stream: int | None = OWN_STREAM) -> None:
        """Let a stream wait for a fence, without waiting oneself.

        Args:
            fence: of this kind of device.
            stream: its handle; OWN_STREAM: the device's own; None: all streams in use, see `Pinning.fence`.
        """

    def fence_of(self, stream: int | None) -> DeviceFence:
        """A fence behind all that has been put on a stream; None: on all streams in use."""

    def adopt(self, value: Any) -> GpuArray:
        """An array on this GPU that has ``__cuda_array_interface__`` or DLPack; made contiguous on the device's stream.

        Raises:
            ArgumentTypeError: it has neither, or is on another device.
        """

    def export(self, array: GpuArray, **options: Any) -> Any:
        """An array as a DLPack capsule, without synchronisation."""

    @property
    def dlpack_device(self) -> tuple[int, int]:
        """The device as DLPack names it: a type and a number."""

    def decode_images(self, encoded: Sequence[bytes], *, is_gray: bool, is_upright: bool) -> Sequence[Any]:
        """Decode image files on the GPU, in the order of the device's stream.

        Args:
            encoded: the files.
            is_gray: whether images have one channel; else they have three, for RGB.
            is_upright: whether they are turned as their EXIF orientation says.

        Returns:
            Arrays (height, width, channels) that `adopt` takes, of uint8; None in the place of what cannot be decoded there.
        """

    def close(self) -> None:
        """Wait for all that has been put on the device's stream. Raises nothing."""
