"""Functions on tensors of PyTorch as operators, as in ``nvidia.dali.plugin.pytorch.fn``."""

from __future__ import annotations

from dali_like.fn import torch_python_function

__all__ = ["torch_python_function"]
