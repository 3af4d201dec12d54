"""Keys and places of the records in an LMDB database (version 1 of its format, as LMDB 0.9 writes it).

The file is a B+ tree of pages. Two meta pages come first; the one of the later transaction has the number of the root.
Branch pages hold numbers of pages. Leaf pages hold keys with their records, or with the number of the first of several pages
of a large record. Page numbers and sizes are checked before they are used. The library of LMDB maps the file and trusts it,
so that a damaged database kills the process.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dali_like.errors import BrokenFileError
from dali_like.sources.readers.records import whole_size
from dali_like.sources.readers.stored_files import shown

__all__ = ["LmdbRecords", "find_records"]

#: A database begins with two pages of this size, or larger.
_LEAST_PAGE_BYTES = 4096
_PAGE_SIZES = [1 << bits for bits in range(9, 17)]
#: Number, padding, flags, and the bounds of the free space between the positions of nodes and the nodes.
_PAGE = struct.Struct("<QHHHH")
_BRANCH, _LEAF, _META = 0x01, 0x02, 0x08
#: Magic, version, address, size of the map; of the free pages, and of the records: see `_TREE`; last page, transaction.
_META_PAGE = struct.Struct("<IIQQ48s48sQQ")
_MAGIC, _VERSION = 0xBEEFC0DE, 1
#: Page size (of the free pages), flags, depth, branch pages, leaf pages, overflow pages, entries, root.
_TREE = struct.Struct("<IHHQQQQQ")
_NO_PAGE = (1 << 64) - 1
#: Low and high half of the size, flags, size of the key; in branch pages, the first three are the number of a page.
_NODE_BYTES = 8
_IS_LARGE = 0x01


class LmdbRecords(NamedTuple):
    """The records of a database, in the order of their keys.

    Attributes:
        keys: their keys.
        spans: the first byte and the end of each in the file, of shape (number of records, 2) and dtype int64.
    """

    keys: list[bytes]
    spans: NDArray[np.int64]


class _Meta(NamedTuple):
    page_bytes: int
    root: int
    entries: int
    last_page: int
    transaction: int


def find_records(path: str, file: BinaryIO) -> LmdbRecords:
    """Return the records of a database.

    Args:
        path: of the file, for messages.
        file: the file, open for reading.

    Raises:
        BrokenFileError: the file is not a database of LMDB, or is damaged or truncated.
    """
    return _Database(path, file).records()


class _Database:
    def __init__(self, path: str, file: BinaryIO) -> None:
        self._path, self._file = path, file
        self._size = whole_size(file)
        first = self._meta(0)
        self._page_bytes = first.page_bytes
        self._tree = max(first, self._meta(self._page_bytes), key=lambda meta: meta.transaction)
        needed = (self._tree.last_page + 1) * self._page_bytes
        if self._size < needed:
            raise self._broken(
                f"is truncated: its last page ends at byte {needed}, the file at byte {self._size}", self._size
            )

    def records(self) -> LmdbRecords:
        keys: list[bytes] = []
        spans = [np.zeros((0, 2), np.int64)]
        for number, page in self._leaves():
            found, places = self._records_of(number, page)
            keys += found
            spans.append(places)
        if len(keys) != self._tree.entries:
            raise self._broken(f"has {len(keys)} records, and its header says {self._tree.entries}. It is damaged", 0)
        return LmdbRecords(keys, np.concatenate(spans))

    def _meta(self, offset: int) -> _Meta:
        self._file.seek(offset)
        head = self._file.read(_PAGE.size + _META_PAGE.size)
        if self._size < 2 * _LEAST_PAGE_BYTES or len(head) < _PAGE.size + _META_PAGE.size:
            raise self._no_database(offset)
        _, _, flags, *_ = _PAGE.unpack_from(head)
        magic, version, _, _, free, records, last_page, transaction = _META_PAGE.unpack_from(head, _PAGE.size)
        page_bytes = _TREE.unpack(free)[0]
        *_, entries, root = _TREE.unpack(records)
        if (magic, version) != (_MAGIC, _VERSION) or not flags & _META or page_bytes not in _PAGE_SIZES:
            raise self._no_database(offset)
        return _Meta(page_bytes, root, entries, last_page, transaction)

    def _leaves(self) -> Iterator[tuple[int, bytes]]:
        """Yield number and content of each leaf page, in the order of keys."""
        pending = [] if self._tree.root == _NO_PAGE else [self._tree.root]
        seen = 0
        while pending:
            number = pending.pop()
            seen += 1
            if seen > self._tree.last_page:
                raise self._damaged(number, "is part of a loop")
            if not 2 <= number <= self._tree.last_page:
                raise self._damaged(number, f"is not one of the {self._tree.last_page + 1} pages")
            self._file.seek(number * self._page_bytes)
            page = self._file.read(self._page_bytes)
            if len(page) < self._page_bytes:
                raise self._damaged(number, "is missing")
            if _PAGE.unpack_from(page)[0] != number:
                raise self._damaged(number, "has another number")
            flags = _PAGE.unpack_from(page)[2]
            if flags & _LEAF:
                yield number, page
            elif flags & _BRANCH:
                _, words, at = self._nodes(number, page)
                children = words[at] | words[at + 1] << 16 | words[at + 2] << 32
                pending += children[::-1].tolist()
            else:
                raise self._damaged(number, "is neither a branch nor a leaf")

    def _nodes(self, number: int, page: bytes) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return the positions of the nodes of a page in bytes, the page as 16-bit words, and the positions in words."""
        lower = _PAGE.unpack_from(page)[3]
        if not _PAGE.size <= lower <= self._page_bytes or lower % 2:
            raise self._damaged(number, "has wrong bounds")
        words = np.frombuffer(page, "<u2").astype(np.int64)
        positions = words[_PAGE.size // 2 : lower // 2]
        if len(positions) and not (lower <= positions.min() and positions.max() <= self._page_bytes - _NODE_BYTES):
            raise self._damaged(number, "has a node outside of itself")
        if np.any(positions % 2):
            raise self._damaged(number, "has a node at an odd byte")
        return positions, words, positions // 2

    def _records_of(self, number: int, page: bytes) -> tuple[list[bytes], NDArray[np.int64]]:
        positions, words, at = self._nodes(number, page)
        sizes = words[at] | words[at + 1] << 16
        flags = words[at + 2]
        begins = positions + _NODE_BYTES + words[at + 3]
        is_large = flags == _IS_LARGE
        if np.any(flags & ~_IS_LARGE):
            raise self._damaged(number, "has something else than single records, such as a named database")
        if np.any(begins + np.where(is_large, 8, sizes) > self._page_bytes):
            raise self._damaged(number, "has a record that exceeds it")
        keys = [page[start + _NODE_BYTES : end] for start, end in zip(positions.tolist(), begins.tolist(), strict=True)]
        starts = begins + number * self._page_bytes
        for i in np.flatnonzero(is_large).tolist():
            (first,) = struct.unpack_from("<Q", page, int(begins[i]))
            starts[i] = min(first, self._tree.last_page + 1) * self._page_bytes + _PAGE.size
        ends = starts + sizes
        if np.any(ends > self._size):
            raise self._damaged(number, "has a record that exceeds the file")
        return keys, np.stack([starts, ends], 1)

    def _damaged(self, number: int, problem: str) -> BrokenFileError:
        offset = min(number * self._page_bytes, self._size)
        return self._broken(f"is damaged: page {number} at byte {offset} {problem}. Write the database again", offset)

    def _no_database(self, offset: int) -> BrokenFileError:
        return self._broken(f"of {self._size} bytes is not a database of LMDB", offset)

    def _broken(self, problem: str, offset: int) -> BrokenFileError:
        return BrokenFileError(f"{shown(self._path)} {problem}", self._path, offset)
