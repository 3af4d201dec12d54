"""The classes of batches and tensors, where DALI says that its own are; see `dali_like.tensors`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dali_like import tensors
from dali_like.tensors import TensorCPU, TensorListCPU

if TYPE_CHECKING:
    from dali_like.tensors import TensorGPU, TensorListGPU
else:

    def __getattr__(name: str) -> Any:
        """Those on a GPU are imported when they are first used."""
        if name in __all__:
            return getattr(tensors, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["TensorCPU", "TensorGPU", "TensorListCPU", "TensorListGPU"]
