"""Collation of arrays of different sizes with padding: as one array for the batch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dali_like.common.checks import positive
from dali_like.data.jagged import collate_fields
from dali_like.errors import CollateError
from dali_like.sources.collate import CollateMap, collate, default_collate_fn_map, default_convert

__all__ = ["Padded", "PaddingOptions", "fill_values", "pad_collate", "padded_shape", "with_arrays"]


class Padded(NamedTuple):
    """Arrays of different sizes in one array. Array i is ``values[i, : lengths[i]]``, up to its padding in other dimensions.

    Attributes:
        values: the arrays, each from the beginning of its row; padding behind them.
        lengths: of the arrays, in their first dimension: of shape ``(arrays,)``, int64.
    """

    values: Any
    lengths: Any


def pad_collate(
    batch: Sequence[Any],
    *,
    fields: Collection[Any] | Mapping[Any, Any] | None = None,
    fill_value: Any = 0,
    multiple_of: int = 1,
    lengths: bool = False,
) -> Any:
    """Return the batch of samples whose arrays have different sizes, for ``collate_fn=``.

    Arrays and tensors with dimensions are padded behind their end, in each dimension, to the largest of the batch. The rest
    of the sample is collated as by `default_collate`. `dali_like.plugin.pytorch.pad_collate` returns tensors. Other values
    of the options are bound by ``functools.partial``, which also workers that are spawned can load.

    Args:
        batch: the samples, at least one.
        fields: of samples that are mappings, the keys whose arrays are padded, or a mapping from these keys to the values of
            the padding. Lists of numbers in these fields count as arrays. Default: all arrays.
        fill_value: value of the padding.
        multiple_of: the first dimension is padded to a multiple of this number, as Tensor Cores want it.
        lengths: whether padded arrays become `Padded`, which has their lengths, too.

    Raises:
        CollateError: arrays differ in their number of dimensions, or the value of the padding does not fit their dtype; see
            also `default_collate`.
        ArgumentError: `multiple_of` is not positive.

    >>> pad_collate([np.array([1, 2, 3]), np.array([4])])
    array([[1, 2, 3],
           [4, 0, 0]])
    >>> pad_collate([{"tokens": [5, 6], "label": 0}, {"tokens": [7], "label": 1}], fields={"tokens": -1}, lengths=True)
    {'tokens': Padded(values=array([[ 5,  6],
           [ 7, -1]]), lengths=array([2, 1])), 'label': array([0, 1])}
    """
    options = PaddingOptions(positive("multiple_of", multiple_of), lengths)
    samples = [default_convert(sample) for sample in with_arrays(batch, fields)]

    def for_field(key: Any) -> CollateMap:
        return {np.ndarray: _collator(options, fill_values(fields, key, fill_value))}

    return collate_fields(collate, samples, fields, default_collate_fn_map, for_field)


class PaddingOptions(NamedTuple):
    """Options of `pad_collate` for all its fields."""

    multiple_of: int
    has_lengths: bool


def with_arrays(batch: Sequence[Any], fields: Collection[Any] | None) -> Sequence[Any]:
    """Return samples whose lists in some fields are arrays."""
    if fields is None or not all(isinstance(sample, Mapping) for sample in batch):
        return batch
    return [
        {key: np.asarray(value) if isinstance(value, list) and key in fields else value for key, value in sample.items()}
        for sample in batch
    ]


def fill_values(fields: Collection[Any] | Mapping[Any, Any] | None, key: Any, fill_value: Any) -> Any:
    """Return the value of the padding of a field."""
    return fields[key] if isinstance(fields, Mapping) else fill_value


def padded_shape(arrays: Sequence[Any], multiple_of: int) -> tuple[int, ...]:
    """Return the shape of a batch of arrays or tensors.

    Raises:
        CollateError: they differ in their number of dimensions.
    """
    for number, item in enumerate(arrays):
        if item.ndim != arrays[0].ndim:
            raise CollateError(
                f"pad_collate: arrays should have the same number of dimensions, but got {list(arrays[0].shape)} at entry 0 "
                f"and {list(item.shape)} at entry {number}. Reshape them, or leave the field out of fields="
            )
    first, *others = (max(sizes) for sizes in zip(*(item.shape for item in arrays), strict=True))
    return (len(arrays), -(-first // multiple_of) * multiple_of, *others)


def _collator(options: PaddingOptions, fill_value: Any) -> Callable[..., Any]:
    """Return the function of `default_collate` that pads arrays."""

    def padded(batch: Sequence[NDArray[Any]], *, collate_fn_map: CollateMap) -> Any:
        if not batch[0].ndim:
            return default_collate_fn_map[np.ndarray](batch, collate_fn_map=collate_fn_map)
        shape = padded_shape(batch, options.multiple_of)
        dtype = np.result_type(*{array.dtype for array in batch})
        try:
            values = np.full(shape, fill_value, dtype)
        except (OverflowError, ValueError, TypeError) as error:
            raise CollateError(f"pad_collate: the fill value {fill_value!r} does not fit arrays of {dtype}") from error
        for row, array in zip(values, batch, strict=True):
            row[tuple(map(slice, array.shape))] = array
        return Padded(values, np.array([len(array) for array in batch])) if options.has_lengths else values

    return padded
