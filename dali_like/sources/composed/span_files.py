"""Files in which records lie one after the other, with an index of their boundaries: JSON Lines and tar archives."""

from __future__ import annotations

import itertools
import json
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from dali_like.common.json_text import json_value
from dali_like.errors import BrokenFileError
from dali_like.sources.composed.block_file import open_in_blocks
from dali_like.sources.composed.chunked_files import ChunkedFiles
from dali_like.sources.readers.index_cache import cached_index
from dali_like.sources.readers.stored_files import FileNames, StoredFiles, is_url, shown

__all__ = ["LineFiles", "SpanFiles", "broken_line"]

_SCAN_BYTES = 1 << 20
#: Bytes in which lines are counted for a message: a tenth of a second.
_MOST_COUNTED_BYTES = 1 << 28


class SpanFiles(ChunkedFiles):
    """Records that lie one after the other. The index takes 8 bytes a record.

    Args:
        files: to read with.
        paths: of the files.
        chunk_bytes: about the size of a chunk.
    """

    has_single_records = True
    #: The format, in names of indexes.
    kind: str

    def __init__(self, files: StoredFiles, paths: Sequence[str], chunk_bytes: int) -> None:
        self._files, self._paths = files, FileNames(paths)
        self.is_remote = any(map(is_url, paths))
        self.mean_chunk_bytes = chunk_bytes
        bounds = [self._bounds_of(path) for path in paths]
        counts = [len(each) - 1 for each in bounds]
        #: The number of the first record of each file, and of the end.
        self._firsts = np.cumsum([0, *counts])
        #: The first byte of each record, and the end of the last one, for one file after the other.
        self._bounds = np.concatenate(bounds)
        ends = [first + _chunk_ends(each, chunk_bytes) for first, each in zip(self._firsts, bounds, strict=False)]
        self.chunk_ends = np.concatenate(ends)

    def _bounds_of(self, path: str) -> NDArray[np.int64]:
        def build() -> bytes:
            with open_in_blocks(self._files, path) as file:
                ends = np.asarray(self.scan(path, file), "<i8")
            return np.concatenate([np.zeros(1, "<i8"), ends]).tobytes()

        def parse(index: bytes) -> NDArray[np.int64]:
            bounds = np.frombuffer(index, "<i8").astype(np.int64)
            if not (len(bounds) and bounds[0] == 0 and (np.diff(bounds) > 0).all() and bounds[-1] <= size):
                raise ValueError(f"its records are not in the {size} bytes of the file")
            return bounds

        size = self._files.size(path)
        return cached_index(self._files, path, self.kind, build, parse)

    @abstractmethod
    def scan(self, path: str, file: BinaryIO) -> Any:
        """Return the end of each record of a file, in bytes, ascending."""

    @property
    def file_ends(self) -> NDArray[np.int64]:
        """The number of records up to the end of each file, of shape (number of files,)."""
        return self._firsts[1:]

    def record_bytes(self) -> NDArray[np.int64]:
        """Return the size of each record."""
        sizes = np.diff(self._bounds)
        # Between two files, the end of one is followed by the beginning of the next.
        return np.delete(sizes, self._firsts[1:-1] + np.arange(len(self._firsts) - 2))

    async def read(self, first: int, last: int) -> Sequence[Any]:
        number = self._file_of(first)
        bounds = self._bounds[first + number : last + number + 1]
        start = int(bounds[0])
        data = (await self._files.read(self._paths[number], start, int(bounds[-1]))).data
        cuts = (bounds - start).tolist()
        return [data[begin:end] for begin, end in itertools.pairwise(cuts)]

    def place_of(self, index: int) -> tuple[str, int, int]:
        """Return the path of a record, its number in the file, and its first byte."""
        number = self._file_of(index)
        return self._paths[number], index - int(self._firsts[number]), int(self._bounds[index + number])

    def _file_of(self, index: int) -> int:
        return int(np.searchsorted(self._firsts, index, "right")) - 1


def _chunk_ends(bounds: NDArray[np.int64], chunk_bytes: int) -> NDArray[np.int64]:
    """Return the number of records up to the end of each chunk: all records that begin in the same `chunk_bytes`."""
    if len(bounds) == 1:
        return np.zeros(0, np.int64)
    begins = np.flatnonzero(np.diff(bounds[:-1] // chunk_bytes)) + 1
    return np.append(begins, len(bounds) - 1).astype(np.int64)


class LineFiles(SpanFiles):
    """JSON Lines. Empty lines are not records."""

    kind = "jsonl"

    def scan(self, path: str, file: BinaryIO) -> NDArray[np.int64]:
        return np.concatenate([np.zeros(0, np.int64), *_line_ends(file)])

    def decode(self, record: Any, index: int) -> Any:
        try:
            return json_value(bytes(record))
        except ValueError as error:
            path, number, offset = self.place_of(index)
            empty = len(record) - len(bytes(record).lstrip(b"\r\n"))  # lines before the record belong to it
            raise broken_line(path, number, offset + empty, self._line_of(path, offset + empty), error) from error

    def _line_of(self, path: str, offset: int) -> int | None:
        """Return the number of the line at a byte, from 1 on; None if too much of the file would be read for it."""
        if is_url(path) or offset > _MOST_COUNTED_BYTES:
            return None
        starts = range(0, offset, _SCAN_BYTES)
        blocks = (self._files.read_now(path, start, min(start + _SCAN_BYTES, offset)) for start in starts)
        return 1 + sum(int(np.count_nonzero(block == ord("\n"))) for block in blocks)


def _line_ends(file: BinaryIO) -> Iterator[NDArray[np.int64]]:
    """Go through a file, and yield the ends of its lines that are not empty."""
    offset = 0
    rest = b""  # the beginning of a line
    while block := file.read(_SCAN_BYTES):
        data = rest + block
        text = np.frombuffer(data, np.uint8)
        ends = np.flatnonzero(text == ord("\n")) + 1
        # A line is empty if it has nothing else than its end: "\n" or "\r\n".
        lengths = np.diff(ends, prepend=0)
        lengths[(lengths > 1) & (text[ends - 2] == ord("\r"))] -= 1
        yield offset + ends[lengths > 1]
        done = int(ends[-1]) if len(ends) else 0
        rest = data[done:]
        offset += done
    if rest.strip():
        yield np.array([offset + len(rest)])


def broken_line(path: str, number: int, offset: int, line: int | None, error: ValueError) -> BrokenFileError:
    """Return the exception to raise for a line that is not JSON; None: the number of the line in the file is unknown."""
    problem = f"{error.msg} at column {error.colno}" if isinstance(error, json.JSONDecodeError) else str(error)
    place = "" if line is None else f"line {line}, "
    return BrokenFileError(
        f"{shown(path)}: {place}record {number} at byte {offset} is not JSON: {problem}. Correct the line, or remove it",
        path,
        offset,
    )
