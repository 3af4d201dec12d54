"""Files with an index: records at any position, read in chunks.

A `ChunkedFiles` describes files and travels to workers. Each evaluator opens a `ChunkReader`, which keeps the chunks that it
has read most recently. So neighboring records cost one read, memory is bounded, and nothing is open before the first record.
"""

from __future__ import annotations

import abc
import os
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from dali_like.sources.composed.background_reads import BackgroundReads
    from dali_like.sources.composed.stage import SourceRows

__all__ = ["CHUNK_BYTES", "ChunkReader", "ChunkedFiles", "ChunkedSource", "FileRecords", "finished", "opened"]

#: Default size of a read of neighboring records: long enough for the rate of a disk or a store.
CHUNK_BYTES = 1 << 20
#: Chunks that a reader keeps by default.
_KEEP = 2
#: Bytes of remote files that the readers of a process request ahead, all together, and the largest number of chunks of one.
#: Requests that begin together end together, and a latency passes before the next ones. At 50 ms and 50 MB/s, 32 MiB leave
#: the connection idle for 7 % of the time.
_AHEAD_BYTES = 32 << 20
MOST_AHEAD = 32


class ChunkedSource(abc.ABC):
    """Records in chunks that cost less together, in any way of reading.

    Attributes:
        chunk_ends: the number of records up to the end of each chunk, of shape (number of chunks,) and dtype int64.
    """

    chunk_ends: NDArray[np.int64]

    def __len__(self) -> int:
        return int(self.chunk_ends[-1]) if len(self.chunk_ends) else 0

    def __getitem__(self, index: int) -> Any:
        """Return one record, without keeping its chunk."""
        return self.reader()[range(len(self))[index]]

    @property
    def has_rows(self) -> bool:
        """Whether records are rows of arrays in memory, which `rows` finds."""
        return False

    def rows(self, numbers: NDArray[np.int64]) -> list[SourceRows]:
        """Return where records are, if `has_rows`; see `dali_like.sources.composed.stage.RandomAccess.rows`."""
        raise NotImplementedError

    @abc.abstractmethod
    def reader(self, keep: int = _KEEP, in_order: range | None = None) -> Any:
        """Return a reader for one process: a sequence with ``expect`` and ``most_ahead``, as `ChunkReader`."""


class ChunkedFiles(ChunkedSource):
    """Records that are read in chunks.

    Attributes:
        mean_chunk_bytes: mean size of a chunk.
        is_remote: whether reads wait for a server. They then run in the background, some of them ahead.
        has_single_records: whether one record can be read by itself. Else a reader always reads whole chunks.
    """

    mean_chunk_bytes: int
    is_remote: bool
    has_single_records: bool

    def reader(self, keep: int = _KEEP, in_order: range | None = None) -> Any:
        """Return a reader for one process.

        Args:
            keep: number of chunks to keep in memory.
            in_order: the records that it will read, in order, up to the end of a chunk; None: any records.
        """
        return ChunkReader(self, keep, in_order)

    @abc.abstractmethod
    async def read(self, first: int, last: int) -> Sequence[Any]:
        """Read the records from `first` to before `last`, all of one chunk. Never suspends if `is_remote` is false."""

    @abc.abstractmethod
    def decode(self, record: Any, index: int) -> Any:
        """Return the element for a record that `read` has returned.

        Raises:
            BrokenFileError: the record is damaged.
        """


@dataclass(frozen=True)
class FileRecords:
    """One of several files, which is read in order. A part of a source; see `dali_like.sources.composed.inputs.Part`.

    Attributes:
        records: the records of the file.
        path: of the file, for messages.
    """

    source: ChunkedSource
    records: range
    path: str

    def open(self, record: int) -> Iterator[Any]:
        """Return an iterator over the records from number `record` on."""
        left = self.records[record:]
        return map(self.source.reader(in_order=left).__getitem__, left)

    def __str__(self) -> str:
        return self.path


