"""Copy batches to a GPU ahead of the user, without waiting.

Runs in the main process. A dense batch is one copy: the GPU reads the slot that the workers have written. Samples of
other batches are scattered, so this process packs them into page-locked memory first, and then copies once.

A copy keeps its source arrays, and so their slots, until the GPU has read them. The user's streams wait for the copy on
the GPU. This process waits only if it is far ahead of the GPU.
"""

from __future__ import annotations

import math
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from time import monotonic_ns
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dali_like.device.device_array import DeviceArray, lies_on_gpu
from dali_like.device.device_memory import DeviceMemory, StaticMemory
from dali_like.device.interface import CopyDevice, Device, DeviceFence, GpuArray
from dali_like.engine.memory.protocol import align

#: Alignment of packed samples, the same as that of CUDA's allocations.
_ALIGNMENT = 256
#: Maximum number of copies in progress. Beyond it, this process waits for the oldest, so that memory use stays bounded.
_MAX_COPIES = 8

#: One output of a batch, on the CPU or the GPU: one array, or a sequence of arrays.
Samples = NDArray[Any] | Sequence[NDArray[Any]]
DeviceSamples = DeviceArray | list[DeviceArray]


class _PendingCopy(NamedTuple):
    """A copy in progress.

    Attributes:
        fence: passes when the copy has ended.
        kept: the arrays that it reads.
    """

    fence: DeviceFence
    kept: list[Any]


class CopyTotals:
    """Totals of `Uploader.send`; see `dali_like.monitor.measure.statistics.CopyStatistics`."""

    batches: int = 0
    copied_bytes: int = 0
    host_ns: int = 0
    waited_ns: int = 0


class _BatchCopy(NamedTuple):
    """Memory on the GPU for one output of a batch.

    Attributes:
        owner: keeps the memory alive.
        addresses: targets of the copies.
        shapes: of the resulting arrays.
        dtype: of the resulting arrays.
        is_dense: whether the result is one array.
    """

    owner: Any
    addresses: list[int]
    shapes: list[tuple[int, ...]]
    dtype: np.dtype[Any]
    is_dense: bool

    def arrays(self, device: Any, ready: DeviceFence) -> DeviceSamples:
        places = zip(self.addresses, self.shapes, strict=False)
        arrays = [DeviceArray(device, address, shape, self.dtype, self.owner, ready) for address, shape in places]
        return arrays[0] if self.is_dense else arrays


class PackedArrays(list[NDArray[np.uint8]]):
    """Arrays of bytes that are packed and copied together. Each becomes a device array of its own."""


class Uploader:
    """Copies batches from host memory to a device. Thread-safe.

    Args:
        device: the target.
        staging: returns page-locked memory of a given size in bytes. Pending copies keep it alive.
        memory: of the device, for the batches. None: a pool.

    Attributes:
        totals: statistics of `send`. Any thread may read them.
    """

    def __init__(
        self,
        device: CopyDevice,
        staging: Callable[[int], NDArray[np.uint8]],
        memory: DeviceMemory | StaticMemory | None = None,
    ) -> None:
        self.device = device
        self._staging = staging
        self._memory = DeviceMemory(device) if memory is None else memory
        self._pending: deque[_PendingCopy] = deque()
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self.totals = CopyTotals()

    def __del__(self, getpid: Callable[[], int] = os.getpid) -> None:
        if self._pid == getpid():
            self.close()  # pending copies must end before their source memory is freed

    def send(self, outputs: Sequence[Samples | DeviceSamples]) -> list[DeviceSamples]:
        """Begin to copy some outputs of a batch. Outputs already on the GPU are returned unchanged.

        Raises:
            OutOfMemoryError: memory is short, on the GPU or for packing. No copy is left in progress.
            DeviceError: a copy has failed, of this batch or an earlier one.
        """
        begin_ns = monotonic_ns()
        with self._lock:
            self._settle(_MAX_COPIES - 1)
            kept: list[Any] = []
            try:
                placed: list[Any] = [output if lies_on_gpu(output) else self._begin(output, kept) for output in outputs]
            except BaseException:
                self.device.record().wait()  # copies already begun read memory that is released now
                raise
            ready = self.device.record()
            self._pending.append(_PendingCopy(ready, kept))
            self.totals.batches += 1
            self.totals.copied_bytes += sum(array.nbytes for array in kept)
            self.totals.host_ns += monotonic_ns() - begin_ns
        return [target.arrays(self.device, ready) if isinstance(target, _BatchCopy) else target for target in placed]

    def settle(self) -> None:
        """Release the sources of copies that have ended.

        Raises:
            DeviceError: a copy has failed.
        """
        with self._lock:
            self._settle(_MAX_COPIES)

    def drop_free(self) -> None:
        """Wait for all copies, and release their sources."""
        with self._lock:
            self._wait_for_all()

    def close(self) -> None:
        """Wait for all copies, and free the memory on the GPU, now or when its leases end."""
        with self._lock:
            self._wait_for_all()
        self._memory.close()

    def _settle(self, most: int) -> None:
        while self._pending and (len(self._pending) > most or self._pending[0].fence.passed()):
            fence = self._pending[0].fence
            begin_ns = monotonic_ns()
            fence.wait()
            self.totals.waited_ns += monotonic_ns() - begin_ns
            self._pending.popleft()
            if fence.error is not None:
                raise fence.error

    def _wait_for_all(self) -> None:
        while self._pending:
            self._pending[0].fence.wait()
            self._pending.popleft()

    def _begin(self, output: Any, kept: list[Any]) -> _BatchCopy:
        """Begin the copy of one output."""
        if not isinstance(output, np.ndarray):
            return self._begin_packed(list(output), kept, apart=isinstance(output, PackedArrays))
        array = np.ascontiguousarray(output)
        target = self._place_one(output)
        kept.append(array)
        self.device.upload(target.addresses[0], _address_of(array), array.nbytes)
        return target

    def _begin_packed(self, samples: list[NDArray[Any]], kept: list[Any], *, apart: bool) -> _BatchCopy:
        if not samples:
            return _BatchCopy(None, [], [], np.dtype(np.uint8), is_dense=False)
        target = self._place([sample.shape for sample in samples], samples[0].dtype, apart=apart)
        begin = target.addresses[0]
        nbytes = target.addresses[-1] - begin + samples[-1].nbytes
        packed = self._staging(nbytes)
        for address, sample in zip(target.addresses, samples, strict=True):
            place = packed[address - begin : address - begin + sample.nbytes]
            np.copyto(place.view(sample.dtype).reshape(sample.shape), sample)
        kept.append(packed)
        self.device.upload(begin, _address_of(packed), nbytes)
        return target

    def _place_one(self, array: NDArray[Any] | GpuArray) -> _BatchCopy:
        """Allocate memory on the GPU for one array."""
        begin, lease = self._memory.take(_nbytes(array.shape, array.dtype))
        return _BatchCopy(lease, [begin], [array.shape], array.dtype, is_dense=True)

    def _place(self, shapes: list[tuple[int, ...]], dtype: np.dtype[Any], *, apart: bool = False) -> _BatchCopy:
        """Allocate memory on the GPU for samples; samples of one shape form one array, unless they stay apart."""
        is_dense = not apart and all(shape == shapes[0] for shape in shapes)
        offsets = [0]
        for shape in shapes:
            offsets.append(align(offsets[-1] + _nbytes(shape, dtype), 1 if is_dense else _ALIGNMENT))
        begin, lease = self._memory.take(offsets.pop())
        arrays = [(len(shapes), *shapes[0])] if is_dense else shapes
        return _BatchCopy(lease, [begin + offset for offset in offsets], arrays, dtype, is_dense)


