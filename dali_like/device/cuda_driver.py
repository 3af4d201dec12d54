"""Functions of CUDA's driver that CUDA's runtime and CuPy lack: contexts, the capture mode of threads, states of events.

All libraries of a process share the primary context of a GPU. Pushing and popping it changes nothing for the calling
thread. In contrast, ``cudaSetDevice`` of CUDA 12 and later creates a context on the GPU that it selects, so resetting
GPU 0 would allocate memory there in each process that works on another GPU. See "Context Management", "Primary Context
Management" and "Interactions with the CUDA Runtime" in the CUDA Driver API.

While a thread captures a graph in the global mode, the default, calls such as ``cudaMalloc``, ``cudaHostRegister`` and
``cudaEventQuery`` fail in all threads and invalidate the capture. Calls in the relaxed mode neither fail nor
invalidate it, see ``cuThreadExchangeStreamCaptureMode``. PyTorch's allocators do the same.
"""

from __future__ import annotations

import ctypes
import enum
import functools
from collections.abc import Iterable
from typing import Any

from dali_like.common.interrupts import deferred_interrupts
from dali_like.errors import DeviceError

#: Results of the driver. The runtime has the same numbers for them.
SUCCESS = 0
OUT_OF_MEMORY = 2
_HOST_MEMORY_NOT_REGISTERED = 713
#: Errors after which no work of this process runs on the GPU any more. CUDA is gone (4, 709), the hardware has failed
#: (214, 220, 226, 721), the server of MPS has ended the client (810), or a kernel has failed, after which "the process
#: must be terminated and relaunched": see ``CUresult`` in the CUDA Driver API.
FATAL = frozenset({4, 214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 810, 911})

#: ``CU_STREAM_NON_BLOCKING``: a stream that does not synchronize with the legacy default stream.
_NON_BLOCKING = 1


class CopyKind(enum.Enum):
    """Direction of a copy; the value is the function of the driver."""

    HOST_TO_DEVICE = "cuMemcpyHtoDAsync_v2"
    DEVICE_TO_HOST = "cuMemcpyDtoHAsync_v2"
    DEVICE_TO_DEVICE = "cuMemcpyDtoDAsync_v2"


#: Flags of events. To wait for an event, a thread sleeps if it is BLOCKING, and otherwise spins.
BLOCKING, NO_TIMING = 1, 2

_LIBRARY = "libcuda.so.1"
#: ``CU_STREAM_CAPTURE_MODE_RELAXED``.
_RELAXED = 2
#: ``CU_MEMHOSTREGISTER_PORTABLE``: page-locked for all GPUs.
_PORTABLE = 1
#: All errors about capturing streams, ``CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED`` and those after it.
_CAPTURE_ERRORS = range(900, 909)


class DriverError(DeviceError):
    """The driver has returned an error.

    Attributes:
        status: the error's number.
    """

    def __init__(self, problem: str, status: int, name: str) -> None:
        super().__init__(f"{problem}: {name} ({status})")
        self.status = status


def is_fatal(error: BaseException) -> bool:
    """Whether no work runs on the GPU after an error: the GPU has failed, or CUDA is gone at interpreter exit.

    Args:
        error: of CuPy, which has the attribute ``status``, or of PyTorch, which has ``error_code`` from 2.8 on; anything
            else that is not an error of CUDA comes from modules that Python has emptied.
    """
    status = getattr(error, "status", getattr(error, "error_code", None))
    if status is not None:
        return status in FATAL
    return not isinstance(error, (RuntimeError, MemoryError))


class Event:
    """A CUDA event, destroyed with this object. Has no context: every thread may use it.

    Attributes:
        handle: its handle.
    """

    __slots__ = ("_destroy", "handle")

    def __init__(self, handle: ctypes.c_void_p, destroy: Any) -> None:
        self.handle = handle
        self._destroy = destroy

    def __del__(self) -> None:
        self._destroy(self.handle)


