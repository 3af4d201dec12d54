"""Arrays in the memory of a GPU, with their owner and the fence that must pass before they are read."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dali_like.device.interface import Device, DeviceFence, GpuArray


@dataclass(frozen=True)
class DeviceArray:
    """A C-contiguous array on a GPU.

    Attributes:
        device: the GPU.
        address: of the first element.
        shape, dtype: as NumPy's.
        owner: keeps the memory alive.
        ready: passes when the array is filled.
    """

    device: Device
    address: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    owner: Any
    ready: DeviceFence

    @classmethod
    def of(cls, device: Device, array: GpuArray, ready: DeviceFence) -> DeviceArray:
        """Return a contiguous array with its fence."""
        return cls(device, array.address, array.shape, array.dtype, array.owner, ready)

    @property
    def nbytes(self) -> int:
        """The size in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def on_gpu(self) -> GpuArray:
        """The array in the form that `Device` methods take."""
        return GpuArray(self.address, self.shape, self.dtype, self.owner)

    def at(self, index: int) -> DeviceArray:
        """Return one array along the first dimension."""
        part = replace(self, shape=self.shape[1:])
        return replace(part, address=self.address + index * part.nbytes)

    def viewed(self, shape: Sequence[int] | None = None, dtype: np.dtype[Any] | None = None) -> DeviceArray:
        """Return the same memory with another shape, or with another dtype of the same size."""
        return replace(self, shape=self.shape if shape is None else tuple(shape), dtype=dtype or self.dtype)

    def let_wait(self, stream: int | None) -> None:
        """Make a stream wait until the array is filled; None: all streams in use."""
        self.device.hold(self.ready, stream)

    def to_host(self) -> NDArray[Any]:
        """Return a copy in host memory."""
        return arrays_to_host([self])[0]

    @property
    def interface(self) -> dict[str, Any]:
        """The CUDA Array Interface, version 3. Its ``stream`` is None, because the streams in use already wait for the
        array.
        """
        self.let_wait(None)
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.address, False),
            "version": 3,
            "strides": None,
            "stream": None,
        }


def lies_on_gpu(samples: Any) -> bool:
    """Whether the samples of a batch, in one array or in a list, are device arrays."""
    first = samples[0] if isinstance(samples, list) and samples else samples
    return isinstance(first, DeviceArray)


def arrays_to_host(arrays: Sequence[DeviceArray]) -> list[NDArray[Any]]:
    """Return copies in host memory, ordered after all work on the streams in use: the user may have written to the arrays.

    Raises:
        DeviceError: a copy has failed.
    """
    copies = [np.empty(array.shape, array.dtype) for array in arrays]
    if not arrays:
        return copies
    device = arrays[0].device
    device.hold(device.fence())
    for array, copy in zip(arrays, copies, strict=True):
        device.hold(array.ready)
        device.download(copy.__array_interface__["data"][0], array.address, array.nbytes)
    finish(device.record())
    return copies


def copy_to(address: int, arrays: Iterable[DeviceArray], device: Device, stream: int | None, *, waits: bool) -> None:
    """Copy arrays back to back to memory of the GPU, in the order of a stream; None: of all streams in use."""
    device.hold(device.fence_of(stream))
    for array in arrays:
        device.hold(array.ready)
        device.move(address, array.address, array.nbytes)
        address += array.nbytes
    fence = device.record()
    device.hold(fence, stream)
    if waits:
        finish(fence)


def finish(fence: DeviceFence) -> None:
    """Wait for a fence.

    Raises:
        DeviceError: work before it has failed.
    """
    fence.wait()
    if fence.error is not None:
        raise fence.error
