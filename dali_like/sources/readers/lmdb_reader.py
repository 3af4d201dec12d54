"""The base class of readers whose samples are the records of LMDB databases.

The main process reads the keys. Each worker opens the databases itself: an environment of LMDB does not survive a fork.
"""

from __future__ import annotations

import os
import tempfile
from abc import abstractmethod
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from dali_like.common.extras import optional
from dali_like.common.saved_arguments import SavedTexts
from dali_like.errors import ArgumentError, BrokenFileError
from dali_like.sources.readers.file_reader import listed
from dali_like.sources.readers.reader import Reader
from dali_like.sources.readers.stored_files import FileNames, StoredFiles, is_url, joined, shown
from dali_like.types import SampleInfo

#: A database begins with two pages of this size, or larger.
_LEAST_PAGE_BYTES = 4096
#: The environments of this process, by process and path: LMDB cannot open a database twice.
_environments: WeakValueDictionary[tuple[int, str], Any] = WeakValueDictionary()


class LmdbReader(Reader):
    """Reads records of LMDB databases, in the order of their keys, and one database after the other.

    Args:
        path: folders of the databases.
    """

    def __init__(self, *, path: SavedTexts) -> None:
        self._paths = listed(path) or ()
        if not self._paths:
            raise ArgumentError("path must name at least one folder of an LMDB database")
        self._keys = FileNames(())
        self._firsts = np.zeros(1, np.int64)
        self._opened: dict[tuple[int, str], Any] = {}

    def prepare(self) -> None:
        keys: list[str] = []
        firsts = [0]
        for path in self._paths:
            with self._environment(path).begin() as transaction:
                keys += map(os.fsdecode, transaction.cursor().iternext(values=False))
            firsts.append(len(keys))
        self._keys = FileNames(keys)
        self._firsts = np.asarray(firsts)
        self._opened.clear()

    def __len__(self) -> int:
        return len(self._keys)

    def read(self, index: int, info: SampleInfo) -> Any:
        path = self._paths[int(np.searchsorted(self._firsts, index, "right")) - 1]
        key = self._keys[index]
        lmdb = _lmdb()
        try:
            with self._environment(path).begin(buffers=True) as transaction:
                record = transaction.get(os.fsencode(key))
                return self.parse(np.frombuffer(_existing(record), np.uint8), info)
        except (ValueError, lmdb.Error) as error:
            raise BrokenFileError(f"{shown(path)}, record with the key {shown(key)}: {error}", path) from None

    @abstractmethod
    def parse(self, record: NDArray[np.uint8], info: SampleInfo) -> Any:
        """Return the sample of a record. It must not refer to the record's memory.

        Raises:
            ValueError: the record is damaged, or of another format.
        """

    def _environment(self, path: str) -> Any:
        key = os.getpid(), path
        if key not in self._opened:
            environment = _environments.get(key)
            if environment is None:
                environment = _environments[key] = _opened(path, self.files)
            self._opened = {other: each for other, each in self._opened.items() if other[0] == key[0]} | {key: environment}
        return self._opened[key]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": {}}


def _existing(record: Any) -> Any:
    if record is None:
        raise ValueError("another program has removed it")
    return record


def _opened(path: str, files: StoredFiles) -> Any:
    """Open a database for reading. A remote one is copied to a temporary file."""
    data_path = joined(path, "data.mdb")
    if not is_url(path):
        return _opened_file(data_path, data_path, files.size(data_path))
    data = files.read_now(data_path)
    with tempfile.NamedTemporaryFile() as copy:
        copy.write(data.data)
        copy.flush()
        return _opened_file(data_path, copy.name, len(data))


def _opened_file(name: str, path: str, size: int) -> Any:
    lmdb = _lmdb()
    if size < 2 * _LEAST_PAGE_BYTES:
        raise BrokenFileError(f"{shown(name)} of {size} bytes is not a database of LMDB", name, 0)
    try:
        environment = lmdb.open(path, subdir=False, readonly=True, lock=False, create=False)
        needed = (environment.info()["last_pgno"] + 1) * environment.stat()["psize"]
    except lmdb.Error as error:
        raise BrokenFileError(f"{shown(name)} of {size} bytes is not a database of LMDB: {error}", name, 0) from None
    if size < needed:  # reading pages that are missing would kill the process
        raise BrokenFileError(
            f"{shown(name)} is truncated: its last page ends at byte {needed}, the file at byte {size}", name, size
        )
    return environment


def _lmdb() -> Any:
    return optional("lmdb", "Reading LMDB databases", "lmdb")
