"""Flat files of numbers, such as token ids, in windows of one length.

Local files are mapped: a window is a copy of some bytes, and a loader gathers the windows of a batch at once. Remote files
are read in chunks.
"""

from __future__ import annotations

import mmap
import os
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dali_like.errors import ArgumentError, BrokenFileError
from dali_like.sources.composed.chunked_files import ChunkedFiles
from dali_like.sources.composed.stage import SourceRows
from dali_like.sources.readers.npy_header import NPY_HEADER_BYTES, parse_npy_header
from dali_like.sources.readers.stored_files import StoredFiles, is_url, shown

__all__ = ["TokenFiles", "TokenLayout"]

#: Files that a process keeps mapped for one source. Each has a file descriptor.
_MOST_MAPPED = 64


class TokenLayout(NamedTuple):
    """How tokens become elements.

    Attributes:
        window: tokens of an element.
        shift: tokens from one element to the next.
        dtype: of the tokens in the files.
        header_bytes: at the beginning of each file, before the first token.
    """

    window: int
    shift: int
    dtype: np.dtype[Any]
    header_bytes: int

    def count(self, num_tokens: int) -> int:
        """Return the number of windows in so many tokens."""
        return max(0, (num_tokens - self.window) // self.shift + 1)

    def windows(self, tokens: NDArray[Any]) -> NDArray[Any]:
        """Return a view of all windows, of shape (number of windows, window)."""
        size = tokens.itemsize
        return np.lib.stride_tricks.as_strided(
            tokens, (self.count(len(tokens)), self.window), (self.shift * size, size), writeable=False
        )


class _TokenFile(NamedTuple):
    path: str
    begin: int  # the byte of the first token
    dtype: np.dtype[Any]
    num_tokens: int


class TokenFiles(ChunkedFiles):
    """Windows of tokens. No window crosses files; tokens behind the last whole window of a file are left out.

    Args:
        files: to read with.
        paths: of the files. Files that end in .npy have their dtype in a header.
        layout: of the windows.
        chunk_bytes: about the size of a read of a remote file.

    Raises:
        BrokenFileError: a file does not have a whole number of tokens, or a .npy file has no such array.
        ArgumentError: files have different dtypes.
    """

    has_single_records = True

    def __init__(self, files: StoredFiles, paths: Sequence[str], layout: TokenLayout, chunk_bytes: int) -> None:
        self._files, self._layout = files, layout
        self.is_remote = any(map(is_url, paths))
        self._found = [self._examined(path) for path in paths]
        dtypes = {each.dtype.newbyteorder("="): shown(each.path) for each in self._found}
        if len(dtypes) > 1:
            raise ArgumentError(
                f"files have different dtypes: {', '.join(f'{path} has {dtype}' for dtype, path in dtypes.items())}"
            )
        counts = [layout.count(each.num_tokens) for each in self._found]
        #: The number of the first window of each file, and of the end.
        self._firsts = np.cumsum([0, *counts])
        shift_bytes = layout.shift * layout.dtype.itemsize
        step = max(1, chunk_bytes // shift_bytes)
        ends = [
            np.append(np.arange(first + step, first + count, step), first + count)
            for first, count in zip(self._firsts.tolist(), counts, strict=False)
            if count
        ]
        self.chunk_ends = np.concatenate([np.zeros(0, np.int64), *ends]).astype(np.int64)
        self.mean_chunk_bytes = step * shift_bytes
        self._mapped: OrderedDict[int, _MappedFile] = OrderedDict()

    def _examined(self, path: str) -> _TokenFile:
        size, layout = self._files.size(path), self._layout
        begin, dtype = layout.header_bytes, layout.dtype
        num_bytes = size - begin
        if path.endswith(".npy"):
            start = self._files.read_now(path, 0, min(size, NPY_HEADER_BYTES)).tobytes()
            try:
                header = parse_npy_header(start)
            except ValueError as error:
                raise BrokenFileError(f"{shown(path)} is not a .npy file of numbers: {error}", path, 0) from error
            if len(header.shape) != 1:
                raise BrokenFileError(f"{shown(path)} has the shape {header.shape}: tokens have one dimension", path, 0)
            begin, dtype, num_bytes = header.offset, header.dtype, header.nbytes
        if num_bytes < 0 or num_bytes % dtype.itemsize or begin + num_bytes > size:
            raise BrokenFileError(
                f"{shown(path)}: its {size} bytes are not a header of {begin} bytes and a whole number of tokens of dtype "
                f"{dtype}: check dtype= and header_bytes=, or whether it is truncated",
                path,
                size,
            )
        return _TokenFile(path, begin, dtype, num_bytes // dtype.itemsize)

    @property
    def file_ends(self) -> NDArray[np.int64]:
        """The number of windows up to the end of each file, of shape (number of files,)."""
        return self._firsts[1:]

    @property
    def has_rows(self) -> bool:
        """Whether windows are rows of arrays, as `rows` returns them: in local files of this machine's byte order."""
        return not self.is_remote and all(each.dtype.isnative for each in self._found)

    def rows(self, numbers: NDArray[np.int64]) -> list[SourceRows]:
        """Return where windows are, as rows of arrays.

        Raises:
            BrokenFileError: a file has become shorter.
        """
        if len(self._found) == 1:
            return [SourceRows(self._windows(0), numbers, None)]
        files = np.searchsorted(self._firsts, numbers, "right") - 1
        if files[0] == files[-1] and (len(numbers) == 1 or (files == files[0]).all()):
            return [SourceRows(self._windows(int(files[0])), numbers - self._firsts[files[0]], None)]
        found = []
        for file in np.unique(files).tolist():
            places = np.flatnonzero(files == file)
            found.append(SourceRows(self._windows(file), numbers[places] - self._firsts[file], places))
        return found

    def _windows(self, number: int) -> NDArray[Any]:
        """Return all windows of a local file."""
        mapped = self._mapped.pop(number, None)  # another thread may be here, too
        if mapped is None:
            mapped = _MappedFile(self._found[number], self._layout)
        self._mapped[number] = mapped
        while len(self._mapped) > _MOST_MAPPED:
            self._mapped.popitem(last=False)
        mapped.check_size()
        return mapped.windows

    def reader(self, keep: int = 2, in_order: range | None = None) -> Any:
        return super().reader(keep, in_order) if self.is_remote else _MappedReader(self)

    def window(self, index: int) -> NDArray[Any]:
        """Return a window of a local file."""
        number = int(np.searchsorted(self._firsts, index, "right")) - 1
        return self._native(self._windows(number)[index - int(self._firsts[number])])

    async def read(self, first: int, last: int) -> Sequence[Any]:
        number = int(np.searchsorted(self._firsts, first, "right")) - 1
        file, layout, start = self._found[number], self._layout, int(self._firsts[number])
        begin = (first - start) * layout.shift
        end = (last - start - 1) * layout.shift + layout.window
        size = file.dtype.itemsize
        data = await self._files.read(file.path, file.begin + begin * size, file.begin + end * size)
        windows: Sequence[Any] = layout.windows(data.view(file.dtype))  # type: ignore[assignment]
        return windows

    def decode(self, record: Any, index: int) -> Any:
        return self._native(record)

    @staticmethod
    def _native(window: NDArray[Any]) -> NDArray[Any]:
        return window.astype(window.dtype.newbyteorder("="))

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_mapped": OrderedDict()}


class _MappedFile:
    """A mapped file.

    Attributes:
        windows: all of its windows, of shape (number of windows, window).
    """

    def __init__(self, file: _TokenFile, layout: TokenLayout) -> None:
        self._file = file
        self._needed = file.begin + file.num_tokens * file.dtype.itemsize
        descriptor = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._map = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
        finally:
            os.close(descriptor)
        self.check_size()
        self.windows = layout.windows(np.frombuffer(self._map, file.dtype, file.num_tokens, file.begin))

    def check_size(self) -> None:
        """Check that the file still has all bytes: an access beyond its end would kill the process.

        Raises:
            BrokenFileError: it has become shorter.
        """
        if (size := self._map.size()) < self._needed:
            raise BrokenFileError(
                f"{shown(self._file.path)}: the file ends at byte {size}, before byte {self._needed}. It has been truncated",
                self._file.path,
                size,
            )


class _MappedReader(Sequence[Any]):
    """Reads single windows of local files, which are in the page cache of the system."""

    most_ahead = 0

    def __init__(self, files: TokenFiles) -> None:
        self._files = files

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index: Any) -> Any:
        return self._files.window(index)

    def expect(self, chunks: Iterable[int]) -> None:
        """See `dali_like.sources.composed.chunked_files.ChunkReader.expect`."""
