"""Formats that a library reads by itself: ArrayRecord and Lance."""

from __future__ import annotations

import itertools
import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dali_like.common.extras import optional
from dali_like.errors import ArgumentError, BrokenFileError, FileReadError, MissingFileError
from dali_like.sources.composed.chunked_files import ChunkedFiles
from dali_like.sources.composed.parquet_files import Rows, numbers_of
from dali_like.sources.readers.stored_files import is_url, shown

__all__ = ["ArrayRecordFiles", "LanceTable"]

#: Records that are read together when the access is sequential.
_CHUNK_RECORDS = 256
#: ArrayRecord files that a process keeps open for one source.
_MOST_READERS = 2
#: For random access. The library would read 16 MiB ahead.
_READER_OPTIONS = "readahead_buffer_size:0"
_READER_BUFFER_BYTES = 32 << 10


class ArrayRecordFiles(ChunkedFiles):
    """Records as bytes.

    Args:
        paths: of local files.

    Raises:
        MissingExtraError: array_record is not installed.
        MissingFileError, BrokenFileError: a file does not exist, or is not an ArrayRecord file.
        ArgumentError: a path is a URL.
    """

    is_remote = False
    has_single_records = True
    mean_chunk_bytes = 0

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = list(paths)
        self._open: OrderedDict[str, Any] = OrderedDict()
        self._pid = os.getpid()
        for path in paths:
            if is_url(path):
                raise ArgumentError(f"{shown(path)}: the library of ArrayRecord reads local files only. Copy the file first")
        counts = [self._count(path) for path in self._paths]
        #: The number of the first record of each file, and of the end.
        self._firsts = np.cumsum([0, *counts])
        ends = [np.append(np.arange(first + _CHUNK_RECORDS, last, _CHUNK_RECORDS), last) for first, last in self._spans()]
        self.chunk_ends = np.concatenate([np.zeros(0, np.int64), *ends])

    @property
    def file_ends(self) -> NDArray[np.int64]:
        """The number of records up to the end of each file, of shape (number of files,)."""
        return self._firsts[1:]

    def _spans(self) -> list[tuple[int, int]]:
        firsts = self._firsts.tolist()
        return [(first, last) for first, last in itertools.pairwise(firsts) if first < last]

    def _count(self, path: str) -> int:
        if not os.path.exists(path):
            raise MissingFileError(f"{shown(path)} does not exist. Check the path", path)
        reader = _new_reader(path)
        try:
            count = int(reader.num_records())
            if not reader.ok():
                reader.read([0])  # raises the reason
            reader.close()
        except RuntimeError as error:
            raise BrokenFileError(f"{shown(path)} is not an ArrayRecord file, or is damaged: {error}", path) from error
        return count

    async def read(self, first: int, last: int) -> Sequence[Any]:
        number = int(np.searchsorted(self._firsts, first, "right")) - 1
        begin = int(self._firsts[number])
        path = self._paths[number]
        try:
            records: list[bytes] = self._reader(path).read(list(range(first - begin, last - begin)))
        except RuntimeError as error:
            raise BrokenFileError(
                f"{shown(path)}: the records from {first - begin} to {last - begin - 1} cannot be read: {error}", path
            ) from error
        return records

    def decode(self, record: Any, index: int) -> Any:
        return record

    def _reader(self, path: str) -> Any:
        if self._pid != os.getpid():  # the readers belong to the parent process
            self._open, self._pid = OrderedDict(), os.getpid()
        reader = self._open.get(path)
        if reader is None:
            reader = self._open[path] = _new_reader(path)
            while len(self._open) > _MOST_READERS:
                _, oldest = self._open.popitem(last=False)
                oldest.close()
        return reader

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_open": OrderedDict()}


def _new_reader(path: str) -> Any:
    module = optional("array_record.python.array_record_module", "from_array_record", "array-record")
    return module.ArrayRecordReader(path, options=_READER_OPTIONS, file_reader_buffer_size=_READER_BUFFER_BYTES)


class LanceTable(ChunkedFiles):
    """Rows of one version of a Lance table, as `dali_like.sources.composed.parquet_files.Rows`.

    Args:
        path: path or URL, as Lance has it.
        columns: names of columns; None: all.
        version: of the table; None: the latest one, which stays the same in all workers.
        storage_options: of Lance, for URLs.

    Raises:
        MissingExtraError: pylance is not installed.
        MissingFileError: there is no table.
        ArgumentError: it has no such column.
    """

    is_remote = False
    has_single_records = True
    mean_chunk_bytes = 0

    def __init__(
        self, path: str, columns: Sequence[str] | None, version: int | None, storage_options: Mapping[str, str] | None
    ) -> None:
        self._path, self._columns = path, columns
        self._version, self._storage_options = version, storage_options
        self._table: Any = None
        self._pid = os.getpid()
        table = self._opened()
        self._version = table.version
        if missing := [name for name in columns or () if name not in table.schema.names]:
            raise ArgumentError(
                f"{shown(path)} has no column {missing[0]!r}. It has the columns {', '.join(table.schema.names)}"
            )
        count = table.count_rows()
        self.chunk_ends = np.append(np.arange(_CHUNK_RECORDS, count, _CHUNK_RECORDS), [count] if count else []).astype(
            np.int64
        )

    def column(self, name: str) -> NDArray[Any]:
        """Read the numbers of a column, or the lengths of its lists.

        Raises:
            ArgumentError: there is no such column.
        """
        names = self._opened().schema.names
        if name not in names:
            raise ArgumentError(f"{shown(self._path)} has no column {name!r}. It has the columns {', '.join(names)}")
        return numbers_of(self._opened().to_table(columns=[name]), name)

    async def read(self, first: int, last: int) -> Sequence[Any]:
        try:
            return Rows(self._opened().take(list(range(first, last)), columns=self._columns))
        except (OSError, ValueError, RuntimeError) as error:  # of Lance
            raise FileReadError(
                f"{shown(self._path)}: rows {first} to {last - 1} cannot be read: {error}", self._path
            ) from error

    def decode(self, record: Any, index: int) -> Any:
        return record()

    def _opened(self) -> Any:
        if self._table is None or self._pid != os.getpid():
            lance = optional("lance", "from_lance", "lance")
            try:
                self._table = lance.dataset(self._path, version=self._version, storage_options=self._storage_options)
            except (OSError, ValueError) as error:
                raise MissingFileError(f"{shown(self._path)} is not a Lance table: {error}", self._path) from error
            self._pid = os.getpid()
        return self._table

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_table": None}
