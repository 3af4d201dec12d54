"""Page-locked memory for batches, through PyTorch's CUDA; ``is_pinned()`` of tensors in it is true.

A program may drop a tensor right after ``x.to(device, non_blocking=True)``, before the GPU begins to copy. PyTorch guards
its own pinned memory against reuse. Here, events on the streams that may have the copy guard a slot: it is reused when they
have passed. On other streams, the program must keep the batch, or use ``pin_memory="copy"``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from dali_like.device.cuda_streams import stream_of_cupy
from dali_like.device.driver import loaded_library
from dali_like.errors import DeviceError

#: ``cudaHostRegisterPortable``: page-locked for all GPUs.
_PORTABLE = 1
_SUCCESS = 0


class TorchFence:
    """Events on streams; see `dali_like.engine.memory.space.Fence`."""

    def __init__(self, events: Sequence[Any]) -> None:
        self._events = events

    def passed(self) -> bool:
        """Return whether all events have passed, or the GPU has failed so that they never will."""
        try:
            return all(event.query() for event in self._events)
        except Exception:  # PyTorch raises CUDA's errors as several types
            return True

    def wait(self) -> None:
        """Wait for all events."""
        try:
            for event in self._events:
                event.synchronize()
        except Exception:  # as above
            return


class TorchPinning:
    """Locks pages through PyTorch; see `dali_like.device.interface.Pinning`."""

    def register(self, address: int, nbytes: int) -> None:
        try:
            status = int(torch.cuda.cudart().cudaHostRegister(address, nbytes, _PORTABLE))
        except Exception as error:
            raise DeviceError(f"PyTorch cannot page-lock memory: {error}") from error
        if status != _SUCCESS:
            _forget_error()
            raise DeviceError(f"cudaHostRegister failed with CUDA error {status}")

    def unregister(self, address: int) -> None:
        try:
            if int(torch.cuda.cudart().cudaHostUnregister(address)) != _SUCCESS:
                _forget_error()
        except Exception:  # at the end of the interpreter, CUDA may be gone
            return

    def fence(self) -> TorchFence | None:
        """See `Pinning.fence`. Covers all GPUs that this process uses."""
        try:
            # The default streams of all GPUs have the same handle.
            streams = {(stream.device_index, stream.cuda_stream): stream for stream in _streams_in_use()}
            return TorchFence([stream.record_event() for stream in streams.values()])
        except Exception:  # CUDA has failed, or is gone at the end of the interpreter
            with contextlib.suppress(Exception):
                torch.cuda.synchronize()
            return None


def _streams_in_use() -> list[Any]:
    """Return the default and the current stream of each GPU, and CuPy's current stream."""
    streams: list[Any] = []
    is_in_use = getattr(torch._C, "_cuda_hasPrimaryContext", lambda device: True)
    for device in range(torch.cuda.device_count()):
        if is_in_use(device):
            streams += [torch.cuda.default_stream(device), torch.cuda.current_stream(device)]
    if handle := stream_of_cupy():
        streams.append(torch.cuda.ExternalStream(handle))
    return streams


def _forget_error() -> None:
    """Clear CUDA's last error after it was handled. Otherwise PyTorch raises it at its next check."""
    mapped = {
        line.split(maxsplit=5)[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/libcudart" in line
    }
    for path in mapped:  # several copies may be loaded, each with its own last error
        if (runtime := loaded_library(path)) is not None:
            runtime.cudaGetLastError()
