"""A file object for remote files: it reads blocks, several of them ahead when it is read in order."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, BinaryIO

import numpy as np

from dali_like.sources.composed.chunked_files import ChunkedFiles
from dali_like.sources.readers.stored_files import SeekableFile, StoredFiles, is_url

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


class _BlockFile(SeekableFile):
    def __init__(self, files: StoredFiles, path: str) -> None:
        blocks = _Blocks(files, path)
        super().__init__(blocks.size)
        self._reader = blocks.reader()

    def readinto(self, buffer: Any) -> int:
        if self.position >= self.size:
            return 0
        block, offset = divmod(self.position, _BLOCK_BYTES)
        data = self._reader[block][offset : offset + len(buffer)]
        buffer[: len(data)] = data
        self.position += len(data)
        return len(data)
