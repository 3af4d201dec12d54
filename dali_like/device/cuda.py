"""An NVIDIA GPU, through CuPy.

Uses a stream, events, asynchronous copies and page-locked host memory: see "Stream Management", "Event Management" and
``cudaHostRegister`` in the CUDA Runtime API, and ``cupy.cuda`` in CuPy's reference. Memory comes from CuPy's current
allocator, so `cupy.cuda.set_allocator` and the limits of its pool apply.

The stream does not synchronize with the legacy default stream, on which PyTorch and CuPy work by default. Otherwise a
copy would wait for the kernels that it is meant to overlap with.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dali_like.common.extras import GPU_EXTRAS, optional
from dali_like.device.cuda_streams import DEFAULT_STREAM, in_place_of_cupys, stream_of_cupy, stream_of_torch
from dali_like.device.interface import OWN_STREAM, GpuArray
from dali_like.engine.memory.space import mib
from dali_like.errors import ArgumentTypeError, DeviceError, OutOfMemoryError

#: Results of ``cudaEventQuery``.
_SUCCESS = 0
_NOT_READY = 600
#: ``cudaHostRegisterPortable``: page-locked for all GPUs.
_PORTABLE = 1
#: Time after which a new origin event replaces the old one, see `CudaDevice.stamp`.
_ORIGIN_LASTS_NS = 10**10
#: Attempts to time an origin event; the most exact one counts, because the scheduler may interrupt this process.
_TRIES = 3
_HOST_TO_DEVICE, _DEVICE_TO_HOST, _DEVICE_TO_DEVICE = 1, 2, 3
#: ``kDLCPU`` and ``kDLCUDA`` of DLPack.
_DLPACK_CPU, _DLPACK_CUDA = 1, 2


class CudaFence:
    """Events on one or more streams; see `dali_like.device.interface.DeviceFence`."""

    def __init__(self, runtime: Any, events: Sequence[Any]) -> None:
        self._runtime = runtime
        self.events = events
        self.error: DeviceError | None = None

    def passed(self) -> bool:
        """Whether all events have passed, or never will because the GPU has failed."""
        for event in self.events:
            status = self._runtime.eventQuery(event.ptr)
            if status == _NOT_READY:
                return False
            if status != _SUCCESS:
                self.error = DeviceError(f"the GPU has failed before the end of a copy, with CUDA's error {status}")
        return True

    def wait(self) -> None:
        """Wait for all events, without the GIL."""
        for event in self.events:
            try:
                self._runtime.eventSynchronize(event.ptr)
            except Exception as error:  # CuPy's exceptions vary, above all at interpreter exit
                self.error = DeviceError(f"the GPU has failed before the end of a copy: {error}")


class CudaStamp:
    """An event that records the time; see `dali_like.device.interface.Stamp`.

    Args:
        origin: an earlier event, which has passed.
        origin_ns: the time of that event.
    """

    def __init__(self, runtime: Any, event: Any, origin: Any, origin_ns: int) -> None:
        self._runtime = runtime
        self._event = event
        self._origin = origin
        self._origin_ns = origin_ns

    def time_ns(self) -> int | None:
        """Return the time when the stream reached the event; the time of the origin if the GPU has failed."""
        status = self._runtime.eventQuery(self._event.ptr)
        if status == _NOT_READY:
            return None
        if status != _SUCCESS:
            return self._origin_ns
        elapsed_ms: float = self._runtime.eventElapsedTime(self._origin.ptr, self._event.ptr)
        return self._origin_ns + round(elapsed_ms * 1e6)

    def wait(self) -> None:
        """Wait until the stream has reached the event."""
        with contextlib.suppress(self._runtime.CUDARuntimeError):
            self._runtime.eventSynchronize(self._event.ptr)


class CudaBlock:
    """Memory of the GPU, from CuPy's allocator; see `dali_like.device.interface.Block`."""

    def __init__(self, pointer: Any) -> None:
        self._pointer = pointer
        self.address: int = pointer.ptr


