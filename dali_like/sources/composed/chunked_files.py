"""Files with an index: records at any position, read in chunks.

A `ChunkedFiles` describes files and travels to workers. Each evaluator opens a `ChunkReader`, which keeps the chunks that it
has read most recently. So neighboring records cost one read, memory is bounded, and nothing is open before the first record.
"""

from __future__ import annotations

import abc
import os
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["CHUNK_BYTES", "ChunkReader", "ChunkedFiles", "finished", "opened"]

#: Default size of a read of neighboring records: long enough for the rate of a disk or a store.
CHUNK_BYTES = 1 << 20
#: Chunks that a reader keeps by default.
_KEEP = 2
#: Bytes of remote files that a sequential reader requests ahead, and the largest number of chunks.
_AHEAD_BYTES = 8 << 20
_MOST_AHEAD = 8


class ChunkedFiles(abc.ABC):
    """Records in chunks.

    Attributes:
        chunk_ends: the number of records up to the end of each chunk, of shape (number of chunks,) and dtype int64.
        mean_chunk_bytes: mean size of a chunk.
        is_remote: whether reads wait for a server. They then run in the background, some of them ahead.
        has_single_records: whether one record can be read by itself. Else a reader always reads whole chunks.
    """

    chunk_ends: NDArray[np.int64]
    mean_chunk_bytes: int
    is_remote: bool
    has_single_records: bool

    def __len__(self) -> int:
        return int(self.chunk_ends[-1]) if len(self.chunk_ends) else 0

    def __getitem__(self, index: int) -> Any:
        """Return one record, without keeping its chunk."""
        return self.reader()[range(len(self))[index]]

    def reader(self, keep: int = _KEEP) -> ChunkReader:
        """Return a reader.

        Args:
            keep: number of chunks to keep in memory.
        """
        return ChunkReader(self, keep)

    @abc.abstractmethod
    async def read(self, first: int, last: int) -> Sequence[Any]:
        """Read the records from `first` to before `last`, all of one chunk. Never suspends if `is_remote` is false."""

    @abc.abstractmethod
    def decode(self, record: Any, index: int) -> Any:
        """Return the element for a record that `read` has returned.

        Raises:
            BrokenFileError: the record is damaged.
        """


class ChunkReader(Sequence[Any]):
    """Reads records in one process. Not thread-safe.

    A record in the chunk of the record before, or in the next chunk, is a sign of sequential access: the chunk is then read
    as a whole, and of remote files the next ones, too. Else a record is read by itself, if the format allows.

    Args:
        source: the files.
        keep: number of chunks to keep in memory.
    """

    def __init__(self, source: ChunkedFiles, keep: int) -> None:
        self._source = source
        self._ahead = min(max(_AHEAD_BYTES // max(source.mean_chunk_bytes, 1), 1), _MOST_AHEAD) if source.is_remote else 0
        self._keep = keep + self._ahead
        self._expected: set[int] = set()
        self._forget()

    def _forget(self) -> None:
        self._pid = os.getpid()
        self._reads: Any = None
        self._chunks: OrderedDict[int, Future[Any] | Sequence[Any]] = OrderedDict()
        self._touched = -2
        #: The latest records that were read: number of the first, of the end, and the records.
        self._first = self._last = 0
        self._records: Sequence[Any] = ()

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, index: Any) -> Any:
        if not self._first <= index < self._last:
            self._find(index)
        return self._source.decode(self._records[index - self._first], index)

    def expect(self, chunks: Iterable[int]) -> None:
        """Announce the chunks to be read next, as wholes. All of them are kept. Of remote files, start to read them."""
        self._check_process()
        order = list(chunks)
        self._expected = set(order)
        self._keep = max(self._keep, len(order))
        if self._source.is_remote:
            for chunk in order:
                self._load(chunk)

    def _find(self, index: int) -> None:
        """Make the record one of the latest."""
        self._check_process()
        ends = self._source.chunk_ends
        chunk = int(np.searchsorted(ends, index, "right"))
        is_sequential = chunk in (self._touched, self._touched + 1)
        self._touched = chunk
        if chunk not in self._chunks and not (is_sequential or chunk in self._expected) and self._source.has_single_records:
            self._records, self._first, self._last = self._read(index, index + 1), index, index + 1
            return
        loaded = self._load(chunk)
        if is_sequential and not self._expected:
            for following in range(chunk + 1, min(chunk + 1 + self._ahead, len(ends))):
                self._load(following)
        if isinstance(loaded, Future):
            try:
                loaded = loaded.result()
            except Exception:
                self._chunks.pop(chunk, None)  # the next access tries again
                raise
            self._chunks[chunk] = loaded
        self._records, self._first, self._last = loaded, self._begin(chunk), int(ends[chunk])

    def _load(self, chunk: int) -> Future[Any] | Sequence[Any]:
        loaded = self._chunks.get(chunk)
        if loaded is None:
            first, last = self._begin(chunk), int(self._source.chunk_ends[chunk])
            loaded = self._chunks[chunk] = self._start(first, last) if self._source.is_remote else self._read(first, last)
            while len(self._chunks) > self._keep:
                _, evicted = self._chunks.popitem(last=False)
                if isinstance(evicted, Future):
                    evicted.cancel()
        else:
            self._chunks.move_to_end(chunk)
        return loaded

    def _begin(self, chunk: int) -> int:
        return int(self._source.chunk_ends[chunk - 1]) if chunk else 0

    def _read(self, first: int, last: int) -> Sequence[Any]:
        is_remote = self._source.is_remote
        records: Sequence[Any]
        records = self._start(first, last).result() if is_remote else finished(self._source.read(first, last))
        return records

    def _start(self, first: int, last: int) -> Future[Any]:
        if self._reads is None:
            from dali_like.sources.composed.background_reads import background_reads  # noqa: PLC0415  # imports asyncio

            self._reads = background_reads()
        future: Future[Any] = self._reads.start(self._source.read(first, last))
        return future

    def _check_process(self) -> None:
        """Forget the reads of the parent process after a fork."""
        if self._pid != os.getpid():
            self._forget()


def opened(source: Any, keep: int = _KEEP) -> Any:
    """Return what an evaluator indexes: a reader of files, or the source itself."""
    return source.reader(keep) if isinstance(source, ChunkedFiles) else source


def finished(coroutine: Any) -> Any:
    """Return the result of a coroutine that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    coroutine.close()
    raise AssertionError("the coroutine has suspended")
