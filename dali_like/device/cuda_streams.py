"""CUDA streams as users pass them, and the current streams of CuPy and PyTorch."""

from __future__ import annotations

import contextlib
import ctypes
import operator
import sys
import threading
from collections.abc import Iterator
from typing import Any

from dali_like.errors import ArgumentTypeError

#: The legacy default stream, which PyTorch and CuPy use by default.
DEFAULT_STREAM = 0


def stream_handle(stream: Any) -> int | None:
    """Return the handle of a stream; None stays None.

    Args:
        stream: a number, a ``ctypes.c_void_p``, or a stream of CuPy, PyTorch, or any library with ``__cuda_stream__``.

    Raises:
        ArgumentTypeError: it is something else.
    """
    if stream is None:
        return None
    if isinstance(stream, ctypes.c_void_p):
        return stream.value or DEFAULT_STREAM
    if hasattr(stream, "__cuda_stream__"):
        protocol = stream.__cuda_stream__
        return int((protocol() if callable(protocol) else protocol)[1])
    for name in ("cuda_stream", "ptr"):
        if isinstance(handle := getattr(stream, name, None), int):
            return handle
    try:
        return operator.index(stream)
    except TypeError:
        raise ArgumentTypeError(
            f"cuda_stream must be the handle of a stream, a stream of CuPy or PyTorch, or None, not {stream!r}"
        ) from None


def source_stream(stream: Any) -> int | None:
    """Return the stream on which a source fills its data, given its ``cuda_stream``; None: any of the streams in use.

    As in DALI, -1 stands for DALI's own stream (so does 1, in the documentation of sources), which requires no waiting.
    Waiting for the streams in use is harmless then.

    Raises:
        ArgumentTypeError: see `stream_handle`.
    """
    handle = stream_handle(stream)
    return None if handle in (-1, 1) else handle


class _Hidden(threading.local):
    """CuPy's current stream of each GPU in this thread, while another stream temporarily replaces it."""

    def __init__(self) -> None:
        self.handles: dict[int, int] = {}


_hidden = _Hidden()


def stream_of_cupy(device_id: int) -> int | None:
    """Return the user's current CuPy stream of a GPU in this thread; None if CuPy is not imported."""
    cupy: Any = sys.modules.get("cupy")
    if cupy is None:
        return None
    hidden = _hidden.handles.get(device_id)
    return int(cupy.cuda.get_current_stream(device_id).ptr) if hidden is None else hidden


@contextlib.contextmanager
def in_place_of_cupys(stream: Any, device_id: int) -> Iterator[None]:
    """Make a stream CuPy's current one of its GPU. Finalizers, which may run at any instruction, still see the user's.

    The GPU must be current in this thread.
    """
    before = _hidden.handles.get(device_id)
    handle = stream_of_cupy(device_id)
    if handle is not None:
        _hidden.handles[device_id] = handle
    try:
        with stream:
            yield
    finally:
        if before is None:
            _hidden.handles.pop(device_id, None)
        else:
            _hidden.handles[device_id] = before


def stream_of_torch(device_id: int) -> int | None:
    """Return PyTorch's current stream in this thread; None if PyTorch does not use CUDA."""
    torch: Any = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)  # missing while PyTorch is being imported
    if cuda is None or not cuda.is_initialized():
        return None
    return int(cuda.current_stream(device_id).cuda_stream)


def streams_in_use(device_id: int) -> set[int]:
    """Return the streams of a GPU that the user's work may be on; see `dali_like.device.interface.Pinning.fence`."""
    handles = {DEFAULT_STREAM, stream_of_cupy(device_id), stream_of_torch(device_id)}
    return {handle for handle in handles if handle is not None}
