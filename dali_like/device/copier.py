"""Copies batches to a GPU, ahead of the user, who does not wait for it.

A dense batch is one copy, made by the GPU itself from the slot that the workers have written. The samples of any other lie
scattered: they are packed into page-locked memory by this process, and then that is one copy.

The arrays that are copied from are kept until the GPU has read them, and so their slots are. The user's streams wait for the
copy, on the GPU; this process waits only if it is far ahead of it.
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

from dali_like.device.device_array import DeviceArray
from dali_like.device.device_memory import DeviceMemory
from dali_like.device.interface import Device, DeviceFence, GpuArray
from dali_like.engine.memory.protocol import align

#: Samples that are packed begin at multiples of this, as what CUDA allocates does.
_ALIGNMENT = 256
#: So many batches may be on their way before this process waits for the oldest: the host would run ahead without end.
_MOST_FLIGHTS = 8

#: The samples of one output of a batch: one array, or a sequence of arrays. On the CPU, or on the GPU already.
Samples = NDArray[Any] | Sequence[NDArray[Any]]
DeviceSamples = DeviceArray | list[DeviceArray]


class _Flight(NamedTuple):
    """A copy that may not have ended.

    Attributes:
        kept: what it reads from.
    """

    fence: DeviceFence
    kept: list[Any]


class CopyTotals:
    """What has been copied by `Copier.send`; see `dali_like.monitor.statistics.CopyStatistics`."""

    batches: int = 0
    copied_bytes: int = 0
    host_ns: int = 0
    waited_ns: int = 0


class _BatchCopy(NamedTuple):
    """One output of a batch on its way.

    Attributes:
        owner: keeps its memory on the GPU.
        addresses: where what is copied there goes.
        shapes: of the arrays that it will be.
        dtype: of these.
        is_dense: whether it will be one array.
    """

    owner: Any
    addresses: list[int]
    shapes: list[tuple[int, ...]]
    dtype: np.dtype[Any]
    is_dense: bool

    def arrays(self, device: Device, ready: DeviceFence) -> DeviceSamples:
        places = zip(self.addresses, self.shapes, strict=False)
        arrays = [DeviceArray(device, address, shape, self.dtype, self.owner, ready) for address, shape in places]
        return arrays[0] if self.is_dense else arrays


class Copier:
    """Copies batches to a device. Thread-safe.

    Args:
        device: where to.
        staging: gives page-locked memory, as an array of so many bytes; what is copied from it keeps it.

    Attributes:
        totals: what has been copied. Any thread may read it.
    """

    def __init__(self, device: Device, staging: Callable[[int], NDArray[np.uint8]]) -> None:
        self.device = device
        self._staging = staging
        self._memory = DeviceMemory(device)
        self._flights: deque[_Flight] = deque()
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self.totals = CopyTotals()

    def __del__(self, getpid: Callable[[], int] = os.getpid) -> None:
        if self._pid == getpid():
            self.close()  # what is copied from must not go before the copies have ended

    def send(self, outputs: Sequence[Samples | DeviceSamples]) -> list[DeviceSamples]:
        """Begin the copies of some outputs of a batch. Those that are on the GPU stay as they are.

        Raises:
            OutOfMemoryError: there is no memory on the GPU, or none to pack the samples in. Nothing has been begun.
            DeviceError: a copy has failed, of this batch or of one before.
        """
        begin_ns = monotonic_ns()
        with self._lock:
            self._settle(_MOST_FLIGHTS - 1)
            kept: list[Any] = []
            try:
                pickles: list[Any] = [output if _is_on_gpu(output) else self._begin(output, kept) for output in outputs]
            except BaseException:
                self.device.record().wait()  # what has been begun reads memory that is let go of now
                raise
            ready = self.device.record()
            self._flights.append(_Flight(ready, kept))
            self.totals.batches += 1
            self.totals.copied_bytes += sum(array.nbytes for array in kept)
            self.totals.host_ns += monotonic_ns() - begin_ns
        return [pickled.arrays(self.device, ready) if isinstance(pickled, _BatchCopy) else pickled for pickled in pickles]

    def take_in(
        self, values: Sequence[Any], *, is_dense: bool, stream: int | None, copies: bool, by_kernel: bool
    ) -> DeviceSamples:
        """Arrays of the user's that are on the GPU, as samples of a batch.

        Args:
            values: the samples, of any number above 0; or one array of all of them, if `is_dense`.
            stream: that they have been made on; None: any of those in use.
            copies: whether to copy them, since the user may write to them again.
            by_kernel: whether a kernel copies, and not the copy engine.

        Raises:
            ArgumentTypeError: one is not on this GPU.
            OutOfMemoryError, DeviceError: see `send`.
        """
        device = self.device
        with self._lock:
            self._settle(_MOST_FLIGHTS - 1)
            device.hold(device.fence_of(stream))
            made = [value if isinstance(value, GpuArray) else device.adopt(value) for value in values]
            if not copies:
                ready = device.record()
                given = [DeviceArray(device, *array, ready) for array in made]
                return given[0] if is_dense else given
            pickled = self._place_one(made[0]) if is_dense else self._place([array.shape for array in made], made[0].dtype)
            for address, array in zip(pickled.addresses, made, strict=True):
                device.move(address, array.address, _nbytes(array.shape, array.dtype), by_kernel=by_kernel)
            copied = device.record()
            device.hold(copied, stream)  # what the user writes to them next comes behind the copy
            self._flights.append(_Flight(copied, made))
        return pickled.arrays(device, copied)

    def copy(self, samples: DeviceSamples) -> DeviceSamples:
        """A copy of samples that `take_in` has made; see there."""
        arrays = [samples] if isinstance(samples, DeviceArray) else samples
        given = [array.on_gpu for array in arrays]
        is_dense = isinstance(samples, DeviceArray)
        return self.take_in(given, is_dense=is_dense, stream=None, copies=True, by_kernel=False)

    def settle(self) -> None:
        """Let go of what has been copied.

        Raises:
            DeviceError: a copy has failed.
        """
        with self._lock:
            self._settle(_MOST_FLIGHTS)

    def drop_free(self) -> None:
        """Wait for the copies, and let go of what they have read."""
        with self._lock:
            self._land_all()

    def close(self) -> None:
        """Wait for the copies, and give back the memory that nobody holds, now or when it is dropped."""
        with self._lock:
            self._land_all()
        self._memory.close()

    def _settle(self, most: int) -> None:
        while self._flights and (len(self._flights) > most or self._flights[0].fence.passed()):
            fence = self._flights[0].fence
            begin_ns = monotonic_ns()
            fence.wait()
            self.totals.waited_ns += monotonic_ns() - begin_ns
            self._flights.popleft()
            if fence.error is not None:
                raise fence.error

    def _land_all(self) -> None:
        while self._flights:
            self._flights[0].fence.wait()
            self._flights.popleft()

    def _begin(self, output: Any, kept: list[Any]) -> _BatchCopy:
        """Begin the copy of one output."""
        if not isinstance(output, np.ndarray):
            return self._begin_packed(list(output), kept)
        array = np.ascontiguousarray(output)
        pickled = self._place_one(output)
        kept.append(array)
        self.device.upload(pickled.addresses[0], _address_of(array), array.nbytes)
        return pickled

    def _begin_packed(self, samples: list[NDArray[Any]], kept: list[Any]) -> _BatchCopy:
        if not samples:
            return _BatchCopy(None, [], [], np.dtype(np.uint8), is_dense=False)
        pickled = self._place([sample.shape for sample in samples], samples[0].dtype)
        begin = pickled.addresses[0]
        nbytes = pickled.addresses[-1] - begin + samples[-1].nbytes
        packed = self._staging(nbytes)
        for address, sample in zip(pickled.addresses, samples, strict=True):
            place = packed[address - begin : address - begin + sample.nbytes]
            np.copyto(place.view(sample.dtype).reshape(sample.shape), sample)
        kept.append(packed)
        self.device.upload(begin, _address_of(packed), nbytes)
        return pickled

    def _place_one(self, array: NDArray[Any] | GpuArray) -> _BatchCopy:
        """Memory on the GPU for one array."""
        begin, lease = self._memory.take(_nbytes(array.shape, array.dtype))
        return _BatchCopy(lease, [begin], [array.shape], array.dtype, is_dense=True)

    def _place(self, shapes: list[tuple[int, ...]], dtype: np.dtype[Any]) -> _BatchCopy:
        """Memory on the GPU for samples; those that are alike are one array there."""
        is_dense = all(shape == shapes[0] for shape in shapes)
        offsets = [0]
        for shape in shapes:
            offsets.append(align(offsets[-1] + _nbytes(shape, dtype), 1 if is_dense else _ALIGNMENT))
        begin, lease = self._memory.take(offsets.pop())
        arrays = [(len(shapes), *shapes[0])] if is_dense else shapes
        return _BatchCopy(lease, [begin + offset for offset in offsets], arrays, dtype, is_dense)


def _is_on_gpu(output: Any) -> bool:
    return isinstance(output, DeviceArray) or (
        isinstance(output, list) and bool(output) and isinstance(output[0], DeviceArray)
    )


def _nbytes(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    return math.prod(shape) * dtype.itemsize


def _address_of(array: NDArray[Any]) -> int:
    address: int = array.__array_interface__["data"][0]
    return address
