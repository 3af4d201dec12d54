"""Collation of tensors of different sizes: as nested tensors, or padded."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data._utils.collate import collate, default_collate, default_collate_fn_map

from dali_like.common.checks import positive
from dali_like.data.jagged import collate_fields, offsets_of
from dali_like.data.padding import Padded, PaddingOptions, fill_values, padded_shape, with_arrays
from dali_like.errors import CollateError

__all__ = ["jagged_collate", "pad_collate"]


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
    return collate_fields(
        collate, batch, fields, default_collate_fn_map, lambda _: {torch.Tensor: _nested, np.ndarray: _nested}
    )


def _nested(batch: Sequence[Any], *, collate_fn_map: Mapping[Any, Callable[..., Any]]) -> Any:
    if not batch[0].ndim:
        return default_collate(batch)
    offsets = offsets_of(batch)
    values = torch.cat([torch.as_tensor(item) for item in batch])
    return torch.nested.nested_tensor_from_jagged(values, torch.from_numpy(offsets))


def pad_collate(
    batch: Sequence[Any],
    *,
    fields: Collection[Any] | Mapping[Any, Any] | None = None,
    fill_value: Any = 0,
    multiple_of: int = 1,
    lengths: bool = False,
) -> Any:
    """Return the batch of samples whose tensors have different sizes, for ``collate_fn=``.

    As `dali_like.data.pad_collate`, for tensors: those with dimensions, and arrays, are padded behind their end, in each
    dimension, to the largest of the batch. The rest of the sample is collated as by PyTorch's ``default_collate``.

    Args:
        batch: the samples, at least one.
        fields: of samples that are mappings, the keys whose tensors are padded, or a mapping from these keys to the values
            of the padding. Lists of numbers in these fields count as tensors. Default: all tensors.
        fill_value: value of the padding.
        multiple_of: the first dimension is padded to a multiple of this number.
        lengths: whether padded tensors become `dali_like.data.Padded`, which has their lengths, too.

    Raises:
        CollateError: tensors differ in their number of dimensions, or the value of the padding does not fit their dtype.
        ArgumentError: `multiple_of` is not positive.
        TypeError, RuntimeError, KeyError: see PyTorch's ``default_collate``.
    """
    options = PaddingOptions(positive("multiple_of", multiple_of), lengths)

    def for_field(key: Any) -> dict[Any, Callable[..., Any]]:
        padded = _collator(options, fill_values(fields, key, fill_value))
        return {torch.Tensor: padded, np.ndarray: padded}

    return collate_fields(collate, with_arrays(batch, fields), fields, default_collate_fn_map, for_field)


def _collator(options: PaddingOptions, fill_value: Any) -> Callable[..., Any]:
    """Return the function of ``default_collate`` that pads tensors."""

    def padded(batch: Sequence[Any], *, collate_fn_map: Mapping[Any, Callable[..., Any]]) -> Any:
        if not batch[0].ndim:
            return default_collate(batch)
        tensors = [torch.as_tensor(item) for item in batch]
        shape = padded_shape(tensors, options.multiple_of)
        dtype = functools.reduce(torch.promote_types, {tensor.dtype for tensor in tensors})
        if not _fits(fill_value, dtype):
            raise CollateError(f"pad_collate: the fill value {fill_value!r} does not fit tensors of {dtype}")
        values = torch.full(shape, fill_value, dtype=dtype)
        for row, tensor in zip(values, tensors, strict=True):
            row[tuple(map(slice, tensor.shape))] = tensor
        return Padded(values, torch.tensor([len(tensor) for tensor in tensors])) if options.has_lengths else values

    return padded


def _fits(fill_value: Any, dtype: torch.dtype) -> bool:
    try:
        filled = torch.full((), fill_value, dtype=dtype).item()
    except (RuntimeError, TypeError):
        return False
    return dtype.is_floating_point or dtype.is_complex or bool(filled == fill_value)  # integers wrap around
