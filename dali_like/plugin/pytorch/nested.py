"""Collation of tensors of different lengths without padding: as nested tensors."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data._utils.collate import collate, default_collate, default_collate_fn_map

from dali_like.data.jagged import collate_fields, offsets_of

__all__ = ["jagged_collate"]


def jagged_collate(batch: Sequence[Any], *, fields: Collection[Any] | None = None) -> Any:
    """Return the batch of samples whose tensors have different lengths, for ``collate_fn=``.

    Tensors and arrays with dimensions become nested tensors in the jagged layout of ``torch.nested``: they may differ in the
    first dimension. The rest of the sample is collated as by PyTorch's ``default_collate``.

    Args:
        batch: the samples, at least one.
        fields: of samples that are mappings, the keys whose tensors are jagged; ``functools.partial`` binds it.
            Default: all.

    Raises:
        CollateError: tensors differ in other dimensions.
        TypeError, RuntimeError, KeyError: see PyTorch's ``default_collate``.
    """
    return collate_fields(collate, batch, fields, default_collate_fn_map, {torch.Tensor: _nested, np.ndarray: _nested})


def _nested(batch: Sequence[Any], *, collate_fn_map: Mapping[Any, Callable[..., Any]]) -> Any:
    if not batch[0].ndim:
        return default_collate(batch)
    offsets = offsets_of(batch)
    values = torch.cat([torch.as_tensor(item) for item in batch])
    return torch.nested.nested_tensor_from_jagged(values, torch.from_numpy(offsets))
