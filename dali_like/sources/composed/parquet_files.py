"""Rows of Parquet files. A chunk is a row group; only the bytes of the wanted columns are read."""

from __future__ import annotations

import asyncio
import io
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dali_like.common.extras import optional
from dali_like.errors import ArgumentError, BrokenFileError, DaliLikeError
from dali_like.sources.composed.chunked_files import ChunkedFiles
from dali_like.sources.composed.record_batches import Columns, columns_of, values_of
from dali_like.sources.readers.stored_files import SeekableFile, StoredFiles, is_url, shown

__all__ = ["ParquetFiles", "Rows", "numbers_of"]

_MAGIC = b"PAR1"
#: Bytes at the end of a file that are read first. Most footers fit in.
_TAIL_BYTES = 64 << 10
#: Footers that a process keeps.
_MOST_FOOTERS = 8
#: Gaps between columns are read, too, if they are a smaller share of the bytes.
_MOST_GAP = 1 / 20
#: Remote footers that are read at the same time.
_FOOTERS_AT_ONCE = 16


#: Bytes of a decoded value, by physical type; others depend on the column.
_VALUE_BYTES = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 8, "FLOAT": 4, "DOUBLE": 8, "BYTE_ARRAY": 4}


class _RowGroup(NamedTuple):
    """A row group, as the footer describes it.

    Attributes:
        nbytes: least size after decompression and decoding.
        rows_at_once: rows to decode at a time. A text may be repeated in each row but stored once, so the size of a column
            of texts is only known after decoding.
    """

    file: int
    number: int
    num_rows: int
    ranges: tuple[tuple[int, int], ...]
    nbytes: int
    rows_at_once: int


