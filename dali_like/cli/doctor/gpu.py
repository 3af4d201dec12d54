"""Checks of the GPU: the driver, CuPy, and page-locked copies. A missing GPU is only a note.

They run last, because other checks fork, and a process that has used CUDA must not fork.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import re
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from dali_like.cli.doctor.findings import Check, Finding, failure, note, ok, warning
from dali_like.common.cpu_only import is_cpu_only
from dali_like.common.extras import install_command
from dali_like.device.accelerator import count_accelerators, found_library, visible_devices
from dali_like.device.device_array import finish
from dali_like.device.interface import Device
from dali_like.device.opening import open_device
from dali_like.engine.memory.space import SharedSpace
from dali_like.errors import DeviceError

_DRIVER = "libcuda.so.1"
_SUCCESS = 0
INSTALL = f"{install_command('cuda13')}; for a driver of CUDA 12: {install_command('cuda12')}"
#: The consequence of a missing GPU, driver or CuPy.
_ON_CPU = "batches stay on the CPU"
_NBYTES = 16 << 20

Find = Callable[[str], Any]


def driver(find: Find = found_library, root: Path = Path("/")) -> Finding:
    """Check NVIDIA's driver, and report the CUDA version that it supports.

    Args:
        find: loads a shared library by name, or returns None.
        root: the folder that contains proc/.
    """
    cuda = _cuda_of_driver(find)
    if cuda is None:
        return note("NVIDIA driver", f"none: {_ON_CPU}; containers need docker run --gpus all")
    for_cuda = f"for CUDA up to {cuda[0]}.{cuda[1]}"
    try:
        version = re.search(r"Kernel Module.*?\s(\d[\d.]+)", (root / "proc/driver/nvidia/version").read_text())
    except OSError:  # WSL has no such file
        version = None
    return ok("NVIDIA driver", f"{version[1]}, {for_cuda}" if version else for_cuda)


def devices(count: Callable[[], int] = count_accelerators, find: Find = found_library) -> Finding:
    """Count the GPUs that this process may use."""
    num_devices, named = count(), visible_devices()
    found = str(num_devices or "none")
    if is_cpu_only():
        return note("GPUs", f"{found}, and none is used, because DALI_LIKE_DEVICE=cpu is set")
    if named is not None:
        found += f", with CUDA_VISIBLE_DEVICES={','.join(named)!r}"
    if num_devices:
        return ok("GPUs", found)
    if find(_DRIVER) is None:
        return note("GPUs", f"{found}: {_ON_CPU}")
    return warning("GPUs", f"{found}, although a driver is installed", "check nvidia-smi and CUDA_VISIBLE_DEVICES")


def cupy(find: Find = found_library) -> Finding:
    """Check that one CuPy package is installed, for a CUDA version that the driver supports. Does not import CuPy."""
    names = sorted({name for name in metadata.packages_distributions().get("cupy", ()) if name.startswith("cupy")})
    found = ", ".join(f"{name} {metadata.version(name)}" for name in names)
    cuda = _cuda_of_driver(find)
    if not names:
        return note("CuPy", f"not installed: {_ON_CPU}") if cuda is None else warning("CuPy", "not installed", INSTALL)
    if len(names) > 1:
        return failure(
            "CuPy", f"{found}: these packages overwrite each other", f"pip uninstall {' '.join(names)}; then {INSTALL}"
        )
    built_for = re.search(r"cuda(\d+)", names[0])
    if built_for is not None and cuda is not None and int(built_for[1]) > cuda[0]:
        return failure("CuPy", f"{found}, and the driver is for CUDA {cuda[0]}", f"update the driver, or {INSTALL}")
    return ok("CuPy", found)


def page_locking(count: Callable[[], int] = count_accelerators) -> Finding:
    """Check that batch memory can be page-locked, and that a copy to the GPU and back preserves it."""
    subject = "page-locking"
    if not count() or importlib.util.find_spec("cupy") is None:
        return note(subject, "not tried: this needs a GPU and CuPy")
    space = SharedSpace.create(limit_bytes=2 * _NBYTES, for_processes=False)
    sent, came_back = (space.array(space.take(_NBYTES, _NBYTES), (_NBYTES,), np.dtype(np.uint8)) for _ in range(2))
    sent[:] = np.resize(np.arange(251), _NBYTES)
    try:
        with contextlib.closing(open_device(0)) as device:
            refusal = _there_and_back(device, sent, came_back)
    except Exception as error:  # any error of CuPy or CUDA is the finding
        return failure(subject, f"{type(error).__name__}: {error}", "check nvidia-smi and cupy.show_config()")
    if not np.array_equal(sent, came_back):
        return failure(subject, "a copy to GPU 0 and back changed the data", "check nvidia-smi and the kernel log (dmesg)")
    if refusal is not None:
        return warning(
            subject,
            str(refusal),
            "copies are slower: run `sysctl -w vm.max_map_count=262144`, or end programs that lock memory",
        )
    return ok(subject, f"{_NBYTES >> 20} MiB locked, copied to GPU 0 and back")


def _there_and_back(device: Device, sent: Any, came_back: Any) -> DeviceError | None:
    """Copy an array to a GPU and back. Return the error if page-locking failed; the copy is done in any case."""
    source, target = (int(array.__array_interface__["data"][0]) for array in (sent, came_back))
    refusal = None
    try:
        device.register(source, sent.nbytes)
    except DeviceError as error:
        refusal = error
    try:
        block = device.allocate(sent.nbytes)
        device.upload(block.address, source, sent.nbytes)
        device.download(target, block.address, sent.nbytes)
        finish(device.record())
    finally:
        if refusal is None:
            device.unregister(source)
    return refusal


def _cuda_of_driver(find: Find) -> tuple[int, int] | None:
    """Return the CUDA version that the driver supports, or None without a driver.

    ``cuDriverGetVersion`` does not initialize CUDA.
    """
    library, version = find(_DRIVER), ctypes.c_int()
    if library is None or library.cuDriverGetVersion(ctypes.byref(version)) != _SUCCESS:
        return None
    return version.value // 1000, version.value % 1000 // 10


CHECKS: tuple[Check, ...] = (driver, devices, cupy, page_locking)
