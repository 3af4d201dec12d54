"""Page-locked memory of batches, through PyTorch's CUDA: tensors that lie in it say that they are pinned.

A user drops a tensor right after ``x.to(device, non_blocking=True)``, while the GPU may not even have begun to copy. PyTorch
guards its own pinned memory against that. A slot of ours is guarded by events on the streams that the copy may be on: it is
used again when they have passed. Other streams are the user's affair, who holds the batch, or says ``pin_memory="copy"``.
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
    """Events on some streams; see `dali_like.engine.memory.space.Fence`."""

    def __init__(self, events: Sequence[Any]) -> None:
        self._events = events

    def passed(self) -> bool:
        """Whether all have passed, or will never do, since the GPU has failed."""
        try:
            return all(event.query() for event in self._events)
        except Exception:  # whatever PyTorch makes of CUDA's errors
            return True

    def wait(self) -> None:
        """Wait for all."""
        try:
            for event in self._events:
                event.synchronize()
        except Exception:  # as above
            return


class TorchPinning:
    """Locks pages through PyTorch; see `dali_like.device.interface.Pinning`."""

    def register(self, address: int, nbytes: int) -> None:
        """See `Pinning.register`."""
        try:
            status = int(torch.cuda.cudart().cudaHostRegister(address, nbytes, _PORTABLE))
        except Exception as error:
            raise DeviceError(f"PyTorch cannot page-lock memory: {error}") from error
        if status != _SUCCESS:
            _forget_error()
            raise DeviceError(f"cudaHostRegister has failed with CUDA's error {status}")

    def unregister(self, address: int) -> None:
        """See `Pinning.unregister`."""
        try:
            if int(torch.cuda.cudart().cudaHostUnregister(address)) != _SUCCESS:
                _forget_error()
        except Exception:  # at the end of the interpreter, CUDA may be gone
            return

    def fence(self) -> TorchFence | None:
        """See `Pinning.fence`; on all GPUs that this process uses."""
        try:
            # The default streams of all GPUs have the same handle.
            streams = {(stream.device_index, stream.cuda_stream): stream for stream in _streams_in_use()}
            return TorchFence([stream.record_event() for stream in streams.values()])
        except Exception:  # CUDA has failed, or is gone at the end of the interpreter
            with contextlib.suppress(Exception):
                torch.cuda.synchronize()
            return None


def _streams_in_use() -> list[Any]:
    """The default and the current stream of each GPU, and the one that CuPy has as its current one."""
    streams: list[Any] = []
    is_in_use = getattr(torch._C, "_cuda_hasPrimaryContext", lambda device: True)
    for device in range(torch.cuda.device_count()):
        if is_in_use(device):
            streams += [torch.cuda.default_stream(device), torch.cuda.current_stream(device)]
    if handle := stream_of_cupy():
        streams.append(torch.cuda.ExternalStream(handle))
    return streams


def _forget_error() -> None:
    """Let CUDA forget an error that has been dealt with: PyTorch would raise it where it looks for errors next."""
    mapped = {
        line.split(maxsplit=5)[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/libcudart" in line
    }
    for path in mapped:  # several copies may be loaded, under names of their own, and each has its own last error
        if (runtime := loaded_library(path)) is not None:
            runtime.cudaGetLastError()
