"""A simulated GPU in host memory, for tests on machines without one: tests of this library and of its users.

Queued work runs only when someone waits for it, or when the test calls `SimulatedDevice.run`. Until then, a copy has
neither read its source nor written its target, as on a GPU that is behind. So reusing a slot before its copy has ended
always shows as a wrong batch.

Copies from memory that is not page-locked read it at once, as a GPU's driver does. The device records faults that a
real GPU would not forgive: unlocking pages that a copy still reads, touching freed memory, and copying beyond a block.

>>> from dali_like.device.opening import substitute
>>> with substitute(SimulatedDevice):
...     pass  # pipelines built here find a GPU
"""

from __future__ import annotations

import ctypes
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dali_like.common.articles import kind_of
from dali_like.common.hooks import DeviceHooks
from dali_like.device.interface import OWN_STREAM, GpuArray
from dali_like.engine.memory.space import mib
from dali_like.errors import ArgumentTypeError, DeviceError, OutOfMemoryError

#: The default stream of users' work.
DEFAULT_STREAM = 0
#: Content of memory that is uninitialized or freed.
_POISON = 0xDD


class Marker:
    """A point on a stream; done when the stream has reached it."""

    def __init__(self, stream: SimulatedStream) -> None:
        self.stream = stream
        self.is_done = False
        self.passed_ns = 0
        self.error: DeviceError | None = None


class SimulatedFence:
    """See `dali_like.device.interface.DeviceFence`."""

    def __init__(self, markers: Sequence[Marker]) -> None:
        self.markers = markers

    def passed(self) -> bool:
        """Whether the streams have reached the fence. Asking does not advance them."""
        return all(marker.is_done for marker in self.markers)

    def wait(self) -> None:
        """Run the streams up to the fence."""
        for marker in self.markers:
            marker.stream.run_to(marker)

    @property
    def error(self) -> DeviceError | None:
        """The first failure of work between the previous fence and this one, or None."""
        return next((marker.error for marker in self.markers if marker.error is not None), None)


class SimulatedStamp(SimulatedFence):
    """See `dali_like.device.interface.Stamp`."""

    def time_ns(self) -> int | None:
        """Return the time when the stream reached the stamp."""
        return self.markers[0].passed_ns or None


class SimulatedStream:
    """A queue of functions to run and fences to wait for."""

    def __init__(self, lock: threading.RLock) -> None:
        self._lock = lock
        self._waiting: deque[Callable[[], None] | SimulatedFence | Marker] = deque()
        self._error: DeviceError | None = None

    def __len__(self) -> int:
        """Return the number of queued entries, fences and markers included."""
        return len(self._waiting)

    def put(self, step: Callable[[], None] | SimulatedFence) -> None:
        """Queue a function or a fence."""
        with self._lock:
            self._waiting.append(step)

    def mark(self) -> Marker:
        """Return a marker behind all queued entries."""
        with self._lock:
            marker = Marker(self)
            if self._waiting:
                self._waiting.append(marker)
            else:
                self._pass(marker)
            return marker

    def run_to(self, marker: Marker | None) -> None:
        """Run all entries up to a marker; None: all entries."""
        with self._lock:
            while self._waiting and not (marker is not None and marker.is_done):
                self.step()

    def step(self) -> None:
        """Run the next entry. If it is a fence, the streams it depends on run first."""
        with self._lock:
            step = self._waiting[0]
            if isinstance(step, SimulatedFence):
                step.wait()
            elif isinstance(step, Marker):
                self._pass(step)
            else:
                try:
                    step()
                except DeviceError as error:
                    self._error = error
            if self._waiting and self._waiting[0] is step:
                self._waiting.popleft()

    def _pass(self, marker: Marker) -> None:
        marker.is_done = True
        marker.passed_ns = time.monotonic_ns()
        marker.error, self._error = self._error, None


class SimulatedBlock:
    """See `dali_like.device.interface.Block`."""

    def __init__(self, device: SimulatedDevice, nbytes: int) -> None:
        self.memory: NDArray[np.uint8] = np.full(nbytes, _POISON, np.uint8)
        self.address: int = self.memory.__array_interface__["data"][0]
        self._device = device
        device.blocks[self.address] = self.memory

    def __del__(self) -> None:
        # Queued work must not touch freed memory. Keep the poisoned memory so that tests can see writes to it.
        self.memory[:] = _POISON
        self._device.dropped.append(self._device.blocks.pop(self.address))