class Driver:
    """Calls of the driver.

    CuPy's calls for events cannot replace them. Its ``eventQuery`` keeps the GIL, although a long registration of memory in
    another thread may block it. In a thread without a context, calls of the runtime create one on GPU 0.

    Args:
        library: releases the GIL in calls.
        brief: the same library, keeps the GIL: for calls that only change variables of the thread.
    """

    def __init__(self, library: Any, brief: Any) -> None:
        self._library = library
        self._brief = brief
        self._contexts: dict[int, ctypes.c_void_p] = {}

    def primary_context(self, device_id: int) -> ctypes.c_void_p:
        """Return the primary context of a GPU, created if necessary. It stays for the life of the process.

        Raises:
            DriverError: the GPU cannot be used.
        """
        if device_id not in self._contexts:
            problem = f"GPU {device_id} cannot be used"
            device, context = ctypes.c_int(), ctypes.c_void_p()
            self._check(self._library.cuInit(0), problem)
            self._check(self._library.cuDeviceGet(ctypes.byref(device), device_id), problem)
            self._check(self._library.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), problem)
            self._contexts[device_id] = context
        return self._contexts[device_id]

    def has_context(self, device_id: int) -> bool:
        """Whether any library uses a GPU in this process."""
        device, flags, is_active = ctypes.c_int(), ctypes.c_uint(), ctypes.c_int()
        self._library.cuDeviceGet(ctypes.byref(device), device_id)
        self._library.cuDevicePrimaryCtxGetState(device, ctypes.byref(flags), ctypes.byref(is_active))
        return bool(is_active.value)

    def register(self, address: int, nbytes: int) -> None:
        """Page-lock memory of this process, in the current context.

        Raises:
            DriverError: CUDA refuses.
        """
        status = self._library.cuMemHostRegister_v2(ctypes.c_void_p(address), ctypes.c_size_t(nbytes), _PORTABLE)
        self._check(status, "pages cannot be locked")

    def unregister(self, address: int) -> bool:
        """Unlock memory, and return whether no GPU accesses its pages any more."""
        status = self._library.cuMemHostUnregister(ctypes.c_void_p(address))
        return status in (SUCCESS, _HOST_MEMORY_NOT_REGISTERED) or status in FATAL

    def create_stream(self) -> int:
        """Return the handle of a new stream of the current context, which lives as long as the process.

        Raises:
            DriverError: it cannot be created.
        """
        handle = ctypes.c_void_p()
        status = self._library.cuStreamCreate(ctypes.byref(handle), _NON_BLOCKING)
        self._check(status, "a stream cannot be created")
        return handle.value or 0

    def copy(self, target: int, source: int, nbytes: int, kind: CopyKind, stream: int) -> None:
        """Queue a copy on a stream of the current context.

        Raises:
            DriverError: it cannot be queued.
        """
        queue = getattr(self._library, kind.value)
        status = queue(ctypes.c_void_p(target), ctypes.c_void_p(source), ctypes.c_size_t(nbytes), ctypes.c_void_p(stream))
        self._check(status, "a copy could not be begun")

    def memory_info(self) -> tuple[int, int]:
        """Return the free and the total memory of the current GPU, in bytes.

        Raises:
            DriverError: they are unknown.
        """
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        status = self._library.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
        self._check(status, "the free memory is unknown")
        return free.value, total.value

    def push(self, context: ctypes.c_void_p) -> None:
        """Make a context current in this thread, until `pop`.

        Raises:
            DriverError: CUDA is gone.
        """
        self._check(self._brief.cuCtxPushCurrent_v2(context), "the context of a GPU cannot be used")

    def pop(self) -> None:
        """Make the context current again that was so before `push`."""
        self._brief.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))

    def exchange_capture_mode(self, mode: int) -> int:
        """Set this thread's capture mode, and return the mode before."""
        exchanged = ctypes.c_int(mode)
        self._brief.cuThreadExchangeStreamCaptureMode(ctypes.byref(exchanged))
        return exchanged.value

    def record(self, stream: int, flags: int) -> Event:
        """Record a new event on a stream of the current context.

        Args:
            stream: the handle.
            flags: BLOCKING, NO_TIMING, both or neither.

        Raises:
            DriverError: it cannot be recorded.
        """
        handle = ctypes.c_void_p()
        self._check(self._library.cuEventCreate(ctypes.byref(handle), flags), "an event cannot be created")
        event = Event(handle, self._library.cuEventDestroy_v2)
        self._check(self._library.cuEventRecord(handle, ctypes.c_void_p(stream)), "an event cannot be recorded")
        return event

    def record_all(self, streams: Iterable[int]) -> list[Event]:
        """Record an event on each of some streams of the current context, except on streams that capture a graph."""
        return [self.record(stream, BLOCKING | NO_TIMING) for stream in streams if not self.is_capturing(stream)]

    def let_wait(self, stream: int, event: Event) -> None:
        """Make a stream wait for an event.

        Raises:
            DriverError: the stream cannot wait.
        """
        status = self._library.cuStreamWaitEvent(ctypes.c_void_p(stream), event.handle, 0)
        self._check(status, "a stream cannot wait for an event")

    def query(self, event: Event) -> int:
        """Return SUCCESS if an event has passed, otherwise an error, such as 600 for work that has not ended."""
        return int(self._library.cuEventQuery(event.handle))

    def synchronize(self, event: Event) -> None:
        """Wait for an event.

        Raises:
            DriverError: work before the event has failed.
        """
        self._check(self._library.cuEventSynchronize(event.handle), "the GPU has failed")

    def synchronize_all(self) -> None:
        """Wait for all work in the current context.

        Raises:
            DriverError: some work has failed.
        """
        self._check(self._library.cuCtxSynchronize(), "the GPU has failed")

    def elapsed_ms(self, first: Event, second: Event) -> float:
        """Return the time between two events with timing that have passed, in milliseconds.

        Raises:
            DriverError: it is unknown.
        """
        elapsed = ctypes.c_float()
        status = self._library.cuEventElapsedTime(ctypes.byref(elapsed), first.handle, second.handle)
        self._check(status, "the time between events is unknown")
        return elapsed.value

    def is_capturing(self, stream: int) -> bool:
        """Whether a stream captures a graph, so that neither its work nor its events can be waited for.

        The legacy default stream returns an error (906) while any stream that synchronizes with it captures a graph. Its
        use would invalidate that graph, so it counts as capturing.
        """
        captures = ctypes.c_int()
        status = self._library.cuStreamIsCapturing(ctypes.c_void_p(stream), ctypes.byref(captures))
        return bool(captures.value) or status in _CAPTURE_ERRORS

    def _check(self, status: int, problem: str) -> None:
        if status != SUCCESS:
            name = ctypes.c_char_p()
            self._library.cuGetErrorName(status, ctypes.byref(name))
            raise DriverError(problem, status, (name.value or b"unknown error").decode())


