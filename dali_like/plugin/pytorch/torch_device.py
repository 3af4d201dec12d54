"""A GPU whose memory comes from PyTorch's allocator, so that loaders need no CuPy and share PyTorch's pool.

See ``torch.cuda.memory.caching_allocator_alloc`` in PyTorch's reference. The memory belongs to the stream of this device,
and `dali_like.device.device_memory` returns it only behind all work that may use it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from dali_like.device.cuda_copies import CudaCopies
from dali_like.device.cuda_driver import driver
from dali_like.device.device_array import DeviceArray
from dali_like.device.opening import check_number, is_substituted, shared_device
from dali_like.engine.memory.ring import leased_array
from dali_like.errors import ArgumentError, ArgumentTypeError, DeviceError

__all__ = ["TorchDevice", "check_device", "flat_tensor", "number_of_gpu", "torch_device"]

#: ``kDLCPU`` of DLPack: a simulated device.
_DLPACK_CPU = 1


class TorchBlock:
    """Memory of the GPU, from PyTorch's allocator; see `dali_like.device.interface.Block`."""

    def __init__(self, address: int) -> None:
        self.address = address

    def __del__(self, delete: Callable[[int], None] = torch.cuda.caching_allocator_delete) -> None:
        with contextlib.suppress(Exception):  # CUDA is gone at interpreter exit
            delete(self.address)


class TorchDevice(CudaCopies):
    """A GPU with memory from PyTorch; see `dali_like.device.interface.CopyDevice`.

    Raises:
        DeviceError: the GPU cannot be used.
    """

    def __init__(self, device_id: int) -> None:
        try:
            torch.cuda.init()
        except RuntimeError as error:
            raise DeviceError(f"GPU {device_id} cannot be used: {error}") from error
        super().__init__(device_id, driver())
        with self._errors("a stream cannot be created"):
            self.stream = self._driver.create_stream()

    def allocate(self, nbytes: int) -> TorchBlock:
        """See `CopyDevice.allocate`."""
        try:
            return TorchBlock(torch.cuda.caching_allocator_alloc(nbytes, self.device_id, self.stream))
        except torch.OutOfMemoryError as error:
            raise self._shortage(nbytes, "Hold fewer batches, lower prefetch_to_device or the batch size") from error
        except RuntimeError as error:
            raise DeviceError(f"GPU {self.device_id}: memory cannot be allocated: {error}") from error


def torch_device(device_id: int) -> Any:
    """Return the GPU for the loaders of this process, which share its stream."""
    return shared_device(device_id, TorchDevice)


def flat_tensor(array: DeviceArray, place: torch.device) -> torch.Tensor:
    """Return an array of bytes as a tensor without a copy. Its storage keeps the owner of the array."""
    if array.device.dlpack_device[0] == _DLPACK_CPU:
        return torch.from_numpy(leased_array(array.owner, array.address, array.shape, np.dtype(np.uint8)))
    interface = {"shape": array.shape, "typestr": "|u1", "data": (array.address, False), "version": 2, "strides": None}
    return torch.as_tensor(SimpleNamespace(__cuda_array_interface__=interface, owner=array.owner), device=place)


def check_device(value: Any) -> torch.device | None:
    """Return the value of ``device=`` as a device; None for "auto".

    Raises:
        ArgumentTypeError: it is not a device, its name, or a number.
        ArgumentError: it names no device, or one that batches are not copied to.
    """
    if isinstance(value, str) and value == "auto":
        return None
    if isinstance(value, bool) or not isinstance(value, (torch.device, str, int)):
        raise ArgumentTypeError(f'device must be a torch.device, a name such as "cuda:0", a number or "auto", not {value!r}')
    try:
        device = torch.device("cuda", value) if isinstance(value, int) else torch.device(value)
    except RuntimeError as error:
        raise ArgumentError(f'device={value!r} is not a device: pass a name such as "cuda:0", or "auto"') from error
    if device.type not in ("cpu", "cuda"):
        raise ArgumentError(
            f'device={value!r}: batches can go to GPUs of NVIDIA only. Pass device="cpu", and copy them in the program'
        )
    return device


def number_of_gpu(value: Any) -> int | None:
    """Return the number of the GPU for the value of ``device=``; None for the CPU. Does not initialize CUDA.

    Raises:
        DeviceError: there is no GPU.
        ArgumentError: there is no GPU with this number.
    """
    device = check_device(value)
    if device is not None and device.type == "cpu":
        return None
    if device is not None and device.index is not None:
        number = device.index
    else:
        number = torch.cuda.current_device() if torch.cuda.is_initialized() else 0
    if is_substituted():
        return number
    has_cuda = torch.version.cuda is not None and torch.cuda.is_available()
    if device is None and not has_cuda:
        return None
    check_number(number, f"device={value!r}")
    if not has_cuda:
        raise DeviceError(
            f"device={value!r} needs a PyTorch with CUDA, and this one, {torch.__version__}, has none that works"
        )
    return number
