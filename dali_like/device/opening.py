"""Which device pipelines get: the GPU of that number, or what stands in for it in a test.

What a pipeline needs is looked for before its workers are started, without importing CuPy or touching CUDA, since there are
still processes to fork. The GPU itself is opened after that.
"""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable, Iterator

from dali_like.common.extras import GPU_EXTRAS, missing
from dali_like.device.accelerator import count_accelerators, count_is_known
from dali_like.device.interface import Device
from dali_like.errors import ArgumentError, DeviceError

_substitutes: list[Callable[[int], Device]] = []
_shared: dict[int, Device] = {}


@contextlib.contextmanager
def substitute(make: Callable[[int], Device]) -> Iterator[None]:
    """Let pipelines that are built in such a context use another device; see `dali_like.testing.simulated_device`.

    Args:
        make: makes a device, given the number of a GPU.
    """
    _substitutes.append(make)
    shared = dict(_shared)
    _shared.clear()
    try:
        yield
    finally:
        _substitutes.remove(make)
        _shared.clear()
        _shared.update(shared)


def check_device(device_id: int | None, purpose: str, *modules: str) -> None:
    """Whether a GPU can be had.

    Args:
        device_id: its number.
        purpose: what needs it, as the beginning of a sentence.
        modules: what it needs besides CuPy.

    Raises:
        DeviceError: no number is given, or there is no GPU.
        ArgumentError: there is no GPU of that number.
        MissingExtraError: CuPy is not installed, or one of the modules.
    """
    if device_id is None:
        raise DeviceError(
            f"{purpose} needs a GPU, and the pipeline has device_id=None: say which one, device_id=0 for the first"
        )
    if _substitutes:
        return
    check_number(device_id, purpose)
    for module in ("cupy", *modules):
        if not _is_installed(module):
            raise missing(module, purpose, *GPU_EXTRAS)


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:  # of the package that it is in
        return False


def check_number(device_id: int, purpose: str) -> None:
    """Whether there is a GPU of that number.

    Raises:
        DeviceError: there is no GPU at all.
        ArgumentError: there is none of that number.
    """
    count = count_accelerators()
    if not count and not count_is_known():
        return  # CUDA will say, when it is used
    if not count:
        raise DeviceError(
            f"{purpose} needs a GPU, and this process sees none: CUDA's driver is not installed, or CUDA_VISIBLE_DEVICES "
            "hides what there is (in a container, was it started with --gpus?). Leave .gpu() out to have batches on the CPU"
        )
    if not 0 <= device_id < count:
        one = "one GPU, number 0" if count == 1 else f"{count} GPUs, numbers 0 to {count - 1}"
        raise ArgumentError(f"device_id={device_id}: this process sees {one}")


def shared_device(device_id: int) -> Device:
    """The GPU of a number, for what belongs to no pipeline; see `open_device`."""
    if device_id not in _shared:
        _shared[device_id] = open_device(device_id)
    return _shared[device_id]


def open_device(device_id: int) -> Device:
    """The GPU of a number, for one pipeline.

    Raises:
        DeviceError: it cannot be used.
        MissingExtraError: CuPy is not installed.
    """
    if _substitutes:
        return _substitutes[-1](device_id)
    from dali_like.device.cuda import CudaDevice  # noqa: PLC0415  # CuPy is imported where a GPU is used

    return CudaDevice(device_id)