class Copier(Uploader):
    """Copies batches of a pipeline, and takes in arrays that are on the device already. Thread-safe."""

    device: Device

    def __init__(self, device: Device, staging: Callable[[int], NDArray[np.uint8]]) -> None:
        super().__init__(device, staging)

    def take_in(
        self, values: Sequence[Any], *, is_dense: bool, stream: int | None, copies: bool, by_kernel: bool
    ) -> DeviceSamples:
        """Return arrays of the user's on the GPU as samples of a batch.

        Args:
            values: the samples, at least one; or one array of all samples, if `is_dense`.
            is_dense: whether `values` holds one array of all samples.
            stream: the stream that filled them; None: any of the streams in use.
            copies: whether to copy them, because the user may overwrite them. Arrays with strides are copied anyway.
            by_kernel: whether to copy by a kernel instead of the copy engine.

        Raises:
            ArgumentTypeError: an array is not on this GPU.
            OutOfMemoryError, DeviceError: see `send`.
        """
        device = self.device
        with self._lock:
            self._settle(_MAX_COPIES - 1)
            device.hold(device.fence_of(stream))
            given = [value if isinstance(value, GpuArray) else device.adopt(value) for value in values]
            if copies:
                target = self._place_one(given[0]) if is_dense else self._place([a.shape for a in given], given[0].dtype)
                for address, array in zip(target.addresses, given, strict=True):
                    if array.strides is None:
                        device.move(address, array.address, array.nbytes, by_kernel=by_kernel)
                    else:
                        device.gather(address, array)
            else:
                contiguous = [array if array.strides is None else self._gathered(array) for array in given]
            ready = device.record()
            if copies or any(array.strides is not None for array in given):
                device.hold(ready, stream)  # the user's next writes to the arrays come after the copies
                self._pending.append(_PendingCopy(ready, given))
        if copies:
            return target.arrays(device, ready)
        arrays = [DeviceArray.of(device, array, ready) for array in contiguous]
        return arrays[0] if is_dense else arrays

    def copy(self, samples: DeviceSamples) -> DeviceSamples:
        """Return a copy of samples from `take_in`, with the same errors."""
        arrays = [samples] if isinstance(samples, DeviceArray) else samples
        given = [array.on_gpu for array in arrays]
        is_dense = isinstance(samples, DeviceArray)
        return self.take_in(given, is_dense=is_dense, stream=None, copies=True, by_kernel=False)

    def _gathered(self, array: GpuArray) -> GpuArray:
        """Begin to copy an array with strides to memory of its own."""
        begin, lease = self._memory.take(array.nbytes)
        self.device.gather(begin, array)
        return GpuArray(begin, array.shape, array.dtype, lease)


def _nbytes(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    return math.prod(shape) * dtype.itemsize


def _address_of(array: NDArray[Any]) -> int:
    address: int = array.__array_interface__["data"][0]
    return address
