"""The classes of batches and tensors, where programs for DALI look for them, too; see `dali_like.tensors`."""

from __future__ import annotations

from dali_like.gpu_tensor_lists import TensorListGPU
from dali_like.gpu_tensors import TensorGPU
from dali_like.tensors import TensorCPU, TensorListCPU

__all__ = ["TensorCPU", "TensorGPU", "TensorListCPU", "TensorListGPU"]
