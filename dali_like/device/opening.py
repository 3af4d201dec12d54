"""Open the device of a pipeline: the GPU with its number, or a substitute in tests.

Requirements are checked before the workers start, without importing CuPy or touching CUDA, because processes are still
to be forked. The GPU itself is opened after that.
"""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable, Iterator
from typing import Any

from dali_like.common.cpu_only import ADVICE
from dali_like.common.extras import GPU_EXTRAS, missing
from dali_like.device.accelerator import count_accelerators, count_is_known
from dali_like.device.interface import Device
from dali_like.errors import ArgumentError, DeviceError

_substitutes: list[Callable[[int], Device]] = []
_shared: dict[tuple[Callable[[int], Any], int], Any] = {}


@contextlib.contextmanager
def substitute(make: Callable[[int], Device]) -> Iterator[None]:
    """Let pipelines that are built in this context use another device; see `dali_like.testing.simulated_device`.

    Args:
        make: returns a device, given the number of a GPU.
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


def check_device(device_id: int | None, purpose: str) -> None:
    """Check that a GPU can be used.

    Args:
        device_id: the number of the GPU; None if the pipeline has none.
        purpose: the feature that needs it, as the beginning of a sentence.

    Raises:
        DeviceError: no number is given, or there is no GPU.
        ArgumentError: there is no GPU with this number.
        MissingExtraError: CuPy is not installed.
    """
    if device_id is None:
        raise DeviceError(
            f"{purpose} needs a GPU, but the pipeline has device_id=None. Pass a number, for example device_id=0. {ADVICE}"
        )
    if _substitutes:
        return
    check_number(device_id, purpose)
    if not _is_installed("cupy"):
        raise missing("cupy", purpose, *GPU_EXTRAS)


def is_substituted() -> bool:
    """Whether another device takes the place of GPUs; see `substitute`."""
    return bool(_substitutes)


def can_decode_images() -> bool:
    """Whether GPUs can decode images here: nvImageCodec is installed."""
    return bool(_substitutes) or _is_installed("nvidia.nvimgcodec")


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:  # its parent package is not installed
        return False


def check_number(device_id: int, purpose: str) -> None:
    """Check that a GPU has this number.

    Raises:
        DeviceError: there is no GPU.
        ArgumentError: there is no GPU with this number.
    """
    count = count_accelerators()
    if not count and not count_is_known():
        return  # CUDA itself reports an error when it is used
    if not count:
        raise DeviceError(
            f"{purpose} needs a GPU, but this process sees none: CUDA's driver is not installed, or CUDA_VISIBLE_DEVICES "
            f"hides all GPUs. Start a container with --gpus. {ADVICE}"
        )
    if not 0 <= device_id < count:
        one = "one GPU, number 0" if count == 1 else f"{count} GPUs, numbers 0 to {count - 1}"
        raise ArgumentError(f"device_id={device_id}: this process sees {one}")


def open_device(device_id: int) -> Device:
    """Return the GPU for one pipeline.

    Raises:
        DeviceError: the GPU cannot be used.
        MissingExtraError: CuPy is not installed.
    """
    if _substitutes:
        return _substitutes[-1](device_id)
    from dali_like.device.cuda import CudaDevice  # imports CuPy

    return CudaDevice(device_id)


def shared_device(device_id: int, make: Callable[[int], Any] = open_device) -> Any:
    """Return a GPU that objects outside of pipelines share: one of each class.

    Args:
        device_id: the number of the GPU.
        make: opens it, unless it has a substitute; see `open_device`.
    """
    key = make, device_id
    if key not in _shared:
        _shared[key] = _substitutes[-1](device_id) if _substitutes else make(device_id)
    return _shared[key]
