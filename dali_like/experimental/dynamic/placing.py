"""Devices of dynamic mode."""

from __future__ import annotations

import threading
from typing import Any, ClassVar, Self

from dali_like.errors import ArgumentError, ArgumentTypeError

_CPU_OF_DLPACK, _GPU_OF_DLPACK = 1, 2


class _Stack(threading.local):
    def __init__(self) -> None:
        self.devices: list[Device] = []


class Device:
    """The CPU or a GPU. Operators run on the CPU; the device says where the result is wanted.

    Args:
        name: "cpu", "gpu", "cuda" or "gpu:1".
        device_id: index of the GPU, unless the name has it. Default: 0.

    Raises:
        ArgumentError: the name or the index is not allowed.
    """

    #: The CPU.
    CPU: ClassVar[Device]

    def __init__(self, name: str, device_id: int | None = None) -> None:
        kind, _, number = name.partition(":")
        if number and device_id is not None:
            raise ArgumentError(f"Invalid device name: {name}. Ordinal ':{number}' should not appear next to device_id")
        if number and not number.isdecimal():
            raise ArgumentError(f"Invalid device name: {name}")
        self.device_type = "gpu" if kind == "cuda" else kind
        self.device_id = int(number) if number else device_id or 0
        if self.device_type not in ("cpu", "gpu", "mixed"):
            raise ArgumentError(f'Invalid device type: {kind}. Pass "cpu" or "gpu"')
        if self.device_id < 0 or (self.device_type == "cpu" and self.device_id):
            raise ArgumentError(f"Invalid device id: {self.device_id} for device type: {self.device_type}")

    @staticmethod
    def from_dlpack(dlpack_device: Any) -> Device:
        """Return the device of an object with ``__dlpack_device__``."""
        kind, number = dlpack_device.__dlpack_device__()
        return Device(Device.type_from_dlpack(kind), number)

    @staticmethod
    def type_from_dlpack(dev_type: Any) -> str:
        """Return "cpu" or "gpu" for a device type of DLPack.

        Raises:
            ArgumentError: it is another one.
        """
        names = {_CPU_OF_DLPACK: "cpu", _GPU_OF_DLPACK: "gpu"}
        if int(dev_type) not in names:
            raise ArgumentError(f"Unsupported device type: {dev_type}")
        return names[int(dev_type)]

    @staticmethod
    def default_device_id(device_type: str) -> int | None:
        """Return the index of the current GPU, which is 0; None for the CPU."""
        return None if device_type == "cpu" else 0

    @staticmethod
    def current() -> Device:
        """Return the innermost device of this thread; without one, the CPU. DALI returns the first GPU."""
        return _stack.devices[-1] if _stack.devices else Device("cpu")

    @staticmethod
    def is_chosen() -> bool:
        """Whether this thread is in a ``with device:``."""
        return bool(_stack.devices)

    def __enter__(self) -> Self:
        _stack.devices.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        _stack.devices.pop()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Device):
            return NotImplemented
        return (self.device_type, self.device_id) == (other.device_type, other.device_id)

    def __hash__(self) -> int:
        return hash((self.device_type, self.device_id))

    def __str__(self) -> str:
        return f"{self.device_type}:{self.device_id}"

    def __repr__(self) -> str:
        return f"Device(device_type={self.device_type}, device_id={self.device_id})"


Device.CPU = Device("cpu")


def device(obj: Any, id: int | None = None) -> Device | None:
    """Return a `Device` for a device, a name such as "gpu:0", or a ``torch.device``; None for None.

    Raises:
        ArgumentError: `id` is given besides a device, or the name is not allowed.
        ArgumentTypeError: `obj` is something else.
    """
    if obj is None:
        return None
    if isinstance(obj, str):
        return Device(obj, id)
    is_torch = type(obj).__module__ == "torch" and type(obj).__name__ == "device"
    if not is_torch and not isinstance(obj, Device):
        raise ArgumentTypeError(f"Cannot convert {type(obj)} to Device")
    if id is not None:
        raise ArgumentError("Cannot specify id when passing a device: leave it out")
    return Device(obj.type, obj.index) if is_torch else obj


_stack = _Stack()