class ParquetFiles(ChunkedFiles):
    """Rows as dicts: lists of numbers without nulls as arrays, other values as `pyarrow.Scalar.as_py` returns them.

    Args:
        files: to read with.
        paths: of the files.
        columns: names of columns; None: all.
        most_bytes: largest size of a row group after decompression.

    Raises:
        MissingExtraError: pyarrow is not installed.
        ArgumentError: a file has no such column.
    """

    has_single_records = False

    def __init__(self, files: StoredFiles, paths: Sequence[str], columns: Sequence[str] | None, most_bytes: int) -> None:
        _parquet()
        self._most_bytes = most_bytes
        self._files, self._paths, self._columns = files, list(paths), columns
        self.is_remote = any(map(is_url, paths))
        self._footers: OrderedDict[int, Any] = OrderedDict()
        #: Footers that are on their way, by event loop and number of the file.
        self._fetching: dict[tuple[Any, int], asyncio.Future[Any]] = {}
        if self.is_remote:
            with ThreadPoolExecutor(_FOOTERS_AT_ONCE) as threads:
                found = list(threads.map(self._read_footer, range(len(paths))))
        else:
            found = [self._read_footer(number) for number in range(len(paths))]
        #: The size of each file, and the bytes of its footer.
        self._sizes = [(size, footer_bytes) for size, footer_bytes, _ in found]
        self._groups = [
            group for number, (size, _, footer) in enumerate(found) for group in self._groups_of(number, size, footer)
        ]
        self.chunk_ends = np.cumsum([group.num_rows for group in self._groups], dtype=np.int64)
        num_bytes = sum(stop - start for group in self._groups for start, stop in group.ranges)
        self.mean_chunk_bytes = num_bytes // max(len(self._groups), 1)

    def _groups_of(self, number: int, size: int, footer: Any) -> list[_RowGroup]:
        try:
            return self._row_groups(number, size, footer)
        except DaliLikeError:
            raise
        except (OSError, ValueError) as error:  # such as a name that is not UTF-8
            path = self._paths[number]
            raise BrokenFileError(f"{shown(path)}: the footer is damaged: {error}", path, size) from error

    def _row_groups(self, number: int, size: int, footer: Any) -> list[_RowGroup]:
        names = footer.schema.to_arrow_schema().names
        wanted = names if self._columns is None else self._columns
        if missing := [name for name in wanted if name not in names]:
            raise ArgumentError(
                f"{shown(self._paths[number])} has no column {missing[0]!r}. It has the columns {', '.join(names)}"
            )
        groups = []
        for i in range(footer.num_row_groups):
            group = footer.row_group(i)
            spans = []
            nbytes, longest = 0, 1
            for k in range(group.num_columns):
                column = group.column(k)
                path = column.path_in_schema
                if any(path == name or path.startswith(f"{name}.") for name in wanted):
                    start = min(offset for offset in (column.dictionary_page_offset, column.data_page_offset) if offset)
                    spans.append((start, start + column.total_compressed_size))
                    value_bytes = _VALUE_BYTES.get(column.physical_type) or footer.schema.column(k).length
                    nbytes += max(column.total_uncompressed_size, column.num_values * value_bytes)
                    if column.physical_type == "BYTE_ARRAY":
                        longest = max(longest, column.total_uncompressed_size)
            rows_at_once = max(1, self._most_bytes // longest)
            found = _RowGroup(number, i, group.num_rows, _merged(spans), nbytes, rows_at_once)
            if group.num_rows < 0 or any(not 0 <= start <= stop <= size for start, stop in spans):
                raise self._broken(found, ValueError(f"the footer names bytes that are not among the {size} of the file"))
            groups.append(found)
        return groups

    @property
    def file_ends(self) -> NDArray[np.int64]:
        """The number of rows up to the end of each file, of shape (number of files,)."""
        counts = np.bincount(
            [group.file for group in self._groups], [group.num_rows for group in self._groups], len(self._paths)
        )
        return np.cumsum(counts).astype(np.int64)

    def column(self, name: str) -> NDArray[Any]:
        """Read the numbers of a column, or the lengths of its lists.

        Raises:
            ArgumentError: there is no such column.
            BrokenFileError, FileReadError: a file is damaged, or cannot be read.
        """
        alone = ParquetFiles(self._files, self._paths, [name], self._most_bytes)
        return np.concatenate([np.zeros(0), *(alone._numbers(group, name) for group in alone._groups)])

    def _numbers(self, group: _RowGroup, name: str) -> NDArray[Any]:
        path = self._paths[group.file]
        datas = [self._files.read_now(path, *span) for span in group.ranges]
        numbers: NDArray[Any] = self._opened(group, datas, numbers_of, name)
        return numbers

    async def read(self, first: int, last: int) -> Sequence[Any]:
        group = self._groups[int(np.searchsorted(self.chunk_ends, first, "right"))]
        path = self._paths[group.file]
        reads = [self._files.read(path, start, stop) for start, stop in group.ranges]
        if not self.is_remote:
            return self._rows(group, [await each for each in reads])
        footer = [] if group.file in self._footers else [self._fetch_footer(group.file)]
        datas = (await asyncio.gather(*reads, *footer))[: len(reads)]
        return await asyncio.to_thread(self._rows, group, datas)  # other reads go on meanwhile

    def _rows(self, group: _RowGroup, datas: Sequence[Any]) -> Rows:
        rows: Rows = self._opened(group, datas, Rows)
        return rows

    def _opened(self, group: _RowGroup, datas: Sequence[Any], convert: Callable[..., Any], *arguments: Any) -> Any:
        """Decode a row group, and convert the table to a sequence of its rows."""
        path = self._paths[group.file]
        pieces = _RangesInMemory(path, self._sizes[group.file][0], [start for start, _ in group.ranges], datas)
        try:
            opened = _parquet().ParquetFile(pieces, metadata=self._footer(group.file), pre_buffer=False)
            rows = convert(self._table(opened, group), *arguments)
        except DaliLikeError:  # such as FileReadError
            raise
        except (OSError, ValueError) as error:  # of pyarrow
            raise self._broken(group, error) from error
        if len(rows) != group.num_rows:
            raise self._broken(group, ValueError(f"it has {len(rows)} rows, but the footer says {group.num_rows}"))
        return rows

    def _table(self, opened: Any, group: _RowGroup) -> Any:
        """Decode a row group, and stop when it exceeds the limit."""
        import pyarrow as pa  # optional

        self._check_size(group, group.nbytes)
        if group.rows_at_once >= group.num_rows:
            table = opened.read_row_group(group.number, columns=self._columns, use_threads=False)
            self._check_size(group, table.nbytes)
            return table
        batches, nbytes = [], 0
        for batch in opened.iter_batches(group.rows_at_once, [group.number], columns=self._columns, use_threads=False):
            nbytes += batch.nbytes
            self._check_size(group, nbytes)
            batches.append(batch)
        return pa.Table.from_batches(batches)

    def _check_size(self, group: _RowGroup, nbytes: int) -> None:
        if nbytes > self._most_bytes:
            path = self._paths[group.file]
            raise BrokenFileError(
                f"{shown(path)}: row group {group.number} is larger than max_row_group_bytes={self._most_bytes} after "
                "decompression. If it is not an attack, pass a larger max_row_group_bytes",
                path,
            )

    async def _fetch_footer(self, number: int) -> None:
        """Read a footer once, also if several row groups of the file are read at the same time."""
        key = asyncio.get_running_loop(), number
        if key not in self._fetching:
            self._fetching[key] = asyncio.ensure_future(asyncio.to_thread(self._footer, number))
        try:
            await asyncio.shield(self._fetching[key])
        finally:
            self._fetching.pop(key, None)

    def decode(self, record: Any, index: int) -> Any:
        try:
            return record()
        except (OSError, ValueError) as error:  # such as a text that is not UTF-8
            raise self._broken(self._groups[int(np.searchsorted(self.chunk_ends, index, "right"))], error) from error

    def _broken(self, group: _RowGroup, error: Exception) -> BrokenFileError:
        path, start = self._paths[group.file], group.ranges[0][0] if group.ranges else 0
        return BrokenFileError(
            f"{shown(path)}: row group {group.number} at byte {start} is damaged: {error}. Write the file again", path, start
        )

    def _footer(self, number: int) -> Any:
        footer = self._footers.get(number)
        if footer is None:
            size, footer_bytes = self._sizes[number]
            tail = self._files.read_now(self._paths[number], size - footer_bytes, size).tobytes()
            footer = self._footers[number] = self._parsed_footer(number, size, tail)
            while len(self._footers) > _MOST_FOOTERS:
                self._footers.popitem(last=False)
        return footer

    def _read_footer(self, number: int) -> tuple[int, int, Any]:
        """Return the size of a file, the bytes of its footer, and its metadata."""
        path = self._paths[number]
        size = self._files.size(path)
        tail = self._files.read_now(path, max(size - _TAIL_BYTES, 0), size).tobytes()
        footer_bytes = int.from_bytes(tail[-8:-4], "little") + 8
        if tail[-4:] != _MAGIC or footer_bytes > size:
            raise BrokenFileError(
                f"{shown(path)} is not a Parquet file, or is truncated: it ends without a footer", path, size
            )
        if footer_bytes > len(tail):
            tail = self._files.read_now(path, size - footer_bytes, size).tobytes()
        return size, footer_bytes, self._parsed_footer(number, size, tail[-footer_bytes:])

    def _parsed_footer(self, number: int, size: int, footer: bytes) -> Any:
        path = self._paths[number]
        try:
            return _parquet().read_metadata(io.BytesIO(_MAGIC + footer))
        except (OSError, ValueError) as error:
            raise BrokenFileError(f"{shown(path)}: the footer is damaged: {error}", path, size - len(footer)) from error

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_footers": OrderedDict(), "_fetching": {}}


def _parquet() -> Any:
    return optional("pyarrow.parquet", "from_parquet", "parquet")


def _merged(spans: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Return ranges that contain all spans, together with small gaps."""
    merged: list[tuple[int, int]] = []
    for start, stop in sorted(spans):
        if merged and start - merged[-1][1] <= _MOST_GAP * (stop - start):
            merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
        else:
            merged.append((start, stop))
    return tuple(merged)


class _RangesInMemory(SeekableFile):
    """A file with some of its ranges in memory."""

    def __init__(self, path: str, size: int, starts: list[int], datas: Sequence[Any]) -> None:
        super().__init__(size)
        self._path, self._starts, self._datas = path, starts, datas

    def read(self, size: int = -1) -> Any:
        """Return the next bytes as a view, which pyarrow does not copy."""
        for start, data in zip(self._starts, self._datas, strict=True):
            offset = self.position - start
            if 0 <= offset < len(data):
                part = memoryview(data)[offset : len(data) if size < 0 else offset + size]
                self.position += len(part)
                return part
        raise BrokenFileError(f"{shown(self._path)}: byte {self.position} is in no column", self._path, self.position)


class Rows(Sequence[Any]):
    """The rows of a table of Arrow. An item is a function that returns the row.

    Attributes:
        table: as given.
    """

    def __init__(self, table: Any) -> None:
        self.table = table

    @cached_property
    def columns(self) -> Columns:
        """The columns as those of a record batch."""
        return columns_of(self.table)

    @cached_property
    def _columns(self) -> list[tuple[str, Any]]:
        return [(name, _values(self.table.column(name))) for name in self.table.column_names]

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __getitem__(self, index: Any) -> Any:
        return lambda: {name: values(index) for name, values in self._columns}


def _values(column: Any) -> Any:
    """Return a function from the index of a row to its value."""
    import pyarrow as pa  # optional

    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):  # too long for one array
        return lambda index: array[index].as_py()
    return values_of(array)


def numbers_of(table: Any, name: str) -> NDArray[Any]:
    """Return the numbers of a column of a table of Arrow, or the lengths of its lists; NaN where there is no value."""
    import pyarrow as pa  # optional
    import pyarrow.compute as pc

    column = table.column(name)
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        column = pc.list_value_length(column)
    return np.asarray(column.to_numpy())
