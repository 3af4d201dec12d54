"""DLPack's capsules, which some programs hand over in the place of arrays: ``torch.utils.dlpack.to_dlpack`` makes them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

#: ``kDLCPU``, see ``__dlpack_device__`` in the array API standard.
_DLPACK_CPU = 1


class _Exporter:
    """What NumPy imports: an object that has a capsule ready."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return _DLPACK_CPU, 0


def is_capsule(value: Any) -> bool:
    """Whether it is a capsule, of whatever kind."""
    return type(value).__name__ == "PyCapsule"


def array_of_capsule(capsule: Any) -> NDArray[Any]:
    """A view of the array in a capsule, which can be taken out once.

    Raises:
        BufferError, RuntimeError, ValueError: by NumPy: the array is on a GPU or of a type that NumPy does not have; the
            capsule is of another kind, or empty by now.
    """
    return np.from_dlpack(_Exporter(capsule))