class ChunkReader(Sequence[Any]):
    """Reads records in one process. Not thread-safe.

    A record in the chunk of the record before, or in the next chunk, is a sign of sequential access: the chunk is then read
    as a whole, and of remote files the next ones, too: the more, the longer the access has been sequential. Else a record is
    read by itself, if the format allows.

    Args:
        source: the files.
        keep: number of chunks to keep in memory.
        in_order: see `ChunkedFiles.reader`.
    """

    def __init__(self, source: ChunkedFiles, keep: int, in_order: range | None = None) -> None:
        self._source = source
        #: The chunk that the first record seems to follow, and the end of the chunks to request ahead.
        self._before, self._end_chunk = -2, len(source.chunk_ends)
        if in_order:
            self._before = int(np.searchsorted(source.chunk_ends, in_order.start, "right")) - 1
            self._end_chunk = int(np.searchsorted(source.chunk_ends, in_order.stop)) + 1
        self._keep = keep
        self._expected: set[int] = set()
        self._forget()

    def _forget(self) -> None:
        self._pid = os.getpid()
        self._reads: BackgroundReads | None = None
        self._ahead = 0
        self._chunks: OrderedDict[int, Future[Any] | Sequence[Any]] = OrderedDict()
        self._touched = self._before
        #: The latest records that were read: number of the first, of the end, and the records.
        self._first = self._last = 0
        self._records: Sequence[Any] = ()

    def __len__(self) -> int:
        return len(self._source)

    @property
    def most_ahead(self) -> int:
        """The number of chunks to request ahead: a fair share of the limit of the process."""
        if not self._source.is_remote:
            return 0
        share = _AHEAD_BYTES // len(self._background.readers)
        return min(max(share // max(self._source.mean_chunk_bytes, 1), 1), MOST_AHEAD)

    def __getitem__(self, index: Any) -> Any:
        if not self._first <= index < self._last:
            self._find(index)
        return self._source.decode(self._records[index - self._first], index)

    def expect(self, chunks: Iterable[int]) -> None:
        """Announce the chunks to be read next, as wholes. All of them are kept. Of remote files, start to read them."""
        self._check_process()
        order = list(chunks)
        self._expected = set(order)
        self._forget_ahead()
        self._keep = max(self._keep, len(order))
        if self._source.is_remote:
            for chunk in order:
                self._load(chunk)

    def _find(self, index: int) -> None:
        """Make the record one of the latest."""
        self._check_process()
        ends = self._source.chunk_ends
        chunk = int(np.searchsorted(ends, index, "right"))
        # A chunk that was requested ahead is one of several that are read in order by several workers.
        is_sequential = chunk in (self._touched, self._touched + 1) or isinstance(self._chunks.get(chunk), Future)
        self._touched = chunk
        if not self._expected:
            self._ahead = min(2 * self._ahead or 1, self.most_ahead) if is_sequential else 0
            if not is_sequential:
                self._forget_ahead()
        if chunk not in self._chunks and not (is_sequential or chunk in self._expected) and self._source.has_single_records:
            self._records, self._first, self._last = self._read(index, index + 1), index, index + 1
            return
        loaded = self._load(chunk)
        if is_sequential and not self._expected:
            for following in range(chunk + 1, min(chunk + 1 + self._ahead, self._end_chunk)):
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
            while len(self._chunks) > self._keep + self._ahead:
                # The oldest one, but not one that was requested ahead: its bytes would be fetched again.
                used = (number for number, each in self._chunks.items() if not isinstance(each, Future))
                evicted = self._chunks.pop(next(used, next(iter(self._chunks))))
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
        return self._background.start(self._source.read(first, last))

    @property
    def _background(self) -> BackgroundReads:
        if self._reads is None:
            from dali_like.sources.composed.background_reads import background_reads  # imports asyncio

            self._reads = background_reads()
            self._reads.readers.add(self)
        return self._reads

    def _forget_ahead(self) -> None:
        """Forget the chunks that were requested ahead and are not expected: the access goes on elsewhere."""
        for number, chunk in list(self._chunks.items()):
            if isinstance(chunk, Future) and number not in self._expected:
                chunk.cancel()
                del self._chunks[number]

    def _check_process(self) -> None:
        """Forget the reads of the parent process after a fork."""
        if self._pid != os.getpid():
            self._forget()


def opened(source: Any, keep: int = _KEEP) -> Any:
    """Return the object that an evaluator indexes: a reader of files, or the source itself."""
    return source.reader(keep) if isinstance(source, ChunkedSource) else source


def finished(coroutine: Any) -> Any:
    """Return the result of a coroutine that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    coroutine.close()
    raise AssertionError("the coroutine has suspended")
