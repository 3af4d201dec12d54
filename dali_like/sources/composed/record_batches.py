"""Record batches: the columns of consecutive rows, in a dict from name to column.

Columns of numbers are NumPy arrays, whose first axis counts the rows. Other columns are arrays of pyarrow. Slices share the
memory of the whole column, which nobody may change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dali_like.common.articles import kind_of
from dali_like.errors import SampleTypeError

__all__ = [
    "MOST_ROWS",
    "Columns",
    "OpenBatch",
    "Row",
    "array_of_lists",
    "checked",
    "chosen",
    "columns_of",
    "joined",
    "kept",
    "num_rows",
    "part",
    "row_getter",
    "texts_in",
    "values_of",
]

#: From name to column.
Columns: TypeAlias = dict[str, Any]

#: Rows of a record batch of a file. Eight columns of numbers then take 4 MiB.
MOST_ROWS = 1 << 16


class Row(Mapping[str, Any]):
    """A row of a record batch, whose values are read when they are needed."""

    __slots__ = ("columns", "index")

    def __init__(self, columns: Columns, index: int) -> None:
        self.columns, self.index = columns, index

    def __getitem__(self, name: str) -> Any:
        return values_of(self.columns[name])(self.index)

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)


class OpenBatch:
    """A record batch whose rows are taken part by part.

    Attributes:
        columns: all of its columns.
        fitted: a schema, and the columns as arrays for its rows, None if they do not fit; see `dali_like.data.columns`.
    """

    __slots__ = ("columns", "fitted")

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.fitted: tuple[Any, list[NDArray[Any]] | None] | None = None


def num_rows(columns: Columns) -> int:
    """Return the number of rows of a record batch that has been checked."""
    return len(next(iter(columns.values())))


def checked(columns: Any) -> Columns:
    """Return a record batch that a function has made: a mapping of columns, or a RecordBatch or Table of pyarrow.

    Raises:
        SampleTypeError: it is not a record batch.
    """
    if not isinstance(columns, Mapping):
        if hasattr(columns, "column_names") and hasattr(columns, "column"):  # of pyarrow
            return columns_of(columns)
        raise SampleTypeError(
            "behind from_parquet(as_batches=True), map gets record batches and returns them: a dict from name to column, or "
            f"a RecordBatch of pyarrow. A function has returned {kind_of(columns)}. For single rows, call "
            "as_rows()"
        )
    found = {name: column if type(column) is np.ndarray else _as_column(name, column) for name, column in columns.items()}
    if single := [name for name, column in found.items() if type(column) is np.ndarray and not column.ndim]:
        raise SampleTypeError(f"column {single[0]!r} of a record batch is a single number. Return an array with all rows")
    if len({len(column) for column in found.values()}) != 1:
        counts = ", ".join(f"{name!r} has {len(column)}" for name, column in found.items()) or "it has no columns"
        raise SampleTypeError(f"the columns of a record batch should have equally many rows: {counts}")
    return found


def _as_column(name: str, column: Any) -> Any:
    kind = type(column)
    if kind.__module__.partition(".")[0] == "pyarrow" and hasattr(column, "to_pylist"):
        return _column(name, column)
    if isinstance(column, np.ndarray):
        return np.asarray(column)
    raise SampleTypeError(
        f"column {name!r} of a record batch should be an array of NumPy or pyarrow, not {kind_of(column)}. Convert it, "
        "for example with numpy.asarray"
    )


def part(columns: Columns, begin: int, end: int) -> Columns:
    """Return the rows from `begin` to before `end`."""
    return {name: column[begin:end] for name, column in columns.items()}


def kept(columns: Columns, mask: NDArray[np.bool_]) -> Columns:
    """Return the rows for which a mask is true."""
    return chosen(columns, np.flatnonzero(mask))


def chosen(columns: Columns, numbers: NDArray[np.int64]) -> Columns:
    """Return the rows with some numbers, in their order."""
    return {
        name: column.take(numbers, 0) if type(column) is np.ndarray else column.take(_arrow().array(numbers))
        for name, column in columns.items()
    }


def joined(parts: Sequence[Columns]) -> Columns:
    """Return the rows of several record batches, one after another.

    Raises:
        SampleTypeError: they have other columns.
    """
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    for other in parts[1:]:
        if other.keys() != first.keys():
            raise SampleTypeError(
                f"a record batch has the columns {', '.join(first)}, and another one {', '.join(other)}. Choose the same "
                "ones: from_parquet(columns=[...])"
            )
    return {name: _joined(name, [each[name] for each in parts]) for name in first}


def _joined(name: str, columns: Sequence[Any]) -> Any:
    kinds = {(type(column), column.dtype if type(column) is np.ndarray else column.type) for column in columns}
    if len(kinds) > 1:
        types = " and ".join(sorted(str(kind) for _, kind in kinds))
        raise SampleTypeError(f"column {name!r} has the types {types} in different record batches. Convert it with map")
    return np.concatenate(columns) if type(columns[0]) is np.ndarray else _arrow().concat_arrays(columns)


def row_getter(columns: Columns) -> Callable[[int], dict[str, Any]]:
    """Return a function from the number of a row to the row, a dict."""
    getters = [(name, values_of(column)) for name, column in columns.items()]
    return lambda index: {name: values(index) for name, values in getters}


# Columns of pyarrow


def columns_of(table: Any) -> Columns:
    """Return the columns of a Table or RecordBatch of pyarrow.

    Raises:
        SampleTypeError: a column of integers or booleans has nulls.
    """
    return {name: _column(name, table.column(i)) for i, name in enumerate(table.column_names)}


def _column(name: str, column: Any) -> Any:
    """Return an array of NumPy for numbers, else an array of pyarrow."""
    pa = _arrow()
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if _is_number(kind):
        if column.null_count and not pa.types.is_floating(kind):
            raise SampleTypeError(
                f"column {name!r} of {kind} has nulls, and its arrays cannot. Leave it out with columns=, or read rows"
            )
        return _fixed(column.to_numpy(zero_copy_only=False))
    if pa.types.is_fixed_size_list(kind) and _is_number(kind.value_type) and not column.null_count:
        values = column.flatten()
        if not values.null_count:
            return _fixed(values.to_numpy(zero_copy_only=False)).reshape(len(column), kind.list_size)
    return column


def _fixed(array: NDArray[Any]) -> NDArray[Any]:
    """Let nobody write to an array: other record batches share it."""
    array.flags.writeable = False
    return array


def values_of(column: Any) -> Callable[[int], Any]:
    """Return a function from the number of a row to its value in a column."""
    if type(column) is np.ndarray:
        return column.__getitem__ if column.ndim == 1 else lambda index: column[index].copy()
    if _has_lists_of_numbers(column):
        values, offsets = column.values.to_numpy(zero_copy_only=False), column.offsets.to_numpy().tolist()
        return lambda index: values[offsets[index] : offsets[index + 1]].copy()
    return lambda index: column[index].as_py()


def array_of_lists(column: Any) -> NDArray[Any] | None:
    """Return a column of lists of numbers, all of one length, as an array of two dimensions. None: it has other values."""
    if not _has_lists_of_numbers(column):
        return None
    offsets = column.offsets.to_numpy()
    lengths = np.diff(offsets)
    if not len(lengths) or (lengths != lengths[0]).any():
        return None
    values: NDArray[Any] = column.values.to_numpy(zero_copy_only=False)[offsets[0] : offsets[-1]]
    return values.reshape(len(lengths), int(lengths[0]))


def texts_in(column: Any, kind: type) -> list[Any] | None:
    """Return the texts in a column, all of them of a type: str or bytes. None if it has other values."""
    if type(column) is np.ndarray or column.null_count:
        return None
    types = _arrow().types
    are = (types.is_string, types.is_large_string) if kind is str else (types.is_binary, types.is_large_binary)
    return list(column.to_pylist()) if any(is_kind(column.type) for is_kind in are) else None


def _has_lists_of_numbers(column: Any) -> bool:
    """Return whether a column of pyarrow has lists of numbers, without nulls."""
    types, kind = _arrow().types, column.type
    if not (types.is_list(kind) or types.is_large_list(kind)) or not _is_number(kind.value_type):
        return False
    return not column.null_count and not column.values.null_count


def _is_number(kind: Any) -> bool:
    types = _arrow().types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


def _arrow() -> Any:
    import pyarrow as pa  # optional

    return pa
