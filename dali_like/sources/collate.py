"""Collation: make a batch of NumPy arrays from samples, by the rules of ``torch.utils.data.default_collate``.

A mapping from types to functions, `default_collate_fn_map`, determines how samples are collated; programs may extend or
replace it. The parts of containers are collated one by one. All samples of a batch should have the structure of the first.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dali_like.common.articles import kind_of
from dali_like.common.foreign_errors import add_note
from dali_like.common.nesting import TYPED_SEQUENCES, is_array_like, is_named_tuple, is_record, parts_of, rebuilt
from dali_like.errors import CollateError, CollateKeyError, CollateTypeError, SampleIndexError

__all__ = ["collate", "default_collate", "default_collate_fn_map", "default_convert", "values_of"]

#: Maps types of samples, or tuples of types, to functions ``(batch, *, collate_fn_map)``.
CollateMap = Mapping[Any, Callable[..., Any]]

_UNFIT = "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {}"
_SPARSE = ". For sparse batches, pass collate_fn=scipy.sparse.vstack; for dense ones, let the samples be row.toarray()[0]"
#: Kinds of dtypes that are not numbers: bytes, str, objects, and NumPy 2's str of any length.
_NO_NUMBERS = "SUOT"


def default_collate(batch: Sequence[Any]) -> Any:
    """Return the batch of samples.

    ================================  ==================================================================================
    samples                           batch
    ================================  ==================================================================================
    arrays of one shape               an array with one more dimension, in front
    NumPy's numbers                   an array of their dtype
    float, int, bool                  an array of dtype float64, int64, bool
    str, bytes                        the sequence of them
    mappings                          such a mapping of batches, with the keys of the first sample
    named tuples, dataclasses         such an object of batches
    tuples                            a list of batches
    other sequences                   such a sequence of batches
    tensors, and other objects with   an array with one more dimension, in front
    the array interface
    ================================  ==================================================================================

    A container that cannot be copied and filled becomes a dict or a list. NumPy promotes different dtypes. For other types,
    add to `default_collate_fn_map`, or use `collate`.

    Args:
        batch: the samples, at least one.

    Raises:
        CollateTypeError: samples of this type cannot be collated.
        CollateError: shapes or lengths differ, or an integer needs more than 64 bits.
        CollateKeyError: a sample lacks a key of the first one.
        SampleIndexError: there are no samples.

    The notes of an exception name the part of the samples.

    >>> default_collate([(np.zeros(2), 3, "a"), (np.ones(2), 4, "b")])
    [array([[0., 0.],
           [1., 1.]]), array([3, 4]), ('a', 'b')]
    >>> default_collate([{"label": 0.5}, {"label": 1.5}])
    {'label': array([0.5, 1.5])}
    """
    return collate(batch, collate_fn_map=default_collate_fn_map)


def collate(batch: Sequence[Any], *, collate_fn_map: CollateMap | None = None) -> Any:
    """Return the batch of samples, by functions for the types of their parts.

    Args:
        batch: the samples, at least one.
        collate_fn_map: the functions. The one for the exact type of the first sample is called, or else the first one for a
            base class. Without such a function, containers are collated as by `default_collate`.

    Raises:
        CollateTypeError, CollateError, CollateKeyError, SampleIndexError: see `default_collate`.

    >>> pad = lambda batch, *, collate_fn_map: max(batch, key=len)
    >>> collate([{"text": "a"}, {"text": "abc"}], collate_fn_map={str: pad})
    {'text': 'abc'}
    """
    if not len(batch):
        raise SampleIndexError("default_collate: the batch is empty")
    first = batch[0]
    function = function_for(first, collate_fn_map)
    if function is not None:
        return function(batch, collate_fn_map=collate_fn_map)

    def part(where: str, samples: Sequence[Any]) -> Any:
        try:
            return collate(samples, collate_fn_map=collate_fn_map)
        except Exception as error:
            add_note(error, f"in {where} of the samples")
            raise

    # The order of PyTorch. It takes the items of typed sequences, too, and of named tuples by their number.
    if isinstance(first, Mapping):
        return rebuilt(first, [part(f"key {key!r}", values_of(batch, key)) for key in first])
    if isinstance(first, Sequence) and not isinstance(first, (str, bytes)):
        return _rebuilt(first, [part(f"item {i}", items) for i, items in enumerate(_transposed(batch))])
    if is_array_like(first):
        return _collate_array_likes(batch)
    if is_record(first):
        names = [field.name for field in dataclasses.fields(first)]
        return rebuilt(first, [part(f"field {name!r}", _fields(batch, name)) for name in names])
    raise _unfit(type(first), batch)


def default_convert(data: Any) -> Any:
    """Convert a sample for a loader without batches, by the rules of PyTorch's function of that name.

    NumPy's numbers, tensors and other objects with the array interface become arrays. Containers keep their type, except
    that tuples become lists. Other objects stay as they are.

    >>> default_convert((np.float32(0.5), "a", 3))
    [array(0.5, dtype=float32), 'a', 3]
    """
    if isinstance(data, (np.ndarray, str, bytes, *TYPED_SEQUENCES)):
        return data
    if (parts := parts_of(data)) is not None:
        return _rebuilt(data, [default_convert(part) for _, part in parts])
    return np.asarray(data) if is_array_like(data) else data


def _rebuilt(model: Any, parts: list[Any]) -> Any:
    """Return a container of other parts. PyTorch makes lists of tuples."""
    return parts if isinstance(model, tuple) and not is_named_tuple(model) else rebuilt(model, parts)


def function_for(sample: Any, functions: CollateMap | None) -> Callable[..., Any] | None:
    """Return the function that collates samples of this type; None for containers and unknown types."""
    if functions is None:
        return None
    if type(sample) in functions:
        return functions[type(sample)]
    return next((function for kind, function in functions.items() if isinstance(sample, kind)), None)


# Parts of containers


def values_of(batch: Sequence[Any], key: Any) -> list[Any]:
    """Return the values of a key of all samples.

    Raises:
        CollateKeyError: a sample has no such key.
        CollateTypeError: a sample is not a mapping.
    """
    values = []
    for number, sample in enumerate(batch):
        try:
            values.append(sample[key])
        except KeyError:
            message = f"sample {number} of the batch has no key {key!r}, unlike the first sample"
            raise CollateKeyError(message) from None
        except TypeError:
            raise _other_kind(batch, sample) from None
    return values


def _fields(batch: Sequence[Any], name: str) -> list[Any]:
    for sample in batch:
        if not hasattr(sample, name):
            raise _other_kind(batch, sample)
    return [getattr(sample, name) for sample in batch]


def _transposed(batch: Sequence[Any]) -> list[tuple[Any, ...]]:
    for sample in batch:
        if not isinstance(sample, Sequence):
            raise _other_kind(batch, sample)
    if len({len(sample) for sample in batch}) > 1:
        raise CollateError("each element in list of batch should be of equal size")
    return list(zip(*batch, strict=True))


def _other_kind(batch: Sequence[Any], sample: Any) -> CollateTypeError:
    if sample is None:
        return _unfit(type(None), batch)
    return CollateTypeError(
        f"the samples of a batch must have the same type: the first one is {kind_of(batch[0])}, another is {kind_of(sample)}"
    )


def _unfit(found: Any, batch: Sequence[Any]) -> CollateTypeError:
    """Return the error for a type that cannot be collated. None is the most frequent one: a `return` is missing."""
    number = next((i for i, sample in enumerate(batch) if sample is None), None)
    if number is None:
        return CollateTypeError(_UNFIT.format(found) + (_SPARSE if is_sparse_matrix(batch[0]) else ""))
    return CollateTypeError(
        f"{_UNFIT.format(type(None))}, in sample {number} of the batch. Some path through the dataset's __getitem__ returns "
        "None, or ends without a return"
    )


# Arrays and numbers


def _collate_array_likes(batch: Sequence[Any]) -> NDArray[Any]:
    kind = "nested" if getattr(batch[0], "is_nested", False) else "sparse" if _is_sparse_tensor(batch[0]) else None
    if kind is not None:
        raise CollateError(
            f"Batches of {kind} tensors are not currently supported by the default collate_fn; "
            "please provide a custom collate_fn to handle them appropriately."
        )
    return _collate_arrays(batch)


def is_sparse_matrix(value: Any) -> bool:
    """Return whether a value is a sparse matrix or array of SciPy."""
    return type(value).__module__.startswith("scipy.sparse")


def _is_sparse_tensor(value: Any) -> bool:
    return str(getattr(value, "layout", "")).startswith("torch.sparse")


def _collate_arrays(batch: Sequence[Any], *, collate_fn_map: CollateMap | None = None) -> NDArray[Any]:
    arrays = [np.asarray(sample) for sample in batch]
    shape = arrays[0].shape
    for number, item in enumerate(arrays):
        if item.dtype.kind in _NO_NUMBERS:
            raise _unfit(item.dtype, batch)
        if item.shape != shape:
            raise CollateError(
                f"stack expects each tensor to be equal size, but got {list(shape)} at entry 0 and {list(item.shape)} "
                f"at entry {number}. Make the samples alike, for example by padding, or pass a collate_fn, such as "
                "pad_collate"
            )
    return np.stack(arrays)


def _collate_numbers(batch: Sequence[Any], *, collate_fn_map: CollateMap | None = None) -> NDArray[Any]:
    try:
        numbers = np.array(batch)
    except ValueError:  # an element has dimensions
        numbers = np.empty(0, object)
    if numbers.dtype.kind in _NO_NUMBERS:
        raise _refusal_of_numbers(batch)
    return numbers


def _collate_floats(batch: Sequence[Any], *, collate_fn_map: CollateMap | None = None) -> NDArray[Any]:
    numbers = np.array(batch, np.float64) if _are_floats_or_ints(batch) else _collate_numbers(batch)
    if numbers.dtype.kind == "c":
        raise _refusal_of_numbers(batch)
    return numbers.astype(np.float64, copy=False)


def _collate_ints(batch: Sequence[Any], *, collate_fn_map: CollateMap | None = None) -> NDArray[Any]:
    if not all(isinstance(value, int) for value in batch):
        return np.array(batch, np.float64) if _are_floats_or_ints(batch) else _collate_numbers(batch)
    numbers = np.array(batch)
    if numbers.dtype.kind not in "bi":
        raise _refusal_of_numbers(batch)
    return numbers


def _are_floats_or_ints(batch: Sequence[Any]) -> bool:
    return all(isinstance(value, (float, int)) for value in batch)


def _fits(value: Any) -> bool:
    return not isinstance(value, int) or -(2**63) <= value < 2**63


def _refusal_of_numbers(batch: Sequence[Any]) -> CollateError:
    for value in batch:
        if not isinstance(value, (int, float, np.number, np.bool_)):
            return _unfit(type(value), batch)
    if not all(map(_fits, batch)):
        return CollateError("Overflow when unpacking long long: an integer of the batch does not fit into 64 bits")
    return _unfit(" and ".join(sorted({str(type(value)) for value in batch})), batch)


def _collate_texts(batch: Sequence[Any], *, collate_fn_map: CollateMap | None = None) -> Sequence[Any]:
    return batch


#: The functions of `default_collate`. Programs may add others.
default_collate_fn_map: dict[Any, Callable[..., Any]] = {
    np.ndarray: _collate_arrays,
    (np.bool_, np.number, np.object_): _collate_numbers,
    float: _collate_floats,
    int: _collate_ints,
    str: _collate_texts,
    bytes: _collate_texts,
}
