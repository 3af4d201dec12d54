"""Base of the readers of RecordIO and TFRecord: files in which records lie one after the other."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Sequence
from typing import BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dali_like.errors import ArgumentError, BrokenFileError
from dali_like.sources.readers.file_reader import listed
from dali_like.sources.readers.index_cache import cached_index
from dali_like.sources.readers.reader import Reader
from dali_like.sources.readers.stored_files import FileNames, shown


class Record(NamedTuple):
    """A record as it is stored.

    Attributes:
        path: of its file.
        begin: its first byte in the file.
        data: all of its bytes, of shape (number of bytes,).
    """

    path: str
    begin: int
    data: NDArray[np.uint8]

    def broken(self, problem: str, offset: int = 0) -> BrokenFileError:
        """Return the exception to raise.

        Args:
            problem: predicate of a sentence about the record.
            offset: position of the problem in the record.
        """
        return BrokenFileError(
            f"{shown(self.path)}: the record from byte {self.begin} to {self.begin + len(self.data)} {problem}",
            self.path,
            self.begin + offset,
        )


class RecordReader(Reader):
    """Finds and reads records.

    Args:
        path: paths of the files.
        index_path: paths of the indexes, if any.
    """

    def __init__(self, path: str | tuple[str, ...], index_path: str | tuple[str, ...] | None) -> None:
        self._names = FileNames(listed(path) or ())
        self._indexes = listed(index_path) or ()
        if not len(self._names):
            raise ArgumentError("path specified an empty list")
        self._files = np.empty(0, np.int32)
        self._begins = self._ends = np.empty(0, np.int64)

    def prepare(self) -> None:
        paths = list(self._names)
        spans = self._given_spans(paths) if self._indexes else [self._found_spans(path) for path in paths]
        self._files = np.repeat(np.arange(len(paths), dtype=np.int32), [len(each) for each in spans])
        self._begins, self._ends = np.concatenate(spans).T.copy()

    def __len__(self) -> int:
        return len(self._files)

    async def record(self, index: int) -> Record:
        """Return a record."""
        path, begin = self._names[int(self._files[index])], int(self._begins[index])
        return Record(path, begin, await self.files.read(path, begin, int(self._ends[index])))

    @abstractmethod
    def _given_spans(self, paths: list[str]) -> Sequence[NDArray[np.int64]]:
        """Return the first byte and the end of each record of each file, from `self._indexes`.

        Returns:
            For each file, an array of shape (number of records, 2).
        """

    @abstractmethod
    def _scan(self, path: str, file: BinaryIO) -> list[tuple[int, int]]:
        """Return the first byte and the end of each record of a file that has no index."""

    def _found_spans(self, path: str) -> NDArray[np.int64]:
        def build() -> bytes:
            with self.files.open(path) as file:
                return np.array(self._scan(path, file), "<i8").tobytes()

        def parse(index: bytes) -> NDArray[np.int64]:
            spans = np.frombuffer(index, "<i8").astype(np.int64).reshape(-1, 2)
            if len(spans) and not (spans[0, 0] >= 0 and (np.diff(spans.ravel()) >= 0).all() and spans[-1, 1] <= size):
                raise ValueError(f"its records are not in the {size} bytes of the file")
            return spans

        size = self.files.size(path)
        return cached_index(self.files, path, self.path.rpartition(".")[2], build, parse)


def numbers_of_index(lines: list[str], path: str, names: str) -> NDArray[np.int64]:
    """Return the numbers in an index that is a text file. Empty lines are skipped.

    Args:
        lines: of the file.
        path: of the file, for messages.
        names: of the numbers in a line, separated by spaces.

    Returns:
        Array of shape (number of lines, numbers in a line).

    Raises:
        BrokenFileError: a line has other contents, or there is no line.
    """
    width = len(names.split())
    rows = []
    for number, line in enumerate(lines, 1):
        parts = line.split()
        if not parts:
            continue
        try:
            row = [int(part) for part in parts]
        except ValueError:
            row = []
        if len(row) != width or min(row) < 0 or max(row) >= 1 << 62:
            raise BrokenFileError(
                f"{shown(path)}:{number} is not a line of an index: expected the numbers {names}, not {shown(line)!r}. "
                "Write the index again, or leave index_path out",
                path,
            )
        rows.append(row)
    if not rows:
        raise BrokenFileError(f"{shown(path)} has no records. Write the index again, or leave index_path out", path, 0)
    return np.array(rows, np.int64)


def whole_size(file: BinaryIO) -> int:
    """Return the size of an open file, in bytes."""
    return file.seek(0, os.SEEK_END)
