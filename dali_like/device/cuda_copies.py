"""Copies to a GPU by CUDA's driver alone: a stream, events, asynchronous copies and page-locked host memory.

See "Stream Management", "Event Management", "Memory Management" and ``cuMemHostRegister`` in the CUDA Driver API. Two
classes add an allocator: `dali_like.device.cuda.CudaDevice` takes memory from CuPy, and
`dali_like.plugin.pytorch.torch_device.TorchDevice` from PyTorch.

The stream does not synchronize with the legacy default stream, on which PyTorch and CuPy work by default. Otherwise a
copy would wait for the kernels that it is meant to overlap with.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from typing import Any

from dali_like.common.hooks import DeviceHooks
from dali_like.device.cuda_driver import BLOCKING, NO_TIMING, CopyKind, Driver, Event, OnGpu, is_fatal
from dali_like.device.cuda_events import CudaFence, CudaStamp
from dali_like.device.cuda_streams import streams_in_use
from dali_like.device.interface import OWN_STREAM
from dali_like.engine.memory.space import mib
from dali_like.errors import DeviceError, OutOfMemoryError

#: Time after which a new origin event replaces the old one, see `CudaCopies.stamp`.
_ORIGIN_LASTS_NS = 10**10
#: Attempts to time an origin event; the most exact one counts, because the scheduler may interrupt this process.
_TRIES = 3
#: ``kDLCUDA`` of DLPack.
_DLPACK_CUDA = 2


class CudaCopies:
    """A GPU with a stream of its own, without an allocator; see `dali_like.device.interface.CopyDevice`.

    Args:
        device_id: the number of the GPU.
        driver: CUDA's.

    Attributes:
        hooks: see `CopyDevice`.

    Raises:
        DeviceError: the GPU cannot be used.
    """

    #: The handle of the stream. Subclasses create it.
    stream: int
    #: Errors of the library that allocates; CUDA's driver has its own.
    _failures: tuple[type[Exception], ...] = ()

    def __init__(self, device_id: int, driver: Driver) -> None:
        self.device_id = device_id
        self.hooks = DeviceHooks()
        self._driver = driver
        self._origin: Event | None = None
        self._origin_ns = 0
        self._context = driver.primary_context(device_id)

    def _on_gpu(self) -> OnGpu:
        """Return a context in which this GPU is current, for one thread."""
        return OnGpu(self._driver, self._context)

    def register(self, address: int, nbytes: int) -> None:
        """See `Pinning.register`. May wait for all work of the GPU, see "Implicit Synchronization" in CUDA's guide."""
        with self._errors("pages cannot be locked"):
            self._driver.register(address, nbytes)

    def unregister(self, address: int) -> bool:
        """See `Pinning.unregister`."""
        try:
            with self._on_gpu():
                return self._driver.unregister(address)
        except Exception as error:  # modules may be empty at interpreter exit
            return is_fatal(error)

    def upload(self, target: int, source: int, nbytes: int) -> None:
        """See `CopyDevice.upload`."""
        self.hooks.begin_copy("to the GPU", self._copy, target, source, nbytes, CopyKind.HOST_TO_DEVICE)

    def download(self, target: int, source: int, nbytes: int) -> None:
        """See `CopyDevice.download`."""
        self.hooks.begin_copy("from the GPU", self._copy, target, source, nbytes, CopyKind.DEVICE_TO_HOST)

    def record(self) -> CudaFence:
        """See `CopyDevice.record`."""
        with self._errors("an event could not be recorded"):
            return self._fence([self.stream])

    def stamp(self) -> CudaStamp:
        """See `CopyDevice.stamp`."""
        with self._errors("an event could not be recorded"):
            # CUDA returns differences as 32-bit floats: after ten seconds, their resolution is down to a microsecond.
            if self._origin is None or time.monotonic_ns() - self._origin_ns > _ORIGIN_LASTS_NS:
                _, self._origin_ns, self._origin = min((self._time() for _ in range(_TRIES)), key=lambda tried: tried[0])
            return CudaStamp(self._driver, self._driver.record(self.stream, BLOCKING), self._origin, self._origin_ns)

    def _time(self) -> tuple[int, int, Event]:
        """Return the uncertainty of a measured time, the time, both in nanoseconds, and the event that was recorded then."""
        self._driver.synchronize(self._driver.record(self.stream, BLOCKING | NO_TIMING))
        begin_ns = time.monotonic_ns()
        event = self._driver.record(self.stream, 0)
        self._driver.synchronize(event)  # spins, for an exact time; no work is left before it
        end_ns = time.monotonic_ns()
        return end_ns - begin_ns, (begin_ns + end_ns) // 2, event

    def fence(self) -> CudaFence:
        """See `Pinning.fence`."""
        try:
            with self._on_gpu():
                return self._fence([*streams_in_use(self.device_id), self.stream])
        except Exception:  # CUDA has failed, or is gone at interpreter exit
            return CudaFence.behind_all(self._driver, self._synchronize)

    def fence_of(self, stream: int | None) -> CudaFence:
        """See `CopyDevice.fence_of`."""
        with self._errors("an event could not be recorded"):
            handles = streams_in_use(self.device_id) if stream is None else {stream}
            self._refuse_captures(handles)
            return self._fence(handles)

    def hold(self, fence: Any, stream: int | None = OWN_STREAM) -> None:
        """See `CopyDevice.hold`."""
        with self._errors("a stream cannot wait for an event"):
            own = self.stream
            handles = streams_in_use(self.device_id) if stream is None else {own if stream == OWN_STREAM else stream}
            for handle in handles:
                if fence.events is None or (handle != own and self._driver.is_capturing(handle)):
                    fence.wait()
                    if fence.events is None:
                        raise fence.error
                else:
                    for event in fence.events:
                        self._driver.let_wait(handle, event)

    def close(self) -> None:
        """See `CopyDevice.close`."""
        with contextlib.suppress(Exception):
            self.record().wait()

    @property
    def dlpack_device(self) -> tuple[int, int]:
        """See `CopyDevice.dlpack_device`."""
        return _DLPACK_CUDA, self.device_id

    def _copy(self, target: int, source: int, nbytes: int, kind: CopyKind) -> None:
        if nbytes:
            with self._errors("a copy could not be begun"):
                self._driver.copy(target, source, nbytes, kind, self.stream)

    def _refuse_captures(self, handles: Iterable[int]) -> None:
        for handle in handles:
            if self._driver.is_capturing(handle):
                raise DeviceError(
                    f"GPU {self.device_id}: the stream {handle:#x} captures a CUDA graph, so its work runs only later. Give "
                    "arrays to a pipeline or take them from it before or after the capture"
                )

    def _fence(self, handles: Iterable[int]) -> CudaFence:
        return CudaFence(self._driver, self._driver.record_all(handles), self._synchronize)

    def _synchronize(self) -> None:
        """Wait for all work of the GPU."""
        with self._on_gpu():
            self._driver.synchronize_all()

    @contextlib.contextmanager
    def _errors(self, problem: str) -> Any:
        """Make this GPU current in this thread, and convert CUDA's errors to DeviceError."""
        try:
            with self._on_gpu():
                yield
        except self._failures as error:
            raise DeviceError(f"GPU {self.device_id}: {problem}: {error}") from error

    def _shortage(self, nbytes: int, advice: str) -> OutOfMemoryError:
        """Return the error for memory that cannot be allocated."""
        with self._errors("its free memory is unknown"):
            free, total = self._driver.memory_info()
        return OutOfMemoryError(
            f"a batch needs {mib(nbytes)} of memory on GPU {self.device_id}, which has {mib(free)} free of {mib(total)}. "
            f"{advice}, or let other libraries reserve less"
        )
