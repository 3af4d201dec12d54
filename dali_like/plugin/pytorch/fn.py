"""Operators that call functions on PyTorch tensors, as in ``nvidia.dali.plugin.pytorch.fn``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dali_like.common.lazy_names import importer

if TYPE_CHECKING:
    from dali_like.fn import torch_python_function

__all__ = ["torch_python_function"]

__getattr__, __dir__ = importer(__name__, {"dali_like.fn": ("torch_python_function",)})
