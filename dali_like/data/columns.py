"""Gather the batches of datasets that only select rows of arrays, column by column instead of sample by sample.

An `ArrayDataset`, and a `StackDataset`, `Subset` or `ConcatDataset` of arrays or of such datasets, compute nothing: their
samples are rows. PyTorch's classes of these names, and its ``TensorDataset``, are the same. So are composed datasets of
arrays or of tokens, if all stages only select positions. `columns_of` returns the part of a batch from each array, nested as
a sample is, and the nodes of a schema gather it; see `dali_like.data.sample_schema`.

The datasets are read at each batch: a program may replace their arrays. An array that does not fit raises `UnfitError`;
the dataset is then asked for each sample, and raises its own errors.
"""

from __future__ import annotations

import operator
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dali_like.common.user_objects import method_of
from dali_like.data.datasets import ArrayDataset, ConcatDataset, StackDataset, Subset
from dali_like.data.sample_schema import Column, Dict, Leaf, Node, Piece, Rows, UnfitError, schema_of
from dali_like.engine.memory.protocol import DTYPES
from dali_like.sources.composed import is_composed

if TYPE_CHECKING:
    from dali_like.data.array_backends import ArrayBackend

#: The types of keys that select the same row as an int does. A bool does not: it adds a dimension.
_INTEGERS = frozenset({int, np.int32, np.int64})

#: The sequences, besides tensors, whose items can be read without side effects.
_SEQUENCES = (list, tuple, range, np.ndarray)


class RowDataset(NamedTuple):
    """A type of dataset whose samples are rows of arrays.

    Attributes:
        getitem, getitems: its methods, to notice subclasses and programs that replace them; None without the method.
        parts: returns the arrays and datasets in a dataset of this type.
        columns: returns the columns of a dataset of this type.
    """

    getitem: Any
    getitems: Any
    parts: Callable[[Any], Iterable[Any]]
    columns: Callable[[Any, NDArray[np.int64], ArrayBackend], Any]

    @classmethod
    def of(
        cls,
        kind: type[Any],
        parts: Callable[[Any], Iterable[Any]],
        columns: Callable[[Any, NDArray[np.int64], ArrayBackend], Any],
    ) -> RowDataset:
        """Describe a type."""
        return cls(kind.__getitem__, getattr(kind, "__getitems__", None), parts, columns)


def is_columnar(dataset: Any, backend: ArrayBackend) -> bool:
    """Return whether all samples of a dataset are rows of arrays. Whether the arrays fit is seen with each batch."""
    try:
        if is_composed(dataset):
            return bool(dataset.has_rows)
        described = _row_dataset(dataset, backend)
        return described is None or all(is_columnar(part, backend) for part in described.parts(dataset))
    except Exception:  # besides UnfitError: a subclass may lack the attributes, or raise for them
        return False


def columns_of(dataset: Any, keys: Any, backend: ArrayBackend) -> Any:
    """Return the columns of a batch, nested as a sample.

    Raises:
        UnfitError: the dataset must be asked for its samples.
        IndexError: a key of a subset is out of range.
    """
    return _columns_at(dataset, _index_of(keys, backend), backend)


def put_rows(root: Node, pieces: Sequence[tuple[dict[str, Any], NDArray[np.int64]]], rows: Rows) -> bool:
    """Write columns of rows to their places in a batch. Return False if one does not fit; the written data is then void.

    Args:
        root: of the schema of the rows.
        pieces: from name to column, and the places of its rows.
    """
    if type(root) is not Dict or any(columns.keys() != root.parts.keys() for columns, _ in pieces):
        return False
    where = [_as_slice(places) for _, places in pieces]
    for name, leaf in root.parts.items():
        if not isinstance(leaf, Leaf):
            return False
        row = rows[leaf.number]
        for (columns, _), places in zip(pieces, where, strict=True):
            column = columns[name]
            if type(column) is not np.ndarray or column.dtype != row.dtype or column.shape[1:] != row.shape[1:]:
                return False
            row[places] = column
    return True


def new_batch(pieces: Sequence[tuple[dict[str, Any], NDArray[np.int64]]], count: int, backend: ArrayBackend) -> Any:
    """Return the batch of columns of rows, or None if they do not make one of `count` rows.

    Args:
        pieces: see `put_rows`.
    """
    if sum(len(places) for _, places in pieces) != count:
        return None
    schema = schema_of({name: column[0] for name, column in pieces[0][0].items()}, backend)
    if schema is None or schema.num_texts:
        return None
    rows = [np.empty((count, *(layout.shape or ())), DTYPES[layout.dtype]) for layout in schema.layouts]
    return schema.root.batch(rows, [], False) if put_rows(schema.root, pieces, rows) else None


def _as_slice(places: NDArray[np.int64]) -> Any:
    """Return ascending places at equal distances as a slice: NumPy copies to it faster."""
    if len(places) == 1:
        return slice(int(places[0]), int(places[0]) + 1)
    step = int(places[1] - places[0])
    if step > 0 and (np.diff(places) == step).all():
        return slice(int(places[0]), int(places[-1]) + 1, step)
    return places


def first_sample(columns: Any) -> Any:
    """Return the sample that the first row of each column belongs to."""
    return _mapped(lambda column: column.pieces[0].values[int(column.pieces[0].numbers[0])], columns)


