"""CUDA streams of dynamic mode: handles that programs pass around. Operators run on the CPU, and need none.

Streams are those of other libraries, wrapped: this library makes none.
"""

from __future__ import annotations

import threading
from typing import Any

from dali_like.device.cuda_streams import stream_handle
from dali_like.errors import ArgumentClashError, ArgumentError, DeviceError

__all__ = ["Stream", "get_current_stream", "get_default_stream", "set_current_stream", "set_default_stream", "stream"]


class _CurrentStream(threading.local):
    stream: Stream | None = None


_current = _CurrentStream()
_defaults: dict[int, Stream] = {}


class Stream:
    """A stream of another library, which stays alive as long as this object. `stream` makes one.

    Args:
        stream: a stream of PyTorch or CuPy, an object with ``__cuda_stream__``, or a handle as a number.
        device_id: its GPU. Default: that which the stream names, else 0.

    Raises:
        ArgumentError: `stream` is None.
        ArgumentTypeError: `stream` is something else.
        ArgumentClashError: the stream is of another GPU.
        DeviceError: no stream is given. DALI would make one.
    """

    #: Stands for a stream that is not given.
    create_new: Any = object()

    def __init__(self, *, stream: Any = create_new, device_id: int | None = None) -> None:
        if stream is Stream.create_new:
            raise DeviceError("dynamic mode runs on the CPU and makes no streams: pass a stream of PyTorch or CuPy")
        if stream is None:
            raise ArgumentError("The stream must not be None")
        handle = stream_handle(stream)
        assert handle is not None
        found = _device_of(stream)
        if device_id is not None and found is not None and device_id != found:
            raise ArgumentClashError(f"The device_id {device_id} doesn't match the id {found} of the stream")
        self._handle = handle
        self._device_id = found if found is not None else device_id or 0
        self._stream = stream

    @property
    def handle(self) -> int:
        """The handle, as a number."""
        return self._handle

    @property
    def device_id(self) -> int:
        """The index of the GPU."""
        return self._device_id

    def synchronize(self) -> None:
        """Wait until all work on the stream is done.

        Raises:
            DeviceError: the stream is a number: synchronize it with the library that has made it.
        """
        wait = getattr(self._stream, "synchronize", None)
        if wait is None:
            raise DeviceError(f"{self} cannot be waited for: synchronize it with the library that has made it")
        wait()

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._handle

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Stream):
            return NotImplemented
        return (self._handle, self._device_id) == (other._handle, other._device_id)

    def __hash__(self) -> int:
        return hash((self._handle, self._device_id))

    def __str__(self) -> str:
        return f"CUDA stream {self._handle}, device_id={self._device_id}"

    def __repr__(self) -> str:
        return f"Stream(stream={self._stream!r}, device_id={self._device_id})"


def _device_of(stream: Any) -> int | None:
    """Return the index of the GPU that a stream names."""
    for value in (getattr(stream, "device_id", None), getattr(stream, "device", None)):
        for number in (value, getattr(value, "index", None), getattr(value, "id", None)):
            if isinstance(number, int):
                return number
    return None


def stream(*, stream: Any = Stream.create_new, device_id: int | None = None) -> Stream | None:
    """Return a `Stream` for a stream of another library, or for None: None; see `Stream` for the arguments and errors."""
    if stream is None:
        return None
    if isinstance(stream, Stream) and device_id in (None, stream.device_id):
        return stream
    return Stream(stream=stream, device_id=device_id)


def set_default_stream(cuda_stream: Any, /, device_id: int | None = None) -> None:
    """Set the stream of a GPU for all threads that have no current one; None: none.

    Args:
        cuda_stream: see `Stream`.
        device_id: the GPU. Default: that of the stream.
    """
    made = stream(stream=cuda_stream, device_id=device_id)
    if made is None:
        _defaults.pop(device_id or 0, None)
    else:
        _defaults[made.device_id] = made


def get_default_stream(device_id: int | None = None) -> Stream | None:
    """Return the stream of a GPU that `set_default_stream` has set; None without one."""
    return _defaults.get(device_id or 0)


def set_current_stream(cuda_stream: Any, /) -> None:
    """Set the stream of this thread; None: the default one again. See `Stream` for the argument."""
    _current.stream = stream(stream=cuda_stream)


def get_current_stream() -> Stream | None:
    """Return the stream of this thread, or the default one; None if neither has been set."""
    return get_default_stream() if _current.stream is None else _current.stream
