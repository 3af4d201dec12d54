"""Detect GPUs without initializing CUDA, because there may still be workers to fork.

If CUDA is in use, its driver knows the GPUs. Otherwise NVML counts them (``nvmlDeviceGetCount_v2``) and needs no CUDA.
``CUDA_VISIBLE_DEVICES`` may hide GPUs; NVML ignores it, so this module applies it.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable
from typing import Any

from dali_like.device.driver import loaded_library

__all__ = ["accelerator_is_available", "count_accelerators", "count_is_known"]

_DRIVER = "libcuda.so.1"
_NVML = "libnvidia-ml.so.1"
#: Return code of the driver and of NVML.
_SUCCESS = 0


def found_library(name: str) -> Any:
    """Return a shared library, loading it if necessary; None if it is not installed."""
    try:
        return ctypes.CDLL(name)
    except OSError:
        return None


def accelerator_is_available(
    loaded: Callable[[str], Any] = loaded_library, find: Callable[[str], Any] = found_library
) -> bool:
    """Whether this process can use a GPU; see `count_accelerators`."""
    return count_accelerators(loaded, find) > 0


def count_accelerators(loaded: Callable[[str], Any] = loaded_library, find: Callable[[str], Any] = found_library) -> int:
    """Return the number of GPUs that this process can use.

    Args:
        loaded: returns a library that is already loaded, or None.
        find: loads a library, or returns None. Its result is cached.
    """
    driver, count = loaded(_DRIVER), ctypes.c_int()
    if driver is not None and driver.cuDeviceGetCount(ctypes.byref(count)) == _SUCCESS:
        return count.value
    named = visible_devices()
    return _count_of_nvml(find) if named is None else min(len(named), _count_of_nvml(find))


def count_is_known(find: Callable[[str], Any] = found_library) -> bool:
    """Whether GPUs can be counted here. Some containers have CUDA's driver but no NVML."""
    return find(_NVML) is not None or find(_DRIVER) is None


def visible_devices() -> list[str] | None:
    """Return the entries of ``CUDA_VISIBLE_DEVICES``, up to an invalid one such as -1; None if it is not set."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is None:
        return None
    names = [name.strip() for name in named.split(",")]
    hidden = next((i for i, name in enumerate(names) if name in ("", "-1")), len(names))
    return names[:hidden]


@functools.cache
def _count_of_nvml(find: Callable[[str], Any]) -> int:
    nvml, count = find(_NVML), ctypes.c_uint()
    if nvml is None or nvml.nvmlInit_v2() != _SUCCESS:
        return 0
    try:
        return count.value if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) == _SUCCESS else 0
    finally:
        nvml.nvmlShutdown()
