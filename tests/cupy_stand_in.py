"""The part of CuPy and of CUDA's driver that this library uses, in host memory, with the names and arguments of CuPy 14.

Work on a stream is carried out when a call waits for it, as in `dali_like.testing.simulated_device`. The stand-in refuses
the same as CUDA and CuPy 14.2: negative sizes, streams of another GPU, and calls that do not suit a capture.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
from types import SimpleNamespace
from typing import Any

import numpy as np

from dali_like.device.cuda_driver import Driver
from dali_like.testing.simulated_device import Marker, SimulatedFence, SimulatedStream

INVALID_DEVICE = 101
NOT_READY = 600
CAPTURE_UNSUPPORTED, CAPTURE_ISOLATION, CAPTURE_IMPLICIT, CAPTURED_EVENT = 900, 905, 906, 907
GLOBAL, RELAXED = 0, 2
NUM_GPUS = 2
_NAMES = {2: b"CUDA_ERROR_OUT_OF_MEMORY", INVALID_DEVICE: b"CUDA_ERROR_INVALID_DEVICE"}


class CUDARuntimeError(RuntimeError):
    def __init__(self, status: int) -> None:
        super().__init__(f"cudaError{status}")
        self.status = status


class CUDADriverError(RuntimeError):
    pass


class CompileException(Exception):  # CuPy's name
    pass


class OutOfMemoryError(MemoryError):
    pass


class _Thread(threading.local):
    def __init__(self) -> None:
        self.mode = GLOBAL
        self.contexts: list[int] = []


class DriverStandIn:
    """The functions of libcuda.so.1, and the state of the machine.

    Attributes:
        contexts: the GPUs that a context has been created on.
        registered: the page-locked extents.
        refuses: the status of registrations.
        refuses_to_unlock: the status of the opposite.
        failed: the events that say that the GPU has failed, with the error's number.
        capturing: the streams that capture a graph.
        is_invalid: whether a call has invalidated that graph.
        spun: the number of waits for work that spin, because their event is not BLOCKING.
        limit: how many bytes may be allocated.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.handles = itertools.count(5000)
        self.streams: dict[int, SimulatedStream] = {0: SimulatedStream(self.lock)}
        self.blocking_streams: set[int] = set()
        self.thread = _Thread()
        self.contexts: set[int] = set()
        self.registered: dict[int, int] = {}
        self.refuses = 0
        self.refuses_to_unlock = 0
        self.failed: dict[int, int] = {}
        self.capturing: set[int] = set()
        self.is_invalid = False
        self.spun = 0
        self.limit = 1 << 30
        self._flags: dict[int, int] = {}
        self._events: dict[int, Marker] = {}
        self._captured: set[int] = set()

    @property
    def device(self) -> int:
        """The current GPU. Asking does not create a context."""
        return self.thread.contexts[-1] if self.thread.contexts else 0

    def use_context(self) -> int:
        """Return the current GPU. A thread without a context gets one on GPU 0, as by the runtime."""
        self.contexts.add(self.device)
        return self.device

    def refuse_unsafe(self) -> int:
        if self.capturing and self.thread.mode != RELAXED:
            self.is_invalid = True
            return CAPTURE_UNSUPPORTED
        return 0

    def is_implicit(self, stream: int) -> bool:
        """Whether a stream is the default one, which synchronizes with a stream that captures."""
        return stream in (0, 1) and bool(self.capturing & self.blocking_streams)

    # The functions of the library

    def cuInit(self, flags: int) -> int:  # noqa: N802  # as those below
        return 0

    def cuGetErrorName(self, status: int, name: Any) -> int:  # noqa: N802
        name._obj.value = _NAMES.get(status, b"CUDA_ERROR")
        return 0

    def cuDeviceGet(self, device: Any, ordinal: int) -> int:  # noqa: N802
        device._obj.value = ordinal
        return 0 if ordinal < NUM_GPUS else INVALID_DEVICE

    def cuDevicePrimaryCtxRetain(self, context: Any, device: Any) -> int:  # noqa: N802
        self.contexts.add(device.value)
        context._obj.value = 1000 + device.value
        return 0

    def cuDevicePrimaryCtxGetState(self, device: Any, flags: Any, is_active: Any) -> int:  # noqa: N802
        is_active._obj.value = device.value in self.contexts
        return 0

    def cuCtxPushCurrent_v2(self, context: Any) -> int:  # noqa: N802
        self.thread.contexts.append(context.value - 1000)
        return 0

    def cuCtxPopCurrent_v2(self, context: Any) -> int:  # noqa: N802
        self.thread.contexts.pop()
        return 0

    def cuCtxSynchronize(self) -> int:  # noqa: N802
        assert self.thread.contexts
        if self.capturing:
            self.is_invalid = True
            return CAPTURE_UNSUPPORTED
        for stream in self.streams.values():
            stream.run_to(None)
        return 0

    def cuThreadExchangeStreamCaptureMode(self, mode: Any) -> int:  # noqa: N802
        mode._obj.value, self.thread.mode = self.thread.mode, mode._obj.value
        return 0

    def cuStreamIsCapturing(self, stream: Any, captures: Any) -> int:  # noqa: N802
        handle = stream.value or 0
        captures._obj.value = handle in self.capturing
        return CAPTURE_IMPLICIT if self.is_implicit(handle) else 0

    def cuEventCreate(self, event: Any, flags: int) -> int:  # noqa: N802
        assert self.thread.contexts
        event._obj.value = next(self.handles)
        self._flags[event._obj.value] = flags
        return 0

    def cuEventDestroy_v2(self, event: Any) -> int:  # noqa: N802
        del self._flags[event.value]
        return 0

    def cuEventRecord(self, event: Any, stream: Any) -> int:  # noqa: N802
        assert self.thread.contexts
        handle = stream.value or 0
        if self.is_implicit(handle):
            self.is_invalid = True
            return CAPTURE_IMPLICIT
        if handle in self.capturing:
            self._captured.add(event.value)
        self._events[event.value] = self.streams[handle].mark()
        return 0

    def cuStreamWaitEvent(self, stream: Any, event: Any, flags: int) -> int:  # noqa: N802
        handle = stream.value or 0
        if event.value in self._captured:
            self.capturing.add(handle)
        elif handle in self.capturing or self.is_implicit(handle):
            self.is_invalid = True
            return CAPTURE_ISOLATION
        self.streams[handle].put(SimulatedFence([self._events[event.value]]))
        return 0

    def cuEventQuery(self, event: Any) -> int:  # noqa: N802
        if event.value in self._captured:
            return CAPTURED_EVENT
        return self.refuse_unsafe() or self.failed.get(event.value, 0 if self._events[event.value].is_done else NOT_READY)

    def cuEventSynchronize(self, event: Any) -> int:  # noqa: N802
        if event.value in self._captured:
            return CAPTURED_EVENT
        if status := self.refuse_unsafe():
            return status
        marker = self._events[event.value]
        self.spun += not marker.is_done and not self._flags[event.value] & 1
        SimulatedFence([marker]).wait()
        return self.failed.get(event.value, 0)

    def cuEventElapsedTime(self, elapsed: Any, first: Any, second: Any) -> int:  # noqa: N802
        assert not (self._flags[first.value] | self._flags[second.value]) & 2
        elapsed._obj.value = (self._events[second.value].passed_ns - self._events[first.value].passed_ns) / 1e6
        return 0

    def cuStreamCreate(self, stream: Any, flags: int) -> int:  # noqa: N802
        assert self.thread.contexts
        stream._obj.value = next(self.handles)
        self.streams[stream._obj.value] = SimulatedStream(self.lock)
        if not flags & 1:
            self.blocking_streams.add(stream._obj.value)
        return 0

    def _memcpy(self, dst: Any, src: Any, size: Any, stream: Any) -> int:
        assert self.thread.contexts

        def copy() -> None:
            ctypes.memmove(dst.value, src.value, size.value)

        self.streams[stream.value or 0].put(copy)
        return 0

    cuMemcpyHtoDAsync_v2 = cuMemcpyDtoHAsync_v2 = cuMemcpyDtoDAsync_v2 = _memcpy  # noqa: N815

    def cuMemGetInfo_v2(self, free: Any, total: Any) -> int:  # noqa: N802
        assert self.thread.contexts
        free._obj.value, total._obj.value = self.limit, 2 * self.limit
        return 0

    def cuMemHostRegister_v2(self, address: Any, nbytes: Any, flags: int) -> int:  # noqa: N802
        assert self.thread.contexts
        assert flags == 1
        if status := self.refuse_unsafe() or self.refuses:
            return status
        self.registered[address.value] = nbytes.value
        return 0

    def cuMemHostUnregister(self, address: Any) -> int:  # noqa: N802
        assert self.thread.contexts
        if status := self.refuse_unsafe() or self.refuses_to_unlock:
            return status
        return 0 if self.registered.pop(address.value, None) else 713


