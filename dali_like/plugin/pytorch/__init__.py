"""PyTorch's ``DataLoader`` with this library's workers, and DALI's iterators for PyTorch.

Existing code only changes an import:

>>> from dali_like.plugin.pytorch import DataLoader  # instead of torch.utils.data
>>> from dali_like.plugin.pytorch import DALIGenericIterator  # instead of nvidia.dali.plugin.pytorch
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dali_like.common.extras import optional
from dali_like.common.lazy_names import importer

optional("torch", "dali_like.plugin.pytorch", "pytorch")

if TYPE_CHECKING:
    from dali_like.ops import TorchPythonFunction
    from dali_like.plugin.epoch_progress import LastBatchPolicy
    from dali_like.plugin.pytorch import fn
    from dali_like.plugin.pytorch.iterators import (
        DALIClassificationIterator,
        DALIGenericIterator,
        DALIRaggedIterator,
        feed_ndarray,
        to_torch_type,
    )
    from dali_like.plugin.pytorch.nested import jagged_collate, pad_collate
    from dali_like.plugin.pytorch.torch_loader import DataLoader

__all__ = [
    "DALIClassificationIterator",
    "DALIGenericIterator",
    "DALIRaggedIterator",
    "DataLoader",
    "LastBatchPolicy",
    "TorchPythonFunction",
    "feed_ndarray",
    "fn",
    "jagged_collate",
    "pad_collate",
    "to_torch_type",
]

_PLACES = {
    "dali_like.plugin.pytorch.fn": (),
    "dali_like.plugin.pytorch.nested": ("jagged_collate", "pad_collate"),
    "dali_like.plugin.pytorch.torch_loader": ("DataLoader",),
    "dali_like.ops": ("TorchPythonFunction",),
    "dali_like.plugin.pytorch.iterators": (
        "DALIClassificationIterator",
        "DALIGenericIterator",
        "DALIRaggedIterator",
        "feed_ndarray",
        "to_torch_type",
    ),
    "dali_like.plugin.epoch_progress": ("LastBatchPolicy",),
}

__getattr__, __dir__ = importer(__name__, _PLACES)
