"""A file object for remote files: it reads blocks, several of them ahead when it is read in order."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, BinaryIO

import numpy as np

from dali_like.sources.composed.chunked_files import ChunkedFiles
from dali_like.sources.readers.stored_files import StoredFiles, is_url

__all__ = ["open_in_blocks"]

_BLOCK_BYTES = 1 << 20


def open_in_blocks(files: StoredFiles, path: str) -> BinaryIO:
    """Open a file for reading. Of a remote file, only a few blocks are in memory."""
    return io.BufferedReader(_BlockFile(files, path)) if is_url(path) else files.open(path)


class _Blocks(ChunkedFiles):
    """The blocks of a file."""

    is_remote = True
    has_single_records = False
    mean_chunk_bytes = _BLOCK_BYTES

    def __init__(self, files: StoredFiles, path: str) -> None:
        self._files, self._path = files, path
        self.size = files.size(path)
        self.chunk_ends = np.arange(1, -(-self.size // _BLOCK_BYTES) + 1)

    async def read(self, first: int, last: int) -> Sequence[Any]:
        start = first * _BLOCK_BYTES
        return [(await self._files.read(self._path, start, min(start + _BLOCK_BYTES, self.size))).data]

    def decode(self, record: Any, index: int) -> Any:
        return record


class _BlockFile(io.RawIOBase):
    def __init__(self, files: StoredFiles, path: str) -> None:
        self._blocks = _Blocks(files, path)
        self._reader = self._blocks.reader()
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._blocks.size}[whence]
        return self._position

    def readinto(self, buffer: Any) -> int:
        if self._position >= self._blocks.size:
            return 0
        block, offset = divmod(self._position, _BLOCK_BYTES)
        data = self._reader[block][offset : offset + len(buffer)]
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)
