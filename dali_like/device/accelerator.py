"""Whether there is a GPU to copy batches to, found out without initialising CUDA: there may still be workers to fork.

Where CUDA is in use, its driver knows. Where it is not, NVML counts the GPUs, see ``nvmlDeviceGetCount_v2`` in its
reference; it needs no CUDA for that. ``CUDA_VISIBLE_DEVICES`` may hide them all, of which NVML knows nothing.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable
from typing import Any

from dali_like.device.driver import loaded_library

__all__ = ["accelerator_is_available"]

_DRIVER = "libcuda.so.1"
_NVML = "libnvidia-ml.so.1"
#: Of the driver and of NVML.
_SUCCESS = 0


def found_library(name: str) -> Any:
    """A shared library, loaded if need be; None if there is none of that name."""
    try:
        return ctypes.CDLL(name)
    except OSError:
        return None


def accelerator_is_available(
    loaded: Callable[[str], Any] = loaded_library, find: Callable[[str], Any] = found_library
) -> bool:
    """Whether there is a GPU that this process may use.

    Args:
        loaded: gives a library that is loaded already, or None.
        find: gives a library, or None. Asked once.
    """
    driver, count = loaded(_DRIVER), ctypes.c_int()
    if driver is not None and driver.cuDeviceGetCount(ctypes.byref(count)) == _SUCCESS:
        return count.value > 0
    return _some_are_visible() and _nvml_counts_some(find)


def _some_are_visible() -> bool:
    """Whether ``CUDA_VISIBLE_DEVICES`` names any; what comes behind one that does not exist, such as -1, is hidden."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return named is None or named.partition(",")[0].strip() not in ("", "-1")


@functools.cache
def _nvml_counts_some(find: Callable[[str], Any]) -> bool:
    nvml, count = find(_NVML), ctypes.c_uint()
    if nvml is None or nvml.nvmlInit_v2() != _SUCCESS:
        return False
    try:
        return nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) == _SUCCESS and count.value > 0
    finally:
        nvml.nvmlShutdown()