@functools.cache
def driver() -> Driver:
    """Return CUDA's driver.

    Raises:
        DeviceError: it is not installed.
    """
    try:
        return Driver(ctypes.CDLL(_LIBRARY), ctypes.PyDLL(_LIBRARY))
    except OSError as error:
        raise DeviceError(
            f"CUDA's driver cannot be loaded ({error}): install it, or start the container with --gpus"
        ) from error


class Relaxed:
    """A context in which this thread's calls do not invalidate graphs that are being captured.

    Defers Ctrl-C, so that an interrupt between two calls does not leave the thread in this mode. Waits for the GPU are calls
    of C, which Ctrl-C does not end anyway.
    """

    __slots__ = ("_deferral", "_driver", "_mode")

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._mode = _RELAXED
        self._deferral = deferred_interrupts()

    def __enter__(self) -> None:
        self._deferral.__enter__()
        self._mode = self._driver.exchange_capture_mode(_RELAXED)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._driver.exchange_capture_mode(self._mode)
        self._deferral.__exit__(kind)


class OnGpu(Relaxed):
    """A context in which a GPU is current in this thread, and calls are relaxed as in `Relaxed`.

    Args:
        context: the primary context of the GPU.

    Raises:
        DriverError: CUDA is gone.
    """

    __slots__ = ("_context",)

    def __init__(self, driver: Driver, context: ctypes.c_void_p) -> None:
        super().__init__(driver)
        self._context = context

    def __enter__(self) -> None:
        super().__enter__()
        try:
            self._driver.push(self._context)
        except BaseException as error:
            super().__exit__(type(error))
            raise

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._driver.pop()
        super().__exit__(kind)
