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
from dali_like.data.sample_schema import Column, Dict, Node, Piece, Rows, SampleSchema, Texts, UnfitError
from dali_like.engine.memory.protocol import DTYPES
from dali_like.sources.composed import is_composed
from dali_like.sources.composed.record_batches import array_of_lists, texts_in

if TYPE_CHECKING:
    from dali_like.data.array_backends import ArrayBackend
    from dali_like.sources.composed.row_pieces import RowPieces

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


def put_rows(root: Node, pieces: RowPieces, rows: Rows, texts: Texts) -> bool:
    """Write rows in columns to their places in a batch. Return False if one does not fit; the written data is then void.

    Args:
        root: of the schema of the rows.
        texts: gets the texts of each column of texts, piece by piece.
    """
    if type(root) is not Dict or (leaves := root.leaves) is None:
        return False
    into = [rows[number] for _, number, kind in leaves if kind is None]
    found: list[list[Any]] = [[] for _ in texts]
    for batch, begin, places in pieces.pieces:
        if batch.fitted is None or batch.fitted[0] is not root:
            batch.fitted = root, _arrays_for(root, leaves, batch.columns, into)
        if (arrays := batch.fitted[1]) is None:
            return False
        where, part = slice(places.start, places.stop, places.step), slice(begin, begin + len(places))
        # This loop is the overhead per column of a piece.
        for row, values in zip(into, arrays, strict=True):
            row[where] = values[part]
        for name, number, kind in leaves if texts else ():
            if kind is not None:
                if (some := texts_in(batch.columns[name][part], kind)) is None:
                    return False
                found[number] += some
    for each, some in zip(texts, found, strict=True):
        each.extend(some)
    return True


def _arrays_for(
    root: Dict, leaves: Sequence[tuple[str, int, type | None]], columns: dict[str, Any], into: Sequence[NDArray[Any]]
) -> list[NDArray[Any]] | None:
    """Return the columns with numbers of a record batch as arrays; None if they do not fit the rows of a schema."""
    if columns.keys() != root.parts.keys():
        return None
    arrays: list[NDArray[Any]] = []
    for name, row in zip((name for name, _, kind in leaves if kind is None), into, strict=True):
        column = columns[name]
        array = column if type(column) is np.ndarray else array_of_lists(column)
        if array is None or array.dtype != row.dtype or array.shape[1:] != row.shape[1:]:
            return None
        arrays.append(array)
    return arrays


def batch_of(pieces: RowPieces, schema: SampleSchema) -> Any:
    """Return the batch of rows in columns, in the order of their places; None if they do not fit a schema."""
    places = pieces.places
    size, count = max(run[-1] for run in places.ranges) + 1, len(places)
    rows = [np.empty((size, *(layout.shape or ())), DTYPES[layout.dtype]) for layout in schema.layouts]
    if not put_rows(schema.root, pieces, rows, []):
        return None
    if count < size:
        taken = np.sort(np.array(places))
        rows = [row[taken] for row in rows]
    return schema.root.batch(rows, [], False)


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
    if type(keys) is range and keys:
        return np.arange(keys.start, keys.stop, keys.step)
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
