"""Find the CPUs near a GPU through NVML, without CUDA: workers are bound to CPUs before CUDA may be used.

NVML numbers the GPUs in the order of their slots, like CUDA with ``CUDA_DEVICE_ORDER=PCI_BUS_ID``. By default, CUDA
numbers the fastest GPU first, so the numbers differ on machines with several kinds of GPUs.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from typing import Any

from dali_like.common.extras import GPU_EXTRAS, optional
from dali_like.device.accelerator import visible_devices
from dali_like.errors import DeviceError

_WORD_BITS = 64


def cpus_near(device_id: int) -> set[int]:
    """Return the CPUs near a GPU that this process may use; if it may use none of those, all that it may use.

    Raises:
        DeviceError: NVML does not report them.
        MissingExtraError: nvidia-ml-py is not installed.
    """
    pynvml = optional("pynvml", "set_affinity=True", *GPU_EXTRAS)
    try:
        pynvml.nvmlInit()
        try:
            handle = _handle(pynvml, device_id)
            num_words = -(-(os.cpu_count() or 1) // _WORD_BITS)
            words = list(pynvml.nvmlDeviceGetCpuAffinity(handle, num_words))
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        raise DeviceError(
            f"set_affinity=True: NVML does not report the CPUs near GPU {device_id} ({error}); leave set_affinity out"
        ) from error
    near = {i * _WORD_BITS + bit for i, word in enumerate(words) for bit in range(_WORD_BITS) if word >> bit & 1}
    allowed = os.sched_getaffinity(0)
    return near & allowed or allowed


@contextlib.contextmanager
def bound_to(cpus: Iterable[int] | None) -> Iterator[None]:
    """Bind this thread, and all threads and processes it starts, to some CPUs; None: do nothing."""
    if cpus is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _handle(pynvml: Any, device_id: int) -> Any:
    """Return NVML's handle of the GPU that CUDA shows as number `device_id`."""
    visible = visible_devices()
    if visible is None:
        return pynvml.nvmlDeviceGetHandleByIndex(device_id)
    if visible[device_id].isdecimal():
        return pynvml.nvmlDeviceGetHandleByIndex(int(visible[device_id]))
    if visible[device_id].startswith("MIG-"):  # a part of a GPU, which has no affinity of its own
        part = pynvml.nvmlDeviceGetHandleByUUID(visible[device_id])
        return pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(part)
    for index in range(pynvml.nvmlDeviceGetCount()):  # a UUID, or the beginning of one
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        uuid = pynvml.nvmlDeviceGetUUID(handle)  # bytes in older versions of the package
        if (uuid.decode() if isinstance(uuid, bytes) else uuid).startswith(visible[device_id]):
            return handle
    raise DeviceError(f"set_affinity=True: NVML knows no GPU {visible[device_id]!r}, which CUDA_VISIBLE_DEVICES names")
