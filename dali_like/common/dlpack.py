"""Import of DLPack capsules, which some programs pass instead of arrays, for example from
``torch.utils.dlpack.to_dlpack``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

#: ``kDLCPU``, see ``__dlpack_device__`` in the array API standard.
_DLPACK_CPU = 1


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
