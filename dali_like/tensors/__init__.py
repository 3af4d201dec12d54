"""Batches of tensors, as `Pipeline.run` returns them: in host memory or on a GPU.

The methods follow ``nvidia.dali.tensors`` 1.53. Methods copy only if their documentation says so. Arrays are writable
views of the batch's memory and keep it alive: a batch is not overwritten while any array over it exists.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from dali_like.tensors.cpu_tensor_lists import TensorListCPU
from dali_like.tensors.cpu_tensors import TensorCPU

__all__ = ["TensorCPU", "TensorGPU", "TensorListCPU", "TensorListGPU"]

if TYPE_CHECKING:
    from dali_like.tensors.gpu_tensor_lists import TensorListGPU
    from dali_like.tensors.gpu_tensors import TensorGPU
else:

    def __getattr__(name: str) -> Any:
        """Import the classes for GPUs on first use."""
        if name == "TensorGPU":
            return importlib.import_module("dali_like.tensors.gpu_tensors").TensorGPU
        if name == "TensorListGPU":
            return importlib.import_module("dali_like.tensors.gpu_tensor_lists").TensorListGPU
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