def side_by_side(parts: Any, index: NDArray[np.int64], backend: ArrayBackend) -> Any:
    """Return the columns of a tuple or dict of arrays and datasets."""
    if type(parts) is dict:
        return {key: _columns_at(part, index, backend) for key, part in parts.items()}
    if type(parts) not in (tuple, list):
        raise UnfitError
    return tuple(_columns_at(part, index, backend) for part in parts)


def of_subset(dataset: Any, index: NDArray[np.int64], backend: ArrayBackend) -> Any:
    """Return the columns of a `Subset`."""
    indices = dataset.indices
    if type(indices) not in (*_SEQUENCES, *backend.tensor_types):
        raise UnfitError
    # In half the time of a loop. One key would give one item, and not a tuple.
    found = operator.itemgetter(*index.tolist())(indices) if len(index) > 1 else [indices[i] for i in index.tolist()]
    return _columns_at(dataset.dataset, _index_of(found, backend), backend)


def of_concatenation(dataset: Any, index: NDArray[np.int64], backend: ArrayBackend) -> Any:
    """Return the columns of a `ConcatDataset`."""
    ends = np.array(dataset.cumulative_sizes)
    index = Piece(range(int(ends[-1])), index).checked_numbers()
    numbers = np.searchsorted(ends, index, side="right")
    found: list[tuple[Any, NDArray[np.int64]]] = []
    for number in np.unique(numbers).tolist():
        places = np.flatnonzero(numbers == number)
        begin = ends[number - 1] if number else 0
        found.append((_columns_at(dataset.datasets[number], index[places] - begin, backend), places))
    if len(found) == 1:
        return found[0][0]
    columns = [_mapped(lambda column, places=places: _placed(column, places), part) for part, places in found]
    return _mapped(lambda *parts: Column(sum((part.pieces for part in parts), ()), len(index)), *columns)


def row_datasets(arrays: type, name: str, stack: type, subset: type, concatenation: type) -> dict[type, RowDataset]:
    """Describe the datasets of a library.

    Args:
        arrays, name: the type of datasets of arrays, and its attribute with them.
    """

    def parts_of_stack(dataset: Any) -> Iterable[Any]:
        return dataset.datasets.values() if type(dataset.datasets) is dict else dataset.datasets

    arrays_of = operator.attrgetter(name)
    return {
        arrays: RowDataset.of(arrays, arrays_of, lambda dataset, *rest: side_by_side(arrays_of(dataset), *rest)),
        stack: RowDataset.of(stack, parts_of_stack, lambda dataset, *rest: side_by_side(dataset.datasets, *rest)),
        subset: RowDataset.of(subset, lambda dataset: (dataset.dataset,), of_subset),
        concatenation: RowDataset.of(concatenation, lambda dataset: dataset.datasets, of_concatenation),
    }


#: This library's datasets.
ROW_DATASETS = row_datasets(ArrayDataset, "arrays", StackDataset, Subset, ConcatDataset)


def _row_dataset(dataset: Any, backend: ArrayBackend) -> RowDataset | None:
    """Return the description of a dataset's type; None for an array.

    Raises:
        UnfitError: it is another dataset, or its methods have been replaced.
    """
    kind = type(dataset)
    if kind in backend.tensor_types:
        return None
    for base in kind.__mro__:
        if (described := backend.row_datasets.get(base)) is not None:
            getitems = method_of(dataset, "__getitems__")
            if kind.__getitem__ is described.getitem and getattr(getitems, "__func__", getitems) is described.getitems:
                return described
            break
    raise UnfitError


def _columns_at(dataset: Any, index: NDArray[np.int64], backend: ArrayBackend) -> Any:
    if is_composed(dataset):
        return Column(tuple(Piece(*rows) for rows in dataset.rows(index)), len(index))
    described = _row_dataset(dataset, backend)
    if described is None:
        return Column((Piece(dataset, index),), len(index))
    return described.columns(dataset, index, backend)


def _index_of(keys: Any, backend: ArrayBackend) -> NDArray[np.int64]:
    """Return the keys of a batch as an array.

    Raises:
        UnfitError: they are not all integers, or the list is empty.
    """
    if type(keys) not in (list, tuple) or not keys:
        raise UnfitError
    if not _INTEGERS.issuperset(map(type, keys)):
        keys = backend.integers_of(keys)
    try:
        return np.frombuffer(array("q", keys), np.int64)  # in half the time of np.array
    except OverflowError:
        raise UnfitError from None


def _placed(column: Column, places: NDArray[np.int64]) -> Column:
    """Put the rows of a column at some places of a larger batch."""
    pieces = (piece._replace(places=places if piece.places is None else places[piece.places]) for piece in column.pieces)
    return Column(tuple(pieces), column.size)


def _mapped(function: Callable[..., Any], *nested: Any) -> Any:
    """Return the results of a function for the columns of several nested containers, which must be alike."""
    first = nested[0]
    if any(type(other) is not type(first) for other in nested):
        raise UnfitError
    if type(first) is Column:
        return function(*nested)
    if any(len(other) != len(first) for other in nested):
        raise UnfitError
    if type(first) is tuple:
        return tuple(_mapped(function, *parts) for parts in zip(*nested, strict=True))
    if any(list(other) != list(first) for other in nested):
        raise UnfitError
    return {key: _mapped(function, *(other[key] for other in nested)) for key in first}
