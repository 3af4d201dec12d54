"""The classes of batches and tensors, as in ``nvidia.dali.backend``; see `dali_like.tensors`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dali_like.common.lazy_names import importer
from dali_like.tensors import TensorCPU, TensorListCPU

if TYPE_CHECKING:
    from dali_like.tensors import TensorGPU, TensorListGPU

__all__ = ["TensorCPU", "TensorGPU", "TensorListCPU", "TensorListGPU"]

__getattr__, _ = importer(__name__, {"dali_like.tensors": ("TensorGPU", "TensorListGPU")})
