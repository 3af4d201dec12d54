"""Detect whether this process uses CUDA, without loading or initializing anything.

A process that has initialized CUDA must not fork: the child has the driver's memory, but neither its threads nor its
connection to the GPU. So code that forks asks here first. The driver knows best: before ``cuInit``, most of its
functions only return "not initialized" (see "Error Handling" and ``cuInit`` in the CUDA Driver API). If the driver
returns another error, NVML tells which processes have a CUDA context.
"""

from __future__ import annotations

import ctypes
import os
import warnings
from collections.abc import Callable
from typing import Any

_DRIVER = "libcuda.so.1"

_CUDA_SUCCESS = 0
_CUDA_ERROR_NOT_INITIALIZED = 3


def loaded_library(name: str) -> Any:
    """Return a shared library of this process, as by `ctypes.CDLL`; None if it is not loaded."""
    try:
        return ctypes.CDLL(name, mode=os.RTLD_NOLOAD)
    except OSError:
        return None


def cuda_is_initialized(find: Callable[[str], Any] = loaded_library) -> bool:
    """Whether any library has initialized CUDA in this process.

    Args:
        find: returns a library that is already loaded, or None.
    """
    driver = find(_DRIVER)
    if driver is None:
        return False
    answer = driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int()))
    if answer in (_CUDA_SUCCESS, _CUDA_ERROR_NOT_INITIALIZED):
        return bool(answer == _CUDA_SUCCESS)
    return _is_known_to_nvml(os.getpid())


def _is_known_to_nvml(pid: int) -> bool:
    """Whether NVML lists a process as a user of a GPU; False if NVML is not available."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # pynvml warns about its own package name
            import pynvml  # optional
    except ImportError:
        return False
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return False
    try:
        devices = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
        return any(process.pid == pid for gpu in devices for process in pynvml.nvmlDeviceGetComputeRunningProcesses(gpu))
    except pynvml.NVMLError:
        return False
    finally:
        pynvml.nvmlShutdown()
