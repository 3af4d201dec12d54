"""A CuPy stand-in with arrays, kernels and page-locked memory: the part of CuPy that tests and steps for a real GPU use.

Work runs only when a call waits for it, or asks whether a stream is done; then all streams run until they are blocked.
Waits for shut gates are counted: a real one would block that thread until it opens by itself.
"""

from __future__ import annotations

import ctypes
import functools
from importlib.machinery import ModuleSpec
from types import SimpleNamespace
from typing import Any

import numpy as np

from dali_like.errors import DeviceError
from dali_like.testing.simulated_device import SimulatedFence
from tests.cupy_stand_in import Array, CupyStandIn

LEGACY_STREAM = 1


class CupyWithArrays(CupyStandIn):
    """The stand-in for the module.

    Attributes:
        num_overrun: the number of waits for shut gates.
    """

    __spec__ = ModuleSpec("cupy", None)
    int32, int64, float32, uint8 = np.int32, np.int64, np.float32, np.uint8

    def __init__(self) -> None:
        super().__init__()
        self.num_overrun = 0
        self._memory: list[Any] = []  # of its own arrays: kernels keep nothing alive
        streams = self.libcuda.streams
        streams[LEGACY_STREAM] = streams[0]
        module, stream_class, device_class = self, self.cuda.Stream, self.cuda.Device

        class ExternalStream(stream_class):  # type: ignore[misc, valid-type]
            def __init__(self, ptr: int, device_id: int = -1) -> None:
                assert ptr in streams
                self.ptr, self.device_id = ptr, max(device_id, 0)

            @property
            def done(self) -> bool:
                module.run_until_blocked()
                return not streams[self.ptr]

        class Device(device_class):  # type: ignore[misc, valid-type]
            def __init__(self, device: int = 0) -> None:
                super().__init__(device)

            def synchronize(self) -> None:
                module.synchronize()

        class RawKernel:
            def __init__(self, code: str, name: str) -> None:
                assert f"void {name}(" in code
                self.kernel = getattr(module, f"_{name}")

            def __call__(self, grid: tuple[int], block: tuple[int], args: tuple[Any, ...]) -> None:
                assert grid == block == (1,)
                # Private: a method of the stand-in's own module
                module._kernel(functools.partial(self.kernel, *args))

        self.cuda.Device = Device
        self.cuda.ExternalStream = ExternalStream
        self.cuda.Stream.null = ExternalStream(0)
        self.cuda.alloc_pinned_memory = _alloc_pinned_memory
        self.RawKernel = RawKernel
        register = self.libcuda.cuMemHostRegister_v2

        def register_when_idle(*args: Any) -> int:
            self.synchronize()
            return register(*args)

        self.libcuda.cuMemHostRegister_v2 = register_when_idle  # type: ignore[method-assign]
        self.runtime.memcpyHostToDevice = 1
        self.runtime.memcpyAsync = self._memcpy
        self.runtime.streamSynchronize = lambda stream: streams[stream].run_to(None)

    def synchronize(self) -> None:
        """Wait for all work, as a registration of memory may do."""
        for stream in list(self.libcuda.streams.values()):
            stream.run_to(None)

    def _memcpy(self, dst: int, src: int, size: int, kind: int, stream: int) -> None:
        assert kind == self.runtime.memcpyHostToDevice
        self.libcuda.streams[stream].put(functools.partial(ctypes.memmove, dst, src, size))

    def run_until_blocked(self) -> None:
        """Run all streams until each is empty, at a shut gate, or waiting for a stream that is."""
        streams = list(self.libcuda.streams.values())
        # Private: an attribute of the stand-in's own streams
        while unblocked := [stream for stream in streams if stream and not self._is_blocked(stream._waiting[0])]:
            for stream in unblocked:
                stream.step()

    def _is_blocked(self, step: Any) -> bool:
        if isinstance(step, SimulatedFence):
            return not step.passed()
        is_gate = isinstance(step, functools.partial) and step.func == self._wait_for
        return is_gate and not _is_open(step.args[0])

    def _wait_for(self, flag: int, most_ns: int) -> None:
        assert isinstance(most_ns, int)
        self.num_overrun += not _is_open(flag)

    def _trap(self) -> None:
        raise DeviceError("a kernel has failed")

    def made(self, compute: Any) -> ArrayOnGpu:
        """Return the array that a kernel on the current stream computes."""
        array = np.empty_like(compute(), order="C")
        self._memory.append(array)
        self._kernel(lambda: np.copyto(array, compute()))
        return ArrayOnGpu(self, array)

    def empty(self, shape: Any, dtype: Any = np.float64) -> ArrayOnGpu:
        self._memory.append(np.full(shape, 0x55, dtype))
        return ArrayOnGpu(self, self._memory[-1])

    def zeros(self, shape: Any, dtype: Any = np.float64) -> ArrayOnGpu:
        return self.made(lambda: np.zeros(shape, dtype))

    def full(self, shape: Any, value: Any, dtype: Any) -> ArrayOnGpu:
        return self.made(lambda: np.full(shape, value, dtype))

    def arange(self, *bounds: int, dtype: Any) -> ArrayOnGpu:
        return self.made(lambda: np.arange(*bounds, dtype=dtype))

    def broadcast_to(self, array: ArrayOnGpu, shape: Any) -> ArrayOnGpu:
        return ArrayOnGpu(self, np.broadcast_to(array.array, shape))

    def asarray(self, value: Any) -> ArrayOnGpu:
        interface = value.__cuda_array_interface__
        assert interface["stream"] is None
        return ArrayOnGpu(self, np.asarray(SimpleNamespace(__array_interface__=interface, owner=value)))

    def from_dlpack(self, value: Any) -> Any:
        if isinstance(value, Array):
            return super().from_dlpack(value)
        capsule = value.__dlpack__(stream=self._current_stream() or LEGACY_STREAM, max_version=(1, 0), copy=None)
        exported = type("Exported", (), {"__dlpack__": lambda *_, **__: capsule, "__dlpack_device__": lambda _: (1, 0)})
        return ArrayOnGpu(self, np.from_dlpack(exported()))


