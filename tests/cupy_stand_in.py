"""The part of CuPy that this library uses, in host memory, with the names and arguments of CuPy 14.

What is put on a stream is carried out when somebody waits for it, as `dali_like.testing.simulated_device` does it.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
from types import SimpleNamespace
from typing import Any

import numpy as np

from dali_like.testing.simulated_device import Marker, SimulatedFence, SimulatedStream

NOT_READY = 600


class CUDARuntimeError(RuntimeError):
    pass


class OutOfMemoryError(MemoryError):
    pass


class CupyStandIn:
    """The stand-in for the module.

    Attributes:
        registered: the page-locked extents.
        failed: the events that say that the GPU has failed, with the error's number.
        limit: how many bytes may be allocated.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._handles = itertools.count(5000)
        self._streams: dict[int, SimulatedStream] = {0: SimulatedStream(self._lock)}
        self._events: dict[int, Marker] = {}
        self._timed: set[int] = set()
        self._current = [0]
        self.registered: dict[int, int] = {}
        self.failed: dict[int, int] = {}
        self.limit = 1 << 30
        self.refuses = False
        self.runtime = SimpleNamespace(
            CUDARuntimeError=CUDARuntimeError,
            hostRegister=self._host_register,
            hostUnregister=self._host_unregister,
            memcpyAsync=self._memcpy,
            eventRecord=self._event_record,
            eventQuery=self._event_query,
            eventSynchronize=self._event_synchronize,
            eventElapsedTime=self._elapsed_ms,
            streamWaitEvent=self._stream_wait,
            memGetInfo=lambda: (self.limit, 2 * self.limit),
        )
        module = self

        class Device:
            def __init__(self, device: int) -> None:
                if device > 1:
                    raise CUDARuntimeError("cudaErrorInvalidDevice: invalid device ordinal")
                self.id = device

            def __enter__(self) -> None: ...

            def __exit__(self, *_: object) -> None: ...

            def synchronize(self) -> None:
                for stream in module._streams.values():
                    stream.run_to(None)

        class Stream:
            def __init__(self, null: bool = False, non_blocking: bool = False) -> None:
                assert non_blocking
                self.ptr = next(module._handles)
                module._streams[self.ptr] = SimulatedStream(module._lock)

            def __enter__(self) -> None:
                module._current.append(self.ptr)

            def __exit__(self, *_: object) -> None:
                module._current.pop()

            def synchronize(self) -> None:
                module._streams[self.ptr].run_to(None)

        class Event:
            def __init__(self, block: bool = False, disable_timing: bool = False) -> None:
                self.ptr = next(module._handles)
                if not disable_timing:
                    module._timed.add(self.ptr)

        class UnownedMemory:
            def __init__(self, ptr: int, size: int, owner: Any, device_id: int = -1) -> None:
                self.ptr, self.size, self.owner = ptr, size, owner

        class MemoryPointer:
            def __init__(self, mem: UnownedMemory, offset: int) -> None:
                self.mem, self.ptr = mem, mem.ptr + offset

        self.cuda = SimpleNamespace(
            runtime=self.runtime,
            Device=Device,
            Stream=Stream,
            Event=Event,
            UnownedMemory=UnownedMemory,
            MemoryPointer=MemoryPointer,
            memory=SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
            alloc=self._alloc,
            get_current_stream=lambda: SimpleNamespace(ptr=self._current[-1]),
        )

    # Attributes of the module

    def ndarray(self, shape: Any, dtype: Any, memptr: Any, strides: Any = None) -> Array:
        interface = {"data": (memptr.ptr, False), "shape": tuple(shape), "typestr": np.dtype(dtype).str, "version": 3}
        view = np.asarray(SimpleNamespace(__array_interface__={**interface, "strides": strides}, owner=memptr))
        return Array(self, view, memptr)

    def ascontiguousarray(self, array: Array) -> Array:
        if array.array.flags.c_contiguous:
            return array
        copy = np.empty(array.shape, array.dtype)
        self._streams[self._current[-1]].put(lambda: np.copyto(copy, array.array))
        return Array(self, copy, array)

    def from_dlpack(self, value: Any) -> Array:
        return Array(self, np.from_dlpack(value.array), value)

    def add(self, first: Array, second: int, out: Array, dtype: Any) -> None:
        self._streams[self._current[-1]].put(lambda: np.copyto(out.array, first.array) and None)

    # The runtime

    def run(self, stream: int = 0) -> None:
        self._streams[stream].run_to(None)

    def launch(self, kernel: Any, stream: int = 0) -> None:
        self._streams[stream].put(kernel)

    def num_waiting(self, stream: int = 0) -> int:
        return len(self._streams[stream])

    def _alloc(self, size: int) -> Any:
        assert self._current[-1]  # the stream that owns the memory
        if size > self.limit:
            raise OutOfMemoryError(f"Out of memory allocating {size} bytes")
        memory = np.full(size, 0xDD, np.uint8)
        return SimpleNamespace(ptr=memory.__array_interface__["data"][0], memory=memory)

    def _host_register(self, ptr: int, size: int, flags: int) -> None:
        assert flags == 1
        if self.refuses:
            raise CUDARuntimeError("cudaErrorMemoryAllocation: out of memory")
        self.registered[ptr] = size

    def _host_unregister(self, ptr: int) -> None:
        del self.registered[ptr]

    def _memcpy(self, dst: int, src: int, size: int, kind: int, stream: int) -> None:
        assert kind in (1, 2, 3)

        def copy() -> None:
            ctypes.memmove(dst, src, size)

        self._streams[stream].put(copy)

    def _event_record(self, event: int, stream: int) -> None:
        self._events[event] = self._streams[stream].mark()

    def _event_query(self, event: int) -> int:
        return self.failed.get(event, 0 if self._events[event].is_done else NOT_READY)

    def _event_synchronize(self, event: int) -> None:
        SimulatedFence([self._events[event]]).wait()
        if event in self.failed:
            raise CUDARuntimeError("cudaErrorLaunchFailure: unspecified launch failure")

    def _elapsed_ms(self, first: int, second: int) -> float:
        assert {first, second} <= self._timed
        return (self._events[second].passed_ns - self._events[first].passed_ns) / 1e6

    def _stream_wait(self, stream: int, event: int, flags: int = 0) -> None:
        self._streams[stream].put(SimulatedFence([self._events[event]]))


class Array:
    """An array in the stand-in's memory."""

    def __init__(self, module: CupyStandIn, array: Any, owner: Any, device: int = 0) -> None:
        self.array, self.owner = array, owner
        self.shape, self.dtype, self.ndim = array.shape, array.dtype, array.ndim
        self.data = SimpleNamespace(ptr=array.__array_interface__["data"][0])
        self.device = SimpleNamespace(id=device)
        self._module = module

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: Any = None) -> Any:
        assert stream == -1
        self._module.run()  # reading waits for the default stream
        return self.array.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self.device.id