class SimulatedDevice:
    """A GPU in host memory; see `dali_like.device.interface.Device`.

    Args:
        device_id: its number.
        capacity_bytes: size of its memory.
        refuses_to_lock: whether page-locking fails.

    Attributes:
        refuses_to_unlock: whether unlocking pages fails.
        current_stream: the user's current stream.
        registered: sizes of the page-locked extents, by address.
        num_registrations: number of extents page-locked so far.
        copies: for each upload, its size in bytes, and whether the source was page-locked.
        faults: descriptions of errors that a real GPU would not forgive.
        decode: decodes an image, given the file, whether to return gray, and whether to apply the orientation; returns
            None for files that it cannot decode.
    """

    def __init__(self, device_id: int = 0, *, capacity_bytes: int = 1 << 30, refuses_to_lock: bool = False) -> None:
        self.device_id = device_id
        self.capacity_bytes = capacity_bytes
        self.refuses_to_lock = refuses_to_lock
        self.refuses_to_unlock = False
        self.current_stream = DEFAULT_STREAM
        self.registered: dict[int, int] = {}
        self.num_registrations = 0
        self.copies: list[tuple[int, bool]] = []
        self.faults: list[str] = []
        self.blocks: dict[int, NDArray[np.uint8]] = {}
        self.dropped: list[NDArray[np.uint8]] = []
        self.is_closed = False
        self.decode: Callable[[bytes, bool, bool], Any] = lambda file, is_gray, is_upright: None
        self.hooks = DeviceHooks()
        self._failures: deque[bool] = deque()
        self._lock = threading.RLock()
        self._handles = itertools.count(1000)
        self._streams = {DEFAULT_STREAM: SimulatedStream(self._lock)}
        self.stream = self.make_stream()
        self._readers: dict[int, tuple[int, int]] = {}
        self._numbers = itertools.count()

    # Controls for tests
    def make_stream(self) -> int:
        """Create another stream and return its handle."""
        handle = next(self._handles)
        self._streams[handle] = SimulatedStream(self._lock)
        return handle

    def run(self, stream: int = OWN_STREAM, steps: int | None = None) -> None:
        """Run the queued work of a stream, or only its first `steps` entries."""
        waiting = self._stream(stream)
        if steps is None:
            waiting.run_to(None)
        for _ in range(steps or 0):
            waiting.step()

    def num_waiting(self, stream: int = OWN_STREAM) -> int:
        """Return the number of queued entries of a stream."""
        return len(self._stream(stream))

    def launch(self, kernel: Callable[[], None], stream: int = DEFAULT_STREAM) -> None:
        """Queue a kernel, which is any function, on a stream."""
        self._stream(stream).put(kernel)

    def fail(self, *, when_carried_out: bool = False) -> None:
        """Make the next upload fail: when it is queued, or when it runs."""
        self._failures.append(when_carried_out)

    @property
    def free_bytes(self) -> int:
        """The free memory in bytes."""
        return self.capacity_bytes - sum(memory.nbytes for memory in self.blocks.values())

    # Implementation of `dali_like.device.interface.Device`
    def register(self, address: int, nbytes: int) -> None:
        if self.refuses_to_lock:
            raise DeviceError("cudaErrorMemoryAllocation: out of memory")
        with self._lock:
            if any(begin < address + nbytes and address < begin + size for begin, size in self.registered.items()):
                self.faults.append(f"{address:#x} was page-locked twice")
            self.registered[address] = nbytes
            self.num_registrations += 1

    def unregister(self, address: int) -> bool:
        if self.refuses_to_unlock:
            return False
        with self._lock:
            nbytes = self.registered.pop(address, 0)
            if not nbytes:
                self.faults.append(f"{address:#x} was unlocked without having been locked")
            if any(begin < address + nbytes and address < begin + size for begin, size in self._readers.values()):
                self.faults.append(f"{address:#x} was unlocked before its copy ended")
            return True

    def allocate(self, nbytes: int) -> SimulatedBlock:
        if nbytes > self.free_bytes:
            raise OutOfMemoryError(
                f"GPU {self.device_id} has {mib(self.free_bytes)} of memory left, but {mib(nbytes)} are needed"
            )
        return SimulatedBlock(self, nbytes)

    def upload(self, target: int, source: int, nbytes: int) -> None:
        self.hooks.begin_copy("to the GPU", self._upload, target, source, nbytes)

    def _upload(self, target: int, source: int, nbytes: int) -> None:
        fails_later = self._failures.popleft() if self._failures else None
        if fails_later is False:
            raise DeviceError("cudaErrorInvalidValue: invalid argument")
        self._check_block(target, nbytes)
        is_locked = self._is_locked(source, nbytes)
        self.copies.append((nbytes, is_locked))
        if not is_locked:
            taken = ctypes.string_at(source, nbytes)
            self._stream(OWN_STREAM).put(lambda: self._write(target, taken))
            return
        number = next(self._numbers)
        self._readers[number] = source, nbytes

        def copy() -> None:
            del self._readers[number]
            if fails_later:
                raise DeviceError("cudaErrorLaunchFailure: unspecified launch failure")
            self._write(target, ctypes.string_at(source, nbytes))

        self._stream(OWN_STREAM).put(copy)

    def download(self, target: int, source: int, nbytes: int) -> None:
        self.hooks.begin_copy("from the GPU", self._move, target, source, nbytes)

    def move(self, target: int, source: int, nbytes: int, *, by_kernel: bool = False) -> None:
        self.hooks.begin_copy("on the GPU", self._move, target, source, nbytes)

    def gather(self, target: int, array: GpuArray) -> None:
        self._stream(OWN_STREAM).put(lambda: self._write(target, as_numpy(array).tobytes()))

    def record(self) -> SimulatedFence:
        return SimulatedFence([self._stream(OWN_STREAM).mark()])

    def stamp(self) -> SimulatedStamp:
        return SimulatedStamp([self._stream(OWN_STREAM).mark()])

    def fence(self) -> SimulatedFence:
        return SimulatedFence([self._streams[handle].mark() for handle in {*self._in_use(), self.stream}])

    def fence_of(self, stream: int | None) -> SimulatedFence:
        return SimulatedFence([self._stream(handle).mark() for handle in self._in_use(stream)])

    def hold(self, fence: Any, stream: int | None = OWN_STREAM) -> None:
        for handle in self._in_use(stream):
            if not fence.passed():
                self._stream(handle).put(fence)

    def adopt(self, value: Any) -> GpuArray:
        interface = getattr(value, "__cuda_array_interface__", None)
        if interface is None:
            raise ArgumentTypeError(f"{kind_of(value)} is not an array on a GPU")
        dtype, strides = np.dtype(interface["typestr"]), interface.get("strides")
        array = GpuArray(interface["data"][0], tuple(interface["shape"]), dtype, value, strides)
        return array._replace(strides=None) if as_numpy(array).flags.c_contiguous else array

    def export(self, array: GpuArray, **options: Any) -> Any:
        """See `Device.export`. NumPy reads the array at once, so the streams in use run first."""
        for handle in self._in_use():
            self._stream(handle).run_to(None)
        return as_numpy(array).__dlpack__()

    def decode_images(self, encoded: Sequence[bytes], *, is_gray: bool, is_upright: bool) -> Sequence[Any]:
        """See `Device.decode_images`; calls `decode`."""
        return [self.decode(file, is_gray, is_upright) for file in encoded]

    @property
    def dlpack_device(self) -> tuple[int, int]:
        return 1, 0

    def close(self) -> None:
        self._stream(OWN_STREAM).run_to(None)
        self.is_closed = True

    def _stream(self, handle: int) -> SimulatedStream:
        return self._streams[self.stream if handle == OWN_STREAM else handle]

    def _in_use(self, stream: int | None = None) -> set[int]:
        return {DEFAULT_STREAM, self.current_stream} if stream is None else {stream}

    def _move(self, target: int, source: int, nbytes: int) -> None:
        def move() -> None:
            ctypes.memmove(target, source, nbytes)

        self._stream(OWN_STREAM).put(move)

    def _is_locked(self, address: int, nbytes: int) -> bool:
        return any(begin <= address and address + nbytes <= begin + size for begin, size in self.registered.items())

    def _check_block(self, address: int, nbytes: int) -> None:
        if not any(begin <= address and address + nbytes <= begin + block.nbytes for begin, block in self.blocks.items()):
            self.faults.append(f"a copy of {nbytes} bytes to {address:#x} lies outside of all blocks")

    def _write(self, target: int, data: bytes) -> None:
        self._check_block(target, len(data))
        ctypes.memmove(target, data, len(data))


class SimulatedArray:
    """A user's array in the memory of the simulated device, like an array of CuPy or PyTorch on a GPU."""

    def __init__(self, array: Any) -> None:
        self.array: NDArray[Any] = np.asarray(array)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        array = self.array.__array_interface__
        return {name: array[name] for name in ("shape", "typestr", "data", "strides", "version")}


def as_numpy(array: GpuArray) -> NDArray[Any]:
    """Return the memory of an array on the simulated device as a NumPy array."""

    class _Exported:
        __array_interface__ = {  # noqa: RUF012
            "data": (array.address, False),
            "shape": array.shape,
            "typestr": array.dtype.str,
            "strides": array.strides,
            "version": 3,
        }
        owner = array.owner

    return np.asarray(_Exported())