def driver_of(libcuda: DriverStandIn) -> Driver:
    """The driver. Calls that may block must release the GIL, so they are not among the brief ones."""
    names = ("cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2", "cuThreadExchangeStreamCaptureMode")
    return Driver(libcuda, SimpleNamespace(**{name: getattr(libcuda, name) for name in names}))


class CupyStandIn:
    """The stand-in for the module.

    Attributes:
        libcuda: the stand-in for the driver.
        alloc_status: the error of allocations, besides the limit.
        freed_streams: the streams whose cached memory was freed.
        launch_error: the exception of a launch of a kernel.
    """

    def __init__(self) -> None:
        self.libcuda = libcuda = DriverStandIn()
        self.driver = driver_of(libcuda)
        self._current = [[0] for _ in range(NUM_GPUS)]
        self.alloc_status = 0
        self.freed_streams: list[int] = []
        self.launch_error: Exception | None = None
        self.runtime = SimpleNamespace(CUDARuntimeError=CUDARuntimeError)
        module = self

        class Device:
            def __init__(self, device: int) -> None:
                self.id = device

            def __enter__(self) -> None:
                self.before = libcuda.device
                libcuda.contexts.add(self.id)
                libcuda.thread.contexts.append(self.id)

            def __exit__(self, *_: object) -> None:
                libcuda.thread.contexts.pop()
                libcuda.contexts.add(self.before)  # by cudaSetDevice of CUDA 12

        class Stream:
            def __init__(self, null: bool = False, non_blocking: bool = False) -> None:
                self.ptr = next(libcuda.handles)
                self.device_id = libcuda.use_context()
                libcuda.streams[self.ptr] = SimulatedStream(libcuda.lock)
                if not non_blocking:
                    libcuda.blocking_streams.add(self.ptr)

            def __enter__(self) -> None:
                if self.device_id != libcuda.device:
                    raise RuntimeError("The device that the stream is created on does not match with the current device")
                module._current[self.device_id].append(self.ptr)

            def __exit__(self, *_: object) -> None:
                module._current[self.device_id].pop()

            def synchronize(self) -> None:
                libcuda.streams[self.ptr].run_to(None)

        class UnownedMemory:
            def __init__(self, ptr: int, size: int, owner: Any, device_id: int = -1) -> None:
                if size < 0:
                    raise OverflowError("can't convert negative value to size_t")
                if device_id < 0 and not ptr:
                    raise RuntimeError("UnownedMemory requires explicit device ID for a null pointer.")
                self.ptr, self.size, self.owner = ptr, size, owner
                self.device_id = libcuda.device if device_id < 0 else device_id

        class MemoryPointer:
            def __init__(self, mem: UnownedMemory, offset: int) -> None:
                assert 0 <= offset <= mem.size
                self.mem, self.ptr = mem, mem.ptr + offset

        class Pool:
            def malloc(self, size: int) -> Any:
                return module._alloc(size)

            def free_all_blocks(self, stream: Stream) -> None:
                assert libcuda.device == stream.device_id
                module.freed_streams.append(stream.ptr)

        pool = Pool()
        self.cuda = SimpleNamespace(
            runtime=self.runtime,
            driver=SimpleNamespace(CUDADriverError=CUDADriverError),
            compiler=SimpleNamespace(CompileException=CompileException),
            Device=Device,
            Stream=Stream,
            UnownedMemory=UnownedMemory,
            MemoryPointer=MemoryPointer,
            memory=SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
            alloc=self._alloc,
            get_allocator=lambda: pool.malloc,
            get_current_stream=lambda device_id=-1: SimpleNamespace(ptr=self._current_stream(device_id)),
        )

    # Attributes of the module

    def ndarray(self, shape: Any, dtype: Any, memptr: Any, strides: Any = None) -> Array:
        interface = {"data": (memptr.ptr, False), "shape": tuple(shape), "typestr": np.dtype(dtype).str, "version": 3}
        view = np.asarray(SimpleNamespace(__array_interface__={**interface, "strides": strides}, owner=memptr))
        if view.size:
            reaches = [(extent - 1) * stride for extent, stride in zip(view.shape, view.strides, strict=True)]
            assert memptr.mem.ptr <= memptr.ptr + sum(min(reach, 0) for reach in reaches)
            end = memptr.ptr + sum(max(reach, 0) for reach in reaches) + view.itemsize
            assert end <= memptr.mem.ptr + memptr.mem.size
        return Array(self, view, memptr, memptr.mem.device_id)

    def from_dlpack(self, value: Any) -> Array:
        return Array(self, np.from_dlpack(value.array), value)

    def add(self, first: Array, second: int, out: Array, dtype: Any) -> None:
        self._kernel(lambda: np.copyto(out.array, first.array))

    def copyto(self, dst: Array, src: Array) -> None:
        self._kernel(lambda: np.copyto(dst.array, src.array))

    def _kernel(self, kernel: Any) -> None:
        if self.launch_error is not None:
            raise self.launch_error
        self.libcuda.streams[self._current_stream()].put(kernel)

    # Controls for tests

    def run(self, stream: int = 0) -> None:
        self.libcuda.streams[stream].run_to(None)

    def launch(self, kernel: Any, stream: int = 0) -> None:
        self.libcuda.streams[stream].put(kernel)

    def num_waiting(self, stream: int = 0) -> int:
        return len(self.libcuda.streams[stream])

    # The runtime

    def _current_stream(self, device_id: int = -1) -> int:
        return self._current[self.libcuda.device if device_id < 0 else device_id][-1]

    def _alloc(self, size: int) -> Any:
        assert self._current_stream()  # the stream that owns the memory
        self.libcuda.use_context()
        if status := self.libcuda.refuse_unsafe() or self.alloc_status:
            raise CUDARuntimeError(status)
        if size > self.libcuda.limit:
            raise OutOfMemoryError(f"Out of memory allocating {size} bytes")
        memory = np.full(size, 0xDD, np.uint8)
        return SimpleNamespace(ptr=memory.__array_interface__["data"][0], memory=memory)


class Array:
    """An array in the stand-in's memory."""

    def __init__(self, module: CupyStandIn, array: Any, owner: Any, device: int = 0) -> None:
        self.array, self.owner = array, owner
        self.shape, self.strides, self.dtype, self.ndim = array.shape, array.strides, array.dtype, array.ndim
        self.flags = SimpleNamespace(c_contiguous=array.flags.c_contiguous)
        self.data = SimpleNamespace(ptr=array.__array_interface__["data"][0])
        self.device = SimpleNamespace(id=device)
        self._module = module

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: Any = None) -> Any:
        assert stream == -1
        if copy:
            raise BufferError("copy=True only supported for copy to CPU.")
        self._module.run()  # reading waits for the default stream
        return self.array.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self.device.id
