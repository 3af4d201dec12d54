"""What `Pipeline.run` returns: batches of tensors, in host memory or on a GPU.

The methods follow ``nvidia.dali.tensors`` 1.53. Nothing copies unless it says so: arrays are views of the memory that the
batch lies in, they may be written to, and they keep it: a batch that somebody holds is never overwritten.
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
        """Those on a GPU are imported when they are first used."""
        if name == "TensorGPU":
            return importlib.import_module("dali_like.tensors.gpu_tensors").TensorGPU
        if name == "TensorListGPU":
            return importlib.import_module("dali_like.tensors.gpu_tensor_lists").TensorListGPU
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
