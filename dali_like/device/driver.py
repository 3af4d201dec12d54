"""Whether CUDA is in use in this process, found out without loading or initialising anything.

A process that has initialised CUDA cannot be forked: the copy has the driver's memory, and neither its threads nor its place
at the GPU. So whoever forks asks here first. The driver itself knows best: most of its functions do nothing but say so as
long as ``cuInit`` has not been called, see "Error Handling" and ``cuInit`` in the CUDA Driver API. Where it says something
else, NVML knows which processes have a CUDA context.
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
    """A shared library of this process, as by `ctypes.CDLL`; None if nobody has loaded it."""
    try:
        return ctypes.CDLL(name, mode=os.RTLD_NOLOAD)
    except OSError:
        return None


def cuda_is_initialized(find: Callable[[str], Any] = loaded_library) -> bool:
    """Whether this process has initialised CUDA, by whatever library.

    Args:
        find: gives a library that is loaded already, or None.
    """
    driver = find(_DRIVER)
    if driver is None:
        return False
    answer = driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int()))
    if answer in (_CUDA_SUCCESS, _CUDA_ERROR_NOT_INITIALIZED):
        return bool(answer == _CUDA_SUCCESS)
    return _is_known_to_nvml(os.getpid())


def _is_known_to_nvml(pid: int) -> bool:
    """Whether NVML, if it can be asked, counts a process among those that compute on a GPU."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the name of the package
            import pynvml  # noqa: PLC0415  # optional
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
