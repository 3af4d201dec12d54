"""Collation of arrays of different lengths without padding: as values and offsets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dali_like.errors import CollateError, SampleIndexError
from dali_like.sources.collate import CollateMap, collate, default_collate_fn_map, default_convert, values_of

__all__ = ["Jagged", "collate_fields", "jagged_collate", "offsets_of"]


class Jagged(NamedTuple):
    """Arrays of different lengths. Array i is ``values[offsets[i] : offsets[i + 1]]``.

    Attributes:
        values: the arrays, one after another.
        offsets: of shape ``(arrays + 1,)``, int64, from 0 on.
    """

    values: Any
    offsets: Any


def jagged_collate(batch: Sequence[Any], *, fields: Collection[Any] | None = None) -> Any:
    """Return the batch of samples whose arrays have different lengths.

    Arrays and tensors with dimensions become `Jagged`: they may differ in the first dimension. The rest of the sample is
    collated as by `default_collate`. `dali_like.plugin.pytorch.jagged_collate` returns tensors.

    Args:
        batch: the samples, at least one.
        fields: of samples that are mappings, the keys whose arrays are jagged; ``functools.partial`` binds it. Default: all.

    Raises:
        CollateError: arrays differ in other dimensions; see also `default_collate`.

    >>> jagged_collate([{"tokens": np.array([1, 2]), "label": 0}, {"tokens": np.array([3]), "label": 1}])
    {'tokens': Jagged(values=array([1, 2, 3]), offsets=array([0, 2, 3])), 'label': array([0, 1])}
    """
    samples = [default_convert(sample) for sample in batch]
    return collate_fields(collate, samples, fields, default_collate_fn_map, lambda _: {np.ndarray: _jagged})


def collate_fields(
    function: Callable[..., Any],
    batch: Sequence[Any],
    fields: Collection[Any] | None,
    functions: CollateMap,
    for_field: Callable[[Any], CollateMap],
) -> Any:
    """Return the batch of samples, some fields by other functions.

    Args:
        function: ``collate`` of this library or of PyTorch.
        fields: None: all.
        functions: for the types of the samples' parts.
        for_field: returns those that replace some of `functions` in one of `fields`; its argument is the key, or None where
            `fields` is None.

    Raises:
        CollateError: the samples are not mappings with these fields.
    """
    if fields is None:
        return function(batch, collate_fn_map={**functions, **for_field(None)})
    if not len(batch):
        raise SampleIndexError("the batch is empty")
    first = batch[0]
    if not isinstance(first, Mapping) or not set(fields) <= set(first):
        found = f"the fields {', '.join(map(str, first))}" if isinstance(first, Mapping) else f"the type {type(first)}"
        raise CollateError(
            f"fields=: samples should be mappings with the fields {', '.join(map(str, fields))}, but the first has {found}. "
            "Leave out fields=, or correct it"
        )
    return {
        key: function(values_of(batch, key), collate_fn_map={**functions, **for_field(key)} if key in fields else functions)
        for key in first
    }


def offsets_of(arrays: Sequence[Any]) -> NDArray[np.int64]:
    """Return the offsets of arrays that are put one after another.

    Raises:
        CollateError: they differ in other dimensions than the first.
    """
    for number, item in enumerate(arrays):
        if item.ndim != arrays[0].ndim or item.shape[1:] != arrays[0].shape[1:]:
            raise CollateError(
                f"jagged_collate: arrays may differ in the first dimension only, but got {list(arrays[0].shape)} at entry 0 "
                f"and {list(item.shape)} at entry {number}. Flatten them, or leave the field out of fields="
            )
    return np.cumsum([0, *map(len, arrays)], dtype=np.int64)


def _jagged(batch: Sequence[Any], *, collate_fn_map: CollateMap) -> Any:
    if not batch[0].ndim:
        return default_collate_fn_map[np.ndarray](batch, collate_fn_map=collate_fn_map)
    offsets = offsets_of(batch)
    return Jagged(np.concatenate(batch), offsets)
