"""Page-locked memory for batches of PyTorch's loader; ``is_pinned()`` of tensors in it is true.

A program may drop a tensor right after ``x.to(device, non_blocking=True)``, before the GPU begins to copy. PyTorch guards
its own pinned memory against reuse. Here, events on the streams that may have the copy guard a slot: it is reused when they
have passed. On other streams, the program must keep the batch, or use ``pin_memory="copy"``.
"""

from __future__ import annotations

import torch

from dali_like.device.cuda_driver import OnGpu, driver, is_fatal
from dali_like.device.cuda_events import CudaFence
from dali_like.device.cuda_streams import streams_in_use


class TorchPinning:
    """Locks pages for all GPUs that this process uses; see `dali_like.device.interface.Pinning`.

    Raises:
        DeviceError: CUDA's driver cannot be loaded.
    """

    def __init__(self) -> None:
        self._driver = driver()
        self._registering: int | None = None  # the GPU whose context pages are locked in

    def register(self, address: int, nbytes: int) -> None:
        """See `Pinning.register`. Uses a GPU that the process uses already; otherwise PyTorch's current one."""
        if self._registering is None:
            devices = self._in_use()
            self._registering = devices[0] if devices else torch.cuda.current_device()
        with self._on_gpu(self._registering):
            self._driver.register(address, nbytes)

    def unregister(self, address: int) -> bool:
        """See `Pinning.unregister`."""
        assert self._registering is not None
        try:
            with self._on_gpu(self._registering):
                return self._driver.unregister(address)
        except Exception as error:  # modules may be empty at interpreter exit
            return is_fatal(error)

    def fence(self) -> CudaFence:
        """See `Pinning.fence`. Covers all GPUs that this process uses."""
        try:
            events = []
            for device in self._in_use():
                with self._on_gpu(device):
                    events += self._driver.record_all(streams_in_use(device))
            return CudaFence(self._driver, events, self._synchronize)
        except Exception:  # CUDA has failed, or is gone at interpreter exit
            return CudaFence.behind_all(self._driver, self._synchronize)

    def _in_use(self) -> list[int]:
        """Return the GPUs with a context. A context on any other GPU would only cost memory there."""
        return [device for device in range(torch.cuda.device_count()) if self._driver.has_context(device)]

    def _on_gpu(self, device: int) -> OnGpu:
        return OnGpu(self._driver, self._driver.primary_context(device))

    def _synchronize(self) -> None:
        """Wait for all work of these GPUs."""
        for device in self._in_use():
            with self._on_gpu(device):
                self._driver.synchronize_all()
