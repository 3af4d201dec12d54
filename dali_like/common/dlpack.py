"""Import of DLPack capsules, which some programs pass instead of arrays, for example from
``torch.utils.dlpack.to_dlpack``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dali_like.errors import SampleError

#: ``kDLCPU``, see ``__dlpack_device__`` in the array API standard.
_DLPACK_CPU = 1
_DLPACK_CUDA = 2
#: The name of a capsule that nobody has read.
_UNREAD = b"dltensor"


class _Exporter:
    """Gives NumPy a capsule through the interface that it expects."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return _DLPACK_CPU, 0


def is_capsule(value: Any) -> bool:
    """Whether the value is a capsule of any kind."""
    return type(value).__name__ == "PyCapsule"


def array_of_capsule(capsule: Any) -> NDArray[Any]:
    """Return a view of the array in a capsule. A capsule can be read once.

    Raises:
        BufferError, RuntimeError, ValueError: by NumPy: the array is on a GPU, has a dtype unknown to NumPy, or the
            capsule is of another kind or already read.
    """
    return np.from_dlpack(_Exporter(capsule))


def device_of_capsule(value: object) -> str | None:
    """Return "cpu" or "gpu" for a capsule; None for other objects. The capsule can still be read.

    Raises:
        SampleError: the capsule has been read, or is of another kind.

    Source: ``DLManagedTensor`` of DLPack, which begins with the address of the data, and the number of the kind of device.
    """
    if not is_capsule(value):
        return None
    import ctypes  # few programs ask

    is_valid = ctypes.pythonapi.PyCapsule_IsValid
    is_valid.argtypes, is_valid.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_int
    if not is_valid(value, _UNREAD):
        raise SampleError("this DLPack capsule has been read already, or holds no tensor: a capsule can be read once")
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.argtypes, pointer_of.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_void_p
    address = pointer_of(value, _UNREAD)
    assert address is not None
    kind = ctypes.c_int32.from_address(address + ctypes.sizeof(ctypes.c_void_p)).value
    return "gpu" if kind == _DLPACK_CUDA else "cpu"