class CudaDevice:
    """A GPU, with a stream of its own; see `dali_like.device.interface.Device`.

    Args:
        device_id: the number of the GPU.

    Raises:
        DeviceError: the GPU cannot be used.
        MissingExtraError: CuPy is not installed.
    """

    def __init__(self, device_id: int) -> None:
        self._cupy = optional("cupy", "a GPU as the place of batches", *GPU_EXTRAS)
        self._runtime = self._cupy.cuda.runtime
        self.device_id = device_id
        self._decoding = threading.Lock()
        self._decoder: Any = None
        self._origin: Any = None
        self._origin_ns = 0
        try:
            with self._gpu:
                self._stream = self._cupy.cuda.Stream(non_blocking=True)
        except self._runtime.CUDARuntimeError as error:
            raise DeviceError(f"GPU {device_id} cannot be used: {error}") from error

    @property
    def _gpu(self) -> Any:
        """A context in which this GPU is CUDA's current device. CuPy's contexts are for one thread each."""
        return self._cupy.cuda.Device(self.device_id)

    @property
    def stream(self) -> int:
        """See `Device.stream`."""
        return int(self._stream.ptr)

    def register(self, address: int, nbytes: int) -> None:
        """See `Pinning.register`."""
        with self._errors("pages cannot be locked"):
            self._runtime.hostRegister(address, nbytes, _PORTABLE)

    def unregister(self, address: int) -> None:
        """See `Pinning.unregister`."""
        with contextlib.suppress(Exception), self._gpu:  # CUDA may be gone at interpreter exit
            self._runtime.hostUnregister(address)

    def allocate(self, nbytes: int) -> CudaBlock:
        """See `Device.allocate`."""
        try:
            with self._gpu, in_place_of_cupys(self._stream):
                return CudaBlock(self._cupy.cuda.alloc(nbytes))
        except (self._cupy.cuda.memory.OutOfMemoryError, MemoryError) as error:
            with self._gpu:
                free, total = self._runtime.memGetInfo()
            raise OutOfMemoryError(
                f"a batch needs {mib(nbytes)} of memory on GPU {self.device_id}, which has {mib(free)} free of "
                f"{mib(total)}. Hold fewer batches, lower prefetch_queue_depth or the batch size, or let "
                "other libraries reserve less"
            ) from error

    def upload(self, target: int, source: int, nbytes: int) -> None:
        """See `Device.upload`."""
        self._copy(target, source, nbytes, _HOST_TO_DEVICE)

    def download(self, target: int, source: int, nbytes: int) -> None:
        """See `Device.download`."""
        self._copy(target, source, nbytes, _DEVICE_TO_HOST)

    def move(self, target: int, source: int, nbytes: int, *, by_kernel: bool = False) -> None:
        """See `Device.move`."""
        if not by_kernel:
            self._copy(target, source, nbytes, _DEVICE_TO_DEVICE)
            return
        with self._errors("a kernel that copies could not be launched"), in_place_of_cupys(self._stream):
            arrays = [self._array(GpuArray(address, (nbytes,), np.dtype(np.uint8), None)) for address in (source, target)]
            self._cupy.add(arrays[0], 0, out=arrays[1], dtype=np.uint8)

    def record(self) -> CudaFence:
        """See `Device.record`."""
        with self._errors("an event could not be recorded"):
            return self._fence([self.stream])

    def stamp(self) -> CudaStamp:
        """See `Device.stamp`."""
        with self._errors("an event could not be recorded"):
            # CUDA returns differences as 32-bit floats: after ten seconds, their resolution is down to a microsecond.
            if self._origin is None or time.monotonic_ns() - self._origin_ns > _ORIGIN_LASTS_NS:
                _, self._origin_ns, self._origin = min((self._time() for _ in range(_TRIES)), key=lambda tried: tried[0])
            return CudaStamp(self._runtime, self._timer(), self._origin, self._origin_ns)

    def _time(self) -> tuple[int, int, Any]:
        """Return an event that has passed and its time, preceded by the uncertainty of that time, in nanoseconds."""
        self._stream.synchronize()
        begin_ns = time.monotonic_ns()
        event = self._timer()
        self._runtime.eventSynchronize(event.ptr)
        end_ns = time.monotonic_ns()
        return end_ns - begin_ns, (begin_ns + end_ns) // 2, event

    def _timer(self) -> Any:
        """Return an event with timing, behind all work queued on the device's stream."""
        event = self._cupy.cuda.Event()
        self._runtime.eventRecord(event.ptr, self.stream)
        return event

    def fence(self) -> CudaFence:
        """See `Pinning.fence`."""
        try:
            with self._gpu:
                return self._fence([*self._in_use(), self.stream])
        except Exception:  # CUDA has failed, or is gone at interpreter exit
            with contextlib.suppress(Exception):
                self._gpu.synchronize()
            return CudaFence(self._runtime, [])

    def fence_of(self, stream: int | None) -> CudaFence:
        """See `Device.fence_of`."""
        with self._errors("an event could not be recorded"):
            return self._fence(self._in_use() if stream is None else [stream])

    def hold(self, fence: Any, stream: int | None = OWN_STREAM) -> None:
        """See `Device.hold`."""
        with self._errors("a stream cannot wait for an event"):
            handles = self._in_use() if stream is None else [self.stream if stream == OWN_STREAM else stream]
            for handle in handles:
                for event in fence.events:
                    self._runtime.streamWaitEvent(handle, event.ptr)

    def adopt(self, value: Any) -> GpuArray:
        """See `Device.adopt`. Streams wait for each other on the GPU; CuPy's ``asarray`` would make this process wait."""
        try:
            interface = getattr(value, "__cuda_array_interface__", None)
            with self._gpu, in_place_of_cupys(self._stream):
                array = self._cupy.from_dlpack(value) if interface is None else self._of_interface(interface, value)
                array = self._cupy.ascontiguousarray(array) if array.ndim else array
        except DeviceError:
            raise
        except Exception as error:  # from CuPy, or from the library of the array
            kind = type(value)
            raise ArgumentTypeError(f"a {kind.__module__}.{kind.__qualname__} is not an array on a GPU: {error}") from error
        if array.device.id != self.device_id:
            raise ArgumentTypeError(
                f"an array on GPU {array.device.id} was given to a pipeline with device_id={self.device_id}"
            )
        return GpuArray(int(array.data.ptr), tuple(array.shape), np.dtype(array.dtype), array)

    def export(self, array: GpuArray, **options: Any) -> Any:
        """See `Device.export`."""
        with self._errors("an array cannot be exported"):
            exported = self._array(array)
            try:
                return exported.__dlpack__(stream=-1, **options)
            except TypeError:  # older versions of CuPy lack some options
                return exported.__dlpack__(stream=-1)

    def decode_images(self, encoded: Sequence[bytes], *, is_gray: bool, is_upright: bool) -> Sequence[Any]:
        """See `Device.decode_images`. Uses nvImageCodec, with the same upsampling as libjpeg.

        Raises:
            DeviceError: nvImageCodec fails on this GPU.
            MissingExtraError: nvImageCodec is not installed.
        """
        codec = optional("nvidia.nvimgcodec", "decoding images on a GPU", *GPU_EXTRAS)
        spec = codec.ColorSpec.GRAY if is_gray else codec.ColorSpec.SRGB
        try:
            with self._decoding, self._gpu:
                if self._decoder is None:
                    self._decoder = codec.Decoder(device_id=self.device_id, options=":fancy_upsampling=1")
                params = codec.DecodeParams(apply_exif_orientation=is_upright, color_spec=spec)
                decoded: Sequence[Any] = self._decoder.decode(list(encoded), params=params, cuda_stream=self.stream)
        except Exception as error:  # from nvImageCodec or CUDA; an undecodable image is no exception but None
            raise DeviceError(f"GPU {self.device_id}: nvImageCodec has failed: {error}") from error
        return decoded

    @property
    def dlpack_device(self) -> tuple[int, int]:
        """See `Device.dlpack_device`."""
        return _DLPACK_CUDA, self.device_id

    def close(self) -> None:
        """See `Device.close`."""
        with contextlib.suppress(Exception):
            self._stream.synchronize()

    def _copy(self, target: int, source: int, nbytes: int, kind: int) -> None:
        if nbytes:
            with self._errors("a copy could not be begun"):
                self._runtime.memcpyAsync(target, source, nbytes, kind, self.stream)

    def _of_interface(self, interface: Mapping[str, Any], owner: Any) -> Any:
        """Return a CuPy array over the memory that the CUDA Array Interface describes."""
        if (stream := interface.get("stream")) is not None:
            self.hold(self.fence_of(stream))
        address, shape, strides = interface["data"][0], tuple(interface["shape"]), interface.get("strides")
        dtype = np.dtype(interface["typestr"])
        nbytes = math.prod(shape) * dtype.itemsize
        if strides is not None and nbytes:
            nbytes = sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True)) + dtype.itemsize
        memory = self._cupy.cuda.UnownedMemory(address, nbytes, owner, -1 if address else self.device_id)
        return self._cupy.ndarray(shape, dtype, self._cupy.cuda.MemoryPointer(memory, 0), strides)

    def _array(self, array: GpuArray) -> Any:
        """Return the array as a CuPy array, which keeps the owner alive."""
        nbytes = math.prod(array.shape) * array.dtype.itemsize
        memory = self._cupy.cuda.UnownedMemory(array.address, nbytes, array.owner, self.device_id)
        return self._cupy.ndarray(array.shape, array.dtype, self._cupy.cuda.MemoryPointer(memory, 0))

    def _fence(self, handles: Sequence[int]) -> CudaFence:
        events = []
        for handle in handles:
            event = self._cupy.cuda.Event(disable_timing=True)
            self._runtime.eventRecord(event.ptr, handle)
            events.append(event)
        return CudaFence(self._runtime, events)

    def _in_use(self) -> list[int]:
        """Return the streams that the user's work may be on; see `Pinning.fence`."""
        handles = {DEFAULT_STREAM, stream_of_cupy(), stream_of_torch(self.device_id)}
        return [handle for handle in handles if handle is not None]

    @contextlib.contextmanager
    def _errors(self, problem: str) -> Any:
        """Make this GPU CUDA's current device, and convert CUDA's errors to DeviceError."""
        try:
            with self._gpu:
                yield
        except self._runtime.CUDARuntimeError as error:
            raise DeviceError(f"GPU {self.device_id}: {problem}: {error}") from error