def _without_owner(array: Any) -> Any:
    return np.asarray(SimpleNamespace(__array_interface__=array.__array_interface__))


def _is_open(flag: int) -> bool:
    return bool(ctypes.c_int32.from_address(flag).value)


def _alloc_pinned_memory(nbytes: int) -> Any:
    memory = (ctypes.c_char * nbytes)()
    memory.ptr = ctypes.addressof(memory)  # type: ignore[attr-defined]
    return memory


class ArrayOnGpu(Array):
    """An array with the methods of CuPy's."""

    def __init__(self, module: CupyWithArrays, array: Any) -> None:
        super().__init__(module, array, array)
        self.nbytes, self.size = array.nbytes, array.size
        self._module: Any = module

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        stream = self._module._current_stream() or LEGACY_STREAM
        return {**self.array.__array_interface__, "version": 3, "stream": stream}

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, key: Any) -> ArrayOnGpu:
        return ArrayOnGpu(self._module, self.array[key] if np.ndim(self.array[key]) else self.array[key].reshape(()))

    def __setitem__(self, key: Any, value: Any) -> None:
        array = _without_owner(self.array)
        # Private: a method of the stand-in's own module
        self._module._kernel(lambda: array.__setitem__(key, value))

    def __add__(self, other: Any) -> ArrayOnGpu:
        return self._made(lambda array: array + other)

    def _made(self, compute: Any) -> ArrayOnGpu:
        array = _without_owner(self.array)
        return self._module.made(lambda: compute(array))  # type: ignore[no-any-return]

    def __int__(self) -> int:
        return int(self.get())

    @property
    def T(self) -> ArrayOnGpu:  # noqa: N802  # NumPy's name
        return ArrayOnGpu(self._module, self.array.T)

    def reshape(self, *shape: Any) -> ArrayOnGpu:
        return ArrayOnGpu(self._module, self.array.reshape(*shape))

    def copy(self) -> ArrayOnGpu:
        return self._made(lambda array: array)

    def min(self, axis: int) -> ArrayOnGpu:
        return self._made(lambda array: array.min(axis))

    def max(self, axis: int) -> ArrayOnGpu:
        return self._made(lambda array: array.max(axis))

    def get(self) -> Any:
        self._module.run(self._module._current_stream())
        return self.array.copy()

    def tolist(self) -> Any:
        return self.get().tolist()
